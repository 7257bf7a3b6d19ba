//! Lists of changes of a run. After each step, the lists of random pairs of volumes are compared with their bytes (DF1
//! to DF6).

use super::{Model, Step, wrong};
use crate::client::{BLOCK, Failure};
use crate::oracle::Vol;
use crate::stamp::Found;
use rowen_engine::error::Error;
use rowen_engine::group::{Changed, ChangedPart, Compared, Content, VolumeInfo};
use rowen_engine::units::VolumeId;
use std::collections::BTreeMap;

/// What moves blocks in the background while lists are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    None,
    /// Re-homing: lists stay exact.
    Rehome,
    /// Filling, too: lists have the copies.
    Fill,
}

/// All of them, with the names that `ROWEN_DIFFS` takes.
pub const MOVES: [(&str, Moves); 3] = [("none", Moves::None), ("rehome", Moves::Rehome), ("fill", Moves::Fill)];

/// What the lists of a run contained.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lists {
    pub compared: u64,
    pub unrelated: u64,
    pub data_blocks: u64,
    pub zero_blocks: u64,
    pub equal_blocks: u64,
    /// Blocks with equal bytes in a list: copies that filling made.
    pub copies: u64,
    /// Other blocks with equal bytes in a list. Some of their sectors are zeros, which may have been written as data.
    pub zeroed_again: u64,
    pub resumed: u64,
}

impl Lists {
    pub fn add(&mut self, other: &Lists) {
        self.compared += other.compared;
        self.unrelated += other.unrelated;
        self.data_blocks += other.data_blocks;
        self.zero_blocks += other.zero_blocks;
        self.equal_blocks += other.equal_blocks;
        self.copies += other.copies;
        self.zeroed_again += other.zeroed_again;
        self.resumed += other.resumed;
    }
}

/// Pairs that are compared after each step.
const PAIRS: u64 = 2;

impl Model {
    pub(super) fn check_diffs(&mut self, moves: Moves) -> Step {
        self.take_invalid()?;
        if moves != Moves::None && self.rng.one_in(3) {
            let group = self.client.group.clone();
            self.run(async move { group.rehome_idle().await })??;
        }
        let vols = self.client.oracle.lock().readable();
        if vols.is_empty() {
            return Ok(());
        }
        for _ in 0..PAIRS {
            let (old, new) = (*self.rng.pick(&vols), *self.rng.pick(&vols));
            if let Err(failure) = self.check_diff(old, new, moves) {
                self.dropped_meanwhile(failure)?;
            }
            if !self.client.oracle.lock().readable().contains(&old) {
                return Ok(());
            }
        }
        let vol = *self.rng.pick(&vols);
        if self.client.oracle.lock().readable().contains(&vol) { self.check_allocated(vol) } else { Ok(()) }
    }

    fn check_diff(&mut self, old: Vol, new: Vol, moves: Moves) -> Step {
        let group = self.client.group.clone();
        let (old_id, new_id) = (self.client.id(old)?, self.client.id(new)?);
        let compared = match group.compare(Some(old_id), new_id) {
            Ok(compared) => compared,
            Err(Error::Unrelated) => {
                self.seen.lists.unrelated += 1;
                return match self.are_relatives(old_id, new_id) {
                    true => wrong(format!("volumes {old} and {new} are of one family and called unrelated")),
                    false => Ok(()),
                };
            }
            Err(error) => return Err(error.into()),
        };
        let list = self.whole_list(compared, 0)?;
        let from = self.rng.below(compared.new.blocks + 1);
        let resumed = self.whole_list(compared, from)?;
        self.seen.lists.resumed += 1;
        let expected: Vec<Changed> = list.iter().filter_map(|range| cut(range, from)).collect();
        if resumed != expected {
            return wrong(format!("from {old} to {new}: resumed at {from} it is {resumed:?}, all is {list:?}"));
        }
        let (had, has) = (self.bytes(old)?, self.bytes(new)?);
        self.seen.lists.compared += 1;
        self.hold(&list, &had, &has, moves).or_else(|what| wrong(format!("from {old} to {new}: {what}: {list:?}")))
    }

    /// The map of one volume: all that is not zeros is data.
    fn check_allocated(&mut self, vol: Vol) -> Step {
        let compared = self.client.group.compare(None, self.client.id(vol)?)?;
        let list = self.whole_list(compared, 0)?;
        let data: u64 = list.iter().filter(|range| range.content == Content::Data).map(|range| range.blocks).sum();
        let referenced = self.client.group.volume_info(compared.new.volume)?.referenced;
        if data != referenced {
            return wrong(format!("volume {vol} references {referenced} blocks, its list has {data}: {list:?}"));
        }
        let listed = by_block(&list);
        for (at, block) in self.bytes(vol)?.chunks(BLOCK as usize).enumerate() {
            if listed.get(&(at as u64)) != Some(&Content::Data) && !is_zeros(block) {
                return wrong(format!("block {at} of volume {vol} is no data in its list: {list:?}"));
            }
        }
        Ok(())
    }

    /// A list in parts of a random length.
    fn whole_list(&mut self, compared: Compared, from: u64) -> Result<Vec<Changed>, Failure> {
        let (mut list, mut next): (Vec<Changed>, _) = (Vec::new(), Some(from));
        while let Some(at) = next {
            let (group, most) = (self.client.group.clone(), self.rng.range(1, 40) as usize);
            let part: ChangedPart = self.run(async move { group.changed(&compared, at, most).await })??;
            if part.next.is_some_and(|next| next <= at) {
                return wrong(format!("a part of a list that begins at {at} ends at {:?}", part.next));
            }
            next = part.next;
            for range in part.ranges {
                match list.last_mut() {
                    Some(last) if last.end() > range.start => return wrong(format!("{range:?} after {last:?}")),
                    Some(last) if last.end() == range.start && last.content == range.content => {
                        last.blocks += range.blocks;
                    }
                    _ => list.push(range),
                }
            }
        }
        match list.last() {
            Some(last) if last.end() > compared.new.blocks => wrong(format!("{last:?} is beyond the volume's end")),
            _ => Ok(list),
        }
    }

    fn hold(&mut self, list: &[Changed], had: &[Found], has: &[Found], moves: Moves) -> Result<(), String> {
        let listed = by_block(list);
        for (at, has) in has.chunks(BLOCK as usize).enumerate() {
            let had = had.chunks(BLOCK as usize).nth(at);
            let content = listed.get(&(at as u64));
            let lists = &mut self.seen.lists;
            match content {
                None if had != Some(has) => return Err(format!("block {at} differs and is not listed")),
                None => lists.equal_blocks += 1,
                Some(Content::Zeros) if !is_zeros(has) => return Err(format!("block {at} is not zeros")),
                // Zeros that were written to a part of a block are data. They may also be the old contents, or left by
                // a discard.
                Some(_) if had == Some(has) && has.contains(&Found::Zeros) => lists.zeroed_again += 1,
                Some(_) if had == Some(has) && moves == Moves::Fill => lists.copies += 1,
                Some(_) if had == Some(has) => return Err(format!("block {at} is listed and equal")),
                Some(Content::Zeros) => lists.zero_blocks += 1,
                Some(Content::Data) => lists.data_blocks += 1,
            }
        }
        Ok(())
    }

    fn bytes(&self, vol: Vol) -> Result<Vec<Found>, Failure> {
        let (client, sectors) = (self.client.clone(), self.sectors(vol));
        Ok(self.run(async move { client.look(vol, 0, sectors).await })??)
    }

    /// Whether both descend from one volume, through origins that still exist.
    fn are_relatives(&self, one: VolumeId, other: VolumeId) -> bool {
        let infos: BTreeMap<VolumeId, VolumeInfo> =
            self.client.group.volumes().into_iter().map(|info| (info.id, info)).collect();
        let first =
            |id| std::iter::successors(Some(id), |id| infos.get(id).and_then(|info| info.origin)).last().unwrap_or(id);
        first(one) == first(other)
    }
}

fn by_block(list: &[Changed]) -> BTreeMap<u64, Content> {
    list.iter().flat_map(|range| (range.start..range.end()).map(|block| (block, range.content))).collect()
}

fn is_zeros(block: &[Found]) -> bool {
    block.iter().all(|sector| *sector == Found::Zeros)
}

/// The part of a range that is not before a block.
fn cut(range: &Changed, from: u64) -> Option<Changed> {
    let start = range.start.max(from);
    (start < range.end()).then(|| Changed { start, blocks: range.end() - start, ..*range })
}
