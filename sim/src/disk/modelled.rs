//! Disks of a known speed. Each command takes the time that a model gives it, in the world's virtual clock.

use super::Counts;
use crate::exec::Handle;
use parking_lot::Mutex;
use rowen_engine::disk::{Completer, DiskOp, DiskOpKind, Disks, PvGeometry, PvIndex, Segment};
use std::sync::Arc;

/// The cost of commands. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub name: &'static str,
    /// The number of commands that run at once. More commands wait.
    pub channels: usize,
    pub read: u64,
    pub write: u64,
    pub flush: u64,
    /// Added to a command that does not begin where the one before it ended.
    pub seek: u64,
    /// The rate of all channels together.
    pub bytes_in_a_micro: u64,
}

/// A flash disk for data centres.
pub const FLASH: Model =
    Model { name: "flash", channels: 32, read: 90, write: 25, flush: 400, seek: 0, bytes_in_a_micro: 2000 };

/// A disk at 7,200 rpm. It carries out commands in their order.
pub const ROTATING: Model =
    Model { name: "rotating", channels: 1, read: 100, write: 100, flush: 8000, seek: 12_000, bytes_in_a_micro: 180 };

/// Other disks, each with the times of a model.
pub struct Modelled {
    inner: Arc<dyn Disks>,
    clock: Arc<Handle>,
    model: Model,
    state: Mutex<State>,
}

struct State {
    /// In the order of the physical volumes.
    disks: Vec<OneDisk>,
    counts: Counts,
}

#[derive(Clone)]
struct OneDisk {
    /// The time at which each channel is free again.
    busy_until: Vec<u64>,
    /// The time at which all bytes so far have been transferred: the channels share the bus.
    moved_until: u64,
    /// The end of the last command.
    head: u64,
}

impl Modelled {
    pub fn new(inner: Arc<dyn Disks>, clock: Arc<Handle>, model: Model) -> Arc<Modelled> {
        let idle = OneDisk { busy_until: vec![0; model.channels], moved_until: 0, head: 0 };
        let state = State { disks: vec![idle; inner.count()], counts: Counts::default() };
        Arc::new(Modelled { inner, clock, model, state: Mutex::new(state) })
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// The time at which the request is done. Each segment is a command of its own. A discard costs as much as an empty
    /// write.
    fn take(&self, op: &DiskOp) -> u64 {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let (DiskOp::Read { segments, .. } | DiskOp::Write { segments, .. } | DiskOp::Discard { segments }) = op else {
            state.counts.flushes += 1;
            return now + self.model.flush;
        };
        segments.iter().map(|segment| self.take_segment(&mut state, op.kind(), segment)).max().unwrap_or(now)
    }

    fn take_segment(&self, state: &mut State, kind: DiskOpKind, segment: &Segment) -> u64 {
        let now = self.clock.now();
        let (len, counts) = (u64::from(segment.len), &mut state.counts);
        let (commands, bytes, base) = match kind {
            DiskOpKind::Read => (&mut counts.reads, &mut counts.read_bytes, self.model.read),
            _ => (&mut counts.writes, &mut counts.written_bytes, self.model.write),
        };
        *commands += 1;
        *bytes += len;
        let disk = &mut state.disks[usize::from(segment.pv.0)];
        let seek = if disk.head == segment.offset { 0 } else { self.model.seek };
        disk.head = segment.offset + len;
        let moved = if kind == DiskOpKind::Discard { 0 } else { len / self.model.bytes_in_a_micro };
        let channel = disk.busy_until.iter_mut().min().expect("a model has a channel");
        let begun = now.max(*channel) + base + seek;
        *channel = if moved == 0 { begun } else { begun.max(disk.moved_until) + moved };
        if moved > 0 {
            disk.moved_until = *channel;
        }
        *channel
    }
}

impl Disks for Modelled {
    fn count(&self) -> usize {
        self.inner.count()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.inner.geometry(pv)
    }

    fn turns(&self, _: PvIndex) -> bool {
        self.model.seek > 0
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        let delay = self.take(&op) - self.clock.now();
        let inner = self.inner.clone();
        self.clock.after(delay, move || inner.submit(op, done));
    }
}
