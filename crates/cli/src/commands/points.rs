//! What a volume has from which a transfer can go on: for people, and for the other side of `rowen replicate`.

use crate::commands::contents;
use crate::commands::receiving::{token_of, unfinished};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::plain;
use crate::session::{Session, no_volume};
use rowen_control::paths::{self, Target};
use rowen_control::points::{Point, Points};

pub fn points(session: &mut Session<'_>, args: &Args) -> Result {
    let [word] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify one logical volume: VG/LV."));
    };
    let (group, volume) = match Target::parse(word) {
        Some(Target::Volume { group, volume }) => (group, volume),
        Some(_) => return Err(Failure::usage(format!("Please specify a logical volume: \"{word}\" is none."))),
        None => return Err(Failure::usage(paths::refusal(word))),
    };
    let wanted = summed(args)?;
    let mut found = look(session, &group, &volume)?;
    if let Some((point, blocks)) = wanted {
        let of = found.snapshots().rev().find(|one| one.point_uuid == point).map(|one| one.name.clone());
        let of = of.ok_or_else(|| {
            Failure::failed(format!("{group}/{volume} has no snapshot with the point UUID {}.", point.escape_debug()))
        })?;
        found.summed = Some(contents::sum(session, (&group, &of), blocks)?);
    }
    if args.has(Opt::Json) {
        let text = serde_json::to_string(&found).expect("it is made of texts and numbers");
        session.console.raw_out(&format!("{text}\n"));
        return Ok(());
    }
    if !found.exists {
        return Err(Failure::failed(no_volume(&group, &volume)));
    }
    if found.points.is_empty() {
        session.console.say(format!("Logical volume {group}/{volume} has no snapshot that could be sent."));
    }
    let rows: Vec<[String; 4]> = found.points.iter().map(|point| row_of(&found, point)).collect();
    session.console.raw_out(&plain::table(["POINT", "MADE", "POINT UUID", "HELD BY"], &rows));
    if let Some(summed) = &found.summed {
        session.console.say(format!("Sum: {}", summed.sum));
    }
    Ok(())
}

/// The point whose sum is wanted, and of which blocks.
fn summed(args: &Args) -> Result<Option<(String, (u64, u64))>> {
    let blocks = args.text(Opt::SumBlocks);
    let Some(point) = args.text(Opt::SumOf) else {
        return match blocks {
            Some(_) => Err(Failure::usage("--blocks goes with --sum, which says of what.")),
            None => Ok(None),
        };
    };
    let Some(text) = blocks else { return Ok(Some((point.to_owned(), (0, u64::MAX)))) };
    let read = text.split_once(':').and_then(|(from, count)| Some((from.parse().ok()?, count.parse().ok()?)));
    let blocks = read.ok_or_else(|| {
        Failure::usage(format!("\"{}\" is no range of blocks: 0:256 are the first 256.", text.escape_debug()))
    })?;
    Ok(Some((point.to_owned(), blocks)))
}

fn row_of(found: &Points, point: &Point) -> [String; 4] {
    let kind = if point.is_bookmark { " (bookmark)" } else { "" };
    let now = if found.point_uuid.as_ref() == Some(&point.point_uuid) { " (unchanged since)" } else { "" };
    let name = format!("{}{kind}{now}", point.name);
    let made = rowen_control::time::long(point.made);
    [name, made, point.point_uuid.clone(), point.holds.join(",")]
}

/// What a volume of this host has.
pub fn look(session: &mut Session<'_>, group: &str, volume: &str) -> Result<Points> {
    let report = session.report(group)?;
    let unfinished = unfinished(session, group)?;
    let mut found = Points::of(&report, volume, &unfinished);
    let of = unfinished.iter().find(|one| one.volumes.iter().any(|arriving| arriving.target == volume));
    if let (Some(arriving), Some(of)) = (&mut found.arriving, of) {
        arriving.token = token_of(of);
    }
    Ok(found)
}
