//! Labels: what a physical volume says about itself. They are read and written without opening a group.

use super::Group;
use crate::disk::{DiskError, DiskOp, Disks, PageBuf, PvIndex, Segment, Segments, start};
use crate::error::{Error, Result};
use crate::format::superblock::{COPY_OFFSETS, DATA_OFFSET, SLOTS, Superblock};
use crate::planted;
use crate::units::{BLOCK_SIZE, Uuid};
use std::sync::Arc;

/// What a physical volume says about itself.
#[derive(Clone, Debug)]
pub struct PvLabel {
    pub pv_uuid: Uuid,
    /// None: the physical volume belongs to no group.
    pub group: Option<PvMembership>,
    /// Bytes that a group may use, as written when it was made or resized.
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
    /// The physical volumes that are out.
    pub out: Vec<Uuid>,
    /// The number of the group's history without them. 0: none is out.
    pub lineage: u64,
    /// The label's sequence number: of two stale copies, the higher is the newer.
    pub sequence: u64,
}

/// MB8 (split brain): two physical volumes that each say that the group continues without the other. `says`: each
/// physical volume, with those that it calls out.
pub fn find_split_brain(says: &[(Uuid, &[Uuid])]) -> Option<(Uuid, Uuid)> {
    says.iter().enumerate().find_map(|(n, (pv, out))| {
        let other = says[n + 1..].iter().find(|(other, other_out)| out.contains(other) && other_out.contains(pv));
        other.map(|(other, _)| (*pv, *other)).filter(|_| !planted::is("split_brain_joined"))
    })
}

impl Group {
    /// Reads the label of one disk of a set. `None`: no label there. A damaged label is an error.
    pub async fn read_label(disks: &dyn Disks, pv: PvIndex) -> Result<Option<PvLabel>> {
        let label = read_superblock(disks, pv).await?;
        Ok(label.map(|s| PvLabel {
            pv_uuid: s.pv_uuid,
            size: s.pv_size,
            group: s.group.map(|g| PvMembership {
                group_uuid: g.uuid,
                out: g.out_uuids(),
                lineage: g.lineage,
                group_name: g.name,
                index: s.pv_index,
                extent_blocks: g.extent_blocks,
                members: g.pvs.iter().map(|pv| pv.uuid).collect(),
                sequence: s.sequence,
            }),
        }))
    }

    /// Labels a whole disk as a physical volume of no group.
    pub async fn write_label(disks: &dyn Disks, pv: PvIndex, uuid: Uuid) -> Result<()> {
        Group::write_label_of(disks, pv, uuid, disks.geometry(pv).size).await
    }

    /// The same with this size: a group that it joins uses no more bytes.
    pub async fn write_label_of(disks: &dyn Disks, pv: PvIndex, uuid: Uuid, size: u64) -> Result<()> {
        let disk = disks.geometry(pv).size;
        if size > disk {
            return Err(Error::Invalid(format!("a physical volume on a disk of {disk} bytes cannot have {size}")));
        }
        if size < DATA_OFFSET + (1 << 20) {
            return Err(Error::Invalid(format!("a physical volume of {size} bytes is too small: it needs 2 MiB")));
        }
        erase(disks, pv).await?;
        let label = Superblock { sequence: 1, pv_uuid: uuid, pv_index: 0, pv_size: size, group: None };
        write_superblock(disks, pv, &label).await?;
        start(disks, DiskOp::Flush).await?;
        Ok(())
    }

    /// The label of a physical volume that is about to join a group, in two slots. The group's first superblock
    /// overwrites at most one of them. If a power cut tears it, the other label remains.
    pub(super) async fn write_label_twice(disks: &dyn Disks, pv: PvIndex, uuid: Uuid, size: u64) -> Result<()> {
        Group::write_label_of(disks, pv, uuid, size).await?;
        let label = Superblock { sequence: 2, pv_uuid: uuid, pv_index: 0, pv_size: size, group: None };
        write_superblock(disks, pv, &label).await?;
        start(disks, DiskOp::Flush).await?;
        Ok(())
    }

    /// Erases a label.
    pub async fn wipe_label(disks: &dyn Disks, pv: PvIndex) -> Result<()> {
        erase(disks, pv).await?;
        start(disks, DiskOp::Flush).await?;
        Ok(())
    }
}

/// The bytes of a disk that a group may use: those of its label, if it is a physical volume of no group.
pub(super) async fn usable(disks: &dyn Disks, pv: PvIndex) -> u64 {
    let disk = disks.geometry(pv).size;
    match Group::read_label(disks, pv).await {
        Ok(Some(PvLabel { group: None, size, .. })) => size.min(disk),
        _ => disk,
    }
}

/// Zeroes the area before the first slot and all slots of both copies.
pub(super) async fn erase(disks: &dyn Disks, pv: PvIndex) -> Result<()> {
    let zeros = Arc::new(PageBuf::zeroed(((SLOTS + 1) * BLOCK_SIZE) as usize));
    for offset in [0, COPY_OFFSETS[1]] {
        let len = (SLOTS + 1) * BLOCK_SIZE;
        let segments = one(pv, offset, len as u32);
        start(disks, DiskOp::Write { segments, buf: zeros.clone() }).await?;
    }
    Ok(())
}

fn one(pv: PvIndex, offset: u64, len: u32) -> Segments {
    Segments::from_slice(&[Segment { pv, offset, at: 0, len }])
}

/// Writes a superblock to its slot in both copies. The caller flushes.
///
/// # Errors
/// [`Error::Corrupt`]: it could not be read again (B3). Nothing was written.
pub(super) async fn write_superblock(disks: &dyn Disks, pv: PvIndex, superblock: &Superblock) -> Result<()> {
    let bytes = superblock.encode();
    if !planted::is("unreadable_superblock_written") {
        check_readable(&bytes, pv, superblock.sequence)?;
    }
    let buf = Arc::new(PageBuf::from_slice(&bytes));
    let slot = superblock.sequence % SLOTS * BLOCK_SIZE;
    let mut segments = Segments::new();
    for copy in COPY_OFFSETS {
        segments.push(Segment { pv, offset: copy + slot, at: 0, len: BLOCK_SIZE as u32 });
    }
    let Err(failed) = start(disks, DiskOp::Write { segments, buf }).await else { return Ok(()) };
    // Each copy separately: one is enough (M7).
    let mut written = false;
    for copy in 0..COPY_OFFSETS.len() {
        written |= write_superblock_in(disks, pv, superblock, copy).await.is_ok();
    }
    if written { Ok(()) } else { Err(failed.into()) }
}

/// B3
fn check_readable(bytes: &[u8], pv: PvIndex, sequence: u64) -> Result<()> {
    let place = format!("physical volume {}, not written", pv.0);
    match Superblock::decode(bytes, &place)? {
        Some(read) if read.sequence == sequence => Ok(()),
        _ => Err(Error::Corrupt { what: "superblock", place, detail: "it is not what it should be".into() }),
    }
}

/// Writes one copy of a superblock. The caller flushes.
pub(super) async fn write_superblock_in(disks: &dyn Disks, pv: PvIndex, own: &Superblock, copy: usize) -> Result<()> {
    let buf = Arc::new(PageBuf::from_slice(&own.encode()));
    let segments = one(pv, COPY_OFFSETS[copy] + own.sequence % SLOTS * BLOCK_SIZE, BLOCK_SIZE as u32);
    start(disks, DiskOp::Write { segments, buf }).await?;
    Ok(())
}

/// The newest valid superblock of a physical volume. Damage is an error only if no slot is valid: a torn write of the
/// newest slot leaves its predecessor, which then counts.
pub(super) async fn read_superblock(disks: &dyn Disks, pv: PvIndex) -> Result<Option<Superblock>> {
    Ok(read_superblocks(disks, pv).await?.into_iter().next())
}

/// The slots of one copy, or why they cannot be read.
type Slots = Vec<std::result::Result<PageBuf, DiskError>>;

/// The first byte of each copy, and its slots. If the slots cannot be read together, each is read alone, so that an
/// unreadable sector hides no other slot. If some can be read, the others are retried at the end: the newest superblock
/// must not be missed because a path comes back during the reads.
async fn read_slots(disks: &dyn Disks, pv: PvIndex) -> Vec<(u64, Slots)> {
    let mut copies = Vec::new();
    for copy in COPY_OFFSETS {
        let whole = read(disks, pv, copy, SLOTS * BLOCK_SIZE).await;
        let mut slots = Slots::new();
        for slot in 0..SLOTS {
            let at = slot * BLOCK_SIZE;
            slots.push(match &whole {
                Ok(buf) => Ok(PageBuf::from_slice(&buf.as_slice()[at as usize..][..BLOCK_SIZE as usize])),
                Err(_) => read(disks, pv, copy + at, BLOCK_SIZE).await,
            });
        }
        copies.push((copy, slots));
    }
    let is_there = copies.iter().any(|(_, slots)| slots.iter().any(std::result::Result::is_ok));
    for (copy, slots) in copies.iter_mut().filter(|_| is_there) {
        for (slot, bytes) in (0..).zip(slots) {
            if bytes.is_err() {
                *bytes = read(disks, pv, *copy + slot * BLOCK_SIZE, BLOCK_SIZE).await;
            }
        }
    }
    copies
}

async fn read(disks: &dyn Disks, pv: PvIndex, offset: u64, len: u64) -> std::result::Result<PageBuf, DiskError> {
    let (segments, buf) = (one(pv, offset, len as u32), PageBuf::zeroed(len as usize));
    let read = start(disks, DiskOp::Read { segments, buf }).await?;
    Ok(read.expect("a read gives its buffer back"))
}

/// All valid superblocks of a physical volume, the newest first. Damage is an error only if no slot is valid.
pub(super) async fn read_superblocks(disks: &dyn Disks, pv: PvIndex) -> Result<Vec<Superblock>> {
    let size = disks.geometry(pv).size;
    if size < DATA_OFFSET {
        return Ok(Vec::new());
    }
    let mut valid: Vec<Superblock> = Vec::new();
    let mut damage = None;
    for (copy, slots) in read_slots(disks, pv).await {
        for (slot, bytes) in (0..).zip(slots) {
            let place = format!("physical volume {}, byte {}", pv.0, copy + slot * BLOCK_SIZE);
            let found = bytes.map_err(Error::from).and_then(|bytes| Superblock::decode(bytes.as_slice(), &place));
            match found {
                Ok(Some(found)) if found.sequence % SLOTS == slot => valid.push(found),
                Ok(_) => {}
                Err(error @ Error::Unsupported(_)) => return Err(error),
                Err(error) => damage = damage.or(Some(error)),
            }
        }
    }
    valid.sort_by_key(|found| std::cmp::Reverse(found.sequence));
    if let Some(pair) = valid.windows(2).find(|pair| contradict(&pair[0], &pair[1])) {
        return Err(Error::Corrupt {
            what: "superblock",
            place: format!("physical volume {}", pv.0),
            detail: format!("its two copies of number {} differ", pair[0].sequence),
        });
    }
    match (valid.is_empty(), damage) {
        (true, Some(damage)) => Err(damage),
        _ => Ok(valid),
    }
}

/// Two superblocks of one group and one number are copies of each other. [`clear_torn`] says how they could come to
/// differ.
fn contradict(a: &Superblock, b: &Superblock) -> bool {
    let group = |found: &Superblock| found.group.as_ref().map(|group| group.uuid);
    a.sequence == b.sequence && a != b && group(a) == group(b)
}

/// Zeroes every slot that holds data but no valid superblock: the remains of an interrupted write.
///
/// Superblocks of one sequence number share most of their bytes. If the remains were left, a later torn write of the
/// same slot could complete them. Then the superblock of an unfinished checkpoint would be the newest, although its
/// metadata was overwritten. So this must be done before anything else is written after a power cut.
///
/// `newest`: the number of the group's newest superblock. The slot of the next superblock holds nothing that is needed.
/// It may be unreadable for the same reason.
///
/// A slot that cannot be written keeps its contents (M7: the other copy is enough). If they were completed
/// nevertheless, the two copies of that number would differ, and neither would count.
pub(super) async fn clear_torn(disks: &dyn Disks, pvs: usize, newest: u64) -> Result<()> {
    let mut cleared = false;
    for index in 0..pvs {
        let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
        if disks.is_missing(pv) {
            continue;
        }
        for (copy, slots) in read_slots(disks, pv).await {
            for (slot, bytes) in (0..).zip(slots) {
                let is_torn = match &bytes {
                    Ok(bytes) => {
                        let bytes = bytes.as_slice();
                        let decoded = Superblock::decode(bytes, "");
                        let valid = matches!(decoded, Ok(Some(found)) if found.sequence % SLOTS == slot);
                        !valid && bytes.iter().any(|byte| *byte != 0)
                    }
                    Err(_) => slot == (newest + 1) % SLOTS,
                };
                if is_torn {
                    let zeros = Arc::new(PageBuf::zeroed(BLOCK_SIZE as usize));
                    let segments = one(pv, copy + slot * BLOCK_SIZE, BLOCK_SIZE as u32);
                    cleared |= start(disks, DiskOp::Write { segments, buf: zeros }).await.is_ok();
                }
            }
        }
    }
    if cleared {
        start(disks, DiskOp::Flush).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "label_test.rs"]
mod tests;
