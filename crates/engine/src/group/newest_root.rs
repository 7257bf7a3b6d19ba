//! The newest superblock of a group, and proof that its physical volumes belong together and are of one age.
//!
//! * B2 A physical volume whose newest superblock is more than one number behind the group's is refused: it was
//!   restored from an older copy, and its data is old. A group writes a superblock to all of its physical volumes and
//!   flushes them before it writes the next one. An opening completes an interrupted round before it begins another. So
//!   a power cut leaves a physical volume one number behind, never two. An opening writes two superblocks before the
//!   first write, and a clean end two after the last. So a copy that was made while the group was closed, or open before
//!   a clean end, is always two behind afterwards.
//! * B3 A superblock is written only if it can be read. Otherwise the group stops: the disks have the one before, and the
//!   journal everything that came after it. Four that cannot be read would leave nothing to open.

use super::label::{find_split_brain, read_superblocks, write_superblock};
use crate::disk::{DiskOp, Disks, PvIndex, start};
use crate::error::{Error, Result};
use crate::format::superblock::{GroupRoot, Left, Superblock};
use crate::planted;
use crate::units::Uuid;

/// The newest superblock of a group.
pub(super) struct Newest {
    pub sequence: u64,
    /// With the physical volumes that are out from now on.
    pub group: GroupRoot,
    /// As it is on the disks.
    written: GroupRoot,
    /// Physical volumes that do not have it: its round was interrupted.
    behind: Vec<PvIndex>,
}

impl Newest {
    /// Writes it where it is missing and makes it durable, so that the next one finds none two numbers behind (B2).
    pub async fn complete(self, disks: &dyn Disks) -> Result<()> {
        for pv in &self.behind {
            let entry = &self.written.pvs[usize::from(pv.0)];
            let (pv_uuid, pv_size, group) = (entry.uuid, entry.size, Some(self.written.clone()));
            let superblock = Superblock { sequence: self.sequence, pv_uuid, pv_index: pv.0, pv_size, group };
            write_superblock(disks, *pv, &superblock).await?;
        }
        if !self.behind.is_empty() {
            start(disks, DiskOp::Flush).await?;
        }
        Ok(())
    }
}

/// The newest superblock of all physical volumes that count. `stale_pv_accepted`: B2 is not checked. `without`: missing physical
/// volumes are out from now on, and this is the lineage number (MB1).
pub(super) async fn find_root(disks: &dyn Disks, accept_stale_pvs: bool, without: Option<u64>) -> Result<Newest> {
    let mut all = Vec::new();
    for i in 0..disks.count() {
        let pv = PvIndex(u16::try_from(i).map_err(|_| Error::Invalid("too many disks".into()))?);
        if disks.is_missing(pv) {
            all.push(Vec::new());
            continue;
        }
        let superblocks = read_superblocks(disks, pv).await?;
        if superblocks.is_empty() {
            return Err(Error::NotFound(format!("a physical volume label on disk {i}")));
        }
        all.push(superblocks);
    }
    let newest = all.iter().filter_map(|superblocks| superblocks.first());
    let newest = newest.filter_map(|s| Some((s.sequence, s.group.as_ref()?)));
    let (sequence, group) = newest
        .max_by_key(|(sequence, _)| *sequence)
        .ok_or_else(|| Error::NotFound("a volume group on these disks".into()))?;
    check_one_history(sequence, group, &all)?;
    check_split_brain(group, &all)?;
    let mut group = group.clone();
    check_pvs_present(disks, &group, &all, without.is_some())?;
    // MB4: a physical volume that is out does not count, whatever its superblock says.
    let lost: Vec<u16> = (0..).zip(&all).filter(|(_, superblocks)| superblocks.is_empty()).map(|(pv, _)| pv).collect();
    for (_, superblocks) in (0..).zip(&mut all).filter(|(pv, _)| group.left.contains_key(pv)) {
        superblocks.clear();
    }
    if !accept_stale_pvs {
        check_same_age(sequence, &group, &all)?;
    }
    let is_behind = |s: &Superblock| s.group.is_none() || s.sequence < sequence;
    let pvs = (0..).map(PvIndex).zip(&all).filter_map(|(pv, superblocks)| Some((pv, superblocks.first()?)));
    let behind = pvs.filter(|(_, newest)| is_behind(newest)).map(|(pv, _)| pv).collect();
    let written = group.clone();
    let newly: Vec<u16> = lost.into_iter().filter(|pv| !group.left.contains_key(pv)).collect();
    if let Some(lineage) = without.filter(|_| !newly.is_empty()) {
        let left = marks_of(sequence, &group, &all);
        group.left.extend(newly.into_iter().map(|pv| (pv, left)));
        group.lineage = lineage.max(1);
        group.features |= group.own_features();
    }
    Ok(Newest { sequence, group, written, behind })
}

/// The state of a physical volume that leaves a group with this newest superblock.
fn marks_of(sequence: u64, group: &GroupRoot, all: &[Vec<Superblock>]) -> Left {
    let newest = Superblock::mark(sequence, group);
    let before = all.iter().flatten().filter(|s| s.sequence + 1 == sequence).find_map(|s| s.group.as_ref());
    let before = before.map_or(newest, |before| Superblock::mark(sequence - 1, before));
    Left { newest, before }
}

/// Whether a physical volume that was out is in the state in which it left (MB5), or its return was interrupted.
///
/// It may have one more superblock, whose round was interrupted before the others got it. Nothing else was written
/// after that.
pub(super) fn may_return(group: &GroupRoot, pv: PvIndex, superblocks: &[Superblock]) -> bool {
    let Some(left) = group.left.get(&pv.0) else { return false };
    let own = |s: &Superblock| s.group.clone().filter(|own| own.uuid == group.uuid);
    let mark = |s: &Superblock| own(s).map(|own| Superblock::mark(s.sequence, &own));
    let Some(newest) = superblocks.first() else { return false };
    let Some(root) = own(newest) else { return false };
    let is_left = mark(newest).is_some_and(|mark| [left.newest, left.before].contains(&mark));
    let was_ahead = superblocks
        .iter()
        .skip(1)
        .find(|s| s.sequence < newest.sequence)
        .is_some_and(|s| s.sequence + 1 == newest.sequence && mark(s) == Some(left.newest));
    let was_returning = root.lineage == group.lineage && root.left.get(&pv.0) == Some(left);
    is_left || was_ahead || was_returning || planted::is("changed_pv_returns")
}

/// MB6
fn check_one_history(sequence: u64, group: &GroupRoot, all: &[Vec<Superblock>]) -> Result<()> {
    let same = all.iter().flatten().filter(|s| s.sequence == sequence).filter_map(|s| s.group.as_ref());
    match same.filter(|own| own.uuid == group.uuid).any(|own| own != group) && !planted::is("diverged_pvs_joined") {
        true => Err(Error::MissingPv(format!(
            "volume group {}: its physical volumes went on without each other: superblock {sequence} of one is not that of \
             another; attach the disks of one history only",
            group.name
        ))),
        false => Ok(()),
    }
}

/// MB8: no two physical volumes each say that the group continues without the other.
fn check_split_brain(group: &GroupRoot, all: &[Vec<Superblock>]) -> Result<()> {
    let newest = all.iter().filter_map(|superblocks| superblocks.first());
    let own =
        newest.filter_map(|s| Some((s.pv_uuid, s.group.as_ref().filter(|own| own.uuid == group.uuid)?.out_uuids())));
    let own: Vec<(Uuid, Vec<Uuid>)> = own.collect();
    let says: Vec<(Uuid, &[Uuid])> = own.iter().map(|(pv, out)| (*pv, out.as_slice())).collect();
    match find_split_brain(&says) {
        None => Ok(()),
        Some((pv, other)) => Err(Error::MissingPv(format!(
            "volume group {}: physical volumes {pv} and {other} went on without each other, and no program can join what \
             was written to each; attach the disks of one history only, and give the others up with pvremove -ff",
            group.name
        ))),
    }
}

/// Whether these disks are the group's physical volumes, in order and large enough.
fn check_pvs_present(disks: &dyn Disks, group: &GroupRoot, all: &[Vec<Superblock>], may_miss: bool) -> Result<()> {
    let found: Vec<_> = all.iter().map(|superblocks| superblocks.first().map(|s| s.pv_uuid)).collect();
    for (i, pv) in group.pvs.iter().enumerate() {
        let is_out = group.left.contains_key(&(i as u16));
        match found.get(i) {
            Some(Some(uuid)) if *uuid == pv.uuid => {}
            Some(None) if is_out || may_miss => continue,
            _ if found.contains(&Some(pv.uuid)) => {
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
        if size < pv.size && !is_out {
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
fn check_same_age(sequence: u64, group: &GroupRoot, all: &[Vec<Superblock>]) -> Result<()> {
    let oldest = sequence.saturating_sub(1);
    let before = all.iter().flatten().filter(|s| s.sequence == oldest).find_map(|s| s.group.as_ref());
    for (i, (pv, superblocks)) in group.pvs.iter().zip(all).enumerate() {
        let Some(newest) = superblocks.first() else { continue };
        let has = newest.group.as_ref().map_or(0, |_| newest.sequence);
        let joined = before.is_some_and(|before| before.pvs.iter().all(|known| known.uuid != pv.uuid));
        if has < oldest && !joined {
            let what = match has {
                0 => "is from before it joined the group".to_string(),
                has => format!("has superblock {has}, the group is at {sequence}"),
            };
            return Err(Error::MissingPv(format!(
                "volume group {}: physical volume {} ({} of {}) is an older copy: it {what}; attach its newest copy, \
                 or restore all physical volumes from copies of one moment; or detach it, and open the group without it: vgchange -ay \
                 --activationmode degraded",
                group.name,
                pv.uuid,
                i + 1,
                group.pvs.len()
            )));
        }
    }
    Ok(())
}
