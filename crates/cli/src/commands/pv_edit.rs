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
}

/// The label at `path`, or LVM's sentence for its absence.
fn label_at(session: &mut Session<'_>, path: &str) -> Result<LabelledPv> {
    let path = session.backend.absolute(path);
    let found = session.backend.labels()?.into_iter().find(|label| label.path == path);
    let missing = match session.backend.exists(&path) {
        true => format!("Failed to find physical volume \"{path}\"."),
        false => format!("Failed to find device \"{path}\"."),
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
    act: impl Fn(&mut Session<'_>, &LabelledPv) -> Result,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in paths {
        match label_at(session, path).and_then(|label| act(session, &label)) {
            Ok(()) => tally.done += 1,
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
    if tally.failed > 0 { Err(Failure::Told) } else { Ok(()) }
}

pub fn change(session: &mut Session<'_>, args: &Args) -> Result {
    let (add, remove) = (args.tags(Opt::AddTag), args.tags(Opt::DelTag));
    let is_tagging = args.has(Opt::AddTag) || args.has(Opt::DelTag);
    let options = [Opt::Allocatable, Opt::NewUuid, Opt::MetadataIgnore];
    if !is_tagging && !options.into_iter().any(|option| args.has(option)) {
        return Err(Failure::NoForm);
    }
    let paths = match (args.positionals.is_empty(), args.has(Opt::AllPvs)) {
        (true, false) => return Err(Failure::usage("Please give a physical volume path")),
        (false, true) => return Err(Failure::usage("Option --all and PhysicalVolumePath are exclusive.")),
        (true, true) => session.backend.labels()?.into_iter().map(|label| label.path).collect(),
        (false, false) => args.positionals.clone(),
    };
    let refuses_space = args.yes_no(Opt::Allocatable) == Some(false);
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
        if is_tagging {
            let Some(group) = &label.group else {
                return Err(Failure::failed(format!("Can't change tag on Physical Volume {path} not in volume group")));
            };
            let request = Request::TagPv { path: path.clone(), add: add.clone(), remove: remove.clone() };
            session.change(group, request)?;
        }
        session.console.say(format!("Physical volume \"{path}\" changed"));
        Ok(())
    })?;
    let volumes = |count: usize| if count == 1 { "physical volume" } else { "physical volumes" };
    let Tally { done, failed } = tally;
    session.console.say(format!("{done} {} changed / {failed} {} not changed", volumes(done), volumes(failed)));
    end(&tally)
}

pub fn resize(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::usage("Please supply physical volume(s)"));
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
        Ok(())
    })?;
    let Tally { done, failed } = tally;
    session
        .console
        .say(format!("{done} physical volume(s) resized or updated / {failed} physical volume(s) not resized"));
    end(&tally)
}

pub fn check(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::usage("Please enter a physical volume path."));
    }
    end(&each(session, &args.positionals, |_, _| Ok(()))?)
}
