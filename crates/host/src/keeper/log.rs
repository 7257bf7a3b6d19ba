//! The keeper's log: a small file with a size limit, and lines in the system journal.

use crate::journal::{self, Priority};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

/// At this size the older half is removed. The same file is kept, because its directory may have another name by then.
const BOUND: u64 = 64 << 10;

pub struct Log {
    file: File,
    size: u64,
}

impl Log {
    pub fn open(path: &Path) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Log { file, size })
    }

    /// Adds a line. A log that cannot be written must not stop its writer.
    pub fn say(&mut self, text: &str) {
        self.write(Priority::Info, text);
    }

    /// The same for a warning.
    pub fn warn(&mut self, text: &str) {
        self.write(Priority::Warning, text);
    }

    fn write(&mut self, priority: Priority, text: &str) {
        if self.size > BOUND
            && let Ok(size) = self.drop_older_half()
        {
            self.size = size;
        }
        let _the_file_has_it = journal::send(priority, &journal::group(), &[], text);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = format!("{}.{:03} {}\n", now.as_secs(), now.subsec_millis(), text.replace('\n', " "));
        if self.file.write_all(line.as_bytes()).is_ok() {
            self.size += line.len() as u64;
        }
    }

    /// Rewrites everything from the first line after the middle.
    fn drop_older_half(&mut self) -> io::Result<u64> {
        let mut newer = Vec::new();
        self.file.seek(SeekFrom::Start(self.size / 2))?;
        self.file.read_to_end(&mut newer)?;
        let line = newer.iter().position(|byte| *byte == b'\n').map_or(newer.len(), |end| end + 1);
        self.file.set_len(0)?;
        self.file.write_all(&newer[line..])?;
        Ok((newer.len() - line) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stays_within_its_bound_and_keeps_what_came_last() {
        let path = std::env::temp_dir().join(format!("rowen-keeper-log-{}", std::process::id()));
        let mut log = Log::open(&path).unwrap();
        for n in 0..5000 {
            log.say(&format!("line {n} {}", "x".repeat(100)));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.len() as u64 <= BOUND + 200, "{} bytes", text.len());
            let last = (n - n.min(200)..=n).map(|n| format!(" line {n} "));
            assert!(text.lines().rev().zip(last.rev()).all(|(line, wanted)| line.contains(&wanted)), "after line {n}");
            assert!(text.lines().count() > n.min(200), "after line {n}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
