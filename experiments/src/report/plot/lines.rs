//! Which lines of a table are drawn: the systems of one row of settings, with the raw disk.

use super::super::{Cell, Part, Table, natural, push_new, words};
use super::MOST_LINES;
use crate::catalogue::Experiment;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub system: String,
    /// Position on the axis, and figure; in the order of positions. One figure only if the line is level.
    pub points: Vec<(usize, f64)>,
    /// Whether its figure is of no position: the raw disk's, with which all are compared.
    pub is_level: bool,
}

/// What a plot shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    pub metric: String,
    pub unit: String,
    pub axis: String,
    /// The parameters that all lines share, in words; empty if there are none.
    pub settings: String,
    pub ticks: Vec<String>,
    /// At most [`MOST_LINES`].
    pub lines: Vec<Line>,
    /// How many lines of this part only the table has.
    pub left_out: usize,
}

type Parameters = BTreeMap<String, String>;

/// A line before its positions are numbered: the system, the parameters besides the axis, figures by the axis' value.
struct Found<'a> {
    system: &'a str,
    settings: Parameters,
    points: Vec<(&'a str, f64)>,
    level: Option<f64>,
}

/// The plot of a part of a table: the settings with the most systems. None if no line has two points.
pub fn plot(table: &Table, experiment: &Experiment, part: &Part) -> Option<Plot> {
    let found = found(table, experiment.axis, part);
    let mut settings: Vec<&Parameters> = Vec::new();
    found.iter().filter(|line| line.points.len() > 1).for_each(|line| push_new(&mut settings, &line.settings));
    let with = |settings: &Parameters| found.iter().filter(|line| line.settings == *settings).count();
    let (_, settings) = settings.iter().enumerate().max_by_key(|(at, settings)| (with(settings), Reverse(*at)))?;
    let reference = reference(&found, experiment, settings);
    let mut shown: Vec<&Found<'_>> =
        found.iter().filter(|line| line.settings == **settings && !line.points.is_empty()).collect();
    shown.retain(|line| !reference.is_some_and(|reference| std::ptr::eq(reference, *line)));
    limit(&mut shown, MOST_LINES - usize::from(reference.is_some()));

    let mut ticks: Vec<&str> = Vec::new();
    shown.iter().flat_map(|line| &line.points).for_each(|(value, _)| push_new(&mut ticks, value));
    ticks.sort_by_key(|tick| natural(tick));
    let line = |line: &&Found<'_>| {
        let place = |(value, figure): &(&str, f64)| Some((ticks.iter().position(|tick| tick == value)?, *figure));
        let mut points: Vec<(usize, f64)> = line.points.iter().filter_map(place).collect();
        points.sort_by_key(|point| point.0);
        Line { system: line.system.to_owned(), points, is_level: false }
    };
    let level = reference.and_then(|line| {
        let figure = line.level.or(line.points.first().map(|(_, figure)| *figure))?;
        Some(Line { system: line.system.to_owned(), points: vec![(0, figure)], is_level: true })
    });
    let lines: Vec<Line> = level.into_iter().chain(shown.iter().map(line)).collect();
    Some(Plot {
        metric: table.metric.clone(),
        unit: table.unit.clone(),
        axis: experiment.axis.to_owned(),
        settings: if settings.is_empty() { String::new() } else { words(settings) },
        ticks: ticks.into_iter().map(str::to_owned).collect(),
        left_out: found.len() - lines.len(),
        lines,
    })
}

/// All lines of a part, in the order of columns and rows.
fn found<'a>(table: &'a Table, axis: &str, part: &Part) -> Vec<Found<'a>> {
    let mut found: Vec<Found<'a>> = Vec::new();
    for at in &part.columns {
        let system = table.columns[*at].system.as_str();
        for (parameters, cells) in part.rows.iter().map(|row| &table.rows[*row]) {
            let Some(Cell::Figure { summary, .. }) = cells.get(*at) else { continue };
            if !summary.median.is_finite() {
                continue;
            }
            let mut settings = parameters.clone();
            settings.remove(axis);
            let known = found.iter().position(|line| line.system == system && line.settings == settings);
            let at = known.unwrap_or(found.len());
            if known.is_none() {
                found.push(Found { system, settings, points: Vec::new(), level: None });
            }
            match parameters.get(axis) {
                Some(value) => found[at].points.push((value, summary.median)),
                None => found[at].level = Some(summary.median),
            }
        }
    }
    found
}

/// The raw disk's line, if it has one figure for the whole axis.
fn reference<'a, 'b>(found: &'a [Found<'b>], experiment: &Experiment, of: &Parameters) -> Option<&'a Found<'b>> {
    let is_base = |line: &&Found<'_>| experiment.base.iter().all(|key| line.settings.get(*key) == of.get(*key));
    let is_one = |line: &&Found<'_>| line.points.len() + usize::from(line.level.is_some()) == 1;
    let mut raw = found.iter().filter(|line| line.system == "raw").filter(is_base);
    raw.find(is_one).filter(|_| !experiment.base.contains(&experiment.axis))
}

/// Leaves at most so many: those with the most points, and of lines with equally many all or none, unless that leaves none.
fn limit(lines: &mut Vec<&Found<'_>>, most: usize) {
    if lines.len() <= most {
        return;
    }
    let mut counts: Vec<usize> = lines.iter().map(|line| line.points.len()).collect();
    counts.sort_by_key(|count| Reverse(*count));
    let above = counts[most];
    if counts[0] > above {
        lines.retain(|line| line.points.len() > above);
    }
    lines.truncate(most);
}
