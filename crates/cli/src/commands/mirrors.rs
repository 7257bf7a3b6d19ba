//! Mirrored volumes: what command lines ask for, the room for them, and how they get a second copy again. A mirrored
//! volume has two copies of its data, on two physical volumes.

use super::{places, stripes};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::roles::COPIES;
use crate::session::{Session, unexpected};
use rowen_control::protocol::{GroupReport, Legs, Outcome, PvPart, Request, ScrubAction, SegmentType, VolumeReport};
use rowen_control::settings::Settings;
use rowen_engine::group::rows_on;
use std::time::Duration;

/// The segment types that are mirrors. LVM's older one is the same here.
pub const TYPES: [&str; 2] = ["raid1", "mirror"];

/// Whether `lvcreate` is asked for a mirrored volume.
pub fn is_wanted(args: &Args) -> Result<bool> {
    check_region(args)?;
    let named = args.text(Opt::Type).filter(|kind| TYPES.contains(kind));
    if let Some(text) = args.text(Opt::Mirrors).filter(|text| text.starts_with('-')) {
        return Err(Failure::Value {
            why: Some("Number may not be negative.".to_owned()),
            line: format!("Invalid argument for --mirrors: {text}"),
        });
    }
    let mirrors = args.number(Opt::Mirrors);
    let is_of_other_kind = [Opt::Thin, Opt::ThinPool, Opt::Snapshot, Opt::VirtualSize].into_iter().any(|o| args.has(o));
    match (named, mirrors) {
        (None, None | Some(0)) => return Ok(false),
        (None, Some(_)) if args.has(Opt::Type) || is_of_other_kind => return Err(Failure::OtherForm("mirrors")),
        (Some(_), _) if is_of_other_kind => return Err(Failure::NoForm),
        (Some(kind), Some(0)) => {
            return Err(Failure::usage(format!("--mirrors must be at least 1 with segment type {kind}.")));
        }
        (_, Some(2..)) => return Err(too_many(mirrors)),
        (_, None | Some(1)) => {}
    }
    if args.number(Opt::Stripes).is_some_and(|stripes| stripes > 1) {
        return Err(Failure::usage("Stripes argument cannot be used with segment type, raid1"));
    }
    if args.has(Opt::MirrorLog) && named != Some("mirror") {
        return Err(Failure::usage("--mirrorlog is supported only with mirrors."));
    }
    if args.yes_no(Opt::RaidIntegrity) == Some(true) {
        return Err(Failure::failed(
            "Integrity is not supported: data has no checksums that could tell which copy is right.",
        ));
    }
    Ok(true)
}

fn too_many(mirrors: Option<u64>) -> Failure {
    let copies = mirrors.unwrap_or(0).saturating_add(1);
    Failure::failed(format!("A mirrored logical volume has two copies of its data, not {copies}: use --mirrors 1."))
}

/// The size of a region is fixed, but LVM's limits hold.
fn check_region(args: &Args) -> Result {
    const PAGE: u64 = 4096;
    let Some(bytes) = args.size(Opt::RegionSize).map(|size| size.bytes) else { return Ok(()) };
    let why = match bytes {
        0 => "Region size may not be zero.".to_owned(),
        _ if bytes % PAGE != 0 => {
            format!("Region size must be a multiple of machine memory page size ({PAGE} bytes).")
        }
        _ if !bytes.is_power_of_two() => format!("Region size ({bytes} bytes) must be a power of 2."),
        _ => return Ok(()),
    };
    let text = args.text(Opt::RegionSize).unwrap_or_default();
    Err(Failure::Value { why: Some(why), line: format!("Invalid argument for --regionsize: {text}") })
}

/// `lvconvert --replace`: the copy on one physical volume goes to another one, while both are in use.
pub fn replace(session: &mut Session<'_>, args: &Args, report: &GroupReport, volume: &VolumeReport) -> Result {
    let (group, name) = (&report.name, &volume.name);
    let words: Vec<String> = args.texts(Opt::ReplacePv).map(str::to_owned).collect();
    let [word] = words.as_slice() else {
        return Err(Failure::usage(
            "One copy is replaced at a time, because the other one is read: give --replace once.",
        ));
    };
    let from = places::named(session, report, std::slice::from_ref(word))?;
    let path = from.first().map(|part| part.path.clone()).unwrap_or_default();
    if word.contains(':') {
        return Err(Failure::usage(format!(
            "A copy is replaced as a whole. To move some of its extents: pvmove -n {name} {word}."
        )));
    }
    if !volume.is_mirrored() {
        return Err(Failure::failed(format!(
            "Logical volume {group}/{name} is not mirrored, so no copy of it can be replaced. To move it: pvmove -n {name} {path}."
        )));
    }
    let mut to = places::named(session, report, args.positionals.get(1..).unwrap_or_default())?;
    if !to.is_empty() {
        to.retain(|part| part.path != path);
        if to.is_empty() {
            return Err(Failure::failed(format!("No extents available for allocation: {path} is to be replaced.")));
        }
        to = places::usable(session, report, SegmentType::Linear, to)?;
    }
    if extents_on(session, report, name, &path)? == 0 {
        return Err(Failure::failed(format!(
            "Logical volume {group}/{name} has no data on {path}, so nothing is to be replaced."
        )));
    }
    let request = Request::MoveExtents { path: path.clone(), extents: Vec::new(), to, volume: Some(name.clone()) };
    let mut left = 0;
    for round in 0..REPLACE_ROUNDS {
        match super::pvmove::begin(session, group, request.clone(), args) {
            // What was found after the first round may not be there any more, or may have to stay.
            Err(failure) if round > 0 => {
                session.tell(&failure);
                left = extents_on(session, report, name, &path)?;
                break;
            }
            outcome => outcome?,
        }
        if session.is_test || args.has(Opt::MoveBackground) {
            return Ok(());
        }
        left = extents_on(session, report, name, &path)?;
        if left == 0 {
            break;
        }
    }
    let keeps_away = format!("\"pvchange -x n {path}\" keeps new data away from it");
    if left > 0 {
        return Err(Failure::failed(format!(
            "{left} extents of {group}/{name} have a copy on {path}, because they were written meanwhile. {keeps_away}; then \
             the same command moves the rest."
        )));
    }
    session.console.say(format!("Logical volume {group}/{name} successfully converted."));
    if report.pvs.iter().any(|pv| pv.path == path && pv.is_allocatable) {
        session.console.say(format!("What is written from now on may lie on {path} again: {keeps_away}."));
    }
    Ok(())
}

/// How often what was written during a replacement is moved, too.
const REPLACE_ROUNDS: usize = 3;

/// The extents of a volume that have blocks on a physical volume.
fn extents_on(session: &mut Session<'_>, report: &GroupReport, volume: &str, path: &str) -> Result<u64> {
    let is_there = |pv: u16| report.pvs.get(usize::from(pv)).is_some_and(|pv| pv.path == path);
    let places = super::reports::places(session, &report.name, true)?;
    let shares = places.iter().filter(|places| places.name == volume).flat_map(|places| &places.shares);
    let on_it = shares.filter(|share| is_there(share.pv) || share.second.is_some_and(|(pv, _)| is_there(pv)));
    Ok(on_it.map(|share| share.extents).sum())
}

/// Refuses a new size with other copies than the volume has.
pub fn refuse_others(args: &Args, report: &GroupReport, volume: &VolumeReport) -> Result {
    let kind = args.text(Opt::Type);
    let named = kind.map(|kind| TYPES.contains(&kind)).or(args.number(Opt::Mirrors).map(|mirrors| mirrors > 0));
    if args.number(Opt::Mirrors).is_some_and(|mirrors| mirrors > 1) {
        return Err(too_many(args.number(Opt::Mirrors)));
    }
    if named.is_none_or(|is_mirrored| is_mirrored == volume.is_mirrored()) {
        return Ok(());
    }
    let copies = if volume.is_mirrored() { "two copies" } else { "one copy" };
    let long = if kind.is_some() { "type" } else { "mirrors" };
    Err(Failure::failed(format!(
        "Logical volume {}/{} has {copies} of its data, and a new size does not change that: leave out --{long}.",
        report.name, volume.name
    )))
}

/// The room for mirrored volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Extents of a mirrored volume, if those that are mirrored already lie on the named places.
    pub extents: u64,
    /// The same wherever they lie.
    pub sure: u64,
    /// Free extents of physical volumes, of which each of these needs two.
    free: u64,
}

impl Room {
    fn of(session: &mut Session<'_>, report: &GroupReport, on: &[PvPart]) -> Result<Room> {
        let free = places::free_on_each(session, report, on)?;
        let room = Room::from(&free, report.mirrors.free_extents);
        let sure = if on.is_empty() { room.extents } else { room.sure };
        Ok(Room { sure, ..room })
    }

    /// From the free extents of each physical volume, and those that are mirrored already.
    fn from(free: &[u64], mirrored: u64) -> Room {
        let all: u64 = free.iter().sum();
        // A copy is never on the same physical volume as the other one.
        let pairs = rows_on(free, COPIES as usize);
        Room {
            extents: pairs.saturating_add(mirrored),
            sure: pairs,
            free: all.saturating_add(mirrored.saturating_mul(COPIES)),
        }
    }
}

/// The room on these places, or anywhere if there are none. If it is less than `wanted`, this waits for space that
/// removals still give back.
pub fn room(session: &mut Session<'_>, report: &GroupReport, on: &[PvPart], wanted: u64) -> Result<Room> {
    let room = Room::of(session, report, on)?;
    if room.extents >= wanted {
        return Ok(room);
    }
    session.free_extents(report, wanted.saturating_mul(COPIES))?;
    let now = session.report_of(&report.name, Vec::new())?;
    Room::of(session, &now, on)
}

/// Refuses a volume that needs more, in LVM's words.
pub fn check_room(
    session: &mut Session<'_>,
    report: &GroupReport,
    (name, extents): (&str, u64),
    on: &[PvPart],
) -> Result {
    // The server refuses it, in LVM's words.
    if report.missing().next().is_some() {
        return Ok(());
    }
    let room = room(session, report, on, extents)?;
    let needed = extents.saturating_mul(COPIES);
    if extents <= room.extents {
        return Ok(());
    }
    if needed > room.free {
        return places::refuse_more(needed, room.free);
    }
    let more = (extents - room.extents).saturating_mul(COPIES);
    Err(Failure::failed(format!(
        "Insufficient suitable allocatable extents for logical volume {name}: {more} more required"
    )))
}

/// The extents by which a volume of this type can grow in these places, or anywhere if there are none.
pub fn free_for(
    session: &mut Session<'_>,
    report: &GroupReport,
    segment: SegmentType,
    on: &[PvPart],
    wanted: u64,
) -> Result<u64> {
    match segment {
        SegmentType::Linear => session.free_on(report, on, wanted),
        SegmentType::Raid1 => Ok(room(session, report, on, wanted)?.sure),
        SegmentType::Striped => {
            let columns = report.stripes.map_or(1, |own| own.layout.columns);
            stripes::free_for(session, report, columns.into(), on, wanted)
        }
    }
}

/// `lvconvert --repair`: mirrored extents whose other copy was removed with its physical volume get another one.
pub fn repair(session: &mut Session<'_>, args: &Args, report: &GroupReport, volume: &VolumeReport) -> Result {
    let group = &report.name;
    let full = format!("{group}/{}", volume.name);
    if report.missing().next().is_some() {
        return Err(Failure::failed(format!(
            "{full} cannot be repaired while a physical volume of volume group \"{group}\" is missing. If it comes back: \
             \"vgextend --restoremissing {group} PV\", and nothing has to be repaired. If it is lost: \
             \"vgreduce --removemissing {group}\", \"vgextend {group} PV\", then this command again."
        )));
    }
    let is_decided = args.has(Opt::UsePolicies) && Settings::of(&args.config).repairs_mirrors;
    // LVM's usual policy: a person decides.
    if args.has(Opt::UsePolicies) && !is_decided {
        session.console.complain(format!("Use 'lvconvert --repair {full}' to replace failed device."));
        return Ok(());
    }
    let words = args.positionals.get(1..).unwrap_or_default();
    let parts = places::named(session, report, words)?;
    let on = places::usable(session, report, volume.segment, parts)?;
    // Free mirrored extents with one copy are what a mirrored volume gets next.
    if volume.legs != Legs::Single && report.mirrors.single_extents == 0 {
        session.console.say(format!("{full} has two copies of everything: there is nothing to repair."));
        return Ok(());
    }
    let question = "Attempt to replace failed RAID images (requires full device resync)?";
    if !args.assumes_yes() && !is_decided && !session.console.asks(question) {
        return Err(Failure::failed(match volume.legs {
            Legs::Single => format!("{full} has one copy of its data, and keeps it."),
            _ => format!("Free mirrored extents of volume group \"{group}\" have one copy, and keep it."),
        }));
    }
    match session.change(group, Request::RepairMirrors { on }) {
        Ok(Outcome::Repaired { .. }) => {
            session.console.say(format!("Faulty devices in {full} successfully replaced."));
            let now = session.report_of(group, Vec::new())?;
            warn_of_journal(session, &now);
            Ok(())
        }
        Ok(other) => Err(unexpected(group, &other)),
        Err(failure) => {
            session.tell(&failure);
            // Some may have got one.
            let now = session.report_of(group, Vec::new())?.mirrors.single_extents;
            Err(Failure::failed(format!(
                "Failed to replace faulty devices in {full}: {now} extents have one copy and need room on another physical \
                 volume."
            )))
        }
    }
}

/// `lvconvert -m1`, `--type raid1`: a linear volume and its snapshots get a second copy, on the named physical volumes or
/// anywhere.
pub fn convert(session: &mut Session<'_>, args: &Args, report: &GroupReport, volume: &VolumeReport) -> Result {
    let group = &report.name;
    let full = format!("{group}/{}", volume.name);
    let words = args.positionals.get(1..).unwrap_or_default();
    let parts = places::named(session, report, words)?;
    let on = places::usable(session, report, SegmentType::Linear, parts)?;
    let question =
        format!("Are you sure you want to convert linear LV {full} to raid1 with 2 images enhancing resilience?");
    if !args.assumes_yes() && !session.console.asks(&question) {
        return Err(Failure::failed(format!("Logical volume {full} NOT converted.")));
    }
    if let Err(failure) = session.change(group, Request::Convert { volume: volume.name.clone(), on }) {
        session.tell(&failure);
        let now = session.report_of(group, Vec::new())?;
        let has_some =
            now.mirrors.extents - now.mirrors.free_extents > report.mirrors.extents - report.mirrors.free_extents;
        let rest = format!(" Extents of it that got a second copy keep it; to give it back: lvconvert -m0 {full}.");
        return Err(Failure::failed(format!(
            "Logical volume {full} NOT converted.{}",
            if has_some { rest } else { String::new() }
        )));
    }
    session.console.say(format!("Logical volume {full} successfully converted."));
    warn_of_journal(session, report);
    Ok(())
}

/// Says if the loss of one physical volume keeps the group closed, whatever its mirrors have.
pub fn warn_of_journal(session: &mut Session<'_>, report: &GroupReport) {
    if report.journal_copies < 2 {
        let group = &report.name;
        session.console.complain(format!(
            "WARNING: The journal of volume group \"{group}\" is on one physical volume, and the group does not open without that \
             one (vgchange --vgmetadatacopies 2 {group} keeps it on two)."
        ));
    }
}

/// `lvconvert -m0`, `--type linear`: a mirrored volume and its snapshots keep one copy, not the ones on the named physical
/// volumes.
pub fn convert_to_linear(
    session: &mut Session<'_>,
    args: &Args,
    report: &GroupReport,
    volume: &VolumeReport,
) -> Result {
    let group = &report.name;
    let full = format!("{group}/{}", volume.name);
    let words = args.positionals.get(1..).unwrap_or_default();
    let parts = places::named(session, report, words)?;
    let is_whole = |part: &PvPart| report.pvs.iter().any(|pv| pv.path == part.path && pv.extents == part.extents);
    if !parts.iter().all(is_whole) {
        return Err(Failure::failed("A copy is removed from a whole physical volume: name it without extents."));
    }
    let from: Vec<String> = parts.into_iter().map(|part| part.path).collect();
    let is_mirrored = volume.is_mirrored();
    let question = format!("Are you sure you want to convert raid1 LV {full} to type linear losing all resilience?");
    if is_mirrored && !args.assumes_yes() && !session.console.asks(&question) {
        return Err(Failure::failed(format!("Logical volume {full} NOT converted.")));
    }
    match session.change(group, Request::ConvertLinear { volume: volume.name.clone(), from })? {
        Outcome::Linear { shared, .. } if shared > 0 => session.console.say(format!(
            "{shared} extents of {full} keep two copies: mirrored logical volumes have blocks there, too."
        )),
        Outcome::Linear { single: 0, .. } if !is_mirrored => {
            session.console.complain(format!("WARNING: {full} already has image count of 1."));
        }
        Outcome::Linear { .. } => {}
        other => return Err(unexpected(group, &other)),
    }
    session.console.say(format!("Logical volume {full} successfully converted."));
    Ok(())
}

/// How often a command looks whether a comparison has ended.
const POLL: Duration = Duration::from_millis(20);

/// `lvchange --syncaction`: the copies of mirrored volumes are compared, in the background. `idle` waits for their end.
pub fn scrub(session: &mut Session<'_>, args: &Args, action: &str) -> Result {
    let action = match action {
        "check" => ScrubAction::Check,
        "repair" => ScrubAction::Repair,
        _ => ScrubAction::Stop,
    };
    let mut selection = session.select_by(args, false)?;
    for selected in &selection.groups {
        let group = &selected.report.name;
        for volume in &selected.volumes {
            let legs = selected.report.volume(volume).map_or(Legs::Whole, |volume| volume.legs);
            if let Err(failure) = scrub_one(session, group, volume, action, legs) {
                session.tell(&failure);
                selection.is_incomplete = true;
            }
        }
    }
    selection.end()
}

fn scrub_one(session: &mut Session<'_>, group: &str, volume: &str, action: ScrubAction, legs: Legs) -> Result {
    session.change(group, Request::Scrub { volume: volume.to_owned(), action })?;
    if action == ScrubAction::Stop {
        return wait_for_end(session, group, volume);
    }
    let why = match legs {
        Legs::Whole => return Ok(()),
        Legs::Missing => "a physical volume with copies of it is missing",
        Legs::Single => "the physical volume with the other copy was removed",
    };
    session
        .console
        .complain(format!("WARNING: {group}/{volume} has parts with one copy, which are not compared: {why}."));
    Ok(())
}

/// Waits until the copies of this volume are not being compared any more.
fn wait_for_end(session: &mut Session<'_>, group: &str, volume: &str) -> Result {
    while !session.is_test {
        let report = session.report_of(group, vec![volume.to_owned()])?;
        let scrub = report.volume(volume).and_then(|volume| volume.scrub);
        if !scrub.is_some_and(|scrub| scrub.is_running) {
            break;
        }
        session.backend.pause(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Room;

    #[test]
    fn copies_are_on_two_physical_volumes() {
        let extents = |free: &[u64], mirrored| Room::from(free, mirrored).extents;
        assert_eq!(extents(&[], 0), 0);
        assert_eq!(extents(&[100], 0), 0);
        assert_eq!(extents(&[100, 40], 0), 40);
        assert_eq!(extents(&[100, 40], 3), 43);
        assert_eq!(extents(&[50, 40, 30], 0), 60);
        assert_eq!(extents(&[50, 40, 31], 0), 60);
        assert_eq!(extents(&[100, 40, 31], 0), 71);
    }
}
