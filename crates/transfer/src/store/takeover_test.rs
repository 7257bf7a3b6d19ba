//! Pushes that are taken over again and again, at a place that does not show all that it has: what is missing is an error, and no point has
//! a hole.
//!
//! Rule SO7.

use super::entry::Say;
use super::memory::{Client, Doing, Memory};
use super::tests::{Contents, PLAIN, about, pulled, push_all, stream};
use super::*;
use crate::StreamReader;
use rowen_engine::planted::must_be_found;

const BLOCKS: u64 = 3000;
/// Segments of data that the push uploads.
const SEGMENTS: usize = 6;

/// A store with a point, and what the next point will have: all of the first one's blocks are different in it, and some are zeros.
struct World {
    memory: Memory,
    base: u64,
    old: Contents,
    new: Contents,
}

fn world() -> World {
    let memory = Memory::default();
    let old: Contents = (0..400).map(|block| (block * 2, block + 1)).collect();
    let changed = old.iter().filter(|(block, _)| *block % 7 != 0);
    let new = changed.map(|(block, number)| (*block, number + 5000)).collect();
    let base = {
        let client = Client::new(&memory);
        create(&client, PLAIN).unwrap();
        push_all(&mut tests::open(&client), "first", None, (&old, BLOCKS), 0).unwrap().point
    };
    World { memory, base, old, new }
}

/// How a program goes on with a push that another one left.
type TakesOver = fn(&mut Log<'_>, u64) -> Result<Begun, StoreError>;

impl World {
    fn about(&self) -> About {
        about("second", &self.new, BLOCKS)
    }

    /// Begins the push, or goes on with it.
    fn push(&self, log: &mut Log<'_>, takes_over: TakesOver) -> Result<Pushed, StoreError> {
        let about = self.about();
        let begun = match open_job(&log.state, &about.uuid) {
            Some(job) => takes_over(log, job)?,
            None => begin(log, &about, Some(self.base), None)?,
        };
        let bytes = stream(Some(&(self.old.clone(), BLOCKS)), &self.new, BLOCKS, begun.from);
        let mut reader = StreamReader::begin(&bytes[..])?.0;
        push(log, &about, begun, &mut reader, Ways { threads: 0, tell: &mut |_, _| {} })
    }

    /// A program that dies when it has uploaded so many segments of data, or all of it.
    fn dies(&self, most: usize, takes_over: TakesOver) {
        let mut left = most;
        let fate = move |name: &str, changes: bool| {
            let is_data = changes && name.starts_with("d/");
            if changes && name.starts_with("m/") || is_data && left == 0 {
                return Doing::Dies { done: false };
            }
            left -= usize::from(is_data);
            Doing::Right
        };
        let client = Client::with(&self.memory, Box::new(fate));
        assert!(self.push(&mut tests::open(&client), takes_over).is_err(), "it did not die");
    }

    fn uploaded(&self) -> Vec<String> {
        self.memory.all.lock().unwrap().keys().filter(|name| name.starts_with("d/")).cloned().collect()
    }

    /// The push comes to its end, and its point is right.
    fn ends(&self) {
        let client = Client::new(&self.memory);
        let mut log = tests::open(&client);
        let about = self.about();
        if log.state.find(&about.uuid).is_none() {
            self.push(&mut log, take_over).unwrap();
        }
        self.memory.hidden.lock().unwrap().clear();
        let (point, _) = log.state.find(&about.uuid).unwrap();
        assert!(pulled(&log, point, None).unwrap() == self.new, "the point has a hole");
        let checked = check(&log, true, &mut |_, _| {}).unwrap();
        assert!(checked.damaged.is_empty() && checked.faults.is_empty(), "{checked:?}");
    }
}

/// Two programs die, each after so many segments of data. The third one is not shown one of them. It gives out whether that is an error.
fn third(each: [usize; 2], hidden: usize, second: TakesOver) -> bool {
    let world = world();
    let before = world.uploaded().len();
    world.dies(each[0], take_over);
    world.dies(each[1], second);
    let name = world.uploaded()[before + hidden].clone();
    world.memory.hidden.lock().unwrap().insert(name.clone());
    let client = Client::new(&world.memory);
    let outcome = world.push(&mut tests::open(&client), take_over);
    match &outcome {
        Ok(_) => {}
        Err(error) => assert!(error.to_string().contains(&name), "{name} is hidden: {error}"),
    }
    world.memory.hidden.lock().unwrap().clear();
    world.ends();
    outcome.is_err()
}

/// What the programs uploaded before they died, and which segment of it is hidden then.
fn all(mut check: impl FnMut([usize; 2], usize)) {
    for first in 1..=SEGMENTS {
        for second in 0..=SEGMENTS - first {
            (0..first + second).for_each(|hidden| check([first, second], hidden));
        }
    }
}

fn no_hole() {
    all(|each, hidden| {
        let _is_error = third(each, hidden, take_over);
    });
}

#[test]
fn a_segment_that_is_hidden_leaves_no_hole() {
    // What the second program counted on is missing: an error. What came later is missing: it is uploaded again.
    all(|each, hidden| assert_eq!(third(each, hidden, take_over), hidden < each[0], "{each:?}, {hidden} is hidden"));
    must_be_found("store_gaps_pass", no_hole);
}

/// As a program goes on that does not say where.
fn older(log: &mut Log<'_>, job: u64) -> Result<Begun, StoreError> {
    let open = log.state.jobs[&job].clone();
    let (kept, from) = push::uploaded(log, &open.attempts)?;
    let numbers = log.state.free(&[(Kind::Data, 2), (Kind::Map, 2)]);
    let made = log.add(|_| Ok(Some(Say::TakeOver { job, from: None, numbers: numbers.clone() })))?;
    Ok(Begun { job: made.unwrap().0, base: open.base, numbers, kept, from })
}

fn no_hole_after_older_programs() {
    // What is in the segments of the second one is uploaded again: nobody knows whether something is missing before it.
    all(|each, hidden| assert!(!third(each, hidden, older), "{each:?}, {hidden} is hidden"));
}

#[test]
fn a_program_that_does_not_say_where_it_begins_is_not_counted_on() {
    no_hole_after_older_programs();
    must_be_found("store_begin_guessed", no_hole_after_older_programs);
}

/// What a program did not see belongs to nobody, also when it shows up later.
#[test]
fn what_shows_up_later_is_not_counted_on() {
    for hidden in 0..2 {
        let world = world();
        let before = world.uploaded().len();
        world.dies(3, take_over);
        let name = world.uploaded()[before + hidden].clone();
        world.memory.hidden.lock().unwrap().insert(name);
        world.dies(1, take_over);
        world.memory.hidden.lock().unwrap().clear();
        world.dies(1, take_over);
        world.ends();
        let uploaded = world.uploaded().len() - before;
        assert_eq!(uploaded, SEGMENTS + 3 - hidden, "segment {hidden} was hidden");
    }
}

/// A job that was given up is over, also if its segments are gone.
#[test]
fn a_job_that_was_given_up_has_lost_nothing() {
    let world = world();
    world.dies(2, take_over);
    world.dies(1, take_over);
    let client = Client::new(&world.memory);
    let mut log = tests::open(&client);
    let job = open_job(&log.state, &world.about().uuid).unwrap();
    let other = Client::new(&world.memory);
    let mut other = tests::open(&other);
    abandon(&mut other, |_, _| true).unwrap();
    clean(&mut other, false, &mut |_, _| {}).unwrap();
    let how = take_over(&mut log, job).err().unwrap();
    assert!(matches!(how, StoreError::JobIsOver { .. }), "{how}");
    world.ends();
}

/// A log in which nobody said where he goes on, and a state that was kept then, are read as they were.
#[test]
fn older_logs_and_states_are_read() {
    let world = world();
    world.dies(2, take_over);
    for _ in 0..20 {
        world.dies(0, older);
    }
    let client = Client::new(&world.memory);
    let log = tests::open(&client);
    let kept = log::EVERY;
    let mut state = State::new(tests::STORE);
    let mut taken_over = 0;
    for number in 1..=kept {
        let name = entry::entry_name(number);
        let bytes = world.memory.all.lock().unwrap()[&name].clone();
        // The kinds that older programs did not know begin with 8.
        assert!(bytes[6] < 8, "entry {number} is not as older programs wrote it");
        taken_over += u64::from(bytes[6] == 3);
        state.apply(&entry::Entry::decode(&log.seal, number, &bytes).unwrap(), entry::hash_of(&bytes)).unwrap();
    }
    assert!(taken_over > 3);
    assert_eq!(state.jobs.values().next().unwrap().attempts.last().unwrap().from, None);
    let name = entry::state_name(kept);
    let older = state.encode_as(state::WITHOUT_FROM, &log.seal);
    assert!(State::decode(&log.seal, tests::STORE, kept, &older).unwrap() == state);
    world.memory.all.lock().unwrap().insert(name, older);
    world.dies(1, take_over);
    world.ends();
}
