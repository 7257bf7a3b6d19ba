//! Rows of rates and latencies in columns.

use rowen_control::protocol::{IoCounts, Latency, OpCounts};

/// The requests of an interval.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub counts: IoCounts,
    pub seconds: f64,
}

/// The least width of names, so that the columns of successive reports align.
const NAME: usize = 18;

const RATES: [(&str, usize); 8] = [
    ("READS/S", 8),
    ("WRITES/S", 9),
    ("FLUSHES/S", 10),
    ("DISCARDS/S", 11),
    ("READ/S", 8),
    ("WRITTEN/S", 10),
    ("UNDER WAY", 10),
    ("FAILED", 7),
];

const LATENCIES: [(&str, usize); 6] =
    [("REQUESTS/S", 11), ("BYTES/S", 9), ("MEAN", 8), ("P50", 8), ("P99", 8), ("MAX", 9)];

/// The position of the reports on the screen.
pub struct Page {
    height: usize,
    /// Lines since the headings. None: no headings yet.
    lines: Option<usize>,
    name: usize,
}

impl Page {
    /// For a screen with this many lines.
    pub fn new(height: usize) -> Page {
        Page { height, lines: None, name: NAME }
    }

    /// The lines of a report. The headings are repeated when they would have scrolled off the screen.
    pub fn lines(&mut self, rows: &[Row], with_latencies: bool) -> Vec<String> {
        let widest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let is_wider = widest > self.name;
        self.name = self.name.max(widest);
        let name = self.name;
        let body: Vec<String> = match with_latencies {
            false => rows.iter().map(|row| rates(row, name)).collect(),
            true => rows.iter().flat_map(|row| latencies(row, name)).collect(),
        };
        let shown = self.lines.map_or(usize::MAX, |lines| lines.saturating_add(body.len() + 1));
        let mut lines = Vec::new();
        if is_wider || shown > self.height {
            lines.extend(self.lines.is_some().then(String::new));
            lines.push(heading(name, with_latencies));
            self.lines = Some(2 + body.len());
        } else {
            // A blank line separates reports of more than one line.
            let blank = body.len() > 1;
            lines.extend(blank.then(String::new));
            self.lines = Some(shown - usize::from(!blank));
        }
        lines.extend(body);
        lines
    }
}

fn heading(name: usize, with_latencies: bool) -> String {
    let columns: &[(&str, usize)] = if with_latencies { &LATENCIES } else { &RATES };
    let columns: String = columns.iter().map(|(word, width)| format!("{word:>width$}")).collect();
    let operation = if with_latencies { "  OPERATION" } else { "" };
    format!("{:<name$}{operation}{columns}", "NAME")
}

fn rates(row: &Row, name: usize) -> String {
    let Row { counts: io, seconds, .. } = row;
    let cells = [
        rate(io.read.requests, *seconds),
        rate(io.write.requests, *seconds),
        rate(io.flush.requests, *seconds),
        rate(io.discard.requests.saturating_add(io.zero.requests), *seconds),
        bytes(io.read.bytes, *seconds),
        bytes(io.write.bytes, *seconds),
        count(io.under_way as f64),
        count(io.failed() as f64),
    ];
    let cells: String = cells.iter().zip(RATES).map(|(cell, (_, width))| format!("{cell:>width$}")).collect();
    format!("{:<name$}{cells}", row.name)
}

/// A line for each kind of request that occurred.
fn latencies(row: &Row, name: usize) -> Vec<String> {
    let used: Vec<_> = row.counts.each().into_iter().filter(|(_, op)| op.requests > 0).collect();
    if used.is_empty() {
        let nothing: String = LATENCIES.iter().map(|(_, width)| format!("{:>width$}", "-")).collect();
        return vec![format!("{:<name$}  {:<9}{nothing}", row.name, "-")];
    }
    let line = |(at, (operation, op)): (usize, &(&str, &OpCounts))| {
        let cells = [
            rate(op.requests, row.seconds),
            bytes(op.bytes, row.seconds),
            op.mean().map_or_else(|| "-".to_owned(), time),
            latency(op.percentile(0.5)),
            latency(op.percentile(0.99)),
            longest(op.longest()),
        ];
        let cells: String = cells.iter().zip(LATENCIES).map(|(cell, (_, width))| format!("{cell:>width$}")).collect();
        format!("{:<name$}  {operation:<9}{cells}", if at == 0 { &row.name } else { "" })
    };
    used.iter().enumerate().map(line).collect()
}

pub fn rate(number: u64, seconds: f64) -> String {
    if seconds > 0.0 { count(number as f64 / seconds) } else { "-".to_owned() }
}

pub fn bytes(number: u64, seconds: f64) -> String {
    if seconds > 0.0 {
        scaled(number as f64 / seconds, 1024.0, &["", "K", "M", "G", "T", "P", "E"])
    } else {
        "-".to_owned()
    }
}

/// Bytes with a fitting unit.
pub fn size(number: u64) -> String {
    bytes(number, 1.0)
}

pub fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "m", "g", "t", "p", "e"])
}

/// Microseconds with a fitting unit.
pub fn time(micros: f64) -> String {
    if micros < 999_500.0 { scaled(micros, 1000.0, &["us", "ms"]) } else { scaled(micros / 1e6, f64::INFINITY, &["s"]) }
}

pub fn latency(latency: Option<Latency>) -> String {
    match latency {
        None => "-".to_owned(),
        Some(Latency::Micros(micros)) => time(micros),
        Some(Latency::From(micros)) => format!(">{}", time(micros as f64)),
    }
}

/// The upper bound of all latencies.
pub fn longest(end: Option<Latency>) -> String {
    match end {
        Some(Latency::Micros(micros)) => format!("<{}", time(micros)),
        other => latency(other),
    }
}

/// The number with three digits and a fitting unit.
fn scaled(mut number: f64, step: f64, units: &[&str]) -> String {
    let mut at = 0;
    while number >= 999.5 && at + 1 < units.len() {
        number /= step;
        at += 1;
    }
    let digits = match number {
        _ if number == 0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    // A number of whole requests has no fraction.
    let digits = if at == 0 && number.fract() == 0.0 { 0 } else { digits };
    format!("{number:.digits$}{}", units.get(at).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(
            [0.0, 3.0, 0.5, 12.34, 999.0, 999.6, 123_456.0].map(count),
            ["0", "3", "0.50", "12.3", "999", "1.00k", "123k"]
        );
        assert_eq!([512, 1023, 1536, 1 << 20].map(|n| bytes(n, 1.0)), ["512", "1.00K", "1.50K", "1.00M"]);
        assert_eq!(
            [12.0, 12.5, 1500.0, 999_600.0, 16.8e6, 100e6].map(time),
            ["12us", "12.5us", "1.50ms", "1.00s", "16.8s", "100s"]
        );
        assert_eq!((rate(5, 0.0), bytes(5, 0.0), rate(5, 10.0)), ("-".into(), "-".into(), "0.50".into()));
        assert_eq!(latency(Some(Latency::From(1 << 24))), ">16.8s");
        assert_eq!(bytes(u64::MAX, 0.1), "160E");
        assert_eq!(count(u64::MAX as f64), "18.4e");
    }

    fn row(name: &str) -> Row {
        let op =
            OpCounts { requests: u64::MAX, failed: u64::MAX, bytes: u64::MAX, micros: u64::MAX, ..OpCounts::default() };
        let counts = IoCounts { read: op, write: op, flush: op, discard: op, zero: op, under_way: u64::MAX };
        Row { name: name.into(), counts, seconds: 0.1 }
    }

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        for with_latencies in [false, true] {
            let lines = Page::new(24).lines(&[row("vg0"), row("  /dev/sda")], with_latencies);
            let widths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
            assert!(widths.iter().all(|width| *width == widths[0]), "{lines:#?}");
            assert!((70..=100).contains(&widths[0]), "{lines:#?}");
            assert!(lines.iter().all(|line| !line.contains("NaN") && !line.contains("inf")), "{lines:#?}");
        }
        let name = "  a-volume-with-a-long-name";
        let mut page = Page::new(24);
        let before = page.lines(&[row("vg0")], false);
        let wider = page.lines(&[row("vg0"), row(name)], false);
        assert!(before[0].starts_with("NAME") && wider[1].starts_with("NAME"), "headings move with their columns");
        assert_eq!(wider[1].chars().count(), wider[3].chars().count());
    }

    #[test]
    fn headings_come_once_a_screen() {
        let mut page = Page::new(10);
        let reports: Vec<usize> = (0..20)
            .map(|_| page.lines(&[row("vg0")], false).iter().filter(|line| line.starts_with("NAME")).count())
            .collect();
        assert_eq!(reports[..2], [1, 0]);
        let total: usize = reports.iter().sum();
        assert!((2..=3).contains(&total), "{reports:?}");
    }
}
