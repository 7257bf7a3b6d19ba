//! Where copies of mirrored extents are made anew: on spares first.

use crate::settings::Settings;
use parking_lot::Mutex;
use rowen_engine::disk::PvIndex;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is done about copies that a disk took with it, and since when they are lacking.
pub struct Repairs {
    pub(super) policy: Mutex<RepairPolicy>,
    pub(super) state: Mutex<RepairState>,
}

#[derive(Clone, Debug)]
pub(super) struct RepairPolicy {
    /// They are made anew without a person.
    pub is_automatic: bool,
    /// So long after the disk was seen to be missing.
    pub delay: Duration,
    /// The tag of spares.
    pub spare_tag: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RepairState {
    /// The time of the group's server at which copies were lacking first, or could not be made last.
    pub since: Option<Duration>,
    /// Why they could not be made.
    pub failed: Option<String>,
    /// Missing physical volumes that an earlier server has waited for.
    pub given_up: Vec<[u8; 16]>,
}

impl From<&Settings> for RepairPolicy {
    fn from(settings: &Settings) -> RepairPolicy {
        RepairPolicy {
            is_automatic: settings.repairs_mirrors,
            delay: Duration::from_secs(settings.repair_delay),
            spare_tag: settings.spare_tag.clone(),
        }
    }
}

impl Repairs {
    pub fn new(settings: &Settings) -> Repairs {
        Repairs { policy: Mutex::new(settings.into()), state: Mutex::default() }
    }

    pub fn set_settings(&self, settings: &Settings) {
        *self.policy.lock() = settings.into();
    }
}

/// A physical volume with free extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub pv: PvIndex,
    pub path: String,
    pub extents: u64,
    pub free: u64,
}

/// Where copies go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// The spares that are taken.
    pub spares: Vec<Room>,
    /// They have room for everything.
    pub are_enough: bool,
}

/// The free extents on all but this one.
fn free_beside(places: &[Room], pv: PvIndex) -> u64 {
    places.iter().filter(|room| room.pv != pv).map(|room| room.free).sum()
}

/// Chooses the places of second copies. `lacking`: so many extents have their only copy on this physical volume. `others`: the
/// physical volumes that take new data, which have this many `unreserved` extents together. The smallest spare that has
/// room is taken, or as few as possible; if all spares together are too small, none, or all of them together with the others.
///
/// # Errors
/// There is no room: how many extents need a copy, and at most how many can get one.
pub(super) fn choose(
    lacking: &BTreeMap<PvIndex, u64>,
    mut spares: Vec<Room>,
    others: &[Room],
    unreserved: u64,
) -> Result<Places, (u64, u64)> {
    let needed: u64 = lacking.values().sum();
    // A copy does not go where the other one is.
    let can_take = |places: &[Room], limit: u64| {
        needed <= limit && lacking.iter().all(|(pv, extents)| *extents <= free_beside(places, *pv))
    };
    let free_of = |places: &[Room]| places.iter().map(|room| room.free).sum::<u64>();
    spares.sort_by_key(|room| room.free);
    if let Some(smallest) = spares.iter().find(|room| can_take(std::slice::from_ref(room), room.free)) {
        return Ok(Places { spares: vec![smallest.clone()], are_enough: true });
    }
    spares.reverse();
    let fewest = (1..=spares.len()).find(|count| can_take(&spares[..*count], free_of(&spares[..*count])));
    if let Some(count) = fewest {
        return Ok(Places { spares: spares[..count].to_vec(), are_enough: true });
    }
    let unreserved = unreserved.min(free_of(others));
    if can_take(others, unreserved) {
        return Ok(Places::default());
    }
    let all = [spares.as_slice(), others].concat();
    let limit = free_of(&spares) + unreserved;
    if can_take(&all, limit) {
        return Ok(Places { spares, are_enough: false });
    }
    let beside = lacking.iter().map(|(pv, extents)| free_beside(&all, *pv).min(*extents)).sum::<u64>();
    Err((needed, beside.min(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(free: &[(u16, u64)]) -> Vec<Room> {
        let room =
            |(pv, free): &(u16, u64)| Room { pv: PvIndex(*pv), path: format!("/dev/{pv}"), extents: 100, free: *free };
        free.iter().map(room).collect()
    }

    fn chosen(
        lacking: &[(u16, u64)],
        spares: &[(u16, u64)],
        others: &[(u16, u64)],
        unreserved: u64,
    ) -> Result<(Vec<u16>, bool), (u64, u64)> {
        let lacking = lacking.iter().map(|(pv, extents)| (PvIndex(*pv), *extents)).collect();
        let places = choose(&lacking, rooms(spares), &rooms(others), unreserved)?;
        Ok((places.spares.iter().map(|room| room.pv.0).collect(), places.are_enough))
    }

    #[test]
    fn the_smallest_spare_with_room_is_taken() {
        assert_eq!(chosen(&[(0, 10)], &[(2, 50), (3, 10), (4, 9)], &[(0, 90)], 90), Ok((vec![3], true)));
    }

    #[test]
    fn several_spares_are_taken_if_one_is_not_enough() {
        assert_eq!(chosen(&[(0, 10)], &[(2, 6), (3, 7), (4, 1)], &[(1, 90)], 90), Ok((vec![3, 2], true)));
    }

    #[test]
    fn other_physical_volumes_help() {
        assert_eq!(chosen(&[(0, 10)], &[(2, 6)], &[(0, 50), (1, 4)], 54), Ok((vec![2], false)));
        assert_eq!(
            chosen(&[(0, 10)], &[(2, 6)], &[(0, 50), (1, 10)], 60),
            Ok((Vec::new(), false)),
            "a spare stays one"
        );
        assert_eq!(chosen(&[(0, 10)], &[], &[(1, 10)], 10), Ok((Vec::new(), false)));
        assert_eq!(chosen(&[(0, 10)], &[], &[(1, 10)], 9), Err((10, 9)), "the rest is reserved");
    }

    #[test]
    fn no_copy_goes_beside_the_other_one() {
        assert_eq!(chosen(&[(0, 10)], &[], &[(0, 50)], 50), Err((10, 0)));
        assert_eq!(chosen(&[(0, 10)], &[(2, 6)], &[(0, 50)], 50), Err((10, 6)));
        assert_eq!(chosen(&[(0, 10), (1, 5)], &[], &[(0, 5), (1, 10)], 15), Ok((Vec::new(), false)));
        assert_eq!(chosen(&[(0, 10), (1, 5)], &[], &[(0, 4), (1, 11)], 15), Err((15, 14)));
    }
}
