//! Reads devices through a helper process. A device may never answer, for instance a dead path, or a file on a volume
//! whose server is gone. The caller then waits for a limited time ([`patience`]), and can end at any time.

use super::Error;
use super::plain::{Identity, Plain, PlainDisks, block_on};
use super::scan::{Pv, PvState};
use crate::disks::OpenMode;
use crate::helper::{Job, Session, is_late};
use crate::{patience, planted};
use parking_lot::Mutex;
use rowen_control::names;
use rowen_control::protocol::write_frame;
use rowen_engine::disk::{DiskOp, PageBuf, PvIndex, Segment, Segments, start};
use rowen_engine::format::tally::{TALLY_OFFSET, Tally};
use rowen_engine::group::{Group, PvLabel, PvMembership};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// This many devices are read at a time, so that disks that have to spin up do so together.
const AT_ONCE: usize = 16;

/// What is at a path: a file or block device that can be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    pub identity: Identity,
    pub size: u64,
    /// Of a file, its path without links.
    pub real: Option<PathBuf>,
    label: Label,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Label {
    None,
    Sound {
        pv: [u8; 16],
        size: u64,
        group: Option<Membership>,
        /// Its own tally, and those that it knows of others.
        tally: Option<(u32, Vec<u32>)>,
    },
    Damaged(String),
    Unreadable(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Membership {
    uuid: [u8; 16],
    name: String,
    index: u16,
    extent_blocks: u64,
    members: Vec<[u8; 16]>,
    out: Vec<[u8; 16]>,
    #[serde(default)]
    lineage: u64,
    sequence: u64,
}

impl From<PvLabel> for Label {
    fn from(label: PvLabel) -> Label {
        let group = label.group.map(|group| Membership {
            uuid: group.group_uuid.0,
            name: group.group_name,
            index: group.index,
            extent_blocks: group.extent_blocks,
            members: group.members.into_iter().map(|uuid| uuid.0).collect(),
            out: group.out.into_iter().map(|uuid| uuid.0).collect(),
            lineage: group.lineage,
            sequence: group.sequence,
        });
        Label::Sound { pv: label.pv_uuid.0, size: label.size, group, tally: None }
    }
}

impl From<Membership> for PvMembership {
    fn from(group: Membership) -> PvMembership {
        PvMembership {
            group_uuid: Uuid(group.uuid),
            group_name: group.name,
            index: group.index,
            extent_blocks: group.extent_blocks,
            members: group.members.into_iter().map(Uuid).collect(),
            out: group.out.into_iter().map(Uuid).collect(),
            lineage: group.lineage,
            sequence: group.sequence,
        }
    }
}

impl Found {
    /// Whether the file or device at `path` has the sound label of this physical volume.
    pub fn is_pv(&self, path: &Path, uuid: Uuid) -> bool {
        self.pv(path).is_some_and(|pv| pv.label().is_some_and(|label| label.pv_uuid == uuid))
    }

    /// The physical volume that this is, if it is one.
    pub fn pv(&self, path: &Path) -> Option<Pv> {
        let mut counted = None;
        let state = match self.label.clone() {
            Label::None => return None,
            Label::Damaged(why) => PvState::Damaged(why),
            Label::Unreadable(why) => PvState::Unreadable(why),
            Label::Sound { pv, size, group, tally } => {
                counted = tally;
                trusted(PvLabel { pv_uuid: Uuid(pv), size, group: group.map(PvMembership::from) })
            }
        };
        let tally = counted.and_then(|(own, known)| Some(Tally { own, known: known.try_into().ok()? }));
        Some(Pv { path: path.to_owned(), size: self.size, state, tally })
    }
}

/// A label with a valid name: a group's name becomes a path.
fn trusted(label: PvLabel) -> PvState {
    match label.group.as_ref().map(|group| (&group.group_name, names::check_form(&group.group_name))) {
        Some((name, Err(refusal))) => {
            PvState::Damaged(format!("the group's name \"{}\": {refusal}", name.escape_debug()))
        }
        _ => PvState::Present(label),
    }
}

/// One answer, to the path at that place.
#[derive(Debug, Serialize, Deserialize)]
struct Probed {
    at: usize,
    found: Option<Found>,
}

/// What is at each of these paths; nothing if it cannot be read or does not answer. The latter is reported.
pub fn probe(paths: &[PathBuf]) -> Result<Vec<Option<Found>>, Error> {
    let (found, silent) = ask(paths, patience::for_devices)?;
    silent.into_iter().for_each(warn_once);
    Ok(found)
}

/// A command may search several times.
fn warn_once(path: PathBuf) {
    static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if WARNED.lock().insert(path.clone()) {
        eprintln!("  WARNING: {} does not answer and is left out.", path.display());
    }
}

/// The same where each must answer.
pub fn probe_all(paths: &[PathBuf]) -> Result<Vec<Option<Found>>, Error> {
    match ask(paths, patience::for_devices)? {
        (found, silent) if silent.is_empty() => Ok(found),
        (_, silent) => Err(Error::Silent(silent[0].clone())),
    }
}

/// What is at each path, and the paths that have not answered by the deadline.
pub fn probe_until(paths: &[PathBuf], deadline: Instant) -> Result<(Vec<Option<Found>>, Vec<PathBuf>), Error> {
    ask(paths, || deadline.saturating_duration_since(Instant::now()))
}

/// What is at each path, and those that do not answer. `timeout`: how long to wait for the next answer.
fn ask(paths: &[PathBuf], timeout: impl Fn() -> Duration) -> Result<(Vec<Option<Found>>, Vec<PathBuf>), Error> {
    let mut found: Vec<Option<Found>> = vec![None; paths.len()];
    if paths.is_empty() {
        return Ok((found, Vec::new()));
    }
    let failed = |source| Error::Io { path: paths[0].clone(), what: "read", source };
    let mut session = Session::start(Job::Probe(paths.to_vec())).map_err(failed)?;
    let mut is_open = vec![true; paths.len()];
    while is_open.contains(&true) {
        match session.receive::<Probed>(timeout()) {
            Ok(probed) if probed.at < paths.len() => {
                is_open[probed.at] = false;
                found[probed.at] = probed.found;
            }
            Ok(_) => return Err(failed(io::ErrorKind::InvalidData.into())),
            Err(e) if is_late(&e) => break,
            Err(e) => return Err(failed(e)),
        }
    }
    if !is_open.contains(&true) || planted::is("asks_the_late") {
        session.end();
    }
    let silent = paths.iter().zip(&is_open).filter(|(_, is_open)| **is_open).map(|(path, _)| path.clone());
    Ok((found, silent.collect()))
}

/// In a helper: answers as each device does.
pub fn answer(socket: &UnixStream, paths: Vec<PathBuf>) -> io::Result<()> {
    let to = Mutex::new(socket);
    side_by_side(paths.len(), |at| {
        let probed = Probed { at, found: probe_one(&paths[at]) };
        write_frame(&mut *to.lock(), &probed)
    })
}

/// Calls `act` for each of this many devices, several at a time.
pub(super) fn side_by_side(count: usize, act: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(());
            }
            act(at)?;
        }
    };
    std::thread::scope(|threads| {
        let others: Vec<_> = (1..count.min(AT_ONCE)).map(|_| threads.spawn(work)).collect();
        let own = work();
        others.into_iter().filter_map(|other| other.join().ok()).fold(own, io::Result::and)
    })
}

fn probe_one(path: &Path) -> Option<Found> {
    let device = Plain::open_here(path, OpenMode::ReadOnly).ok()?;
    let (identity, size) = (device.identity, device.geometry.size);
    let is_file = matches!(identity, Identity::File(..));
    let real = if is_file { std::fs::canonicalize(path).ok() } else { None };
    let disks = PlainDisks(vec![device]);
    let label = match block_on(Group::read_label(&disks, PvIndex(0))) {
        Ok(None) => Label::None,
        Ok(Some(label)) => with_tally(&disks, label),
        Err(rowen_engine::error::Error::Disk(error)) => {
            Label::Unreadable(io::Error::from_raw_os_error(error.errno).to_string())
        }
        Err(error) => Label::Damaged(error.to_string()),
    };
    Some(Found { identity, size, real, label })
}

/// The label, and the tally of a member of a group that has others.
fn with_tally(disks: &PlainDisks, label: PvLabel) -> Label {
    let group = label.group.as_ref().filter(|group| group.members.len() > 1).map(|group| group.group_uuid);
    let found = group.and_then(|group| read_tally(disks, group));
    let mut label = Label::from(label);
    if let Label::Sound { tally, .. } = &mut label {
        *tally = found.map(|tally| (tally.own, tally.known.to_vec()));
    }
    label
}

/// None: it is damaged, or cannot be read. Then it proves nothing.
fn read_tally(disks: &PlainDisks, group: Uuid) -> Option<Tally> {
    let segments =
        Segments::from_slice(&[Segment { pv: PvIndex(0), offset: TALLY_OFFSET, at: 0, len: BLOCK_SIZE as u32 }]);
    let buf = PageBuf::zeroed(BLOCK_SIZE as usize);
    let read = block_on(start(disks, DiskOp::Read { segments, buf })).ok()??;
    Tally::decode(read.as_slice(), u64::from_le_bytes(*group.0.first_chunk()?))
}

/// The label of an open device.
pub fn read_label(device: Plain) -> rowen_engine::error::Result<Option<PvLabel>> {
    let disks = PlainDisks(vec![device]);
    block_on(Group::read_label(&disks, PvIndex(0)))
}
