//! Dispatches each request to the function that carries it out.

use super::activation::Wish;
use super::failure::{Failure, Result};
use super::state::Service;
use crate::history::Command;
use crate::protocol::{Caller, CheckOutcome, ErrorKind, Kind, Outcome, Request};
use parking_lot::{Mutex, MutexGuard};
use rowen_engine::planted;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often a request that waits for its turn checks why others wait.
const RETRY: Duration = Duration::from_secs(1);

/// How long an upgrade waits for a running change.
const UPGRADE_WAITS: Duration = Duration::from_secs(20);

/// Increments a counter while it exists.
struct Counted<'a>(&'a AtomicU32);

impl Counted<'_> {
    fn new(count: &AtomicU32) -> Counted<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    /// Carries out one request. `interim` takes outcomes that come before the last one.
    pub fn handle(&self, request: Request, caller: &Caller, interim: &mut dyn FnMut(Outcome)) -> Outcome {
        let traits = request.traits();
        let is_report = matches!(request, Request::Report { .. });
        let tells_unproven = is_report || matches!(request, Request::RestorePv { .. });
        let may_merge =
            matches!(request, Request::Activate { .. }) && self.group.any_volume(|volume| volume.attributes.merging);
        let is_change = may_merge || traits.is_archived;
        let noted = request.is_noted().then(|| (request.word(), self.platform.notes.open_for()));
        let outcome = self.carry_out(request, caller, interim).unwrap_or_else(Outcome::from);
        if let Some((word, begun)) = noted {
            self.note(word, caller, begun, &outcome);
        }
        // A failed request may have done a part of its work.
        let goes_on = !self.ending.is_destroyed() && !self.ending.is_renamed() && self.ending.leaving().is_none();
        if is_change && !caller.no_backup && goes_on {
            self.platform.notes.changed(&caller.command);
            if let Some(message) = self.platform.notes.trouble() {
                interim(Outcome::Notice { message });
            }
        }
        if traits.takes_space {
            self.warn(interim);
        }
        if is_report {
            let stopped = self.group.failed().err().map(|error| self.failure(&error, "").message);
            let stopped = stopped.map(|message| format!("WARNING: {message}"));
            let messages = stopped.into_iter().chain(self.missing_room());
            messages.for_each(|message| interim(Outcome::Notice { message }));
        }
        if tells_unproven && let Some(message) = self.unproven() {
            interim(Outcome::Notice { message });
        }
        outcome
    }

    /// Records a request in the history. A request that did not start, and will be repeated, is not recorded.
    fn note(&self, word: String, caller: &Caller, begun: Duration, outcome: &Outcome) {
        let failure = match outcome {
            Outcome::Error { kind: ErrorKind::Closed | ErrorKind::Changed, .. } => return,
            Outcome::Error { message, .. } => Some(message.clone()),
            Outcome::Check(check) if !check.findings.is_empty() => Some(check.findings.join("; ")),
            _ => None,
        };
        let took = self.platform.notes.open_for().saturating_sub(begun);
        self.platform.notes.done(Command {
            // After a rename the group has its new name.
            group: self.group.info().name,
            id: caller.id.clone(),
            command: caller.command.clone(),
            request: word,
            failure,
            user: caller.user.clone(),
            pid: caller.pid,
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            ..Command::default()
        });
    }

    /// The turn to change something. If the journal waits for room, the request that has the turn waits, too, and
    /// others get an error. UP8: an upgrade waits for a limited time.
    fn turn(&self, limit: Option<Duration>) -> Result<MutexGuard<'_, ()>> {
        if planted::is("changes_side_by_side") {
            return Ok(Box::leak(Box::new(Mutex::new(()))).lock());
        }
        let begun = Instant::now();
        loop {
            if let Some(turn) = self.change.try_lock_for(RETRY) {
                return Ok(turn);
            }
            if limit.is_some_and(|limit| begun.elapsed() >= limit) {
                let message =
                    format!("Another command changes volume group \"{}\": try again when it is done.", self.name);
                return Err(Failure::new(ErrorKind::InUse, message));
            }
            self.group.has_room_for_records().map_err(|error| self.failure(&error, ""))?;
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table of requests")]
    fn carry_out(&self, request: Request, caller: &Caller, tell: &mut dyn FnMut(Outcome)) -> Result<Outcome> {
        let traits = request.traits();
        if !traits.is_for_read_only {
            self.refuse_read_only()?;
        }
        // SV1: one change at a time, in the order of arrival.
        let limit = matches!(request, Request::Upgrade { .. }).then_some(UPGRADE_WAITS);
        let limit = limit.filter(|_| !planted::is("upgrade_patient"));
        let change = (traits.kind == Kind::Change).then(|| self.turn(limit)).transpose()?;
        if change.is_some() {
            if self.ending.is_asked() {
                return Err(self.failure(&rowen_engine::error::Error::Closed, ""));
            }
            if !traits.is_for_exported {
                self.refuse_exported()?;
            }
        }
        let _lists = change.is_some().then(|| self.lists.use_lists_of(&caller.lists));
        match request {
            Request::Hello { .. } => Err(Failure::new(ErrorKind::Invalid, "A connection has only one greeting.")),
            Request::Report { with_use } => self.report(self.shown_volumes(), with_use.then_some(None)),
            Request::ReportOf { volumes, with_members, with_use } => {
                let relatives = self.relatives(&volumes, with_members);
                self.report(relatives, with_use.then_some(Some(&volumes)))
            }
            Request::Places => self.places(),
            Request::FreeOn { on } => self.free_on(&on),
            Request::Stats => Ok(Outcome::Stats(self.group.stats().into())),
            Request::Status => Ok(Outcome::Status(Box::new(self.status()))),
            Request::Io => Ok(Outcome::Io(Box::new(self.io()))),
            Request::Diff { old, new, from } => self.diff(old.as_deref(), &new, from),
            Request::ReadPoint { name, point, side, ranges } => self.read_point(&name, point, side, &ranges),
            Request::Bookmark { snapshot, name, uuid, created } => self.bookmark(&snapshot, &name, (uuid, created)),
            Request::RemoveBookmark { name } => self.remove_bookmark(&name),
            Request::Receive(wanted) => self.receive(&wanted),
            Request::ReceiveParts { by, parts } => self.receive_parts(by, &parts),
            Request::ReceiveMark { by, frames, mark } => self.receive_mark(by, frames, mark),
            Request::Publish { by } => self.publish(by),
            Request::AbortReceive { target } => self.abort_receive(&target),
            Request::Receives => Ok(self.receives()),
            Request::Check => self.check(false, tell),
            Request::Repair => self.check(true, tell),
            Request::CreateVolume { spec, activate, on } => self.create_volume(spec, activate, &on),
            Request::Snapshot { specs, freeze } => self.snapshot(specs, freeze),
            Request::Remove { names } => self.remove(&names),
            Request::Activate { names, ignore_skip, auto, partial } => {
                self.activate(names.as_deref(), Wish { ignore_skip, auto, partial }, tell)
            }
            Request::Refresh { names } => self.refresh(&names),
            Request::Deactivate { names } => self.deactivate(names.as_deref()),
            Request::Resize { name, blocks, force, on, seen } => self.resize(&name, (seen, blocks), force, &on),
            Request::SetReserve { name, blocks, seen } => self.set_reserve(&name, (seen, blocks)),
            Request::Rename { from, to } => self.rename(&from, &to),
            Request::SetPermission { name, read_only } => self.set_permission(&name, read_only),
            Request::SetAttributes { name, change } => self.change_attributes(&name, &change),
            Request::ChangeGroup { change } => self.change_group(&change),
            Request::TagPv { path, add, remove } => self.tag_pv(&path, &add, &remove),
            Request::SetAllocatable { path, allocatable } => self.set_allocatable(&path, allocatable),
            Request::RemoveMissing => self.remove_missing(),
            Request::RestorePv { path } => self.restore_pv(&path),
            Request::RepairMirrors { on } => self.repair_mirrors(&on),
            Request::Convert { volume, on } => self.convert(&volume, &on),
            Request::ConvertLinear { volume, from } => self.convert_to_linear(&volume, &from),
            Request::Scrub { volume, action } => self.scrub(&volume, action),
            Request::RemovePv { path } => self.remove_pv(&path),
            Request::MoveExtents { path, extents, to, volume } => {
                self.move_extents(&path, &extents, &to, volume.as_deref())
            }
            Request::Trim => self.trim(tell),
            Request::MoveStatus => Ok(Outcome::Moving(self.move_status())),
            Request::StopMove => Ok(self.stop_move()),
            Request::SetJournalCopies { copies } => self.set_journal_copies(copies),
            Request::ResizePv { path, bytes } => self.resize_pv(&path, bytes),
            Request::RenameGroup { to } => self.rename_group(&to),
            Request::MakeNodes => self.make_nodes(),
            Request::SetFullPolicy { name, full } => self.set_full_policy(&name, full),
            Request::Merge { snapshot } => self.merge(&snapshot),
            Request::Revert { target, source } => self.revert(&target, &source),
            Request::AddPv { paths } => self.add_pvs(&paths),
            Request::Checkpoint => self.checkpoint().map(|()| Outcome::Ok),
            Request::Destroy { force } => self.destroy(force),
            Request::Stop => self.stop(),
            Request::Clear => self.clear(),
            Request::Upgrade { to } => self.upgrade(&to),
        }
    }

    fn check(&self, repair: bool, interim: &mut dyn FnMut(Outcome)) -> Result<Outcome> {
        // The server ends: the next server can check.
        if self.ending.is_upgraded() {
            return Err(self.failure(&rowen_engine::error::Error::Closed, ""));
        }
        let _counted = Counted::new(&self.checks);
        let group = self.group.clone();
        let work = async move {
            match repair {
                true => group.repair_open().await,
                false => group.check_open().await,
            }
        };
        let mut reported = 0;
        let report = self.run_polling(work, &mut || {
            // If several run at once, the progress of the last one.
            let Some(at) = self.group.check_progress().filter(|at| at.nodes != reported) else { return };
            reported = at.nodes;
            let what = format!("Checking {}", self.name);
            interim(Outcome::Progress { done: at.nodes.min(at.total), total: at.total, what });
        });
        Ok(Outcome::Check(CheckOutcome::from(self.told(report, "")?)))
    }
}
