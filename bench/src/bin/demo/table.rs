//! The table at the end: this run beside the document's figures.

use crate::world::WRITE_MIB;
use std::fmt::Write;
use std::time::Duration;

/// John Newbigin's seconds for 1000 MiB, from the document: 5 s without a snapshot, and for each chunk size with a
/// snapshot and on one.
const DOCUMENT_WITHOUT: f64 = 5.0;
const DOCUMENT: [(&str, f64, f64); 8] = [
    ("4k", 625.0, 179.0),
    ("8k", 304.0, 169.0),
    ("16k", 200.0, 105.0),
    ("32k", 63.0, 66.0),
    ("64k", 83.0, 58.0),
    ("128k", 49.0, 58.0),
    ("256k", 49.0, 53.0),
    ("512k", 55.0, 49.0),
];

/// What the document says about a chunk size.
pub struct Document {
    pub order: u64,
    with: f64,
    on_snapshot: f64,
}

/// One chunk size: every measured time.
pub struct Row {
    pub chunk: &'static str,
    pub without: Vec<Duration>,
    pub with: Vec<Duration>,
    pub on_snapshot: Vec<Duration>,
    pub document: Document,
}

impl Row {
    pub fn new(chunk: &'static str) -> Row {
        let order = DOCUMENT.iter().position(|(name, ..)| *name == chunk).expect("the sizes are the document's");
        let (_, with, on_snapshot) = DOCUMENT[order];
        let document = Document { order: order as u64, with, on_snapshot };
        Row { chunk, without: Vec::new(), with: Vec::new(), on_snapshot: Vec::new(), document }
    }
}

fn median(times: &[Duration]) -> f64 {
    let mut times: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    match times.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => times[middle],
        _ => (times[middle - 1] + times[middle]) / 2.0,
    }
}

fn speed(seconds: f64) -> f64 {
    WRITE_MIB as f64 * 1.048_576 / seconds
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
    line(format!("       | {:^42} | {:^42}", "this run", "LVM2, in the document (Newbigin)"));
    let heads = format!("{:>7} {:>14} {:>18}", "without", "with", "on the snapshot");
    line(format!(" chunk | {heads:<42} | {heads:<42}"));
    line(format!("{:-<7}+{:-<44}+{:-<43}", "", "", ""));
    let mut all: (Vec<Duration>, Vec<Duration>) = Default::default();
    for row in rows {
        let figures = |without: f64, with: f64, on: f64, digits: usize| {
            let (r1, r2) = (without / with, without / on);
            format!("{without:>7.digits$} {with:>8.digits$} {r1:>4.2}x {on:>11.digits$} {r2:>4.2}x")
        };
        let here = figures(median(&row.without), median(&row.with), median(&row.on_snapshot), 2);
        let there = figures(DOCUMENT_WITHOUT, row.document.with, row.document.on_snapshot, 0);
        line(format!("{:>6} | {here:<42} | {there:<42}", row.chunk));
        all.0.extend(&row.without);
        all.1.extend(&row.with);
    }
    let (without, with) = (median(&all.0), median(&all.1));
    line(String::new());
    line("              without     with    ratio    (MB/s)".to_string());
    line(format!(
        "this run     {:>8.0} {:>8.0} {:>7.2}x    median of all",
        speed(without),
        speed(with),
        without / with
    ));
    line("van Dok 2009      101      1.3    0.01x    RAID 1, Linux 2.6.18".into());
    line("van Dok 2009      214     19.4    0.09x    one SAS disk, Linux 2.6.26".into());
    line(String::new());
    let times = if rounds == 1 { "once".into() } else { format!("{rounds} times; the table shows medians") };
    line(format!("Measured {times}. After every write a checksum proved that the snapshot (the origin, for writes"));
    line(
        "on the snapshot) still held the old content. The group was checked at the end, and all of it is removed."
            .into(),
    );
    text
}
