//! Fields for the state of a volume's device and its usage. As in LVM, most of them are blank for a volume without a
//! device.

use super::volume::{Lv, attr, is_active, lv, moving};
use crate::report::field::fields;
use crate::report::value::Value;
use crate::roles::{Role, health, is_mirror, is_move, role, shown_blocks};
use rowen_control::protocol::VolumeState;

fields! { DEVICE: VolumeDevice, lv;
    "lv_kernel_major", "KMaj", Number 4, "Major number of its block device, or -1.",
        |lv| device_number(lv, lv.volume.node.major);
    "lv_kernel_minor", "KMin", Number 4, "Minor number of its block device, or -1.",
        |lv| device_number(lv, lv.volume.node.minor);
    "lv_kernel_read_ahead", "KRahead", Size 7, "Blank: the kernel decides.", |_| Value::None;
    "lv_permissions", "LPerms", Text 8, "Whether its block device may be written.",
        |lv| Value::text(match (is_active(lv.volume), lv.volume.read_only) {
            (_, true) => "read-only",
            (false, false) => "unknown",
            (true, false) if lv.volume.node.read_only => "read-only-override",
            (true, false) => "writeable",
        });
    "lv_suspended", "Suspended", Flag 10, "Set while its input and output are held.",
        |lv: &Lv<'_>| if_active(lv, false, "suspended");
    "lv_live_table", "LiveTable", Flag 20, "Set if it has a block device.",
        |lv: &Lv<'_>| if_active(lv, true, "live table present");
    "lv_inactive_table", "InactiveTable", Flag 20, "Blank: changes of a device take effect at once.",
        |lv: &Lv<'_>| if_active(lv, false, "inactive table present");
    "lv_device_open", "DevOpen", Flag 10, "Set if its block device is in use.",
        |lv: &Lv<'_>| if_active(lv, lv.volume.node.open || is_used_pool(lv), "open");
}

fields! { STATUS: VolumeStatus, lv;
    "data_percent", "Data%", Percent 6, "How full a snapshot, a thin volume or a pool is, while it is active.",
        data_percent;
    "snap_percent", "Snap%", Percent 6, "As data_percent.", data_percent;
    "metadata_percent", "Meta%", Percent 6, "Of a thin pool: the share of the group that metadata takes.",
        pool_metadata;
    "copy_percent", "Cpy%Sync", Percent 8, "Of an active mirrored volume: how much of the group's mirrored space has two equal copies. Of a move (lvs -a): how much of it is done.", copied;
    "sync_percent", "Cpy%Sync", Percent 8, "As copy_percent.", copied;
    "cache_total_blocks", "CacheTotalBlocks", Number 16, "Blank: there are no caches.", |_| Value::None;
    "cache_used_blocks", "CacheUsedBlocks", Number 16, "Blank: there are no caches.", |_| Value::None;
    "cache_dirty_blocks", "CacheDirtyBlocks", Number 16, "Blank: there are no caches.", |_| Value::None;
    "cache_read_hits", "CacheReadHits", Number 16, "Blank: there are no caches.", |_| Value::None;
    "cache_read_misses", "CacheReadMisses", Number 16, "Blank: there are no caches.", |_| Value::None;
    "cache_write_hits", "CacheWriteHits", Number 16, "Blank: there are no caches.", |_| Value::None;
    "cache_write_misses", "CacheWriteMisses", Number 16, "Blank: there are no caches.", |_| Value::None;
    "kernel_cache_settings", "KCacheSettings", List 18, "Blank: there are no caches.", |_| Value::None;
    "kernel_cache_policy", "KCachePolicy", Text 18, "Blank: there are no caches.", |_| Value::None;
    "kernel_metadata_format", "KMFmt", Number 5, "Blank: there are no caches.", |_| Value::None;
    "lv_health_status", "Health", Text 15, "Partial if blocks of it are lost, or a copy of them is on a missing physical volume; refresh needed if a mirrored volume lacks a copy for good; of a full thin pool out_of_data; in a group that stopped failed or unknown.",
        |lv: &Lv<'_>| Value::text(health(lv.group.report, lv.volume));
    "kernel_discards", "KDiscards", Text 10, "Blank: discards are handled without the kernel.", |_| Value::None;
    "lv_check_needed", "CheckNeeded", Flag 15, "Of a thin pool: never set, opening checks all it needs.",
        |lv: &Lv<'_>| match role(lv.volume) {
            Role::Pool => Value::flag(false, "check needed"),
            _ => Value::Flag(None, "check needed"),
        };
    "lv_merge_failed", "MergeFailed", Flag 15, "Of a snapshot: never set, a merge is done whole or not at all.",
        |lv: &Lv<'_>| when_snapshot(lv, false, "merge failed");
    "lv_snapshot_invalid", "SnapInvalid", Flag 15, "Set if a snapshot outgrew the space set aside for it.",
        |lv: &Lv<'_>| when_snapshot(lv, lv.volume.state == VolumeState::Invalid, "snapshot invalid");
    "vdo_operating_mode", "VDOOperatingMode", Text 16, "Blank: there is no VDO.", |_| Value::None;
    "vdo_compression_state", "VDOCompressionState", Text 19, "Blank: there is no VDO.", |_| Value::None;
    "vdo_index_state", "VDOIndexState", Text 13, "Blank: there is no VDO.", |_| Value::None;
    "vdo_used_size", "VDOUsedSize", Number 11, "Blank: there is no VDO.", |_| Value::None;
    "vdo_saving_percent", "VDOSaving%", Number 10, "Blank: there is no VDO.", |_| Value::None;
    "writecache_total_blocks", "WCacheTotalBlocks", Number 17, "Blank: there are no caches.", |_| Value::None;
    "writecache_free_blocks", "WCacheFreeBlocks", Number 16, "Blank: there are no caches.", |_| Value::None;
    "writecache_writeback_blocks", "WCacheWritebackBlocks", Number 21, "Blank: there are no caches.", |_| Value::None;
    "writecache_error", "WCacheErrors", Number 12, "Blank: there are no caches.", |_| Value::None;
}

fields! { COMBINED: VolumeCombined, lv;
    "lv_attr", "Attr", Text 4, "What it is, in ten letters: see lvs(8).", |lv| Value::text(attr(lv));
}

/// How much of a move or of a comparison of copies is done, or how much of the mirrored extents is in sync.
fn copied(lv: &Lv<'_>) -> Value<'static> {
    let mirrors = &lv.group.report.mirrors;
    if is_mirror(lv.volume) && is_active(lv.volume) {
        if let Some(scrub) = lv.volume.scrub.filter(|scrub| scrub.is_running) {
            return Value::Percent(scrub.done_blocks, scrub.total_blocks.max(1));
        }
        let all = mirrors.bytes.max(1);
        return Value::Percent(all.saturating_sub(mirrors.unsynced_bytes + mirrors.outdated_bytes), all);
    }
    moving(lv).map_or(Value::None, |moving| {
        let (done, all) = moving.share();
        Value::Percent(done, all)
    })
}

fn device_number(lv: &Lv<'_>, number: u32) -> Value<'static> {
    Value::Number(if lv.volume.node.active && !is_move(lv.volume) { i64::from(number) } else { -1 })
}

fn if_active(lv: &Lv<'_>, is_set: bool, word: &'static str) -> Value<'static> {
    Value::Flag(is_active(lv.volume).then_some(is_set), word)
}

fn is_used_pool(lv: &Lv<'_>) -> bool {
    role(lv.volume) == Role::Pool && lv.group.members(&lv.volume.name).next().is_some()
}

fn when_snapshot(lv: &Lv<'_>, is_set: bool, word: &'static str) -> Value<'static> {
    let is_known = role(lv.volume) == Role::Snapshot && is_active(lv.volume);
    Value::Flag(is_known.then_some(is_set), word)
}

/// The used percentage of a snapshot's reserve, or of a pool's size.
pub fn data_percent(lv: &Lv<'_>) -> Value<'static> {
    let volume = lv.volume;
    match role(volume) {
        _ if !is_active(volume) => Value::None,
        Role::Plain => Value::None,
        Role::Snapshot if volume.state == VolumeState::Invalid => Value::Percent(1, 1),
        Role::Snapshot => Value::Percent(volume.snapshot_used_blocks, shown_blocks(volume)),
        Role::Thin => Value::Percent(volume.referenced_blocks, volume.blocks),
        Role::Pool => Value::Percent(volume.referenced_blocks.min(volume.blocks), volume.blocks),
    }
}

fn pool_metadata(lv: &Lv<'_>) -> Value<'static> {
    match role(lv.volume) {
        Role::Pool => Value::Percent(lv.group.report.metadata_blocks, lv.group.report.blocks),
        _ => Value::None,
    }
}
