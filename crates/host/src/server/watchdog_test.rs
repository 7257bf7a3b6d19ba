//! Rule WD2.

use super::*;

#[test]
fn a_worker_is_late_that_was_found_at_one_place_too_often() {
    let beat = |beats| Beat { beats, thread: std::process::id().cast_signed() };
    let mut worker = Watched::new(beat(0));
    let late = |worker: &mut Watched, beats| (0..20).filter(|_| worker.is_late(beat(beats))).count();
    assert_eq!(late(&mut worker, 0), 1);
    assert_eq!(late(&mut worker, 2), 1);
    assert_eq!(late(&mut worker, 3), 0, "it has nothing to do");
    assert_eq!((0..100).filter(|n| worker.is_late(beat(4 + 2 * (n / u64::from(CHECKS))))).count(), 0);
}

#[test]
fn what_another_process_would_wait_for_is_no_reason_to_end() {
    assert_eq!(judge('D', 0), Doing::WaitsInKernel);
    assert_eq!(judge('R', 0), Doing::HasNoTime);
    assert_eq!((judge('R', 5), judge('S', 0)), (Doing::IsWedged, Doing::IsWedged));
}

#[test]
fn a_worker_in_the_kernel_that_is_ended_is_found() {
    rowen_engine::planted::must_be_found("ends_in_kernel", what_another_process_would_wait_for_is_no_reason_to_end);
}
