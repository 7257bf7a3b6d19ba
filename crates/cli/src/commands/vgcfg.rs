//! vgcfgbackup and vgcfgrestore. A document has names and properties, but no contents. A restore gives back names and
//! properties, and reports what it cannot restore. It refuses if a volume of the document has lost its contents.

use super::groups::group_name;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::metadata::{Document, Origin, Volume};
use rowen_control::protocol::{
    AttributeChange, GroupAttributes, GroupChange, GroupReport, Request, VolumeReport, VolumeState,
};
use rowen_control::service::failure::refused_while_missing;
use rowen_control::settings::Settings;
use rowen_control::{time, units};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::collections::BTreeMap;

pub fn backup(session: &mut Session<'_>, args: &Args) -> Result {
    let named: Vec<String> = args.positionals.iter().map(|word| group_name(word)).collect::<Result<_>>()?;
    let (reports, is_incomplete) = session.reports(&named, false)?;
    let file = args.text(Opt::File);
    if reports.len() > 1 && file.is_some_and(|file| !file.contains("%s")) {
        return Err(Failure::usage("VGs must be backed up into different files. Use %s in filename for VG name."));
    }
    let settings = Settings::of(&args.config);
    for report in &reports {
        let name = &report.name;
        let description = format!("vgcfgbackup: created by '{}'", session.command_line);
        let origin = Origin { description, host: session.backend.host_name(), time: session.backend.now() };
        let text = Document::of(report, origin).write();
        if !session.is_test {
            let path = file.map(|file| file.replace("%s", name));
            session.backend.keep_copy(name, path.as_deref(), &text, &settings)?;
        }
        session.console.say(format!("Volume group \"{name}\" successfully backed up."));
    }
    if is_incomplete { Err(Failure::Told) } else { Ok(()) }
}

pub fn restore(session: &mut Session<'_>, args: &Args) -> Result {
    let [word] = &args.positionals[..] else {
        return Err(Failure::NoForm);
    };
    let group = group_name(word)?;
    rowen_control::names::check_form(&group)
        .map_err(|why| Failure::usage(format!("Volume group name \"{group}\" is invalid: {why}")))?;
    if args.has(Opt::List) {
        return list(session, &group, args.text(Opt::File));
    }
    let path = match args.text(Opt::File) {
        Some(path) => path.to_owned(),
        None => session.backend.backup_path(&group),
    };
    let document = session
        .backend
        .read_text(&path)
        .map_err(Failure::from)
        .and_then(|text| Document::read(&text).map_err(|error| Failure::failed(error.sentence(&path))));
    let document = document.map_err(|failure| {
        session.tell(&failure);
        Failure::failed(format!(
            "WARNING: couldn't read volume group metadata from file.\nFailed to read VG {group} from {path}\nRestore failed."
        ))
    })?;
    let report = session.report(&group)?;
    let plan = Plan::new(&document, &report, args.has(Opt::ForceLong))
        .map_err(|lines| Failure::failed(format!("{}\nRestore failed.", lines.join("\n"))))?;
    // Known before the first step: a refusal changes nothing.
    let needs_all = |step: &Step| matches!(step.request, Request::SetAllocatable { .. });
    if report.missing().next().is_some() && plan.steps.iter().any(needs_all) {
        return Err(Failure::failed(refused_while_missing(&group)));
    }
    for note in &plan.notes {
        session.console.complain(note);
    }
    for step in plan.steps {
        session.change(&group, step.request)?;
        session.console.say(step.message);
    }
    session.console.say(format!("Restored volume group {group}."));
    Ok(())
}

/// Lists the copies of the group's metadata, as LVM does.
fn list(session: &mut Session<'_>, group: &str, file: Option<&str>) -> Result {
    let paths = match file {
        Some(path) => vec![path.to_owned()],
        None => session.backend.copies(group)?,
    };
    if paths.is_empty() {
        session.console.say(format!("No archives found in {}.", session.backend.archive_dir()));
    }
    for path in paths {
        session.console.say(" ");
        session.console.say(format!("File:\t\t{path}"));
        let document = session.backend.read_text(&path).ok().and_then(|text| Document::read(&text).ok());
        let Some(document) = document else {
            session.console.say("Unable to read archive file.");
            continue;
        };
        let Origin { description, time: when, .. } = document.origin;
        session.console.say(format!("VG name:    \t{}", document.name));
        session.console.say(format!("Description:\t{description}"));
        session.console.say(format!("Backup Time:\t{}\n", time::ctime(when)));
    }
    Ok(())
}

/// One change and its message.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    request: Request,
    message: String,
}

/// The changes of a restore, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    steps: Vec<Step>,
    /// Differences from the document that the restore does not change.
    notes: Vec<String>,
}

impl Plan {
    /// The changes that make the group match the document, or why that is impossible.
    fn new(document: &Document, report: &GroupReport, is_forced: bool) -> std::result::Result<Plan, Vec<String>> {
        let group = &report.name;
        if document.uuid != report.uuid {
            return Err(vec![format!(
                "The file is about another volume group of the name \"{}\": its id is not that of \"{group}\".",
                document.name
            )]);
        }
        let mut plan = Plan::default();
        let present: BTreeMap<Uuid, &VolumeReport> = report.volumes.iter().map(|v| (v.uuid, v)).collect();
        let gone: Vec<String> = document
            .volumes
            .iter()
            .filter(|volume| !present.contains_key(&volume.uuid))
            .map(|volume| format!("Logical volume {group}/{} was removed, and its contents are gone.", volume.name))
            .collect();
        if !gone.is_empty() && !is_forced {
            let hint = "Use --force to restore the other volumes.".to_owned();
            return Err(gone.into_iter().chain([hint]).collect());
        }
        plan.notes.extend(gone.into_iter().map(|line| format!("WARNING: {line}")));
        if document.name != *group {
            plan.notes.push(format!(
                "WARNING: Volume group \"{group}\" was called \"{}\" and keeps its name.",
                document.name
            ));
        }
        let wanted: BTreeMap<Uuid, &Volume> = document.volumes.iter().map(|volume| (volume.uuid, volume)).collect();
        for newer in report.volumes.iter().filter(|volume| !wanted.contains_key(&volume.uuid)) {
            plan.notes.push(format!("Logical volume {group}/{} is newer than the file and stays.", newer.name));
        }
        plan.rename(report, &wanted)?;
        for (now, then) in report.volumes.iter().filter_map(|now| Some((now, *wanted.get(&now.uuid)?))) {
            plan.restore_volume(document, report, now, then);
        }
        plan.restore_group(document, report);
        Ok(plan)
    }

    fn step(&mut self, request: Request, message: impl Into<String>) {
        self.steps.push(Step { request, message: message.into() });
    }

    /// Renames the volumes. If another volume still has the name, that one is renamed first. In a cycle one volume gets
    /// a temporary name.
    fn rename(
        &mut self,
        report: &GroupReport,
        wanted: &BTreeMap<Uuid, &Volume>,
    ) -> std::result::Result<(), Vec<String>> {
        let group = &report.name;
        let mut taken: BTreeMap<String, Uuid> = report.volumes.iter().map(|v| (v.name.clone(), v.uuid)).collect();
        let is_wanted = |v: &&VolumeReport| wanted.get(&v.uuid).is_some_and(|then| then.name != v.name);
        let mut waiting: Vec<(String, &str, Uuid)> = report
            .volumes
            .iter()
            .filter(is_wanted)
            .map(|now| (now.name.clone(), wanted[&now.uuid].name.as_str(), now.uuid))
            .collect();
        let newer: Vec<String> = waiting
            .iter()
            .filter(|(_, to, _)| taken.get(*to).is_some_and(|holder| !wanted.contains_key(holder)))
            .map(|(from, to, _)| {
                format!("Logical volume {group}/{from} was called {to}, which a newer volume is called now; rename that first.")
            })
            .collect();
        if !newer.is_empty() {
            return Err(newer);
        }
        while !waiting.is_empty() {
            let ready = waiting.iter().position(|(_, to, _)| !taken.contains_key(*to));
            let (at, to) = match ready {
                Some(at) => (at, waiting[at].1.to_owned()),
                None => {
                    let free = (0u64..)
                        .map(|n| format!("restore{n}"))
                        .find(|name| !taken.contains_key(name) && !wanted.values().any(|then| then.name == *name));
                    (0, free.unwrap_or_default())
                }
            };
            let (from, last, uuid) = waiting[at].clone();
            taken.remove(&from);
            taken.insert(to.clone(), uuid);
            let message = format!("Renamed \"{from}\" to \"{to}\" in volume group \"{group}\"");
            self.step(Request::Rename { from, to: to.clone() }, message);
            if to == last {
                waiting.remove(at);
            } else {
                waiting[at].0 = to;
            }
        }
        Ok(())
    }

    /// The properties of a volume that has its name already.
    fn restore_volume(&mut self, document: &Document, report: &GroupReport, now: &VolumeReport, then: &Volume) {
        let (group, name) = (&report.name, &then.name);
        let extents = now.blocks.div_ceil(report.extent_blocks.max(1));
        if extents != then.extents {
            let size = |extents: u64| units::sentence(extents.saturating_mul(report.extent_blocks * BLOCK_SIZE));
            self.notes.push(format!(
                "WARNING: Logical volume {group}/{name} had {} and keeps {}; lvresize changes that, not its lost contents.",
                size(then.extents),
                size(extents)
            ));
        }
        if now.read_only != then.read_only {
            let how = if then.read_only { "read-only" } else { "writable" };
            let request = Request::SetPermission { name: name.clone(), read_only: then.read_only };
            self.step(request, format!("Logical volume {group}/{name} is {how} again."));
        }
        if then.reserve_blocks != now.reserve_blocks && now.state == VolumeState::Ok {
            let request = Request::SetReserve { name: name.clone(), blocks: then.reserve_blocks, seen: None };
            self.step(request, format!("Snapshot {group}/{name} has its size again."));
        }
        let attributes = &now.attributes;
        let (add_tags, remove_tags) = difference(&attributes.tags, &then.tags);
        let change = AttributeChange {
            autoactivate: changed(attributes.autoactivate, then.autoactivate),
            skip_activation: changed(attributes.skip_activation, then.skip_activation),
            add_tags,
            remove_tags,
            pool: other_pool(document, report, now, then),
        };
        if change != AttributeChange::default() {
            let request = Request::SetAttributes { name: name.clone(), change };
            self.step(request, format!("Logical volume {group}/{name} has its attributes again."));
        }
    }

    fn restore_group(&mut self, document: &Document, report: &GroupReport) {
        let group = &report.name;
        for (now, then) in report.pvs.iter().filter_map(|now| {
            let then = document.pvs.iter().find(|then| then.uuid == now.uuid)?;
            (now.tags != then.tags).then_some((now, then))
        }) {
            let (add, remove) = difference(&now.tags, &then.tags);
            if !add.is_empty() || !remove.is_empty() {
                let request = Request::TagPv { path: now.path.clone(), add, remove };
                self.step(request, format!("Physical volume \"{}\" has its tags again.", now.path));
            }
        }
        for (now, then) in report.pvs.iter().filter_map(|now| {
            let then = document.pvs.iter().find(|then| then.uuid == now.uuid)?;
            (now.is_allocatable != then.is_allocatable).then_some((now, then))
        }) {
            let how = if then.is_allocatable { "allocatable" } else { "not allocatable" };
            let request = Request::SetAllocatable { path: now.path.clone(), allocatable: then.is_allocatable };
            self.step(request, format!("Physical volume \"{}\" is {how} again.", now.path));
        }
        let GroupAttributes { autoactivate, exported, resizeable, alloc, max_volumes, max_pvs, tags } =
            &report.attributes;
        let then = &document.attributes;
        let (add_tags, remove_tags) = difference(tags, &then.tags);
        let change = GroupChange {
            autoactivate: changed(*autoactivate, then.autoactivate),
            exported: changed(*exported, then.exported),
            resizeable: changed(*resizeable, then.resizeable),
            alloc: changed(*alloc, then.alloc),
            max_volumes: changed(*max_volumes, then.max_volumes),
            max_pvs: changed(*max_pvs, then.max_pvs),
            add_tags,
            remove_tags,
        };
        if change != GroupChange::default() {
            let message = format!("Volume group \"{group}\" has its attributes again.");
            // An exported group takes no change of its volumes.
            let at = if *exported { 0 } else { self.steps.len() };
            self.steps.insert(at, Step { request: Request::ChangeGroup { change }, message });
        }
    }
}

fn changed<T: PartialEq>(now: T, then: T) -> Option<T> {
    (now != then).then_some(then)
}

/// The tags to add and to remove.
fn difference(now: &[String], then: &[String]) -> (Vec<String>, Vec<String>) {
    let missing = |from: &[String], of: &[String]| of.iter().filter(|tag| !from.contains(tag)).cloned().collect();
    (missing(now, then), missing(then, now))
}

/// The volume's pool in the document, if the volume is in another pool now. Identities are compared, because a renamed
/// pool keeps its volumes.
fn other_pool(document: &Document, report: &GroupReport, now: &VolumeReport, then: &Volume) -> Option<String> {
    let pool_now = report.volume(&now.attributes.pool).map(|pool| pool.uuid);
    let pool_then = document.volumes.iter().find(|volume| volume.name == then.pool).map(|pool| pool.uuid);
    let is_there = pool_then.is_none_or(|uuid| report.volumes.iter().any(|volume| volume.uuid == uuid));
    (pool_now != pool_then && is_there).then(|| then.pool.clone())
}

#[cfg(test)]
#[path = "vgcfg_test.rs"]
mod tests;
