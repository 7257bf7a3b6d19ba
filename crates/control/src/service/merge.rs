//! Merges: a volume gets the contents of its snapshot, and the snapshot is removed. While one of the two is in use, the
//! merge waits for the next activation of the origin, as in LVM.
//!
//! Promises
//!
//! * A waiting merge is an attribute of the snapshot, which is durable before the answer. The merge itself is one
//!   record of the engine, which also removes the attribute. So a server that is killed leaves the old state or the new
//!   one.
//! * A volume has at most one waiting merge.
//! * A snapshot that waits gets no new device, and is removed only with its origin.

use super::failure::{Failure, Result};
use super::platform::About;
use super::state::Service;
use crate::history::What;
use crate::protocol::{ErrorKind, Outcome};
use rowen_engine::group::{Attributes, VolumeInfo, VolumeState};
use rowen_engine::units::VolumeId;

/// A snapshot that waits to be merged into its origin.
pub fn is_waiting(volume: &VolumeInfo) -> bool {
    volume.attributes.merging && volume.origin.is_some()
}

impl Service {
    /// LVM's merge: now, or when the origin is next activated. If a merge waits already, it is tried again.
    pub fn merge(&self, snapshot: &str) -> Result<Outcome> {
        let source = self.find(snapshot)?;
        let Some(origin) = source.origin else {
            let message = format!("Logical volume {}/{snapshot} is not a snapshot of any volume.", self.name);
            return Err(Failure::new(ErrorKind::Invalid, message));
        };
        let target = self.told(self.group.volume_info(origin), snapshot)?;
        self.refuse_held(std::slice::from_ref(&source), "merged")?;
        self.refuse_names_of_held(std::slice::from_ref(&source), "merged")?;
        self.refuse_held(std::slice::from_ref(&target), "reverted")?;
        let pair = format!("Cannot merge snapshot {}/{snapshot} into the", self.name);
        if target.read_only {
            let message = format!("{pair} read-only origin {}/{}. (Use lvchange -p rw).", self.name, target.name);
            return Err(Failure::new(ErrorKind::Denied, message));
        }
        if let Some(other) = self.waiting_for(target.id).filter(|other| other.id != source.id) {
            let message =
                format!("{pair} origin {0}/{1} with merging snapshot {0}/{2}.", self.name, target.name, other.name);
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        if source.state == VolumeState::Invalid || target.state == VolumeState::Invalid {
            let invalid = if source.state == VolumeState::Invalid { snapshot } else { &target.name };
            return Err(self.failure(&rowen_engine::error::Error::InvalidSnapshot, invalid));
        }
        let is_origin_open = self.is_used(&target.name);
        match self.replace_contents(target, source.clone(), true) {
            Err(failure) if failure.kind == ErrorKind::InUse => {
                self.mark(&source, true)?;
                Ok(Outcome::MergeWaits { is_origin_open })
            }
            outcome => outcome,
        }
    }

    fn mark(&self, snapshot: &VolumeInfo, merging: bool) -> Result<()> {
        if snapshot.attributes.merging == merging {
            return Ok(());
        }
        self.set_attributes(snapshot.id, &snapshot.name, Attributes { merging, ..snapshot.attributes.clone() })
    }

    /// The snapshot that waits to be merged into `origin`.
    pub fn waiting_for(&self, origin: VolumeId) -> Option<VolumeInfo> {
        self.group.snapshots_of(origin).into_iter().find(is_waiting)
    }

    /// Carries out the merge that waits for the activation of `origin`, which has no device yet. Returns the origin as
    /// it is then. While the snapshot is in use, the merge continues to wait, and a notice says so.
    pub fn merge_before_activation(&self, origin: VolumeInfo, tell: &mut dyn FnMut(Outcome)) -> Result<VolumeInfo> {
        let Some(snapshot) = self.waiting_for(origin.id) else { return Ok(origin) };
        if self.node(&origin.name).is_some() {
            return Ok(origin);
        }
        self.refuse_read_only()?;
        if snapshot.state == VolumeState::Invalid {
            // It used up its reserve while it waited: there is nothing to merge any more.
            self.mark(&snapshot, false)?;
            return Ok(origin);
        }
        let (id, name) = (origin.id, origin.name.clone());
        match self.replace_contents(origin, snapshot.clone(), true) {
            Ok(_) => {
                let line = format!("{} was merged into {name}", snapshot.name);
                self.platform.notes.event(What::Merged, Some(About::Volume(&name)), &line);
            }
            Err(failure) if failure.kind == ErrorKind::InUse => {
                let message = format!(
                    "Postponing pending snapshot merge for origin logical volume {0}/{name}: {0}/{1} is in use.",
                    self.name, snapshot.name
                );
                self.event(What::Merged, &message);
                tell(Outcome::Notice { message });
            }
            Err(failure) => return Err(failure),
        }
        self.told(self.group.volume_info(id), &name)
    }

    /// Refuses to remove waiting snapshots without their origins. Cancels the merge of those whose origins are removed
    /// without them.
    pub fn settle_merges_before_removal(&self, volumes: &[VolumeInfo]) -> Result<()> {
        let goes = |id: VolumeId| volumes.iter().any(|volume| volume.id == id);
        for volume in volumes {
            if is_waiting(volume) && !volume.origin.is_some_and(goes) {
                let message = format!("Can't remove merging snapshot logical volume {}/{}.", self.name, volume.name);
                return Err(Failure::new(ErrorKind::InUse, message));
            }
        }
        for volume in volumes {
            if let Some(left) = self.waiting_for(volume.id).filter(|left| !goes(left.id)) {
                self.mark(&left, false)?;
            }
        }
        Ok(())
    }
}
