//! lvremove: removes volumes, and the volumes that LVM removes with them. With an origin go its snapshots with a size
//! and a snapshot that waits for its merge. With a pool go its volumes. Other snapshots without a size stay complete.

use crate::failure::{Failure, Result};
use crate::parse::Args;
use crate::roles::{Role, dependent_snapshots, members, role};
use crate::session::Session;
use rowen_control::protocol::{GroupReport, Request, VolumeReport};

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    if !args.names_something() {
        return Err(Failure::NoForm);
    }
    let mut selection = session.select_by(args, true)?;
    for selected in std::mem::take(&mut selection.groups) {
        let mut gone: Vec<String> = Vec::new();
        for name in &selected.volumes {
            let Some(volume) = selected.report.volume(name) else { continue };
            if gone.contains(name) {
                continue;
            }
            match remove_one(session, args, &selected.report, volume, &gone) {
                Ok(names) => gone.extend(names),
                Err(failure) => {
                    session.tell(&failure);
                    selection.is_incomplete = true;
                }
            }
        }
    }
    selection.end()
}

/// The names of the volumes that are removed with `volume`, and its own name last.
pub fn with_dependents(report: &GroupReport, volume: &VolumeReport) -> Vec<String> {
    let mut names = Vec::new();
    if role(volume) == Role::Pool {
        for member in members(report, &volume.name) {
            names.extend(dependent_snapshots(report, &member.name));
            names.push(member.name.clone());
        }
    } else {
        names.extend(dependent_snapshots(report, &volume.name));
    }
    names.push(volume.name.clone());
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

fn remove_one(
    session: &mut Session<'_>,
    args: &Args,
    report: &GroupReport,
    volume: &VolumeReport,
    gone: &[String],
) -> Result<Vec<String>> {
    let names: Vec<String> = with_dependents(report, volume).into_iter().filter(|name| !gone.contains(name)).collect();
    let full = format!("{}/{}", report.name, volume.name);
    if let Some(origin) = volume.origin.as_ref().filter(|_| volume.is_waiting_to_merge()) {
        return Err(Failure::failed(match role(volume) {
            Role::Thin => format!("Unable to remove {full}, volume is merged to {}/{origin}.", report.name),
            _ => format!("Can't remove merging snapshot logical volume {full}."),
        }));
    }
    // A volume in use is refused whatever the answer is, so there is no question.
    let is_free = names.iter().all(|name| report.volume(name).is_none_or(|volume| !volume.node.open));
    if !args.assumes_yes() && is_free {
        let others = names.len() - 1;
        let question = match role(volume) {
            Role::Pool if others > 0 => {
                Some(format!("Removing pool \"{}\" will remove {others} dependent volume(s). Proceed?", volume.name))
            }
            _ if volume.node.active && others > 0 => Some(format!(
                "Do you really want to remove active origin logical volume {full} with {others} snapshots(s)?"
            )),
            _ if volume.node.active => Some(format!("Do you really want to remove active logical volume {full}?")),
            _ if others > 0 => {
                Some(format!("Do you really want to remove origin logical volume {full} with {others} snapshots(s)?"))
            }
            _ => None,
        };
        if question.is_some_and(|question| !session.console.asks(&question)) {
            return Err(Failure::failed(format!("Logical volume {full} not removed.")));
        }
    }
    session.change(&report.name, Request::Remove { names: names.clone() })?;
    for name in &names {
        session.console.say(format!("Logical volume \"{name}\" successfully removed."));
    }
    Ok(names)
}
