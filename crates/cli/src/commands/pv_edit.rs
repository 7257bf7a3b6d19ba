//! pvchange, pvresize and pvck: physical volumes that exist already.

use crate::backend::LabelledPv;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::wire::Request;

/// What became of each of several physical volumes, counted for the last line.
#[derive(Default)]
struct Tally {
    done: usize,
    failed: usize,
    /// It was so already.
    unchanged: usize,
    /// Something that was named is not there.
    is_incomplete: bool,
}

/// How it went with one of them.
enum Done {
    Changed,
    Nothing,
}

/// The label at `path`, or LVM's sentence for its absence.
fn label_at(session: &mut Session<'_>, word: &str) -> Result<LabelledPv> {
    let path = session.backend.absolute(word);
    let found = session.backend.labels()?.into_iter().find(|label| label.path == path);
    let missing = match session.backend.exists(&path) {
        true => format!("Failed to find physical volume \"{path}\"."),
        false => format!("Cannot use {word}: device not found"),
    };
    let label = found.ok_or_else(|| Failure::failed(missing))?;
    match &label.trouble {
        Some(trouble) => Err(Failure::failed(format!("{path}: {trouble}"))),
        None => Ok(label),
    }
}

fn each(
    session: &mut Session<'_>,
    paths: &[String],
    act: impl Fn(&mut Session<'_>, &LabelledPv) -> Result<Done>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in paths {
        let label = match label_at(session, path) {
            Ok(label) => label,
            // What is not there is not counted.
            Err(failure) => {
                session.tell(&failure);
                tally.is_incomplete = true;
                continue;
            }
        };
        match act(session, &label) {
            Ok(Done::Changed) => tally.done += 1,
            Ok(Done::Nothing) => tally.unchanged += 1,
            Err(failure) if failure.exit_code() != crate::failure::exit::FAILED => return Err(failure),
            Err(failure) => {
                session.tell(&failure);
                tally.failed += 1;
            }
        }
    }
    Ok(tally)
}

fn end(tally: &Tally) -> Result {
    if tally.failed > 0 || tally.is_incomplete { Err(Failure::Told) } else { Ok(()) }
}

pub fn change(session: &mut Session<'_>, args: &Args) -> Result {
    let (add, remove) = (args.tags(Opt::AddTag), args.tags(Opt::DelTag));
    let is_tagging = args.has(Opt::AddTag) || args.has(Opt::DelTag);
    let options = [Opt::Allocatable, Opt::NewUuid, Opt::MetadataIgnore];
    if !is_tagging && !options.into_iter().any(|option| args.has(option)) {
        return Err(Failure::NoForm);
    }
    let paths = match (args.positionals.is_empty(), args.has(Opt::AllPvs)) {
        (true, false) => return Err(Failure::NoForm),
        (false, true) => return Err(Failure::usage("Option --all and PhysicalVolumePath are exclusive.")),
        (true, true) => session.backend.labels()?.into_iter().map(|label| label.path).collect(),
        (false, false) => args.positionals.clone(),
    };
    let refuses_space = args.yes_no(Opt::Allocatable) == Some(false);
    let asks_nothing = args.has(Opt::Allocatable) && !refuses_space && !is_tagging;
    let tally = each(session, &paths, |session, label| {
        let path = &label.path;
        if args.has(Opt::NewUuid) {
            return Err(Failure::failed(format!(
                "The identifier of a physical volume cannot be changed.\nPhysical volume {path} not changed"
            )));
        }
        if refuses_space {
            return Err(Failure::failed(format!(
                "Space cannot be kept from being taken from one physical volume.\nPhysical volume {path} not changed"
            )));
        }
        if asks_nothing {
            session.console.complain(format!("Physical volume \"{path}\" is already allocatable."));
            session.console.say(format!("Physical volume {path} not changed"));
            return Ok(Done::Nothing);
        }
        if is_tagging {
            let Some(group) = &label.group else {
                return Err(Failure::failed(format!(
                    "Can't change tag on Physical Volume {path} not in volume group\nPhysical volume {path} not changed"
                )));
            };
            let request = Request::TagPv { path: path.clone(), add: add.clone(), remove: remove.clone() };
            session.change(group, request)?;
        }
        session.console.say(format!("Physical volume \"{path}\" changed"));
        Ok(Done::Changed)
    })?;
    let volumes = |count: usize| if count == 1 { "physical volume" } else { "physical volumes" };
    let (done, failed) = (tally.done, tally.failed + tally.unchanged);
    session.console.say(format!("{done} {} changed / {failed} {} not changed", volumes(done), volumes(failed)));
    end(&tally)
}

pub fn resize(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::NoForm);
    }
    let limit = args.size(Opt::PvSizeLimit).map(|size| size.bytes);
    let tally = each(session, &args.positionals, |session, label| {
        let path = &label.path;
        if limit.is_some_and(|limit| limit < label.size) {
            return Err(Failure::failed(format!(
                "{path}: a physical volume cannot be made smaller than its device, which has {} bytes.",
                label.size
            )));
        }
        if limit.is_some_and(|limit| limit > label.size) {
            return Err(Failure::failed(format!("{path}: the device has {} bytes only.", label.size)));
        }
        // One that is in no group takes over its size when it joins one.
        if let Some(group) = &label.group {
            session.change(group, Request::ResizePv { path: path.clone() })?;
        }
        session.console.say(format!("Physical volume \"{path}\" changed"));
        Ok(Done::Changed)
    })?;
    let Tally { done, failed, .. } = tally;
    session
        .console
        .say(format!("{done} physical volume(s) resized or updated / {failed} physical volume(s) not resized"));
    end(&tally)
}

pub fn check(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::NoForm);
    }
    end(&each(session, &args.positionals, |_, _| Ok(Done::Changed))?)
}
