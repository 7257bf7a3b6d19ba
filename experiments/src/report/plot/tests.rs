use super::labels::{along, spread, wrap};
use super::lines::{Line, Plot, plot};
use super::palette::{Colour, PAPERS, style};
use super::ticks::Scale;
use super::*;
use crate::catalogue::{self, Experiment};
use crate::measurement::Origin;
use crate::report::{Cell, Column, Part, Table, parts};
use crate::stats::Summary;

#[test]
fn ticks_are_round_and_hold_all_figures() {
    let ticks = |figures: &[f64]| Scale::of(figures).map(|scale| (scale.is_log, scale.ticks));
    assert_eq!(ticks(&[15.0, 76.0]), Some((false, vec![0.0, 20.0, 40.0, 60.0, 80.0])));
    assert_eq!(ticks(&[3.0, 80.0]), Some((true, vec![2.0, 5.0, 10.0, 20.0, 50.0, 100.0])));
    assert_eq!(ticks(&[0.06, 9000.0]), Some((true, vec![0.01, 1.0, 100.0, 10_000.0])));
    // One figure has a scale, too; zero is on a scale that is not logarithmic.
    assert_eq!(ticks(&[7.0]), Some((false, vec![0.0, 2.0, 4.0, 6.0, 8.0])));
    assert_eq!(ticks(&[0.0, 5000.0]), Some((false, vec![0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0])));
    for nothing in [&[][..], &[0.0], &[f64::NAN], &[-1.0, 0.0], &[f64::INFINITY]] {
        assert_eq!(ticks(nothing), None, "{nothing:?}");
    }
    assert_eq!(ticks(&[f64::NAN, 7.0]), ticks(&[7.0]));
}

#[test]
fn every_scale_is_short_and_rises_past_its_figures() {
    for n in 0..4000 {
        let least = 10f64.powf(f64::from(n % 97) / 10.0 - 4.0);
        let most = least * 10f64.powf(f64::from(n % 41) / 5.0);
        let scale = Scale::of(&[least, most]).unwrap();
        let ticks = &scale.ticks;
        assert!((2..=6).contains(&ticks.len()), "{least} to {most}: {ticks:?}");
        assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{least} to {most}: {ticks:?}");
        assert!(ticks[0] <= least && ticks[ticks.len() - 1] >= most * (1.0 - 1e-9), "{least} to {most}: {ticks:?}");
    }
}

#[test]
fn ticks_in_words_have_no_needless_digits() {
    let words = |figures: &[f64]| {
        let scale = Scale::of(figures).unwrap();
        scale.ticks.iter().map(|tick| super::ticks::words(*tick)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words(&[0.3, 1.0]), "0 0.2 0.4 0.6 0.8 1");
    assert_eq!(words(&[12.5, 12.0]), "0 2.5 5 7.5 10 12.5");
    assert_eq!(words(&[0.9, 2.4]), "0 0.5 1 1.5 2 2.5");
    assert_eq!(words(&[0.002, 0.05]), "0.002 0.005 0.01 0.02 0.05");
    assert_eq!(words(&[9000.0, 130_000.0]), "5000 10,000 20,000 50,000 100,000 200,000");
}

#[test]
fn names_do_not_overlap_and_stay_near() {
    let apart = |places: &[f64], height: f64| {
        let mut sorted = places.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.windows(2).all(|pair| pair[1] - pair[0] >= height - 1e-9)
    };
    assert_eq!(spread(&[50.0, 10.0], 10.0, 0.0, 100.0), [50.0, 10.0]);
    assert_eq!(spread(&[50.0, 50.0], 10.0, 0.0, 100.0), [45.0, 55.0]);
    assert_eq!(spread(&[0.0, 0.0, 2.0], 10.0, 0.0, 100.0), [5.0, 15.0, 25.0]);
    assert_eq!(spread(&[100.0, 99.0], 10.0, 0.0, 100.0), [95.0, 85.0]);
    assert_eq!(spread(&[], 10.0, 0.0, 100.0), [0.0; 0]);
    for n in 0..1000u32 {
        let wanted: Vec<f64> = (0..5u32).map(|at| f64::from((n * 7919 + at * at * 104_729) % 101)).collect();
        let places = spread(&wanted, 20.0, 0.0, 100.0);
        assert!(apart(&places, 20.0), "{wanted:?} at {places:?}");
        assert!(places.iter().all(|place| (9.9..=90.1).contains(place)), "{wanted:?} at {places:?}");
    }
}

#[test]
fn words_along_an_axis_do_not_meet() {
    assert_eq!(wrap("its origin overwritten", 12), ["its origin", "overwritten"]);
    let ticks = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let found = along(&ticks(&["4k", "8k"]), 6.0);
    assert_eq!((found.rows, found.every), (1, 1));
    // "attempt" has no room in a slot of 6, but in two.
    let found = along(&ticks(&["attempt 1", "attempt 2"]), 6.0);
    assert_eq!((found.rows, found.every, found.lines[0].join("/")), (2, 1, "attempt 1".to_owned()));
    let found = along(&ticks(&["1000000", "2000000", "3000000"]), 3.0);
    assert_eq!((found.rows, found.every), (1, 3));
    assert_eq!(along(&[], 10.0), along(&[], 3.0));
}

/// The contrast of two colours as WCAG 2 defines it.
fn contrast(a: u32, b: u32) -> f64 {
    let luminance = |colour: u32| {
        let [_, red, green, blue] = colour.to_be_bytes().map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_can_be_read_on_light_and_on_dark_paper() {
    assert!(contrast(0x00_00_00, 0xFF_FF_FF) > 20.9, "the formula");
    for colour in Colour::ALL {
        for (value, paper) in colour.values().into_iter().zip(PAPERS) {
            let least = if colour == Colour::Grid { 1.3 } else { 4.5 };
            let found = contrast(value, paper);
            assert!(found >= least, "{colour:?}: #{value:06X} on #{paper:06X} has a contrast of {found:.2}");
        }
    }
}

/// Two colours as a reader without green cones, or without red ones, sees them (Viénot, Brettel, Mollon 1999), and their distance.
fn distance(a: u32, b: u32, is_protan: bool) -> f64 {
    let seen = |colour: u32| {
        let [_, red, green, blue] = colour.to_be_bytes().map(|part| (f64::from(part) / 255.0).powf(2.2));
        let yellow = if is_protan { 0.112 * red + 0.888 * green } else { 0.293 * red + 0.707 * green };
        let blue = if is_protan { 0.004 * (red - green) + blue } else { blue - 0.022 * (red - green) };
        [yellow, blue.max(0.0)].map(|part| part.powf(1.0 / 2.2))
    };
    let (a, b) = (seen(a), seen(b));
    (a[0] - b[0]).hypot(a[1] - b[1])
}

#[test]
fn systems_of_one_plot_differ_for_the_colour_blind() {
    let together = [
        &["raw", "LVM classic", "LVM thin", "Rowen"][..],
        &["raw", "btrfs", "xfs reflink", "Rowen"],
        &["LVM raid1", "mdadm raid1", "btrfs", "Rowen mirror"],
    ];
    for systems in together {
        for (n, one) in systems.iter().enumerate() {
            for other in &systems[n + 1..] {
                let (one, other) = (Colour::of(one), Colour::of(other));
                for paper in 0..2 {
                    for is_protan in [false, true] {
                        let found = distance(one.values()[paper], other.values()[paper], is_protan);
                        assert!(found > 0.1, "{one:?} and {other:?} on paper {paper}: {found:.3}");
                    }
                }
            }
        }
    }
}

/// The colours that an SVG has, as the library writes them.
fn colours(svg: &str) -> Vec<&str> {
    let of =
        |kind: &'static str| svg.split(kind).skip(1).filter_map(|rest| rest.split_once('"')).map(|(colour, _)| colour);
    of(" fill=\"").chain(of(" stroke=\"")).filter(|colour| *colour != "none").collect()
}

fn experiment() -> &'static Experiment {
    catalogue::find("latency").unwrap()
}

/// A table of figures: system, depth, snapshots (none for the whole axis), figure.
fn table(figures: &[(&str, &str, Option<&str>, f64)]) -> (Table, Part) {
    let mut table = Table { metric: "writes".into(), unit: "1/s".into(), columns: Vec::new(), rows: Vec::new() };
    for (system, ..) in figures {
        let column = Column { origin: Origin::Measured, place: "host".into(), system: (*system).to_owned() };
        super::super::push_new(&mut table.columns, column);
    }
    for (system, depth, snapshots, figure) in figures {
        let pairs: Vec<(&str, &str)> =
            [("depth", *depth)].into_iter().chain(snapshots.map(|value| ("snapshots", value))).collect();
        let mut cells = vec![Cell::Empty; table.columns.len()];
        let at = table.columns.iter().position(|column| column.system == *system).unwrap();
        let summary = Summary { median: *figure, least: *figure, most: *figure, rounds: 1 };
        cells[at] = Cell::Figure { summary, ratio: None };
        table.rows.push((crate::measurement::parameters(&pairs), cells));
    }
    let part = parts(&table).remove(0);
    (table, part)
}

fn drawn(figures: &[(&str, &str, Option<&str>, f64)]) -> Option<Plot> {
    let (table, part) = table(figures);
    plot(&table, experiment(), &part)
}

#[test]
fn a_plot_has_the_systems_of_one_setting_and_the_raw_disk() {
    let found = drawn(&[
        ("raw", "1", None, 9.0),
        ("raw", "32", None, 90.0),
        ("LVM thin", "1", Some("0"), 8.0),
        ("LVM thin", "1", Some("10"), 4.0),
        ("Rowen", "1", Some("10"), 7.5),
        ("Rowen", "1", Some("0"), 8.0),
        ("Rowen", "1", Some("1000"), f64::NAN),
        ("Rowen", "32", Some("0"), 80.0),
        ("Rowen", "32", Some("10"), 70.0),
    ])
    .unwrap();
    let line = |system: &str, points: &[(usize, f64)], is_level| Line {
        system: system.into(),
        points: points.to_vec(),
        is_level,
    };
    assert_eq!(found.settings, "depth 1");
    assert_eq!(found.ticks, ["0", "10"]);
    assert_eq!(
        found.lines,
        [
            line("raw", &[(0, 9.0)], true),
            line("LVM thin", &[(0, 8.0), (1, 4.0)], false),
            line("Rowen", &[(0, 8.0), (1, 7.5)], false)
        ]
    );
    assert_eq!(found.left_out, 2, "of the other depth: the raw disk and Rowen");
}

#[test]
fn a_plot_has_at_most_five_lines_and_says_how_many_are_missing() {
    let systems = ["raw", "LVM classic", "LVM thin", "LVM raid1", "Rowen", "Rowen mirror", "btrfs"];
    let of = |system: &&'static str, snapshots| (*system, "1", Some(snapshots), 5.0);
    let all: Vec<_> = systems.iter().flat_map(|system| [of(system, "0"), of(system, "1")]).collect();
    let found = drawn(&all).unwrap();
    assert_eq!((found.lines.len(), found.left_out), (MOST_LINES, 2));
    // Lines of equally few points are left out together.
    let some: Vec<_> =
        all.iter().filter(|(system, _, at, _)| *at == Some("0") || !system.contains(['1', 'm'])).copied().collect();
    let found = drawn(&some).unwrap();
    let names: Vec<&str> = found.lines.iter().map(|line| line.system.as_str()).collect();
    assert_eq!((names, found.left_out), (vec!["raw", "LVM classic", "LVM thin", "Rowen", "btrfs"], 2));
}

#[test]
fn one_point_is_no_plot() {
    assert_eq!(drawn(&[("Rowen", "1", Some("0"), 5.0), ("LVM thin", "1", Some("0"), 5.0)]), None);
    assert_eq!(drawn(&[("Rowen", "1", None, 5.0)]), None);
    assert_eq!(drawn(&[("Rowen", "1", Some("0"), f64::NAN), ("Rowen", "1", Some("1"), 5.0)]), None);
    let zeros = drawn(&[("Rowen", "1", Some("0"), 0.0), ("Rowen", "1", Some("1"), 0.0)]).unwrap();
    assert_eq!(chart::draw(&zeros), Ok(None));
}

#[test]
fn positions_without_an_order_are_not_joined() {
    let systems = |ticks: [&'static str; 3]| {
        let line = |figure: f64| ticks.map(|tick| ("Rowen", "1", Some(tick), figure));
        let svg = chart::draw(&drawn(&line(5.0)).unwrap()).unwrap().unwrap();
        (svg.matches("<polyline").count() - 1, svg.matches("<circle").count())
    };
    assert_eq!(systems(["1", "10", "100"]), (1, 3));
    assert_eq!(systems(["borg", "dd", "restic"]), (0, 3), "a line from program to program");
    assert_eq!(systems(["attempt 1", "attempt 2", "no mirror"]), (1, 3));
}

#[test]
fn an_svg_is_named_and_has_colours_for_both_papers() {
    let systems = ["raw", "LVM classic", "LVM thin", "Rowen", "a <new> one"];
    let of = |system: &&'static str, snapshots, figure| (*system, "1", Some(snapshots), figure);
    let all: Vec<_> = systems.iter().flat_map(|system| [of(system, "0", 5.0), of(system, "1", 500.0)]).collect();
    let svg = chart::draw(&drawn(&all).unwrap()).unwrap().unwrap();
    assert!(svg.starts_with("<svg class=\"plot\" viewBox=\"0 0 760 ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("role=\"img\" aria-label=\"writes in 1/s by snapshots: raw, LVM classic"), "{svg}");
    assert!(svg.contains("1/s, logarithmic") && svg.contains("a &lt;new&gt; one"), "{svg}");
    assert_eq!(svg.matches("<polyline").count(), 2 * systems.len(), "lines, and the ways to their names");
    let found = colours(&svg);
    assert!(found.len() > 20, "{found:?}");
    let style = style();
    for colour in found {
        for kind in ["fill", "stroke"] {
            assert!(style.contains(&format!(".plot [{kind}=\"{colour}\"]{{{kind}:#")), "no dark {kind} for {colour}");
        }
    }
}
