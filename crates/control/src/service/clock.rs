//! Periodic work of the service: every few seconds it checks whether something fills up, or ends.

use super::platform::About;
use super::state::Service;
use crate::history::What;
use crate::protocol::{Caller, ErrorKind, Outcome};
use crate::units::sentence;
use rowen_engine::units::BLOCK_SIZE;
use std::collections::BTreeSet;

impl Service {
    /// Extends volumes that fill up, and warns of those that still do.
    pub fn periodic_work(&self) {
        if self.group.is_read_only() {
            return;
        }
        self.extend_what_fills_up();
        self.warn(&mut |_| {});
        self.forget_removed();
        self.continue_move();
        self.end_holds();
        self.prune_bookmarks();
        self.log_scrubs();
        self.repair_lost_copies();
    }

    /// Extends volumes above their threshold.
    fn extend_what_fills_up(&self) {
        let policies = *self.autoextension.policies.lock();
        if !policies.any() {
            return;
        }
        let extent_blocks = self.group.info().extent_blocks;
        let mut failing = BTreeSet::new();
        for growth in policies.wanted(extent_blocks, &self.group.pools(), &self.group.reserved()) {
            // A long change must not delay the server's other periodic work.
            if self.change.is_locked() {
                return;
            }
            let full = format!("{}/{}", self.name, growth.name);
            let caller = Caller { command: format!("the automatic extension of {full}"), ..Caller::default() };
            let size = |blocks: u64| sentence(blocks * BLOCK_SIZE);
            match self.handle(growth.request(), &caller, &mut |_| {}) {
                // A client has resized or removed it meanwhile.
                Outcome::Error { kind: ErrorKind::Changed | ErrorKind::NotFound, .. } => {}
                Outcome::Error { message, .. } => {
                    if !self.autoextension.failing.lock().contains(&growth.name) {
                        let line = format!("WARNING: {full} fills up and cannot be extended: {message}");
                        self.platform.notes.event(What::NotExtended, Some(About::Volume(&growth.name)), &line);
                    }
                    failing.insert(growth.name);
                }
                _ => {
                    let (to, from) = (size(growth.to), size(growth.from));
                    let line = format!("{full} was nearly full and was extended from {from} to {to}");
                    self.platform.notes.event(What::Extended, Some(About::Volume(&growth.name)), &line);
                }
            }
        }
        *self.autoextension.failing.lock() = failing;
    }
}
