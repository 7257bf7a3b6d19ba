//! lvconvert: merges snapshots and converts volumes. Here snapshots have no stores and pools have no data of their own,
//! so only some of LVM's conversions have a meaning. The others are refused. A conversion that destroys data in LVM
//! destroys it here, after the same question.

use super::{lvcreate, mirrors};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::roles::{COPIES, Role, extents_of, is_sparse, role};
use crate::session::{Detail, Session, no_volume};
use rowen_control::names;
use rowen_control::paths::Target;
use rowen_control::protocol::{GroupReport, Legs, Outcome, Request, SegmentType, VolumeKind, VolumeReport, VolumeSpec};
use std::collections::BTreeSet;

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::Merge) || args.has(Opt::MergeSnapshot) || args.has(Opt::MergeThin) {
        return merge_all(session, args);
    }
    super::redundancy::refuse(args)?;
    match args.text(Opt::Type) {
        _ if args.has(Opt::MergeMirrors) => {
            Err(Failure::failed("There are no copies that were split off a mirror and could be merged."))
        }
        _ if args.has(Opt::SplitMirrors) => {
            let (report, volume) = one(session, args, 0)?;
            let full = full(&report, &volume);
            Err(Failure::failed(format!(
                "No copy of {full} can be split off. A snapshot keeps what it has now: lvcreate -s {full}."
            )))
        }
        _ if args.has(Opt::ReplacePv) => {
            let word = args.positionals.first().ok_or(Failure::NoForm)?;
            let (report, volume) = one_of_all(session, word, no_volume)?;
            mirrors::replace(session, args, &report, &volume)
        }
        _ if args.has(Opt::SplitSnapshot) => split(session, args),
        Some("thin-pool") => pool(session, args),
        Some("snapshot") => snapshot(session, args),
        Some("thin") => thin(session, args),
        Some("linear") => copies(session, args, 1),
        Some("raid1" | "mirror") => copies(session, args, 2),
        Some("striped") => {
            let (report, volume) = one(session, args, 0)?;
            permit(&report, &volume, &[Role::Plain])?;
            let full = full(&report, &volume);
            if volume.is_mirrored() {
                return Err(Failure::failed(format!(
                    "Logical volume {full} cannot become striped. To make it linear: lvconvert --type linear {full}."
                )));
            }
            if args.number(Opt::ConvertStripes).is_some_and(|stripes| stripes > 1) && !volume.is_striped() {
                return Err(Failure::failed(format!(
                    "Logical volume {full} cannot become striped: create a striped logical volume and copy it."
                )));
            }
            let own = if volume.is_striped() { "striped" } else { "linear" };
            Err(Failure::failed(format!("Logical volume {full} is already of requested type {own}.")))
        }
        _ if args.has(Opt::Thin) => thin(session, args),
        _ if args.has(Opt::ThinPool) => pool(session, args),
        _ if args.has(Opt::Snapshot) => snapshot(session, args),
        _ if args.has(Opt::Mirrors) => copies(session, args, 0),
        _ if args.has(Opt::Repair) => {
            let (report, volume) = one(session, args, 0)?;
            if volume.is_mirrored() {
                return mirrors::repair(session, args, &report, &volume);
            }
            Err(Failure::failed(format!(
                "{} cannot be repaired alone: \"rowen check {group}\" lists the damage, \"rowen repair {group}\" repairs the group.",
                full(&report, &volume),
                group = report.name
            )))
        }
        _ => {
            let (report, volume) = one(session, args, 0)?;
            permit(&report, &volume, &[])
        }
    }
}

fn full(report: &GroupReport, volume: &VolumeReport) -> String {
    format!("{}/{}", report.name, volume.name)
}

/// The volume that the command line names at this place. Volumes after the first need no group.
fn one(session: &mut Session<'_>, args: &Args, place: usize) -> Result<(GroupReport, VolumeReport)> {
    let word = args.positionals.get(place).ok_or(Failure::NoForm)?;
    session.one_volume(word, no_volume)
}

/// The same, with the report of the whole group.
fn one_of_all(
    session: &mut Session<'_>,
    word: &str,
    missing: impl Fn(&str, &str) -> String,
) -> Result<(GroupReport, VolumeReport)> {
    let (report, volume) = session.one_volume(word, missing)?;
    Ok((session.report(&report.name)?, volume))
}

/// The name of a volume of this group in an option's value or a later operand: `LV`, `VG/LV` or a path.
fn name_in(report: &GroupReport, text: &str) -> Result<String> {
    match Target::parse(text) {
        Some(Target::Volume { group, volume }) if group == report.name => Ok(volume),
        Some(Target::Volume { group, .. }) => {
            Err(Failure::usage(format!("Please use a single volume group name (\"{}\" or \"{group}\")", report.name)))
        }
        _ => Ok(text.to_owned()),
    }
}

/// LVM's refusal of a volume of another kind.
fn permit(report: &GroupReport, volume: &VolumeReport, roles: &[Role]) -> Result {
    if roles.contains(&role(volume)) && !volume.is_waiting_to_merge() {
        return Ok(());
    }
    let kind = match role(volume) {
        Role::Pool => "thinpool",
        Role::Thin => "thin",
        Role::Snapshot => "snapshot",
        Role::Plain if volume.is_mirrored() => "raid1",
        Role::Plain if volume.is_striped() => "striped",
        Role::Plain => "linear",
    };
    let full = full(report, volume);
    Err(Failure::failed(format!(
        "Command on LV {full} does not accept LV type {kind}.\nCommand not permitted on LV {full}."
    )))
}

/// A volume whose contents are destroyed must be closed and must not be an origin.
fn permit_destruction(report: &GroupReport, volume: &VolumeReport) -> Result {
    permit(report, volume, &[Role::Plain])?;
    let full = full(report, volume);
    if volume.node.open {
        return Err(Failure::failed(format!("Logical volume {full} in use.")));
    }
    match report.snapshots_of(&volume.name).next() {
        Some(snapshot) => {
            Err(Failure::failed(format!("Cannot convert logical volume {full}: it has snapshots ({}).", snapshot.name)))
        }
        None => Ok(()),
    }
}

/// Warns about the loss and asks for confirmation.
fn confirm(session: &mut Session<'_>, args: &Args, warning: &str, what: &str) -> Result {
    session.console.complain(format!(
        "WARNING: Converting {warning}\nTHIS WILL DESTROY CONTENT OF LOGICAL VOLUME (filesystem etc.)"
    ));
    if args.assumes_yes() || session.console.asks(&format!("Do you really want to convert {what}?")) {
        return Ok(());
    }
    Err(Failure::failed("Conversion aborted."))
}

// ---- merging ------------------------------------------------------------------------------------------------

fn merge_all(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::NoForm);
    }
    let mut end = Ok(());
    let mut origins = Origins::new();
    for word in &args.positionals {
        let merged = match Target::parse(word) {
            Some(Target::Tag(_) | Target::Group(_)) => merge_of(session, word, &mut origins),
            _ => merge_named(session, word, &mut origins),
        };
        if let Err(failure) = merged {
            let code = failure.exit_code();
            if code != crate::failure::exit::FAILED {
                return Err(failure);
            }
            session.tell(&failure);
            end = Err(Failure::Told);
        }
    }
    end
}

/// The origins into which this command has merged a snapshot, with their groups. A second merge would undo the first.
type Origins = BTreeSet<(String, String)>;

/// The snapshots among the volumes of a group or a tag.
fn merge_of(session: &mut Session<'_>, word: &String, origins: &mut Origins) -> Result {
    let selection = session.select(std::slice::from_ref(word), Detail { all_volumes: true, ..Detail::default() })?;
    let mut end = selection.end();
    for selected in &selection.groups {
        let chosen = selected.volumes.iter().filter_map(|name| selected.report.volume(name));
        for snapshot in chosen.filter(|volume| volume.origin.is_some()) {
            if let Err(failure) = merge(session, &selected.report, snapshot, origins) {
                session.tell(&failure);
                end = Err(Failure::Told);
            }
        }
    }
    end
}

fn merge_named(session: &mut Session<'_>, word: &str, origins: &mut Origins) -> Result {
    let (report, snapshot) = session.one_volume(word, no_volume)?;
    merge(session, &report, &snapshot, origins)
}

fn merge(session: &mut Session<'_>, report: &GroupReport, snapshot: &VolumeReport, origins: &mut Origins) -> Result {
    let (group, name) = (&report.name, &snapshot.name);
    let Some(origin) = &snapshot.origin else {
        return Err(Failure::failed(format!("\"{group}/{name}\" is not a mergeable logical volume.")));
    };
    let is_thin = role(snapshot) == Role::Thin;
    let merging = format!(
        "Cannot merge snapshot {group}/{name} into the origin {group}/{origin} with merging snapshot {group}/{name}."
    );
    let target = (group.clone(), origin.clone());
    if !is_thin && origins.contains(&target) {
        return Err(Failure::failed(merging));
    }
    if snapshot.is_waiting_to_merge() {
        return Err(Failure::failed(match is_thin {
            true => merging,
            false => format!(
                "Command on LV {group}/{name} is invalid on LV with properties: lv_is_merging_cow .\n\
                 Command not permitted on LV {group}/{name}."
            ),
        }));
    }
    let outcome = session.change(group, Request::Merge { snapshot: name.clone() })?;
    origins.insert(target);
    match (outcome, is_thin) {
        (Outcome::MergeWaits { is_origin_open }, _) => {
            let open = match (is_origin_open, is_thin) {
                (true, true) => "origin volume",
                (true, false) => "origin",
                (false, _) => "snapshot",
            };
            let thin = if is_thin { "thin " } else { "" };
            session.console.say(format!("Delaying merge since {open} is open."));
            session.console.say(format!(
                "Merging of {thin}snapshot {group}/{name} will occur on next activation of {group}/{origin}."
            ));
        }
        (_, true) => session.console.say(format!("Volume {group}/{name} replaced origin {group}/{origin}.")),
        (_, false) => {
            session.console.say(format!("Merging of volume {group}/{name} started."));
            session.console.say(format!("{group}/{origin}: Merged: 100.00%"));
            session.console.say(format!("Merge of snapshot into logical volume {group}/{origin} has finished."));
            session.console.say(format!("Logical volume \"{name}\" successfully removed."));
        }
    }
    Ok(())
}

// ---- conversions --------------------------------------------------------------------------------------------

/// LVM splits off the store, which can be attached again.
fn split(session: &mut Session<'_>, args: &Args) -> Result {
    let (report, volume) = one(session, args, 0)?;
    permit(&report, &volume, &[Role::Snapshot])?;
    Err(Failure::failed(format!(
        "Snapshot {} cannot be split off: it has no store of its own. To end it, remove it.",
        full(&report, &volume)
    )))
}

/// `-m` and types with a number of copies; 0: `-m` alone says how many. A volume with as many copies does not change,
/// which LVM reports as success.
fn copies(session: &mut Session<'_>, args: &Args, of_type: u64) -> Result {
    let (report, volume) = one(session, args, 0)?;
    // A snapshot whose origin is gone is a volume of its own.
    match is_sparse(&volume) {
        true => permit(&report, &volume, &[Role::Thin])?,
        false => permit(&report, &volume, &[Role::Plain])?,
    }
    if volume.is_striped() {
        return Err(Failure::failed(format!(
            "Logical volume {} is striped, and its type does not change: copy it to a new logical volume.",
            full(&report, &volume)
        )));
    }
    let now = if volume.is_mirrored() { COPIES } else { 1 };
    let wanted = match args.text(Opt::Mirrors).map(|text| (text.chars().next(), args.number(Opt::Mirrors))) {
        Some((Some('+'), Some(more))) => now.saturating_add(more),
        Some((Some('-'), Some(fewer))) => now.saturating_sub(fewer).max(1),
        Some((_, Some(mirrors))) => mirrors.saturating_add(1),
        _ => of_type,
    };
    match (of_type, wanted) {
        (1, 2..) => return Err(Failure::usage("--mirrors must be 0 with segment type linear.")),
        (COPIES, 1) => return Err(Failure::usage("--mirrors must be at least 1 with segment type raid1.")),
        _ => {}
    }
    if wanted == COPIES && !volume.is_mirrored() {
        return mirrors::convert(session, args, &report, &volume);
    }
    // A linear volume may still have extents with two copies.
    if wanted == 1 && (volume.is_mirrored() || report.mirrors.extents > 0) {
        return mirrors::convert_to_linear(session, args, &report, &volume);
    }
    let full = full(&report, &volume);
    if wanted != now {
        return Err(Failure::failed(format!(
            "Logical volume {full} cannot have {wanted} copies of its data: a mirrored logical volume has two."
        )));
    }
    if volume.legs == Legs::Single {
        return Err(Failure::failed(format!(
            "{full} has one copy of parts of its data. To make the other one: lvconvert --repair {full}."
        )));
    }
    session.console.complain(format!("WARNING: {full} already has image count of {now}."));
    session.console.say(format!("Logical volume {full} successfully converted."));
    Ok(())
}

/// A volume becomes a pool of the same size. Its contents and the volume given for the pool's metadata are removed.
fn pool(session: &mut Session<'_>, args: &Args) -> Result {
    let word = match (args.positionals.first(), args.text(Opt::ThinPool)) {
        (Some(word), None) => word.as_str(),
        (None, Some(word)) => word,
        _ => return Err(Failure::NoForm),
    };
    let (report, data) = one_of_all(session, word, no_volume)?;
    permit_destruction(&report, &data)?;
    if data.is_mirrored() {
        return Err(Failure::failed(format!(
            "Logical volume {} is mirrored, and thin pools are not: its volumes would have one copy of their data.",
            full(&report, &data)
        )));
    }
    if data.is_striped() {
        session.console.complain("WARNING: Thin pools are not striped; the logical volume becomes linear.");
    }
    let metadata = match args.text(Opt::PoolMetadata) {
        None => None,
        Some(text) => {
            let name = name_in(&report, text)?;
            let found = report.volume(&name).filter(|found| found.name != data.name);
            let found = found.ok_or_else(|| Failure::failed(format!("Unknown pool metadata LV {text}.")))?;
            permit_destruction(&report, found)?;
            Some(found)
        }
    };
    let chunk_blocks = lvcreate::pool_chunk_blocks(args)?;
    let what = match metadata {
        None => full(&report, &data),
        Some(metadata) => format!("{} and {}", full(&report, &data), full(&report, metadata)),
    };
    let warning = match metadata {
        None => format!("{what} to thin pool's data volume with metadata wiping."),
        Some(_) => format!("{what} to thin pool's data and metadata volumes with metadata wiping."),
    };
    confirm(session, args, &warning, &what)?;
    let gone = [Some(&data), metadata].into_iter().flatten().map(|volume| volume.name.clone()).collect();
    session.change(&report.name, Request::Remove { names: gone })?;
    let mut attributes = data.attributes.clone();
    attributes.pool.clone_from(&data.name);
    let spec = VolumeSpec {
        name: data.name.clone(),
        uuid: session.backend.fresh_uuid(),
        kind: VolumeKind::Thin,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: data.blocks,
        sector: data.sector,
        chunk_blocks,
        full: lvcreate::full_policy(args),
        attributes,
    };
    session.change(&report.name, Request::CreateVolume { spec, activate: false, on: Vec::new() })?;
    session.console.say(format!("Converted {what} to thin pool."));
    Ok(())
}

/// A volume becomes a snapshot of another, and its size becomes the reserve. In LVM the volume becomes an empty store.
fn snapshot(session: &mut Session<'_>, args: &Args) -> Result {
    let [origin_word, store_word] = &args.positionals[..] else { return Err(Failure::NoForm) };
    let no_origin = |group: &str, name: &str| format!("Couldn't find origin volume {name} in Volume group {group}.");
    let (report, origin) = one_of_all(session, origin_word, no_origin)?;
    let group = &report.name;
    let name = name_in(&report, store_word)?;
    let Some(store) = report.volume(&name) else {
        return Err(Failure::failed(no_volume(group, &name)));
    };
    permit_destruction(&report, store)?;
    permit(&report, &origin, &[Role::Plain, Role::Thin, Role::Snapshot])?;
    if store.name == origin.name {
        return Err(Failure::failed("Unable to use LV as both snapshot and origin."));
    }
    if args.yes_no(Opt::Zero) == Some(false) {
        return Err(Failure::failed(format!(
            "{group}/{name} has no store of a snapshot that could be used again: leave out --zero n to make a new snapshot."
        )));
    }
    let chunk_blocks = lvcreate::chunk_blocks(args)?;
    lvcreate::check_least(&report, extents_of(&report, store.blocks), lvcreate::store_chunk(args))?;
    let warning = format!("logical volume {group}/{name} to snapshot exception store.");
    confirm(session, args, &warning, &format!("{group}/{name}"))?;
    session.change(group, Request::Remove { names: vec![name.clone()] })?;
    // The space of the old contents is freed in the background.
    let now = session.report(group)?;
    session.free_extents(&now, extents_of(&now, store.blocks))?;
    let mut spec = lvcreate::new_snapshot(session, args, &origin, name.clone(), Some(store.blocks), chunk_blocks);
    spec.attributes = store.attributes.clone();
    session.change(group, Request::Snapshot { specs: vec![spec], freeze: true })?;
    session.console.say(format!("Logical volume {group}/{name} converted to snapshot."));
    Ok(())
}

/// A volume becomes a thin volume in a pool. Its contents stay in a read-only volume with another name, its external
/// origin.
fn thin(session: &mut Session<'_>, args: &Args) -> Result {
    let Some(pool) = args.text(Opt::ThinPool) else { return Err(Failure::NoForm) };
    let (report, volume) = one(session, args, 0)?;
    let report = session.report(&report.name)?;
    let group = &report.name;
    let pool = name_in(&report, pool)?;
    match report.volume(&pool) {
        None => return Err(Failure::failed(format!("Thin pool {pool} not found."))),
        Some(found) => permit(&report, found, &[Role::Pool])?,
    }
    permit(&report, &volume, &[Role::Plain, Role::Thin])?;
    let full = full(&report, &volume);
    if volume.node.open {
        return Err(Failure::failed(format!(
            "Logical volume {full} in use.\nIts contents can be converted only while no program has it open: unmount it and try again."
        )));
    }
    let origin_name = match args.text(Opt::OriginName) {
        None => names::automatic(report.volumes.iter().map(|volume| volume.name.as_str())),
        Some(text) => name_in(&report, text)?,
    };
    lvcreate::check_name(group, &origin_name)?;
    if report.volume(&origin_name).is_some() {
        return Err(Failure::failed(format!(
            "Logical Volume \"{origin_name}\" already exists in volume group \"{group}\""
        )));
    }
    let origin = VolumeReport { name: origin_name.clone(), ..volume.clone() };
    let mut spec = lvcreate::new_snapshot(session, args, &origin, volume.name.clone(), None, volume.chunk_blocks);
    spec.attributes.pool = pool;
    spec.attributes.skip_activation = volume.attributes.skip_activation;
    spec.activate = volume.node.active;
    spec.read_only = volume.read_only;
    replace_by_snapshot(session, group, &volume, &origin_name, spec)?;
    session.console.say(format!("Logical volume \"{origin_name}\" created."));
    session.console.say(format!("Converted {full} to thin volume with external origin {group}/{origin_name}."));
    Ok(())
}

/// Renames the volume and gives its name to a snapshot of it. If a step fails, the earlier steps are undone.
fn replace_by_snapshot(
    session: &mut Session<'_>,
    group: &str,
    volume: &VolumeReport,
    new_name: &str,
    spec: rowen_control::protocol::SnapshotSpec,
) -> Result {
    let (from, to) = (volume.name.clone(), new_name.to_owned());
    let undo = [
        Request::SetPermission { name: to.clone(), read_only: volume.read_only },
        Request::Rename { from: to.clone(), to: from.clone() },
        Request::Activate { names: Some(vec![from.clone()]), ignore_skip: true, auto: false, partial: false },
    ];
    let steps = [
        Request::Deactivate { names: Some(vec![from.clone()]) },
        Request::Rename { from, to: to.clone() },
        Request::SetPermission { name: to, read_only: true },
        Request::Snapshot { specs: vec![spec], freeze: true },
    ];
    for (done, step) in steps.into_iter().enumerate() {
        let Err(failure) = session.change(group, step) else { continue };
        // Undoes the steps from the last one backwards.
        for request in undo.into_iter().rev().take(done).rev() {
            let is_idle = matches!(request, Request::Activate { .. }) && !volume.node.active;
            if !is_idle && let Err(also) = session.change(group, request) {
                session.tell(&also);
            }
        }
        return Err(failure);
    }
    Ok(())
}
