//! Fields of groups.

use crate::report::field::{blocks, fields};
use crate::report::row::Row;
use crate::report::value::Value;
use crate::roles::{Role, extent_bytes, is_move, role};
use rowen_control::protocol::{AllocPolicy, GroupReport};
use rowen_control::uuids::lvm_text;

/// The value of the row's group, if it has one.
pub fn vg<'r>(row: &Row<'r>, value: fn(&'r GroupReport) -> Value<'r>) -> Value<'r> {
    row.group.map_or(Value::None, |group| value(group.report))
}

/// The name is known from the labels, even if a group could not be opened.
fn named<'r>(row: &Row<'r>, value: fn(&'r str) -> Value<'r>) -> Value<'r> {
    match (row.group, row.label.and_then(|label| label.group.as_ref())) {
        (Some(group), _) => value(&group.report.name),
        (None, Some(name)) => value(name),
        (None, None) => value(""),
    }
}

fields! { FIRST: Group, vg;
    "vg_fmt", "Fmt", Text 3, "Kind of metadata, in the word that programs know.", |_| Value::text("lvm2");
    "vg_uuid", "VG UUID", Text 38, "Identifier of the group.", |group| Value::text(lvm_text(group.uuid));
}

fields! { NAME: Group, named;
    "vg_name", "VG", Text 2, "Name of the group.", Value::text;
}

fields! { REST: Group, vg;
    "vg_attr", "Attr", Text 5, "What it is, in six letters: see vgs(8).", |group| Value::text(attr(group));
    "vg_permissions", "VPerms", Text 10, "Whether the group may be changed: not when it has stopped or is open read-only.", |group| Value::text(if group.stopped || group.read_only { "read-only" } else { "writeable" });
    "vg_extendable", "Extendable", Flag 10, "Set if physical volumes may be added.",
        |group| Value::flag(group.attributes.resizeable, "extendable");
    "vg_exported", "Exported", Flag 10, "Set if nothing of it may be activated.",
        |group| Value::flag(group.attributes.exported, "exported");
    "vg_autoactivation", "AutoAct", Flag 7, "Set if its volumes are activated at boot.",
        |group| Value::flag(group.attributes.autoactivate, "enabled");
    "vg_partial", "Partial", Flag 10, "Set if a physical volume is missing, or was pulled.",
        |group| Value::flag(group.absent().next().is_some(), "partial");
    "vg_allocation_policy", "AllocPol", Text 10, "Where space would be searched; kept and shown.",
        |group| Value::text(allocation(group));
    "vg_clustered", "Clustered", Flag 10, "Blank: a group is open on one machine only.",
        |_| Value::flag(false, "clustered");
    "vg_shared", "Shared", Flag 7, "Blank: a group is open on one machine only.", |_| Value::flag(false, "shared");
    "vg_size", "VSize", Size 5, "Size of all its physical volumes.", |group| extents(group, group.extents);
    "vg_free", "VFree", Size 5, "Space neither used nor reserved.", |group| extents(group, group.free_extents);
    "vg_sysid", "SYS ID", Text 6, "Blank: groups are bound to no host.", |_| Value::None;
    "vg_systemid", "System ID", Text 9, "Blank: groups are bound to no host.", |_| Value::None;
    "vg_lock_type", "LockType", Text 8, "Blank: there is no lock manager.", |_| Value::None;
    "vg_lock_args", "VLockArgs", Text 9, "Blank: there is no lock manager.", |_| Value::None;
    "vg_extent_size", "Ext", Size 3, "Size of an extent.", |group| extents(group, 1);
    "vg_extent_count", "#Ext", Number 4, "Number of extents.", |group| Value::number(group.extents);
    "vg_free_count", "Free", Number 4, "Extents neither used nor reserved.",
        |group| Value::number(group.free_extents);
    "max_lv", "MaxLV", Number 5, "Most volumes that it may have; 0: no limit.",
        |group| Value::number(group.attributes.max_volumes);
    "max_pv", "MaxPV", Number 5, "Most physical volumes that it may have; 0: no limit.",
        |group| Value::number(group.attributes.max_pvs);
    "pv_count", "#PV", Number 3, "Number of physical volumes.", |group| Value::count(group.pvs.len());
    "vg_missing_pv_count", "#PV Missing", Number 11, "Physical volumes that are missing, or were pulled.",
        |group: &GroupReport| Value::count(group.absent().count());
    "lv_count", "#LV", Number 3, "Number of volumes, snapshots included, but for those that wait to be merged.",
        |group| Value::count(group.volumes.iter().filter(|volume| !volume.is_waiting_to_merge() && !is_move(volume)).count());
    "snap_count", "#SN", Number 3, "Number of snapshots that depend on their origins.", snapshots;
    "vg_seqno", "Seq", Number 3, "Revision of the metadata; it rises with each change.",
        |group| Value::number(group.sequence);
    "vg_tags", "VG Tags", List 7, "Its tags.", |group| Value::list(&group.attributes.tags);
    "vg_profile", "VProfile", Text 8, "Blank: there are no profiles.", |_| Value::None;
    "vg_mda_count", "#VMda", Number 5, "Physical volumes with metadata: all.", |group| Value::count(group.pvs.len());
    "vg_mda_used_count", "#VMdaUse", Number 8, "Physical volumes with metadata: all.",
        |group| Value::count(group.pvs.len());
    "vg_mda_free", "VMdaFree", Size 8, "Space into which metadata can grow.", |group| blocks(group.free_blocks);
    "vg_mda_size", "VMdaSize", Size 8, "Space that metadata takes, and into which it can grow.",
        |group| blocks(group.metadata_blocks.saturating_add(group.free_blocks));
    "vg_mda_copies", "#VMdaCps", Number 8, "Always unmanaged: metadata is kept twice wherever that is.",
        |_| Value::text("unmanaged");
}

pub fn extents(group: &GroupReport, extents: u64) -> Value<'static> {
    Value::Size(extents.saturating_mul(extent_bytes(group)))
}

fn snapshots(group: &GroupReport) -> Value<'static> {
    Value::count(group.volumes.iter().filter(|volume| role(volume) == Role::Snapshot).count())
}

/// The word for the group's allocation policy.
pub fn allocation(group: &GroupReport) -> &'static str {
    match group.attributes.alloc {
        AllocPolicy::Normal => "normal",
        AllocPolicy::Contiguous => "contiguous",
        AllocPolicy::Cling => "cling",
        AllocPolicy::Anywhere => "anywhere",
    }
}

/// The six letters of `vg_attr`.
fn attr(group: &GroupReport) -> String {
    let attributes = &group.attributes;
    let resizeable = if attributes.resizeable { 'z' } else { '-' };
    let exported = if attributes.exported { 'x' } else { '-' };
    let alloc = match attributes.alloc {
        AllocPolicy::Normal => 'n',
        AllocPolicy::Contiguous => 'c',
        AllocPolicy::Cling => 'l',
        AllocPolicy::Anywhere => 'a',
    };
    let permission = if group.stopped || group.read_only { 'r' } else { 'w' };
    let partial = if group.absent().next().is_some() { 'p' } else { '-' };
    [permission, resizeable, exported, partial, alloc, '-'].iter().collect()
}
