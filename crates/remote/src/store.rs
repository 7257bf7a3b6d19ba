//! `rowen store`: which stores there are, what they have, and how they are cleaned.

use crate::arguments::Arguments;
use crate::failure::{Failure, Result, failed, of_store, usage};
use crate::keys::{self, Secret};
use crate::known::{Known, check_name, hex, now};
use crate::meter::{Meter, size};
use crate::places::{Place, objects};
use crate::probe::probe;
use rowen_control::time;
use rowen_control::uuids;
use rowen_engine::units::Uuid;
use rowen_transfer::BLOCK;
use rowen_transfer::store::{self, Header, Log, Objects, Point, StoreError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What can be done with stores.
const KNOWN: &str = "keygen, add, addkey, list, check, gc, forget, remove";
/// A job that made no entry for so long is given up by `gc`.
const OLD: u64 = 7 * 24 * 3600;

pub fn store(arguments: &Arguments) -> Result {
    match arguments.positionals.get(1).map(String::as_str) {
        Some("add") => add(arguments),
        Some("addkey") => add_key(arguments),
        Some("keygen") => keygen(arguments),
        Some("list" | "ls") => list(arguments),
        Some("forget") => forget(arguments),
        Some("gc") => gc(arguments),
        Some("check") => check(arguments),
        Some("remove") => remove(arguments),
        Some(other) => Err(usage(format!("\"rowen store {}\" is not known: {KNOWN}.", other.escape_debug()))),
        None => Err(usage(format!("Please say what shall be done: {KNOWN}."))),
    }
}

fn named(arguments: &Arguments) -> Result<&str> {
    match &arguments.positionals[2..] {
        [name] => Ok(name),
        _ => Err(usage("Please specify one store.")),
    }
}

/// `rowen store add`: probes the place, makes a store there if it has no store, and remembers it.
fn add(arguments: &Arguments) -> Result {
    let [_, _, name, url] = &arguments.positionals[..] else {
        return Err(usage("Please specify a name and a place: NAME s3://BUCKET/PREFIX or NAME file:///DIRECTORY."));
    };
    check_name(name)?;
    if arguments.has("--plain") && arguments.has("--keyfile") {
        return Err(usage("A store is encrypted (--key-file FILE) or not (--plain)."));
    }
    if let Some(known) = Known::read(name)? {
        return Err(failed(format!("There is a store {name} already: {}.", known.url)));
    }
    let text = |option| arguments.text(option).map(str::to_owned);
    let mut known = Known {
        name: name.clone(),
        url: url.trim_end_matches('/').to_owned(),
        endpoint: text("--endpoint"),
        region: text("--region"),
        key_file: key_file(arguments)?,
        single_writer: arguments.has("--singlewriter"),
        ..Known::default()
    };
    known.key_file.as_deref().map(Secret::read).transpose()?;
    if let Some(path) = known.url.strip_prefix("file://")
        && !std::path::Path::new(path).is_dir()
    {
        return Err(failed(format!(
            "{path} is no directory: make it first, so that a disk that is not mounted is noticed."
        )));
    }
    let writer = uuids::fresh().0;
    let objects = objects(&known, writer)?;
    let nonce = hex(&writer);
    let fault = probe(&*objects, &nonce).map_err(|trouble| failed(format!("Cannot use {url}: {}.", trouble.why)))?;
    match fault {
        Some(fault) if !known.single_writer => {
            return Err(failed(format!(
                "{url} cannot be a store: {fault}. Two hosts that push at once would lose points. With --single-writer it is taken; then \
                 never let two programs write to it at once."
            )));
        }
        Some(fault) => complain!("  Warning: {fault}. Never let two programs write to {name} at once."),
        None => {}
    }
    known.uuid = made_or_joined(&*objects, &known, arguments.has("--plain"))?;
    for other in Known::all()? {
        if let Some(other) = Known::read(&other)?.filter(|other| other.uuid == known.uuid) {
            complain!("  Warning: {url} has the store that this host knows as {} already.", other.name);
        }
    }
    known.write()?;
    let place = Place::open(name)?;
    let log = place.log()?;
    place.saw(&log);
    let how = if known.key_file.is_some() { "is encrypted" } else { "is not encrypted" };
    match log.state.points.len() {
        0 => say!("  Store {name} is at {url}, and {how}."),
        count => say!("  Store {name} is at {url}, {how}, and has {count} points."),
    }
    if let Some(path) = &known.key_file {
        say!("  Keep copies of {} elsewhere: without it nobody can read the store.", path.display());
    }
    Ok(())
}

/// The whole path of the key file.
fn key_file(arguments: &Arguments) -> Result<Option<PathBuf>> {
    let Some(text) = arguments.text("--keyfile") else { return Ok(None) };
    let path = std::path::absolute(text).map_err(|e| failed(format!("Cannot find {text}: {e}.")))?;
    Ok(Some(path))
}

/// Makes a store at a place without one. Returns the identifier of the store that is there.
fn made_or_joined(objects: &dyn Objects, known: &Known, is_plain: bool) -> Result<[u8; 16]> {
    let (name, url) = (&known.name, &known.url);
    let told = |error: StoreError| of_store(&format!("Cannot make a store at {url}"), &error);
    if let Some(header) = store::identify(objects).map_err(told)? {
        return match (&known.key_file, header.is_encrypted) {
            (Some(path), true) => keys::with_file(objects, name, &header, path).map(|unlocked| unlocked.store),
            (None, false) if is_plain => Ok(header.store),
            (None, false) => Err(usage(format!(
                "The store at {url} is not encrypted: who can read its objects can read the volumes. With --plain it is taken."
            ))),
            (None, true) => Err(usage(format!("There is an encrypted store at {url}: --key-file FILE opens it."))),
            (Some(_), false) => Err(failed(format!(
                "There is a store at {url} that is not encrypted, and it cannot become so. Add it with --plain, or make a new one elsewhere."
            ))),
        };
    }
    let fresh = uuids::fresh().0;
    let wanted = match &known.key_file {
        Some(path) => {
            let unlocked = keys::first(objects, fresh, &Secret::read(path)?).map_err(told)?;
            Header { store: unlocked.store, is_encrypted: true }
        }
        None if is_plain && keys::are_there(objects).map_err(told)? => {
            return Err(failed(format!("{url} has keys of an encrypted store: add it with --key-file FILE.")));
        }
        None if is_plain => Header { store: fresh, is_encrypted: false },
        None => {
            return Err(usage(
                "Please say who may read the new store: --key-file FILE encrypts it (\"rowen store keygen FILE\" makes such a file), and \
                 with --plain everybody who can read its objects can read the volumes.",
            ));
        }
    };
    let there = store::create(objects, wanted).map_err(told)?;
    if there.is_encrypted != wanted.is_encrypted || (there.is_encrypted && there.store != wanted.store) {
        return Err(failed(format!("Somebody else made another store at {url} meanwhile. Try again, to join it.")));
    }
    Ok(there.store)
}

/// `rowen store keygen`: makes a key file.
fn keygen(arguments: &Arguments) -> Result {
    let [_, _, path] = &arguments.positionals[..] else {
        return Err(usage("Please specify the file that is to be made."));
    };
    keys::generate(Path::new(path))?;
    say!("  {path} is a new key. Keep copies of it elsewhere: a store that it opens is lost without it.");
    Ok(())
}

/// `rowen store addkey`: another key file opens the store, too.
fn add_key(arguments: &Arguments) -> Result {
    let [_, _, name, path] = &arguments.positionals[..] else {
        return Err(usage("Please specify a store and a key file: STORE FILE."));
    };
    let secret = Secret::read(Path::new(path))?;
    let place = Place::open(name)?;
    let Some(unlocked) = &place.key else {
        return Err(failed(format!("Store {name} is not encrypted: it has no key.")));
    };
    keys::add(&*place.objects, unlocked, &secret)
        .map_err(|error| of_store(&format!("Cannot add a key to {name}"), &error))?;
    say!("  {path} opens store {name}, too. This host goes on with its own key file.");
    Ok(())
}

/// `rowen store remove`: this host forgets the store, which stays as it is.
fn remove(arguments: &Arguments) -> Result {
    let name = named(arguments)?;
    let known = Known::read(name)?.ok_or_else(|| failed(format!("There is no store {name}.")))?;
    known.remove()?;
    say!("  This host knows {name} no more. What is at {} stays.", known.url);
    Ok(())
}

pub fn lvm_text(uuid: [u8; 16]) -> String {
    uuids::lvm_text(Uuid(uuid))
}

fn list(arguments: &Arguments) -> Result {
    if arguments.positionals.len() == 2 {
        return list_stores(arguments);
    }
    let name = named(arguments)?;
    let place = Place::open(name)?;
    let log = place.log()?;
    place.saw(&log);
    let mut points: Vec<(&u64, &Point)> = log.state.points.iter().collect();
    points.sort_by_key(|(number, point)| (point.about.volume.clone(), **number));
    if arguments.has("--json") {
        let document = json!({
            "store": name, "url": place.known.url, "store_uuid": hex(&place.known.uuid),
            "points": points.iter().map(|(number, point)| of_point(**number, point)).collect::<Vec<_>>(),
            "unfinished": log.state.jobs.iter().map(|(number, job)| json!({
                "job": number, "volume": job.about.volume, "point": job.about.point,
                "point_uuid": lvm_text(job.about.uuid), "group": job.about.group_name, "time": job.time,
            })).collect::<Vec<_>>(),
        });
        say!("{document}");
        return Ok(());
    }
    if !points.is_empty() {
        say!("  {:<28} {:<26} {:>12} {:>12} {:>12}  FROM", "POINT", "MADE", "SIZE", "DATA", "UPLOADED");
    }
    for (_, point) in &points {
        let about = &point.about;
        say!(
            "  {:<28} {:<26} {:>12} {:>12} {:>12}  {}",
            format!("{}@{}", about.volume, about.point),
            time::long(about.made),
            size(about.blocks * BLOCK),
            size(point.table.data_blocks * BLOCK),
            size(point.table.uploaded),
            about.group_name
        );
    }
    for (number, job) in &log.state.jobs {
        say!(
            "  Not finished: job {number}, {}@{} from {}, begun or continued at {}.",
            job.about.volume,
            job.about.point,
            job.about.group_name,
            time::long(job.time)
        );
    }
    if points.is_empty() && log.state.jobs.is_empty() {
        say!("  Store {name} has no points. \"rowen push VG/SNAPSHOT {name}\" makes one.");
    }
    Ok(())
}

fn of_point(number: u64, point: &Point) -> Value {
    let about = &point.about;
    json!({
        "number": number, "volume": about.volume, "point": about.point, "point_uuid": lvm_text(about.uuid),
        "group": about.group_name, "group_uuid": lvm_text(about.group), "made": about.made, "pushed": point.time,
        "size_bytes": about.blocks * BLOCK, "data_bytes": point.table.data_blocks * BLOCK,
        "uploaded_bytes": point.table.uploaded,
    })
}

fn list_stores(arguments: &Arguments) -> Result {
    let mut stores = Vec::new();
    for name in Known::all()? {
        stores.extend(Known::read(&name)?);
    }
    if arguments.has("--json") {
        let rows: Vec<Value> = stores
            .iter()
            .map(|known| {
                json!({
                    "store": known.name, "url": known.url, "store_uuid": hex(&known.uuid), "key_file": known.key_file,
                })
            })
            .collect();
        say!("{}", json!({ "stores": rows }));
        return Ok(());
    }
    if stores.is_empty() {
        say!("  This host knows no store. \"rowen store add NAME PLACE\" adds one.");
        return Ok(());
    }
    say!("  {:<20} {:<10} PLACE", "STORE", "ENCRYPTED");
    for known in stores {
        let is_encrypted = if known.key_file.is_some() { "yes" } else { "no" };
        say!("  {:<20} {is_encrypted:<10} {}", known.name, known.url);
    }
    Ok(())
}

/// The point of these words: VOLUME@POINT, or a point's uuid.
pub fn find<'l>(log: &'l Log<'_>, store: &str, word: &str) -> Result<(u64, &'l Point)> {
    let uuid = crate::group::uuid(word);
    let is_it = |point: &Point| match word.split_once('@') {
        Some((volume, name)) => point.about.volume == volume && point.about.point == name,
        None => uuid == Some(point.about.uuid),
    };
    let mut found = log.state.points.iter().filter(|(_, point)| is_it(point));
    match (found.next(), found.next()) {
        (Some((number, point)), None) => Ok((*number, point)),
        (None, _) => Err(failed(format!(
            "{store} has no point {}: \"rowen store list {store}\" shows them. A point is called VOLUME@POINT.",
            word.escape_debug()
        ))),
        (Some(_), Some(_)) => Err(failed(format!(
            "{store} has several points {word}: give the uuid that \"rowen store list --json {store}\" shows."
        ))),
    }
}

fn forget(arguments: &Arguments) -> Result {
    let [_, _, name, words @ ..] = &arguments.positionals[..] else {
        return Err(usage("Please specify a store and points of it: STORE VOLUME@POINT ..."));
    };
    if words.is_empty() {
        return Err(usage("Please specify points of the store: VOLUME@POINT."));
    }
    let place = Place::open(name)?;
    let mut log = place.log()?;
    let points: Vec<u64> =
        words.iter().map(|word| find(&log, name, word).map(|(number, _)| number)).collect::<Result<_>>()?;
    if !arguments.has("--dryrun") {
        store::forget(&mut log, &points)
            .map_err(|error| of_store(&format!("Cannot forget points of {name}"), &error))?;
        place.saw(&log);
    }
    let would = if arguments.has("--dryrun") { "Would forget" } else { "Forgot" };
    say!("  {would} {} of {name}. \"rowen store gc {name}\" deletes what no other point needs.", words.join(", "));
    Ok(())
}

fn age(arguments: &Arguments) -> Result<u64> {
    let Some(text) = arguments.text("--older") else { return Ok(OLD) };
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "d" => Some(86_400),
        "h" => Some(3600),
        "m" => Some(60),
        "s" => Some(1),
        _ => None,
    };
    let age = seconds.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    age.ok_or_else(|| usage(format!("\"{}\" is no time: 7d are seven days, 12h twelve hours.", text.escape_debug())))
}

fn gc(arguments: &Arguments) -> Result {
    let name = named(arguments)?;
    let (place, age) = (Place::open(name)?, age(arguments)?);
    let mut log = place.log()?;
    let is_dry = arguments.has("--dryrun");
    let what = format!("Cannot clean {name}");
    let told = |error: StoreError| of_store(&what, &error);
    let now = now();
    let is_old = |_: u64, job: &store::Job| job.time.saturating_add(age) <= now;
    if is_dry {
        for (number, job) in log.state.jobs.iter().filter(|(number, job)| is_old(**number, job)) {
            say!("  Would give up job {number}: {}@{}.", job.about.volume, job.about.point);
        }
    } else {
        for job in store::abandon(&mut log, is_old).map_err(told)? {
            say!("  Gave up a push that made no progress for long (entry {job}).");
        }
    }
    let mut meter = Meter::new(format!("cleaning {name}"), 0);
    let cleaned = store::clean(&mut log, is_dry, &mut |done, total| meter.count(done, total)).map_err(told)?;
    drop(meter);
    let late = if is_dry { 0 } else { store::sweep(&log).map_err(told)? };
    if late > 0 {
        say!("  Deleted {late} segments that arrived after their push was given up.");
    }
    place.saw(&log);
    let would = if is_dry { "Would delete" } else { "Deleted" };
    say!("  {would} {} segments of {name}; {} are needed.", cleaned.segments, cleaned.kept);
    Ok(())
}

fn check(arguments: &Arguments) -> Result {
    let name = named(arguments)?;
    let place = Place::open(name)?;
    let log = place.log()?;
    let mut meter = Meter::new(format!("checking {name}"), 0);
    let data = arguments.has("--data");
    let checked = store::check(&log, data, &mut |done, total| meter.count(done, total))
        .map_err(|error| of_store(&format!("Cannot check {name}"), &error))?;
    drop(meter);
    place.saw(&log);
    let is_sound = checked.damaged.is_empty() && checked.faults.is_empty();
    if arguments.has("--json") {
        let damaged = checked.damaged.iter().map(|(number, faults)| {
            let point = log.state.points.get(number).map(|point| of_point(*number, point));
            json!({ "point": point, "faults": faults })
        });
        say!(
            "{}",
            json!({
                "store": name, "entries": checked.entries, "points": checked.points, "segments": checked.segments,
                "pages": checked.pages, "data_blocks_read": checked.blocks, "unused_segments": checked.unused.len(),
                "faults": checked.faults, "damaged": damaged.collect::<Vec<_>>(),
            })
        );
    } else {
        for fault in &checked.faults {
            say!("  {fault}.");
        }
        for (number, faults) in &checked.damaged {
            let about = log.state.points.get(number).map(|point| &point.about);
            let called = about.map_or_else(String::new, |about| format!("{}@{}", about.volume, about.point));
            say!("  {called} cannot be read as a whole:");
            faults.iter().take(10).for_each(|fault| say!("    {fault}."));
        }
        say!(
            "  {name}: {} entries, {} points, {} segments, {} pages{}; {} segments that nothing needs.",
            checked.entries,
            checked.points,
            checked.segments,
            checked.pages,
            if data { format!(", {} blocks of data", checked.blocks) } else { String::new() },
            checked.unused.len()
        );
        if is_sound {
            let how = if data {
                "All of it is as it was written"
            } else {
                "All that was read is as it was written; --data reads the data, too"
            };
            say!("  {how}.");
        }
    }
    if is_sound { Ok(()) } else { Err(Failure { code: crate::failure::FAILED, message: String::new() }) }
}
