//! lvrename, in both of its forms.

use crate::failure::{Failure, Result};
use crate::parse::Args;
use crate::session::{Session, unless_exported};
use rowen_control::names::{self, Refusal};
use rowen_control::paths::Target;
use rowen_control::protocol::Request;

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    let (group, from, to) = match &args.positionals[..] {
        [group, from, to] => (super::groups::group_name(group)?, last_part(from), to),
        [from, to] => match Target::parse(from) {
            Some(Target::Volume { group, volume }) => (group, volume, to),
            _ => {
                return Err(Failure::usage(format!(
                    "Path required for Logical Volume \"{from}\".\nPlease provide a valid volume group name"
                )));
            }
        },
        [_, _, _, more, ..] => return Err(Failure::Operand(more.clone())),
        _ => return Err(Failure::NoForm),
    };
    let to = match Target::parse(to) {
        Some(Target::Volume { group: other, volume }) if to.contains('/') => {
            if other != group {
                return Err(Failure::usage(format!(
                    "Logical volume names must have the same volume group (\"{group}\" or \"{other}\")"
                )));
            }
            volume
        }
        _ => to.clone(),
    };
    check_new_name(&group, &to)?;
    if from == to {
        return Err(Failure::usage("Old and new logical volume names must differ"));
    }
    let report = unless_exported(session.report_of(&group, vec![from.clone(), to.clone()])?)?;
    let Some(volume) = report.volume(&from) else {
        return Err(Failure::failed(format!(
            "Existing logical volume \"{from}\" not found in volume group \"{group}\""
        )));
    };
    if volume.is_waiting_to_merge() {
        return Err(Failure::failed(format!("Cannot rename internal LV \"{from}\".")));
    }
    if report.volume(&to).is_some() {
        return Err(Failure::failed(format!("Logical Volume \"{to}\" already exists in volume group \"{group}\"")));
    }
    session.change(&group, Request::Rename { from: from.clone(), to: to.clone() })?;
    session.console.say(format!("Renamed \"{from}\" to \"{to}\" in volume group \"{group}\""));
    Ok(())
}

fn check_new_name(group: &str, to: &str) -> Result {
    if names::pair_too_long(group, to).is_some() {
        let most = names::longest_volume(group);
        return Err(Failure::usage(format!("New logical volume name \"{to}\" may not exceed {most} characters.")));
    }
    names::check_volume(to).map_err(|why| match why {
        Refusal::ReservedPrefix(_) | Refusal::ReservedPart(_) => Failure::usage(why.to_string()),
        _ => Failure::usage(format!("New logical volume name \"{to}\" is invalid")),
    })
}

/// The volume's name in a word that may also be a path.
fn last_part(word: &str) -> String {
    match Target::parse(word) {
        Some(Target::Volume { volume, .. }) => volume,
        _ => word.to_owned(),
    }
}
