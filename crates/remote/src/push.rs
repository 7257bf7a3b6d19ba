//! `rowen push`: a snapshot goes into a store, or what changed since the newest one that the store has.

use crate::arguments::Arguments;
use crate::failure::{Failure, Result, failed, of_store, usage};
use crate::group;
use crate::known::{check_name, hex};
use crate::meter::{Meter, size};
use crate::places::{Place, Turn};
use rowen_control::points::Points;
use rowen_transfer::store::{self, About, Begun, Log, Pushed, StoreError, Ways};
use rowen_transfer::{BLOCK, Base, Head, MarkPlace, StreamReader, Token, TokenVolume, Volume};
use std::io::BufReader;
use std::process::ChildStdout;

/// Segments that are uploaded at once.
const THREADS: usize = 4;

/// What is pushed, and what it is made of.
struct Wanted {
    volume: String,
    snapshot: Points,
    uuid: [u8; 16],
    made: u64,
    /// What it is called in the store.
    as_volume: String,
    as_point: String,
    /// The point of the store, and what the group calls it.
    base: Option<(u64, Base)>,
}

impl Wanted {
    fn since(&self) -> String {
        self.base
            .as_ref()
            .map_or_else(|| "all of it".to_owned(), |(_, base)| format!("what changed since {}", base.name))
    }
}

pub fn push(arguments: &Arguments) -> Result {
    let [_, volume, name] = &arguments.positionals[..] else {
        return Err(usage("Please specify a snapshot and a store: VG/SNAPSHOT STORE."));
    };
    let place = Place::open(name)?;
    let mut log = place.log()?;
    let Some(wanted) = wanted(arguments, &log, volume, name)? else { return Ok(()) };
    if arguments.has("--dryrun") {
        say!("  Would push {volume} to {name} as {}@{}: {}.", wanted.as_volume, wanted.as_point, wanted.since());
        return Ok(());
    }
    let turn = place.only_one(&hex(&wanted.uuid[..8]))?;
    let outcome = carry_out(&mut log, &wanted, name, &turn);
    place.saw(&log);
    let (pushed, about, from) = outcome?;
    turn.end();
    if arguments.has("--quiet") {
        return Ok(());
    }
    let since = wanted.since();
    let rest = if from > 0 { ", the rest of a push that was cut" } else { "" };
    say!(
        "  Pushed {volume} to {name} as {}@{}: {since}{rest}, {} read, {} uploaded.",
        about.volume,
        about.point,
        size(pushed.read_blocks * BLOCK),
        size(pushed.table.uploaded)
    );
    Ok(())
}

/// None: the store has it already.
fn wanted(arguments: &Arguments, log: &Log<'_>, volume: &str, store: &str) -> Result<Option<Wanted>> {
    let snapshot = group::points(volume)?;
    if !snapshot.exists {
        return Err(failed(format!("Failed to find logical volume \"{volume}\".")));
    }
    let uuid = snapshot.point_uuid.as_deref().and_then(group::uuid);
    let (Some(uuid), Some(origin), true) = (uuid, &snapshot.origin, snapshot.is_snapshot) else {
        return Err(failed(format!(
            "Only a snapshot that nobody wrote to can be pushed. \"lvcreate -s -n NAME {volume}\" takes one."
        )));
    };
    let (as_volume, as_point) =
        (arguments.text("--as").unwrap_or(origin), arguments.text("--name").unwrap_or(&snapshot.volume));
    check_name(as_volume)?;
    check_name(as_point)?;
    if let Some((_, there)) = log.state.find(&uuid) {
        say!("  {store} has this already: {}@{}.", there.about.volume, there.about.point);
        return Ok(None);
    }
    let of_origin = group::points(&format!("{}/{origin}", snapshot.group))?;
    let base = if arguments.has("--full") { None } else { base(log, &of_origin, &snapshot.volume) };
    let own = group::uuid(&snapshot.group_uuid).unwrap_or_default();
    let mut named = log.state.points.values().filter(|point| point.about.volume == as_volume);
    if named.clone().any(|point| point.about.point == as_point) {
        return Err(failed(format!(
            "{store} has another point {as_volume}@{as_point}. \"rowen store forget {store} {as_volume}@{as_point}\" gives it up, or -n \
             NAME gives this one another name."
        )));
    }
    let is_foreign = named.any(|point| point.about.group != own);
    if is_foreign && base.is_none() && !arguments.has("--as") {
        return Err(failed(format!(
            "{store} has a volume {as_volume} of another volume group, with which this one has no point in common: give this one \
             another name there, with --as NAME."
        )));
    }
    let made = of_origin.points.iter().find(|point| point.name == snapshot.volume).map_or(0, |point| point.made);
    let (as_volume, as_point) = (as_volume.to_owned(), as_point.to_owned());
    Ok(Some(Wanted { volume: volume.to_owned(), snapshot, uuid, made, as_volume, as_point, base }))
}

/// The newest older point that the store has, too: a snapshot, or else a bookmark.
fn base(log: &Log<'_>, of: &Points, snapshot: &str) -> Option<(u64, Base)> {
    let older = of.snapshots().take_while(|point| point.name != snapshot).collect::<Vec<_>>();
    let bookmarks = of.points.iter().filter(|point| point.is_bookmark).rev();
    older.into_iter().rev().chain(bookmarks).find_map(|point| {
        let uuid = group::uuid(&point.point_uuid)?;
        let (number, _) = log.state.find(&uuid)?;
        Some((number, Base { point: uuid, name: point.name.clone() }))
    })
}

/// A stream that `rowen send` writes, with what comes before its data.
struct Sent {
    child: std::process::Child,
    reader: StreamReader<BufReader<ChildStdout>>,
    stream: [u8; 16],
    volume: Volume,
}

/// Begins with this block of the volume (SO7).
fn send(words: &[&str], wanted: &Wanted, from: u64) -> Result<Sent> {
    let mut child = group::sender(words)?;
    let output = child.stdout.take().expect("it is piped");
    let begun: Result<(_, Head, Vec<Volume>), _> = StreamReader::begin(BufReader::with_capacity(1 << 20, output));
    let (reader, head, volumes) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            // What it says itself is what went wrong.
            let ended = child.wait();
            let code = ended.map_or(crate::failure::FAILED, group::code_of);
            let message = if code == 0 {
                format!("The stream of {} cannot be read: {error}.", wanted.volume)
            } else {
                String::new()
            };
            return Err(Failure { code: code.max(1), message });
        }
    };
    if head.continues.map_or(0, |place| place.block) != from {
        return Err(failed(format!("\"rowen send\" does not begin with block {from} of {}.", wanted.volume)));
    }
    match <[Volume; 1]>::try_from(volumes) {
        Ok([volume]) if volume.point == wanted.uuid => Ok(Sent { child, reader, stream: head.stream, volume }),
        _ => Err(failed(format!("{} is not what it was a moment ago.", wanted.volume))),
    }
}

/// What an earlier program began, if its base is still there; else it is given up.
fn earlier(log: &mut Log<'_>, of: &Wanted, store: &str) -> Result<Option<Begun>> {
    let what = format!("Cannot go on with the push to {store}");
    let told = |error: StoreError| Failure { message: cannot_go_on(&what, &error, store), ..of_store(&what, &error) };
    while let Some(job) = store::open_job(&log.state, &of.uuid) {
        let open = &log.state.jobs[&job];
        let base = open.base.map(|base| log.state.needed_point(base).map(|point| point.about.uuid));
        let is_as_wanted = open.about.volume == of.as_volume && open.about.point == of.as_point;
        let is_there = match base {
            None => of.base.is_none(),
            Some(base) => of.base.as_ref().is_some_and(|(_, wanted)| Some(wanted.point) == base),
        };
        if is_as_wanted && is_there {
            return store::take_over(log, job).map(Some).map_err(told);
        }
        store::abandon(log, |number, _| number == job).map_err(|error| of_store(&what, &error))?;
    }
    Ok(None)
}

/// What is wrong with what an earlier program uploaded, and what can be done.
fn cannot_go_on(what: &str, error: &StoreError, store: &str) -> String {
    let told = format!("{what}: {error}.");
    match error {
        StoreError::Lost { .. } | StoreError::Damaged { .. } => format!(
            "{told}\nNothing of it is to be seen in the store. Try again later. If it stays so, \"rowen store gc \
             --older 0s {store}\" gives up all pushes that are not finished, also those of other hosts; then the same command begins anew."
        ),
        _ => told,
    }
}

fn carry_out(log: &mut Log<'_>, wanted: &Wanted, store: &str, turn: &Turn) -> Result<(Pushed, About, u64)> {
    let what = format!("Cannot push {} to {store}", wanted.volume);
    let base = &wanted.base;
    let begun = earlier(log, wanted, store)?;
    let from = begun.as_ref().map_or(0, |begun| begun.from);
    let base_name = base.as_ref().map(|(_, base)| base.name.clone());
    // What was sent before is held by the name of its stream: the stream that goes on with it takes the hold over.
    let goes_on = from > 0 || turn.noted().is_some();
    let token = token(wanted, turn.noted(), from).to_word();
    let words: Vec<&str> = match &base_name {
        _ if goes_on => vec!["send", "--plain", "--resume", &token],
        Some(base) => vec!["send", "--plain", "-i", base, &wanted.volume],
        None => vec!["send", "--plain", &wanted.volume],
    };
    let Sent { mut child, mut reader, stream, volume } = send(&words, wanted, from)?;
    turn.note(stream);
    let about = About {
        volume: wanted.as_volume.clone(),
        point: wanted.as_point.clone(),
        uuid: wanted.uuid,
        group: group::uuid(&wanted.snapshot.group_uuid).unwrap_or_default(),
        group_name: wanted.snapshot.group.clone(),
        made: wanted.made,
        blocks: volume.blocks,
        sector: volume.sector,
        thick: volume.thick,
    };
    let begun = match begun {
        Some(begun) => begun,
        None => {
            let base = base.as_ref().map(|(number, _)| *number);
            store::begin(log, &about, base, volume.changed).map_err(|error| of_store(&what, &error))?
        }
    };
    let mut meter = Meter::new(format!("pushing {}", wanted.volume), volume.changed.unwrap_or(0) * BLOCK);
    let mut tell = |blocks: u64, _uploaded: u64| meter.show(blocks * BLOCK);
    let outcome = store::push(log, &about, begun, &mut reader, Ways { threads: THREADS, tell: &mut tell });
    drop(meter);
    match outcome {
        Ok(pushed) => {
            let _ended = child.wait();
            Ok((pushed, about, from))
        }
        Err(error) => {
            // It ends when nobody reads any more.
            drop(reader);
            let _ended = child.wait();
            let again = "Nothing of it is to be seen in the store. The same command goes on where it was.";
            Err(failed(format!("{what}: {error}.\n{again}")))
        }
    }
}

/// What `rowen send` needs to go on with a block. By the stream that was cut it knows its hold of the snapshots.
fn token(wanted: &Wanted, stream: Option<[u8; 16]>, from: u64) -> Token {
    let stream = stream.unwrap_or_else(|| rowen_control::uuids::fresh().0);
    let place = MarkPlace { stream, volume: 0, block: from, hash: [0; 32] };
    let base = wanted.base.as_ref().map(|(_, base)| base.clone());
    let volume = TokenVolume { base, point: wanted.uuid, snapshot: wanted.snapshot.volume.clone() };
    Token { place, group_name: wanted.snapshot.group.clone(), volumes: vec![volume] }
}
