//! A plot as inline SVG: lines over the values of one parameter, on a logarithmic scale where the figures span much.

use super::{Cell, Part, Table, natural};
use crate::stats::number;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 28.0;

/// Colours that differ for the colour-blind, one for each system.
const COLOURS: [(&str, &str); 5] = [
    ("raw", "#767676"),
    ("LVM classic", "#d55e00"),
    ("LVM thin", "#b8860b"),
    ("LVM raid1", "#8e5aa8"),
    ("Rowen", "#0072b2"),
];

/// One line of a plot.
pub struct Line {
    pub name: String,
    pub colour: &'static str,
    /// Dashes distinguish the lines of one system.
    pub dash: usize,
    /// Position on the axis and figure. A line without an axis has one figure for all positions.
    pub points: Vec<(usize, f64)>,
    pub level: bool,
}

/// The lines of a part of a table, and the names along the axis.
pub fn lines(table: &Table, axis: &str, part: &Part) -> (Vec<Line>, Vec<String>) {
    let mut ticks: Vec<String> = Vec::new();
    for (parameters, _) in part.rows.iter().map(|row| &table.rows[*row]) {
        if let Some(value) = parameters.get(axis) {
            super::push_new(&mut ticks, value.clone());
        }
    }
    ticks.sort_by_key(|tick| natural(tick));
    let mut lines: Vec<Line> = Vec::new();
    let mut dashes: BTreeMap<&str, usize> = BTreeMap::new();
    for at in &part.columns {
        let column = &table.columns[*at];
        for (parameters, cells) in part.rows.iter().map(|row| &table.rows[*row]) {
            let Some(Cell::Figure { summary, .. }) = cells.get(*at) else { continue };
            let rest: Vec<String> =
                parameters.iter().filter(|(k, _)| *k != axis).map(|(k, v)| format!("{k} {v}")).collect();
            let mut name = column.system.clone();
            if !rest.is_empty() {
                name = format!("{name}, {}", rest.join(", "));
            }
            let position = parameters.get(axis).and_then(|value| ticks.iter().position(|tick| tick == value));
            let level = position.is_none();
            let point = (position.unwrap_or(0), summary.median);
            match lines.iter_mut().find(|line| line.name == name && line.level == level) {
                Some(line) => line.points.push(point),
                None => {
                    let dash = dashes.entry(&column.system).or_default();
                    let known = COLOURS.iter().find(|(system, _)| *system == column.system);
                    let colour = known.map_or("#333333", |(_, colour)| colour);
                    lines.push(Line { name, colour, dash: *dash, points: vec![point], level });
                    *dash += 1;
                }
            }
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by_key(|point| point.0));
    (lines, ticks)
}

/// The plot, with its legend as text under it. Empty when there is nothing to draw.
#[expect(clippy::too_many_lines, reason = "one picture, drawn from top to bottom")]
pub fn plot(table: &Table, axis: &str, part: &Part) -> String {
    let (lines, ticks) = lines(table, axis, part);
    let figures: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|p| p.1).filter(|v| *v > 0.0).collect();
    let (Some(least), Some(most)) =
        (figures.iter().copied().reduce(f64::min), figures.iter().copied().reduce(f64::max))
    else {
        return String::new();
    };
    let is_log = most / least > 12.0;
    let (low, high) =
        if is_log { (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil())) } else { (0.0, most * 1.08) };
    let y = |value: f64| {
        let share = if is_log {
            (value.max(low).log10() - low.log10()) / (high.log10() - low.log10()).max(1e-9)
        } else {
            value / high
        };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let slots = ticks.len().max(1) as f64;
    let x = |position: usize| LEFT + (position as f64 + 0.5) * (WIDTH - LEFT - RIGHT) / slots;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        super::html::escape(&format!("{} in {} by {axis}", table.metric, table.unit))
    );
    let marks: Vec<f64> = match is_log {
        true => (low.log10().round() as i32..=high.log10().round() as i32).map(|power| 10f64.powi(power)).collect(),
        false => (0..=4).map(|n| high * f64::from(n) / 4.0).collect(),
    };
    for mark in marks {
        let at = y(mark);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(mark)
        );
    }
    for (position, tick) in ticks.iter().enumerate() {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(position),
            HEIGHT - 8.0,
            super::html::escape(tick)
        );
    }
    for line in &lines {
        let style = format!("stroke=\"{}\" stroke-dasharray=\"{}\"", line.colour, dashes(line.dash));
        if line.level || (line.points.len() == 1 && ticks.is_empty()) {
            let at = y(line.points[0].1);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" {style} stroke-width=\"1.5\"/>",
                WIDTH - RIGHT
            );
            continue;
        }
        let points: Vec<String> = line.points.iter().map(|(at, v)| format!("{:.1},{:.1}", x(*at), y(*v))).collect();
        let _ = write!(out, "<polyline points=\"{}\" fill=\"none\" {style} stroke-width=\"2\"/>", points.join(" "));
        for (at, value) in &line.points {
            let _ =
                write!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{}\"/>", x(*at), y(*value), line.colour);
        }
    }
    out += &legend(&lines);
    let scale = if is_log { "; the scale is logarithmic" } else { "" };
    let _ = write!(out, "</ul><p class=\"axis\">{} in {} by {axis}{scale}</p>", table.metric, table.unit);
    out
}

fn legend(lines: &[Line]) -> String {
    let mut out = String::from("</svg><ul class=\"legend\">");
    for line in lines {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 34 8\" class=\"key\" aria-hidden=\"true\"><line x1=\"0\" x2=\"34\" y1=\"4\" y2=\"4\" \
             stroke=\"{}\" stroke-dasharray=\"{}\" stroke-width=\"2.5\"/></svg> {}</li>",
            line.colour,
            dashes(line.dash),
            super::html::escape(&line.name)
        );
    }
    out
}

fn dashes(n: usize) -> &'static str {
    ["none", "7 4", "2 3", "10 3 2 3", "4 2", "1 2", "12 4", "6 2 2 2"][n % 8]
}
