use super::*;
use crate::measurement::{Run, parameters};

fn line(origin: Origin, system: &str, place: &str, pairs: &[(&str, &str)], round: usize, figure: f64) -> Measurement {
    let series = Series {
        experiment: "van-dok".into(),
        origin,
        metric: "write".into(),
        unit: "MB/s".into(),
        system: system.into(),
        place: place.into(),
        parameters: parameters(pairs),
    };
    let (figure, reason) = match origin {
        Origin::NotRun => (None, Some("the disk is <small>".to_owned())),
        _ => (Some(figure), None),
    };
    Measurement { question: String::new(), series, figure, reason, round, run: Run::default() }
}

fn lines() -> Vec<Measurement> {
    let (four, big) = ([("chunk", "4k")], [("chunk", "512k")]);
    let mut lines = Vec::new();
    for round in 0..3 {
        let by = [1.0, 2.0, 4.0][round];
        lines.push(line(Origin::Measured, "raw", "host", &[], round, 100.0 * by));
        lines.push(line(Origin::Measured, "Rowen", "host", &big, round, 90.0 * by));
        lines.push(line(Origin::Measured, "Rowen", "host", &four, round, 80.0 * by));
        lines.push(line(Origin::Measured, "raw", "inside", &[], round, 10.0));
        lines.push(line(Origin::Measured, "Rowen", "inside", &four, round, 2.0));
    }
    lines.push(line(Origin::NotRun, "LVM classic", "inside", &big, 0, 0.0));
    lines.push(line(Origin::Modelled, "Rowen", "7200 rpm disk", &four, 0, 70.0));
    lines.push(line(Origin::NotRun, "LVM classic", "7200 rpm disk", &four, 0, 0.0));
    lines.push(line(Origin::Published, "CentOS", "document", &four, 0, 1.3));
    lines
}

fn cell<'a>(table: &'a Table, system: &str, place: &str, chunk: Option<&str>) -> &'a Cell {
    let column = table.columns.iter().position(|c| c.system == system && c.place == place).unwrap();
    let row = table.rows.iter().find(|(p, _)| p.get("chunk").map(String::as_str) == chunk).unwrap();
    &row.1[column]
}

fn page(lines: &[Measurement]) -> String {
    html::page(&sections(lines), &headline::of(lines)).unwrap()
}

#[test]
fn ratios_are_of_one_round_and_one_place() {
    let lines = lines();
    let sections = sections(&lines);
    let [section] = &sections[..] else { panic!("one experiment, {} sections", sections.len()) };
    let [table] = &section.tables[..] else { panic!("one metric") };
    let Cell::Figure { summary, ratio } = cell(table, "Rowen", "host", Some("4k")) else { panic!("no figure") };
    assert_eq!((summary.median, summary.least, summary.most, *ratio), (160.0, 80.0, 320.0, Some(0.8)));
    let Cell::Figure { ratio, .. } = cell(table, "Rowen", "inside", Some("4k")) else { panic!("no figure") };
    assert_eq!(*ratio, Some(0.2));
    let Cell::Figure { ratio, .. } = cell(table, "Rowen", "7200 rpm disk", Some("4k")) else { panic!("no figure") };
    assert_eq!(*ratio, None, "a modelled figure was compared with a measured one");
    assert_eq!(cell(table, "LVM classic", "inside", Some("512k")), &Cell::NotRun("the disk is <small>".into()));
    assert_eq!(cell(table, "Rowen", "inside", Some("512k")), &Cell::Empty);
    let place = |system: &str| {
        table.columns.iter().find(|c| c.system == system && c.place == "7200 rpm disk").map(|c| c.origin)
    };
    assert_eq!(place("LVM classic"), place("Rowen"), "what has no modelled figure stands apart from those that have");
    assert_eq!(cell(table, "LVM classic", "7200 rpm disk", Some("4k")), &Cell::NotRun("the disk is <small>".into()));
    let chunks: Vec<_> = table.rows.iter().map(|(p, _)| p.get("chunk").cloned()).collect();
    assert_eq!(chunks, [None, Some("4k".into()), Some("512k".into())]);
}

#[test]
fn the_page_stands_alone_and_marks_what_is_not_measured() {
    let lines = lines();
    let page = page(&lines);
    assert!(page.find("id=\"headline\"") < page.find("id=\"van-dok\""), "the headline is not the first plot");
    for never in ["http:", "https:", "<script", "src=", "@import", "url("] {
        assert!(!page.contains(never), "the page refers to {never}");
    }
    assert!(page.contains("not run: the disk is &lt;small&gt;"), "a reason is missing");
    assert!(page.contains("Modelled: 7200 rpm disk") && page.contains("<polyline"), "a plot is missing");
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    let text = markdown::table(&sections(&lines)[0]);
    assert!(text.contains("| chunk 4k | ") && text.contains("160 (80.0 to 320) ×0.800"), "{text}");
    assert!(text.contains("*Modelled: 7200 rpm disk*") && text.contains("*The document's own figures*"), "{text}");
}

#[test]
fn a_bad_figure_has_its_reason_below_it_and_nothing_else_has() {
    let mut lines = lines();
    assert!(!page(&lines).contains("Rowen maps blocks of 4 KiB"), "a reason of nothing");
    let bad = [("snapshot", "one, first write"), ("chunk", "64k"), ("ext2 block", "1k")];
    lines.push(line(Origin::Modelled, "LVM classic", "7200 rpm disk", &bad, 0, 20.0));
    assert!(!page(&lines).contains("Rowen maps blocks of 4 KiB"), "it is not of another system");
    lines.push(line(Origin::Modelled, "Rowen", "7200 rpm disk", &bad, 0, 20.0));
    let sections = sections(&lines);
    let (page, text) = (page(&lines), markdown::table(&sections[0]));
    for (name, said) in [("page", &page), ("Markdown", &text)] {
        assert_eq!(said.matches("Rowen maps blocks of 4 KiB").count(), 1, "in the {name}");
    }
    assert!(text.contains("Rowen, ext2 block 1k, snapshot one, first write: "), "{text}");
}

#[test]
fn what_is_as_good_as_the_raw_disk_needs_no_reason() {
    let figure = |ratio| Cell::Figure { summary: Summary::of(&[1.0]).unwrap(), ratio };
    assert!(is_bad(&figure(None), "s") && is_bad(&figure(Some(0.5)), "MB/s") && is_bad(&figure(Some(2.0)), "ms"));
    assert!(!is_bad(&figure(Some(0.95)), "MB/s") && !is_bad(&figure(Some(0.5)), "ms"));
    assert!(!is_bad(&Cell::Empty, "s") && !is_bad(&Cell::NotRun(String::new()), "s"));
}

#[test]
fn sizes_are_in_the_order_of_their_values() {
    let mut sizes = ["512k", "1m", "4k", "none", "64k"];
    sizes.sort_by_key(|size| natural(size));
    assert_eq!(sizes, ["4k", "64k", "512k", "1m", "none"]);
}
