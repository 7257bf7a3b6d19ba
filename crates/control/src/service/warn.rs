//! Warnings to clients and the log about a group that fills up or fails.

use super::platform::About;
use super::state::Service;
use super::warnings::needs_free_space;
use crate::history::What;
use crate::protocol::{Outcome, PvStatus};
use rowen_engine::disk::{DiskOpKind, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{GroupInfo, PvInfo, VolumeState};
use rowen_engine::units::VolumeId;
use std::collections::HashSet;

impl Service {
    /// A sentence for each area without room behind the group's disks.
    pub(super) fn missing_room(&self) -> Vec<String> {
        let missing = self.group.missing_room();
        let group = &self.name;
        let for_data = missing.for_data.map(|pv| {
            format!(
                "WARNING: There is no room behind physical volume {} of volume group {group}: new data waits or is refused, as \
                 each volume's policy says. Make room on the filesystem that it lies on, or remove snapshots.",
                self.device(pv)
            )
        });
        let for_metadata = missing.for_metadata.map(|pv| {
            format!(
                "WARNING: The journal and metadata of volume group {group} have too little room behind physical volume {}: \
                 the group may stop. Make room on the filesystem that it lies on.",
                self.device(pv)
            )
        });
        [for_data, for_metadata].into_iter().flatten().collect()
    }

    /// A sentence about unproven blocks (MB7), if there are any.
    pub(super) fn unproven(&self) -> Option<String> {
        let blocks = self.group.unproven_blocks();
        (blocks > 0 && self.group.out().is_empty()).then(|| {
            format!(
                "WARNING: {blocks} block(s) of volume group {} were being written when their disk was lost, and cannot be read. \
                 They work again when they are written as a whole or discarded: let the filesystem's check or the database's \
                 recovery do that, or restore the files. \"rowen check {}\" names the volumes.",
                self.name, self.name
            )
        })
    }

    /// The physical volume behind which the journal or a checkpoint waits for room (U6).
    pub(super) fn waits_for_room(&self) -> Option<String> {
        match self.group.has_room_for_records() {
            Err(Error::NoRoom(failed)) => Some(self.device(failed.pv)),
            _ => None,
        }
    }

    pub(super) fn device(&self, pv: PvIndex) -> String {
        self.platform.members.path(pv).map_or_else(|| format!("number {}", pv.0), |path| path.display().to_string())
    }

    /// The group's physical volumes, with their failures.
    pub(super) fn pv_statuses(&self, info: &GroupInfo) -> Vec<PvStatus> {
        info.pvs.iter().enumerate().map(|(index, pv)| self.pv_status(index, pv)).collect()
    }

    fn pv_status(&self, index: usize, pv: &PvInfo) -> PvStatus {
        let at = PvIndex(u16::try_from(index).unwrap_or(u16::MAX));
        let path = self.platform.members.path(at);
        let faults = self.platform.members.faults(at);
        PvStatus {
            path: path.map_or_else(|| "[unknown]".to_owned(), |path| path.display().to_string()),
            uuid: pv.uuid,
            size_bytes: pv.size,
            failed_reads: faults.reads,
            failed_writes: faults.writes,
            failed_flushes: faults.flushes,
            silent_seconds: faults.silent.map(|time| time.as_secs()),
            is_missing: pv.is_missing,
        }
    }

    /// A text for each place of a disk that cannot be written.
    pub(super) fn bad_places(&self) -> Vec<String> {
        let places = self.group.bad_places();
        self.in_context(|context| places.iter().map(|place| context.with_devices(place)).collect())
    }

    /// Snapshots that are invalid.
    pub(super) fn invalid_snapshots(&self) -> HashSet<VolumeId> {
        let volumes = self.group.volumes();
        volumes.iter().filter(|volume| volume.state == VolumeState::Invalid).map(|volume| volume.id).collect()
    }

    fn log_dropped(&self) {
        let count = self.group.stats().volumes_invalidated;
        for id in self.warnings.dropped(count, || self.invalid_snapshots()) {
            if let Ok(volume) = self.group.volume_info(id) {
                if let Some(message) = self.gave_way(&volume) {
                    self.platform.notes.event(What::SnapshotDropped, None, &message);
                    continue;
                }
                let message = self.failure(&Error::InvalidSnapshot, &volume.name).message;
                self.platform.notes.event(What::SnapshotDropped, Some(About::Volume(&volume.name)), &message);
            }
        }
    }

    /// Reports the places where disks failed requests, one sentence for each range.
    fn log_failed_places(&self, pvs: usize) {
        for pv in (0..pvs).filter_map(|index| u16::try_from(index).ok()).map(PvIndex) {
            for failed in self.platform.members.new_failures(pv) {
                let why = match self.platform.members.faults(pv).is_cut {
                    true => "its file was made shorter, and what was cut off is lost".to_owned(),
                    false => std::io::Error::from_raw_os_error(failed.errno).to_string(),
                };
                let at = failed.offset;
                let what = match failed.op {
                    DiskOpKind::Read => format!("a read at byte {at}"),
                    DiskOpKind::Write => format!("a write at byte {at}"),
                    DiskOpKind::Discard => format!("a discard at byte {at}"),
                    DiskOpKind::Flush => "a flush".to_owned(),
                };
                let message =
                    format!("Physical volume {} of volume group {} failed {what}: {why}", self.device(pv), self.name);
                self.platform.notes.event(What::PvError, Some(About::Pv(&self.device(pv))), &message);
            }
        }
    }

    /// Warns the log and the client of everything that is filling up.
    pub fn warn(&self, interim: &mut dyn FnMut(Outcome)) {
        let notes = &*self.platform.notes;
        if let Err(error) = self.group.failed()
            && !matches!(error, Error::DiskLost(_))
            && self.warnings.is_news_that_it_stopped()
        {
            let message = self.failure(&error, "").message;
            self.event(What::Stopped, &message);
            notes.state(&message);
        }
        self.held.observe(self.group.volumes_waiting_for_space(), notes.open_for());
        self.warnings.log_failing(notes, &self.name, self.group.timed_out_pools());
        self.log_failed_places(self.group.info().pvs.len());
        self.log_refused_discards();
        self.warnings.log_bad_places(notes, &self.name, self.bad_places());
        self.warnings.log_missing_room(notes, &self.name, self.missing_room());
        self.warnings.log_filling(notes, &self.name, self.group.stats().fills_without_room);
        self.log_dropped();
        let at_risk = self.group.any_volume(needs_free_space);
        let snapshots = self.group.reserved();
        for warning in self.warnings.check(&self.group.info(), at_risk, &self.group.pools(), &snapshots) {
            if warning.is_new {
                let about = warning.volume.as_deref().map(About::Volume);
                notes.event(What::Space, about, &warning.message);
                self.warnings.call(notes, &self.name, &warning);
            }
            interim(Outcome::Notice { message: warning.message });
        }
    }
}
