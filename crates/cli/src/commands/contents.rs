//! The sum of what a snapshot has, by which copies on two hosts are compared.

use crate::ahead::Ahead;
use crate::commands::send::{bytes_of, page, read};
use crate::commands::sources::{self, Point};
use crate::failure::{Failure, Result};
use crate::session::Session;
use rowen_control::points::Summed;
use rowen_control::protocol::{BlockRange, DiffPlace, DiffSide, MOST_BLOCKS};
use rowen_engine::units::BLOCK_SIZE;
use rowen_transfer::ContentsSum;
use std::collections::VecDeque;

/// Requests for data that are under way at a time.
const AT_ONCE: usize = 3;

struct Reading<'a> {
    group: &'a str,
    point: &'a Point,
    side: DiffSide,
    ahead: Ahead,
    /// Ranges that are not asked for yet, and their blocks.
    waiting: Vec<BlockRange>,
    waiting_blocks: u64,
    under_way: VecDeque<Vec<BlockRange>>,
    sum: ContentsSum,
}

/// The sum over some blocks of a snapshot, which ends where the snapshot does.
pub fn sum(session: &mut Session<'_>, (group, name): (&str, &str), wanted: (u64, u64)) -> Result<Summed> {
    let report = session.report_of(group, vec![name.to_owned()])?;
    let point = &sources::point(&report, name)?;
    let first = page(session, group, (None, point), None)?;
    let size = first.new.blocks;
    let from = wanted.0.min(size);
    let until = wanted.0.saturating_add(wanted.1).min(size);
    let mut reading = Reading {
        group,
        point,
        side: first.new,
        ahead: Ahead::new(session, group, AT_ONCE),
        waiting: Vec::new(),
        waiting_blocks: 0,
        under_way: VecDeque::new(),
        sum: ContentsSum::default(),
    };
    let mut next = Some(DiffPlace { old: None, new: first.new, block: from });
    while let Some(place) = next.filter(|place| place.block < until) {
        let page = page(session, group, (None, point), Some(place))?;
        for range in page.ranges.iter().filter(|range| range.is_data) {
            let end = (range.start_block + range.blocks).min(until);
            reading.range(session, range.start_block.max(place.block), end)?;
        }
        next = page.next();
    }
    reading.ask(session)?;
    while !reading.under_way.is_empty() {
        reading.take(session)?;
    }
    Ok(Summed { blocks: size, sum: reading.sum.end() })
}

impl Reading<'_> {
    fn range(&mut self, session: &mut Session<'_>, mut start: u64, end: u64) -> Result {
        while start < end {
            let blocks = (end - start).min(MOST_BLOCKS - self.waiting_blocks);
            self.waiting.push(BlockRange { start_block: start, blocks });
            self.waiting_blocks += blocks;
            start += blocks;
            if self.waiting_blocks == MOST_BLOCKS {
                self.ask(session)?;
            }
        }
        Ok(())
    }

    /// Has what waits read.
    fn ask(&mut self, session: &mut Session<'_>) -> Result {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let ranges = std::mem::take(&mut self.waiting);
        self.waiting_blocks = 0;
        self.ahead.give(read((self.point, self.side), ranges.clone()))?;
        self.under_way.push_back(ranges);
        while self.ahead.is_full() {
            self.take(session)?;
        }
        Ok(())
    }

    /// Sums what was asked for first.
    fn take(&mut self, session: &mut Session<'_>) -> Result {
        let Some(ranges) = self.under_way.pop_front() else { return Ok(()) };
        let bytes = bytes_of(self.group, self.ahead.take(session)?)?;
        let mut rest = &bytes[..];
        for range in ranges {
            let split = rest.split_at_checked((range.blocks * BLOCK_SIZE) as usize);
            let (data, after) = split.ok_or_else(|| Failure::failed("The server read less than was asked for."))?;
            self.sum.add(range.start_block, data);
            rest = after;
        }
        Ok(())
    }
}
