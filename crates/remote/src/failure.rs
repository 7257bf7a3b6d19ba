//! Why a command stops, with LVM's exit codes.

use rowen_transfer::store::StoreError;

pub const USAGE: u8 = 3;
pub const FAILED: u8 = 5;

#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub message: String,
}

pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

pub fn failed(message: impl Into<String>) -> Failure {
    Failure { code: FAILED, message: message.into() }
}

pub fn usage(message: impl Into<String>) -> Failure {
    Failure { code: USAGE, message: message.into() }
}

/// What a store said of a request, after what could not be done.
pub fn of_store(what: &str, error: &StoreError) -> Failure {
    failed(format!("{what}: {error}."))
}
