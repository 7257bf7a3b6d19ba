//! One server per group: a lock that the running server holds, and the lock under which commands start one.

use crate::helper::has_name;
use crate::paths;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Held by a server while it runs. The kernel releases it when the process ends, however it ends.
pub struct Presence {
    _pid_file: File,
}

/// Another server runs; its process number, where it wrote it down.
#[derive(Debug)]
pub struct Taken(pub Option<u32>);

/// How often the directory may go between its making and the opening of a file in it.
const GOES: usize = 100;

/// Opens the file at `path`, and makes its directory. The server of a removed group may move that directory away in between.
fn open(path: &Path) -> io::Result<File> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut tries = 0..GOES;
    loop {
        paths::make_private_dir(dir)?;
        let file = File::options().create(true).read(true).write(true).truncate(false).mode(0o600).open(path);
        match file {
            Err(e) if e.kind() == io::ErrorKind::NotFound && tries.next().is_some() => {}
            file => return file,
        }
    }
}

/// Opens the file at `path` and locks it. A group that is removed takes its files along: a lock on a file that has lost
/// its name is worth nothing, so the file is opened again.
fn lock(path: &Path, wait: bool) -> io::Result<std::result::Result<File, File>> {
    let how = if wait { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
    loop {
        let file = open(path)?;
        match rustix::fs::flock(&file, how) {
            Ok(()) if has_name(&file, path) => return Ok(Ok(file)),
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Err(file)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl Presence {
    /// Becomes the server of `group`, unless there is one.
    pub fn take(group: &str) -> io::Result<Result<Presence, Taken>> {
        match lock(&paths::pid_file(group), false)? {
            Ok(mut file) => {
                file.set_len(0)?;
                writeln!(file, "{}", std::process::id())?;
                Ok(Ok(Presence { _pid_file: file }))
            }
            Err(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                Ok(Err(Taken(text.trim().parse().ok())))
            }
        }
    }
}

/// Becomes the server of `group` as soon as no other server runs. It calls `wait` between two tries; if `wait` returns false, the
/// result is none.
pub fn take_when_free(group: &str, wait: impl Fn() -> bool) -> io::Result<Option<Presence>> {
    loop {
        if let Ok(presence) = Presence::take(group)? {
            return Ok(Some(presence));
        }
        if !wait() {
            return Ok(Presence::take(group)?.ok());
        }
    }
}

/// Held by a command while it starts a server: of several commands, one starts it and the others wait here.
pub struct StartLock {
    file: File,
    path: PathBuf,
}

impl StartLock {
    /// Waits until no other command is starting the group's server.
    pub fn take(group: &str) -> io::Result<StartLock> {
        let path = paths::start_lock(group);
        match lock(&path, true)? {
            Ok(file) | Err(file) => Ok(StartLock { file, path }),
        }
    }

    /// The same until `end`; none: another command has it still.
    pub fn take_until(group: &str, end: Option<Instant>) -> io::Result<Option<StartLock>> {
        let Some(end) = end else { return StartLock::take(group).map(Some) };
        let path = paths::start_lock(group);
        loop {
            match lock(&path, false)? {
                Ok(file) => return Ok(Some(StartLock { file, path })),
                Err(_) if Instant::now() >= end => return Ok(None),
                Err(_) => std::thread::sleep(paths::RETRY),
            }
        }
    }

    /// Whether other commands wait for this lock. They do not if it went with the directory of a removed group.
    pub fn counts(&self) -> bool {
        has_name(&self.file, &self.path)
    }
}
