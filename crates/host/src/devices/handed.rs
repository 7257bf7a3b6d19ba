//! Opens a device through a helper process, which passes the open file. If the device hangs when it is opened or first
//! read, the caller waits for at most [`patience::limit`], and can end at any time. The exclusive hold belongs to the
//! open file, so it is passed with it.
//!
//! * H12 A helper opens a device that joins, and passes the open file to the server. A device that does not answer is
//!   refused.

use super::Error;
use super::plain::Plain;
use crate::disks::open::{self, Opened};
use crate::disks::{OpenError, OpenMode, Reason};
use crate::helper::{Job, Session, is_late};
use crate::{patience, planted};
use rowen_control::protocol::write_frame;
use rowen_engine::disk::PvGeometry;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A helper's description of the device that it has opened. The file follows it.
#[derive(Debug, Serialize, Deserialize)]
struct Handed {
    size: u64,
    sector: u32,
    is_device: bool,
    turns: bool,
    direct: bool,
}

/// Why it could not be opened: [`Reason`], as it travels.
#[derive(Debug, Serialize, Deserialize)]
enum Refused {
    Missing,
    NotADisk(String),
    ReadOnly,
    InUse { by: Option<String> },
    Mounted { at: String },
    TooSmall { size: u64, least: u64 },
    TooMany,
    System { doing: String, errno: Option<i32>, why: String },
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Refused {
        match reason {
            Reason::Missing => Refused::Missing,
            Reason::NotADisk(what) => Refused::NotADisk(what.into()),
            Reason::ReadOnly => Refused::ReadOnly,
            Reason::InUse { by } => Refused::InUse { by },
            Reason::Mounted { at } => Refused::Mounted { at },
            Reason::TooSmall { size, least } => Refused::TooSmall { size, least },
            Reason::TooMany => Refused::TooMany,
            Reason::System { doing, source } => {
                Refused::System { doing: doing.into(), errno: source.raw_os_error(), why: source.to_string() }
            }
        }
    }
}

impl From<Refused> for Reason {
    fn from(refused: Refused) -> Reason {
        let known = |text: &str, of: &[&'static str], otherwise| {
            of.iter().copied().find(|one| *one == text).unwrap_or(otherwise)
        };
        match refused {
            Refused::Missing => Reason::Missing,
            Refused::NotADisk(what) => Reason::NotADisk(known(&what, open::KINDS, "something else")),
            Refused::ReadOnly => Reason::ReadOnly,
            Refused::InUse { by } => Reason::InUse { by },
            Refused::Mounted { at } => Reason::Mounted { at },
            Refused::TooSmall { size, least } => Reason::TooSmall { size, least },
            Refused::TooMany => Reason::TooMany,
            Refused::System { doing, errno, why } => {
                let source = errno.map_or_else(|| io::Error::other(why), io::Error::from_raw_os_error);
                Reason::System { doing: known(&doing, open::STEPS, "opening it"), source }
            }
        }
    }
}

/// Opens `path` by a helper.
pub fn open(path: &Path, mode: OpenMode) -> Result<Plain, Error> {
    let failed = |source: io::Error| match is_late(&source) {
        true => Error::Silent(path.to_owned()),
        false => Error::Io { path: path.to_owned(), what: "open through a helper process", source },
    };
    if planted::is("opens_itself") {
        planted::reached()("opening");
        return Plain::open_here(path, mode);
    }
    let limit = patience::for_devices();
    let mut session =
        Session::start(Job::Open { path: path.to_owned(), alone: mode == OpenMode::Exclusive }).map_err(failed)?;
    let answer: Result<Handed, Refused> = session.receive(limit).map_err(failed)?;
    let opened = match answer {
        Ok(Handed { size, sector, is_device, turns, direct }) => {
            let fd = session.with_socket(receive).map_err(failed)?;
            Ok(Opened { fd, geometry: PvGeometry { size, sector }, is_device, turns, direct })
        }
        Err(refused) => Err(OpenError { path: path.to_owned(), reason: refused.into() }),
    };
    session.end();
    Plain::of(path, opened?)
}

/// In a helper: opens the device and hands it over.
pub fn answer(socket: &UnixStream, path: &Path, alone: bool) -> io::Result<()> {
    let mode = if alone { OpenMode::Exclusive } else { OpenMode::ReadOnly };
    let (answer, fd) = match open::open(path, mode) {
        Ok(Opened { fd, geometry: PvGeometry { size, sector }, is_device, turns, direct }) => {
            (Ok(Handed { size, sector, is_device, turns, direct }), Some(fd))
        }
        Err(error) => (Err(Refused::from(error.reason)), None),
    };
    write_frame(&mut &*socket, &answer)?;
    fd.map_or(Ok(()), |fd| send(socket, &fd))
}

fn send(socket: &UnixStream, fd: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(socket, &[IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the helper process was killed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_come_back_as_they_went() {
        let reasons = [
            Reason::Missing,
            Reason::NotADisk("a pipe"),
            Reason::ReadOnly,
            Reason::InUse { by: Some("process 7 (x)".into()) },
            Reason::Mounted { at: "/mnt".into() },
            Reason::TooSmall { size: 1, least: 2 },
            Reason::TooMany,
            Reason::System { doing: "locking it", source: io::Error::from_raw_os_error(libc::EIO) },
        ];
        for reason in reasons {
            let told = |reason| OpenError { path: "/dev/x".into(), reason }.to_string();
            let before = format!("{reason:?}");
            let back = Reason::from(Refused::from(reason));
            assert_eq!(format!("{back:?}"), before);
            assert!(told(back).starts_with("/dev/x"));
        }
    }

    #[test]
    fn an_open_file_is_handed_over() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&there, &file.into()).unwrap();
        let received = std::fs::File::from(receive(&here).unwrap());
        assert_eq!(
            std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&received))).unwrap(),
            Path::new("/dev/null")
        );
        drop(there);
        assert!(receive(&here).is_err());
    }
}
