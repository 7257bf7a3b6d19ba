//! The crash explorer. It cuts a scenario at every disk command, in every way that the disks allow, and judges the
//! result.
//!
//! A scenario runs once. Before each event of its disks (a command given, a command completed), the explorer keeps
//! their state. From each of these states it makes crash states: six policies of what a volatile cache may keep, and
//! the death of the program alone. The real engine opens each crash state in a world of its own. The oracle judges
//! every volume that is read back, and the group's own check must find nothing. Some recoveries are cut in turn, at
//! each of their commands. Some recovered groups continue to work before they are checked again.
//!
//! A finding names its state. [`Explorer::only`] with the same numbers makes that state alone.

use crate::client::{BLOCK, Client, Failure, number};
use crate::disk::{Faults, Image, Moment, POLICIES, Policy, SimDisks};
use crate::exec::World;
use crate::fan_out::FanOut;
use crate::oracle::{Command, Life, Oracle, Since, Vol};
use crate::rng::Rng;
use crate::scenario::{Runner, Step};
use crate::stamp::Found;
use parking_lot::Mutex;
use rowen_engine::disk::{Disks, PvGeometry};
use rowen_engine::error::Error;
use rowen_engine::format::node::CAPACITY;
use rowen_engine::group::{
    Attributes, Config, FullPolicy, Group, NewGroup, NewPv, NewVolume, SegmentType, Stats, VolumeInfo, VolumeKind,
    VolumeState,
};
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Which crash states are made of each moment.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// States for each policy that draws random numbers.
    pub repeat: u32,
    /// The recovery of one state in this many is cut as well.
    pub recovery: u64,
    /// One state in this many continues to work after its recovery.
    pub resume: u64,
    /// One moment in this many is explored.
    pub sample: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { repeat: 1, recovery: 40, resume: 8, sample: 1 }
    }
}

/// A volume of single blocks that fails when the group is full, without attributes. `number` makes its UUID.
pub fn plain_volume(name: &str, number: u8, kind: VolumeKind, blocks: u64) -> NewVolume {
    NewVolume {
        name: name.into(),
        uuid: Uuid([number; 16]),
        kind,
        blocks,
        sector: 512,
        chunk_blocks: 1,
        full: FullPolicy::Fail,
        attributes: Attributes::default(),
    }
}

/// The group that scenarios run on.
#[derive(Clone, Debug)]
pub struct Setup {
    pub pvs: Vec<PvGeometry>,
    pub extent_blocks: u64,
    /// The type of its volumes.
    pub segment: SegmentType,
    /// See [`NewGroup`].
    pub second_journal: Option<u64>,
    pub config: Config,
    /// The faults of the disks, in the run and in each recovery.
    pub faults: Faults,
}

impl Setup {
    /// `count` physical volumes of `mib` MiB, small extents, small caches.
    pub fn small(count: usize, mib: u64) -> Setup {
        Setup {
            pvs: vec![PvGeometry { size: mib << 20, sector: 512 }; count],
            extent_blocks: 256,
            segment: SegmentType::Linear,
            second_journal: None,
            config: Config { cache_bytes: 256 << 10, dirty_bytes: 64 << 10, orphan_blocks: 1, ..Config::default() },
            faults: Faults::default(),
        }
    }

    /// The group that is made.
    pub fn spec(&self) -> NewGroup {
        let pvs = (0..self.pvs.len()).map(|at| NewPv { uuid: Uuid([at as u8 + 1; 16]) }).collect();
        let (extent_blocks, second_journal) = (self.extent_blocks, self.second_journal);
        NewGroup { uuid: Uuid([0x77; 16]), name: "vg".into(), extent_blocks, pvs, second_journal }
    }

    /// Makes a new group in `world` and opens it.
    pub fn make(&self, world: &World) -> Result<(Arc<SimDisks>, Arc<Group>), Error> {
        let disks = SimDisks::new(world.handle(), &self.pvs);
        disks.set_faults(self.faults.clone());
        let (spec, config, as_disks) = (self.spec(), self.config.clone(), disks.clone() as Arc<dyn Disks>);
        let runtime = world.handle();
        let group = world.run(async move {
            Group::create(as_disks.clone(), spec).await?;
            Group::open(as_disks, runtime, config).await
        })?;
        Ok((disks, group))
    }
}

/// One crash state of a scenario's run: its event, its policy, and its random draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub event: u64,
    /// None: the program died.
    pub policy: Option<Policy>,
    pub throw: u32,
}

impl std::fmt::Display for State {
    /// In the form that `ROWEN_STATE` takes: event, policy (or `death`), draw.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.policy {
            Some(policy) => write!(f, "{}:{policy:?}:{}", self.event, self.throw),
            None => write!(f, "{}:death:{}", self.event, self.throw),
        }
    }
}

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub states: u64,
    pub recovery_states: u64,
    /// Findings, each with a message and the state's numbers.
    pub findings: Vec<String>,
    /// How many states had a finding.
    pub failures: u64,
    /// Counters of the engine: of the scenario's run and of all recoveries.
    pub stats: Stats,
}

impl Report {
    /// Adds another exploration's figures.
    pub fn add(&mut self, other: Report) {
        self.states += other.states;
        self.recovery_states += other.recovery_states;
        self.failures += other.failures;
        self.findings.extend(other.findings);
        self.findings.truncate(MOST_FINDINGS);
        add_stats(&mut self.stats, &other.stats);
    }
}

const MOST_FINDINGS: usize = 8;

/// Sums counters.
pub fn add_stats(sum: &mut Stats, more: &Stats) {
    sum.writes_in_place += more.writes_in_place;
    sum.writes_redirected += more.writes_redirected;
    sum.writes_again += more.writes_again;
    sum.journal_frames += more.journal_frames;
    sum.journal_records += more.journal_records;
    sum.device_flushes += more.device_flushes;
    sum.checkpoints += more.checkpoints;
    sum.nodes_written += more.nodes_written;
    sum.node_loads += more.node_loads;
    sum.waits_for_marker += more.waits_for_marker;
    sum.recovered += more.recovered;
    sum.recovery_skipped += more.recovery_skipped;
    sum.slots_taken += more.slots_taken;
    sum.reclaim_steps += more.reclaim_steps;
    sum.orphans_freed += more.orphans_freed;
    sum.windows_rehomed += more.windows_rehomed;
    sum.windows_filled += more.windows_filled;
    sum.blocks_filled += more.blocks_filled;
    sum.fills_without_room += more.fills_without_room;
    sum.volumes_invalidated += more.volumes_invalidated;
    sum.copies_not_written += more.copies_not_written;
    sum.nodes_lost += more.nodes_lost;
    sum.ring_blocks_bad += more.ring_blocks_bad;
}

/// Explores the crash states of one scenario under one seed.
pub struct Explorer<'a> {
    pub setup: &'a Setup,
    pub effort: Effort,
    pub seed: u64,
    /// Only this state, to look at a finding.
    pub only: Option<State>,
    /// Events before this step of the scenario are not explored: other runs explored them.
    pub skip_steps: usize,
}

impl Explorer<'_> {
    /// Runs the scenario and judges its crash states.
    pub fn explore(&self, steps: &[Step]) -> Report {
        let mut report = Report::default();
        // Some seeds have deep trees.
        let _deep = FanOut::new(if self.seed % 5 == 2 { 12 } else { CAPACITY });
        let world = World::new(self.seed);
        let (disks, group) = match self.setup.make(&world) {
            Ok(made) => made,
            Err(e) => {
                report.fail(format!("the group could not be made: {e}"));
                return report;
            }
        };
        let mut oracle = Oracle::default();
        oracle.segment = self.setup.segment;
        let oracle = Arc::new(Mutex::new(oracle));
        let client = Client::new(world.handle(), group.clone(), oracle.clone());
        let mut runner = Runner::new(client);
        let (skipped, explored) = steps.split_at(self.skip_steps.min(steps.len()));
        if let Some(failure) = outcome(world.try_run(runner.run(skipped))) {
            report.fail(format!("before any crash: {failure}"));
            return report;
        }
        disks.keep_moments();
        let mut observe = || {
            for moment in disks.take_moments() {
                self.explore_moment(&moment, &oracle.lock(), &mut report);
            }
        };
        let failure = outcome(world.try_run_observed(runner.run(explored), &mut observe));
        self.explore_moment(&disks.moment(), &oracle.lock(), &mut report);
        if let Some(failure) = failure {
            report.fail(format!("before any crash: {failure}"));
        }
        add_stats(&mut report.stats, &group.stats());
        report
    }

    fn explore_moment(&self, moment: &Moment, oracle: &Oracle, report: &mut Report) {
        if self.only.is_none() && !Rng::new(self.seed ^ moment.event).one_in(self.effort.sample) {
            return;
        }
        // There are enough findings.
        if report.findings.len() >= MOST_FINDINGS {
            return;
        }
        let policies = POLICIES.into_iter().map(Some).chain([None]);
        for policy in policies {
            let dice = !matches!(policy, Some(Policy::Nothing | Policy::All | Policy::Newest));
            for throw in 0..if dice { self.effort.repeat } else { 1 } {
                let state = State { event: moment.event, policy, throw };
                if self.only.is_none_or(|only| only == state) {
                    self.explore_state(moment, state, oracle, report);
                }
            }
        }
    }

    fn explore_state(&self, moment: &Moment, state: State, oracle: &Oracle, report: &mut Report) {
        let mut rng = self.dice(state);
        let image = moment.crash(state.policy, &mut rng);
        let since = if state.policy.is_some() { Since::PowerLoss } else { Since::Death };
        report.states += 1;
        let plan = Plan { cut_recovery: rng.one_in(self.effort.recovery), resume: rng.one_in(self.effort.resume) };
        let mut judge = Judge { setup: self.setup, oracle, since, report };
        let seed = rng.bits();
        if let Err(finding) = judge.state(image, seed, plan) {
            let what = format!("ROWEN_STATE={state}: {finding}");
            report.fail(what);
        }
    }

    fn dice(&self, state: State) -> Rng {
        let policy = state.policy.map_or(99, |policy| policy as u64);
        let mut rng =
            Rng::new(self.seed.rotate_left(40) ^ state.event.rotate_left(20) ^ policy << 8 ^ u64::from(state.throw));
        rng.fork()
    }
}

impl Report {
    fn fail(&mut self, finding: String) {
        self.failures += 1;
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding);
        }
    }
}

fn outcome<E: std::fmt::Display>(result: Result<Result<(), Failure>, E>) -> Option<String> {
    match result {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(stuck) => Some(stuck.to_string()),
    }
}

/// The work on one crash state besides opening and reading it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    cut_recovery: bool,
    resume: bool,
}

struct Judge<'a> {
    setup: &'a Setup,
    oracle: &'a Oracle,
    since: Since,
    report: &'a mut Report,
}

impl Judge<'_> {
    fn state(&mut self, image: Image, seed: u64, plan: Plan) -> Result<(), String> {
        // A panic of the engine is a finding like others. It must name its state, too.
        match catch_unwind(AssertUnwindSafe(|| self.open_and_judge(image, seed, plan))) {
            Ok(result) => result,
            Err(panic) => Err(format!("PANIC: {}", panic_text(&panic))),
        }
    }

    fn open_and_judge(&mut self, image: Image, seed: u64, plan: Plan) -> Result<(), String> {
        let world = World::new(seed);
        let disks = SimDisks::with_image(world.handle(), image);
        disks.set_faults(self.setup.faults.clone());
        if plan.cut_recovery {
            disks.keep_moments();
        }
        let config = self.setup.config.clone();
        let opening = Group::open(disks.clone(), world.handle(), config);
        let group = world.try_run(opening).map_err(|stuck| format!("opening: {stuck}"))?;
        let group = group.map_err(|e| format!("it does not open: {e}"))?;
        if plan.cut_recovery {
            for moment in disks.take_moments() {
                self.cut_recovery(&moment, seed)?;
            }
        }
        let client = Client::new(world.handle(), group.clone(), Arc::default());
        let found = world.try_run(read_all(&client)).map_err(|stuck| format!("reading: {stuck}"))??;
        let infos = group.volumes();
        judge_group(self.oracle, &infos, &found, self.since)?;
        add_stats(&mut self.report.stats, &group.stats());
        let check = world.try_run(group.check_open()).map_err(|stuck| format!("check: {stuck}"))?;
        expect_clean(check, "after recovery")?;
        if plan.resume {
            let mut oracle = self.oracle.clone();
            oracle.restart(survivors(&infos, found));
            let client = Client::new(world.handle(), group, Arc::new(Mutex::new(oracle)));
            let resumed = world.try_run(resume(&client, seed)).map_err(|stuck| format!("after recovery: {stuck}"))?;
            resumed.map_err(|failure| format!("after recovery: {failure}"))?;
            let disks: Arc<dyn Disks> = disks;
            let check = world.try_run(Group::check(disks)).map_err(|stuck| format!("check: {stuck}"))?;
            expect_clean(check, "after recovery, some work and a clean end")?;
        }
        Ok(())
    }

    fn cut_recovery(&mut self, moment: &Moment, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed ^ moment.event.rotate_left(32));
        let policy = *rng.pick(&POLICIES);
        let image = moment.power_cut(policy, &mut rng);
        self.report.recovery_states += 1;
        let again = Plan { cut_recovery: false, resume: rng.one_in(4) };
        self.open_and_judge(image, rng.bits(), again)
            .map_err(|e| format!("recovery cut again before its event {} ({policy:?}): {e}", moment.event))
    }
}

/// Opens one image, reads all of it back, judges it, continues to work with it, and checks the group.
pub fn judge_image(setup: &Setup, oracle: &Oracle, since: Since, image: Image, seed: u64) -> Result<(), String> {
    let mut report = Report::default();
    let mut judge = Judge { setup, oracle, since, report: &mut report };
    judge.state(image, seed, Plan { cut_recovery: false, resume: true })
}

/// The result of a group on damaged disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It opened, all of it could be read, and all contents are right.
    Sound,
    /// It did not open, or a part could not be read. The engine's message.
    Refused(String),
}

/// Opens a damaged image, reads what can be read, and checks it. Wrong data, a panic or a hang is an error. A refusal
/// with a message is not.
pub fn judge_damaged(setup: &Setup, oracle: &Oracle, image: Image, seed: u64) -> Result<Verdict, String> {
    let judge = || {
        let world = World::new(seed);
        let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image.clone());
        // Check may report any damage, but it must end.
        let _ = world.try_run(Group::check(disks.clone())).map_err(|stuck| format!("check: {stuck}"))?;
        let opening = Group::open(disks, world.handle(), setup.config.clone());
        let group = match world.try_run(opening).map_err(|stuck| format!("opening: {stuck}"))? {
            Ok(group) => group,
            Err(e) => return Ok(Verdict::Refused(e.to_string())),
        };
        let client = Client::new(world.handle(), group.clone(), Arc::default());
        let found = match world.try_run(read_all(&client)).map_err(|stuck| format!("reading: {stuck}"))? {
            Ok(found) => found,
            Err(e) => return Ok(Verdict::Refused(e)),
        };
        judge_group(oracle, &group.volumes(), &found, Since::PowerLoss)?;
        Ok(Verdict::Sound)
    };
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|panic| Err(format!("PANIC: {}", panic_text(&panic))))
}

/// The text of a panic that was caught.
pub fn panic_text(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_else(|| "without words".into())
}

fn expect_clean(check: Result<rowen_engine::group::CheckReport, Error>, when: &str) -> Result<(), String> {
    let check = check.map_err(|e| format!("check {when}: {e}"))?;
    match check.findings.first() {
        None => Ok(()),
        Some(first) => Err(format!("check {when} has {} findings; first: {first}", check.findings.len())),
    }
}

/// Reads every volume that can be read.
pub async fn read_all(client: &Client) -> Result<BTreeMap<Vol, Vec<Found>>, String> {
    let mut all = BTreeMap::new();
    for info in client.group.volumes() {
        if info.state == VolumeState::Invalid {
            continue;
        }
        let vol = number(info.uuid);
        match client.look(vol, 0, info.blocks * BLOCK).await {
            Ok(found) => drop(all.insert(vol, found)),
            // It outgrew its reserve and was dropped meanwhile. Whether that was allowed is judged later.
            Err(Error::InvalidSnapshot) => {}
            Err(e) => return Err(format!("reading volume {vol}: {e}")),
        }
    }
    Ok(all)
}

/// The contents found of each volume, with the volume's name.
pub(crate) fn survivors<T>(infos: &[VolumeInfo], mut found: BTreeMap<Vol, Vec<T>>) -> BTreeMap<Vol, (String, Vec<T>)> {
    let named = infos.iter().filter_map(|info| {
        let vol = number(info.uuid);
        found.remove(&vol).map(|sectors| (vol, (info.name.clone(), sectors)))
    });
    named.collect()
}

/// Compares a recovered group with the oracle: its volumes, their names, sizes and contents. Commands on several
/// volumes are found whole or not at all (OR6).
pub fn judge_group(
    oracle: &Oracle,
    infos: &[VolumeInfo],
    found: &BTreeMap<Vol, Vec<Found>>,
    since: Since,
) -> Result<(), String> {
    let there: BTreeMap<Vol, &VolumeInfo> = infos.iter().map(|info| (number(info.uuid), info)).collect();
    for (vol, info) in &there {
        let Some(volume) = oracle.volumes.get(vol) else {
            return Err(format!("volume {vol} ({}) is nobody's", info.name));
        };
        if volume.life == Life::Gone {
            return Err(format!("volume {vol} is BACK: its removal was acknowledged"));
        }
        if info.name != volume.name && Some(&info.name) != volume.next_name.as_ref() {
            return Err(format!("volume {vol} is called {} and not {}", info.name, volume.name));
        }
        if info.state == VolumeState::Invalid && !volume.may_become_invalid {
            return Err(format!("volume {vol} is invalid for no reason"));
        }
    }
    for (vol, volume) in &oracle.volumes {
        if volume.life == Life::Here && !there.contains_key(vol) {
            return Err(format!("volume {vol} ({}) is LOST: its creation was acknowledged", volume.name));
        }
    }
    for (&vol, found) in found {
        oracle.judge_whole(vol, found, since)?;
    }
    oracle.in_flight().try_for_each(|command| judge_command(oracle, command, &there, found, since))
}

fn judge_command(
    oracle: &Oracle,
    command: &Command,
    there: &BTreeMap<Vol, &VolumeInfo>,
    found: &BTreeMap<Vol, Vec<Found>>,
    since: Since,
) -> Result<(), String> {
    match command {
        Command::Create(vols) | Command::Remove(vols) => {
            let count = vols.iter().filter(|vol| there.contains_key(vol)).count();
            match count == 0 || count == vols.len() {
                true => Ok(()),
                false => Err(format!("{command:?} was done by halves: {count} of {} volumes are there", vols.len())),
            }
        }
        Command::Revert(target, source, true) => {
            let Some(found) = found.get(target) else { return Ok(()) };
            let source_there = there.contains_key(source);
            match source_there {
                true if oracle.is_next(*target, found, since) => {
                    Err(format!("volume {target} was reverted and its source {source} is still there"))
                }
                false if oracle.is_old(*target, found, since) => {
                    Err(format!("volume {target} was not reverted and its source {source} is gone"))
                }
                _ => Ok(()),
            }
        }
        Command::Revert(..) | Command::Resize(_) | Command::Rename(_) => Ok(()),
    }
}

/// A recovered group must work like any other: some writes, a snapshot, a removal, all verified, then a close.
async fn resume(client: &Client, seed: u64) -> Result<(), Failure> {
    let mut rng = Rng::new(seed);
    // Nothing frees space here for writes that are held.
    client.group.set_no_space_timeout(Some(Duration::from_millis(20)));
    let vols = client.oracle.lock().readable();
    {
        let mut oracle = client.oracle.lock();
        oracle.may_drop = true;
        oracle.volumes.values_mut().for_each(|volume| volume.may_become_invalid = true);
    }
    for &vol in &vols {
        // The writes of the volume before may have dropped a snapshot with a reserve.
        let Ok(volume) = client.volume(vol) else { continue };
        if volume.read_only() {
            client.oracle.lock().volumes.get_mut(&vol).expect("listed").read_only = true;
            continue;
        }
        let sectors = client.oracle.lock().volumes[&vol].sectors();
        for _ in 0..6 {
            let sector = rng.below(sectors);
            let count = rng.range(1, 24).min(sectors - sector);
            tolerate(client.write(vol, sector, count, &[]).await)?;
        }
    }
    if let Some(&vol) = vols.first() {
        tolerate(client.snapshot(&[vol], Default::default()).await.map(drop))?;
        tolerate(client.write(vol, 0, 8, &[]).await)?;
        tolerate(client.flush(vol).await)?;
    }
    if vols.len() > 2 {
        client.remove(&[*rng.pick(&vols)]).await?;
        client.group.reclaim_idle().await?;
    }
    client.note_invalid()?;
    let vols = client.oracle.lock().readable();
    for vol in vols {
        client.verify_all(vol).await?;
    }
    client.close().await?;
    Ok(())
}

fn tolerate(result: rowen_engine::error::Result<()>) -> Result<(), Failure> {
    match result {
        Ok(()) | Err(Error::NoSpace { .. } | Error::InvalidSnapshot | Error::ReadOnly) => Ok(()),
        Err(e) => Err(Failure::Refused(e)),
    }
}
