//! Reads a stream that `rowen send` wrote, and makes a volume of it, or brings a volume to the state that was sent.

use crate::commands::meter::Meter;
use crate::commands::restricted;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, unexpected};
use rowen_control::paths::{self, Target};
use rowen_control::protocol::{
    Base, BlockRange, Bytes, MOST_BLOCKS, Outcome, Part, Receive, Receiving, Request, Unfinished,
};
use rowen_control::units::Units;
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use rowen_transfer::{End, Event, Head, StreamError, StreamReader, Volume};
use serde_json::json;
use std::io::Read;

/// A volume that is being received.
struct Incoming {
    group: String,
    target: String,
    stream: Uuid,
    /// These frames of the stream are here already.
    from_frames: u64,
    parts: Vec<Part>,
    waiting_blocks: u64,
    done: u64,
    meter: Meter,
}

pub fn receive(session: &mut Session<'_>, args: &Args) -> Result {
    match restricted::asked(session, args)? {
        None => carry_out(session, args),
        Some(asked) => carry_out(session, &asked),
    }
}

fn carry_out(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::ReceiveStatus) {
        return status(session, args);
    }
    let (group, target) = target(args)?;
    if args.has(Opt::ReceiveAbort) {
        session.change(&group, Request::AbortReceive { target: target.clone() })?;
        session.console.say(format!("What was received for {group}/{target} is given up."));
        return Ok(());
    }
    let input = match session.console.take_input() {
        Some(input) if !session.console.reads_terminal() => input,
        _ => return Err(Failure::usage("A stream is not read from a terminal: give it from a file or from a pipe.")),
    };
    let not_begun = |error: StreamError| Failure::failed(format!("Cannot receive into {group}/{target}: {error}."));
    let (mut reader, head, volume) = StreamReader::begin(input).map_err(not_begun)?;
    let wanted = wanted(session, args, &target, &head, &volume);
    if session.is_test {
        return verify(session, reader, &head, &volume);
    }
    let from_frames = match session.ask(&group, Request::Receive(wanted.clone()))? {
        Outcome::Receiving(Receiving::From { frames }) => frames,
        Outcome::Receiving(Receiving::IsHere { snapshot }) => {
            let _unread = reader.pass_over();
            session.console.say(format!("{group}/{target} has this already: its snapshot {snapshot}."));
            return Ok(());
        }
        other => return Err(unexpected(&group, &other)),
    };
    let mut incoming = Incoming {
        meter: Meter::new(format!("receiving {group}/{target}"), volume.changed.unwrap_or(0)),
        group,
        target,
        stream: Uuid(head.stream),
        from_frames,
        parts: Vec::new(),
        waiting_blocks: 0,
        done: 0,
    };
    let end = incoming.take_all(session, &mut reader)?;
    incoming.send_waiting(session)?;
    let Incoming { group, target, stream, .. } = incoming;
    session.ask(&group, Request::Publish { target: target.clone(), stream })?;
    let size = args.units().show(end.data_blocks * BLOCK_SIZE, true);
    let size = size.trim_end();
    session.console.say(format!(
        "Received {group}/{target} and its snapshot {} from {}: {size} of data.",
        wanted.snapshot, head.group_name
    ));
    if wanted.base.is_none() {
        session.console.say(format!("\"lvchange -ay {group}/{target}\" activates it."));
    }
    Ok(())
}

fn target(args: &Args) -> Result<(String, String)> {
    match &args.positionals[..] {
        [word] => match Target::parse(word) {
            Some(Target::Volume { group, volume }) => Ok((group, volume)),
            Some(_) => Err(Failure::usage(format!("Please specify a logical volume: \"{word}\" has no volume group."))),
            None => Err(Failure::usage(paths::refusal(word))),
        },
        _ => Err(Failure::usage("Please specify one logical volume: VG/LV.")),
    }
}

fn wanted(session: &mut Session<'_>, args: &Args, target: &str, head: &Head, volume: &Volume) -> Receive {
    Receive {
        target: target.to_owned(),
        snapshot: args.text(Opt::SnapshotName).unwrap_or(&volume.snapshot).to_owned(),
        stream: Uuid(head.stream),
        point: Uuid(volume.point),
        blocks: volume.blocks,
        sector: volume.sector,
        changed: volume.changed,
        thick: volume.thick && !args.has(Opt::ReceiveThin),
        base: volume.base.as_ref().map(|base| Base { point: Uuid(base.point), name: base.name.clone() }),
        uuid: session.backend.fresh_uuid(),
        created: session.backend.now(),
    }
}

/// `--test`: reads all of a stream, and changes nothing.
fn verify(session: &mut Session<'_>, mut reader: StreamReader<impl Read>, head: &Head, volume: &Volume) -> Result {
    loop {
        match reader.next_event() {
            Ok(Event::End(_)) => break,
            Ok(_) => {}
            Err(error) => return Err(Failure::failed(format!("The stream cannot be received: {error}."))),
        }
    }
    let from = volume.base.as_ref().map_or(String::new(), |base| format!(" since {}", base.name));
    session.console.say(format!("The stream is whole: {}/{}{from}.", head.group_name, volume.snapshot));
    Ok(())
}

impl Incoming {
    fn take_all(&mut self, session: &mut Session<'_>, reader: &mut StreamReader<impl Read>) -> Result<End> {
        loop {
            let event = reader.next_event().map_err(|error| self.unfinished(&error))?;
            if let Event::Data { ranges, .. } = &event {
                self.done += ranges.iter().map(|range| u64::from(range.blocks)).sum::<u64>();
            }
            let is_new = reader.frames() > self.from_frames;
            match event {
                Event::End(end) => return Ok(end),
                _ if !is_new => {}
                Event::Data { ranges, bytes } => {
                    let blocks = bytes.len() as u64 / BLOCK_SIZE;
                    if self.waiting_blocks + blocks > MOST_BLOCKS {
                        self.send_waiting(session)?;
                    }
                    self.waiting_blocks += blocks;
                    let ranges = ranges.iter().map(|r| BlockRange { start_block: r.start, blocks: r.blocks.into() });
                    self.parts.push(Part::Data { ranges: ranges.collect(), bytes: Bytes(bytes) });
                }
                Event::Zeros { start, blocks } => {
                    self.parts.push(Part::Zeros(BlockRange { start_block: start, blocks }));
                    if self.parts.len() >= 1024 {
                        self.send_waiting(session)?;
                    }
                }
                Event::Mark { .. } => {
                    self.send_waiting(session)?;
                    let (target, stream) = (self.target.clone(), self.stream);
                    let frames = reader.frames();
                    session.ask(&self.group, Request::ReceiveMark { target, stream, frames })?;
                }
            }
        }
    }

    /// Why it did not come to the end, and what to do.
    fn unfinished(&self, error: &StreamError) -> Failure {
        let (group, target) = (&self.group, &self.target);
        Failure::failed(format!(
            "Cannot receive all of {group}/{target}: {error}. Nothing that can be seen has changed.\n\
             Give the whole stream again: it goes on where it was. \"rowen receive --abort {group}/{target}\" gives up what is here."
        ))
    }

    fn send_waiting(&mut self, session: &mut Session<'_>) -> Result {
        if self.parts.is_empty() {
            return Ok(());
        }
        let parts = std::mem::take(&mut self.parts);
        self.waiting_blocks = 0;
        let request = Request::ReceiveParts { target: self.target.clone(), stream: self.stream, parts };
        session.ask(&self.group, request)?;
        self.meter.show(session, self.done);
        Ok(())
    }
}

/// What is being received.
fn status(session: &mut Session<'_>, args: &Args) -> Result {
    let group = match &args.positionals[..] {
        [word] => match Target::parse(word) {
            Some(Target::Group(group)) => group,
            _ => return Err(Failure::usage("Please specify a volume group with --status.")),
        },
        _ => return Err(Failure::usage("Please specify one volume group with --status.")),
    };
    let unfinished = match session.ask(&group, Request::Receives)? {
        Outcome::Receives(unfinished) => unfinished,
        other => return Err(unexpected(&group, &other)),
    };
    if args.has(Opt::Json) {
        let rows: Vec<_> = unfinished.iter().map(|one| row_of(&group, one)).collect();
        session.console.raw_out(&format!("{}\n", json!({ "receiving": rows })));
        return Ok(());
    }
    if unfinished.is_empty() {
        session.console.say(format!("Nothing is being received into volume group \"{group}\"."));
    }
    for one in unfinished {
        session.console.say(line_of(&group, &one, args.units()));
    }
    Ok(())
}

fn row_of(group: &str, one: &Unfinished) -> serde_json::Value {
    json!({
        "group": group,
        "volume": one.target,
        "snapshot": one.snapshot,
        "base": one.base,
        "size_bytes": one.blocks * BLOCK_SIZE,
        "held_bytes": one.held_blocks * BLOCK_SIZE,
        "begun": one.created,
    })
}

fn line_of(group: &str, one: &Unfinished, units: Units) -> String {
    let size = |blocks: u64| units.show(blocks * BLOCK_SIZE, true).trim_end().to_owned();
    let what = match &one.base {
        Some(base) => format!("from {base} to {}", one.snapshot),
        None => format!("all of {}", one.snapshot),
    };
    format!(
        "{group}/{}: {what}, of {}, is being received and holds {}.",
        one.target,
        size(one.blocks),
        size(one.held_blocks)
    )
}

#[cfg(test)]
#[path = "transfer_test.rs"]
mod tests;
