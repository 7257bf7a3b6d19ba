//! What is at places of devices, read through a helper process: by that a disk that came back is told from an older copy of it.

use super::look::{patience, side_by_side};
use super::plain::Plain;
use crate::disks::OpenMode;
use crate::helper::{Job, Session};
use crate::reactor::SAMPLE;
use parking_lot::Mutex;
use rowen_control::protocol::write_frame;
use rowen_engine::disk::PageBuf;
use rowen_engine::format::record::crc32c;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A device, and offsets of places on it.
pub type Asked = (PathBuf, Vec<u64>);

/// The checksums at the places of one device.
#[derive(Debug, Serialize, Deserialize)]
struct Sampled {
    at: usize,
    /// None: it cannot be read.
    sums: Option<Vec<u32>>,
}

/// The checksums at these places. None: a device cannot be read, or does not answer.
pub fn sums(asked: &[Asked]) -> io::Result<Vec<Option<Vec<u32>>>> {
    let mut found = vec![None; asked.len()];
    if asked.is_empty() {
        return Ok(found);
    }
    let mut session = Session::start(Job::Sample(asked.to_vec()))?;
    for _ in asked {
        let sampled: Sampled = session.hear(patience())?;
        let place = found.get_mut(sampled.at).ok_or(io::ErrorKind::InvalidData)?;
        *place = sampled.sums;
    }
    session.end();
    Ok(found)
}

/// In a helper: answers as each device does.
pub fn answer(socket: &UnixStream, asked: &[Asked]) -> io::Result<()> {
    let to = Mutex::new(socket);
    side_by_side(asked.len(), |at| {
        let (path, offsets) = &asked[at];
        write_frame(&mut *to.lock(), &Sampled { at, sums: read(path, offsets) })
    })
}

fn read(path: &Path, offsets: &[u64]) -> Option<Vec<u32>> {
    let device = Plain::open_here(path, OpenMode::ReadOnly).ok()?;
    let mut page = PageBuf::zeroed(4096);
    let sector = device.geometry.sector as usize;
    let sum = |offset: &u64| {
        let sector = &mut page.as_mut_slice()[..sector];
        device.read(sector, *offset).ok()?;
        Some(crc32c(&sector[..SAMPLE]))
    };
    offsets.iter().map(sum).collect()
}
