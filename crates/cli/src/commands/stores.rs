//! `rowen push`, `rowen pull` and `rowen store`: `rowen-remote` does them, so that no program that holds disks links network code.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;

/// The program.
pub const REMOTE: &str = "rowen-remote";

/// What can be done with stores.
const KNOWN: &str = "keygen, add, addkey, list, check, gc, forget, remove";
/// Options that are passed on, as that program knows them.
const FLAGS: [(Opt, &str); 8] = [
    (Opt::Whole, "--full"),
    (Opt::DryRun, "--dryrun"),
    (Opt::Json, "--json"),
    (Opt::SingleWriter, "--singlewriter"),
    (Opt::NotEncrypted, "--plain"),
    (Opt::CheckData, "--data"),
    (Opt::Test, "--dryrun"),
    (Opt::Quiet, "--quiet"),
];
const VALUES: [(Opt, &str); 6] = [
    (Opt::StoreVolume, "--as"),
    (Opt::StorePoint, "--name"),
    (Opt::Endpoint, "--endpoint"),
    (Opt::Region, "--region"),
    (Opt::KeyFile, "--keyfile"),
    (Opt::Older, "--older"),
];

pub fn push(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.len() != 2 {
        return Err(Failure::usage("Please specify a snapshot and a store: VG/SNAPSHOT STORE."));
    }
    run(session, args, "push")
}

pub fn pull(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.len() != 3 {
        return Err(Failure::usage(
            "Please specify a store, a point of it, and a logical volume: STORE VOLUME@POINT VG/LV.",
        ));
    }
    run(session, args, "pull")
}

pub fn store(session: &mut Session<'_>, args: &Args) -> Result {
    match args.positionals.first().map(String::as_str) {
        Some("add" | "addkey" | "keygen" | "list" | "ls" | "forget" | "gc" | "check" | "remove") => {
            run(session, args, "store")
        }
        Some(other) => Err(Failure::usage(format!("\"{}\" is not known: {KNOWN}.", other.escape_debug()))),
        None => Err(Failure::usage(format!("Please say what shall be done: {KNOWN}."))),
    }
}

fn run(session: &mut Session<'_>, args: &Args, command: &str) -> Result {
    let changes_places =
        command == "store" && matches!(args.positionals[0].as_str(), "add" | "addkey" | "keygen" | "remove");
    if session.is_test && changes_places {
        return Ok(());
    }
    let mut words = vec![REMOTE.to_owned(), command.to_owned()];
    words.extend(args.positionals.iter().cloned());
    words.extend(FLAGS.iter().filter(|(option, _)| args.has(*option)).map(|(_, name)| (*name).to_owned()));
    let values = VALUES.iter().filter_map(|(option, name)| Some(format!("{name}={}", args.text(*option)?)));
    words.extend(values);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    session.console.flush();
    match session.backend.run_tool(&words)? {
        0 => Ok(()),
        code => Err(Failure::Said(u8::try_from(code).unwrap_or(crate::failure::exit::FAILED))),
    }
}

#[cfg(test)]
#[path = "stores_test.rs"]
mod tests;
