//! The commands that LVM does not have.

use super::groups::group_name;
use super::lvcreate::{chunk_blocks, new_snapshot};
use crate::backend::Trouble;
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::roles::{Role, role};
use crate::session::{Session, no_volume, unexpected};
use rowen_control::names;
use rowen_control::paths::Target;
use rowen_control::protocol::{CheckOutcome, ErrorKind, GroupReport, Outcome, Request, VolumeReport};
use rowen_control::time;

/// The only argument: a group's name.
fn only_group(args: &Args) -> Result<String> {
    match &args.positionals[..] {
        [word] => group_name(word),
        [] => Err(Failure::usage("Please specify the volume group's name.")),
        _ => Err(Failure::usage("Please specify one volume group.")),
    }
}

pub fn check(session: &mut Session<'_>, args: &Args) -> Result {
    verify(session, args, false)
}

/// Restores damaged copies of metadata from the good ones, and verifies everything.
pub fn repair(session: &mut Session<'_>, args: &Args) -> Result {
    verify(session, args, true)
}

fn verify(session: &mut Session<'_>, args: &Args, repair: bool) -> Result {
    let group = only_group(args)?;
    let is_name = names::check_form(&group).is_ok();
    if !is_name {
        return Err(Failure::failed(crate::session::no_group(&group)));
    }
    let closed = if session.backend.is_running(&group)? {
        None
    } else {
        let what = format!("Checking {group}");
        let console = &mut session.console;
        console.progress(0, 0, &what);
        match session.backend.check_closed(&group, repair, &mut |done, total| console.progress(done, total, &what)) {
            // A server is just starting, for instance after one was killed.
            Err(Trouble::Other { kind: ErrorKind::InUse, .. }) => None,
            checked => {
                let is_there = !matches!(checked, Err(Trouble::Other { kind: ErrorKind::NotFound, .. }));
                if repair && is_there {
                    session.alone = Some((group.clone(), "repair"));
                }
                Some(checked?)
            }
        }
    };
    let checked = match closed {
        Some(checked) => checked,
        None => match session.ask(&group, if repair { Request::Repair } else { Request::Check })? {
            Outcome::Check(checked) => checked,
            other => return Err(unexpected(&group, &other)),
        },
    };
    print_findings(session, &group, &checked)
}

fn print_findings(session: &mut Session<'_>, group: &str, checked: &CheckOutcome) -> Result {
    let CheckOutcome { findings, repairable, repaired, notes, missing, nodes, blocks } = checked;
    for note in notes {
        session.console.say(format!("{note}."));
    }
    for copy in repaired {
        session.console.say(format!("Rewritten from the good copy: {copy}."));
    }
    for finding in findings {
        session.console.complain(finding);
    }
    let seen = format!("{nodes} metadata nodes and {blocks} blocks examined");
    if *missing > 0 {
        session.console.complain(format!(
            "WARNING: {missing} physical volume(s) of volume group \"{group}\" are missing, and nothing on them was examined."
        ));
    }
    if findings.is_empty() {
        let what = if *missing > 0 { "What there is of volume group" } else { "Volume group" };
        session.console.say(format!("{what} \"{group}\" is sound: {seen}."));
        return Ok(());
    }
    if *repairable > 0 {
        session.console.complain(format!("{repairable} of these can be repaired: rowen repair {group}"));
    }
    let count = findings.len();
    Err(Failure::failed(format!("Volume group \"{group}\" is damaged: {count} finding(s), {seen}.")))
}

pub fn snapshot(session: &mut Session<'_>, args: &Args) -> Result {
    let Some((group, wanted)) = args.positionals.split_first() else {
        return Err(Failure::usage("Please specify the volume group's name."));
    };
    let group = group_name(group)?;
    let chunk = chunk_blocks(args)?;
    let report = session.report(&group)?;
    let origins = origins(&report, wanted)?;
    if origins.is_empty() {
        return Err(Failure::failed(format!("Volume group \"{group}\" has no volume to take a snapshot of.")));
    }
    let suffix = match args.text(Opt::Suffix) {
        Some(suffix) => suffix.to_owned(),
        None => time::compact(session.backend.now()),
    };
    let mut specs = Vec::with_capacity(origins.len());
    for origin in origins {
        let name = format!("{}-{suffix}", origin.name);
        names::check_volume(&name)
            .map_err(|why| Failure::usage(format!("Snapshot name \"{name}\" is invalid: {why}")))?;
        if let Some(refusal) = names::pair_too_long(&group, &name) {
            return Err(Failure::failed(refusal));
        }
        if report.volume(&name).is_some() {
            return Err(Failure::failed(format!(
                "Logical Volume \"{name}\" already exists in volume group \"{group}\""
            )));
        }
        specs.push(new_snapshot(session, args, origin, name, None, chunk));
    }
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    session.change(&group, Request::Snapshot { specs, freeze: true })?;
    for name in names {
        session.console.say(format!("Logical volume \"{name}\" created."));
    }
    Ok(())
}

/// The named volumes, each once; without names, all that are neither snapshots nor pools.
fn origins<'a>(report: &'a GroupReport, wanted: &[String]) -> Result<Vec<&'a VolumeReport>> {
    if wanted.is_empty() {
        return Ok(report.volumes.iter().filter(|volume| volume.origin.is_none() && !volume.is_pool()).collect());
    }
    let group = &report.name;
    let mut origins: Vec<&VolumeReport> = Vec::with_capacity(wanted.len());
    for word in wanted {
        let name = match Target::parse(word) {
            Some(Target::Volume { group: other, volume }) if other == *group => volume,
            Some(Target::Volume { .. }) => {
                return Err(Failure::usage(format!("\"{word}\" is not in volume group \"{group}\".")));
            }
            _ => word.clone(),
        };
        let Some(volume) = report.volume(&name) else {
            return Err(Failure::failed(no_volume(group, &name)));
        };
        if role(volume) == Role::Pool {
            return Err(Failure::failed(format!("Thin pool {group}/{name} has no contents to take a snapshot of.")));
        }
        if !origins.iter().any(|known| known.name == name) {
            origins.push(volume);
        }
    }
    Ok(origins)
}

pub fn revert(session: &mut Session<'_>, args: &Args) -> Result {
    let [target, source] = &args.positionals[..] else { return Err(Failure::NoForm) };
    let (report, target) = session.one_volume(target, no_volume)?;
    let group = &report.name;
    let source = match Target::parse(source) {
        Some(Target::Volume { group: other, volume }) if other == *group => volume,
        Some(Target::Volume { .. }) => {
            return Err(Failure::usage(format!("\"{source}\" is not in volume group \"{group}\".")));
        }
        _ => source.clone(),
    };
    // The source may have another origin than the target, so it has its own report.
    if session.report_of(group, vec![source.clone()])?.volume(&source).is_none() {
        return Err(Failure::failed(no_volume(group, &source)));
    }
    let name = &target.name;
    let question =
        format!("Do you really want to replace the contents of {group}/{name} with those of {group}/{source}?");
    if !args.assumes_yes() && !session.is_test && !session.console.asks(&question) {
        return Err(Failure::failed(format!("Logical volume {group}/{name} not reverted.")));
    }
    session.change(group, Request::Revert { target: name.clone(), source: source.clone() })?;
    session.console.say(format!("Logical volume {group}/{name} reverted to {group}/{source}."));
    Ok(())
}

pub fn stats(session: &mut Session<'_>, args: &Args) -> Result {
    let group = only_group(args)?;
    let stats = match session.ask(&group, Request::Stats)? {
        Outcome::Stats(stats) => stats,
        other => return Err(unexpected(&group, &other)),
    };
    if args.text(Opt::ReportFormat) == Some("json") {
        let fields: Vec<String> = stats.rows().iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        session.console.raw_out(&format!("{{{}}}\n", fields.join(", ")));
        return Ok(());
    }
    for (name, value) in stats.rows() {
        session.console.say(format!("{:<22}{value:>16}", name.replace('_', " ")));
    }
    Ok(())
}

pub fn stop(session: &mut Session<'_>, args: &Args) -> Result {
    let group = only_group(args)?;
    names::check_form(&group).map_err(|_| Failure::failed(crate::session::no_group(&group)))?;
    match session.backend.clear_remains(&group)? {
        // After a kill another server starts.
        None => {
            session.change(&group, Request::Stop)?;
            session.console.say(format!("The server of volume group \"{group}\" has ended."));
        }
        Some(0) => session.console.say(format!("No server of volume group \"{group}\" runs.")),
        Some(volumes) => session.console.say(format!(
            "No server of volume group \"{group}\" runs. {volumes} device(s) of a killed server are removed."
        )),
    }
    Ok(())
}

/// Opens a group again that has stopped or is open read-only. Its devices wait until it is open.
pub fn clear(session: &mut Session<'_>, args: &Args) -> Result {
    let group = only_group(args)?;
    names::check_form(&group).map_err(|_| Failure::failed(crate::session::no_group(&group)))?;
    if args.has(Opt::Force) && !session.is_test {
        session.backend.accept_disks(&group)?;
    }
    let Some(before) = why_to_clear(session, &group)? else {
        session.console.say(format!("Volume group \"{group}\" has not stopped: there is nothing to clear."));
        return Ok(());
    };
    session.change(&group, Request::Clear)?;
    if session.is_test {
        return Ok(());
    }
    match why_to_clear(session, &group) {
        Err(Failure::Failed(mut why)) => {
            why.push(format!(
                "Volume group \"{group}\" has not been opened again. Devices in use wait until it is; their keeper tries \
                 again by itself."
            ));
            Err(Failure::Failed(why))
        }
        Err(failure) => Err(failure),
        Ok(Some(ToClear::Stopped(why))) => {
            Err(Failure::failed(format!("Volume group \"{group}\" has stopped again: {why}.")))
        }
        Ok(Some(ToClear::ReadOnly(why))) => {
            Err(Failure::failed(format!("Volume group \"{group}\" is still open read-only: {why}.")))
        }
        Ok(None) => {
            session.console.say(format!("Volume group \"{group}\" is open again."));
            session.console.say(match before {
                ToClear::Stopped(_) => {
                    "Writes that were not flushed before the failure may be lost: check the filesystems on its volumes."
                }
                ToClear::ReadOnly(_) => "Active volumes become writable with \"rowen lvchange --refresh\".",
            });
            Ok(())
        }
    }
}

/// Why another server should open a group.
enum ToClear {
    Stopped(String),
    ReadOnly(String),
}

fn why_to_clear(session: &mut Session<'_>, group: &str) -> Result<Option<ToClear>> {
    match session.ask(group, Request::Status)? {
        Outcome::Status(status) => {
            let stopped = status.stopped.or(status.disk_wait.map(|wait| wait.what)).map(ToClear::Stopped);
            Ok(stopped.or(status.read_only.map(ToClear::ReadOnly)))
        }
        other => Err(unexpected(group, &other)),
    }
}

pub fn serve(session: &mut Session<'_>, args: &Args) -> Result {
    let group = only_group(args)?;
    names::check_form(&group).map_err(|_| Failure::failed(crate::session::no_group(&group)))?;
    match session.backend.serve(&group) {
        0 => Ok(()),
        // The server has printed the reason.
        _ => Err(Failure::Told),
    }
}

pub fn udev(session: &mut Session<'_>, args: &Args) -> Result {
    let [path] = &args.positionals[..] else { return Err(Failure::usage("Please specify one path.")) };
    for (key, value) in session.backend.udev_properties(path) {
        session.console.raw_out(&format!("{key}={value}\n"));
    }
    Ok(())
}

pub fn commands(session: &mut Session<'_>, commands: &[Command]) -> Result {
    session.console.raw_out("lvm\n");
    for command in commands.iter().filter(|command| command.has_own_name()) {
        session.console.raw_out(&format!("{}\n", command.name));
    }
    Ok(())
}

/// The version of LVM whose behaviour these commands have. Clients read it.
const LVM_VERSION: &str = "2.03.16(2) (2022-05-18)";

pub fn version(session: &mut Session<'_>, _args: &Args) -> Result {
    session.console.say(format!("LVM version:     {LVM_VERSION}"));
    session.console.say(format!("Rowen version:   {}", env!("CARGO_PKG_VERSION")));
    Ok(())
}
