//! The end of a group and of its service.

use super::failure::{Failure, Result};
use super::state::Service;
use crate::history::{What, clean};
use crate::protocol::{ErrorKind, Outcome};
use rowen_engine::disk::{DiskError, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::is_being_received;
use rowen_engine::planted;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest text of a version.
const LONGEST_VERSION: usize = 64;

impl Service {
    /// Removes the group from its physical volumes; afterwards the server ends.
    pub fn destroy(&self, force: bool) -> Result<Outcome> {
        let info = self.group.info();
        if info.pvs.iter().any(|pv| pv.is_missing) {
            let message = format!(
                "Volume group \"{}\" not found, is inconsistent or has PVs missing.\n\
                 Consider vgreduce --removemissing if metadata is inconsistent.",
                self.name
            );
            return Err(Failure::new(ErrorKind::InUse, message));
        }
        let volumes = self.group.volumes();
        if !volumes.is_empty() {
            let is_received = volumes.iter().any(|volume| is_being_received(&volume.name));
            if !force && is_received && self.shown_volumes().is_empty() {
                let group = &self.name;
                let message = format!(
                    "Volume group \"{group}\" still has what is being received: \"rowen receive --status {group}\" shows it, \
                     \"rowen receive --abort {group}/LV\" gives it up."
                );
                return Err(Failure::new(ErrorKind::InUse, message));
            }
            // Bookmarks go with the group.
            if !force && !self.shown_volumes().is_empty() {
                let message =
                    format!("Volume group \"{}\" still contains {} logical volume(s)", self.name, volumes.len());
                return Err(Failure::new(ErrorKind::InUse, message));
            }
            self.refuse_held(&volumes, "removed")?;
            self.remove_volumes(&volumes)?;
        }
        let group = self.group.clone();
        let done = self.run(async move { group.destroy().await });
        self.told(done, "")?;
        self.ending.ask(true);
        self.announce_end();
        Ok(Outcome::Ok)
    }

    /// Ends the server, unless a volume is in use.
    pub fn stop(&self) -> Result<Outcome> {
        self.switch_off_all(&self.group.volumes())?;
        self.ending.ask(false);
        self.announce_end();
        Ok(Outcome::Ok)
    }

    /// Ends the server of a group that has stopped, has lost a disk, or is open read-only. Only another server may write
    /// to the group, because it reads first what the disks have kept.
    pub fn clear(&self) -> Result<Outcome> {
        let is_well = self.group.failed().is_ok() && self.disk_wait.lock().is_none();
        if is_well && !self.group.is_read_only() {
            let message = format!("Volume group \"{}\" has not stopped: there is nothing to clear.", self.name);
            return Err(Failure::new(ErrorKind::Denied, message));
        }
        self.ending.reopen();
        self.announce_end();
        Ok(Outcome::Ok)
    }

    /// The same because a disk has returned unchanged.
    pub fn reopen_unasked(&self) {
        self.ending.go_on();
        self.announce_end();
    }

    /// The same because a physical volume failed that the group can do without (MB9).
    pub fn go_on_without(&self, error: DiskError) {
        let failed = self.failure(&Error::Disk(error), "").message;
        let failed = failed.trim_end_matches('.');
        self.event(What::PvError, &format!("{failed}; the volume group goes on without it"));
        self.ending.lose(error.pv);
        self.announce_end();
    }

    /// The same because it has answered nothing for so long (MB10).
    pub fn go_on_without_hung(&self, pv: PvIndex, silence: Duration) {
        let (path, seconds) = (self.device(pv), silence.as_secs());
        let group = &self.name;
        self.event(
            What::PvError,
            &format!(
                "Physical volume {path} of volume group \"{group}\" has answered nothing for {seconds} s; the volume group \
                 goes on without it"
            ),
        );
        self.ending.lose(pv);
    }

    /// Ends the server, whose successor is ready. Devices in use stay. Refused while a check runs, which may take
    /// hours.
    pub fn upgrade(&self, to: &str) -> Result<Outcome> {
        let group = &self.name;
        if let Err(error) = self.group.failed() {
            let why = self.failure(&error, "").message;
            let message = format!("Volume group \"{group}\" has stopped ({why}). Clear it first: rowen clear {group}.");
            return Err(Failure::new(ErrorKind::Denied, message));
        }
        if self.checks.load(Ordering::SeqCst) > 0 {
            let message = format!("Volume group \"{group}\" is being verified: try again when that is done.");
            return Err(Failure::new(ErrorKind::InUse, message));
        }
        let to = clean(to, LONGEST_VERSION);
        self.event(What::HandedOver, &format!("volume group \"{group}\" is being upgraded to Rowen {to}"));
        self.ending.upgrade();
        self.announce_end();
        Ok(Outcome::HandsOver)
    }

    /// Takes a checkpoint. A group that is open read-only has nothing for one.
    pub fn checkpoint(&self) -> Result<()> {
        if self.group.is_read_only() {
            return Ok(());
        }
        let group = self.group.clone();
        let done = self.run(async move { group.checkpoint().await });
        self.told(done, "")
    }

    /// Closes the group, and records its last state: an opening without some of its disks is not one of an older state (NW1).
    pub fn close_for_good(&self) -> Result<()> {
        self.close()?;
        if !self.group.is_read_only() && !planted::is("end_not_noted") {
            self.note_membership();
        }
        Ok(())
    }

    /// Closes the group, with a checkpoint. Nothing is read or written afterwards.
    pub fn close(&self) -> Result<()> {
        let group = self.group.clone();
        self.told(self.run(async move { group.close().await }), "")
    }

    /// Closes the group and removes a physical volume from it. If that fails, the group is closed nevertheless.
    pub fn close_without(&self, pv: PvIndex) -> Result<()> {
        let group = self.group.clone();
        let done = self.run(async move {
            let left = group.close_without(pv).await;
            let closed = group.close().await;
            left.and(closed)
        });
        self.told(done, "")
    }
}
