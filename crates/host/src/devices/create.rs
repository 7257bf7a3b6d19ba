//! Makes physical volumes, removes their labels, and makes a group of them. Each has two steps: first all checks on all
//! devices, while they are held; then the writes.

use super::plain::{Plain, PlainDisks, block_on};
use super::{Error, file, handed, probe, scan, signature};
use crate::disks::{OpenError, OpenMode, Reason};
use rowen_engine::disk::PvIndex;
use rowen_engine::group::{Group, NewGroup, NewPv, PvLabel};
use rowen_engine::units::Uuid;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The least that makes a useful physical volume.
pub const MIN_PV_BYTES: u64 = 2 << 20;

/// How far the user has agreed to lose data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// How often `-f` was given.
    pub force: u8,
    /// `-y`: every question is answered with yes.
    pub yes: bool,
}

/// A device that passed every check, held until it is written or dropped.
struct Checked {
    device: Plain,
    label: Option<PvLabel>,
    /// What it holds that will be lost.
    signature: Option<String>,
}

/// What to do with a device that is a member of a group.
#[derive(Clone, Copy)]
enum ForMember {
    Initialise,
    Add,
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    if path.as_os_str().is_empty() {
        return Err(OpenError { path: path.to_owned(), reason: Reason::Missing }.into());
    }
    let path = std::path::absolute(path).map_err(|source| Error::Io { path: path.to_owned(), what: "find", source })?;
    if path.as_os_str().as_bytes().contains(&b'\n') {
        return Err(Error::BadPath(path));
    }
    Ok(path)
}

/// An error of a device that does not answer is the outer one; one that cannot be opened has no label.
fn label_of(path: &Path) -> Result<rowen_engine::error::Result<Option<PvLabel>>, Error> {
    match handed::open(path, OpenMode::ReadOnly) {
        Ok(device) => Ok(probe::read_label(device)),
        Err(silent @ Error::Silent(_)) => Err(silent),
        Err(_) => Ok(Ok(None)),
    }
}

/// Every check that comes before a device becomes a physical volume.
fn check(path: &Path, member: ForMember, consent: Consent) -> Result<Checked, Error> {
    // The label first: "already in a group" says more than "in use", which a member of an open group is as well.
    let owned = path.to_owned();
    let label = match label_of(path)? {
        Ok(label) => label,
        Err(_) if consent.force >= 2 => None,
        Err(rowen_engine::error::Error::Disk(source)) => {
            return Err(Error::Engine { path: owned, source: source.into() });
        }
        Err(damage) => return Err(Error::DamagedLabel { path: owned, detail: damage.to_string() }),
    };
    if let Some(label) = &label
        && let Some(group) = label.group.as_ref().map(|group| group.group_name.clone())
    {
        match member {
            ForMember::Add => return Err(Error::AddMember { path: owned, group, is_former: is_former(label) }),
            ForMember::Initialise if consent.force < 2 => return Err(Error::InitialiseMember { path: owned, group }),
            ForMember::Initialise if !consent.yes => {
                return Err(Error::Confirm {
                    question: format!(
                        "Really INITIALIZE physical volume \"{}\" of volume group \"{group}\" [y/n]? ",
                        path.display()
                    ),
                    refused: format!("{}: physical volume not initialized.", path.display()),
                });
            }
            ForMember::Initialise => {}
        }
    }
    let device = Plain::hold(path)?;
    let size = device.geometry.size;
    if size < MIN_PV_BYTES {
        let reason = Reason::TooSmall { size, least: MIN_PV_BYTES };
        return Err(OpenError { path: owned, reason }.into());
    }
    let signature = if label.is_some() { None } else { signature::find(&device)? };
    if let Some(name) = &signature
        && !consent.yes
    {
        return Err(Error::Confirm {
            question: format!("WARNING: {name} signature detected on {}. Wipe it? [y/n]: ", path.display()),
            refused: format!("Aborted wiping of {name}.\n{}: physical volume not initialized.", path.display()),
        });
    }
    Ok(Checked { device, label, signature })
}

/// What cannot be found out is no reason for another refusal.
fn is_former(label: &PvLabel) -> bool {
    scan::scan().is_ok_and(|scan| scan.is_former(label))
}

/// Wipes what the checks found, and says so.
fn wipe_signature(checked: &Checked) -> Result<Option<String>, Error> {
    let Some(name) = &checked.signature else { return Ok(None) };
    signature::wipe(&checked.device)?;
    Ok(Some(format!("Wiping {name} signature on {}.", checked.device.path.display())))
}

/// Makes `path` a physical volume of no group. Returns messages for the user.
pub fn pvcreate(path: &Path, uuid: Uuid, consent: Consent) -> Result<Vec<String>, Error> {
    let path = absolute(path)?;
    let checked = check(&path, ForMember::Initialise, consent)?;
    let notes = wipe_signature(&checked)?.into_iter().collect();
    file::remember(uuid, &path)?;
    write_label(checked.device, uuid)?;
    Ok(notes)
}

fn write_label(device: Plain, uuid: Uuid) -> Result<(), Error> {
    let path = device.path.clone();
    let disks = PlainDisks(vec![device]);
    block_on(Group::write_label(&disks, PvIndex(0), uuid)).map_err(|source| Error::Engine { path, source })
}

/// Resizes a physical volume of no group to this many bytes, or to the size of its device.
pub fn pvresize(path: &Path, bytes: Option<u64>) -> Result<(), Error> {
    let path = absolute(path)?;
    let label = match label_of(&path)? {
        Ok(Some(PvLabel { group: Some(member), .. })) => {
            return Err(Error::AddMember { path, group: member.group_name, is_former: false });
        }
        Ok(Some(label)) => label,
        Ok(None) => return Err(Error::NotAPv(path)),
        Err(damage) => return Err(Error::DamagedLabel { path, detail: damage.to_string() }),
    };
    let device = Plain::hold(&path)?;
    let bytes = bytes.unwrap_or(device.geometry.size);
    let disks = PlainDisks(vec![device]);
    let written = block_on(Group::write_label_of(&disks, PvIndex(0), label.pv_uuid, bytes));
    written.map_err(|source| Error::Engine { path, source })
}

/// Takes the label of a physical volume away.
pub fn pvremove(path: &Path, consent: Consent) -> Result<Vec<String>, Error> {
    let path = absolute(path)?;
    handed::open(&path, OpenMode::ReadOnly)?;
    let mut notes = Vec::new();
    let group = match label_of(&path)? {
        Ok(None) => return Err(Error::NotAPv(path)),
        Ok(Some(label)) => label.group.map(|group| group.group_name),
        Err(_) if consent.force >= 2 => None,
        Err(damage) => return Err(Error::DamagedLabel { path, detail: damage.to_string() }),
    };
    if let Some(group) = group {
        if consent.force < 2 {
            return Err(Error::RemoveMember { path, group });
        }
        notes.push(format!("WARNING: PV {} is used by VG {group}.", path.display()));
        if !consent.yes {
            return Err(Error::Confirm {
                question: format!(
                    "  {}\nReally WIPE LABELS from physical volume \"{}\" of volume group \"{group}\" [y/n]? ",
                    notes[0],
                    path.display()
                ),
                refused: format!("{}: physical volume label not removed.", path.display()),
            });
        }
        notes.push(format!(
            "WARNING: Wiping physical volume label from {} of volume group \"{group}\".",
            path.display()
        ));
    }
    let disks = PlainDisks(vec![Plain::hold(&path)?]);
    block_on(Group::wipe_label(&disks, PvIndex(0))).map_err(|source| Error::Engine { path: path.clone(), source })?;
    file::forget(&path)?;
    Ok(notes)
}

/// A device that is to join a group, checked and held.
pub struct NewMember {
    checked: Checked,
    /// Its identifier: the one on its label, or the fresh one that was offered.
    pub uuid: Uuid,
    /// Whether it becomes a physical volume by this.
    pub is_new: bool,
}

impl NewMember {
    /// Checks that `path` can join a group; `fresh` becomes its identifier when it is no physical volume yet.
    pub fn check(path: &Path, fresh: Uuid, consent: Consent) -> Result<NewMember, Error> {
        let path = absolute(path)?;
        let checked = check(&path, ForMember::Add, consent)?;
        let uuid = checked.label.as_ref().map_or(fresh, |label| label.pv_uuid);
        let is_new = checked.label.is_none();
        Ok(NewMember { checked, uuid, is_new })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.checked.device.path
    }

    /// Wipes old signatures and remembers the device, which stays held.
    pub fn join(self) -> Result<Plain, Error> {
        self.prepare()?;
        Ok(self.checked.device)
    }

    fn prepare(&self) -> Result<Vec<String>, Error> {
        let mut notes: Vec<String> = wipe_signature(&self.checked)?.into_iter().collect();
        file::remember(self.uuid, self.path())?;
        if self.is_new {
            notes.push(format!("Physical volume \"{}\" successfully created.", self.path().display()));
        }
        Ok(notes)
    }
}

/// Checks all of `pvs`, none of which may be named twice.
fn check_members(pvs: &[(PathBuf, Uuid)], consent: Consent) -> Result<Vec<NewMember>, Error> {
    let mut seen = HashSet::new();
    // Before any is held: a second open of one device would only fail as "in use".
    let paths: Vec<PathBuf> = pvs.iter().map(|(path, _)| path.clone()).collect();
    for (path, found) in paths.iter().zip(probe::probe_all(&paths)?) {
        if found.is_some_and(|found| !seen.insert(found.identity)) {
            return Err(Error::GivenTwice(path.clone()));
        }
    }
    pvs.iter().map(|(path, fresh)| NewMember::check(path, *fresh, consent)).collect()
}

/// Makes a group over `pvs`, each with the identifier that it gets when it is no physical volume yet. `second_journal`: see
/// [`NewGroup`].
pub fn vgcreate(
    name: &str,
    uuid: Uuid,
    extent_blocks: u64,
    pvs: &[(PathBuf, Uuid)],
    second_journal: Option<u64>,
    consent: Consent,
) -> Result<Vec<String>, Error> {
    if scan::scan()?.groups().iter().any(|group| group.name == name) {
        return Err(Error::GroupExists(name.to_owned()));
    }
    let members = check_members(pvs, consent)?;
    let mut notes = Vec::new();
    for member in &members {
        notes.extend(member.prepare()?);
    }
    let spec = NewGroup {
        uuid,
        name: name.to_owned(),
        extent_blocks,
        pvs: members.iter().map(|member| NewPv { uuid: member.uuid }).collect(),
        second_journal,
    };
    let paths: Vec<PathBuf> = members.iter().map(|member| member.path().to_owned()).collect();
    let fresh: Vec<PathBuf> =
        members.iter().filter(|member| member.is_new).map(|member| member.path().to_owned()).collect();
    let disks = PlainDisks(members.into_iter().map(|member| member.checked.device).collect());
    match block_on(Group::create(Arc::new(disks), spec)) {
        Ok(()) => Ok(notes),
        Err(source) => {
            fresh.iter().try_for_each(|path| file::forget(path))?;
            Err(Error::Engine { path: paths.into_iter().next().unwrap_or_default(), source })
        }
    }
}
