//! A world in memory for the tests of commands: it keeps volumes as reports show them and obeys requests as a server does,
//! as far as the commands can tell. It holds no data.

use crate::backend::{Answer, Backend, Consent, LabelledPv, News, Trouble};
use crate::console::Console;
use crate::session::no_group;
use rowen_control::protocol::*;
use rowen_control::settings::Loaded;
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;
use std::fs::File;

pub const EXTENT_BLOCKS: u64 = 1024;

/// The world.
#[derive(Default)]
pub struct Fake {
    pub groups: Vec<GroupReport>,
    /// Devices and their bytes.
    pub devices: Vec<(String, u64)>,
    pub labels: Vec<LabelledPv>,
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
    pub looks: u32,
    /// Copies of metadata, by path.
    pub files: BTreeMap<String, String>,
    pub callers: Vec<Caller>,
    /// Groups in which a turn was waited for.
    pub turns: Vec<String>,
    /// Before so many changes of a size another caller makes the volume an extent larger.
    pub others: u32,
    /// Why the settings cannot be read.
    pub bad_settings: Option<String>,
    /// What the file of settings says.
    pub settings: String,
    /// `LVM_VG_NAME`.
    pub default_group: Option<String>,
    /// A group that is there and cannot be opened, and why.
    pub closed: Option<(String, String)>,
    /// A group that is removed by somebody as soon as all groups were looked for.
    pub leaving: Option<String>,
    made: u8,
}

/// A server's check of what a size was worked out from; before that, `another` caller may have added an extent.
fn refuse_changed(another: bool, seen: Option<u64>, now: &mut u64) -> Answer<()> {
    if another {
        *now += EXTENT_BLOCKS;
    }
    match seen.is_none_or(|seen| seen == *now) {
        true => Ok(()),
        false => Err(Trouble::other(ErrorKind::Changed, "It has changed.")),
    }
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
        Printed { out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), code }
    }

    pub fn volume(&mut self, name: &str) -> &mut VolumeReport {
        self.groups.iter_mut().flat_map(|group| &mut group.volumes).find(|volume| volume.name == name).unwrap()
    }

    fn group(&mut self, name: &str) -> Answer<&mut GroupReport> {
        let missing = Trouble::other(ErrorKind::NotFound, no_group(name));
        self.groups.iter_mut().find(|group| group.name == name).ok_or(missing)
    }

    fn obey(&mut self, name: &str, request: Request) -> Answer<Outcome> {
        let is_size = matches!(request, Request::Resize { .. } | Request::SetReserve { .. });
        let another = is_size && self.others > 0;
        self.others -= u32::from(another);
        let group = self.group(name)?;
        let refuse_use = |group: &GroupReport, names: &Option<Vec<String>>| {
            let named = |v: &&VolumeReport| names.as_ref().is_none_or(|names| names.contains(&v.name));
            match group.volumes.iter().filter(named).find(|v| v.node.open) {
                Some(v) => Err(Trouble::other(ErrorKind::InUse, format!("Logical volume {name}/{} in use.", v.name))),
                None => Ok(()),
            }
        };
        match request {
            Request::CreateVolume { spec, activate, on } => {
                let id = group.volumes.len() as u64 + 1;
                let active = activate;
                if spec.kind == VolumeKind::Thick {
                    take(group, &on, spec.blocks / EXTENT_BLOCKS);
                }
                group.volumes.push(VolumeReport {
                    id,
                    name: spec.name,
                    uuid: spec.uuid,
                    kind: spec.kind,
                    state: VolumeState::Ok,
                    blocks: spec.blocks,
                    sector: spec.sector,
                    chunk_blocks: spec.chunk_blocks,
                    read_only: false,
                    full: spec.full,
                    origin: None,
                    reserve_blocks: None,
                    attributes: spec.attributes,
                    referenced_blocks: 0,
                    exclusive_blocks: 0,
                    freed_if_removed_blocks: 0,
                    snapshot_used_blocks: 0,
                    node: NodeState { active, ..NodeState::default() },
                });
                return Ok(Outcome::Created(Vec::new()));
            }
            Request::Snapshot { specs, .. } => {
                for spec in specs {
                    let mut snapshot = group.volumes.iter().find(|volume| volume.name == spec.origin).unwrap().clone();
                    snapshot.id = group.volumes.len() as u64 + 1;
                    snapshot.name = spec.name;
                    snapshot.uuid = spec.uuid;
                    snapshot.kind = VolumeKind::Thin;
                    snapshot.read_only = spec.read_only;
                    snapshot.origin = Some(spec.origin);
                    snapshot.reserve_blocks = spec.reserve_blocks;
                    snapshot.chunk_blocks = spec.chunk_blocks;
                    snapshot.attributes = spec.attributes;
                    snapshot.node = NodeState { active: spec.activate, ..NodeState::default() };
                    take(group, &[], spec.reserve_blocks.unwrap_or(0) / EXTENT_BLOCKS);
                    group.volumes.push(snapshot);
                }
                return Ok(Outcome::Created(Vec::new()));
            }
            Request::Remove { names } => {
                refuse_use(group, &Some(names.clone()))?;
                group.volumes.retain(|volume| !names.contains(&volume.name));
                for volume in &mut group.volumes {
                    volume.origin = volume.origin.take().filter(|origin| !names.contains(origin));
                }
            }
            Request::Activate { names, ignore_skip, auto } => {
                let is_named = |name: &String| names.as_ref().is_none_or(|names| names.contains(name));
                let mut inactive = group.volumes.iter().filter(|volume| !volume.node.active);
                let merged = inactive.find(|volume| is_named(&volume.name)).map(|volume| volume.name.clone());
                group.volumes.retain(|volume| !volume.is_waiting_to_merge() || volume.origin != merged);
                for volume in &mut group.volumes {
                    let is_named = names.as_ref().is_none_or(|names| names.contains(&volume.name));
                    let is_skipped = volume.attributes.skip_activation && !ignore_skip;
                    let is_auto = volume.attributes.autoactivate || !auto;
                    volume.node.active |= is_named && !is_skipped && is_auto && !volume.is_pool();
                }
            }
            Request::Deactivate { names } => {
                refuse_use(group, &names)?;
                for volume in &mut group.volumes {
                    volume.node.active &= names.as_ref().is_some_and(|names| !names.contains(&volume.name));
                }
            }
            Request::Resize { name, blocks, on, seen, .. } => {
                let volume = group.volumes.iter_mut().find(|volume| volume.name == name).unwrap();
                refuse_changed(another, seen, &mut volume.blocks)?;
                let more = blocks.saturating_sub(std::mem::replace(&mut volume.blocks, blocks)) / EXTENT_BLOCKS;
                if !on.is_empty() {
                    take(group, &on, more);
                }
            }
            Request::FreeOn { on } => {
                return Ok(Outcome::Free { extents: on.iter().map(|part| free_in(group, part)).sum() });
            }
            Request::SetReserve { name, blocks, seen } => {
                let volume = group.volumes.iter_mut().find(|volume| volume.name == name).unwrap();
                refuse_changed(another, seen, volume.reserve_blocks.get_or_insert(0))?;
                volume.reserve_blocks = blocks;
            }
            Request::Rename { from, to } => {
                for volume in &mut group.volumes {
                    if volume.name == from {
                        volume.name.clone_from(&to);
                    }
                    if volume.origin.as_ref() == Some(&from) {
                        volume.origin = Some(to.clone());
                    }
                }
            }
            Request::SetPermission { name, read_only } => {
                group.volumes.iter_mut().find(|volume| volume.name == name).unwrap().read_only = read_only;
            }
            Request::SetAttributes { name, change } => {
                let volume = group.volumes.iter_mut().find(|volume| volume.name == name).unwrap();
                volume.attributes = change.apply(&volume.attributes.clone().into()).into();
            }
            Request::ChangeGroup { change } => {
                let before = &group.attributes;
                let engine = rowen_engine::group::GroupAttributes {
                    autoactivate: before.autoactivate,
                    exported: before.exported,
                    resizeable: before.resizeable,
                    alloc: before.alloc.into(),
                    max_volumes: before.max_volumes,
                    max_pvs: before.max_pvs,
                    tags: before.tags.clone(),
                    pv_tags: Vec::new(),
                    unallocatable: Default::default(),
                };
                group.attributes = change.apply(&engine).into();
            }
            Request::RemovePv { path } => {
                if group.pvs.len() == 1 {
                    let message = format!("Can't remove final physical volume \"{path}\" from volume group \"{name}\"");
                    return Err(Trouble::other(ErrorKind::Invalid, message));
                }
                group.pvs.retain(|pv| pv.path != path);
                group.extents -= 174;
                group.free_extents -= 174;
                count_allocatable(group);
                self.labels.iter_mut().filter(|label| label.path == path).for_each(|label| label.group = None);
            }
            Request::RenameGroup { to } => {
                group.name.clone_from(&to);
                let own = |label: &&mut LabelledPv| label.group.as_deref() == Some(name);
                self.labels.iter_mut().filter(own).for_each(|label| label.group = Some(to.clone()));
            }
            Request::ResizePv { .. } | Request::MakeNodes | Request::Refresh { .. } => {}
            Request::SetFullPolicy { name, full } => {
                group.volumes.iter_mut().find(|volume| volume.name == name).unwrap().full = full;
            }
            Request::TagPv { path, add, remove } => {
                let pv = group.pvs.iter_mut().find(|pv| pv.path == path).unwrap();
                change_tags(&mut pv.tags, &add, &remove);
            }
            Request::SetAllocatable { path, allocatable } => {
                group.pvs.iter_mut().find(|pv| pv.path == path).unwrap().is_allocatable = allocatable;
                count_allocatable(group);
            }
            Request::Merge { snapshot } => {
                let is_open = |name: &str| group.volumes.iter().any(|volume| volume.name == name && volume.node.open);
                let found = group.volumes.iter().find(|volume| volume.name == snapshot).unwrap();
                let is_origin_open = is_open(found.origin.as_ref().unwrap());
                if is_origin_open || is_open(&snapshot) {
                    let mut waiting = group.volumes.iter_mut().filter(|volume| volume.name == snapshot);
                    waiting.next().unwrap().attributes.merging = true;
                    return Ok(Outcome::MergeWaits { is_origin_open });
                }
                group.volumes.retain(|volume| volume.name != snapshot);
            }
            Request::AddPv { paths } => {
                let path = &paths[0];
                let message = format!(
                    "Physical volume '{path}' is already in volume group '{name}'\n\
                     Unable to add physical volume '{path}' to volume group '{name}'\n\
                     {path}: physical volume not initialized."
                );
                if self.labels.iter().any(|label| label.path == *path && label.group.is_some()) {
                    return Err(Trouble::other(ErrorKind::Exists, message));
                }
            }
            Request::Check => {
                let findings = self.findings.clone();
                return Ok(Outcome::Check(CheckOutcome { findings, nodes: 3, blocks: 40, ..CheckOutcome::default() }));
            }
            Request::Repair => {
                let repaired = std::mem::take(&mut self.findings);
                return Ok(Outcome::Check(CheckOutcome { repaired, nodes: 3, blocks: 40, ..CheckOutcome::default() }));
            }
            Request::Stats => return Ok(Outcome::Stats(StatsReport { checkpoints: 7, ..StatsReport::default() })),
            Request::Destroy { .. } => {
                refuse_use(group, &None)?;
                self.groups.retain(|group| group.name != name);
                self.labels.iter_mut().for_each(|label| label.group = label.group.take().filter(|group| group != name));
            }
            Request::Report { with_use } => {
                let mut whole = group.clone();
                whole.volumes.iter_mut().for_each(|v| v.node.open &= with_use);
                return Ok(Outcome::Report(Box::new(whole)));
            }
            Request::ReportOf { volumes, with_members, with_use } => {
                let mut part = part(group, &volumes, with_members);
                part.volumes.iter_mut().for_each(|v| v.node.open &= with_use && volumes.contains(&v.name));
                return Ok(Outcome::Report(Box::new(part)));
            }
            // One after the other, as thick volumes are laid out.
            Request::Places => {
                let mut at = 0;
                let place = |volume: &VolumeReport| {
                    let extents = volume.reserve_blocks.unwrap_or(volume.blocks).div_ceil(EXTENT_BLOCKS);
                    let first_extent = at;
                    at += extents;
                    let is_placed = !volume.is_pool() && volume.attributes.pool.is_empty();
                    let shares = is_placed.then_some(PvShare { pv: 0, first_extent, extents });
                    VolumePlaces { name: volume.name.clone(), shares: shares.into_iter().collect() }
                };
                return Ok(Outcome::Places(group.volumes.iter().map(place).collect()));
            }
            Request::Hello { .. } | Request::Revert { .. } | Request::Checkpoint | Request::Stop => {}
        }
        Ok(Outcome::Ok)
    }
}

/// The free extents of a part: those of a physical volume are its last ones.
fn free_in(group: &GroupReport, part: &PvPart) -> u64 {
    let pv = group.pvs.iter().find(|pv| pv.path == part.path).unwrap();
    let free = pv.extents - pv.free_extents;
    (part.first_extent + part.extents).saturating_sub(part.first_extent.max(free))
}

/// What is free lies on the physical volumes that are allocatable, as much of it as they have.
fn count_allocatable(group: &mut GroupReport) {
    let has = group.pvs.iter().filter(|pv| pv.is_allocatable).map(|pv| pv.free_extents).sum();
    group.allocatable_extents = group.free_extents.min(has);
}

fn take(group: &mut GroupReport, on: &[PvPart], mut extents: u64) {
    group.free_extents = group.free_extents.saturating_sub(extents);
    count_allocatable(group);
    for part in on {
        let taken = free_in(group, part).min(extents);
        group.pvs.iter_mut().find(|pv| pv.path == part.path).unwrap().free_extents -= taken;
        extents -= taken;
    }
}

/// What a server would tell of these volumes: nothing that a command might miss is there by accident.
fn part(group: &GroupReport, names: &[String], members: bool) -> GroupReport {
    // What was looked into may not be changed afterwards.
    let group = &group.clone();
    let pools: Vec<&String> = names.iter().filter(|name| group.volume(name).is_some_and(|v| v.is_pool())).collect();
    let is_member = |v: &VolumeReport| members && pools.iter().any(|pool| **pool == v.attributes.pool);
    let chosen: Vec<&VolumeReport> = group.volumes.iter().filter(|v| names.contains(&v.name) || is_member(v)).collect();
    let above = |v: &VolumeReport| -> Vec<String> {
        let next = |name: &String| group.volume(name).and_then(|v| v.origin.clone());
        std::iter::successors(Some(v.name.clone()), next).collect()
    };
    let is_below = |v: &VolumeReport| above(v).iter().any(|name| chosen.iter().any(|chosen| chosen.name == *name));
    let below: Vec<&VolumeReport> = group.volumes.iter().filter(|v| is_below(v)).collect();
    let family: Vec<String> = below.iter().flat_map(|v| above(v)).collect();
    let family: Vec<&VolumeReport> = group.volumes.iter().filter(|v| family.contains(&v.name)).collect();
    let is_pool_of = |pool: &VolumeReport| pool.is_pool() && family.iter().any(|v| v.attributes.pool == pool.name);
    let kept = |v: &VolumeReport| is_pool_of(v) || family.iter().any(|other| other.name == v.name);
    let mut part = group.clone();
    part.volumes.retain(|v| kept(v));
    part
}

impl Backend for Fake {
    fn groups(&mut self) -> Answer<Vec<String>> {
        let mut names: Vec<String> = self.groups.iter().map(|group| group.name.clone()).collect();
        names.extend(self.closed.as_ref().map(|(name, _)| name.clone()));
        names.extend(self.leaving.take());
        names.sort();
        Ok(names)
    }

    fn ask(&mut self, group: &str, request: Request, news: News<'_>) -> Answer<Outcome> {
        let is_look = |request: &Request| {
            matches!(request, Request::Report { with_use: true } | Request::ReportOf { with_use: true, .. })
        };
        if let Some((_, why)) = self.closed.as_ref().filter(|(name, _)| name == group) {
            return Err(Trouble::other(ErrorKind::Io, why.clone()));
        }
        self.looks += u32::from(is_look(&request));
        if !matches!(request, Request::Report { .. } | Request::ReportOf { .. } | Request::Places) {
            self.requests.push(request.clone());
            if let Some(message) = self.notice.clone() {
                news(Outcome::Notice { message });
            }
        }
        self.obey(group, request)
    }

    fn is_running(&mut self, group: &str) -> Answer<bool> {
        Ok(!self.is_starting && self.groups.iter().any(|known| known.name == group))
    }

    fn clear_remains(&mut self, group: &str) -> Answer<Option<usize>> {
        Ok((!self.is_running(group)?).then_some(0))
    }

    fn check_closed(&mut self, group: &str, _repair: bool) -> Answer<CheckOutcome> {
        if self.is_starting {
            return Err(Trouble::other(ErrorKind::InUse, format!("Volume group \"{group}\" is open.")));
        }
        Err(Trouble::other(ErrorKind::NotFound, no_group(group)))
    }

    fn labels(&mut self) -> Answer<Vec<LabelledPv>> {
        Ok(self.labels.clone())
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
        if size < 8 << 20 {
            let message = format!("Cannot use {path}: device is too small.");
            return Err(Trouble::other(ErrorKind::Invalid, message));
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

    fn vgcreate(&mut self, name: &str, extent_blocks: u64, paths: &[String], consent: Consent) -> Answer<Vec<String>> {
        let mut notes = Vec::new();
        let mut pvs = Vec::new();
        for path in paths {
            if !self.labels.iter().any(|label| label.path == *path) {
                self.pvcreate(path, consent)?;
                notes.push(format!("Physical volume \"{path}\" successfully created."));
            }
            let label = self.labels.iter_mut().find(|label| label.path == *path).unwrap();
            label.group = Some(name.to_owned());
            pvs.push(PvReport {
                path: path.clone(),
                uuid: label.uuid.unwrap(),
                size_bytes: label.size,
                data_offset_bytes: 1 << 20,
                extents: 174,
                free_extents: 174,
                is_allocatable: true,
                tags: Vec::new(),
            });
        }
        let extents = 174 * pvs.len() as u64;
        let uuid = self.fresh_uuid();
        self.groups.push(GroupReport {
            name: name.to_owned(),
            uuid,
            extent_blocks,
            extents,
            free_extents: extents,
            allocatable_extents: extents,
            blocks: extents * extent_blocks,
            free_blocks: extents * extent_blocks,
            promised_blocks: 0,
            pending_blocks: 0,
            metadata_blocks: 0,
            sequence: 1,
            reclaim_left_blocks: 0,
            attributes: GroupAttributes::default(),
            pvs,
            volumes: Vec::new(),
            index: Index::default(),
        });
        Ok(notes)
    }

    fn other_devices(&mut self) -> Answer<Vec<(String, u64)>> {
        let is_pv = |path: &String| self.labels.iter().any(|label| label.path == *path);
        Ok(self.devices.iter().filter(|(path, _)| !is_pv(path)).cloned().collect())
    }

    fn default_group(&mut self) -> Option<String> {
        self.default_group.clone()
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

    fn introduce(&mut self, caller: Caller) {
        self.callers.push(caller);
    }

    fn settings(&mut self) -> Result<Loaded, String> {
        let config = rowen_control::settings::read(&self.settings).expect("a test's settings can be read");
        self.bad_settings.clone().map_or(Ok(Loaded { config, warnings: Vec::new() }), Err)
    }

    fn keep_copy(&mut self, group: &str, path: Option<&str>, text: &str) -> Answer<()> {
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
        1_795_198_414
    }

    fn fresh_uuid(&mut self) -> Uuid {
        self.made += 1;
        Uuid([self.made; 16])
    }
}
