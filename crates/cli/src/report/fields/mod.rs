//! The table of all fields of all reports. `-o`, `-O`, `-S`, the list of fields and the documents use it. Names,
//! headings and order are LVM's. LVM's fields without a meaning in Rowen exist and are blank, as LVM shows them for
//! volumes without the feature.

mod group;
mod pv;
mod rowen;
mod segment;
mod status;
mod volume;

pub use super::field::{Field, Section};
pub use pv::UNKNOWN;
pub use segment::{layout, segments};
pub use status::data_percent;
pub use volume::{Lv, is_active};

use super::field::fields;
use super::row::Row;
use super::value::Value;

fn special<'r>(row: &Row<'r>, value: fn(&Row<'r>) -> Value<'r>) -> Value<'r> {
    value(row)
}

fields! { SELECTED: Special, special;
    "selected", "Selected", Number 8, "1 where the row meets the criteria, else 0.",
        |row: &Row<'_>| Value::Number(i64::from(row.is_selected));
}

/// All fields, in the order of the list of fields and of `-o lv_all` and similar.
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
