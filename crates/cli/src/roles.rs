//! LVM's kinds of volumes: pools, members, snapshots with and without a reserve. The engine has fewer kinds. This
//! module maps them to LVM's kinds.

use crate::failure::{Failure, Result};
use rowen_control::protocol::{GroupReport, Legs, VolumeKind, VolumeReport};
use rowen_engine::format::intents;
use rowen_engine::units::BLOCK_SIZE;

/// Copies of the data of a mirrored volume.
pub const COPIES: u64 = 2;

/// The unit in which copies are compared, in bytes: reports show it.
pub const REGION: u64 = intents::REGION_BYTES;

/// What LVM shows while extents move: a hidden volume that is where they were and where they go.
pub const MOVE: &str = "pvmove0";

/// Whether it is what is shown of a move. No volume has such a name: it is reserved.
pub fn is_move(volume: &VolumeReport) -> bool {
    volume.name == MOVE
}

/// LVM's kind of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A limit with a name for thin volumes.
    Pool,
    /// In a pool, or independent without reserved space.
    Thin,
    /// A snapshot that is activated and removed with its origin: it has a reserve, or its origin is no thin volume.
    Snapshot,
    Plain,
}

/// The volume's role.
pub fn role(volume: &VolumeReport) -> Role {
    if volume.is_pool() {
        return Role::Pool;
    }
    let has_pool = !volume.attributes.pool.is_empty();
    match (&volume.origin, volume.reserve_blocks) {
        (Some(_), Some(_)) => Role::Snapshot,
        _ if has_pool => Role::Thin,
        (Some(_), None) => Role::Snapshot,
        (None, _) if volume.kind == VolumeKind::Thin => Role::Thin,
        (None, _) => Role::Plain,
    }
}

/// The snapshots that depend on the volume: its snapshots with a size (LVM's copy-on-write snapshots), and their
/// snapshots. The deepest come first, which is the order of removal.
pub fn sized_snapshots(report: &GroupReport, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for snapshot in report.snapshots_of(name).filter(|volume| volume.reserve_blocks.is_some()) {
        found.extend(sized_snapshots(report, &snapshot.name));
        found.push(snapshot.name.clone());
    }
    found
}

/// The snapshots that are removed with the volume: those with a size, and one that waits for its merge into it.
pub fn dependent_snapshots(report: &GroupReport, name: &str) -> Vec<String> {
    let waiting = report.snapshots_of(name).find(|snapshot| snapshot.is_waiting_to_merge());
    let mut found = sized_snapshots(report, name);
    if let Some(waiting) = waiting.filter(|waiting| !found.contains(&waiting.name)) {
        found.extend(sized_snapshots(report, &waiting.name));
        found.push(waiting.name.clone());
    }
    found
}

/// Refuses to act on a snapshot that waits for its merge.
pub fn refuse_waiting(report: &GroupReport, volume: &VolumeReport) -> Result {
    match volume.is_waiting_to_merge() {
        true => Err(Failure::failed(format!("Operation not permitted on hidden LV {}/{}.", report.name, volume.name))),
        false => Ok(()),
    }
}

/// A thin volume in no pool. LVM implements it as a snapshot of a device of zeros, and shows it so.
pub fn is_sparse(volume: &VolumeReport) -> bool {
    role(volume) == Role::Thin && volume.attributes.pool.is_empty()
}

/// What LVM shows as RAID: a mirrored volume that is no snapshot.
pub fn is_mirror(volume: &VolumeReport) -> bool {
    volume.is_mirrored() && role(volume) == Role::Plain
}

/// A pool whose volumes use its whole size.
pub fn is_full_pool(volume: &VolumeReport) -> bool {
    volume.is_pool() && volume.referenced_blocks >= volume.blocks
}

/// The health of a volume in LVM's words. Empty if there is no problem.
pub fn health(report: &GroupReport, volume: &VolumeReport) -> &'static str {
    match role(volume) {
        // No further I/O is permitted: LVM's word for thin volumes.
        Role::Pool | Role::Thin if report.stopped => "failed",
        _ if report.stopped => "unknown",
        _ if volume.is_partial || volume.legs == Legs::Missing => "partial",
        _ if volume.legs == Legs::Single || (is_mirror(volume) && report.mirrors.stuck_bytes > 0) => "refresh needed",
        _ if volume.scrub.is_some_and(|scrub| scrub.has_differences()) => "mismatches exist",
        _ if is_full_pool(volume) => "out_of_data",
        _ => "",
    }
}

/// Refuses to put another volume into a full pool.
pub fn refuse_full_pool(report: &GroupReport, pool: &str) -> Result {
    if !report.volume(pool).is_some_and(is_full_pool) {
        return Ok(());
    }
    let full = format!("{}/{pool}", report.name);
    Err(Failure::failed(format!(
        "WARNING: Thin pool {full} is out of data space.\n\
         Cannot create new thin volume, free space in thin pool {full} reached threshold."
    )))
}

/// The volumes of a pool.
pub fn members<'a>(report: &'a GroupReport, pool: &'a str) -> impl Iterator<Item = &'a VolumeReport> {
    report.members_of(pool)
}

/// Whether any snapshot that LVM would show as such has the volume as its origin.
pub fn is_origin(report: &GroupReport, name: &str) -> bool {
    report.snapshots_of(name).any(|volume| role(volume) == Role::Snapshot)
}

/// Bytes in an extent of the group.
pub fn extent_bytes(report: &GroupReport) -> u64 {
    report.extent_blocks.max(1) * BLOCK_SIZE
}

/// The number of extents that hold this number of blocks.
pub fn extents_of(report: &GroupReport, blocks: u64) -> u64 {
    blocks.div_ceil(report.extent_blocks.max(1))
}

/// The size of the volume in reports, in blocks. For a snapshot with a reserve it is the reserve.
pub fn shown_blocks(volume: &VolumeReport) -> u64 {
    match (role(volume), volume.reserve_blocks) {
        (Role::Snapshot, Some(reserve)) => reserve,
        _ => volume.blocks,
    }
}
