//! Gives out a point of a store, or what differs between two, as a stream of `rowen send`, which `rowen receive` takes.

use super::error::{Result, StoreError};
use super::fetch::{Differences, Run, Segments};
use super::log::Log;
use super::state::Point;
use crate::{BLOCK, Base, Head, MAX_DATA, MAX_RANGES, MarkPlace, Range, StreamWriter, Volume};
use std::io::{self, Write};

/// Blocks that are fetched together.
const TOGETHER: u64 = 4096;

/// What the receiver has already, by the name that it has there.
pub struct Since<'p> {
    pub point: &'p Point,
    pub name: String,
}

/// How a pull is done.
pub struct Pull<'f> {
    /// Random, of this stream.
    pub stream: [u8; 16],
    pub time: u64,
    /// The source that the receiver records.
    pub from: String,
    /// The mark that the receiver got to.
    pub continues: Option<MarkPlace>,
    /// Segments that are fetched at once.
    pub at_once: usize,
    /// Gets the number of blocks that were written.
    pub tell: &'f mut dyn FnMut(u64),
}

fn lost(error: io::Error) -> StoreError {
    StoreError::Output(match error.kind() {
        io::ErrorKind::BrokenPipe => "whoever received it has ended".into(),
        _ => format!("the stream cannot be written: {error}"),
    })
}

struct Pulling<'s, 'a, 'f, W: Write> {
    segments: &'s Segments<'a>,
    writer: StreamWriter<W>,
    waiting: Vec<(Range, u64)>,
    waiting_blocks: u64,
    done: u64,
    at_once: usize,
    tell: &'f mut dyn FnMut(u64),
}

/// Writes the stream of a point.
pub fn pull<W: Write>(log: &Log<'_>, point: &Point, since: Option<&Since<'_>>, to: W, pull: Pull<'_>) -> Result<W> {
    let segments = Segments::new(log.objects, log.seal.clone(), log.state.store);
    let new = segments.table(point.table.at)?;
    let old = since.map(|since| segments.table(since.point.table.at)).transpose()?;
    let about = &point.about;
    let head = Head {
        stream: pull.stream,
        continues: pull.continues,
        volumes: 1,
        time: pull.time,
        group: log.state.store,
        group_name: pull.from,
    };
    let volume = Volume {
        name: about.volume.clone(),
        blocks: about.blocks,
        sector: about.sector,
        thick: about.thick,
        base: since.map(|since| Base { point: since.point.about.uuid, name: since.name.clone() }),
        point: about.uuid,
        snapshot: about.point.clone(),
        changed: since.is_none().then_some(new.data_blocks),
    };
    let writer = StreamWriter::begin(to, &head, &[volume], true).map_err(lost)?;
    let mut pulling = Pulling {
        segments: &segments,
        writer,
        waiting: Vec::new(),
        waiting_blocks: 0,
        done: 0,
        at_once: pull.at_once,
        tell: pull.tell,
    };
    let from = pull.continues.map_or(0, |place| place.block);
    Differences::walk(&segments, old.as_ref(), &new, from, |run| pulling.run(run))?;
    pulling.fetch()?;
    pulling.writer.end().map_err(lost)
}

impl<W: Write> Pulling<'_, '_, '_, W> {
    fn run(&mut self, run: Run) -> Result<()> {
        let Some(address) = run.address else {
            self.fetch()?;
            return self.writer.zeros(0, run.start, run.blocks).map_err(lost);
        };
        let most = (MAX_DATA as u64) / BLOCK;
        let mut at = 0;
        while at < run.blocks {
            let blocks = (run.blocks - at).min(most).min(TOGETHER - self.waiting_blocks);
            self.waiting.push((Range { start: run.start + at, blocks: blocks as u32 }, address + at));
            self.waiting_blocks += blocks;
            at += blocks;
            if self.waiting_blocks == TOGETHER {
                self.fetch()?;
            }
        }
        Ok(())
    }

    /// Fetches what waits, and writes it in frames.
    fn fetch(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_blocks = 0;
        let runs: Vec<(u64, u64)> = waiting.iter().map(|(range, address)| (*address, range.blocks.into())).collect();
        let bytes = self.segments.blocks(&runs, self.at_once)?;
        let mut rest = &bytes[..];
        let mut ranges: Vec<Range> = Vec::new();
        let mut len = 0;
        for (range, _) in waiting {
            let more = range.blocks as usize * BLOCK as usize;
            if ranges.len() == MAX_RANGES || len + more > MAX_DATA {
                rest = self.frame(&mut ranges, &mut len, rest)?;
            }
            ranges.push(range);
            len += more;
        }
        if !ranges.is_empty() {
            self.frame(&mut ranges, &mut len, rest)?;
        }
        (self.tell)(self.done);
        Ok(())
    }

    fn frame<'b>(&mut self, ranges: &mut Vec<Range>, len: &mut usize, rest: &'b [u8]) -> Result<&'b [u8]> {
        let (now, later) = rest.split_at(*len);
        self.writer.data(0, ranges, now).map_err(lost)?;
        self.done += *len as u64 / BLOCK;
        ranges.clear();
        *len = 0;
        Ok(later)
    }
}
