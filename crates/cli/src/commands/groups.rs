//! The groups that a command line names, and the loop over them.

use crate::backend::WentOn;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::Kind;
use crate::report::select::Criteria;
use crate::session::Session;
use rowen_control::paths::{Target, bad_group};

/// The group that a word names.
pub fn group_name(word: &str) -> Result<String> {
    match Target::parse(word) {
        Some(Target::Group(name)) => Ok(name),
        _ => Err(Failure::usage("Volume group name expected (no slash)")),
    }
}

/// The group that a word names, for commands that look the group up.
pub fn known_group(word: &str) -> Result<String> {
    let name = word.strip_prefix("/dev/").unwrap_or(word);
    match Target::parse(word) {
        Some(Target::Group(name)) => Ok(name),
        _ if name.is_empty() => Err(Failure::failed(bad_group(name))),
        _ => Err(Failure::usage(format!("Invalid volume group name {name}."))),
    }
}

/// The named groups, without duplicates.
pub fn known_groups(args: &Args) -> Result<Vec<String>> {
    let mut groups = Vec::with_capacity(args.positionals.len());
    for word in &args.positionals {
        let name = known_group(word)?;
        if !groups.contains(&name) {
            groups.push(name);
        }
    }
    Ok(groups)
}

/// Whether volumes that lost data are activated, too.
pub fn is_partial(args: &Args) -> bool {
    args.has(Opt::Partial) || args.text(Opt::ActivationMode) == Some("partial")
}

/// If the command line says so, opens groups without their missing physical volumes.
pub fn open_anyway(session: &mut Session<'_>, args: &Args, groups: &[String]) -> Result {
    if is_partial(args) {
        session.console.complain("PARTIAL MODE. Incomplete logical volumes will be processed.");
    } else if args.text(Opt::ActivationMode) != Some("degraded") {
        return Ok(());
    }
    match session.is_test {
        true => Ok(()),
        false => groups.iter().try_for_each(|group| go_on_without(session, group, args.has(Opt::Force))),
    }
}

/// From now on the group is opened without the missing physical volumes. `anyway`: also if this host has seen a newer state of
/// it.
pub fn go_on_without(session: &mut Session<'_>, group: &str, anyway: bool) -> Result {
    let WentOn { missing, warnings } = session.backend.go_on_without(group, anyway).map_err(Failure::from)?;
    if missing > 0 {
        session.console.complain(format!("WARNING: VG {group} goes on without {missing} missing PV(s)."));
    }
    warnings.into_iter().for_each(|warning| session.console.complain(warning));
    Ok(())
}

/// Refuses paths that do not exist, by the name that the user gave.
pub fn refuse_missing(session: &mut Session<'_>, paths: &[String]) -> Result {
    for path in paths {
        let full = session.backend.absolute(path);
        if path.is_empty() || !session.backend.exists(&full) {
            return Err(Failure::failed(format!("No device found for {path}.")));
        }
    }
    Ok(())
}

/// Whether /dev/NAME, the directory of a group's devices, exists already. Remains of a group of that name whose disks
/// are gone are removed.
pub fn has_nodes(session: &mut Session<'_>, name: &str) -> Result<bool> {
    let nodes = format!("/dev/{name}");
    if session.backend.exists(&nodes) && !session.is_test {
        session.backend.clear_remains(name)?;
    }
    Ok(session.backend.exists(&nodes))
}

/// Acts on each group that the command line names. A failure does not stop the others.
pub fn each(
    session: &mut Session<'_>,
    args: &Args,
    groups: &[String],
    act: impl Fn(&mut Session<'_>, &str) -> Result,
) -> Result {
    let mut end = Ok(());
    for group in groups {
        let name = known_group(group)?;
        match act(session, &name) {
            Ok(()) => {}
            Err(_) if args.positionals.is_empty() && session.is_gone(&name) => {}
            Err(failure) => {
                session.tell(&failure);
                end = Err(Failure::Told);
            }
        }
    }
    end
}

/// The groups that the command line names and that meet its criteria.
pub fn chosen_groups(session: &mut Session<'_>, args: &Args) -> Result<Vec<String>> {
    let criteria = Criteria::of_command(args, Kind::Group)?;
    let names = named_groups(session, &args.positionals)?;
    let Some(criteria) = criteria else { return Ok(names) };
    let shows_use = criteria.shows_use();
    let mut chosen = Vec::new();
    for name in names {
        match session.report_with(&name, shows_use) {
            Ok(report) if criteria.takes_group(&report) => chosen.push(name),
            Ok(_) => {}
            Err(failure) if !args.positionals.is_empty() => return Err(failure),
            Err(_) if session.is_gone(&name) => {}
            Err(failure) => session.tell(&failure),
        }
    }
    Ok(chosen)
}

/// The groups that the words name: by name or by tag. Without words: all of them.
pub fn named_groups(session: &mut Session<'_>, words: &[String]) -> Result<Vec<String>> {
    if words.is_empty() {
        return Ok(session.backend.groups()?);
    }
    let mut names: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        let found = match Target::parse(word) {
            Some(Target::Tag(tag)) => session.tagged_groups(&tag)?,
            _ => vec![known_group(word)?],
        };
        names.extend(found);
    }
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

/// The refusal of what a group that has stopped cannot do.
pub(super) fn has_stopped(name: &str) -> Failure {
    Failure::failed(format!("Volume group \"{name}\" has stopped. Why, and what to do: rowen status {name}"))
}
