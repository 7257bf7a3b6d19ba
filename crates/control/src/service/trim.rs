//! Discards of free space on the physical volumes.

use super::failure::Result;
use super::state::Service;
use super::world::About;
use crate::history::What;
use crate::protocol::{Outcome, TrimReport};
use rowen_engine::disk::PvIndex;
use rowen_engine::units::BLOCK_SIZE;

impl Service {
    /// Discards all free blocks.
    pub(super) fn trim(&self, interim: &mut dyn FnMut(Outcome)) -> Result<Outcome> {
        let begun = self.group.start_trim();
        self.told(begun, "")?;
        let group = self.group.clone();
        let mut told = u64::MAX;
        let what = format!("Discarding what is free in {}", self.name);
        self.run_and_look(async move { group.trim_ended().await }, &mut || {
            let at = self.group.trim_progress();
            if std::mem::replace(&mut told, at.done) != at.done {
                interim(Outcome::Progress { done: at.done.min(at.total), total: at.total, what: what.clone() });
            }
        });
        self.tell_refused_discards();
        let end = self.group.trim_progress();
        if let Some(error) = end.failed {
            self.told(Err(error), "")?;
        }
        let without = self.pvs_without_discards();
        Ok(Outcome::Trimmed(TrimReport { free: end.done * BLOCK_SIZE, discarded: end.bytes, without }))
    }

    /// Physical volumes that do not support discards, or failed one.
    fn pvs_without_discards(&self) -> Vec<String> {
        let pvs = (0..self.group.info().pvs.len()).filter_map(|index| u16::try_from(index).ok()).map(PvIndex);
        pvs.filter(|pv| !self.group.takes_discards(*pv)).map(|pv| self.device(pv)).collect()
    }

    /// A failed discard is not an error of any request. The log has it once.
    pub(super) fn tell_refused_discards(&self) {
        for error in self.group.refused_discards() {
            let device = self.device(error.pv);
            let why = std::io::Error::from_raw_os_error(error.errno);
            let message = format!(
                "Physical volume {device} of volume group {} takes no discards ({why}): what is freed there is not given back to it \
                 before the group is opened again",
                self.name
            );
            self.world.notes.event(What::Changed, Some(About::Pv(&device)), &message);
        }
    }
}
