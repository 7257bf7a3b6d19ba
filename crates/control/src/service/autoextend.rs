//! Snapshots with a size and thin pools grow by LVM's settings before they are full: `activation/snapshot_autoextend_...` and
//! `activation/thin_pool_autoextend_...`, unless `activation/monitoring` is off. In LVM, dmeventd does this with
//! `lvextend --use-policies`. Here the server does it every few seconds. It does not save a volume that fills up faster
//! than that.
//!
//! It never makes a volume smaller, and never undoes a concurrent resize. A volume that cannot grow is reported once,
//! until it could.

use crate::protocol::Request;
use crate::settings::{Autoextend, Settings};
use crate::sizes::{most_useful_reserve, share_up};
use parking_lot::Mutex;
use rowen_engine::group::{VolumeInfo, VolumeState};
use rowen_engine::units::BLOCK_SIZE;
use std::collections::BTreeSet;

/// The settings, and the volumes that could not grow.
pub struct Autoextension {
    pub(super) policies: Mutex<Policies>,
    /// Volumes that could not grow and were reported.
    pub(super) failing: Mutex<BTreeSet<String>>,
}

#[derive(Clone, Copy)]
pub(super) struct Policies {
    /// Whether volumes are extended automatically.
    monitoring: bool,
    snapshots: Autoextend,
    pools: Autoextend,
}

impl From<&Settings> for Policies {
    fn from(settings: &Settings) -> Policies {
        Policies {
            monitoring: settings.monitoring,
            snapshots: settings.snapshot_autoextend,
            pools: settings.thin_pool_autoextend,
        }
    }
}

/// A volume that is to grow, sizes in blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub name: String,
    pub from: u64,
    pub to: u64,
    is_pool: bool,
}

impl Growth {
    pub fn request(&self) -> Request {
        let name = self.name.clone();
        match self.is_pool {
            true => Request::Resize { name, blocks: self.to, force: false, on: Vec::new(), seen: Some(self.from) },
            false => Request::SetReserve { name, blocks: Some(self.to), seen: Some(self.from) },
        }
    }
}

impl Policies {
    pub fn any(&self) -> bool {
        self.monitoring && (self.snapshots.threshold < 100 || self.pools.threshold < 100)
    }

    /// Which of these thin pools and snapshots with a size must grow, by whole extents.
    pub fn wanted(&self, extent_blocks: u64, pools: &[VolumeInfo], snapshots: &[VolumeInfo]) -> Vec<Growth> {
        let grown = |policy: &Autoextend, used, size: u64| {
            let extents = size.div_ceil(extent_blocks);
            policy.growth(used, size).map(|percent| extents.saturating_add(share_up(percent, extents)))
        };
        let pools = pools.iter().filter_map(|pool| {
            let extents = grown(&self.pools, pool.referenced, pool.blocks)?;
            Some((pool, pool.blocks, extents, true))
        });
        let snapshots = snapshots.iter().filter(|snapshot| snapshot.state == VolumeState::Ok).filter_map(|snapshot| {
            let reserve = snapshot.reserve?;
            // It cannot fill more than that.
            let most = most_useful_reserve(snapshot.blocks * BLOCK_SIZE, BLOCK_SIZE, extent_blocks * BLOCK_SIZE);
            Some((snapshot, reserve, grown(&self.snapshots, snapshot.snapshot_used, reserve)?.min(most), false))
        });
        let growth = |(volume, from, extents, is_pool): (&VolumeInfo, u64, u64, bool)| {
            let to = extents.checked_mul(extent_blocks)?;
            (to > from).then(|| Growth { name: volume.name.clone(), from, to, is_pool })
        };
        pools.chain(snapshots).filter_map(growth).collect()
    }
}

impl Autoextension {
    pub fn new(settings: &Settings) -> Autoextension {
        Autoextension { policies: Mutex::new(settings.into()), failing: Mutex::default() }
    }

    pub fn set_settings(&self, settings: &Settings) {
        *self.policies.lock() = settings.into();
    }
}

#[cfg(test)]
#[path = "autoextend_test.rs"]
mod tests;
