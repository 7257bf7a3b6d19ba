//! A closed loop of requests: a given number in flight at a time, each followed by the next. The same load goes to a
//! raw disk and to a volume, so that their ratio means something.
//!
//! Promises: which requests are made depends on the seed alone, not on timing; buffers are made before the clock
//! starts; the first error ends the run.

use rowen_engine::disk::{DiskOp, Disks, PageBuf, PvIndex, Segment, Segments, start};
use rowen_engine::group::Volume;
use rowen_host::reactor::Pool;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What takes the load.
pub trait Target: Send + Sync + 'static {
    /// Fills `buf[..len]` and gives it back.
    fn read(&self, offset: u64, len: u32, buf: PageBuf) -> impl Future<Output = Result<PageBuf, String>> + Send;
    /// Writes `buf[..len]`.
    fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> impl Future<Output = Result<(), String>> + Send;
    fn flush(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// A disk by itself, from `base` on.
pub struct Raw<D> {
    pub disks: Arc<D>,
    pub pv: PvIndex,
    pub base: u64,
}

impl<D> Raw<D> {
    fn segments(&self, offset: u64, len: u32) -> Segments {
        Segments::from_iter([Segment { pv: self.pv, offset: self.base + offset, at: 0, len }])
    }
}

impl<D: Disks + 'static> Target for Raw<D> {
    async fn read(&self, offset: u64, len: u32, buf: PageBuf) -> Result<PageBuf, String> {
        let op = DiskOp::Read { segments: self.segments(offset, len), buf };
        let buf = start(&*self.disks, op).await.map_err(|e| e.to_string())?;
        buf.ok_or_else(|| "a read gave no buffer back".to_owned())
    }

    async fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> Result<(), String> {
        let op = DiskOp::Write { segments: self.segments(offset, len), buf };
        start(&*self.disks, op).await.map(drop).map_err(|e| e.to_string())
    }

    async fn flush(&self) -> Result<(), String> {
        start(&*self.disks, DiskOp::Flush).await.map(drop).map_err(|e| e.to_string())
    }
}

impl Target for Volume {
    async fn read(&self, offset: u64, len: u32, buf: PageBuf) -> Result<PageBuf, String> {
        Volume::read(self, offset, len, buf).await.map_err(|e| e.to_string())
    }

    async fn write(&self, offset: u64, len: u32, buf: Arc<PageBuf>) -> Result<(), String> {
        Volume::write(self, offset, len, buf).await.map_err(|e| e.to_string())
    }

    async fn flush(&self) -> Result<(), String> {
        Volume::flush(self).await.map_err(|e| e.to_string())
    }
}

/// What one request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read,
    Write,
    /// A write and then a flush, timed together.
    WriteAndFlush,
    /// Of ten requests seven are reads and three are writes.
    Mixed,
}

/// Which place comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Sequential,
    /// Any place at any time.
    Random,
    /// All places in random order, each once before any comes again: a pass.
    Shuffled,
}

/// When the run ends: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub requests: u64,
    pub time: Duration,
}

impl Limit {
    /// So many requests, however long they take.
    pub fn requests(requests: u64) -> Limit {
        Limit { requests, time: Duration::MAX }
    }
    pub fn time(time: Duration) -> Limit {
        Limit { requests: u64::MAX, time }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub action: Action,
    pub order: Order,
    /// Bytes in a request.
    pub block: u32,
    /// Bytes from one place to the next: the block, or more to leave holes.
    pub stride: u64,
    /// Requests under way at a time.
    pub depth: u32,
    /// The range that is used, in bytes.
    pub offset: u64,
    pub span: u64,
    pub limit: Limit,
    pub seed: u64,
    /// The place in the order at which the run begins: a pass can be made in parts.
    pub first: u64,
    /// How many of the pool's workers make requests.
    pub workers: usize,
}

impl Job {
    /// The same requests, but only part `part` of `parts` of them.
    pub fn part(mut self, part: u64, parts: u64) -> Job {
        let all = self.limit.requests;
        let from = all * part / parts;
        self.first += from;
        self.limit.requests = all * (part + 1) / parts - from;
        self
    }

    /// Whether the n-th request is a read.
    fn reads(&self, n: u64) -> bool {
        match self.action {
            Action::Read => true,
            Action::Write | Action::WriteAndFlush => false,
            // Not the number that gives the place.
            Action::Mixed => mix(!self.seed, n) % 10 < 7,
        }
    }

    /// One whole pass over the range.
    pub fn pass(action: Action, order: Order, block: u32, depth: u32, span: u64, seed: u64) -> Job {
        let limit = Limit::requests(span / u64::from(block));
        Job {
            action,
            order,
            block,
            stride: u64::from(block),
            depth,
            offset: 0,
            span,
            limit,
            seed,
            first: 0,
            workers: 1,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    pub requests: u64,
    pub seconds: f64,
    pub iops: f64,
    /// Megabytes (10^6 bytes) a second.
    pub mb_s: f64,
    pub p50: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub max: Duration,
}

/// Latencies in about 3800 classes, each within 1.6 % of its value.
#[derive(Clone)]
pub struct Histogram {
    classes: Vec<u64>,
    max: u64,
}

const FINE: u32 = 6;

impl Default for Histogram {
    fn default() -> Self {
        Histogram { classes: vec![0; (65 - FINE as usize) << FINE], max: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        self.max = self.max.max(nanos);
        self.classes[Self::class(nanos)] += 1;
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.max = self.max.max(other.max);
        self.classes.iter_mut().zip(&other.classes).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// The value that the given share (0 to 1) of all values does not exceed. Zero if there are none.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(Self::middle(class).min(self.max));
            }
        }
        Duration::ZERO
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    fn class(nanos: u64) -> usize {
        if nanos < 1 << FINE {
            return nanos as usize;
        }
        let shift = nanos.ilog2() - FINE;
        // The leading bit is implied: 2^FINE classes to each power of two.
        ((shift as usize) << FINE) + (nanos >> shift) as usize
    }

    fn middle(class: usize) -> u64 {
        let shift = (class >> FINE).saturating_sub(1) as u32;
        let lead = (class - ((shift as usize) << FINE)) as u64;
        (lead << shift) + ((1u64 << shift) >> 1)
    }
}

/// A number that looks random, made from two.
fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_mul(0xd134_2543_de82_ef95) ^ n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Which place the n-th request goes to.
enum Places {
    Sequential(u64),
    Random { blocks: u64, seed: u64 },
    Shuffled(Vec<u32>),
}

impl Places {
    fn new(job: &Job) -> Result<Places, String> {
        let blocks = job.span / job.stride;
        if blocks == 0 {
            return Err(format!("a span of {} bytes has no room for a block of {}", job.span, job.block));
        }
        Ok(match job.order {
            Order::Sequential => Places::Sequential(blocks),
            Order::Random => Places::Random { blocks, seed: job.seed },
            Order::Shuffled => {
                let count = u32::try_from(blocks).map_err(|_| "too many blocks for a shuffled pass".to_owned())?;
                let mut order: Vec<u32> = (0..count).collect();
                for last in (1..order.len()).rev() {
                    let other = mix(job.seed, last as u64) % (last as u64 + 1);
                    order.swap(last, other as usize);
                }
                Places::Shuffled(order)
            }
        })
    }

    fn get(&self, n: u64) -> u64 {
        match self {
            Places::Sequential(blocks) => n % blocks,
            Places::Random { blocks, seed } => mix(*seed, n) % blocks,
            Places::Shuffled(order) => u64::from(order[(n % order.len() as u64) as usize]),
        }
    }
}

struct Run<T> {
    target: Arc<T>,
    job: Job,
    places: Places,
    next: AtomicU64,
    failed: AtomicBool,
    begun: Instant,
}

impl<T: Target> Run<T> {
    /// One of the requests under way: makes the next as soon as the last is done.
    async fn lane(self: Arc<Self>, mut buf: PageBuf) -> Result<Histogram, String> {
        let job = self.job;
        let mut latencies = Histogram::default();
        let mut data = Arc::default();
        if job.action != Action::Read {
            data = Arc::new(std::mem::take(&mut buf));
        }
        if job.action == Action::Mixed {
            buf = PageBuf::zeroed(job.block as usize);
        }
        let mut now = Instant::now();
        while now - self.begun < job.limit.time && !self.failed.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= job.limit.requests {
                break;
            }
            let offset = job.offset + self.places.get(job.first + n) * job.stride;
            match job.reads(job.first + n) {
                true => buf = self.target.read(offset, job.block, buf).await?,
                false => self.target.write(offset, job.block, data.clone()).await?,
            }
            if job.action == Action::WriteAndFlush {
                self.target.flush().await?;
            }
            let done = Instant::now();
            latencies.add(done - now);
            now = done;
        }
        Ok(latencies)
    }
}

/// Runs the job to its end. To be called from a thread that is no worker.
pub fn run<T: Target>(pool: &Pool, target: &Arc<T>, job: &Job) -> Result<Report, String> {
    let places = Places::new(job)?;
    let buffers: Vec<PageBuf> = (0..u64::from(job.depth)).map(|lane| contents(job, lane)).collect();
    let (send, receive) = mpsc::channel();
    let run = Arc::new(Run {
        target: target.clone(),
        job: *job,
        places,
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        begun: Instant::now(),
    });
    let workers = job.workers.clamp(1, pool.workers());
    for (lane, buf) in buffers.into_iter().enumerate() {
        let (run, send) = (run.clone(), send.clone());
        pool.spawn_on(
            lane % workers,
            Box::pin(async move {
                let result = run.clone().lane(buf).await;
                run.failed.fetch_or(result.is_err(), Ordering::Relaxed);
                // The receiver waits for all lanes.
                let _ = send.send(result);
            }),
        );
    }
    drop(send);
    let mut all = Histogram::default();
    for result in receive.iter().collect::<Vec<_>>() {
        all.merge(&result?);
    }
    let seconds = run.begun.elapsed().as_secs_f64();
    let requests = all.count();
    let iops = requests as f64 / seconds;
    Ok(Report {
        requests,
        seconds,
        iops,
        mb_s: iops * f64::from(job.block) / 1e6,
        p50: all.quantile(0.5),
        p99: all.quantile(0.99),
        p999: all.quantile(0.999),
        max: all.max(),
    })
}

/// A lane's data: nothing that a disk could compress or find again.
fn contents(job: &Job, lane: u64) -> PageBuf {
    let mut buf = PageBuf::zeroed(job.block as usize);
    if job.action != Action::Read {
        for (n, word) in buf.as_mut_slice().chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix(job.seed ^ lane << 32, n as u64).to_le_bytes());
        }
    }
    buf
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowen_host::disks::{IoEngine, OpenMode, PvSet};
    use std::collections::HashSet;

    #[test]
    fn quantiles_are_within_two_percent() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        (1..=100_000u64).for_each(|n| histogram.add(Duration::from_nanos(n * 100)));
        assert_eq!(histogram.count(), 100_000);
        for share in [0.01, 0.5, 0.99, 0.999, 1.0] {
            let (found, true_value) = (histogram.quantile(share).as_nanos() as f64, share * 1e7);
            assert!((found / true_value - 1.0).abs() < 0.02, "{share}: {found} is far from {true_value}");
        }
        assert_eq!(histogram.max(), Duration::from_millis(10));
        for nanos in [0, 1, 63, 64, 65, 127, 128, 1000, u64::MAX] {
            let middle = Histogram::middle(Histogram::class(nanos));
            assert!(middle.abs_diff(nanos) <= nanos / 64, "{nanos} became {middle}");
        }
    }

    #[test]
    fn a_shuffled_pass_meets_each_place_once_and_the_seed_decides() {
        let job = |seed| Job::pass(Action::Write, Order::Shuffled, 4096, 8, 1 << 22, seed);
        let places = |seed| -> Vec<u64> {
            let places = Places::new(&job(seed)).unwrap();
            (0..1024).map(|n| places.get(n)).collect()
        };
        assert_eq!(places(1).iter().collect::<HashSet<_>>().len(), 1024);
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
        assert!(Places::new(&Job { span: 100, ..job(1) }).is_err());
    }

    #[test]
    fn the_load_reaches_the_disk_and_errors_end_it() {
        let path = std::env::temp_dir().join(format!("rowen-load-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
        let pool = Pool::start(2).unwrap();
        let disks = PvSet::open(&pool, &[&path], OpenMode::Exclusive, IoEngine::Uring);
        std::fs::remove_file(&path).unwrap();
        let target = Arc::new(Raw { disks: Arc::new(disks.unwrap()), pv: PvIndex(0), base: 4 << 20 });
        for action in [Action::Write, Action::Read, Action::WriteAndFlush, Action::Mixed] {
            let mut job = Job::pass(action, Order::Shuffled, 4096, 16, 4 << 20, 9);
            job.workers = 2;
            let report = run(&pool, &target, &job).unwrap();
            assert_eq!(report.requests, 1024);
            assert!(report.p50 <= report.p99 && report.p99 <= report.p999 && report.p999 <= report.max);
            let beyond = Job { offset: 4 << 20, ..job };
            assert!(run(&pool, &target, &beyond).unwrap_err().contains("failed"));
        }
        let buf = pool.block_on(async move { target.read(0, 4096, PageBuf::zeroed(4096)).await }).unwrap();
        assert!(buf.as_slice().iter().any(|byte| *byte != 0), "nothing was written");
    }
}
