use super::*;
use crate::disk::{Completer, PvGeometry};
use crate::format::superblock::tests::a_root;
use crate::format::superblock::{GroupRoot, PvEntry};
use crate::planted::must_be_found;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

/// Counts requests, and carries none out.
#[derive(Default)]
struct Counting(AtomicU32);

impl Disks for Counting {
    fn count(&self) -> usize {
        1
    }

    fn geometry(&self, _pv: PvIndex) -> PvGeometry {
        PvGeometry { size: 1 << 30, sector: 512 }
    }

    fn submit(&self, _op: DiskOp, done: Completer) {
        self.0.fetch_add(1, Ordering::Relaxed);
        done.complete(Ok(None));
    }
}

/// B3: a list of physical volumes that are behind makes no sense without mirrors.
fn what_cannot_be_read_is_not_written() {
    let written = |behind: u64| {
        let pvs = vec![PvEntry { uuid: Uuid([1; 16]), first_extent: 0, extents: 8, size: 1 << 30 }];
        let group = GroupRoot { behind, ..a_root(pvs, 0, 0) };
        let (pv_uuid, pv_size) = (Uuid([1; 16]), 1 << 30);
        let superblock = Superblock { sequence: 7, pv_uuid, pv_index: 0, pv_size, group: Some(group) };
        let disks = Counting::default();
        let mut writing = pin!(write_superblock(&disks, PvIndex(0), &superblock));
        let outcome = match writing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("the disks answer at once"),
        };
        (outcome.is_ok(), disks.0.load(Ordering::Relaxed))
    };
    assert_eq!(written(0), (true, 1));
    assert_eq!(written(1), (false, 0), "B3");
}

#[test]
fn a_superblock_that_cannot_be_read_is_not_written() {
    what_cannot_be_read_is_not_written();
    must_be_found("unreadable_superblock_written", what_cannot_be_read_is_not_written);
}
