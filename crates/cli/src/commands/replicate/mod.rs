//! `rowen replicate`: a copy of a volume is brought up to date.

mod job;
mod side;

pub use job::{Job, Sent, moment_name, numbered};
pub use side::{SSH, Side};

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::sizes::{Sign, Size};

/// Bytes in a second; a bare number counts MiB.
pub fn rate(text: &str) -> Option<u64> {
    let size = Size::parse(text, 'm').ok().filter(|size| size.sign == Sign::None)?;
    Some(size.bytes).filter(|bytes| *bytes > 0)
}

pub fn replicate(session: &mut Session<'_>, args: &Args) -> Result {
    let [from, to] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify a logical volume, and where its copy is: VG/LV HOST:VG/LV."));
    };
    let ssh = args.text(Opt::Ssh).unwrap_or(SSH);
    let (from, mut to) = (Side::parse(from, ssh)?, Side::parse(to, ssh)?);
    if from.volume.is_empty() {
        return Err(Failure::usage(format!("Please specify a logical volume: \"{}\" is a volume group.", from.group)));
    }
    let is_here = |side: &Side| side.at == crate::backend::Where::Here;
    match (args.has(Opt::Pull), is_here(&from), is_here(&to)) {
        (false, false, _) => {
            return Err(Failure::usage(format!("{} is not on this host: --pull replicates from there.", from.shown())));
        }
        (true, true, _) => return Err(Failure::usage("With --pull the first volume is on another host: HOST:VG/LV.")),
        (true, false, false) => return Err(Failure::usage("With --pull the copy is on this host: VG/LV.")),
        _ => {}
    }
    let limit = args.text(Opt::Limit).map(|text| {
        rate(text).ok_or_else(|| {
            Failure::usage(format!("\"{}\" is no rate: 50m are 50 MiB in a second.", text.escape_debug()))
        })
    });
    let limit = limit.transpose()?;
    if to.volume.is_empty() {
        let found = from.look(session)?;
        to.volume = found.origin.filter(|_| found.is_snapshot).unwrap_or_else(|| from.volume.clone());
    }
    let is_dry = args.has(Opt::DryRun) || session.is_test;
    let mut job = Job { from, to, limit, is_plain: args.has(Opt::Plain), is_thin: args.has(Opt::ReceiveThin), is_dry };
    let sent = job.run(session)?;
    if let Some(line) = job.told(&sent, args.units()) {
        session.console.say(line);
    }
    Ok(())
}

#[cfg(test)]
#[path = "replicate_test.rs"]
mod tests;
