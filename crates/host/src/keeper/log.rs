//! The keeper's log: a small file that never grows beyond its bound.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

/// At this size the log starts again.
const BOUND: u64 = 64 << 10;

pub struct Log {
    file: File,
    size: u64,
}

impl Log {
    pub fn open(path: &Path) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Log { file, size })
    }

    /// Adds a line. A log that cannot be written must not stop its writer.
    pub fn say(&mut self, text: &str) {
        if self.size > BOUND && self.file.set_len(0).is_ok() {
            self.size = 0;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = format!("{}.{:03} {}\n", now.as_secs(), now.subsec_millis(), text.replace('\n', " "));
        if self.file.write_all(line.as_bytes()).is_ok() {
            self.size += line.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stays_within_its_bound() {
        let path = std::env::temp_dir().join(format!("rowen-keeper-log-{}", std::process::id()));
        let mut log = Log::open(&path).unwrap();
        for n in 0..2000 {
            log.say(&format!("line {n} {}", "x".repeat(100)));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.len() as u64 <= BOUND + 200, "{} bytes", text.len());
        assert!(text.ends_with(&format!("line 1999 {}\n", "x".repeat(100))));
    }
}
