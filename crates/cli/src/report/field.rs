//! A field of a report: its section, name, heading, type, least width, meaning, and the function of its value.

use super::row::Row;
use super::value::{Type, Value};
use rowen_engine::units::BLOCK_SIZE;

/// A section of fields. It has a title in the list of fields, and decides what a row must describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Volume,
    VolumeDevice,
    VolumeStatus,
    VolumeCombined,
    RowenVolume,
    Label,
    Pv,
    Group,
    RowenGroup,
    Segment,
    Piece,
    Special,
}

/// What a row describes, from coarse to fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Group,
    Volume,
    Segment,
    Pv,
    /// A run of extents of a physical volume.
    Piece,
    Nothing,
}

impl Section {
    pub const ALL: [Section; 12] = [
        Section::Volume,
        Section::VolumeDevice,
        Section::VolumeStatus,
        Section::VolumeCombined,
        Section::RowenVolume,
        Section::Label,
        Section::Pv,
        Section::Group,
        Section::RowenGroup,
        Section::Segment,
        Section::Piece,
        Section::Special,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Section::Volume => "Logical Volume",
            Section::VolumeDevice => "Logical Volume Device Info",
            Section::VolumeStatus => "Logical Volume Device Status",
            Section::VolumeCombined => "Logical Volume Device Info and Status Combined",
            Section::RowenVolume => "Logical Volume (Rowen)",
            Section::Label => "Physical Volume Label",
            Section::Pv => "Physical Volume",
            Section::Group => "Volume Group",
            Section::RowenGroup => "Volume Group (Rowen)",
            Section::Segment => "Logical Volume Segment",
            Section::Piece => "Physical Volume Segment",
            Section::Special => "Special",
        }
    }

    /// The name that stands for all fields of the section and of related ones.
    pub fn all_name(self) -> Option<&'static str> {
        match self {
            Section::Volume | Section::VolumeDevice | Section::VolumeStatus | Section::VolumeCombined => Some("lv_all"),
            Section::RowenVolume | Section::RowenGroup => Some("rowen_all"),
            Section::Label | Section::Pv => Some("pv_all"),
            Section::Group => Some("vg_all"),
            Section::Segment => Some("seg_all"),
            Section::Piece => Some("pvseg_all"),
            Section::Special => None,
        }
    }

    pub fn about(self) -> About {
        match self {
            Section::Volume
            | Section::VolumeDevice
            | Section::VolumeStatus
            | Section::VolumeCombined
            | Section::RowenVolume => About::Volume,
            Section::Label | Section::Pv => About::Pv,
            Section::Group | Section::RowenGroup => About::Group,
            Section::Segment => About::Segment,
            Section::Piece => About::Piece,
            Section::Special => About::Nothing,
        }
    }
}

/// A field's entry.
pub struct Field {
    pub section: Section,
    pub name: &'static str,
    pub heading: &'static str,
    pub kind: Type,
    /// The least width of the column.
    pub width: usize,
    pub help: &'static str,
    pub value: for<'r> fn(&Row<'r>) -> Value<'r>,
}

/// A section's fields. `$of` finds the object in the row, and the value is a function of it.
macro_rules! fields {
    ($table:ident: $section:ident, $of:path; $($name:literal, $heading:literal, $kind:ident $width:literal, $help:literal, $value:expr;)*) => {
        pub const $table: &[$crate::report::field::Field] = &[$($crate::report::field::Field {
            section: $crate::report::field::Section::$section,
            name: $name,
            heading: $heading,
            kind: $crate::report::value::Type::$kind,
            width: $width,
            help: $help,
            value: |row| $of(row, $value),
        }),*];
    };
}
pub(super) use fields;

/// A number of blocks, as a size.
pub fn blocks(blocks: u64) -> Value<'static> {
    Value::Size(blocks.saturating_mul(BLOCK_SIZE))
}

impl Field {
    /// Its value in a row. For a physical volume in no group, counts of a group are 0, as in LVM.
    pub fn of<'r>(&self, row: &Row<'r>) -> Value<'r> {
        let is_in_no_group = row.group.is_none() && row.label.is_some_and(|label| label.group.is_none());
        match self.kind {
            Type::Size if is_in_no_group && self.section == Section::Group => Value::Size(0),
            Type::Number if is_in_no_group && self.section == Section::Group => Value::Number(0),
            _ => (self.value)(row),
        }
    }

    /// Whether its value depends on all volumes of a group, not only on the shown ones.
    pub fn counts_all(&self) -> bool {
        ["lv_count", "snap_count"].contains(&self.name)
    }

    /// Whether its value shows if devices are open.
    pub fn shows_use(&self) -> bool {
        ["lv_attr", "lv_device_open"].contains(&self.name)
    }

    /// Whether its value needs the places of blocks.
    pub fn needs_places(&self) -> bool {
        const NAMES: &[&str] = &[
            "seg_count",
            "seg_start",
            "seg_start_pe",
            "seg_size",
            "seg_size_pe",
            "seg_pe_ranges",
            "seg_le_ranges",
            "devices",
            "pvseg_start",
            "pvseg_size",
        ];
        NAMES.contains(&self.name)
    }
}
