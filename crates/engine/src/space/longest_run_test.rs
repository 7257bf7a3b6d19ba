//! Tests of the bounds of free runs.

use super::*;

#[test]
fn what_is_known_to_be_short_is_passed_over() {
    let mut longest = LongestRuns::default();
    assert_eq!(longest.next(5, 64), 5, "nothing is known");
    longest.settle(0, class(63), Some(10 * CHUNK + 3));
    assert_eq!(longest.next(5, 64), 10 * CHUNK, "LR2: of that chunk nothing is known");
    assert_eq!(longest.next(5, 32), 5);
    longest.settle(10, class(1), Some(100 * PAGE_BLOCKS + 7));
    assert_eq!(longest.next(5, 64), 100 * PAGE_BLOCKS);
    longest.raise(50 * PAGE_BLOCKS + 9, 1);
    assert_eq!(longest.next(5, 64), 50 * PAGE_BLOCKS, "a run begins there, however short");
    longest.settle(100 * CHUNKS, class(200), None);
    assert_eq!(longest.next(100 * PAGE_BLOCKS, 256), u64::MAX);
    assert_eq!(longest.next(100 * PAGE_BLOCKS + 77, 255), 100 * PAGE_BLOCKS + 77);
    longest.raise(2 * CHUNK, 1000);
    assert_eq!(longest.next(5, 64), 2 * CHUNK);
    assert_eq!(longest.next(5, 512), 2 * CHUNK, "it is of the class of 512");
    assert_eq!(longest.next(5, 1024), 50 * PAGE_BLOCKS);
}

#[test]
fn a_chunk_that_is_passed_over_unseen_is_found() {
    planted::must_be_found("unknown_is_empty", what_is_known_to_be_short_is_passed_over);
}

#[test]
fn pages_are_bounded() {
    let mut longest = LongestRuns::default();
    for page in 0..2 * MAX_PAGES as u64 {
        longest.settle(page * CHUNKS, 1, Some((page + 1) * PAGE_BLOCKS));
    }
    assert_eq!(longest.pages.len(), MAX_PAGES);
    assert_eq!(longest.next(3, 8), 3);
}
