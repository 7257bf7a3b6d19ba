//! What can go wrong with a store, as the user reads it.

use crate::error::StreamError;
use std::fmt;

/// Why something could not be done in a store. Each is a sentence without its full stop.
#[derive(Debug)]
pub enum StoreError {
    /// The store did not do what it was asked, also after repeats.
    Request { name: String, why: String },
    /// An object is not as it was written.
    Damaged { name: String, what: &'static str },
    /// An object that something refers to is not there.
    Missing { name: String },
    /// A program that goes on with a push counts on a segment of the program before it, which is not there (SO7).
    Lost { name: String, from: u64 },
    /// A newer program wrote it.
    Newer(String),
    /// The store did not keep a promise that everything is built on.
    Broken(String),
    /// Somebody else ended the job, so its work is void.
    JobIsOver { job: u64, how: String },
    /// It cannot be done as things are.
    Refused(String),
    /// What comes from the volume group is no whole stream.
    Stream(StreamError),
    /// The stream of a volume group cannot be written.
    Output(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Request { name, why } => write!(f, "the store does not answer for {name}: {why}"),
            StoreError::Damaged { name, what } => write!(f, "{name} is damaged: {what}"),
            StoreError::Missing { name } => write!(f, "{name} is not in the store"),
            StoreError::Lost { name, from } => write!(
                f,
                "{name} is not in the store, and was there when this push went on with block {from}: the store has lost it, or does not \
                 show it now"
            ),
            StoreError::Newer(what) => write!(f, "a newer program wrote to the store: {what}"),
            StoreError::Broken(what) => write!(f, "the store cannot be trusted: {what}"),
            StoreError::JobIsOver { job, how } => write!(f, "job {job} was {how} by somebody else meanwhile"),
            StoreError::Refused(why) | StoreError::Output(why) => f.write_str(why),
            StoreError::Stream(error) => write!(f, "the stream of the snapshot is not whole: {error}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<StreamError> for StoreError {
    fn from(error: StreamError) -> StoreError {
        StoreError::Stream(error)
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;
