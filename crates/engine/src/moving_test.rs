use super::*;
use crate::disk::{Completion, PageBuf, PvGeometry, completion};
use crate::planted::must_be_found;
use crate::runtime::Task;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Disks that carry out nothing by themselves, and a runtime that the test drives.
#[derive(Default)]
struct Held {
    asked: Mutex<Vec<(Segment, Completer)>>,
    tasks: Mutex<Vec<Task>>,
}

impl Disks for Held {
    fn count(&self) -> usize {
        2
    }

    fn geometry(&self, _pv: PvIndex) -> PvGeometry {
        PvGeometry { size: 1 << 40, sector: 512 }
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        let DiskOp::Write { segments, .. } = op else { return done.complete(Ok(None)) };
        self.asked.lock().push((segments[0], done));
    }
}

impl Runtime for Held {
    fn spawn(&self, _name: &'static str, task: Task) {
        self.tasks.lock().push(task);
    }

    fn sleep(&self, _pause: Duration) -> Task {
        Box::pin(async {})
    }
}

impl Held {
    /// Completes all requests, and runs the tasks that wait for them. Returns the written places, by physical volume.
    fn carry_out(&self, outcome: impl Fn(u16) -> DiskResult) -> Vec<u16> {
        let asked = std::mem::take(&mut *self.asked.lock());
        let places = asked.iter().map(|(segment, _)| segment.pv.0).collect();
        asked.into_iter().for_each(|(segment, done)| done.complete(outcome(segment.pv.0)));
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let unfinished = tasks.into_iter().filter_map(|mut task| {
            let is_done = task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            (!is_done).then_some(task)
        });
        let unfinished: Vec<Task> = unfinished.collect();
        self.tasks.lock().extend(unfinished);
        places
    }
}

struct Made {
    held: Arc<Held>,
    disks: Arc<dyn Disks>,
    moving: Arc<Moving>,
}

/// A run of two pages of physical volume 1 that moves to physical volume 0. The first page was copied.
fn made() -> Made {
    let held: Arc<Held> = Arc::default();
    let (disks, moving): (Arc<dyn Disks>, Arc<Moving>) = (held.clone(), Arc::default());
    moving.begin(PvIndex(1), held.clone());
    moving.begin_run(0..8192, PvIndex(0), 1 << 20);
    let made = Made { held, disks, moving };
    assert!(made.window(4096).is_some());
    made.moving.copied(&made.disks);
    made
}

impl Made {
    fn window(&self, most: u64) -> Option<Window> {
        let next = pin!(self.moving.next_window(most));
        match next.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(window) => window.unwrap(),
            Poll::Pending => None,
        }
    }

    fn write(&self, offset: u64, len: u32) -> Completion {
        let segments = Segments::from_slice(&[Segment { pv: PvIndex(1), offset, at: 0, len }]);
        let (done, completion) = completion();
        self.moving.submit(&self.disks, DiskOp::Write { segments, buf: Arc::new(PageBuf::zeroed(8192)) }, done);
        completion
    }

    fn outcome(&self, mut write: Completion) -> DiskResult {
        match std::pin::Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("the write is under way still"),
        }
    }
}

/// PM3
fn overlapping_writes_follow_each_other() {
    let made = made();
    let (first, second) = (made.write(0, 1024), made.write(512, 1024));
    let beside = made.write(2048, 512);
    assert_eq!(made.held.carry_out(|_| Ok(None)), [0, 1, 0, 1], "the first, and the one beside it");
    assert_eq!(made.held.carry_out(|_| Ok(None)), [0, 1], "and then the second");
    [first, second, beside].into_iter().for_each(|write| assert_eq!(made.outcome(write).map(drop), Ok(())));
}

#[test]
fn writes_of_the_same_bytes_are_not_under_way_at_once() {
    overlapping_writes_follow_each_other();
    must_be_found("overlapping_writes_pass", overlapping_writes_follow_each_other);
}

/// PM2
#[test]
fn a_window_is_quiet_while_it_is_copied() {
    let made = made();
    let before = made.write(4096, 512);
    assert_eq!(made.window(4096), None, "a write to it is under way");
    assert_eq!(made.held.carry_out(|_| Ok(None)), [1], "what is not copied has one place");
    drop(before);
    assert!(made.window(4096).is_some());
    let (waits, over_both) = (made.write(6000, 512), made.write(4000, 1000));
    assert!(made.held.carry_out(|_| Ok(None)).is_empty(), "they wait for the copy");
    made.moving.copied(&made.disks);
    assert_eq!(made.held.carry_out(|_| Ok(None)).len(), 4);
    [waits, over_both].into_iter().for_each(|write| assert_eq!(made.outcome(write).map(drop), Ok(())));
    assert_eq!(made.window(4096), None, "all was copied");
    // A write that reaches beyond the end of the run does not wait.
    let over_the_end = made.write(8000, 1000);
    assert_eq!(made.held.carry_out(|_| Ok(None)).len(), 2);
    assert_eq!(made.outcome(over_the_end).map(drop), Ok(()));
}

/// PM4
fn a_failed_copy_is_not_committed() {
    let error = DiskError { op: crate::disk::DiskOpKind::Write, pv: PvIndex(0), offset: 0, errno: 5 };
    let made = made();
    assert!(made.window(4096).is_some());
    made.moving.copied(&made.disks);
    let write = made.write(0, 512);
    made.held.carry_out(|pv| if pv == 0 { Err(error) } else { Ok(None) });
    assert_eq!(made.outcome(write).map(drop), Ok(()));
    assert_eq!(made.moving.commit(), Err(error));
}

#[test]
fn what_the_new_place_has_not_taken_is_not_committed() {
    a_failed_copy_is_not_committed();
    must_be_found("move_half_written", a_failed_copy_is_not_committed);
}

/// PM4
#[test]
fn a_write_that_the_new_place_does_not_take_ends_the_move_or_fails() {
    let error = DiskError { op: crate::disk::DiskOpKind::Write, pv: PvIndex(0), offset: 0, errno: 5 };
    let fails_there = |pv: u16| if pv == 0 { Err(error) } else { Ok(None) };
    let half = made();
    let write = half.write(0, 512);
    half.held.carry_out(fails_there);
    assert_eq!(half.outcome(write).map(drop), Ok(()), "the old place has it, and counts");
    assert_eq!(half.moving.state.lock().run.as_ref().unwrap().failed, Some(error));
    let whole = made();
    assert!(whole.window(4096).is_some());
    whole.moving.copied(&whole.disks);
    assert_eq!(whole.moving.commit(), Ok(true));
    let write = whole.write(0, 512);
    whole.held.carry_out(fails_there);
    assert_eq!(whole.outcome(write).map(drop), Err(error), "either place may count now");
    let quiet = pin!(whole.moving.drain());
    assert!(quiet.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    whole.moving.end();
    assert!(whole.moving.is_active(), "either place may count until blocks are found by one of them");
    whole.moving.end_run(&whole.disks);
    whole.moving.end();
    assert!(!whole.moving.is_active());
}

/// PM5: a write waits for the new place of an abandoned run no more. Nothing else is placed there before the copy has
/// ended.
fn a_copy_is_late() {
    let made = made();
    let write = made.write(0, 512);
    let copy = {
        let mut asked = made.held.asked.lock();
        let at = asked.iter().position(|(segment, _)| segment.pv.0 == 0).unwrap();
        asked.remove(at)
    };
    assert_eq!(made.held.carry_out(|_| Ok(None)), [1]);
    let mut cx = Context::from_waker(Waker::noop());
    let mut aborted = pin!(made.moving.abort_run(&made.disks));
    assert!(aborted.as_mut().poll(&mut cx).is_pending(), "it is on its way to the new place");
    assert_eq!(made.held.carry_out(|_| Ok(None)), [0; 0]);
    assert_eq!(made.outcome(write).map(drop), Ok(()));
    let again = made.write(0, 512);
    assert_eq!(made.held.carry_out(|_| Ok(None)), [1], "only where it lies");
    assert_eq!(made.outcome(again).map(drop), Ok(()));
    assert!(aborted.as_mut().poll(&mut cx).is_pending());
    copy.1.complete(Ok(None));
    assert_eq!(made.held.carry_out(|_| Ok(None)), [0; 0]);
    assert_eq!(aborted.as_mut().poll(&mut cx), std::task::Poll::Ready(true));
}

#[test]
fn the_new_place_is_given_up_when_nothing_is_on_its_way_there() {
    a_copy_is_late();
    must_be_found("new_place_freed_early", a_copy_is_late);
}

/// PM8: the checkpoint of the table fails. From then on writes go to both places, also those that waited.
fn a_table_fails() {
    let made = made();
    assert!(made.window(4096).is_some());
    made.moving.copied(&made.disks);
    assert_eq!(made.moving.commit(), Ok(true));
    let writes = [made.write(0, 512), made.write(0, 512)];
    let aborted = pin!(made.moving.abort_run(&made.disks));
    assert_eq!(aborted.poll(&mut Context::from_waker(Waker::noop())), std::task::Poll::Ready(false));
    made.moving.end();
    assert_eq!([(); 2].map(|()| made.held.carry_out(|_| Ok(None))), [[0, 1], [0, 1]]);
    writes.into_iter().for_each(|write| assert_eq!(made.outcome(write).map(drop), Ok(())));
}

#[test]
fn both_places_are_written_when_a_table_fails() {
    a_table_fails();
    must_be_found("one_place_after_failure", a_table_fails);
}
