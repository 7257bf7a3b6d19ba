//! Reports of the exports to the server: deaths of keepers, and volumes with acknowledged writes that may be lost with
//! a pulled disk. The next flush of such a volume must fail (RT2).

use super::{Exports, Target};
use rowen_engine::group::PvFlags;
use std::sync::atomic::Ordering;

impl Exports {
    /// How often another took a dead keeper's place.
    pub fn keeper_deaths(&self) -> u64 {
        self.inner.keepers.load(Ordering::Acquire)
    }

    /// The active volumes, by their numbers.
    pub fn volumes(&self) -> Vec<u64> {
        self.volumes_that(|_| true)
    }

    /// Volumes with unflushed acknowledged writes, or whose next flush must fail.
    pub fn unflushed(&self) -> Vec<u64> {
        self.volumes_that(|target| target.has_unflushed())
    }

    /// Volumes with acknowledged, unflushed writes on these physical volumes, or whose next flush must fail.
    pub fn unflushed_on(&self, pvs: PvFlags) -> Vec<u64> {
        self.volumes_that(|target| target.has_unflushed_on(pvs))
    }

    /// Volumes whose next flush must fail.
    pub fn owing(&self) -> Vec<u64> {
        self.volumes_that(|target| target.owes())
    }

    fn volumes_that(&self, is_so: impl Fn(&dyn Target) -> bool) -> Vec<u64> {
        let active = self.inner.active.lock();
        active
            .values()
            .map(|export| export.connection.target())
            .filter(|target| is_so(*target))
            .map(|target| target.id())
            .collect()
    }
}
