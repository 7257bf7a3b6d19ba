//! Every field of every report, once: its name, heading, alignment, meaning and where its value comes from. A field that
//! LVM has and Rowen has nothing to say for is empty, where clients ask for it by default.

use super::{Kind, Row, time};
use crate::commands::volumes::{Role, extent_bytes, is_origin, members, role, shown_blocks};
use rowen_control::paths::{mapper_path, node_path};
use rowen_control::uuids::lvm_text;
use rowen_control::wire::{AllocPolicy, GroupReport, VolumeReport, VolumeState};
use rowen_engine::units::BLOCK_SIZE;

/// What a field shows; values of one field are compared to sort by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    None,
    Text(String),
    Number(i64),
    Size(u64),
    /// A part and the whole.
    Percent(u64, u64),
}

/// A field's entry.
pub struct Field {
    pub kind: Kind,
    pub name: &'static str,
    pub heading: &'static str,
    pub is_right: bool,
    /// Columns are at least this wide.
    pub least_width: usize,
    pub help: &'static str,
    pub value: fn(&Row<'_>) -> Value,
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn number(number: u64) -> Value {
    Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn blocks(blocks: u64) -> Value {
    Value::Size(blocks.saturating_mul(BLOCK_SIZE))
}

/// A value from the row's group and volume, where it has one.
fn lv(row: &Row<'_>, value: impl Fn(&GroupReport, &VolumeReport) -> Value) -> Value {
    match (row.group, row.volume) {
        (Some(group), Some(volume)) => value(group, volume),
        _ => Value::None,
    }
}

fn vg(row: &Row<'_>, value: impl Fn(&GroupReport) -> Value) -> Value {
    row.group.map_or(Value::None, value)
}

macro_rules! fields {
    ($($kind:ident $name:literal, $heading:literal, $align:ident $width:literal, $help:literal, $value:expr;)*) => {
        /// All fields, in the order of `-o lv_all` and its like.
        pub const FIELDS: &[Field] = &[$(Field {
            kind: Kind::$kind,
            name: $name,
            heading: $heading,
            is_right: fields!($align),
            least_width: $width,
            help: $help,
            value: $value,
        }),*];
    };
    (left) => { false };
    (right) => { true };
}

fields! {
    Volume "lv_uuid", "LV UUID", left 38, "Unique identifier.", |row| lv(row, |_, v| text(lvm_text(v.uuid)));
    Volume "lv_name", "LV", left 4, "Name.", |row| lv(row, |_, v| text(&v.name));
    Volume "lv_full_name", "LV", left 4, "Full name including the group, VG/LV.", |row| lv(row, |g, v| text(full_name(g, v)));
    Volume "lv_path", "Path", left 0, "Path of the device; blank for pools.",
        |row| lv(row, |g, v| if v.is_pool() { text("") } else { text(node_path(&g.name, &v.name)) });
    Volume "lv_dm_path", "DMPath", left 0, "Path in /dev/mapper.", |row| lv(row, |g, v| text(mapper_path(&g.name, &v.name)));
    Volume "lv_layout", "Layout", left 10, "Layout.", |row| lv(row, |_, v| text(layout(v)));
    Volume "lv_role", "Role", left 0, "What it is to other volumes.", |row| lv(row, |g, v| text(roles(g, v)));
    Volume "lv_skip_activation", "SkipAct", left 0, "Set if activation skips it.",
        |row| lv(row, |_, v| text(if v.attributes.skip_activation { "skip activation" } else { "" }));
    Volume "lv_autoactivation", "AutoAct", left 0, "Set if it is activated with its group.",
        |row| lv(row, |_, v| text(if v.attributes.autoactivate { "enabled" } else { "" }));
    Volume "lv_when_full", "WhenFull", left 0, "What a write does when there is no space.", |row| lv(row, |_, v| text(when_full(v)));
    Volume "lv_active", "Active", left 0, "Set if it has a device.",
        |row| lv(row, |_, v| text(if is_active(v) { "active" } else { "" }));
    Volume "lv_major", "Maj", right 0, "Persistent major number, or -1.", |row| lv(row, |_, _| Value::Number(-1));
    Volume "lv_minor", "Min", right 0, "Persistent minor number, or -1.", |row| lv(row, |_, _| Value::Number(-1));
    Volume "lv_size", "LSize", right 0, "Size; of a snapshot with space set aside, that space.",
        |row| lv(row, |_, v| blocks(shown_blocks(v)));
    Volume "lv_metadata_size", "MSize", right 0, "Always blank: metadata has no volume of its own.", |_| Value::None;
    Volume "seg_count", "#Seg", right 0, "Number of segments.", |row| lv(row, |_, _| Value::Number(1));
    Volume "origin", "Origin", left 0, "The volume that it is a snapshot of.",
        |row| lv(row, |_, v| v.origin.as_ref().map_or(text(""), text));
    Volume "origin_size", "OSize", right 0, "Size of the origin when the snapshot was taken, or of an origin.",
        |row| lv(row, |g, v| if role(v) == Role::Snapshot || is_origin(g, &v.name) { blocks(v.blocks) } else { Value::None });
    Volume "data_percent", "Data%", left 6, "How full a snapshot, thin volume or pool is.", |row| lv(row, data_percent);
    Volume "snap_percent", "Snap%", left 6, "How full a snapshot is.",
        |row| lv(row, |g, v| if role(v) == Role::Snapshot { data_percent(g, v) } else { Value::None });
    Volume "metadata_percent", "Meta%", left 6, "Always blank: metadata grows by itself.", |_| text("");
    Volume "copy_percent", "Cpy%Sync", left 8, "Always blank: there are no mirrors.", |_| text("");
    Volume "move_pv", "Move", left 0, "Always blank: nothing is moved.", |_| text("");
    Volume "convert_lv", "Convert", left 0, "Always blank: nothing is converted.", |_| text("");
    Volume "mirror_log", "Log", left 0, "Always blank: there are no mirrors.", |_| text("");
    Volume "lv_tags", "LV Tags", left 0, "Tags, if any.", |row| lv(row, |_, v| text(joined(&v.attributes.tags)));
    Volume "lv_profile", "LProfile", left 0, "Always blank: there are no profiles.", |_| text("");
    Volume "lv_time", "CTime", left 26, "When it was created.", |row| lv(row, |_, v| text(time::long(v.attributes.created)));
    Volume "pool_lv", "Pool", left 0, "The thin pool that it is counted in.",
        |row| lv(row, |_, v| if v.is_pool() { text("") } else { text(&v.attributes.pool) });
    Volume "lv_permissions", "LPerms", left 0, "Whether it may be written.",
        |row| lv(row, |_, v| text(if v.read_only { "read-only" } else { "writeable" }));
    Volume "lv_kernel_major", "KMaj", right 0, "Major number of its device, or -1.", |row| lv(row, |_, v| device_number(v, v.node.major));
    Volume "lv_kernel_minor", "KMin", right 0, "Minor number of its device, or -1.", |row| lv(row, |_, v| device_number(v, v.node.minor));
    Volume "lv_device_open", "DevOpen", left 10, "Set if its device is open.",
        |row| lv(row, |_, v| text(if v.node.open { "open" } else { "" }));
    Volume "lv_snapshot_invalid", "SnapInvalid", left 0, "Set if a snapshot outgrew the space set aside for it.",
        |row| lv(row, |_, v| text(if v.state == VolumeState::Invalid { "snapshot invalid" } else { "" }));
    Volume "lv_attr", "Attr", left 0, "Attributes in ten letters.", |row| lv(row, |g, v| text(attr(g, v)));
    Volume "segtype", "Type", left 0, "Kind of volume.", |row| lv(row, |_, v| text(segtype(v)));
    Volume "stripes", "#Str", right 0, "Always 1.", |row| lv(row, |_, _| Value::Number(1));
    Volume "seg_size", "SSize", right 0, "Size of the segment.", |row| lv(row, |_, v| blocks(shown_blocks(v)));
    Volume "chunk_size", "Chunk", right 0, "Contiguous space that a first write to a shared chunk reserves.",
        |row| lv(row, |_, v| blocks(u64::from(v.chunk_blocks)));
    Volume "thin_count", "#Thins", right 0, "Of a thin pool: its volumes.",
        |row| lv(row, |g, v| if v.is_pool() { number(members(g, &v.name).count() as u64) } else { Value::None });
    Volume "thin_id", "ThId", right 0, "Of a thin volume: its number.",
        |row| lv(row, |_, v| if role(v) == Role::Thin { number(v.id) } else { Value::None });
    Volume "lv_referenced", "Refs", right 0, "Space mapped and written, shared space included.",
        |row| lv(row, |_, v| blocks(v.referenced_blocks));
    Volume "lv_exclusive", "Excl", right 0, "Space that only this volume uses.", |row| lv(row, |_, v| blocks(v.exclusive_blocks));
    Volume "lv_freed", "Freed", right 0, "Space that comes back when it is removed.",
        |row| lv(row, |_, v| blocks(v.freed_if_removed_blocks));

    Group "vg_fmt", "Fmt", left 0, "Type of metadata.", |row| vg(row, |_| text("lvm2"));
    Group "vg_uuid", "VG UUID", left 38, "Unique identifier.", |row| vg(row, |g| text(lvm_text(g.uuid)));
    Group "vg_name", "VG", left 0, "Name.",
        |row| match (row.group, row.label.and_then(|label| label.group.as_ref())) {
            (Some(group), _) => text(&group.name),
            (None, Some(name)) => text(name),
            (None, None) => text(""),
        };
    Group "vg_attr", "Attr", left 0, "Attributes in six letters.", |row| vg(row, |g| text(group_attr(g)));
    Group "vg_size", "VSize", right 0, "Total size.", |row| vg(row, |g| extents(g, g.extents));
    Group "vg_free", "VFree", right 0, "Space neither used nor promised.", |row| vg(row, |g| extents(g, g.free_extents));
    Group "vg_extent_size", "Ext", right 0, "Size of an extent.", |row| vg(row, |g| extents(g, 1));
    Group "vg_extent_count", "#Ext", right 0, "Number of extents.", |row| vg(row, |g| number(g.extents));
    Group "vg_free_count", "Free", right 0, "Extents neither used nor promised.", |row| vg(row, |g| number(g.free_extents));
    Group "pv_count", "#PV", right 0, "Number of physical volumes.", |row| vg(row, |g| number(g.pvs.len() as u64));
    Group "vg_missing_pv_count", "#PV Missing", right 0, "Physical volumes that are missing.", |row| vg(row, |_| number(0));
    Group "lv_count", "#LV", right 0, "Number of logical volumes.", |row| vg(row, |g| number(g.volumes.len() as u64));
    Group "snap_count", "#SN", right 0, "Number of snapshots.",
        |row| vg(row, |g| number(g.volumes.iter().filter(|v| role(v) == Role::Snapshot).count() as u64));
    Group "vg_seqno", "Seq", right 0, "Revision number of the metadata.", |row| vg(row, |g| number(g.sequence));
    Group "vg_tags", "VG Tags", left 0, "Tags, if any.", |row| vg(row, |g| text(joined(&g.attributes.tags)));
    Group "vg_profile", "VProfile", left 0, "Always blank: there are no profiles.", |row| vg(row, |_| text(""));
    Group "vg_promised", "Promised", right 0, "Space promised to thick volumes and snapshots.",
        |row| vg(row, |g| blocks(g.promised_blocks));
    Group "vg_metadata", "Metadata", right 0, "Space that metadata takes.", |row| vg(row, |g| blocks(g.metadata_blocks));

    Pv "pv_fmt", "Fmt", left 0, "Type of metadata.", |_| text("lvm2");
    Pv "pv_uuid", "PV UUID", left 38, "Unique identifier.",
        |row| match (row.pv, row.label.and_then(|label| label.uuid)) {
            (Some(pv), _) => text(lvm_text(pv.uuid)),
            (None, Some(uuid)) => text(lvm_text(uuid)),
            (None, None) => text(""),
        };
    Pv "dev_size", "DevSize", right 0, "Size of the device.", |row| device_size(row);
    Pv "pv_name", "PV", left 10, "Path of the device.",
        |row| match (row.label, row.pv) {
            (Some(label), _) => text(&label.path),
            (None, Some(pv)) => text(&pv.path),
            (None, None) => text(""),
        };
    Pv "pe_start", "1st PE", right 0, "Offset of the first extent.",
        |row| row.pv.map_or(Value::None, |pv| Value::Size(pv.data_offset_bytes));
    Pv "pv_size", "PSize", right 0, "Usable size.",
        |row| match (row.group, row.pv) {
            (Some(group), Some(pv)) => extents(group, pv.extents),
            _ => device_size(row),
        };
    Pv "pv_free", "PFree", right 0, "Space that nothing uses.",
        |row| match (row.group, row.pv) {
            (Some(group), Some(pv)) => extents(group, pv.free_extents),
            _ => device_size(row),
        };
    Pv "pv_used", "Used", right 0, "Space that is used.",
        |row| match (row.group, row.pv) {
            (Some(group), Some(pv)) => extents(group, pv.extents.saturating_sub(pv.free_extents)),
            _ => Value::Size(0),
        };
    Pv "pv_attr", "Attr", left 0, "Attributes in three letters.",
        |row| text(if row.pv.is_some() || row.label.is_some_and(|label| label.group.is_some()) { "a--" } else { "---" });
    Pv "pv_pe_count", "PE", right 0, "Number of extents.", |row| row.pv.map_or(number(0), |pv| number(pv.extents));
    Pv "pv_pe_alloc_count", "Alloc", right 0, "Extents in use.",
        |row| row.pv.map_or(number(0), |pv| number(pv.extents.saturating_sub(pv.free_extents)));
    Pv "pv_tags", "PV Tags", left 0, "Tags, if any.", |row| text(row.pv.map_or(String::new(), |pv| joined(&pv.tags)));
}

fn extents(group: &GroupReport, extents: u64) -> Value {
    Value::Size(extents.saturating_mul(extent_bytes(group)))
}

fn device_size(row: &Row<'_>) -> Value {
    match (row.label, row.pv) {
        (Some(label), _) => Value::Size(label.size),
        (None, Some(pv)) => Value::Size(pv.size_bytes),
        (None, None) => Value::None,
    }
}

fn full_name(group: &GroupReport, volume: &VolumeReport) -> String {
    format!("{}/{}", group.name, volume.name)
}

/// A pool has no device; it counts as active, since its volumes can always be used.
fn is_active(volume: &VolumeReport) -> bool {
    volume.node.active || volume.is_pool()
}

fn device_number(volume: &VolumeReport, number: u32) -> Value {
    Value::Number(if volume.node.active { i64::from(number) } else { -1 })
}

fn joined(tags: &[String]) -> String {
    let mut tags = tags.to_vec();
    tags.sort();
    tags.join(",")
}

/// The six letters of `vg_attr`.
fn group_attr(group: &GroupReport) -> String {
    let attributes = &group.attributes;
    let resizeable = if attributes.resizeable { 'z' } else { '-' };
    let exported = if attributes.exported { 'x' } else { '-' };
    let alloc = match attributes.alloc {
        AllocPolicy::Normal => 'n',
        AllocPolicy::Contiguous => 'c',
        AllocPolicy::Cling => 'l',
        AllocPolicy::Anywhere => 'a',
    };
    ['w', resizeable, exported, '-', alloc, '-'].iter().collect()
}

fn segtype(volume: &VolumeReport) -> &'static str {
    match role(volume) {
        Role::Pool => "thin-pool",
        Role::Thin => "thin",
        Role::Snapshot | Role::Plain => "linear",
    }
}

fn layout(volume: &VolumeReport) -> &'static str {
    match role(volume) {
        Role::Pool => "thin,pool",
        Role::Thin => "thin,sparse",
        Role::Snapshot | Role::Plain => "linear",
    }
}

fn roles(group: &GroupReport, volume: &VolumeReport) -> &'static str {
    match role(volume) {
        Role::Pool => "private",
        Role::Snapshot => "public,snapshot,thicksnapshot",
        Role::Thin if volume.origin.is_some() => "public,snapshot,thinsnapshot",
        _ if is_origin(group, &volume.name) => "public,origin,thickorigin",
        _ => "public",
    }
}

fn when_full(volume: &VolumeReport) -> &'static str {
    use rowen_control::wire::FullPolicy;
    match volume.full {
        FullPolicy::DropSnapshot => "drop snapshot",
        FullPolicy::Hold => "queue",
        FullPolicy::Fail => "error",
    }
}

/// Of a snapshot, what is held for it, of what is set aside for it. Of a pool, what its volumes hold: what two snapshots
/// of one origin both hold counts for each, so this is an upper bound.
fn data_percent(group: &GroupReport, volume: &VolumeReport) -> Value {
    match role(volume) {
        Role::Plain => text(""),
        Role::Snapshot if volume.state == VolumeState::Invalid => Value::Percent(1, 1),
        Role::Snapshot => Value::Percent(volume.snapshot_used_blocks, shown_blocks(volume)),
        Role::Thin => Value::Percent(volume.referenced_blocks, volume.blocks),
        Role::Pool => {
            let held = members(group, &volume.name).map(|member| match &member.origin {
                Some(_) => member.snapshot_used_blocks,
                None => member.referenced_blocks,
            });
            Value::Percent(held.fold(0, u64::saturating_add), volume.blocks)
        }
    }
}

/// The ten letters of `lv_attr`.
fn attr(group: &GroupReport, volume: &VolumeReport) -> String {
    let role = role(volume);
    let is_origin = is_origin(group, &volume.name);
    let kind = match role {
        Role::Pool => 't',
        Role::Snapshot => 's',
        _ if is_origin => 'o',
        Role::Thin => 'V',
        Role::Plain => '-',
    };
    let permission = if volume.read_only { 'r' } else { 'w' };
    let state = match volume.state {
        VolumeState::Invalid => 'I',
        VolumeState::Ok if is_active(volume) => 'a',
        VolumeState::Ok => '-',
    };
    let is_open = volume.node.open || (volume.is_pool() && members(group, &volume.name).next().is_some());
    let open = if is_open { 'o' } else { '-' };
    let is_thin = matches!(role, Role::Thin | Role::Pool);
    let target = match role {
        _ if is_thin => 't',
        Role::Snapshot => 's',
        _ if is_origin => 's',
        _ => '-',
    };
    let zero = if is_thin { 'z' } else { '-' };
    let skip = if volume.attributes.skip_activation { 'k' } else { '-' };
    [kind, permission, 'i', '-', state, open, target, zero, '-', skip].iter().collect()
}
