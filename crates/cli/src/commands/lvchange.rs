//! lvchange: activation, permission, tags and flags.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::{Activation, Args};
use crate::roles::{Role, refuse_waiting, role};
use crate::session::{SelectedGroup, Session, is_volume_named};
use rowen_control::protocol::{AttributeChange, FullPolicy, GroupReport, Request, VolumeReport};

/// Options that are accepted and change nothing.
const DOES_NOTHING: &[Opt] = &[Opt::Refresh, Opt::Monitor, Opt::Poll, Opt::Resync, Opt::Rebuild];
/// Options that change nothing and are reported as a change.
const CHANGES_NOTHING: &[Opt] = &[
    Opt::Alloc,
    Opt::Contiguous,
    Opt::ReadAhead,
    Opt::Persistent,
    Opt::Discards,
    Opt::Zero,
    Opt::MetadataProfile,
    Opt::DetachProfile,
];

/// What the command line asks for besides activation.
struct Change {
    /// What writes do when the group is full. This is a property of pools.
    full: Option<FullPolicy>,
    read_only: Option<bool>,
    attributes: AttributeChange,
}

impl Change {
    fn from(args: &Args) -> Change {
        let attributes = AttributeChange {
            autoactivate: args.yes_no(Opt::SetAuto),
            skip_activation: args.yes_no(Opt::SetSkip),
            add_tags: args.tags(Opt::AddTag),
            remove_tags: args.tags(Opt::DelTag),
            pool: None,
        };
        let full = match args.yes_no(Opt::ErrorWhenFull) {
            Some(true) => Some(FullPolicy::Fail),
            Some(false) => Some(FullPolicy::Hold),
            None => None,
        };
        Change { full, read_only: args.read_only(), attributes }
    }

    fn has_attributes(&self) -> bool {
        self.attributes != AttributeChange::default()
    }

    fn is_nothing(&self) -> bool {
        self.full.is_none() && self.read_only.is_none() && !self.has_attributes()
    }
}

/// What is done to mirrors in LVM, and not here.
const NO_MIRRORS: &[Opt] =
    &[Opt::Resync, Opt::Rebuild, Opt::WriteMostly, Opt::WriteBehind, Opt::MinRecoveryRate, Opt::MaxRecoveryRate];

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    super::redundancy::refuse(args)?;
    let change = Change::from(args);
    let activation = args.activation();
    let asks_nothing = change.is_nothing() && activation.is_none() && !args.has(Opt::SyncAction);
    let pretends = CHANGES_NOTHING.iter().any(|option| args.has(*option));
    let of_mirrors = NO_MIRRORS.iter().copied().find(|option| args.has(*option));
    if (asks_nothing && of_mirrors.is_none() && !pretends && !DOES_NOTHING.iter().any(|option| args.has(*option)))
        || !args.names_something()
    {
        return Err(Failure::NoForm);
    }
    if let Some(option) = of_mirrors {
        session.select_by(args, false)?.end()?;
        let long = option.spec().long;
        return Err(Failure::failed(format!(
            "--{long} is not supported: the copies of a mirrored volume are made equal by themselves, after a crash and when a \
             disk comes back. After a disk was replaced: \"lvconvert --repair\"."
        )));
    }
    if let Some(action) = args.text(Opt::SyncAction) {
        return super::mirrors::scrub(session, args, action);
    }
    if matches!(activation, Some(Activation::Yes | Activation::Auto)) {
        let groups: Vec<String> = args.positionals.iter().filter_map(|word| group_of(word)).collect();
        super::groups::open_anyway(session, args, &groups)?;
    }
    let mut selection = session.select_by(args, false)?;
    if activation.is_some() && (!change.is_nothing() || pretends) {
        session.console.complain("WARNING: Combining activation change with other commands is not advised.");
    }
    for selected in &mut selection.groups {
        if let Err(failure) = refuse_hidden(selected) {
            session.tell(&failure);
            selection.is_incomplete = true;
        }
        if args.has(Opt::Refresh) {
            refresh(session, selected)?;
        }
        if args.text(Opt::Persistent) == Some("n") {
            for name in &selected.volumes {
                let full = format!("{}/{name}", selected.report.name);
                session.console.complain(format!("Minor number is already not persistent for {full}."));
            }
            selection.is_incomplete = true;
            continue;
        }
        if pretends && change.is_nothing() {
            let full = |name: &String| format!("Logical volume {}/{name} changed.", selected.report.name);
            selected.volumes.iter().for_each(|name| session.console.say(full(name)));
        }
        let outcome = if change.is_nothing() { Ok(()) } else { change_all(session, args, selected, &change) };
        let outcome = outcome.and_then(|()| match activation {
            Some(activation) => activate(session, args, selected, activation),
            None => Ok(()),
        });
        if let Err(failure) = outcome {
            session.tell(&failure);
            selection.is_incomplete = true;
        }
    }
    selection.end()
}

/// Removes snapshots that wait for their merge from the selection, and reports each.
fn refuse_hidden(selected: &mut SelectedGroup) -> Result {
    let report = &selected.report;
    let (hidden, others): (Vec<String>, Vec<String>) =
        selected.volumes.drain(..).partition(|name| report.volume(name).is_some_and(VolumeReport::is_waiting_to_merge));
    selected.volumes = others;
    hidden.iter().filter_map(|name| report.volume(name)).try_for_each(|volume| refuse_waiting(report, volume))
}

/// A device already matches its volume, apart from volumes that the settings make read-only. A merge that waited for
/// the origin to be closed can start.
pub fn refresh(session: &mut Session<'_>, selected: &SelectedGroup) -> Result {
    let active = selected.volumes.iter().filter_map(|name| selected.report.volume(name)).filter(|v| v.node.active);
    let waiting = active.flat_map(|origin| selected.report.snapshots_of(&origin.name));
    let waiting: Vec<String> = waiting.filter(|one| one.is_waiting_to_merge()).map(|one| one.name.clone()).collect();
    for snapshot in waiting {
        session.change(&selected.report.name, Request::Merge { snapshot })?;
    }
    let is_active = |name: &&String| selected.report.volume(name).is_some_and(|volume| volume.node.active);
    let names: Vec<String> = selected.volumes.iter().filter(is_active).cloned().collect();
    if !names.is_empty() {
        session.change(&selected.report.name, Request::Refresh { names })?;
    }
    Ok(())
}

fn change_all(session: &mut Session<'_>, args: &Args, selected: &SelectedGroup, change: &Change) -> Result {
    let mut end = Ok(());
    let group = &selected.report.name;
    for volume in selected.volumes.iter().filter_map(|name| selected.report.volume(name)) {
        // As in LVM, a pool that was not named itself is skipped.
        if volume.is_pool() && change.read_only.is_some() {
            let full = format!("{group}/{}", volume.name);
            session.console.complain(format!("Command on LV {full} uses options invalid with LV type thinpool."));
            if is_volume_named(group, &volume.name, &args.positionals) {
                session.console.complain(format!("Command not permitted on LV {full}."));
                end = Err(Failure::Told);
            }
            continue;
        }
        if let Err(failure) = change_one(session, &selected.report.name, volume, change) {
            session.tell(&failure);
            end = Err(Failure::Told);
        }
    }
    end
}

fn change_one(session: &mut Session<'_>, group: &str, volume: &VolumeReport, change: &Change) -> Result {
    let name = &volume.name;
    let mut is_changed = false;
    let mut is_refused = false;
    match change.read_only {
        Some(wanted) if wanted == volume.read_only => {
            session.console.complain(match wanted {
                true => format!("Logical volume \"{group}/{name}\" is already read only."),
                false => format!("Logical volume {group}/{name} is already writable."),
            });
            is_refused = true;
        }
        Some(read_only) => {
            session.change(group, Request::SetPermission { name: name.clone(), read_only })?;
            is_changed = true;
        }
        None => {}
    }
    if let Some(full) = change.full {
        if !volume.is_pool() {
            return Err(Failure::failed(format!("Command not permitted on LV {group}/{name}: it is no thin pool.")));
        }
        session.change(group, Request::SetFullPolicy { name: name.clone(), full })?;
        is_changed = true;
    }
    if change.has_attributes() {
        session.change(group, Request::SetAttributes { name: name.clone(), change: change.attributes.clone() })?;
        is_changed = true;
    }
    if is_changed {
        session.console.say(format!("Logical volume {group}/{name} changed."));
    }
    if is_refused { Err(Failure::Told) } else { Ok(()) }
}

/// The group that a word names.
fn group_of(word: &str) -> Option<String> {
    let word = word.strip_prefix("/dev/").unwrap_or(word);
    word.split('/').next().filter(|name| rowen_control::names::check_form(name).is_ok()).map(str::to_owned)
}

fn activate(session: &mut Session<'_>, args: &Args, selected: &SelectedGroup, activation: Activation) -> Result {
    if activation == Activation::Auto && !selected.report.attributes.autoactivate {
        return Ok(());
    }
    let (ignore_skip, partial) = (args.has(Opt::IgnoreSkip), super::groups::is_partial(args));
    // A pool has no device of its own.
    let is_pool = |name: &String| selected.report.volume(name).is_some_and(VolumeReport::is_pool);
    let mut names: Vec<String> = selected.volumes.iter().filter(|name| !is_pool(name)).cloned().collect();
    let mut end = Ok(());
    // The name of a group stands for all its volumes.
    if !selected.is_whole && !args.has(Opt::Yes) {
        names.retain(|name| {
            let goes = changes_nothing(&selected.report, name, activation)
                || agrees_to_all(session, &selected.report, name, &selected.volumes);
            if !goes {
                end = Err(Failure::Told);
            }
            goes
        });
    }
    if names.is_empty() {
        return end;
    }
    let names = Some(names);
    let request = match activation {
        Activation::No => Request::Deactivate { names },
        Activation::Yes => Request::Activate { names, ignore_skip, auto: false, partial },
        Activation::Auto => Request::Activate { names, ignore_skip, auto: true, partial },
    };
    session.change(&selected.report.name, request)?;
    end
}

/// An active volume is not activated again. LVM asks its question all the same, and so fails for programs that run
/// without a user.
fn changes_nothing(report: &GroupReport, name: &str, activation: Activation) -> bool {
    let Some(volume) = report.volume(name) else { return false };
    let is_origin_active =
        volume.origin.as_ref().and_then(|origin| report.volume(origin)).is_none_or(|origin| origin.node.active);
    !matches!(activation, Activation::No) && volume.node.active && is_origin_active
}

/// A snapshot with a size is activated and deactivated together with its origin and the origin's other snapshots with a
/// size. Asks for confirmation. There is no question if the origin was named, too.
fn agrees_to_all(session: &mut Session<'_>, report: &GroupReport, name: &str, named: &[String]) -> bool {
    let follows = |volume: &&VolumeReport| role(volume) == Role::Snapshot && volume.reserve_blocks.is_some();
    let Some(volume) = report.volume(name).filter(follows) else { return true };
    let Some(origin) = volume.origin.as_ref().filter(|origin| !named.contains(origin)) else { return true };
    let group = &report.name;
    // A report about a snapshot leaves out its siblings.
    let family = session.report_of(group, vec![origin.clone()]);
    let all = family.map_or(1, |family| family.snapshots_of(origin).filter(follows).count());
    let others = all.saturating_sub(1);
    let and_others = if others > 0 { format!(" and {others} other snapshot(s)") } else { String::new() };
    let question =
        format!("Change of snapshot {group}/{name} will also change its origin {group}/{origin}{and_others}. Proceed?");
    let agrees = session.console.asks(&question);
    if !agrees {
        session.console.complain(format!("Logical volume {group}/{name} not changed."));
    }
    agrees
}
