//! Early warnings: a group or a snapshot's reserve that is filling up is told once for each threshold it crosses, to
//! the log and to the command that is running, and again only after it has fallen back below.

use parking_lot::Mutex;
use rowen_engine::group::{GroupInfo, VolumeInfo, VolumeKind, VolumeState};
use std::collections::HashMap;

/// Percentages of a group that are worth a word.
const GROUP_STEPS: [u64; 3] = [80, 90, 95];
/// Percentage of a snapshot's reserve.
const RESERVE_STEPS: [u64; 1] = [80];

/// What was told already.
#[derive(Default)]
pub struct Warnings {
    told: Mutex<HashMap<String, u64>>,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The highest step that `percent` has reached; 0 for none.
fn step(percent: f64, steps: &[u64]) -> u64 {
    steps.iter().copied().filter(|&step| percent >= step as f64).max().unwrap_or(0)
}

/// Whether the volume's writes take space that was not promised to it.
fn needs_free_space(volume: &VolumeInfo) -> bool {
    volume.kind == VolumeKind::Thin || (volume.origin.is_some() && volume.reserve.is_none())
}

impl Warnings {
    /// Sentences that are new since the last call.
    pub fn fresh(&self, group: &GroupInfo, volumes: &[VolumeInfo]) -> Vec<String> {
        let mut levels = Vec::new();
        let used = group.blocks.saturating_sub(group.free_blocks.saturating_sub(group.promised_blocks));
        // A group that is full of promises which are all kept is not in danger.
        let full = if volumes.iter().any(needs_free_space) { percent(used, group.blocks) } else { 0.0 };
        levels.push((
            String::new(),
            step(full, &GROUP_STEPS),
            format!(
                "WARNING: Volume group \"{}\" is {full:.1}% full; remove volumes or add a physical volume.",
                group.name
            ),
        ));
        for volume in volumes.iter().filter(|volume| volume.state == VolumeState::Ok) {
            let Some(reserve) = volume.reserve else { continue };
            let full = percent(volume.snapshot_used, reserve);
            levels.push((volume.name.clone(), step(full, &RESERVE_STEPS), format!(
                "WARNING: Snapshot {}/{} has used {full:.1}% of its reserve and becomes invalid at 100%; extend it.",
                group.name, volume.name
            )));
        }
        let mut told = self.told.lock();
        let before = std::mem::take(&mut *told);
        *told = levels.iter().filter(|level| level.1 > 0).map(|(what, step, _)| (what.clone(), *step)).collect();
        let is_new = |what: &String, step: u64| step > before.get(what).copied().unwrap_or(0);
        levels.into_iter().filter(|(what, step, _)| is_new(what, *step)).map(|(_, _, sentence)| sentence).collect()
    }
}

#[cfg(test)]
#[path = "warnings_test.rs"]
mod tests;
