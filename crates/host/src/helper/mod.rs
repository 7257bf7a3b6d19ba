//! Helpers: processes for calls that may wait for a volume.
//!
//! A thread that waits in the kernel for a volume cannot be killed, and its process cannot end before the volume is
//! served again. If a server waited for its own volumes and was killed, it would keep its lock and its disks, and its
//! successor could not start. So servers, keepers and commands ask a helper: this program, executed with a hidden
//! argument, which talks over its standard input, a socket.
//!
//! * H1 Threads of a server, a keeper or a successor do not freeze, thaw, sync, open or close a volume's device. They
//!   do not open a path on a filesystem that may be on a volume. Helpers do.
//! * H2 A helper has no descriptor except the socket and its log. So a helper that hangs keeps no lock, disk or
//!   connection.
//! * H3 A process that asks a helper waits for a limited time. Then the request fails with a message.
//! * H4 A helper that has frozen filesystems thaws them on request, or when its socket closes, as at its server's
//!   death.
//! * H5 A marker in the run directory names the frozen filesystem, from before the first freeze until after the last
//!   thaw. The helper holds the marker's lock. If the lock is free, the helper is dead. Then its server, a successor,
//!   or the next helper for the same volume thaws.
//! * H6 A helper opens a filesystem only if the kernel says that it is on the volume's device ([`hold`]).
//! * H7 If its socket has closed, a helper removes the device that it has made.
//! * H10 A helper that has answered may get another request. It holds nothing from the previous one. A helper that did
//!   not answer in time gets no further request. If it dies before it has read a request, another helper gets it.

pub(crate) mod hold;
mod session;

pub use session::use_program;
pub(crate) use session::{Session, is_gone, is_late};

use crate::devices::{self, formats, handed, probe, sample};
use crate::export::error::{Doing, Error, Result};
use crate::export::loopdev::{LoopDevice, direct};
use crate::{archive, files, history, journal, planted, settings, witness};
use hold::Held;
use rowen_control::protocol::{read_frame, write_compact, write_frame};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The hidden argument.
pub const ROLE: &str = "helper";
/// The limit of a request to one device. udev may hold a device for a minute.
const DEVICE: Duration = Duration::from_secs(120);

/// A request to a helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Attach {
        file: PathBuf,
        sector: u32,
        read_only: bool,
    },
    Detach(u32),
    Abandon(Vec<u32>),
    UpdateSize(u32),
    SetReadOnly(u32, bool),
    FlushCache(u32),
    /// Whether the device with these numbers is held exclusively.
    IsClaimed(u32, u32),
    /// Flushes and freezes the filesystems on volumes. `near`: only those mounted in this mount namespace.
    Hold {
        volumes: Vec<Held>,
        near: bool,
    },
    /// Thaws the filesystems of these markers.
    Thaw(Vec<PathBuf>),
    /// Reads labels.
    Probe(Vec<PathBuf>),
    /// Reads samples of devices.
    Sample(Vec<sample::Asked>),
    /// Reads the formats of devices.
    LookAtFormats(Vec<PathBuf>),
    /// Opens a physical volume, and passes its descriptor. `alone`: for writing, exclusively.
    Open {
        path: PathBuf,
        alone: bool,
    },
    /// Writes lines of a group's history down.
    Record(history::Lines),
    /// Keeps copies of a group's metadata.
    Archive(archive::Work),
    /// Writes down who is in a group.
    Witness(witness::Work),
    /// Reads the files of settings.
    Settings,
    /// Reads a small file, or a directory.
    File(files::Asked),
    /// Reads the history of all groups.
    History,
    /// Changes the devices file.
    Devices(devices::file::Change),
}

/// Why a request to a helper failed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Trouble {
    System { doing: String, errno: Option<i32>, why: String },
    InUse { device: String, user: String },
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error {
            Error::InUse { device, user } => Trouble::InUse { device, user },
            Error::System { doing, source } => {
                Trouble::System { doing, errno: source.raw_os_error(), why: source.to_string() }
            }
            other => Trouble::System { doing: "do it".into(), errno: None, why: other.to_string() },
        }
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Error {
        match trouble {
            Trouble::InUse { device, user } => Error::InUse { device, user },
            Trouble::System { doing, errno, why } => {
                let source = errno.map_or_else(|| io::Error::other(why), io::Error::from_raw_os_error);
                Error::System { doing, source }
            }
        }
    }
}

/// A helper's answer, with a number for some requests.
pub(crate) type Answer = std::result::Result<u32, Trouble>;

/// Asks a helper to do something to a device.
pub(crate) fn ask(job: Job) -> Result<u32> {
    let doing = format!("have a helper process do {job:?}");
    let mut session = Session::start(job).doing(|| "start a helper process".into())?;
    let answer: Answer = session.receive(DEVICE).doing(|| doing)?;
    session.end();
    Ok(answer?)
}

/// The same, by a separate helper, so that urgent requests keep theirs. `what` is shown in lists of processes.
pub(crate) fn ask_apart(job: &Job, what: &str, limit: Duration) -> io::Result<u32> {
    let mut session = Session::start_apart(job, what)?;
    let answer: Answer = session.receive(limit)?;
    answer.map_err(|trouble| io::Error::other(Error::from(trouble).to_string()))
}

/// Becomes a helper. `reached` is called at its steps: tests stop it there. Returns the exit code.
pub fn main(reached: fn(&str)) -> u8 {
    journal::of_group(&std::env::var(journal::GROUP).unwrap_or_default());
    match serve(reached) {
        Ok(()) => 0,
        // Who asked has not waited for the answer.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => 1,
        Err(e) => {
            journal::warn(format_args!("a helper process failed: {e}"));
            1
        }
    }
}

/// Whether this process was started as a helper. A user cannot start one.
pub fn is_one(words: &[String]) -> bool {
    let is_socket = || {
        let stat = rustix::fs::fstat(io::stdin());
        stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_socket())
    };
    matches!(words, [role, ..] if role == ROLE) && words.len() <= 2 && is_socket()
}

fn serve(reached: fn(&str)) -> io::Result<()> {
    files::by_itself();
    session::stand_alone();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    work(&socket, reached)
}

/// Carries out requests until the socket closes.
fn work(socket: &UnixStream, reached: fn(&str)) -> io::Result<()> {
    while let Some(job) = read_frame::<Job>(&mut &*socket)? {
        obey(job, socket, reached)?;
    }
    Ok(())
}

fn obey(job: Job, socket: &UnixStream, reached: fn(&str)) -> io::Result<()> {
    let answer = |outcome: Result<u32>| {
        let answer: Answer = outcome.map_err(Trouble::from);
        write_frame(&mut &*socket, &answer)
    };
    let device = |number| LoopDevice { number };
    match job {
        Job::Attach { file, sector, read_only } => {
            let attached = direct::attach(&file, sector, read_only);
            let made = attached.as_ref().ok().copied();
            reached("attached");
            let sent = answer(attached.map(|device| device.number));
            // H7
            if let (Err(_), Some(device)) = (sent, made.filter(|_| !planted::is("keeps_for_nobody"))) {
                direct::abandon(device);
            }
            Ok(())
        }
        Job::Detach(number) => answer(direct::detach(device(number), || is_gone(socket)).map(|()| 0)),
        Job::Abandon(numbers) => {
            numbers.into_iter().for_each(|number| direct::abandon(device(number)));
            answer(Ok(0))
        }
        Job::UpdateSize(number) => answer(direct::update_size(device(number)).map(|()| 0)),
        Job::SetReadOnly(number, read_only) => answer(direct::set_read_only(device(number), read_only).map(|()| 0)),
        Job::FlushCache(number) => answer(direct::flush_cache(device(number)).map(|()| 0)),
        Job::IsClaimed(major, minor) => answer(direct::is_claimed(major, minor).map(u32::from)),
        Job::Hold { volumes, near } => hold::hold(socket, volumes, near, reached),
        Job::Thaw(markers) => {
            markers.iter().for_each(|marker| hold::thaw_left_over(marker));
            answer(Ok(0))
        }
        Job::Probe(paths) => probe::answer(socket, paths),
        Job::Sample(asked) => sample::answer(socket, &asked),
        Job::LookAtFormats(paths) => formats::answer(socket, paths),
        Job::Record(lines) => {
            reached("recording");
            answer(history::write_down(&lines).doing(|| "write".into()).map(|()| 0))
        }
        Job::Archive(work) => {
            reached("archiving");
            answer(archive::obey(work, &|| !is_gone(socket)).doing(|| "write".into()))
        }
        Job::Witness(work) => {
            reached("witnessing");
            answer(witness::obey(&work).doing(|| "write".into()).map(|()| 0))
        }
        Job::Settings => {
            reached("settings");
            write_frame(&mut &*socket, &settings::load())
        }
        Job::File(asked) => {
            reached("reading a file");
            write_compact(&mut &*socket, &files::answer(&asked))
        }
        Job::History => history::answer(socket),
        Job::Devices(change) => answer(devices::file::obey(&change).doing(|| "write".into()).map(|()| 0)),
        Job::Open { path, alone } => {
            reached("opening");
            handed::answer(socket, &path, alone)
        }
    }
}

/// Whether the path still leads to this open file. If its directory was removed, the lock counts for nothing.
pub(crate) fn has_name(file: &File, path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (file.dev(), file.ino()) == (named.dev(), named.ino())
}
