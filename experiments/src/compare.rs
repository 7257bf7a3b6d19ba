//! Two runs in comparison: what changed beyond the noise. `make bench-compare REV` makes the runs.

use crate::catalogue;
use crate::command::Result;
use crate::measurement::{Measurement, Origin, Series, read_lines};
use crate::report::words;
use crate::stats::{Change, Summary, change, number};
use std::collections::BTreeMap;
use std::path::Path;

/// A change of less than a tenth is not reported.
const MIN: f64 = 0.1;

/// The compared values: timed or modelled figures of Rowen alone, with one copy and with two. If the same round has a raw disk, the values are
/// ratios to it, so that the machine's load cancels out.
fn values(lines: &[Measurement]) -> BTreeMap<&Series, Vec<f64>> {
    // The row of the raw disk that a row is compared with shares these of its parameters.
    let base = |s: &Series| -> Vec<Option<String>> {
        let keys = catalogue::find(&s.experiment).map_or(&[][..], |experiment| experiment.base);
        keys.iter().map(|key| s.parameters.get(*key).cloned()).collect()
    };
    let name = |line: &Measurement| {
        let s = &line.series;
        (s.experiment.clone(), s.place.clone(), s.metric.clone(), s.unit.clone(), base(s), line.round)
    };
    let is_raw = |line: &&Measurement| line.series.system == "raw" && line.series.origin == Origin::Measured;
    let raw: BTreeMap<_, f64> =
        lines.iter().filter(is_raw).filter_map(|line| Some((name(line), line.figure?))).collect();
    let mut values: BTreeMap<&Series, Vec<f64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| ["Rowen", "Rowen mirror"].contains(&&*line.series.system)) {
        let Some(figure) = line.figure else { continue };
        let s = &line.series;
        let of_raw = raw.get(&name(line)).copied();
        values.entry(s).or_default().push(figure / of_raw.filter(|_| s.origin == Origin::Measured).unwrap_or(1.0));
    }
    values
}

/// Whether more of it is better.
fn is_rate(unit: &str) -> bool {
    unit.ends_with("/s")
}

/// Whether nothing became worse beyond the noise.
pub fn main(files: &[String]) -> Result<bool> {
    // The same revision may have been measured several times, in turn with the other.
    let [before, after] = files else {
        return Err("two sets of files are wanted, each with commas between".to_owned());
    };
    let read = |list: &str| -> Result<Vec<Measurement>> {
        let mut all = Vec::new();
        for (n, path) in list.split(',').enumerate() {
            let lines = read_lines(Path::new(path))?;
            // Rounds of different runs are different rounds.
            all.extend(lines.into_iter().map(|line| Measurement { round: line.round + 1000 * n, ..line }));
        }
        Ok(all)
    };
    let (before, after) = (read(before)?, read(after)?);
    let (text, worse) = compare(&before, &after);
    print!("{text}");
    Ok(worse == 0)
}

fn compare(before: &[Measurement], after: &[Measurement]) -> (String, usize) {
    let (before, after) = (values(before), values(after));
    let (mut text, mut same, mut worse, mut better) = (String::new(), 0, 0, 0);
    for (series, old) in &before {
        let Some(new) = after.get(series) else {
            text += &format!("gone    {}\n", title(series));
            continue;
        };
        let verdict = match change(old, new, MIN) {
            Change::Noise => {
                same += 1;
                continue;
            }
            up_or_down if (up_or_down == Change::Up) == is_rate(&series.unit) => {
                better += 1;
                "better"
            }
            _ => {
                worse += 1;
                "WORSE "
            }
        };
        if let (Some(old), Some(new)) = (Summary::of(old), Summary::of(new)) {
            let by = (new.median / old.median - 1.0) * 100.0;
            text += &format!(
                "{verdict}  {}: {} ({} to {}) is now {} ({} to {}), {by:+.0} %\n",
                title(series),
                number(old.median),
                number(old.least),
                number(old.most),
                number(new.median),
                number(new.least),
                number(new.most)
            );
        }
    }
    for series in after.keys().filter(|series| !before.contains_key(*series)) {
        text += &format!("new     {}\n", title(series));
    }
    text += &format!("{same} figures within the noise, {better} better, {worse} worse\n");
    (text, worse)
}

fn title(series: &Series) -> String {
    format!("{}, {}, {} ({})", series.experiment, series.place, series.metric, words(&series.parameters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Run, parameters};

    fn lines(system: &str, unit: &str, figures: &[f64]) -> Vec<Measurement> {
        let series = Series {
            experiment: "e".into(),
            origin: Origin::Measured,
            metric: "write".into(),
            unit: unit.into(),
            system: system.into(),
            place: "host".into(),
            parameters: parameters(&[]),
        };
        let line = |(round, figure): (usize, &f64)| Measurement {
            question: String::new(),
            series: series.clone(),
            figure: Some(*figure),
            reason: None,
            round,
            run: Run::default(),
        };
        figures.iter().enumerate().map(line).collect()
    }

    #[test]
    fn slower_is_worse_and_so_is_less() {
        let calm = [10.0, 10.1, 9.9];
        let (slow, fast) = ([20.0, 20.1, 19.9], [5.0, 5.1, 4.9]);
        assert_eq!(compare(&lines("Rowen", "ms", &calm), &lines("Rowen", "ms", &slow)).1, 1);
        assert_eq!(compare(&lines("Rowen", "MB/s", &calm), &lines("Rowen", "MB/s", &fast)).1, 1);
        assert_eq!(compare(&lines("Rowen", "MB/s", &calm), &lines("Rowen", "MB/s", &slow)).1, 0);
        assert_eq!(compare(&lines("Rowen", "ms", &calm), &lines("Rowen", "ms", &calm)).1, 0);
    }

    #[test]
    fn weather_that_the_raw_disk_has_too_cancels_out() {
        let run = |by: f64| {
            let mut all = lines("raw", "MB/s", &[100.0 * by, 101.0 * by, 99.0 * by]);
            all.extend(lines("Rowen", "MB/s", &[90.0 * by, 91.0 * by, 89.0 * by]));
            all
        };
        let (text, worse) = compare(&run(1.0), &run(0.3));
        assert_eq!(worse, 0, "{text}");
        assert!(text.contains("1 figures within the noise"), "{text}");
        let (text, _) = compare(&run(1.0), &[]);
        assert!(text.contains("gone"), "{text}");
        // Only with the raw row of the same kind: that of another kind did not change.
        let kinds = |by: f64| {
            let of = |size: &str, all: Vec<Measurement>| {
                let size = parameters(&[("size", size), ("path", "raw"), ("write", "random")]);
                all.into_iter().map(move |line| {
                    let parameters = size.clone();
                    let series = Series { experiment: "hp-ux".into(), parameters, ..line.series };
                    Measurement { series, ..line }
                })
            };
            let small = of("8k", run(by)).collect::<Vec<_>>();
            small.into_iter().chain(of("2048k", run(1.0))).collect::<Vec<_>>()
        };
        let (text, worse) = compare(&kinds(1.0), &kinds(0.3));
        assert_eq!(worse, 0, "{text}");
        assert!(text.contains("2 figures within the noise"), "{text}");
    }
}
