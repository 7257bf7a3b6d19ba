//! Arenas as a checkpoint keeps them, and as recovery and `check` see them.

use super::arena::Arena;
use super::{AllocContext, Run, Space};
use crate::map::{self, MapError};
use crate::model::ArenaMeta;
use std::collections::BTreeMap;
use std::ops::Range;

impl Space {
    /// Marks blocks as used that recovery found in the journal, in the free tree or in an arena. Blocks that are used
    /// already (the record was carried out in part before the checkpoint) stay so. They are also taken out of the runs
    /// that the checkpoint freed.
    pub fn mark_used(&mut self, context: AllocContext<'_>, (start, len): Run) -> Result<(), MapError> {
        self.take_from_committing((start, len));
        let mut at = start;
        while at < start + len {
            if let Some((base, arena)) = self.arena_of(at) {
                let end = (start + len).min(base + arena.len);
                let mut taken = 0;
                for i in at - base..end - base {
                    if !arena.is_used(i) {
                        arena.set(i);
                        taken += 1;
                    }
                }
                at = end;
                self.count_unused(base, -taken);
                continue;
            }
            let next_arena = self.arenas.range(at..).next().map_or(u64::MAX, |(base, _)| *base);
            let end = (start + len).min(next_arena);
            let mut found = map::Extents::new();
            map::lookup(context.cache, &self.free_tree, at, end, &mut found)?;
            for e in found {
                self.take_run(context, (e.key, u64::from(e.len)))?;
            }
            at = end;
        }
        Ok(())
    }

    /// Opens an arena that a checkpoint kept. False: it overlaps another.
    pub fn restore_arena(&mut self, start: u64, len: u64, used: &[u8; 128]) -> bool {
        let mut words = [0u64; 16];
        for (i, byte) in used.iter().enumerate() {
            words[i / 8] |= u64::from(*byte) << (i % 8 * 8);
        }
        let unused = (0..len).filter(|i| words[(i / 64) as usize] >> (i % 64) & 1 == 0).count() as u64;
        let overlaps = self.arena_of(start).is_some() || self.arenas.range(start..start + len).next().is_some();
        let serial = self.serial();
        self.arenas.insert(start, Arena { serial, len, used: words, unused, cursor: len });
        self.arena_order.push_back(start);
        self.count_unused(start, unused as i64);
        self.update_load();
        !overlaps
    }

    /// Arenas as a checkpoint stores them. Blocks in `in_flight` (allocated, but in no finished record) count as
    /// unused. The second list has those whose arena is gone: recovery counts them as free.
    pub fn arenas(&self, in_flight: &[Run]) -> (Vec<ArenaMeta>, Vec<Run>) {
        let mut kept: BTreeMap<u64, (u64, [u64; 16])> =
            self.arenas.iter().map(|(base, arena)| (*base, (arena.len, arena.used))).collect();
        let mut loose = Vec::new();
        for (start, len) in in_flight {
            let (mut at, end) = (*start, start + len);
            while at < end {
                let arena = kept.range_mut(..=at).next_back();
                if let Some((base, (len, used))) = arena.filter(|(base, (len, _))| at < **base + len) {
                    let stop = end.min(base + *len);
                    (at - base..stop - base).for_each(|i| used[(i / 64) as usize] &= !(1 << (i % 64)));
                    at = stop;
                    continue;
                }
                let next = kept.range(at..).next().map_or(u64::MAX, |(base, _)| *base);
                loose.push((at, end.min(next) - at));
                at = end.min(next);
            }
        }
        let bytes = |words: [u64; 16]| {
            let mut bytes = [0u8; 128];
            bytes.chunks_exact_mut(8).zip(words).for_each(|(b, w)| b.copy_from_slice(&w.to_le_bytes()));
            bytes
        };
        let arenas = kept.into_iter().map(|(start, (len, used))| ArenaMeta { start, len, used: bytes(used) });
        (arenas.collect(), loose)
    }

    #[cfg(feature = "planted")]
    /// Planted bug: each block in flight whose arena is gone is an arena of its own.
    pub fn arena_each(loose: &[Run]) -> Vec<ArenaMeta> {
        let blocks = loose.iter().flat_map(|(start, len)| *start..start + len);
        blocks.map(|start| ArenaMeta { start, len: 1, used: [0; 128] }).collect()
    }

    /// The unused runs of all arenas, for `check`.
    pub fn arena_unused_runs(&self) -> Vec<Run> {
        let runs = |(base, arena): (&u64, &Arena)| {
            let base = *base;
            arena.unused_runs().into_iter().map(move |(start, len)| (base + start, len))
        };
        self.arenas.iter().flat_map(runs).collect()
    }

    /// Unused and allocatable blocks of arenas in `place`.
    pub fn unused_in(&self, place: &Range<u64>) -> u64 {
        let part = |(start, len): Run| (start + len).min(place.end).saturating_sub(start.max(place.start));
        self.arena_unused_runs().into_iter().filter(|(start, _)| !self.pvs.is_unallocatable(*start)).map(part).sum()
    }
}
