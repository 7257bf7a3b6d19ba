//! The table of fields: every field of every report, once, with its section, name, heading, type, least width, meaning
//! and where its value comes from. `-o`, `-O`, `-S`, the list of fields, and the documents that are made from it all
//! read this. Names, headings and order are LVM's. A field of LVM's that Rowen has nothing to say for is there and
//! blank, as LVM shows it for volumes without the thing.

mod group;
mod pv;
mod rowen;
mod segment;
mod status;
mod volume;

pub use segment::{Segment, segments};
pub use status::data_percent;
pub use volume::{Lv, is_active};

use super::Row;
use super::value::{Type, Value};
use rowen_engine::units::BLOCK_SIZE;

/// A group of fields. It has a title in the list of fields, and decides what a row must be about.
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

/// What a row is about, from coarse to fine.
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

    /// The name that stands for all fields of the section (and its sisters).
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
    /// Columns are at least this wide.
    pub width: usize,
    pub help: &'static str,
    pub value: for<'r> fn(&Row<'r>) -> Value<'r>,
}

/// A section's fields. A value is a function of what `$of` finds in the row.
macro_rules! fields {
    ($table:ident: $section:ident, $of:path; $($name:literal, $heading:literal, $kind:ident $width:literal, $help:literal, $value:expr;)*) => {
        pub const $table: &[$crate::report::fields::Field] = &[$($crate::report::fields::Field {
            section: $crate::report::fields::Section::$section,
            name: $name,
            heading: $heading,
            kind: $crate::report::value::Type::$kind,
            width: $width,
            help: $help,
            value: |row| $of(row, $value),
        }),*];
    };
}
use fields;

fn special<'r>(row: &Row<'r>, value: fn(&Row<'r>) -> Value<'r>) -> Value<'r> {
    value(row)
}

fn blocks(blocks: u64) -> Value<'static> {
    Value::Size(blocks.saturating_mul(BLOCK_SIZE))
}

fields! { SELECTED: Special, special;
    "selected", "Selected", Number 8, "1 where the row meets the criteria, else 0.",
        |row: &Row<'_>| Value::Number(i64::from(row.is_selected));
}

/// All fields, in the order of the list of fields and of `-o lv_all` and its like.
pub fn all() -> impl Iterator<Item = &'static Field> {
    [
        volume::FIELDS,
        status::DEVICE,
        status::STATUS,
        status::COMBINED,
        rowen::VOLUME,
        pv::LABEL,
        pv::FIELDS,
        group::FIRST,
        group::NAME,
        group::REST,
        rowen::GROUP,
        segment::FIELDS,
        segment::PIECES,
        SELECTED,
    ]
    .into_iter()
    .flatten()
}

impl Field {
    /// Its value in a row. Of a physical volume in no group, what counts something of a group is 0, as in LVM.
    pub fn of<'r>(&self, row: &Row<'r>) -> Value<'r> {
        let is_in_no_group = row.group.is_none() && row.label.is_some_and(|label| label.group.is_none());
        match self.kind {
            Type::Size if is_in_no_group && self.section == Section::Group => Value::Size(0),
            Type::Number if is_in_no_group && self.section == Section::Group => Value::Number(0),
            _ => (self.value)(row),
        }
    }

    /// Whether its value is about all volumes of a group, whichever are shown.
    pub fn counts_all(&self) -> bool {
        ["lv_count", "snap_count"].contains(&self.name)
    }

    /// Whether its value shows if devices are open.
    pub fn tells_use(&self) -> bool {
        ["lv_attr", "lv_device_open"].contains(&self.name)
    }

    /// Whether its value needs to know where blocks are.
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

/// The names of fields are compared without regard to case and underscores.
pub fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

/// The field of this name, with or without the prefix of the report's kind.
pub fn find(prefix: &str, name: &str) -> Option<&'static Field> {
    let wanted = plain(name);
    let prefixed = format!("{}{wanted}", plain(prefix));
    all().find(|field| plain(field.name) == wanted).or_else(|| all().find(|field| plain(field.name) == prefixed))
}

/// The fields that a name like `lv_all` stands for.
pub fn find_all(name: &str) -> Option<Vec<&'static Field>> {
    let wanted = plain(name);
    let found: Vec<_> =
        all().filter(|field| field.section.all_name().is_some_and(|name| plain(name) == wanted)).collect();
    (!found.is_empty()).then_some(found)
}
