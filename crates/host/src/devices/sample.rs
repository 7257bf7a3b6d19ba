//! Checksums of places on devices, read through a helper process. They distinguish a disk that came back from an older
//! copy of it.

use super::plain::Plain;
use super::probe::side_by_side;
use crate::disks::OpenMode;
use crate::helper::{Job, Session};
use crate::patience;
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
    found: Option<Sample>,
}

/// What was found on a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The checksums at the places.
    pub sums: Vec<u32>,
    /// Nothing can be written to it.
    pub is_read_only: bool,
}

/// What is at these places. None: a device cannot be read.
pub fn samples(asked: &[Asked]) -> io::Result<Vec<Option<Sample>>> {
    let mut found = vec![None; asked.len()];
    if asked.is_empty() {
        return Ok(found);
    }
    let mut session = Session::start(Job::Sample(asked.to_vec()))?;
    for _ in asked {
        let sampled: Sampled = session.receive(patience::for_devices())?;
        let place = found.get_mut(sampled.at).ok_or(io::ErrorKind::InvalidData)?;
        *place = sampled.found;
    }
    session.end();
    Ok(found)
}

/// In a helper: answers as each device does.
pub fn answer(socket: &UnixStream, asked: &[Asked]) -> io::Result<()> {
    let to = Mutex::new(socket);
    side_by_side(asked.len(), |at| {
        let (path, offsets) = &asked[at];
        write_frame(&mut *to.lock(), &Sampled { at, found: read(path, offsets) })
    })
}

fn read(path: &Path, offsets: &[u64]) -> Option<Sample> {
    let device = Plain::open_here(path, OpenMode::ReadOnly).ok()?;
    let mut page = PageBuf::zeroed(4096);
    let sector = device.geometry.sector as usize;
    let sum = |offset: &u64| {
        let sector = &mut page.as_mut_slice()[..sector];
        device.read(sector, *offset).ok()?;
        Some(crc32c(&sector[..SAMPLE]))
    };
    let sums = offsets.iter().map(sum).collect::<Option<_>>()?;
    Some(Sample { sums, is_read_only: device.is_read_only() })
}
