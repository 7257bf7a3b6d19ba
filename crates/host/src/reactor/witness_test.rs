use super::*;

/// A disk that flushes all that it wrote.
fn written(witness: &Witness, offsets: impl IntoIterator<Item = u64>, mut change: u64) -> u64 {
    for offset in offsets {
        change += 1;
        witness.write(offset, 4096, &[change as u8; 4096]);
        witness.done(offset, Some(change));
    }
    witness.flush(change);
    witness.flushed(change);
    change
}

fn offsets(witness: &Witness) -> Vec<u64> {
    let mut offsets: Vec<u64> = witness.places().unwrap_or_default().into_iter().map(|place| place.offset).collect();
    offsets.sort_unstable();
    offsets
}

#[test]
fn the_last_writes_of_the_last_flush_are_known() {
    let witness = Witness::default();
    assert_eq!(witness.places(), None);
    let change = written(&witness, (0..100).map(|at| at * 4096), 0);
    assert_eq!(offsets(&witness), (92..100).map(|at| at * 4096).collect::<Vec<_>>());
    let change = written(&witness, [1 << 20], change);
    assert_eq!(offsets(&witness), [1 << 20], "of that flush alone");
    assert_eq!(witness.places().unwrap()[0].sum, crc32c(&[change as u8; SAMPLE]));
    // A flush of nothing new proves what the one before did.
    written(&witness, [], change);
    assert_eq!(offsets(&witness), [1 << 20]);
}

#[test]
fn what_is_written_again_or_was_not_flushed_proves_nothing() {
    let witness = Witness::default();
    let change = written(&witness, [0, 4096, 8192], 0);
    witness.write(4096, 512, &[9; 512]);
    assert_eq!(offsets(&witness), [0, 8192]);
    witness.done(4096, None);
    witness.discard(8192, 4096);
    assert_eq!(offsets(&witness), [0]);
    // Written, and not flushed.
    witness.write(1 << 20, 4096, &[1; 4096]);
    witness.done(1 << 20, Some(change + 1));
    assert_eq!(offsets(&witness), [0]);
    witness.write(0, 4096, &[1; 4096]);
    assert_eq!(witness.places(), None);
}

#[test]
fn of_two_writes_to_one_place_at_once_nobody_knows_the_last() {
    let witness = Witness::default();
    witness.write(0, 4096, &[1; 4096]);
    witness.write(0, 4096, &[2; 4096]);
    witness.done(0, Some(1));
    witness.done(0, Some(2));
    witness.flush(2);
    witness.flushed(2);
    assert_eq!(witness.places(), None);
}

/// WT3. The first of three is done after the last has begun, and may be what the disk has.
#[test]
fn of_three_writes_to_one_place_none_is_known() {
    let witness = Witness::default();
    (1..=3).for_each(|byte| witness.write(0, 4096, &[byte; 4096]));
    (1..=3).for_each(|change| witness.done(0, Some(change)));
    witness.flush(3);
    witness.flushed(3);
    assert_eq!(witness.places(), None);
    // Once they are over, the next one is.
    assert_eq!(written(&witness, [0], 3), 4);
    assert_eq!(offsets(&witness), [0]);
}

/// WT3, also behind more writes than are remembered.
#[test]
fn a_slow_write_is_not_forgotten_behind_many_others() {
    let witness = Witness::default();
    witness.write(0, 4096, &[1; 4096]);
    let change = written(&witness, (1..100).map(|at| at * 4096), 0);
    witness.write(0, 4096, &[2; 4096]);
    witness.done(0, Some(change + 1));
    witness.done(0, Some(change + 2));
    witness.flush(change + 2);
    witness.flushed(change + 2);
    assert_eq!(witness.places(), None);
}

#[test]
fn a_witness_that_sees_no_races_is_found() {
    planted::must_be_found("races_unseen", of_three_writes_to_one_place_none_is_known);
}
