//! One measured (or modelled, or published) figure with everything that is needed to read it alone: a JSON line.
//!
//! Promises: a figure that is missing has a reason; what a figure was measured with is in the line, not in the name of a
//! file; two lines with the same [`Series`] differ only in their round.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Timed in this run.
    Measured,
    /// The I/O was recorded in this run and replayed through the model of a disk.
    Modelled,
    /// From the document, typed in by hand.
    Published,
    /// There is no figure, and `reason` says why.
    NotRun,
}

/// What a figure is of. Figures of one series are rounds of the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Series {
    pub experiment: String,
    pub origin: Origin,
    /// The unit of the count: "write", "response time".
    pub metric: String,
    pub unit: String,
    /// "raw", "LVM classic", "LVM thin", "LVM raid1", "Rowen", or the document's name for it.
    pub system: String,
    /// Where it ran, and so whose raw disk it is to be compared with: "host", "user-mode-linux", a modelled disk.
    pub place: String,
    pub parameters: BTreeMap<String, String>,
}

/// One JSON line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    pub question: String,
    #[serde(flatten)]
    pub series: Series,
    pub figure: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub round: usize,
    #[serde(flatten)]
    pub run: Run,
}

/// What is the same for all lines of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub machine: String,
    pub kernel: String,
    pub revision: String,
    /// "quick" or "full".
    pub form: String,
    /// When it began: date, hour and minute, in UTC.
    #[serde(default)]
    pub time: String,
}

impl Run {
    /// This machine, the running kernel, and the given revision of the sources.
    pub fn here(revision: &str, quick: bool) -> Run {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model =
            cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = read("/proc/meminfo");
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        let mib = kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| kib / 1024);
        Run {
            machine: format!("{}, {cores} cores, {mib} MiB", model.unwrap_or("unknown processor").trim()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            revision: revision.to_owned(),
            form: if quick { "quick" } else { "full" }.to_owned(),
            time: crate::command::run("date", &["-u", "+%Y-%m-%d %H:%M"]).unwrap_or_default().trim().to_owned(),
        }
    }

    /// Whether the other is of the same sources on the same machine, in the same form; kernels differ by the place.
    pub fn is_like(&self, other: &Run) -> bool {
        (&self.machine, &self.revision, &self.form) == (&other.machine, &other.revision, &other.form)
    }
}

/// Parameters from pairs.
pub fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The lines of a file; one that cannot be read is an error that names it.
pub fn read_lines(path: &std::path::Path) -> Result<Vec<Measurement>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let line = |(n, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| format!("{}, line {}: {e}", path.display(), n + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let series = Series {
            experiment: "e".into(),
            origin: Origin::NotRun,
            metric: "write".into(),
            unit: "MB/s".into(),
            system: "raw".into(),
            place: "host".into(),
            parameters: parameters(&[("chunk", "4k")]),
        };
        let run = Run::here("abc", true);
        assert!(run.machine.contains("cores") && !run.kernel.is_empty() && run.time.starts_with("20"), "{run:?}");
        assert!(run.is_like(&Run { kernel: "another".into(), time: String::new(), ..run.clone() }));
        assert!(!run.is_like(&Run { form: "full".into(), ..run.clone() }));
        let line =
            Measurement { question: "?".into(), series, figure: None, reason: Some("no disk".into()), round: 2, run };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.contains("\"origin\":\"not-run\"") && text.contains("\"revision\":\"abc\""), "{text}");
        let path = std::env::temp_dir().join(format!("rowen-lines-{}", std::process::id()));
        std::fs::write(&path, format!("{text}\n\n{text}\n")).unwrap();
        assert_eq!(read_lines(&path).unwrap(), [line.clone(), line]);
        std::fs::write(&path, "nonsense\n").unwrap();
        assert!(read_lines(&path).unwrap_err().contains("line 1"));
        std::fs::remove_file(&path).unwrap();
    }
}
