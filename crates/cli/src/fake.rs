//! A host in memory for the tests of commands: devices, labels, files and settings, and for each group the real service on the
//! real engine, over disks in memory.

use crate::backend::{
    Answer, Backend, Consent, Follow, Gathered, Hook, LabelledPv, NewVg, News, Pending, Pipe, Piped, Place, Probe,
    PvFormat, Said, Scrapes, Surveyor, Trouble, Upgraded, WentOn, Where,
};
use crate::console::Console;
use crate::fake_hooks::Hooks;
use crate::session::no_group;
use rowen_control::history;
use rowen_control::protocol::*;
use rowen_control::service::memory::{Memory, Outside};
use rowen_control::service::platform::{Faults, Members, User};
use rowen_control::settings::{Loaded, Settings};
use rowen_control::status::{Counters, Depth, IoSeen, KeeperAnswer, KeeperSeen, Process, Seen, ServerSeen, Survey};
use rowen_control::uuids::lvm_text;
use rowen_engine::disk::PvIndex;
use rowen_engine::group::{NewGroup, NewPv};
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

pub const EXTENT_BLOCKS: u64 = 1024;

/// What passes between two requests of a command: enough that what was removed is free.
const BETWEEN: Duration = Duration::from_secs(2);

/// The host.
#[derive(Default)]
pub struct Fake {
    /// Files that are sparse.
    pub without_room: BTreeMap<String, u64>,
    /// The groups that are served, by name.
    groups: BTreeMap<String, Memory>,
    /// Devices and their bytes.
    pub devices: Vec<(String, u64)>,
    pub labels: Vec<LabelledPv>,
    /// Findings of a check in addition to the engine's; a repair repairs them.
    pub findings: Vec<String>,
    /// What is on each device, and where it is mounted.
    pub filesystem: Option<&'static str>,
    pub mount_point: Option<&'static str>,
    /// Programs that were run, and the one that fails.
    pub tools: Vec<String>,
    pub failing_tool: Option<&'static str>,
    /// What every change says before it is done.
    pub notice: Option<String>,
    /// Servers do not answer yet when they are looked for, and do when they are asked.
    pub is_starting: bool,
    /// Requests that were made, in the words of the protocol, without reports.
    pub requests: Vec<Request>,
    /// Reports that had to look whether devices are open.
    pub use_checks: u32,
    /// Copies of metadata, by path.
    pub files: BTreeMap<String, String>,
    /// With which settings they were kept.
    pub kept_with: Vec<Settings>,
    pub callers: Vec<Caller>,
    /// Groups in which a turn was waited for.
    pub turns: Vec<String>,
    /// Before this many changes of a size, another caller makes the volume an extent larger.
    pub others: u32,
    /// Why the settings cannot be read.
    pub bad_settings: Option<String>,
    /// What the file of settings says.
    pub settings: String,
    /// `LVM_VG_NAME`.
    pub default_group: Option<String>,
    /// What the client of ssh asked for.
    pub ssh_command: Option<String>,
    /// A group that is there and cannot be opened, and why.
    pub closed: Option<(String, String)>,
    /// What else is seen of groups when all is looked at, and devices that do not answer.
    pub seen: Vec<Seen>,
    pub silent: Vec<String>,
    /// Servers of other groups when they are asked what they counted.
    pub io_seen: BTreeMap<String, IoSeen>,
    /// How long was waited between reports, and what happens then.
    pub pauses: Vec<Duration>,
    pub between: Option<fn(&mut Fake)>,
    /// A group that is removed by somebody as soon as all groups were looked for.
    pub leaving: Option<String>,
    made: u16,
    /// What was written down of each group, by its identifier: commands and events.
    pub written: BTreeMap<String, (String, String)>,
    /// What happens while events are followed: each look finds the next.
    pub coming: Vec<Vec<(String, Vec<u8>)>>,
    runs: u32,
    /// The last support bundle.
    pub bundle: BTreeMap<String, String>,
    /// Formats of physical volumes.
    pub formats: Vec<PvFormat>,
    /// What was published, and after how many times there is no room for more.
    pub published: Vec<String>,
    pub full_after: usize,
    /// What happens before each list of changes is made.
    pub before_diff: Option<fn(&mut Fake)>,
    /// The server ends at the next publications of what was received; whether it has done it then.
    pub ends_at_publish: Vec<bool>,
    /// Hosts, and what a key may receive into there; the groups of all hosts are those of this one.
    pub hosts: BTreeMap<String, Option<String>>,
    /// Command lines that ran on them.
    pub ran_there: Vec<String>,
    pub hooks: Hooks,
    /// Streams are cut after these numbers of bytes, one number for each.
    pub cuts: Vec<usize>,
    /// Seconds since the usual moment.
    pub clock: i64,
    /// Groups whose server cannot be replaced.
    pub not_upgraded: Vec<String>,
}

/// The smallest physical volume, in bytes.
const MIN: u64 = 8 << 20;

fn too_small(path: &str) -> String {
    format!("Cannot use {path}: device is too small.")
}

/// What a command printed, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Printed {
    pub out: String,
    pub err: String,
    pub code: u8,
}

impl Fake {
    /// Two devices of 700 MiB and one that is too small.
    pub fn new() -> Fake {
        let devices = [("/dev/ubda", 700 << 20), ("/dev/ubdb", 700 << 20), ("/dev/tiny", 4096)];
        Fake { devices: devices.map(|(path, size)| (path.to_owned(), size)).to_vec(), ..Fake::default() }
    }

    /// Runs a command line as it is typed, without quotes.
    pub fn run(&mut self, line: &str) -> Printed {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        self.run_words(&words[0], &words[1..], None)
    }

    pub fn run_words(&mut self, program: &str, words: &[String], answers: Option<&str>) -> Printed {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut answers = answers.map(str::as_bytes);
        let answers = answers.as_mut().map(|answers| answers as &mut dyn std::io::BufRead);
        let console = Console::new(&mut out, &mut err, answers);
        let code = crate::run(self, console, program, words);
        // A stream is no text.
        Printed { out: String::from_utf8_lossy(&out).into_owned(), err: String::from_utf8(err).unwrap(), code }
    }

    /// The group as its server reports it.
    pub fn report(&self, group: &str) -> GroupReport {
        let memory = &self.groups[group];
        let report = Request::Report { with_use: true };
        match memory.service.handle(report, &Caller::default(), &mut |_| {}) {
            Outcome::Report(report) => *report,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// The server of a group.
    pub fn memory(&self, group: &str) -> &Memory {
        &self.groups[group]
    }

    fn memory_of(&self, volume: &str) -> &Memory {
        let has = |memory: &&Memory| memory.service.group.find(volume).is_some();
        self.groups.values().find(has).unwrap_or_else(|| panic!("no volume {volume}"))
    }

    /// Somebody has the volume's device open from now on, or nobody.
    pub fn set_open(&self, volume: &str, open: bool) {
        self.memory_of(volume).devices.set_user(volume, open.then_some(User::Other));
    }

    /// The group's disks take no writes any more.
    pub fn break_disks(&self, group: &str) {
        self.groups[group].die_at(1);
    }

    /// So much was counted since the group was opened, which is so long ago.
    pub fn set_io(&self, group: &str, open: Duration, volumes: &[(&str, IoCounts)], disks: &[IoCounts]) {
        let memory = &self.groups[group];
        *memory.notes.open_for.lock() = open;
        for (name, counts) in volumes {
            memory.devices.set_io(memory.service.group.find(name).expect("a volume of the group"), *counts);
        }
        memory.set_disk_io(disks);
    }

    /// The group's disks are said to have behaved so.
    pub fn set_faults(&self, group: &str, faults: &[Faults]) {
        self.groups[group].set_faults(faults);
    }

    /// Writes the first blocks of a volume.
    pub fn write(&self, volume: &str, blocks: u64) {
        self.memory_of(volume).write(volume, blocks).unwrap();
    }

    /// Another caller makes the volume an extent larger, which is to be resized.
    fn interfere(&mut self, memory: &Memory, request: &Request) {
        let now = |name: &String| memory.service.find(name).unwrap();
        let other = match request {
            _ if self.others == 0 => return,
            Request::Resize { name, on, .. } => {
                let blocks = now(name).blocks + EXTENT_BLOCKS;
                Request::Resize { name: name.clone(), blocks, force: false, on: on.clone(), seen: None }
            }
            Request::SetReserve { name, .. } => {
                let blocks = now(name).reserve.unwrap() + EXTENT_BLOCKS;
                Request::SetReserve { name: name.clone(), blocks: Some(blocks), seen: None }
            }
            _ => return,
        };
        self.others -= 1;
        let outcome = memory.service.handle(other, &Caller::default(), &mut |_| {});
        assert!(matches!(outcome, Outcome::Ok), "{outcome:?}");
    }

    /// A disk of the group is lost, and its server goes on without it. Returns the disk's label, for when it is found.
    pub fn lose_disk(&mut self, group: &str, path: &str) -> LabelledPv {
        let memory = self.groups.remove(group).expect("it is served");
        let mut places = (0..memory.service.group.info().pvs.len()).map(|index| PvIndex(index as u16));
        let is_there = |pv: &PvIndex| memory.members.path(*pv).is_some_and(|place| place == Path::new(path));
        let pv = places.find(is_there).expect("a member");
        let memory = memory.without(pv).unwrap();
        let place = self.labels.iter().position(|label| label.path == path).expect("it has a label");
        let label = self.labels.remove(place);
        self.relabel(group, Some(&memory));
        self.groups.insert(group.to_owned(), memory);
        label
    }

    /// Tells the group's server of the disks that are no members.
    fn show_devices(&self, group: &str, memory: &Memory) {
        for (index, (path, size)) in self.devices.iter().enumerate() {
            let uuid = Uuid([0x80 | index as u8; 16]);
            let too_small = (*size < MIN).then(|| (ErrorKind::Invalid, too_small(path)));
            memory.members.add_outside(path, Outside { size: *size, uuid, refused: too_small });
        }
        for label in &self.labels {
            let path = &label.path;
            let taken = |other: &String| {
                let message = format!(
                    "Physical volume '{path}' is already in volume group '{other}'\n\
                     Unable to add physical volume '{path}' to volume group '{group}'\n\
                     {path}: physical volume not initialized."
                );
                (ErrorKind::Exists, message)
            };
            let uuid = label.uuid.unwrap_or(Uuid([0; 16]));
            let disk = Outside { size: label.usable, uuid, refused: label.group.as_ref().map(taken) };
            memory.members.add_outside(path, disk);
        }
        self.groups.keys().filter(|name| *name != group).for_each(|name| memory.members.add_group(name));
    }

    /// Labels say which group they are of, as the group does.
    fn relabel(&mut self, before: &str, after: Option<&Memory>) {
        for label in self.labels.iter_mut().filter(|label| label.group.as_deref() == Some(before)) {
            label.group = None;
        }
        let Some(memory) = after else { return };
        let info = memory.service.group.info();
        for (index, pv) in info.pvs.iter().enumerate().filter(|(_, pv)| !pv.is_missing) {
            let path = memory.members.path(PvIndex(index as u16)).expect("a member has a path").display().to_string();
            let group = Some(info.name.clone());
            match self.labels.iter_mut().find(|label| label.path == path) {
                Some(label) => label.group = group,
                None => {
                    let size = self.devices.iter().find(|(device, _)| *device == path).expect("a device").1;
                    let uuid = Some(pv.uuid);
                    self.labels.push(LabelledPv { path, uuid, size, usable: size, group, trouble: None });
                }
            }
        }
    }

    /// A request to a group's server, which ends afterwards if it was asked to, and is followed by the next.
    fn obey(&mut self, name: &str, request: Request, news: News<'_>) -> Answer<Outcome> {
        let missing = || Trouble::other(ErrorKind::NotFound, no_group(name));
        let memory = self.groups.remove(name).ok_or_else(missing)?;
        self.show_devices(name, &memory);
        self.interfere(&memory, &request);
        let caller = self.callers.last().cloned().unwrap_or_default();
        let outcome = memory.service.handle(request, &caller, news);
        let uuid = lvm_text(memory.service.group.info().uuid);
        for done in memory.notes.done.lock().drain(..) {
            self.write_down(&uuid, done);
        }
        let mut next = Some(memory);
        if next.as_ref().is_some_and(|memory| memory.service.ending.is_asked()) {
            next = next.and_then(|memory| memory.successor().unwrap());
        }
        if let Some(memory) = &next {
            memory.pass(BETWEEN);
        }
        self.relabel(name, next.as_ref());
        if let Some(memory) = next {
            self.groups.insert(memory.service.name.clone(), memory);
        }
        match outcome {
            Outcome::Error { kind, message } => Err(Trouble::Other { kind, message }),
            outcome => Ok(outcome),
        }
    }

    fn write_down(&mut self, uuid: &str, line: history::Command) {
        let line = history::Command { time: self.now(), host: "host".into(), milliseconds: 5, ..line };
        self.written.entry(uuid.to_owned()).or_default().0.push_str(&history::write(&line));
    }

    fn with_findings(&mut self, outcome: Outcome, repaired: bool) -> Outcome {
        match outcome {
            Outcome::Check(mut check) if repaired => {
                check.repaired.append(&mut self.findings);
                Outcome::Check(check)
            }
            Outcome::Check(mut check) => {
                check.findings.extend_from_slice(&self.findings);
                Outcome::Check(check)
            }
            outcome => outcome,
        }
    }
}

impl Backend for Fake {
    fn groups(&mut self) -> Answer<Vec<String>> {
        let mut names: Vec<String> = self.groups.keys().cloned().collect();
        names.extend(self.closed.as_ref().map(|(name, _)| name.clone()));
        names.extend(self.leaving.take());
        names.sort();
        Ok(names)
    }

    fn ask(&mut self, group: &str, request: Request, news: News<'_>) -> Answer<Outcome> {
        let checks_use = |request: &Request| {
            matches!(request, Request::Report { with_use: true } | Request::ReportOf { with_use: true, .. })
        };
        if let Some((_, why)) = self.closed.as_ref().filter(|(name, _)| name == group) {
            return Err(Trouble::other(ErrorKind::Io, why.clone()));
        }
        self.use_checks += u32::from(checks_use(&request));
        if !matches!(request, Request::Report { .. } | Request::ReportOf { .. } | Request::Places) {
            self.requests.push(request.clone());
            if let Some(message) = self.notice.clone() {
                news(Outcome::Notice { message });
            }
        }
        if let Some(happens) = self.before_diff.filter(|_| matches!(request, Request::Diff { .. })) {
            happens(self);
        }
        if matches!(request, Request::Publish { .. }) && !self.ends_at_publish.is_empty() {
            if self.ends_at_publish.remove(0) {
                self.obey(group, request, news)?;
            }
            return Err(Trouble::other(ErrorKind::Closed, "The server ended before it answered."));
        }
        let is_repair = request == Request::Repair;
        let outcome = self.obey(group, request, news)?;
        Ok(self.with_findings(outcome, is_repair))
    }

    fn is_running(&mut self, group: &str) -> Answer<bool> {
        Ok(!self.is_starting && self.groups.contains_key(group))
    }

    fn survey(&mut self, groups: &[String]) -> Survey {
        let is_wanted = |seen: &Seen| groups.is_empty() || groups.contains(&seen.name);
        let served = self.groups.iter().map(|(name, memory)| {
            let report = Box::new(memory.service.status());
            let answer = KeeperAnswer { started: 2, deaths: 1, failures: 0, held: 1 };
            let process = Process { pid: 1230, state: Some('S') };
            Seen {
                name: name.clone(),
                server: ServerSeen::Answered { pid: 1234, report },
                keeper: Some(KeeperSeen { process, answer: Some(answer) }),
                ..Seen::default()
            }
        });
        let groups = served.chain(self.seen.iter().cloned()).filter(is_wanted).collect();
        Survey { groups, silent_devices: self.silent.clone(), ..Survey::default() }
    }

    fn survey_with_counters(&mut self, groups: &[String]) -> Survey {
        let mut survey = self.survey(groups);
        for seen in &mut survey.groups {
            let counters =
                |memory: &Memory| Counters { io: memory.service.io(), stats: memory.service.group.stats().into() };
            seen.counters = self.groups.get(&seen.name).map(counters).map(Box::new);
        }
        survey
    }

    fn listen(&mut self, at: Place) -> Answer<(String, Box<dyn Scrapes>)> {
        Err(Trouble::other(ErrorKind::Denied, format!("Nobody can listen at {at:?}.")))
    }

    fn survey_groups(&mut self, groups: &[String], depth: Depth) -> Survey {
        let mut survey = self.survey_with_counters(groups);
        for seen in &mut survey.groups {
            let is_served = self.groups.contains_key(&seen.name);
            seen.report = (depth.reports && is_served).then(|| Box::new(self.report(&seen.name)));
        }
        survey
    }

    fn surveyor(&self) -> Surveyor {
        Box::new(|_, _| Survey::default())
    }

    fn io(&mut self, groups: &[String]) -> BTreeMap<String, IoSeen> {
        let is_wanted = |name: &String| groups.is_empty() || groups.contains(name);
        let told = |memory: &Memory| IoSeen::Answered { pid: 1234, io: Box::new(memory.service.io()) };
        let served = self.groups.iter().map(|(name, memory)| (name.clone(), told(memory)));
        let others = self.io_seen.iter().map(|(name, seen)| (name.clone(), seen.clone()));
        let mut seen: BTreeMap<String, IoSeen> = served.chain(others).filter(|(name, _)| is_wanted(name)).collect();
        for name in groups {
            seen.entry(name.clone()).or_default();
        }
        seen
    }

    fn pause(&mut self, time: Duration) {
        self.pauses.push(time);
        if let Some(between) = self.between {
            between(self);
        }
    }

    fn served_groups(&mut self) -> Vec<String> {
        self.groups.keys().cloned().collect()
    }

    fn upgrade(&mut self, group: &str, check: bool) -> Answer<Upgraded> {
        if self.not_upgraded.iter().any(|name| name == group) {
            let message = format!("Volume group \"{group}\" is not upgraded: it was told to fail.");
            return Err(Trouble::other(ErrorKind::Internal, message));
        }
        match (self.groups.contains_key(group), check) {
            (false, _) => Err(Trouble::other(ErrorKind::NotFound, no_group(group))),
            (true, true) => Ok(Upgraded::Tried),
            (true, false) => Ok(Upgraded::Done { pause: Some(40) }),
        }
    }

    fn clear_remains(&mut self, group: &str) -> Answer<Option<usize>> {
        Ok((!self.is_running(group)?).then_some(0))
    }

    fn accept_disks(&mut self, _group: &str) -> Answer<()> {
        Ok(())
    }

    fn was_cut(&mut self, _path: &str) -> bool {
        false
    }

    fn go_on_without(&mut self, _group: &str, _anyway: bool) -> Answer<WentOn> {
        Ok(WentOn::default())
    }

    fn check_closed(
        &mut self,
        group: &str,
        _repair: bool,
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Answer<CheckOutcome> {
        if self.is_starting {
            return Err(Trouble::other(ErrorKind::InUse, format!("Volume group \"{group}\" is open.")));
        }
        Err(Trouble::other(ErrorKind::NotFound, no_group(group)))
    }

    fn labels(&mut self) -> Answer<Vec<LabelledPv>> {
        Ok(self.labels.clone())
    }

    fn formats(&mut self) -> Answer<(Vec<PvFormat>, Vec<String>)> {
        Ok((self.formats.clone(), self.silent.clone()))
    }

    fn gather(&mut self, probes: &[Probe], _together: Duration) -> Vec<Gathered> {
        let say = |probe: &Probe| match probe.words[0].as_str() {
            "dmesg" => Gathered { text: Vec::new(), trouble: Some("it did not end within 10 s".into()) },
            _ => Gathered { text: probe.words.join(" ").into_bytes(), trouble: None },
        };
        probes.iter().map(say).collect()
    }

    fn directories(&mut self) -> (String, String) {
        ("/etc/rowen".into(), "/run/rowen".into())
    }

    fn new_bundle(&mut self, path: &str) -> Answer<Option<File>> {
        match path.starts_with("/there/") {
            true => Err(Trouble::other(ErrorKind::Io, format!("{path}: cannot be made: File exists"))),
            false => Ok(None),
        }
    }

    fn write_bundle(&mut self, _file: Option<File>, _path: &str, parts: Vec<(String, Vec<u8>)>) -> Answer<()> {
        self.bundle = parts.into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect();
        Ok(())
    }

    fn known(&mut self) -> Answer<Vec<(String, Uuid)>> {
        Ok(self.labels.iter().filter_map(|label| Some((label.path.clone(), label.uuid?))).collect())
    }

    fn know(&mut self, path: &str, _really: bool) -> Answer<()> {
        Err(Trouble::other(ErrorKind::NotFound, format!("No physical volume label read from {path}.")))
    }

    fn forget(&mut self, path: &str, _really: bool) -> Answer<()> {
        Err(Trouble::other(ErrorKind::NotFound, format!("No devices file entry for {path}.")))
    }

    fn pvcreate(&mut self, path: &str, consent: Consent) -> Answer<Vec<String>> {
        let Some((_, size)) = self.devices.iter().find(|(device, _)| device == path).cloned() else {
            return Err(Trouble::other(ErrorKind::NotFound, format!("No device found for {path}.")));
        };
        if size < MIN {
            return Err(Trouble::other(ErrorKind::Invalid, too_small(path)));
        }
        let not_done = format!("{path}: physical volume not initialized.");
        if let Some(group) = self.labels.iter().find(|label| label.path == path).and_then(|label| label.group.clone()) {
            if consent.force < 2 {
                let why =
                    format!("Can't initialize physical volume \"{path}\" of volume group \"{group}\" without -ff");
                return Err(Trouble::other(ErrorKind::Exists, format!("{why}\n{not_done}")));
            }
            if !consent.yes {
                let question =
                    format!("Really INITIALIZE physical volume \"{path}\" of volume group \"{group}\" [y/n]? ");
                return Err(Trouble::Confirm { question, refused: not_done });
            }
        }
        self.labels.retain(|label| label.path != path);
        let uuid = Some(self.fresh_uuid());
        self.labels.push(LabelledPv { path: path.to_owned(), uuid, size, usable: size, group: None, trouble: None });
        Ok(Vec::new())
    }

    fn without_room(&mut self, path: &str) -> u64 {
        self.without_room.get(path).copied().unwrap_or(0)
    }

    fn write_out(&mut self, path: &str, tell: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        let bytes = self.without_room.remove(path).unwrap_or(0);
        tell(bytes, bytes);
        Ok(bytes)
    }

    fn pvresize(&mut self, path: &str, bytes: Option<u64>) -> Answer<()> {
        for label in self.labels.iter_mut().filter(|label| label.path == path) {
            label.usable = bytes.unwrap_or(label.size);
        }
        Ok(())
    }

    fn pvremove(&mut self, path: &str, _consent: Consent) -> Answer<Vec<String>> {
        match self.labels.iter().find(|label| label.path == path) {
            None => Err(Trouble::other(ErrorKind::NotFound, format!("No PV found on device {path}."))),
            Some(_) => {
                self.labels.retain(|label| label.path != path);
                Ok(Vec::new())
            }
        }
    }

    fn vgcreate(&mut self, group: &NewVg<'_>, paths: &[String], consent: Consent) -> Answer<Vec<String>> {
        let NewVg { name, extent_blocks, second_journal } = group;
        let mut notes = Vec::new();
        let (mut pvs, mut disks) = (Vec::new(), Vec::new());
        for path in paths {
            if !self.labels.iter().any(|label| label.path == *path) {
                self.pvcreate(path, consent)?;
                notes.push(format!("Physical volume \"{path}\" successfully created."));
            }
            let label = self.labels.iter().find(|label| label.path == *path).unwrap();
            pvs.push(NewPv { uuid: label.uuid.unwrap() });
            disks.push((path.as_str(), label.usable));
        }
        let group = NewGroup {
            uuid: self.fresh_uuid(),
            name: (*name).to_owned(),
            extent_blocks: *extent_blocks,
            pvs,
            second_journal: *second_journal,
        };
        let memory = Memory::create(group, &disks, Settings::default())
            .map_err(|error| Trouble::other(ErrorKind::Invalid, error.to_string()))?;
        self.relabel(name, Some(&memory));
        self.groups.insert((*name).to_owned(), memory);
        Ok(notes)
    }

    fn other_devices(&mut self) -> Answer<Vec<(String, u64)>> {
        let is_pv = |path: &String| self.labels.iter().any(|label| label.path == *path);
        Ok(self.devices.iter().filter(|(path, _)| !is_pv(path)).cloned().collect())
    }

    fn default_group(&mut self) -> Option<String> {
        self.default_group.clone()
    }

    fn ssh_command(&mut self) -> Option<String> {
        self.ssh_command.clone()
    }

    fn rowen(&mut self, at: &Where, words: &[String]) -> Answer<Said> {
        self.run_at(at, words, None)
    }

    fn pass(&mut self, pipe: &Pipe<'_>, tell: &mut dyn FnMut(u64)) -> Answer<Piped> {
        self.passes(pipe, tell)
    }

    fn hook(&mut self, hook: &Hook) -> Answer<()> {
        self.hooks.run(hook)
    }

    fn later(&mut self, hook: Hook) -> Answer<Box<dyn Pending>> {
        Ok(self.hooks.later(hook))
    }

    fn only_one(&mut self, name: &str) -> Answer<Option<File>> {
        self.turns.push(name.to_owned());
        Ok(None)
    }

    fn absolute(&mut self, path: &str) -> String {
        path.to_owned()
    }

    fn exists(&mut self, path: &str) -> bool {
        self.devices.iter().any(|(device, _)| device == path) || path == "/dev/null"
    }

    fn filesystem(&mut self, _device: &str) -> Answer<Option<String>> {
        Ok(self.filesystem.map(str::to_owned))
    }

    fn mounted_at(&mut self, _major: u32, _minor: u32) -> Option<String> {
        self.mount_point.map(str::to_owned)
    }

    fn run_tool(&mut self, words: &[&str]) -> Answer<i32> {
        self.tools.push(words.join(" "));
        Ok(if self.failing_tool == Some(words[0]) { 8 } else { 0 })
    }

    fn turn(&mut self, group: &str) -> Answer<Option<File>> {
        self.turns.push(group.to_owned());
        Ok(None)
    }

    fn temporary_directory(&mut self) -> Answer<String> {
        Ok("/run/there".to_owned())
    }

    fn remove_directory(&mut self, _path: &str) {}

    fn serve(&mut self, _group: &str) -> u8 {
        0
    }

    fn caller(&mut self) -> Caller {
        self.runs += 1;
        Caller { id: self.runs.to_string(), user: "root".into(), pid: 7, ..Caller::default() }
    }

    fn note(&mut self, line: history::Command) -> Answer<()> {
        if let Some(memory) = self.groups.get(&line.group) {
            let uuid = lvm_text(memory.service.group.info().uuid);
            self.write_down(&uuid, line);
        }
        Ok(())
    }

    fn history(&mut self) -> Vec<history::Kept> {
        let kept = |(uuid, (commands, events)): (&String, &(String, String))| history::Kept {
            uuid: uuid.clone(),
            commands: commands.clone().into_bytes(),
            events: events.clone().into_bytes(),
            troubles: Vec::new(),
        };
        self.written.iter().map(kept).collect()
    }

    fn follow(&mut self) -> Follow {
        let mut coming = std::mem::take(&mut self.coming).into_iter();
        Box::new(move || coming.next())
    }

    fn introduce(&mut self, caller: Caller, _only_shows: bool) {
        self.callers.push(caller);
    }

    fn settings(&mut self) -> Result<Loaded, String> {
        let config = rowen_control::settings::read(&self.settings).expect("a test's settings can be read");
        self.bad_settings.clone().map_or(Ok(Loaded { config, warnings: Vec::new() }), Err)
    }

    fn keep_copy(&mut self, group: &str, path: Option<&str>, text: &str, settings: &Settings) -> Answer<()> {
        self.kept_with.push(settings.clone());
        let path = path.map_or_else(|| self.backup_path(group), str::to_owned);
        self.files.insert(path, text.to_owned());
        Ok(())
    }

    fn backup_path(&mut self, group: &str) -> String {
        format!("/etc/rowen/backup/{group}")
    }

    fn archive_dir(&mut self) -> String {
        "/etc/rowen/archive".to_owned()
    }

    fn copies(&mut self, group: &str) -> Answer<Vec<String>> {
        let newest = self.backup_path(group);
        let archived = format!("/etc/rowen/archive/{group}_");
        Ok(self.files.keys().filter(|path| **path == newest || path.starts_with(&archived)).cloned().collect())
    }

    fn write_text(&mut self, path: &str, text: &str) -> Answer<()> {
        self.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    fn publish(&mut self, path: &str, text: &str) -> Answer<()> {
        if self.full_after == self.published.len() {
            return Err(Trouble::other(ErrorKind::Io, format!("{path}: write failed: No space left on device")));
        }
        self.published.push(text.to_owned());
        self.write_text(path, text)
    }

    fn read_text(&mut self, path: &str) -> Answer<String> {
        let missing = || Trouble::other(ErrorKind::NotFound, format!("{path}: read failed: No such file or directory"));
        self.files.get(path).cloned().ok_or_else(missing)
    }

    fn udev_properties(&mut self, _path: &str) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn host_name(&mut self) -> String {
        "host".to_owned()
    }

    fn now(&mut self) -> u64 {
        1_795_198_414_u64.saturating_add_signed(self.clock)
    }

    fn fresh_uuid(&mut self) -> Uuid {
        self.made += 1;
        let [more, byte] = self.made.to_be_bytes();
        let mut uuid = [byte; 16];
        uuid[0] ^= more;
        Uuid(uuid)
    }
}
