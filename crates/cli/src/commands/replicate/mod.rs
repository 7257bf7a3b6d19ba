//! `rowen replicate`: a copy of a volume, or of all volumes of a group, is brought up to date.

mod group;
mod job;
mod side;

pub use job::{Job, Sent, moment_name, numbered};
pub use side::{SSH, Side};

use crate::backend::Where;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use group::Group;
use rowen_control::names;
use rowen_control::paths::Target;
use rowen_control::sizes::{Sign, Size};

/// Bytes in a second; a bare number counts MiB.
pub fn rate(text: &str) -> Option<u64> {
    let size = Size::parse(text, 'm').ok().filter(|size| size.sign == Sign::None)?;
    Some(size.bytes).filter(|bytes| *bytes > 0)
}

/// Refuses sides that do not fit the direction. `what` is how a side is written.
fn check_direction(args: &Args, (from, to): (&Side, &Side), what: &str) -> Result {
    let is_here = |side: &Side| side.at == Where::Here;
    let why = match (args.has(Opt::Pull), is_here(from), is_here(to)) {
        (false, false, _) => format!("{} is not on this host: --pull replicates from there.", from.shown()),
        (true, true, _) => format!("With --pull the first name is on another host: HOST:{what}."),
        (true, false, false) => format!("With --pull the copy is on this host: {what}."),
        _ => return Ok(()),
    };
    Err(Failure::usage(why))
}

/// A job with the options of the command line.
fn job(session: &Session<'_>, args: &Args, from: Side, to: Side) -> Result<Job> {
    let limit = args.text(Opt::Limit).map(|text| {
        rate(text).ok_or_else(|| {
            Failure::usage(format!("\"{}\" is no rate: 50m are 50 MiB in a second.", text.escape_debug()))
        })
    });
    let is_dry = args.has(Opt::DryRun) || session.is_test;
    let (is_plain, is_thin) = (args.has(Opt::Plain), args.has(Opt::ReceiveThin));
    Ok(Job { from, to, limit: limit.transpose()?, is_plain, is_thin, is_dry })
}

pub fn replicate(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::WholeGroup) {
        return replicate_group(session, args);
    }
    let [from, to] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify a logical volume, and where its copy is: VG/LV HOST:VG/LV."));
    };
    let ssh = args.text(Opt::Ssh).unwrap_or(SSH);
    let (from, to) = (Side::parse(from, ssh)?, Side::parse(to, ssh)?);
    if from.volume.is_empty() {
        return Err(Failure::usage(format!(
            "Please specify a logical volume: \"{}\" is a volume group. --group replicates all its volumes.",
            from.group
        )));
    }
    check_direction(args, (&from, &to), "VG/LV")?;
    let mut job = job(session, args, from, to)?;
    if job.to.volume.is_empty() {
        let found = job.from.look(session)?;
        job.to.volume = found.origin.filter(|_| found.is_snapshot).unwrap_or_else(|| job.from.volume.clone());
    }
    let sent = job.run(session)?;
    if let Some(line) = job.told(&sent, args.units()) {
        session.console.say(line);
    }
    Ok(())
}

/// `--group VG [LV ...] [[USER@]HOST:]VG`
fn replicate_group(session: &mut Session<'_>, args: &Args) -> Result {
    let [from, named @ .., to] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify a volume group, and where the copies are: --group VG HOST:VG."));
    };
    let ssh = args.text(Opt::Ssh).unwrap_or(SSH);
    let (from, to) = (Side::parse(from, ssh)?, Side::parse(to, ssh)?);
    if !from.volume.is_empty() {
        return Err(Failure::usage(format!(
            "--group takes a volume group, and {} is a logical volume: name volumes after their group (--group {} {} HOST:VG).",
            from.shown(),
            from.group,
            from.volume
        )));
    }
    if !to.volume.is_empty() {
        return Err(Failure::usage(format!(
            "With --group the copies have the names of their volumes: give a volume group instead of {}.",
            to.shown()
        )));
    }
    check_direction(args, (&from, &to), "VG")?;
    let mut volumes: Vec<String> = Vec::new();
    for word in named {
        let volume = volume_of(&from.group, word)?;
        if !volumes.contains(&volume) {
            volumes.push(volume);
        }
    }
    Group { all: job(session, args, from, to)?, units: args.units() }.run(session, volumes)
}

/// The volume of this group that a word names: LV or VG/LV.
fn volume_of(group: &str, word: &str) -> Result<String> {
    let volume = match Target::parse(word) {
        Some(Target::Volume { group: other, volume }) if other == group => volume,
        Some(Target::Group(volume)) => volume,
        _ => return Err(Failure::usage(format!("\"{}\" is not in volume group \"{group}\".", word.escape_debug()))),
    };
    names::check_form(&volume)
        .map_err(|refusal| Failure::usage(format!("\"{}\" is no name: {refusal}", volume.escape_debug())))?;
    Ok(volume)
}

#[cfg(test)]
#[path = "group_test.rs"]
mod group_tests;
#[cfg(test)]
#[path = "replicate_test.rs"]
mod tests;
