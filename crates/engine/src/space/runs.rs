//! Runs of blocks, as they are allocated, freed and kept.

use smallvec::SmallVec;

/// A run of VG blocks: start and length.
pub type Run = (u64, u64);
pub type Runs = SmallVec<[Run; 2]>;

/// Appends a run, joined to the last where it continues it.
pub(super) fn push_run(out: &mut Runs, run: Run) {
    match out.last_mut() {
        Some((start, len)) if *start + *len == run.0 => *len += run.1,
        _ => out.push(run),
    }
}

/// Sorts runs and joins those that touch. False: some overlap.
pub fn join_runs(runs: &mut Vec<Run>) -> bool {
    runs.sort_unstable();
    let mut is_sound = true;
    runs.dedup_by(|next, last| {
        is_sound &= last.0 + last.1 <= next.0;
        let touches = last.0 + last.1 == next.0;
        if touches {
            last.1 += next.1;
        }
        touches
    });
    is_sound
}
