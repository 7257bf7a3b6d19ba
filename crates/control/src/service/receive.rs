//! What is received is kept here until it is whole.
//!
//! A volume that is being received has a name that no request can name. Reports leave it out, and nothing activates it. What it is to
//! become, and how far it is, is kept with it ([`arriving`](super::arriving)).
//!
//! Invariants
//!
//! * RX1 Until all of a stream was verified and is durable, nothing of it can be seen: the targets, their snapshots and all reports are as
//!   they were. Then [`Group::publish`](rowen_engine::group::Group::publish) makes all of it visible in one step, of all volumes.
//! * RX2 Increments are received only by a volume that is at their base, by identity (PT1), and is not in use. That is looked at before the
//!   first write, and again when the contents become visible.
//! * RX5 What becomes visible is what one stream says, or what several say of which each goes on at a mark of the one
//!   before that is here: the same stream and place, with the same hash of all that came before it. Any other stream of
//!   the same contents begins at its start. Nothing that is on its way into a receive when that becomes visible arrives
//!   later.
//! * RX6 One run of a command writes what is received: the one that asked last. What another one sends is refused.
//! * RX7 The snapshot of what was received has the identity that the sender's snapshot has. The sender's volume may have another map with
//!   the same data (it was extended, or what was written was discarded again), and then its name is another one than that of the base.

use super::arriving::{Arriving, Kept, Progress};
use super::failure::{Failure, Result};
use super::hidden::{is_hidden, shown_volumes};
use super::state::{Service, is_pool};
use crate::protocol::{Attempt, Base, ErrorKind, Outcome, Receive, ReceiveVolume, Receiving};
use crate::uuids::lvm_text;
use parking_lot::RwLockWriteGuard;
use rowen_engine::disk::PageBuf;
use rowen_engine::error::Error;
use rowen_engine::group::{
    Attributes, FullPolicy, NewSnapshot, NewVolume, Publish, PublishTo, RECEIVING, VolumeInfo, VolumeKind, VolumeState,
    point_seed,
};
use rowen_engine::planted;
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a command that ends a receive waits for what is being written.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 10_000 });
/// Volumes of a stream, at most.
const MOST_VOLUMES: usize = 256;

impl Service {
    /// Begins a receive, or goes on with it.
    pub fn receive(&self, wanted: &Receive) -> Result<Outcome> {
        self.refuse_names(wanted)?;
        if let Some(snapshots) = wanted.volumes.iter().map(|one| self.snapshot_at(one)).collect() {
            return Ok(Outcome::Receiving(Receiving::IsHere { snapshots }));
        }
        for one in &wanted.volumes {
            let Some(arriving) = self.arriving_at(&one.target) else { continue };
            self.refuse_other_contents(wanted, &arriving)?;
            if let Some(frames) = self.goes_on(wanted, &arriving)? {
                return Ok(Outcome::Receiving(Receiving::From { frames }));
            }
            let _nobody_writes = self.nobody_writes()?;
            self.remove_volumes(&arriving.hidden())?;
        }
        if wanted.continues.is_some() {
            return Err(self.nothing_to_go_on_with(wanted));
        }
        self.begin(wanted)?;
        self.takes_over(wanted);
        Ok(Outcome::Receiving(Receiving::From { frames: 0 }))
    }

    fn refuse_names(&self, wanted: &Receive) -> Result<()> {
        let count = wanted.volumes.len();
        if count == 0 || count > MOST_VOLUMES {
            return Err(Failure::new(ErrorKind::Invalid, format!("A stream has 1 to {MOST_VOLUMES} volumes.")));
        }
        let mut names = HashSet::new();
        for one in &wanted.volumes {
            for name in [&one.target, &one.snapshot] {
                self.check_name(name)?;
                if !names.insert(name) {
                    let message = format!("Two volumes, or a volume and a snapshot, cannot both be called \"{name}\".");
                    return Err(Failure::new(ErrorKind::Invalid, message));
                }
            }
        }
        Ok(())
    }

    /// The target's snapshot that has the contents already.
    fn snapshot_at(&self, wanted: &ReceiveVolume) -> Option<String> {
        let target = self.group.find(&wanted.target)?;
        let snapshots = self.group.snapshots_of(target).into_iter();
        let mut at = snapshots.filter(|volume| volume.point == Some(wanted.point) && !is_hidden(&volume.name));
        // Where nothing changed, the base has the contents already, and the snapshot is made nevertheless.
        at.find(|volume| !is_unchanged(wanted) || volume.name == wanted.snapshot).map(|volume| volume.name)
    }

    fn refuse_other_contents(&self, wanted: &Receive, arriving: &Arriving) -> Result<()> {
        let is_same = |(one, (_, kept)): (&ReceiveVolume, &(VolumeInfo, Kept))| {
            kept.target == one.target
                && kept.point == one.point
                && kept.base.as_ref().map(|base| base.point) == one.base.as_ref().map(|base| base.point)
                && kept.snapshot == one.snapshot
                && kept.blocks == one.blocks
        };
        // If its creation was interrupted, no answer said that it began.
        let count = arriving.volumes.len() == wanted.volumes.len();
        if !arriving.is_whole() || count && wanted.volumes.iter().zip(&arriving.volumes).all(is_same) {
            return Ok(());
        }
        let (group, kept) = (&self.name, &arriving.volumes[0].1);
        let message = format!(
            "Another stream is being received into {}: for its snapshot {}. Give that stream again, and it goes on; \
             \"rowen receive --abort {group}/{}\" gives it up.",
            arriving.targets(group),
            kept.snapshot,
            kept.target
        );
        Err(Failure::new(ErrorKind::InUse, message))
    }

    /// How many frames of the stream have arrived. They count if the contents here come from this stream, or if it
    /// resumes at the mark of these contents (RX5). None: it begins at its start, also if a receive was abandoned for
    /// lack of room.
    fn goes_on(&self, wanted: &Receive, arriving: &Arriving) -> Result<Option<u64>> {
        let is_kept = arriving.is_whole() && arriving.volumes.iter().all(|(hidden, _)| hidden.state == VolumeState::Ok);
        let progress = &arriving.progress;
        let frames = match &wanted.continues {
            _ if is_kept && progress.stream == wanted.stream => progress.frames,
            None if is_kept && planted::is("another_stream_goes_on") => progress.frames,
            None => return Ok(None),
            Some(mark) if is_kept && (progress.mark == Some(*mark) || planted::is("any_mark_goes_on")) => {
                let _nobody_writes = self.nobody_writes()?;
                let progress = Progress { stream: wanted.stream, frames: 0, ..progress.clone() };
                let (first, kept) = &arriving.volumes[0];
                let attributes = Attributes { tags: arriving.tags(&progress), ..first.attributes.clone() };
                self.set_attributes(first.id, &kept.target, attributes)?;
                0
            }
            Some(_) if is_kept => {
                let group = &self.name;
                let message = format!(
                    "The stream goes on at a mark that is not the last one that {} has. Get a new token: \"rowen receive --token \
                     {group}/{}\".",
                    arriving.targets(group),
                    arriving.volumes[0].1.target
                );
                return Err(Failure::new(ErrorKind::Changed, message));
            }
            Some(_) => return Err(self.nothing_to_go_on_with(wanted)),
        };
        for (one, (hidden, _)) in wanted.volumes.iter().zip(&arriving.volumes) {
            self.resize_hidden(hidden.id, one)?;
        }
        self.takes_over(wanted);
        Ok(Some(frames))
    }

    /// RX6: what an earlier run of the command sends is refused from now on.
    fn takes_over(&self, wanted: &Receive) {
        let streams: HashSet<Uuid> = self.all_arriving().iter().map(|arriving| arriving.progress.stream).collect();
        let mut attempts = self.attempts.lock();
        attempts.retain(|stream, _| streams.contains(stream));
        attempts.insert(wanted.stream, wanted.attempt);
    }

    fn nothing_to_go_on_with(&self, wanted: &Receive) -> Failure {
        let targets: Vec<String> = wanted.volumes.iter().map(|one| format!("{}/{}", self.name, one.target)).collect();
        let message = format!(
            "The stream goes on where another one was cut, and nothing of that one is here for {}: it was given up. Send all of it \
             again, without --resume.",
            targets.join(", ")
        );
        Failure::new(ErrorKind::NotFound, message)
    }

    /// Makes the volumes that have the contents until these are whole.
    fn begin(&self, wanted: &Receive) -> Result<()> {
        for one in &wanted.volumes {
            if self.group.find(&one.snapshot).is_some() {
                let mut failure = self.failure(&Error::Exists(one.snapshot.clone()), &one.snapshot);
                failure
                    .message
                    .push_str("\nThe received snapshot would have this name: \"-n NAME\" gives it another one.");
                return Err(failure);
            }
            self.refuse_identifier(one)?;
        }
        self.refuse_more_volumes(2 * wanted.volumes.len())?;
        self.refuse_without_room(wanted)?;
        let targets = wanted.volumes.iter().map(|one| self.target(one)).collect::<Result<Vec<_>>>()?;
        let mut made = Vec::new();
        for (number, (one, target)) in (0..).zip(wanted.volumes.iter().zip(&targets)) {
            let kept = Kept {
                receive: wanted.stream,
                number,
                volumes: wanted.volumes.len() as u32,
                target: one.target.clone(),
                snapshot: one.snapshot.clone(),
                source: one.source.clone(),
                point: one.point,
                blocks: one.blocks,
                base: one.base.clone(),
                base_blocks: target.as_ref().map_or(0, |target| target.blocks),
            };
            let progress = if number == 0 { Progress::of_new(wanted).tags() } else { Vec::new() };
            let tags = [kept.tags(), progress].concat();
            let begun = match target {
                None => self.begin_whole((one, tags), wanted.created),
                Some(target) => self.begin_on_base((one, tags), target, wanted.created),
            };
            let sized = begun.and_then(|id| {
                made.push(id);
                self.resize_hidden(id, one)
            });
            sized.map_err(|failure| self.unmake(&made, failure))?;
        }
        Ok(())
    }

    /// The volume that an increment is for; none: a new one is made. Refused, if it is not at the base or exists.
    fn target(&self, wanted: &ReceiveVolume) -> Result<Option<VolumeInfo>> {
        let (group, target) = (&self.name, &wanted.target);
        if wanted.base.is_some() {
            let target = self.find(target)?;
            self.refuse_other_base(wanted, &target)?;
            return Ok(Some(target));
        }
        if self.group.find(target).is_some() {
            let message = format!(
                "Logical volume {group}/{target} exists, and the stream has a whole volume. Give another name, or send what changed \
                 since a snapshot that both have: \"rowen send -i SNAPSHOT ...\"."
            );
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        Ok(None)
    }

    /// Until it is dropped, nothing that was received is written. What is on its way arrives before.
    fn nobody_writes(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        self.receiving.try_write_for(PATIENCE).ok_or_else(|| {
            let message = "Something is being written that was received, and the disks take long: try again.";
            Failure::new(ErrorKind::InUse, message)
        })
    }

    /// The snapshot's identifier would be there twice.
    fn refuse_identifier(&self, wanted: &ReceiveVolume) -> Result<()> {
        let target = self.group.find(&wanted.target).and_then(|id| self.group.volume_info(id).ok());
        if keeps_name((&wanted.base, target.map_or(0, |target| target.blocks)), (wanted.point, wanted.blocks)) {
            return Ok(());
        }
        let seed = point_seed(wanted.point, wanted.blocks);
        let Some(other) = self.group.volumes_where(|volume| volume.uuid == seed).pop() else { return Ok(()) };
        let (group, other) = (&self.name, other.name);
        let message = format!(
            "{group}/{other} has the identifier of the snapshot that would be made. If it is that snapshot, \"lvcreate -s {group}/{other}\" \
             makes a copy of it at once; if it was written to, remove it first."
        );
        Err(Failure::new(ErrorKind::Exists, message))
    }

    /// Refuses what certainly does not fit (PT5). A thick volume takes its space when it is made.
    fn refuse_without_room(&self, wanted: &Receive) -> Result<()> {
        let info = self.group.info();
        let free = info.available_blocks + info.reclaim_left;
        let needed = wanted.volumes.iter().fold(0, |sum: u64, one| sum.saturating_add(one.changed.unwrap_or(0)));
        if needed <= free {
            return Ok(());
        }
        Err(self.failure(&Error::NoSpace { needed, free }, &wanted.volumes[0].target))
    }

    fn begin_whole(&self, (wanted, tags): (&ReceiveVolume, Vec<String>), created: u64) -> Result<VolumeId> {
        let volume = NewVolume {
            name: hidden_name(wanted),
            uuid: wanted.uuid,
            kind: if wanted.thick { VolumeKind::Thick } else { VolumeKind::Thin },
            blocks: wanted.blocks,
            sector: wanted.sector,
            chunk_blocks: 1,
            full: FullPolicy::Fail,
            attributes: Attributes { created, tags, ..Attributes::default() },
        };
        let engine = self.group.clone();
        let made = self.run(async move { engine.create_volume(volume).await });
        self.told(made, &wanted.target)
    }

    fn begin_on_base(
        &self,
        (wanted, tags): (&ReceiveVolume, Vec<String>),
        target: &VolumeInfo,
        created: u64,
    ) -> Result<VolumeId> {
        let snapshot = NewSnapshot {
            origin: target.id,
            name: hidden_name(wanted),
            uuid: wanted.uuid,
            reserve: None,
            read_only: false,
            chunk_blocks: target.chunk_blocks,
            attributes: Attributes { created, tags, ..Attributes::default() },
        };
        let engine = self.group.clone();
        let made = self.run(async move { engine.snapshot(&[snapshot]).await });
        Ok(self.told(made, &wanted.target)?[0])
    }

    /// RX2.
    fn refuse_other_base(&self, wanted: &ReceiveVolume, target: &VolumeInfo) -> Result<()> {
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
        self.refuse_held(std::slice::from_ref(target), "received into")?;
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

    fn resize_hidden(&self, id: VolumeId, wanted: &ReceiveVolume) -> Result<()> {
        let blocks = wanted.blocks;
        if self.told(self.group.volume_info(id), &wanted.target)?.blocks == blocks {
            return Ok(());
        }
        let group = self.group.clone();
        let done = self.run(async move { group.resize(id, blocks).await });
        self.told(done, &wanted.target)
    }

    /// Makes what was received visible (RX1, RX2).
    pub fn publish(&self, by: Attempt) -> Result<Outcome> {
        let _nobody_writes = (!planted::is("published_beside_writes")).then(|| self.nobody_writes()).transpose()?;
        let arriving = self.arriving(by)?;
        let mut targets = Vec::new();
        let mut all = Vec::new();
        for (hidden, kept) in &arriving.volumes {
            let attributes = Attributes { created: hidden.attributes.created, ..Attributes::default() };
            let to = match kept.base {
                None => {
                    let attributes = Attributes { autoactivate: true, ..attributes.clone() };
                    PublishTo::New { name: kept.target.clone(), attributes }
                }
                Some(_) => {
                    let target = self.find(&kept.target)?;
                    self.refuse_held(std::slice::from_ref(&target), "received into")?;
                    let to = PublishTo::Volume { target: target.id, blocks: kept.base_blocks };
                    targets.push(target);
                    to
                }
            };
            // Contents that did not change have their name from the base (PT2), and the snapshot any identifier.
            let keeps_name = keeps_name((&kept.base, kept.base_blocks), (kept.point, kept.blocks));
            let seed = if keeps_name { point_seed(hidden.uuid, 1) } else { point_seed(kept.point, kept.blocks) };
            if !keeps_name && !planted::is("has_name_of_base") {
                self.leave_name_of_base(hidden.id, &kept.target)?;
            }
            all.push(Publish {
                received: hidden.id,
                to,
                snapshot: kept.snapshot.clone(),
                seed,
                attributes: Attributes { skip_activation: true, ..attributes },
            });
        }
        let off = self.switch_off_all(&targets).map_err(|mut failure| {
            if failure.kind == ErrorKind::InUse {
                failure.message.push_str(
                    "\nWhat was received is whole, and waits: unmount the volume, and give the same stream again.",
                );
            }
            failure
        })?;
        self.publish_now(all, &arriving).map_err(|failure| self.switch_on_again(&off, failure))?;
        for target in off {
            self.switch_on(&self.find(&target.name)?)?;
        }
        self.attempts.lock().remove(&by.stream);
        Ok(Outcome::Ok)
    }

    /// RX7: a write that changes nothing, if there was none.
    fn leave_name_of_base(&self, hidden: VolumeId, target: &str) -> Result<()> {
        if self.told(self.group.point_of(hidden), target)?.is_none() {
            return Ok(());
        }
        let volume = self.told(self.group.volume(hidden), target)?;
        let written = self.run(async move {
            let first = volume.read(0, BLOCK_SIZE as u32, PageBuf::zeroed(BLOCK_SIZE as usize)).await?;
            volume.write(0, BLOCK_SIZE as u32, Arc::new(first)).await
        });
        self.told(written, target)
    }

    fn publish_now(&self, all: Vec<Publish>, arriving: &Arriving) -> Result<()> {
        let group = self.group.clone();
        let parts = if planted::is("published_one_by_one") { 1 } else { all.len() };
        let done = self.run(async move {
            for part in all.chunks(parts) {
                group.publish(part).await?;
            }
            Ok(())
        });
        done.map_err(|error| match error {
            Error::Moved => {
                let (group, targets) = (&self.name, arriving.targets(&self.name));
                let message = format!(
                    "Logical volume {targets} was written to, resized or reverted while the stream was received. Receiving takes \
                     nothing back: the volume is as it is, and \"rowen receive --abort {group}/{}\" gives up what was received.",
                    arriving.volumes[0].1.target
                );
                Failure::new(ErrorKind::Changed, message)
            }
            error => self.failure(&error, &arriving.volumes[0].1.snapshot),
        })
    }

    /// Removes what is received and has lost blocks with a physical volume, with all of its stream: nothing can come of it.
    pub(super) fn give_up_partial(&self) -> Result<()> {
        let mut hidden = Vec::new();
        for arriving in self.all_arriving() {
            let volumes = arriving.hidden();
            if !self.partial(&volumes)?.is_empty() {
                hidden.extend(volumes);
            }
        }
        if hidden.is_empty() {
            return Ok(());
        }
        let _nobody_writes = self.nobody_writes()?;
        self.remove_volumes(&hidden)
    }

    /// Gives a receive up, of all volumes of its stream.
    pub fn abort_receive(&self, target: &str) -> Result<Outcome> {
        let Some(arriving) = self.arriving_at(target) else {
            let message = format!("Nothing is being received into {}/{target}.", self.name);
            return Err(Failure::new(ErrorKind::NotFound, message));
        };
        let _nobody_writes = self.nobody_writes()?;
        self.remove_volumes(&arriving.hidden())?;
        self.attempts.lock().remove(&arriving.progress.stream);
        Ok(Outcome::Ok)
    }

    /// All volumes but those that are being received.
    pub fn shown_volumes(&self) -> Vec<VolumeInfo> {
        shown_volumes(&self.group)
    }
}

/// Whether contents have the name of their base: nothing was written since, at most the size is another one (PT2). Each has its size
/// in blocks.
fn keeps_name((base, base_blocks): (&Option<Base>, u64), (point, blocks): (Uuid, u64)) -> bool {
    base.as_ref().is_some_and(|base| point_seed(base.point, base_blocks) == point_seed(point, blocks))
}

/// Whether nothing changed since the base.
fn is_unchanged(wanted: &ReceiveVolume) -> bool {
    wanted.base.as_ref().is_some_and(|base| base.point == wanted.point)
}

fn hidden_name(wanted: &ReceiveVolume) -> String {
    format!("{RECEIVING}{}", wanted.uuid)
}

#[cfg(test)]
#[path = "receive_test.rs"]
mod tests;
