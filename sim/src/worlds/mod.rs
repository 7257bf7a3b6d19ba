//! Whole worlds. One seed decides a group, its clients, their commands, deaths, power cuts and faults.
//!
//! A world is a few *lives* of one group. A life begins with an opening and ends with a close, a power cut or the death
//! of the server. In a life, several clients work on several volumes at a time. After each life the group is opened
//! again, and the [oracle](crate::oracle) judges everything in it. At the end every volume is removed, and no block may
//! be left in use.
//!
//! * SW1 A seed decides everything: [`run`] does the same each time, down to each disk command ([`Seen::trace`]).
//! * SW2 A world that goes wrong ends with a message ([`Broken`]), never with a panic or a hang.
//! * SW3 An item that is dropped ([`Options::keep`]) changes no other: [`shrink`](shrink::shrink) finds the few that
//!   matter.

pub mod clients;
pub mod faults;
mod lost;
pub mod plan;
pub mod shrink;
pub mod tally;

use crate::client::{Client, Failure, number};
use crate::crash::{judge_group, judge_image, panic_text, read_all, survivors};
use crate::disk::{Faults, Image, Moment, POLICIES, Place, Policy, SimDisks};
use crate::exec::{Stuck, World};
use crate::fan_out::FanOut;
use crate::oracle::{Oracle, Since};
use crate::rng::Rng;
use clients::LifeState;
use faults::{FAULTS, Fault};
use parking_lot::Mutex;
use plan::{End, Event, Item, Plan};
use rowen_engine::disk::{Disks, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{Group, SegmentType, VolumeState};
use rowen_engine::planted;
use rowen_engine::runtime::Runtime;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tally::Tally;

/// How a world is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only these items of the plan.
    pub keep: Option<Vec<usize>>,
    /// Prints each event.
    pub trace: bool,
    /// A bug planted in the engine.
    pub planted: Option<&'static str>,
    pub faults: Vec<Fault>,
    /// The most states of each crash that are judged apart from the one that continues.
    pub aside: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { keep: None, trace: false, planted: None, faults: FAULTS.to_vec(), aside: 2 }
    }
}

/// The result of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub tally: Tally,
    /// Hash of every disk command and every scheduling decision.
    pub trace: u64,
}

/// A world that went wrong.
#[derive(Clone, Debug)]
pub struct Broken {
    pub seed: u64,
    pub keep: Option<Vec<usize>>,
    pub what: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "world {}: {}\n  cargo run --profile test -p rowen-sim -- {}", self.seed, self.what, self.seed)?;
        match &self.keep {
            None => Ok(()),
            Some(keep) => write!(f, " --keep {}", shrink::list(keep)),
        }
    }
}

/// Runs the world of this seed.
pub fn run(seed: u64, options: &Options) -> Result<Seen, Broken> {
    rowen_engine::planted::plant(options.planted);
    let live = || {
        let mut plan = Plan::new(seed, &options.faults);
        plan.setup.config.planted = options.planted;
        if let Some(keep) = &options.keep {
            plan.keep(keep);
        }
        if options.trace {
            eprintln!(
                "{:#?}\n{} lives, full: {}, entries of a node: {}",
                plan.setup, plan.lives, plan.is_full, plan.fan_out
            );
        }
        let _deep = FanOut::new(plan.fan_out);
        let panics = planted::is("world_panics") || planted::is("panic_ignored");
        assert!(!panics, "this world was asked to panic");
        History::new(seed, plan, options.clone()).live()
    };
    let outcome = if planted::is("panic_ignored") {
        live()
    } else {
        catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|panic| Err(format!("PANIC: {}", panic_text(&panic))))
    };
    outcome.map_err(|what| Broken { seed, keep: options.keep.clone(), what })
}

/// What there is between two lives.
enum Power {
    /// Nothing yet.
    Blank,
    /// The power was off.
    Off(Image),
    /// Only the server died.
    On(Moment),
}

/// How a life ended.
enum Ending {
    /// As its clients and the close left it.
    Finished,
    /// At the disk event that the plan names.
    Stopped,
}

struct History {
    plan: Plan,
    options: Options,
    rng: Rng,
    oracle: Arc<Mutex<Oracle>>,
    power: Power,
    since: Since,
    /// Ranges that cannot be read until they are written.
    unreadable: Vec<Place>,
    /// The disks as an earlier life left them.
    older: Option<Image>,
    /// Copies of metadata are bad: check reports it, and repair restores them.
    has_bad_metadata: bool,
    /// Any data may have been overwritten: wrong data is data that no request wrote, and a refusal ends the world.
    has_misdirected_write: bool,
    /// The group promises nothing: any end is allowed but a panic or a hang.
    may_be_anything: bool,
    /// A physical volume failed in use, and the contents were not read since.
    has_failed_in_use: bool,
    seen: Seen,
}

impl History {
    fn new(seed: u64, plan: Plan, options: Options) -> History {
        let rng = Rng::new(seed ^ 0x5EED_0F7A_11CE_0001);
        let (oracle, seen) = (Arc::new(Mutex::new(Oracle::default())), Seen::default());
        // Mirrors and stripes need free extents on several disks.
        oracle.lock().may_drop = plan.changes_pvs || plan.setup.segment != SegmentType::Linear;
        History {
            plan,
            options,
            rng,
            oracle,
            power: Power::Blank,
            since: Since::Death,
            unreadable: Vec::new(),
            older: None,
            has_bad_metadata: false,
            has_misdirected_write: false,
            may_be_anything: false,
            has_failed_in_use: false,
            seen,
        }
    }

    fn trace(&self, words: impl FnOnce() -> String) {
        if self.options.trace {
            eprintln!("{}", words());
        }
    }

    fn live(mut self) -> Result<Seen, String> {
        self.seen.tally.count("worlds");
        for life in 0..=self.plan.lives {
            let is_last = life == self.plan.lives;
            let outcome = if is_last { self.last_life() } else { self.life(life) };
            match outcome {
                Ok(()) => {}
                Err(what) if self.may_end_so(&what) => {
                    self.trace(|| format!("the world ends: {what}"));
                    self.seen.tally.count("worlds that ended with words after a fault that nothing can mend");
                    break;
                }
                Err(what) if is_last => return Err(format!("at the end: {what}")),
                Err(what) => return Err(format!("life {life}: {what}")),
            }
        }
        Ok(self.seen)
    }

    /// Whether the faults of this world allow this end.
    fn may_end_so(&self, what: &str) -> bool {
        let is_stuck = what.contains("lock: n") || what.contains("PANIC");
        let is_old =
            what.contains("LOST") || what.contains("LEAK") || what.contains("MISPLACED") || what.contains("BACK");
        !is_stuck && (self.may_be_anything || self.has_misdirected_write && !is_old)
    }

    /// Runs `future` until it ends or the disks have reached this number of events.
    fn until<T>(
        world: &World,
        disks: &SimDisks,
        events: Option<u64>,
        future: impl Future<Output = T>,
    ) -> Result<Option<T>, String> {
        let (handle, mut is_over) = (world.handle(), false);
        let mut observe = || {
            if events.is_some_and(|events| disks.events() >= events) {
                is_over = true;
                handle.stop();
            }
        };
        match world.try_run_observed(future, &mut observe) {
            Ok(value) if !is_over => Ok(Some(value)),
            Ok(_) | Err(Stuck::Stopped) => Ok(None),
            Err(stuck) => Err(stuck.to_string()),
        }
    }

    /// A world with the disks that the last life left, and the group on them.
    fn begin(&mut self, life: usize) -> Result<(World, Arc<SimDisks>, Arc<Group>), String> {
        let mut cuts: Vec<Item> = self.plan.of_life(life).copied().collect();
        cuts.retain(|item| matches!(item.what, Event::CutOpening(..)));
        for cut in cuts.iter().copied().map(Some).chain([None]) {
            let world = World::new(self.rng.bits());
            let disks = match &self.power {
                Power::Blank => {
                    let (disks, group) = self.plan.setup.make(&world).map_err(|e| format!("it is not made: {e}"))?;
                    return Ok((world, disks, group));
                }
                Power::Off(image) => {
                    let disks = SimDisks::with_image(world.handle(), members_of(image, &self.unreadable)?);
                    self.unreadable.retain(|(pv, ..)| usize::from(pv.0) < disks.count());
                    disks.set_faults(Faults { unreadable: self.unreadable.clone(), ..Faults::default() });
                    disks
                }
                Power::On(moment) => SimDisks::restarted(world.handle(), moment),
            };
            disks.set_delays(self.plan.delays);
            let opening = Group::open(disks.clone(), world.handle(), self.plan.setup.config.clone());
            let at = cut.and_then(|item| match item.what {
                Event::CutOpening(events, _) => Some(disks.events() + events),
                _ => None,
            });
            let opened = Self::until(&world, &disks, at, opening).map_err(|e| format!("opening: {e}"))?;
            self.seen.trace = self.seen.trace.rotate_left(7) ^ world.handle().trace_hash();
            match (opened, cut) {
                (Some(group), _) => {
                    let group = group.map_err(|e| format!("it does not open: {e}"))?;
                    self.unreadable.clear();
                    disks.replace_unreadable(&mut self.rng);
                    self.seen.tally.count("openings");
                    return Ok((world, disks, group));
                }
                (None, Some(Item { what: Event::CutOpening(_, policy), seed, .. })) => {
                    self.trace(|| format!("the power fails while it opens ({policy:?})"));
                    self.seen.tally.count("fault: the power fails while the group opens");
                    self.unreadable = disks.unreadable();
                    self.cut(&disks.moment(), policy, seed)?;
                }
                (None, _) => return Err("the opening ended by itself".into()),
            }
        }
        Err("it was never opened".into())
    }

    /// No copy of metadata is bad, no write was misdirected, and all promises hold.
    fn is_sound(&self) -> bool {
        !(self.has_bad_metadata || self.has_misdirected_write || self.may_be_anything)
    }

    /// The power fails. Some of the states that it may leave are judged apart. The world continues with one of them.
    fn cut(&mut self, moment: &Moment, policy: Policy, seed: u64) -> Result<(), String> {
        static SHARED: AtomicU64 = AtomicU64::new(1);
        let seed = if planted::is("worlds_share_random") { SHARED.fetch_add(1, Ordering::Relaxed) } else { seed };
        let mut rng = Rng::new(seed);
        self.seen.tally.count("crash states");
        // A group with bad copies is judged where they are repaired.
        for _ in 0..if self.is_sound() { rng.below(self.options.aside + 1) } else { 0 } {
            let policy = *rng.pick(&POLICIES);
            let image = members(&moment.power_cut(policy, &mut rng))?;
            self.seen.tally.count("crash states");
            let (setup, oracle) = (&self.plan.setup, self.oracle.lock());
            judge_image(setup, &oracle, Since::PowerLoss, image, rng.bits())
                .map_err(|what| format!("after a power cut aside ({policy:?}): {what}"))?;
        }
        self.power = Power::Off(moment.power_cut(policy, &mut rng));
        self.since = Since::PowerLoss;
        Ok(())
    }

    /// Judges the contents after an opening. From now on they are the known state.
    fn judge(&mut self, world: &World, group: &Arc<Group>) -> Result<(), String> {
        let client = Client::new(world.handle(), group.clone(), Arc::default());
        let found = world.try_run(read_all(&client)).map_err(|stuck| format!("reading: {stuck}"))??;
        let infos = group.volumes();
        let mut oracle = self.oracle.lock();
        judge_group(&oracle, &infos, &found, self.since).map_err(|what| format!("since {:?}: {what}", self.since))?;
        let mut check = world.try_run(group.check_open()).map_err(|stuck| format!("check: {stuck}"))?;
        if matches!(check, Err(Error::Busy(_))) {
            // The group's own work needed the blocks that the check held.
            let idle = world.try_run(group.reclaim_idle()).map_err(|stuck| format!("removal: {stuck}"))?;
            idle.map_err(|e| format!("removal after opening: {e}"))?;
            self.seen.tally.count("checks that were repeated");
            check = world.try_run(group.check_open()).map_err(|stuck| format!("check: {stuck}"))?;
        }
        let mut check = check.map_err(|e| format!("check after opening: {e}"))?;
        if self.has_bad_metadata && check.repairable == check.findings.len() as u64 {
            let repair = world.try_run(group.repair_open()).map_err(|stuck| format!("repair: {stuck}"))?;
            check = repair.map_err(|e| format!("repair after opening: {e}"))?;
            self.seen.tally.add_to("copies of metadata repaired by check", check.repaired.len() as u64);
            self.has_bad_metadata = false;
        }
        if let Some(first) = check.findings.first() {
            return Err(format!("check after opening has {} findings; first: {first}", check.findings.len()));
        }
        let invalid = infos.iter().filter(|info| info.state == VolumeState::Invalid);
        let invalid: BTreeMap<_, _> = invalid.map(|info| (number(info.uuid), info.name.clone())).collect();
        oracle.restart_with_invalid(survivors(&infos, found), &invalid);
        self.since = Since::Death;
        Ok(())
    }

    fn age(&self, world: &World, disks: &Arc<SimDisks>, group: &Arc<Group>) -> Arc<LifeState> {
        group.set_no_space_timeout(Some(Duration::from_micros(self.plan.no_space_timeout)));
        {
            let mut oracle = self.oracle.lock();
            (oracle.segment, oracle.is_mixed) = (self.plan.setup.segment, true);
        }
        let client = Client::new(world.handle(), group.clone(), self.oracle.clone());
        Arc::new(LifeState::new(client, disks.clone(), world.handle(), self.plan.changes_pvs, self.options.trace))
    }

    fn life(&mut self, life: usize) -> Result<(), String> {
        self.trace(|| format!("life {life}"));
        let is_first = matches!(self.power, Power::Blank);
        let (world, disks, group) = self.begin(life)?;
        disks.set_delays(self.plan.delays);
        if !is_first {
            self.judge(&world, &group)?;
        }
        let age = self.age(&world, &disks, &group);
        drop(group);
        let items: Vec<Item> = self.plan.of_life(life).copied().collect();
        let end = items.iter().find_map(|item| match item.what {
            Event::End(events, end) => Some((events + disks.events(), end, item.seed)),
            _ => None,
        });
        let running = all(age.clone(), items, self.plan.delays);
        let outcome = Self::until(&world, &disks, end.map(|end| end.0), running);
        self.seen.trace = self.seen.trace.rotate_left(7) ^ world.handle().trace_hash();
        self.seen.tally.add(&age.tally.lock());
        let stats = age.client.group.stats();
        self.seen.tally.add_to("windows brought together", stats.windows_rehomed);
        self.seen.tally.add_to("windows filled beside a snapshot", stats.windows_filled);
        let set = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::SeqCst);
        // A copy that a disk did not write is stale until a later checkpoint, or `check`, writes it.
        self.has_bad_metadata |= set(&age.has_bad_metadata) || stats.copies_not_written > 0;
        self.has_misdirected_write |= set(&age.has_misdirected_write);
        self.may_be_anything |= set(&age.may_be_anything);
        let ending = match outcome {
            Ok(Some(finished)) => finished.map(|()| Ending::Finished).map_err(|failure| failure.to_string())?,
            Ok(None) => Ending::Stopped,
            // No request is answered: the server is killed.
            Err(_) if set(&age.hangs) => {
                age.has_stopped.store(true, Ordering::SeqCst);
                Ending::Finished
            }
            Err(stuck) => return Err(stuck),
        };
        let (end, seed) = end.map_or((End::Close, life as u64), |(_, end, seed)| (end, seed));
        self.end(life, &age, ending, (end, seed))?;
        self.between(life)
    }

    /// The faults of the disks before the next life.
    fn between(&mut self, life: usize) -> Result<(), String> {
        let items: Vec<Item> = self.plan.of_life(life).copied().collect();
        for item in items {
            let Event::Between(fault) = item.what else { continue };
            if fault == Fault::Gone {
                if self.lose(item.seed)? {
                    self.seen.tally.count(fault.name());
                }
                continue;
            }
            let Power::Off(image) = &mut self.power else { continue };
            let mut rng = Rng::new(item.seed);
            match fault {
                Fault::Rot if faults::rot(image, &mut rng) => self.has_bad_metadata = true,
                Fault::Missing | Fault::Swapped if image.count() > 1 && !self.may_be_anything => {
                    let image = members(image)?;
                    let mut places: Vec<usize> = (0..image.count()).collect();
                    if fault == Fault::Missing {
                        places.remove(rng.below(places.len() as u64) as usize);
                    } else {
                        places.rotate_left(1);
                    }
                    let given = image.reordered(&places);
                    // If one joined a moment ago, only its own label may name it.
                    if image.count() < 2
                        || members(&given)
                            .is_ok_and(|known| known.count() == places.len() && places.len() < image.count())
                    {
                        continue;
                    }
                    self.refused(&given, rng.bits())?;
                }
                Fault::Stale if !self.may_be_anything && !self.has_misdirected_write => {
                    let image = members_of(image, &self.unreadable)?;
                    let Some(older) = self.older.as_ref().filter(|older| older.count().min(image.count()) > 1) else {
                        continue;
                    };
                    let pv = PvIndex(rng.below(older.count().min(image.count()) as u64) as u16);
                    self.refused(&image.with_pv_of(pv, older), rng.bits())?;
                }
                _ => continue,
            }
            self.trace(|| format!("between two lives: {fault:?}"));
            self.seen.tally.count(fault.name());
        }
        if let Power::Off(image) = &self.power {
            self.older = Some(members_of(image, &self.unreadable)?);
        }
        Ok(())
    }

    /// These are not the group's disks, or not in order: they are refused with a message, and stay as they are.
    fn refused(&self, image: &Image, seed: u64) -> Result<(), String> {
        let world = World::new(seed);
        let disks = SimDisks::with_image(world.handle(), image.clone());
        let opening = Group::open(disks.clone(), world.handle(), self.plan.setup.config.clone());
        match world.try_run(opening).map_err(|stuck| format!("opening without all disks: {stuck}"))? {
            Ok(_) => Err("it opens without all of its disks, or with two in each other's place".into()),
            Err(_) if disks.current() != *image => Err("a group that is refused is changed".into()),
            Err(_) => Ok(()),
        }
    }

    /// The disks that the life leaves.
    fn end(&mut self, life: usize, age: &LifeState, ending: Ending, (end, seed): (End, u64)) -> Result<(), String> {
        let moment = age.disks.moment();
        let mut rng = Rng::new(seed);
        if let Err(Error::DiskLost(error)) = age.client.group.failed()
            && matches!(ending, Ending::Finished)
            && self.fails_in_use(&moment, error.pv, seed)?
        {
            return Ok(());
        }
        let stopped = age.has_stopped.load(Ordering::SeqCst);
        // A group that stopped is as its server left it.
        let end = match (ending, end) {
            (Ending::Stopped, end) => end,
            (Ending::Finished, End::Close) if stopped => End::Death,
            (Ending::Finished, end) if stopped => end,
            (Ending::Finished, _) => End::Close,
        };
        self.trace(|| format!("the life ends: {end:?}"));
        match end {
            End::Close => {
                // After a close, a power cut may take nothing.
                self.power = Power::Off(moment.power_cut(Policy::Nothing, &mut rng));
                self.since = Since::PowerLoss;
            }
            End::Cut(policy) => {
                self.seen.tally.count("fault: the power fails");
                self.cut(&moment, policy, seed)?;
                self.spoil(&moment, life);
            }
            End::VolatileDeath if !age.pvs_changed.load(Ordering::SeqCst) => {
                self.seen.tally.count("fault: the server dies, the disks' caches stay volatile");
                self.seen.tally.count("crash states");
                self.power = Power::On(moment);
            }
            End::Death | End::VolatileDeath => {
                self.seen.tally.count("fault: the server dies");
                self.seen.tally.count("crash states");
                self.power = Power::Off(moment.killed(&mut rng));
            }
        }
        Ok(())
    }

    /// A power cut that spoils sectors that were being written, or makes them unreadable, if the plan says so.
    fn spoil(&mut self, moment: &Moment, life: usize) {
        let spoils = |what| matches!(what, Event::Between(Fault::Spoiled | Fault::Unreadable));
        let spoiled = self.plan.of_life(life).find(|item| spoils(item.what)).copied();
        let Some((item, Power::Off(image))) = spoiled.zip(Some(&mut self.power)) else { return };
        let mut rng = Rng::new(item.seed);
        let fault = match item.what {
            Event::Between(Fault::Spoiled) => {
                moment.spoil(image, &mut rng);
                Fault::Spoiled
            }
            _ => {
                self.unreadable = moment.unreadable(&mut rng);
                Fault::Unreadable
            }
        };
        self.oracle.lock().spoil();
        self.seen.tally.count(fault.name());
    }

    /// The group is opened once more, and every volume is removed.
    fn last_life(&mut self) -> Result<(), String> {
        self.trace(|| "the last life".into());
        let (world, disks, group) = self.begin(usize::MAX)?;
        self.judge(&world, &group)?;
        let age = self.age(&world, &disks, &group);
        drop(group);
        world.try_run(age.remove_all()).map_err(|stuck| stuck.to_string())?.map_err(|failure| failure.to_string())?;
        let disks: Arc<dyn Disks> = disks;
        let check = world.try_run(Group::check(disks)).map_err(|stuck| format!("check: {stuck}"))?;
        let check = check.map_err(|e| format!("check after the close: {e}"))?;
        self.seen.trace = self.seen.trace.rotate_left(7) ^ world.handle().trace_hash();
        match check.findings.first() {
            None => Ok(()),
            Some(first) => Err(format!("check after the close: {first}")),
        }
    }
}

/// All clients and faults of a life, and its close.
async fn all(age: Arc<LifeState>, items: Vec<Item>, delays: crate::disk::Delays) -> Result<(), Failure> {
    let mut clients: BTreeMap<u32, Vec<Item>> = BTreeMap::new();
    for item in items {
        match item.what {
            Event::Client(client, _) => clients.entry(client).or_default().push(item),
            Event::Fault(at, fault) => {
                let (age, handle) = (age.clone(), age.handle.clone());
                drop(handle.start("fault", async move {
                    age.handle.sleep(Duration::from_micros(at)).await;
                    faults::strike(&age, fault, delays, item.seed).await;
                }));
            }
            Event::End(..) | Event::CutOpening(..) | Event::Between(_) => {}
        }
    }
    let started: Vec<_> = clients
        .into_values()
        .map(|items| {
            let age = age.clone();
            let handle = age.handle.clone();
            handle.start("client", async move {
                for item in items {
                    if let Event::Client(_, act) = item.what {
                        age.act(item, act).await?;
                    }
                }
                Ok::<(), Failure>(())
            })
        })
        .collect();
    for client in started {
        client.await?;
    }
    age.finish_life().await
}

/// The disks that the newest label names, as a host finds them.
pub fn members(image: &Image) -> Result<Image, String> {
    members_of(image, &[])
}

/// The same if these places cannot be read.
fn members_of(image: &Image, unreadable: &[Place]) -> Result<Image, String> {
    let world = World::new(1);
    let disks = SimDisks::with_image(world.handle(), image.clone());
    disks.set_faults(Faults { unreadable: unreadable.to_vec(), ..Faults::default() });
    let places = world.try_run(async {
        let mut newest = (0, Vec::new());
        let mut labels = Vec::new();
        for pv in 0..disks.count() {
            // The label that is being written may be torn: that disk is in no group.
            let label = Group::read_label(&*disks, PvIndex(pv as u16)).await.unwrap_or_default();
            labels.push(label.as_ref().map(|label| label.pv_uuid));
            if let Some(group) = label.and_then(|label| label.group) {
                newest = newest.max((group.sequence, group.members));
            }
        }
        let place = |uuid| labels.iter().position(|own| own.as_ref() == Some(uuid));
        newest.1.iter().map(place).collect::<Option<Vec<_>>>()
    });
    let places = places.map_err(|stuck| format!("looking for the group: {stuck}"))?;
    Ok(image.reordered(&places.ok_or("a physical volume of the group has no label")?))
}
