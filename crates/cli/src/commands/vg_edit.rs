//! vgreduce, vgrename, vgexport, vgimport, vgck and vgmknodes: changes of a group as a whole.

use super::groups::{each, go_on_without, has_nodes, has_stopped, known_group, named_groups};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Detail, Session, unexpected, unless_exported};
use rowen_control::names;
use rowen_control::protocol::{GroupChange, GroupReport, Outcome, Request};

/// vgrename refuses names of this length or more, as in LVM. vgcreate accepts longer ones.
const LONGEST_NEW_NAME: usize = 121;

pub fn rename(session: &mut Session<'_>, args: &Args) -> Result {
    let [from, to] = &args.positionals[..] else {
        return Err(Failure::NoForm);
    };
    let from = known_group(from)?;
    let to = to.strip_prefix("/dev/").unwrap_or(to);
    let invalid = |why: String| Failure::failed(format!("{why}\nNew volume group name \"{to}\" is invalid."));
    names::check_form(to).map_err(|why| invalid(why.to_string()))?;
    if to.len() >= LONGEST_NEW_NAME {
        return Err(Failure::failed(format!("New volume group path exceeds maximum length of {LONGEST_NEW_NAME}!")));
    }
    if from == to {
        return Err(Failure::failed("Old and new volume group names must differ"));
    }
    let report = session.report(&from)?;
    if session.backend.groups()?.iter().any(|group| group == to) {
        return Err(Failure::failed(format!("New VG name \"{to}\" already exists")));
    }
    if has_nodes(session, to)? {
        return Err(invalid(format!("/dev/{to}: already exists in filesystem")));
    }
    if let Some(refusal) = report.volumes.iter().find_map(|volume| names::pair_too_long(to, &volume.name)) {
        return Err(Failure::failed(refusal));
    }
    session.change(&from, Request::RenameGroup { to: to.to_owned() })?;
    if !session.is_test {
        // Its server continues under the new name, and the next request finds it there.
        session.report(to)?;
    }
    session.console.say(format!("Volume group \"{from}\" successfully renamed to \"{to}\""));
    Ok(())
}

/// The groups that the words name, or all with `-a`. One of the two is required.
fn chosen(session: &mut Session<'_>, args: &Args) -> Result<Vec<String>> {
    match (args.positionals.is_empty(), args.has(Opt::AllGroups)) {
        (true, false) => Err(Failure::NoForm),
        (false, true) => Err(Failure::usage("No arguments permitted when using -a for all.")),
        _ => named_groups(session, &args.positionals),
    }
}

pub fn export(session: &mut Session<'_>, args: &Args) -> Result {
    let groups = chosen(session, args)?;
    each(session, args, &groups, |session, name| {
        let report = session.report(name)?;
        if report.attributes.exported {
            return Err(Failure::failed(format!("Volume group \"{name}\" is exported")));
        }
        if report.volumes.iter().any(|volume| volume.node.active) {
            return Err(Failure::failed(format!("Volume group \"{name}\" has active logical volumes")));
        }
        set_exported(session, name, true)?;
        session.console.say(format!("Volume group \"{name}\" successfully exported"));
        Ok(())
    })
}

pub fn import(session: &mut Session<'_>, args: &Args) -> Result {
    let groups = chosen(session, args)?;
    each(session, args, &groups, |session, name| {
        if !session.report(name)?.attributes.exported {
            return Err(Failure::failed(format!("Volume group \"{name}\" is not exported")));
        }
        set_exported(session, name, false)?;
        session.console.say(format!("Volume group \"{name}\" successfully imported"));
        Ok(())
    })
}

fn set_exported(session: &mut Session<'_>, name: &str, exported: bool) -> Result {
    let change = GroupChange { exported: Some(exported), ..GroupChange::default() };
    session.change(name, Request::ChangeGroup { change })?;
    Ok(())
}

pub fn check(session: &mut Session<'_>, args: &Args) -> Result {
    let groups = named_groups(session, &args.positionals)?;
    let updates = args.has(Opt::UpdateMetadata);
    let is_named = !args.positionals.is_empty();
    each(session, args, &groups, |session, name| {
        let report = session.report_of(name, Vec::new())?;
        if report.attributes.exported && !is_named {
            return Ok(());
        }
        unless_exported(report)?;
        if updates {
            session.change(name, Request::Checkpoint)?;
            return Ok(());
        }
        match session.ask(name, Request::Check)? {
            Outcome::Check(found) if found.findings.is_empty() && found.missing > 0 => {
                Err(Failure::failed(format!("The volume group is missing {} physical volumes.", found.missing)))
            }
            Outcome::Check(found) if found.findings.is_empty() => Ok(()),
            Outcome::Check(found) => Err(Failure::failed(found.findings.join("\n"))),
            other => Err(unexpected(name, &other)),
        }
    })
}

pub fn make_nodes(session: &mut Session<'_>, args: &Args) -> Result {
    let selection = session.select(&args.positionals, Detail::default())?;
    for selected in &selection.groups {
        session.change(&selected.report.name, Request::MakeNodes)?;
    }
    selection.end()
}

pub fn reduce(session: &mut Session<'_>, args: &Args) -> Result {
    let Some((name, paths)) = args.positionals.split_first() else {
        return Err(Failure::NoForm);
    };
    let name = known_group(name)?;
    let (all, missing) = (args.has(Opt::AllEmpty), args.has(Opt::RemoveMissing));
    match (paths.is_empty(), all || missing) {
        (true, false) => return Err(Failure::NoForm),
        (false, true) => {
            return Err(Failure::usage("Please don't give both physical volume paths and -a or --removemissing."));
        }
        _ => {}
    }
    if missing {
        return remove_missing(session, args, &name);
    }
    let report = session.report(&name)?;
    if !report.attributes.resizeable {
        return Err(Failure::failed(format!("Volume group {name} is not resizeable.")));
    }
    let paths = if all { all_but_used(&report) } else { without_tags(&report, paths) };
    let mut end = Ok(());
    for word in &paths {
        let path = session.backend.absolute(word);
        let outcome = match report.pvs.iter().any(|pv| pv.path == path) {
            true => reduce_by(session, &report, &path),
            false if session.backend.exists(&path) => {
                Err(Failure::failed(format!("Failed to find physical volume \"{path}\".")))
            }
            false => Err(Failure::failed(format!("Cannot use {word}: device not found"))),
        };
        match outcome {
            Ok(()) => session.console.say(format!("Removed \"{path}\" from volume group \"{name}\"")),
            // With -a, used ones stay, and that is no failure.
            Err(failure) if all && failure == still_in_use(&path) => {}
            Err(failure) => {
                session.tell(&failure);
                end = Err(Failure::Told);
            }
        }
    }
    end
}

/// Removes missing physical volumes from the group, one after the other. With `--force` the volumes that lost data are
/// removed first, with those that depend on them.
fn remove_missing(session: &mut Session<'_>, args: &Args, name: &str) -> Result {
    if !session.is_test {
        go_on_without(session, name, false)?;
    }
    let report = session.report(name)?;
    let missing = report.missing().count();
    if report.stopped {
        return Err(has_stopped(name));
    }
    if missing == 0 {
        session.console.say(format!("Volume group \"{name}\" is already consistent."));
        return Ok(());
    }
    let partial: Vec<_> = report.volumes.iter().filter(|volume| volume.is_partial).collect();
    if args.has(Opt::Force) && !partial.is_empty() {
        let mut names: Vec<String> =
            partial.iter().flat_map(|volume| super::lvremove::with_dependents(&report, volume)).collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|volume| seen.insert(volume.clone()));
        session.change(name, Request::Remove { names: names.clone() })?;
        for volume in &names {
            session.console.complain(format!("WARNING: Removing partial LV {name}/{volume}."));
        }
    }
    for _ in 0..missing {
        session.change(name, Request::RemoveMissing)?;
        if session.is_test {
            break;
        }
        // The group's next server does not have it any more.
        session.report(name)?;
    }
    if !session.is_test && session.report(name)?.missing().next().is_some() {
        return Err(Failure::failed(format!("A missing physical volume is still in use in volume group \"{name}\"")));
    }
    session.console.say(format!("Wrote out consistent volume group {name}."));
    Ok(())
}

/// The words, with each tag replaced by the group's physical volumes that have it.
fn without_tags(report: &GroupReport, words: &[String]) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for word in words {
        let found: Vec<String> = match word.strip_prefix('@') {
            None => vec![word.clone()],
            Some(tag) => {
                let tagged = report.pvs.iter().filter(|pv| pv.tags.iter().any(|own| own == tag));
                tagged.map(|pv| pv.path.clone()).collect()
            }
        };
        paths.extend(found);
    }
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

fn still_in_use(path: &str) -> Failure {
    Failure::failed(format!("Physical volume \"{path}\" still in use"))
}

fn all_but_used(report: &GroupReport) -> Vec<String> {
    // The last one first, so that the group keeps its oldest physical volume.
    report.pvs.iter().rev().map(|pv| pv.path.clone()).collect()
}

fn reduce_by(session: &mut Session<'_>, report: &GroupReport, path: &str) -> Result {
    let name = &report.name;
    if session.change(name, Request::RemovePv { path: path.to_owned() })? != Outcome::HandsOver {
        return Ok(());
    }
    // Between the answer and the server's end, data may have been placed on it.
    match session.report(name)?.pvs.iter().any(|pv| pv.path == path) {
        true => Err(still_in_use(path)),
        false => Ok(()),
    }
}
