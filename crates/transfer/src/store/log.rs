//! Reads a store's log to its end, and adds entries to it.

use super::entry::{Entry, HEAD, HEADER, Kind, Numbers, Say, entry_name, hash_of, state_name};
use super::error::{Result, StoreError};
use super::objects::{self, Objects};
use super::seal::{From, Seal};
use super::state::{Outcome, State};
use rowen_engine::planted;

const MAGIC: [u8; 4] = *b"RwSo";
const VERSION: u16 = 1;
/// The feature of a store whose objects are encrypted.
const ENCRYPTED: u64 = 1;
/// A state is kept after as many entries.
pub const EVERY: u64 = 16;

/// An entry of a log that somebody saw: a log that has not got it went back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub entry: u64,
    pub hash: [u8; 32],
}

/// A store that is open, and the part of its log that was read.
pub struct Log<'a> {
    pub objects: &'a dyn Objects,
    pub seal: Seal,
    pub state: State,
    writer: [u8; 16],
    clock: Box<dyn Fn() -> u64 + 'a>,
}

/// What is to be known of a store before anything else of it is read. It is never encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub store: [u8; 16],
    /// All other objects are encrypted, but for its keys.
    pub is_encrypted: bool,
}

/// Makes a store if the place has none. Returns what is there then.
pub fn create(objects: &dyn Objects, fresh: Header) -> Result<Header> {
    if let Some(there) = identify(objects)? {
        return Ok(there);
    }
    let features = if fresh.is_encrypted { ENCRYPTED } else { 0 };
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(features.to_le_bytes());
    out.extend(fresh.store);
    let out = Seal::plain(fresh.store).sealed(HEADER, out);
    match objects::create(objects, HEADER, &out)? {
        None => Ok(fresh),
        Some(there) => header(&there),
    }
}

/// The store that is there.
pub fn identify(objects: &dyn Objects) -> Result<Option<Header>> {
    objects::get(objects, HEADER, None)?.map(|bytes| header(&bytes)).transpose()
}

fn header(bytes: &[u8]) -> Result<Header> {
    let mut from = From::new(HEADER, bytes);
    if from.array::<4>()? != MAGIC {
        return Err(from.damaged("it is no store of rowen"));
    }
    let version = from.u16()?;
    if version != VERSION {
        return Err(StoreError::Newer(format!("it has version {version}, and this program knows version {VERSION}")));
    }
    let features = from.u64()?;
    let unknown = features & !ENCRYPTED;
    if unknown != 0 {
        return Err(StoreError::Newer(format!("it has features {unknown:#x}, which this program does not know")));
    }
    let store = from.array()?;
    Seal::plain(store).opened(HEADER, bytes)?;
    Ok(Header { store, is_encrypted: features & ENCRYPTED != 0 })
}

impl<'a> Log<'a> {
    /// Opens the store with this header, and reads its log to the end. `seen`: the last entry that this host saw. Its log must still
    /// have it: all entries from there on are read.
    pub fn open(
        objects: &'a dyn Objects,
        expected: Header,
        writer: [u8; 16],
        clock: impl Fn() -> u64 + 'a,
        seen: Option<Seen>,
    ) -> Result<Log<'a>> {
        match identify(objects)? {
            Some(there) if there == expected => Log::read(objects, there.store, writer, clock, seen),
            Some(_) => Err(StoreError::Refused("another store is there than the one that was added".into())),
            None => Err(StoreError::Refused("there is no store of rowen".into())),
        }
    }

    /// Opens a store as [`Log::open`] does, if its header was read before and is the right one.
    pub fn read(
        objects: &'a dyn Objects,
        store: [u8; 16],
        writer: [u8; 16],
        clock: impl Fn() -> u64 + 'a,
        seen: Option<Seen>,
    ) -> Result<Log<'a>> {
        let seal = Seal::plain(store);
        let mut log = Log { objects, seal, state: State::new(store), writer, clock: Box::new(clock) };
        log.state = log.nearest(seen)?;
        if seen.is_some_and(|seen| seen.entry == log.seen().entry && seen.hash != log.state.hash) {
            return Err(replaced(log.state.next_entry - 1));
        }
        log.catch_up_past(seen)?;
        if let Some(seen) = seen.filter(|seen| log.state.next_entry <= seen.entry) {
            return Err(StoreError::Broken(format!(
                "its log ends at entry {}, and this host saw entry {}: the store went back in time",
                log.state.next_entry - 1,
                seen.entry
            )));
        }
        Ok(log)
    }

    /// What this host saw last.
    pub fn seen(&self) -> Seen {
        Seen { entry: self.state.next_entry - 1, hash: self.state.hash }
    }

    /// The newest kept state that the hint leads to, and that is not past what was seen. Without hint or states, the beginning.
    fn nearest(&self, seen: Option<Seen>) -> Result<State> {
        let begin = State::new(self.state.store);
        let Some(hint) = objects::get(self.objects, HEAD, None)?.and_then(|bytes| hinted(&self.seal, &bytes)) else {
            return Ok(begin);
        };
        let seen = seen.filter(|_| !planted::is("store_past_unread"));
        let newest = hint.min(seen.map_or(hint, |seen| seen.entry)) / EVERY * EVERY;
        for back in [0, EVERY, 2 * EVERY] {
            let Some(after) = newest.checked_sub(back).filter(|after| *after > 0) else { break };
            let Some(bytes) = objects::get(self.objects, &state_name(after), None)? else { continue };
            match State::decode(&self.seal, self.state.store, after, &bytes) {
                // It follows from the log, which is read instead.
                Err(StoreError::Damaged { .. }) => {}
                outcome => return outcome,
            }
        }
        Ok(begin)
    }

    pub fn catch_up(&mut self) -> Result<()> {
        self.catch_up_past(None)
    }

    fn catch_up_past(&mut self, seen: Option<Seen>) -> Result<()> {
        loop {
            let number = self.state.next_entry;
            let Some(bytes) = objects::get(self.objects, &entry_name(number), None)? else { return Ok(()) };
            self.take(number, &bytes)?;
            if seen.is_some_and(|seen| seen.entry == number && seen.hash != self.state.hash) {
                return Err(replaced(number));
            }
        }
    }

    fn take(&mut self, number: u64, bytes: &[u8]) -> Result<Outcome> {
        let entry = Entry::decode(&self.seal, number, bytes)?;
        self.state.apply(&entry, hash_of(bytes))
    }

    /// Adds an entry, which is made of what the log says up to it (SO1). `make` is asked again when somebody else's entry came first; it
    /// gives none if nothing is to be done any more.
    pub fn add(&mut self, mut make: impl FnMut(&State) -> Result<Option<Say>>) -> Result<Option<(u64, Outcome)>> {
        loop {
            self.catch_up()?;
            let Some(say) = make(&self.state)? else { return Ok(None) };
            let number = self.state.next_entry;
            let entry = Entry { number, before: self.state.hash, writer: self.writer, time: (self.clock)(), say };
            let bytes = entry.encode(&self.seal);
            if planted::is("store_entry_replaced") {
                objects::replace(self.objects, &entry_name(number), &bytes)?;
            } else if let Some(other) = objects::create(self.objects, &entry_name(number), &bytes)? {
                self.take(number, &other)?;
                continue;
            }
            let outcome = self.state.apply(&entry, hash_of(&bytes))?;
            self.hint(number);
            return Ok(Some((number, outcome)));
        }
    }

    /// Makes the way to the end shorter for others. Nothing depends on it.
    fn hint(&self, number: u64) {
        if number.is_multiple_of(EVERY) {
            let _not_kept = objects::create(self.objects, &state_name(number), &self.state.encode(&self.seal));
        }
        let text = self.seal.sealed(HEAD, number.to_le_bytes().to_vec());
        let _not_told = objects::replace(self.objects, HEAD, &text);
    }

    /// An entry of a job that must be open.
    pub fn add_for_job(&mut self, job: u64, say: Say) -> Result<u64> {
        match self.add(|_| Ok(Some(say.clone())))? {
            Some((number, Outcome::Valid)) => Ok(number),
            Some((_, Outcome::Void(how))) => Err(StoreError::JobIsOver { job, how }),
            None => Err(StoreError::JobIsOver { job, how: "ended".into() }),
        }
    }

    /// More numbers for an open job.
    pub fn more(&mut self, job: u64, kind: Kind, count: u64) -> Result<Numbers> {
        let mut given = None;
        let made = self.add(|state| {
            let numbers = state.free(&[(kind, count)]);
            given = numbers.first().copied();
            Ok(Some(Say::More { job, numbers }))
        })?;
        match (made, given) {
            (Some((_, Outcome::Valid)), Some(numbers)) => Ok(numbers),
            (Some((_, Outcome::Void(how))), _) => Err(StoreError::JobIsOver { job, how }),
            _ => Err(StoreError::JobIsOver { job, how: "ended".into() }),
        }
    }
}

fn replaced(number: u64) -> StoreError {
    StoreError::Broken(format!("entry {number} of its log is not the one that this host saw: it was replaced"))
}

fn hinted(seal: &Seal, bytes: &[u8]) -> Option<u64> {
    let body = seal.opened(HEAD, bytes).ok()?;
    body.try_into().ok().map(u64::from_le_bytes)
}
