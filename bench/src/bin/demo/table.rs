//! The table at the end: this run next to the document's figures.

use rowen_bench::published::{Chunk, NEWBIGIN_WITHOUT, VAN_DOK, speed};
use std::fmt::Write;
use std::time::Duration;

/// One chunk size: every measured time, those of a round at the same place in `without` and `with`.
pub struct Row {
    pub without: Vec<Duration>,
    pub with: Vec<Duration>,
    pub on_snapshot: Vec<Duration>,
    pub document: Chunk,
}

impl Row {
    pub fn new(document: &Chunk) -> Row {
        Row { without: Vec::new(), with: Vec::new(), on_snapshot: Vec::new(), document: *document }
    }

    /// The ratio of each round.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.without.iter().zip(&self.with);
        pairs.map(|(without, with)| without.as_secs_f64() / with.as_secs_f64()).collect()
    }
}

fn seconds(times: &[Duration]) -> f64 {
    median(times.iter().map(Duration::as_secs_f64).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The least and the most, when there are several.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    if values.len() > 1 { format!("{least:.2}-{most:.2}") } else { String::new() }
}

/// The table. Ratios are speeds against the speed without a snapshot: 1.00 is no loss.
pub fn render(rows: &[Row], rounds: usize) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        let _infallible = writeln!(text, "{}", words.trim_end());
    };
    line(String::new());
    line("dd if=/dev/zero of=/scratch/moo bs=1M count=1000; sync    seconds, and speed against \"without\"".into());
    line(String::new());
    line(format!("       | {:^50} | {:^36}", "this run", "LVM2, in the document (Newbigin)"));
    line(format!(
        " chunk | {:>7} {:>12} {:>11}  {:>16} | {:>7} {:>12} {:>15}",
        "without", "with", "of rounds", "on the snapshot", "without", "with", "on the snapshot"
    ));
    line(format!("{:-<7}+{:-<52}+{:-<37}", "", "", ""));
    let mut all: (Vec<Duration>, Vec<Duration>, Vec<f64>) = Default::default();
    for row in rows {
        let ratios = row.ratios();
        let (without, with, on) = (seconds(&row.without), seconds(&row.with), seconds(&row.on_snapshot));
        let here = format!(
            "{without:>7.2} {with:>6.2} {:>4.2}x {:>11}  {on:>10.2} {:>4.2}x",
            median(ratios.clone()),
            spread(&ratios),
            without / on
        );
        let there = &row.document;
        line(format!(
            "{:>6} | {here:<50} | {:>7.0} {:>6.0} {:>4.2}x {:>9.0} {:>4.2}x",
            there.size,
            NEWBIGIN_WITHOUT,
            there.with,
            NEWBIGIN_WITHOUT / there.with,
            there.on_snapshot,
            NEWBIGIN_WITHOUT / there.on_snapshot
        ));
        all.0.extend(&row.without);
        all.1.extend(&row.with);
        all.2.extend(ratios);
    }
    line(String::new());
    line("              without     with    ratio    (MB/s)".to_string());
    let mut compared = |who: &str, without: f64, with: f64, ratio: f64, what: &str| {
        line(format!("{who:<13}{:>8.0} {:>8.1} {ratio:>7.2}x    {what}", speed(without), speed(with)));
    };
    compared("this run", seconds(&all.0), seconds(&all.1), median(all.2), "medians of all chunk sizes");
    for machine in VAN_DOK {
        let what = format!("{}, {}", machine.name, machine.kernel);
        compared("van Dok 2009", machine.without, machine.with, machine.without / machine.with, &what);
    }
    line(String::new());
    let times = if rounds == 1 {
        "Measured once.".into()
    } else {
        format!(
            "Measured {rounds} times in turn, the snapshot's own column once: medians, and the least and most ratio."
        )
    };
    line(times);
    line(
        "After every write a checksum proved that the snapshot (the origin, for writes on the snapshot) still held"
            .into(),
    );
    line("the old content. The group was checked at the end.".into());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowen_bench::published::NEWBIGIN_CHUNKS;

    #[test]
    fn ratios_are_of_rounds_and_the_documents_figures_stand_beside() {
        let mut row = Row::new(&NEWBIGIN_CHUNKS[0]);
        // The weather doubled both times of the second round.
        row.without = [1.0, 2.0, 1.0].map(Duration::from_secs_f64).to_vec();
        row.with = [1.25, 2.0, 1.0].map(Duration::from_secs_f64).to_vec();
        row.on_snapshot = vec![Duration::from_secs(2)];
        let text = render(&[row], 3);
        let found = text.lines().find(|line| line.starts_with("    4k |")).unwrap();
        let words: Vec<&str> = found.split_whitespace().collect();
        let wanted = "4k | 1.00 1.25 1.00x 0.80-1.00 2.00 0.50x | 5 625 0.01x 179 0.03x";
        assert_eq!(words.join(" "), wanted);
        assert!(text.contains("CentOS 5") && text.contains("3 times"), "{text}");
    }
}
