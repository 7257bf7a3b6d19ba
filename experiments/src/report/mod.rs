//! From lines to something to read: one HTML page, its first plot as a file, and a table in Markdown for each experiment.
//!
//! Promises: nothing is in them that is not in the lines or in the catalogue; a figure that is missing shows its
//! reason; modelled and published figures are marked as such.

mod headline;
mod html;
mod markdown;
mod plot;

use crate::catalogue::{self, Experiment, Remark};
use crate::command::Result;
use crate::measurement::{Measurement, Origin, Series};
use crate::model::hdd::BARRACUDA_ES;
use crate::model::ssd::X25_M;
use crate::stats::Summary;
use std::collections::BTreeMap;
use std::path::Path;

/// One column: a system in a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    pub origin: Origin,
    pub place: String,
    pub system: String,
}

/// What stands in a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Figure {
        summary: Summary,
        /// Median of the rounds' ratios to the raw disk of the same place.
        ratio: Option<f64>,
    },
    NotRun(String),
    Empty,
}

/// All figures of one metric of one experiment.
#[derive(Clone, Debug)]
pub struct Table {
    pub metric: String,
    pub unit: String,
    pub columns: Vec<Column>,
    /// The parameters of a row, and its cells.
    pub rows: Vec<(BTreeMap<String, String>, Vec<Cell>)>,
}

/// One experiment's part of the report.
pub struct Section<'a> {
    pub experiment: &'a Experiment,
    pub tables: Vec<Table>,
    /// Why systems were not run at all.
    pub not_run: Vec<String>,
    pub runs: Vec<String>,
}

/// The data for a comparison: values by round.
type Values<'a> = BTreeMap<&'a Series, Vec<(usize, f64)>>;

/// The parts of the report, in the order of the catalogue.
pub fn sections(lines: &[Measurement]) -> Vec<Section<'static>> {
    let mut found = Vec::new();
    for experiment in &catalogue::ALL {
        let of: Vec<&Measurement> = lines.iter().filter(|line| line.series.experiment == experiment.name).collect();
        if !of.is_empty() {
            found.push(section(experiment, &of));
        }
    }
    found
}

fn section(experiment: &'static Experiment, lines: &[&Measurement]) -> Section<'static> {
    let mut values: Values<'_> = BTreeMap::new();
    let mut reasons: BTreeMap<&Series, &str> = BTreeMap::new();
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    let (mut not_run, mut runs) = (Vec::new(), Vec::new());
    for line in lines {
        let series = &line.series;
        match (line.figure, &line.reason) {
            (Some(figure), _) => values.entry(series).or_default().push((line.round, figure)),
            (None, Some(reason)) if series.metric == "all" => {
                push_new(&mut not_run, format!("{} ({}): not run, {reason}", series.system, series.place));
            }
            (None, reason) => drop(reasons.insert(series, reason.as_deref().unwrap_or("no reason was given"))),
        }
        if series.metric != "all" {
            push_new(&mut metrics, (&series.metric, &series.unit));
        }
        if matches!(series.origin, Origin::Measured | Origin::Modelled) {
            let run = &line.run;
            push_new(
                &mut runs,
                format!(
                    "{}: {} form, {}, kernel {}, revision {}, {} UTC",
                    series.place, run.form, run.machine, run.kernel, run.revision, run.time
                ),
            );
        }
    }
    let order: Vec<&Series> = lines.iter().map(|line| &line.series).collect();
    let tables = metrics.into_iter().map(|metric| table(experiment, metric, &order, &values, &reasons)).collect();
    Section { experiment, tables, not_run, runs }
}

fn push_new<T: PartialEq>(into: &mut Vec<T>, value: T) {
    if !into.contains(&value) {
        into.push(value);
    }
}

fn table(
    experiment: &Experiment,
    (metric, unit): (&str, &str),
    order: &[&Series],
    values: &Values<'_>,
    reasons: &BTreeMap<&Series, &str>,
) -> Table {
    let (mut columns, mut rows) = (Vec::new(), Vec::new());
    let of_metric = |series: &&&Series| series.metric == metric && series.unit == unit;
    let column = |series: &Series| Column {
        // What was not run stands where its figures would.
        origin: match series.origin {
            Origin::NotRun if [BARRACUDA_ES.name, X25_M.name].contains(&&*series.place) => Origin::Modelled,
            Origin::NotRun => Origin::Measured,
            origin => origin,
        },
        place: series.place.clone(),
        system: series.system.clone(),
    };
    for series in order.iter().filter(of_metric) {
        push_new(&mut columns, column(series));
        push_new(&mut rows, series.parameters.clone());
    }
    columns.sort_by_key(|c| (c.origin, c.place.clone(), rank(&c.system), c.system.clone()));
    rows.sort_by_key(|parameters| row_order(parameters, experiment.axis));
    let cell = |parameters: &BTreeMap<String, String>, at: &Column| {
        let is_it = |series: &&Series| {
            series.metric == metric && series.unit == unit && series.parameters == *parameters && column(series) == *at
        };
        if let Some((_, rounds)) = values.iter().find(|(series, _)| is_it(series)) {
            let figures: Vec<f64> = rounds.iter().map(|(_, figure)| *figure).collect();
            let Some(summary) = Summary::of(&figures) else { return Cell::Empty };
            let raw = values.iter().find(|(series, _)| {
                series.metric == metric
                    && series.unit == unit
                    && series.system == "raw"
                    && at.system != "raw"
                    && column(series) == (Column { system: "raw".to_owned(), ..at.clone() })
                    && experiment.base.iter().all(|key| series.parameters.get(*key) == parameters.get(*key))
            });
            let ratio = raw.and_then(|(_, raw)| ratio(rounds, raw));
            return Cell::Figure { summary, ratio };
        }
        match reasons.iter().find(|(series, _)| is_it(series)) {
            Some((_, reason)) => Cell::NotRun((*reason).to_owned()),
            None => Cell::Empty,
        }
    };
    let rows = rows.into_iter().map(|parameters| {
        let cells = columns.iter().map(|at| cell(&parameters, at)).collect();
        (parameters, cells)
    });
    Table { metric: metric.to_owned(), unit: unit.to_owned(), rows: rows.collect(), columns }
}

fn rank(system: &str) -> usize {
    crate::stack::System::ALL.iter().position(|known| known.name() == system).unwrap_or(usize::MAX)
}

/// Numbers and sizes by their value, words after them.
fn natural(text: &str) -> (u8, u64, String) {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = match text[digits..].trim_start().chars().next() {
        Some('k' | 'K') => 1 << 10,
        Some('m' | 'M') => 1 << 20,
        _ => 1,
    };
    match text[..digits].parse::<u64>() {
        Ok(number) => (0, number.saturating_mul(unit), text.to_owned()),
        Err(_) => (1, 0, text.to_owned()),
    }
}

type RowOrder = (Vec<(String, (u8, u64, String))>, Option<(u8, u64, String)>);

fn row_order(parameters: &BTreeMap<String, String>, axis: &str) -> RowOrder {
    let rest = parameters.iter().filter(|(key, _)| *key != axis).map(|(key, value)| (key.clone(), natural(value)));
    (rest.collect(), parameters.get(axis).map(|value| natural(value)))
}

/// The median of the ratios of rounds; where the rounds do not match, the ratio of the medians.
fn ratio(rounds: &[(usize, f64)], raw: &[(usize, f64)]) -> Option<f64> {
    let pairs: Vec<f64> = rounds
        .iter()
        .filter_map(|(round, figure)| Some(figure / raw.iter().find(|(other, _)| other == round)?.1))
        .collect();
    Summary::of(&pairs).map(|summary| summary.median)
}

/// A part of a table: the columns of one place, and the rows that have something in them.
pub struct Part {
    pub origin: Origin,
    pub place: String,
    pub columns: Vec<usize>,
    pub rows: Vec<usize>,
}

impl Part {
    pub fn title(&self) -> String {
        match self.origin {
            Origin::Modelled => format!("Modelled: {}", self.place),
            Origin::Published => "The document's own figures".to_owned(),
            _ => format!("Measured: {}", self.place),
        }
    }
}

/// The parts of a table: what was measured, what is modelled, what the document gave.
pub fn parts(table: &Table) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (at, column) in table.columns.iter().enumerate() {
        match parts.iter_mut().find(|part| part.origin == column.origin && part.place == column.place) {
            Some(part) => part.columns.push(at),
            None => parts.push(Part {
                origin: column.origin,
                place: column.place.clone(),
                columns: vec![at],
                rows: Vec::new(),
            }),
        }
    }
    for part in &mut parts {
        let has_some = |row: &usize| part.columns.iter().any(|at| table.rows[*row].1[*at] != Cell::Empty);
        part.rows = (0..table.rows.len()).filter(has_some).collect();
    }
    parts
}

/// Whether a figure is a fifth worse than the raw disk's, or compared with nothing.
fn is_bad(cell: &Cell, unit: &str) -> bool {
    match cell {
        Cell::Figure { ratio: None, .. } => true,
        Cell::Figure { ratio: Some(ratio), .. } if unit.ends_with("/s") => *ratio < 0.8,
        Cell::Figure { ratio: Some(ratio), .. } => *ratio > 1.25,
        _ => false,
    }
}

/// Why figures of this part are as they are: which ones, and the reason.
pub fn remarks(experiment: &Experiment, table: &Table, part: &Part) -> Vec<(String, &'static str)> {
    let of_metric = experiment.remarks.iter().filter(|remark| remark.metric == table.metric);
    let is_shown = |remark: &&Remark| {
        let columns = part.columns.iter().filter(|at| table.columns[**at].system == remark.system);
        columns.into_iter().any(|at| {
            part.rows.iter().any(|row| {
                let (parameters, cells) = &table.rows[*row];
                is_bad(&cells[*at], &table.unit)
                    && remark.parameters.iter().all(|(key, value)| parameters.get(*key).is_some_and(|v| v == value))
            })
        })
    };
    let named = |remark: &Remark| {
        let parameters = remark.parameters.iter().map(|(key, value)| format!("{key} {value}"));
        (format!("{}, {}", remark.system, parameters.collect::<Vec<_>>().join(", ")), remark.why)
    };
    of_metric.filter(is_shown).map(named).collect()
}

/// A row's parameters in words.
pub fn words(parameters: &BTreeMap<String, String>) -> String {
    if parameters.is_empty() {
        return "-".to_owned();
    }
    parameters.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// Writes `report.html`, its first plot as a file, and a Markdown file for each experiment.
pub fn write(lines: &[Measurement], out: &Path) -> Result {
    let (sections, headline) = (sections(lines), headline::of(lines));
    let put = |name: &str, text: String| {
        std::fs::create_dir_all(out)
            .and_then(|()| std::fs::write(out.join(name), text))
            .map_err(|e| format!("cannot write {}: {e}", out.join(name).display()))
    };
    put("report.html", html::page(&sections, &headline)?)?;
    if let Some(svg) = headline.file()? {
        put(headline::FILE, svg)?;
    }
    sections.iter().try_for_each(|section| put(&format!("{}.md", section.experiment.name), markdown::table(section)))
}

#[cfg(test)]
mod tests;
