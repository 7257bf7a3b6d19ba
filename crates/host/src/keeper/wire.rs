//! What a server and its keeper say to each other: one message per packet, a file descriptor with it where one is meant.
//!
//! The server asks, the keeper answers, one at a time. A message is a letter and its text; nothing here is ever stored,
//! and both ends may be different builds of the program, so unknown fields are skipped and missing ones are an error.

use rowen_control::status::KeeperTold;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest message.
const MAX_MESSAGE: usize = 1024;
/// The text of a server that has taken over.
const TOOK_OVER: &str = "took over";

/// A volume's export, as its server describes it to itself for later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the mounted file: what identifies the export, whatever the volume is called.
    pub file: String,
    /// The volume's number in its group.
    pub id: u64,
    /// The volume's name when this was written.
    pub name: String,
    /// The loop device; none while it is being set up.
    pub loop_number: Option<u32>,
}

impl Entry {
    fn encode(&self) -> String {
        let number = self.loop_number.map_or(String::new(), |number| format!("\nloop={number}"));
        format!("file={}\nid={}\nname={}{number}", self.file, self.id, self.name)
    }

    fn decode(text: &str) -> Option<Entry> {
        // Not `lines`, which would take a carriage return away from the end of a name.
        let field = |key: &str| text.split('\n').find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let loop_number = match field("loop") {
            Some(number) => Some(number.parse().ok()?),
            None => None,
        };
        Some(Entry {
            file: field("file")?.into(),
            id: field("id")?.parse().ok()?,
            name: field("name")?.into(),
            loop_number,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    // From a server.
    /// The sender is the group's server from now on: when it goes without a `Bye`, another is started. It says so again
    /// when it serves all that was kept. (Builds that do not know the difference read the same message.)
    Serve {
        took_over: bool,
    },
    /// The sender wants to know when the keeper goes; nothing more is said.
    Watch,
    /// Keep this descriptor (it comes with the message), or replace what is kept under its `file`.
    Hold(Entry),
    Release(String),
    /// Send everything that is kept.
    List,
    /// Tell how you are. Anybody may ask.
    Tell,
    /// The group has this name from now on, and its directory has moved.
    Rename(String),
    /// The server ends on purpose, and its successor goes on with what is kept: no death is counted.
    HandOver,
    /// The server ends on purpose and nothing is active: the keeper ends too.
    Bye,
    // From the keeper.
    Done,
    /// One kept descriptor (it comes with the message).
    Held(Entry),
    Refused(String),
    Told(KeeperTold),
}

fn encode_told(told: &KeeperTold) -> String {
    format!("started={}\ndeaths={}\nfailures={}\nheld={}", told.started, told.deaths, told.failures, told.held)
}

fn decode_told(text: &str) -> Option<KeeperTold> {
    let field = |key: &str| text.split('\n').find_map(|line| line.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
    let started = field("started")?;
    // A keeper of an earlier version counts none by themselves.
    let deaths = field("deaths").unwrap_or(started);
    Some(KeeperTold { started, deaths, failures: field("failures")?, held: field("held")? })
}

impl Message {
    pub fn encode(&self) -> Vec<u8> {
        let (letter, text) = match self {
            Message::Serve { took_over } => ('S', if *took_over { TOOK_OVER.into() } else { String::new() }),
            Message::Watch => ('W', String::new()),
            Message::Hold(entry) => ('H', entry.encode()),
            Message::Release(file) => ('R', file.clone()),
            Message::List => ('L', String::new()),
            Message::Tell => ('T', String::new()),
            Message::Rename(group) => ('N', group.clone()),
            Message::HandOver => ('O', String::new()),
            Message::Bye => ('B', String::new()),
            Message::Done => ('d', String::new()),
            Message::Held(entry) => ('h', entry.encode()),
            Message::Refused(why) => ('r', why.clone()),
            Message::Told(told) => ('t', encode_told(told)),
        };
        format!("{letter}{text}").into_bytes()
    }

    /// `None`: not a message.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let text = std::str::from_utf8(bytes).ok()?;
        let letter = text.chars().next()?;
        let rest = &text[letter.len_utf8()..];
        Some(match letter {
            'S' => Message::Serve { took_over: rest == TOOK_OVER },
            'W' => Message::Watch,
            'H' => Message::Hold(Entry::decode(rest)?),
            'R' => Message::Release(rest.into()),
            'L' => Message::List,
            'T' => Message::Tell,
            'N' => Message::Rename(rest.into()),
            'O' => Message::HandOver,
            'B' => Message::Bye,
            'd' => Message::Done,
            'h' => Message::Held(Entry::decode(rest)?),
            'r' => Message::Refused(rest.into()),
            't' => Message::Told(decode_told(rest)?),
            _ => return None,
        })
    }
}

/// Sends one message. Never raises a signal when the other end is gone.
pub fn send(socket: &OwnedFd, message: &Message, fd: Option<BorrowedFd<'_>>, flags: SendFlags) -> io::Result<()> {
    let bytes = message.encode();
    if bytes.len() > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message. `Ok(None)`: the other end is gone.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut bytes = [0u8; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Ok(None);
    }
    let message = Message::decode(&bytes[..received.bytes]);
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "that is no message of a server or keeper");
    Ok(Some((message.ok_or_else(bad)?, fd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_went() {
        let entry = Entry { file: "a.1".into(), id: 7, name: "a".into(), loop_number: Some(3) };
        let setting_up = Entry { loop_number: None, ..entry.clone() };
        let messages = [
            Message::Serve { took_over: false },
            Message::Serve { took_over: true },
            Message::Watch,
            Message::Hold(entry.clone()),
            Message::Hold(setting_up),
            Message::Release("a.1".into()),
            Message::List,
            Message::Tell,
            Message::Told(KeeperTold { started: 3, deaths: 1, failures: 2, held: 1 }),
            Message::Rename("other".into()),
            Message::HandOver,
            Message::Bye,
            Message::Done,
            Message::Held(entry),
            Message::Refused("because".into()),
        ];
        for message in messages {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b""[..], b"x", b"H", b"Hfile=a\nid=x\nname=b", b"Hfile=a\nid=1\nname=b\nloop=x", b"\xff"] {
            assert_eq!(Message::decode(bytes), None, "{bytes:?}");
        }
    }
}
