//! Reports: which columns, in what form. Rows come from the commands, what a column shows from [`fields`], and the text from
//! [`layout`], all as LVM has them.

pub mod fields;
mod layout;

use crate::backend::LabelledPv;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use fields::{Field, Value};
pub use rowen_control::time;
use rowen_control::units::Units;
use rowen_control::wire::{GroupReport, PvReport, VolumeReport};

/// What a row is about, and whose a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Volume,
    Group,
    Pv,
}

impl Kind {
    /// In JSON.
    fn key(self) -> &'static str {
        match self {
            Kind::Volume => "lv",
            Kind::Group => "vg",
            Kind::Pv => "pv",
        }
    }

    /// What may be left out before a field's name.
    fn prefix(self) -> &'static str {
        match self {
            Kind::Volume => "lv_",
            Kind::Group => "vg_",
            Kind::Pv => "pv_",
        }
    }

    fn default_fields(self, is_verbose: bool) -> &'static str {
        match (self, is_verbose) {
            (Kind::Volume, false) => {
                "lv_name,vg_name,lv_attr,lv_size,pool_lv,origin,data_percent,metadata_percent,move_pv,mirror_log,copy_percent,\
                 convert_lv"
            }
            (Kind::Volume, true) => {
                "lv_name,vg_name,seg_count,lv_attr,lv_size,lv_major,lv_minor,lv_kernel_major,lv_kernel_minor,pool_lv,origin,\
                 data_percent,metadata_percent,move_pv,copy_percent,mirror_log,convert_lv,lv_uuid,lv_profile"
            }
            (Kind::Group, false) => "vg_name,pv_count,lv_count,snap_count,vg_attr,vg_size,vg_free",
            (Kind::Group, true) => {
                "vg_name,vg_attr,vg_extent_size,pv_count,lv_count,snap_count,vg_size,vg_free,vg_uuid,vg_profile"
            }
            (Kind::Pv, false) => "pv_name,vg_name,pv_fmt,pv_attr,pv_size,pv_free",
            (Kind::Pv, true) => "pv_name,vg_name,pv_fmt,pv_attr,pv_size,pv_free,dev_size,pv_uuid",
        }
    }

    fn default_sort(self) -> &'static str {
        match self {
            Kind::Volume => "vg_name,lv_name",
            Kind::Group => "vg_name",
            Kind::Pv => "pv_name",
        }
    }
}

/// What a row can draw on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row<'a> {
    pub group: Option<&'a GroupReport>,
    pub volume: Option<&'a VolumeReport>,
    pub pv: Option<&'a PvReport>,
    pub label: Option<&'a LabelledPv>,
}

/// The form that the command line asks for.
pub struct Shape {
    kind: Kind,
    fields: Vec<&'static Field>,
    /// Each with whether it is reversed.
    sort: Vec<(&'static Field, bool)>,
    units: Units,
    has_suffix: bool,
    has_headings: bool,
    separator: Option<String>,
    is_json: bool,
    /// `--nameprefixes`, and whether values are quoted.
    prefixes: Option<bool>,
}

impl Shape {
    pub fn from(args: &Args, kind: Kind) -> Result<Shape> {
        let usual = kind.default_fields(args.has(Opt::Verbose));
        let mut fields = Vec::new();
        if args.texts(Opt::Fields).next().is_none_or(|first| first.starts_with('+')) {
            add_fields(kind, usual, &mut fields)?;
        }
        for list in args.texts(Opt::Fields) {
            add_fields(kind, list.strip_prefix('+').unwrap_or(list), &mut fields)?;
        }
        let mut sort = Vec::new();
        let sort_keys = match args.text(Opt::Sort) {
            Some(keys) => keys,
            None if args.has(Opt::Unbuffered) => "",
            None => kind.default_sort(),
        };
        for key in sort_keys.split(',').map(str::trim).filter(|key| !key.is_empty()) {
            let (name, is_reversed) = match key.strip_prefix('-') {
                Some(name) => (name, true),
                None => (key.strip_prefix('+').unwrap_or(key), false),
            };
            sort.push((find(kind, name)?, is_reversed));
        }
        Ok(Shape {
            kind,
            fields,
            sort,
            units: args.units(),
            has_suffix: !args.has(Opt::NoSuffix),
            has_headings: !args.has(Opt::NoHeadings),
            separator: args.text(Opt::Separator).map(str::to_owned),
            is_json: args.text(Opt::ReportFormat) == Some("json"),
            prefixes: args.has(Opt::NamePrefixes).then(|| !args.has(Opt::Unquoted)),
        })
    }

    /// Whether any column is about things of this kind.
    pub fn shows(&self, kind: Kind) -> bool {
        self.fields.iter().any(|field| field.kind == kind)
    }

    /// The report's text.
    pub fn render(&self, mut rows: Vec<Row<'_>>) -> String {
        if !self.sort.is_empty() {
            // Each row's keys once, not for each comparison.
            let keys =
                |row: &Row<'_>| -> Vec<Value> { self.sort.iter().map(|(field, _)| (field.value)(row)).collect() };
            let mut keyed: Vec<(Vec<Value>, Row<'_>)> = rows.into_iter().map(|row| (keys(&row), row)).collect();
            keyed.sort_by(|(a, _), (b, _)| {
                let by_key = |((a, b), (_, is_reversed)): ((&Value, &Value), &(&Field, bool))| {
                    if *is_reversed { b.cmp(a) } else { a.cmp(b) }
                };
                let mut orders = a.iter().zip(b).zip(&self.sort).map(by_key);
                orders.find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
            });
            rows = keyed.into_iter().map(|(_, row)| row).collect();
        }
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| self.fields.iter().map(|field| self.show((field.value)(row))).collect()).collect();
        if self.is_json {
            return layout::json(self.kind.key(), &self.fields, &cells);
        }
        if let Some(is_quoted) = self.prefixes {
            return layout::prefixed(&self.fields, &cells, is_quoted, self.separator.as_deref().unwrap_or(" "));
        }
        match &self.separator {
            Some(separator) => layout::separated(&self.fields, &cells, self.has_headings, separator),
            None => layout::aligned(&self.fields, &cells, self.has_headings),
        }
    }

    fn show(&self, value: Value) -> String {
        match value {
            Value::Text(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Size(size) => self.units.show(size, self.has_suffix),
            Value::Percent(part, whole) => rowen_control::units::percent(part, whole),
            Value::None => String::new(),
        }
    }
}

fn add_fields(kind: Kind, list: &str, to: &mut Vec<&'static Field>) -> Result {
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let all_of = match name {
            "lv_all" => Some(Kind::Volume),
            "vg_all" => Some(Kind::Group),
            "pv_all" => Some(Kind::Pv),
            _ => None,
        };
        match all_of {
            Some(all) => to.extend(fields::FIELDS.iter().filter(|field| field.kind == all)),
            None => to.push(find(kind, name)?),
        }
    }
    Ok(())
}

/// A field by its name, with or without the prefix of the report's kind.
fn find(kind: Kind, name: &str) -> Result<&'static Field> {
    let lower = name.to_ascii_lowercase();
    let prefixed = format!("{}{lower}", kind.prefix());
    let found = fields::FIELDS.iter().find(|field| field.name == lower);
    found.or_else(|| fields::FIELDS.iter().find(|field| field.name == prefixed)).ok_or_else(|| {
        let mut lines: Vec<String> = Vec::new();
        for (kind, title) in
            [(Kind::Volume, "Logical Volume"), (Kind::Group, "Volume Group"), (Kind::Pv, "Physical Volume")]
        {
            lines.push(format!("{title} Fields"));
            lines.push("-".repeat(title.len() + " Fields".len()));
            let of_kind = fields::FIELDS.iter().filter(|field| field.kind == kind);
            lines.extend(of_kind.map(|field| format!("  {:<27} - {}", field.name, field.help)));
            lines.push(" ".to_owned());
        }
        lines.push(format!("Unrecognised field: {name}"));
        Failure::Failed(lines)
    })
}

#[cfg(test)]
#[path = "report_test.rs"]
mod tests;
