//! A disk's volatile cache: unflushed writes in order, and what a power cut may keep of them.

use super::image::{Bytes, Image};
use crate::rng::Rng;
use rowen_engine::disk::PvIndex;
use rowen_engine::fixed_hash::Map;

/// What power loss leaves of the cache. Every policy is one that a real disk may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Only what was flushed.
    Nothing,
    /// Everything.
    All,
    /// Whole commands, each with an even chance.
    Commands,
    /// Each sector with an even chance: torn writes.
    Sectors,
    /// Only the newest command: the greatest re-ordering.
    Newest,
    /// Any version of each sector.
    Versions,
}

/// All policies, in the order in which an explorer tries them.
pub const POLICIES: [Policy; 6] =
    [Policy::Nothing, Policy::All, Policy::Commands, Policy::Sectors, Policy::Newest, Policy::Versions];

/// A piece of a write that the cache holds.
#[derive(Clone)]
pub(super) struct CachedWrite {
    pub command: u64,
    pub pv: PvIndex,
    pub offset: u64,
    pub len: usize,
    pub bytes: Bytes,
    /// The disk event at which its command was completed. None: still in flight.
    pub completed: Option<u64>,
}

impl CachedWrite {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    fn overlaps(&self, other: &CachedWrite) -> bool {
        self.pv == other.pv && self.offset < other.end() && other.offset < self.end()
    }

    /// The part of this piece in the given range, if there is one.
    pub(super) fn cut(&self, from: u64, to: u64) -> Option<CachedWrite> {
        let (start, end) = (self.offset.max(from), self.end().min(to));
        (start < end).then(|| {
            let bytes = match &self.bytes {
                Bytes::Given(data, at) => Bytes::Given(data.clone(), at + (start - self.offset) as usize),
                Bytes::Fill(value) => Bytes::Fill(*value),
            };
            CachedWrite { offset: start, len: (end - start) as usize, bytes, ..self.clone() }
        })
    }
}

/// The pieces in the caches of a set of disks, in the order in which they were carried out.
#[derive(Clone, Default)]
pub(super) struct Cache {
    held: Vec<CachedWrite>,
}

impl Cache {
    pub fn push(&mut self, piece: CachedWrite) {
        self.held.push(piece);
    }

    /// Marks a command as completed.
    pub fn complete(&mut self, command: u64, event: u64) {
        for piece in self.held.iter_mut().rev().filter(|piece| piece.command == command) {
            piece.completed = Some(event);
        }
    }

    /// No task waits for these commands any more: the next flush covers them.
    pub fn complete_all(&mut self, event: u64) {
        self.held.iter_mut().for_each(|piece| piece.completed = piece.completed.or(Some(event)));
    }

    /// Drops the pieces of a physical volume that was removed.
    pub fn forget(&mut self, pv: PvIndex) {
        self.held.retain(|piece| piece.pv != pv);
    }

    /// Moves to `durable` all pieces that were completed by disk event `until`.
    pub fn flush(&mut self, until: u64, durable: &mut Image) {
        let mut kept: Vec<CachedWrite> = Vec::new();
        for piece in self.held.drain(..) {
            if piece.completed.is_none_or(|at| at > until) {
                kept.push(piece);
                continue;
            }
            durable.apply(piece.pv, piece.offset, piece.len, &piece.bytes);
            // An older piece that is still cached must not overwrite this one later.
            if kept.iter().any(|older| older.overlaps(&piece)) {
                kept = kept.iter().flat_map(|older| remainder(older, &piece)).collect();
            }
        }
        self.held = kept;
    }

    /// Applies to `image` what `policy` keeps of this cache and of `under_way`. These are commands in flight: any part
    /// of them may have been carried out.
    pub fn survive(&self, under_way: &[CachedWrite], policy: Policy, image: &mut Image, rng: &mut Rng) {
        let mut late: Vec<&CachedWrite> = under_way.iter().collect();
        for at in (1..late.len()).rev() {
            late.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let newest = self.held.iter().map(|piece| piece.command).max();
        let mut commands: Map<u64, bool> = Map::default();
        let mut settled: Map<(u16, u64), ()> = Map::default();
        for (piece, in_flight) in self.held.iter().map(|p| (p, false)).chain(late.into_iter().map(|p| (p, true))) {
            match policy {
                Policy::Nothing => {}
                Policy::All if !in_flight => image.apply(piece.pv, piece.offset, piece.len, &piece.bytes),
                Policy::All | Policy::Commands => {
                    if *commands.entry(piece.command).or_insert_with(|| rng.one_in(2)) {
                        image.apply(piece.pv, piece.offset, piece.len, &piece.bytes);
                    }
                }
                Policy::Newest => {
                    if Some(piece.command) == newest || (in_flight && rng.one_in(4)) {
                        image.apply(piece.pv, piece.offset, piece.len, &piece.bytes);
                    }
                }
                Policy::Sectors => each_sector(piece, image, |_, _| rng.one_in(2)),
                Policy::Versions => each_sector(piece, image, |pv, sector| {
                    if settled.contains_key(&(pv, sector)) {
                        return false;
                    }
                    if rng.one_in(3) {
                        settled.insert((pv, sector), ());
                    }
                    true
                }),
            }
        }
    }
}

/// The parts of `older` that `newer` does not cover.
fn remainder(older: &CachedWrite, newer: &CachedWrite) -> Vec<CachedWrite> {
    if !older.overlaps(newer) {
        return vec![older.clone()];
    }
    [older.cut(0, newer.offset), older.cut(newer.end(), u64::MAX)].into_iter().flatten().collect()
}

fn each_sector(piece: &CachedWrite, image: &mut Image, mut keep: impl FnMut(u16, u64) -> bool) {
    let sector = u64::from(image.geometry(piece.pv).sector);
    let mut at = piece.offset;
    while at < piece.end() {
        let end = (at / sector + 1) * sector;
        if keep(piece.pv.0, at / sector)
            && let Some(part) = piece.cut(at, end)
        {
            image.apply(part.pv, part.offset, part.len, &part.bytes);
        }
        at = end;
    }
}
