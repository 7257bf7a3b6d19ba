//! Comparisons of the copies of mirrored volumes.

use super::Service;
use super::failure::{Failure, Result};
use super::platform::About;
use crate::history::What;
use crate::protocol::{ErrorKind, Outcome, ScrubAction, ScrubReport};
use rowen_engine::error::Error;
use rowen_engine::group::{ScrubInfo, SegmentType};

impl Service {
    /// Begins or ends one.
    pub(super) fn scrub(&self, name: &str, action: ScrubAction) -> Result<Outcome> {
        let volume = self.find(name)?;
        let full = format!("{}/{name}", self.name);
        if volume.segment != SegmentType::Raid1 || volume.origin.is_some() {
            let message = format!(
                "Command on LV {full} uses options that require LV types raid.\nCommand not permitted on LV {full}."
            );
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        match action {
            ScrubAction::Check | ScrubAction::Repair => {
                let begun = self.group.start_scrub(volume.id, action == ScrubAction::Repair);
                if let Err(Error::Busy(_)) = begun {
                    let message = format!(
                        "Copies of volume group {} are being compared already. Wait for its end (lvs -o \
                         name,raid_sync_action,sync_percent), or end it with lvchange --syncaction idle.",
                        self.name
                    );
                    return Err(Failure::new(ErrorKind::InUse, message));
                }
                self.told(begun, name)?;
            }
            ScrubAction::Stop => {
                self.group.stop_scrub(volume.id);
            }
        }
        Ok(Outcome::Ok)
    }

    /// The last one of each volume, by its name.
    pub(super) fn scrubs(&self) -> Vec<(String, ScrubReport)> {
        let named = |(id, info)| Some((self.group.volume_info(id).ok()?.name, ScrubReport::from(info)));
        self.group.scrubs().into_iter().filter_map(named).collect()
    }

    /// Reports those that have ended.
    pub(super) fn log_scrubs(&self) {
        for (id, info) in self.group.take_ended_scrubs() {
            let Ok(volume) = self.group.volume_info(id) else { continue };
            let message = format!("{}/{}: {}", self.name, volume.name, result(&info));
            self.platform.notes.event(What::Scrubbed, Some(About::Volume(&volume.name)), &message);
        }
    }
}

/// What an ended comparison found, in words.
fn result(info: &ScrubInfo) -> String {
    let blocks = |count: u64| format!("{count} {}", if count == 1 { "block" } else { "blocks" });
    let mut text = match info.is_incomplete {
        true => format!("the comparison of the copies was ended after {}", blocks(info.done)),
        false => format!("the copies of {} were compared", blocks(info.done)),
    };
    text += &match (info.different, info.is_repair) {
        (0, _) => ", and none differ".to_owned(),
        (different, true) => {
            format!(", and {} differed; both copies have now what the first one had", blocks(different))
        }
        (different, false) => format!(", and {} differ", blocks(different)),
    };
    if info.unreadable > 0 {
        text += &format!("; one disk could not read {}", blocks(info.unreadable));
    }
    if info.skipped > 0 {
        text += &format!("; {} had one copy", blocks(info.skipped));
    }
    text
}
