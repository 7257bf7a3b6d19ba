//! The options of a command for documents, and the words that a value can be.

use crate::command::Command;
use crate::options::{COMMON, Kind, Opt, Spec};

/// A command's own options and those of every command.
pub fn options(command: &Command) -> impl Iterator<Item = &'static Spec> {
    command.options.iter().chain(COMMON).map(|option: &Opt| option.spec())
}

/// The words that an option's value can be, if there are few.
pub fn words(kind: Kind) -> Vec<&'static str> {
    match kind {
        Kind::YesNo => vec!["y", "n"],
        Kind::Activation => vec!["y", "n", "ay"],
        Kind::Permission => vec!["r", "rw"],
        Kind::Units => "r R h H b B s S k K m M g G t T p P e E".split(' ').collect(),
        Kind::Word(words) => words.to_vec(),
        _ => Vec::new(),
    }
}
