//! Documents generated from the tables of commands, options and fields: manual pages, shell completion and
//! `docs/lvm.md`. Facts that no table has are in [`notes`]. Each fact is written once, so the documents cannot be
//! stale.

mod completion;
mod man;
mod markdown;
mod notes;
mod values;

pub use completion::{bash, zsh};
pub use man::pages;
pub use markdown::compatibility;

#[cfg(test)]
#[path = "documents_test.rs"]
mod tests;

#[cfg(test)]
mod pages_test;

#[cfg(test)]
mod circles_test;

#[cfg(test)]
mod invariants_test;

#[cfg(test)]
mod lanes_test;
