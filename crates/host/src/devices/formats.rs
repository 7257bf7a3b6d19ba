//! The format of each physical volume, also of those that this program cannot open. A helper reads it; nothing is
//! written.

use super::Error;
use super::plain::Plain;
use super::scan::known_paths;
use crate::disks::OpenMode;
use crate::helper::{Job, Session, is_late};
use crate::patience;
use parking_lot::Mutex;
use rowen_control::protocol::write_frame;
use rowen_engine::disk::PageBuf;
use rowen_engine::format::features::FormatInfo;
use rowen_engine::format::superblock::{COPY_OFFSETS, SLOTS};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// One answer, to the path at that place.
#[derive(Debug, Serialize, Deserialize)]
struct Probed {
    at: usize,
    seen: Option<Seen>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    version: u32,
    incompatible: u64,
    read_only_compatible: u64,
    compatible: u64,
    sequence: u64,
    pv: [u8; 16],
    group: [u8; 16],
    name: String,
}

/// The formats of physical volumes, and the devices that did not answer.
pub type Formats = (Vec<(PathBuf, FormatInfo)>, Vec<PathBuf>);

/// Those of all that are found.
pub fn formats() -> Result<Formats, Error> {
    let paths = known_paths()?;
    if paths.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let failed = |source| Error::Io { path: paths[0].clone(), what: "read", source };
    let mut session = Session::start(Job::LookAtFormats(paths.clone())).map_err(failed)?;
    let (mut found, mut silent) = (Vec::new(), paths.clone());
    for _ in 0..paths.len() {
        let probed = match session.receive::<Probed>(patience::for_devices()) {
            Ok(probed) => probed,
            Err(e) if is_late(&e) => return Ok((found, silent)),
            Err(e) => return Err(failed(e)),
        };
        let path = paths.get(probed.at).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        silent.retain(|other| other != path);
        found.extend(probed.seen.map(|seen| (path.clone(), seen.into())));
    }
    session.end();
    Ok((found, Vec::new()))
}

impl From<Seen> for FormatInfo {
    fn from(seen: Seen) -> FormatInfo {
        let Seen { version, incompatible, read_only_compatible, compatible, sequence, pv, group, name } = seen;
        FormatInfo {
            version,
            incompatible,
            read_only_compatible,
            compatible,
            sequence,
            pv_uuid: Uuid(pv),
            group_uuid: Uuid(group),
            group: name,
        }
    }
}

/// In a helper: answers as each device does.
pub fn answer(socket: &UnixStream, paths: Vec<PathBuf>) -> io::Result<()> {
    let to = Mutex::new(socket);
    super::probe::side_by_side(paths.len(), |at| {
        let seen = find(&paths[at]).map(|seen| Seen {
            version: seen.version,
            incompatible: seen.incompatible,
            read_only_compatible: seen.read_only_compatible,
            compatible: seen.compatible,
            sequence: seen.sequence,
            pv: seen.pv_uuid.0,
            group: seen.group_uuid.0,
            name: seen.group,
        });
        write_frame(&mut *to.lock(), &Probed { at, seen })
    })
}

/// The newest of the superblocks.
fn find(path: &Path) -> Option<FormatInfo> {
    let device = Plain::open_here(path, OpenMode::ReadOnly).ok()?;
    let places = COPY_OFFSETS.into_iter().flat_map(|copy| (0..SLOTS).map(move |slot| copy + slot * BLOCK_SIZE));
    let read = |at: u64| {
        let mut block = PageBuf::zeroed(BLOCK_SIZE as usize);
        device.read(block.as_mut_slice(), at).ok()?;
        FormatInfo::of(block.as_slice())
    };
    places.filter_map(read).max_by_key(|seen| seen.sequence)
}
