//! The open disks of a group as the service sees them, and those that join it.

use super::lost;
use crate::devices::{self, Consent, NewMember};
use crate::disks::{self, MISSING, PvSet};
use crate::paths;
use rowen_control::protocol::{ErrorKind, IoCounts};
use rowen_control::service::failure::{Failure, Result};
use rowen_control::service::platform::{Candidate, Faults, Members};
use rowen_control::uuids;
use rowen_engine::disk::{DiskError, PvIndex};
use rowen_engine::units::Uuid;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disks of a running group.
pub struct OpenMembers {
    pub group: String,
    pub pvs: Arc<PvSet>,
}

/// One that is to join.
struct Checked {
    member: NewMember,
    pvs: Arc<PvSet>,
}

impl Candidate for Checked {
    fn path(&self) -> &Path {
        self.member.path()
    }

    fn uuid(&self) -> Uuid {
        self.member.uuid
    }

    fn join(self: Box<Self>) -> Result<()> {
        let path = self.member.path().to_owned();
        self.pvs.push_opened(&path, self.member.join()?.into_opened()).map_err(devices::Error::from)?;
        Ok(())
    }
}

impl Members for OpenMembers {
    fn path(&self, pv: PvIndex) -> Option<PathBuf> {
        self.pvs.path(pv)
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        let identity = devices::Identity::of(other);
        identity.is_some_and(|identity| devices::Identity::of(one) == Some(identity))
    }

    fn faults(&self, pv: PvIndex) -> Faults {
        self.pvs.faults(pv)
    }

    fn new_failures(&self, pv: PvIndex) -> Vec<DiskError> {
        self.pvs.new_failures(pv)
    }

    fn io(&self, pv: PvIndex) -> IoCounts {
        self.pvs.io(pv)
    }

    fn rescan(&self, pv: PvIndex) -> Result<u64> {
        Ok(self.pvs.reread_size(pv)?)
    }

    fn lies_on_group(&self, path: &Path) -> Result<bool> {
        let own = paths::group_dir(&self.group);
        let own = std::fs::canonicalize(&own).unwrap_or(own);
        Ok(devices::groups_under(path)?.contains(&own))
    }

    fn check(&self, path: &Path) -> Result<Box<dyn Candidate>> {
        let member = NewMember::check(path, uuids::fresh(), Consent::default())?;
        Ok(Box::new(Checked { member, pvs: self.pvs.clone() }))
    }

    fn pop(&self) {
        self.pvs.pop();
    }

    fn uuid_at(&self, path: &Path) -> Result<Uuid> {
        let found = devices::read_pv(path);
        let label = found.as_ref().and_then(|pv| pv.label());
        label.map(|label| label.pv_uuid).ok_or_else(|| devices::Error::NotAPv(path.to_owned()).into())
    }

    fn restore(&self, pv: PvIndex, path: &Path) -> Result<()> {
        if lost::was_cut(&self.group, self.uuid_at(path)?) {
            let message = format!(
                "The file of physical volume {} was made shorter while it was in use, and what was cut off is lost.",
                path.display()
            );
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        // The process that left it may have requests there that are about to end.
        let replaced = disks::retry(devices::LETTING_GO, || self.pvs.replace(pv, path));
        Ok(replaced.map_err(devices::Error::from)?)
    }

    fn lose(&self, pv: PvIndex) {
        // Where no stand-in can be made the disk stays open; the group does not use it.
        let _ = self.pvs.replace(pv, Path::new(MISSING));
    }

    fn is_group(&self, name: &str) -> Result<bool> {
        Ok(devices::scan()?.groups().iter().any(|group| group.name == name))
    }
}
