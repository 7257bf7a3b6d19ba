//! `thin_send` and `thin_recv`: send and receive by the names and words of LINBIT's programs, which LINSTOR and scripts call.

use crate::commands::{receive, send};
use crate::failure::{Failure, Result};
use crate::options::{COMMON, Opt};
use crate::parse::{self, Args};
use crate::session::Session;

/// The command line that means the same.
fn as_words(args: &Args, options: &[Opt], words: &[&str]) -> Result<Args> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let options: Vec<Opt> = COMMON.iter().chain(options).copied().collect();
    let mut read = parse::parse("send", &options, &words)?;
    read.config = args.config.clone();
    Ok(read)
}

/// All of a snapshot; or of two what changed from the first one to the second one.
pub fn send(session: &mut Session<'_>, args: &Args) -> Result {
    let read = match &args.positionals[..] {
        [new] => as_words(args, &[], &[new])?,
        [old, new] => as_words(args, &[Opt::SendFrom], &["-i", old, new])?,
        _ => return Err(Failure::usage("Please specify one snapshot, or two of one volume: the older one first.")),
    };
    send::send(session, &read)
}

pub fn receive(session: &mut Session<'_>, args: &Args) -> Result {
    let [target] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify one logical volume: VG/LV."));
    };
    let read = as_words(args, &[], &[target])?;
    receive::receive(session, &read)
}

#[cfg(test)]
#[path = "thin_test.rs"]
mod tests;
