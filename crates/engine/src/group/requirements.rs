//! What a group cannot do without: MB1, MB9 and MB10 of [`members`](crate::members).

use super::Group;
use super::journal_layout::{is_copy_on, journal_on};
use super::newest_root::find_root;
use super::zones::read_zones;
use crate::disk::{DiskError, DiskOpKind, Disks, PvIndex};
use crate::error::{Error, Result};
use crate::format::superblock::GroupRoot;
use crate::model::PvFlags;
use crate::placement::Placement;
use crate::planted;
use crate::units::{Uuid, VgBlock};

/// ETIMEDOUT: a disk answered nothing.
const TIMED_OUT: i32 = 110;

/// What a group cannot do without (MB1).
pub(super) struct Requirements<'a> {
    pub root: &'a GroupRoot,
    pub placement: &'a Placement,
    pub out: PvFlags,
}

impl Requirements<'_> {
    fn error(&self, pvs: impl Iterator<Item = usize>, what: &str) -> Error {
        let uuids: Vec<String> = pvs.filter_map(|pv| Some(self.root.pvs.get(pv)?.uuid.to_string())).collect();
        Error::MissingPv(format!(
            "volume group {} cannot be opened without physical volume {}: {what}; attach its disk",
            self.root.name,
            uuids.join(", ")
        ))
    }

    pub fn check_journal(&self) -> Result<()> {
        match self.lacking_journal() {
            None => Ok(()),
            Some((pvs, what)) => Err(self.error(pvs.into_iter(), what)),
        }
    }

    /// The physical volumes that are out and without which there is no journal, and why.
    fn lacking_journal(&self) -> Option<(Vec<usize>, &'static str)> {
        let is_missing =
            |start: u64| self.out.iter().any(|pv| is_copy_on(self.root, self.placement, start, PvIndex(pv as u16)));
        let copies: Vec<u64> = self.root.whole_journals().collect();
        if copies.iter().any(|start| !is_missing(*start)) || planted::is("journal_not_needed") {
            return None;
        }
        let on = |pv: &usize| !journal_on(self.root, self.placement, PvIndex(*pv as u16)).is_empty();
        let what = match copies.len() {
            1 => "the only complete copy of the journal is on it",
            _ => "all copies of the journal are there",
        };
        Some((self.out.iter().filter(on).collect(), what))
    }

    /// The stream could not be read.
    pub fn metadata_error(&self, error: Error) -> Error {
        match error {
            Error::Disk(_) if !self.out.is_empty() => {
                self.error(self.out.iter(), "both copies of some metadata are there")
            }
            error => error,
        }
    }

    /// `pairs` and `lengths`: as the stream has them.
    pub fn check_pairs(&self, pairs: &[[u64; 2]], lengths: &[u64]) -> Result<()> {
        let length = |n: usize| lengths.get(n).copied().unwrap_or(self.root.extent_blocks);
        let is_missing = |start: u64, blocks: u64| {
            let ends = [start, start.saturating_add(blocks).saturating_sub(1)];
            let there = ends.into_iter().filter(|end| self.placement.holds(*end, 1));
            there.map(|end| self.placement.pv_of(VgBlock(end)).0).any(|pv| self.out.has(usize::from(pv.0)))
        };
        let is_gone = |(n, pair): (usize, &[u64; 2])| pair.iter().all(|start| is_missing(*start, length(n)));
        match !self.out.is_empty() && pairs.iter().enumerate().any(is_gone) {
            true => Err(self.error(self.out.iter(), "both copies of some metadata are there")),
            false => Ok(()),
        }
    }
}

impl Group {
    /// Without which of the missing physical volumes this group cannot be opened ([`Group::open_without`]), as far as superblocks
    /// and tables say, and why. None: they say nothing against it. A disk of size 0 stands for each missing one. Nothing is written.
    pub async fn needs_missing(disks: &dyn Disks) -> Result<Option<(Vec<Uuid>, &'static str)>> {
        let mut root = find_root(disks, false, Some(1)).await?.group;
        read_zones(disks, &mut root).await?;
        let (placement, out) = (Placement::of(&root), PvFlags(root.out()));
        let lacking = Requirements { root: &root, placement: &placement, out }.lacking_journal();
        let uuids = |pvs: Vec<usize>| pvs.into_iter().filter_map(|pv| Some(root.pvs.get(pv)?.uuid)).collect();
        Ok(lacking.map(|(pvs, why)| (uuids(pvs), why)))
    }

    /// A disk answers nothing for too long (MB10): the group stops for the next opening, which leaves it out. False: the
    /// group needs it, and nothing changes.
    pub fn leave_hung(&self, pv: PvIndex) -> bool {
        if !self.core.config.leaves_failed_disks || !self.is_whole_without(pv) || self.core.journal.failed().is_err() {
            return false;
        }
        let error = DiskError { op: DiskOpKind::Flush, pv, offset: 0, errno: TIMED_OUT };
        if !planted::is("hung_goes_on") {
            self.core.journal.stop(Error::DiskLost(error));
        }
        true
    }

    /// Whether the other physical volumes, without those that are out, have everything that the group needs (MB9).
    pub(super) fn is_whole_without(&self, pv: PvIndex) -> bool {
        let mut out = self.core.members.out();
        out.set(usize::from(pv.0), true);
        let pairs = self.core.meta.lock().recorded_pairs();
        let (newest, durable) = {
            let root = self.root.lock();
            ((root.written.clone(), pairs), root.durable.clone())
        };
        let placement = self.core.placement();
        let is_any_left = (0..newest.0.pvs.len()).any(|pv| !out.has(pv));
        // The others may have either.
        let is_whole = [newest, (durable.group, durable.pairs)].iter().all(|(root, (pairs, lengths))| {
            let requirements = Requirements { root, placement: &placement, out };
            requirements.check_journal().is_ok() && requirements.check_pairs(pairs, lengths).is_ok()
        });
        planted::is("needed_disk_left_out") || is_any_left && is_whole
    }
}
