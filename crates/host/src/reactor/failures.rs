//! The places where requests to a file failed: the first of each range, for the log. A disk that fails all requests
//! takes only a few lines.

use parking_lot::Mutex;
use rowen_engine::disk::DiskError;

/// A failure so near to the one before it, in bytes, is of the same range.
const NEAR: u64 = 1 << 20;
/// The largest number of unreported ranges.
const MAX: usize = 8;

#[derive(Default)]
pub(super) struct Failures(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<DiskError>,
    new: Vec<DiskError>,
}

impl Failures {
    pub fn add(&self, error: &DiskError) {
        let mut state = self.0.lock();
        let is_near = |last: &DiskError| last.op == error.op && last.offset.abs_diff(error.offset) <= NEAR;
        if !state.last.as_ref().is_some_and(is_near) && state.new.len() < MAX {
            state.new.push(*error);
        }
        state.last = Some(*error);
    }

    /// The first of each range since this was asked last.
    pub fn take(&self) -> Vec<DiskError> {
        std::mem::take(&mut self.0.lock().new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowen_engine::disk::{DiskOpKind, PvIndex};

    #[test]
    fn one_of_each_range_is_reported() {
        let failures = Failures::default();
        let fail = |op, offset| failures.add(&DiskError { op, pv: PvIndex(0), offset, errno: 5 });
        for at in 0..100 {
            fail(DiskOpKind::Write, at * 4096);
        }
        fail(DiskOpKind::Write, 1 << 30);
        fail(DiskOpKind::Read, 1 << 30);
        fail(DiskOpKind::Read, 1 << 30);
        let taken: Vec<_> = failures.take().iter().map(|error| (error.op, error.offset)).collect();
        assert_eq!(taken, [(DiskOpKind::Write, 0), (DiskOpKind::Write, 1 << 30), (DiskOpKind::Read, 1 << 30)]);
        (0..1000).for_each(|at| fail(DiskOpKind::Write, at << 40));
        assert_eq!((failures.take().len(), failures.take().len()), (MAX, 0));
    }
}
