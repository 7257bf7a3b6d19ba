//! Reads of a volume.

use super::Volume;
use super::plan::ReadPlan;
use super::state::Mode;
use crate::disk::{PageBuf, Segments};
use crate::error::Result;
use crate::format::node::UNWRITTEN;
use crate::map::{self, Extents, MapError};
use crate::units::{BLOCK_SIZE, SECTOR_SIZE};
use smallvec::SmallVec;
use std::future::poll_fn;
use std::task::{Context, Poll};

impl Volume {
    /// Fills `buf[..len]` and gives it back. Ranges past the end fail with [`Error::Invalid`].
    pub async fn read(&self, offset: u64, len: u32, buf: PageBuf) -> Result<PageBuf> {
        if len == 0 {
            return Ok(buf);
        }
        let mut buf = buf;
        let mut failed_node = None;
        loop {
            let (op, segments, zeros) = match poll_fn(|cx| self.plan_read(cx, offset, len)).await? {
                ReadPlan::Ready { op, segments, zeros } => (op, segments, zeros),
                ReadPlan::Load(node, level) => {
                    self.core.load_or_retry(node, level, &mut failed_node).await?;
                    continue;
                }
            };
            for (at, len) in zeros {
                buf.as_mut_slice()[at as usize..(at + len) as usize].fill(0);
            }
            if segments.is_empty() {
                return Ok(buf);
            }
            let outcome = self.read_segments(offset, len, segments, buf).await;
            if let Some(op) = op {
                self.state.lock().finish(op);
            }
            return outcome.map_err(|error| self.core.journal.answer(error));
        }
    }

    async fn read_segments(&self, offset: u64, len: u32, segments: Segments, buf: PageBuf) -> Result<PageBuf> {
        let sector = u64::from(self.core.sector());
        let aligned = sector == SECTOR_SIZE || (offset % sector == 0 && u64::from(len) % sector == 0);
        if aligned {
            return self.core.read_with_retry(segments, buf).await;
        }
        // Disks with larger sectors than the volume: read whole blocks into another buffer and copy.
        let mut buf = buf;
        for segment in segments {
            let (first, last) =
                (segment.offset / BLOCK_SIZE, (segment.offset + u64::from(segment.len)).div_ceil(BLOCK_SIZE));
            let bounce = PageBuf::zeroed(((last - first) * BLOCK_SIZE) as usize);
            let whole = crate::disk::Segment {
                pv: segment.pv,
                offset: first * BLOCK_SIZE,
                at: 0,
                len: ((last - first) * BLOCK_SIZE) as u32,
            };
            let bounce = self.core.read_with_retry(SmallVec::from_slice(&[whole]), bounce).await?;
            let from = (segment.offset - first * BLOCK_SIZE) as usize;
            let (at, len) = (segment.at as usize, segment.len as usize);
            buf.as_mut_slice()[at..at + len].copy_from_slice(&bounce.as_slice()[from..from + len]);
        }
        Ok(buf)
    }

    fn plan_read(&self, cx: &Context<'_>, offset: u64, len: u32) -> Poll<Result<ReadPlan>> {
        let mut state = self.state.lock();
        if let Err(error) = self.check_range(&state, offset, u64::from(len)) {
            return Poll::Ready(Err(error));
        }
        let (end_byte, first) = (offset + u64::from(len), offset / BLOCK_SIZE);
        let last = end_byte.div_ceil(BLOCK_SIZE);
        if state.shut > 0 || state.conflict(first, last, Mode::Read) {
            return Self::wait_for_wake(&mut state, cx);
        }
        let mut found = Extents::new();
        match map::lookup(&self.core.cache, &state.head.tree, first, last, &mut found) {
            Ok(()) => {}
            Err(MapError::Missing(node, level)) => return Poll::Ready(Ok(ReadPlan::Load(node, level))),
            Err(MapError::Corrupt(error)) => return Poll::Ready(Err(error)),
            Err(MapError::NoSpace | MapError::Again) => unreachable!("a lookup takes no space and searches nothing"),
        }
        let mut segments = Segments::new();
        let mut zeros = SmallVec::new();
        let mut at = offset;
        for extent in found.iter().filter(|e| e.flags & UNWRITTEN == 0) {
            let (from, to) = ((extent.key * BLOCK_SIZE).max(offset), (extent.end() * BLOCK_SIZE).min(end_byte));
            if at < from {
                zeros.push(((at - offset) as u32, (from - at) as u32));
            }
            let byte = extent.value * BLOCK_SIZE + (from - extent.key * BLOCK_SIZE);
            state.placement.map_bytes(byte, to - from, (from - offset) as u32, &mut segments);
            at = to;
        }
        if at < end_byte {
            zeros.push(((at - offset) as u32, (end_byte - at) as u32));
        }
        let op = (!segments.is_empty()).then(|| state.begin(first, last, Mode::Read));
        Poll::Ready(Ok(ReadPlan::Ready { op, segments, zeros }))
    }
}
