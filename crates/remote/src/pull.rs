//! `rowen pull`: a point of a store goes into a volume group, or what changed since a point that the volume has.

use crate::arguments::Arguments;
use crate::failure::{Failure, Result, failed, of_store, usage};
use crate::group;
use crate::known::now;
use crate::meter::{Meter, size};
use crate::places::Place;
use crate::store::find;
use rowen_control::points::Points;
use rowen_control::uuids;
use rowen_transfer::store::{self, Log, Point, Pull, Since, StoreError};
use rowen_transfer::{BLOCK, MarkPlace, Token};
use std::io::BufWriter;

/// Segments that are fetched at once.
const AT_ONCE: usize = 8;

pub fn pull(arguments: &Arguments) -> Result {
    let [_, name, what, target] = &arguments.positionals[..] else {
        return Err(usage("Please specify a store, a point of it, and a logical volume: STORE VOLUME@POINT VG/LV."));
    };
    let place = Place::open(name)?;
    let log = place.log()?;
    place.saw(&log);
    let (_, point) = find(&log, name, what)?;
    let there = group::points(target)?;
    let token = token_of(&there, point, &log);
    let since = match &token {
        Some((_, since)) => since.as_ref().map(|(point, name)| Since { point, name: name.clone() }),
        None => since(&log, &there, point, target)?,
    };
    if arguments.has("--dryrun") {
        let since =
            since.as_ref().map_or_else(|| "all of it".to_owned(), |since| format!("what changed since {}", since.name));
        say!("  Would pull {what} from {name} into {target}: {since}.");
        return Ok(());
    }
    let continues = token.as_ref().map(|(place, _)| *place);
    let mut words = vec!["receive"];
    if let Some(name) = arguments.text("--name") {
        words.extend(["-n", name]);
    }
    words.push(target);
    let mut child = group::receiver(&words)?;
    let to = BufWriter::with_capacity(1 << 20, child.stdin.take().expect("it is piped"));
    let total = if since.is_none() { point.table.data_blocks * BLOCK } else { 0 };
    let mut meter = Meter::new(format!("pulling {target}"), total);
    let mut done = 0;
    let how = Pull {
        stream: uuids::fresh().0,
        time: now(),
        from: name.clone(),
        continues,
        at_once: AT_ONCE,
        tell: &mut |blocks| {
            done = blocks;
            meter.show(blocks * BLOCK);
        },
    };
    let outcome = store::pull(&log, point, since.as_ref(), to, how);
    drop(meter);
    // Dropped, its input is at its end.
    let outcome = outcome.map(drop);
    let ended = child.wait().map_err(|e| failed(format!("\"rowen receive\" is lost: {e}.")))?;
    match outcome {
        Err(StoreError::Output(_)) if !ended.success() => {}
        Err(error) => {
            let told = of_store(&format!("Cannot pull {what} of {name} into {target}"), &error);
            let again = "Nothing of it is to be seen. The same command goes on where it was.";
            return Err(failed(format!("{}\n{again}", told.message)));
        }
        Ok(()) => {}
    }
    if !ended.success() {
        return Err(Failure { code: group::code_of(ended), message: String::new() });
    }
    say!("  Pulled {what} from {name} into {target}: {} read.", size(done * BLOCK));
    Ok(())
}

/// Where an earlier pull of this point was cut, and what it was made of.
#[allow(clippy::type_complexity)]
fn token_of<'l>(there: &Points, point: &Point, log: &'l Log<'_>) -> Option<(MarkPlace, Option<(&'l Point, String)>)> {
    let word = there.arriving.as_ref()?.token.as_ref()?;
    let token = Token::of_word(word).ok()?;
    let [volume] = &token.volumes[..] else { return None };
    if volume.point != point.about.uuid {
        return None;
    }
    match &volume.base {
        None => Some((token.place, None)),
        Some(base) => {
            let (_, since) = log.state.find(&base.point)?;
            Some((token.place, Some((since, base.name.clone()))))
        }
    }
}

/// What the volume is now, if the store has that.
fn since<'l>(log: &'l Log<'_>, there: &Points, point: &Point, target: &str) -> Result<Option<Since<'l>>> {
    if !there.exists {
        return Ok(None);
    }
    let own = there.point_uuid.as_deref().and_then(group::uuid);
    let has_it = there.points.iter().any(|has| group::uuid(&has.point_uuid) == Some(point.about.uuid));
    let known = own.and_then(|own| log.state.find(&own));
    match known {
        Some((_, known)) => {
            let name = there.point_uuid.as_deref().and_then(|own| there.at(own)).map(|at| at.name.clone());
            Ok(Some(Since { point: known, name: name.unwrap_or_else(|| known.about.point.clone()) }))
        }
        // "rowen receive" says that it is there.
        None if has_it => Ok(None),
        None => Err(failed(format!(
            "{target} is there, and is not what a point of the store was: a pull undoes no writes. Pull into a volume of another name, or \
             make one of a snapshot that both have: \"rowen points {target}\" shows its snapshots."
        ))),
    }
}
