//! `rowen-remote`: points of volumes in stores, which are directories and object stores. `rowen push`, `pull` and `store` run it.
//!
//! It holds no disks and needs none of their rights: what goes into a group and comes from it are streams of `rowen send` and `rowen
//! receive`, which it runs. So no program that holds disks links network code. Formats and rules are in `rowen_transfer::store`.
#![forbid(unsafe_code)]

#[macro_use]
mod console;
mod arguments;
#[cfg(feature = "s3")]
mod cloud;
mod directory;
mod encrypted;
mod failure;
mod group;
mod keys;
mod known;
mod meter;
mod places;
mod planted;
mod probe;
mod pull;
mod push;
mod store;

use arguments::Arguments;
use std::process::ExitCode;

const HELP: &str = "\
  rowen-remote keeps points of volumes in stores: directories and object stores.
  It is called as \"rowen push\", \"rowen pull\" and \"rowen store\", whose --help has the options:

    rowen store keygen FILE                   make a key file
    rowen store add NAME file:///DIRECTORY    make or join a store; --key-file FILE: it is encrypted
    rowen push VG/SNAPSHOT STORE              what changed since the newest point that the store has
    rowen store list STORE                    its points
    rowen pull STORE VOLUME@POINT VG/LV       a point into a volume group
    rowen store forget|gc|check STORE ...     give up points, delete what nobody needs, check
";

fn run() -> failure::Result {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let arguments = Arguments::parse(words)?;
    if arguments.has("--help") {
        say!("{}", HELP.trim_end());
        return Ok(());
    }
    match arguments.positionals.first().map(String::as_str) {
        Some("push") => push::push(&arguments),
        Some("pull") => pull::pull(&arguments),
        Some("store") => store::store(&arguments),
        Some("version") => {
            say!("  rowen-remote {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Some("help") => {
            say!("{}", HELP.trim_end());
            Ok(())
        }
        _ => Err(failure::usage("Please say what shall be done: push, pull, store.")),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.message.lines().for_each(|line| complain!("  {line}"));
            ExitCode::from(failure.code)
        }
    }
}
