//! Reports: columns, rows, order and form, as in LVM. [`fields`] has the values of fields, [`select`] the selection and
//! [`layout`] the text.

pub mod field;
pub mod fields;
pub mod index;
mod kind;
mod layout;
pub mod listing;
pub mod plain;
pub mod row;
pub mod rows;
pub mod select;
mod settings;
pub mod time;
pub mod value;

pub use kind::Kind;
pub use row::Row;

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use field::{About, Field, Section};
use layout::{Cells, Form, Layout};
use select::Criteria;
use settings::{Extent, Settings};
use std::cmp::Ordering;
use value::{Style, Value};

/// Whose options a report uses: those of a command with one report, or those of a part of a full report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    One,
    Full,
}

/// The form of the report by the command line.
pub struct Shape {
    kind: Kind,
    fields: Vec<&'static Field>,
    /// Each with whether it is reversed.
    sort: Vec<(&'static Field, bool)>,
    criteria: Option<Criteria>,
    style: Style,
    layout: Layout,
}

impl Shape {
    /// The shape of a command's one report.
    pub fn from(args: &Args, kind: Kind) -> Result<Shape> {
        Shape::scoped(args, kind, Scope::One)
    }

    /// The shape of one part of a full report.
    pub fn of_part(args: &Args, kind: Kind) -> Result<Shape> {
        Shape::scoped(args, kind, Scope::Full)
    }

    fn scoped(args: &Args, kind: Kind, scope: Scope) -> Result<Shape> {
        let settings = Settings::from(args);
        let is_json = settings.form(args) == Form::Json || settings.form(args) == Form::JsonTyped;
        let extent = match scope {
            Scope::One if args.has(Opt::Verbose) => Extent::Verbose,
            Scope::One => Extent::Usual,
            Scope::Full => Extent::Full,
        };
        let usual = settings.columns(kind, extent);
        let wanted = given(args, kind, scope == Scope::One);
        let mut fields = Vec::new();
        let mut compact = None;
        add_fields(kind, &usual, &mut fields)?;
        for list in wanted.iter().filter(|(option, _)| *option == Opt::Fields).map(|(_, list)| list.as_str()) {
            match (list.chars().next(), list.get(1..)) {
                (None, _) => return Err(Failure::failed("Invalid options string: ")),
                (Some('+'), Some(rest)) => add_fields(kind, rest, &mut fields)?,
                (Some('-'), Some(rest)) => {
                    let mut unwanted = Vec::new();
                    // An unknown field that is to be removed is not shown anyway.
                    for name in names(rest) {
                        let _unknown = add_fields(kind, name, &mut unwanted);
                    }
                    fields.retain(|field| !unwanted.iter().any(|other: &&Field| other.name == field.name));
                }
                (Some('#'), Some(rest)) => {
                    let mut only = Vec::new();
                    add_fields(kind, rest, &mut only)?;
                    compact = Some(only);
                }
                _ => {
                    fields.clear();
                    add_fields(kind, list, &mut fields)?;
                }
            }
        }
        let keys = wanted.iter().rev().find(|(option, _)| *option == Opt::Sort).map(|(_, keys)| keys.as_str());
        let is_unbuffered = (args.has(Opt::Unbuffered) || settings.is_unbuffered()) && keys.is_none() && !is_json;
        let sort = match keys {
            Some(keys) => sort_keys(kind, keys)?,
            None if is_unbuffered => Vec::new(),
            None => sort_keys(kind, &settings.order(kind, extent))?,
        };
        let select = wanted.iter().rev().find(|(option, _)| *option == Opt::Select).map(|(_, text)| text.as_str());
        let criteria = select.map(|text| Criteria::parse(text, kind.prefix())).transpose()?.flatten();
        let layout = settings.layout(args, compact, is_unbuffered);
        let shape = Shape { kind, fields, sort, criteria, style: settings.style(args)?, layout };
        shape.check()?;
        Ok(shape)
    }

    /// No row has both a volume and a physical volume, except rows about a physical volume's segments.
    fn check(&self) -> Result {
        let used: Vec<About> = self.used().map(|field| field.section.about()).collect();
        let has = |about: &[About]| used.iter().any(|used| about.contains(used));
        let family = self.kind.family();
        let is_mixed = has(&[About::Volume, About::Segment]) && has(&[About::Pv, About::Piece]);
        let is_wrong = match family {
            "lv" => has(&[About::Pv, About::Piece]),
            "vg" => is_mixed,
            _ => false,
        };
        if is_wrong {
            return Err(Failure::failed(format!(
                "Can't report LV and PV fields at the same time in report type \"{family}\"."
            )));
        }
        Ok(())
    }

    /// Every field that is shown, or used to sort or select.
    fn used(&self) -> impl Iterator<Item = &'static Field> + '_ {
        self.shown().chain(self.criteria.iter().flat_map(Criteria::fields))
    }

    fn shown(&self) -> impl Iterator<Item = &'static Field> + '_ {
        self.fields.iter().copied().chain(self.sort.iter().map(|(field, _)| *field))
    }

    /// Whether the places of blocks are needed.
    pub fn needs_places(&self) -> bool {
        self.knows_segments() || self.rows_about() == About::Piece || self.about(self.used()) == About::Piece
    }

    /// Whether a field counts all volumes of a group.
    pub fn counts_all(&self) -> bool {
        self.used().any(Field::counts_all)
    }

    /// Whether a field shows if devices are open.
    pub fn shows_use(&self) -> bool {
        self.used().any(Field::shows_use)
    }

    /// What its rows describe: the finest object of all shown fields.
    fn rows_about(&self) -> About {
        self.about(self.shown())
    }

    fn about(&self, fields: impl Iterator<Item = &'static Field>) -> About {
        let used: Vec<About> = fields.map(|field| field.section.about()).chain([self.kind.about()]).collect();
        let has = |about: About| used.contains(&about);
        let is_of_pvs = self.kind.family() == "pv";
        match () {
            // The volumes of a physical volume are those of its segments.
            () if is_of_pvs && (has(About::Volume) || has(About::Segment)) => About::Piece,
            () if has(About::Piece) => About::Piece,
            () if has(About::Segment) && self.knows_segments() => About::Segment,
            () if has(About::Volume) || has(About::Segment) => About::Volume,
            () if has(About::Pv) => About::Pv,
            () => About::Group,
        }
    }

    /// A volume has a row for each of its segments if a column differs between them.
    fn knows_segments(&self) -> bool {
        self.kind == Kind::Segment || self.used().any(Field::needs_places)
    }

    /// The rows that the report makes from these, each with whether it meets the criteria.
    pub fn rows<'a>(&self, coarse: impl IntoIterator<Item = Row<'a>>) -> Vec<Row<'a>> {
        let about = self.rows_about();
        let mut fine: Vec<Row<'a>> = Vec::new();
        for row in coarse {
            match rows::is_fine(&row, about) {
                true => fine.push(row),
                false => fine.extend(rows::refine(row, about)),
            }
        }
        for row in &mut fine {
            row.is_selected = self.is_met(*row);
        }
        fine
    }

    /// An object is selected if any part of it is.
    fn is_met(&self, row: Row<'_>) -> bool {
        let Some(criteria) = &self.criteria else { return true };
        // For criteria about `selected` itself.
        let row = Row { is_selected: true, ..row };
        rows::refine(row, self.about(self.used())).iter().any(|part| criteria.is_met(part))
    }

    /// The text of the report.
    pub fn render(&self, rows: Vec<Row<'_>>) -> String {
        let cells = self.cells(rows);
        self.layout.report(self.kind.key(), &self.fields, &cells)
    }

    /// The text of a part of a full report.
    pub fn render_part(&self, rows: Vec<Row<'_>>) -> layout::Part {
        let cells = self.cells(rows);
        self.layout.part(self.kind.key(), &self.fields, &cells)
    }

    fn cells(&self, mut rows: Vec<Row<'_>>) -> Cells {
        let shows_selected = self.fields.iter().any(|field| field.section == Section::Special);
        if !shows_selected {
            rows.retain(|row| row.is_selected);
        }
        let is_typed = self.layout.form == Form::JsonTyped;
        let places = self.in_order(&rows);
        let mut cells = Cells::new(places.len(), self.fields.len());
        // Most of thousands of volumes have the size of the one above, so a number is formatted only when it changes.
        let mut above: Vec<Value<'_>> = vec![Value::None; self.fields.len()];
        for at in places {
            for (field, above) in self.fields.iter().zip(&mut above) {
                let value = field.of(&rows[at]);
                if value.is_figure() && value == *above {
                    cells.add_as_above();
                    continue;
                }
                cells.add(|text| match is_typed {
                    true => text.push_str(&value.show_typed(&self.style)),
                    false => value.show_to(&self.style, text),
                });
                *above = value;
            }
        }
        cells
    }

    /// The indexes of the rows, in the order of the report.
    fn in_order(&self, rows: &[Row<'_>]) -> Vec<usize> {
        // Keys are computed once for each row, not for each comparison. Keys that are the same in all rows are skipped,
        // often the group's name.
        let mut keys: Vec<(Vec<Value<'_>>, bool)> = Vec::with_capacity(self.sort.len());
        for (field, is_reversed) in &self.sort {
            let column: Vec<Value<'_>> = rows.iter().map(|row| field.of(row)).collect();
            if column.windows(2).any(|pair| pair[0] != pair[1]) {
                keys.push((column, *is_reversed));
            }
        }
        let mut places: Vec<usize> = (0..rows.len()).collect();
        let order = |a: usize, b: usize| {
            let by_key = |(column, is_reversed): &(Vec<Value<'_>>, bool)| {
                if *is_reversed { column[b].order(&column[a]) } else { column[a].order(&column[b]) }
            };
            keys.iter().map(by_key).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        places.sort_by(|a, b| order(*a, *b));
        places
    }

    /// Full reports: the text that joins the parts.
    pub fn join(&self, groups: Vec<Vec<layout::Part>>) -> String {
        self.layout.join(groups)
    }
}

/// The options about the fields of one kind of report, in order. Options after `--configreport` are for that kind only;
/// those before it are for a command's one report.
fn given(args: &Args, kind: Kind, is_only: bool) -> Vec<(Opt, String)> {
    let is_own = |key: &str| match kind {
        Kind::Volume | Kind::Segment if is_only => key == "lv" || key == "seg",
        Kind::Pv | Kind::Piece if is_only => key == "pv" || key == "pvseg",
        _ => key == kind.key(),
    };
    let mut is_about_it = is_only;
    let mut own = Vec::new();
    for (option, value) in args.given() {
        match option {
            Opt::ConfigReport => is_about_it = is_own(value),
            // Criteria apply to every part of a full report that has none of its own.
            Opt::Select if !args.has(Opt::ConfigReport) => own.push((*option, value.clone())),
            Opt::Fields | Opt::Sort | Opt::Select if is_about_it => own.push((*option, value.clone())),
            _ => {}
        }
    }
    own
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|name| !name.is_empty())
}

fn add_fields(kind: Kind, list: &str, to: &mut Vec<&'static Field>) -> Result {
    for name in names(list) {
        match name {
            "help" | "?" => return Err(Failure::Shown(listing::fields())),
            "all" => {
                for section in kind.all_sections() {
                    to.extend(fields::find_all(section).into_iter().flatten());
                }
            }
            _ => match (fields::find(kind.prefix(), name), fields::find_all(name)) {
                (Some(field), _) => to.push(field),
                (None, Some(all)) => to.extend(all),
                (None, None) => return Err(unknown(format!("Unrecognised field: {name}"))),
            },
        }
    }
    Ok(())
}

fn sort_keys(kind: Kind, list: &str) -> Result<Vec<(&'static Field, bool)>> {
    let mut keys = Vec::new();
    for key in names(list) {
        let (name, is_reversed) = match key.strip_prefix('-') {
            Some(name) => (name, true),
            None => (key.strip_prefix('+').unwrap_or(key), false),
        };
        match name {
            "help" | "?" => return Err(Failure::Shown(listing::fields())),
            _ => match fields::find(kind.prefix(), name) {
                Some(field) => keys.push((field, is_reversed)),
                None => return Err(unknown(format!("dm_report: Unrecognised field: {name}"))),
            },
        }
    }
    Ok(keys)
}

/// An unknown field: prints the list of fields and then the message.
fn unknown(sentence: String) -> Failure {
    let mut lines = listing::fields();
    lines.push(sentence);
    Failure::Failed(lines)
}

#[cfg(test)]
#[path = "report_test.rs"]
mod tests;
