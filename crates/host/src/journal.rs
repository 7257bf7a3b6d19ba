//! Log lines of a server, its keeper and its helpers: where they go, and their fields in systemd's journal.
//!
//! The journal takes datagrams of fields (systemd.journal-fields(7)). A line has a priority and the group and, if any,
//! the volume or the physical volume (`ROWEN_VG`, `ROWEN_LV`, `ROWEN_PV`). Standard error is the journal or a file.
//!
//! * If it is the journal, a line goes there as a datagram; if that fails, as text with its priority; if that fails, to
//!   the file. The journal adds the time.
//! * If it is a file, as with servers that the keeper or a command starts, a line goes to the file with its time, and to the journal.
//! * No process waits for the journal, which may be full, stopped, or on a volume. The log file is in /run.

use crate::paths;
use parking_lot::RwLock;
use rowen_control::history::What;
use rustix::net::SendFlags;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The environment variable with another socket for the lines, for tests and separate environments.
const SOCKET: &str = "ROWEN_JOURNAL";
const USUAL_SOCKET: &str = "/run/systemd/journal/socket";
/// Tells a helper whom it works for.
pub const GROUP: &str = "ROWEN_LOG_GROUP";
/// More of a line is not for a log.
const LONGEST: usize = 32 << 10;

/// How urgent a line is, as syslog(3) numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    Error = 3,
    Warning = 4,
    Info = 6,
}

impl Priority {
    /// Sentences that users see as well begin with a word for it.
    pub fn of(text: &str) -> Priority {
        if text.starts_with("WARNING:") { Priority::Warning } else { Priority::Info }
    }
}

/// A field of a line besides its group: the field's name, and the volume or device.
pub type Field<'a> = (&'static str, &'a str);

static OURS: RwLock<String> = RwLock::new(String::new());

/// This process writes the log of that group from now on.
pub fn of_group(group: &str) {
    group.clone_into(&mut OURS.write());
}

/// The group whose log this process writes; empty: none.
pub fn group() -> String {
    OURS.read().clone()
}

/// Logs a line of a server or a helper. A log that cannot be written is ignored.
pub fn say(priority: Priority, about: &[Field<'_>], text: &str) {
    let group = group();
    let sent = send(priority, &group, about, text);
    if !is_stderr() {
        let _nobody_can_be_told = io::stderr().write_all(stamped(text).as_bytes());
        return;
    }
    if sent {
        return;
    }
    let lines: String = text.lines().map(|line| format!("<{}>{line}\n", priority as u8)).collect();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let is_taken = rustix::net::send(io::stderr(), lines.as_bytes(), flags).is_ok_and(|sent| sent == lines.len());
    if !is_taken
        && !group.is_empty()
        && let Ok(mut file) = File::options().create(true).append(true).mode(0o600).open(paths::server_log(&group))
    {
        let _nobody_can_be_told = file.write_all(stamped(text).as_bytes());
    }
}

/// Logs a warning. In a command, prints it for the user.
pub fn warn(text: impl Display) {
    if group().is_empty() {
        eprintln!("{text}");
    } else {
        say(Priority::Warning, &[], &text.to_string());
    }
}

/// A server's handler for events of its group.
static EVENTS: OnceLock<fn(What, &str)> = OnceLock::new();

/// This process keeps the group's events, and has this written down.
pub fn events_to(note: fn(What, &str)) {
    let _is_set_once = EVENTS.set(note);
}

/// An event of the group. Without a recorder of events, it is a warning.
pub fn happened(what: What, text: &str) {
    match EVENTS.get() {
        Some(note) => note(what, text),
        None => warn(text),
    }
}

/// A line with the second it was written in (UTC since 1970) and the process.
fn stamped(text: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:03} rowen[{}]: {text}\n", now.as_secs(), now.subsec_millis(), std::process::id())
}

/// Whether standard error is the journal: systemd says by which socket, and a process between may have changed it.
pub fn is_stderr() -> bool {
    static IS_STDERR: OnceLock<bool> = OnceLock::new();
    *IS_STDERR.get_or_init(|| {
        let said = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        rustix::fs::fstat(io::stderr()).is_ok_and(|stat| said == format!("{}:{}", stat.st_dev, stat.st_ino))
    })
}

/// Sends a line to the journal. False: there is no journal, or it does not accept the line now.
pub fn send(priority: Priority, group: &str, about: &[Field<'_>], text: &str) -> bool {
    static PLACE: OnceLock<Option<(PathBuf, UnixDatagram)>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let is_usual_instance = paths::run_dir() == Path::new("/run/rowen") && !paths::is_private_instance();
        let usual = is_usual_instance.then(|| PathBuf::from(USUAL_SOCKET));
        let path = std::env::var_os(SOCKET).filter(|path| !path.is_empty()).map(PathBuf::from).or(usual)?;
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some((path, socket))
    });
    let message = encode(priority, group, about, text);
    place.as_ref().is_some_and(|(path, socket)| socket.send_to(&message, path).is_ok())
}

fn encode(priority: Priority, group: &str, about: &[Field<'_>], text: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(text.len() + 128);
    let end = (0..=text.len().min(LONGEST)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    add(&mut message, "MESSAGE", &text[..end]);
    add(&mut message, "PRIORITY", &(priority as u8).to_string());
    add(&mut message, "SYSLOG_IDENTIFIER", "rowen");
    if !group.is_empty() {
        add(&mut message, "ROWEN_VG", group);
    }
    for (name, value) in about {
        add(&mut message, name, value);
    }
    message
}

/// A value of several lines comes with its length.
fn add(message: &mut Vec<u8>, name: &str, value: &str) {
    message.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        message.push(b'\n');
        message.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        message.push(b'=');
    }
    message.extend_from_slice(value.as_bytes());
    message.push(b'\n');
}

/// Opens a log for appending. A log larger than `bound` replaces the old `.old` file first. So the last lines always
/// exist, however often a server fails.
pub fn open(path: &Path, bound: u64) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() > bound) {
        let mut aside = path.as_os_str().as_bytes().to_vec();
        aside.extend_from_slice(b".old");
        std::fs::rename(path, Path::new(std::ffi::OsStr::from_bytes(&aside)))?;
    }
    File::options().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_as_the_journal_reads_them() {
        let about = [("ROWEN_PV", "/dev/sda")];
        let message = encode(Priority::Warning, "vg0", &about, "two\nlines");
        let mut expected = b"MESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\n".to_vec();
        expected.extend_from_slice(b"PRIORITY=4\nSYSLOG_IDENTIFIER=rowen\nROWEN_VG=vg0\nROWEN_PV=/dev/sda\n");
        assert_eq!(String::from_utf8(message).unwrap(), String::from_utf8(expected).unwrap());
        let long = "ä".repeat(LONGEST);
        let message = encode(Priority::Info, "", &[], &long);
        assert!(message.len() < LONGEST + 100 && String::from_utf8(message).is_ok());
    }

    #[test]
    fn what_users_are_warned_of_is_a_warning() {
        assert_eq!(Priority::of("WARNING: Volume group"), Priority::Warning);
        assert_eq!(Priority::of("volume group \"a\" is served"), Priority::Info);
    }

    #[test]
    fn a_log_that_grew_too_long_is_set_aside() {
        let path = std::env::temp_dir().join(format!("rowen-journal-log-{}.log", std::process::id()));
        let aside = path.with_extension("log.old");
        for text in ["first", "second", "third"] {
            open(&path, 3).unwrap().write_all(text.as_bytes()).unwrap();
        }
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&path).as_str(), read(&aside).as_str()), ("third", "second"));
        [path, aside].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}
