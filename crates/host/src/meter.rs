//! Counters of requests to a volume or a disk: number, bytes, latencies, requests in flight.
//!
//! They are on the data path: no lock, no allocation, one read of the clock when a request begins and one when it ends.
//! A disk's requests come from all workers, so it has separate counters for several threads, which are summed on
//! demand.

use rowen_control::protocol::{BUCKETS, IoCounts, OpCounts, bucket_of};
use rowen_engine::disk::DiskOpKind;
use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Threads that count apart. A power of two.
const SHARDS: usize = 8;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
    Flush,
    Discard,
    Zero,
}

/// One for each [`Op`].
const OPS: usize = 5;

impl From<DiskOpKind> for Op {
    fn from(kind: DiskOpKind) -> Op {
        match kind {
            DiskOpKind::Read => Op::Read,
            DiskOpKind::Write => Op::Write,
            DiskOpKind::Flush => Op::Flush,
            DiskOpKind::Discard => Op::Discard,
        }
    }
}

/// When a request began: nanoseconds on the monotonic clock. Half as large as an [`Instant`], for each request carries one.
#[derive(Clone, Copy, Debug)]
pub struct Begun(u64);

impl Begun {
    /// Nanoseconds since this program looked first.
    pub fn nanos(self) -> u64 {
        self.0
    }
}

/// Nanoseconds since the first look.
fn clock() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Default)]
struct OpMeter {
    buckets: [AtomicU64; BUCKETS],
    /// The sum of all latencies.
    nanos: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

/// The counters of some threads, apart from others' in the processors' caches.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    /// Begun less ended, modulo two to the power of 64: another thread may have ended what this one began.
    under_way: AtomicU64,
    ops: [OpMeter; OPS],
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A small number of this thread.
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        number.get()
    })
}

/// The counters of a volume or a disk.
pub struct Meter {
    /// A power of two of them.
    shards: Box<[Shard]>,
}

impl Meter {
    /// For requests that mostly one thread carries out, as a volume's.
    pub fn for_one_thread() -> Meter {
        Meter { shards: Box::new([Shard::default()]) }
    }

    /// For requests of many threads, as a disk's.
    pub fn for_many_threads() -> Meter {
        Meter { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self) -> &Shard {
        &self.shards[number() & (self.shards.len() - 1)]
    }

    /// The time at which requests begin.
    pub fn now() -> Begun {
        Begun(clock())
    }

    /// A request begins.
    pub fn begin(&self) -> Begun {
        let begun = Meter::now();
        self.add();
        begun
    }

    /// A request begins whose time was looked at before.
    pub fn add(&self) {
        self.shard().under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// A request is answered. `done`: the number of its bytes if it succeeded.
    pub fn end(&self, op: Op, begun: Begun, done: Option<u64>) {
        let nanos = clock().saturating_sub(begun.0);
        let shard = self.shard();
        let meter = &shard.ops[op as usize];
        meter.buckets[bucket_of(nanos / 1000)].fetch_add(1, Ordering::Relaxed);
        meter.nanos.fetch_add(nanos, Ordering::Relaxed);
        match done {
            Some(0) => {}
            Some(bytes) => {
                meter.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            None => self.fail(op),
        }
        shard.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// A request ends here and is another's to answer.
    pub fn withdraw(&self) {
        self.shard().under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a failure that is not reported through [`end`](Self::end).
    pub fn fail(&self, op: Op) {
        self.shard().ops[op as usize].failed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests of this kind failed.
    pub fn failed(&self, op: Op) -> u64 {
        self.shards.iter().map(|shard| shard.ops[op as usize].failed.load(Ordering::Relaxed)).sum()
    }

    /// How many requests were answered.
    pub fn answers(&self) -> u64 {
        let buckets = self.shards.iter().flat_map(|shard| &shard.ops).flat_map(|op| &op.buckets);
        buckets.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Whether requests are in flight. While none begins, this is false only when all have ended.
    pub fn is_busy(&self) -> bool {
        let under_way = self.shards.iter().map(|shard| shard.under_way.load(Ordering::Relaxed));
        under_way.fold(0, u64::wrapping_add) != 0
    }

    /// All that was counted.
    pub fn counts(&self) -> IoCounts {
        let sum = |of: &dyn Fn(&Shard) -> &AtomicU64| {
            let values = self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed));
            values.fold(0, u64::wrapping_add)
        };
        let op = |op: Op| {
            let at = op as usize;
            let buckets: [u64; BUCKETS] = std::array::from_fn(|bucket| sum(&|shard| &shard.ops[at].buckets[bucket]));
            OpCounts {
                requests: buckets.iter().sum(),
                failed: sum(&|shard| &shard.ops[at].failed),
                bytes: sum(&|shard| &shard.ops[at].bytes),
                micros: sum(&|shard| &shard.ops[at].nanos) / 1000,
                buckets,
            }
        };
        // Read one after the other, a request that begins on one thread and ends on another can be seen ending alone.
        let under_way = sum(&|shard| &shard.under_way);
        IoCounts {
            read: op(Op::Read),
            write: op(Op::Write),
            flush: op(Op::Flush),
            discard: op(Op::Discard),
            zero: op(Op::Zero),
            under_way: if under_way > u64::MAX / 2 { 0 } else { under_way },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn what_is_done_is_counted_once() {
        let meter = Meter::for_one_thread();
        meter.begin();
        let begun = meter.begin();
        std::thread::sleep(Duration::from_millis(20));
        meter.end(Op::Write, begun, Some(4096));
        meter.end(Op::Write, meter.begin(), Some(512));
        meter.end(Op::Read, meter.begin(), None);
        meter.end(Op::Flush, meter.begin(), Some(0));
        let counts = meter.counts();
        assert_eq!((counts.write.requests, counts.write.bytes, counts.write.failed), (2, 4608, 0));
        let longest = counts.write.buckets.iter().rposition(|count| *count > 0);
        assert!(longest >= Some(bucket_of(20_000)), "{counts:?}");
        assert!(counts.write.micros >= 20_000);
        assert_eq!((counts.read.requests, counts.read.bytes, counts.read.failed), (1, 0, 1));
        assert_eq!((counts.flush.requests, counts.discard.requests, counts.under_way), (1, 0, 1));
        assert_eq!(meter.answers(), 4);
        assert!(meter.is_busy());
        meter.withdraw();
        assert!(!meter.is_busy());
        assert_eq!(meter.counts().under_way, 0);
        assert_eq!(meter.answers(), 4);
    }

    #[test]
    fn threads_may_end_what_others_began() {
        let meter = Arc::new(Meter::for_many_threads());
        let begun: Vec<Begun> = (0..1000).map(|_| meter.begin()).collect();
        assert_eq!(meter.counts().under_way, 1000);
        let part = |begun: Vec<Begun>| {
            let meter = meter.clone();
            std::thread::spawn(move || begun.into_iter().for_each(|begun| meter.end(Op::Read, begun, Some(8))))
        };
        let threads: Vec<_> = begun.chunks(50).map(|begun| part(begun.to_vec())).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let counts = meter.counts();
        assert_eq!((counts.read.requests, counts.read.bytes, counts.under_way), (1000, 8000, 0));
    }
}
