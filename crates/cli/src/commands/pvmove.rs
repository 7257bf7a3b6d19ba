//! pvmove: moves extents to other physical volumes while they are in use. The server moves them. The command shows the
//! progress and need not run until the end.

use super::pv_edit::label_at;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, unexpected, unless_exported};
use rowen_control::paths::Target;
use rowen_control::protocol::{GroupReport, MoveReport, Outcome, PvPart, Request, SegmentType};
use std::time::{Duration, Instant};

/// The interval of progress lines, as in LVM.
const INTERVAL: u64 = 15;

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::MoveAtomic) {
        return Err(Failure::failed(
            "--atomic makes no sense here: extents move in runs, and each is at its new place for good. What an abort leaves is \
             brought back by a pvmove the other way.",
        ));
    }
    let watch = Watch::of(args);
    if args.has(Opt::Abort) {
        return match args.positionals.as_slice() {
            [] => each_moving(session, stop),
            [source] => {
                let label = label_at(session, path_of(source))?;
                let group = group_of(session, source)?;
                let now = status(session, &group)?;
                match now.is_running && now.path == label.path {
                    true => stop(session, &group),
                    false => Err(Failure::failed(format!("No pvmove in progress for {}.", label.path))),
                }
            }
            _ => Err(Failure::usage("--abort takes the physical volume that is moved from, at most.")),
        };
    }
    let Some((source, targets)) = args.positionals.split_first() else {
        if args.has(Opt::Name) {
            return Err(Failure::NoForm);
        }
        return each_moving(session, |session, group| watch.until_the_end(session, group));
    };
    let group = group_of(session, source)?;
    let report = unless_exported(session.report(&group)?)?;
    let from = label_at(session, path_of(source))?.path;
    if report.moving.as_ref().is_some_and(|moving| moving.path == from) && !session.is_test {
        session.console.say(format!("Detected pvmove in progress for {from}."));
        if !targets.is_empty() || args.has(Opt::Name) || source.contains(':') {
            session.console.complain(format!(
                "WARNING: Ignoring remaining command line arguments: they do not change a move that is under way. To move other \
                 extents, or elsewhere, end it first: \"pvmove --abort {from}\"."
            ));
        }
        return match args.has(Opt::MoveBackground) {
            true => Ok(()),
            false => watch.until_the_end(session, &group),
        };
    }
    let request = wanted(session, args, &report, source, targets)?;
    begin(session, &group, request, args)
}

/// Begins a move, and shows its progress until it has ended, if the command line wants that.
pub fn begin(session: &mut Session<'_>, group: &str, request: Request, args: &Args) -> Result {
    match session.change(group, request)? {
        _ if session.is_test || args.has(Opt::MoveBackground) => Ok(()),
        Outcome::Moving(_) => Watch::of(args).until_the_end(session, group),
        other => Err(unexpected(group, &other)),
    }
}

/// The path that a word begins with, as LVM reads it: `PV[:PE[-PE]]...`.
fn path_of(word: &str) -> &str {
    word.split_once(':').map_or(word, |(path, _)| path)
}

fn group_of(session: &mut Session<'_>, source: &str) -> Result<String> {
    let label = label_at(session, path_of(source))?;
    label.group.ok_or_else(|| Failure::failed(format!("Physical volume {} not in a volume group", label.path)))
}

fn wanted(
    session: &mut Session<'_>,
    args: &Args,
    report: &GroupReport,
    source: &str,
    targets: &[String],
) -> Result<Request> {
    let from = super::places::named(session, report, &[source.to_owned()])?;
    let path = from.first().map(|part| part.path.clone()).unwrap_or_default();
    let is_whole = !source.contains(':');
    let mut to = super::places::named(session, report, targets)?;
    let on_source = |part: &&PvPart| part.path == path;
    if to.iter().any(|part| on_source(&part)) && args.text(Opt::Alloc) != Some("anywhere") {
        // As in LVM, the source is no target.
        to.retain(|part| part.path != path);
        if to.is_empty() {
            return Err(Failure::failed(format!(
                "No extents available for allocation: {path} is moved from. To move within it: --alloc anywhere."
            )));
        }
    }
    let to = if to.is_empty() { to } else { super::places::usable(session, report, SegmentType::Linear, to)? };
    let volume = match args.text(Opt::Name) {
        None => None,
        Some(word) => {
            let name = match Target::parse(word) {
                Some(Target::Volume { group, volume }) if group == report.name => volume,
                Some(Target::Volume { group, .. }) => {
                    let message = format!("Please only provide one volume group name: {} and {group}.", report.name);
                    return Err(Failure::usage(message));
                }
                _ => word.to_owned(),
            };
            if report.volume(&name).is_none() {
                return Err(Failure::failed(format!(
                    "Logical volume {name} not found in volume group {}.",
                    report.name
                )));
            }
            Some(name)
        }
    };
    let extents = match is_whole {
        true => Vec::new(),
        false => from.iter().map(|part| (part.first_extent, part.extents)).collect(),
    };
    Ok(Request::MoveExtents { path, extents, to, volume })
}

/// Acts on each group in which extents move.
fn each_moving(session: &mut Session<'_>, act: impl Fn(&mut Session<'_>, &str) -> Result) -> Result {
    let (reports, is_incomplete) = session.reports(&[], false)?;
    for report in reports {
        if status(session, &report.name)?.is_running {
            act(session, &report.name)?;
        }
    }
    if is_incomplete { Err(Failure::Told) } else { Ok(()) }
}

fn status(session: &mut Session<'_>, group: &str) -> Result<MoveReport> {
    match session.ask(group, Request::MoveStatus)? {
        Outcome::Moving(report) => Ok(report),
        other => Err(unexpected(group, &other)),
    }
}

fn stop(session: &mut Session<'_>, group: &str) -> Result {
    if let Outcome::Moving(now) = session.change(group, Request::StopMove)?
        && now.is_running
    {
        let path = now.path;
        session.console.complain(format!(
            "WARNING: Moving extents off {path} ends when the disks have answered what is under way: \"rowen status {group}\"."
        ));
    }
    Ok(())
}

fn percent_of(now: &MoveReport) -> f64 {
    let (done, all) = now.share();
    100.0 * done as f64 / all as f64
}

/// How the progress is shown.
struct Watch {
    interval: u64,
}

impl Watch {
    fn of(args: &Args) -> Watch {
        Watch { interval: args.number(Opt::MoveInterval).unwrap_or(INTERVAL) }
    }

    /// Shows the progress until the move has ended.
    fn until_the_end(&self, session: &mut Session<'_>, group: &str) -> Result {
        let (mut last, mut waits): (Option<MoveReport>, Option<String>) = (None, None);
        let mut next = Instant::now();
        loop {
            let now = status(session, group)?;
            if let Some(before) = last.as_ref().filter(|before| before.path != now.path) {
                return Err(Failure::failed(format!(
                    "Moving extents off {} did not go on after the server of volume group {group} was replaced: \
                     \"rowen events {group}\" says why. What was moved stays where it is; the same command moves the rest.",
                    before.path
                )));
            }
            let percent = percent_of(&now);
            if !now.is_running {
                return self.ended(session, group, &now, percent);
            }
            if self.interval > 0 && Instant::now() >= next {
                session.console.say(format!("{}: Moved: {percent:.2}%", now.path));
                session.console.flush();
                next = Instant::now() + Duration::from_secs(self.interval);
            }
            if let Some(why) = now.waits.as_ref().filter(|why| waits.as_ref() != Some(*why)) {
                session.console.say(format!("{}: waits: {why}", now.path));
                session.console.flush();
            }
            session.console.progress(now.moved, now.total, &format!("{}: moved", now.path));
            waits.clone_from(&now.waits);
            last = Some(now);
        }
    }

    fn ended(&self, session: &mut Session<'_>, group: &str, end: &MoveReport, percent: f64) -> Result {
        if self.interval > 0 && !end.path.is_empty() {
            session.console.say(format!("{}: Moved: {percent:.2}%", end.path));
        }
        if let Some(why) = &end.failed {
            return Err(Failure::failed(format!(
                "{why}\nMoving extents off {} failed before the end. What was moved stays where it is.",
                end.path
            )));
        }
        if end.is_stopped {
            return Err(Failure::failed(format!(
                "Moving extents off {} was stopped. What was moved stays where it is; the same command moves the rest.",
                end.path
            )));
        }
        match end.unreadable {
            0 => Ok(()),
            some => Err(Failure::failed(format!(
                "{some} extents of {} have blocks that cannot be read, and were not moved. \"rowen status {group}\" \
                 lists what failed. Write these blocks again, or remove their volumes.",
                end.path
            ))),
        }
    }
}
