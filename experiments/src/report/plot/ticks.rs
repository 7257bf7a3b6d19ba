//! Scales with round ticks, which the library draws.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// Figures further apart than this are drawn on a logarithmic scale.
const MOST_LINEAR: f64 = 12.0;
/// No scale has more ticks.
const MOST_TICKS: usize = 6;

/// Figures that differ by so small a share are equal: powers of ten are not exact.
const NEAR: f64 = 1e-9;

/// A part of the numbers as an axis has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    pub is_log: bool,
    /// Rising; the first and the last are the ends of the scale. There are at least two.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// Holds all figures that are finite. None if there are none, or none above zero.
    pub fn of(figures: &[f64]) -> Option<Scale> {
        let finite = || figures.iter().copied().filter(|figure| figure.is_finite());
        let (least, most) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
        if most <= 0.0 {
            return None;
        }
        let is_log = least > 0.0 && most / least > MOST_LINEAR;
        let ticks = if is_log { powers(least, most) } else { steps(least.min(0.0), most) };
        Some(Scale { is_log, ticks })
    }

    fn ends(&self) -> (f64, f64) {
        let first = self.ticks.first().copied().unwrap_or_default();
        (first, self.ticks.last().copied().unwrap_or(first))
    }

    /// Where a figure is between the ends: 0 to 1.
    fn share(&self, figure: f64) -> f64 {
        let place = |figure: f64| if self.is_log { figure.log10() } else { figure };
        let (first, last) = self.ends();
        (place(figure) - place(first)) / (place(last) - place(first))
    }
}

/// The library asks a scale for its ticks and for places.
impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        first + (f64::from(last - first) * self.share(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // There are no ticks without words.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        let (first, last) = self.ends();
        first..last
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(tick: &f64) -> String {
        words(*tick)
    }
}

/// Multiples of 1, 2, 2.5 or 5 times a power of ten, which hold both figures.
fn steps(least: f64, most: f64) -> Vec<f64> {
    let rough = (most - least) / (MOST_TICKS - 1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0, 20.0];
    let all = |step: f64| {
        let (first, last) = ((least / step).floor() as i64, (most / step - NEAR).ceil() as i64);
        (first..=last).map(|n| n as f64 * step).collect::<Vec<_>>()
    };
    let fitting = factors.iter().map(|factor| all(factor * power)).find(|ticks| ticks.len() <= MOST_TICKS);
    fitting.unwrap_or_else(|| vec![least, most])
}

/// Powers of ten around both figures; between them 2 and 5 times those, if there is room.
fn powers(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let fine = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)));
    let below = fine.clone().filter(|tick| *tick <= least * (1.0 + NEAR)).count().max(1) - 1;
    let fine: Vec<f64> = fine.skip(below).collect();
    let above = fine.iter().position(|tick| *tick >= most * (1.0 - NEAR)).unwrap_or(fine.len() - 1);
    if above < MOST_TICKS {
        return fine[..=above].to_vec();
    }
    let stride = (last - first) as usize / MOST_TICKS + 1;
    let last = first + ((last - first) as usize).next_multiple_of(stride) as i32;
    (first..=last).step_by(stride).map(|power| 10f64.powi(power)).collect()
}

/// A tick in words: no more digits than it has, thousands apart.
pub fn words(tick: f64) -> String {
    let decimals = if tick == 0.0 { 0 } else { (2 - tick.abs().log10().floor() as i32).max(0) as usize };
    let text = format!("{tick:.decimals$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let rest = rest.trim_end_matches('0');
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = sign.to_owned();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 && digits.len() > 4 {
            out.push(',');
        }
        out.push(digit);
    }
    if rest.is_empty() { out } else { format!("{out}.{rest}") }
}
