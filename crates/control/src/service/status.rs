//! The state of the group, as the server knows it. Takes no lock that a change holds while it waits.

use super::hidden::is_hidden;
use super::state::Service;
use super::warnings::{Warning, needs_free_space};
use crate::protocol::{CheckedNodes, Filling, HeldVolume, PoolFill, Rehoming, StatusReport};
use rowen_engine::error::Error;
use rowen_engine::group::{CheckProgress, RehomeProgress, VolumeInfo, VolumeMeta, VolumeState};

fn filling(warning: Warning, pools: &[VolumeInfo]) -> Filling {
    let Warning { volume, percent, .. } = warning;
    let is_pool = volume.as_ref().is_some_and(|name| pools.iter().any(|pool| pool.name == *name));
    Filling { volume, is_pool, tenths: (percent * 10.0) as u64 }
}

fn fill(pool: &VolumeInfo) -> PoolFill {
    PoolFill { name: pool.name.clone(), blocks: pool.blocks, used_blocks: pool.referenced }
}

fn checked(progress: CheckProgress) -> CheckedNodes {
    let CheckProgress { nodes, total } = progress;
    CheckedNodes { nodes, total }
}

fn rehoming(progress: RehomeProgress) -> Rehoming {
    let RehomeProgress { name, at, blocks, waiting } = progress;
    Rehoming { name, done_blocks: at, blocks, waiting }
}

impl Service {
    /// The state of the group.
    pub fn status(&self) -> StatusReport {
        let (info, stats) = (self.group.info(), self.group.stats());
        let now = self.platform.notes.open_for();
        self.held.observe(self.group.volumes_waiting_for_space(), now);
        let held = self.held.since(now);
        let at_risk = self.group.any_volume(needs_free_space);
        let pools = self.group.pools();
        let full = self.warnings.levels(&info, at_risk, &pools, &self.group.reserved());
        let being_received = self.group.volumes_where(|volume| is_hidden(&volume.name));
        let is_dropped = |volume: &VolumeMeta| volume.state == VolumeState::Invalid && !is_hidden(&volume.name);
        let invalid = self.group.volumes_where(is_dropped);
        let mirrors = self.group.mirror_info();
        let merging = self.group.volumes_where(|volume| volume.attributes.merging && volume.origin.is_some());
        let (lost_holds, held_snapshots, written_while_held) = self.held_snapshots();
        StatusReport {
            open_seconds: now.as_secs(),
            stopped: self.group.failed().err().map(|error| self.why_stopped(error)),
            read_only: self.why_read_only(),
            // Only the code that runs the service knows it.
            keeper_deaths: 0,
            disk_wait: self.disk_wait.lock().clone(),
            held: held.into_iter().map(|(name, time)| HeldVolume { name, seconds: time.as_secs() }).collect(),
            timed_out: self.group.timed_out_pools(),
            pvs: self.pv_statuses(&info),
            volumes: (self.group.volume_count() - being_received.len()) as u64,
            active_volumes: self.platform.devices.active().len() as u64,
            blocks: info.blocks,
            available_blocks: info.available_blocks,
            metadata_blocks: info.metadata_blocks,
            journal_copies: info.journal_copies,
            journal_copies_written: info.journal_copies_written,
            pools: pools.iter().map(fill).collect(),
            filling: full.into_iter().map(|(_, warning)| filling(warning, &pools)).collect(),
            waits_for_room: self.waits_for_room(),
            missing_room: self.missing_room(),
            invalid_snapshots: invalid.into_iter().map(|volume| volume.name).collect(),
            lost_holds,
            held_snapshots,
            written_while_held,
            merging: merging.into_iter().map(|volume| volume.name).collect(),
            reclaim_left_blocks: info.reclaim_left,
            checks: self.checks.load(std::sync::atomic::Ordering::Relaxed),
            checked: self.group.check_progress().map(checked),
            rehoming: self.group.rehome_progress().map(rehoming),
            repair: self.repair_report(&mirrors),
            mirrors: mirrors.into(),
            scrubs: self.scrubs(),
            moving: self.move_to_report(),
            copies_not_written: stats.copies_not_written,
            nodes_lost: stats.nodes_lost,
            bad_places: self.bad_places(),
        }
    }

    /// Of the snapshots that are held: those that gave way, those that are there, and of these the ones that are not what they were.
    fn held_snapshots(&self) -> (Vec<String>, Vec<String>, Vec<String>) {
        let held = self.group.volumes_where(|volume| volume.attributes.is_held());
        let (lost, kept): (Vec<_>, Vec<_>) = held.into_iter().partition(|volume| volume.state == VolumeState::Invalid);
        let written = kept.iter().filter(|volume| volume.point.is_none()).map(|volume| volume.name.clone()).collect();
        let names = |volumes: Vec<VolumeInfo>| volumes.into_iter().map(|volume| volume.name).collect();
        (names(lost), names(kept), written)
    }

    /// Without advice, which depends on the caller.
    fn why_stopped(&self, error: Error) -> String {
        match error {
            Error::Poisoned(why) => self.in_context(|context| context.with_devices(&why)),
            other => self.failure(&other, "").message,
        }
    }
}
