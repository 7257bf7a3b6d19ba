//! What a store is made of: objects with names, in a directory or behind a network.

use super::error::{Result, StoreError};
use std::ops::Range;

/// What can be done about a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// To ask again may help.
    AskAgain,
    /// It does not help: no rights, no such bucket.
    Nothing,
    /// The object is there, and is not what was written.
    OtherCopy,
}

/// A request that failed. It may have been carried out nevertheless.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub why: String,
    pub remedy: Remedy,
}

/// What became of a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    New,
    /// There is an object of that name, and it is as it was.
    Exists,
}

/// The requests that a store needs. Each answer is one answer of the store. The caller retries.
pub trait Objects: Send + Sync {
    /// Creates an object if the name is free. Of several calls at once, one creates it.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<Created, Trouble>;
    /// Creates or overwrites an object. Only for what is a hint.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Trouble>;
    /// The bytes of an object, or those of a range that lie in it. None: there is no such object.
    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>, Trouble>;
    /// Deletes an object, if there is one.
    fn delete(&self, name: &str) -> Result<(), Trouble>;
    /// Names and sizes of all objects whose names begin so.
    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble>;
    /// Waits before a request is repeated for this time, counted from 1.
    fn pause(&self, attempt: u32);
}

/// How often a request is made.
const ATTEMPTS: u32 = 8;

/// Makes a request until there is an answer.
fn repeated<T>(
    objects: &dyn Objects,
    name: &str,
    mut ask: impl FnMut() -> std::result::Result<T, Trouble>,
) -> Result<T> {
    let mut attempt = 0;
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(trouble) => {
                attempt += 1;
                match trouble.remedy {
                    Remedy::OtherCopy => {
                        return Err(StoreError::Damaged { name: name.to_owned(), what: "it is not what was written" });
                    }
                    Remedy::AskAgain if attempt < ATTEMPTS => objects.pause(attempt),
                    Remedy::AskAgain | Remedy::Nothing => {
                        return Err(StoreError::Request { name: name.to_owned(), why: trouble.why });
                    }
                }
            }
        }
    }
}

pub fn get(objects: &dyn Objects, name: &str, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>> {
    repeated(objects, name, || objects.get(name, range.clone()))
}

pub fn must_get(objects: &dyn Objects, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
    get(objects, name, range)?.ok_or_else(|| StoreError::Missing { name: name.to_owned() })
}

pub fn replace(objects: &dyn Objects, name: &str, bytes: &[u8]) -> Result<()> {
    repeated(objects, name, || objects.replace(name, bytes))
}

pub fn delete(objects: &dyn Objects, name: &str) -> Result<()> {
    repeated(objects, name, || objects.delete(name))
}

pub fn list(objects: &dyn Objects, prefix: &str) -> Result<Vec<(String, u64)>> {
    repeated(objects, prefix, || objects.list(prefix))
}

/// Creates an object. If another one has the name, it gives out that one's bytes (SO1): a request that had no answer is repeated, and
/// then meets its own bytes.
pub fn create(objects: &dyn Objects, name: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    for attempt in 1..=ATTEMPTS {
        if repeated(objects, name, || objects.create(name, bytes))? == Created::New {
            return Ok(None);
        }
        // Where somebody else creates it at this moment, it is not there yet, and may never be.
        if let Some(there) = get(objects, name, None)? {
            return Ok((there != bytes).then_some(there));
        }
        objects.pause(attempt);
    }
    let why = "it says that there is such an object, and has none".to_owned();
    Err(StoreError::Request { name: name.to_owned(), why })
}
