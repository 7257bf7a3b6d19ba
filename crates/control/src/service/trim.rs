//! Discards of free space on the physical volumes.

use super::failure::Result;
use super::platform::About;
use super::state::Service;
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
        let mut reported = u64::MAX;
        let what = format!("Discarding free space in {}", self.name);
        self.run_polling(async move { group.trim_ended().await }, &mut || {
            let at = self.group.trim_progress();
            if std::mem::replace(&mut reported, at.done) != at.done {
                interim(Outcome::Progress { done: at.done.min(at.total), total: at.total, what: what.clone() });
            }
        });
        self.log_refused_discards();
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
        pvs.filter(|pv| !self.group.can_discard(*pv)).map(|pv| self.device(pv)).collect()
    }

    /// A failed discard is not an error of any request. The log has it once.
    pub(super) fn log_refused_discards(&self) {
        for error in self.group.discard_errors() {
            let device = self.device(error.pv);
            let why = std::io::Error::from_raw_os_error(error.errno);
            let message = format!(
                "Physical volume {device} of volume group {} does not support discards ({why}): it does not get \
                 freed space back before the group is opened again",
                self.name
            );
            self.platform.notes.event(What::Changed, Some(About::Pv(&device)), &message);
        }
    }
}
