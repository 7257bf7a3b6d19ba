//! Segments of volumes and of physical volumes. In Rowen each redirected write can move a block, so a segment is
//! coarser than in LVM: the part of a volume on one physical volume, named by the extent of its first block there. For
//! a volume without redirected writes it is exact.

use super::pv::path;
use super::volume::{Lv, lv};
use crate::report::field::{blocks, fields};
use crate::report::index::Share;
use crate::report::row::{Row, Segment};
use crate::report::value::Value;
use crate::roles::{REGION, Role, extent_bytes, extents_of, is_mirror, is_move, is_sparse, role, shown_blocks};
use rowen_control::protocol::{GroupReport, Stripes, VolumeReport};

fields! { FIELDS: Segment, of_row;
    "segtype", "Type", Text 4, "Kind of segment.", |row| Value::text(kind(row));
    "stripes", "#Str", Number 4, "Devices that it is on: 1, 2 for a mirrored volume, its stripes for a striped one, 0 for a thin one.", stripes;
    "data_stripes", "#DStr", Number 5, "As stripes.", stripes;
    "reshape_len", "RSize", Size 5, "Blank: there is no RAID.", |_| Value::None;
    "reshape_len_le", "RSize", Number 5, "Blank: there is no RAID.", |_| Value::None;
    "data_copies", "#Cpy", Number 4, "Copies of the data: 1, or 2 for a mirrored volume.",
        |row| volume_of(row).map_or(Value::None, |volume| Value::Number(copies(volume)));
    "data_offset", "DOff", Number 4, "Blank: there is no RAID.", |_| Value::None;
    "new_data_offset", "NOff", Number 4, "Blank: there is no RAID.", |_| Value::None;
    "parity_chunks", "#Par", Number 4, "Blank: there is no RAID.", |_| Value::None;
    "stripe_size", "Stripe", Size 6, "Of a striped volume: what follows each other on one device; else 0.",
        |row| volume_of(row).map_or(Value::None, |_| Value::Size(striped(row).map_or(0, Stripes::bytes)));
    "region_size", "Region", Size 6, "Of a mirrored volume: the unit in which copies are compared; else 0.",
        |row| volume_of(row).map_or(Value::None, |volume| Value::Size(if is_mirror(volume) { REGION } else { 0 }));
    "chunk_size", "Chunk", Size 5, "Of a snapshot or pool: space that a first write to a shared chunk reserves.",
        chunk;
    "thin_count", "#Thins", Number 6, "Of a thin pool: how many volumes it has.", thin_count;
    "discards", "Discards", Text 8, "Of thin pools and volumes: discards free space.",
        |row| Value::text(if pool_or_thin(row) { "passdown" } else { "" });
    "cache_metadata_format", "CMFmt", Number 5, "Blank: there are no caches.", |_| Value::None;
    "cache_mode", "CacheMode", Text 9, "Blank: there are no caches.", |_| Value::None;
    "zero", "Zero", Flag 4, "Of thin pools and volumes: set, new space reads as zeros.",
        |row| Value::Flag(pool_or_thin(row).then_some(true), "zero");
    "transaction_id", "TransId", Number 7, "Blank: pools have no transactions.", |_| Value::None;
    "thin_id", "ThId", Number 4, "Of a thin volume: its number.", thin_id;
    "seg_start", "Start", Size 5, "Where in the volume it begins.", start_bytes;
    "seg_start_pe", "Start", Number 5, "Where in the volume it begins, in extents.", start;
    "seg_size", "SSize", Size 5, "Its size.", size_bytes;
    "seg_size_pe", "SSize", Number 5, "Its size in extents.", size;
    "seg_tags", "Seg Tags", List 8, "Blank: segments have no tags.", |_| Value::List(Vec::new());
    "seg_pe_ranges", "PE Ranges", List 9, "Physical volume and extents, as commands take them.", ranges;
    "seg_le_ranges", "LE Ranges", List 9, "As seg_pe_ranges.", ranges;
    "seg_metadata_le_ranges", "Metadata LE Ranges", List 18, "Blank: metadata has no volume of its own.",
        |_| Value::None;
    "devices", "Devices", List 7, "Physical volume, and the extent with its first block there; of a mirrored volume both.",
        devices;
    "metadata_devices", "Metadata Devs", List 13, "Blank: metadata has no volume of its own.", |_| Value::None;
    "seg_monitor", "Monitor", Text 7, "Blank: the group's server watches by itself.", |_| Value::None;
    "cache_policy", "CachePolicy", Text 11, "Blank: there are no caches.", |_| Value::None;
    "cache_settings", "CacheSettings", List 13, "Blank: there are no caches.", |_| Value::None;
    "vdo_compression", "VDOCompression", Flag 14, "Blank: there is no VDO.", |_| Value::None;
    "vdo_deduplication", "VDODeduplication", Flag 16, "Blank: there is no VDO.", |_| Value::None;
    "vdo_use_metadata_hints", "VDOMetadataHints", Flag 16, "Blank: there is no VDO.", |_| Value::None;
    "vdo_minimum_io_size", "VDOMinimumIOSize", Number 16, "Blank: there is no VDO.", |_| Value::None;
    "vdo_block_map_cache_size", "VDOBlockMapCacheSize", Size 20, "Blank: there is no VDO.", |_| Value::None;
    "vdo_block_map_era_length", "VDOBlockMapEraLength", Number 20, "Blank: there is no VDO.", |_| Value::None;
    "vdo_use_sparse_index", "VDOSparseIndex", Flag 14, "Blank: there is no VDO.", |_| Value::None;
    "vdo_index_memory_size", "VDOIndexMemorySize", Size 18, "Blank: there is no VDO.", |_| Value::None;
    "vdo_slab_size", "VDOSlabSize", Size 11, "Blank: there is no VDO.", |_| Value::None;
    "vdo_ack_threads", "VDOAckThreads", Number 13, "Blank: there is no VDO.", |_| Value::None;
    "vdo_bio_threads", "VDOBioThreads", Number 13, "Blank: there is no VDO.", |_| Value::None;
    "vdo_bio_rotation", "VDOBioRotation", Number 14, "Blank: there is no VDO.", |_| Value::None;
    "vdo_cpu_threads", "VDOCPUThreads", Number 13, "Blank: there is no VDO.", |_| Value::None;
    "vdo_hash_zone_threads", "VDOHashZoneThreads", Number 18, "Blank: there is no VDO.", |_| Value::None;
    "vdo_logical_threads", "VDOLogicalThreads", Number 17, "Blank: there is no VDO.", |_| Value::None;
    "vdo_physical_threads", "VDOPhysicalThreads", Number 18, "Blank: there is no VDO.", |_| Value::None;
    "vdo_max_discard", "VDOMaxDiscard", Number 13, "Blank: there is no VDO.", |_| Value::None;
    "vdo_write_policy", "VDOWritePolicy", Text 14, "Blank: there is no VDO.", |_| Value::None;
    "vdo_header_size", "VDOHeaderSize", Size 13, "Blank: there is no VDO.", |_| Value::None;
}

fields! { PIECES: Piece, of_row;
    "pvseg_start", "Start", Number 5, "The run's first extent on the physical volume.",
        |row| row.piece.map_or(Value::Number(0), |piece| Value::number(piece.first_extent));
    "pvseg_size", "SSize", Number 5, "The run's extents.",
        |row| row.piece.map_or(Value::Number(0), |piece| Value::number(piece.extents));
}

/// The segments of a volume, at least one. Together they are the whole volume.
pub fn segments(lv: &Lv<'_>) -> Vec<Segment> {
    let mut left = extents_of(lv.group.report, shown_blocks(lv.volume));
    // In LVM a thin volume has no place, and a pool is in hidden volumes.
    let shares = match is_pool_or_thin(lv.volume) {
        false => lv.group.shares(&lv.volume.name),
        true => &[],
    };
    let columns = layout(lv.group.report, lv.volume).map(|layout| usize::from(layout.columns));
    let mut start = 0;
    let mut segments = Vec::with_capacity(shares.len().max(1));
    for (number, places) in shares.chunks(columns.unwrap_or(1)).enumerate() {
        let at = number * columns.unwrap_or(1);
        let is_last = at + places.len() == shares.len();
        let own = places.iter().map(|share| share.extents).sum::<u64>();
        let extents = if is_last { left } else { own.min(left) };
        let columns = columns.map(|_| (at, places.len()));
        segments.push(Segment { start, extents, share: places.first().copied(), columns });
        start += extents;
        left -= extents;
    }
    if segments.is_empty() {
        segments.push(Segment { start: 0, extents: left, share: None, columns: None });
    }
    segments
}

fn of_row<'r>(row: &Row<'r>, value: fn(&Row<'r>) -> Value<'r>) -> Value<'r> {
    value(row)
}

fn volume_of<'a>(row: &Row<'a>) -> Option<&'a VolumeReport> {
    row.volume
}

/// LVM's word for the kind of segment. Unused extents are `free`.
pub fn kind(row: &Row<'_>) -> &'static str {
    match row.volume {
        Some(volume) if volume.is_pool() => "thin-pool",
        Some(volume) if is_thin(volume) => "thin",
        Some(volume) if is_move(volume) => "mirror",
        Some(volume) if is_mirror(volume) => "raid1",
        Some(_) if striped(row).is_some() => "striped",
        Some(_) => "linear",
        None if row.is_received => "receiving",
        None => "free",
    }
}

/// A sparse volume is linear, as in LVM: libvirt ignores volumes that are on no device.
fn is_thin(volume: &VolumeReport) -> bool {
    role(volume) == Role::Thin && !is_sparse(volume)
}

fn is_pool_or_thin(volume: &VolumeReport) -> bool {
    volume.is_pool() || is_thin(volume)
}

fn pool_or_thin(row: &Row<'_>) -> bool {
    row.volume.is_some_and(is_pool_or_thin)
}

fn stripes(row: &Row<'_>) -> Value<'static> {
    let count = |volume| match striped(row) {
        _ if is_thin(volume) => 0,
        Some(layout) => i64::from(layout.columns),
        None => copies(volume),
    };
    row.volume.map_or(Value::None, |volume| Value::Number(count(volume)))
}

/// The stripes of a volume that is shown as striped. Its snapshots are shown as others are.
pub fn layout(report: &GroupReport, volume: &VolumeReport) -> Option<Stripes> {
    let is_shown = volume.is_striped() && (role(volume) == Role::Plain || is_sparse(volume));
    report.stripes.filter(|_| is_shown).map(|own| own.layout)
}

fn striped(row: &Row<'_>) -> Option<Stripes> {
    layout(row.group?.report, row.volume?)
}

/// A snapshot of a mirrored volume is shown as other snapshots are, and its blocks have as many copies.
fn copies(volume: &VolumeReport) -> i64 {
    if volume.is_mirrored() { 2 } else { 1 }
}

fn chunk(row: &Row<'_>) -> Value<'static> {
    row.volume.map_or(Value::None, |volume| match role(volume) {
        Role::Pool | Role::Snapshot => blocks(u64::from(volume.chunk_blocks)),
        Role::Thin | Role::Plain => Value::Size(0),
    })
}

fn thin_count<'r>(row: &Row<'r>) -> Value<'r> {
    lv(row, |lv| match role(lv.volume) {
        Role::Pool => Value::count(lv.group.members(&lv.volume.name).count()),
        _ => Value::None,
    })
}

fn thin_id<'r>(row: &Row<'r>) -> Value<'r> {
    lv(row, |lv| match is_thin(lv.volume) {
        true => Value::number(lv.volume.id),
        false => Value::None,
    })
}

fn segment(row: &Row<'_>) -> Segment {
    row.segment.unwrap_or_else(|| match (row.group, row.volume) {
        (Some(group), Some(volume)) => {
            Segment { start: 0, extents: extents_of(group.report, shown_blocks(volume)), share: None, columns: None }
        }
        _ => Segment { start: 0, extents: row.piece.map_or(0, |piece| piece.extents), share: None, columns: None },
    })
}

fn bytes(row: &Row<'_>, extents: u64) -> Value<'static> {
    Value::Size(row.group.map_or(0, |group| extents.saturating_mul(extent_bytes(group.report))))
}

fn start(row: &Row<'_>) -> Value<'static> {
    Value::number(segment(row).start)
}

fn start_bytes(row: &Row<'_>) -> Value<'static> {
    bytes(row, segment(row).start)
}

fn size(row: &Row<'_>) -> Value<'static> {
    Value::number(segment(row).extents)
}

fn size_bytes(row: &Row<'_>) -> Value<'static> {
    bytes(row, segment(row).extents)
}

/// The path of the physical volume that a segment is on.
pub fn device_of<'a>(row: &Row<'a>, share: &Share) -> &'a str {
    let member = row.group.and_then(|group| group.report.pvs.get(share.pv));
    member.map_or_else(|| path(row), |pv| pv.path.as_str())
}

/// The places of a segment: its copies, or its stripes.
fn places(row: &Row<'_>) -> Vec<Share> {
    let segment = segment(row);
    match (segment.columns, row.group, row.volume) {
        (Some((first, count)), Some(group), Some(volume)) => {
            group.shares(&volume.name).iter().skip(first).take(count).copied().collect()
        }
        _ => segment.share.into_iter().flat_map(Share::copies).collect(),
    }
}

fn devices(row: &Row<'_>) -> Value<'static> {
    Value::List(
        places(row).into_iter().map(|share| format!("{}({})", device_of(row, &share), share.first_extent)).collect(),
    )
}

fn ranges(row: &Row<'_>) -> Value<'static> {
    let segment = segment(row);
    let columns = segment.columns.map_or(1, |(_, count)| count as u64);
    let ranges = places(row).into_iter().map(|share| {
        let last = share.first_extent + (segment.extents / columns).saturating_sub(1);
        format!("{}:{}-{last}", device_of(row, &share), share.first_extent)
    });
    Value::List(ranges.collect())
}
