//! Physical volumes, or extents of them, that the command line names as the place for a volume: `PV[:PE[-PE]]...` and
//! `@Tag`, with LVM's messages. A thick volume's extents are then only there. Thin volumes and snapshots get their
//! blocks anywhere in the group when they are written. For them a choice is refused, unless it names all allocatable
//! physical volumes.

use crate::failure::{Failure, Result};
use crate::session::Session;
use rowen_control::protocol::{GroupReport, PvPart, PvReport, SegmentType};

/// The extents that the words name, in their order. Unknown physical volumes and impossible extents are refused.
pub fn named(session: &mut Session<'_>, report: &GroupReport, words: &[String]) -> Result<Vec<PvPart>> {
    let mut parts: Vec<PvPart> = Vec::new();
    for word in words {
        if let Some(tag) = word.strip_prefix('@') {
            for pv in report.pvs.iter().filter(|pv| pv.tags.iter().any(|own| own == tag)) {
                add(&mut parts, pv, 0, pv.extents)?;
            }
            continue;
        }
        let (path, ranges) = split(word);
        let full = session.backend.absolute(&path);
        let Some(pv) = report.pvs.iter().find(|pv| pv.path == full) else {
            let name = &report.name;
            return Err(Failure::failed(format!("Physical Volume \"{path}\" not found in Volume Group \"{name}\".")));
        };
        match ranges {
            None => add(&mut parts, pv, 0, pv.extents)?,
            Some(mut ranges) => loop {
                let end = ranges.find(':').unwrap_or(ranges.len());
                let (range, rest) = ranges.split_at(end);
                // LVM's message has the whole word.
                let bad = |from: &str| Failure::failed(format!("Physical extent parsing error at {from}{rest}."));
                let (first, last) = extents(range).map_err(bad)?;
                let whole = pv.extents.saturating_sub(1);
                let last = last.unwrap_or(whole);
                if first > last || last > whole {
                    return Err(Failure::failed(format!("PE range error: start extent {first} to end extent {last}.")));
                }
                add(&mut parts, pv, first, last - first + 1)?;
                let Some(next) = rest.strip_prefix(':') else { break };
                ranges = next;
            },
        }
    }
    match parts.is_empty() && !words.is_empty() {
        true => Err(nothing_usable()),
        false => Ok(parts),
    }
}

fn nothing_usable() -> Failure {
    Failure::failed("No specified PVs have space available.")
}

/// The path, and the text after its first colon. A backslash escapes a colon or an at sign.
fn split(word: &str) -> (String, Option<&str>) {
    let mut path = String::with_capacity(word.len());
    let mut letters = word.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if matches!(letters.peek(), Some((_, ':' | '@'))) => {
                path.extend(letters.next().map(|(_, letter)| letter));
            }
            ':' => return (path, Some(&word[at + 1..])),
            letter => path.push(letter),
        }
    }
    (path, None)
}

/// The first and the last extent of `PE`, `PE-PE`, `PE+Count`, `-PE`, `PE-`. No last one: to the end. The error is the
/// unreadable text.
fn extents(range: &str) -> std::result::Result<(u64, Option<u64>), &str> {
    let digits = |text: &str| text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number = |text: &str| text.parse::<u32>().map(u64::from).ok();
    if range.is_empty() {
        return Err(range);
    }
    let (start, rest) = range.split_at(digits(range));
    let first = if start.is_empty() { 0 } else { number(start).ok_or(range)? };
    match (rest.strip_prefix('-'), rest.strip_prefix('+')) {
        (None, None) if rest.is_empty() => Ok((first, Some(first))),
        (Some(end), _) | (_, Some(end)) if digits(end) != end.len() => Err(&end[digits(end)..]),
        (Some(""), _) | (_, Some("")) => Ok((first, None)),
        (Some(end), _) => Ok((first, Some(number(end).ok_or(end)?))),
        (_, Some(count)) => Ok((first, Some(first + number(count).ok_or(count)?.saturating_sub(1)))),
        (None, None) => Err(rest),
    }
}

fn add(parts: &mut Vec<PvPart>, pv: &PvReport, first_extent: u64, extents: u64) -> Result {
    let last = |first: u64, extents: u64| first + extents.saturating_sub(1);
    let end = first_extent + extents;
    let meets = |part: &&PvPart| {
        part.path == pv.path && part.first_extent < end && first_extent < part.first_extent + part.extents
    };
    if let Some(other) = parts.iter().find(meets) {
        return Err(Failure::failed(format!(
            "Overlapping PE ranges specified ({first_extent}-{}, {}-{}) on {}.",
            last(first_extent, extents),
            other.first_extent,
            last(other.first_extent, other.extents),
            pv.path
        )));
    }
    parts.push(PvPart { path: pv.path.clone(), first_extent, extents });
    Ok(())
}

/// The named physical volumes that are allocatable and have free space. The others are reported. An error if none is
/// left.
pub fn usable(
    session: &mut Session<'_>,
    report: &GroupReport,
    segment: SegmentType,
    parts: Vec<PvPart>,
) -> Result<Vec<PvPart>> {
    let mut left = parts.clone();
    for pv in &report.pvs {
        if !parts.iter().any(|part| part.path == pv.path) {
            continue;
        }
        if !pv.is_allocatable {
            session.console.complain(format!("WARNING: Physical volume {} not allocatable.", pv.path));
            left.retain(|part| part.path != pv.path);
            continue;
        }
        // Extents that nothing uses are on several of them.
        let made = match segment {
            SegmentType::Linear => 0,
            SegmentType::Raid1 => report.mirrors.free_extents,
            SegmentType::Striped => report.stripes.map_or(0, |own| own.free_extents),
        };
        if made > 0 {
            continue;
        }
        let whole = PvPart { path: pv.path.clone(), first_extent: 0, extents: pv.extents };
        if session.free_on(report, &[whole], 1)? == 0 {
            session.console.complain(format!("WARNING: No free extents on physical volume \"{}\".", pv.path));
            left.retain(|part| part.path != pv.path);
        }
    }
    match left.is_empty() && !parts.is_empty() {
        true => Err(nothing_usable()),
        false => Ok(left),
    }
}

/// Refuses a choice that could not be kept.
pub fn refuse_choice(report: &GroupReport, parts: &[PvPart], what: &str) -> Result {
    let is_whole = |pv: &PvReport| {
        parts.iter().filter(|part| part.path == pv.path).map(|part| part.extents).sum::<u64>() == pv.extents
    };
    if parts.is_empty() || report.pvs.iter().filter(|pv| pv.is_allocatable).all(is_whole) {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "Physical volumes cannot be chosen for {what}: it takes its blocks as it is written to, wherever volume group \"{}\" has \
         room.",
        report.name
    )))
}

/// Refuses more extents than there are in the places.
pub fn check_room(session: &mut Session<'_>, report: &GroupReport, on: &[PvPart], extents: u64) -> Result {
    let free = session.free_on(report, on, extents)?;
    refuse_more(extents, free.saturating_add(to_dissolve(report)))
}

/// Extents that linear volumes get by mirrored and striped ones of which nothing is used. The server dissolves those when it
/// needs them, if it can.
pub fn to_dissolve(report: &GroupReport) -> u64 {
    let striped = report.stripes.map_or(0, |own| own.free_extents);
    report.mirrors.free_extents.saturating_mul(crate::roles::COPIES).saturating_add(striped)
}

/// The free extents of each physical volume that is allocatable and there: on these places, or anywhere if there are none.
pub fn free_on_each(session: &mut Session<'_>, report: &GroupReport, on: &[PvPart]) -> Result<Vec<u64>> {
    let mut free = Vec::with_capacity(report.pvs.len());
    for pv in report.pvs.iter().filter(|pv| pv.is_allocatable && !pv.is_missing) {
        let here: Vec<PvPart> = on.iter().filter(|part| part.path == pv.path).cloned().collect();
        free.push(match here.is_empty() {
            true if on.is_empty() => pv.free_extents,
            true => 0,
            false => session.free_on(report, &here, 0)?,
        });
    }
    Ok(free)
}

/// Refuses more extents than are free.
pub fn refuse_more(extents: u64, free: u64) -> Result {
    match extents > free {
        true => Err(Failure::failed(format!(
            "Insufficient free space: {extents} extents needed, but only {free} available"
        ))),
        false => Ok(()),
    }
}
