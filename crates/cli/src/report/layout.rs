//! The text of a report: aligned columns, separated columns, `NAME='value'`, columns as rows, JSON. Trailing blanks are
//! kept, as in LVM.

use super::fields::Field;
use std::fmt::Write;

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// All values are strings.
    Json,
    /// Numbers, lists and nulls are what they are.
    JsonTyped,
}

/// What is between headings and values.
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
    /// Columns become lines.
    pub is_turned: bool,
    /// `NAME=` before each value, and whether values are quoted.
    pub prefixes: Option<bool>,
    /// Columns without any value are left out: these, or all.
    pub compact: Option<Vec<&'static Field>>,
    /// Widths are known from the first row only.
    pub is_streamed: bool,
}

/// A part of a full report.
pub struct Part {
    text: String,
}

type Cells = [Vec<String>];

impl Layout {
    /// A report that stands by itself.
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
        // Without rows there is no heading either.
        if cells.is_empty() {
            return String::new();
        }
        let is_kept = |at: usize, field: &Field| {
            let is_empty = cells.iter().all(|row| row[at].is_empty());
            let is_compacted = |only: &Vec<&Field>| only.is_empty() || only.iter().any(|one| one.name == field.name);
            !(is_empty && self.compact.as_ref().is_some_and(is_compacted))
        };
        let kept: Vec<usize> = (0..fields.len()).filter(|at| is_kept(*at, fields[*at])).collect();
        let fields: Vec<&Field> = kept.iter().map(|at| fields[*at]).collect();
        let cells: Vec<Vec<&str>> = cells.iter().map(|row| kept.iter().map(|at| row[*at].as_str()).collect()).collect();
        if self.is_turned { self.turned(&fields, &cells) } else { self.lines(&fields, &cells) }
    }

    fn lines(&self, fields: &[&Field], cells: &[Vec<&str>]) -> String {
        let widths = self.widths(fields, cells);
        let mut text = String::new();
        if self.headings != Headings::None {
            let headings: Vec<String> = fields
                .iter()
                .zip(&widths)
                .map(|(field, width)| match width {
                    // LVM cuts a heading that is wider than all values.
                    Some(width) => format!("{:<width$.width$}", self.heading(field)),
                    None => self.heading(field).to_owned(),
                })
                .collect();
            let _infallible = writeln!(text, "  {}", headings.join(&self.separator));
        }
        for row in cells {
            let padded: Vec<String> = fields
                .iter()
                .zip(&widths)
                .zip(row)
                .map(|((field, width), cell)| {
                    self.prefixed(
                        field,
                        &match (width, field.kind.is_right()) {
                            (Some(width), true) => format!("{cell:>width$}"),
                            (Some(width), false) => format!("{cell:<width$}"),
                            (None, _) => (*cell).to_owned(),
                        },
                    )
                })
                .collect();
            let _infallible = writeln!(text, "  {}", padded.join(&self.separator));
        }
        text
    }

    fn heading<'f>(&self, field: &'f Field) -> &'f str {
        if self.headings == Headings::Names { field.name } else { field.heading }
    }

    /// The width of each column; none where columns are not aligned.
    fn widths(&self, fields: &[&Field], cells: &[Vec<&str>]) -> Vec<Option<usize>> {
        let measured = if self.is_streamed { &cells[..cells.len().min(1)] } else { cells };
        fields
            .iter()
            .enumerate()
            .map(|(at, field)| {
                let widest = measured.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
                let least = if self.headings == Headings::Names { field.name.len() } else { field.width };
                self.is_aligned.then_some(widest.max(least))
            })
            .collect()
    }

    fn prefixed(&self, field: &Field, cell: &str) -> String {
        match self.prefixes {
            None => cell.to_owned(),
            Some(is_quoted) => {
                let quote = if is_quoted { "'" } else { "" };
                format!("LVM2_{}={quote}{cell}{quote}", field.name.to_ascii_uppercase())
            }
        }
    }

    fn turned(&self, fields: &[&Field], cells: &[Vec<&str>]) -> String {
        let mut text = String::new();
        for (at, field) in fields.iter().enumerate() {
            let heading = (self.headings != Headings::None).then(|| self.heading(field).to_owned());
            let values = cells.iter().map(|row| self.prefixed(field, row[at]));
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
        let rows: Vec<String> = cells
            .iter()
            .map(|row| {
                let pairs: Vec<String> =
                    fields.iter().zip(row).map(|(field, cell)| format!("\"{}\":{}", field.name, value(cell))).collect();
                format!("                  {{{}}}", pairs.join(", "))
            })
            .collect();
        let rows = if rows.is_empty() { String::new() } else { format!("{}\n", rows.join(",\n")) };
        format!("              \"{key}\": [\n{rows}              ]\n")
    }
}
