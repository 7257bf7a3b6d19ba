//! Documents made from the tables of commands, options and fields: manual pages, shell completion and `docs/lvm.md`. What a
//! table does not say is in [`notes`]. Nothing here is written by hand twice, so none of it can be stale.

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
