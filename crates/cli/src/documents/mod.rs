//! Documents made from the tables of commands, options and fields: manual pages, shell completion and `docs/lvm.md`. What a
//! table does not say is in [`notes`]. Nothing here is written by hand twice, so none of it can be stale.

mod completion;
mod man;
mod markdown;
mod notes;

pub use completion::{bash, zsh};
pub use man::pages;
pub use markdown::compatibility;

use crate::options::{COMMON, Kind, Opt, Spec};
use crate::table::Command;

/// A command's own options and those of every command.
fn options(command: &Command) -> impl Iterator<Item = &'static Spec> {
    command.options.iter().chain(COMMON).map(|option: &Opt| option.spec())
}

/// The words that an option's value can be, where there are few.
fn words(kind: Kind) -> Vec<&'static str> {
    match kind {
        Kind::YesNo => vec!["y", "n"],
        Kind::Activation => vec!["y", "n", "ay"],
        Kind::Permission => vec!["r", "rw"],
        Kind::Units => "r R h H b B s S k K m M g G t T p P e E".split(' ').collect(),
        Kind::Word(words) => words.to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[path = "documents_test.rs"]
mod tests;

#[cfg(test)]
mod pages_test;

#[cfg(test)]
mod circles_test;
