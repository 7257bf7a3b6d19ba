//! The table of zones ([`format::zones`](crate::format::zones)) on the physical volumes: read when a group is opened, and written
//! before the superblock that names it.

use super::Group;
use super::backing::label_area;
use crate::disk::{DiskOp, Disks, PageBuf, PvIndex, Segment, Segments, start};
use crate::error::{Error, Result};
use crate::format::superblock::{GroupRoot, PvEntry};
use crate::format::zones::{Zone, ZoneTable};
use crate::placement::Placement;
use crate::units::{BLOCK_SIZE, Uuid};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a root's table takes on a physical volume.
fn slot(root: &GroupRoot, pv: PvIndex) -> Segments {
    let len = u32::try_from(root.zones.bytes()).expect("a slot has 192 KiB");
    Segments::from_slice(&[Segment { pv, offset: root.zones.offset(), at: 0, len }])
}

/// The zones of the root's table, by the bytes of its slot. `place`: for errors.
fn zones_of(root: &GroupRoot, bytes: &[u8], place: &str) -> Result<Vec<Zone>> {
    let zones = root.zones.decode(bytes, root.tag(), place)?;
    let detail = "its zones do not go with the superblock";
    let corrupt = || Error::Corrupt { what: "table of zones", place: place.into(), detail: detail.into() };
    Placement::checked(root, &zones).map(|_| zones).ok_or_else(corrupt)
}

/// Reads the table that the root names, from whoever has it. Returns who has.
///
/// # Errors
/// [`Error::Corrupt`]: nobody has it.
pub(super) async fn read_zones(disks: &dyn Disks, root: &mut GroupRoot) -> Result<BTreeSet<Uuid>> {
    let mut have = BTreeSet::new();
    if root.zones.is_empty() {
        return Ok(have);
    }
    let mut wrong = None;
    for (index, uuid) in root.pvs.iter().map(|pv| pv.uuid).collect::<Vec<_>>().into_iter().enumerate() {
        let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
        if disks.is_missing(pv) || root.left.contains_key(&pv.0) {
            continue;
        }
        let place = format!("physical volume {index}, byte {}", root.zones.offset());
        let buf = PageBuf::zeroed(root.zones.bytes() as usize);
        let read = start(disks, DiskOp::Read { segments: slot(root, pv), buf }).await;
        let read = read.map_err(Error::from).map(|buf| buf.expect("a read gives its buffer back"));
        match read.and_then(|bytes| zones_of(root, bytes.as_slice(), &place)) {
            Ok(zones) => {
                root.zones.zones = zones;
                have.insert(uuid);
            }
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    match wrong {
        Some(wrong) if have.is_empty() => Err(wrong),
        _ => Ok(have),
    }
}

impl Group {
    /// The table with these zones: the root's own, if they are the same. Nobody has another one.
    pub(super) fn next_zones(&self, root: &GroupRoot, zones: Vec<Zone>) -> ZoneTable {
        if root.zones.zones == zones {
            return root.zones.clone();
        }
        let next = root.zones.next(zones, root.tag());
        debug_assert!(root.zones.is_empty() || next.offset() != root.zones.offset(), "Z5");
        next
    }

    /// Sees to it that all physical volumes have the table that this root names, durably.
    pub(super) async fn write_zones(&self, root: &GroupRoot) -> Result<()> {
        if root.zones.is_empty() {
            return Ok(());
        }
        {
            let mut on = self.zones_on.lock();
            if on.0 != root.zones.serial {
                *on = (root.zones.serial, BTreeSet::new());
            }
        }
        let disks = self.core.placement();
        let bytes = Arc::new(PageBuf::from_slice(&root.zones.encode(root.tag())));
        debug_assert_eq!(bytes.capacity() as u64 % BLOCK_SIZE, 0, "whole blocks");
        let mut written = Vec::new();
        for entry in &root.pvs {
            let Some(index) = disks.pvs.iter().position(|own| own.uuid == entry.uuid) else { continue };
            let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
            if self.core.disks.is_missing(pv) || self.zones_on.lock().1.contains(&entry.uuid) {
                continue;
            }
            self.write_table(root, pv, &bytes).await?;
            written.push(entry.uuid);
        }
        if written.is_empty() {
            return Ok(());
        }
        start(&*self.core.disks, DiskOp::Flush).await?;
        self.zones_on.lock().1.extend(written);
        Ok(())
    }

    /// The physical volumes that are there, by their place, and do not have the table that the root names.
    pub(super) fn without_zones(&self, root: &GroupRoot) -> Vec<usize> {
        let on = self.zones_on.lock();
        let lacks = |(index, entry): &(usize, &PvEntry)| {
            let pv = PvIndex(u16::try_from(*index).expect("at most 64 physical volumes"));
            !root.zones.is_empty() && !self.core.disks.is_missing(pv) && !on.1.contains(&entry.uuid)
        };
        root.pvs.iter().enumerate().filter(lacks).map(|(index, _)| index).collect()
    }

    async fn write_table(&self, root: &GroupRoot, pv: PvIndex, bytes: &Arc<PageBuf>) -> Result<()> {
        let waiting = self.core.backing.wait();
        loop {
            let write = DiskOp::Write { segments: slot(root, pv), buf: bytes.clone() };
            match start(&*self.core.disks, write).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_no_room() => {
                    self.core.pause_for_room(&waiting, error, &label_area(pv)).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
