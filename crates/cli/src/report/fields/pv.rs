//! Fields of physical volumes: from the label, which needs no server, and from the group.

use super::group::extents;
use crate::report::field::fields;
use crate::report::row::Row;
use crate::report::value::Value;
use rowen_control::uuids::lvm_text;
use rowen_engine::format::superblock::DATA_OFFSET;

/// LVM's word for the path of a physical volume that is not found.
pub const UNKNOWN: &str = "[unknown]";

fn of_row<'r>(row: &Row<'r>, value: fn(&Row<'r>) -> Value<'r>) -> Value<'r> {
    value(row)
}

fields! { LABEL: Label, of_row;
    "pv_fmt", "Fmt", Text 3, "Kind of metadata, in the word that programs know.",
        |row| if is_labelled(row) { Value::text("lvm2") } else { Value::None };
    "pv_uuid", "PV UUID", Text 38, "Identifier of the physical volume.", uuid;
    "dev_size", "DevSize", Size 7, "Size of the device or file.", device_size;
    "pv_name", "PV", Text 10, "Path of the device or file.", |row: &Row<'_>| Value::text(path(row));
    "pv_major", "Maj", Text 3, "Blank: see the device itself.", |_| Value::None;
    "pv_minor", "Min", Text 3, "Blank: see the device itself.", |_| Value::None;
    "pv_mda_free", "PMdaFree", Size 9, "Always 0: what metadata needs it takes from the group.", |_| Value::Size(0);
    "pv_mda_size", "PMdaSize", Size 9, "Space before the first extent, for label and superblocks.",
        |row| row.pv.map_or(Value::Size(0), |pv| Value::Size(pv.data_offset_bytes));
    "pv_ext_vsn", "PExtVsn", Number 7, "Blank: labels have no extensions.", |_| Value::None;
}

fields! { FIELDS: Pv, of_row;
    "pe_start", "1st PE", Size 7, "Where the first extent is on the device, or will be.",
        |row| match row.pv {
            Some(pv) => Value::Size(pv.data_offset_bytes),
            None => Value::Size(if is_labelled(row) { DATA_OFFSET } else { 0 }),
        };
    "pv_size", "PSize", Size 5, "Size that the group can use.",
        |row| match (row.group, row.pv) {
            (Some(group), Some(pv)) => extents(group.report, pv.extents),
            _ => orphan_size(row),
        };
    "pv_free", "PFree", Size 5, "Space that nothing uses. Blank if its group could not be opened.",
        |row| match (row.group, row.pv) {
            (Some(group), Some(pv)) => extents(group.report, pv.free_extents),
            _ => unless_unknown(row, orphan_size(row)),
        };
    "pv_used", "Used", Size 4, "Space that is used. Blank if its group could not be opened.",
        |row| match (row.group, row.pv) {
            (Some(group), Some(pv)) => extents(group.report, pv.extents.saturating_sub(pv.free_extents)),
            _ => unless_unknown(row, Value::Size(0)),
        };
    "pv_attr", "Attr", Text 4, "What it is, in three letters: see pvs(8).",
        |row| {
            let is_exported = row.group.is_some_and(|group| group.report.attributes.exported);
            let allocatable = match (is_member(row), is_allocatable(row)) {
                (true, true) => 'a',
                (true, false) => 'u',
                (false, _) => '-',
            };
            let exported = if is_member(row) && is_exported { 'x' } else { '-' };
            let missing = if is_missing(row) { 'm' } else { '-' };
            Value::text([allocatable, exported, missing].iter().collect::<String>())
        };
    "pv_allocatable", "Allocatable", Flag 11, "Set if its group takes space from it.",
        |row| Value::flag(is_allocatable(row), "allocatable");
    "pv_exported", "Exported", Flag 10, "Set if its group is exported.",
        |row| Value::flag(row.group.is_some_and(|group| group.report.attributes.exported), "exported");
    "pv_missing", "Missing", Flag 10, "Set if the device is not there.",
        |row| Value::flag(is_missing(row), "missing");
    "pv_pe_count", "PE", Number 3, "Number of extents. Blank if its group could not be opened.",
        |row| row.pv.map_or(unless_unknown(row, Value::Number(0)), |pv| Value::number(pv.extents));
    "pv_pe_alloc_count", "Alloc", Number 5, "Extents in use. Blank if its group could not be opened.",
        |row| match row.pv {
            Some(pv) => Value::number(pv.extents.saturating_sub(pv.free_extents)),
            None => unless_unknown(row, Value::Number(0)),
        };
    "pv_tags", "PV Tags", List 7, "Its tags.",
        |row| row.pv.map_or(Value::List(Vec::new()), |pv| Value::list(&pv.tags));
    "pv_mda_count", "#PMda", Number 5, "Always 1: each has a copy of the superblocks.", superblocks;
    "pv_mda_used_count", "#PMdaUse", Number 8, "Always 1: each has a copy of the superblocks.", superblocks;
    "pv_ba_start", "BA Start", Size 8, "Always 0: there is no area for a boot loader.", |_| Value::Size(0);
    "pv_ba_size", "BA Size", Size 7, "Always 0: there is no area for a boot loader.", |_| Value::Size(0);
    "pv_in_use", "PInUse", Flag 6, "Set if it belongs to a group.", |row: &Row<'_>| Value::flag(is_member(row), "used");
    "pv_duplicate", "Duplicate", Flag 9, "Blank: a group with one twice is not opened.",
        |_| Value::flag(false, "duplicate");
    "pv_device_id", "DeviceID", Text 8, "Blank: there is no devices file.", |_| Value::None;
    "pv_device_id_type", "DeviceIDType", Text 12, "Blank: there is no devices file.", |_| Value::None;
}

/// The device's path.
pub fn path<'a>(row: &Row<'a>) -> &'a str {
    match (row.label, row.pv) {
        (Some(label), _) => &label.path,
        (None, Some(pv)) => &pv.path,
        (None, None) => "",
    }
}

fn uuid(row: &Row<'_>) -> Value<'static> {
    match (row.pv, row.label.and_then(|label| label.uuid)) {
        (Some(pv), _) => Value::text(lvm_text(pv.uuid)),
        (None, Some(uuid)) => Value::text(lvm_text(uuid)),
        (None, None) => Value::None,
    }
}

/// The device may be no physical volume.
fn is_labelled(row: &Row<'_>) -> bool {
    row.pv.is_some() || row.label.is_some_and(|label| label.uuid.is_some())
}

fn superblocks(row: &Row<'_>) -> Value<'static> {
    Value::Number(is_labelled(row).into())
}

/// The size that a group could use, of a physical volume in no group.
fn orphan_size(row: &Row<'_>) -> Value<'static> {
    match row.label.filter(|_| is_labelled(row)) {
        Some(label) => Value::Size(label.usable),
        None => Value::Size(0),
    }
}

/// What a physical volume of no group has; of one whose group could not be opened it is not known.
fn unless_unknown(row: &Row<'_>, value: Value<'static>) -> Value<'static> {
    if row.pv.is_none() && is_member(row) { Value::None } else { value }
}

/// Its device is missing, or its group runs without it.
fn is_missing(row: &Row<'_>) -> bool {
    row.label.is_some_and(|label| label.trouble.is_some() || label.path == UNKNOWN)
        || row.pv.is_some_and(|pv| pv.is_missing || pv.is_away)
}

/// Unknown if the group could not be opened.
fn is_allocatable(row: &Row<'_>) -> bool {
    row.pv.map_or(is_member(row), |pv| pv.is_allocatable)
}

fn is_member(row: &Row<'_>) -> bool {
    row.pv.is_some() || row.label.is_some_and(|label| label.group.is_some())
}

fn device_size(row: &Row<'_>) -> Value<'static> {
    match (row.label, row.pv) {
        (Some(label), _) => Value::Size(label.size),
        (None, Some(pv)) => Value::Size(pv.size_bytes),
        (None, None) => Value::None,
    }
}
