//! Random operations on the engine, held against the oracle and the accounts after each step.
//!
//! A [`Profile`] says how small and how wild the world is; a seed does the rest. Sizes are tiny on purpose, so that
//! what is rare elsewhere (checkpoints in the middle of things, full groups, evicted nodes) is common here.

use crate::accounts::Accounts;
use crate::client::{BLOCK, Client, Failure, Op, SnapshotKind, VolumeSpec, number};
use crate::crash::{Setup, add_stats, judge_group, panic_text};
use crate::disk::{Image, POLICIES, Policy, SimDisks};
use crate::exec::World;
use crate::oracle::{Since, Vol};
use crate::rng::Rng;
use rowen_engine::disk::{DiskOp, Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, Group, Stats, VolumeInfo, VolumeKind, VolumeState};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of world that a run lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// One volume at a time is touched; every counter must be exact.
    Exact,
    /// Requests overlap in time, snapshots are taken among them, power fails.
    Wild,
    /// The group is too small for what is asked.
    Full,
    /// Larger volumes, hundreds of extents: trees of several levels.
    Deep,
}

/// All profiles, with the names that `ROWEN_PROFILE` takes.
pub const PROFILES: [(&str, Profile); 4] =
    [("exact", Profile::Exact), ("wild", Profile::Wild), ("full", Profile::Full), ("deep", Profile::Deep)];

impl Profile {
    fn setup(self, rng: &mut Rng) -> Setup {
        let pvs = rng.range(1, 3) as usize;
        let mib = match self {
            Profile::Full => rng.range(12, 16).div_ceil(pvs as u64),
            Profile::Exact | Profile::Wild => rng.range(48, 64).div_ceil(pvs as u64),
            Profile::Deep => 256,
        };
        let mut setup = Setup::small(pvs, mib + 2);
        // The accounts do not know of orphans that are freed.
        let counted = self == Profile::Exact || rng.one_in(2);
        setup.config.orphan_blocks = if counted { u64::MAX } else { rng.range(1, 16) };
        if self == Profile::Deep {
            // Fewer nodes than a tree has: they come and go.
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
            Profile::Exact | Profile::Wild => 10,
            Profile::Deep => 5,
        }
    }
}

/// What happened in a run, to see that rare things did happen.
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
    pub barred: u64,
    /// How often one lost its end, and how often one got it back.
    pub shrunk_pvs: u64,
    pub grown_pvs: u64,
    /// Checkpoints asked for among requests under way.
    pub raced_checkpoints: u64,
    /// How often the journal's ring went round.
    pub journal_wraps: u64,
    /// Nodes of all trees at a run's end, at most.
    pub most_nodes: u64,
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
        self.barred += other.barred;
        self.shrunk_pvs += other.shrunk_pvs;
        self.grown_pvs += other.grown_pvs;
        self.raced_checkpoints += other.raced_checkpoints;
        self.journal_wraps += other.journal_wraps;
        self.most_nodes = self.most_nodes.max(other.most_nodes);
    }
}

/// Runs `steps` random operations. The error is a sentence that ends in the line which replays the run.
pub fn run_seed(seed: u64, steps: u32, profile: Profile) -> Result<Seen, String> {
    let run = || {
        let mut model = Model::new(seed, profile)?;
        for step in 0..steps {
            let outcome = model.step();
            outcome.map_err(|failure| format!("step {step} ({}): {failure}", model.last))?;
        }
        model.finish().map_err(|failure| format!("at the end: {failure}"))
    };
    let outcome =
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(format!("PANIC: {}", panic_text(&panic))));
    let name = PROFILES.iter().find(|(_, p)| *p == profile).map_or("?", |(name, _)| name);
    outcome.map_err(|failure| {
        format!(
            "{failure}\n  ROWEN_SEED={seed} ROWEN_STEPS={steps} ROWEN_PROFILE={name} \
             cargo test -p rowen-sim --test model replay -- --nocapture --ignored"
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
    /// The accounts know every block. Not after a power cut, nor when requests raced.
    exact: bool,
    /// The group may become full: snapshots may give way.
    may_fill: bool,
    origins: BTreeMap<Vol, Vol>,
    /// The physical volumes that are not allocatable, and the blocks that were free of each.
    barred: BTreeMap<u16, u64>,
    seen: Seen,
    last: String,
    trace: bool,
    wraps: Arc<AtomicU64>,
    /// Check the accounts after this step, or after each (0): to find the one that went wrong.
    strict: Option<u64>,
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
        // Two frames may be under way in either order; a wrap goes back by most of the ring.
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
    fn new(seed: u64, profile: Profile) -> Result<Model, String> {
        let mut rng = Rng::new(seed);
        let setup = profile.setup(&mut rng);
        let exact = setup.config.orphan_blocks == u64::MAX;
        // With physical volumes that nothing is taken from any group may.
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
            barred: BTreeMap::new(),
            seen: Seen::default(),
            last: String::new(),
            trace: std::env::var_os("ROWEN_TRACE").is_some(),
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
            // A deep run keeps its journal, so that the ring goes round.
            92 if self.profile != Profile::Deep => self.reopen()?,
            93 if self.profile == Profile::Wild => self.crash()?,
            94 if self.profile == Profile::Full => self.grow_group()?,
            95..=97 => self.verify_everything()?,
            _ => self.check_accounts()?,
        }
        self.take_invalid()?;
        self.check_barred()?;
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

    /// True if it was done; false if there was no space, which leaves the accounts in doubt.
    fn done(&mut self, result: Result<(), Error>) -> Result<bool, Failure> {
        match result {
            Ok(()) => Ok(true),
            Err(Error::NoSpace { .. }) => {
                self.seen.refused_for_space += 1;
                Ok(false)
            }
            // A snapshot may give way to the very write that it was asked for.
            Err(Error::InvalidSnapshot) if self.may_fill => Ok(false),
            Err(e) => Err(Failure::Refused(e)),
        }
    }

    fn write(&mut self, vol: Vol) -> Step {
        if self.read_only(vol) {
            return Ok(());
        }
        let (sector, count) = self.range(vol);
        self.note(format!("write {vol} {sector}+{count}"));
        let client = self.client.clone();
        let result = self.run(async move { client.write(vol, sector, count, &[]).await })?;
        match self.done(result)? {
            true => self.accounts.write(vol, sector, count),
            false => self.exact = false,
        }
        self.verify(vol, sector, count)
    }

    fn zero(&mut self, vol: Vol) -> Step {
        if self.read_only(vol) {
            return Ok(());
        }
        let (sector, count) = self.range(vol);
        let zeroes = self.rng.one_in(2);
        self.note(format!("zero {vol} {sector}+{count} zeroes={zeroes}"));
        if self.exact {
            // A discard keeps the place of blocks that are the volume's own, which a merge under way may yet decide.
            let group = self.client.group.clone();
            self.run(async move { group.reclaim_idle().await })??;
        }
        let client = self.client.clone();
        let result = self.run(async move { client.zero(vol, sector, count, zeroes).await })?;
        match self.done(result)? {
            true => self.accounts.zero(vol, sector, count),
            false => self.exact = false,
        }
        self.verify(vol, sector, count)
    }

    /// Several requests at once. In exact runs they are writes, which leave the same counters in any order.
    fn batch(&mut self, vols: &[Vol]) -> Step {
        let exact = self.profile == Profile::Exact;
        let mut ops: Vec<Op> = Vec::new();
        let mut touched = Vec::new();
        let mut words = Vec::new();
        let requests = if self.profile == Profile::Deep { self.rng.range(8, 160) } else { self.rng.range(2, 16) };
        for _ in 0..requests {
            let vol = *self.rng.pick(vols);
            if self.read_only(vol) {
                continue;
            }
            let (sector, count) = self.range(vol);
            let client = self.client.clone();
            touched.push((vol, sector, count));
            if !exact && self.rng.one_in(6) {
                let zeroes = self.rng.one_in(2);
                self.exact = false;
                words.push(format!("zero {vol} {sector}+{count} zeroes={zeroes}"));
                ops.push(Box::pin(async move { client.zero(vol, sector, count, zeroes).await }));
            } else if self.rng.one_in(6) {
                words.push(format!("flush {vol}"));
                ops.push(Box::pin(async move { client.flush(vol).await }));
            } else {
                words.push(format!("write {vol} {sector}+{count}"));
                self.accounts.write(vol, sector, count);
                ops.push(Box::pin(async move { client.write(vol, sector, count, &[]).await }));
            }
        }
        if !exact && self.rng.one_in(3) {
            self.exact = false;
            let origins: Vec<Vol> = vols.iter().copied().filter(|_| self.rng.one_in(3)).collect();
            let client = self.client.clone();
            words.push(format!("snapshot {origins:?}"));
            if !origins.is_empty() && vols.len() + origins.len() <= self.profile.most_volumes() {
                ops.push(Box::pin(async move { client.snapshot(&origins, SnapshotKind::default()).await.map(drop) }));
            }
        }
        if self.rng.one_in(8) {
            let client = self.client.clone();
            self.seen.raced_checkpoints += 1;
            words.push("checkpoint".into());
            ops.push(Box::pin(async move { client.checkpoint().await }));
        }
        self.note(format!("together: {}", words.join("; ")));
        let client = self.client.clone();
        for result in self.run(async move { client.together(ops).await })? {
            self.exact &= self.done(result)?;
        }
        self.may_become_invalid();
        self.take_invalid()?;
        for (vol, sector, count) in touched {
            self.verify(vol, sector, count)?;
        }
        Ok(())
    }

    fn flush(&mut self, vol: Vol) -> Step {
        self.note(format!("flush {vol}"));
        let client = self.client.clone();
        let flushed = self.run(async move { client.flush(vol).await })?;
        flushed.or_else(|error| self.gone_meanwhile(Failure::Refused(error)))
    }

    fn checkpoint(&mut self) -> Step {
        self.note("checkpoint".into());
        let client = self.client.clone();
        Ok(self.run(async move { client.checkpoint().await })??)
    }

    fn create(&mut self) -> Step {
        let kind = *self.rng.pick(&[VolumeKind::Thick, VolumeKind::Thin]);
        let full = *self.rng.pick(&[FullPolicy::DropSnapshot, FullPolicy::Fail]);
        let blocks = self.profile.blocks(&mut self.rng);
        let spec = VolumeSpec { kind, blocks, chunk_blocks: 1 << self.rng.below(6), full };
        self.note(format!("create {spec:?}"));
        let client = self.client.clone();
        match self.run(async move { client.create(spec).await })? {
            Ok(vol) => self.accounts.create(vol, blocks, kind == VolumeKind::Thick),
            Err(e) => drop(self.done(Err(e))?),
        }
        Ok(())
    }

    fn snapshot(&mut self, origins: &[Vol]) -> Step {
        let reserve = (self.profile == Profile::Full && self.rng.one_in(3)).then(|| self.rng.range(4, 64));
        let kind = SnapshotKind { read_only: self.rng.one_in(3), reserve, chunk_blocks: 1 << self.rng.below(6) };
        self.note(format!("snapshot {origins:?} {kind:?}"));
        let (client, owned) = (self.client.clone(), origins.to_vec());
        match self.run(async move { client.snapshot(&owned, kind).await })? {
            Ok(vols) => {
                for (&origin, &vol) in origins.iter().zip(&vols) {
                    self.accounts.snapshot(origin, vol, false);
                    self.origins.insert(vol, origin);
                }
                self.may_become_invalid();
                vols.iter().try_for_each(|&vol| self.verify_all(vol))
            }
            Err(e) => self.done(Err(e)).map(drop),
        }
    }

    /// In a full group any snapshot may give way.
    fn may_become_invalid(&mut self) {
        if self.may_fill {
            self.client.oracle.lock().volumes.values_mut().for_each(|volume| volume.may_become_invalid = true);
        }
    }

    fn group_snapshot(&mut self, vols: &[Vol]) -> Step {
        let mut some: Vec<Vol> = vols.iter().copied().filter(|_| self.rng.one_in(2)).take(3).collect();
        some.dedup();
        if some.is_empty() {
            return Ok(());
        }
        self.seen.group_snapshots += 1;
        self.snapshot(&some)
    }

    fn revert(&mut self) -> Step {
        let readable = self.client.oracle.lock().readable();
        let pairs: Vec<(Vol, Vol)> = self
            .origins
            .iter()
            .map(|(&snapshot, &origin)| (origin, snapshot))
            .filter(|(origin, snapshot)| readable.contains(origin) && readable.contains(snapshot))
            .filter(|&(origin, snapshot)| !self.read_only(origin) && self.sectors(origin) == self.sectors(snapshot))
            .collect();
        if pairs.is_empty() {
            return Ok(());
        }
        let (target, source) = *self.rng.pick(&pairs);
        let consume = self.rng.one_in(2);
        self.note(format!("revert {target} to {source} consume={consume}"));
        let client = self.client.clone();
        let result = self.run(async move { client.revert(target, source, consume).await })?;
        if self.done(result)? {
            self.seen.reverts += 1;
            self.accounts.revert(target, source, consume);
            if consume {
                self.origins.remove(&source);
            }
        }
        self.verify_all(target)
    }

    fn remove_some(&mut self, vols: &[Vol]) -> Step {
        let some: Vec<Vol> = vols.iter().copied().filter(|_| self.rng.one_in(4)).collect();
        if some.is_empty() { Ok(()) } else { self.remove(&some) }
    }

    fn remove(&mut self, vols: &[Vol]) -> Step {
        self.note(format!("remove {vols:?}"));
        let (client, owned) = (self.client.clone(), vols.to_vec());
        self.run(async move { client.remove(&owned).await })??;
        for vol in vols {
            self.seen.removed_origins += u64::from(self.origins.values().any(|origin| origin == vol));
            self.accounts.remove(*vol);
            self.origins.retain(|snapshot, origin| snapshot != vol && origin != vol);
        }
        Ok(())
    }

    fn resize(&mut self, vol: Vol) -> Step {
        if self.read_only(vol) {
            return Ok(());
        }
        let (before, blocks) = (self.sectors(vol) / BLOCK, self.profile.blocks(&mut self.rng));
        self.note(format!("resize {vol} to {blocks} blocks"));
        let client = self.client.clone();
        let result = self.run(async move { client.resize(vol, blocks).await })?;
        if self.done(result)? {
            self.accounts.resize(vol, before, blocks);
        }
        self.verify_all(vol)
    }

    fn rename(&mut self, vol: Vol) -> Step {
        let name = format!("n{}", self.rng.below(1 << 40));
        self.note(format!("rename {vol} to {name}"));
        let client = self.client.clone();
        Ok(self.run(async move { client.rename(vol, &name).await })??)
    }

    /// One more physical volume for a group that has become too small.
    fn grow_group(&mut self) -> Step {
        if self.setup.pvs.len() >= 5 {
            return Ok(());
        }
        self.note("add a physical volume".into());
        let geometry = self.setup.pvs[0];
        self.setup.pvs.push(geometry);
        self.disks.add_pv(geometry);
        let uuid = rowen_engine::units::Uuid([self.setup.pvs.len() as u8; 16]);
        let group = self.client.group.clone();
        Ok(self.run(async move { group.add_pv(rowen_engine::group::NewPv { uuid }).await })??)
    }

    /// Space is taken from one of the physical volumes from now on, or is not.
    fn change_allocatable(&mut self) -> Step {
        let pv = self.rng.below(self.setup.pvs.len() as u64) as u16;
        let allocatable = self.barred.contains_key(&pv);
        self.note(format!("physical volume {pv} allocatable={allocatable}"));
        let group = self.client.group.clone();
        let result = self.run(async move { group.set_allocatable(PvIndex(pv), allocatable).await })?;
        match result {
            Ok(()) if allocatable => drop(self.barred.remove(&pv)),
            Ok(()) => {
                self.seen.barred += 1;
                self.may_become_invalid();
                let free = self.client.group.info().pvs[usize::from(pv)].free_blocks;
                self.barred.insert(pv, free);
            }
            // It has room that is promised.
            Err(Error::NoSpace { .. }) if !allocatable => self.seen.refused_for_space += 1,
            Err(e) => return Err(Failure::Refused(e)),
        }
        Ok(())
    }

    /// A physical volume loses its end, where nothing lies there, or has all of its disk again.
    fn resize_pv(&mut self) -> Step {
        let pv = self.rng.below(self.setup.pvs.len() as u64) as u16;
        let index = usize::from(pv);
        let disk = self.setup.pvs[index].size;
        let bytes = if self.rng.one_in(3) { disk } else { self.rng.range(disk / 2, disk) };
        self.note(format!("physical volume {pv} has {bytes} bytes"));
        let before = self.client.group.info().pvs[index].extents;
        let group = self.client.group.clone();
        let result = self.run(async move { group.resize_pv(PvIndex(pv), bytes).await })?;
        let now = self.client.group.info().pvs[index].clone();
        match result {
            Ok(()) => {
                self.seen.shrunk_pvs += u64::from(now.extents < before);
                self.seen.grown_pvs += u64::from(now.extents > before);
                self.may_become_invalid();
                self.barred.entry(pv).and_modify(|free| *free = now.free_blocks);
            }
            Err(Error::Busy(_) | Error::NoSpace { .. }) if now.extents == before => {}
            Err(e) => return Err(Failure::Refused(e)),
        }
        Ok(())
    }

    /// On a physical volume that is not allocatable nothing is taken: what is free there can only become more.
    fn check_barred(&mut self) -> Step {
        for (pv, info) in self.client.group.info().pvs.iter().enumerate() {
            let before = self.barred.get_mut(&(pv as u16));
            if info.is_allocatable != before.is_none() {
                return wrong(format!("physical volume {pv} says allocatable={}", info.is_allocatable));
            }
            let Some(before) = before else { continue };
            if info.free_blocks < *before {
                return wrong(format!("physical volume {pv} is not allocatable and has {info:?}, {before} were free"));
            }
            *before = info.free_blocks;
        }
        Ok(())
    }

    /// A clean end; what was only cached is lost, and nothing may be missing.
    fn reopen(&mut self) -> Step {
        self.note("close and open".into());
        let client = self.client.clone();
        self.run(async move { client.close().await })??;
        self.seen.reopened += 1;
        let image = self.disks.moment().power_cut(Policy::Nothing, &mut self.rng);
        self.open(image)?;
        self.verify_everything()
    }

    fn open(&mut self, image: Image) -> Step {
        add_stats(&mut self.seen.stats, &self.client.group.stats());
        let world = World::new(self.rng.bits());
        let disks = SimDisks::with_image(world.handle(), image);
        let opening = Group::open(disks.clone(), world.handle(), self.setup.config.clone());
        let group = world.try_run(opening).map_err(|stuck| Failure::Wrong(format!("opening: {stuck}")))??;
        self.client = Client::new(world.handle(), group, self.client.oracle.clone());
        count_wraps(&disks, &self.wraps);
        self.disks = disks;
        self.world = world;
        Ok(())
    }

    /// The power fails or the program dies while requests are under way; the run goes on with what is left.
    fn crash(&mut self) -> Step {
        let mut vols = self.client.oracle.lock().readable();
        vols.retain(|&vol| !self.read_only(vol));
        let death = self.rng.one_in(3);
        let mut ops: Vec<Op> = Vec::new();
        for &vol in vols.iter().take(6) {
            let (client, (sector, count)) = (self.client.clone(), self.range(vol));
            ops.push(Box::pin(async move { client.write(vol, sector, count, &[]).await }));
        }
        self.note(format!("crash death={death} with writes under way on {vols:?}"));
        let (client, handle) = (self.client.clone(), self.world.handle());
        let stopper = handle.clone();
        handle.after(self.rng.below(600), move || stopper.stop());
        match self.world.try_run(async move { client.together(ops).await }) {
            Ok(_) | Err(crate::exec::Stuck::Stopped) => {}
            Err(stuck) => return wrong(stuck.to_string()),
        }
        let moment = self.disks.moment();
        let (image, since) = match death {
            true => (moment.killed(&mut self.rng), Since::Death),
            false => (moment.power_cut(*self.rng.pick(&POLICIES), &mut self.rng), Since::PowerLoss),
        };
        self.seen.power_cuts += u64::from(!death);
        self.seen.deaths += u64::from(death);
        self.exact = false;
        self.open(image)?;
        self.judge_crash(since)?;
        self.check_open()
    }

    fn judge_crash(&mut self, since: Since) -> Step {
        let infos = self.client.group.volumes();
        let mut found = BTreeMap::new();
        for info in infos.iter().filter(|info| info.state == VolumeState::Ok) {
            let (client, vol, sectors) = (self.client.clone(), number(info.uuid), info.blocks * BLOCK);
            found.insert(vol, self.run(async move { client.look(vol, 0, sectors).await })??);
        }
        let mut oracle = self.client.oracle.lock();
        judge_group(&oracle, &infos, &found, since).map_err(Failure::Wrong)?;
        let names: BTreeMap<Vol, String> = infos.iter().map(|info| (number(info.uuid), info.name.clone())).collect();
        oracle.restart(found.into_iter().map(|(vol, sectors)| (vol, (names[&vol].clone(), sectors))).collect());
        drop(oracle);
        self.origins.retain(|snapshot, origin| names.contains_key(snapshot) && names.contains_key(origin));
        // The oracle knows no more of snapshots that gave way.
        let gone: Vec<_> = infos.iter().filter(|info| info.state == VolumeState::Invalid).map(|info| info.id).collect();
        if !gone.is_empty() {
            self.origins.retain(|snapshot, _| {
                infos.iter().any(|info| number(info.uuid) == *snapshot && info.state == VolumeState::Ok)
            });
            let group = self.client.group.clone();
            self.run(async move { group.remove(&gone).await })??;
        }
        Ok(())
    }

    fn take_invalid(&mut self) -> Step {
        for vol in self.client.note_invalid()? {
            self.seen.invalidated += 1;
            self.accounts.remove(vol);
            // What it still holds until it is removed is the engine's business.
            self.exact = false;
            self.origins.retain(|snapshot, origin| *snapshot != vol && *origin != vol);
        }
        Ok(())
    }

    fn verify(&mut self, vol: Vol, sector: u64, count: u64) -> Step {
        self.take_invalid()?;
        if !self.client.oracle.lock().readable().contains(&vol) {
            return Ok(());
        }
        let client = self.client.clone();
        let found = match self.run(async move { client.verify(vol, sector, count).await })? {
            Ok(found) => found,
            Err(failure) => return self.gone_meanwhile(failure),
        };
        self.client.oracle.lock().settle(vol, sector, &found);
        Ok(())
    }

    fn verify_all(&mut self, vol: Vol) -> Step {
        let client = self.client.clone();
        self.run(async move { client.verify_all(vol).await })?.or_else(|failure| self.gone_meanwhile(failure))
    }

    /// A snapshot may outgrow its reserve in the background, when another one's part falls to it.
    fn gone_meanwhile(&mut self, failure: Failure) -> Step {
        match failure {
            Failure::Refused(Error::InvalidSnapshot) if self.may_fill => self.take_invalid(),
            failure => Err(failure),
        }
    }

    fn verify_everything(&mut self) -> Step {
        self.take_invalid()?;
        let vols = self.client.oracle.lock().readable();
        vols.into_iter().try_for_each(|vol| self.verify_all(vol))
    }

    /// What is told of one volume, and of a family, is what is told of all.
    fn check_parts(&self) -> Step {
        let group = &self.client.group;
        let all = group.volumes();
        let told = |info: &VolumeInfo| format!("{info:?}");
        for info in &all {
            let alone = group.volume_info(info.id)?;
            if told(&alone) != told(info) {
                return wrong(format!("{alone:?} alone, {info:?} among all"));
            }
        }
        let Some(first) = all.get(self.seen.steps as usize % all.len().max(1)) else { return Ok(()) };
        let mut family = BTreeSet::from([first.id]);
        // Origins are older: in the order of creation one look down and one up finds all.
        for info in &all {
            if info.origin.is_some_and(|origin| family.contains(&origin)) {
                family.insert(info.id);
            }
        }
        for info in all.iter().rev() {
            if family.contains(&info.id) {
                family.extend(info.origin);
            }
        }
        let found: Vec<String> = group.family(std::slice::from_ref(&first.name)).iter().map(told).collect();
        let expected: Vec<String> = all.iter().filter(|info| family.contains(&info.id)).map(told).collect();
        if found != expected {
            return wrong(format!("the family of {} is {found:?}, it should be {expected:?}", first.name));
        }
        Ok(())
    }

    fn check_referenced(&mut self) -> Step {
        self.check_parts()?;
        for info in self.client.group.volumes() {
            let expected = self.accounts.referenced(number(info.uuid));
            if info.referenced != expected {
                return wrong(format!("{} references {} blocks, it should be {expected}", info.name, info.referenced));
            }
        }
        Ok(())
    }

    /// Once background removal is idle every counter is exact.
    fn check_accounts(&mut self) -> Step {
        let group = self.client.group.clone();
        self.run(async move { group.reclaim_idle().await })??;
        let group = self.client.group.info();
        if group.reclaim_left != 0 {
            return wrong(format!("reclaim is idle with {} blocks left", group.reclaim_left));
        }
        if !self.exact {
            return Ok(());
        }
        self.seen.exact_checks += 1;
        for info in self.client.group.volumes() {
            let expected = self.accounts.counters(number(info.uuid));
            let told = (info.referenced, info.exclusive, info.freed_if_removed);
            if told != (expected.referenced, expected.own, expected.freed) {
                return wrong(format!(
                    "{}: referenced, exclusive, freed are {told:?}, expected {expected:?}",
                    info.name
                ));
            }
        }
        let used = group.blocks - group.free_blocks - group.pending_blocks - group.metadata_blocks;
        if used != self.accounts.used() {
            return wrong(format!(
                "{used} blocks are in use, heads and points map {}: {group:?}",
                self.accounts.used()
            ));
        }
        Ok(())
    }

    fn check_open(&mut self) -> Step {
        let group = self.client.group.clone();
        let open = self.run(async move { group.check_open().await })??;
        self.seen.most_nodes = self.seen.most_nodes.max(open.nodes);
        match open.findings.first() {
            Some(first) => wrong(format!("check of the open group: {} findings; first: {first}", open.findings.len())),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<Seen, Failure> {
        self.note("the end".into());
        self.verify_everything()?;
        self.check_accounts()?;
        self.check_open()?;
        let client = self.client.clone();
        self.run(async move { client.close().await })??;
        let disks: Arc<dyn Disks> = self.disks.clone();
        let closed = self.run(Group::check(disks))??;
        if let Some(first) = closed.findings.first() {
            return wrong(format!("check of the closed group: {} findings; first: {first}", closed.findings.len()));
        }
        add_stats(&mut self.seen.stats, &self.client.group.stats());
        self.seen.journal_wraps = self.wraps.load(Ordering::Relaxed);
        Ok(self.seen)
    }
}
