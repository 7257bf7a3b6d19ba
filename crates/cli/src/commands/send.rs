//! Writes a snapshot, or what changed between two, as a stream that `rowen receive` reads anywhere.

use crate::commands::meter::Meter;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, no_volume, unexpected};
use rowen_control::paths::{self, Target};
use rowen_control::protocol::{
    BlockRange, DiffPage, DiffPlace, DiffRange, GroupReport, HexUuid, MOST_BLOCKS, Outcome, Request, VolumeKind,
    VolumeReport,
};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use rowen_transfer::{Base, Head, MAX_DATA, MAX_RANGES, Range, StreamWriter, Volume};
use std::io;

/// Blocks of a frame, at most.
const FRAME_BLOCKS: u64 = MAX_DATA as u64 / BLOCK_SIZE;

/// A snapshot, and its contents' identity.
struct Point {
    name: String,
    point: Uuid,
}

/// A stream that is being written: frames of ranges, read some at a time.
struct Sending {
    group: String,
    new: Point,
    writer: StreamWriter<Vec<u8>>,
    /// Ranges of data that are not read yet.
    waiting: Vec<Range>,
    waiting_blocks: u64,
    sent: u64,
    meter: Meter,
}

pub fn send(session: &mut Session<'_>, args: &Args) -> Result {
    let [word] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify one snapshot: VG/SNAPSHOT."));
    };
    let (group, name) = match Target::parse(word) {
        Some(Target::Volume { group, volume }) => (group, volume),
        Some(_) => return Err(Failure::usage(format!("Please specify a snapshot: \"{word}\" has no volume group."))),
        None => return Err(Failure::usage(paths::refusal(word))),
    };
    let base = args.text(Opt::SendFrom).map(|word| base_of(&group, word)).transpose()?;
    if session.console.shows_output() {
        return Err(Failure::usage("A stream is not written to a terminal: send it to a file or to a pipe."));
    }
    let names = [name.clone()].into_iter().chain(base.clone()).collect();
    let report = session.report_of(&group, names)?;
    let volume = point(&report, &name)?;
    let new = Point { name: name.clone(), point: identity(&report, volume)? };
    let old = match &base {
        Some(base) => Some(Point { name: base.clone(), point: identity(&report, point(&report, base)?)? }),
        None => None,
    };
    let first = ask(session, &group, (old.as_ref(), &new), None)?;
    let (head, about) = about(session, &report, volume, (old.as_ref(), &new), &first);
    let begun = StreamWriter::begin(Vec::new(), &head, &about, !args.has(Opt::Plain));
    let meter = Meter::new(format!("sending {group}/{name}"), about.changed.unwrap_or(0));
    let mut sending =
        Sending { group, new, writer: begun.map_err(lost)?, waiting: Vec::new(), waiting_blocks: 0, sent: 0, meter };
    let last = sending.pages(session, old.as_ref(), first)?;
    sending.end(session, old.as_ref(), last)
}

/// The snapshot that a stream goes on from, which is in the same group.
fn base_of(group: &str, word: &str) -> Result<String> {
    match Target::parse(word) {
        Some(Target::Volume { group: of, volume }) if of == group => Ok(volume),
        Some(Target::Group(name)) => Ok(name),
        Some(Target::Volume { .. }) => {
            Err(Failure::usage(format!("\"{word}\" is not in volume group \"{group}\", and has no common snapshot.")))
        }
        Some(Target::Tag(_)) | None => Err(Failure::usage(paths::refusal(word))),
    }
}

fn point<'r>(report: &'r GroupReport, name: &str) -> Result<&'r VolumeReport> {
    report.volume(name).ok_or_else(|| Failure::failed(no_volume(&report.name, name)))
}

/// The identity of what is sent, or of what it goes on from.
fn identity(report: &GroupReport, volume: &VolumeReport) -> Result<Uuid> {
    let (group, name) = (&report.name, &volume.name);
    let fail = |why: String| {
        let advice = format!("Take a snapshot of it, and send that: \"lvcreate -s -n NAME {group}/{name}\".");
        Err(Failure::failed(format!("{why} {advice}")))
    };
    match (volume.point_uuid, &volume.origin) {
        (Some(HexUuid(point)), Some(_)) => Ok(point),
        (_, None) => fail(format!("Logical volume {group}/{name} is no snapshot, so it can change while it is sent.")),
        (None, Some(_)) => fail(format!(
            "Logical volume {group}/{name} is not what it was when it was made: it was written to, or reverted."
        )),
    }
}

/// What a stream begins with.
fn about(
    session: &mut Session<'_>,
    report: &GroupReport,
    volume: &VolumeReport,
    (old, new): (Option<&Point>, &Point),
    first: &DiffPage,
) -> (Head, Volume) {
    let origin = volume.origin.as_deref().and_then(|origin| report.volume(origin));
    let head = Head {
        stream: session.backend.fresh_uuid().0,
        time: session.backend.now(),
        group: report.uuid.0,
        group_name: report.name.clone(),
    };
    let data = first.ranges.iter().filter(|range| range.is_data).map(|range| range.blocks).sum();
    let volume = Volume {
        name: origin.map_or_else(|| volume.name.clone(), |origin| origin.name.clone()),
        blocks: first.new.blocks,
        sector: volume.sector,
        thick: origin.is_some_and(|origin| origin.kind == VolumeKind::Thick),
        base: old.map(|old| Base { point: old.point.0, name: old.name.clone() }),
        point: new.point.0,
        snapshot: new.name.clone(),
        changed: first.next_block.is_none().then_some(data),
    };
    (head, volume)
}

fn ask(
    session: &mut Session<'_>,
    group: &str,
    (old, new): (Option<&Point>, &Point),
    from: Option<DiffPlace>,
) -> Result<DiffPage> {
    let request = Request::Diff { old: old.map(|old| old.name.clone()), new: new.name.clone(), from };
    match session.ask(group, request)? {
        Outcome::Diff(page) => Ok(*page),
        other => Err(unexpected(group, &other)),
    }
}

/// Bytes of a point. Of no ranges: whether the volume is at it.
fn read(session: &mut Session<'_>, group: &str, of: &Point, ranges: Vec<BlockRange>) -> Result<Vec<u8>> {
    let request = Request::ReadPoint { name: of.name.clone(), point: of.point, ranges };
    match session.ask(group, request)? {
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

impl Sending {
    /// All that changed. Returns the last page.
    fn pages(&mut self, session: &mut Session<'_>, old: Option<&Point>, first: DiffPage) -> Result<DiffPage> {
        let mut page = first;
        loop {
            for range in &page.ranges {
                self.range(session, *range, old.is_none())?;
            }
            let Some(place) = page.next() else { return Ok(page) };
            page = ask(session, &self.group, (old, &self.new), Some(place))?;
        }
    }

    fn range(&mut self, session: &mut Session<'_>, range: DiffRange, is_whole: bool) -> Result {
        if !range.is_data {
            // A new volume reads as zeros where nothing was written.
            if is_whole {
                return Ok(());
            }
            self.read_waiting(session)?;
            self.writer.zeros(range.start_block, range.blocks).map_err(lost)?;
            return self.put(session);
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

    /// Reads what waits, and writes it in frames.
    fn read_waiting(&mut self, session: &mut Session<'_>) -> Result {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_blocks = 0;
        let wanted = waiting.iter().map(|range| BlockRange { start_block: range.start, blocks: range.blocks.into() });
        let bytes = read(session, &self.group, &self.new, wanted.collect())?;
        let mut rest = &bytes[..];
        let mut ranges = &waiting[..];
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
            self.writer.data(now, data).map_err(lost)?;
            self.put(session)?;
            self.sent += blocks;
            (ranges, rest) = (later, after);
        }
        self.meter.show(session, self.sent);
        Ok(())
    }

    /// Gives out what was written.
    fn put(&mut self, session: &mut Session<'_>) -> Result {
        let bytes = std::mem::take(self.writer.get_mut());
        session.console.put(&bytes).map_err(lost)
    }

    /// The end is written when it is certain that all pages and bytes were of the two points.
    fn end(mut self, session: &mut Session<'_>, old: Option<&Point>, last: DiffPage) -> Result {
        self.read_waiting(session)?;
        for point in old.into_iter().chain([&self.new]) {
            read(session, &self.group, point, Vec::new())?;
        }
        // A head that is another one after it was reverted: these are those of the first page, so both were at their points all the time.
        let place = DiffPlace { old: last.old, new: last.new, block: u64::MAX };
        ask(session, &self.group, (old, &self.new), Some(place))?;
        let rest = self.writer.end().map_err(lost)?;
        session.console.put(&rest).and_then(|()| session.console.finish()).map_err(lost)
    }
}
