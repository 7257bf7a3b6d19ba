use super::*;
use crate::format::superblock::PvEntry;
use crate::units::Uuid;

/// Two physical volumes with 4 extents of 16 blocks each.
fn placement() -> Placement {
    let entry = |first_extent| PvEntry { uuid: Uuid([1; 16]), first_extent, extents: 4, size: 1 << 20 };
    Placement::new(16, vec![entry(0), entry(4)])
}

fn run(start: u64, len: u64) -> UnprovenRun {
    UnprovenRun { start, len, crc: Some(7) }
}

fn with(runs: &[UnprovenRun]) -> Unproven {
    let unproven = Unproven::default();
    runs.iter().for_each(|run| unproven.add(&placement(), *run));
    unproven
}

#[test]
fn every_block_of_a_run_is_found_and_no_other() {
    let unproven = with(&[run(10, 3), run(70, 2)]);
    let found: Vec<u64> = (0..128).filter(|block| unproven.has_any(&placement(), *block, 1)).collect();
    assert_eq!(found, [10, 11, 12, 70, 71]);
    assert!(unproven.has_any(&placement(), 0, 11) && !unproven.has_any(&placement(), 13, 57));
    assert_eq!(unproven.blocks(), 5);
    assert_eq!(unproven.to_compare(PvIndex(1)), [run(70, 2)]);
}

#[test]
fn what_is_left_of_a_run_that_was_cut_cannot_be_compared() {
    let unproven = with(&[run(10, 6)]);
    unproven.forget_blocks(&placement(), 12, 2);
    let left = |start, len| UnprovenRun { start, len, crc: None };
    assert_eq!(unproven.list(), [left(10, 2), left(14, 2)]);
    unproven.forget_blocks(&placement(), 0, 11);
    assert_eq!(unproven.list(), [left(11, 1), left(14, 2)]);
    assert!(unproven.to_compare(PvIndex(0)).is_empty());
    assert_eq!(unproven.blocks(), 3);
}

#[test]
fn half_a_block_that_is_written_counts_as_the_block() {
    let unproven = with(&[run(10, 2)]);
    let half = Segment { pv: PvIndex(0), offset: DATA_OFFSET + 10 * BLOCK_SIZE + 512, at: 0, len: 512 };
    assert!(unproven.first_of(&Segments::from_slice(&[half])).is_some());
    unproven.forget(&Segments::from_slice(&[half]));
    assert_eq!(unproven.list(), [UnprovenRun { start: 11, len: 1, crc: None }]);
}

#[test]
fn what_is_freed_is_unproven_no_more() {
    let unproven = with(&[run(10, 4), run(20, 2), run(70, 2)]);
    unproven.forget_freed(&[(71, 9), (0, 5), (12, 1), (13, 8)]);
    let left: Vec<(u64, u64)> = unproven.list().iter().map(|run| (run.start, run.len)).collect();
    assert_eq!(left, [(10, 2), (21, 1), (70, 1)]);
    assert_eq!(unproven.blocks(), 4);
}

#[test]
fn what_lies_before_the_extents_is_no_block() {
    let unproven = with(&[run(0, 2)]);
    let superblock = Segment { pv: PvIndex(0), offset: 4096, at: 0, len: 4096 };
    let superblock = Segments::from_slice(&[superblock]);
    assert!(unproven.first_of(&superblock).is_none());
    unproven.forget(&superblock);
    assert_eq!(unproven.list(), [run(0, 2)]);
}

#[test]
fn a_run_on_two_physical_volumes_cannot_be_compared() {
    let unproven = with(&[run(62, 4)]);
    assert_eq!(
        unproven.list(),
        [UnprovenRun { start: 62, len: 2, crc: None }, UnprovenRun { start: 64, len: 2, crc: None }]
    );
}

#[test]
fn a_comparison_ends_a_run_or_keeps_it() {
    let unproven = with(&[run(10, 2), run(20, 2)]);
    unproven.compared(&placement(), run(10, 2), true);
    unproven.compared(&placement(), run(20, 2), false);
    assert_eq!(unproven.list(), [UnprovenRun { start: 20, len: 2, crc: None }]);
    unproven.forget_range(&(21..64));
    assert_eq!(unproven.list(), [UnprovenRun { start: 20, len: 1, crc: None }]);
    unproven.forget_range(&(0..64));
    assert_eq!((unproven.blocks(), unproven.list().len()), (0, 0));
}
