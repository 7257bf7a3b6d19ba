//! The points of a volume from which a transfer can continue: its snapshots and bookmarks. `rowen points --json` sends
//! them to another host. Fields that an older version does not send have defaults. Unknown fields are ignored.

use crate::holds::holds;
use crate::protocol::{GroupReport, HexUuid, Unfinished, VolumeReport};
use crate::uuids::lvm_text;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};

/// The tag of a snapshot that a policy of `rowen backup` made, before the policy's name.
pub const POLICY: &str = "backup=";

/// A snapshot or a bookmark, by the identity of its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    pub name: String,
    pub point_uuid: String,
    /// Seconds since 1970.
    pub made: u64,
    /// The holder.
    pub holds: Vec<String>,
    /// The policy that made it.
    pub policy: Option<String>,
    pub is_bookmark: bool,
}

/// A transfer into the volume that did not come to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arriving {
    pub snapshot: String,
    /// The identity of what arrives.
    pub point_uuid: String,
    pub base_uuid: Option<String>,
    /// With other volumes, in one stream.
    pub is_of_group: bool,
    /// What `rowen send --resume` needs, if there is a mark.
    pub token: Option<String>,
}

/// A volume, or the fact that no volume has this name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Points {
    pub group: String,
    pub group_uuid: String,
    pub volume: String,
    pub exists: bool,
    /// It is a snapshot at its point, and can be sent as it is.
    pub is_snapshot: bool,
    /// The identity of its contents, if nobody wrote to it since its newest snapshot.
    pub point_uuid: Option<String>,
    /// What this is a snapshot of.
    pub origin: Option<String>,
    /// From the oldest to the newest, whatever clocks said.
    pub points: Vec<Point>,
    pub arriving: Option<Arriving>,
    /// If it was asked for.
    pub summed: Option<Summed>,
}

/// What a snapshot has, as a number that is equal on every host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summed {
    /// The size of the snapshot.
    pub blocks: u64,
    /// Of the blocks that were asked for.
    pub sum: String,
}

fn text(uuid: HexUuid) -> String {
    lvm_text(uuid.0)
}

fn of_snapshot(volume: &VolumeReport) -> Option<(u64, u64, Point)> {
    let tags = &volume.attributes.tags;
    let policy = tags.iter().find_map(|tag| tag.strip_prefix(POLICY)).map(str::to_owned);
    let point = Point {
        name: volume.name.clone(),
        point_uuid: text(volume.point_uuid?),
        made: volume.attributes.created,
        holds: holds(tags).map(|hold| hold.name.to_owned()).collect(),
        policy,
        is_bookmark: false,
    };
    Some((volume.moment.unwrap_or(0), volume.id, point))
}

impl Points {
    /// Of a volume of the group, with what is being received.
    pub fn of(report: &GroupReport, name: &str, unfinished: &[Unfinished]) -> Points {
        let volume = report.volume(name);
        let is_made_here = |volume: &&VolumeReport| !volume.is_waiting_to_merge();
        let mut found: Vec<_> = report.snapshots_of(name).filter(is_made_here).filter_map(of_snapshot).collect();
        found.sort_by_key(|(moment, id, _)| (*moment, *id));
        let of = volume.map(|volume| HexUuid(volume.uuid));
        let bookmarks = report.bookmarks.iter().filter(|bookmark| !bookmark.has_ended && Some(bookmark.of) == of);
        let bookmarks = bookmarks.map(|bookmark| Point {
            name: bookmark.name.clone(),
            point_uuid: text(bookmark.point_uuid),
            made: bookmark.created,
            is_bookmark: true,
            ..Point::default()
        });
        Points {
            group: report.name.clone(),
            group_uuid: lvm_text(report.uuid),
            volume: name.to_owned(),
            exists: volume.is_some(),
            is_snapshot: volume.is_some_and(|volume| volume.origin.is_some() && volume.point_uuid.is_some()),
            point_uuid: volume.and_then(|volume| volume.point_uuid).map(text),
            origin: volume.and_then(|volume| volume.origin.clone()),
            points: bookmarks.chain(found.into_iter().map(|(_, _, point)| point)).collect(),
            arriving: unfinished.iter().find_map(|one| arriving(one, name)),
            summed: None,
        }
    }

    /// The snapshots alone.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = &Point> {
        self.points.iter().filter(|point| !point.is_bookmark)
    }

    /// The snapshot that gives these contents their identity: the oldest one that has them. Without it the others lose the identity.
    pub fn named_by(&self, point_uuid: &str) -> Option<&Point> {
        self.snapshots().find(|point| point.point_uuid == point_uuid)
    }

    /// Whether it gives a snapshot that is held its identity: then it is not removed (HO3).
    pub fn names_held(&self, point: &Point) -> bool {
        let is_named = |other: &&Point| other.name != point.name && other.point_uuid == point.point_uuid;
        self.named_by(&point.point_uuid).is_some_and(|named_by| named_by.name == point.name)
            && self.snapshots().filter(is_named).any(|other| !other.holds.is_empty())
    }

    /// What has these contents: a snapshot, or else a bookmark.
    pub fn at(&self, point_uuid: &str) -> Option<&Point> {
        let is_it = |point: &&Point| point.point_uuid == point_uuid;
        self.snapshots().rev().find(is_it).or_else(|| self.points.iter().find(is_it))
    }
}

fn arriving(one: &Unfinished, target: &str) -> Option<Arriving> {
    let volume = one.volumes.iter().find(|volume| volume.target == target)?;
    Some(Arriving {
        snapshot: volume.snapshot.clone(),
        point_uuid: text(volume.point),
        base_uuid: volume.base.as_ref().map(|base| lvm_text(base.point)),
        is_of_group: one.volumes.len() > 1,
        token: None,
    })
}

/// What both sides call the hold of their newest common point: the same for both directions, so that the way back needs no other one.
pub fn hold_of_pair(own: (&str, &str), other: (&str, &str), other_shown: &str) -> String {
    let mut sides = [own, other];
    sides.sort_unstable();
    let text = sides.map(|(group, volume)| format!("{group}/{volume}")).join("\n");
    let uuid = Uuid(text_hash(&text));
    let digits: String = uuid.0[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let shown: String = other_shown.replace('/', ".").chars().take(100).collect();
    format!("replicate-{shown}-{digits}")
}

/// FNV-1a in two halves. It only distinguishes names; nothing relies on it for safety.
fn text_hash(text: &str) -> [u8; 16] {
    let half = |start: u64| {
        text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&half(0xcbf2_9ce4_8422_2325).to_be_bytes());
    bytes[8..].copy_from_slice(&half(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_call_the_hold_the_same_in_both_directions() {
        let (one, two) = (("uuid-1", "db"), ("uuid-2", "copy"));
        let there = hold_of_pair(one, two, "vg1/copy");
        let here = hold_of_pair(two, one, "vg0/db");
        assert_eq!(there.rsplit('-').next(), here.rsplit('-').next());
        assert_eq!(hold_of_pair(two, one, "vg1/copy"), there);
        assert!(there.starts_with("replicate-vg1.copy-"), "{there}");
        assert_ne!(hold_of_pair(one, ("uuid-2", "copy2"), "vg1/copy"), there);
        assert!(crate::names::check_form(&hold_of_pair(one, two, &"x".repeat(300))).is_ok());
    }

    #[test]
    fn what_another_version_tells_is_read() {
        let told = r#"{"group":"vg1","exists":true,"points":[{"name":"a","point_uuid":"u","color":1}],"more":[]}"#;
        let points: Points = serde_json::from_str(told).unwrap();
        assert_eq!(points.at("u").map(|point| point.name.as_str()), Some("a"));
        assert_eq!((points.arriving, points.group.as_str()), (None, "vg1"));
    }
}
