//! Pushes a point: takes what changed from a stream of `rowen send`, and commits it.

use super::entry::{About, Kind, Numbers, Say, Table};
use super::error::{Result, StoreError};
use super::fetch::Segments;
use super::log::Log;
use super::objects::Objects;
use super::segment::Index;
use super::state::{Attempt, Outcome, State};
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
    log.catch_up()?;
    let is_over = |log: &Log<'_>| StoreError::JobIsOver { job, how: log.state.how_ended(job) };
    let open = log.state.jobs.get(&job).ok_or_else(|| is_over(log))?.clone();
    // What is found now stays there as long as the job is open (SO4), also if its writer uploads more meanwhile.
    let (kept, from) = match uploaded(log, &open.attempts) {
        Ok(found) => found,
        Err(error) => {
            // Somebody gave the job up and cleaned, perhaps.
            log.catch_up()?;
            return Err(if log.state.jobs.contains_key(&job) { error } else { is_over(log) });
        }
    };
    let mut numbers = Vec::new();
    let made = log.add(|state| {
        numbers = state.free(&wanted(None));
        Ok(Some(Say::TakeOver { job, from: Some(from), numbers: numbers.clone() }))
    })?;
    match made {
        Some((number, Outcome::Valid)) => Ok(Begun { job: number, base: open.base, numbers, kept, from }),
        Some((_, Outcome::Void(how))) => Err(StoreError::JobIsOver { job, how }),
        None => Err(is_over(log)),
    }
}

/// What earlier programs uploaded, up to the first gap, and the block behind it. All that they counted on themselves must be there (SO7).
pub(super) fn uploaded(log: &Log<'_>, attempts: &[Attempt]) -> Result<(Vec<Kept>, u64)> {
    let segments = Segments::new(log.objects, log.seal.clone(), log.state.store);
    // Where an attempt began that did not say it is not known, nor whether something is missing before that: it is not counted on.
    let begin = |attempt: &Attempt| attempt.from.or_else(|| planted::is("store_begin_guessed").then_some(0));
    let known: Vec<(u64, &Attempt)> = attempts.iter().filter_map(|attempt| Some((begin(attempt)?, attempt))).collect();
    let mut kept = Vec::new();
    let mut end = 0;
    for (place, (from, attempt)) in known.iter().enumerate() {
        let until = known.get(place + 1).map(|(next, _)| *next);
        end = of_attempt(&segments, attempt, (*from, until), &mut kept)?;
    }
    Ok((kept, end))
}

/// What one program uploaded, from the block with which it began. `until`: the block with which the next one went on. Gives out the block
/// behind what is there.
fn of_attempt(
    segments: &Segments<'_>,
    attempt: &Attempt,
    (from, until): (u64, Option<u64>),
    kept: &mut Vec<Kept>,
) -> Result<u64> {
    let mut end = from;
    let (mut name, mut is_missing) = (String::from("a segment"), false);
    let data = attempt.numbers.iter().filter(|range| range.kind == Kind::Data).flat_map(Numbers::all);
    for (kind, number) in data {
        // What came later, of a program that did not know yet that its job was over, is not counted on.
        if until == Some(end) {
            break;
        }
        name = kind.name(number);
        let Some(index) = segments.index(number)? else {
            is_missing = true;
            break;
        };
        end = of_segment(&index, number, end, kept)?;
    }
    match until {
        None => Ok(end),
        Some(until) if until == end || planted::is("store_gaps_pass") => Ok(until),
        Some(until) if is_missing => Err(StoreError::Lost { name, from: until }),
        Some(_) => Err(StoreError::Damaged { name, what: "it does not end where the push went on" }),
    }
}

/// The runs of a segment, which follow those that end at block `end`. Gives out the block behind them.
fn of_segment(index: &Index, number: u64, mut end: u64, kept: &mut Vec<Kept>) -> Result<u64> {
    let mut address = number * SEGMENT_BLOCKS;
    let last = address + (index.frames() as u64 * FRAME_BLOCKS).min(SEGMENT_BLOCKS);
    for held in &index.held {
        let (start, blocks) = (held.range.start, u64::from(held.range.blocks));
        if start < end || (!held.is_zeros && address + blocks > last) {
            let name = Kind::Data.name(number);
            return Err(StoreError::Damaged { name, what: "its ranges do not follow those before them" });
        }
        kept.push(Kept { start, blocks, address: (!held.is_zeros).then_some(address) });
        address += if held.is_zeros { 0 } else { blocks };
        end = start + blocks;
    }
    Ok(end)
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
