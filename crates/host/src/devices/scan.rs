//! Which physical volumes there are, and which of them make up a group.

use super::error::Needed;
use super::plain::{Identity, PlainDisks, block_on};
use super::probe::Found;
use super::stack::{self, Stack};
use super::{Error, file, handed, members, probe};
use crate::disks::{MISSING, OpenMode, holders};
use crate::export::loopdev::LoopDevice;
use crate::{paths, planted, witness};
use rowen_control::names;
use rowen_control::service::platform::Membership;
use rowen_engine::format::tally::Tally;
use rowen_engine::group::{Group, PvLabel, PvMembership, find_split_brain};
use rowen_engine::units::Uuid;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A physical volume, or what is left of one.
#[derive(Clone, Debug)]
pub struct Pv {
    pub path: PathBuf,
    /// Bytes of the device; 0 when it is missing.
    pub size: u64,
    pub state: PvState,
    /// How far it has counted with the other disks of its group, if it can be read.
    pub tally: Option<Tally>,
}

#[derive(Clone, Debug)]
pub enum PvState {
    Present(PvLabel),
    /// The label is damaged; the text says why.
    Damaged(String),
    /// The place of the label cannot be read; the text says how. The contents may still be there.
    Unreadable(String),
    /// A group needs it and the devices file has it, but it is not attached.
    Missing(Uuid),
}

impl Pv {
    /// The label, where it is sound.
    pub fn label(&self) -> Option<&PvLabel> {
        match &self.state {
            PvState::Present(label) => Some(label),
            _ => None,
        }
    }

    /// The bytes that its group uses, if the device has become smaller than that.
    pub fn lost_size(&self) -> Option<u64> {
        self.label().map(|label| label.size).filter(|size| self.size < *size)
    }

    /// What the label says of the group that this is a member of.
    pub fn membership(&self) -> Option<&PvMembership> {
        self.label().and_then(|label| label.group.as_ref())
    }
}

/// The physical volumes of one group, complete and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDevices {
    pub name: String,
    pub uuid: Uuid,
    pub paths: Vec<PathBuf>,
    /// Those that are left out because their devices have become too small.
    pub too_small: Vec<Uuid>,
}

/// A group as its labels describe it, whether or not it can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    pub name: String,
    pub uuid: Uuid,
    pub pvs: usize,
    pub missing: usize,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    pub pvs: Vec<Pv>,
    /// Entries of the devices file whose device is not attached, and that no group here needs.
    pub lost: Vec<file::Entry>,
    /// The devices that were found to be physical volumes.
    identities: HashSet<Identity>,
    /// What this host has seen of who is in groups that lack some (NW2).
    witnessed: BTreeMap<Uuid, Membership>,
}

/// Reads the labels of all known devices.
pub fn scan() -> Result<Scan, Error> {
    let (entries, paths) = known()?;
    Ok(sort_out(&entries, &paths, probe::probe(&paths)?))
}

/// The same for devices that answer by the deadline, and the devices that do not.
pub fn scan_until(deadline: Instant) -> Result<(Scan, Vec<PathBuf>), Error> {
    let (entries, paths) = known()?;
    let (found, silent) = probe::probe_until(&paths, deadline)?;
    Ok((sort_out(&entries, &paths, found), silent))
}

/// What is at all candidate paths that answer by the deadline.
pub(crate) fn candidates_until(deadline: Instant) -> Result<Vec<(PathBuf, Found)>, Error> {
    let (_, paths) = known()?;
    let (found, _silent) = probe::probe_until(&paths, deadline)?;
    Ok(paths.into_iter().zip(found).filter_map(|(path, found)| Some((path, found?))).collect())
}

/// The paths in the devices file; none where it cannot be read.
pub(crate) fn file_paths() -> Vec<PathBuf> {
    file::read().map(|entries| entries.into_iter().map(|entry| entry.path).collect()).unwrap_or_default()
}

/// All paths to probe, each once.
pub(super) fn known_paths() -> Result<Vec<PathBuf>, Error> {
    let (_, mut paths) = known()?;
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    Ok(paths)
}

/// The entries of the devices file, and all paths to probe, theirs first.
fn known() -> Result<(Vec<file::Entry>, Vec<PathBuf>), Error> {
    let entries = file::read()?;
    let mut paths: Vec<PathBuf> = entries.iter().map(|entry| entry.path.clone()).collect();
    paths.extend(block_candidates());
    Ok((entries, paths))
}

fn sort_out(entries: &[file::Entry], paths: &[PathBuf], found: Vec<Option<Found>>) -> Scan {
    let mut scan = Scan::default();
    let mut files = HashSet::new();
    let mut lost = Vec::new();
    for (at, (path, found)) in paths.iter().zip(found).enumerate() {
        let entry = entries.get(at);
        // Another name of a file that was probed already.
        let is_known_file = || loop_backing(path).is_some_and(|backing| files.contains(&backing));
        let pv = found.as_ref().and_then(|found| found.pv(path));
        match (found, pv) {
            (Some(found), Some(pv)) if entry.is_some() || !is_known_file() => {
                files.extend(found.real);
                if scan.identities.insert(found.identity) {
                    scan.pvs.push(pv);
                }
            }
            _ => lost.extend(entry.cloned()),
        }
    }
    // An entry whose device is gone matters only if a group needs it. Otherwise it is stale.
    for entry in lost {
        let is_needed = scan.pvs.iter().filter_map(Pv::membership).any(|group| group.members.contains(&entry.uuid));
        let is_elsewhere = scan.holders_of(&entry.uuid).next().is_some();
        match (is_elsewhere, is_needed) {
            (true, _) => {}
            (_, true) => {
                let state = PvState::Missing(entry.uuid);
                scan.pvs.push(Pv { path: entry.path, size: 0, state, tally: None });
            }
            (_, false) => scan.lost.push(entry),
        }
    }
    scan.agree_on_names();
    scan.ask_witness();
    scan
}

/// The members of the group `name`: at the stored paths, otherwise also at those of joining devices, otherwise on all
/// devices (H9).
pub fn find_group(name: &str) -> Result<GroupDevices, Error> {
    find_group_but(name, &[], &[])
}

/// The same without these, whether they are there or not. If possible nothing is read at `lost_at`, where they were: a
/// disk that hangs would be waited for.
pub fn find_group_but(name: &str, lost: &[Uuid], lost_at: &[PathBuf]) -> Result<GroupDevices, Error> {
    // Joining devices are read only if a label names more than the stored members: then they were checked before.
    // Otherwise one may lie on a volume of this group, which is not served now.
    let notes: [fn(&str) -> Vec<PathBuf>; 2] = [members::read, members::read_joining];
    let is_noted = names::check_form(name).is_ok() && !planted::is("looks_everywhere");
    let mut known = Scan::default();
    for read in notes.iter().filter(|_| is_noted) {
        let mut paths = read(name);
        paths.retain(|path| !lost_at.contains(path));
        known.read_labels_at(&paths)?;
        if let Ok(group) = known.group_but(name, lost) {
            return Ok(group);
        }
    }
    let scan = scan()?;
    scan.group_but(name, lost).map_err(|error| match error {
        Error::MissingPvs { group, missing, damaged, unreadable, needed: None } => {
            let needed = scan.needed(name);
            Error::MissingPvs { group, missing, damaged, unreadable, needed }
        }
        error => error,
    })
}

/// The members of a group of which any may be missing. `anyway`: whatever this host has seen of it (NW2).
pub fn find_group_without(name: &str, anyway: bool) -> Result<GroupDevices, Error> {
    let mut scan = scan()?;
    if anyway {
        scan.witnessed.clear();
    }
    scan.group_without(name)
}

/// The group's name on its newest label. Its members are read at the stored paths of a group with one of these names.
/// If they are not all there, all devices are read (H9).
pub fn name_of(group: Uuid, names: &[&str]) -> Result<Option<String>, Error> {
    for name in names.iter().filter(|_| !planted::is("renamed_anywhere")) {
        let mut known = Scan::default();
        known.read_labels_at(&members::read(name))?;
        if let Some(found) = known.name_of(group)
            && known.group(found).is_ok()
        {
            return Ok(Some(found.to_owned()));
        }
    }
    Ok(scan()?.name_of(group).map(str::to_owned))
}

/// The physical volume at `path`, if it is one.
pub fn read_pv(path: &Path) -> Option<Pv> {
    let [found] = &probe::probe(&[path.to_owned()]).ok()?[..] else { return None };
    found.as_ref()?.pv(path)
}

/// The run directories of the groups on which `path` depends: groups on whose volumes it lies, and groups on whose
/// volumes their physical volumes lie.
pub fn groups_under(path: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let mut groups = BTreeSet::new();
    let mut paths = vec![path.to_owned()];
    while !paths.is_empty() {
        let stack = Stack::read();
        let found = probe::probe_all(&paths)?.into_iter().flatten();
        let numbers = found.map(|found| match found.identity {
            Identity::Block(device) | Identity::File(device, _) => holders::device_name(device),
        });
        let volumes: Vec<&Path> = numbers.flat_map(|numbers| stack.volumes_under(&numbers)).collect();
        // A volume's file is `volumes/NAME` in its group's run directory.
        let directories = volumes.into_iter().filter_map(|file| Some(file.parent()?.parent()?.to_owned()));
        let new: BTreeSet<PathBuf> = directories.filter(|directory| !groups.contains(directory)).collect();
        paths = new.iter().flat_map(|directory| members::present_and_future(directory)).collect();
        groups.extend(new);
    }
    Ok(groups)
}

fn loop_backing(device: &Path) -> Option<PathBuf> {
    let number = device.strip_prefix("/dev").ok()?.to_str()?.strip_prefix("loop")?.parse().ok()?;
    LoopDevice { number }.backing()
}

/// The block devices to read, by path.
fn block_candidates() -> Vec<PathBuf> {
    let mut found = worth_reading(sized_block_devices());
    found.sort();
    found
}

/// Of these devices, with their numbers, those to read: not a volume of Rowen, not on one (H8), not a part of another
/// device, and this instance's.
fn worth_reading(devices: impl Iterator<Item = (PathBuf, String)>) -> Vec<PathBuf> {
    let chosen = paths::scanned_devices();
    let is_seen = |path: &PathBuf| !paths::is_private_instance() || chosen.contains(path);
    let stack = Stack::read();
    let is_on_volume = |numbers: &str| stack.lies_on_volume(numbers) && !planted::is("looks_at_volumes");
    let is_worth = |numbers: &str| !is_on_volume(numbers) && !stack::is_component(numbers);
    devices.filter(|(path, numbers)| is_seen(path) && is_worth(numbers)).map(|(path, _)| path).collect()
}

/// What the kernel calls a drive for discs in `device/type`. An empty one has a size all the same, and the kernel logs each
/// read of it as an error.
const DISC_DRIVE: &str = "5";

/// The block devices that have a size and are not drives for discs, with their numbers.
fn sized_block_devices() -> impl Iterator<Item = (PathBuf, String)> {
    let names = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    names.filter_map(|entry| {
        let read = |name| std::fs::read_to_string(entry.path().join(name)).ok().map(|text| text.trim().to_owned());
        let path = Path::new("/dev").join(entry.file_name().to_string_lossy().replace('!', "/"));
        let is_disc = read("device/type").is_some_and(|kind| kind == DISC_DRIVE);
        (read("size")? != "0" && !is_disc).then_some((path, read("dev")?))
    })
}

impl Scan {
    /// The block devices that a search reads and that are not physical volumes, with their size, by path.
    pub fn others(&self) -> Result<Vec<(PathBuf, u64)>, Error> {
        // A device with a name of its own is known by that name.
        let named = std::fs::read_dir("/dev/mapper").into_iter().flatten().flatten().map(|entry| entry.path());
        let named = named.filter_map(|path| match Identity::of(&path)? {
            Identity::Block(device) => Some((path, holders::device_name(device))),
            Identity::File(..) => None,
        });
        let paths = worth_reading(named.chain(sized_block_devices()));
        let mut seen = self.identities.clone();
        let found = paths.iter().zip(probe::probe(&paths)?).filter_map(|(path, found)| Some((path, found?)));
        let others = found.filter(|(_, found)| seen.insert(found.identity));
        let mut others: Vec<(PathBuf, u64)> = others.map(|(path, found)| (path.clone(), found.size)).collect();
        others.sort();
        Ok(others)
    }

    /// Takes up what is at these paths as well.
    fn read_labels_at(&mut self, paths: &[PathBuf]) -> Result<(), Error> {
        for (path, found) in paths.iter().zip(probe::probe(paths)?) {
            self.pvs.extend(found.and_then(|found| found.pv(path)));
        }
        self.agree_on_names();
        Ok(())
    }

    /// What is known of the groups that lack some.
    fn ask_witness(&mut self) {
        let names: BTreeSet<&str> =
            self.pvs.iter().filter_map(Pv::membership).map(|of| of.group_name.as_str()).collect();
        let newest = names.into_iter().filter_map(|name| self.newest(name));
        let lacking = newest.filter(|newest| self.lacks_some(newest));
        let seen = lacking.filter_map(|of| match witness::look(of.group_uuid) {
            Ok(seen) => Some((of.group_uuid, seen?)),
            Err(e) => {
                let (path, group) = (witness::path(of.group_uuid), &of.group_name);
                eprintln!(
                    "  WARNING: {}: read failed: {e}. So nothing says whether this host has seen a newer state of volume group \"{group}\".",
                    path.display()
                );
                None
            }
        });
        self.witnessed = seen.collect();
    }

    fn lacks_some(&self, label: &PvMembership) -> bool {
        self.counted(label).len() < label.members.len() || planted::is("whole_doubted")
    }

    /// Those that the group goes on with, by this label, and that are there.
    fn counted(&self, label: &PvMembership) -> Vec<Uuid> {
        let is_counted = |uuid: &&Uuid| !label.out.contains(uuid) && self.holders_of(uuid).next().is_some();
        label.members.iter().filter(is_counted).copied().collect()
    }

    /// NW2
    fn is_no_older(&self, name: &str, newest: &PvMembership) -> Result<(), Error> {
        let there = self.counted(newest);
        let seen = self.witnessed.get(&newest.group_uuid).filter(|_| self.lacks_some(newest));
        let Some(doubt) = seen.and_then(|seen| witness::doubt(seen, newest, &there)) else { return Ok(()) };
        let newer = doubt.newer.iter().map(|uuid| (*uuid, self.last_place(uuid))).collect();
        Err(Error::Older { group: name.to_owned(), is_left_behind: doubt.is_left_behind, newer })
    }

    /// A power cut during a rename leaves labels with both names: the newest label counts for all members.
    fn agree_on_names(&mut self) {
        let mut newest: BTreeMap<Uuid, (u64, String)> = BTreeMap::new();
        for group in self.pvs.iter().filter_map(Pv::membership) {
            let known = newest.entry(group.group_uuid).or_default();
            if group.sequence >= known.0 {
                *known = (group.sequence, group.group_name.clone());
            }
        }
        for pv in &mut self.pvs {
            if let PvState::Present(PvLabel { group: Some(group), .. }) = &mut pv.state
                && let Some((_, name)) = newest.get(&group.group_uuid)
            {
                group.group_name.clone_from(name);
            }
        }
    }

    fn holders_of<'a>(&'a self, uuid: &'a Uuid) -> impl Iterator<Item = &'a Pv> {
        self.pvs.iter().filter(move |pv| pv.label().is_some_and(|label| label.pv_uuid == *uuid))
    }

    /// The physical volume at `path`, or at another path of the same device.
    pub fn at(&self, path: &Path) -> Option<&Pv> {
        let identity = Identity::of(path);
        self.pvs
            .iter()
            .find(|pv| pv.path == path || identity.is_some_and(|identity| Identity::of(&pv.path) == Some(identity)))
    }

    /// The name that the group has by its newest label.
    pub fn name_of(&self, group: Uuid) -> Option<&str> {
        let memberships = self.pvs.iter().filter_map(Pv::membership).filter(|of| of.group_uuid == group);
        memberships.max_by_key(|membership| membership.sequence).map(|membership| membership.group_name.as_str())
    }

    /// All groups that any label names, by name.
    pub fn groups(&self) -> Vec<GroupSummary> {
        let mut newest: BTreeMap<(&str, Uuid), &PvMembership> = BTreeMap::new();
        for membership in self.pvs.iter().filter_map(Pv::membership) {
            let known = newest.entry((&membership.group_name, membership.group_uuid)).or_insert(membership);
            if membership.sequence > known.sequence {
                *known = membership;
            }
        }
        newest
            .into_values()
            .map(|membership| GroupSummary {
                name: membership.group_name.clone(),
                uuid: membership.group_uuid,
                pvs: membership.members.len(),
                missing: membership
                    .members
                    .iter()
                    .filter(|uuid| !membership.out.contains(uuid))
                    .filter(|uuid| self.holders_of(uuid).all(|pv| pv.lost_size().is_some()))
                    .count(),
            })
            .collect()
    }

    /// The members of the group `name` that are out.
    pub fn out(&self, name: &str) -> Vec<Uuid> {
        self.newest(name).map_or_else(Vec::new, |newest| newest.out.clone())
    }

    /// What the newest label of the group `name` says of it.
    fn newest(&self, name: &str) -> Option<&PvMembership> {
        let memberships = self.pvs.iter().filter_map(Pv::membership).filter(|of| of.group_name == name);
        memberships.max_by_key(|membership| membership.sequence)
    }

    /// The members of the group `name` that are attached as older copies, as far as they show it: their numbers are behind (B2),
    /// or another one knows that they have counted further (ML11). A group with one is not opened.
    pub fn older(&self, name: &str) -> Vec<Uuid> {
        let Some(newest) = self.newest(name) else { return Vec::new() };
        let members = (0..).zip(&newest.members).filter(|(_, uuid)| !newest.out.contains(uuid));
        let there: Vec<(usize, &Uuid, &Pv, &PvMembership)> = members
            .filter_map(|(at, uuid)| {
                let pv = self.holders_of(uuid).next()?;
                Some((at, uuid, pv, pv.membership().filter(|of| of.group_uuid == newest.group_uuid)?))
            })
            .collect();
        let tallies = || there.iter().filter_map(|(_, _, pv, _)| pv.tally.as_ref());
        let known = |at: usize| tallies().filter_map(|tally| tally.known.get(at).copied()).max().unwrap_or(0);
        let is_older = |(at, _, pv, of): &&(usize, &Uuid, &Pv, &PvMembership)| {
            of.sequence + 1 < newest.sequence || pv.tally.as_ref().is_some_and(|tally| tally.own < known(*at))
        };
        there.iter().filter(is_older).map(|(_, uuid, ..)| **uuid).collect()
    }

    /// Whether this label is of a disk that its group, which is there, has as a member no more: it was removed while it was missing.
    pub fn is_former(&self, label: &PvLabel) -> bool {
        let group = label.group.as_ref().map(|group| group.group_uuid);
        let others = self.pvs.iter().filter_map(Pv::membership).filter(|of| Some(of.group_uuid) == group);
        let newest = others.max_by_key(|of| of.sequence);
        newest.is_some_and(|newest| !newest.members.contains(&label.pv_uuid))
    }

    /// The members of the group `name`, in order: each with its current or last path, and the device if it is attached.
    pub fn members(&self, name: &str) -> Vec<(Uuid, Option<PathBuf>, Option<&Pv>)> {
        let Some(newest) = self.newest(name) else { return Vec::new() };
        let member = |uuid: &Uuid| {
            let pv = self.pvs.iter().find(|pv| pv.label().is_some_and(|label| label.pv_uuid == *uuid));
            (*uuid, pv.map(|pv| pv.path.clone()).or_else(|| self.last_place(uuid)), pv)
        };
        newest.members.iter().map(member).collect()
    }

    /// The members of the group `name`, if each that is not out is attached exactly once.
    pub fn group(&self, name: &str) -> Result<GroupDevices, Error> {
        self.group_with(name, false, &[])
    }

    /// The same without these.
    fn group_but(&self, name: &str, lost: &[Uuid]) -> Result<GroupDevices, Error> {
        self.group_with(name, false, lost)
    }

    /// The same; any may be missing.
    pub fn group_without(&self, name: &str) -> Result<GroupDevices, Error> {
        self.group_with(name, true, &[])
    }

    fn group_with(&self, name: &str, may_miss: bool, lost: &[Uuid]) -> Result<GroupDevices, Error> {
        let of_group = |pv: &&Pv| pv.membership().is_some_and(|membership| membership.group_name == name);
        let carriers: Vec<&Pv> = self.pvs.iter().filter(of_group).collect();
        let newest = self.newest(name).ok_or_else(|| Error::NoGroup(name.to_owned()))?;
        let is_other = |pv: &&&Pv| pv.membership().is_some_and(|other| other.group_uuid != newest.group_uuid);
        if carriers.iter().any(|pv| is_other(&pv)) {
            let paths = carriers.iter().map(|pv| pv.path.clone()).collect();
            return Err(Error::AmbiguousGroup { name: name.to_owned(), paths });
        }

        let says = carriers.iter().filter_map(|pv| Some((pv.label()?.pv_uuid, pv.membership()?.out.as_slice())));
        if let Some(halves) = find_split_brain(&says.collect::<Vec<_>>()) {
            let path = |uuid| self.holders_of(&uuid).next().map(|pv| pv.path.clone()).unwrap_or_default();
            return Err(Error::TwoHalves { group: name.to_owned(), paths: [path(halves.0), path(halves.1)] });
        }
        self.is_no_older(name, newest)?;
        let mut paths = Vec::with_capacity(newest.members.len());
        let (mut missing, mut shrunk, mut too_small) = (Vec::new(), Vec::new(), Vec::new());
        for uuid in &newest.members {
            // A member that is out is not used before it was taken back.
            if newest.out.contains(uuid) || lost.contains(uuid) {
                paths.push(PathBuf::from(MISSING));
                continue;
            }
            let holders: Vec<&Pv> = self.holders_of(uuid).collect();
            match holders[..] {
                [] if may_miss => paths.push(PathBuf::from(MISSING)),
                [] => missing.push((*uuid, self.last_place(uuid))),
                [pv] => match pv.lost_size() {
                    None => paths.push(pv.path.clone()),
                    Some(_) if may_miss => {
                        too_small.push(*uuid);
                        paths.push(PathBuf::from(MISSING));
                    }
                    Some(size) => shrunk.push((pv.path.clone(), pv.size, size)),
                },
                _ => {
                    let paths = holders.iter().map(|pv| pv.path.clone()).collect();
                    return Err(Error::Duplicate { uuid: *uuid, paths });
                }
            }
        }
        if missing.is_empty() && !shrunk.is_empty() {
            return Err(Error::Shrunk { group: name.to_owned(), pvs: shrunk });
        }
        if missing.is_empty() {
            return Ok(GroupDevices { name: name.to_owned(), uuid: newest.group_uuid, paths, too_small });
        }
        let paths = |is_so: fn(&PvState) -> bool| {
            self.pvs.iter().filter(|pv| is_so(&pv.state)).map(|pv| pv.path.clone()).collect()
        };
        Err(Error::MissingPvs {
            group: name.to_owned(),
            missing,
            damaged: paths(|state| matches!(state, PvState::Damaged(_))),
            unreadable: paths(|state| matches!(state, PvState::Unreadable(_))),
            needed: None,
        })
    }

    /// Of the missing members of this group those without which it is not opened, and why. None: that is not known.
    fn needed(&self, name: &str) -> Option<Box<Needed>> {
        let paths = self.group_without(name).ok()?.paths;
        let disks = paths.iter().map(|path| handed::open(path, OpenMode::ReadOnly)).collect::<Result<_, _>>().ok()?;
        let (pvs, why) = block_on(Group::needs_missing(&PlainDisks(disks))).ok()??;
        Some(Box::new(Needed { pvs, why }))
    }

    fn last_place(&self, uuid: &Uuid) -> Option<PathBuf> {
        let is_it = |pv: &&Pv| matches!(pv.state, PvState::Missing(lost) if lost == *uuid);
        self.pvs.iter().find(is_it).map(|pv| pv.path.clone())
    }
}

#[cfg(test)]
#[path = "scan_test.rs"]
mod tests;
