//! What disks do in worlds outside of their contract.

use super::clients::Age;
use crate::disk::{Delays, Faults};
use crate::rng::Rng;
use rowen_engine::disk::DiskOpKind;
use rowen_engine::runtime::Runtime;
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
    /// Every request takes some hundred times as long, for a time.
    Slow,
    /// Nothing is answered for seconds.
    Stall,
}

/// The kinds that must do no harm today, in every world.
pub const FAULTS: [Fault; 6] =
    [Fault::Reads, Fault::Writes, Fault::Flushes, Fault::OneRequest, Fault::Slow, Fault::Stall];

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Fault::Reads => "fault: reads fail for a time",
            Fault::Writes => "fault: writes fail for a time",
            Fault::Flushes => "fault: flushes fail for a time",
            Fault::OneRequest => "fault: one request fails",
            Fault::Slow => "fault: slow disks for a time",
            Fault::Stall => "fault: disks that hang for seconds",
        }
    }

    /// Whether requests may fail because of it.
    fn fails(self) -> bool {
        !matches!(self, Fault::Slow | Fault::Stall)
    }
}

/// The disks misbehave now, and are well again after a time.
pub async fn strike(age: &Age, fault: Fault, delays: Delays, seed: u64) {
    let mut rng = Rng::new(seed);
    let micros = rng.range(50, 4_000);
    age.count(fault.name());
    age.say(|| format!("{fault:?} for {micros} us"));
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
        Fault::Stall => {
            let long = (5_000_000, 30_000_000);
            disks.set_delays(Delays { read: long, write: long, flush: long });
        }
    }
    age.handle.sleep(Duration::from_micros(micros)).await;
    disks.set_delays(delays);
    disks.set_faults(Faults::default());
}
