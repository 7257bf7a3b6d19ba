//! Faults of the disks in worlds: behaviour outside of their contract.

use super::clients::LifeState;
use crate::disk::{Delays, Faults, Image, Place, WriteFault, is_metadata};
use crate::rng::Rng;
use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A kind of fault of a running disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All reads fail for a time.
    Reads,
    /// All writes fail for a time.
    Writes,
    /// All flushes fail for a time.
    Flushes,
    /// One request fails.
    OneRequest,
    /// Every request takes some hundred times longer, for a time.
    Slow,
    /// No request is answered for seconds.
    Stall,
    /// No request is answered any more. In the end the server is killed.
    Hang,
    /// Every request to one physical volume fails for a time.
    Away,
    /// One copy of the next metadata is acknowledged and not written.
    Lost,
    /// One copy of the next metadata is written elsewhere.
    Misdirected,
    /// Flushes are acknowledged and do nothing, from now on.
    LyingFlush,
    /// A power cut leaves rubbish in sectors that were being written.
    Spoiled,
    /// One copy of a few blocks of metadata rots while the power is off.
    Rot,
    /// A power cut leaves sectors that were being written unreadable until they are written.
    Unreadable,
    /// A range of sectors of one physical volume cannot be read in this life.
    BadReads,
    /// A range of sectors of one physical volume takes no writes in this life.
    BadWrites,
    /// One block of data is acknowledged and not written.
    LostData,
    /// A physical volume is as it was before the life that has ended.
    Stale,
    /// A physical volume is missing at the next opening, and comes back.
    Missing,
    /// Two physical volumes are given in the wrong order at the next opening.
    Swapped,
    /// A physical volume is lost, the group is used without it, and it comes back or not.
    Gone,
}

/// The kinds that must do no harm today, in every world.
pub const FAULTS: [Fault; 21] = [
    Fault::Reads,
    Fault::Writes,
    Fault::Flushes,
    Fault::OneRequest,
    Fault::Slow,
    Fault::Stall,
    Fault::Hang,
    Fault::Away,
    Fault::Lost,
    Fault::Misdirected,
    Fault::LyingFlush,
    Fault::Spoiled,
    Fault::Rot,
    Fault::Missing,
    Fault::Swapped,
    Fault::Unreadable,
    Fault::BadReads,
    Fault::BadWrites,
    Fault::LostData,
    Fault::Stale,
    Fault::Gone,
];

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Fault::Reads => "fault: reads fail for a time",
            Fault::Writes => "fault: writes fail for a time",
            Fault::Flushes => "fault: flushes fail for a time",
            Fault::OneRequest => "fault: one request fails",
            Fault::Slow => "fault: slow disks for a time",
            Fault::Stall => "fault: disks that hang for seconds",
            Fault::Hang => "fault: disks that hang for ever",
            Fault::Away => "fault: one physical volume fails for a time",
            Fault::Lost => "fault: a copy of metadata is not written",
            Fault::Misdirected => "fault: a copy of metadata lands elsewhere",
            Fault::LyingFlush => "fault: flushes do nothing",
            Fault::Spoiled => "fault: a power cut leaves rubbish",
            Fault::Rot => "fault: copies of metadata rot",
            Fault::Unreadable => "fault: a power cut leaves unreadable sectors",
            Fault::BadReads => "fault: a range cannot be read",
            Fault::BadWrites => "fault: a range cannot be written",
            Fault::LostData => "fault: a block of data is not written",
            Fault::Stale => "fault: a physical volume is an older copy",
            Fault::Missing => "fault: a physical volume is missing",
            Fault::Swapped => "fault: physical volumes in the wrong order",
            Fault::Gone => "fault: a physical volume is lost",
        }
    }

    /// Whether requests may fail because of it.
    fn fails(self) -> bool {
        !matches!(self, Fault::Slow | Fault::Stall | Fault::Lost | Fault::LyingFlush | Fault::LostData)
    }

    /// Whether it happens between two lives.
    pub fn is_between(self) -> bool {
        use Fault::{Gone, Missing, Rot, Spoiled, Stale, Swapped, Unreadable};
        matches!(self, Spoiled | Rot | Missing | Swapped | Unreadable | Stale | Gone)
    }
}

/// The fault begins now, and ends after a time.
pub async fn strike(age: &LifeState, fault: Fault, delays: Delays, seed: u64) {
    let mut rng = Rng::new(seed);
    let micros = rng.range(50, 4_000);
    age.count(fault.name());
    age.trace(|| format!("{fault:?} for {micros} us"));
    age.is_faulty.fetch_or(fault.fails(), Ordering::SeqCst);
    let disks = &age.disks;
    let from = |kind| Faults { fail_from: Some((kind, disks.requests(kind))), ..Faults::default() };
    match fault {
        Fault::Reads => disks.set_faults(from(DiskOpKind::Read)),
        Fault::Writes => disks.set_faults(from(DiskOpKind::Write)),
        Fault::Flushes => disks.set_faults(from(DiskOpKind::Flush)),
        Fault::OneRequest => {
            let kind = *rng.pick(&[DiskOpKind::Read, DiskOpKind::Write, DiskOpKind::Flush]);
            disks.set_faults(Faults { fail: Some((kind, disks.requests(kind))), ..Faults::default() });
            return;
        }
        Fault::Slow => {
            let slow = |(low, high): (u64, u64)| (low * 100, high * 100);
            let Delays { read, write, flush } = delays;
            disks.set_delays(Delays { read: slow(read), write: slow(write), flush: slow(flush) });
        }
        Fault::Hang => {
            age.hangs.store(true, Ordering::SeqCst);
            return disks.set_faults(Faults { hang_from: Some(disks.events()), ..Faults::default() });
        }
        Fault::Away => {
            let pv = PvIndex(rng.below(disks.count() as u64) as u16);
            disks.set_faults(Faults { away: Some(pv), ..Faults::default() });
        }
        Fault::Lost | Fault::Misdirected => {
            age.has_misdirected_write.fetch_or(fault == Fault::Misdirected, Ordering::SeqCst);
            age.has_bad_metadata.store(true, Ordering::SeqCst);
            let mishap = if fault == Fault::Lost { WriteFault::Lost } else { WriteFault::Misdirected(8 * 4096) };
            return disks.set_faults(Faults { mishap: Some(mishap), ..Faults::default() });
        }
        Fault::LyingFlush => {
            age.may_be_anything.store(true, Ordering::SeqCst);
            return disks.set_faults(Faults { lying_flush: true, ..Faults::default() });
        }
        Fault::BadReads | Fault::BadWrites => {
            let kind = if fault == Fault::BadReads { DiskOpKind::Read } else { DiskOpKind::Write };
            // The copy that missed metadata is back, and stale.
            age.has_bad_metadata.fetch_or(fault == Fault::BadWrites, Ordering::SeqCst);
            let range = bad_range(&disks.current(), &mut rng);
            age.trace(|| format!("{range:?}"));
            return disks.set_faults(Faults { broken: Some((kind, vec![range])), ..Faults::default() });
        }
        Fault::LostData => {
            let wild = age.client.oracle.lock().wild.clone();
            return disks.set_faults(Faults { lost_data: Some(wild), ..Faults::default() });
        }
        between if between.is_between() => return,
        _ => {
            let long = (5_000_000, 30_000_000);
            disks.set_delays(Delays { read: long, write: long, flush: long });
        }
    }
    age.handle.sleep(Duration::from_micros(micros)).await;
    disks.set_delays(delays);
    disks.set_faults(Faults::default());
}

/// A few blocks where something was written: never both copies of the same block.
fn bad_range(image: &Image, rng: &mut Rng) -> Place {
    let pv = PvIndex(rng.below(image.count() as u64) as u16);
    let places = image.page_offsets(pv);
    let first = if places.is_empty() { 0 } else { *rng.pick(&places) };
    (pv, first, rng.range(1, 8) * 4096)
}

/// Rot in one of two copies of a few blocks of metadata. False: no block has two copies.
pub fn rot(image: &mut Image, rng: &mut Rng) -> bool {
    let mut copies: BTreeMap<Vec<u8>, Vec<(PvIndex, u64)>> = BTreeMap::new();
    for pv in (0..image.count()).map(|at| PvIndex(at as u16)) {
        for offset in image.page_offsets(pv) {
            let mut page = vec![0; 4096];
            image.read(pv, offset, &mut page);
            if is_metadata(&page) && !page.starts_with(b"ROWENJRN") {
                copies.entry(page).or_default().push((pv, offset));
            }
        }
    }
    let pairs: Vec<_> = copies.into_values().filter(|places| places.len() == 2).collect();
    if pairs.is_empty() {
        return false;
    }
    let mut rotten = std::collections::BTreeSet::new();
    for _ in 0..rng.range(1, 6) {
        let pair = rng.below(pairs.len() as u64) as usize;
        let (pv, offset) = *rng.pick(&pairs[pair]);
        if rotten.insert(pair) {
            image.flip(pv, offset + rng.below(4096), rng.below(8) as u8);
        }
    }
    true
}
