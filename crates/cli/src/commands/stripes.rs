//! Striped volumes: what command lines ask for, and the room for them. The blocks of a striped volume alternate between
//! physical volumes. All striped volumes of a group have the same layout.

use super::places;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::roles::extent_bytes;
use crate::session::Session;
use rowen_control::protocol::{GroupReport, PvPart, Stripes};
use rowen_control::units::sentence;
use rowen_engine::format::zones::MAX_COLUMNS;
use rowen_engine::group::rows_on;
use rowen_engine::units::BLOCK_SIZE;

/// LVM's default size of a stripe.
const DEFAULT_BYTES: u64 = 64 << 10;
/// The most stripes.
const MOST: u64 = MAX_COLUMNS as u64;

/// The number of stripes that `lvcreate` is asked for, and their size.
/// `pvs`: how many physical volumes may be used.
pub fn number(args: &Args, pvs: u64) -> Result<(u64, Option<u64>)> {
    let columns = args.number(Opt::Stripes).unwrap_or(1);
    let size = args.size(Opt::StripeSize).map(|size| size.bytes);
    check_size(args, size)?;
    if columns > pvs {
        return Err(Failure::failed(format!(
            "Number of stripes ({columns}) must not exceed number of physical volumes ({pvs})"
        )));
    }
    match columns > MOST {
        true => Err(Failure::failed(format!("Number of stripes ({columns}) must be between 1 and {MOST}."))),
        false => Ok((columns, size)),
    }
}

/// The layout that `lvcreate` is asked for. None: the volume is linear.
pub fn asked(session: &mut Session<'_>, args: &Args, report: &GroupReport) -> Result<Option<Stripes>> {
    let words = args.positionals.get(1..).unwrap_or_default();
    let mut given: Vec<String> = places::named(session, report, words)?.into_iter().map(|part| part.path).collect();
    given.sort_unstable();
    given.dedup();
    let pvs = if given.is_empty() { report.pvs.len() } else { given.len() };
    let (columns, size) = number(args, pvs as u64)?;
    if columns > 1 && args.text(Opt::Type) == Some("linear") {
        return Err(Failure::usage("--stripes must be 1 with segment type linear."));
    }
    if columns == 1 {
        if size.is_some() {
            session.console.say("Ignoring stripesize argument with single stripe.");
        }
        return Ok(None);
    }
    let own = report.stripes.filter(|own| own.has_volumes);
    let bytes = match (size, own) {
        (Some(bytes), None) => within_extent(session, report, bytes),
        (Some(bytes), Some(_)) => bytes.min(extent_bytes(report)),
        (None, Some(own)) => own.layout.bytes(),
        (None, None) => {
            let bytes = DEFAULT_BYTES.min(extent_bytes(report));
            session.console.say(format!("Using default stripesize {}.", sentence(bytes)));
            bytes
        }
    };
    let wanted = Stripes { columns: columns as u8, blocks: (bytes / BLOCK_SIZE) as u32 };
    match own.filter(|own| own.layout != wanted) {
        None => Ok(Some(wanted)),
        Some(own) => Err(Failure::failed(format!(
            "Volume group \"{}\" has logical volumes with {} stripes of {}, and all of its striped volumes have the same: \
             use --stripes {} --stripesize {}k.",
            report.name,
            own.layout.columns,
            sentence(own.layout.bytes()),
            own.layout.columns,
            own.layout.bytes() >> 10
        ))),
    }
}

fn check_size(args: &Args, size: Option<u64>) -> Result {
    let Some(bytes) = size else { return Ok(()) };
    match bytes >= BLOCK_SIZE && bytes.is_power_of_two() && u32::try_from(bytes).is_ok() {
        true => Ok(()),
        false => {
            let text = args.text(Opt::StripeSize).unwrap_or_default();
            Err(Failure::Value {
                why: Some(format!("Invalid stripe size {}.", sentence(bytes))),
                line: format!("Invalid argument for --stripesize: {text}"),
            })
        }
    }
}

/// A stripe lies in one extent.
fn within_extent(session: &mut Session<'_>, report: &GroupReport, bytes: u64) -> u64 {
    let extent = extent_bytes(report);
    if bytes > extent {
        session.console.say(format!(
            "Reducing requested stripe size {} to maximum, physical extent size {}.",
            sentence(bytes),
            sentence(extent)
        ));
    }
    bytes.min(extent)
}

/// Refuses stripes that a volume of another kind, or a larger volume, cannot have.
pub fn refuse_others(args: &Args, report: &GroupReport, name: &str, own: Option<Stripes>) -> Result {
    let has = own.map_or(1, |own| u64::from(own.columns));
    let size = args.size(Opt::StripeSize).map(|size| size.bytes);
    if let Some((own, _)) = own.zip(size).filter(|(own, size)| own.bytes() != *size) {
        return Err(Failure::failed(format!(
            "Logical volume {}/{name} has stripes of {}, and a new size does not change that: leave out --stripesize.",
            report.name,
            sentence(own.bytes())
        )));
    }
    match args.number(Opt::Stripes).filter(|wanted| *wanted != has) {
        None => Ok(()),
        Some(wanted) => {
            let what = match own {
                None => "is not striped".to_owned(),
                Some(own) => format!("has {} stripes", own.columns),
            };
            Err(Failure::failed(format!(
                "Logical volume {}/{name} {what}, and a new size does not change that: leave out --stripes {wanted}.",
                report.name
            )))
        }
    }
}

/// As many extents in whole rows: one extent of each stripe.
pub fn whole_rows(
    session: &mut Session<'_>,
    report: &GroupReport,
    extents: u64,
    columns: u64,
    is_up: bool,
) -> Result<u64> {
    let whole = if is_up { extents.next_multiple_of(columns) } else { extents / columns * columns };
    if whole == 0 {
        return Err(Failure::failed(format!(
            "A logical volume with {columns} stripes has at least {columns} extents."
        )));
    }
    if whole != extents {
        let size = |extents: u64| sentence(extents.saturating_mul(extent_bytes(report)));
        session.console.say(format!(
            "Rounding size {} ({extents} extents) {} to stripe boundary size {} ({whole} extents).",
            size(extents),
            if is_up { "up" } else { "down" },
            size(whole)
        ));
    }
    Ok(whole)
}

/// The room for striped volumes with so many stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// Extents of a striped volume, if those that are striped already lie on the named places.
    extents: u64,
    /// The same wherever they lie.
    sure: u64,
    /// Free extents, wherever they are.
    free: u64,
}

impl Room {
    fn of(session: &mut Session<'_>, report: &GroupReport, columns: u64, on: &[PvPart]) -> Result<Room> {
        let free = places::free_on_each(session, report, on)?;
        let striped = report.stripes.map_or(0, |own| own.free_extents);
        let all: u64 = free.iter().sum();
        let made = rows_on(&free, columns as usize) * columns;
        let sure = if on.is_empty() { made + striped } else { made };
        Ok(Room { extents: made + striped, sure, free: all + striped })
    }
}

/// The extents that a striped volume can have, or get more, on these places, or anywhere if there are none. If they are less
/// than `wanted`, this waits for space that removals still give back.
pub fn free_for(
    session: &mut Session<'_>,
    report: &GroupReport,
    columns: u64,
    on: &[PvPart],
    wanted: u64,
) -> Result<u64> {
    Ok(room(session, report, columns, on, wanted)?.sure)
}

fn room(session: &mut Session<'_>, report: &GroupReport, columns: u64, on: &[PvPart], wanted: u64) -> Result<Room> {
    let room = Room::of(session, report, columns, on)?;
    if room.extents >= wanted {
        return Ok(room);
    }
    session.free_extents(report, wanted)?;
    let now = session.report_of(&report.name, Vec::new())?;
    Room::of(session, &now, columns, on)
}

/// Refuses a volume that needs more, in LVM's words.
pub fn check_room(
    session: &mut Session<'_>,
    report: &GroupReport,
    columns: u64,
    (name, extents): (&str, u64),
    on: &[PvPart],
) -> Result {
    // The server refuses it, in LVM's words.
    if report.missing().next().is_some() {
        return Ok(());
    }
    let room = room(session, report, columns, on, extents)?;
    match extents.checked_sub(room.extents) {
        None | Some(0) => Ok(()),
        Some(_) if extents > room.free => places::refuse_more(extents, room.free),
        Some(more) => Err(Failure::failed(format!(
            "Insufficient suitable allocatable extents for logical volume {name}: {more} more required"
        ))),
    }
}
