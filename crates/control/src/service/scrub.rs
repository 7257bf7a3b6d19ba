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
    let compared = info.done.saturating_sub(info.skipped);
    let mut text = match (info.is_incomplete, compared) {
        (_, 0) if info.skipped > 0 => "nothing was compared".to_owned(),
        (true, _) => format!("the comparison of the copies was ended after {}", blocks(compared)),
        (false, _) => format!("the copies of {} were compared", blocks(compared)),
    };
    text += &match (info.different, info.is_repair) {
        (0, _) if compared == 0 && info.skipped > 0 => String::new(),
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
        text += &format!(
            "; {} had one copy only: the disk with the other one is missing, was removed, or lacks them",
            blocks(info.skipped)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_compared_is_not_said_to_be_equal() {
        let info = |done, skipped, different| ScrubInfo { done, skipped, different, ..ScrubInfo::default() };
        let lacks = "had one copy only: the disk with the other one is missing, was removed, or lacks them";
        for (info, text) in [
            (info(9, 0, 0), "the copies of 9 blocks were compared, and none differ".to_owned()),
            (info(0, 0, 0), "the copies of 0 blocks were compared, and none differ".to_owned()),
            (info(9, 8, 0), format!("the copies of 1 block were compared, and none differ; 8 blocks {lacks}")),
            (info(9, 1, 2), format!("the copies of 8 blocks were compared, and 2 blocks differ; 1 block {lacks}")),
            (info(9, 9, 0), format!("nothing was compared; 9 blocks {lacks}")),
            (ScrubInfo { is_incomplete: true, ..info(9, 9, 0) }, format!("nothing was compared; 9 blocks {lacks}")),
            (
                ScrubInfo { is_incomplete: true, ..info(9, 4, 0) },
                format!("the comparison of the copies was ended after 5 blocks, and none differ; 4 blocks {lacks}"),
            ),
        ] {
            assert_eq!(result(&info), text);
        }
    }
}
