//! A volume group: the engine's face to everything above it.

mod types;

pub use types::*;

use crate::disk::{Disks, PageBuf};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::units::{Uuid, VolumeId};
use std::sync::Arc;

/// An open volume group.
pub struct Group {}

/// An open volume: what an export reads and writes.
pub struct Volume {}

/// What `check` found. Empty findings: the group is sound.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Each finding in words: what is wrong and where.
    pub findings: Vec<String>,
    pub nodes: u64,
    pub blocks: u64,
}

/// What a physical volume says of itself, read without opening its group.
#[derive(Clone, Debug)]
pub struct PvLabel {
    pub pv_uuid: Uuid,
    /// None: a physical volume of no group.
    pub group: Option<PvMembership>,
    /// Usable bytes, as written when it was made.
    pub size: u64,
}

#[derive(Clone, Debug)]
pub struct PvMembership {
    pub group_uuid: Uuid,
    pub group_name: String,
    pub index: u16,
    pub extent_blocks: u64,
    /// UUIDs of all physical volumes of the group, in order.
    pub members: Vec<Uuid>,
    /// The label's sequence number: of two stale copies, the higher is the newer.
    pub sequence: u64,
}

impl Group {
    /// Writes a group's metadata to the given disks. They must carry no group (the caller checks labels).
    pub async fn create(_disks: Arc<dyn Disks>, _spec: NewGroup) -> Result<()> {
        unimplemented!()
    }
    /// Opens the group on these disks, in any order of disks that the labels allow, and recovers it.
    pub async fn open(_disks: Arc<dyn Disks>, _runtime: Arc<dyn Runtime>, _config: Config) -> Result<Arc<Group>> {
        unimplemented!()
    }
    /// Drains, checkpoints and marks the group clean. Volumes answer [`Error::Closed`] afterwards.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        unimplemented!()
    }
    /// Erases the group's metadata; the physical volumes stay labelled and belong to no group. It must have no volume.
    pub async fn destroy(self: &Arc<Self>) -> Result<()> {
        unimplemented!()
    }
    /// Adds the disk at the end of the disk set, which the caller extended before.
    pub async fn add_pv(self: &Arc<Self>, _pv: NewPv) -> Result<()> {
        unimplemented!()
    }
    pub fn info(&self) -> GroupInfo {
        unimplemented!()
    }
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        unimplemented!()
    }
    pub fn volume_info(&self, _id: VolumeId) -> Result<VolumeInfo> {
        unimplemented!()
    }
    pub fn find(&self, _name: &str) -> Option<VolumeId> {
        unimplemented!()
    }
    /// The volume's data path.
    pub fn volume(&self, _id: VolumeId) -> Result<Arc<Volume>> {
        unimplemented!()
    }
    pub async fn create_volume(self: &Arc<Self>, _spec: NewVolume) -> Result<VolumeId> {
        unimplemented!()
    }
    /// One atomic, durable snapshot of all the named origins, in the order of `specs`.
    pub async fn snapshot(self: &Arc<Self>, _specs: &[NewSnapshot]) -> Result<Vec<VolumeId>> {
        unimplemented!()
    }
    /// Removes volumes (origins and snapshots alike) in one step; space comes back in the background.
    pub async fn remove(self: &Arc<Self>, _ids: &[VolumeId]) -> Result<()> {
        unimplemented!()
    }
    /// Gives `target` the contents of `source`, a snapshot taken of it at any time; newer snapshots stay.
    /// With `consume` (LVM's merge) `source` is removed in the same step.
    pub async fn revert(self: &Arc<Self>, _target: VolumeId, _source: VolumeId, _consume: bool) -> Result<()> {
        unimplemented!()
    }
    /// Grows or shrinks a volume to `blocks`. What lies beyond a smaller end is discarded.
    pub async fn resize(self: &Arc<Self>, _id: VolumeId, _blocks: u64) -> Result<()> {
        unimplemented!()
    }
    /// Changes a snapshot's reserve.
    pub async fn set_reserve(self: &Arc<Self>, _id: VolumeId, _reserve: Option<u64>) -> Result<()> {
        unimplemented!()
    }
    pub async fn rename(self: &Arc<Self>, _id: VolumeId, _name: &str) -> Result<()> {
        unimplemented!()
    }
    pub async fn set_read_only(self: &Arc<Self>, _id: VolumeId, _read_only: bool) -> Result<()> {
        unimplemented!()
    }
    pub async fn set_attributes(self: &Arc<Self>, _id: VolumeId, _attributes: Attributes) -> Result<()> {
        unimplemented!()
    }
    /// Takes a checkpoint now.
    pub async fn checkpoint(self: &Arc<Self>) -> Result<()> {
        unimplemented!()
    }
    /// Waits until background removal has nothing left to do.
    pub async fn reclaim_idle(self: &Arc<Self>) -> Result<()> {
        unimplemented!()
    }
    /// Verifies everything, read-only, on the disks of a group that nothing else has open.
    pub async fn check(_disks: Arc<dyn Disks>) -> Result<CheckReport> {
        unimplemented!()
    }
    /// The same for this open group, whose volumes stay in use.
    pub async fn check_open(self: &Arc<Self>) -> Result<CheckReport> {
        unimplemented!()
    }
    /// Reads the label of one disk of a set. `None`: no label there. A damaged label is an error.
    pub async fn read_label(_disks: &dyn Disks, _pv: crate::disk::PvIndex) -> Result<Option<PvLabel>> {
        unimplemented!()
    }
    /// Labels a disk as a physical volume of no group.
    pub async fn write_label(_disks: &dyn Disks, _pv: crate::disk::PvIndex, _uuid: Uuid) -> Result<()> {
        unimplemented!()
    }
    /// Erases a label.
    pub async fn wipe_label(_disks: &dyn Disks, _pv: crate::disk::PvIndex) -> Result<()> {
        unimplemented!()
    }
}

/// All offsets and lengths in bytes, multiples of 512; sub-block requests are fine. Requests may overlap in time.
impl Volume {
    pub fn size_bytes(&self) -> u64 {
        unimplemented!()
    }
    pub fn sector(&self) -> u32 {
        unimplemented!()
    }
    pub fn read_only(&self) -> bool {
        unimplemented!()
    }
    /// Fills `buf[..len]` and gives it back. Ranges past the end fail with [`crate::error::Error::Invalid`].
    pub async fn read(&self, _offset: u64, _len: u32, _buf: PageBuf) -> Result<PageBuf> {
        unimplemented!()
    }
    /// Writes `buf[..len]`. The reference is dropped before this returns, so that the caller can reuse the buffer.
    pub async fn write(&self, _offset: u64, _len: u32, _buf: Arc<PageBuf>) -> Result<()> {
        unimplemented!()
    }
    /// Everything acknowledged before this call is durable when it returns.
    pub async fn flush(&self) -> Result<()> {
        unimplemented!()
    }
    /// Reads of whole blocks in the range give zeros afterwards; partial blocks at the edges are zeroed too.
    pub async fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        unimplemented!()
    }
    /// The range reads as zeros afterwards.
    pub async fn write_zeroes(&self, _offset: u64, _len: u64) -> Result<()> {
        unimplemented!()
    }
}
