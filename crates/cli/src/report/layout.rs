//! The text of a report: aligned columns, separated columns, `NAME='value'`, JSON. Trailing blanks are kept, as in LVM.

use super::fields::Field;
use std::fmt::Write;

/// Columns as wide as their widest cell, strings left, numbers right. Without rows there is no heading either.
pub fn aligned(fields: &[&Field], cells: &[Vec<String>], has_headings: bool) -> String {
    if cells.is_empty() || fields.is_empty() {
        return String::new();
    }
    let widths: Vec<usize> = fields
        .iter()
        .enumerate()
        .map(|(at, field)| {
            let widest = cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
            // LVM keeps room for the heading even where it shows none.
            widest.max(field.heading.len()).max(field.least_width)
        })
        .collect();
    let mut text = String::new();
    if has_headings {
        let headings = fields.iter().zip(&widths).map(|(field, width)| format!("{:<width$}", field.heading));
        let _infallible = writeln!(text, "  {}", headings.collect::<Vec<_>>().join(" "));
    }
    for row in cells {
        let padded = fields.iter().zip(&widths).zip(row).map(|((field, width), cell)| match field.is_right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let _infallible = writeln!(text, "  {}", padded.collect::<Vec<_>>().join(" "));
    }
    text
}

pub fn separated(fields: &[&Field], cells: &[Vec<String>], has_headings: bool, separator: &str) -> String {
    if cells.is_empty() || fields.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    if has_headings {
        let headings: Vec<&str> = fields.iter().map(|field| field.heading).collect();
        let _infallible = writeln!(text, "  {}", headings.join(separator));
    }
    for row in cells {
        let trimmed: Vec<&str> = row.iter().map(|cell| cell.trim_end()).collect();
        let _infallible = writeln!(text, "  {}", trimmed.join(separator));
    }
    text
}

pub fn prefixed(fields: &[&Field], cells: &[Vec<String>], is_quoted: bool, separator: &str) -> String {
    let quote = if is_quoted { "'" } else { "" };
    let mut text = String::new();
    for row in cells {
        let words: Vec<String> = fields
            .iter()
            .zip(row)
            .map(|(field, cell)| format!("LVM2_{}={quote}{}{quote}", field.name.to_ascii_uppercase(), cell.trim_end()))
            .collect();
        let _infallible = writeln!(text, "  {}", words.join(separator));
    }
    text
}

pub fn json(key: &str, fields: &[&Field], cells: &[Vec<String>]) -> String {
    let string = |text: &str| serde_json::Value::from(text).to_string();
    let rows: Vec<String> = cells
        .iter()
        .map(|row| {
            let pairs: Vec<String> = fields
                .iter()
                .zip(row)
                .map(|(field, cell)| format!("\"{}\":{}", field.name, string(cell.trim_end())))
                .collect();
            format!("                  {{{}}}", pairs.join(", "))
        })
        .collect();
    let rows = if rows.is_empty() { String::new() } else { format!("{}\n", rows.join(",\n")) };
    format!(
        "  {{\n      \"report\": [\n          {{\n              \"{key}\": [\n{rows}              ]\n          }}\n      ]\n  }}\n"
    )
}
