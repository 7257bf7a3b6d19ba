//! What a store has: a function of its log alone, so that all who read the same entries know the same.

use super::entry::{About, Entry, Kind, Numbers, Say, Table, numbers, put_numbers, state_name};
use super::error::{Result, StoreError};
use super::seal::{From, Seal, put_number};
use rowen_engine::planted;
use std::collections::BTreeMap;

const MAGIC: [u8; 4] = *b"RwSt";
const VERSION: u16 = 2;
/// The version in which no attempt said with which block it goes on.
pub(super) const WITHOUT_FROM: u16 = 1;

/// A program that worked at a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// It went on with this block of the volume (SO7). None: nobody knows.
    pub from: Option<u64>,
    /// Its numbers, in the order in which they are used.
    pub numbers: Vec<Numbers>,
}

/// A push that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub writer: [u8; 16],
    /// When its last entry was made, as its writer's clock said.
    pub time: u64,
    pub about: About,
    /// The point that it is made of changes of: by the number of its Commit.
    pub base: Option<u64>,
    /// The programs that worked at it, one after the other.
    pub attempts: Vec<Attempt>,
}

impl Job {
    pub fn numbers(&self) -> impl Iterator<Item = &Numbers> {
        self.attempts.iter().flat_map(|attempt| &attempt.numbers)
    }
}

/// A point of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub about: About,
    pub table: Table,
    /// When it was pushed.
    pub time: u64,
}

/// What became of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Valid,
    /// It says what cannot be any more: it changed nothing.
    Void(String),
}

/// What a store has after an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub store: [u8; 16],
    /// The number of the next entry, and the hash of the one before it.
    pub next_entry: u64,
    pub hash: [u8; 32],
    /// No segment has this number or a higher one.
    pub next_number: u64,
    pub jobs: BTreeMap<u64, Job>,
    /// By the number of the Commit.
    pub points: BTreeMap<u64, Point>,
    /// Points that were forgotten while they were the base of open jobs (SO3).
    pub held: BTreeMap<u64, Point>,
    /// Numbers of jobs that ended, which may have objects.
    pub ended: Vec<Numbers>,
    /// How jobs ended that ended last, for messages.
    pub last_ends: BTreeMap<u64, String>,
}

/// Ends of jobs that are remembered.
const ENDS: usize = 64;

impl State {
    /// Of a store whose log is empty. Its first entry has the number 1.
    pub fn new(store: [u8; 16]) -> State {
        State {
            store,
            next_entry: 1,
            hash: blake3::derive_key("rowen store 1 log", &store),
            next_number: 1,
            jobs: BTreeMap::new(),
            points: BTreeMap::new(),
            held: BTreeMap::new(),
            ended: Vec::new(),
            last_ends: BTreeMap::new(),
        }
    }

    /// What the next entry changes. An error: the store let two creates of one name win, or lost an entry (SO1).
    pub fn apply(&mut self, entry: &Entry, hash: [u8; 32]) -> Result<Outcome> {
        if entry.number != self.next_entry || (entry.before != self.hash && !planted::is("store_chain_unread")) {
            return Err(StoreError::Broken(format!(
                "entry {} of its log does not follow entry {}: the store lost an entry, or let two programs create it",
                entry.number,
                self.next_entry - 1
            )));
        }
        self.next_entry += 1;
        self.hash = hash;
        let outcome = self.say(entry);
        while self.last_ends.len() > ENDS {
            self.last_ends.pop_first();
        }
        let bases: Vec<u64> = self.jobs.values().filter_map(|job| job.base).collect();
        self.held.retain(|point, _| bases.contains(point));
        Ok(outcome)
    }

    fn say(&mut self, entry: &Entry) -> Outcome {
        match &entry.say {
            Say::Begin { about, base, numbers } => {
                if let Some(base) = base.filter(|base| !self.points.contains_key(base)) {
                    return Outcome::Void(format!("point {base} was forgotten"));
                }
                if !self.take(numbers) {
                    return Outcome::Void("its numbers are not free".into());
                }
                let job = Job {
                    writer: entry.writer,
                    time: entry.time,
                    about: about.clone(),
                    base: *base,
                    attempts: vec![Attempt { from: Some(0), numbers: numbers.clone() }],
                };
                self.jobs.insert(entry.number, job);
            }
            Say::More { job, numbers } => {
                if !self.jobs.contains_key(job) {
                    return self.not_open(*job);
                }
                if !self.take(numbers) {
                    return Outcome::Void("its numbers are not free".into());
                }
                let job = self.jobs.get_mut(job).expect("it is there");
                if let Some(attempt) = job.attempts.last_mut() {
                    attempt.numbers.extend(numbers);
                }
                job.time = entry.time;
            }
            Say::TakeOver { job, from, numbers } => {
                if !self.jobs.contains_key(job) {
                    return self.not_open(*job);
                }
                if !self.take(numbers) {
                    return Outcome::Void("its numbers are not free".into());
                }
                let mut taken = self.jobs.remove(job).expect("it is there");
                self.last_ends.insert(*job, "taken over".into());
                taken.attempts.push(Attempt { from: *from, numbers: numbers.clone() });
                (taken.writer, taken.time) = (entry.writer, entry.time);
                self.jobs.insert(entry.number, taken);
            }
            Say::Commit { job, table } => {
                let Some(ended) = self.end(*job, "ended") else { return self.not_open(*job) };
                self.points.insert(entry.number, Point { about: ended.about, table: *table, time: entry.time });
            }
            Say::Abandon { job } => {
                if let Some(open) = self.jobs.get(job).filter(|_| planted::is("store_abandoned_open")) {
                    self.ended.extend(open.numbers());
                    return Outcome::Valid;
                }
                if self.end(*job, "given up").is_none() {
                    return self.not_open(*job);
                }
            }
            Say::Forget { points } => {
                for point in points {
                    if let Some(forgotten) = self.points.remove(point)
                        && !planted::is("store_base_not_held")
                    {
                        self.held.insert(*point, forgotten);
                    }
                }
            }
            Say::Cleaned { numbers } => self.ended = without(&self.ended, numbers),
        }
        Outcome::Valid
    }

    fn not_open(&self, job: u64) -> Outcome {
        Outcome::Void(self.how_ended(job))
    }

    /// How a job ended that is not open.
    pub fn how_ended(&self, job: u64) -> String {
        self.last_ends.get(&job).map_or("ended", String::as_str).to_owned()
    }

    fn end(&mut self, job: u64, how: &str) -> Option<Job> {
        let ended = self.jobs.remove(&job)?;
        self.ended.extend(ended.numbers());
        self.last_ends.insert(job, how.to_owned());
        Some(ended)
    }

    /// SO2: numbers are given once. They are all above those that were given before.
    fn take(&mut self, numbers: &[Numbers]) -> bool {
        let mut next = self.next_number;
        for range in numbers {
            if range.first < next || range.count == 0 {
                return false;
            }
            next = range.end();
        }
        if !planted::is("store_numbers_again") {
            self.next_number = next;
        }
        true
    }

    /// Free numbers for a job.
    pub fn free(&self, wanted: &[(Kind, u64)]) -> Vec<Numbers> {
        let mut next = self.next_number;
        let ranges = wanted.iter().map(|(kind, count)| {
            let range = Numbers { kind: *kind, first: next, count: *count };
            next = range.end();
            range
        });
        ranges.collect()
    }

    /// The point of a volume with this identity, or else any.
    pub fn find(&self, uuid: &[u8; 16]) -> Option<(u64, &Point)> {
        let mut with = self.points.iter().rev().filter(|(_, point)| point.about.uuid == *uuid);
        with.next().map(|(number, point)| (*number, point))
    }

    /// A point of the state, or a base of an open job.
    pub fn needed_point(&self, number: u64) -> Option<&Point> {
        self.points.get(&number).or_else(|| self.held.get(&number))
    }

    /// Points that cleaning must leave whole (SO4, SO5).
    pub fn needed(&self) -> impl Iterator<Item = (u64, &Point)> {
        self.points.iter().chain(&self.held).map(|(number, point)| (*number, point))
    }

    pub fn encode(&self, seal: &Seal) -> Vec<u8> {
        self.encode_as(VERSION, seal)
    }

    /// As programs of this version wrote it.
    pub(super) fn encode_as(&self, version: u16, seal: &Seal) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(version.to_le_bytes());
        out.extend(self.store);
        out.extend(self.next_entry.to_le_bytes());
        out.extend(self.hash);
        put_number(&mut out, self.next_number);
        put_number(&mut out, self.jobs.len() as u64);
        for (number, job) in &self.jobs {
            put_number(&mut out, *number);
            out.extend(job.writer);
            put_number(&mut out, job.time);
            job.about.put(&mut out);
            put_number(&mut out, job.base.unwrap_or(0));
            put_number(&mut out, job.attempts.len() as u64);
            for attempt in &job.attempts {
                if version != WITHOUT_FROM {
                    // 0: nobody knows.
                    put_number(&mut out, attempt.from.map_or(0, |from| from + 1));
                }
                put_numbers(&mut out, &attempt.numbers);
            }
        }
        for points in [&self.points, &self.held] {
            put_number(&mut out, points.len() as u64);
            for (number, point) in points {
                put_number(&mut out, *number);
                point.about.put(&mut out);
                point.table.put(&mut out);
                put_number(&mut out, point.time);
            }
        }
        put_numbers(&mut out, &self.ended);
        put_number(&mut out, self.last_ends.len() as u64);
        for (number, how) in &self.last_ends {
            put_number(&mut out, *number);
            super::seal::put_text(&mut out, how);
        }
        seal.sealed(&state_name(self.next_entry - 1), out)
    }

    /// The state after an entry.
    pub fn decode(seal: &Seal, store: [u8; 16], after: u64, bytes: &[u8]) -> Result<State> {
        let name = state_name(after);
        let mut from = From::new(&name, seal.opened(&name, bytes)?);
        if from.array::<4>()? != MAGIC {
            return Err(from.damaged("it is no state"));
        }
        let version = from.u16()?;
        if !matches!(version, WITHOUT_FROM | VERSION) {
            return Err(StoreError::Newer(format!("a state of version {version}")));
        }
        if from.array::<16>()? != store || from.u64()? != after + 1 {
            return Err(from.damaged("it is of another store, or of another entry"));
        }
        let mut state = State { next_entry: after + 1, hash: from.array()?, ..State::new(store) };
        state.next_number = from.number()?;
        for _ in 0..from.count(64)? {
            let number = from.number()?;
            let mut job = Job {
                writer: from.array()?,
                time: from.number()?,
                about: About::read(&mut from)?,
                base: Some(from.number()?).filter(|base| *base > 0),
                attempts: Vec::new(),
            };
            for place in 0..from.count(1)? {
                let begins = match version {
                    // The first one had nothing to go on with.
                    WITHOUT_FROM => (place == 0).then_some(0),
                    _ => from.number()?.checked_sub(1),
                };
                job.attempts.push(Attempt { from: begins, numbers: numbers(&mut from)? });
            }
            state.jobs.insert(number, job);
        }
        for held in [false, true] {
            for _ in 0..from.count(32)? {
                let number = from.number()?;
                let point =
                    Point { about: About::read(&mut from)?, table: Table::read(&mut from)?, time: from.number()? };
                if held { &mut state.held } else { &mut state.points }.insert(number, point);
            }
        }
        state.ended = numbers(&mut from)?;
        for _ in 0..from.count(2)? {
            let number = from.number()?;
            state.last_ends.insert(number, from.text()?);
        }
        from.end()?;
        Ok(state)
    }
}

/// Ranges without the numbers of others.
fn without(ranges: &[Numbers], gone: &[Numbers]) -> Vec<Numbers> {
    let mut left = Vec::new();
    for range in ranges {
        let mut first = range.first;
        let mut cuts: Vec<&Numbers> =
            gone.iter().filter(|cut| cut.kind == range.kind && cut.first < range.end() && cut.end() > first).collect();
        cuts.sort_by_key(|cut| cut.first);
        for cut in cuts {
            if cut.first > first {
                left.push(Numbers { first, count: cut.first - first, ..*range });
            }
            first = first.max(cut.end());
        }
        if first < range.end() {
            left.push(Numbers { first, count: range.end() - first, ..*range });
        }
    }
    left
}

/// Numbers as ranges.
pub fn ranges_of(numbers: impl IntoIterator<Item = (Kind, u64)>) -> Vec<Numbers> {
    let mut ranges: Vec<Numbers> = Vec::new();
    for (kind, number) in numbers {
        match ranges.last_mut() {
            Some(last) if last.kind == kind && last.end() == number => last.count += 1,
            _ => ranges.push(Numbers { kind, first: number, count: 1 }),
        }
    }
    ranges
}
