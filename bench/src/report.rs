//! What was asked, what was reached: the rows, the table and the JSON lines.

use std::fmt::Write as _;
use std::time::Duration;

/// What a row must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asked {
    AtLeast(f64),
    AtMost(f64),
    /// For comparison only.
    Nothing,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: &'static str,
    pub what: String,
    pub asked: Asked,
    /// Unit of the values that are judged: "x" for ratios.
    pub unit: &'static str,
    /// One value for each round.
    pub values: Vec<f64>,
    /// Medians of dividend and divisor, to be read with the ratio: Rowen's and the other's.
    pub sides: Vec<(f64, f64)>,
    pub side_unit: &'static str,
}

impl Row {
    pub fn new(name: &'static str, what: impl Into<String>, asked: Asked, unit: &'static str) -> Row {
        Row { name, what: what.into(), asked, unit, values: Vec::new(), sides: Vec::new(), side_unit: "" }
    }

    /// A row of ratios of two figures in this unit.
    pub fn ratio(name: &'static str, what: impl Into<String>, asked: Asked, side_unit: &'static str) -> Row {
        Row { side_unit, ..Row::new(name, what, asked, "x") }
    }

    /// Adds a round: its ratio is the first by the second.
    pub fn add(&mut self, rowen: f64, other: f64) {
        self.values.push(rowen / other);
        self.sides.push((rowen, other));
    }

    pub fn median(&self) -> f64 {
        median(&self.values)
    }

    /// None: nothing was asked.
    pub fn reached(&self) -> Option<bool> {
        let median = self.median();
        match self.asked {
            Asked::AtLeast(least) => Some(median >= least),
            Asked::AtMost(most) => Some(median <= most),
            Asked::Nothing => None,
        }
    }

    fn asked_text(&self) -> String {
        match self.asked {
            Asked::AtLeast(least) => format!(">= {}", number(least)),
            Asked::AtMost(most) => format!("<= {}", number(most)),
            Asked::Nothing => "-".to_owned(),
        }
    }

    fn sides_text(&self) -> String {
        if self.sides.is_empty() {
            return String::new();
        }
        let side = |pick: fn(&(f64, f64)) -> f64| number(median(&self.sides.iter().map(pick).collect::<Vec<_>>()));
        format!("{} / {} {}", side(|s| s.0), side(|s| s.1), self.side_unit)
    }

    /// One JSON object on one line.
    pub fn json(&self) -> String {
        let list = |values: &[f64]| values.iter().map(|v| json_number(*v)).collect::<Vec<_>>().join(",");
        let (asked, bound) = match self.asked {
            Asked::AtLeast(v) => ("at_least", json_number(v)),
            Asked::AtMost(v) => ("at_most", json_number(v)),
            Asked::Nothing => ("nothing", "null".to_owned()),
        };
        let reached = self.reached().map_or("null".to_owned(), |r| r.to_string());
        let sides: Vec<String> = self.sides.iter().map(|(a, b)| format!("[{}]", list(&[*a, *b]))).collect();
        format!(
            "{{\"name\":{},\"what\":{},\"unit\":{},\"asked\":\"{asked}\",\"bound\":{bound},\"median\":{},\"reached\":{reached},\
             \"rounds\":[{}],\"sides\":[{}],\"side_unit\":{}}}",
            json_text(self.name),
            json_text(&self.what),
            json_text(self.unit),
            json_number(self.median()),
            list(&self.values),
            sides.join(","),
            json_text(self.side_unit),
        )
    }
}

fn json_number(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { "null".to_owned() }
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// The middle value, or the mean of the two in the middle. Not a number if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Three significant digits or whole numbers.
fn number(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "-".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The table of all rows, aligned.
pub fn table(rows: &[Row]) -> String {
    let head = ["what", "asked", "reached", "min..max", "verdict", "figures (Rowen / other)"];
    let mut lines: Vec<[String; 6]> = vec![head.map(str::to_owned)];
    for row in rows {
        let (low, high) = row.values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
        lines.push([
            row.what.clone(),
            row.asked_text(),
            format!("{} {}", number(row.median()), row.unit),
            if row.values.len() > 1 { format!("{}..{}", number(low), number(high)) } else { String::new() },
            match row.reached() {
                Some(true) => "ok".to_owned(),
                Some(false) => "MISSED".to_owned(),
                None => String::new(),
            },
            row.sides_text(),
        ]);
    }
    let widths: Vec<usize> = (0..6).map(|i| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        out += cells.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_judged_by_their_median() {
        let mut row = Row::ratio("r", "a \"row\"", Asked::AtLeast(0.9), "kIOPS");
        for (rowen, raw) in [(50.0, 100.0), (95.0, 100.0), (300.0, 100.0)] {
            row.add(rowen, raw);
        }
        assert_eq!((row.median(), row.reached()), (0.95, Some(true)));
        row.asked = Asked::AtMost(0.9);
        assert_eq!(row.reached(), Some(false));
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        let json = row.json();
        assert!(json.starts_with("{\"name\":\"r\",\"what\":\"a \\\"row\\\"\"") && json.ends_with('}'), "{json}");
        let table = table(&[row]);
        assert!(
            table.contains("MISSED") && table.contains("0.50..3.00") && table.contains("95.0 / 100 kIOPS"),
            "{table}"
        );
    }
}
