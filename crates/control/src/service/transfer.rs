//! The bytes that are sent and received: reads of points, and writes into what is not whole yet.
//!
//! Invariants
//!
//! * RX3 What is read to be sent is a point's: the volume is at it after the read, with the head that the list of changes named. So it
//!   was at it all the time.
//! * RX4 A place from which a stream goes on is durable after all that comes before it in the stream.

use super::arriving::{Kept, Progress};
use super::failure::{Failure, Result};
use super::state::Service;
use crate::protocol::{Attempt, BlockRange, Bytes, DiffSide, ErrorKind, MOST_BLOCKS, Mark, Outcome, Part};
use rowen_engine::disk::PageBuf;
use rowen_engine::error::Error;
use rowen_engine::group::{Attributes, BOOKMARK, Volume, is_bookmark};
use rowen_engine::planted;
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Bytes of one read or write of a volume.
const STEP: u64 = 1 << 20;

impl Service {
    /// The bytes of a point (RX3).
    pub fn read_point(&self, name: &str, point: Uuid, side: DiffSide, ranges: &[BlockRange]) -> Result<Outcome> {
        let blocks = check_ranges(ranges.iter())?;
        if is_bookmark(name) {
            return self.certify_bookmark(name, point, side, ranges);
        }
        let id = self.find(name)?.id;
        let volume = self.told(self.group.volume(id), name)?;
        let ranges = ranges.to_vec();
        let read = self.run(async move {
            let reads = ranges.iter().flat_map(steps).map(|(offset, len)| {
                let volume = volume.clone();
                let read = async move {
                    let buf = volume.read(offset, len as u32, PageBuf::zeroed(len as usize)).await?;
                    Ok((buf, len))
                };
                Box::pin(read) as Pin<Box<dyn Future<Output = rowen_engine::error::Result<(PageBuf, u64)>> + Send>>
            });
            let mut bytes = Vec::with_capacity((blocks * BLOCK_SIZE) as usize);
            for read in together(reads.collect()).await {
                let (buf, len) = read?;
                bytes.extend_from_slice(&buf.as_slice()[..len as usize]);
            }
            Ok(bytes)
        });
        let bytes = self.told(read, name)?;
        let is_there = self.group.point_of(id).is_ok_and(|at| at == Some(point)) || planted::is("sent_while_written");
        // One that was written to and reverted is at its point again, and has another head.
        let now = self.group.compare(None, id).map(|compared| DiffSide::from(compared.new));
        let is_same = now.is_ok_and(|now| now == side) || planted::is("sent_after_revert");
        if !is_there || !is_same {
            let message = format!(
                "Logical volume {}/{name} was written to, reverted or merged while it was sent. What was sent of it is not whole.",
                self.name
            );
            return Err(Failure::new(ErrorKind::Changed, message));
        }
        Ok(Outcome::Data(Bytes(bytes)))
    }

    /// A bookmark has nothing to be read: that it still stands for these contents is what is asked.
    fn certify_bookmark(&self, name: &str, point: Uuid, side: DiffSide, ranges: &[BlockRange]) -> Result<Outcome> {
        let found = self.counting_bookmark(name).filter(|bookmark| bookmark.point == point && ranges.is_empty());
        let now = found.and_then(|bookmark| self.group.compare(None, bookmark.id).ok());
        if now.is_some_and(|now| DiffSide::from(now.new) == side) {
            return Ok(Outcome::Data(Bytes(Vec::new())));
        }
        let message = format!(
            "The bookmark {}/{} was removed, or has ended, while it was sent from. What was sent is not whole.",
            self.name,
            name.trim_start_matches(BOOKMARK)
        );
        Err(Failure::new(ErrorKind::Changed, message))
    }

    /// Writes parts of what is received.
    pub fn receive_parts(&self, by: Attempt, parts: &[Part]) -> Result<Outcome> {
        let _writes = self.receiving.read();
        self.refuse_exported()?;
        let arriving = self.arriving(by)?;
        for part in parts {
            let (Part::Data { volume: number, .. } | Part::Zeros { volume: number, .. }) = part;
            let Some((hidden, Kept { target, .. })) = arriving.volumes.get(*number as usize) else {
                return Err(Failure::new(ErrorKind::Invalid, "The stream has no such volume."));
            };
            let volume = self.told(self.group.volume(hidden.id), target)?;
            let done = match part {
                Part::Zeros { range, .. } => {
                    check_ranges(std::iter::once(&BlockRange { blocks: 0, ..*range }))?;
                    let (offset, len) = bytes_of(range)?;
                    self.run(async move { volume.write_zeroes(offset, len).await })
                }
                Part::Data { ranges, bytes, .. } => {
                    let blocks = check_ranges(ranges.iter())?;
                    if blocks * BLOCK_SIZE != bytes.0.len() as u64 {
                        return Err(Failure::new(ErrorKind::Invalid, "The bytes are not those of the ranges."));
                    }
                    let writes = writes(&volume, ranges, &bytes.0);
                    self.run(
                        async move { together(writes).await.into_iter().collect::<rowen_engine::error::Result<()>>() },
                    )
                }
            };
            done.map_err(|error| self.not_written(&error, target))?;
        }
        Ok(Outcome::Ok)
    }

    /// Why what came was not written. What is here stays until others need the space (PT5).
    fn not_written(&self, error: &Error, target: &str) -> Failure {
        let mut failure = self.failure(error, target);
        if failure.kind == ErrorKind::NoSpace {
            let group = &self.name;
            let more = format!(
                "\nWhat came of the stream is kept until other volumes need its space. Make room, and give the stream again; \
                 \"rowen receive --abort {group}/{target}\" gives it up at once."
            );
            failure.message.push_str(&more);
        }
        failure
    }

    /// Makes all that was received durable, and then how far that is (RX4).
    pub fn receive_mark(&self, by: Attempt, frames: u64, mark: Mark) -> Result<Outcome> {
        let _writes = self.receiving.read();
        self.refuse_exported()?;
        let arriving = self.arriving(by)?;
        let (first, Kept { target, .. }) = &arriving.volumes[0];
        let volume = self.told(self.group.volume(first.id), target)?;
        // It flushes all devices of the group.
        let flushed = self.run(async move { volume.flush().await });
        self.told(flushed, target)?;
        let early = u64::from(planted::is("mark_early"));
        let mark = Mark { block: mark.block + 2 * u64::from(planted::is("mark_block_early")), ..mark };
        let progress = Progress { frames: frames + early, mark: Some(mark), ..arriving.progress.clone() };
        let attributes = Attributes { tags: arriving.tags(&progress), ..first.attributes.clone() };
        self.set_attributes(first.id, target, attributes)?;
        Ok(Outcome::Ok)
    }
}

/// How many blocks these are together. The most of them in one request.
fn check_ranges<'a>(ranges: impl Iterator<Item = &'a BlockRange>) -> Result<u64> {
    let mut sum = 0u64;
    for range in ranges {
        sum = sum.saturating_add(range.blocks);
        bytes_of(range)?;
    }
    match sum <= MOST_BLOCKS {
        true => Ok(sum),
        false => Err(Failure::new(ErrorKind::Invalid, format!("A request has at most {MOST_BLOCKS} blocks."))),
    }
}

fn bytes_of(range: &BlockRange) -> Result<(u64, u64)> {
    let end = range.start_block.checked_add(range.blocks).filter(|end| *end < u64::MAX / BLOCK_SIZE);
    match end {
        Some(_) => Ok((range.start_block * BLOCK_SIZE, range.blocks * BLOCK_SIZE)),
        None => Err(Failure::new(ErrorKind::Invalid, "There are no such blocks.")),
    }
}

/// A range in steps: offsets and lengths in bytes.
fn steps(range: &BlockRange) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (offset, len) = (range.start_block * BLOCK_SIZE, range.blocks * BLOCK_SIZE);
    (0..len.div_ceil(STEP)).map(move |step| (offset + step * STEP, STEP.min(len - step * STEP)))
}

type Writes = Vec<Pin<Box<dyn Future<Output = rowen_engine::error::Result<()>> + Send>>>;

fn writes(volume: &Arc<Volume>, ranges: &[BlockRange], bytes: &[u8]) -> Writes {
    let mut writes: Writes = Vec::new();
    let mut rest = bytes;
    for (offset, len) in ranges.iter().flat_map(steps) {
        let (now, after) = rest.split_at(len as usize);
        rest = after;
        let (volume, buf) = (volume.clone(), Arc::new(PageBuf::from_slice(now)));
        writes.push(Box::pin(async move { volume.write(offset, len as u32, buf).await }));
    }
    writes
}

/// Runs all of them side by side, to their ends. What they gave is in their order.
async fn together<T>(mut all: Vec<Pin<Box<dyn Future<Output = T> + Send>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_pending = false;
        for (one, value) in all.iter_mut().zip(&mut done) {
            if value.is_none() {
                match one.as_mut().poll(cx) {
                    Poll::Ready(ready) => *value = Some(ready),
                    Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}
