//! Rules Q1 and Q2.

use super::*;
use crate::planted::must_be_found;

#[test]
fn a_measure_counts_only_if_nothing_happened_meanwhile() {
    let mut pools = Pools::default();
    assert!(!pools.take("p", 1), "nothing is known yet");
    let early = pools.changes();
    pools.measured("p", early, 10);
    // A measurement that began at the same time does not know the blocks that were taken since.
    assert!(pools.take("p", 8));
    pools.measured("p", early, 10);
    assert!(!pools.take("p", 3));
    pools.measured("p", early, 10);
    assert!(!pools.take("p", 1), "a stale measure counted");
    let now = pools.changes();
    pools.measured("p", now, 2);
    assert!(pools.take("p", 2) && !pools.take("p", 1));
    // Volumes changed while it was measured.
    let before = pools.changes();
    pools.forget();
    pools.measured("p", before, 5);
    assert!(!pools.take("p", 1));
}

#[test]
fn a_measure_that_is_old_is_found() {
    for bug in ["stale_measure", "late_measure_kept"] {
        must_be_found(bug, a_measure_counts_only_if_nothing_happened_meanwhile);
    }
}
