//! The context of a command: the host, the console and the options that all commands share. Requests that change
//! something go through [`Session::change`], which `--test` stops.

use crate::backend::{Answer, Answered, Asker, Backend, Trouble, answered};
use crate::console::Console;
use crate::failure::{Failure, Result};
use crate::parse::Args;
use crate::report::Kind;
use crate::report::fields::Field;
use crate::report::select::Criteria;
use rowen_control::history;
use rowen_control::lists::Lists;
use rowen_control::names;
use rowen_control::paths::{self, Target};
use rowen_control::protocol::{Caller, ErrorKind, GroupReport, Outcome, PvPart, Request, VolumeReport};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval of checks while space is being freed, and the number of checks without a change after which a command
/// stops waiting.
const POLL_EVERY: Duration = Duration::from_millis(5);
const STANDSTILL: u32 = 400;

/// One run of one command.
pub struct Session<'a> {
    pub backend: &'a mut dyn Backend,
    pub console: Console<'a>,
    /// `--test`: nothing is changed.
    pub is_test: bool,
    /// The group that the command changed without its server, and the change.
    pub alone: Option<(String, &'static str)>,
    /// The caller in requests to servers.
    pub caller: Caller,
    /// The command as it was typed.
    pub command_line: String,
    /// Which volumes may be activated, and how.
    pub lists: Lists,
}

/// A group's free extents, and those that will become free.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Room {
    free: u64,
    /// The part of these that can be allocated.
    allocatable: u64,
    pending: u64,
    reclaim_left: u64,
}

impl Room {
    fn of(report: &GroupReport) -> Room {
        Room {
            free: report.free_extents,
            allocatable: report.allocatable_extents,
            pending: report.pending_blocks,
            reclaim_left: report.reclaim_left_blocks,
        }
    }

    fn is_to_come(&self) -> bool {
        self.pending > 0 || self.reclaim_left > 0
    }
}

/// The details that a selection's reports must have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detail {
    /// All volumes of their groups, because the command counts them; otherwise only those that are related to the named
    /// ones.
    pub all_volumes: bool,
    /// Whether devices are open. This needs a search, so only commands that show or use it request it.
    pub with_use: bool,
}

/// The volumes that a command line names, group by group, in the order given.
#[derive(Debug, Default)]
pub struct Selection {
    pub groups: Vec<SelectedGroup>,
    /// Something that was named does not exist. The message has been printed.
    pub is_incomplete: bool,
}

#[derive(Debug)]
pub struct SelectedGroup {
    pub report: GroupReport,
    pub volumes: Vec<String>,
    /// The group itself was named, not volumes of it.
    pub is_whole: bool,
}

impl SelectedGroup {
    /// Adds the volumes for which `wanted` is true, without duplicates.
    fn add(&mut self, wanted: impl Fn(&VolumeReport) -> bool) {
        let known: HashSet<&String> = self.volumes.iter().collect();
        let is_new = |volume: &&VolumeReport| wanted(volume) && !known.contains(&volume.name);
        let new: Vec<String> = self.report.volumes.iter().filter(is_new).map(|v| v.name.clone()).collect();
        self.volumes.extend(new);
    }
}

/// LVM's two lines for a group that does not exist.
pub fn no_group(name: &str) -> String {
    format!("Volume group \"{name}\" not found\nCannot process volume group {name}")
}

/// LVM's line for a volume that does not exist.
pub fn no_volume(group: &str, name: &str) -> String {
    format!("Failed to find logical volume \"{group}/{name}\"")
}

/// So many groups are asked at once.
const AT_ONCE: usize = 16;

fn side_by_side(askers: Vec<(&String, Asker)>, request: &Request) -> BTreeMap<String, Answered> {
    let (askers, answers) = (Mutex::new(askers), Mutex::new(BTreeMap::new()));
    let count = AT_ONCE.min(lock(&askers).len());
    let work = || {
        loop {
            let Some((name, mut asker)) = lock(&askers).pop() else { return };
            let answered = answered(&mut asker, request.clone());
            lock(&answers).insert(name.clone(), answered);
        }
    };
    std::thread::scope(|threads| (0..count).for_each(|_| drop(threads.spawn(work))));
    answers.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn of_outcome(group: &str, outcome: Outcome) -> Result<GroupReport> {
    match outcome {
        Outcome::Report(report) => Ok(*report),
        other => Err(unexpected(group, &other)),
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(console: &mut Console<'_>, outcome: Outcome) {
    match outcome {
        Outcome::Progress { done, total, what } => console.progress(done, total, &what),
        Outcome::Notice { message } => console.notice(message),
        _ => {}
    }
}

impl Session<'_> {
    /// Sends a request to a group's server. Notices go to standard error.
    pub fn ask(&mut self, group: &str, request: Request) -> Answer<Outcome> {
        match names::check_form(group) {
            Ok(()) => {}
            // A name that is too long does not exist. Other invalid names are impossible for a group.
            Err(names::Refusal::TooLong) => return Err(Trouble::other(ErrorKind::NotFound, no_group(group))),
            Err(_) => return Err(Trouble::other(ErrorKind::NotFound, paths::bad_group(group))),
        }
        let console = &mut self.console;
        self.backend.ask(group, request, &mut |outcome| show(console, outcome))
    }

    /// Shows what a server says before its answer.
    pub fn show(&mut self, outcome: Outcome) {
        show(&mut self.console, outcome);
    }

    /// Requests a change, unless this is a test.
    pub fn change(&mut self, group: &str, request: Request) -> Result<Outcome> {
        if self.is_test {
            return Ok(Outcome::Ok);
        }
        Ok(self.ask(group, request)?)
    }

    /// Requests a change that was computed from a report. False: the report is out of date, and nothing was done.
    pub fn change_unless_overtaken(&mut self, group: &str, request: Request) -> Result<bool> {
        if self.is_test {
            return Ok(true);
        }
        match self.ask(group, request) {
            Ok(_) => Ok(true),
            Err(Trouble::Other { kind: ErrorKind::Changed, .. }) => Ok(false),
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// The group with all volumes, but not whether their devices are open.
    pub fn report(&mut self, group: &str) -> Result<GroupReport> {
        self.report_by(group, Request::Report { with_use: false })
    }

    /// The group with all volumes. `with_use`: also whether their devices are open.
    pub fn report_with(&mut self, group: &str, with_use: bool) -> Result<GroupReport> {
        self.report_by(group, Request::Report { with_use })
    }

    /// The same with these volumes and their relatives only, but not with all volumes of pools, and not whether devices
    /// are open ([`Request::ReportOf`]).
    pub fn report_of(&mut self, group: &str, volumes: Vec<String>) -> Result<GroupReport> {
        self.report_by(group, Request::ReportOf { volumes, with_members: false, with_use: false })
    }

    fn report_by(&mut self, group: &str, request: Request) -> Result<GroupReport> {
        of_outcome(group, self.ask(group, request)?)
    }

    /// The group's free extents. If these are fewer than `wanted`, this waits for space that removals still give back.
    /// So a script that removes a volume and creates another finds the space, as with LVM.
    pub fn free_extents(&mut self, report: &GroupReport, wanted: u64) -> Result<u64> {
        Ok(self.room(report, wanted)?.free)
    }

    fn room(&mut self, report: &GroupReport, wanted: u64) -> Result<Room> {
        let mut seen = Room::of(report);
        let mut standing = 0;
        while seen.allocatable < wanted && seen.is_to_come() && standing < STANDSTILL && !self.is_test {
            if seen.pending > 0 {
                self.change(&report.name, Request::Checkpoint)?;
            } else {
                std::thread::sleep(POLL_EVERY);
            }
            let now = Room::of(&self.report_of(&report.name, Vec::new())?);
            standing = if now == seen { standing + 1 } else { 0 };
            seen = now;
        }
        Ok(seen)
    }

    /// The extents that can be taken in these places, or in the whole group if there are none. Waits as
    /// [`free_extents`](Self::free_extents) does.
    pub fn free_on(&mut self, report: &GroupReport, on: &[PvPart], wanted: u64) -> Result<u64> {
        if on.is_empty() {
            return Ok(self.room(report, wanted)?.allocatable);
        }
        let mut free = self.ask_free(report, on)?;
        if free < wanted {
            // Waits for the space that is being freed.
            self.room(report, report.extents)?;
            free = self.ask_free(report, on)?;
        }
        Ok(free)
    }

    fn ask_free(&mut self, report: &GroupReport, on: &[PvPart]) -> Result<u64> {
        match self.ask(&report.name, Request::FreeOn { on: on.to_vec() })? {
            Outcome::Free { extents } => Ok(extents),
            other => Err(unexpected(&report.name, &other)),
        }
    }

    /// The reports of the named groups, or of all. `with_use`: also whether devices are open. The second value is true
    /// if a group could not be reported; the reason has been printed.
    pub fn reports(&mut self, names: &[String], with_use: bool) -> Result<(Vec<GroupReport>, bool)> {
        let is_all = names.is_empty();
        let names = if is_all { self.backend.groups()? } else { names.to_vec() };
        let mut reports: Vec<GroupReport> = Vec::with_capacity(names.len());
        let mut is_incomplete = false;
        for (name, report) in self.reports_of_all(names, with_use) {
            match report {
                Ok(report) => reports.push(report),
                Err(_) if is_all && self.is_gone(&name) => {}
                Err(failure) => {
                    self.tell(&failure);
                    is_incomplete = true;
                }
            }
        }
        Ok((reports, is_incomplete))
    }

    /// The reports of these groups, in this order, each once. They are asked side by side where the host can do that: one whose
    /// server does not answer holds up no other.
    pub fn reports_of_all(&mut self, mut names: Vec<String>, with_use: bool) -> Vec<(String, Result<GroupReport>)> {
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let request = Request::Report { with_use };
        let is_fit = |name: &&String| names::check_form(name).is_ok();
        let askers: Vec<_> = match &names[..] {
            [] | [_] => Vec::new(),
            many => many.iter().filter(is_fit).map_while(|name| Some((name, self.backend.asker(name)?))).collect(),
        };
        let mut answers = side_by_side(askers, &request);
        let mut report = |name: &String| {
            let (shown, answer) = answers.remove(name).unwrap_or_else(|| (Vec::new(), self.ask(name, request.clone())));
            shown.into_iter().for_each(|outcome| self.show(outcome));
            of_outcome(name, answer?)
        };
        names.iter().map(|name| (name.clone(), report(name))).collect()
    }

    /// Whether a group that was just found and was not named has been removed since.
    pub fn is_gone(&mut self, group: &str) -> bool {
        self.backend.groups().is_ok_and(|all| !all.iter().any(|name| name == group))
    }

    fn skip_tag(&mut self, tag: &str) {
        self.console.complain(format!("Skipping invalid tag @{tag}."));
    }

    /// The group's report, or a refusal if the group is exported.
    pub fn usable_report(&mut self, group: &str) -> Result<GroupReport> {
        unless_exported(self.report(group)?)
    }

    /// The groups that have the tag. A group that does not answer is printed.
    pub fn tagged_groups(&mut self, tag: &str) -> Result<Vec<String>> {
        let mut tagged = Vec::new();
        for group in self.backend.groups()? {
            match self.report_of(&group, Vec::new()) {
                Ok(report) if report.attributes.tags.iter().any(|own| own == tag) => tagged.push(group),
                Ok(_) => {}
                Err(_) if self.is_gone(&group) => {}
                Err(failure) => self.tell(&failure),
            }
        }
        Ok(tagged)
    }

    /// Records what the command did to a group without its server, which records all other changes.
    pub fn note(&mut self, begun: Instant, outcome: &Result) {
        let Some((group, request)) = self.alone.take() else { return };
        let failure = outcome.as_ref().err().map(|failure| match failure {
            Failure::Failed(lines) => lines.join("\n"),
            _ => "it failed".to_owned(),
        });
        let caller = self.caller.clone();
        let line = history::Command {
            group,
            id: caller.id,
            command: caller.command,
            request: request.to_owned(),
            failure,
            user: caller.user,
            pid: caller.pid,
            milliseconds: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..history::Command::default()
        };
        if let Err(Trouble::Other { message, .. }) = self.backend.note(line) {
            self.console.complain(message);
        }
    }

    /// Prints a failure; the command continues.
    pub fn tell(&mut self, failure: &Failure) {
        for line in failure.lines("") {
            self.console.raw_err(&format!("{line}\n"));
        }
    }

    /// Finds the volumes that a command line names and that meet its criteria. `with_use`: also whether their devices
    /// are open.
    pub fn select_by(&mut self, args: &Args, with_use: bool) -> Result<Selection> {
        let criteria = Criteria::of_command(args, Kind::Volume)?;
        let detail = Detail {
            all_volumes: criteria.as_ref().is_some_and(|criteria| criteria.fields().any(Field::counts_all)),
            with_use: with_use || criteria.as_ref().is_some_and(Criteria::shows_use),
        };
        let mut selection = self.select(&args.positionals, detail)?;
        if let Some(criteria) = criteria {
            // A search in all groups does not fail because of groups that could not be opened.
            selection.is_incomplete &= !args.positionals.is_empty();
            for selected in &mut selection.groups {
                selected.volumes = criteria.taken_volumes(&selected.report, &selected.volumes);
                // The group itself was not named.
                selected.is_whole = false;
            }
        }
        Ok(selection)
    }

    /// Finds what the words name: groups, volumes, tags. Without words: everything. A snapshot that waits for its merge
    /// is found only by its own name.
    pub fn select(&mut self, words: &[String], detail: Detail) -> Result<Selection> {
        let mut selection = self.select_all(words, detail)?;
        for selected in &mut selection.groups {
            let report = &selected.report;
            let waiting = report.volumes.iter().filter(|volume| volume.is_waiting_to_merge());
            let hidden: HashSet<&String> =
                waiting.map(|volume| &volume.name).filter(|name| !is_volume_named(&report.name, name, words)).collect();
            // Usually no volume has it, and the search through ten thousand names is skipped.
            if !hidden.is_empty() {
                selected.volumes.retain(|name| !hidden.contains(name));
            }
        }
        Ok(selection)
    }

    /// The same, with the snapshots that wait for their merge.
    pub fn select_all(&mut self, words: &[String], detail: Detail) -> Result<Selection> {
        let mut selection = Selection::default();
        if words.is_empty() {
            let (reports, is_incomplete) = self.reports(&[], detail.with_use)?;
            selection.is_incomplete = is_incomplete;
            for report in reports.into_iter().filter(|report| !report.attributes.exported) {
                let volumes = report.volumes.iter().map(|volume| volume.name.clone()).collect();
                selection.groups.push(SelectedGroup { report, volumes, is_whole: true });
            }
            return Ok(selection);
        }
        let mut known: BTreeMap<String, Option<usize>> = BTreeMap::new();
        // As LVM: a command line whose only name is an empty tag is read as one without names.
        if words.iter().all(|word| matches!(Target::parse(word), Some(Target::Tag(tag)) if names::tag(&tag).is_none()))
        {
            words.iter().for_each(|word| self.skip_tag(&word[1..]));
            return self.select(&[], detail);
        }
        for word in words {
            match Target::parse(word) {
                None => {
                    self.console.complain(paths::refusal(word));
                    selection.is_incomplete = true;
                }
                Some(Target::Tag(tag)) => {
                    if names::tag(&tag).is_none() {
                        self.skip_tag(&tag);
                        continue;
                    }
                    for group in self.backend.groups()? {
                        let Some(at) = self.open_selected(&group, words, detail, &mut known, &mut selection) else {
                            continue;
                        };
                        let selected = &mut selection.groups[at];
                        // A group that has the tag stands for all of its volumes.
                        let is_whole = selected.report.attributes.tags.contains(&tag);
                        selected.is_whole |= is_whole;
                        selected.add(|volume| is_whole || volume.attributes.tags.contains(&tag));
                    }
                }
                Some(Target::Group(group)) => {
                    let Some(at) = self.open_selected(&group, words, detail, &mut known, &mut selection) else {
                        continue;
                    };
                    let selected = &mut selection.groups[at];
                    selected.is_whole = true;
                    selected.add(|_| true);
                }
                Some(Target::Volume { group, volume }) => {
                    let Some(at) = self.open_selected(&group, words, detail, &mut known, &mut selection) else {
                        continue;
                    };
                    let selected = &mut selection.groups[at];
                    if selected.report.volume(&volume).is_none() {
                        self.console.complain(no_volume(&group, &volume));
                        selection.is_incomplete = true;
                    } else if !selected.volumes.contains(&volume) {
                        selected.volumes.push(volume);
                    }
                }
            }
        }
        Ok(selection)
    }

    /// The group's index in the selection. The group is requested once, and its absence is printed once.
    fn open_selected(
        &mut self,
        group: &str,
        words: &[String],
        detail: Detail,
        known: &mut BTreeMap<String, Option<usize>>,
        selection: &mut Selection,
    ) -> Option<usize> {
        if let Some(place) = known.get(group) {
            return *place;
        }
        let seeks_tag = || words.iter().any(|word| matches!(Target::parse(word), Some(Target::Tag(_))));
        let with_use = detail.with_use;
        let report = match volumes_of(group, words).filter(|_| !detail.all_volumes) {
            Some(volumes) => self.report_by(group, Request::ReportOf { volumes, with_members: true, with_use }),
            None => self.report_with(group, with_use),
        };
        let report = report.and_then(unless_exported);
        let place = match report {
            Ok(report) => {
                selection.groups.push(SelectedGroup { report, volumes: Vec::new(), is_whole: false });
                Some(selection.groups.len() - 1)
            }
            // As LVM: a search for a tag in all groups prints nothing about a name that none of them has.
            Err(_) if seeks_tag() && self.is_gone(group) => None,
            Err(failure) => {
                self.tell(&failure);
                selection.is_incomplete = true;
                None
            }
        };
        known.insert(group.to_owned(), place);
        place
    }

    /// The group and volume that `word` names, with whether its device is open. It must exist; `missing` makes the
    /// message.
    pub fn one_volume(
        &mut self,
        word: &str,
        missing: impl Fn(&str, &str) -> String,
    ) -> Result<(GroupReport, VolumeReport)> {
        let Some(Target::Volume { group, volume }) = Target::parse(word) else {
            return Err(match Target::parse(word) {
                None => Failure::usage(paths::refusal(word)),
                Some(_) => Failure::usage("Please specify a logical volume path."),
            });
        };
        let request = Request::ReportOf { volumes: vec![volume.clone()], with_members: true, with_use: true };
        let report = self.report_by(&group, request)?;
        let report = unless_exported(report)?;
        match report.volume(&volume).cloned() {
            Some(found) => Ok((report, found)),
            None => Err(Failure::failed(missing(&group, &volume))),
        }
    }
}

/// Whether a word names this very volume.
pub fn is_volume_named(group: &str, volume: &str, words: &[String]) -> bool {
    words.iter().any(|word| match Target::parse(word) {
        Some(Target::Volume { group: of, volume: name }) => of == group && name == volume,
        _ => false,
    })
}

/// The group's report, or LVM's refusal of a group that has left this host.
pub fn unless_exported(report: GroupReport) -> Result<GroupReport> {
    if report.attributes.exported {
        return Err(Failure::failed(format!("Volume group {} is exported", report.name)));
    }
    Ok(report)
}

/// The volumes of the group that the words name. None: the words may mean others, too.
fn volumes_of(group: &str, words: &[String]) -> Option<Vec<String>> {
    let mut volumes = Vec::new();
    for word in words {
        match Target::parse(word) {
            Some(Target::Volume { group: of, volume }) if of == group => volumes.push(volume),
            Some(Target::Group(other)) if other != group => {}
            Some(Target::Volume { .. }) | None => {}
            Some(Target::Group(_) | Target::Tag(_)) => return None,
        }
    }
    Some(volumes)
}

impl Selection {
    /// The command's result: success, or a failure that has been printed.
    pub fn end(&self) -> Result {
        if self.is_incomplete { Err(Failure::Told) } else { Ok(()) }
    }
}

/// The server gave an unexpected answer.
pub fn unexpected(group: &str, outcome: &Outcome) -> Failure {
    let what = match outcome {
        Outcome::Error { message, .. } => message.clone(),
        _ => {
            format!(
                "The server of volume group \"{group}\" gave an answer that this command does not know; is it of another version?"
            )
        }
    };
    Failure::failed(what)
}
