//! The text of a report: aligned columns, separated columns, `NAME='value'`, columns as rows, JSON. Trailing blanks are
//! kept, as in LVM.

use super::field::Field;
use std::fmt::Write;

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// All values are strings.
    Json,
    /// Numbers, lists and nulls have their JSON types.
    JsonTyped,
}

/// The headings of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headings {
    None,
    Short,
    /// The fields' names.
    Names,
}

/// How the text is laid out.
#[derive(Clone, Debug)]
pub struct Layout {
    pub form: Form,
    pub headings: Headings,
    pub separator: String,
    pub is_aligned: bool,
    /// Columns are printed as rows.
    pub is_turned: bool,
    /// `NAME=` before each value, and whether values are quoted.
    pub prefixes: Option<bool>,
    /// The columns that are left out if they have no value: these, or all.
    pub compact: Option<Vec<&'static Field>>,
    /// Only the first row determines widths.
    pub is_streamed: bool,
}

/// A part of a full report.
pub struct Part {
    text: String,
}

/// The cells of all rows in one buffer. With ten thousand rows, a string for each cell would take most of the time.
pub struct Cells {
    rows: usize,
    columns: usize,
    text: String,
    ends: Vec<usize>,
}

impl Cells {
    /// For this number of rows. Rows exist even without columns.
    pub fn new(rows: usize, columns: usize) -> Cells {
        Cells { rows, columns, text: String::new(), ends: Vec::with_capacity(rows * columns) }
    }

    /// Adds the next cell, which `write` appends.
    pub fn add(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    /// Adds a cell with the text of the one above it.
    pub fn add_as_above(&mut self) {
        let above = self.ends.len() - self.columns;
        let begin = if above == 0 { 0 } else { self.ends[above - 1] };
        self.text.extend_from_within(begin..self.ends[above]);
        self.ends.push(self.text.len());
    }

    fn cell(&self, row: usize, column: usize) -> &str {
        let at = row * self.columns + column;
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[begin..self.ends[at]]
    }

    fn column(&self, column: usize) -> impl Iterator<Item = &str> {
        (0..self.rows).map(move |row| self.cell(row, column))
    }
}

pub fn pad(text: &mut String, mut blanks: usize) {
    const BLANKS: &str = "                                ";
    while blanks > BLANKS.len() {
        text.push_str(BLANKS);
        blanks -= BLANKS.len();
    }
    text.push_str(&BLANKS[..blanks]);
}

/// The columns that a text takes on a terminal.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

impl Layout {
    /// A single report.
    pub fn report(&self, key: &str, fields: &[&Field], cells: &Cells) -> String {
        let part = self.part(key, fields, cells);
        if self.form == Form::Text { part.text } else { self.join(vec![vec![part]]) }
    }

    pub fn part(&self, key: &str, fields: &[&Field], cells: &Cells) -> Part {
        let text = match self.form {
            Form::Text => self.text(fields, cells),
            Form::Json | Form::JsonTyped => self.json(key, fields, cells),
        };
        Part { text }
    }

    /// The parts of each group, as one document.
    pub fn join(&self, groups: Vec<Vec<Part>>) -> String {
        if self.form == Form::Text {
            return groups.into_iter().flatten().map(|part| part.text).collect();
        }
        let groups: Vec<String> = groups
            .into_iter()
            .map(|parts| {
                let parts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
                format!("          {{\n{}          }}\n", parts.join("              ,\n"))
            })
            .collect();
        format!("  {{\n      \"report\": [\n{}      ]\n  }}\n", groups.join("          ,\n"))
    }

    fn text(&self, fields: &[&Field], cells: &Cells) -> String {
        // Without rows there is no heading.
        if cells.rows == 0 {
            return String::new();
        }
        let is_kept = |at: usize, field: &Field| {
            let is_compacted = |only: &Vec<&Field>| only.is_empty() || only.iter().any(|one| one.name == field.name);
            !(self.compact.as_ref().is_some_and(is_compacted) && cells.column(at).all(str::is_empty))
        };
        let kept: Vec<(usize, &Field)> =
            fields.iter().copied().enumerate().filter(|(at, field)| is_kept(*at, field)).collect();
        if self.is_turned { self.turned(&kept, cells) } else { self.lines(&kept, cells) }
    }

    fn lines(&self, fields: &[(usize, &Field)], cells: &Cells) -> String {
        let widths = self.widths(fields, cells);
        let mut text = String::new();
        if self.headings != Headings::None {
            let headings: Vec<String> = fields
                .iter()
                .zip(&widths)
                .map(|((_, field), width)| match width {
                    // LVM truncates a heading that is wider than all values.
                    Some(width) => format!("{:<width$.width$}", self.heading(field)),
                    None => self.heading(field).to_owned(),
                })
                .collect();
            let _infallible = writeln!(text, "  {}", headings.join(&self.separator));
        }
        for row in 0..cells.rows {
            text.push_str("  ");
            for (place, ((at, field), least)) in fields.iter().zip(&widths).enumerate() {
                if place > 0 {
                    text.push_str(&self.separator);
                }
                let cell = cells.cell(row, *at);
                let blanks = least.map_or(0, |least| least.saturating_sub(width(cell)));
                let (before, after) = if field.kind.is_right() { (blanks, 0) } else { (0, blanks) };
                self.prefixed(&mut text, field, |text| {
                    pad(text, before);
                    text.push_str(cell);
                    pad(text, after);
                });
            }
            text.push('\n');
        }
        text
    }

    fn heading<'f>(&self, field: &'f Field) -> &'f str {
        if self.headings == Headings::Names { field.name } else { field.heading }
    }

    /// The width of each column. None: columns are not aligned.
    fn widths(&self, fields: &[(usize, &Field)], cells: &Cells) -> Vec<Option<usize>> {
        let measured = if self.is_streamed { 1 } else { usize::MAX };
        let of_column = |(at, field): &(usize, &Field)| {
            let widest = cells.column(*at).take(measured).map(width).max().unwrap_or(0);
            let least = if self.headings == Headings::Names { field.name.len() } else { field.width };
            widest.max(least)
        };
        fields.iter().map(|column| self.is_aligned.then(|| of_column(column))).collect()
    }

    fn prefixed(&self, text: &mut String, field: &Field, cell: impl FnOnce(&mut String)) {
        let Some(is_quoted) = self.prefixes else { return cell(text) };
        let quote = if is_quoted { "'" } else { "" };
        let _infallible = write!(text, "LVM2_{}={quote}", field.name.to_ascii_uppercase());
        cell(text);
        text.push_str(quote);
    }

    fn turned(&self, fields: &[(usize, &Field)], cells: &Cells) -> String {
        let mut text = String::new();
        for (at, field) in fields {
            let heading = (self.headings != Headings::None).then(|| self.heading(field).to_owned());
            let values = cells.column(*at).map(|cell| {
                let mut value = String::new();
                self.prefixed(&mut value, field, |text| text.push_str(cell));
                value
            });
            let line: Vec<String> = heading.into_iter().chain(values).collect();
            let _infallible = writeln!(text, "  {}", line.join(&self.separator));
        }
        text
    }

    fn json(&self, key: &str, fields: &[&Field], cells: &Cells) -> String {
        let value = |cell: &str| match self.form {
            Form::JsonTyped => cell.to_owned(),
            _ => serde_json::Value::from(cell).to_string(),
        };
        let rows: Vec<String> = (0..cells.rows)
            .map(|row| {
                let pair = |(at, field): (usize, &&Field)| format!("\"{}\":{}", field.name, value(cells.cell(row, at)));
                let pairs: Vec<String> = fields.iter().enumerate().map(pair).collect();
                format!("                  {{{}}}", pairs.join(", "))
            })
            .collect();
        let rows = if rows.is_empty() { String::new() } else { format!("{}\n", rows.join(",\n")) };
        format!("              \"{key}\": [\n{rows}              ]\n")
    }
}
