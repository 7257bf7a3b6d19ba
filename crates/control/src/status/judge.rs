//! Computes the status of groups from a survey.

use super::output::{GroupStatus, Problem, PvState, PvWord, State, Status, WaitingVolume};
use super::seen::{KeeperSeen, MembersSeen, Process, PvSeen, Seen, ServerSeen, Survey};
use crate::protocol::{DiskWait, Filling, MirrorReport, MoveReport, PvStatus, RepairReport, StatusReport};
use crate::units::sentence;
use crate::uuids::lvm_text;
use rowen_engine::planted;
use rowen_engine::units::BLOCK_SIZE;

/// Seconds. A rotating disk needs some seconds to start. A disk that is silent for longer is reported.
const DISK_LIMIT: u64 = 15;
/// Seconds. Opening a group takes less.
const OPENING_LIMIT: u64 = 10;
/// The first servers after a kill may start too early and fail.
const FAILURES: u64 = 3;

/// The status of the host's groups.
pub fn judge(survey: Survey) -> Status {
    let Survey { mut groups, lost, mut silent_devices, troubles } = survey;
    let mut of_groups: Vec<String> = Vec::new();
    for seen in &mut groups {
        let MembersSeen::Found(pvs) = &mut seen.members else { continue };
        for pv in pvs.iter_mut().filter(|pv| !pv.is_there && !planted::is("silent_is_missing")) {
            let device = pv.path.as_ref().filter(|path| silent_devices.contains(path));
            pv.is_silent = device.is_some();
            of_groups.extend(device.cloned());
        }
    }
    silent_devices.retain(|device| !of_groups.contains(device));
    let groups: Vec<GroupStatus> = groups.into_iter().map(judge_group).collect();
    let silent = silent_devices.into_iter().map(|device| Problem {
        what: format!("{device} does not answer, so rowen cannot know whether it belongs to a group"),
        next: "check the device and its path (dmesg); until it answers, its group may be shown as incomplete"
            .to_owned(),
    });
    let next = "check the devices file, and devices that do not answer (dmesg)";
    let troubles = troubles.into_iter().map(|what| Problem { what, next: next.to_owned() });
    let lost = lost.into_iter().map(|pv| Problem {
        what: format!("the physical volume {} ({}) is missing", pv.path, pv.uuid),
        next: format!("attach it; if it has left for good: rowen lvmdevices --deldev {}", pv.path),
    });
    let problems: Vec<Problem> = lost.chain(silent).chain(troubles).collect();
    let healthy = problems.is_empty() && groups.iter().all(|group| group.healthy);
    Status { healthy, groups, problems }
}

/// A duration in its largest unit.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn times(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The meaning of a process's state letter.
fn doing(process: Process) -> &'static str {
    match process.state {
        Some('T' | 't') => ", which was stopped by a signal (SIGSTOP)",
        Some('D') => ", which waits in the kernel",
        Some('Z' | 'X') => ", which has ended and is not gone yet",
        _ => "",
    }
}

/// A status under construction.
struct Verdict {
    seen: Seen,
    status: GroupStatus,
}

fn judge_group(seen: Seen) -> GroupStatus {
    let status = GroupStatus {
        name: seen.name.clone(),
        state: State::NotRunning,
        healthy: true,
        sentence: String::new(),
        server_pid: None,
        open_seconds: None,
        keeper_pid: seen.keeper.map(|keeper| keeper.process.pid),
        restarts: seen.keeper.and_then(|keeper| keeper.answer).map(|answer| answer.started),
        deaths: seen.keeper.and_then(|keeper| keeper.answer).map(|answer| answer.deaths),
        volumes: None,
        active_volumes: None,
        used_percent: None,
        waiting_volumes: Vec::new(),
        physical_volumes: Vec::new(),
        work: Vec::new(),
        problems: Vec::new(),
    };
    let mut verdict = Verdict { seen, status };
    match verdict.seen.server.clone() {
        ServerSeen::Answered { pid, report } => verdict.answered(pid, &report),
        ServerSeen::Silent(process) => verdict.silent(process),
        ServerSeen::Refused { pid, why } => verdict.refused(pid, why),
        ServerSeen::Opening { process, seconds } => verdict.opening(process, seconds),
        ServerSeen::None => verdict.absent(),
    }
    verdict.members();
    verdict.keeper();
    verdict.status.healthy = verdict.status.problems.is_empty() || planted::is("unwell_is_healthy");
    verdict.status
}

impl Verdict {
    fn is(&mut self, state: State, sentence: impl Into<String>) {
        self.status.state = state;
        self.status.sentence = sentence.into();
    }

    fn wrong(&mut self, what: impl Into<String>, next: impl Into<String>) {
        self.status.problems.push(Problem { what: what.into(), next: next.into() });
    }

    fn silent(&mut self, process: Option<Process>) {
        let group = self.seen.name.clone();
        self.status.server_pid = process.map(|process| process.pid);
        let who = process.map_or_else(
            || "its server".to_owned(),
            |process| format!("its server (process {}{})", process.pid, doing(process)),
        );
        let sentence = format!("{who} does not answer");
        let next = match process {
            None => format!("see {}", self.seen.log),
            Some(Process { pid, state: Some('T' | 't') }) => format!("continue it: kill -CONT {pid}"),
            Some(Process { pid, .. }) if self.seen.keeper.is_some() => {
                format!(
                    "if it does not answer for long: kill -9 {pid}, which is safe; its keeper starts another server"
                )
            }
            Some(Process { pid, .. }) => {
                format!("if it does not answer for long: kill -9 {pid}, which is safe, then rowen vgs {group}")
            }
        };
        self.wrong(sentence.clone(), next);
        self.is(State::NotAnswering, sentence);
    }

    fn refused(&mut self, pid: Option<u32>, why: String) {
        self.status.server_pid = pid;
        let next = format!("rowen upgrade {}: this version takes over, in service", self.seen.name);
        self.wrong(why, next);
        self.is(State::OtherVersion, "its server does not speak to this version of rowen");
    }

    fn opening(&mut self, process: Process, seconds: u64) {
        self.status.server_pid = Some(process.pid);
        let is_takeover = self.seen.keeper.is_some() || self.seen.devices > 0;
        let state = if is_takeover { State::TakingOver } else { State::Opening };
        let wait = if is_takeover { "; programs that use its volumes wait" } else { "" };
        let pid = process.pid;
        self.is(state, format!("process {pid}{} opens the group, for {} now{wait}", doing(process), duration(seconds)));
        if seconds > OPENING_LIMIT {
            let what = format!("the group has been opening for {}", duration(seconds));
            self.wrong(what, format!("see {} and dmesg: its disks may be slow or silent", self.seen.log));
        }
    }

    fn absent(&mut self) {
        let group = self.seen.name.clone();
        let devices = times(self.seen.devices, "volume", "volumes");
        if let Some(KeeperSeen { process, .. }) = self.seen.keeper {
            let sentence = format!(
                "its server is gone and its keeper (process {}) starts another; programs that use its volumes wait",
                process.pid
            );
            return self.is(State::TakingOver, sentence);
        }
        if self.seen.devices > 0 {
            let sentence =
                format!("server and keeper are gone; the devices of {devices} still exist and return errors");
            let next = format!("stop the programs that use them, unmount them, then rowen vgchange -ay {group}");
            self.wrong(sentence.clone(), next);
            return self.is(State::Killed, sentence);
        }
        if self.seen.frozen > 0 {
            let what = "a filesystem may still be frozen from a snapshot whose server was killed";
            self.wrong(what, format!("rowen vgs {group}: the server that it starts thaws it"));
        }
        self.is(State::NotRunning, "it has no active volumes, and no server runs");
    }

    fn answered(&mut self, pid: u32, report: &StatusReport) {
        let status = &mut self.status;
        status.server_pid = Some(pid);
        status.open_seconds = Some(report.open_seconds);
        status.volumes = Some(report.volumes);
        status.active_volumes = Some(report.active_volumes);
        let used = report.blocks.saturating_sub(report.available_blocks);
        let percent =
            if report.blocks == 0 { 0.0 } else { (used as f64 * 1000.0 / report.blocks as f64).round() / 10.0 };
        status.used_percent = Some(percent);
        let waiting = report.held.iter().map(|held| WaitingVolume { name: held.name.clone(), seconds: held.seconds });
        status.waiting_volumes = waiting.collect();
        status.physical_volumes = report.pvs.iter().map(served_pv).collect();
        status.work = work(report, &status.name);
        let volumes = times(report.active_volumes, "active volume", "active volumes");
        self.is(State::Serving, format!("{volumes} of {}; {percent:.1}% of its space is in use", report.volumes));
        self.waits_for_disk(report);
        self.waits_for_space(report);
        self.has_stopped(report);
        self.is_read_only(report);
        self.fills_up(report);
        self.lost_something(report);
    }

    fn waits_for_disk(&mut self, report: &StatusReport) {
        for pv in report.pvs.iter().filter(|pv| is_late(pv)) {
            let time = duration(pv.silent_seconds.unwrap_or(0));
            let what = format!("{} has not answered for {time}", pv.path);
            self.wrong(
                what.clone(),
                "check the disk and its path (dmesg); the group goes on by itself when the disk answers",
            );
            self.is(State::WaitingForDisk, what);
        }
        // For a missing one the reason and the next step are known.
        let is_away = |pv: &PvStatus| report.disk_wait.as_ref().is_some_and(|wait| wait.away.contains(&pv.uuid.0));
        for pv in report.pvs.iter().filter(|pv| !failures(pv).is_empty() && !is_away(pv)) {
            self.wrong(
                format!("{} failed {} since the group was opened", pv.path, failures(pv)),
                "check the disk (dmesg, smartctl); if it fails, replace it by a copy (ddrescue)",
            );
        }
    }

    fn waits_for_space(&mut self, report: &StatusReport) {
        let group = self.seen.name.clone();
        let next = format!(
            "remove snapshots or volumes, or add space: rowen vgextend {group} DEVICE, rowen lvextend of a thin pool"
        );
        if !report.held.is_empty() {
            let names: Vec<String> =
                report.held.iter().map(|held| format!("{} (for {})", held.name, duration(held.seconds))).collect();
            let what = format!("writes wait for space: {}", names.join(", "));
            self.wrong(what.clone(), next.clone());
            self.is(State::WaitingForSpace, what);
        }
        if let Some(path) = &report.waits_for_room {
            let what = format!("there is no room behind {path} for the journal: writes and changes wait, reads work");
            let next = "make room on the filesystem that it lies on; then the group goes on by itself";
            self.wrong(what.clone(), next);
            self.is(State::WaitingForSpace, what);
        }
        for full in &report.timed_out {
            let place = full.as_ref().map_or_else(|| "the group".to_owned(), |pool| format!("thin pool {pool}"));
            self.wrong(format!("writes have waited for space in {place} for too long, and fail now"), next.clone());
        }
    }

    fn has_stopped(&mut self, report: &StatusReport) {
        let wait = report.disk_wait.clone().map(|wait| Problem { what: wait.what, next: wait.next });
        let Some(why) = &report.stopped else { return self.status.problems.extend(wait) };
        if let Some(wait) = wait {
            self.status.problems.insert(0, wait);
            return self.is(State::Stopped, why.clone());
        }
        let what = "it takes no more writes until it is opened again".to_owned();
        let next = format!("once its disks are well: rowen clear {}", self.seen.name);
        self.status.problems.insert(0, Problem { what, next });
        self.is(State::Stopped, why.clone());
    }

    fn is_read_only(&mut self, report: &StatusReport) {
        let Some(why) = &report.read_only else { return };
        let next = format!("once it can be written: rowen clear {}", self.seen.name);
        self.wrong(format!("it is open read-only: {why}"), next);
    }

    fn fills_up(&mut self, report: &StatusReport) {
        let group = self.seen.name.clone();
        for Filling { volume, is_pool, tenths } in &report.filling {
            let percent = format!("{}.{}%", tenths / 10, tenths % 10);
            let (what, next) = match volume {
                None => (
                    format!("the group is {percent} full"),
                    format!("remove snapshots or volumes, or rowen vgextend {group} DEVICE"),
                ),
                Some(pool) if *is_pool => {
                    (format!("thin pool {pool} is {percent} full"), format!("rowen lvextend -L +SIZE {group}/{pool}"))
                }
                Some(snapshot) => (
                    format!("snapshot {snapshot} has used {percent} of its size, and is lost at 100%"),
                    format!("rowen lvextend -L +SIZE {group}/{snapshot}"),
                ),
            };
            self.wrong(what, next);
        }
        let is_in_reason = |message: &str| report.waits_for_room.as_ref().is_some_and(|path| message.contains(path));
        for message in report.missing_room.iter().filter(|message| !is_in_reason(message)) {
            let what = message.trim_start_matches("WARNING: ").trim_end_matches('.');
            self.wrong(what, "make room on the filesystem that the physical volume lies on");
        }
    }

    fn lost_something(&mut self, report: &StatusReport) {
        let group = self.seen.name.clone();
        for snapshot in &report.invalid_snapshots {
            let was_held = if report.lost_holds.contains(snapshot) { ", although it was held" } else { "" };
            let what = format!("snapshot {snapshot} is invalid: its contents are gone{was_held}, its origin is fine");
            self.wrong(what, format!("rowen lvremove -f {group}/{snapshot}"));
        }
        for snapshot in &report.written_while_held {
            let what = format!("snapshot {snapshot} is held, but was written to: no transfer can start from it");
            self.wrong(what, format!("rowen release --all {group}/{snapshot}, and hold another one"));
        }
        self.lost_copies(report, &group);
        for (volume, scrub) in report.scrubs.iter().filter(|(_, scrub)| scrub.has_differences()) {
            let size = sentence(scrub.different_blocks * BLOCK_SIZE);
            let what =
                format!("the two copies of {group}/{volume} differ in {size}: one disk has lost data without an error");
            let next = format!(
                "compare the contents with a backup; rowen lvchange --syncaction repair {group}/{volume} makes both copies \
                 what the first one is; check the disks (smartctl)"
            );
            self.wrong(what, next);
        }
        if report.nodes_lost > 0 {
            let nodes = times(report.nodes_lost, "metadata node is", "metadata nodes are");
            self.wrong(format!("{nodes} damaged in both copies"), format!("rowen check {group} lists what is lost"));
        }
        if report.copies_not_written > 0 {
            let copies = times(report.copies_not_written, "copy", "copies");
            let what = format!("{copies} of metadata could not be written; the other one is good");
            self.wrong(what, format!("check the disks (dmesg), then rowen repair {group}"));
        }
        for place in &report.bad_places {
            self.wrong(
                place.trim_end_matches('.'),
                "replace the disk: the group avoids this place, and at most 16 such places",
            );
        }
    }

    /// What the copies of mirrored volumes lack.
    fn lost_copies(&mut self, report: &StatusReport, group: &str) {
        let mirrors = &report.mirrors;
        if let Some(why) = report.repair.as_ref().and_then(|repair| repair.failed.as_ref()) {
            let what = format!("copies of mirrored volumes are not made anew by themselves: {why}");
            let next = format!(
                "change that, or make them by hand (rowen vgreduce --removemissing {group}, rowen lvconvert --repair {group}/LV); it \
                 is tried again after repair_delay"
            );
            self.wrong(what, next);
        }
        if mirrors.outdated_bytes > 0 {
            let size = sentence(mirrors.outdated_bytes);
            let what = format!(
                "{size} of mirrored volumes cannot be read: the disk that is out has the only current copy, the other one is older"
            );
            self.wrong(what, "attach that disk, and do not wipe or remove it: nothing else has this data");
        }
        if mirrors.is_catching_up && mirrors.left_bytes() > 0 && !planted::is("catching_up_is_well") {
            let size = sentence(mirrors.left_bytes());
            let what =
                format!("{size} of mirrored volumes have one current copy, until it is copied to the other disk");
            let next = format!("take no disk away before that is done: rowen lvs -o name,copy_percent {group}");
            self.wrong(what, next);
        }
        if mirrors.single_extents > 0 {
            let size = sentence(mirrors.single_bytes());
            let what = format!("{size} of mirrored extents have one copy: the disk with the other one was removed");
            let next = format!(
                "with room on another disk (rowen vgextend {group} DEVICE), rowen lvconvert --repair {group}/LV: it repairs all, \
                 those of other volumes and free ones, too"
            );
            self.wrong(what, next);
        }
        if mirrors.stuck_bytes > 0 {
            let size = sentence(mirrors.stuck_bytes);
            let what = format!("{size} of mirrored volumes cannot be copied from one disk to the other");
            self.wrong(what, "check the disks (dmesg, smartctl), and replace the one that fails");
        }
    }

    /// Evaluates labels. The server of a group knows more, but not which disk the next server would not find.
    fn members(&mut self) {
        let is_served = matches!(self.seen.server, ServerSeen::Answered { .. });
        match self.seen.members.clone() {
            MembersSeen::Unknown => {}
            MembersSeen::Contradictory(why) if is_served => {
                // A server that waits for a disk reports the copy itself.
                if self.waits_for().is_none() {
                    let next = "attach the newest disks; if one is a copy of another, detach the copy; the group keeps using the disks that \
                                it has open, but could not be opened again";
                    self.wrong(why, next);
                }
            }
            MembersSeen::Contradictory(why) => {
                let next = "attach the newest disks; if one is a copy of another, detach the copy, and wipe nothing before the group is \
                            open; rowen pvs lists them";
                self.wrong(why.clone(), next);
                if self.status.state != State::NotAnswering {
                    self.is(State::CannotOpen, why);
                }
            }
            MembersSeen::Shrunk(why) => {
                let next = format!(
                    "make its device as large again, if its contents are there still; to go on without it: rowen vgchange -ay \
                     --activationmode degraded {}",
                    self.seen.name
                );
                self.wrong(why.clone(), next);
                if !is_served && self.status.state != State::NotAnswering {
                    self.is(State::CannotOpen, why);
                }
            }
            MembersSeen::Found(mut pvs) => {
                pvs.iter_mut().for_each(|pv| pv.is_out |= self.is_served_without(pv));
                pvs.iter().filter(|pv| pv.is_out).for_each(|pv| self.goes_on_without(pv));
                self.older(&pvs);
                let missing: Vec<&PvSeen> = pvs.iter().filter(|pv| !pv.is_there && !pv.is_out).collect();
                let is_in_use = is_served || self.seen.keeper.is_some() || self.seen.devices > 0;
                let reason = self.waits_for().map(|wait| wait.what.clone()).unwrap_or_default();
                let is_in_reason = |pv: &PvSeen| !pv.uuid.is_empty() && reason.contains(&pv.uuid);
                let others: Vec<&PvSeen> = missing.iter().filter(|pv| !is_in_reason(pv)).copied().collect();
                let are_all = missing.len() == pvs.len();
                others.into_iter().for_each(|pv| self.is_not_there(pv, is_in_use, are_all));
                let count = (pvs.len() - missing.len(), times(pvs.len() as u64, "physical volume", "physical volumes"));
                if !missing.is_empty() && matches!(self.status.state, State::NotRunning | State::TakingOver) {
                    let sentence =
                        format!("{} of {} are there, and a group is opened only with all of them", count.0, count.1);
                    self.is(State::Incomplete, sentence);
                }
                match is_served {
                    false => self.status.physical_volumes = pvs.iter().map(labelled_pv).collect(),
                    true => self.mark_missing(&pvs),
                }
            }
        }
    }

    /// `is_in_use`: the group is served, or its volumes are in use. `are_all`: nothing of it is there.
    fn is_not_there(&mut self, pv: &PvSeen, is_in_use: bool, are_all: bool) {
        if pv.is_silent {
            return self.does_not_answer(pv);
        }
        let path = pv.path.clone().unwrap_or_else(|| "a physical volume".to_owned());
        let what = match &self.seen.server {
            ServerSeen::Answered { .. } => {
                format!("{path} ({}) has disappeared: the group could not be opened again", pv.uuid)
            }
            _ if pv.uuid.is_empty() => format!("{path} is missing"),
            _ => format!("{path} ({}) is missing", pv.uuid),
        };
        let next = match &pv.path {
            _ if is_in_use => "attach it: the group goes on by itself, without any command".to_owned(),
            // The group may have gone to another machine.
            Some(path) if are_all => {
                format!("attach it; if its group has left for good: rowen lvmdevices --deldev {path}")
            }
            _ => "attach it; if it is a file that was moved: rowen lvmdevices --adddev FILE".to_owned(),
        };
        self.wrong(what, next);
    }

    /// A disk whose label could not be read. Its server says more after a while.
    fn does_not_answer(&mut self, pv: &PvSeen) {
        if self.served(pv).is_some_and(is_late) {
            return;
        }
        let path = pv.path.clone().unwrap_or_default();
        let uuid = if pv.uuid.is_empty() { String::new() } else { format!(" ({})", pv.uuid) };
        let next = "check the device and its path (dmesg); the group goes on, or can be opened, when it answers";
        self.wrong(format!("{path}{uuid} does not answer"), next);
    }

    /// The disk for which its server waits.
    fn waits_for(&self) -> Option<&DiskWait> {
        match &self.seen.server {
            ServerSeen::Answered { report, .. } => report.disk_wait.as_ref(),
            _ => None,
        }
    }

    /// What the server says of a physical volume.
    fn served(&self, pv: &PvSeen) -> Option<&PvStatus> {
        let ServerSeen::Answered { report, .. } = &self.seen.server else { return None };
        report.pvs.iter().find(|served| lvm_text(served.uuid) == pv.uuid)
    }

    /// The repair that comes without a person.
    fn repair(&self) -> Option<&RepairReport> {
        let ServerSeen::Answered { report, .. } = &self.seen.server else { return None };
        report.repair.as_ref().filter(|repair| repair.failed.is_none())
    }

    /// Whether the server runs without it. Of a disk that comes back, the labels say so first.
    fn is_served_without(&self, pv: &PvSeen) -> bool {
        self.served(pv).is_some_and(|served| served.is_missing) && !planted::is("labels_are_enough")
    }

    fn goes_on_without(&mut self, pv: &PvSeen) {
        let group = self.seen.name.clone();
        let is_back = if pv.is_there { ", although it is attached again" } else { "" };
        let last = match &pv.path {
            Some(path) if !pv.is_there => format!(" (last seen at {path})"),
            _ => String::new(),
        };
        let what = format!(
            "it goes on without physical volume {}{last}{is_back}: what is only there cannot be read (which volumes: rowen lvs -o \
             lv_name,lv_health_status {group})",
            pv.uuid
        );
        let next = match &pv.path {
            _ if pv.is_cut => format!(
                "it was made smaller, so it is not taken back: rowen vgreduce --removemissing {group}, and replace it as a lost disk"
            ),
            Some(path) if pv.is_there => format!(
                "rowen vgextend --restoremissing {group} {path}; if it is refused and lost for the group: rowen vgreduce --removemissing \
                 {group}"
            ),
            _ => format!(
                "attach it; if the group does not take it back by itself: rowen vgextend --restoremissing {group} PV; if it is lost: rowen vgreduce \
                 --removemissing {group}"
            ),
        };
        let repair = self.repair().map(|repair| repair_sentence(repair, &group, pv));
        self.wrong(what, repair.unwrap_or(next));
    }

    /// Disks that are older copies of members. The group is not opened with one.
    fn older(&mut self, pvs: &[PvSeen]) {
        let next = format!(
            "attach its newest copy; if there is none: detach this one, then rowen vgchange -ay --activationmode degraded {}",
            self.seen.name
        );
        let older = pvs.iter().filter(|pv| pv.is_older);
        let sentences: Vec<String> = older
            .map(|pv| {
                let path = pv.path.as_deref().unwrap_or("a physical volume");
                format!("{path} ({}) is an older copy: it lacks what the other disks have", pv.uuid)
            })
            .collect();
        sentences.iter().for_each(|what| self.wrong(what, &next));
        if !sentences.is_empty() && matches!(self.status.state, State::NotRunning | State::TakingOver) {
            self.is(State::CannotOpen, sentences.join("; "));
        }
    }

    fn mark_missing(&mut self, pvs: &[PvSeen]) {
        for pv_state in &mut self.status.physical_volumes {
            let Some(pv) = pvs.iter().find(|pv| (!pv.is_there || pv.is_out) && pv.uuid == pv_state.uuid) else {
                continue;
            };
            pv_state.state = if pv.is_silent { PvWord::NotAnswering } else { PvWord::Missing };
            // Its server knows no path of a disk that is out.
            if pv.is_out && pv.path.is_some() {
                pv_state.path.clone_from(&pv.path);
            }
        }
    }

    fn keeper(&mut self) {
        let log = self.seen.log.clone();
        match self.seen.keeper {
            None if self.status.active_volumes.is_some_and(|active| active > 0) => self.wrong(
                "it has no keeper: if its server dies now, its volumes return errors",
                "the server starts another keeper within seconds; if it does not, see its log",
            ),
            Some(KeeperSeen { process: Process { pid, state: Some('T' | 't') }, .. }) => self.wrong(
                format!("its keeper (process {pid}) was stopped by a signal (SIGSTOP)"),
                format!("continue it: kill -CONT {pid}"),
            ),
            Some(KeeperSeen { answer: Some(answer), .. }) if answer.failures >= FAILURES => {
                let mut what = format!("{} servers in a row failed", answer.failures);
                if let Some(why) = &self.seen.last_failure {
                    let lines: Vec<&str> = why.lines().map(|line| line.trim_end_matches('.')).collect();
                    what += &format!(", the last one with: {}", lines.join("; "));
                }
                self.wrong(what, format!("see {log}; the keeper starts more until one serves for longer"));
            }
            _ => {}
        }
    }
}

/// The kinds of failed requests of a physical volume with their numbers. Empty if none failed.
pub fn failures(pv: &PvStatus) -> String {
    let all = [
        (pv.failed_reads, "read", "reads"),
        (pv.failed_writes, "write", "writes"),
        (pv.failed_flushes, "flush", "flushes"),
    ];
    let some: Vec<String> =
        all.into_iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| times(count, one, many)).collect();
    match &some[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => some.concat(),
    }
}

/// Whether it is reported that it does not answer.
fn is_late(pv: &PvStatus) -> bool {
    pv.silent_seconds.is_some_and(|seconds| seconds >= DISK_LIMIT)
}

fn served_pv(pv: &PvStatus) -> PvState {
    let state = match pv {
        pv if is_late(pv) => PvWord::NotAnswering,
        pv if !failures(pv).is_empty() => PvWord::Errors,
        _ => PvWord::Ok,
    };
    PvState {
        path: Some(pv.path.clone()),
        uuid: lvm_text(pv.uuid),
        state,
        size_bytes: Some(pv.size_bytes),
        failed_reads: Some(pv.failed_reads),
        failed_writes: Some(pv.failed_writes),
        failed_flushes: Some(pv.failed_flushes),
    }
}

fn labelled_pv(pv: &PvSeen) -> PvState {
    PvState {
        path: pv.path.clone(),
        uuid: pv.uuid.clone(),
        state: match pv {
            pv if pv.is_silent => PvWord::NotAnswering,
            pv if !pv.is_there || pv.is_out => PvWord::Missing,
            pv if pv.is_older => PvWord::OlderCopy,
            _ => PvWord::Ok,
        },
        size_bytes: pv.is_there.then_some(pv.size_bytes),
        failed_reads: None,
        failed_writes: None,
        failed_flushes: None,
    }
}

/// A move of extents in words: its progress, why it waits, or how it ended.
fn move_sentence(moving: &MoveReport) -> String {
    let MoveReport { path, copied_bytes, total_bytes, own_bytes, seconds, .. } = moving;
    let more = "What was moved stays where it is; \"pvmove\" again moves the rest";
    if let Some(why) = &moving.waits {
        return format!("pvmove: extents of {path} wait to be moved: {why}");
    }
    if moving.is_running {
        let percent = 100.0 * *copied_bytes as f64 / (*total_bytes).max(1) as f64;
        let mut text =
            format!("pvmove: extents of {path} are being moved, {percent:.1}% of {}", sentence(*total_bytes));
        if *seconds > 0 && *own_bytes > 0 {
            let rate = own_bytes / seconds;
            let left = total_bytes.saturating_sub(*copied_bytes) / rate.max(1);
            text += &format!(", {} in a second, {} left", sentence(rate), duration(left));
        }
        return text;
    }
    match &moving.failed {
        Some(why) => {
            format!("pvmove: moving extents off {path} failed before the end: {}. {more}", why.trim_end_matches('.'))
        }
        None if moving.is_stopped => format!("pvmove: moving extents off {path} was stopped. {more}"),
        None => format!("pvmove: {} extents of {path} cannot be read, and were not moved", moving.unreadable),
    }
}

/// Copies that are being made equal.
fn mirror_sentence(mirrors: &MirrorReport) -> Option<String> {
    let (left, all) = (mirrors.left_bytes(), sentence(mirrors.bytes));
    (left > 0).then(|| format!("mirrors: {} of {all} are being copied from one disk to the other", sentence(left)))
}

/// The message about a journal that is on fewer physical volumes than possible.
fn journal_sentence(report: &StatusReport, group: &str) -> Option<String> {
    let without = "journal: it is on one physical volume, and the group does not open without that one";
    match (report.journal_copies, report.journal_copies_written) {
        (1, _) if report.pvs.len() > 1 => {
            Some(format!("{without} (vgchange --vgmetadatacopies 2 {group} keeps it on two)"))
        }
        (2, 1) => Some(format!("{without} until the other one is back")),
        _ => None,
    }
}

/// What to do about a missing disk whose copies are made anew.
fn repair_sentence(repair: &RepairReport, group: &str, pv: &PvSeen) -> String {
    let who = match repair.spares.as_slice() {
        [] => "other physical volumes take".to_owned(),
        [spare] => format!("the spare {spare} takes"),
        spares => format!("the spares {} take", spares.join(", ")),
    };
    let time = duration(repair.seconds);
    let then = format!("after that it leaves the group for good, and {who} its copies (raid_fault_policy)");
    match &pv.path {
        _ if pv.is_cut => format!(
            "nothing: it was made smaller, so it is not taken back. In {time} it leaves the group, and {who} its copies \
             (raid_fault_policy)"
        ),
        Some(path) if pv.is_there => {
            format!(
                "if it is sound, take it back within {time}: rowen vgextend --restoremissing {group} {path}; {then}"
            )
        }
        _ => format!(
            "attach it within {time}, and take it back if the group does not do so by itself (rowen vgextend --restoremissing {group} \
             PV); {then}"
        ),
    }
}

fn work(report: &StatusReport, group: &str) -> Vec<String> {
    let mut work = Vec::new();
    work.extend(report.moving.as_ref().map(move_sentence));
    work.extend(mirror_sentence(&report.mirrors));
    work.extend(report.scrubs.iter().filter(|(_, scrub)| scrub.is_running).map(|(volume, scrub)| {
        let (done, total) = (sentence(scrub.done_blocks * BLOCK_SIZE), sentence(scrub.total_blocks * BLOCK_SIZE));
        format!("mirrors: the copies of {group}/{volume} are being compared: {done} of {total}")
    }));
    work.extend(journal_sentence(report, group));
    if report.reclaim_left_blocks > 0 {
        work.push(format!("removal: {} are still to be searched", sentence(report.reclaim_left_blocks * BLOCK_SIZE)));
    }
    if report.checks > 0 {
        work.push(format!("verification: {}", times(report.checks.into(), "check runs", "checks run")));
    }
    if !report.held_snapshots.is_empty() {
        let held = times(report.held_snapshots.len() as u64, "snapshot is", "snapshots are");
        work.push(format!("holds: {held} held ({})", report.held_snapshots.join(", ")));
    }
    for snapshot in &report.merging {
        work.push(format!("merge: snapshot {snapshot} waits for the next activation of its origin"));
    }
    work
}
