//! Fields of volumes from the group's metadata.

use crate::report::field::{blocks, fields};
use crate::report::index::Indexed;
use crate::report::row::Row;
use crate::report::value::Value;
use crate::roles::{Role, is_mirror, is_move, is_sparse, role, shown_blocks};
use rowen_control::paths::{mapper_path, node_path};
use rowen_control::protocol::{FullPolicy, MoveReport, VolumeReport, VolumeState};
use rowen_control::uuids::lvm_text;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A volume and its group.
pub struct Lv<'a> {
    pub group: &'a Indexed<'a>,
    pub volume: &'a VolumeReport,
}

/// The value of the row's volume, if it has one.
pub fn lv<'r>(row: &Row<'r>, value: fn(&Lv<'r>) -> Value<'r>) -> Value<'r> {
    match (row.group, row.volume) {
        (Some(group), Some(volume)) => value(&Lv { group, volume }),
        _ => Value::None,
    }
}

fields! { FIELDS: Volume, lv;
    "lv_uuid", "LV UUID", Text 38, "Identifier of the volume.", |lv| Value::text(lvm_text(lv.volume.uuid));
    "lv_name", "LV", Text 4, "Name of the volume; in brackets while it waits to be merged.",
        |lv| Value::text(shown_name(lv.volume));
    "lv_full_name", "LV", Text 4, "Name with the group's before it: VG/LV.",
        |lv| Value::text(format!("{}/{}", lv.group.report.name, lv.volume.name));
    "lv_path", "Path", Text 4, "Path of the block device; blank for pools, and for snapshots that wait to be merged.",
        |lv| match role(lv.volume) {
            Role::Pool => Value::text(""),
            _ if is_move(lv.volume) => Value::text(""),
            _ if lv.volume.is_waiting_to_merge() => Value::text(""),
            _ => Value::text(node_path(&lv.group.report.name, &lv.volume.name)),
        };
    "lv_dm_path", "DMPath", Text 6, "Path of the block device in /dev/mapper.",
        |lv| Value::text(mapper_path(&lv.group.report.name, &lv.volume.name));
    "lv_parent", "Parent", Text 6, "Blank: no volume is a component of another.", |_| Value::None;
    "lv_layout", "Layout", List 10, "How its space is arranged.", layout;
    "lv_role", "Role", List 10, "What it is to other volumes.", roles;
    "lv_initial_image_sync", "InitImgSync", Flag 10, "Set for a mirrored volume: its copies were equal when it was made.",
        |lv| Value::flag(is_mirror(lv.volume), "initial image sync");
    "lv_image_synced", "ImgSynced", Flag 10, "Blank: copies have no volumes of their own.", |_| Value::flag(false, "");
    "lv_merging", "Merging", Flag 10, "Set while a snapshot waits to be merged into its origin, and for an origin that is no thin volume.",
        |lv| {
            let is_origin = role(lv.volume) != Role::Thin && is_merged_into(lv);
            Value::flag(is_origin || lv.volume.is_waiting_to_merge(), "merging")
        };
    "lv_converting", "Converting", Flag 10, "Blank: nothing is ever between two kinds.", |_| Value::flag(false, "");
    "lv_allocation_policy", "AllocPol", Text 10, "Where space would be searched; always the group's, but for a move.",
        |lv| Value::text(if is_move(lv.volume) { "contiguous" } else { "inherit" });
    "lv_allocation_locked", "AllocLock", Flag 10, "Set for a move: allocation is never locked otherwise.",
        |lv| Value::flag(is_move(lv.volume), "allocation locked");
    "lv_fixed_minor", "FixMin", Flag 10, "Blank: device numbers are never fixed.", |_| Value::flag(false, "");
    "lv_skip_activation", "SkipAct", Flag 15, "Set if activation skips it, unless an option says otherwise.",
        |lv| Value::flag(lv.volume.attributes.skip_activation, "skip activation");
    "lv_autoactivation", "AutoAct", Flag 7, "Set if it is activated with its group at boot.",
        |lv| Value::flag(lv.volume.attributes.autoactivate, "enabled");
    "lv_when_full", "WhenFull", Text 15, "Of a thin pool: what a write does when there is no space.",
        |lv| if role(lv.volume) == Role::Pool { Value::text(when_full(lv.volume)) } else { Value::text("") };
    "lv_active", "Active", Text 6, "Whether it has a block device.",
        |lv| Value::text(if is_active(lv.volume) { "active" } else { "" });
    "lv_active_locally", "ActLocal", Flag 10, "Set if it has a block device on this machine.",
        |lv| Value::flag(is_active(lv.volume), "active locally");
    "lv_active_remotely", "ActRemote", Flag 10, "Blank: a group is open on one machine only.",
        |_| Value::flag(false, "active remotely");
    "lv_active_exclusively", "ActExcl", Flag 10, "Set if it has a block device: only one machine can have it.",
        |lv| Value::flag(is_active(lv.volume), "active exclusively");
    "lv_major", "Maj", Number 3, "Always -1: device numbers are never fixed.", |_| Value::Number(-1);
    "lv_minor", "Min", Number 3, "Always -1: device numbers are never fixed.", |_| Value::Number(-1);
    "lv_read_ahead", "Rahead", Size 6, "Read-ahead of its device: the kernel decides.", |_| Value::text("auto");
    "lv_size", "LSize", Size 5, "Size; of a snapshot with space set aside, that space.",
        |lv| blocks(shown_blocks(lv.volume));
    "lv_metadata_size", "MSize", Size 5, "Of a thin pool: what the group's metadata takes; it grows by itself.",
        |lv| if role(lv.volume) == Role::Pool { blocks(lv.group.report.metadata_blocks) } else { Value::None };
    "seg_count", "#Seg", Number 4, "Number of segments: one for each physical volume that it is on.",
        |lv| Value::count(lv.group.shares(&lv.volume.name).len().max(1));
    "origin", "Origin", Text 6, "The volume that it is a snapshot of.", origin;
    "origin_uuid", "Origin UUID", Text 38, "Identifier of the volume that it is a snapshot of.",
        |lv| uuid_of(lv, lv.volume.origin.as_deref());
    "origin_size", "OSize", Size 5, "Of a snapshot that depends on its origin, and of such an origin: the contents' size.",
        |lv| match role(lv.volume) == Role::Snapshot || lv.group.is_origin(&lv.volume.name) {
            true => blocks(lv.volume.blocks),
            false => Value::None,
        };
    "lv_ancestors", "Ancestors", List 9, "Its origin, the origin's origin and so on.", ancestors;
    "lv_full_ancestors", "FAncestors", List 10, "As lv_ancestors: no history is kept.", ancestors;
    "lv_descendants", "Descendants", List 11, "Its snapshots, their snapshots and so on.", descendants;
    "lv_full_descendants", "FDescendants", List 12, "As lv_descendants: no history is kept.", descendants;
    "raid_mismatch_count", "Mismatches", Number 10, "Of a mirrored volume: sectors of 512 bytes whose copies differed when they were compared last (lvchange --syncaction).", mismatches;
    "raid_sync_action", "SyncAction", Text 10, "Of an active mirrored volume: idle, recover while copies of the group are made equal, check or repair while its copies are compared.", sync_action;
    "raid_write_behind", "WBehind", Number 7, "Blank: a write is done when both copies have it.", |_| Value::None;
    "raid_min_recovery_rate", "MinSync", Number 7, "Blank: no rate is set.", |_| Value::None;
    "raid_max_recovery_rate", "MaxSync", Number 7, "Blank: no rate is set.", |_| Value::None;
    "raidintegritymode", "IntegMode", Text 9, "Blank: data has no checksums.", |_| Value::None;
    "raidintegrityblocksize", "IntegBlkSize", Number 12, "Always -1: data has no checksums.", |_| Value::Number(-1);
    "integritymismatches", "IntegMismatches", Number 15, "Blank: data has no checksums.", |_| Value::None;
    "move_pv", "Move", Text 4, "Of a move (lvs -a): the physical volume that extents move from.",
        |lv| moving(lv).map_or(Value::None, |moving| Value::text(moving.path.as_str()));
    "move_pv_uuid", "Move UUID", Text 38, "Of a move: the identifier of that physical volume.", |lv| {
        let source = moving(lv).and_then(|moving| lv.group.report.pvs.iter().find(|pv| pv.path == moving.path));
        source.map_or(Value::None, |pv| Value::text(lvm_text(pv.uuid)))
    };
    "convert_lv", "Convert", Text 7, "Blank: nothing is being converted.", |_| Value::None;
    "convert_lv_uuid", "Convert UUID", Text 38, "Blank: nothing is being converted.", |_| Value::None;
    "mirror_log", "Log", Text 3, "Blank: a mirror's log has no volume of its own.", |_| Value::None;
    "mirror_log_uuid", "Log UUID", Text 38, "Blank: a mirror's log has no volume of its own.", |_| Value::None;
    "data_lv", "Data", Text 4, "Blank: a pool's data has no volume of its own.", |_| Value::None;
    "data_lv_uuid", "Data UUID", Text 38, "Blank: a pool's data has no volume of its own.", |_| Value::None;
    "metadata_lv", "Meta", Text 4, "Blank: metadata has no volume of its own.", |_| Value::None;
    "metadata_lv_uuid", "Meta UUID", Text 38, "Blank: metadata has no volume of its own.", |_| Value::None;
    "pool_lv", "Pool", Text 4, "The thin pool that it is counted in.", |lv| Value::text(pool(lv).unwrap_or_default());
    "pool_lv_uuid", "Pool UUID", Text 38, "Identifier of the thin pool that it is counted in.",
        |lv| uuid_of(lv, pool(lv));
    "lv_tags", "LV Tags", List 7, "Its tags.", |lv| Value::list(&lv.volume.attributes.tags);
    "lv_profile", "LProfile", Text 8, "Blank: there are no profiles.", |_| Value::None;
    "lv_lockargs", "LLockArgs", Text 9, "Blank: there is no lock manager.", |_| Value::None;
    "lv_time", "CTime", Time 26, "When it was made.", |lv| Value::Time(lv.volume.attributes.created);
    "lv_time_removed", "RTime", Time 26, "Blank: no history is kept.", |_| Value::None;
    "lv_host", "Host", Text 10, "Blank: the host that made it is not kept.", |_| Value::None;
    "lv_modules", "Modules", List 7, "Blank: no kernel module of a volume manager is used.", |_| Value::None;
    "lv_historical", "Historical", Flag 10, "Blank: no history is kept.", |_| Value::flag(false, "");
    "writecache_block_size", "WCacheBlkSize", Number 13, "Always -1: there are no caches.", |_| Value::Number(-1);
}

/// The move that this is.
pub fn moving<'a>(lv: &Lv<'a>) -> Option<&'a MoveReport> {
    lv.group.report.moving.as_deref().filter(|_| is_move(lv.volume))
}

/// A move, and a snapshot that waits for its merge, cannot be used by name. LVM shows such a name in brackets.
fn shown_name(volume: &VolumeReport) -> Cow<'_, str> {
    if volume.is_waiting_to_merge() || is_move(volume) {
        format!("[{}]", volume.name).into()
    } else {
        volume.name.as_str().into()
    }
}

fn origin<'a>(lv: &Lv<'a>) -> Value<'a> {
    match lv.volume.origin.as_deref() {
        None => Value::text(""),
        Some(name) if lv.group.is_waiting_to_merge(name) => Value::text(format!("[{name}]")),
        Some(name) => Value::text(name),
    }
}

/// The volume is the origin of thin volumes of a pool, and is not in that pool itself.
fn is_external_origin(lv: &Lv<'_>) -> bool {
    let own = &lv.volume.attributes.pool;
    own.is_empty() && lv.group.snapshots(&lv.volume.name).any(|snapshot| role(snapshot) == Role::Thin)
}

fn is_merged_into(lv: &Lv<'_>) -> bool {
    lv.group.snapshots(&lv.volume.name).any(VolumeReport::is_waiting_to_merge)
}

/// A pool has no device. It counts as active, because its volumes can always be used.
pub fn is_active(volume: &VolumeReport) -> bool {
    volume.node.active || volume.is_pool()
}

fn pool<'a>(lv: &Lv<'a>) -> Option<&'a str> {
    let pool = lv.volume.attributes.pool.as_str();
    (!pool.is_empty() && role(lv.volume) != Role::Pool).then_some(pool)
}

fn uuid_of(lv: &Lv<'_>, name: Option<&str>) -> Value<'static> {
    let found = name.and_then(|name| lv.group.volume(name));
    found.map_or(Value::None, |volume| Value::text(lvm_text(volume.uuid)))
}

fn layout(lv: &Lv<'_>) -> Value<'static> {
    let words: &[&str] = match role(lv.volume) {
        _ if is_move(lv.volume) => &["mirror"],
        Role::Pool => &["thin", "pool"],
        Role::Thin => &["thin", "sparse"],
        Role::Plain if is_mirror(lv.volume) => &["raid", "raid1"],
        Role::Plain if lv.volume.is_striped() => &["striped"],
        Role::Snapshot | Role::Plain => &["linear"],
    };
    Value::List(words.iter().map(|word| (*word).to_owned()).collect())
}

/// Sectors of 512 bytes in a block.
const SECTORS: u64 = 8;

fn sync_action(lv: &Lv<'_>) -> Value<'static> {
    if !is_mirror(lv.volume) || !is_active(lv.volume) {
        return Value::text("");
    }
    Value::text(match lv.volume.scrub.filter(|scrub| scrub.is_running) {
        Some(scrub) if scrub.is_repair => "repair",
        Some(_) => "check",
        None if lv.group.report.mirrors.unsynced_bytes > 0 => "recover",
        None => "idle",
    })
}

fn mismatches(lv: &Lv<'_>) -> Value<'static> {
    if !is_mirror(lv.volume) {
        return Value::None;
    }
    let blocks = lv.volume.scrub.map_or(0, |scrub| scrub.different_blocks);
    Value::Number(i64::try_from(blocks.saturating_mul(SECTORS)).unwrap_or(i64::MAX))
}

/// Roles in LVM's order, with its words for one snapshot and for several.
fn roles(lv: &Lv<'_>) -> Value<'static> {
    if role(lv.volume) == Role::Pool {
        return Value::list(["private"]);
    }
    if is_move(lv.volume) {
        return Value::list(["private", "pvmove"]);
    }
    let (thick, thin): (Vec<_>, Vec<_>) =
        lv.group.snapshots(&lv.volume.name).partition(|snapshot| role(snapshot) == Role::Snapshot);
    let mut words = vec!["public"];
    if !thick.is_empty() || !thin.is_empty() {
        words.push("origin");
    }
    for (count, one, many) in
        [(thick.len(), "thickorigin", "multithickorigin"), (thin.len(), "thinorigin", "multithinorigin")]
    {
        words.extend((count > 0).then_some(one));
        words.extend((count > 1).then_some(many));
    }
    if is_external_origin(lv) {
        words.retain(|word| !word.ends_with("thinorigin"));
        words.push("extthinorigin");
    }
    match role(lv.volume) {
        Role::Snapshot => words.extend(["snapshot", "thicksnapshot"]),
        Role::Thin if lv.volume.origin.is_some() => words.extend(["snapshot", "thinsnapshot"]),
        _ => {}
    }
    Value::List(words.into_iter().map(str::to_owned).collect())
}

fn ancestors(lv: &Lv<'_>) -> Value<'static> {
    let mut names: Vec<String> = Vec::new();
    let mut next = lv.volume.origin.as_deref();
    while let Some(name) = next.filter(|name| !names.iter().any(|seen| seen == name)) {
        names.push(name.to_owned());
        next = lv.group.volume(name).and_then(|volume| volume.origin.as_deref());
    }
    Value::List(names)
}

fn descendants(lv: &Lv<'_>) -> Value<'static> {
    let mut names: Vec<String> = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::from([lv.volume.name.as_str()]);
    let mut open = vec![lv.volume.name.as_str()];
    while let Some(name) = open.pop() {
        for snapshot in lv.group.snapshots(name) {
            if seen.insert(&snapshot.name) {
                names.push(snapshot.name.clone());
                open.push(&snapshot.name);
            }
        }
    }
    Value::list(names)
}

/// The ten letters of `lv_attr`.
pub fn attr(lv: &Lv<'_>) -> String {
    let volume = lv.volume;
    if is_move(volume) {
        return "p-C-aom---".to_owned();
    }
    let role = role(volume);
    let (mut is_origin, mut has_thin, mut is_merged_into) = (false, false, false);
    for snapshot in lv.group.snapshots(&volume.name) {
        is_origin |= self::role(snapshot) == Role::Snapshot;
        has_thin |= self::role(snapshot) == Role::Thin;
        is_merged_into |= snapshot.is_waiting_to_merge();
    }
    let kind = match role {
        Role::Pool => 't',
        _ if volume.is_waiting_to_merge() => 'S',
        Role::Snapshot => 's',
        _ if is_sparse(volume) && !is_origin => 's',
        _ if is_merged_into => 'O',
        _ if is_origin || (has_thin && volume.attributes.pool.is_empty()) => 'o',
        Role::Thin => 'V',
        Role::Plain if is_mirror(volume) => 'r',
        Role::Plain => '-',
    };
    let permission = match (volume.read_only, volume.node.read_only) {
        (true, _) => 'r',
        (false, true) => 'R',
        (false, false) => 'w',
    };
    let state = match volume.state {
        VolumeState::Invalid => 'I',
        VolumeState::Ok if is_active(volume) => 'a',
        VolumeState::Ok => '-',
    };
    let is_open = volume.node.open || (role == Role::Pool && lv.group.members(&volume.name).next().is_some());
    let open = if is_open { 'o' } else { '-' };
    let is_thin = matches!(role, Role::Thin | Role::Pool) && !is_sparse(volume);
    let target = match role {
        _ if is_thin => 't',
        _ if is_mirror(volume) => 'r',
        Role::Snapshot => 's',
        _ if is_origin || is_sparse(volume) => 's',
        _ => '-',
    };
    let zero = if is_thin { 'z' } else { '-' };
    let health = match crate::roles::health(lv.group.report, volume) {
        "failed" => 'F',
        "unknown" => 'X',
        "out_of_data" => 'D',
        "partial" => 'p',
        "refresh needed" => 'r',
        "mismatches exist" => 'm',
        _ => '-',
    };
    let skip = if volume.attributes.skip_activation { 'k' } else { '-' };
    let mut letters = String::with_capacity(10);
    letters.extend([kind, permission, 'i', '-', state, open, target, zero, health, skip]);
    letters
}

/// What a write to the volume does when there is no space.
pub fn when_full(volume: &VolumeReport) -> &'static str {
    match volume.full {
        FullPolicy::DropSnapshot => "drop snapshot",
        FullPolicy::Hold => "queue",
        FullPolicy::Fail => "error",
    }
}
