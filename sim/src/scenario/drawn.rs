//! Generated scenarios: all sequences of an alphabet, in order, and random ones.

use super::scripted::{snap, thick, thin};
use super::{Step, Target};
use crate::client::SnapshotKind;
use crate::rng::Rng;

/// The alphabet of the enumerated scenarios.
pub fn alphabet() -> Vec<Step> {
    use Step::*;
    use Target::*;
    vec![
        Write(A, 0, 8),
        Write(A, 2, 3),
        Write(A, 4, 40),
        Write(Snap(0), 0, 8),
        Write(B, 0, 8),
        Discard(A, 0, 16),
        Zero(A, 4, 8),
        Flush(A),
        snap(A),
        Group(vec![A, B]),
        Remove(vec![Snap(0)]),
        Remove(vec![A]),
        Revert(A, Snap(0), false),
        Revert(A, Snap(0), true),
        Resize(A, 96),
        Resize(A, 160),
        Checkpoint,
        Together(vec![Write(A, 0, 8), Write(A, 4, 8), Flush(A), Write(A, 16, 1)]),
    ]
}

/// The beginning of the enumerated scenarios: two volumes with flushed contents and a snapshot.
pub fn prelude() -> Vec<Step> {
    use Target::*;
    vec![
        thick(128),
        thin(128, 1),
        Step::Write(A, 0, 32),
        Step::Write(B, 0, 8),
        snap(A),
        Step::Write(A, 8, 8),
        Step::Flush(A),
        Step::Flush(B),
    ]
}

/// A random scenario.
pub fn random(rng: &mut Rng, length: usize) -> Vec<Step> {
    let mut steps = vec![thick(128 + rng.below(3) * 64), thin(192, 1 << rng.below(4))];
    for _ in 0..length {
        steps.push(random_step(rng));
    }
    steps.push(Step::Verify);
    steps
}

fn random_who(rng: &mut Rng) -> Target {
    *rng.pick(&[Target::A, Target::A, Target::A, Target::B, Target::B, Target::Snap(0), Target::Snap(1)])
}

fn random_range(rng: &mut Rng) -> (u64, u64) {
    let hot = rng.one_in(2);
    let sector = rng.below(if hot { 64 } else { 1536 });
    match rng.below(4) {
        0 => (sector, rng.range(1, 7)),
        1 => (sector, rng.range(1, 80)),
        2 => (sector / 8 * 8, 8),
        _ => (sector / 8 * 8, 8 * rng.range(1, 32)),
    }
}

fn random_write(rng: &mut Rng) -> Step {
    let (sector, count) = random_range(rng);
    Step::Write(random_who(rng), sector, count)
}

fn random_step(rng: &mut Rng) -> Step {
    let who = random_who(rng);
    let (sector, count) = random_range(rng);
    match rng.below(40) {
        0..=15 => Step::Write(who, sector, count),
        16..=17 => Step::Discard(who, sector, count),
        18 => Step::Zero(who, sector, count),
        19..=24 => Step::Flush(who),
        25..=27 => Step::Snapshot(
            who,
            SnapshotKind {
                read_only: rng.one_in(3),
                reserve: rng.one_in(6).then_some(24),
                chunk_blocks: 1 << rng.below(4),
            },
        ),
        28 => Step::Group(vec![Target::A, Target::B, Target::Snap(0)]),
        29..=30 => Step::Remove(vec![Target::Snap(rng.below(3) as usize)]),
        31 => Step::Revert(who, Target::Snap(rng.below(3) as usize), rng.one_in(2)),
        32 => Step::Resize(who, 64 * rng.range(1, 4)),
        33 => Step::Checkpoint,
        34 => Step::Reclaim,
        35 => Step::Rename(who),
        36 if rng.one_in(3) => Step::Remove(vec![who, random_who(rng)]),
        36 => Step::Verify,
        _ => {
            let mut steps: Vec<Step> = (0..rng.range(2, 8)).map(|_| random_write(rng)).collect();
            steps.push(Step::Flush(who));
            if rng.one_in(3) {
                steps.push(if rng.one_in(2) { snap(who) } else { Step::Checkpoint });
            }
            for at in (1..steps.len()).rev() {
                steps.swap(at, rng.below(at as u64 + 1) as usize);
            }
            Step::Together(steps)
        }
    }
}
