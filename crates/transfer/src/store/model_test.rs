//! Two writers, a cleaner and a reader at one store, one request at a time in an order that a seed decides: with requests that fail, lose
//! their answers or land later, and programs that die at any of them and start again. Whatever happens, every point that the log has reads
//! right, and nothing that it needs is deleted.
//!
//! Rules SO1, SO2, SO3, SO4 and SO5.

use super::memory::{Client, Doing, Memory};
use super::tests::{Contents, PLAIN, Random, about, pulled, push_all, stream, uuid_of};
use super::*;
use crate::StreamReader;
use rowen_engine::planted::{must_be_found, plant};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

const BLOCKS: u64 = 1500;

/// Who may make the next request, and what becomes of it.
#[derive(Default)]
struct Turn {
    waiting: Vec<usize>,
    granted: Option<(usize, Doing)>,
    running: usize,
}

#[derive(Clone, Default)]
struct Turns(Arc<(Mutex<Turn>, Condvar)>);

impl Turns {
    /// Of an actor: waits until it may make a request.
    fn ask(&self, actor: usize) -> Doing {
        let (turn, changed) = &*self.0;
        let mut turn = turn.lock().unwrap();
        turn.waiting.push(actor);
        turn.running -= 1;
        changed.notify_all();
        let mut turn = changed.wait_while(turn, |turn| turn.granted.is_none_or(|(to, _)| to != actor)).unwrap();
        turn.granted.take().unwrap().1
    }

    fn ended(&self) {
        let (turn, changed) = &*self.0;
        turn.lock().unwrap().running -= 1;
        changed.notify_all();
    }

    /// Gives turns until all actors have ended.
    fn give(&self, random: &mut Random, memory: &Memory) {
        let (turn, changed) = &*self.0;
        loop {
            let turn = turn.lock().unwrap();
            let mut turn = changed.wait_while(turn, |turn| turn.running > 0).unwrap();
            if turn.waiting.is_empty() {
                return;
            }
            turn.waiting.sort_unstable();
            let next = random.below(turn.waiting.len() as u64) as usize;
            let actor = turn.waiting.remove(next);
            if random.below(8) == 0 {
                memory.land(random.below(8) as usize);
            }
            let doing = match random.below(100) {
                0..4 => Doing::Fails,
                4..8 => Doing::NoAnswer,
                8..12 => Doing::Late,
                12 => Doing::Dies { done: false },
                13 => Doing::Dies { done: true },
                _ => Doing::Right,
            };
            turn.granted = Some((actor, doing));
            turn.running += 1;
            changed.notify_all();
        }
    }
}

/// What each point has, by its identity.
type Known = Mutex<BTreeMap<[u8; 16], Contents>>;

/// What all actors have.
struct World<'w> {
    memory: &'w Memory,
    turns: Turns,
    known: &'w Known,
}

impl World<'_> {
    fn client(&self, actor: usize) -> Client<'_> {
        let turns = self.turns.clone();
        Client::with(self.memory, Box::new(move |_, _| turns.ask(actor)))
    }
}

fn open_as<'c>(client: &'c Client<'_>, actor: usize, life: u8) -> Result<Log<'c>, StoreError> {
    Log::open(client, PLAIN, [actor as u8 * 16 + life; 16], || 1_790_000_000, None)
}

/// Pushes what a job that this writer left has, or something new.
fn write(
    world: &World<'_>,
    (actor, life): (usize, u8),
    random: &mut Random,
    left: &mut Option<(Contents, String)>,
) -> Result<(), StoreError> {
    let client = world.client(actor);
    let mut log = open_as(&client, actor, life)?;
    for round in 0..2 {
        let bases: Vec<(u64, [u8; 16])> = log.state.points.iter().map(|(n, point)| (*n, point.about.uuid)).collect();
        let base = (!bases.is_empty()).then(|| bases[random.below(bases.len() as u64) as usize]);
        let of = |uuid: [u8; 16]| world.known.lock().unwrap()[&uuid].clone();
        let (contents, name) = left.take().unwrap_or_else(|| {
            let mut contents = base.map_or_else(Contents::new, |(_, uuid)| of(uuid));
            random.change(&mut contents, BLOCKS);
            (contents, format!("w{actor}-{life}-{round}"))
        });
        let about = about(&name, &contents, BLOCKS);
        world.known.lock().unwrap().insert(about.uuid, contents.clone());
        *left = Some((contents.clone(), name));
        if log.state.find(&about.uuid).is_some() {
            *left = None;
            continue;
        }
        let begun = match open_job(&log.state, &about.uuid) {
            Some(job) => take_over(&mut log, job)?,
            None => begin(&mut log, &about, base.map(|(number, _)| number), None)?,
        };
        let old = begun.base.and_then(|base| log.state.needed_point(base)).map(|point| (of(point.about.uuid), BLOCKS));
        let bytes = stream(old.as_ref(), &contents, BLOCKS, begun.from);
        let mut reader = StreamReader::begin(&bytes[..])?.0;
        push(&mut log, &about, begun, &mut reader, Ways { threads: 0, tell: &mut |_, _| {} })?;
        *left = None;
    }
    Ok(())
}

/// Gives up jobs that may be alive, forgets points, and deletes.
fn tidy(world: &World<'_>, (actor, life): (usize, u8), random: &mut Random) -> Result<(), StoreError> {
    let client = world.client(actor);
    let mut log = open_as(&client, actor, life)?;
    for _ in 0..3 {
        match random.below(3) {
            0 => {
                let chosen = random.below(4);
                abandon(&mut log, |number, _| number % 4 == chosen)?;
            }
            1 => {
                let points: Vec<u64> = log.state.points.keys().copied().filter(|_| random.below(2) == 0).collect();
                forget(&mut log, &points)?;
            }
            _ => {}
        }
        clean(&mut log, false, &mut |_, _| {})?;
    }
    Ok(())
}

/// Reads points: each is right, or was forgotten meanwhile.
fn read(world: &World<'_>, (actor, life): (usize, u8), random: &mut Random) -> Result<(), StoreError> {
    let client = world.client(actor);
    let mut log = open_as(&client, actor, life)?;
    for _ in 0..4 {
        log.catch_up()?;
        let points: Vec<u64> = log.state.points.keys().copied().collect();
        let Some(point) = points.get(random.below(points.len().max(1) as u64) as usize) else { continue };
        let uuid = log.state.points[point].about.uuid;
        match pulled(&log, *point, None) {
            Ok(contents) => assert!(contents == world.known.lock().unwrap()[&uuid], "a reader got what nobody wrote"),
            Err(StoreError::Missing { name }) => {
                log.catch_up()?;
                assert!(!log.state.points.contains_key(point), "{name} is missing, and a point needs it");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One history.
fn history(seed: u64, bug: Option<&'static str>) {
    let memory = Memory::default();
    let known = Known::default();
    {
        let client = Client::new(&memory);
        create(&client, PLAIN).unwrap();
        let mut log = Log::open(&client, PLAIN, [1; 16], || 0, None).unwrap();
        let mut contents = Contents::new();
        Random(seed).change(&mut contents, BLOCKS);
        known.lock().unwrap().insert(uuid_of(&contents, BLOCKS), contents.clone());
        push_all(&mut log, "first", None, (&contents, BLOCKS), 0).unwrap();
    }
    let world = World { memory: &memory, turns: Turns::default(), known: &known };
    world.turns.0.0.lock().unwrap().running = 4;
    std::thread::scope(|scope| {
        let actors: Vec<_> = (0..4)
            .map(|actor| {
                let world = &world;
                scope.spawn(move || {
                    plant(bug);
                    // Also if it panics, the others come to their end.
                    let _ended = Ended(&world.turns);
                    act(world, actor, seed);
                })
            })
            .collect();
        world.turns.give(&mut Random(seed ^ 0x5eed), &memory);
        for actor in actors {
            if let Err(panic) = actor.join() {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    });
    verdict(seed, &memory, &known);
}

struct Ended<'t>(&'t Turns);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Lives of an actor, one after the other.
fn act(world: &World<'_>, actor: usize, seed: u64) {
    let mut random = Random(seed * 4 + actor as u64);
    let mut left = None;
    for life in 0..4 {
        let outcome = match actor {
            0 | 1 => write(world, (actor, life), &mut random, &mut left),
            2 => tidy(world, (actor, life), &mut random),
            _ => read(world, (actor, life), &mut random),
        };
        match outcome {
            Ok(()) => return,
            // It died, or somebody gave its job up, or forgot its base: it starts again.
            Err(StoreError::Request { .. } | StoreError::JobIsOver { .. } | StoreError::Refused(_)) => {}
            // What a cleaner deleted under a writer whose job it had given up before.
            Err(StoreError::Missing { .. }) if actor < 2 => {}
            Err(error) => panic!("actor {actor}: {error}"),
        }
    }
}

fn verdict(seed: u64, memory: &Memory, known: &Known) {
    while !memory.late.lock().unwrap().is_empty() {
        memory.land(0);
    }
    let client = Client::new(memory);
    let mut log = Log::open(&client, PLAIN, [99; 16], || 0, None).unwrap();
    for (number, point) in &log.state.points {
        let contents =
            pulled(&log, *number, None).unwrap_or_else(|error| panic!("seed {seed}: {}: {error}", point.about.point));
        assert!(contents == known.lock().unwrap()[&point.about.uuid], "seed {seed}: {} is wrong", point.about.point);
    }
    let checked = check(&log, true, &mut |_, _| {}).unwrap();
    assert!(checked.damaged.is_empty() && checked.faults.is_empty(), "seed {seed}: {checked:?}");
    assert!(memory.wrongs.lock().unwrap().is_empty(), "seed {seed}: {:?}", memory.wrongs.lock().unwrap());
    abandon(&mut log, |_, _| true).unwrap();
    clean(&mut log, false, &mut |_, _| {}).unwrap();
    sweep(&log).unwrap();
    let checked = check(&log, true, &mut |_, _| {}).unwrap();
    assert!(checked.unused.is_empty() && checked.damaged.is_empty(), "seed {seed}: {checked:?}");
}

const SEEDS: u64 = 60;

#[test]
fn no_interleaving_loses_a_point() {
    (0..SEEDS).for_each(|seed| history(seed, None));
}

#[test]
fn planted_bugs_are_found() {
    for bug in [
        "store_entry_replaced",
        "store_numbers_again",
        "store_abandoned_open",
        "store_base_not_held",
        "store_commit_first",
        "store_open_jobs_cleaned",
    ] {
        must_be_found(bug, move || (0..SEEDS).for_each(|seed| history(seed, Some(bug))));
    }
}

/// SO1: a store that lets two creates of one name win is noticed by the next reader.
fn two_win() {
    let memory = Memory { is_broken: true, ..Memory::default() };
    let client = Client::new(&memory);
    create(&client, PLAIN).unwrap();
    let (mut one, mut other) = (
        Log::open(&client, PLAIN, [1; 16], || 0, None).unwrap(),
        Log::open(&client, PLAIN, [2; 16], || 0, None).unwrap(),
    );
    let contents = Contents::from([(1, 1)]);
    begin(&mut one, &about("one", &contents, 10), None, None).unwrap();
    // This one looked before that entry was there.
    let entry = memory.all.lock().unwrap().remove("log/0000000000000001").unwrap();
    begin(&mut other, &about("other", &contents, 10), None, None).unwrap();
    assert!(entry != memory.all.lock().unwrap()["log/0000000000000001"]);
    begin(&mut other, &about("more", &contents, 10), None, None).unwrap();
    let refused = begin(&mut one, &about("again", &contents, 10), None, None);
    assert!(matches!(refused, Err(StoreError::Broken(_))), "nobody noticed");
}

#[test]
fn a_store_that_lets_two_creates_win_is_noticed() {
    two_win();
    must_be_found("store_chain_unread", two_win);
}
