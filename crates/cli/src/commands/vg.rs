//! vgcreate, vgremove, vgextend and vgchange.

use super::groups::{
    chosen_groups, each, has_nodes, has_stopped, is_partial, known_group, open_anyway, refuse_missing,
};
use super::lvchange::refresh;
use super::pv::{consent, with_questions};
use crate::backend::{Consent, NewVg};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::{Activation, Args};
use crate::report::fields::is_active;
use crate::session::{SelectedGroup, Session, unless_exported};
use rowen_control::names;
use rowen_control::protocol::{AllocPolicy, GroupChange, GroupReport, Request, VolumeReport};
use rowen_control::service::SHARE_UNASKED;
use rowen_engine::group::LARGEST_SHARE;
use rowen_engine::units::BLOCK_SIZE;
use std::collections::BTreeSet;

const DEFAULT_EXTENT_BYTES: u64 = 4 << 20;
const MIN_EXTENT_BYTES: u64 = 4 << 10;
const MAX_EXTENT_BYTES: u64 = 1 << 30;

pub fn create(session: &mut Session<'_>, args: &Args) -> Result {
    let Some((name, paths)) = args.positionals.split_first().filter(|(_, paths)| !paths.is_empty()) else {
        return Err(Failure::NoForm);
    };
    if args.has(Opt::SharedGroup) {
        return Err(Failure::usage("Using a shared lock type requires lvmlockd (lvm.conf use_lvmlockd.)"));
    }
    if args.yes_no(Opt::Clustered) == Some(true) {
        return Err(Failure::failed("A volume group belongs to one host: clustered groups are not supported."));
    }
    if args.text(Opt::SystemId).is_some_and(|id| !id.is_empty()) {
        return Err(Failure::failed("Volume groups have no system ID."));
    }
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let refused = |why: String| Failure::usage(format!("{why}\nNew volume group name \"{name}\" is invalid."));
    names::check_form(name).map_err(|why| refused(why.to_string()))?;
    if session.backend.groups()?.iter().any(|group| group == name) {
        return Err(Failure::failed(format!("A volume group called {name} already exists.")));
    }
    if has_nodes(session, name)? {
        return Err(refused(format!("/dev/{name}: already exists in filesystem")));
    }
    let extent = args.size(Opt::ExtentSize).map_or(DEFAULT_EXTENT_BYTES, |size| size.bytes);
    if extent == 0 {
        return Err(Failure::usage("Physical extent size may not be zero"));
    }
    if !extent.is_power_of_two() || !(MIN_EXTENT_BYTES..=MAX_EXTENT_BYTES).contains(&extent) {
        return Err(Failure::usage("Physical extent size must be a power of 2 in the range 4 KiB to 1 GiB."));
    }
    refuse_missing(session, paths)?;
    if !session.is_test {
        let notes = with_questions(session, consent(args), |session, consent| {
            let second_journal = match journal_copies(args) {
                Some(1) => None,
                Some(_) => Some(LARGEST_SHARE),
                None => Some(SHARE_UNASKED),
            };
            let group = NewVg { name, extent_blocks: extent / BLOCK_SIZE, second_journal };
            session.backend.vgcreate(&group, paths, consent)
        })?;
        notes.iter().for_each(|note| session.console.say(note));
        session.alone = Some((name.to_owned(), "create-group"));
    }
    let change = GroupChange {
        add_tags: args.tags(Opt::AddTag),
        autoactivate: args.yes_no(Opt::SetAuto).filter(|auto| !auto),
        alloc: alloc(args),
        max_volumes: args.number(Opt::MaxVolumes).filter(|most| *most > 0),
        max_pvs: args.number(Opt::MaxPvs).filter(|most| *most > 0),
        ..GroupChange::default()
    };
    if change != GroupChange::default() {
        session.change(name, Request::ChangeGroup { change })?;
    }
    session.console.say(format!("Volume group \"{name}\" successfully created"));
    Ok(())
}

pub fn remove(session: &mut Session<'_>, args: &Args) -> Result {
    if !args.names_something() {
        return Err(Failure::NoForm);
    }
    let groups = chosen_groups(session, args)?;
    each(session, args, &groups, |session, name| {
        let report = session.usable_report(name)?;
        let count = report.volumes.len();
        if count > 0 && !args.assumes_yes() {
            let question =
                format!("Do you really want to remove volume group \"{name}\" containing {count} logical volumes?");
            if !session.console.asks(&question) {
                return Err(Failure::failed(format!("Volume group \"{name}\" not removed")));
            }
        }
        session.change(name, Request::Destroy { force: count > 0 })?;
        for volume in in_order_of_removal(&report) {
            session.console.say(format!("Logical volume \"{volume}\" successfully removed."));
        }
        session.console.say(format!("Volume group \"{name}\" successfully removed"));
        Ok(())
    })
}

/// All volumes, dependent ones before those on which they depend.
fn in_order_of_removal(report: &GroupReport) -> Vec<String> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for volume in &report.volumes {
        let names = super::lvremove::with_dependents(report, volume);
        order.extend(names.into_iter().filter(|name| seen.insert(name.clone())));
    }
    order
}

pub fn extend(session: &mut Session<'_>, args: &Args) -> Result {
    let Some((name, paths)) = args.positionals.split_first().filter(|(_, paths)| !paths.is_empty()) else {
        return Err(Failure::NoForm);
    };
    let name = known_group(name)?;
    unless_exported(session.report_of(&name, Vec::new())?)?;
    refuse_missing(session, paths)?;
    let paths: Vec<String> = paths.iter().map(|path| session.backend.absolute(path)).collect();
    if args.has(Opt::RestoreMissing) {
        for path in paths {
            if session.backend.was_cut(&path) {
                return Err(Failure::failed(format!(
                    "The device of physical volume {path} was made smaller while the volume group needed it, and what was cut off \
                     is lost. Take it out for good: vgreduce --removemissing {name}.\nNo PV has been restored."
                )));
            }
            session.change(&name, Request::RestorePv { path: path.clone() })?;
            // A file is found again only by the devices file.
            if !session.backend.known()?.iter().any(|(known, _)| *known == path) {
                session.backend.know(&path, !session.is_test)?;
            }
        }
        session.console.say(format!("Volume group \"{name}\" successfully extended"));
        return Ok(());
    }
    if args.has(Opt::Yes) && !session.is_test {
        label_plain_devices(session, &paths)?;
    }
    let labels = session.backend.labels()?;
    let fresh: Vec<&String> = paths.iter().filter(|path| !labels.iter().any(|label| label.path == **path)).collect();
    let created: Vec<String> =
        fresh.iter().map(|path| format!("Physical volume \"{path}\" successfully created.")).collect();
    session.change(&name, Request::AddPv { paths })?;
    created.iter().for_each(|line| session.console.say(line));
    session.console.say(format!("Volume group \"{name}\" successfully extended"));
    Ok(())
}

/// The server adds a device to a group without asking, so it refuses a device with contents. With `-y` the user has
/// agreed to lose them, and such devices become physical volumes first. The server refuses members of any group.
fn label_plain_devices(session: &mut Session<'_>, paths: &[String]) -> Result {
    let labels = session.backend.labels()?;
    for path in paths.iter().filter(|path| !labels.iter().any(|label| label.path == **path)) {
        let consent = Consent { force: 0, yes: true };
        let notes = session.backend.pvcreate(path, consent)?;
        notes.iter().for_each(|note| session.console.say(note));
        session.console.say(format!("Physical volume \"{path}\" successfully created."));
    }
    Ok(())
}

/// The stored value of `--alloc`: `inherit` becomes `normal`.
fn alloc(args: &Args) -> Option<AllocPolicy> {
    Some(match args.text(Opt::Alloc)? {
        "contiguous" => AllocPolicy::Contiguous,
        "cling" | "cling_by_tags" => AllocPolicy::Cling,
        "anywhere" => AllocPolicy::Anywhere,
        _ => AllocPolicy::Normal,
    })
}

/// The refusal of changes that only LVM has.
fn refused_change(args: &Args) -> Option<&'static str> {
    if args.has(Opt::NewUuid) {
        return Some("The identifier of a volume group cannot be changed: its blocks carry it.");
    }
    if args.has(Opt::ExtentSize) {
        return Some("The extent size of a volume group cannot be changed.");
    }
    args.has(Opt::SystemId).then_some("Volume groups have no system ID.")
}

/// LVM's messages for a change that changes nothing.
fn refuse_no_change(report: &GroupReport, change: &GroupChange) -> Result {
    let (name, now) = (&report.name, &report.attributes);
    if let Some(wanted) = change.autoactivate.filter(|wanted| *wanted == now.autoactivate) {
        let state = if wanted { "yes" } else { "no" };
        return Err(Failure::failed(format!("Volume group autoactivation is already {state}.")));
    }
    if let Some(wanted) = change.resizeable.filter(|wanted| *wanted == now.resizeable) {
        let not = if wanted { "" } else { "not " };
        return Err(Failure::failed(format!("Volume group \"{name}\" is already {not}resizeable")));
    }
    let volumes = report.volumes.len() as u64;
    if change.max_volumes.is_some_and(|most| most > 0 && most < volumes) {
        return Err(Failure::failed(format!(
            "MaxLogicalVolumes is less than the current number {volumes} of LVs for {name}"
        )));
    }
    let pvs = report.pvs.len() as u64;
    if change.max_pvs.is_some_and(|most| most > 0 && most < pvs) {
        return Err(Failure::failed(format!(
            "MaxPhysicalVolumes is less than the current number {pvs} of PVs for \"{name}\""
        )));
    }
    Ok(())
}

pub fn change(session: &mut Session<'_>, args: &Args) -> Result {
    let change = GroupChange {
        autoactivate: args.yes_no(Opt::SetAuto),
        exported: None,
        resizeable: args.yes_no(Opt::Resizeable),
        alloc: alloc(args),
        max_volumes: args.number(Opt::MaxVolumesChange),
        max_pvs: args.number(Opt::MaxPvs),
        add_tags: args.tags(Opt::AddTag),
        remove_tags: args.tags(Opt::DelTag),
    };
    let activation = args.activation();
    let does_nothing = [
        Opt::Refresh,
        Opt::Poll,
        Opt::Monitor,
        Opt::LockStart,
        Opt::LockStop,
        Opt::LockType,
        Opt::MetadataProfile,
        Opt::DetachProfile,
        Opt::PvMetadataCopies,
        Opt::VgMetadataCopies,
    ];
    let copies = journal_copies(args);
    let is_refused = refused_change(args);
    let asks_nothing = activation.is_none() && change == GroupChange::default() && is_refused.is_none();
    if asks_nothing && !does_nothing.into_iter().any(|option| args.has(option)) {
        return Err(Failure::NoForm);
    }
    let groups = chosen_groups(session, args)?;
    let is_named = !args.positionals.is_empty();
    let activates = matches!(activation, Some(Activation::Yes | Activation::Auto));
    each(session, args, &groups, |session, name| {
        if activates {
            open_anyway(session, args, &[name.to_owned()])?;
        }
        let report = session.report(name)?;
        if report.attributes.exported && !is_named {
            return Ok(());
        }
        let report = unless_exported(report)?;
        if let Some(why) = is_refused {
            return Err(Failure::failed(why));
        }
        if args.has(Opt::Refresh) {
            let volumes = report.volumes.iter().map(|volume| volume.name.clone()).collect();
            refresh(session, &SelectedGroup { report: report.clone(), volumes, is_whole: true })?;
        }
        if change != GroupChange::default() {
            refuse_no_change(&report, &change)?;
            session.change(name, Request::ChangeGroup { change: change.clone() })?;
            session.console.say(format!("Volume group \"{name}\" successfully changed"));
        }
        match copies {
            Some(wanted) if u64::from(wanted) != report.journal_copies => keep_journal(session, name, wanted)?,
            Some(wanted) if u64::from(wanted) > report.journal_copies_written => {
                tell_of_unwritten_copy(session, &report);
            }
            _ => {}
        }
        match activation {
            Some(activation) => switch(session, args, &report, activation),
            None => Ok(()),
        }
    })
}

/// The requested number of copies of the journal. LVM's words for "as many as possible" mean two.
fn journal_copies(args: &Args) -> Option<u8> {
    let asked = args.text(Opt::VgMetadataCopies).or_else(|| args.text(Opt::GroupMetadataCopies))?;
    Some(if asked == "1" { 1 } else { 2 })
}

/// The group has as many copies as were asked for, and one is not written.
fn tell_of_unwritten_copy(session: &mut Session<'_>, report: &GroupReport) {
    let group = &report.name;
    session.console.complain(format!(
        "WARNING: The journal of volume group \"{group}\" is written to one physical volume alone: its other copy is on one that is \
         missing. It is written again when that one is back; for a copy elsewhere remove it first (vgreduce --removemissing {group})."
    ));
}

fn keep_journal(session: &mut Session<'_>, name: &str, copies: u8) -> Result {
    session.change(name, Request::SetJournalCopies { copies })?;
    let kept = session.report(name)?.journal_copies;
    match u64::from(copies) == kept || session.is_test {
        true => session.console.say(format!("Volume group \"{name}\" successfully changed")),
        false => session.console.complain(format!(
            "WARNING: The journal of volume group \"{name}\" stays on one physical volume: no other one that takes extents has room \
             for a copy."
        )),
    }
    Ok(())
}

/// Activates or deactivates all volumes of a group, and prints how many are active then.
fn switch(session: &mut Session<'_>, args: &Args, report: &GroupReport, activation: Activation) -> Result {
    let name = &report.name;
    // A group without autoactivation is skipped without a message.
    if activation == Activation::Auto && !report.attributes.autoactivate {
        return Ok(());
    }
    match activation {
        Activation::No => {
            session.change(name, Request::Deactivate { names: None })?;
        }
        Activation::Yes | Activation::Auto => {
            let ignore_skip = args.has(Opt::IgnoreSkip);
            let auto = activation == Activation::Auto;
            let partial = is_partial(args);
            session.change(name, Request::Activate { names: None, ignore_skip, auto, partial })?;
        }
    }
    let after = session.report(name)?;
    // After a deactivation the count leaves out pools: they have no devices.
    let counts = |volume: &&VolumeReport| match activation {
        Activation::No => volume.node.active,
        Activation::Yes | Activation::Auto => is_active(volume),
    };
    let active = after.volumes.iter().filter(|volume| !volume.is_waiting_to_merge()).filter(counts).count();
    session.console.say(format!("{active} logical volume(s) in volume group \"{name}\" now active"));
    // They are active, and their requests fail.
    if after.stopped && activation != Activation::No { Err(has_stopped(name)) } else { Ok(()) }
}
