//! The disks of the group, and others that may join it.

use super::disks::MemoryDisks;
use crate::protocol::{ErrorKind, IoCounts};
use crate::service::failure::{Failure, Result};
use crate::service::platform::{Candidate, Faults, Members};
use parking_lot::Mutex;
use rowen_engine::disk::{DiskError, Disks, PvIndex};
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disks of the group, and others that may join it.
pub struct MemoryMembers {
    pub(super) disks: Arc<MemoryDisks>,
    pub(super) outside: Mutex<BTreeMap<PathBuf, Outside>>,
    pub(super) groups: Mutex<Vec<String>>,
    /// Failures that were not reported yet.
    pub new_failures: Mutex<Vec<DiskError>>,
}

/// A disk that is no member.
#[derive(Clone, Debug)]
pub struct Outside {
    /// Bytes.
    pub size: u64,
    pub uuid: Uuid,
    /// Why it may not join.
    pub refused: Option<(ErrorKind, String)>,
}

impl MemoryMembers {
    /// There is such a disk from now on.
    pub fn add_outside(&self, path: &str, disk: Outside) {
        self.outside.lock().insert(PathBuf::from(path), disk);
    }

    /// Another group of this name.
    pub fn add_group(&self, name: &str) {
        self.groups.lock().push(name.to_owned());
    }
}

struct Joining {
    path: PathBuf,
    size: u64,
    uuid: Uuid,
    disks: Arc<MemoryDisks>,
}

impl Candidate for Joining {
    fn path(&self) -> &Path {
        &self.path
    }

    fn uuid(&self) -> Uuid {
        self.uuid
    }

    fn join(self: Box<Self>) -> Result<()> {
        self.disks.push(&self.path, self.size);
        Ok(())
    }
}

impl Members for MemoryMembers {
    fn path(&self, pv: PvIndex) -> Option<PathBuf> {
        self.disks.disks.read().get(usize::from(pv.0)).map(|disk| disk.path.clone())
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        one == other
    }

    fn faults(&self, pv: PvIndex) -> Faults {
        self.disks.faults.lock().get(usize::from(pv.0)).copied().unwrap_or_default()
    }

    fn new_failures(&self, pv: PvIndex) -> Vec<DiskError> {
        let mut new = self.new_failures.lock();
        let (taken, left) = new.iter().partition(|error| error.pv == pv);
        *new = left;
        taken
    }

    fn io(&self, pv: PvIndex) -> IoCounts {
        self.disks.counted.lock().get(usize::from(pv.0)).copied().unwrap_or_default()
    }

    fn rescan(&self, pv: PvIndex) -> Result<u64> {
        Ok(self.disks.geometry(pv).size)
    }

    fn lies_on_group(&self, _path: &Path) -> Result<bool> {
        Ok(false)
    }

    fn check(&self, path: &Path) -> Result<Box<dyn Candidate>> {
        let found = self.outside.lock().get(path).cloned();
        let missing = || Failure::new(ErrorKind::NotFound, format!("No device found for {}.", path.display()));
        let Outside { size, uuid, refused } = found.ok_or_else(missing)?;
        match refused {
            Some((kind, why)) => Err(Failure::new(kind, why)),
            None => Ok(Box::new(Joining { path: path.to_owned(), size, uuid, disks: self.disks.clone() })),
        }
    }

    fn pop(&self) {
        // The dead let go of nothing.
        if self.disks.is_alive() {
            self.disks.disks.write().pop();
        }
    }

    fn uuid_at(&self, path: &Path) -> Result<Uuid> {
        let missing = || Failure::new(ErrorKind::NotFound, format!("No PV found on device {}.", path.display()));
        self.outside.lock().get(path).map(|disk| disk.uuid).ok_or_else(missing)
    }

    fn restore(&self, pv: PvIndex, path: &Path) -> Result<()> {
        self.disks.come_back(pv, path);
        Ok(())
    }

    fn lose(&self, pv: PvIndex) {
        if self.disks.is_alive() {
            self.disks.go(pv);
        }
    }

    fn is_group(&self, name: &str) -> Result<bool> {
        Ok(self.groups.lock().iter().any(|group| group == name))
    }
}
