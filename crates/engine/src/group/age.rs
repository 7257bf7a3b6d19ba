//! The newest superblock of a group, and proof that its physical volumes belong together and are of one age.
//!
//! * B2 A physical volume whose newest superblock is more than one number behind the group's is refused: it was restored from an
//!   older copy, and its data is old. A group writes a superblock to all of its physical volumes and flushes them before it
//!   writes the next one; an opening completes the round that was cut before it begins another. So a power cut leaves a physical
//!   volume one number behind, never two. An opening writes two numbers before it lets any write in, so a copy that was made
//!   while the group was closed is always two behind after it.

use super::label::{read_superblocks, write_superblock};
use crate::disk::{DiskOp, Disks, PvIndex, start};
use crate::error::{Error, Result};
use crate::format::superblock::{GroupRoot, Superblock};

/// The newest superblock of a group.
pub(super) struct Newest {
    pub sequence: u64,
    pub group: GroupRoot,
    /// Physical volumes that do not have it: its round was cut.
    behind: Vec<PvIndex>,
}

impl Newest {
    /// Writes it where it is missing and makes it durable, so that the next one finds none two numbers behind (B2).
    pub async fn complete(self, disks: &dyn Disks) -> Result<()> {
        for pv in &self.behind {
            let entry = &self.group.pvs[usize::from(pv.0)];
            let (pv_uuid, pv_size, group) = (entry.uuid, entry.size, Some(self.group.clone()));
            let superblock = Superblock { sequence: self.sequence, pv_uuid, pv_index: pv.0, pv_size, group };
            write_superblock(disks, *pv, &superblock).await?;
        }
        if !self.behind.is_empty() {
            start(disks, DiskOp::Flush).await?;
        }
        Ok(())
    }
}

/// The newest superblock of all physical volumes. `any_age`: B2 is not asked.
pub(super) async fn find_root(disks: &dyn Disks, any_age: bool) -> Result<Newest> {
    let mut all = Vec::new();
    for i in 0..disks.count() {
        let pv = PvIndex(u16::try_from(i).map_err(|_| Error::Invalid("too many disks".into()))?);
        let superblocks = read_superblocks(disks, pv).await?;
        if superblocks.is_empty() {
            return Err(Error::NotFound(format!("a physical volume label on disk {i}")));
        }
        all.push(superblocks);
    }
    let newest = all.iter().map(|superblocks| &superblocks[0]).filter_map(|s| Some((s.sequence, s.group.as_ref()?)));
    let (sequence, group) = newest
        .max_by_key(|(sequence, _)| *sequence)
        .ok_or_else(|| Error::NotFound("a volume group on these disks".into()))?;
    are_there(disks, group, &all)?;
    if !any_age {
        are_of_one_age(sequence, group, &all)?;
    }
    let is_behind = |superblocks: &[Superblock]| superblocks[0].group.is_none() || superblocks[0].sequence < sequence;
    let pvs = (0..).map(PvIndex).zip(&all);
    let behind = pvs.filter(|(_, superblocks)| is_behind(superblocks)).map(|(pv, _)| pv).collect();
    Ok(Newest { sequence, group: group.clone(), behind })
}

/// Whether these disks are the group's physical volumes, in order and large enough.
fn are_there(disks: &dyn Disks, group: &GroupRoot, all: &[Vec<Superblock>]) -> Result<()> {
    let found: Vec<_> = all.iter().map(|superblocks| superblocks[0].pv_uuid).collect();
    for (i, pv) in group.pvs.iter().enumerate() {
        match found.get(i) {
            Some(uuid) if *uuid == pv.uuid => {}
            _ if found.contains(&pv.uuid) => {
                return Err(Error::Invalid(format!("physical volume {} was given at the wrong place", pv.uuid)));
            }
            _ => {
                return Err(Error::MissingPv(format!(
                    "volume group {} misses its physical volume {} ({} of {})",
                    group.name,
                    pv.uuid,
                    i + 1,
                    group.pvs.len()
                )));
            }
        }
        let size = disks.geometry(PvIndex(i as u16)).size;
        if size < pv.size {
            return Err(Error::Invalid(format!(
                "physical volume {} shrank: it has {size} bytes, the volume group uses {}; make its device as large again",
                pv.uuid, pv.size
            )));
        }
    }
    if found.len() > group.pvs.len() {
        return Err(Error::Invalid(format!(
            "{} disks were given for {} physical volumes",
            found.len(),
            group.pvs.len()
        )));
    }
    Ok(())
}

/// B2. A physical volume that joined with the newest superblock need not have one of the group's yet.
fn are_of_one_age(sequence: u64, group: &GroupRoot, all: &[Vec<Superblock>]) -> Result<()> {
    let oldest = sequence.saturating_sub(1);
    let before = all.iter().flatten().filter(|s| s.sequence == oldest).find_map(|s| s.group.as_ref());
    for (i, (pv, superblocks)) in group.pvs.iter().zip(all).enumerate() {
        let newest = &superblocks[0];
        let has = newest.group.as_ref().map_or(0, |_| newest.sequence);
        let joined = before.is_some_and(|before| before.pvs.iter().all(|known| known.uuid != pv.uuid));
        if has < oldest && !joined {
            let what = match has {
                0 => "is from before it joined the group".to_string(),
                has => format!("has superblock {has}, the group is at {sequence}"),
            };
            return Err(Error::MissingPv(format!(
                "volume group {}: physical volume {} ({} of {}) is an older copy: it {what}; attach its newest copy, \
                 or restore all physical volumes from copies of one moment",
                group.name,
                pv.uuid,
                i + 1,
                group.pvs.len()
            )));
        }
    }
    Ok(())
}
