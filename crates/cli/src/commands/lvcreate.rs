//! lvcreate: plain volumes, snapshots, thin pools and thin volumes.
//!
//! A thin pool is here only a limit with a name: its thin volumes together use at most its size. It reserves no space.
//! A snapshot without a size uses the group's free space, also the snapshot of a thick volume, which LVM refuses.

use super::amount::{OriginExtents, Source, blocks, rounded, size_in_extents};
use super::{mirrors, places, stripes};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::{Activation, Args};
use crate::roles::{Role, extent_bytes, extents_of, refuse_full_pool, role};
use crate::session::{Session, unless_exported};
use rowen_control::lists::Subject;
use rowen_control::names::{self, Refusal};
use rowen_control::paths::{self, Target};
use rowen_control::protocol::{
    Attributes, FullPolicy, GroupReport, PvPart, Request, SegmentType, SnapshotSpec, VolumeKind, VolumeReport,
    VolumeSpec,
};
use rowen_control::sizes;
use rowen_control::units::sentence;
use rowen_engine::units::BLOCK_SIZE;
use std::fs::File;

const MIN_CHUNK: u64 = 4 << 10;
const MAX_CHUNK: u64 = 512 << 10;
/// The chunk size without `-c`: redirected writes within one chunk are placed next to each other.
const DEFAULT_CHUNK: u64 = 64 << 10;

/// What the command line asks for.
enum What {
    Plain,
    Snapshot,
    Pool,
    /// A thin volume, perhaps in a pool. If the command line gives the pool's size, the pool is created first.
    Thin,
}

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    if args.has(Opt::Size) && args.has(Opt::Extents) {
        return Err(Failure::usage("Please specify either size or extents (not both)."));
    }
    if args.number(Opt::Stripes) == Some(0) {
        return Err(Failure::usage("--stripes may not be zero."));
    }
    for option in [Opt::Size, Opt::VirtualSize, Opt::ChunkSize] {
        let size = args.size(option);
        if size.is_some_and(|size| size.bytes == 0) {
            return Err(Failure::usage(format!("--{} may not be zero.", option.spec().long)));
        }
    }
    if args.extents(Opt::Extents).is_some_and(|extents| extents.count == 0) {
        return Err(Failure::usage("--extents may not be zero."));
    }
    super::redundancy::refuse(args)?;
    let segment = if mirrors::is_wanted(args)? { SegmentType::Raid1 } else { SegmentType::Linear };
    let what = what(args)?;
    let _turn = match args.has(Opt::Name) {
        true => None,
        false => naming_turn(session, args)?,
    };
    match what {
        What::Plain => plain(session, args, segment),
        What::Snapshot => snapshot(session, args),
        What::Pool => pool(session, args),
        What::Thin => thin(session, args),
    }
}

/// A generated name depends on the existing names. The lock keeps other commands from generating one in this group
/// until the volume exists.
fn naming_turn(session: &mut Session<'_>, args: &Args) -> Result<Option<File>> {
    let words = args.positionals.first().map(String::as_str).into_iter().chain(args.text(Opt::ThinPool));
    let groups = words.filter_map(|word| match Target::parse(word) {
        Some(Target::Group(group) | Target::Volume { group, .. }) => Some(group),
        Some(Target::Tag(_)) | None => None,
    });
    match groups.collect::<Vec<_>>().first() {
        // The code that needs the group reports a missing one later.
        Some(group) if !session.is_test && session.report_of(group, Vec::new()).is_ok() => {
            Ok(session.backend.turn(group)?)
        }
        _ => Ok(None),
    }
}

fn what(args: &Args) -> Result<What> {
    let has_size = args.has(Opt::Size) || args.has(Opt::Extents);
    let has_virtual = args.has(Opt::VirtualSize);
    let is_snapshot = is_snapshot(args);
    Ok(match args.text(Opt::Type) {
        Some("thin-pool") if has_size && !has_virtual => What::Pool,
        Some("thin") if has_virtual => What::Thin,
        // A snapshot of a volume of any kind. The pool counts its space.
        Some("thin") if has_origin(args) => What::Snapshot,
        None if args.has(Opt::Thin) && !has_size && !has_virtual && !args.positionals.is_empty() => What::Snapshot,
        _ if is_snapshot && has_virtual && names_volume(args) => {
            return Err(Failure::failed("Please either create snapshot or thin volume."));
        }
        // LVM's snapshot with a store of this size; -s alone makes one without a store.
        Some("snapshot") if !has_size && !has_virtual => return Err(Failure::NoForm),
        // A sparse volume: in LVM a snapshot without an origin.
        _ if is_snapshot && has_virtual => What::Thin,
        _ if is_snapshot => What::Snapshot,
        _ if has_virtual => What::Thin,
        Some("thin" | "thin-pool") => return Err(Failure::NoForm),
        _ if (args.has(Opt::Thin) || args.has(Opt::ThinPool)) && has_size => What::Pool,
        _ if args.has(Opt::Thin) || args.has(Opt::ThinPool) || !has_size => return Err(Failure::NoForm),
        _ => What::Plain,
    })
}

/// Whether the command line names an origin.
fn has_origin(args: &Args) -> bool {
    let is_pool_named = args.has(Opt::ThinPool) || args.text(Opt::Type) == Some("thin");
    is_pool_named && names_volume(args)
}

/// Whether the first operand is a volume.
fn names_volume(args: &Args) -> bool {
    let volume = args.positionals.first().and_then(|word| Target::parse(word));
    matches!(volume, Some(Target::Volume { .. }))
}

/// Whether a snapshot is asked for. With a virtual size and without an origin it is a sparse volume in no pool.
fn is_snapshot(args: &Args) -> bool {
    args.has(Opt::Snapshot) || args.text(Opt::Type) == Some("snapshot")
}

/// A volume's name, perhaps with its group: `LV`, `VG/LV`, `/dev/VG/LV`.
fn split_name(text: &str) -> (Option<String>, String) {
    match Target::parse(text) {
        Some(Target::Volume { group, volume }) => (Some(group), volume),
        _ => (None, text.to_owned()),
    }
}

/// The group and the name of the new volume. `None`: a name must be generated.
fn place(args: &Args, positional: Option<&str>) -> Result<(String, Option<String>)> {
    let (named_group, name) = match args.text(Opt::Name) {
        Some(text) => {
            let (group, name) = split_name(text);
            (group, Some(name))
        }
        None => (None, None),
    };
    let group = match (positional.map(super::groups::group_name).transpose()?, named_group) {
        (Some(group), Some(named)) if group != named => {
            return Err(Failure::usage(format!("Inconsistent volume group names given: \"{named}\" and \"{group}\"")));
        }
        (Some(group), _) | (None, Some(group)) => group,
        (None, None) => return Err(Failure::NoForm),
    };
    if let Some(name) = &name {
        check_name(&group, name)?;
    }
    Ok((group, name))
}

pub fn check_name(group: &str, name: &str) -> Result {
    names::check_volume(name).map_err(|why| match why {
        Refusal::ReservedPrefix(_) | Refusal::ReservedPart(_) => Failure::usage(why.to_string()),
        _ if name.contains('/') => Failure::usage(paths::refusal(name)),
        _ => Failure::usage(format!("Logical volume name \"{name}\" is invalid.")),
    })?;
    names::pair_too_long(group, name).map_or(Ok(()), |refusal| Err(Failure::failed(refusal)))
}

/// The report that the creation needs: of the named volumes, or of all volumes to generate a name.
fn report_for(
    session: &mut Session<'_>,
    group: &str,
    name: Option<&String>,
    mut others: Vec<String>,
    args: &Args,
) -> Result<GroupReport> {
    let Some(name) = name else { return session.usable_report(group) };
    others.push(name.clone());
    others.extend(args.text(Opt::ThinPool).map(|pool| split_name(pool).1));
    unless_exported(session.report_of(group, others)?)
}

/// The name, if it is free, or a generated one if none was given.
fn free_name(report: &GroupReport, name: Option<String>) -> Result<String> {
    let Some(name) = name else {
        return Ok(names::automatic(report.volumes.iter().map(|volume| volume.name.as_str())));
    };
    match report.volume(&name) {
        Some(_) => {
            let group = &report.name;
            Err(Failure::failed(format!("Logical Volume \"{name}\" already exists in volume group \"{group}\"")))
        }
        None => Ok(name),
    }
}

/// The volume, group or pool that comes first; physical volumes may follow.
fn single(args: &Args) -> Option<&str> {
    args.positionals.first().map(String::as_str)
}

/// The physical volumes that follow the group or volume.
fn pv_words(args: &Args) -> &[String] {
    args.positionals.get(1..).unwrap_or_default()
}

/// The physical volumes or extents that a thick volume uses.
fn chosen(session: &mut Session<'_>, args: &Args, report: &GroupReport, segment: SegmentType) -> Result<Vec<PvPart>> {
    let parts = places::named(session, report, pv_words(args))?;
    places::usable(session, report, segment, parts)
}

/// Refuses a choice of physical volumes for volumes that allocate blocks when they are written.
fn refuse_choice(session: &mut Session<'_>, args: &Args, report: &GroupReport, what: &str) -> Result {
    let parts = places::named(session, report, pv_words(args))?;
    places::refuse_choice(report, &parts, what)
}

/// A striped pool is made linear, with a warning. Invalid stripes are refused.
fn warn_stripes(session: &mut Session<'_>, args: &Args, report: &GroupReport) -> Result {
    if stripes::number(args, report.pvs.len() as u64)?.0 > 1 {
        session.console.complain("WARNING: Thin pools are not striped; the logical volume is linear.");
    }
    Ok(())
}

/// The chunk size of a thin pool, in blocks. LVM permits larger ones, and any multiple of 64 KiB. Nothing is copied
/// here, so the next smaller power of two is good enough.
pub fn pool_chunk_blocks(args: &Args) -> Result<u32> {
    const MIN: u64 = 64 << 10;
    match args.size(Opt::ChunkSize).map(|size| size.bytes) {
        Some(bytes) if bytes >= MIN && bytes % MIN == 0 && bytes <= 1 << 30 => {
            let chunk = 1 << bytes.min(MAX_CHUNK).ilog2();
            Ok((chunk / BLOCK_SIZE) as u32)
        }
        _ => chunk_blocks(args),
    }
}

/// What writes to a pool's volumes do when the group is full.
pub fn full_policy(args: &Args) -> FullPolicy {
    if args.yes_no(Opt::ErrorWhenFull) == Some(true) { FullPolicy::Fail } else { FullPolicy::Hold }
}

/// `-c` in blocks.
pub fn chunk_blocks(args: &Args) -> Result<u32> {
    let bytes = args.size(Opt::ChunkSize).map_or(DEFAULT_CHUNK, |size| size.bytes);
    if !bytes.is_power_of_two() || !(MIN_CHUNK..=MAX_CHUNK).contains(&bytes) {
        return Err(Failure::usage("Chunk size must be a power of 2 in the range 4K to 512K."));
    }
    Ok((bytes / BLOCK_SIZE) as u32)
}

fn attributes(session: &mut Session<'_>, args: &Args, skips_by_default: bool) -> Attributes {
    Attributes {
        autoactivate: args.yes_no(Opt::SetAuto).unwrap_or(true),
        skip_activation: args.yes_no(Opt::SetSkip).unwrap_or(skips_by_default),
        active: false,
        created: session.backend.now(),
        pool: String::new(),
        merging: false,
        tags: args.tags(Opt::AddTag),
    }
}

fn sector(args: &Args) -> u32 {
    if args.text(Opt::SectorSize) == Some("4096") { 4096 } else { 512 }
}

/// Whether the new volume gets a device now.
fn becomes_active(args: &Args, attributes: &Attributes) -> bool {
    let wanted = match args.activation() {
        Some(Activation::No) => false,
        Some(Activation::Auto) => attributes.autoactivate,
        Some(Activation::Yes) | None => true,
    };
    wanted && (!attributes.skip_activation || args.has(Opt::IgnoreSkip))
}

/// The new volume as the activation lists see it.
fn subject<'a>(report: &'a GroupReport, name: &'a str, attributes: &'a Attributes) -> Subject<'a> {
    Subject { group: &report.name, group_tags: &report.attributes.tags, volume: name, tags: &attributes.tags }
}

/// The refusal of a volume that must be active while it is created, but may not be activated.
fn masked(report: &GroupReport, name: &str, what: &str) -> Failure {
    Failure::failed(format!(
        "Volume {}/{name} is not active locally (volume_list activation filter?).\nAborting. Failed to wipe {what}.",
        report.name
    ))
}

/// Whether a thick volume gets a device now. The device is needed to wipe the volume's beginning. So, as in LVM, a
/// volume that may not be activated cannot be created, unless wiping is off.
fn activate_thick(
    session: &mut Session<'_>,
    args: &Args,
    report: &GroupReport,
    name: &str,
    attributes: &Attributes,
) -> Result<bool> {
    if !becomes_active(args, attributes) {
        return Ok(false);
    }
    let volume = subject(report, name, attributes);
    let is_auto = args.activation() == Some(Activation::Auto);
    let is_allowed = session.lists.allow(volume) && (!is_auto || session.lists.allow_auto(volume));
    let is_wiped = args.yes_no(Opt::Zero) != Some(false) && args.read_only() != Some(true);
    if !is_allowed && is_wiped {
        return Err(masked(report, name, "start of new LV"));
    }
    if is_wiped && session.lists.make_read_only(volume) {
        let group = &report.name;
        session.console.complain(format!("WARNING: Read-only activated logical volume {group}/{name} not zeroed."));
    }
    Ok(is_allowed)
}

/// The same for a thin volume, or for a snapshot that is one.
fn activate_thin(
    session: &mut Session<'_>,
    args: &Args,
    report: &GroupReport,
    name: &str,
    attributes: &Attributes,
) -> bool {
    let volume = subject(report, name, attributes);
    let is_auto = args.activation() == Some(Activation::Auto);
    becomes_active(args, attributes) && session.lists.allow(volume) && (!is_auto || session.lists.allow_auto(volume))
}

/// Refuses a volume of a pool that may not be activated here. A pool with an active volume is accepted.
fn refuse_masked_pool(session: &mut Session<'_>, report: &GroupReport, pool: &str) -> Result {
    let Some(found) = report.volume(pool) else { return Ok(()) };
    let of_pool = Subject {
        group: &report.name,
        group_tags: &report.attributes.tags,
        volume: pool,
        tags: &found.attributes.tags,
    };
    if session.lists.allow(of_pool) {
        return Ok(());
    }
    let all = session.report(&report.name)?;
    if all.volumes.iter().any(|volume| volume.attributes.pool == pool && volume.node.active) {
        return Ok(());
    }
    let group = &report.name;
    Err(Failure::failed(format!("Cannot activate thin pool {group}/{pool}, perhaps skipped in lvm.conf volume_list?")))
}

/// Creates a volume. A read-only one becomes read-only before it gets its device.
fn create(
    session: &mut Session<'_>,
    args: &Args,
    group: &str,
    spec: VolumeSpec,
    activate: bool,
    on: Vec<PvPart>,
) -> Result {
    let name = spec.name.clone();
    let is_read_only = args.read_only() == Some(true);
    session.change(group, Request::CreateVolume { spec, activate: activate && !is_read_only, on })?;
    if is_read_only {
        session.change(group, Request::SetPermission { name: name.clone(), read_only: true })?;
        if activate {
            session.change(
                group,
                Request::Activate { names: Some(vec![name]), ignore_skip: true, auto: false, partial: false },
            )?;
        }
    }
    Ok(())
}

fn plain(session: &mut Session<'_>, args: &Args, segment: SegmentType) -> Result {
    let (group, name) = place(args, single(args))?;
    let chunk_blocks = chunk_blocks(args)?;
    let report = report_for(session, &group, name.as_ref(), Vec::new(), args)?;
    let stripes = match segment {
        SegmentType::Linear => stripes::asked(session, args, &report)?,
        _ => None,
    };
    let segment = if stripes.is_some() { SegmentType::Striped } else { segment };
    let on = chosen(session, args, &report, segment)?;
    let source = Source { segment, columns: stripes.map_or(1, |stripes| stripes.columns.into()), on: &on };
    let extents = size_in_extents(session, args, &report, None, source)?;
    let name = free_name(&report, name)?;
    source.check_room(session, &report, &name, extents)?;
    let attributes = attributes(session, args, false);
    let activate = activate_thick(session, args, &report, &name, &attributes)?;
    let spec = VolumeSpec {
        name: name.clone(),
        uuid: session.backend.fresh_uuid(),
        kind: VolumeKind::Thick,
        segment,
        stripes,
        blocks: blocks(&report, extents)?,
        sector: sector(args),
        chunk_blocks,
        full: FullPolicy::DropSnapshot,
        attributes,
    };
    create(session, args, &group, spec, activate, on)?;
    session.console.say(format!("Logical volume \"{name}\" created."));
    if segment == SegmentType::Raid1 {
        mirrors::warn_of_journal(session, &report);
    }
    Ok(())
}

/// `VG/POOL` from `--thinpool` or the positional, and the group.
fn pool_place(args: &Args) -> Result<(String, Option<String>)> {
    let positional = single(args);
    let named = args.text(Opt::ThinPool).map(split_name);
    let (group, pool) = match (positional.and_then(Target::parse), named) {
        (Some(Target::Volume { group, volume }), None) => (group, Some(volume)),
        (Some(Target::Group(group)), None) => (group, None),
        (Some(Target::Group(group)), Some((other, pool))) if other.as_ref().is_none_or(|other| *other == group) => {
            (group, Some(pool))
        }
        (None, Some((Some(group), pool))) if positional.is_none() => (group, Some(pool)),
        (None, None) if positional.is_none() => match args.text(Opt::Name).map(split_name) {
            Some((Some(group), _)) => (group, None),
            _ => return Err(Failure::usage("Please specify the volume group's name.")),
        },
        _ => return Err(Failure::usage("Please name one volume group and one thin pool.")),
    };
    Ok((group, pool))
}

fn pool_spec(session: &mut Session<'_>, args: &Args, report: &GroupReport, name: &str) -> Result<VolumeSpec> {
    let chunk_blocks = pool_chunk_blocks(args)?;
    refuse_choice(session, args, report, "a thin pool")?;
    warn_stripes(session, args, report)?;
    let source = Source { segment: SegmentType::Linear, columns: 1, on: &[] };
    let extents = size_in_extents(session, args, report, None, source)?;
    // A pool reserves nothing, but a pool larger than the group is a mistake.
    source.check_room(session, report, name, extents)?;
    let mut attributes = attributes(session, args, false);
    if !session.lists.allow(subject(report, name, &attributes)) {
        return Err(masked(report, name, "start of new LV"));
    }
    attributes.pool = name.to_owned();
    Ok(VolumeSpec {
        name: name.to_owned(),
        uuid: session.backend.fresh_uuid(),
        kind: VolumeKind::Thin,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: blocks(report, extents)?,
        sector: sector(args),
        chunk_blocks,
        full: full_policy(args),
        attributes,
    })
}

fn pool(session: &mut Session<'_>, args: &Args) -> Result {
    let (group, pool) = pool_place(args)?;
    let named = args.text(Opt::Name).map(|text| split_name(text).1);
    if pool.is_some() && named.is_some() && pool != named {
        return Err(Failure::NoForm);
    }
    let name = pool.or(named);
    if let Some(name) = &name {
        check_name(&group, name)?;
    }
    let report = report_for(session, &group, name.as_ref(), Vec::new(), args)?;
    if let Some(name) = name.as_ref().filter(|name| report.volume(name).is_some()) {
        return Err(Failure::failed(format!("Logical volume {name} already exists in Volume group {group}.")));
    }
    let name = free_name(&report, name)?;
    let spec = pool_spec(session, args, &report, &name)?;
    session.change(&group, Request::CreateVolume { spec, activate: false, on: Vec::new() })?;
    session.console.say(format!("Logical volume \"{name}\" created."));
    Ok(())
}

/// A name that no volume has, and that is not the new pool's.
fn thin_name(report: &GroupReport, name: Option<String>, pool: Option<&str>) -> Result<String> {
    match name {
        // The next after the pool's.
        None => Ok(names::automatic(report.volumes.iter().map(|volume| volume.name.as_str()).chain(pool))),
        named => free_name(report, named),
    }
}

fn thin(session: &mut Session<'_>, args: &Args) -> Result {
    let (group, pool) = pool_place(args)?;
    let chunk_blocks = pool_chunk_blocks(args)?;
    let name = args.text(Opt::Name).map(|text| split_name(text).1);
    for name in name.iter().chain(&pool) {
        check_name(&group, name)?;
    }
    let report = match &pool {
        // Its name may have to be generated.
        None => session.usable_report(&group)?,
        Some(pool) => report_for(session, &group, name.as_ref(), vec![pool.clone()], args)?,
    };
    let has_size = args.has(Opt::Size) || args.has(Opt::Extents);
    let pool = match pool {
        None if is_snapshot(args) => None,
        None if !has_size => return Err(Failure::usage("Please specify name of existing pool.")),
        None => {
            let taken = report.volumes.iter().map(|volume| volume.name.as_str()).chain(name.as_deref());
            Some(names::automatic(taken))
        }
        named => named,
    };
    let extents = rounded(session, &report, args.size(Opt::VirtualSize).ok_or(Failure::NoForm)?.bytes)?;
    let new_pool = match &pool {
        None => None,
        Some(pool) => match report.volume(pool) {
            Some(found) if found.is_pool() => None,
            Some(_) => {
                return Err(Failure::failed(format!("Logical volume {group}/{pool} is not a thin pool.")));
            }
            None if has_size => Some(pool_spec(session, args, &report, pool)?),
            None => {
                return Err(Failure::failed(format!("Pool {pool} not found in Volume group {group}.")));
            }
        },
    };
    let name = thin_name(&report, name, pool.as_deref())?;
    if new_pool.is_some() && pool.as_ref() == Some(&name) {
        return Err(Failure::usage("The thin volume and its pool need different names."));
    }
    if let Some(pool) = &pool {
        refuse_full_pool(&report, pool)?;
        refuse_masked_pool(session, &report, pool)?;
    }
    let of_pool = pool.as_ref().and_then(|pool| report.volume(pool)).map(|pool| pool.full);
    let mut attributes = attributes(session, args, false);
    attributes.pool = pool.unwrap_or_default();
    let activate = activate_thin(session, args, &report, &name, &attributes);
    let spec = VolumeSpec {
        name: name.clone(),
        uuid: session.backend.fresh_uuid(),
        kind: VolumeKind::Thin,
        segment: SegmentType::Linear,
        stripes: None,
        blocks: blocks(&report, extents)?,
        sector: sector(args),
        chunk_blocks,
        full: of_pool.unwrap_or_else(|| full_policy(args)),
        attributes,
    };
    refuse_choice(session, args, &report, "a thin volume")?;
    if let Some(pool) = new_pool {
        session.change(&group, Request::CreateVolume { spec: pool, activate: false, on: Vec::new() })?;
    }
    create(session, args, &group, spec, activate, Vec::new())?;
    session.console.say(format!("Logical volume \"{name}\" created."));
    Ok(())
}

/// The origin's group and name.
fn origin_place(args: &Args) -> Result<(String, String)> {
    match single(args).map(Target::parse) {
        Some(Some(Target::Volume { group, volume })) => Ok((group, volume)),
        Some(_) => Err(Failure::usage("The origin name should include the volume group.")),
        None => Err(Failure::NoForm),
    }
}

fn snapshot(session: &mut Session<'_>, args: &Args) -> Result {
    let (group, origin_name) = origin_place(args)?;
    let name = match args.text(Opt::Name).map(split_name) {
        Some((Some(other), _)) if other != group => {
            return Err(Failure::usage(format!("Please use a single volume group name (\"{group}\" or \"{other}\")")));
        }
        named => named.map(|(_, name)| name),
    };
    if let Some(name) = &name {
        check_name(&group, name)?;
    }
    let chunk_blocks = chunk_blocks(args)?;
    let report = report_for(session, &group, name.as_ref(), vec![origin_name.clone()], args)?;
    let Some(origin) = report.volume(&origin_name) else {
        return Err(Failure::failed(format!("Snapshot origin LV {origin_name} not found in Volume group {group}.")));
    };
    if origin.is_pool() {
        return Err(Failure::failed(format!("Thin pool {group}/{origin_name} has no contents to take a snapshot of.")));
    }
    let is_merged_into = report.snapshots_of(&origin_name).any(VolumeReport::is_waiting_to_merge);
    if is_merged_into && role(origin) != Role::Thin {
        return Err(Failure::failed("Snapshots of an origin that has a merging snapshot are not supported."));
    }
    let is_store = args.has(Opt::SharedStore);
    if is_store && name.is_none() {
        session.console.say(format!(
            "Snapshots of {group}/{origin_name} share the free space of volume group \"{group}\"; no store is needed."
        ));
        return Ok(());
    }
    let name = free_name(&report, name)?;
    refuse_choice(session, args, &report, "a snapshot")?;
    let pool = match args.text(Opt::ThinPool).map(split_name) {
        None => None,
        Some((Some(other), _)) if other != group => {
            return Err(Failure::usage(format!("Please use a single volume group name (\"{group}\" or \"{other}\")")));
        }
        Some((_, pool)) => Some(named_pool(&report, &pool)?),
    };
    let has_size = !is_store && (args.has(Opt::Size) || args.has(Opt::Extents));
    let reserve = if has_size { Some(reserve(session, args, &report, origin)?) } else { None };
    let mut spec = new_snapshot(session, args, origin, name.clone(), reserve, chunk_blocks);
    if let Some(pool) = pool {
        // An independent thin volume in that pool, whatever its origin is. It is activated at once unless it is a
        // snapshot of a thin volume.
        spec.attributes.pool = pool;
    }
    refuse_full_pool(&report, &spec.attributes.pool)?;
    if reserve.is_some() && !session.lists.allow(subject(&report, &name, &spec.attributes)) {
        return Err(masked(&report, &name, "snapshot exception store"));
    }
    if reserve.is_none() && !origin.node.active {
        refuse_masked_pool(session, &report, &spec.attributes.pool)?;
    }
    session.change(&group, Request::Snapshot { specs: vec![spec], freeze: true })?;
    session.console.say(format!("Logical volume \"{name}\" created."));
    Ok(())
}

/// The pool of this name.
fn named_pool(report: &GroupReport, pool: &str) -> Result<String> {
    let group = &report.name;
    match report.volume(pool) {
        Some(found) if found.is_pool() => Ok(pool.to_owned()),
        Some(_) => Err(Failure::failed(format!("Logical volume {group}/{pool} is not a thin pool."))),
        None => Err(Failure::failed(format!("Pool {pool} not found in Volume group {group}."))),
    }
}

/// Bytes of a chunk of LVM's store, whose table has an entry for each chunk. Without an option it is LVM's default.
pub fn store_chunk(args: &Args) -> u64 {
    args.size(Opt::ChunkSize).map_or(MIN_CHUNK, |size| size.bytes)
}

/// The reserve of a snapshot in blocks: the requested size, but not more than the snapshot can use.
fn reserve(session: &mut Session<'_>, args: &Args, report: &GroupReport, origin: &VolumeReport) -> Result<u64> {
    let chunk = store_chunk(args);
    let most = sizes::most_useful_reserve(origin.blocks.saturating_mul(BLOCK_SIZE), chunk, extent_bytes(report));
    let of = OriginExtents { extents: extents_of(report, origin.blocks), most_useful: most };
    let source = Source { segment: origin.segment, columns: 1, on: &[] };
    let mut extents = size_in_extents(session, args, report, Some(of), source)?;
    if extents > most {
        let size = |extents: u64| sentence(extents.saturating_mul(extent_bytes(report)));
        let (asked, useful) = (size(extents), size(most));
        session.console.say(format!("Reducing COW size {asked} down to maximum usable size {useful}."));
        extents = most;
    }
    check_least(report, extents, chunk)?;
    source.check_room(session, report, &origin.name, extents)?;
    blocks(report, extents)
}

/// Refuses a snapshot that is too small for any change of its origin, as LVM does.
pub fn check_least(report: &GroupReport, extents: u64, chunk: u64) -> Result {
    const MIN_CHUNKS: u64 = 3;
    let (least, extent) = (MIN_CHUNKS * chunk, extent_bytes(report));
    if extents.saturating_mul(extent) >= least {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "Snapshot volume cannot be smaller than {MIN_CHUNKS} chunks ({} extents, {}).",
        least.div_ceil(extent),
        sentence(least)
    )))
}

/// A snapshot as the command line describes it.
pub fn new_snapshot(
    session: &mut Session<'_>,
    args: &Args,
    origin: &VolumeReport,
    name: String,
    reserve_blocks: Option<u64>,
    chunk_blocks: u32,
) -> SnapshotSpec {
    let is_thin = role(origin) == Role::Thin && reserve_blocks.is_none();
    let mut attributes = attributes(session, args, is_thin);
    if is_thin {
        attributes.pool = origin.attributes.pool.clone();
    }
    // The skip flag of a snapshot that is activated with its origin has an effect from the next activation on, as in
    // LVM.
    let activate = if is_thin { becomes_active(args, &attributes) } else { args.activation() != Some(Activation::No) };
    SnapshotSpec {
        origin: origin.name.clone(),
        name,
        uuid: session.backend.fresh_uuid(),
        reserve_blocks,
        read_only: args.read_only() == Some(true),
        chunk_blocks,
        activate,
        attributes,
    }
}
