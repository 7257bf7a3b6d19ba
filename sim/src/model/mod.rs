//! Random operations on the engine, compared with the oracle and the accounts after each step.
//!
//! A [`Profile`] says how small and how wild the world is. The seed decides the rest. Sizes are tiny, so that rare
//! events (checkpoints during other work, full groups, evicted nodes) are common here.

mod checks;
mod diffs;
mod operations;

pub use diffs::{Lists, MOVES, Moves};

use crate::accounts::Accounts;
use crate::client::{BLOCK, Client, Failure};
use crate::crash::{Setup, add_stats, panic_text};
use crate::disk::SimDisks;
use crate::exec::World;
use crate::fan_out::FanOut;
use crate::oracle::Vol;
use crate::rng::Rng;
use rowen_engine::disk::DiskOp;
use rowen_engine::error::Error;
use rowen_engine::format::node::CAPACITY;
use rowen_engine::group::{Layout, Stats};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of world that a run lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// One volume at a time is touched; every counter must be exact.
    Exact,
    /// Requests overlap in time, snapshots are taken meanwhile, and the power fails.
    UnknownSectors,
    /// The group is too small for what is asked.
    Full,
    /// Larger volumes, hundreds of extents: trees of several levels.
    Deep,
}

/// All profiles, with the names that `ROWEN_PROFILE` takes.
pub const PROFILES: [(&str, Profile); 4] =
    [("exact", Profile::Exact), ("wild", Profile::UnknownSectors), ("full", Profile::Full), ("deep", Profile::Deep)];

impl Profile {
    fn setup(self, rng: &mut Rng) -> Setup {
        let pvs = rng.range(1, 3) as usize;
        let mib = match self {
            Profile::Full => rng.range(12, 16).div_ceil(pvs as u64),
            Profile::Exact | Profile::UnknownSectors => rng.range(48, 64).div_ceil(pvs as u64),
            Profile::Deep => 256,
        };
        let mut setup = Setup::small(pvs, mib + 2);
        // The accounts do not know that orphans are freed.
        let counted = self == Profile::Exact || rng.one_in(2);
        setup.config.orphan_blocks = if counted { u64::MAX } else { rng.range(1, 16) };
        if self == Profile::Deep {
            // The cache holds fewer nodes than a tree has: nodes are evicted and read again.
            setup.config.cache_bytes = 64 << 10;
        }
        setup
    }

    fn blocks(self, rng: &mut Rng) -> u64 {
        match self {
            Profile::Deep => rng.range(1024, 4096),
            Profile::Full => rng.range(64, 1024),
            _ => rng.range(16, 512),
        }
    }

    fn most_volumes(self) -> usize {
        match self {
            Profile::Full => 6,
            Profile::Exact | Profile::UnknownSectors => 10,
            Profile::Deep => 5,
        }
    }
}

/// Counters of a run's events, to see that rare events did happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub steps: u64,
    pub stats: Stats,
    pub refused_for_space: u64,
    pub invalidated: u64,
    pub power_cuts: u64,
    pub deaths: u64,
    pub reopened: u64,
    pub reverts: u64,
    pub group_snapshots: u64,
    pub removed_origins: u64,
    pub exact_checks: u64,
    /// How often a physical volume was made not allocatable.
    pub unallocatable: u64,
    /// How often a physical volume lost its end, and how often it got it back.
    pub shrunk_pvs: u64,
    pub grown_pvs: u64,
    /// Checkpoints that were requested while requests were in flight.
    pub raced_checkpoints: u64,
    /// How often the journal's ring wrapped.
    pub journal_wraps: u64,
    /// Nodes of all trees at a run's end, at most.
    pub most_nodes: u64,
    /// The contents of lists of changes, if they were compared.
    pub lists: Lists,
}

impl Seen {
    /// Adds another run's figures.
    pub fn add(&mut self, other: &Seen) {
        add_stats(&mut self.stats, &other.stats);
        self.steps += other.steps;
        self.refused_for_space += other.refused_for_space;
        self.invalidated += other.invalidated;
        self.power_cuts += other.power_cuts;
        self.deaths += other.deaths;
        self.reopened += other.reopened;
        self.reverts += other.reverts;
        self.group_snapshots += other.group_snapshots;
        self.removed_origins += other.removed_origins;
        self.exact_checks += other.exact_checks;
        self.unallocatable += other.unallocatable;
        self.shrunk_pvs += other.shrunk_pvs;
        self.grown_pvs += other.grown_pvs;
        self.raced_checkpoints += other.raced_checkpoints;
        self.journal_wraps += other.journal_wraps;
        self.most_nodes = self.most_nodes.max(other.most_nodes);
        self.lists.add(&other.lists);
    }
}

/// Runs `steps` random operations. An error ends with the line that replays the run.
pub fn run_seed(seed: u64, steps: u32, profile: Profile) -> Result<Seen, String> {
    run_seed_with(seed, steps, profile, None)
}

/// The same. With `lists`, lists of changes are compared with the bytes of random pairs after each step.
pub fn run_seed_with(seed: u64, steps: u32, profile: Profile, lists: Option<Moves>) -> Result<Seen, String> {
    let run = || {
        let mut model = Model::new(seed, profile, lists)?;
        for step in 0..steps {
            let outcome = model.step();
            outcome.map_err(|failure| format!("step {step} ({}): {failure}", model.last))?;
        }
        model.finish().map_err(|failure| format!("at the end: {failure}"))
    };
    let outcome =
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(format!("PANIC: {}", panic_text(&panic))));
    let name = PROFILES.iter().find(|(_, p)| *p == profile).map_or("?", |(name, _)| name);
    let moves = MOVES.iter().find(|(_, moves)| Some(*moves) == lists);
    let moves = moves.map(|(name, _)| format!("ROWEN_DIFFS={name} ")).unwrap_or_default();
    outcome.map_err(|failure| {
        format!(
            "{failure}\n  ROWEN_SEED={seed} ROWEN_STEPS={steps} ROWEN_PROFILE={name} {moves}\
             cargo test -p rowen-sim --test all model::replay -- --nocapture --ignored"
        )
    })
}

struct Model {
    // Fields are dropped in order: the client before the world that runs it.
    client: Client,
    disks: Arc<SimDisks>,
    world: World,
    setup: Setup,
    profile: Profile,
    rng: Rng,
    accounts: Accounts,
    /// The accounts know every block. Not after a power cut, and not when requests raced.
    exact: bool,
    /// The group may become full: the engine may drop snapshots.
    may_fill: bool,
    origins: BTreeMap<Vol, Vol>,
    /// The physical volumes that are not allocatable, and the free blocks that each had.
    unallocatable: BTreeMap<u16, u64>,
    seen: Seen,
    last: String,
    trace: bool,
    wraps: Arc<AtomicU64>,
    /// Check the accounts after this step, or after each (0), to find the step that went wrong.
    strict: Option<u64>,
    /// Lists of changes are compared.
    lists: Option<Moves>,
    _deep: FanOut,
}

type Step = Result<(), Failure>;

/// Counts how often a journal frame is written before the place of the frame that was written last.
fn count_wraps(disks: &SimDisks, wraps: &Arc<AtomicU64>) {
    let (wraps, mut last) = (wraps.clone(), 0);
    disks.watch(Box::new(move |op| {
        let DiskOp::Write { segments, buf } = op else { return };
        let first = segments[0];
        if !buf.as_slice()[first.at as usize..].starts_with(b"ROWENJRN") {
            return;
        }
        // Two frames may be in flight in either order. A wrap goes back by most of the ring.
        if first.offset + (256 << 10) < last {
            wraps.fetch_add(1, Ordering::Relaxed);
        }
        last = first.offset;
    }));
}

fn wrong<T>(what: String) -> Result<T, Failure> {
    Err(Failure::Wrong(what))
}

impl Model {
    fn new(seed: u64, profile: Profile, lists: Option<Moves>) -> Result<Model, String> {
        let mut rng = Rng::new(seed);
        let deep = FanOut::new(if seed % 3 == 1 { 16 } else { CAPACITY });
        let mut setup = profile.setup(&mut rng);
        let is_moved = lists.is_some_and(|moves| moves != Moves::None);
        if is_moved {
            setup.config.rehome = true;
            setup.config.layout = if lists == Some(Moves::Fill) { Layout::Read } else { Layout::Space };
        }
        let exact = setup.config.orphan_blocks == u64::MAX && !is_moved;
        // With physical volumes that are not allocatable, any group may.
        let may_fill = profile == Profile::Full || rng.one_in(3);
        let world = World::new(rng.bits());
        let (disks, group) = setup.make(&world).map_err(|e| format!("the group could not be made: {e}"))?;
        let client = Client::new(world.handle(), group, Arc::default());
        let wraps = Arc::default();
        count_wraps(&disks, &wraps);
        Ok(Model {
            wraps,
            client,
            disks,
            world,
            setup,
            profile,
            rng,
            accounts: Accounts::default(),
            exact,
            may_fill,
            origins: BTreeMap::new(),
            unallocatable: BTreeMap::new(),
            seen: Seen::default(),
            last: String::new(),
            trace: std::env::var_os("ROWEN_TRACE").is_some(),
            lists,
            _deep: deep,
            strict: std::env::var("ROWEN_STRICT").ok().and_then(|step| step.parse().ok()),
        })
    }

    fn note(&mut self, what: String) {
        if self.trace {
            eprintln!("{what}");
        }
        self.last = what;
    }

    fn run<T: 'static>(&self, future: impl Future<Output = T>) -> Result<T, Failure> {
        self.world.try_run(future).map_err(|stuck| Failure::Wrong(stuck.to_string()))
    }

    fn step(&mut self) -> Step {
        self.seen.steps += 1;
        let vols = self.client.oracle.lock().readable();
        if vols.is_empty() {
            return self.create();
        }
        let vol = *self.rng.pick(&vols);
        match self.rng.below(100) {
            0..=39 => self.write(vol)?,
            40..=49 => self.batch(&vols)?,
            50..=55 => self.zero(vol)?,
            56..=62 => self.flush(vol)?,
            63..=71 if vols.len() < self.profile.most_volumes() => self.snapshot(&[vol])?,
            72..=73 if vols.len() + 3 < self.profile.most_volumes() => self.group_snapshot(&vols)?,
            63..=73 => self.remove(&[vol])?,
            74..=77 => self.revert()?,
            78..=81 => self.remove_some(&vols)?,
            82..=85 if vols.len() < self.profile.most_volumes() => self.create()?,
            82..=88 => self.resize(vol)?,
            89 => self.rename(vol)?,
            90 => self.checkpoint()?,
            91 if self.may_fill && self.rng.one_in(2) => self.resize_pv()?,
            91 if self.may_fill => self.change_allocatable()?,
            91 => self.checkpoint()?,
            // A deep run keeps its journal, so that the ring wraps.
            92 if self.profile != Profile::Deep => self.reopen()?,
            93 if self.profile == Profile::UnknownSectors => self.crash()?,
            94 if self.profile == Profile::Full => self.grow_group()?,
            95..=97 => self.verify_everything()?,
            _ => self.check_accounts()?,
        }
        self.take_invalid()?;
        self.check_unallocatable()?;
        // Large volumes take long to read.
        if let Some(moves) = self.lists.filter(|_| self.profile != Profile::Deep || self.rng.one_in(10)) {
            self.check_diffs(moves)?;
        }
        let vols = self.client.oracle.lock().readable();
        if let Some(&vol) = (!vols.is_empty()).then(|| self.rng.pick(&vols)) {
            let sectors = self.sectors(vol);
            let from = self.rng.below(sectors);
            self.verify(vol, from, 128.min(sectors - from))?;
        }
        if self.exact {
            self.check_referenced()?;
        }
        if self.strict.is_some_and(|step| step == 0 || step == self.seen.steps) {
            self.check_accounts()?;
            self.check_open()?;
        }
        if self.profile == Profile::Deep && self.seen.steps.is_multiple_of(50) {
            self.check_open()?;
        }
        if self.seen.steps.is_multiple_of(25) {
            self.verify_everything()?;
            self.client.oracle.lock().prune();
        }
        Ok(())
    }

    fn sectors(&self, vol: Vol) -> u64 {
        self.client.oracle.lock().volumes[&vol].sectors()
    }

    fn read_only(&self, vol: Vol) -> bool {
        self.client.oracle.lock().volumes[&vol].read_only
    }

    fn range(&mut self, vol: Vol) -> (u64, u64) {
        let sectors = self.sectors(vol);
        // Deep trees come of many small extents.
        let kind = if self.profile == Profile::Deep && !self.rng.one_in(8) { 7 } else { self.rng.below(8) };
        let (from, count) = match kind {
            0 => (self.rng.below(sectors), self.rng.range(1, 7)),
            1 => (self.rng.below(sectors), self.rng.range(1, 200)),
            2 => (self.rng.below(sectors.min(128)), self.rng.range(1, 40)),
            3 => (0, sectors.min(2048)),
            4 => (self.rng.below(sectors) / BLOCK * BLOCK, BLOCK * self.rng.range(1, 64)),
            _ => (self.rng.below(sectors) / BLOCK * BLOCK, BLOCK),
        };
        (from, count.min(sectors - from))
    }

    /// True if it was done. False if there was no space, which leaves the accounts in doubt.
    fn done(&mut self, result: Result<(), Error>) -> Result<bool, Failure> {
        match result {
            Ok(()) => Ok(true),
            Err(Error::NoSpace { .. }) => {
                self.seen.refused_for_space += 1;
                Ok(false)
            }
            // The engine may drop the snapshot for the very write that went to it.
            Err(Error::InvalidSnapshot) if self.may_fill => Ok(false),
            Err(e) => Err(Failure::Refused(e)),
        }
    }
}
