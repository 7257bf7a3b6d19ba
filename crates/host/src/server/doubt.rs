//! Disks that may have failed although nothing was written to them: a device has vanished, a file was made shorter, or
//! reads fail.
//!
//! * LD3 Such a disk is tried: a checkpoint writes to all disks of the group. So the failure is known, and reported, before
//!   a write needs the disk. If the group can go on without it, it does (MB9).

use super::log;
use super::state::Server;
use crate::devices::Identity;
use crate::planted;
use rowen_engine::disk::PvIndex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The least time between two trials. A disk with a bad sector may fail reads for as long as somebody reads it.
const PAUSE: Duration = Duration::from_secs(10);

/// What was seen of the disks.
#[derive(Default)]
pub struct Doubt {
    /// Failed reads of all disks, and files that were made shorter.
    reads: u64,
    /// Which appearance each block device had, by its place in the group's table.
    appearances: BTreeMap<u16, Option<u64>>,
    is_due: bool,
    tried: Option<Instant>,
    is_running: Arc<AtomicBool>,
}

impl Doubt {
    pub fn turn(&mut self, server: &Server) {
        let group = &server.service.group;
        if group.failed().is_err() || group.is_read_only() || planted::is("doubt_ignored") {
            return;
        }
        let mut reads = 0;
        for (at, pv) in (0..).zip(group.info().pvs) {
            if pv.is_missing {
                self.appearances.remove(&at);
                continue;
            }
            let faults = server.pvs.faults(PvIndex(at));
            reads += faults.reads + u64::from(faults.is_cut);
            self.is_due |= self.has_vanished(server, PvIndex(at));
        }
        self.is_due |= reads > self.reads;
        self.reads = reads;
        let is_early = self.tried.is_some_and(|tried| tried.elapsed() < PAUSE);
        if !self.is_due || is_early || self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        (self.is_due, self.tried) = (false, Some(Instant::now()));
        let (group, is_running) = (group.clone(), self.is_running.clone());
        // Not waited for: a disk may hang.
        let trial = async move {
            if let Err(error) = group.checkpoint().await {
                log::warning(format_args!("a disk failed a read or is gone, and a checkpoint failed: {error}"));
            }
            is_running.store(false, Ordering::Release);
        };
        server.pool.spawn_on(0, Box::pin(trial));
    }

    /// Whether the block device is not the one that it was. Reported once.
    fn has_vanished(&mut self, server: &Server, pv: PvIndex) -> bool {
        let now = server.identity(pv).and_then(Identity::appearance);
        let before = self.appearances.insert(pv.0, now).flatten();
        before.is_some() && before != now
    }
}
