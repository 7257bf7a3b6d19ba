//! pvchange, pvresize and pvck: physical volumes that exist already.

use super::places::free_on_each;
use super::reports::{named_devices, places};
use crate::backend::LabelledPv;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::Kind;
use crate::report::fields::Field;
use crate::report::index::Indexed;
use crate::report::select::Criteria;
use crate::roles::COPIES;
use crate::session::Session;
use rowen_control::protocol::{GroupReport, Request};
use rowen_control::units::sentence;
use rowen_engine::group::rows_on;

/// Counts of results for the last line.
#[derive(Default)]
struct Tally {
    done: usize,
    failed: usize,
    /// It had the property already.
    unchanged: usize,
    /// Something that was named does not exist.
    is_incomplete: bool,
}

/// The result for one physical volume.
enum Done {
    Changed,
    Nothing,
}

/// The label at `path`, or LVM's sentence for its absence.
pub(super) fn label_at(session: &mut Session<'_>, word: &str) -> Result<LabelledPv> {
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
            // Missing ones are not counted.
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

/// A change of a physical volume.
struct PvChange {
    add: Vec<String>,
    remove: Vec<String>,
    is_tagging: bool,
    allocatable: Option<bool>,
}

/// The physical volumes that the command line names, by path, tag or criteria, or all with `-a`; and whether one is missing.
fn chosen(session: &mut Session<'_>, args: &Args) -> Result<(Vec<String>, bool)> {
    let criteria = Criteria::of_command(args, Kind::Pv)?;
    match (args.positionals.is_empty(), args.has(Opt::AllPvs)) {
        (true, false) if criteria.is_none() => return Err(Failure::NoForm),
        (false, true) => return Err(Failure::usage("Option --all and PhysicalVolumePath are exclusive.")),
        _ => {}
    }
    let has_tags = args.positionals.iter().any(|word| word.starts_with('@'));
    if !args.positionals.is_empty() && criteria.is_none() && !has_tags {
        return Ok((args.positionals.clone(), false));
    }
    let devices = named_devices(session, args, criteria.as_ref().is_some_and(Criteria::shows_use))?;
    let is_incomplete = devices.is_incomplete || devices.has_closed_groups;
    let Some(criteria) = criteria else {
        return Ok((devices.labels.into_iter().map(|label| label.path).collect(), is_incomplete));
    };
    let needs_places = criteria.fields().any(Field::needs_places);
    let mut paths = Vec::new();
    for label in &devices.labels {
        let group = devices.report(label);
        let places = match group {
            Some(group) => places(session, &group.name, needs_places)?,
            None => Vec::new(),
        };
        let group = group.map(|group| {
            let mut group = Indexed::new(group);
            group.place(&places);
            group
        });
        if criteria.takes_device(group.as_ref(), label) {
            paths.push(label.path.clone());
        }
    }
    Ok((paths, is_incomplete))
}

pub fn change(session: &mut Session<'_>, args: &Args) -> Result {
    let is_tagging = args.has(Opt::AddTag) || args.has(Opt::DelTag);
    let options = [Opt::Allocatable, Opt::NewUuid, Opt::MetadataIgnore];
    if !is_tagging && !options.into_iter().any(|option| args.has(option)) {
        return Err(Failure::NoForm);
    }
    let (paths, is_incomplete) = chosen(session, args)?;
    let change = PvChange {
        add: args.tags(Opt::AddTag),
        remove: args.tags(Opt::DelTag),
        is_tagging,
        allocatable: args.yes_no(Opt::Allocatable),
    };
    let mut tally = each(session, &paths, |session, label| {
        let path = &label.path;
        let outcome = match args.has(Opt::NewUuid) {
            true => Err(Failure::failed("The identifier of a physical volume cannot be changed.")),
            false => change_one(session, label, &change, args.has(Opt::MetadataIgnore)),
        };
        match outcome {
            Ok(Done::Changed) => session.console.say(format!("Physical volume \"{path}\" changed")),
            Ok(Done::Nothing) => session.console.say(format!("Physical volume {path} not changed")),
            Err(Failure::Failed(mut lines)) => {
                lines.push(format!("Physical volume {path} not changed"));
                return Err(Failure::Failed(lines));
            }
            Err(failure) => return Err(failure),
        }
        outcome
    })?;
    tally.is_incomplete |= is_incomplete;
    let volumes = |count: usize| if count == 1 { "physical volume" } else { "physical volumes" };
    let (done, failed) = (tally.done, tally.failed + tally.unchanged);
    session.console.say(format!("{done} {} changed / {failed} {} not changed", volumes(done), volumes(failed)));
    end(&tally)
}

fn change_one(session: &mut Session<'_>, label: &LabelledPv, change: &PvChange, is_ignoring: bool) -> Result<Done> {
    let path = &label.path;
    let Some(group) = &label.group else {
        return match (change.is_tagging, change.allocatable) {
            (true, _) => {
                Err(Failure::failed(format!("Can't change tag on Physical Volume {path} not in volume group")))
            }
            (false, Some(_)) => {
                Err(Failure::failed(format!("Allocatability not supported by orphan lvm2 format PV {path}")))
            }
            (false, None) => Ok(Done::Changed),
        };
    };
    let mut is_changed = change.is_tagging || is_ignoring;
    if let Some(allocatable) = change.allocatable {
        let mut report = session.report_of(group, Vec::new())?;
        if report.pvs.iter().any(|pv| pv.path == *path && pv.is_allocatable == allocatable) {
            let how = if allocatable { "allocatable" } else { "unallocatable" };
            session.console.complain(format!("Physical volume \"{path}\" is already {how}."));
        } else {
            session.change(group, Request::SetAllocatable { path: path.clone(), allocatable })?;
            is_changed = true;
            if !allocatable {
                report.pvs.iter_mut().filter(|pv| pv.path == *path).for_each(|pv| pv.is_allocatable = false);
                warn_of_room(session, &report)?;
            }
        }
    }
    if change.is_tagging {
        let (add, remove) = (change.add.clone(), change.remove.clone());
        session.change(group, Request::TagPv { path: path.clone(), add, remove })?;
    }
    Ok(if is_changed { Done::Changed } else { Done::Nothing })
}

/// Says if there are too few physical volumes for new space of striped or mirrored volumes. Snapshots of them need it, too.
fn warn_of_room(session: &mut Session<'_>, report: &GroupReport) -> Result {
    let free = free_on_each(session, report, &[])?;
    let with_room = free.iter().filter(|free| **free > 0).count();
    let columns = report.stripes.filter(|own| own.has_volumes).map_or(0, |own| own.layout.columns.into());
    let copies = if report.mirrors.extents > 0 { COPIES as usize } else { 0 };
    for (kind, needed) in [("striped", columns), ("mirrored", copies)] {
        if needed > 0 && rows_on(&free, needed) == 0 {
            session.console.complain(format!(
                "WARNING: No new space for {kind} volumes and their snapshots: it lies on {needed} physical volumes at once, and \
                 {with_room} with free space are left. Writes that need it fail, or make a snapshot invalid."
            ));
        }
    }
    Ok(())
}

pub fn resize(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::NoForm);
    }
    let limit = args.size(Opt::PvSizeLimit).map(|size| size.bytes);
    let (paths, is_incomplete) = chosen(session, args)?;
    let mut tally = each(session, &paths, |session, label| {
        let path = &label.path;
        if limit.is_some_and(|limit| limit > label.size) {
            return Err(Failure::failed(format!("{path}: the device has only {} bytes.", label.size)));
        }
        let bytes = limit.filter(|limit| *limit < label.size);
        if let Some(limit) = bytes {
            confirm_less(session, args, label, limit)?;
        }
        match &label.group {
            Some(group) => {
                session.change(group, Request::ResizePv { path: path.clone(), bytes })?;
            }
            None if session.is_test => {}
            None => session.backend.pvresize(path, bytes)?,
        }
        session.console.say(format!("Physical volume \"{path}\" changed"));
        Ok(Done::Changed)
    })?;
    tally.is_incomplete |= is_incomplete;
    let Tally { done, failed, .. } = tally;
    session
        .console
        .say(format!("{done} physical volume(s) resized or updated / {failed} physical volume(s) not resized"));
    end(&tally)
}

/// The physical volume will use less than its device.
fn confirm_less(session: &mut Session<'_>, args: &Args, label: &LabelledPv, limit: u64) -> Result {
    const SECTOR: u64 = 512;
    let LabelledPv { path, size, .. } = label;
    let question =
        format!("{path}: Requested size {} is less than real size {}. Proceed? ", sentence(limit), sentence(*size));
    if !args.assumes_yes() && !session.console.asks(&question) {
        return Err(Failure::failed(format!("Physical Volume {path} not resized.")));
    }
    let (limit, size) = (limit / SECTOR, size / SECTOR);
    session.console.complain(format!("WARNING: {path}: Pretending size is {limit} not {size} sectors."));
    Ok(())
}

pub fn check(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::NoForm);
    }
    end(&each(session, &args.positionals, |_, _| Ok(Done::Changed))?)
}
