//! Disks larger than memory: metadata goes to a sparse file, data is dropped and reads as zeros.
//!
//! For tests of the cost of maps with millions of extents, where an image in memory would itself be the largest user of
//! memory. Requests complete at once. Nothing is cached, and nothing fails.

use parking_lot::Mutex;
use rowen_engine::disk::{Completer, DiskError, DiskOp, Disks, PvGeometry, PvIndex, Segment};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Physical volumes whose metadata is kept in one sparse file each.
pub struct SpillDisks {
    pvs: Vec<(PvGeometry, File)>,
    keep: fn(&[u8]) -> bool,
    written: Mutex<u64>,
}

impl SpillDisks {
    /// Makes one sparse file per volume in `directory` and unlinks it at once. `keep` decides by the first bytes of a
    /// write whether it is metadata.
    pub fn new(directory: &Path, geometries: &[PvGeometry], keep: fn(&[u8]) -> bool) -> io::Result<SpillDisks> {
        let make = |&geometry: &PvGeometry| {
            static MADE: AtomicUsize = AtomicUsize::new(0);
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("rowen-spill-{}-{number}", std::process::id()));
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            file.set_len(geometry.size)?;
            Ok((geometry, file))
        };
        let pvs = geometries.iter().map(make).collect::<io::Result<_>>()?;
        Ok(SpillDisks { pvs, keep, written: Mutex::new(0) })
    }

    /// Bytes that were written, dropped ones included.
    pub fn written_bytes(&self) -> u64 {
        *self.written.lock()
    }

    fn carry_out(&self, op: &mut DiskOp) -> Result<(), (Segment, io::Error)> {
        match op {
            DiskOp::Read { segments, buf } => segments.iter().try_for_each(|segment| {
                let out = &mut buf.as_mut_slice()[segment.at as usize..][..segment.len as usize];
                self.pvs[segment.pv.0 as usize].1.read_exact_at(out, segment.offset).map_err(|e| (*segment, e))
            }),
            DiskOp::Write { segments, buf } => segments.iter().try_for_each(|segment| {
                let bytes = &buf.as_slice()[segment.at as usize..][..segment.len as usize];
                *self.written.lock() += bytes.len() as u64;
                match (self.keep)(bytes) {
                    true => {
                        self.pvs[segment.pv.0 as usize].1.write_all_at(bytes, segment.offset).map_err(|e| (*segment, e))
                    }
                    false => Ok(()),
                }
            }),
            DiskOp::Flush | DiskOp::Discard { .. } => Ok(()),
        }
    }
}

/// Whether a write starts as Rowen's metadata does (tree nodes, streams, journal frames, labels).
pub fn is_metadata(bytes: &[u8]) -> bool {
    bytes.starts_with(b"ROWEN") || bytes.starts_with(b"RwNd")
}

impl Disks for SpillDisks {
    fn count(&self) -> usize {
        self.pvs.len()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.pvs[pv.0 as usize].0
    }

    fn submit(&self, mut op: DiskOp, done: Completer) {
        let kind = op.kind();
        let outcome = self.carry_out(&mut op);
        let buf = match op {
            DiskOp::Read { buf, .. } => Some(buf),
            _ => None,
        };
        done.complete(outcome.map(|()| buf).map_err(|(segment, e)| DiskError {
            op: kind,
            pv: segment.pv,
            offset: segment.offset,
            errno: e.raw_os_error().unwrap_or(5),
        }));
    }
}
