use super::*;
use crate::disk::{
    Completer, Completion, DiskError, DiskOp, DiskOpKind, DiskResult, Disks, PageBuf, PvGeometry, PvIndex,
};
use crate::disk::{Segment, Segments, start};
use crate::error::{Error, Result};
use crate::format::intents::INTENTS_OFFSET;
use crate::format::superblock::DATA_OFFSET;
use crate::format::tally::{TALLY_OFFSET, Tally, TallyRecord};
use crate::planted::must_be_found;
use crate::runtime::{Runtime, Task};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Disks in memory, whose requests fail or wait as the test wants, and a runtime that the test drives.
#[derive(Default)]
struct Driven {
    sectors: Mutex<BTreeMap<(u16, u64), [u8; 512]>>,
    /// What was asked: the kind, and the physical volumes.
    asked: Mutex<Vec<(DiskOpKind, Vec<u16>)>>,
    /// Writes to this physical volume's extents fail with this number.
    failing: Mutex<Option<(u16, i32)>>,
    /// Places that cannot be read until they are written.
    unreadable: Mutex<Vec<(u16, u64)>>,
    /// Requests of this kind wait.
    held_kind: Mutex<Option<DiskOpKind>>,
    held: Mutex<Vec<(DiskOp, Completer)>>,
    tasks: Mutex<Vec<Task>>,
    /// What the owner was told.
    told: Mutex<Vec<DiskError>>,
}

impl Driven {
    fn carry_out(&self, op: DiskOp) -> DiskResult {
        match op {
            DiskOp::Read { segments, mut buf } => {
                for segment in &segments {
                    for at in (0..segment.len).step_by(512) {
                        let place = (segment.pv.0, segment.offset + u64::from(at));
                        if self.unreadable.lock().contains(&place) {
                            return Err(DiskError { op: DiskOpKind::Read, pv: segment.pv, offset: place.1, errno: 5 });
                        }
                        let bytes = self.sectors.lock().get(&place).copied().unwrap_or([0; 512]);
                        buf.as_mut_slice()[(segment.at + at) as usize..][..512].copy_from_slice(&bytes);
                    }
                }
                Ok(Some(buf))
            }
            DiskOp::Write { segments, buf } => {
                let mut outcome = Ok(None);
                for segment in &segments {
                    if let Some((_, errno)) = self.failing.lock().filter(|(pv, _)| *pv == segment.pv.0)
                        && segment.offset >= DATA_OFFSET
                    {
                        outcome =
                            Err(DiskError { op: DiskOpKind::Write, pv: segment.pv, offset: segment.offset, errno });
                        continue;
                    }
                    for at in (0..segment.len).step_by(512) {
                        let place = (segment.pv.0, segment.offset + u64::from(at));
                        self.unreadable.lock().retain(|bad| *bad != place);
                        let bytes = buf.as_slice()[(segment.at + at) as usize..][..512].try_into().unwrap();
                        self.sectors.lock().insert(place, bytes);
                    }
                }
                outcome
            }
            DiskOp::Flush | DiskOp::Discard { .. } => Ok(None),
        }
    }

    /// From now on nothing waits.
    fn release(&self) {
        *self.held_kind.lock() = None;
        for (op, done) in std::mem::take(&mut *self.held.lock()) {
            done.complete(self.carry_out(op));
        }
    }

    /// Runs all tasks until all of them wait.
    fn run(&self) {
        for _ in 0..100 {
            let tasks = std::mem::take(&mut *self.tasks.lock());
            let mut left: Vec<Task> = Vec::new();
            for mut task in tasks {
                if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                    left.push(task);
                }
            }
            self.tasks.lock().append(&mut left);
        }
    }

    fn writes_to(&self, pv: u16) -> usize {
        self.asked.lock().iter().filter(|(kind, pvs)| *kind == DiskOpKind::Write && pvs.contains(&pv)).count()
    }
}

impl Disks for Driven {
    fn count(&self) -> usize {
        3
    }

    fn geometry(&self, _pv: PvIndex) -> PvGeometry {
        PvGeometry { size: 1 << 30, sector: 512 }
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        let pvs = match &op {
            DiskOp::Read { segments, .. } | DiskOp::Write { segments, .. } | DiskOp::Discard { segments } => {
                segments.iter().map(|segment| segment.pv.0).collect()
            }
            DiskOp::Flush => Vec::new(),
        };
        self.asked.lock().push((op.kind(), pvs));
        if *self.held_kind.lock() == Some(op.kind()) {
            return self.held.lock().push((op, done));
        }
        done.complete(self.carry_out(op));
    }
}

impl Runtime for Driven {
    fn spawn(&self, name: &'static str, task: Task) {
        // Rounds are begun by the test.
        if name != "legs timer" {
            self.tasks.lock().push(task);
        }
    }

    fn sleep(&self, _pause: Duration) -> Task {
        Box::pin(async {})
    }
}

impl LegsOwner for Driven {
    fn leg_failed(&self, error: DiskError) {
        self.told.lock().push(error);
    }

    fn wake(&self) {}
}

struct Made {
    driven: Arc<Driven>,
    legs: Arc<Legs>,
}

fn run() -> MirroredRun {
    let leg = |pv: u16, mib: u64| Leg { pv: PvIndex(pv), offset: DATA_OFFSET + (mib << 20) };
    MirroredRun { legs: [leg(0, 0), leg(1, 2)], bytes: 8 << 20, filling: None, replacement: None }
}

fn made(pvs: LegsState) -> Made {
    let driven: Arc<Driven> = Arc::default();
    let legs = Legs::new(driven.clone(), driven.clone(), 7);
    let weak: std::sync::Weak<Driven> = Arc::downgrade(&driven);
    legs.set_owner(weak);
    let made = Made { driven, legs };
    made.finish(made.legs.open(vec![run()], pvs)).unwrap();
    made
}

fn now<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl Made {
    fn finish<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        for _ in 0..100 {
            if let Some(value) = now(future.as_mut()) {
                return value;
            }
            self.driven.run();
        }
        panic!("it does not end");
    }

    fn write(&self, at: u64, value: u8) -> Completion {
        let mut buf = PageBuf::zeroed(512);
        buf.as_mut_slice().fill(value);
        let segments = Segments::from_slice(&[Segment { pv: PvIndex(0), offset: DATA_OFFSET + at, at: 0, len: 512 }]);
        start(&*self.legs, DiskOp::Write { segments, buf: Arc::new(buf) })
    }

    fn read(&self, at: u64) -> std::result::Result<u8, DiskError> {
        let segments = Segments::from_slice(&[Segment { pv: PvIndex(0), offset: DATA_OFFSET + at, at: 0, len: 512 }]);
        let read = start(&*self.legs, DiskOp::Read { segments, buf: PageBuf::zeroed(512) });
        self.finish(read).map(|buf| buf.unwrap().as_slice()[0])
    }

    /// What is on both disks.
    fn both(&self, at: u64) -> [u8; 2] {
        let sectors = self.driven.sectors.lock();
        let byte = |leg: &Leg| sectors.get(&(leg.pv.0, leg.offset + at)).map_or(0, |bytes| bytes[0]);
        run().legs.each_ref().map(byte)
    }

    fn work(&self) {
        while self.finish(self.legs.work()).unwrap() {}
    }
}

/// ML1, ML2
fn a_write_waits_for_its_intents() {
    let made = made(LegsState::default());
    *made.driven.held_kind.lock() = Some(DiskOpKind::Flush);
    let mut write = made.write(0, 1);
    made.driven.run();
    assert_eq!(made.both(0), [0, 0], "its region is not open");
    made.driven.release();
    made.driven.run();
    assert_eq!(now(pin!(&mut write)).unwrap().map(drop), Ok(()));
    assert_eq!(made.both(0), [1, 1]);
    let before = made.driven.writes_to(0);
    made.finish(made.write(512, 2)).unwrap();
    assert_eq!(made.driven.writes_to(0), before + 1, "only the write itself");
}

#[test]
fn nothing_is_written_before_its_region_is_open() {
    a_write_waits_for_its_intents();
    must_be_found("intent_not_flushed", a_write_waits_for_its_intents);
    must_be_found("one_leg_written", a_write_waits_for_its_intents);
}

/// ML3
fn overlapping_writes_follow_each_other() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    *made.driven.held_kind.lock() = Some(DiskOpKind::Write);
    let (first, second, beside) = (made.write(0, 2), made.write(0, 3), made.write(512, 4));
    made.driven.run();
    assert_eq!(made.driven.held.lock().len(), 2, "the first, and the one beside it");
    made.driven.release();
    [first, second, beside].into_iter().for_each(|write| drop(made.finish(write).unwrap()));
    assert_eq!((made.both(0), made.both(512)), ([3, 3], [4, 4]));
}

#[test]
fn legs_get_the_same_writes_in_the_same_order() {
    overlapping_writes_follow_each_other();
    must_be_found("overlapping_legs_pass", overlapping_writes_follow_each_other);
}

/// ML4
#[test]
fn a_quiet_region_is_settled_after_a_whole_round() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    for left in [1, 0] {
        assert_eq!(made.legs.report()[0].open_regions, 1, "{left} rounds are left");
        made.legs.state().is_round_due = true;
        made.work();
    }
    assert_eq!(made.legs.report()[0].open_regions, 0);
    let (again, opened) = made.again(LegsState::default());
    opened.unwrap();
    assert_eq!(again.legs.report()[0].unsure_bytes, 0, "so it is on the disks");
}

/// ML7
fn a_leg_that_is_behind_is_alone() {
    let mut pvs = LegsState::default();
    pvs.behind.set(1, true);
    let first = made(pvs);
    first.finish(first.write(0, 1)).unwrap();
    pvs.out.set(0, true);
    let (alone, opened) = first.again(pvs);
    opened.unwrap();
    assert!(alone.read(0).is_err() && alone.finish(alone.write(0, 2)).is_err(), "its region is open");
    assert_eq!(alone.read(6 << 20), Ok(0));
    assert!(alone.finish(alone.write(6 << 20, 2)).is_err());
    let report = &alone.legs.report()[0];
    assert!(report.outdated_bytes > 0 && report.outdated_bytes <= 6 << 20, "{report:?}");
    assert!(alone.legs.is_catching_up());
}

#[test]
fn what_a_leg_may_have_missed_is_not_read_there() {
    a_leg_that_is_behind_is_alone();
    must_be_found("read_from_behind", a_leg_that_is_behind_is_alone);
    must_be_found("outdated_untold", a_leg_that_is_behind_is_alone);
}

/// ML8
fn each_leg_has_a_bad_block() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    made.finish(made.write(4096, 2)).unwrap();
    // Each leg has a bad block.
    let bad = [(0, run().legs[0].offset), (1, run().legs[1].offset + 4096)];
    *made.driven.unreadable.lock() = bad.to_vec();
    let segments = Segments::from_slice(&[Segment { pv: PvIndex(0), offset: DATA_OFFSET, at: 0, len: 8192 }]);
    let read = start(&*made.legs, DiskOp::Read { segments, buf: PageBuf::zeroed(8192) });
    let read = made.finish(read).unwrap().unwrap();
    assert_eq!([read.as_slice()[0], read.as_slice()[4096]], [1, 2]);
    made.work();
    assert_eq!(*made.driven.unreadable.lock(), bad[1..], "nobody needed the other one yet");
    assert_eq!((made.both(0), made.both(4096)), ([1, 1], [2, 2]));
    let report = made.legs.pv_report(PvIndex(0));
    assert_eq!((report.read_errors, report.healed_bytes), (1, 4096));
}

#[test]
fn a_bad_block_is_read_from_the_other_leg_and_healed() {
    each_leg_has_a_bad_block();
    must_be_found("other_leg_not_asked", each_leg_has_a_bad_block);
}

/// ML9
fn a_leg_fails_writes() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    *made.driven.failing.lock() = Some((1, 5));
    *made.driven.held_kind.lock() = Some(DiskOpKind::Write);
    let (write, mut waits) = (made.write(0, 2), made.write(0, 3));
    made.driven.run();
    assert!(now(pin!(&mut waits)).is_none());
    made.driven.release();
    let error = made.finish(write).unwrap_err();
    assert_eq!(error.pv, PvIndex(1));
    assert_eq!(*made.driven.told.lock(), [error], "the group stops");
    assert_eq!(made.finish(waits).unwrap_err(), error, "nobody waits for ever");
    assert!(made.finish(start(&*made.legs, DiskOp::Flush)).is_err());
}

#[test]
fn a_group_goes_on_without_a_leg_that_fails_writes() {
    a_leg_fails_writes();
    must_be_found("failed_leg_kept", a_leg_fails_writes);
}

/// ML9
#[test]
fn a_write_for_which_there_is_no_room_leaves_legs_that_are_made_equal() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    *made.driven.failing.lock() = Some((1, 28));
    assert!(made.finish(made.write(0, 2)).unwrap_err().is_no_room());
    assert!(made.driven.told.lock().is_empty() && made.both(0) == [2, 1]);
    *made.driven.failing.lock() = None;
    assert_eq!(made.read(0), Ok(2), "the read copies first");
    assert_eq!(made.both(0), [2, 2]);
}

#[test]
fn what_waits_fails_when_a_disk_has_failed() {
    let made = made(LegsState::default());
    *made.driven.held_kind.lock() = Some(DiskOpKind::Flush);
    let (first, second) = (made.write(0, 1), made.write(0, 2));
    made.driven.run();
    made.legs.fail(DiskError { op: DiskOpKind::Write, pv: PvIndex(1), offset: 0, errno: 5 });
    made.driven.release();
    [first, second].into_iter().for_each(|write| assert!(made.finish(write).is_err()));
}

/// A leg is being replaced by a third disk, whose writes fail.
fn replaced() -> Made {
    let made = made(LegsState::default());
    let replacement = Leg { pv: PvIndex(2), offset: DATA_OFFSET };
    made.finish(made.legs.set_runs(with_replacement(&[run()], &run(), replacement))).unwrap();
    made.finish(made.write(0, 1)).unwrap();
    assert_eq!(made.driven.sectors.lock()[&(2, DATA_OFFSET)][0], 1);
    made
}

/// ML12: it is given up.
fn a_replacement_fails_writes() {
    let made = replaced();
    *made.driven.failing.lock() = Some((2, 5));
    made.finish(made.write(0, 2)).unwrap();
    assert!(made.driven.told.lock().is_empty() && made.both(0) == [2, 2]);
    let error = made.legs.count_replacement().expect_err("it lacks a write");
    assert_eq!((error.pv, made.legs.is_replacement_counted()), (PvIndex(2), false));
    made.finish(made.legs.set_runs(vec![run()])).unwrap();
    made.finish(made.write(0, 3)).unwrap();
    assert_eq!(made.both(0), [3, 3]);
}

/// ML12: it counts as a leg.
fn a_replacement_that_counts_fails_writes() {
    let made = replaced();
    made.legs.count_replacement().unwrap();
    assert!(made.finish(made.legs.set_runs(vec![run()])).is_err(), "nobody knows whether it is a leg");
    *made.driven.failing.lock() = Some((2, 5));
    let error = made.finish(made.write(0, 2)).expect_err("a table on a disk may name it");
    assert_eq!((error.pv, made.driven.told.lock().len()), (PvIndex(2), 1));
}

/// ML12, ML4: it has no room for a write. When it is a leg, it gets what it lacks.
#[test]
fn a_replacement_that_lacks_something_gets_it_as_a_leg() {
    let made = replaced();
    made.legs.count_replacement().unwrap();
    *made.driven.failing.lock() = Some((2, 28));
    assert!(made.finish(made.write(0, 2)).unwrap_err().is_no_room());
    *made.driven.failing.lock() = None;
    let legs = [Leg { pv: PvIndex(2), offset: DATA_OFFSET }, run().legs[1]];
    made.finish(made.legs.set_runs(vec![MirroredRun { legs, ..run() }])).unwrap();
    while made.finish(made.legs.work()).unwrap() {}
    assert_eq!(made.driven.sectors.lock()[&(2, DATA_OFFSET)][0], 2);
}

/// ML12: it becomes a leg while a write is in flight, which it does not take.
fn a_late_write_fails() {
    let made = replaced();
    made.legs.count_replacement().unwrap();
    *made.driven.held_kind.lock() = Some(DiskOpKind::Write);
    let late = made.write(0, 9);
    made.driven.run();
    let legs = [run().legs[0], Leg { pv: PvIndex(2), offset: DATA_OFFSET }];
    let mut end = pin!(made.legs.set_runs(vec![MirroredRun { legs, ..run() }]));
    assert!(now(end.as_mut()).is_none(), "a write is in flight");
    *made.driven.failing.lock() = Some((2, 28));
    made.driven.release();
    assert!(made.finish(late).is_err(), "a leg does not have it");
    made.finish(end).unwrap();
    *made.driven.failing.lock() = None;
    while made.finish(made.legs.work()).unwrap() {}
    let sectors = made.driven.sectors.lock();
    assert_eq!([(0, DATA_OFFSET), (2, DATA_OFFSET)].map(|place| sectors[&place][0]), [9, 9]);
}

#[test]
fn a_late_write_that_a_replacement_lacks_is_copied() {
    a_late_write_fails();
    must_be_found("late_write_missed", a_late_write_fails);
}

/// ML12, ML9: the replacement becomes this leg while a write is in flight, which this disk does not take. What the write
/// ends with, and the disks without which the group goes on.
fn late_write_that_fails(replaced_leg: usize, failing: u16) -> (std::result::Result<(), DiskError>, Vec<u16>) {
    let made = replaced();
    made.legs.count_replacement().unwrap();
    *made.driven.held_kind.lock() = Some(DiskOpKind::Write);
    let late = made.write(0, 9);
    made.driven.run();
    let mut legs = run().legs;
    legs[replaced_leg] = Leg { pv: PvIndex(2), offset: DATA_OFFSET };
    let mut end = pin!(made.legs.set_runs(vec![MirroredRun { legs, ..run() }]));
    assert!(now(end.as_mut()).is_none(), "a write is in flight");
    *made.driven.failing.lock() = Some((failing, 5));
    made.driven.release();
    let outcome = made.finish(late).map(drop);
    let told = made.driven.told.lock().iter().map(|error| error.pv.0).collect();
    (outcome, told)
}

fn the_leg_beside_a_replacement_fails_late() {
    for (replaced_leg, staying) in [(0, 1), (1, 0)] {
        let (outcome, told) = late_write_that_fails(replaced_leg, staying);
        assert!(outcome.is_err_and(|error| error.pv.0 == staying), "the group goes on without the disk first");
        assert_eq!(told, [staying], "the replacement has it");
    }
}

fn the_leg_that_was_left_fails_late() {
    for (replaced_leg, left) in [(0, 0), (1, 1)] {
        assert_eq!(late_write_that_fails(replaced_leg, left), (Ok(()), Vec::new()), "both legs have it");
    }
}

#[test]
fn a_late_write_needs_the_new_legs_only() {
    the_leg_beside_a_replacement_fails_late();
    must_be_found("staying_leg_kept", the_leg_beside_a_replacement_fails_late);
    the_leg_that_was_left_fails_late();
    must_be_found("left_leg_must_write", the_leg_that_was_left_fails_late);
}

#[test]
fn a_replacement_that_fails_writes_is_no_leg() {
    a_replacement_fails_writes();
    must_be_found("replacement_half_written", a_replacement_fails_writes);
    a_replacement_that_counts_fails_writes();
    must_be_found("replacement_need_not_write", a_replacement_that_counts_fails_writes);
}

/// A write is in flight on both legs, and only then they are compared (ML10).
fn a_comparison_waits_for_writes() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    let place = |len| Segment { pv: PvIndex(0), offset: DATA_OFFSET, at: 0, len };
    *made.driven.held_kind.lock() = Some(DiskOpKind::Write);
    let written = made.write(0, 2);
    let mut compared = pin!(made.legs.compare(place(4096)));
    assert!(now(compared.as_mut()).is_none(), "a write is in flight");
    made.driven.release();
    made.finish(written).unwrap();
    assert_eq!(made.finish(compared).unwrap(), Differences::default());

    // The other leg loses a byte, and the first one loses another, which its disk admits.
    let other = DATA_OFFSET + (2 << 20);
    made.driven.sectors.lock().insert((1, other + 512), [9; 512]);
    made.driven.unreadable.lock().push((0, DATA_OFFSET + 4096));
    let found = made.finish(made.legs.compare(place(8192))).unwrap();
    assert_eq!((found.places, found.unreadable, found.skipped), (vec![place(4096)], 4096, 0));
    while made.finish(made.legs.work()).unwrap() {}
    assert!(made.driven.unreadable.lock().is_empty(), "it is written anew");
    made.legs.make_equal(&place(4096));
    assert_eq!(made.finish(made.legs.compare(place(4096))).unwrap().skipped, 4096, "it is to be copied");
    while made.finish(made.legs.work()).unwrap() {}
    assert_eq!(made.finish(made.legs.compare(place(8192))).unwrap(), Differences::default());
    assert_eq!(made.read(512).unwrap(), 0, "the first leg counts");
}

#[test]
fn legs_are_compared_at_rest() {
    a_comparison_waits_for_writes();
    must_be_found("compared_without_window", a_comparison_waits_for_writes);
}

impl Made {
    /// The same disks, after the process ended.
    fn again(&self, pvs: LegsState) -> (Made, Result<()>) {
        let again = Made { driven: self.driven.clone(), legs: Legs::new(self.driven.clone(), self.driven.clone(), 7) };
        let opened = again.finish(again.legs.open(vec![run()], pvs));
        (again, opened)
    }

    /// What is on one disk.
    fn copy(&self, pv: u16) -> BTreeMap<(u16, u64), [u8; 512]> {
        self.driven
            .sectors
            .lock()
            .iter()
            .filter(|(place, _)| place.0 == pv)
            .map(|(place, bytes)| (*place, *bytes))
            .collect()
    }

    fn put(&self, pv: u16, copy: BTreeMap<(u16, u64), [u8; 512]>) {
        let mut sectors = self.driven.sectors.lock();
        sectors.retain(|place, _| place.0 != pv);
        sectors.extend(copy);
    }
}

/// ML11: a copy of one disk that was made between writes, of a group that did not end.
fn an_older_copy_of_either_leg_is_opened() {
    for pv in 0..2 {
        let made = made(LegsState::default());
        made.finish(made.write(0, 1)).unwrap();
        made.work();
        let older = made.copy(pv);
        // The same region, which stays open.
        made.finish(made.write(512, 2)).unwrap();
        made.legs.state().is_round_due = true;
        made.work();
        let newest = made.copy(pv);
        let at = usize::from(pv);
        made.put(pv, older.clone());
        assert_eq!(made.again(LegsState::default()).1, Err(Error::OlderCopy(PvIndex(pv))));
        let mut without = LegsState::default();
        without.out.set(at, true);
        let (alone, opened) = made.again(without);
        assert_eq!((opened, alone.read(512)), (Ok(()), Ok(2)));
        assert_eq!(alone.finish(alone.legs.prepare_return(PvIndex(pv))), Err(Error::OlderCopy(PvIndex(pv))));
        assert_eq!(alone.copy(pv), older, "nothing was written to it");
        made.put(pv, newest);
        alone.finish(alone.legs.prepare_return(PvIndex(pv))).unwrap();
    }
}

#[test]
fn an_older_copy_is_known() {
    an_older_copy_of_either_leg_is_opened();
    must_be_found("tally_ignored", an_older_copy_of_either_leg_is_opened);
}

/// ML11: the copy is from before a region was written that has settled since.
fn a_copy_from_before_a_region_settled() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    made.work();
    let older = made.copy(1);
    made.finish(made.write(4 << 20, 2)).unwrap();
    for _ in 0..3 {
        made.legs.state().is_round_due = true;
        made.work();
    }
    assert_eq!(made.legs.report()[0].open_regions, 0);
    made.put(1, older);
    assert_eq!(made.again(LegsState::default()).1, Err(Error::OlderCopy(PvIndex(1))));
}

#[test]
fn a_copy_that_lacks_a_settled_region_is_known() {
    a_copy_from_before_a_region_settled();
    must_be_found("tally_ignored", a_copy_from_before_a_region_settled);
    must_be_found("cleared_uncounted", a_copy_from_before_a_region_settled);
}

/// ML11: the disks get other places in the table when one of them leaves, so nobody may have less than any is known to have.
fn one_returns() {
    let made = made(LegsState::default());
    let mut without = LegsState::default();
    without.out.set(1, true);
    let (alone, opened) = made.again(without);
    opened.unwrap();
    for at in 0..3 {
        alone.finish(alone.write(at * 512, 1)).unwrap();
        alone.legs.state().is_round_due = true;
        alone.work();
    }
    alone.finish(alone.legs.prepare_return(PvIndex(1))).unwrap();
    let tally = |pv: u16| Tally::decode(&alone.driven.sectors.lock()[&(pv, TALLY_OFFSET)], 7).unwrap();
    assert!(tally(0).known[0] > 2 && tally(1).own >= tally(0).known[0], "{:?}", [tally(0), tally(1)]);
}

#[test]
fn one_that_returns_has_the_present_tally() {
    one_returns();
    must_be_found("returned_uncounted", one_returns);
}

/// ML11: a disk without legs returns. Another one, which had legs and has left, had its place in the table.
fn one_without_legs_returns_to_a_place_of_another() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    made.work();
    for pv in 0..2 {
        let mut sectors = made.driven.sectors.lock();
        let stored = sectors.get_mut(&(pv, TALLY_OFFSET)).unwrap();
        let mut tally = Tally::decode(stored, 7).unwrap();
        tally.known[2] = tally.own;
        stored[..TallyRecord::SIZE].copy_from_slice(&tally.encode(7));
    }
    let mut without = LegsState::default();
    without.out.set(2, true);
    let (alone, opened) = made.again(without);
    opened.unwrap();
    alone.finish(alone.legs.prepare_return(PvIndex(2))).unwrap();
}

#[test]
fn one_without_legs_is_no_older_copy() {
    one_without_legs_returns_to_a_place_of_another();
    must_be_found("place_counts", one_without_legs_returns_to_a_place_of_another);
}

/// ML6: a sector of bits holds rubbish.
fn a_sector_is_torn() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    made.driven.sectors.lock().insert((0, INTENTS_OFFSET), [0x10; 512]);
    let (again, opened) = made.again(LegsState::default());
    assert_eq!((opened, again.legs.report()[0].unsure_bytes), (Ok(()), run().bytes), "each region may differ");
}

#[test]
fn a_torn_sector_has_all_regions_open() {
    a_sector_is_torn();
    must_be_found("torn_intents_trusted", a_sector_is_torn);
}

/// ML1: a physical volume without runs may leave the group, so nothing is written there any more.
fn the_last_run_goes() {
    let made = made(LegsState::default());
    made.finish(made.write(0, 1)).unwrap();
    made.work();
    made.finish(made.legs.set_runs(Vec::new())).unwrap();
    let before = made.driven.writes_to(1);
    made.finish(made.legs.close()).unwrap();
    assert_eq!(made.driven.writes_to(1), before);
}

#[test]
fn nothing_is_written_for_runs_that_are_gone() {
    the_last_run_goes();
    must_be_found("regions_outlive_runs", the_last_run_goes);
}
