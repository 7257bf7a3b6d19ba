//! The table of zones ([`format::zones`](crate::format::zones)) on the physical volumes: read when a group is opened, and written
//! before the superblock that names it.

use super::Group;
use crate::disk::{DiskOp, Disks, PageBuf, PvIndex, Segment, Segments, start};
use crate::error::{Error, Result};
use crate::format::superblock::GroupRoot;
use crate::format::zones::Zone;
use crate::placement::Placement;
use crate::units::Uuid;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The place of a root's table on a physical volume.
fn slot(root: &GroupRoot, pv: PvIndex) -> Segments {
    let len = u32::try_from(root.zones.bytes()).expect("a slot has 192 KiB");
    Segments::from_slice(&[Segment { pv, offset: root.zones.offset(), at: 0, len }])
}

/// The zones of the root's table, from the bytes of its slot. `place`: for errors.
fn zones_of(root: &GroupRoot, bytes: &[u8], place: &str) -> Result<Vec<Zone>> {
    let zones = root.zones.decode(bytes, root.tag(), place)?;
    let detail = "its zones do not go with the superblock";
    let corrupt = || Error::Corrupt { what: "table of zones", place: place.into(), detail: detail.into() };
    Placement::checked(root, &zones).map(|_| zones).ok_or_else(corrupt)
}

/// Reads the table that the root names, from any physical volume that has it. Returns which have it.
///
/// # Errors
/// [`Error::Corrupt`]: no physical volume has it.
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
    /// Makes sure that all physical volumes have the table that this root names, durably.
    pub(super) async fn write_zones(&self, root: &GroupRoot) -> Result<()> {
        let lacking = self.without_zones(root);
        if lacking.is_empty() {
            return Ok(());
        }
        let buf = Arc::new(PageBuf::from_slice(&root.zones.encode(root.tag())));
        for (pv, _) in &lacking {
            let segments = slot(root, *pv);
            match start(&*self.core.disks, DiskOp::Write { segments: segments.clone(), buf: buf.clone() }).await {
                Err(error) if error.is_no_room() => {
                    self.core.write_when_there_is_room(error, segments, buf.clone()).await?;
                }
                outcome => drop(outcome?),
            }
        }
        start(&*self.core.disks, DiskOp::Flush).await?;
        let mut on = self.zones_on.lock();
        if on.0 != root.zones.serial {
            *on = (root.zones.serial, BTreeSet::new());
        }
        on.1.extend(lacking.into_iter().map(|(_, uuid)| uuid));
        Ok(())
    }

    /// The present physical volumes of the root that do not have the table that the root names, with their disks.
    pub(super) fn without_zones(&self, root: &GroupRoot) -> Vec<(PvIndex, Uuid)> {
        if root.zones.is_empty() {
            return Vec::new();
        }
        let (disks, on) = (self.core.placement(), self.zones_on.lock());
        let has = |uuid: &Uuid| on.0 == root.zones.serial && on.1.contains(uuid);
        let lacking = root.pvs.iter().map(|entry| entry.uuid).filter(|uuid| !has(uuid));
        let disk_of = |uuid: Uuid| {
            // If the table lacks one physical volume, the disks are still the old ones.
            let index = disks.pvs.iter().position(|own| own.uuid == uuid)?;
            let pv = PvIndex(u16::try_from(index).expect("at most 64 physical volumes"));
            (!self.core.disks.is_missing(pv)).then_some((pv, uuid))
        };
        lacking.filter_map(disk_of).collect()
    }
}
