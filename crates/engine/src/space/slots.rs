//! Arenas and the slots in them: how single blocks are allocated (rule R10), and how arenas are opened and closed.

use super::arena::Arena;
use super::runs::push_run;
use super::{ARENA_BLOCKS, Account, AllocContext, AllocError, MAX_ARENAS, MAX_SLOTS, Run, Runs, Space};
use crate::map::MapError;
use crate::model::SegmentType;
use crate::planted;
use crate::units::VolumeId;
use std::collections::BTreeSet;

impl Space {
    /// Allocates `len` blocks for a volume from LV block `at` on, chunk slot by chunk slot (rule R10), and updates the
    /// account. All or nothing.
    pub fn alloc(
        &mut self,
        context: AllocContext<'_>,
        (volume, segment): (VolumeId, SegmentType),
        chunk: u64,
        (mut at, len): Run,
        account: Account,
        out: &mut Runs,
    ) -> Result<(), AllocError> {
        #[cfg(feature = "planted")]
        self.reuse_now(context)?;
        self.admit(segment, len, account)?;
        let before = out.len();
        let end = at + len;
        while at < end {
            let want = (chunk - at % chunk).min(end - at);
            let got = if want == chunk {
                self.carve(context, (volume, segment), (end - at) / chunk * chunk)
            } else {
                self.take_slot(context, (volume, segment), chunk, at, want)
            };
            match got {
                Ok(run) => {
                    push_run(out, run);
                    at += run.1;
                }
                Err(e) => {
                    let taken: Vec<Run> = out.drain(before..).collect();
                    taken.into_iter().for_each(|run| self.unset(run));
                    return Err(e);
                }
            }
        }
        self.settle(segment, len as i64, account);
        Ok(())
    }

    /// Undoes an [`alloc`](Self::alloc) whose blocks no record names.
    pub fn unalloc(&mut self, runs: &[Run], account: Account) {
        for run in runs {
            self.unset(*run);
            self.unsettle(*run, account);
        }
    }

    /// Frees blocks that no record names: to their arena, or to a new arena if that is gone.
    fn unset(&mut self, (start, len): Run) {
        let (mut at, end) = (start, start + len);
        while at < end {
            if let Some((base, arena)) = self.arena_of(at) {
                let stop = end.min(base + arena.len);
                (at - base..stop - base).for_each(|i| arena.clear(i));
                self.count_unused(base, (stop - at) as i64);
                at = stop;
                continue;
            }
            let next = self.arenas.range(at..).next().map_or(u64::MAX, |(base, _)| *base);
            let len = (end.min(next).min(self.pvs.end_of(at)) - at).min(ARENA_BLOCKS);
            let arena = Arena { serial: self.serial(), len, used: [0; 16], unused: len, cursor: len };
            self.arenas.insert(at, arena);
            self.arena_order.push_back(at);
            self.count_unused(at, len as i64);
            at += len;
        }
        self.update_load();
    }

    pub(super) fn arena_of(&mut self, block: u64) -> Option<(u64, &mut Arena)> {
        let (base, arena) = self.arenas.range_mut(..=block).next_back()?;
        (block < base + arena.len).then_some((*base, arena))
    }

    /// Up to `want` contiguous blocks at the slot of `at`, which is created if needed.
    fn take_slot(
        &mut self,
        context: AllocContext<'_>,
        (volume, segment): (VolumeId, SegmentType),
        chunk: u64,
        at: u64,
        want: u64,
    ) -> Result<Run, AllocError> {
        let (number, offset) = (at / chunk, at % chunk);
        if let Some((serial, slot)) = self.slots.get(&(volume, chunk, number)).copied()
            && self.arena_of(slot).is_some_and(|(_, arena)| arena.serial == serial || planted::is("slot_of_another"))
            && let Some(run) = self.take_at(slot + offset, want)
        {
            return Ok(run);
        }
        let base = self.open_arena(context, (volume, segment), chunk)?;
        let arena = self.arenas.get_mut(&base).expect("it was just opened");
        if arena.len - arena.cursor < chunk {
            return self.carve(context, (volume, segment), want);
        }
        let slot = base + arena.cursor;
        arena.cursor += chunk;
        self.slots.insert((volume, chunk, number), (arena.serial, slot));
        self.slots_taken += 1;
        self.sweep_slots();
        Ok(self.take_at(slot + offset, want).expect("a new slot's blocks are unused"))
    }

    /// Unused blocks from `start` on, up to `want` of them; none when the first is used or in no arena.
    fn take_at(&mut self, start: u64, want: u64) -> Option<Run> {
        let (base, arena) = self.arena_of(start)?;
        let first = start - base;
        let end = (first + want).min(arena.len);
        let is_assumed = planted::is("slot_assumed_unused") && !arena.is_used(first);
        let len = (first..end).take_while(|i| !arena.is_used(*i) || is_assumed).count() as u64;
        (first..first + len).for_each(|i| arena.set(i));
        let done = arena.unused == 0;
        self.count_unused(base, -(len as i64));
        if done {
            self.arenas.remove(&base);
            self.update_load();
        }
        (len > 0).then_some((start, len))
    }

    /// Up to `want` contiguous blocks from the volume's arena, outside of slots.
    fn carve(
        &mut self,
        context: AllocContext<'_>,
        volume: (VolumeId, SegmentType),
        want: u64,
    ) -> Result<Run, AllocError> {
        let base = self.open_arena(context, volume, 1)?;
        let arena = self.arenas.get_mut(&base).expect("it was just opened");
        let start = base + arena.cursor;
        let len = want.min(arena.len - arena.cursor);
        arena.cursor += len;
        Ok(self.take_at(start, len).expect("beyond the cursor nothing is used"))
    }

    /// The volume's arena with room for `room` blocks beyond its cursor, if any arena has that; otherwise one with room
    /// for at least one block.
    fn open_arena(
        &mut self,
        context: AllocContext<'_>,
        (volume, segment): (VolumeId, SegmentType),
        room: u64,
    ) -> Result<u64, AllocError> {
        if let Some(base) = self.current.get(&volume)
            && let Some(arena) = self.arenas.get(base)
            && arena.len - arena.cursor >= room.max(1)
        {
            return Ok(*base);
        }
        if self.arenas.len() >= MAX_ARENAS {
            self.close_oldest(context)?;
        }
        let run = loop {
            let wanted = if planted::is("mirror_not_mirrored") { SegmentType::Linear } else { segment };
            if let Some(run) = self.find(context, wanted)? {
                break run;
            }
            // Only slots have blocks left: take them back, the oldest first (rule R10).
            if self.arenas.is_empty() {
                return Err(AllocError::Full);
            }
            self.close_oldest(context)?;
        };
        let is_linear = segment == SegmentType::Linear;
        if is_linear && run.0 < self.class(segment).search_from && run.1 == ARENA_BLOCKS {
            // Arenas begin at the front again: there may be extents behind this one.
            self.no_extent_below = 0;
        }
        let in_pieces = self.arena_unused() + self.scattered + run.1;
        let may_grow = run.1 == ARENA_BLOCKS && self.allocatable_in_tree(SegmentType::Linear) >= self.no_extent_below;
        self.wants_metadata |= may_grow && !context.meta.lock().is_enough_for(in_pieces);
        self.take_run(context, run)?;
        let arena = Arena { serial: self.serial(), len: run.1, used: [0; 16], unused: run.1, cursor: 0 };
        self.count_unused(run.0, run.1 as i64);
        self.arenas.insert(run.0, arena);
        self.arena_order.push_back(run.0);
        self.sweep_order();
        self.update_load();
        self.current.insert(volume, run.0);
        self.class_mut(segment).search_from = run.0 + run.1;
        Ok(run.0)
    }

    /// Whether metadata should grow, reported once for each opened arena.
    pub fn take_metadata_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_metadata)
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Closes an arena for a write that needs a run. Leaves the metadata blocks that writes need (M4).
    fn close_oldest(&mut self, context: AllocContext<'_>) -> Result<(), MapError> {
        let context = AllocContext { keep: context.meta.lock().reserved_from_arenas(), ..context };
        while let Some(base) = self.arena_order.front().copied() {
            let open = self.arenas.contains_key(&base);
            if open {
                self.close_arena(context, base)?;
            }
            self.arena_order.pop_front();
            if open {
                break;
            }
        }
        Ok(())
    }

    /// Removes slots of arenas that are used up or closed.
    fn sweep_slots(&mut self) {
        if self.slots.len() <= self.slots_sweep_at {
            return;
        }
        let arenas = &self.arenas;
        let alive =
            |serial: u64, slot: u64| arenas.range(..=slot).next_back().is_some_and(|(_, arena)| arena.serial == serial);
        self.slots.retain(|_, (serial, slot)| alive(*serial, *slot));
        // The cost is amortised: at least as many slots were made since the last sweep.
        self.slots_sweep_at = MAX_SLOTS.max(2 * self.slots.len());
    }

    /// Removes used-up arenas from the order of opening. An arena that was opened again at the same place keeps its
    /// first position.
    fn sweep_order(&mut self) {
        if self.arena_order.len() > 2 * MAX_ARENAS {
            let mut seen = BTreeSet::new();
            self.arena_order.retain(|base| self.arenas.contains_key(base) && seen.insert(*base));
        }
    }

    /// Puts an arena's unused blocks back into the free tree. It may stop half way with an error. Blocks that were put
    /// back are marked as used in the arena, so that it can be called again.
    fn close_arena(&mut self, context: AllocContext<'_>, base: u64) -> Result<(), MapError> {
        let Some(arena) = self.arenas.get(&base) else { return Ok(()) };
        let context = AllocContext { keep: context.keep.max(context.meta.lock().reserved_from_commit()), ..context };
        for (start, len) in arena.unused_runs() {
            self.put_run(context, (base + start, len))?;
            let arena = self.arenas.get_mut(&base).expect("only this function closes arenas");
            (start..start + len).for_each(|i| arena.set(i));
            arena.cursor = arena.len;
            self.count_unused(base, -(len as i64));
        }
        self.arenas.remove(&base);
        self.update_load();
        Ok(())
    }

    pub(super) fn close_arenas(&mut self, context: AllocContext<'_>) -> Result<(), MapError> {
        let all: Vec<u64> = self.arenas.keys().copied().collect();
        for base in all {
            self.close_arena(context, base)?;
        }
        self.arena_order.clear();
        self.slots.clear();
        self.current.clear();
        self.forget_searches();
        Ok(())
    }

    /// A volume is gone: removes its slots.
    pub fn forget_volume(&mut self, volume: VolumeId) {
        self.current.remove(&volume);
        self.slots.retain(|(owner, ..), _| *owner != volume);
    }
}
