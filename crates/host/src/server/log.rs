//! The server's log: lines on standard error, which a command that starts the server points to a file. The file is
//! bounded: one that has grown past its bound is set aside when the next server starts, over the one set aside before.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const BOUND: u64 = 1 << 20;

/// Opens the log at `path` for appending.
pub fn open(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() > BOUND) {
        std::fs::rename(path, path.with_extension("log.old"))?;
    }
    File::options().create(true).append(true).mode(0o600).open(path)
}

/// Writes one line, marked with the second it was written in (UTC since 1970) and the process. A log that cannot be
/// written stops nobody.
pub fn line(text: impl std::fmt::Display) {
    use std::io::Write;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let line = format!("{}.{:03} rowen[{}]: {text}\n", now.as_secs(), now.subsec_millis(), std::process::id());
    let _ = io::stderr().write_all(line.as_bytes());
}
