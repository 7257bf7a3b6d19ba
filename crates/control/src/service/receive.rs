//! What is sent is read here, and what is received is kept here until it is whole.
//!
//! A volume that is being received has a name that no request can name. Reports leave it out, and nothing activates it. Its tags
//! say what it is to become, so a receive goes on after the server's death and after a power cut.
//!
//! Invariants
//!
//! * RX1 Until all of a stream was verified and is durable, nothing of it can be seen: the target, its snapshots and all reports are as
//!   they were. Then [`Group::publish`](rowen_engine::group::Group::publish) makes all of it visible in one step.
//! * RX2 Increments are received only by a volume that is at their base, by identity (PT1), and is not in use. That is looked at before the
//!   first write, and again when the contents become visible.
//! * RX3 What is read to be sent is a point's: the volume is at it after the read.
//! * RX4 A place from which a stream goes on is durable after all that comes before it in the stream.
//! * RX5 What becomes visible is what one stream says: another stream of the same contents begins anew, and nothing that is on its way
//!   into a receive when that becomes visible arrives later.

use super::failure::{Failure, Result};
use super::hidden::{is_hidden, shown_volumes};
use super::state::{Service, is_pool};
use crate::protocol::{
    BlockRange, Bytes, ErrorKind, HexUuid, MOST_BLOCKS, Outcome, Part, Receive, Receiving, Unfinished,
};
use crate::uuids::lvm_text;
use parking_lot::RwLockWriteGuard;
use rowen_engine::disk::PageBuf;
use rowen_engine::error::Error;
use rowen_engine::group::{
    Attributes, FullPolicy, NewSnapshot, NewVolume, Publish, PublishTo, RECEIVING, Volume, VolumeInfo, VolumeKind,
    VolumeState, is_being_received, point_seed,
};
use rowen_engine::planted;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How long a command that ends a receive waits for what is being written.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 10_000 });
/// Bytes of one read or write of a volume.
const STEP: u64 = 1 << 20;

/// What the tags of such a volume say.
#[derive(Clone, Debug)]
struct Kept {
    target: String,
    snapshot: String,
    stream: Uuid,
    point: Uuid,
    blocks: u64,
    base: Option<(Uuid, String)>,
    /// The target's size when the receive began.
    base_blocks: u64,
    frames: u64,
}

impl Kept {
    fn tags(&self) -> Vec<String> {
        let mut tags = vec![
            format!("target={}", self.target),
            format!("snapshot={}", self.snapshot),
            format!("stream={}", self.stream),
            format!("point={}", self.point),
            format!("blocks={}", self.blocks),
            format!("base_blocks={}", self.base_blocks),
            format!("frames={}", self.frames),
        ];
        if let Some((point, name)) = &self.base {
            tags.push(format!("base={point}"));
            tags.push(format!("base_name={name}"));
        }
        tags
    }

    fn of(tags: &[String]) -> Option<Kept> {
        let find = |key: &str| tags.iter().find_map(|tag| tag.strip_prefix(key)?.strip_prefix('='));
        let uuid = |key| u128::from_str_radix(find(key)?, 16).ok().map(|number| Uuid(number.to_be_bytes()));
        let number = |key| find(key)?.parse::<u64>().ok();
        Some(Kept {
            target: find("target")?.to_owned(),
            snapshot: find("snapshot")?.to_owned(),
            stream: uuid("stream")?,
            point: uuid("point")?,
            blocks: number("blocks")?,
            base: uuid("base").zip(find("base_name").map(str::to_owned)),
            base_blocks: number("base_blocks")?,
            frames: number("frames")?,
        })
    }
}

impl Service {
    /// The bytes of a point (RX3).
    pub fn read_point(&self, name: &str, point: Uuid, ranges: &[BlockRange]) -> Result<Outcome> {
        check_ranges(ranges.iter())?;
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
            let mut bytes = Vec::new();
            for read in together(reads.collect()).await {
                let (buf, len) = read?;
                bytes.extend_from_slice(&buf.as_slice()[..len as usize]);
            }
            Ok(bytes)
        });
        let bytes = self.told(read, name)?;
        let is_there = self.group.point_of(id).is_ok_and(|at| at == Some(point));
        if !is_there && !planted::is("sent_while_written") {
            let message = format!(
                "Logical volume {}/{name} was written to, reverted or merged while it was sent. What was sent of it is not whole.",
                self.name
            );
            return Err(Failure::new(ErrorKind::Changed, message));
        }
        Ok(Outcome::Data(Bytes(bytes)))
    }

    /// Begins a receive, or goes on with it.
    pub fn receive(&self, wanted: &Receive) -> Result<Outcome> {
        self.check_name(&wanted.target)?;
        self.check_name(&wanted.snapshot)?;
        if wanted.target == wanted.snapshot {
            let message = format!("A volume and its snapshot cannot both be called \"{}\".", wanted.target);
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        if let Some(snapshot) = self.snapshot_at(wanted) {
            return Ok(Outcome::Receiving(Receiving::IsHere { snapshot }));
        }
        if let Some((hidden, kept)) = self.unfinished(&wanted.target) {
            self.refuse_other_contents(wanted, &kept)?;
            if self.goes_on(wanted, &hidden, &kept) {
                self.resize_hidden(hidden.id, wanted)?;
                return Ok(Outcome::Receiving(Receiving::From { frames: kept.frames }));
            }
            let _nobody_writes = self.nobody_writes()?;
            self.remove_volumes(std::slice::from_ref(&hidden))?;
        }
        if self.group.find(&wanted.snapshot).is_some() {
            return Err(self.failure(&Error::Exists(wanted.snapshot.clone()), &wanted.snapshot));
        }
        self.refuse_identifier(wanted)?;
        self.refuse_more_volumes(2)?;
        self.refuse_without_room(wanted)?;
        let id = match &wanted.base {
            None => self.begin_whole(wanted)?,
            Some(_) => self.begin_on_base(wanted)?,
        };
        self.resize_hidden(id, wanted).map_err(|failure| self.unmake(&[id], failure))?;
        Ok(Outcome::Receiving(Receiving::From { frames: 0 }))
    }

    /// The target's snapshot that has the contents already.
    fn snapshot_at(&self, wanted: &Receive) -> Option<String> {
        let target = self.group.find(&wanted.target)?;
        let snapshots = self.group.snapshots_of(target).into_iter();
        let mut at = snapshots.filter(|volume| volume.point == Some(wanted.point) && !is_hidden(&volume.name));
        at.next().map(|volume| volume.name)
    }

    /// A receive into this target that has not ended.
    fn unfinished(&self, target: &str) -> Option<(VolumeInfo, Kept)> {
        self.all_unfinished().into_iter().find(|(_, kept)| kept.target == target)
    }

    fn all_unfinished(&self) -> Vec<(VolumeInfo, Kept)> {
        let hidden = self.group.volumes_where(|volume| is_being_received(&volume.name));
        hidden.into_iter().filter_map(|volume| Kept::of(&volume.attributes.tags).map(|kept| (volume, kept))).collect()
    }

    fn refuse_other_contents(&self, wanted: &Receive, kept: &Kept) -> Result<()> {
        let base = wanted.base.as_ref().map(|base| base.point);
        let is_same = kept.point == wanted.point
            && kept.base.as_ref().map(|(point, _)| *point) == base
            && kept.snapshot == wanted.snapshot
            && kept.blocks == wanted.blocks;
        if is_same {
            return Ok(());
        }
        let (group, target) = (&self.name, &wanted.target);
        let message = format!(
            "Another stream is being received into {group}/{target}: for its snapshot {}. Give that stream again, and it goes on; \
             \"rowen receive --abort {group}/{target}\" gives it up.",
            kept.snapshot
        );
        Err(Failure::new(ErrorKind::InUse, message))
    }

    /// Whether what is here of it is of this stream (RX5), and was not given up for lack of room.
    fn goes_on(&self, wanted: &Receive, hidden: &VolumeInfo, kept: &Kept) -> bool {
        let is_same = kept.stream == wanted.stream || planted::is("another_stream_goes_on");
        is_same && hidden.state == VolumeState::Ok
    }

    /// Until it is dropped, nothing that was received is written. What is on its way arrives before.
    fn nobody_writes(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        self.receiving.try_write_for(PATIENCE).ok_or_else(|| {
            let message = "Something is being written that was received, and the disks take long: try again.";
            Failure::new(ErrorKind::InUse, message)
        })
    }

    /// The snapshot's identifier would be there twice.
    fn refuse_identifier(&self, wanted: &Receive) -> Result<()> {
        let seed = point_seed(wanted.point, wanted.blocks);
        let Some(other) = self.group.volumes_where(|volume| volume.uuid == seed).pop() else { return Ok(()) };
        let (group, other) = (&self.name, other.name);
        let message = format!(
            "{group}/{other} has the identifier of the snapshot that would be made. If it is that snapshot, \"lvcreate -s {group}/{other}\" \
             makes a copy of it at once; if it was written to, remove it first."
        );
        Err(Failure::new(ErrorKind::Exists, message))
    }

    fn kept(wanted: &Receive, base_blocks: u64) -> Kept {
        Kept {
            target: wanted.target.clone(),
            snapshot: wanted.snapshot.clone(),
            stream: wanted.stream,
            point: wanted.point,
            blocks: wanted.blocks,
            base: wanted.base.as_ref().map(|base| (base.point, base.name.clone())),
            base_blocks,
            frames: 0,
        }
    }

    fn begin_whole(&self, wanted: &Receive) -> Result<VolumeId> {
        let (group, target) = (&self.name, &wanted.target);
        if self.group.find(target).is_some() {
            let message = format!(
                "Logical volume {group}/{target} exists, and the stream has a whole volume. Give another name, or send what changed \
                 since a snapshot that both have: \"rowen send -i SNAPSHOT ...\"."
            );
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        let volume = NewVolume {
            name: hidden_name(wanted),
            uuid: wanted.uuid,
            kind: if wanted.thick { VolumeKind::Thick } else { VolumeKind::Thin },
            blocks: wanted.blocks,
            sector: wanted.sector,
            chunk_blocks: 1,
            full: FullPolicy::Fail,
            attributes: Attributes {
                created: wanted.created,
                tags: Self::kept(wanted, 0).tags(),
                ..Attributes::default()
            },
        };
        let engine = self.group.clone();
        let made = self.run(async move { engine.create_volume(volume).await });
        self.told(made, target)
    }

    fn begin_on_base(&self, wanted: &Receive) -> Result<VolumeId> {
        let target = self.find(&wanted.target)?;
        self.refuse_other_base(wanted, &target)?;
        let snapshot = NewSnapshot {
            origin: target.id,
            name: hidden_name(wanted),
            uuid: wanted.uuid,
            reserve: None,
            read_only: false,
            chunk_blocks: target.chunk_blocks,
            attributes: Attributes {
                created: wanted.created,
                tags: Self::kept(wanted, target.blocks).tags(),
                ..Attributes::default()
            },
        };
        let engine = self.group.clone();
        let made = self.run(async move { engine.snapshot(&[snapshot]).await });
        Ok(self.told(made, &wanted.target)?[0])
    }

    /// RX2.
    fn refuse_other_base(&self, wanted: &Receive, target: &VolumeInfo) -> Result<()> {
        let (group, name) = (&self.name, &target.name);
        let Some(base) = &wanted.base else { return Ok(()) };
        let refuse = |kind, message: String| Err(Failure::new(kind, message));
        if is_pool(target) {
            return refuse(
                ErrorKind::Invalid,
                format!("Logical volume {group}/{name} is a pool: name a volume in it."),
            );
        }
        if target.sector != wanted.sector {
            let told = format!(
                "The stream is of a volume with sectors of {} bytes, and {group}/{name} has sectors of {}.",
                wanted.sector, target.sector
            );
            return refuse(ErrorKind::Invalid, told);
        }
        self.refuse_use(name)?;
        if self.told(self.group.point_of(target.id), name)? == Some(base.point) || planted::is("any_base") {
            return Ok(());
        }
        let mut snapshots = self.group.snapshots_of(target.id);
        snapshots.retain(|volume| !is_hidden(&volume.name));
        if let Some(snapshot) = snapshots.iter().find(|volume| volume.point == Some(base.point)) {
            let told = format!(
                "Logical volume {group}/{name} was written to since its snapshot {}, from which the stream goes on. Receiving takes nothing \
                 back: \"lvcreate -s -n NAME {group}/{}\" makes a volume beside it, and \"rowen receive {group}/NAME\" brings that up to date.",
                snapshot.name, snapshot.name
            );
            return refuse(ErrorKind::Changed, told);
        }
        let newest = snapshots.iter().rfind(|volume| volume.point.is_some());
        let has = match newest {
            Some(snapshot) => format!(
                "The newest snapshot of {group}/{name} is {}: if the sender has that, \"rowen send -i {} ...\" fits.",
                snapshot.name, snapshot.name
            ),
            None => format!("{group}/{name} has no snapshot: send all of it to another name."),
        };
        let told = format!(
            "The stream has what changed from {} ({}) to {} ({}), and {group}/{name} has no {}. {has}",
            base.name,
            lvm_text(base.point),
            wanted.snapshot,
            lvm_text(wanted.point),
            base.name
        );
        refuse(ErrorKind::NotFound, told)
    }

    fn resize_hidden(&self, id: VolumeId, wanted: &Receive) -> Result<()> {
        let blocks = wanted.blocks;
        if self.told(self.group.volume_info(id), &wanted.target)?.blocks == blocks {
            return Ok(());
        }
        let group = self.group.clone();
        let done = self.run(async move { group.resize(id, blocks).await });
        self.told(done, &wanted.target)
    }

    /// The volume of a receive under way.
    fn hidden(&self, target: &str, stream: Uuid) -> Result<(VolumeInfo, Kept)> {
        let found = self.unfinished(target).filter(|(_, kept)| kept.stream == stream);
        let group = &self.name;
        match found {
            Some((hidden, _)) if hidden.state == VolumeState::Invalid => {
                let message = format!(
                    "Volume group \"{group}\" was full: what was received for {target} was given up, so that other volumes have the space. \
                     Make room, and give the stream again."
                );
                Err(Failure::new(ErrorKind::NoSpace, message))
            }
            Some(found) => Ok(found),
            None => {
                let message = format!("This stream is not being received into {group}/{target} any more.");
                Err(Failure::new(ErrorKind::Changed, message))
            }
        }
    }

    /// Writes parts of what is received.
    pub fn receive_parts(&self, target: &str, stream: Uuid, parts: &[Part]) -> Result<Outcome> {
        let _writes = self.receiving.read();
        self.refuse_exported()?;
        let (hidden, _) = self.hidden(target, stream)?;
        let volume = self.told(self.group.volume(hidden.id), target)?;
        for part in parts {
            let done = match part {
                Part::Zeros(range) => {
                    check_ranges(std::iter::once(&BlockRange { blocks: 0, ..*range }))?;
                    let (offset, len) = bytes_of(range)?;
                    let volume = volume.clone();
                    self.run(async move { volume.write_zeroes(offset, len).await })
                }
                Part::Data { ranges, bytes } => {
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

    /// Refuses what certainly does not fit (PT5). A thick volume takes its space when it is made.
    fn refuse_without_room(&self, wanted: &Receive) -> Result<()> {
        let info = self.group.info();
        let free = info.available_blocks + info.reclaim_left;
        match wanted.changed {
            Some(needed) if needed > free => Err(self.failure(&Error::NoSpace { needed, free }, &wanted.target)),
            _ => Ok(()),
        }
    }

    /// Makes all that was received durable, and then how far that is (RX4).
    pub fn receive_mark(&self, target: &str, stream: Uuid, frames: u64) -> Result<Outcome> {
        let _writes = self.receiving.read();
        self.refuse_exported()?;
        let (hidden, kept) = self.hidden(target, stream)?;
        let volume = self.told(self.group.volume(hidden.id), target)?;
        let flushed = self.run(async move { volume.flush().await });
        self.told(flushed, target)?;
        let frames = frames + u64::from(planted::is("mark_early"));
        let attributes = Attributes { tags: Kept { frames, ..kept }.tags(), ..hidden.attributes.clone() };
        self.set_attributes(hidden.id, target, attributes)?;
        Ok(Outcome::Ok)
    }

    /// Makes what was received visible (RX1, RX2).
    pub fn publish(&self, target: &str, stream: Uuid) -> Result<Outcome> {
        let _nobody_writes = (!planted::is("published_beside_writes")).then(|| self.nobody_writes()).transpose()?;
        let (hidden, kept) = self.hidden(target, stream)?;
        let attributes = Attributes { created: hidden.attributes.created, ..Attributes::default() };
        let publish = |to| Publish {
            received: hidden.id,
            to,
            snapshot: kept.snapshot.clone(),
            seed: point_seed(kept.point, kept.blocks),
            attributes: Attributes { skip_activation: true, ..attributes.clone() },
        };
        if kept.base.is_none() {
            let attributes = Attributes { autoactivate: true, ..attributes.clone() };
            let to = PublishTo::New { name: target.to_owned(), attributes };
            self.publish_now(publish(to), &kept)?;
            return Ok(Outcome::Ok);
        }
        let volume = self.find(target)?;
        let volumes = [volume];
        let off = self.switch_off_all(&volumes).map_err(|mut failure| {
            if failure.kind == ErrorKind::InUse {
                failure.message.push_str(
                    "\nWhat was received is whole, and waits: unmount the volume, and give the same stream again.",
                );
            }
            failure
        })?;
        let to = PublishTo::Volume { target: volumes[0].id, blocks: kept.base_blocks };
        self.publish_now(publish(to), &kept).map_err(|failure| self.switch_on_again(&off, failure))?;
        if !off.is_empty() {
            self.switch_on(&self.find(target)?)?;
        }
        Ok(Outcome::Ok)
    }

    fn publish_now(&self, publish: Publish, kept: &Kept) -> Result<()> {
        let group = self.group.clone();
        let done = self.run(async move { group.publish(&publish).await });
        done.map_err(|error| match error {
            Error::Moved => {
                let (group, target) = (&self.name, &kept.target);
                let message = format!(
                    "Logical volume {group}/{target} was written to, resized or reverted while the stream was received. Receiving takes \
                     nothing back: the volume is as it is, and \"rowen receive --abort {group}/{target}\" gives up what was received."
                );
                Failure::new(ErrorKind::Changed, message)
            }
            error => self.failure(&error, &kept.snapshot),
        })
    }

    /// What is told when a receive was given up for lack of room; none: the volume is not being received.
    pub(super) fn gave_way(&self, volume: &VolumeInfo) -> Option<String> {
        let kept = Kept::of(&volume.attributes.tags).filter(|_| is_being_received(&volume.name))?;
        let (group, target) = (&self.name, kept.target);
        Some(format!("Volume group \"{group}\" is full: what was received for {group}/{target} was given up."))
    }

    /// Removes what is received and has lost blocks with a physical volume: nothing can come of it.
    pub(super) fn give_up_partial(&self) -> Result<()> {
        let mut hidden = self.group.volumes_where(|volume| is_being_received(&volume.name));
        let partial = self.partial(&hidden)?;
        hidden.retain(|volume| partial.contains(&volume.name));
        if hidden.is_empty() {
            return Ok(());
        }
        let _nobody_writes = self.nobody_writes()?;
        self.remove_volumes(&hidden)
    }

    /// Gives a receive up.
    pub fn abort_receive(&self, target: &str) -> Result<Outcome> {
        let Some((hidden, _)) = self.unfinished(target) else {
            let message = format!("Nothing is being received into {}/{target}.", self.name);
            return Err(Failure::new(ErrorKind::NotFound, message));
        };
        let _nobody_writes = self.nobody_writes()?;
        self.remove_volumes(std::slice::from_ref(&hidden))?;
        Ok(Outcome::Ok)
    }

    /// The receives that have not ended.
    pub fn receives(&self) -> Outcome {
        let unfinished = self.all_unfinished().into_iter().map(|(volume, kept)| Unfinished {
            target: kept.target,
            snapshot: kept.snapshot,
            base: kept.base.map(|(_, name)| name),
            point: HexUuid(kept.point),
            blocks: kept.blocks,
            held_blocks: volume.exclusive,
            created: volume.attributes.created,
        });
        Outcome::Receives(unfinished.collect())
    }

    /// All volumes but those that are being received.
    pub fn shown_volumes(&self) -> Vec<VolumeInfo> {
        shown_volumes(&self.group)
    }
}

fn hidden_name(wanted: &Receive) -> String {
    format!("{RECEIVING}{}", wanted.uuid)
}

/// How many blocks these are together. A request has so many at most.
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

#[cfg(test)]
#[path = "receive_test.rs"]
mod tests;
