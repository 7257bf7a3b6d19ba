//! Plots as SVG: drawn by the library plotters, in colours that follow the reader's light or dark mode.
//!
//! Promises: at most [`MOST_LINES`] lines in a plot; ticks are round; a line's name stands at its end, and names do not
//! overlap; figures that are not finite are in no plot; every colour is one of the [`palette`].

pub mod bars;
pub mod chart;
pub mod labels;
pub mod lines;
pub mod palette;
pub mod ticks;

use crate::command::Result;
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::Text;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, TextStyle};

/// More lines than these are left to the table.
pub const MOST_LINES: usize = 5;

/// Units of a plot's width. A plot is shown 340 to 512 CSS pixels wide, on phones and large screens: so that a text of
/// [`FONT`] units has 11 to 17 pixels.
pub const WIDTH: u32 = 760;
/// The height of letters, and of a line of text, in units.
pub const FONT: u32 = 25;
pub const TEXT_LINE: u32 = 31;
/// Units of a letter on average.
pub const LETTER: f64 = 0.55 * FONT as f64;

/// Units that a text takes at most, in the fonts that browsers have for sans-serif: the widest of them is DejaVu Sans.
pub fn width(text: &str) -> u32 {
    let wide = text.chars().filter(|c| matches!(c, 'm' | 'w' | 'M' | 'W')).count() as u32;
    (text.chars().count() as u32 * 25 + wide * 12) * FONT / 40
}

/// Where plots are drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// How a text is written. The library divides sizes by 1.24 for SVG.
pub fn text(colour: palette::Colour, h: HPos, v: VPos) -> TextStyle<'static> {
    let size = f64::from(FONT) * 1.24;
    let mut style = TextStyle::from(("sans-serif", size));
    style.color = colour.light().to_backend_color();
    style.pos = Pos::new(h, v);
    style
}

/// Writes one line of text at a place of the area, in units.
pub fn write(area: &Area<'_>, words: &str, at: (i32, i32), style: TextStyle<'_>) -> Result {
    area.draw(&Text::new(words, at, style)).map_err(failed)
}

/// A picture of the given height in units, and the name by which programs read it aloud.
pub fn picture(height: u32, name: &str, draw: impl FnOnce(&Area<'_>) -> Result) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root)?;
        root.present().map_err(|e| format!("cannot draw \"{name}\": {e}"))?;
    }
    let (_, shapes) = svg.split_once('>').ok_or_else(|| format!("cannot draw \"{name}\": the library wrote no SVG"))?;
    let opening = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" role=\"img\" aria-label=\"{}\">",
        super::html::escape(name)
    );
    // Every shape repeats these defaults.
    Ok(opening + &shapes.replace(" opacity=\"1\"", "").replace(" font-family=\"sans-serif\"", "").replace(" \"", "\""))
}

/// An error of the library's as a sentence.
pub fn failed(e: impl std::fmt::Display) -> String {
    format!("cannot draw a plot: {e}")
}

#[cfg(test)]
mod tests;
