//! lvscan, vgscan and pvscan: one line for each volume, group or device. Rowen has no cache, so these only print.
//! `pvscan --cache -aay` also activates a complete group, for udev rules.

use super::reports::{Devices, end_of_query, named_devices, named_reports};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::{Activation, Args};
use crate::report::fields::is_active;
use crate::roles::{Role, extent_bytes, role, shown_blocks};
use crate::session::Session;
use rowen_control::paths::node_path;
use rowen_control::protocol::{PvReport, Request};
use rowen_control::units::Units;
use rowen_control::uuids::lvm_text;
use rowen_engine::units::BLOCK_SIZE;

fn refuse_operands(args: &Args) -> Result {
    match args.positionals.first() {
        Some(word) => Err(Failure::Operand(word.clone())),
        None => Ok(()),
    }
}

pub fn lvscan(session: &mut Session<'_>, args: &Args) -> Result {
    refuse_operands(args)?;
    let (reports, is_incomplete) = named_reports(session, &[], false)?;
    for group in reports.iter().filter(|group| !group.attributes.exported) {
        for volume in group.volumes.iter().filter(|volume| args.has(Opt::All) || !volume.is_waiting_to_merge()) {
            let state = if is_active(volume) { "ACTIVE" } else { "inactive" };
            let kind = match role(volume) {
                Role::Snapshot => "Snapshot",
                _ if crate::roles::is_origin(group, &volume.name) => "Original",
                _ => "",
            };
            let size = args.units().words(shown_blocks(volume).saturating_mul(BLOCK_SIZE));
            let path = node_path(&group.name, &volume.name);
            session.console.say(format!("{state:<8} {kind:<8} '{path}' [{size}] inherit"));
        }
    }
    end_of_query(args, is_incomplete)
}

pub fn vgscan(session: &mut Session<'_>, args: &Args) -> Result {
    refuse_operands(args)?;
    let (reports, is_incomplete) = named_reports(session, &[], false)?;
    for group in &reports {
        let exported = if group.attributes.exported { "exported " } else { "" };
        session.console.say(format!("Found {exported}volume group \"{}\" using metadata type lvm2", group.name));
    }
    end_of_query(args, is_incomplete)
}

pub fn pvscan(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::ExportedOnly) && args.has(Opt::FreeOnly) {
        return Err(Failure::usage("Options -e and -n are incompatible"));
    }
    if args.has(Opt::Cache) {
        return online(session, args);
    }
    if args.has(Opt::ListGroup) || args.has(Opt::ListVolumes) {
        return list(session, args);
    }
    refuse_operands(args)?;
    for (option, which) in [(Opt::ExportedOnly, "of exported volume group(s)"), (Opt::FreeOnly, "in no volume group")] {
        if args.has(option) {
            session.console.complain(format!("WARNING: only considering physical volumes {which}"));
        }
    }
    let devices = named_devices(session, args, false)?;
    let is_exported = |devices: &Devices, at: usize| {
        devices.report(&devices.labels[at]).is_some_and(|report| report.attributes.exported)
    };
    let mut wanted: Vec<usize> = (0..devices.labels.len())
        .filter(|at| !args.has(Opt::ExportedOnly) || is_exported(&devices, *at))
        .filter(|at| !args.has(Opt::FreeOnly) || devices.labels[*at].group.is_none())
        .collect();
    // By group, and devices of no group last.
    wanted.sort_by(|a, b| {
        let key = |at: usize| (devices.labels[at].group.is_none(), &devices.labels[at].group, &devices.labels[at].path);
        key(*a).cmp(&key(*b))
    });
    show(session, args, &devices, &wanted);
    end_of_query(args, devices.is_incomplete)
}

fn show(session: &mut Session<'_>, args: &Args, devices: &Devices, wanted: &[usize]) {
    /// LVM's column has the width of the name of its orphan group.
    const MIN_GROUP: usize = 13;
    if wanted.is_empty() {
        return session.console.say("No matching physical volumes found");
    }
    let units: Units = args.units();
    let name = |at: usize| {
        let label = &devices.labels[at];
        match label.uuid.filter(|_| args.has(Opt::ShowUuid)) {
            Some(uuid) => format!("{} with UUID {}", label.path, lvm_text(uuid)),
            None => label.path.clone(),
        }
    };
    let widest =
        wanted.iter().map(|at| name(*at).len()).max().unwrap_or(0) + if args.has(Opt::ShowUuid) { 3 } else { 2 };
    let of_groups = wanted.iter().filter_map(|at| devices.labels[*at].group.as_ref()).map(String::len);
    let group_width = of_groups.chain([MIN_GROUP]).max().unwrap_or(MIN_GROUP) + 2;
    let (mut used, mut free) = ((0u64, 0u64), (0u64, 0u64));
    for at in wanted {
        let label = &devices.labels[*at];
        let member = devices.report(label).and_then(|report| {
            let pv = report.pvs.iter().find(|pv| Some(pv.uuid) == label.uuid)?;
            Some((report, pv))
        });
        let sizes = match member {
            Some((report, pv)) => {
                let of = |extents: u64| extents.saturating_mul(extent_bytes(report));
                let PvReport { extents, free_extents, .. } = pv;
                used = (used.0 + 1, used.1.saturating_add(of(*extents)));
                format!("{} / {} free", units.words(of(*extents)), units.words(of(*free_extents)))
            }
            None => {
                free = (free.0 + 1, free.1.saturating_add(label.usable));
                units.words(label.usable)
            }
        };
        let line = match (&label.group, args.has(Opt::Short)) {
            (_, true) => label.path.clone(),
            (Some(group), false) => format!("PV {:<widest$} VG {group:<group_width$} lvm2 [{sizes}]", name(*at)),
            (None, false) => format!("PV {:<widest$}    {:<group_width$} lvm2 [{sizes}]", name(*at), ""),
        };
        session.console.say(line);
    }
    session.console.say(format!(
        "Total: {} [{}] / in use: {} [{}] / in no VG: {} [{}]",
        used.0 + free.0,
        units.words(used.1.saturating_add(free.1)),
        used.0,
        units.words(used.1),
        free.0,
        units.words(free.1)
    ));
}

/// `--cache`: reports devices. With `-aay`, activates the groups that they complete.
fn online(session: &mut Session<'_>, args: &Args) -> Result {
    let devices = named_devices(session, args, false)?;
    let process = std::process::id();
    for label in &devices.labels {
        let state = if label.group.is_some() { "online" } else { "not used" };
        session.console.say(format!("pvscan[{process}] PV {} {state}.", label.path));
    }
    if args.activation() == Some(Activation::Auto) {
        for report in devices.reports.iter().filter(|report| report.attributes.autoactivate) {
            session.console.say(format!("pvscan[{process}] VG {} run autoactivation.", report.name));
            session.change(
                &report.name,
                Request::Activate { names: None, ignore_skip: false, auto: true, partial: false },
            )?;
            let now = session.report(&report.name)?;
            let active = now.volumes.iter().filter(|volume| is_active(volume)).count();
            session.console.say(format!("{active} logical volume(s) in volume group \"{}\" now active", report.name));
        }
    }
    end_of_query(args, devices.is_incomplete)
}

/// The groups of the named devices, and their volumes.
fn list(session: &mut Session<'_>, args: &Args) -> Result {
    let devices = named_devices(session, args, false)?;
    for report in &devices.reports {
        session.console.say(format!("VG {}", report.name));
        if args.has(Opt::ListVolumes) {
            for volume in &report.volumes {
                session.console.say(format!("LV {}/{}", report.name, volume.name));
            }
        }
    }
    end_of_query(args, devices.is_incomplete)
}
