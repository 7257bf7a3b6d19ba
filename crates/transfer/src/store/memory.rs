//! Objects in memory, for tests: with requests that are counted, fail, lose their answers, or stop their caller.

use super::objects::{Created, Objects, Remedy, Trouble};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

/// What a test decides about a request, given whether it changes something.
pub type Fate = Box<dyn FnMut(&str, bool) -> Doing + Send>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Right,
    /// It is not carried out, and fails.
    Fails,
    /// It is carried out, and fails.
    NoAnswer,
    /// It fails, and is carried out some time later.
    Late,
    /// The program is gone: this and all later requests fail for good. It may have been carried out.
    Dies {
        done: bool,
    },
}

#[derive(Default)]
pub struct Memory {
    pub all: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Creates of a name that was deleted, or other contents under a name that there was: SO2.
    pub wrongs: Mutex<Vec<String>>,
    pub puts: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Creates that are still under way.
    pub late: Mutex<Vec<(String, Vec<u8>)>>,
    /// It lets every create win.
    pub is_broken: bool,
    /// Objects that it has and does not show: nobody can read them.
    pub hidden: Mutex<BTreeSet<String>>,
}

impl Memory {
    fn create(&self, name: &str, bytes: &[u8]) -> Created {
        let mut all = self.all.lock().unwrap();
        if all.contains_key(name) && !self.is_broken {
            return Created::Exists;
        }
        let mut puts = self.puts.lock().unwrap();
        if puts.get(name).is_some_and(|before| before != bytes) {
            self.wrongs.lock().unwrap().push(format!("{name} had other contents before"));
        }
        puts.insert(name.into(), bytes.into());
        all.insert(name.into(), bytes.into());
        Created::New
    }

    fn is_hidden(&self, name: &str) -> bool {
        self.hidden.lock().unwrap().contains(name)
    }

    /// Carries out one of the creates that are under way.
    pub fn land(&self, which: usize) {
        let mut late = self.late.lock().unwrap();
        if !late.is_empty() {
            let which = which % late.len();
            let (name, bytes) = late.remove(which);
            self.create(&name, &bytes);
        }
    }
}

const LATE: &str = "no answer yet";

/// A program's way to the objects.
pub struct Client<'m> {
    pub memory: &'m Memory,
    pub fate: Mutex<Fate>,
    pub is_dead: Mutex<bool>,
}

impl<'m> Client<'m> {
    pub fn new(memory: &'m Memory) -> Client<'m> {
        Client::with(memory, Box::new(|_, _| Doing::Right))
    }

    pub fn with(memory: &'m Memory, fate: Fate) -> Client<'m> {
        Client { memory, fate: Mutex::new(fate), is_dead: Mutex::new(false) }
    }

    fn request<T>(&self, name: &str, changes: bool, act: impl FnOnce() -> T) -> Result<T, Trouble> {
        let gone = || Trouble { why: "this program is dead".into(), remedy: Remedy::Nothing };
        if *self.is_dead.lock().unwrap() {
            return Err(gone());
        }
        let doing = (*self.fate.lock().unwrap())(name, changes);
        match doing {
            Doing::Right => Ok(act()),
            Doing::Fails => Err(Trouble { why: "no route".into(), remedy: Remedy::AskAgain }),
            Doing::Late => Err(Trouble { why: LATE.into(), remedy: Remedy::AskAgain }),
            Doing::NoAnswer => {
                act();
                Err(Trouble { why: "no answer".into(), remedy: Remedy::AskAgain })
            }
            Doing::Dies { done } => {
                *self.is_dead.lock().unwrap() = true;
                if done {
                    act();
                }
                Err(gone())
            }
        }
    }
}

impl Objects for Client<'_> {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<Created, Trouble> {
        match self.request(name, true, || self.memory.create(name, bytes)) {
            Err(trouble) if trouble.why == LATE => {
                self.memory.late.lock().unwrap().push((name.into(), bytes.into()));
                Err(trouble)
            }
            answer => answer,
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Trouble> {
        self.request(name, true, || drop(self.memory.all.lock().unwrap().insert(name.into(), bytes.into())))
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>, Trouble> {
        self.request(name, false, || {
            let all = self.memory.all.lock().unwrap();
            let bytes = all.get(name).filter(|_| !self.memory.is_hidden(name))?;
            let range = range.unwrap_or(0..u64::MAX);
            let end = (bytes.len() as u64).min(range.end);
            Some(bytes.get(range.start as usize..end as usize).unwrap_or_default().to_vec())
        })
    }

    fn delete(&self, name: &str) -> Result<(), Trouble> {
        self.request(name, true, || drop(self.memory.all.lock().unwrap().remove(name)))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble> {
        self.request(prefix, false, || {
            let all = self.memory.all.lock().unwrap();
            let found = all.iter().filter(|(name, _)| name.starts_with(prefix) && !self.memory.is_hidden(name));
            found.map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect()
        })
    }

    fn pause(&self, _attempt: u32) {}
}
