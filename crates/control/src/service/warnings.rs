//! Early warnings: a group, a thin pool or a snapshot's reserve is filling up. Each crossed threshold is reported once,
//! to the log and to the administrator's program, if there is one. It is reported again only after the share was below
//! it. A command that allocates space is warned as long as the group is above a threshold.

use super::platform::{About, Notes};
use crate::history::What;
use crate::settings::Settings;
use parking_lot::Mutex;
use rowen_engine::group::{GroupInfo, VolumeInfo, VolumeKind, VolumeMeta, VolumeState};
use rowen_engine::units::VolumeId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// The thresholds, and the warnings that were given.
pub struct Warnings {
    reported: Mutex<HashMap<String, u64>>,
    settings: Mutex<Wanted>,
    /// Pools whose writes fail, or the group (`None`), that were reported.
    failing: Mutex<Vec<Option<String>>>,
    /// Bad places of disks that were logged.
    bad_places: Mutex<Vec<String>>,
    /// Areas without room behind the disks that were reported.
    missing_room: Mutex<Vec<String>>,
    /// The stop of the group was reported.
    stopped: AtomicBool,
    /// How many snapshots became invalid since the group was opened, and the invalid snapshots that were reported.
    dropped: Mutex<(u64, HashSet<VolumeId>)>,
    /// It was reported that filling stopped for lack of room.
    filling_ended: AtomicBool,
}

/// The settings for warnings.
#[derive(Clone)]
struct Wanted {
    group_steps: Vec<u64>,
    reserve_steps: Vec<u64>,
    command: Option<String>,
}

impl From<&Settings> for Wanted {
    fn from(settings: &Settings) -> Wanted {
        Wanted {
            group_steps: settings.thresholds.clone(),
            reserve_steps: vec![settings.snapshot_threshold],
            command: settings.command.clone(),
        }
    }
}

/// Something is filling up.
#[derive(Debug)]
pub struct Warning {
    /// The snapshot or the pool; none: the group.
    pub volume: Option<String>,
    pub percent: f64,
    pub message: String,
    /// Not reported since it crossed its threshold.
    pub is_new: bool,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The highest step that `percent` has reached; 0 for none.
fn step(percent: f64, steps: &[u64]) -> u64 {
    steps.iter().copied().filter(|&step| percent >= step as f64).max().unwrap_or(0)
}

/// Whether the volume's writes take space that was not reserved for it.
pub fn needs_free_space(volume: &VolumeMeta) -> bool {
    volume.kind == VolumeKind::Thin || (volume.origin.is_some() && volume.reserve.is_none())
}

impl Warnings {
    pub fn new(settings: &Settings) -> Warnings {
        Warnings {
            reported: Mutex::default(),
            settings: Mutex::new(settings.into()),
            failing: Mutex::default(),
            bad_places: Mutex::default(),
            missing_room: Mutex::default(),
            stopped: AtomicBool::new(false),
            dropped: Mutex::default(),
            filling_ended: AtomicBool::new(false),
        }
    }

    pub fn set_settings(&self, settings: &Settings) {
        *self.settings.lock() = settings.into();
    }

    /// The due warnings: the group while it is above a threshold, and pools and snapshots that have crossed theirs
    /// since the last call. `at_risk`: whether any volume [needs free space](needs_free_space); `snapshots`: those with
    /// a reserve.
    pub fn check(
        &self,
        group: &GroupInfo,
        at_risk: bool,
        pools: &[VolumeInfo],
        snapshots: &[VolumeInfo],
    ) -> Vec<Warning> {
        let levels = self.levels(group, at_risk, pools, snapshots);
        let mut reported = self.reported.lock();
        let before = std::mem::take(&mut *reported);
        let mut warnings = Vec::new();
        for (step, mut warning) in levels {
            let key = warning.volume.clone().unwrap_or_default();
            warning.is_new = step > before.get(&key).copied().unwrap_or(0);
            reported.insert(key, step);
            if warning.is_new || warning.volume.is_none() {
                warnings.push(warning);
            }
        }
        warnings
    }

    /// Everything above a threshold, with the threshold. Reports nothing.
    pub fn levels(
        &self,
        group: &GroupInfo,
        at_risk: bool,
        pools: &[VolumeInfo],
        snapshots: &[VolumeInfo],
    ) -> Vec<(u64, Warning)> {
        let wanted = self.settings.lock().clone();
        let mut levels = Vec::new();
        // Free space that is not allocatable does not count.
        let used = group.blocks.saturating_sub(group.available_blocks);
        // A group whose space is all reserved and used is not in danger.
        let full = if at_risk { percent(used, group.blocks) } else { 0.0 };
        let message = format!(
            "WARNING: Volume group \"{}\" is {full:.1}% full; remove volumes or add a physical volume.",
            group.name
        );
        levels.push((step(full, &wanted.group_steps), Warning { volume: None, percent: full, message, is_new: false }));
        for pool in pools {
            let full = percent(pool.referenced, pool.blocks);
            let message = format!(
                "WARNING: Thin pool {}/{} is {full:.1}% full; extend it: at 100% new data of its volumes waits or is refused.",
                group.name, pool.name
            );
            let warning = Warning { volume: Some(pool.name.clone()), percent: full, message, is_new: false };
            levels.push((step(full, &wanted.group_steps), warning));
        }
        for volume in snapshots.iter().filter(|volume| volume.state == VolumeState::Ok) {
            let Some(reserve) = volume.reserve else { continue };
            let full = percent(volume.snapshot_used, reserve);
            let message = format!(
                "WARNING: Snapshot {}/{} has used {full:.1}% of its reserve and becomes invalid at 100%; extend it.",
                group.name, volume.name
            );
            let warning = Warning { volume: Some(volume.name.clone()), percent: full, message, is_new: false };
            levels.push((step(full, &wanted.reserve_steps), warning));
        }
        levels.retain(|(step, _)| *step > 0);
        levels
    }

    /// Whether the stop of the group was not reported yet.
    pub fn is_news_that_it_stopped(&self) -> bool {
        !self.stopped.swap(true, Ordering::Relaxed)
    }

    /// Logs, once each, bad places of disks that the group avoids from now on.
    pub fn log_bad_places(&self, notes: &dyn Notes, group: &str, now: Vec<String>) {
        let mut reported = self.bad_places.lock();
        for place in now.iter().filter(|place| !reported.contains(place)) {
            notes.event(What::BadPlace, None, &format!("volume group {group}: {place}"));
        }
        *reported = now;
    }

    /// Logs, once, that writes fail because they have waited too long for room in a pool or in the group.
    pub fn log_failing(&self, notes: &dyn Notes, group: &str, now: Vec<Option<String>>) {
        let mut reported = self.failing.lock();
        for full in now.iter().filter(|full| !reported.contains(full)) {
            let what = full
                .as_ref()
                .map_or_else(|| format!("volume group {group}"), |pool| format!("thin pool {group}/{pool}"));
            let message = format!(
                "WARNING: Writes have waited for room in {what} for too long, and fail until there is room; extend it."
            );
            notes.event(What::WritesFail, full.as_deref().map(About::Volume), &message);
        }
        *reported = now;
    }

    /// The snapshots that have become invalid since the last call. `count`: how many did since the group was opened.
    pub fn dropped(&self, count: u64, invalid: impl FnOnce() -> HashSet<VolumeId>) -> Vec<VolumeId> {
        let mut reported = self.dropped.lock();
        if reported.0 == count {
            return Vec::new();
        }
        let now = invalid();
        let mut new: Vec<VolumeId> = now.difference(&reported.1).copied().collect();
        new.sort();
        *reported = (count, now);
        new
    }

    /// These were invalid when the group was opened.
    pub fn set_dropped(&self, invalid: HashSet<VolumeId>) {
        self.dropped.lock().1 = invalid;
    }

    /// Logs, once, that volumes laid out for reading stay fragmented. `ended`: how often filling found no room.
    pub fn log_filling(&self, notes: &dyn Notes, group: &str, ended: u64) {
        if ended > 0 && !self.filling_ended.swap(true, Ordering::Relaxed) {
            let message = format!(
                "Volumes of volume group {group} that are laid out for reading stay fragmented: there is too little space to copy shared blocks (server/fill_keeps)."
            );
            notes.event(What::Space, None, &message);
        }
    }

    /// Logs, once, disks behind which there is no room, and when there is room again.
    pub fn log_missing_room(&self, notes: &dyn Notes, group: &str, now: Vec<String>) {
        let mut reported = self.missing_room.lock();
        now.iter()
            .filter(|message| !reported.contains(message))
            .for_each(|message| notes.event(What::Room, None, message));
        if now.is_empty() && !reported.is_empty() {
            let message = format!("There is room again behind the physical volumes of volume group {group}.");
            notes.event(What::Room, None, &message);
        }
        *reported = now;
    }

    /// Runs the administrator's program, with the group, the whole percentage, and the snapshot or pool, if any.
    pub fn call(&self, notes: &dyn Notes, group: &str, warning: &Warning) {
        let Some(program) = self.settings.lock().command.clone() else { return };
        let percent = format!("{:.0}", warning.percent.floor());
        notes.run(&program, [group.to_owned(), percent].into_iter().chain(warning.volume.clone()).collect());
    }
}

#[cfg(test)]
#[path = "warnings_test.rs"]
mod tests;
