//! Medians, spread, and whether two sets of rounds differ by more than their noise.

/// What is said of a series: its middle and how far its rounds lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub rounds: usize,
}

impl Summary {
    /// None without values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        Some(Summary { median: middle(&sorted), least, most, rounds: sorted.len() })
    }
}

/// The middle value of sorted ones, or the mean of the two in the middle.
fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

pub fn median(values: &[f64]) -> f64 {
    Summary::of(values).map_or(f64::NAN, |summary| summary.median)
}

/// How two revisions compare in one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Noise,
    Up,
    Down,
}

/// A change counts when the medians lie further apart than `least` (a share, 0.1 for a tenth) and further than the rounds
/// of either side scatter: three times the median distance from the median, of the side that scatters more; and when no more
/// than one in twenty pairs of rounds says the opposite, so that few rounds must lie apart altogether.
pub fn change(before: &[f64], after: &[f64], least: f64) -> Change {
    let (Some(b), Some(a)) = (Summary::of(before), Summary::of(after)) else { return Change::Noise };
    let scatter = |values: &[f64], middle: f64| median(&values.iter().map(|v| (v - middle).abs()).collect::<Vec<_>>());
    let noise = 3.0 * scatter(before, b.median).max(scatter(after, a.median));
    let difference = a.median - b.median;
    let pairs = before.iter().flat_map(|b| after.iter().map(move |a| a - b));
    let opposite = pairs.filter(|found| found * difference <= 0.0).count();
    if opposite * 20 > before.len() * after.len() {
        return Change::Noise;
    }
    if difference.abs() <= noise || difference.abs() <= least * b.median.abs() {
        Change::Noise
    } else if difference > 0.0 {
        Change::Up
    } else {
        Change::Down
    }
}

/// Three significant digits, or a whole number.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "-".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        v if v >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let of = |values: &[f64]| Summary::of(values).unwrap();
        assert_eq!(of(&[3.0, 1.0, 2.0]), Summary { median: 2.0, least: 1.0, most: 3.0, rounds: 3 });
        assert_eq!(of(&[4.0, 1.0]).median, 2.5);
        assert_eq!(of(&[4.0, f64::NAN]).rounds, 1);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn only_what_exceeds_the_noise_is_a_change() {
        let calm = [100.0, 101.0, 99.0, 100.0, 100.5];
        assert_eq!(change(&calm, &[130.0, 131.0, 129.0, 130.0, 130.0], 0.1), Change::Up);
        assert_eq!(change(&calm, &[70.0, 71.0, 70.0, 69.0, 70.0], 0.1), Change::Down);
        // Less than a tenth, and within what the rounds scatter.
        assert_eq!(change(&calm, &[105.0, 105.0, 105.0, 105.0, 105.0], 0.1), Change::Noise);
        assert_eq!(change(&[60.0, 140.0, 100.0, 80.0, 120.0], &[130.0; 5], 0.1), Change::Noise);
        assert_eq!(change(&[], &calm, 0.1), Change::Noise);
        // The medians lie far apart and most rounds near them, but one of few on each side says the opposite.
        assert_eq!(change(&[100.0, 101.0, 99.0, 140.0], &[130.0, 131.0, 129.0, 90.0], 0.1), Change::Noise);
    }

    #[test]
    fn numbers_have_three_digits() {
        let text: Vec<_> = [1234.5, 12.34, 1.234, 0.0123, 0.000_123, f64::NAN, 0.0].map(number).into();
        assert_eq!(text, ["1234", "12.3", "1.23", "0.012", "0.00012", "-", "0.00"]);
    }
}
