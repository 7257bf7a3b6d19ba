//! A group's report with the places of its volumes' blocks. Only reports that show the places request them.

use crate::roles::{is_move, is_origin};
use rowen_control::protocol::{GroupReport, PvReport, VolumePlaces, VolumeReport};
use std::collections::{BTreeMap, BTreeSet};

/// Where a volume's blocks are on one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The index of the physical volume in the group.
    pub pv: usize,
    /// The extent with the first of the volume's blocks there.
    pub first_extent: u64,
    pub extents: u64,
    /// Of mirrored blocks: the physical volume of the other copy, and the extent with the first block there.
    pub second: Option<(usize, u64)>,
}

impl Share {
    /// Each copy as a place of its own.
    pub fn copies(self) -> impl Iterator<Item = Share> {
        let second = self.second.map(|(pv, first_extent)| Share { pv, first_extent, second: None, ..self });
        std::iter::once(Share { second: None, ..self }).chain(second)
    }
}

/// What uses extents of a physical volume.
#[derive(Clone, Copy, Debug)]
pub enum Occupant<'a> {
    Volume(&'a VolumeReport),
    /// A volume that is being received, which no report shows.
    Hidden,
    Nobody,
}

/// A group, and the places of its volumes if they were requested.
#[derive(Debug)]
pub struct Indexed<'a> {
    pub report: &'a GroupReport,
    /// The snapshots that wait for their merge.
    waiting: BTreeSet<&'a str>,
    shares: BTreeMap<&'a str, Vec<Share>>,
}

impl<'a> Indexed<'a> {
    pub fn new(report: &'a GroupReport) -> Indexed<'a> {
        let waiting = report.volumes.iter().filter(|volume| volume.is_waiting_to_merge());
        Indexed { report, waiting: waiting.map(|volume| volume.name.as_str()).collect(), shares: BTreeMap::new() }
    }

    pub fn volume(&self, name: &str) -> Option<&'a VolumeReport> {
        self.report.volume(name)
    }

    pub fn is_waiting_to_merge(&self, name: &str) -> bool {
        !self.waiting.is_empty() && self.waiting.contains(name)
    }

    /// The snapshots of a volume, of whatever kind.
    pub fn snapshots(&self, origin: &str) -> impl Iterator<Item = &'a VolumeReport> {
        self.report.snapshots_of(origin)
    }

    /// The volumes of a pool.
    pub fn members(&self, pool: &str) -> impl Iterator<Item = &'a VolumeReport> {
        self.report.members_of(pool)
    }

    /// Whether the volume has snapshots that LVM would show as copy-on-write.
    pub fn is_origin(&self, name: &str) -> bool {
        is_origin(self.report, name)
    }

    /// Adds the places of the volumes' blocks.
    pub fn place(&mut self, places: &'a [VolumePlaces]) {
        for volume in places {
            let shares = volume.shares.iter().map(|share| Share {
                pv: usize::from(share.pv),
                first_extent: share.first_extent,
                extents: share.extents,
                second: share.second.map(|(pv, extent)| (usize::from(pv), extent)),
            });
            self.shares.insert(&volume.name, shares.collect());
        }
        // A volume without blocks gets the group's first physical volume, because programs ignore a volume that is on
        // no device.
        for volume in self.report.volumes.iter().filter(|_| !places.is_empty() && !self.report.pvs.is_empty()) {
            let shares = self.shares.entry(&volume.name).or_default();
            if shares.is_empty() {
                // An extent that is being moved counts as being at its old place.
                let from = self.report.moving.as_deref().filter(|_| is_move(volume)).map(|moving| &moving.path);
                let pv = from.and_then(|from| self.report.pvs.iter().position(|pv| pv.path == *from));
                shares.push(Share { pv: pv.unwrap_or(0), first_extent: 0, extents: 0, second: None });
            }
        }
    }

    /// Where the volume's blocks are, by physical volume.
    pub fn shares(&self, name: &str) -> &[Share] {
        self.shares.get(name).map_or(&[], Vec::as_slice)
    }

    /// The users of a physical volume's extents, in the order of extents. Unused extents come last.
    pub fn pieces(&self, pv: &PvReport) -> Vec<(Share, Occupant<'a>)> {
        let at = self.report.pvs.iter().position(|member| member.uuid == pv.uuid);
        let mut pieces: Vec<(Share, Occupant<'a>)> = Vec::new();
        for (name, shares) in &self.shares {
            let copies = shares.iter().flat_map(|share| share.copies());
            let here = copies.filter(|share| Some(share.pv) == at && share.extents > 0);
            let occupant = self.volume(name).map_or(Occupant::Hidden, Occupant::Volume);
            pieces.extend(here.map(|share| (share, occupant)));
        }
        pieces.sort_by_key(|(share, _)| (share.first_extent, share.extents));
        if pv.free_extents > 0 || pieces.is_empty() {
            let first_extent = pv.extents.saturating_sub(pv.free_extents);
            pieces.push((
                Share { pv: at.unwrap_or(0), first_extent, extents: pv.free_extents, second: None },
                Occupant::Nobody,
            ));
        }
        pieces
    }
}
