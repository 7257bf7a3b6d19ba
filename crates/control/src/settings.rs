//! What an administrator may set, in `rowen.conf`: sections and keys in LVM's syntax, and LVM's names where LVM has the
//! setting. Everything has a default, and no file is needed. A key that does not exist is refused: a setting that is
//! misspelt must not be ignored in silence.

use crate::syntax::{self, Error, Node, Section, Value, wrong};

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `backup/backup`: keep the newest metadata of each group in `backup/VG`.
    pub backup: bool,
    /// `backup/archive`: keep what it was before each change in `archive/VG_*.vg`.
    pub archive: bool,
    /// `backup/retain_min`: archived files of a group that stay however old they are.
    pub retain_min: u64,
    /// `backup/retain_days`: files older than this go.
    pub retain_days: u64,
    /// `monitor/thresholds`: percentages of a group in use that are worth a warning.
    pub thresholds: Vec<u64>,
    /// `monitor/snapshot_threshold`: percentage of a snapshot's size in use that is worth a warning.
    pub snapshot_threshold: u64,
    /// `monitor/command`: a program that is run when a threshold is crossed.
    pub command: Option<String>,
    /// `server/processor_latency`: how long processors may take to wake while requests come densely.
    pub processor_latency: ProcessorLatency,
}

/// How long processors may take to wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessorLatency {
    /// What suits the machine.
    #[default]
    Auto,
    /// As long as they like.
    Off,
    /// So many microseconds.
    Micros(u32),
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            backup: true,
            archive: true,
            retain_min: 10,
            retain_days: 30,
            thresholds: vec![80, 90, 95],
            snapshot_threshold: 80,
            command: None,
            processor_latency: ProcessorLatency::Auto,
        }
    }
}

impl Settings {
    /// Reads the file's text.
    pub fn read(text: &str) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        for entry in &syntax::parse(text)?.entries {
            match (&entry.node, entry.name.as_str()) {
                (Node::Section(section), "backup") => settings.read_backup(section)?,
                (Node::Section(section), "monitor") => settings.read_monitor(section)?,
                (Node::Section(section), "server") => settings.read_server(section)?,
                // LVM also takes section and key in one word.
                (Node::Value(_), name) if name.contains('/') => {
                    let (section, key) = name.split_once('/').unwrap_or_default();
                    let inner = Section {
                        entries: vec![syntax::Entry { name: key.to_owned(), ..entry.clone() }],
                        line: entry.line,
                    };
                    match section {
                        "backup" => settings.read_backup(&inner)?,
                        "monitor" => settings.read_monitor(&inner)?,
                        "server" => settings.read_server(&inner)?,
                        _ => return Err(wrong(entry.line, format!("there is no setting \"{name}\""))),
                    }
                }
                (Node::Section(_), name) => return Err(wrong(entry.line, format!("there is no section \"{name}\""))),
                (Node::Value(_), name) => return Err(wrong(entry.line, format!("there is no setting \"{name}\""))),
            }
        }
        Ok(settings)
    }

    fn read_backup(&mut self, section: &Section) -> Result<(), Error> {
        for entry in &section.entries {
            match entry.name.as_str() {
                "backup" => self.backup = switch(section, entry)?,
                "archive" => self.archive = switch(section, entry)?,
                "retain_min" => self.retain_min = section.need("retain_min", section.number("retain_min"))?,
                "retain_days" => self.retain_days = section.need("retain_days", section.number("retain_days"))?,
                other => return Err(wrong(entry.line, format!("there is no setting \"backup/{other}\""))),
            }
        }
        Ok(())
    }

    fn read_monitor(&mut self, section: &Section) -> Result<(), Error> {
        for entry in &section.entries {
            match entry.name.as_str() {
                "thresholds" => self.thresholds = percentages(entry)?,
                "snapshot_threshold" => {
                    let percent = section.need("snapshot_threshold", section.number("snapshot_threshold"))?;
                    self.snapshot_threshold = percentage(percent, entry.line)?;
                }
                "command" => {
                    let command = section.need("command", section.text("command"))?;
                    if !command.is_empty() && !command.starts_with('/') {
                        return Err(wrong(entry.line, "\"monitor/command\" must be the full path of a program"));
                    }
                    self.command = Some(command.to_owned()).filter(|command| !command.is_empty());
                }
                other => return Err(wrong(entry.line, format!("there is no setting \"monitor/{other}\""))),
            }
        }
        Ok(())
    }

    fn read_server(&mut self, section: &Section) -> Result<(), Error> {
        for entry in &section.entries {
            match entry.name.as_str() {
                "processor_latency" => self.processor_latency = latency(entry)?,
                other => return Err(wrong(entry.line, format!("there is no setting \"server/{other}\""))),
            }
        }
        Ok(())
    }
}

fn latency(entry: &syntax::Entry) -> Result<ProcessorLatency, Error> {
    match &entry.node {
        Node::Value(Value::Text(word)) if word == "auto" => Ok(ProcessorLatency::Auto),
        Node::Value(Value::Text(word)) if word == "off" => Ok(ProcessorLatency::Off),
        Node::Value(Value::Number(number)) if (0..=1_000_000).contains(number) => {
            Ok(ProcessorLatency::Micros(*number as u32))
        }
        _ => Err(wrong(entry.line, "\"processor_latency\" must be \"auto\", \"off\" or microseconds up to 1000000")),
    }
}

fn switch(section: &Section, entry: &syntax::Entry) -> Result<bool, Error> {
    match section.number(&entry.name)? {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(wrong(entry.line, format!("\"{}\" must be 0 or 1", entry.name))),
    }
}

fn percentage(number: u64, line: usize) -> Result<u64, Error> {
    if (1..=100).contains(&number) { Ok(number) } else { Err(wrong(line, "a threshold is a percentage from 1 to 100")) }
}

fn percentages(entry: &syntax::Entry) -> Result<Vec<u64>, Error> {
    let refused = || wrong(entry.line, "\"thresholds\" must be a list of percentages, as in [80, 90]");
    let Node::Value(Value::List(list)) = &entry.node else { return Err(refused()) };
    list.iter()
        .map(|item| match item {
            Value::Number(number) => percentage(u64::try_from(*number).map_err(|_| refused())?, entry.line),
            _ => Err(refused()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(Settings::read("# nothing\n"), Ok(Settings::default()));
    }

    #[test]
    fn what_is_set_is_read() {
        let text = "backup {\n archive = 0\n retain_min = 3\n}\nmonitor/command = \"/bin/true\"\n\
                    monitor { thresholds = [70] snapshot_threshold = 50 }\n\
                    server/processor_latency = 20";
        let expected = Settings {
            archive: false,
            retain_min: 3,
            thresholds: vec![70],
            snapshot_threshold: 50,
            command: Some("/bin/true".into()),
            processor_latency: ProcessorLatency::Micros(20),
            ..Settings::default()
        };
        assert_eq!(Settings::read(text), Ok(expected));
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (text, line, words) in [
            ("backup {\n archive = 0\n", 3, "begins on line 1"),
            ("backup {\n archve = 0\n}", 2, "no setting \"backup/archve\""),
            ("backup {\n archive = 2\n}", 2, "0 or 1"),
            ("\nactivation { }", 2, "no section \"activation\""),
            ("monitor { thresholds = [0] }", 1, "1 to 100"),
            ("monitor { thresholds = 80 }", 1, "list of percentages"),
            ("monitor { command = \"alert\" }", 1, "full path"),
            ("server { processor_latency = \"fast\" }", 1, "auto"),
            ("server { processor_latency = -1 }", 1, "auto"),
            ("archive = 1", 1, "no setting \"archive\""),
        ] {
            let error = Settings::read(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.why.contains(words), "{text}: {error}");
        }
    }
}
