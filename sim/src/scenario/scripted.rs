//! The scenarios written by hand.

use super::{Step, Target};
use crate::client::{SnapshotKind, VolumeSpec};
use rowen_engine::group::{FullPolicy, VolumeKind};

pub(super) fn thick(blocks: u64) -> Step {
    let spec = VolumeSpec { kind: VolumeKind::Thick, blocks, chunk_blocks: 1, full: FullPolicy::DropSnapshot };
    Step::Create(spec)
}

pub(super) fn thin(blocks: u64, chunk_blocks: u32) -> Step {
    Step::Create(VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks, full: FullPolicy::Fail })
}

pub(super) fn snap(who: Target) -> Step {
    Step::Snapshot(who, SnapshotKind::default())
}

pub(super) fn frozen(who: Target) -> Step {
    Step::Snapshot(who, SnapshotKind { read_only: true, ..SnapshotKind::default() })
}

/// The scenarios written by hand: each one's name and steps.
#[expect(clippy::too_many_lines, reason = "a table of scenarios")]
pub fn scripted() -> Vec<(&'static str, Vec<Step>)> {
    use Step::*;
    use Target::*;
    let fill = |who, sectors: u64| -> Vec<Step> { (0..sectors / 64).map(|at| Write(who, at * 64, 64)).collect() };
    let mut all: Vec<(&'static str, Vec<Step>)> = Vec::new();
    all.push((
        "first-writes",
        vec![
            thick(256),
            Write(A, 0, 8),
            Write(A, 8, 1),
            Write(A, 11, 3),
            Flush(A),
            Write(A, 0, 16),
            Write(A, 100, 30),
            Flush(A),
            Write(A, 8, 1),
            Write(A, 2040, 8),
            Flush(A),
            Verify,
        ],
    ));
    all.push((
        "thin-partial",
        vec![
            thin(256, 1),
            Write(A, 3, 1),
            Write(A, 5, 2),
            Write(A, 4, 1),
            Flush(A),
            Write(A, 30, 20),
            Flush(A),
            Write(A, 31, 1),
            Discard(A, 32, 8),
            Flush(A),
            Write(A, 35, 2),
            Flush(A),
            Verify,
        ],
    ));
    let mut steps = vec![thick(256)];
    steps.extend(fill(A, 512));
    steps.extend([
        Flush(A),
        snap(A),
        Write(A, 0, 8),
        Write(A, 9, 1),
        Write(A, 128, 64),
        Flush(A),
        snap(A),
        Write(A, 0, 24),
        Flush(A),
        Write(A, 4, 2),
        Remove(vec![Snap(0)]),
        Write(A, 0, 8),
        Flush(A),
        Remove(vec![Snap(0)]),
        Reclaim,
        Write(A, 512, 64),
        Flush(A),
        Verify,
    ]);
    all.push(("snapshots", steps));
    all.push((
        "snapshot-of-snapshot",
        vec![
            thin(256, 4),
            Write(A, 0, 64),
            Flush(A),
            snap(A),
            Write(Snap(0), 0, 8),
            snap(Snap(0)),
            Write(Snap(1), 8, 8),
            Write(A, 16, 8),
            Flush(Snap(1)),
            Remove(vec![A]),
            Reclaim,
            Write(Snap(0), 24, 8),
            Flush(Snap(0)),
            Remove(vec![Snap(1)]),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "group-snapshot",
        vec![
            thick(128),
            thin(128, 1),
            Write(A, 0, 32),
            Write(B, 0, 32),
            Flush(A),
            Flush(B),
            Group(vec![A, B]),
            Write(A, 0, 8),
            Write(B, 8, 8),
            Flush(A),
            Group(vec![A, B, Snap(0)]),
            Write(B, 0, 16),
            Flush(B),
            Remove(vec![Snap(0), Snap(1)]),
            Verify,
        ],
    ));
    all.push((
        "revert",
        vec![
            thick(128),
            Write(A, 0, 64),
            Flush(A),
            frozen(A),
            Write(A, 0, 32),
            Flush(A),
            snap(A),
            Write(A, 8, 8),
            Revert(A, Snap(1), false),
            Write(A, 16, 8),
            Flush(A),
            Revert(A, Snap(0), true),
            Write(A, 0, 8),
            Flush(A),
            Verify,
            Reclaim,
            Revert(A, Snap(0), true),
            Reclaim,
            Write(A, 24, 8),
            Flush(A),
            Verify,
        ],
    ));
    all.push((
        "discard",
        vec![
            thick(256),
            Write(A, 0, 128),
            Flush(A),
            Discard(A, 0, 64),
            Write(A, 8, 8),
            Flush(A),
            Zero(A, 70, 20),
            Flush(A),
            snap(A),
            Discard(A, 0, 128),
            Flush(A),
            Write(A, 0, 16),
            Zero(A, 4, 8),
            Flush(A),
            Remove(vec![Snap(0)]),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "resize",
        vec![
            thick(256),
            thin(128, 1),
            Write(A, 1024, 64),
            Write(B, 512, 64),
            Flush(A),
            snap(A),
            Resize(A, 512),
            Write(A, 4000, 64),
            Flush(A),
            Resize(A, 128),
            Resize(A, 256),
            Write(A, 1040, 8),
            Flush(A),
            Resize(B, 64),
            Resize(B, 256),
            Verify,
        ],
    ));
    all.push((
        "checkpoints",
        vec![
            thick(256),
            Write(A, 0, 64),
            Checkpoint,
            Write(A, 0, 8),
            snap(A),
            Write(A, 0, 8),
            Checkpoint,
            Write(A, 0, 8),
            Write(A, 64, 8),
            Checkpoint,
            Write(A, 1, 1),
            Flush(A),
            Remove(vec![Snap(0)]),
            Checkpoint,
            Reclaim,
            Checkpoint,
            Write(A, 72, 8),
            Verify,
        ],
    ));
    all.push((
        "rename-remove",
        vec![
            thick(128),
            Rename(A),
            thin(128, 1),
            Write(A, 0, 16),
            snap(A),
            Rename(Snap(0)),
            Flush(A),
            Remove(vec![A, B]),
            Rename(Snap(0)),
            thin(128, 1),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "queue-depth",
        vec![
            thick(256),
            Together((0..16).map(|at| Write(A, at * 8, 8)).collect()),
            Together(vec![Write(A, 0, 16), Write(A, 8, 16), Write(A, 4, 8), Flush(A), Write(A, 1, 1), Write(A, 2, 1)]),
            Verify,
            snap(A),
            Together((0..12).map(|at| Write(A, at * 5, 9)).collect()),
            Flush(A),
            Verify,
            Together(vec![
                Write(A, 0, 64),
                Discard(A, 16, 32),
                Write(A, 20, 8),
                Flush(A),
                snap(A),
                Checkpoint,
                Write(A, 16, 8),
            ]),
            Verify,
            Flush(A),
        ],
    ));
    all.push((
        "marker-trap",
        vec![
            // A block is redirected, then written in place at once, before any flush: the record's checksum no longer
            // matches.
            thin(128, 1),
            Write(A, 0, 8),
            Write(A, 0, 8),
            Write(A, 2, 1),
            Flush(A),
            snap(A),
            Write(A, 0, 8),
            Write(A, 0, 8),
            Write(A, 3, 2),
            Write(A, 8, 8),
            Write(A, 0, 8),
            Flush(A),
            Write(A, 0, 8),
            Write(A, 16, 8),
            Flush(A),
            Verify,
        ],
    ));
    all.push((
        "remove-race",
        vec![
            // While a volume is being removed, its snapshot becomes the owner of its blocks, and they are written at
            // once.
            thin(128, 1),
            Write(A, 0, 32),
            snap(A),
            Write(A, 32, 8),
            Together(vec![
                Remove(vec![A]),
                Write(Snap(0), 0, 8),
                Write(Snap(0), 0, 8),
                Write(Snap(0), 8, 8),
                Reclaim,
                Write(Snap(0), 17, 2),
            ]),
            Write(Snap(0), 0, 16),
            Flush(Snap(0)),
            snap(Snap(0)),
            Write(Snap(1), 0, 8),
            Together(vec![Remove(vec![Snap(0)]), Write(Snap(1), 0, 24), Write(Snap(1), 4, 8), Reclaim, Checkpoint]),
            Write(Snap(0), 0, 8),
            Write(Snap(0), 3, 2),
            Flush(Snap(0)),
            Verify,
        ],
    ));
    all.push((
        "reserve",
        vec![
            thick(256),
            Write(A, 0, 512),
            Flush(A),
            Step::Snapshot(A, SnapshotKind { read_only: true, reserve: Some(16), chunk_blocks: 1 }),
            Write(A, 0, 64),
            Flush(A),
            Write(A, 64, 64),
            Flush(A),
            Write(A, 128, 64),
            Flush(A),
            Verify,
            Remove(vec![Snap(0)]),
            Reclaim,
        ],
    ));
    all.push((
        "orphans",
        vec![
            // Blocks that both children of a point have overwritten, or one of them, or none; and the result.
            thin(256, 1),
            Write(A, 0, 512),
            Flush(A),
            snap(A),
            Write(A, 0, 256),
            Write(Snap(0), 128, 256),
            Flush(A),
            Checkpoint,
            Reclaim,
            Checkpoint,
            Write(A, 512, 256),
            snap(Snap(0)),
            Write(Snap(0), 0, 200),
            Write(Snap(1), 64, 200),
            Write(A, 300, 100),
            Checkpoint,
            Reclaim,
            Write(A, 900, 128),
            Flush(A),
            Remove(vec![Snap(0)]),
            Checkpoint,
            Reclaim,
            Verify,
            Remove(vec![A]),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "reuse-large",
        vec![
            // Whole arenas are reused: one discard frees them, the next write takes them.
            thin(1536, 1),
            Write(A, 0, 2048),
            Write(A, 2048, 2048),
            Write(A, 4096, 2048),
            Write(A, 6144, 2048),
            Flush(A),
            Discard(A, 0, 8192),
            Write(A, 8192, 2048),
            Write(A, 10240, 2048),
            Flush(A),
            Discard(A, 8192, 4096),
            Write(A, 0, 2048),
            Flush(A),
            Verify,
        ],
    ));
    all.push(("reuse", {
        // Space is reused: freed blocks must not be allocated before the record that freed them is durable.
        let mut steps = vec![thin(256, 1), Write(A, 0, 256), Flush(A)];
        for round in 0..6 {
            steps.extend([
                snap(A),
                Write(A, round * 8, 64),
                Flush(A),
                Discard(A, 128, 64),
                Remove(vec![Snap(0)]),
                Write(A, 128, 32),
                Reclaim,
                Write(A, 512 + round * 16, 16),
            ]);
        }
        steps.extend([Flush(A), Verify]);
        steps
    }));
    all
}
