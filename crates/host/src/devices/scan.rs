//! Which physical volumes there are, and which of them make up a group.

use super::plain::{Identity, Plain, PlainDisks, block_on};
use super::{Error, file};
use crate::disks::{OpenMode, holders};
use crate::paths;
use rowen_control::names;
use rowen_engine::disk::PvIndex;
use rowen_engine::group::{Group, PvLabel, PvMembership};
use rowen_engine::units::Uuid;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// A physical volume, or what is left of one.
#[derive(Clone, Debug)]
pub struct Pv {
    pub path: PathBuf,
    /// Bytes of the device; 0 when it is missing.
    pub size: u64,
    pub state: PvState,
}

#[derive(Clone, Debug)]
pub enum PvState {
    Present(PvLabel),
    /// There is a label that cannot be trusted; the text says why.
    Damaged(String),
    /// A group needs it, the devices file knows it, and it is not there.
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
}

/// Reads the labels of all known devices.
pub fn scan() -> Result<Scan, Error> {
    let mut scan = Scan::default();
    let mut seen = HashSet::new();
    let mut lost = Vec::new();
    for entry in file::read()? {
        match look(&entry.path, &mut seen) {
            Look::Pv(pv) => scan.pvs.push(pv),
            Look::SeenBefore => {}
            Look::NoPv => lost.push(entry),
        }
    }
    if !paths::is_private_world() {
        let files = scan.pvs.iter().filter_map(|pv| std::fs::canonicalize(&pv.path).ok()).collect();
        for path in labelled_block_candidates(&files) {
            if let Look::Pv(pv) = look(&path, &mut seen) {
                scan.pvs.push(pv);
            }
        }
    }
    // An entry whose device is gone matters where a group misses it; else it is only old.
    for entry in lost {
        let is_needed = scan.pvs.iter().filter_map(Pv::membership).any(|group| group.members.contains(&entry.uuid));
        if is_needed && scan.holders_of(&entry.uuid).next().is_none() {
            scan.pvs.push(Pv { path: entry.path, size: 0, state: PvState::Missing(entry.uuid) });
        }
    }
    scan.agree_on_names();
    Ok(scan)
}

enum Look {
    Pv(Pv),
    NoPv,
    SeenBefore,
}

/// The physical volume at `path`, if it is one.
pub fn probe(path: &Path) -> Option<Pv> {
    match look(path, &mut HashSet::new()) {
        Look::Pv(pv) => Some(pv),
        Look::NoPv | Look::SeenBefore => None,
    }
}

fn look(path: &Path, seen: &mut HashSet<Identity>) -> Look {
    let Ok(device) = Plain::open(path, OpenMode::ReadOnly) else { return Look::NoPv };
    if !seen.insert(device.identity) {
        return Look::SeenBefore;
    }
    let size = device.geometry.size;
    let state = match read_label(device) {
        Ok(None) => return Look::NoPv,
        Ok(Some(label)) => trusted(label),
        Err(error) => PvState::Damaged(error.to_string()),
    };
    Look::Pv(Pv { path: path.to_owned(), size, state })
}

/// A label whose words may be used: a group's name becomes a path.
fn trusted(label: PvLabel) -> PvState {
    match label.group.as_ref().map(|group| (&group.group_name, names::check_form(&group.group_name))) {
        Some((name, Err(refusal))) => {
            PvState::Damaged(format!("the group's name \"{}\": {refusal}", name.escape_debug()))
        }
        _ => PvState::Present(label),
    }
}

/// The label of an open device.
pub fn read_label(device: Plain) -> rowen_engine::error::Result<Option<PvLabel>> {
    let disks = PlainDisks(vec![device]);
    block_on(Group::read_label(&disks, PvIndex(0)))
}

/// The block devices worth a look: those with a size that are neither an export of ours nor another name of a file that
/// was looked at already.
fn labelled_block_candidates(files: &HashSet<PathBuf>) -> Vec<PathBuf> {
    let exports = paths::run_dir();
    let exports = std::fs::canonicalize(&exports).unwrap_or(exports);
    let is_known = |backing: &PathBuf| backing.starts_with(&exports) || files.contains(backing);
    let skip: HashSet<PathBuf> =
        holders::loop_devices().filter(|(_, backing)| is_known(backing)).map(|(device, _)| device).collect();
    let mut found: Vec<PathBuf> = sized_block_devices().filter(|path| !skip.contains(path)).collect();
    found.sort();
    found
}

/// The block devices that have a size.
fn sized_block_devices() -> impl Iterator<Item = PathBuf> {
    let names = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    names
        .filter(|entry| std::fs::read_to_string(entry.path().join("size")).is_ok_and(|size| size.trim() != "0"))
        .map(|entry| Path::new("/dev").join(entry.file_name().to_string_lossy().replace('!', "/")))
}

/// The devices of volumes, which are loop devices over files of ours.
fn exports() -> HashSet<Identity> {
    let exports = paths::run_dir();
    let exports = std::fs::canonicalize(&exports).unwrap_or(exports);
    let is_export = |(_, backing): &(PathBuf, PathBuf)| backing.starts_with(&exports);
    holders::loop_devices().filter(is_export).filter_map(|(device, _)| Identity::of(&device)).collect()
}

impl Scan {
    /// The block devices that are none of these physical volumes, with their bytes, by path. Devices of volumes are left out.
    pub fn others(&self) -> Vec<(PathBuf, u64)> {
        let mut seen: HashSet<Identity> = self.pvs.iter().filter_map(|pv| Identity::of(&pv.path)).collect();
        seen.extend(exports());
        // What somebody gave a name of its own is known by that.
        let named = std::fs::read_dir("/dev/mapper").into_iter().flatten().flatten().map(|entry| entry.path());
        let named: Vec<PathBuf> = named.chain(sized_block_devices()).collect();
        let mut others: Vec<(PathBuf, u64)> = named
            .into_iter()
            .filter_map(|path| {
                let identity = Identity::of(&path).filter(|identity| matches!(identity, Identity::Block(_)))?;
                let size = Plain::open(&path, OpenMode::ReadOnly).ok()?.geometry.size;
                seen.insert(identity).then_some((path, size))
            })
            .collect();
        others.sort();
        others
    }

    /// A power cut while a group was renamed leaves labels of either name: the newest is right for all of its members.
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
                missing: membership.members.iter().filter(|uuid| self.holders_of(uuid).next().is_none()).count(),
            })
            .collect()
    }

    /// The members of the group `name`, when each is there exactly once.
    pub fn group(&self, name: &str) -> Result<GroupDevices, Error> {
        let of_group = |pv: &&Pv| pv.membership().is_some_and(|membership| membership.group_name == name);
        let carriers: Vec<&Pv> = self.pvs.iter().filter(of_group).collect();
        let newest = carriers
            .iter()
            .filter_map(|pv| pv.membership())
            .max_by_key(|membership| membership.sequence)
            .ok_or_else(|| Error::NoGroup(name.to_owned()))?;
        let is_other = |pv: &&&Pv| pv.membership().is_some_and(|other| other.group_uuid != newest.group_uuid);
        if carriers.iter().any(|pv| is_other(&pv)) {
            let paths = carriers.iter().map(|pv| pv.path.clone()).collect();
            return Err(Error::AmbiguousGroup { name: name.to_owned(), paths });
        }

        let mut paths = Vec::with_capacity(newest.members.len());
        let mut missing = Vec::new();
        for uuid in &newest.members {
            let holders: Vec<&Pv> = self.holders_of(uuid).collect();
            match holders[..] {
                [] => missing.push((*uuid, self.last_place(uuid))),
                [pv] => paths.push(pv.path.clone()),
                _ => {
                    let paths = holders.iter().map(|pv| pv.path.clone()).collect();
                    return Err(Error::Duplicate { uuid: *uuid, paths });
                }
            }
        }
        if missing.is_empty() {
            return Ok(GroupDevices { name: name.to_owned(), uuid: newest.group_uuid, paths });
        }
        let is_damaged = |pv: &&Pv| matches!(pv.state, PvState::Damaged(_));
        let damaged = self.pvs.iter().filter(is_damaged).map(|pv| pv.path.clone()).collect();
        Err(Error::MissingPvs { group: name.to_owned(), missing, damaged })
    }

    fn last_place(&self, uuid: &Uuid) -> Option<PathBuf> {
        let is_it = |pv: &&Pv| matches!(pv.state, PvState::Missing(lost) if lost == *uuid);
        self.pvs.iter().find(is_it).map(|pv| pv.path.clone())
    }
}

#[cfg(test)]
#[path = "scan_test.rs"]
mod tests;
