//! Pushes a point: takes what changed from a stream of `rowen send`, and commits it.

use super::entry::{About, Kind, Numbers, Say, Table};
use super::error::{Result, StoreError};
use super::fetch::Segments;
use super::log::Log;
use super::objects::Objects;
use super::state::{Outcome, State};
use super::tree::TreeWriter;
use super::upload::{Output, Uploads};
use super::{FRAME_BLOCKS, SEGMENT_BLOCKS};
use crate::{BLOCK, Event, StreamReader};
use rowen_engine::planted;
use std::io::Read;

/// Numbers that a job has from its beginning, if it is not known how much comes.
const SOME: u64 = if cfg!(test) { 2 } else { 64 };

/// A push that was begun or taken over.
pub struct Begun {
    pub job: u64,
    pub base: Option<u64>,
    pub numbers: Vec<Numbers>,
    /// What earlier programs uploaded of it.
    pub kept: Vec<Kept>,
    /// The stream goes on with this block.
    pub from: u64,
}

/// A run of blocks that was uploaded, or was zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub start: u64,
    pub blocks: u64,
    pub address: Option<u64>,
}

/// A point that is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub point: u64,
    pub table: Table,
    /// Blocks that were read of the volume.
    pub read_blocks: u64,
}

/// Numbers for this many changed blocks.
fn wanted(changed: Option<u64>) -> Vec<(Kind, u64)> {
    let data = changed.map_or(SOME, |blocks| blocks.div_ceil(SEGMENT_BLOCKS).clamp(1, 1 << 20));
    vec![(Kind::Data, data), (Kind::Map, data.div_ceil(64) + 1)]
}

/// Begins a push.
pub fn begin(log: &mut Log<'_>, about: &About, base: Option<u64>, changed: Option<u64>) -> Result<Begun> {
    let mut numbers = Vec::new();
    let made = log.add(|state| {
        numbers = state.free(&wanted(changed));
        Ok(Some(Say::Begin { about: about.clone(), base, numbers: numbers.clone() }))
    })?;
    match made {
        Some((job, Outcome::Valid)) => Ok(Begun { job, base, numbers, kept: Vec::new(), from: 0 }),
        Some((_, Outcome::Void(why))) => Err(StoreError::Refused(format!("the push cannot begin: {why} meanwhile"))),
        None => Err(StoreError::Refused("the push cannot begin".into())),
    }
}

/// An open job that makes this point, if there is one.
pub fn open_job(state: &State, uuid: &[u8; 16]) -> Option<u64> {
    let mut jobs = state.jobs.iter().rev().filter(|(_, job)| job.about.uuid == *uuid);
    jobs.next().map(|(number, _)| *number)
}

/// Continues a job that its writer left (SO3). The earlier writer cannot commit it any more.
pub fn take_over(log: &mut Log<'_>, job: u64) -> Result<Begun> {
    let mut numbers = Vec::new();
    let made = log.add(|state| {
        numbers = state.free(&wanted(None));
        Ok(Some(Say::TakeOver { job, numbers: numbers.clone() }))
    })?;
    let number = match made {
        Some((number, Outcome::Valid)) => number,
        Some((_, Outcome::Void(how))) => return Err(StoreError::JobIsOver { job, how }),
        None => return Err(StoreError::JobIsOver { job, how: "ended".into() }),
    };
    let taken = log.state.jobs.get(&number).ok_or(StoreError::JobIsOver { job, how: "ended".into() })?.clone();
    let earlier = &taken.attempts[..taken.attempts.len().saturating_sub(1)];
    let (kept, from) = uploaded(log, earlier)?;
    Ok(Begun { job: number, base: taken.base, numbers, kept, from })
}

/// What earlier programs uploaded, up to the first gap, and the block behind it.
fn uploaded(log: &Log<'_>, attempts: &[Vec<Numbers>]) -> Result<(Vec<Kept>, u64)> {
    let segments = Segments::new(log.objects, log.seal.clone(), log.state.store);
    let mut kept: Vec<Kept> = Vec::new();
    for attempt in attempts {
        let data = attempt.iter().filter(|range| range.kind == Kind::Data).flat_map(Numbers::all);
        for (at, (_, number)) in data.enumerate() {
            let Some(index) = segments.index(number)? else { break };
            let mut address = number * SEGMENT_BLOCKS;
            let end = address + (index.frames() as u64 * FRAME_BLOCKS).min(SEGMENT_BLOCKS);
            for (place, held) in index.held.iter().enumerate() {
                let (start, blocks) = (held.range.start, u64::from(held.range.blocks));
                if (at, place) == (0, 0) {
                    // This program began behind what it found: what came there later is not counted on.
                    kept.retain(|run| run.start < start);
                }
                let is_next = kept.last().is_none_or(|last| last.start + last.blocks <= start);
                if !is_next || (!held.is_zeros && address + blocks > end) {
                    return Err(StoreError::Damaged {
                        name: Kind::Data.name(number),
                        what: "its ranges do not follow those before them",
                    });
                }
                kept.push(Kept { start, blocks, address: (!held.is_zeros).then_some(address) });
                address += if held.is_zeros { 0 } else { blocks };
            }
        }
    }
    let from = kept.last().map_or(0, |last| last.start + last.blocks);
    Ok((kept, from))
}

/// How a push is done.
pub struct Ways<'f> {
    /// Segments that are uploaded at once. 0: in this thread.
    pub threads: usize,
    /// Gets the number of blocks that were read, and of bytes in the store.
    pub tell: &'f mut dyn FnMut(u64, u64),
}

/// Uploads what a stream has, and commits the point.
pub fn push<R: Read>(
    log: &mut Log<'_>,
    about: &About,
    begun: Begun,
    stream: &mut StreamReader<R>,
    ways: Ways<'_>,
) -> Result<Pushed> {
    let (objects, seal, store): (&dyn Objects, _, _) = (log.objects, log.seal.clone(), log.state.store);
    if ways.threads == 0 {
        let uploads = Uploads::inline(objects, seal, store);
        return carry_out(log, about, begun, stream, (uploads, ways.tell));
    }
    let count = ways.threads;
    std::thread::scope(|scope| {
        let uploads = Uploads::threads(objects, seal, store, (scope, count));
        carry_out(log, about, begun, stream, (uploads, ways.tell))
    })
}

fn carry_out<R: Read>(
    log: &mut Log<'_>,
    about: &About,
    begun: Begun,
    stream: &mut StreamReader<R>,
    (uploads, tell): (Uploads<'_>, &mut dyn FnMut(u64, u64)),
) -> Result<Pushed> {
    let segments = Segments::new(log.objects, log.seal.clone(), log.state.store);
    let base_table = match begun.base {
        Some(base) => {
            let point = log.state.needed().find(|(number, _)| *number == base);
            Some(point.ok_or_else(|| StoreError::Refused("the base of the push was forgotten".into()))?.1.table)
        }
        None => None,
    };
    let base = base_table.map(|table| segments.table(table.at)).transpose()?;
    let base = base.map(|mut base| {
        // The new point has a table of its own.
        base.drops(base_table.map_or(0, |table| table.at));
        base
    });
    let mut output = Output::new(log, begun.job, &begun.numbers, uploads);
    let mut tree = TreeWriter::new(&segments, base, about.blocks, &mut output)?;
    for run in &begun.kept {
        match run.address {
            Some(address) => {
                for at in 0..run.blocks {
                    tree.set(run.start + at, address + at, &mut output)?;
                }
            }
            None => tree.zeros(run.start, run.blocks, &mut output)?,
        }
    }
    let read_blocks = take_all(stream, &mut tree, &mut output, tell)?;
    let mut contents = tree.finish(&mut output)?;
    let segment = output.next_page()?;
    contents.uses(segment * SEGMENT_BLOCKS);
    let at = output.page(contents.encode())?;
    let data_blocks = contents.data_blocks;
    let job = begun.job;
    let (log, uploaded) = if planted::is("store_commit_first") {
        let table = Table { at, data_blocks, uploaded: 0 };
        let point = output.log.add_for_job(job, Say::Commit { job, table })?;
        output.finish()?;
        return Ok(Pushed { point, table, read_blocks });
    } else {
        output.finish()?
    };
    let table = Table { at, data_blocks, uploaded };
    let point = log.add_for_job(job, Say::Commit { job, table })?;
    Ok(Pushed { point, table, read_blocks })
}

/// Zeros are not uploaded.
fn take_all<R: Read>(
    stream: &mut StreamReader<R>,
    tree: &mut TreeWriter<'_, '_>,
    output: &mut Output<'_, '_, '_>,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let mut read_blocks = 0;
    loop {
        match stream.next_event()? {
            Event::Data { ranges, bytes, .. } => {
                let blocks = ranges.iter().flat_map(|range| range.start..range.start + u64::from(range.blocks));
                for (block, bytes) in blocks.zip(bytes.chunks_exact(BLOCK as usize)) {
                    read_blocks += 1;
                    if bytes.iter().all(|byte| *byte == 0) {
                        output.zeros(block, 1)?;
                        tree.zeros(block, 1, output)?;
                    } else {
                        let address = output.block(block, bytes)?;
                        tree.set(block, address, output)?;
                    }
                }
                tell(read_blocks, output.uploaded());
            }
            Event::Zeros { start, blocks, .. } => {
                output.zeros(start, blocks)?;
                tree.zeros(start, blocks, output)?;
            }
            Event::Mark(_) => {}
            Event::End(_) => return Ok(read_blocks),
        }
    }
}
