//! Writes snapshots, or what changed between pairs of them, as a stream that `rowen receive` reads anywhere.
//!
//! Invariants
//!
//! * SD1 Each frame says what its snapshot has, and each mark that nothing before it is missing. A page of the list of changes is used when
//!   both snapshots are certified after it was made: at their points, with the heads that the page names. Bytes are certified when they were
//!   read (RX3). So a receiver may go on at a mark, also after frames that follow it.
//! * SD2 What a stream needs is held from before its first frame until all of it is written; of a stream that is cut after its first mark,
//!   for a week. So nobody removes what its rest is made of.

use crate::ahead::Ahead;
use crate::commands::holds::Sent;
use crate::commands::meter::Meter;
use crate::commands::sources::{self, Chosen, Point};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, unexpected};
use rowen_control::protocol::{
    BlockRange, DiffPage, DiffPlace, DiffRange, DiffSide, GroupReport, MOST_BLOCKS, Outcome, PAGE_RANGES, Request,
    VolumeKind,
};
use rowen_engine::group::is_bookmark;
use rowen_engine::planted;
use rowen_engine::units::BLOCK_SIZE;
use rowen_transfer::{Base, Head, MAX_DATA, MAX_RANGES, Range, StreamWriter, Volume};
use std::collections::VecDeque;
use std::io;

/// Blocks of a frame, at most.
const FRAME_BLOCKS: u64 = MAX_DATA as u64 / BLOCK_SIZE;

/// Requests for data that are under way at a time, of [`MOST_BLOCKS`] each.
const AT_ONCE: usize = 3;

/// Ranges of zeros wait behind data that is being read, but not more.
const MOST_NEXT: usize = 4096;

/// The first mark comes after this many blocks.
const FIRST_MARK: u64 = (512 << 10) / BLOCK_SIZE;

/// A volume of the stream.
struct Member {
    old: Option<Point>,
    new: Point,
    /// What the first page compared.
    sides: (Option<DiffSide>, DiffSide),
    /// The first page, if it is small.
    first: Option<DiffPage>,
}

/// A stream that is being written: frames of ranges, read some at a time.
struct Sending<'a> {
    /// Blocks that were given out.
    given: &'a mut u64,
    group: String,
    /// The volume that is being sent, and its number.
    member: Member,
    number: u32,
    writer: StreamWriter<Vec<u8>>,
    /// Ranges of data that are not read yet.
    waiting: Vec<Range>,
    waiting_blocks: u64,
    /// What is under way, in its order: data that is being read, and zeros.
    under_way: VecDeque<Next>,
    ahead: Ahead,
    sent: u64,
    meter: Meter,
}

/// What comes next in the stream.
enum Next {
    Data(Vec<Range>),
    Zeros { start: u64, blocks: u64 },
}

pub fn send(session: &mut Session<'_>, args: &Args) -> Result {
    let Chosen { report, pairs, continues } = sources::chosen(session, args)?;
    let from = continues.map_or((0, 0), |place| (place.volume, place.block));
    let mut members = Vec::new();
    let mut volumes = Vec::new();
    let count = pairs.len();
    for (number, (old, new)) in (0..).zip(pairs) {
        let first = page(session, &report.name, (old.as_ref(), &new), None)?;
        let is_whole = (number, 0) >= from;
        let changed = first.next_block.is_none().then(|| match is_whole {
            true => data_blocks(&first, 0),
            false => data_blocks(&first, if number == from.0 { from.1 } else { u64::MAX }),
        });
        volumes.push(about(&report, (old.as_ref(), &new), &first, changed)?);
        let sides = (first.old, first.new);
        let first = Some(first).filter(|page| is_whole && page.ranges.len() * count <= PAGE_RANGES);
        members.push(Member { old, new, sides, first });
    }
    let head = Head {
        stream: session.backend.fresh_uuid().0,
        continues,
        volumes: count as u16,
        time: session.backend.now(),
        group: report.uuid.0,
        group_name: report.name.clone(),
    };
    let changed = volumes.iter().map(|volume| volume.changed).sum::<Option<u64>>();
    let writer = StreamWriter::begin(Vec::new(), &head, &volumes, !args.has(Opt::Plain)).map_err(lost)?;
    let points = members.iter().flat_map(|member| member.old.iter().chain([&member.new]));
    // Nothing can be removed of a bookmark but by its own name.
    let needed = points.filter(|point| !is_bookmark(&point.name)).map(|point| (point.name.clone(), point.point));
    let needed = needed.collect();
    let held = Sent::hold(session, &report, needed, (head.stream, continues.map(|place| place.stream)));
    let mut given = 0;
    let sent = Sending::all(session, &report.name, (members, &mut given), (writer, changed.unwrap_or(0)), from);
    // Where nobody took as much as comes before the first mark, there is nothing to go on with.
    let is_of_no_use = given < FIRST_MARK && continues.is_none();
    if sent.is_ok() || is_of_no_use || !held.are_there(session) {
        held.end(session);
    }
    sent
}

/// Blocks of data from a block on.
fn data_blocks(page: &DiffPage, from: u64) -> u64 {
    let data = page.ranges.iter().filter(|range| range.is_data);
    data.map(|range| (range.start_block + range.blocks).saturating_sub(from.max(range.start_block))).sum()
}

/// What a stream says of a volume.
fn about(
    report: &GroupReport,
    (old, new): (Option<&Point>, &Point),
    first: &DiffPage,
    changed: Option<u64>,
) -> Result<Volume> {
    let volume = sources::volume(report, &new.name)?;
    let origin = volume.origin.as_deref().and_then(|origin| report.volume(origin));
    Ok(Volume {
        name: origin.map_or_else(|| volume.name.clone(), |origin| origin.name.clone()),
        blocks: first.new.blocks,
        sector: volume.sector,
        thick: origin.is_some_and(|origin| origin.kind == VolumeKind::Thick),
        base: old.map(|old| Base { point: old.point.0, name: old.sent_as.clone() }),
        point: new.point.0,
        snapshot: new.sent_as.clone(),
        changed,
    })
}

/// A page of what changed, which is certified (SD1).
pub fn page(
    session: &mut Session<'_>,
    group: &str,
    (old, new): (Option<&Point>, &Point),
    from: Option<DiffPlace>,
) -> Result<DiffPage> {
    let request = Request::Diff { old: old.map(|old| old.name.clone()), new: new.name.clone(), from };
    let page = match session.ask(group, request)? {
        Outcome::Diff(page) => *page,
        other => return Err(unexpected(group, &other)),
    };
    let certified = old.zip(page.old).into_iter().chain([(new, page.new)]);
    for (point, side) in certified.filter(|_| !planted::is("pages_not_certified")) {
        let outcome = session.ask(group, read((point, side), Vec::new()))?;
        bytes_of(group, outcome)?;
    }
    Ok(page)
}

/// Asks for bytes of a point. Of no ranges: whether the volume is at it, with this head.
pub fn read((of, side): (&Point, DiffSide), ranges: Vec<BlockRange>) -> Request {
    Request::ReadPoint { name: of.name.clone(), point: of.point, side, ranges }
}

pub fn bytes_of(group: &str, outcome: Outcome) -> Result<Vec<u8>> {
    match outcome {
        Outcome::Data(bytes) => Ok(bytes.0),
        other => Err(unexpected(group, &other)),
    }
}

fn lost(error: io::Error) -> Failure {
    Failure::failed(match error.kind() {
        io::ErrorKind::BrokenPipe => "Whoever read the stream has gone: it is not whole.".to_owned(),
        _ => format!("Cannot write the stream: {error}. What was written of it is not whole."),
    })
}

impl Sending<'_> {
    /// Writes all of these volumes, from a place on.
    fn all(
        session: &mut Session<'_>,
        group: &str,
        (members, given): (Vec<Member>, &mut u64),
        (mut writer, changed): (StreamWriter<Vec<u8>>, u64),
        from: (u32, u64),
    ) -> Result {
        let count = members.len() as u32;
        let mut sent = 0;
        for (number, member) in (0..).zip(members).skip(from.0 as usize) {
            let meter = Meter::new(format!("sending {group}/{}", member.new.name), changed);
            let mut sending = Sending {
                given: &mut *given,
                group: group.to_owned(),
                member,
                number,
                writer,
                waiting: Vec::new(),
                waiting_blocks: 0,
                under_way: VecDeque::new(),
                ahead: Ahead::new(session, group, AT_ONCE),
                sent,
                meter,
            };
            sending.pages(session, if number == from.0 { from.1 } else { 0 })?;
            sending.read_waiting(session)?;
            while !sending.under_way.is_empty() {
                sending.write_next(session)?;
            }
            if number + 1 < count {
                let blocks = sending.member.sides.1.blocks;
                sending.writer.mark(number, blocks).map_err(lost)?;
            }
            sending.put(session)?;
            (writer, sent) = (sending.writer, sending.sent);
        }
        let rest = writer.end().map_err(lost)?;
        session.console.put(&rest).and_then(|()| session.console.finish()).map_err(lost)
    }

    /// All that changed in the volume from a block on.
    fn pages(&mut self, session: &mut Session<'_>, from: u64) -> Result {
        let (old, new) = self.member.sides;
        let is_whole = self.member.old.is_none();
        let mut next = Some(DiffPlace { old, new, block: from });
        let mut known = self.member.first.take();
        while let Some(place) = next {
            let page = match known.take() {
                Some(page) => page,
                None => page(session, &self.group, (self.member.old.as_ref(), &self.member.new), Some(place))?,
            };
            for range in &page.ranges {
                self.range(session, *range, is_whole)?;
            }
            next = page.next();
        }
        Ok(())
    }

    fn range(&mut self, session: &mut Session<'_>, range: DiffRange, is_whole: bool) -> Result {
        if !range.is_data {
            // A new volume reads as zeros where nothing was written.
            if is_whole {
                return Ok(());
            }
            self.read_waiting(session)?;
            self.under_way.push_back(Next::Zeros { start: range.start_block, blocks: range.blocks });
            // Nothing is read for them: if nothing is before them, they are written at once.
            while (self.ahead.is_empty() && !self.under_way.is_empty()) || self.under_way.len() > MOST_NEXT {
                self.write_next(session)?;
            }
            return Ok(());
        }
        let (mut start, mut left) = (range.start_block, range.blocks);
        while left > 0 {
            let blocks = left.min(FRAME_BLOCKS).min(MOST_BLOCKS - self.waiting_blocks);
            self.waiting.push(Range { start, blocks: blocks as u32 });
            self.waiting_blocks += blocks;
            (start, left) = (start + blocks, left - blocks);
            if self.waiting_blocks == MOST_BLOCKS {
                self.read_waiting(session)?;
            }
        }
        Ok(())
    }

    /// Has what waits read. What was read before is written meanwhile.
    fn read_waiting(&mut self, session: &mut Session<'_>) -> Result {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_blocks = 0;
        let wanted = waiting.iter().map(|range| BlockRange { start_block: range.start, blocks: range.blocks.into() });
        self.ahead.give(read((&self.member.new, self.member.sides.1), wanted.collect()))?;
        self.under_way.push_back(Next::Data(waiting));
        while self.ahead.is_full() {
            self.write_next(session)?;
        }
        Ok(())
    }

    /// Writes what comes next, when it is there.
    fn write_next(&mut self, session: &mut Session<'_>) -> Result {
        match self.under_way.pop_front() {
            None => Ok(()),
            Some(Next::Zeros { start, blocks }) => {
                self.writer.zeros(self.number, start, blocks).map_err(lost)?;
                self.put(session)
            }
            Some(Next::Data(ranges)) => {
                let outcome = self.ahead.take(session)?;
                let bytes = bytes_of(&self.group, outcome)?;
                self.frames(session, &ranges, &bytes)
            }
        }
    }

    /// Writes data in frames.
    fn frames(&mut self, session: &mut Session<'_>, waiting: &[Range], bytes: &[u8]) -> Result {
        let mut rest = bytes;
        let mut ranges = waiting;
        while !ranges.is_empty() {
            let mut blocks = 0;
            let fits = |range: &&Range| {
                blocks += u64::from(range.blocks);
                blocks <= FRAME_BLOCKS
            };
            let count = ranges.iter().take(MAX_RANGES).take_while(fits).count();
            let (now, later) = ranges.split_at(count);
            let blocks: u64 = now.iter().map(|range| u64::from(range.blocks)).sum();
            let data = rest.split_at_checked((blocks * BLOCK_SIZE) as usize);
            let (data, after) = data.ok_or_else(|| Failure::failed("The server read less than was asked for."))?;
            self.writer.data(self.number, now, data).map_err(lost)?;
            self.put(session)?;
            self.sent += blocks;
            *self.given = self.sent;
            (ranges, rest) = (later, after);
        }
        self.meter.show(session, self.sent);
        Ok(())
    }

    /// Gives out what was written.
    fn put(&mut self, session: &mut Session<'_>) -> Result {
        let bytes = self.writer.get_mut();
        session.console.put(bytes).map_err(lost)?;
        bytes.clear();
        Ok(())
    }
}
