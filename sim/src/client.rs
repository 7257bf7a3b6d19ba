//! A client of a volume group. Every operation goes to the engine and into the [`Oracle`].
//!
//! Data is stamped, so that a read shows which request wrote it. An answer that contradicts the oracle is an error with
//! a message. An operation that the engine refuses leaves the oracle unchanged, unless the engine may have done a part
//! of it.

use crate::exec::Handle;
use crate::oracle::{Oracle, Since, Vol};
use crate::stamp::{self, Found, SECTOR};
use parking_lot::Mutex;
use rowen_engine::disk::{DiskError, PageBuf};
use rowen_engine::error::{Error, Result};
use rowen_engine::group::{
    Attributes, FullPolicy, Group, NewSnapshot, NewVolume, SegmentType, StripeLayout, Volume, VolumeKind, VolumeState,
};
use rowen_engine::units::{Uuid, VolumeId};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Sectors in a block.
pub const BLOCK: u64 = 8;
/// The longest single read of a verification, in sectors.
const READ_STEP: u64 = 2048;

/// The error of requests to a physical volume that is lost.
const LOST: i32 = 5;

/// The kind of a new snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotKind {
    pub read_only: bool,
    /// Reserved blocks.
    pub reserve: Option<u64>,
    pub chunk_blocks: u32,
}

impl Default for SnapshotKind {
    fn default() -> Self {
        SnapshotKind { read_only: false, reserve: None, chunk_blocks: 1 }
    }
}

/// The kind of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSpec {
    pub kind: VolumeKind,
    pub blocks: u64,
    pub chunk_blocks: u32,
    pub full: FullPolicy,
}

/// The UUID that the volume of this number is made with.
pub fn uuid(vol: Vol) -> Uuid {
    let mut bytes = [0x5A; 16];
    bytes[..4].copy_from_slice(&vol.to_le_bytes());
    Uuid(bytes)
}

/// The number of the volume with this UUID.
pub fn number(uuid: Uuid) -> Vol {
    Vol::from_le_bytes(uuid.0[..4].try_into().expect("four bytes of sixteen"))
}

/// A failed operation: the engine refused it, or its answer contradicts the oracle.
#[derive(Debug)]
pub enum Failure {
    Refused(Error),
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Refused(e)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused(e) => write!(f, "refused: {e}"),
            Failure::Wrong(what) => f.write_str(what),
        }
    }
}

/// Whether a command was done. Unknown if its disk failed in the middle: the next opening of the group shows it.
fn outcome<T>(result: &Result<T>) -> Option<bool> {
    match result {
        Ok(_) => Some(true),
        Err(Error::Disk(_) | Error::DiskLost(_) | Error::Poisoned(_) | Error::Corrupt { .. }) => None,
        Err(_) => Some(false),
    }
}

/// Whether the answer shows the outcome of the command.
pub fn is_known<T>(result: &Result<T>) -> bool {
    outcome(result).is_some()
}

/// An operation in flight, boxed so that many of different kinds can be started together.
pub type Op = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The client. Clones share the group and the oracle.
#[derive(Clone)]
pub struct Client {
    pub group: Arc<Group>,
    pub oracle: Arc<Mutex<Oracle>>,
    world: Arc<Handle>,
}

impl Client {
    pub fn new(world: Arc<Handle>, group: Arc<Group>, oracle: Arc<Mutex<Oracle>>) -> Client {
        Client { group, oracle, world }
    }

    /// Whether the cause of this error is that a physical volume is lost, or was lost: the group reports that it cannot
    /// read.
    pub fn is_lost(&self, error: &DiskError) -> bool {
        let is_out = self.group.out().has(usize::from(error.pv.0));
        error.errno == LOST && (is_out || self.group.unproven_blocks() > 0)
    }

    /// The engine's id of a volume.
    pub fn id(&self, vol: Vol) -> Result<VolumeId> {
        let want = uuid(vol);
        let volumes = self.group.volumes();
        let found = volumes.iter().find(|info| info.uuid == want);
        found.map(|info| info.id).ok_or_else(|| Error::NotFound(format!("volume {vol}")))
    }

    /// The volume's data path.
    pub fn volume(&self, vol: Vol) -> Result<Arc<Volume>> {
        self.group.volume(self.id(vol)?)
    }

    pub async fn create(&self, spec: VolumeSpec) -> Result<Vol> {
        let (vol, command, name) = {
            let mut oracle = self.oracle.lock();
            let (vol, command) = oracle.begin_create(spec.blocks * BLOCK);
            let name = oracle.volumes[&vol].name.clone();
            (vol, command, name)
        };
        let new = NewVolume {
            name,
            uuid: uuid(vol),
            kind: spec.kind,
            blocks: spec.blocks,
            sector: 512,
            chunk_blocks: spec.chunk_blocks,
            full: spec.full,
            attributes: Attributes::default(),
        };
        let (segment, is_mixed) = {
            let oracle = self.oracle.lock();
            (oracle.segment, oracle.is_mixed)
        };
        let is_linear = segment == SegmentType::Linear || is_mixed && (vol % 3 == 2 || self.group.info().pvs.len() < 2);
        let done = match segment {
            _ if is_linear => self.group.create_volume(new).await,
            SegmentType::Striped => loop {
                let layout = self.stripe_layout();
                match self.group.create_striped(new.clone(), layout, &[]).await {
                    // Another volume was the first one meanwhile, when there were more disks or fewer.
                    Err(Error::Invalid(_)) if self.stripe_layout() != layout => {}
                    outcome => break outcome,
                }
            },
            _ => self.group.create_mirrored(new, &[]).await,
        };
        if let Some(outcome) = outcome(&done) {
            self.oracle.lock().end_create(command, outcome);
        }
        done.map(|_| vol)
    }

    /// How striped volumes lie on this group's disks: as they do, or on up to three.
    fn stripe_layout(&self) -> StripeLayout {
        let info = self.group.info();
        let columns = info.pvs.len().clamp(2, 3) as u8;
        let shift = info.extent_blocks.trailing_zeros().min(2) as u8;
        self.group.stripe_info().map_or(StripeLayout { columns, shift }, |info| info.layout)
    }

    /// One atomic snapshot of all `origins`.
    pub async fn snapshot(&self, origins: &[Vol], kind: SnapshotKind) -> Result<Vec<Vol>> {
        let ids = origins.iter().map(|&vol| self.id(vol)).collect::<Result<Vec<_>>>()?;
        let (vols, command, names) = {
            let mut oracle = self.oracle.lock();
            let (vols, command) = oracle.begin_snapshot(origins);
            for vol in &vols {
                let volume = oracle.volumes.get_mut(vol).expect("just begun");
                volume.read_only = kind.read_only;
                volume.may_become_invalid |= kind.reserve.is_some();
            }
            let names: Vec<String> = vols.iter().map(|vol| oracle.volumes[vol].name.clone()).collect();
            (vols, command, names)
        };
        let specs: Vec<NewSnapshot> = (ids.into_iter().zip(&vols).zip(names))
            .map(|((origin, &vol), name)| NewSnapshot {
                origin,
                name,
                uuid: uuid(vol),
                reserve: kind.reserve,
                read_only: kind.read_only,
                chunk_blocks: kind.chunk_blocks,
                attributes: Attributes::default(),
            })
            .collect();
        let done = self.group.snapshot(&specs).await;
        if let Some(outcome) = outcome(&done) {
            self.oracle.lock().end_create(command, outcome);
        }
        done.map(|_| vols)
    }

    pub async fn remove(&self, vols: &[Vol]) -> Result<()> {
        let ids = vols.iter().map(|&vol| self.id(vol)).collect::<Result<Vec<_>>>()?;
        let command = self.oracle.lock().begin_remove(vols);
        let done = self.group.remove(&ids).await;
        if let Some(outcome) = outcome(&done) {
            self.oracle.lock().end_remove(command, outcome);
        }
        done
    }

    pub async fn revert(&self, target: Vol, source: Vol, consume: bool) -> Result<()> {
        let (target_id, source_id) = (self.id(target)?, self.id(source)?);
        let command = self.oracle.lock().begin_revert(target, source, consume);
        let done = self.group.revert(target_id, source_id, consume).await;
        if let Some(outcome) = outcome(&done) {
            self.oracle.lock().end_revert(command, outcome);
        }
        done
    }

    pub async fn resize(&self, vol: Vol, blocks: u64) -> Result<()> {
        let id = self.id(vol)?;
        let command = self.oracle.lock().begin_resize(vol, blocks * BLOCK);
        let done = self.group.resize(id, blocks).await;
        if let Some(outcome) = outcome(&done) {
            self.oracle.lock().end_resize(command, outcome);
        }
        done
    }

    pub async fn rename(&self, vol: Vol, name: &str) -> Result<()> {
        let id = self.id(vol)?;
        let command = self.oracle.lock().begin_rename(vol, name);
        let done = self.group.rename(id, name).await;
        if let Some(outcome) = outcome(&done) {
            self.oracle.lock().end_rename(command, outcome);
        }
        done
    }

    /// Writes `count` stamped sectors. `atomic`: parts that the caller knows to be redirected as a whole (OR5).
    pub async fn write(&self, vol: Vol, sector: u64, count: u64, atomic: &[(u64, u64)]) -> Result<()> {
        let volume = self.volume(vol)?;
        let request = self.oracle.lock().begin_write(vol, sector, count, false, atomic);
        let len = count as usize * SECTOR;
        let mut buf = PageBuf::zeroed(len);
        stamp::stamp(&mut buf.as_mut_slice()[..len], vol, sector, request);
        let done = volume.write(sector * SECTOR as u64, len as u32, Arc::new(buf)).await;
        self.oracle.lock().end_write(vol, sector, count, request, done.is_ok());
        done
    }

    /// Discards (or, with `write_zeroes`, zeroes) a range.
    pub async fn zero(&self, vol: Vol, sector: u64, count: u64, write_zeroes: bool) -> Result<()> {
        let volume = self.volume(vol)?;
        let request = self.oracle.lock().begin_write(vol, sector, count, true, &[]);
        let (offset, len) = (sector * SECTOR as u64, count * SECTOR as u64);
        let done = match write_zeroes {
            true => volume.write_zeroes(offset, len).await,
            false => volume.discard(offset, len).await,
        };
        self.oracle.lock().end_write(vol, sector, count, request, done.is_ok());
        done
    }

    pub async fn flush(&self, vol: Vol) -> Result<()> {
        let volume = self.volume(vol)?;
        let began = self.oracle.lock().tick();
        volume.flush().await?;
        self.oracle.lock().flushed(vol, began);
        Ok(())
    }

    pub async fn checkpoint(&self) -> Result<()> {
        let began = self.oracle.lock().tick();
        self.group.checkpoint().await?;
        self.oracle.lock().flushed_all(began);
        Ok(())
    }

    /// Closes the group cleanly: all is durable then.
    pub async fn close(&self) -> Result<()> {
        let began = self.oracle.lock().tick();
        self.group.close().await?;
        self.oracle.lock().flushed_all(began);
        Ok(())
    }

    /// Reads a range and returns the contents of each sector.
    pub async fn look(&self, vol: Vol, sector: u64, count: u64) -> Result<Vec<Found>> {
        let volume = self.volume(vol)?;
        let mut found = Vec::with_capacity(count as usize);
        let mut at = sector;
        while at < sector + count {
            let step = READ_STEP.min(sector + count - at);
            let len = step as usize * SECTOR;
            // The buffer begins with rubbish, so that a read which misses a part is noticed.
            let mut buf = PageBuf::zeroed(len);
            buf.as_mut_slice().fill(0xA5);
            let buf = volume.read(at * SECTOR as u64, len as u32, buf).await?;
            found.extend(buf.as_slice()[..len].chunks_exact(SECTOR).map(stamp::read));
            at += step;
        }
        Ok(found)
    }

    /// Reads a range and compares it with the oracle (OR1).
    pub async fn verify(&self, vol: Vol, sector: u64, count: u64) -> std::result::Result<Vec<Found>, Failure> {
        let began = self.oracle.lock().tick();
        let found = self.look(vol, sector, count).await?;
        self.oracle.lock().judge(vol, sector, &found, Since::Read(began)).map_err(Failure::Wrong)?;
        Ok(found)
    }

    /// Compares a whole volume while nothing is being written. Settles the order of versions that overlapped in time.
    pub async fn verify_all(&self, vol: Vol) -> std::result::Result<(), Failure> {
        let sectors = self.oracle.lock().volumes[&vol].sectors();
        let size = self.volume(vol)?.size_bytes();
        if size != sectors * SECTOR as u64 {
            return Err(Failure::Wrong(format!("volume {vol} is {size} bytes long and not {sectors} sectors")));
        }
        let found = self.verify(vol, 0, sectors).await?;
        self.oracle.lock().settle(vol, 0, &found);
        Ok(())
    }

    /// Records the snapshots that the engine declared invalid, if it was allowed to.
    pub fn note_invalid(&self) -> std::result::Result<Vec<Vol>, Failure> {
        let mut now_invalid = Vec::new();
        for info in self.group.volumes() {
            if info.state != VolumeState::Invalid {
                continue;
            }
            let vol = number(info.uuid);
            let mut oracle = self.oracle.lock();
            let Some(volume) = oracle.volumes.get_mut(&vol) else { continue };
            if !volume.may_become_invalid {
                return Err(Failure::Wrong(format!("snapshot {vol} became invalid for no reason")));
            }
            if !volume.invalid {
                volume.invalid = true;
                now_invalid.push(vol);
            }
        }
        Ok(now_invalid)
    }

    /// Starts operations as tasks of their own and waits for all of them.
    pub async fn together(&self, ops: Vec<Op>) -> Vec<Result<()>> {
        let started: Vec<_> = ops.into_iter().map(|op| self.world.start("client", op)).collect();
        let mut results = Vec::with_capacity(started.len());
        for op in started {
            results.push(op.await);
        }
        results
    }
}
