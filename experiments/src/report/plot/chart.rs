//! Draws lines over an axis of named positions.

use super::labels::{Along, along, spread};
use super::lines::{Line, Plot};
use super::palette::Colour;
use super::ticks::{Scale, words};
use super::{Area, FONT, LETTER, TEXT_LINE, WIDTH, failed, picture, text, width, write};
use crate::command::Result;
use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement, Polygon};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor, TRANSPARENT};

/// Units of the part with the lines, from top to bottom.
const BODY: u32 = 340;
/// Free units around texts.
const GAP: u32 = 10;
/// Half of a mark's width.
const MARK: i32 = 8;

/// Where things are, in units of the picture.
struct Frame {
    top: u32,
    left: u32,
    right: u32,
    height: u32,
}

/// The units of a place on the axis (0 to the number of positions) and of a figure.
type Place<'a> = &'a dyn Fn(f64, f64) -> (i32, i32);

/// The plot as SVG. None if no figure is above zero.
pub fn draw(plot: &Plot) -> Result<Option<String>> {
    let figures: Vec<f64> = plot.lines.iter().flat_map(|line| &line.points).map(|point| point.1).collect();
    let Some(scale) = Scale::of(&figures) else { return Ok(None) };
    let ticks = scale.ticks.iter().map(|tick| width(&words(*tick)));
    let left = 3 * GAP / 2 + ticks.max().unwrap_or_default();
    let right = 4 * GAP + plot.lines.iter().map(|line| width(&line.system)).max().unwrap_or_default();
    let inner = WIDTH.saturating_sub(left + right).max(WIDTH / 4);
    let slot = f64::from(inner) / plot.ticks.len().max(1) as f64 / LETTER;
    let along = along(&plot.ticks, slot);
    let rows = along.lines.iter().map(Vec::len).max().unwrap_or_default() * along.rows + 1;
    let top = TEXT_LINE + GAP + FONT / 2;
    let frame = Frame { top, left, right, height: top + BODY + 2 * GAP + rows as u32 * TEXT_LINE };
    let systems: Vec<&str> = plot.lines.iter().map(|line| line.system.as_str()).collect();
    let name = format!("{} in {} by {}: {}", plot.metric, plot.unit, plot.axis, systems.join(", "));
    picture(frame.height, &name, |root| body(root, plot, &scale, &along, &frame)).map(Some)
}

fn body(root: &Area<'_>, plot: &Plot, scale: &Scale, along: &Along, frame: &Frame) -> Result {
    let unit = if plot.unit.is_empty() { &plot.metric } else { &plot.unit };
    let kind = if scale.is_log { ", logarithmic" } else { "" };
    write(root, &format!("{unit}{kind}"), (0, FONT as i32 / 4), text(Colour::Ink, HPos::Left, VPos::Top))?;
    let mut chart = ChartBuilder::on(root)
        .margin_top(frame.top)
        .margin_right(frame.right)
        .margin_bottom(frame.height - frame.top - BODY)
        .y_label_area_size(frame.left)
        .build_cartesian_2d(0.0..plot.ticks.len().max(1) as f64, scale.clone())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .axis_style(TRANSPARENT)
        .bold_line_style(Colour::Grid.light().stroke_width(2))
        .y_label_style(text(Colour::Ink, HPos::Right, VPos::Center))
        .draw()
        .map_err(failed)?;
    let place = |x: f64, y: f64| chart.backend_coord(&(x, y));
    for line in &plot.lines {
        trace(root, line, plot, &spots(line, plot, &place))?;
    }
    names(root, plot, frame, &place)?;
    axis(root, plot, along, frame, &|x| place(x, scale.ticks[0]).0)
}

/// Where a line's points are. A level line goes from end to end.
fn spots(line: &Line, plot: &Plot, place: Place<'_>) -> Vec<(i32, i32)> {
    let figure = line.points.first().map_or(0.0, |point| point.1);
    match line.is_level {
        true => vec![place(0.0, figure), place(plot.ticks.len() as f64, figure)],
        false => line.points.iter().map(|(at, figure)| place(*at as f64 + 0.5, *figure)).collect(),
    }
}

/// A line with a mark at each point. Marks have shapes of their own, for readers who see no difference between colours.
fn trace(root: &Area<'_>, line: &Line, plot: &Plot, spots: &[(i32, i32)]) -> Result {
    let colour = Colour::of(&line.system);
    let way = |spots: &[(i32, i32)], thickness: u32| {
        let style = colour.light().stroke_width(thickness);
        let way = (spots.len() > 1).then(|| PathElement::new(spots.to_vec(), style));
        way.map_or(Ok(()), |way| root.draw(&way).map_err(failed))
    };
    if line.is_level {
        return way(spots, 2);
    }
    // Between positions that have no order there is nothing that a line could mean.
    let is_number = |point: &(usize, f64)| plot.ticks.get(point.0).is_some_and(|tick| tick.contains(char::is_numeric));
    let mut from = 0;
    for part in line.points.chunk_by(|a, b| is_number(a) && is_number(b)) {
        way(&spots[from..from + part.len()], 4)?;
        from += part.len();
    }
    spots.iter().try_for_each(|spot| mark(root, colour, *spot))
}

fn mark(root: &Area<'_>, colour: Colour, (x, y): (i32, i32)) -> Result {
    let (fill, m): (RGBColor, i32) = (colour.light(), MARK);
    let polygon = |corners: &[(i32, i32)]| {
        let corners: Vec<(i32, i32)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        root.draw(&Polygon::new(corners, fill)).map_err(failed)
    };
    match colour {
        Colour::Orange => polygon(&[(-m, -m), (m, -m), (m, m), (-m, m)]),
        Colour::Ochre => polygon(&[(-m, m), (m, m), (0, -m)]),
        Colour::Purple => polygon(&[(-m, -m), (m, -m), (0, m)]),
        Colour::Green => polygon(&[(0, -m - 2), (m + 2, 0), (0, m + 2), (-m - 2, 0)]),
        Colour::Grey => root.draw(&Circle::new((x, y), m, fill.stroke_width(3))).map_err(failed),
        _ => root.draw(&Circle::new((x, y), m, fill.filled())).map_err(failed),
    }
}

/// The systems' names at the right ends of their lines, each with a thin line to its last point if that is elsewhere.
fn names(root: &Area<'_>, plot: &Plot, frame: &Frame, place: Place<'_>) -> Result {
    let ends: Vec<(i32, i32)> =
        plot.lines.iter().map(|line| spots(line, plot, place).last().copied().unwrap_or_default()).collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| f64::from(*y)).collect();
    let (top, bottom) = (f64::from(frame.top - FONT / 2), f64::from(frame.top + BODY + FONT / 2));
    let places = spread(&wanted, f64::from(TEXT_LINE), top, bottom);
    let x = (WIDTH - frame.right + 3 * GAP) as i32;
    for ((line, end), y) in plot.lines.iter().zip(ends).zip(places) {
        let (colour, y) = (Colour::of(&line.system), y.round() as i32);
        let from = (end.0 + MARK + 3, end.1);
        let way = vec![from, ((x - 20).max(from.0), end.1), (x - 5, y)];
        root.draw(&PathElement::new(way, colour.light().stroke_width(1))).map_err(failed)?;
        write(root, &line.system, (x, y), text(colour, HPos::Left, VPos::Center))?;
    }
    Ok(())
}

/// The words below the lines: the positions, and of what they are.
fn axis(root: &Area<'_>, plot: &Plot, along: &Along, frame: &Frame, place: &dyn Fn(f64) -> i32) -> Result {
    let top = (frame.top + BODY + GAP) as i32;
    let style = || text(Colour::Ink, HPos::Center, VPos::Top);
    let deepest = along.lines.iter().map(Vec::len).max().unwrap_or_default();
    for (at, lines) in along.lines.iter().enumerate().step_by(along.every) {
        let x = place(at as f64 + 0.5);
        for (n, line) in lines.iter().enumerate() {
            let row = (at % along.rows) * deepest + n;
            write(root, line, (x, top + row as i32 * TEXT_LINE as i32), style())?;
        }
    }
    let middle = place(plot.ticks.len() as f64 / 2.0);
    write(root, &plot.axis, (middle, frame.height as i32 - TEXT_LINE as i32), style())
}
