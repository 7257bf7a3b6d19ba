//! Draws shares as bars, one panel below another, on one scale.

use super::labels::wrap;
use super::palette::Colour;
use super::ticks::Scale;
use super::{Area, FONT, LETTER, TEXT_LINE, WIDTH, failed, picture, text, width, write};
use crate::command::Result;
use crate::stats::Summary;
use plotters::chart::ChartBuilder;
use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, FontStyle, TRANSPARENT, TextStyle};

/// Units of a bar with the room around it, and of half of the bar.
const ROW: u32 = 52;
const HALF: f64 = 0.36;
/// Share of a row between the bar and the line of its spread.
const SPREAD: f64 = 0.12;
/// Free units between panels.
const GAP: u32 = 24;
/// The share that costs nothing.
const ALL: f64 = 1.0;

/// Bars that may be compared with each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What is compared, and where: a sentence.
    pub head: String,
    /// A system, and its share of 1.
    pub bars: Vec<(String, Summary)>,
}

/// The panels as SVG, with a title above and the words of the scale below them. None if there are no bars.
pub fn draw(title: &str, below: &str, name: &str, panels: &[Panel]) -> Result<Option<String>> {
    let bars = || panels.iter().flat_map(|panel| &panel.bars);
    let Some(left) = bars().map(|(system, _)| width(system) + FONT / 2).max() else { return Ok(None) };
    let figures: Vec<f64> = bars().map(|(_, share)| share.most).chain([0.0, ALL]).collect();
    let Some(scale) = Scale::of(&figures) else { return Ok(None) };
    let letters = (f64::from(WIDTH) / LETTER) as usize;
    let (title, below) = (wrap(title, letters * 9 / 10), wrap(below, letters));
    let heads: Vec<Vec<String>> = panels.iter().map(|panel| wrap(&panel.head, letters)).collect();
    let lines = title.len() + below.len() + heads.iter().map(Vec::len).sum::<usize>() + 1;
    let rest: u32 = panels.iter().map(|panel| panel.bars.len() as u32 * ROW + GAP).sum();
    let height = lines as u32 * TEXT_LINE + rest + GAP + FONT / 4;
    let draw = |root: &Area<'_>| {
        let bold = |mut style: TextStyle<'static>| {
            style.font = style.font.style(FontStyle::Bold);
            style
        };
        let mut y = FONT / 4;
        paragraph(root, &title, &mut y, &|| bold(text(Colour::Ink, HPos::Left, VPos::Top)))?;
        for (n, (panel, head)) in panels.iter().zip(&heads).enumerate() {
            y += GAP / 2;
            paragraph(root, head, &mut y, &|| text(Colour::Ink, HPos::Left, VPos::Top))?;
            let rows = panel.bars.len() as u32 * ROW;
            let frame = Frame { top: y, left, bottom: height - y - rows, has_ticks: n + 1 == panels.len() };
            one(root, panel, &scale, &frame)?;
            y += rows + GAP / 2;
        }
        y += TEXT_LINE + GAP / 2;
        paragraph(root, &below, &mut y, &|| text(Colour::Ink, HPos::Left, VPos::Top))
    };
    picture(height, name, draw).map(Some)
}

/// Lines of text from a height on, which becomes that below them.
fn paragraph(root: &Area<'_>, lines: &[String], y: &mut u32, style: &dyn Fn() -> TextStyle<'static>) -> Result {
    for line in lines {
        write(root, line, (0, *y as i32), style())?;
        *y += TEXT_LINE;
    }
    Ok(())
}

/// Where a panel's bars are, in units of the picture.
struct Frame {
    top: u32,
    left: u32,
    /// Below the bars.
    bottom: u32,
    has_ticks: bool,
}

fn one(root: &Area<'_>, panel: &Panel, scale: &Scale, frame: &Frame) -> Result {
    let labels = if frame.has_ticks { TEXT_LINE + FONT / 2 } else { 0 };
    let count = panel.bars.len() as f64;
    let mut chart = ChartBuilder::on(root)
        .margin_top(frame.top)
        .margin_left(frame.left)
        .margin_right(width("0.00") + FONT / 2)
        .margin_bottom(frame.bottom - labels)
        .x_label_area_size(labels)
        .build_cartesian_2d(scale.clone(), 0.0..count)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .axis_style(TRANSPARENT)
        .bold_line_style(Colour::Grid.light().stroke_width(2))
        .x_label_style(text(Colour::Ink, HPos::Center, VPos::Top))
        .draw()
        .map_err(failed)?;
    let place = |x: f64, y: f64| chart.backend_coord(&(x, count - y));
    let all = PathElement::new(vec![place(ALL, 0.0), place(ALL, count)], Colour::Ink.light().stroke_width(2));
    root.draw(&all).map_err(failed)?;
    for (n, (system, share)) in panel.bars.iter().enumerate() {
        let middle = n as f64 + 0.5;
        let colour = Colour::of(system);
        let corners = [place(0.0, middle - HALF), place(share.median, middle + HALF - SPREAD)];
        root.draw(&Rectangle::new(corners, colour.light().filled())).map_err(failed)?;
        // Below the bar: across it, nobody would see it on dark colours.
        let (least, most) = (place(share.least, middle + HALF), place(share.most, middle + HALF));
        if share.rounds > 1 {
            root.draw(&PathElement::new(vec![least, most], Colour::Ink.light().stroke_width(4))).map_err(failed)?;
        }
        let y = corners[0].1.midpoint(corners[1].1);
        write(root, system, (frame.left as i32 - FONT as i32 / 2, y), text(colour, HPos::Right, VPos::Center))?;
        write(root, &two(share.median), (WIDTH as i32, y), text(Colour::Ink, HPos::Right, VPos::Center))?;
    }
    Ok(())
}

/// A share with two digits after the point.
pub fn two(share: f64) -> String {
    format!("{share:.2}")
}
