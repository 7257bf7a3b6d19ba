//! What experiments share: settings, scratch files that vanish, a group on a file, slices in turn, progress.

use crate::load::{self, Action, Job, Order, Raw, Report, Target};
use crate::report::Row;
use rowen_engine::disk::{Disks, PvIndex};
use rowen_engine::group::{
    Attributes, Config, FullPolicy, Group, NewGroup, NewPv, NewSnapshot, NewVolume, Volume, VolumeKind,
};
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_host::disks::{IoEngine, OpenMode, PvSet};
use rowen_host::reactor::Pool;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
/// Requests of 4 KiB that are under way together in the loads that say so.
pub const DEEP: u32 = 32;
/// Requests of 1 MiB that are under way together.
pub const WIDE: u32 = 4;

/// The first word of a bench that is a part of another: what it must be killed for, or measured from outside.
pub const CHILD: &str = "--child";

pub type Result<T = ()> = std::result::Result<T, String>;

/// How the run was asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    pub rounds: usize,
    /// Bytes of the volumes that are measured.
    pub span: u64,
    /// Small and short: for a look, not for a verdict.
    pub quick: bool,
    pub dir: PathBuf,
    /// The program under test, for what goes through its commands.
    pub rowen: PathBuf,
}

impl Settings {
    /// The time of one slice of a load that has no end of its own.
    pub fn slice(&self) -> Duration {
        Duration::from_millis(if self.quick { 80 } else { 200 })
    }
}

/// A run of the bench.
pub struct Bench {
    pub settings: Settings,
    pub pool: Pool,
    pub rows: RefCell<Vec<Row>>,
    progress: RefCell<Progress>,
    /// Somebody wants the run to end; what it has made is taken away first.
    interrupted: Arc<AtomicBool>,
}

struct Progress {
    begun: Instant,
    /// Work done and all work, in about seconds.
    done: f64,
    all: f64,
    /// The part of the experiment under way that is done, and its work.
    part: f64,
    now: f64,
    shown: Instant,
    visible: bool,
}

/// A file that is removed with its owner.
pub struct Scratch {
    pub path: PathBuf,
    pub size: u64,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing could be done about it here.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A group open in this process.
pub struct Lab {
    pub group: Arc<Group>,
    next: AtomicU64,
}

pub fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn uuid(n: u64) -> Uuid {
    let mut bytes = [0x5b; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Uuid(bytes)
}

/// Settings of a bench that is a part of another.
pub fn part_settings(dir: &Path) -> Settings {
    Settings { rounds: 1, span: GIB, quick: true, dir: dir.to_owned(), rowen: PathBuf::new() }
}

/// Starts this program again as a part of itself, with its standard output to be read.
pub fn start_part(words: &[String]) -> Result<std::process::Child> {
    let program = std::env::current_exe().map_err(text)?;
    let mut command = std::process::Command::new(program);
    command.arg(CHILD).args(words).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    command.spawn().map_err(text)
}

impl Bench {
    /// `work`: about how many seconds all experiments take. `visible`: whether somebody watches.
    pub fn new(settings: Settings, work: f64, visible: bool) -> Result<Bench> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::start(cores).map_err(text)?;
        let now = Instant::now();
        let progress = Progress { begun: now, done: 0.0, all: work, part: 0.0, now: 0.0, shown: now, visible };
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The second time it ends at once.
            signal_hook::flag::register_conditional_shutdown(signal, 2, interrupted.clone()).map_err(text)?;
            signal_hook::flag::register(signal, interrupted.clone()).map_err(text)?;
        }
        Ok(Bench { settings, pool, rows: RefCell::default(), progress: RefCell::new(progress), interrupted })
    }

    /// An error once somebody wants the run to end.
    pub fn go_on(&self) -> Result {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err("interrupted".to_owned()),
            false => Ok(()),
        }
    }

    /// An experiment begins, of about this many seconds.
    pub fn begin(&self, work: f64) {
        let mut progress = self.progress.borrow_mut();
        progress.done += progress.now;
        (progress.now, progress.part) = (work, 0.0);
    }

    /// Shows how far the experiment under way is (0 to 1).
    pub fn step(&self, what: &str, part: f64) {
        let mut progress = self.progress.borrow_mut();
        progress.part = part.clamp(0.0, 1.0);
        if !progress.visible || progress.shown.elapsed() < Duration::from_millis(200) {
            return;
        }
        progress.shown = Instant::now();
        let done = (progress.done + progress.now * progress.part) / progress.all.max(1.0);
        let left = match done {
            d if d > 0.01 => progress.begun.elapsed().as_secs_f64() * (1.0 / d - 1.0),
            _ => progress.all,
        };
        let bar = "#".repeat((done * 30.0) as usize);
        eprint!("\r\x1b[K[{bar:<30}] {:3.0} %  {:.0} s left  {what}", done * 100.0, left);
        let _ = std::io::stderr().flush();
    }

    /// Takes the progress bar away.
    pub fn clear_line(&self) {
        if self.progress.borrow().visible {
            eprint!("\r\x1b[K");
        }
    }

    pub fn add(&self, row: Row) {
        self.clear_line();
        eprint!(
            "{}",
            crate::report::table(std::slice::from_ref(&row)).lines().skip(1).fold(String::new(), |a, l| a + l + "\n")
        );
        self.rows.borrow_mut().push(row);
    }

    pub fn block_on<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        self.pool.block_on(future)
    }

    /// A scratch file of this size, sparse. Not for scattered writes: they make it a file of as many pieces.
    pub fn sparse(&self, name: &str, size: u64) -> Result<Scratch> {
        let path = self.settings.dir.join(format!("rowen-bench-{}-{name}", std::process::id()));
        let scratch = Scratch { path, size };
        let file = File::create(&scratch.path).map_err(|e| format!("{}: {e}", scratch.path.display()))?;
        file.set_len(size).map_err(text)?;
        Ok(scratch)
    }

    /// A scratch file that was written once from end to end, so that the filesystem has nothing left to do.
    pub fn written(&self, name: &str, size: u64) -> Result<Scratch> {
        let scratch = self.sparse(name, size)?;
        let raw = self.raw(&scratch)?;
        self.fill(&raw, size)?;
        self.block_on(async move { raw.flush().await })?;
        Ok(scratch)
    }

    pub fn disks(&self, path: &Path) -> Result<Arc<PvSet>> {
        PvSet::open_waiting(&self.pool, &[path], OpenMode::Exclusive, IoEngine::Uring, Duration::from_secs(5))
            .map(Arc::new)
            .map_err(text)
    }

    pub fn raw(&self, file: &Scratch) -> Result<Arc<Raw<PvSet>>> {
        Ok(Arc::new(Raw { disks: self.disks(&file.path)?, pv: PvIndex(0), base: 0 }))
    }

    /// A new group on these disks. Its UUID is of this process alone: what another left in the journal's place of the same file
    /// is not taken for its own.
    pub fn group(&self, disks: Arc<dyn Disks>, config: Config) -> Result<Lab> {
        let spec = NewGroup {
            uuid: uuid(u64::from(std::process::id()) << 32 | 1),
            name: "bench".to_owned(),
            extent_blocks: 1024,
            pvs: (0..disks.count() as u64).map(|n| NewPv { uuid: uuid(2 + n) }).collect(),
            second_journal: None,
        };
        let runtime = self.pool.runtime();
        let group = self.block_on(async move {
            Group::create(disks.clone(), spec).await?;
            Group::open(disks, runtime, config).await
        });
        Ok(Lab { group: group.map_err(text)?, next: AtomicU64::new(0) })
    }

    /// Writes the whole range once, in order.
    pub fn fill<T: Target>(&self, target: &Arc<T>, span: u64) -> Result {
        self.run(target, &Job::pass(Action::Write, Order::Sequential, MIB as u32, WIDE, span, 1)).map(drop)
    }

    pub fn run<T: Target>(&self, target: &Arc<T>, job: &Job) -> Result<Report> {
        self.go_on()?;
        load::run(&self.pool, target, job)
    }

    /// Runs two loads in turn, part by part, the first of them first in every second part, and gives what each
    /// reached over all of its parts.
    pub fn in_turn<A: Target, B: Target>(
        &self,
        parts: u64,
        a: (&Arc<A>, &Job),
        b: (&Arc<B>, &Job),
    ) -> Result<(Total, Total)> {
        let (mut total_a, mut total_b) = (Total::default(), Total::default());
        for part in 0..parts {
            let cut = |job: &Job| {
                if job.limit.time == Duration::MAX {
                    job.part(part, parts)
                } else {
                    Job { seed: job.seed + part, ..*job }
                }
            };
            if part % 2 == 0 {
                total_a.add(&self.run_alone(a.0, &cut(a.1))?);
                total_b.add(&self.run_alone(b.0, &cut(b.1))?);
            } else {
                total_b.add(&self.run_alone(b.0, &cut(b.1))?);
                total_a.add(&self.run_alone(a.0, &cut(a.1))?);
            }
        }
        Ok((total_a, total_b))
    }

    /// A moment after what ran before: what that left behind, such as processors that are still awake, is not to help.
    fn run_alone<T: Target>(&self, target: &Arc<T>, job: &Job) -> Result<Report> {
        std::thread::sleep(Duration::from_millis(20));
        self.run(target, job)
    }
}

/// The sum of several runs.
#[derive(Clone, Debug, Default)]
pub struct Total {
    pub requests: u64,
    pub seconds: f64,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.requests += report.requests;
        self.seconds += report.seconds;
        self.p50.push(crate::report::micros(report.p50));
        self.p99.push(crate::report::micros(report.p99));
    }

    /// Thousands of requests a second.
    pub fn kiops(&self) -> f64 {
        self.requests as f64 / self.seconds / 1e3
    }

    /// Medians of the runs, in microseconds.
    pub fn p50(&self) -> f64 {
        crate::report::median(&self.p50)
    }

    pub fn p99(&self) -> f64 {
        crate::report::median(&self.p99)
    }
}

impl Lab {
    pub fn of(group: Arc<Group>) -> Lab {
        Lab { group, next: AtomicU64::new(1000) }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn volume(&self, bench: &Bench, kind: VolumeKind, bytes: u64, chunk: u64) -> Result<Arc<Volume>> {
        let n = self.number();
        let spec = NewVolume {
            name: format!("v{n}"),
            uuid: uuid(1000 + n),
            kind,
            blocks: bytes / BLOCK_SIZE,
            sector: 512,
            chunk_blocks: (chunk / BLOCK_SIZE) as u32,
            full: FullPolicy::Fail,
            attributes: Attributes::default(),
        };
        let group = self.group.clone();
        bench
            .block_on(async move {
                let id = group.create_volume(spec).await?;
                group.volume(id)
            })
            .map_err(text)
    }

    /// Thick volumes with every block written, in order.
    pub fn filled(&self, bench: &Bench, bytes: u64, chunk: u64) -> Result<Arc<Volume>> {
        let volume = self.volume(bench, VolumeKind::Thick, bytes, chunk)?;
        bench.fill(&volume, bytes)?;
        self.flush(bench, &volume)?;
        Ok(volume)
    }

    pub fn flush(&self, bench: &Bench, volume: &Arc<Volume>) -> Result {
        let volume = volume.clone();
        bench.block_on(async move { volume.flush().await }).map_err(text)
    }

    pub fn new_snapshot(&self, origin: VolumeId, chunk: u64) -> NewSnapshot {
        let n = self.number();
        NewSnapshot {
            origin,
            name: format!("s{n}"),
            uuid: uuid(1000 + n),
            reserve: None,
            read_only: false,
            chunk_blocks: (chunk / BLOCK_SIZE) as u32,
            attributes: Attributes::default(),
        }
    }

    pub fn snapshot(&self, bench: &Bench, origin: &Volume, chunk: u64) -> Result<VolumeId> {
        let spec = self.new_snapshot(origin.id(), chunk);
        let group = self.group.clone();
        let made = bench.block_on(async move { group.snapshot(&[spec]).await }).map_err(text)?;
        made.first().copied().ok_or_else(|| "no snapshot was made".to_owned())
    }

    pub fn open(&self, id: VolumeId) -> Result<Arc<Volume>> {
        self.group.volume(id).map_err(text)
    }

    /// Removes volumes and waits until their space is free again.
    pub fn remove(&self, bench: &Bench, ids: &[VolumeId]) -> Result {
        self.remove_later(bench, ids)?;
        self.settle(bench)
    }

    /// Removes volumes; their space comes back in the background.
    pub fn remove_later(&self, bench: &Bench, ids: &[VolumeId]) -> Result {
        let (group, ids) = (self.group.clone(), ids.to_vec());
        bench.block_on(async move { group.remove(&ids).await }).map_err(text)
    }

    /// Waits until nothing goes on in the background and nothing waits for a checkpoint.
    pub fn settle(&self, bench: &Bench) -> Result {
        let group = self.group.clone();
        bench
            .block_on(async move {
                group.reclaim_idle().await?;
                group.checkpoint().await
            })
            .map_err(text)
    }

    pub fn close(&self, bench: &Bench) -> Result {
        let group = self.group.clone();
        bench.block_on(async move { group.close().await }).map_err(text)
    }
}
