//! Reads a stream that `rowen send` wrote, and makes a volume of it, or brings a volume to the state that was sent.

use crate::ahead::Ahead;
use crate::backend::Trouble;
use crate::commands::meter::Meter;
use crate::commands::restricted::{self, Asked};
use crate::commands::{points, receiving};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, unexpected};
use rowen_control::holds::Hold;
use rowen_control::names;
use rowen_control::paths::{self, Target};
use rowen_control::points::POLICY;
use rowen_control::protocol::{
    Attempt, AttributeChange, Base, BlockRange, Bytes, ErrorKind, HexUuid, MOST_BLOCKS, Mark, Outcome, Part, Receive,
    ReceiveVolume, Receiving, Request, Unfinished, VolumeReport,
};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use rowen_transfer::{End, Event, Head, MarkPlace, StreamError, StreamReader, Volume};
use std::io::Read;

/// How often what was received is made visible, if servers end meanwhile.
const ATTEMPTS: usize = 4;

/// Requests with data that are under way at a time, of [`MOST_BLOCKS`] each.
const AT_ONCE: usize = 2;

/// Volumes that are being received.
struct Incoming {
    group: String,
    targets: String,
    by: Attempt,
    /// These frames of the stream are here already.
    from_frames: u64,
    parts: Vec<Part>,
    waiting_blocks: u64,
    ahead: Ahead,
    done: u64,
    meter: Meter,
}

pub fn receive(session: &mut Session<'_>, args: &Args) -> Result {
    match restricted::asked(session, args)? {
        None => carry_out(session, args),
        Some(Asked::Receive(asked)) => carry_out(session, &asked),
        Some(Asked::Points(asked)) => points::points(session, &asked),
    }
}

fn carry_out(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::ReceiveStatus) {
        return receiving::status(session, args);
    }
    if args.has(Opt::ReceiveToken) {
        let (group, target) = target(args)?;
        return receiving::token(session, &group, &target);
    }
    if args.has(Opt::ReceiveAbort) {
        let (group, target) = target(args)?;
        session.change(&group, Request::AbortReceive { target: target.clone() })?;
        session.console.say(format!("What was received for {group}/{target} is given up."));
        return Ok(());
    }
    let (group, target) = place(args)?;
    check_names(args)?;
    let into = target.as_ref().map_or_else(|| group.clone(), |target| format!("{group}/{target}"));
    let input = match session.console.take_input() {
        Some(input) if !session.console.reads_terminal() => input,
        _ => return Err(Failure::usage("A stream is not read from a terminal: give it from a file or from a pipe.")),
    };
    let not_begun = |error: StreamError| Failure::failed(format!("Cannot receive into {into}: {error}."));
    let (mut reader, head, volumes) = StreamReader::begin(input).map_err(not_begun)?;
    let mut wanted = wanted(session, args, target.as_deref(), &head, &volumes)?;
    if !args.has(Opt::SnapshotName) && !session.is_test {
        named_as_it_began(session, &group, &mut wanted)?;
    }
    if session.is_test {
        return verify(session, reader, &head, &volumes);
    }
    let from_frames = match session.ask(&group, Request::Receive(wanted.clone()))? {
        Outcome::Receiving(Receiving::From { frames }) => frames,
        Outcome::Receiving(Receiving::IsHere { snapshots }) => {
            let _unread = reader.pass_over();
            let told = |(one, snapshot): (&ReceiveVolume, &String)| {
                format!("{group}/{} has this already: its snapshot {snapshot}.", one.target)
            };
            wanted.volumes.iter().zip(&snapshots).for_each(|pair| session.console.say(told(pair)));
            return snapshots.iter().try_for_each(|snapshot| received_for(session, args, &group, snapshot));
        }
        other => return Err(unexpected(&group, &other)),
    };
    let targets: Vec<String> = wanted.volumes.iter().map(|one| format!("{group}/{}", one.target)).collect();
    let targets = targets.join(", ");
    let changed = volumes.iter().map(|volume| volume.changed).sum::<Option<u64>>();
    let mut incoming = Incoming {
        meter: Meter::new(format!("receiving {targets}"), changed.unwrap_or(0)),
        ahead: Ahead::new(session, &group, AT_ONCE),
        group,
        targets,
        by: Attempt { stream: wanted.stream, attempt: wanted.attempt },
        from_frames,
        parts: Vec::new(),
        waiting_blocks: 0,
        done: 0,
    };
    let end = incoming.take_all(session, &mut reader)?;
    incoming.settle(session)?;
    incoming.publish(session, &wanted)?;
    tell(session, args, &incoming.group, &wanted, end);
    wanted.volumes.iter().try_for_each(|one| received_for(session, args, &incoming.group, &one.snapshot))
}

/// `--hold` and `--policy`: what the snapshot is for. A hold of this name moves on from older snapshots of the same volume.
fn received_for(session: &mut Session<'_>, args: &Args, group: &str, snapshot: &str) -> Result {
    let hold = args.text(Opt::MoveHold).map(|name| Hold { name, until: None }.tag());
    let policy = args.text(Opt::OfPolicy).map(|policy| format!("{POLICY}{policy}"));
    let add_tags: Vec<String> = hold.clone().into_iter().chain(policy).collect();
    if add_tags.is_empty() {
        return Ok(());
    }
    let change = AttributeChange { add_tags, ..AttributeChange::default() };
    session.change(group, Request::SetAttributes { name: snapshot.to_owned(), change })?;
    let Some(hold) = hold else { return Ok(()) };
    let report = session.report_of(group, vec![snapshot.to_owned()])?;
    let Some(origin) = report.volume(snapshot).and_then(|volume| volume.origin.clone()) else { return Ok(()) };
    let report = session.report_of(group, vec![origin.clone()])?;
    let has = |other: &&VolumeReport| other.name != snapshot && other.attributes.tags.contains(&hold);
    for other in report.snapshots_of(&origin).filter(has) {
        let change = AttributeChange { remove_tags: vec![hold.clone()], ..AttributeChange::default() };
        session.change(group, Request::SetAttributes { name: other.name.clone(), change })?;
    }
    Ok(())
}

/// Refuses names that cannot be given, before anything is received.
fn check_names(args: &Args) -> Result {
    for (option, what) in [(Opt::MoveHold, "a hold"), (Opt::OfPolicy, "a policy")] {
        if let Some((name, Err(refusal))) = args.text(option).map(|name| (name, names::check_form(name))) {
            return Err(Failure::usage(format!("\"{}\" is no name of {what}: {refusal}", name.escape_debug())));
        }
    }
    Ok(())
}

fn tell(session: &mut Session<'_>, args: &Args, group: &str, wanted: &Receive, end: End) {
    let size = args.units().show(end.data_blocks * BLOCK_SIZE, true);
    let size = size.trim_end();
    let made: Vec<String> =
        wanted.volumes.iter().map(|one| format!("{group}/{} and its snapshot {}", one.target, one.snapshot)).collect();
    session.console.say(format!("Received {} from {}: {size} of data.", made.join(", "), wanted.group));
    for one in wanted.volumes.iter().filter(|one| one.base.is_none()) {
        session.console.say(format!("\"lvchange -ay {group}/{}\" activates it.", one.target));
    }
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

/// A group, and the volume in it if one is named.
fn place(args: &Args) -> Result<(String, Option<String>)> {
    match &args.positionals[..] {
        [word] => match Target::parse(word) {
            Some(Target::Group(group)) => Ok((group, None)),
            _ => target(args).map(|(group, volume)| (group, Some(volume))),
        },
        _ => Err(Failure::usage("Please specify one logical volume or volume group: VG/LV or VG.")),
    }
}

/// What the stream's volumes become: one is called as the command says, and else all have the sender's names.
fn wanted(
    session: &mut Session<'_>,
    args: &Args,
    target: Option<&str>,
    head: &Head,
    volumes: &[Volume],
) -> Result<Receive> {
    let renames = target.is_some() || args.has(Opt::SnapshotName);
    if renames && volumes.len() > 1 {
        let told =
            format!("The stream has {} volumes, which keep their names: give a volume group alone.", volumes.len());
        return Err(Failure::failed(told));
    }
    let one = |volume: &Volume| ReceiveVolume {
        target: target.unwrap_or(&volume.name).to_owned(),
        snapshot: args.text(Opt::SnapshotName).unwrap_or(&volume.snapshot).to_owned(),
        source: volume.snapshot.clone(),
        point: Uuid(volume.point),
        blocks: volume.blocks,
        sector: volume.sector,
        changed: volume.changed,
        thick: volume.thick && !args.has(Opt::ReceiveThin),
        base: volume.base.as_ref().map(|base| Base { point: Uuid(base.point), name: base.name.clone() }),
        uuid: session.backend.fresh_uuid(),
    };
    let volumes = volumes.iter().map(one).collect();
    Ok(Receive {
        stream: Uuid(head.stream),
        continues: head.continues.map(mark_of),
        group: head.group_name.clone(),
        volumes,
        attempt: session.backend.fresh_uuid(),
        created: session.backend.now(),
    })
}

/// What goes on has the snapshot's name with which it began, so that `-n` need not be given again.
fn named_as_it_began(session: &mut Session<'_>, group: &str, wanted: &mut Receive) -> Result {
    let unfinished = match session.ask(group, Request::Receives)? {
        Outcome::Receives(unfinished) => unfinished,
        other => return Err(unexpected(group, &other)),
    };
    let goes_on = |one: &&Unfinished| match one.mark {
        None => true,
        Some(mark) => mark.stream == wanted.stream || wanted.continues == Some(mark),
    };
    for kept in unfinished.iter().filter(goes_on).flat_map(|one| &one.volumes) {
        let is_same = |one: &&mut ReceiveVolume| {
            one.target == kept.target && HexUuid(one.point) == kept.point && one.source == kept.source
        };
        wanted.volumes.iter_mut().filter(is_same).for_each(|one| one.snapshot.clone_from(&kept.snapshot));
    }
    Ok(())
}

fn mark_of(place: MarkPlace) -> Mark {
    Mark { stream: Uuid(place.stream), volume: place.volume, block: place.block, hash: place.hash }
}

/// `--test`: reads all of a stream, and changes nothing.
fn verify(session: &mut Session<'_>, mut reader: StreamReader<impl Read>, head: &Head, volumes: &[Volume]) -> Result {
    loop {
        match reader.next_event() {
            Ok(Event::End(_)) => break,
            Ok(_) => {}
            Err(error) => return Err(Failure::failed(format!("The stream cannot be received: {error}."))),
        }
    }
    let is_rest = head.continues.is_some();
    for volume in volumes {
        let from = volume.base.as_ref().map_or(String::new(), |base| format!(" since {}", base.name));
        let rest = if is_rest { ", the rest of a stream that was cut" } else { "" };
        session.console.say(format!("The stream is whole: {}/{}{from}{rest}.", head.group_name, volume.snapshot));
    }
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
                Event::Data { volume, ranges, bytes } => {
                    let blocks = bytes.len() as u64 / BLOCK_SIZE;
                    if self.waiting_blocks + blocks > MOST_BLOCKS {
                        self.send_waiting(session)?;
                    }
                    self.waiting_blocks += blocks;
                    let ranges = ranges.iter().map(|r| BlockRange { start_block: r.start, blocks: r.blocks.into() });
                    self.parts.push(Part::Data { volume, ranges: ranges.collect(), bytes: Bytes(bytes) });
                }
                Event::Zeros { volume, start, blocks } => {
                    self.parts.push(Part::Zeros { volume, range: BlockRange { start_block: start, blocks } });
                    if self.parts.len() >= 1024 {
                        self.send_waiting(session)?;
                    }
                }
                Event::Mark(place) => {
                    self.settle(session)?;
                    let (by, frames, mark) = (self.by, reader.frames(), mark_of(place));
                    session.ask(&self.group, Request::ReceiveMark { by, frames, mark })?;
                }
            }
        }
    }

    /// Why it did not come to the end, and what to do.
    fn unfinished(&self, error: &StreamError) -> Failure {
        let (group, targets) = (&self.group, &self.targets);
        let first = targets.split(", ").next().unwrap_or(group);
        Failure::failed(format!(
            "Cannot receive all of {targets}: {error}. Nothing that can be seen has changed.\n\
             Give the whole stream again: it goes on where it was. Or send the rest alone: \"rowen receive --token {first}\" prints what \
             \"rowen send --resume\" needs. \"rowen receive --abort {first}\" gives up what is here."
        ))
    }

    fn send_waiting(&mut self, session: &mut Session<'_>) -> Result {
        if self.parts.is_empty() {
            return Ok(());
        }
        let parts = std::mem::take(&mut self.parts);
        self.waiting_blocks = 0;
        self.ahead.give(Request::ReceiveParts { by: self.by, parts })?;
        while self.ahead.is_full() {
            self.ahead.take(session)?;
        }
        self.meter.show(session, self.done);
        Ok(())
    }

    /// Sends what waits, until the server has written all of it.
    fn settle(&mut self, session: &mut Session<'_>) -> Result {
        self.send_waiting(session)?;
        while !self.ahead.is_empty() {
            self.ahead.take(session)?;
        }
        Ok(())
    }

    /// Makes all of it visible. If no answer comes, it looks whether that was done, and does it if it was not.
    fn publish(&self, session: &mut Session<'_>, wanted: &Receive) -> Result {
        for _ in 0..ATTEMPTS {
            match session.ask(&self.group, Request::Publish { by: self.by }) {
                Err(Trouble::Other { kind: ErrorKind::Closed, .. }) if !self.is_published(session, wanted)? => {}
                Err(Trouble::Other { kind: ErrorKind::Closed, .. }) => {
                    let group = &self.group;
                    session.console.complain(format!(
                        "The server of volume group \"{group}\" ended before it answered, and had done it: all is received."
                    ));
                    return Ok(());
                }
                outcome => return Ok(outcome.map(drop)?),
            }
        }
        Err(Failure::failed(format!(
            "The server of volume group \"{}\" keeps ending. All of {} was received, and waits: give the same stream again.",
            self.group, self.targets
        )))
    }

    fn is_published(&self, session: &mut Session<'_>, wanted: &Receive) -> Result<bool> {
        let names = wanted.volumes.iter().map(|one| one.snapshot.clone()).collect();
        let report = session.report_of(&self.group, names)?;
        Ok(wanted.volumes.iter().all(|one| {
            let snapshot = report.volume(&one.snapshot);
            snapshot
                .is_some_and(|it| it.point_uuid == Some(HexUuid(one.point)) && it.origin.as_ref() == Some(&one.target))
        }))
    }
}

#[cfg(test)]
#[path = "transfer_test.rs"]
mod tests;
