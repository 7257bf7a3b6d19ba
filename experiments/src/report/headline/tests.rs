use super::*;
use crate::measurement::{self, Run, parameters};
use std::path::Path;

fn line(
    experiment: &str,
    system: &str,
    metric: &str,
    pairs: &[(&str, &str)],
    round: usize,
    figure: f64,
) -> Measurement {
    let (origin, place) = match experiment {
        "byrne" => (Origin::Modelled, BARRACUDA_ES.name),
        _ => (Origin::Measured, "host"),
    };
    let series = Series {
        experiment: experiment.into(),
        origin,
        metric: metric.into(),
        unit: "MB/s".into(),
        system: system.into(),
        place: place.into(),
        parameters: parameters(pairs),
    };
    Measurement { question: String::new(), series, figure: Some(figure), reason: None, round, run: Run::default() }
}

/// A large write at a chunk size, without and with a snapshot.
fn pair(system: &str, chunk: &str, without: f64, with: f64) -> [Measurement; 2] {
    [("0", without), ("1", with)].map(|(snapshots, figure)| {
        line("byrne", system, "write", &[("chunk", chunk), ("snapshots", snapshots)], 0, figure)
    })
}

/// The bars of a question by their systems, and the settings.
fn bars(lines: &[Measurement], question: usize) -> Vec<(&'static str, String, String)> {
    let (_, bars) = &of(lines).panels[question];
    bars.iter().map(|bar| (bar.system, two(bar.share.median), bar.settings.clone())).collect()
}

#[test]
fn each_system_is_shown_at_its_best_chunk_size() {
    let mut lines = pair("LVM thin", "256k", 80.0, 20.0).to_vec();
    lines.extend(pair("LVM thin", "64k", 50.0, 40.0));
    lines.extend(pair("Rowen", "4k", 100.0, 99.0));
    let found = bars(&lines, 0);
    let expected = [("LVM thin", "0.80", "chunk 64k"), ("Rowen", "0.99", "chunk 4k")];
    assert_eq!(found, expected.map(|(system, share, settings)| (system, share.to_owned(), settings.to_owned())));
    let page = of(&lines).section().unwrap();
    assert!(page.contains("LVM thin 0.80 with chunk 64k, its best"), "{page}");
    assert!(page.contains("There is no figure of LVM classic: <code>make experiments EXPERIMENT=byrne"), "{page}");
}

#[test]
fn rounds_are_paired_and_their_spread_is_shown() {
    let mut lines = Vec::new();
    for (days, with, without) in [("0", 50.0, 100.0), ("5", 30.0, 100.0), ("10", 90.0, 100.0)] {
        let pairs = [("days", days), ("fill", "80")];
        lines.push(line("aging", "xfs reflink", "first pass", &pairs, 0, with));
        lines.push(line("aging", "xfs reflink", "in place", &pairs, 0, without));
    }
    // Of another round and of another day: no pair.
    lines.push(line("aging", "btrfs", "first pass", &[("days", "0")], 0, 5.0));
    lines.push(line("aging", "btrfs", "in place", &[("days", "0")], 1, 5.0));
    lines.push(line("aging", "btrfs", "in place", &[("days", "5")], 0, 5.0));
    assert_eq!(bars(&lines, 1), [("xfs reflink", "0.50".to_owned(), "days 0, 5, 10".to_owned())]);
    let page = of(&lines).section().unwrap();
    assert!(page.contains("xfs reflink 0.50 (0.30 to 0.90 in 3 pairs: days 0, 5, 10)"), "{page}");
    assert!(page.contains("There is no figure of btrfs:"), "{page}");
}

#[test]
fn what_is_no_speed_is_no_bar() {
    for (without, with) in [(0.0, 5.0), (5.0, 0.0), (f64::NAN, 5.0), (5.0, f64::INFINITY), (-5.0, 5.0)] {
        assert!(bars(&pair("Rowen", "4k", without, with), 0).is_empty(), "{without} and {with}");
    }
    let mut missing = pair("Rowen", "4k", 5.0, 5.0);
    missing[0].figure = None;
    assert!(bars(&missing, 0).is_empty());
    let mut elsewhere = pair("Rowen", "4k", 5.0, 5.0);
    elsewhere[1].series.place = "SATA SSD".into();
    assert!(bars(&elsewhere, 0).is_empty(), "figures of two places are no pair");
    assert!(bars(&pair("Rowen", "4k", 5.0, 4.0)[..1], 0).is_empty(), "one figure is no pair");
}

#[test]
fn without_figures_there_is_no_plot_and_the_page_says_what_to_run() {
    let none = of(&[]);
    assert_eq!(none.file(), Ok(None));
    let page = none.section().unwrap();
    assert!(page.contains("There are no figures for this plot.") && !page.contains("<svg"), "{page}");
    assert_eq!(page.matches("There is no figure of ").count(), 6, "{page}");
}

#[test]
fn the_file_stands_alone_in_both_modes() {
    let headline = of(&pair("Rowen", "4k", 100.0, 98.0));
    let file = headline.file().unwrap().unwrap();
    assert!(
        file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"520\" class=\"plot\" viewBox="),
        "{file}"
    );
    assert!(
        file.contains("prefers-color-scheme:dark") && file.contains("Rowen 0.98 (modelled, 7200 rpm disk)"),
        "{file}"
    );
    assert!(file.contains(">\n0.98\n<") && !file.contains("aging"), "{file}");
    assert!(!headline.section().unwrap().contains("xmlns"), "the page names no address");
}

#[test]
fn the_stored_picture_and_its_words_are_those_of_the_stored_measurements() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let stored = root.join("docs/experiments");
    let headline = of(&measurement::read_lines(&stored.join("measurements.jsonl")).unwrap());
    let picture = std::fs::read_to_string(stored.join(FILE)).unwrap();
    assert!(headline.file() == Ok(Some(picture)), "run `make experiments-report`");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let image = format!("![{}](docs/experiments/{FILE})", headline.sentence());
    assert!(readme.contains(&image), "README.md should show {image}");
}
