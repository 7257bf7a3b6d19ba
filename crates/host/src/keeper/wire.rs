//! The protocol between a server and its keeper: one message per packet, some with a file descriptor.
//!
//! The server asks and the keeper answers, one message at a time. A message is a letter and its text. Messages are
//! never stored. The two ends may be different builds of the program, so unknown fields are skipped and missing ones
//! are an error.

use rowen_control::status::KeeperAnswer;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest message.
const MAX_MESSAGE: usize = 1024;
/// The text of a server that has taken over.
const TOOK_OVER: &str = "took over";
/// A reason is truncated to this many bytes, so that its message is not too long.
const LONGEST_REASON: usize = 800;

/// The version of these messages and of the state that a keeper passes to the next program ([`super::handing`]). Older
/// keepers have no version and do not support upgrades.
pub const VERSION: u32 = 2;
/// The oldest version that this program supports.
pub const OLDEST: u32 = 2;

/// The versions of a protocol that a program supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub newest: u32,
    pub oldest: u32,
}

impl Versions {
    /// This program's.
    pub const OWN: Versions = Versions { newest: VERSION, oldest: OLDEST };

    /// Whether both support a common version.
    pub fn fit(self, other: Versions) -> bool {
        self.oldest.max(other.oldest) <= self.newest.min(other.newest)
    }

    fn encode(self) -> String {
        format!("newest={}\noldest={}", self.newest, self.oldest)
    }

    fn decode(text: &str) -> Option<Versions> {
        Some(Versions { newest: number(text, "newest")?, oldest: number(text, "oldest")? })
    }
}

/// A number of a text of lines `key=number`.
fn number<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    text.split('\n').find_map(|line| line.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

/// The stage of an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// There was none.
    #[default]
    None,
    /// The keeper is replaced, and the successor started. The old server serves.
    Starting,
    /// The successor waits for the old server's end.
    Ready,
    /// The old server has ended, and no other serves yet.
    Taking,
    /// The successor serves, and has not served for long.
    Serving,
    Done,
    /// The old program continues.
    Failed,
}

impl Stage {
    const ALL: [(Stage, &str); 7] = [
        (Stage::None, "none"),
        (Stage::Starting, "starting"),
        (Stage::Ready, "ready"),
        (Stage::Taking, "taking"),
        (Stage::Serving, "serving"),
        (Stage::Done, "done"),
        (Stage::Failed, "failed"),
    ];
}

/// A keeper's answer about the running or the last upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub stage: Stage,
    /// For this many milliseconds nothing was read from the volumes' devices, if the old server reported when it
    /// stopped.
    pub pause: Option<u64>,
    /// Why it failed.
    pub why: String,
}

impl Progress {
    fn encode(&self) -> String {
        let word = Stage::ALL.iter().find(|(stage, _)| *stage == self.stage).map_or("", |(_, word)| word);
        let pause = self.pause.map_or(String::new(), |pause| format!("\npause={pause}"));
        let end = (0..=self.why.len().min(LONGEST_REASON)).rev().find(|end| self.why.is_char_boundary(*end));
        format!("{word}{pause}\nwhy={}", self.why[..end.unwrap_or(0)].replace('\n', " "))
    }

    fn decode(text: &str) -> Option<Progress> {
        let word = text.split('\n').next()?;
        let stage = Stage::ALL.iter().find(|(_, known)| *known == word)?.0;
        let why = text.split('\n').find_map(|line| line.strip_prefix("why=")).unwrap_or_default();
        Some(Progress { stage, pause: number(text, "pause"), why: why.to_owned() })
    }
}

/// The export of a volume, as a server records it for its successors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name of the mounted file. It identifies the export, even after a rename of the volume.
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
        // Not `lines`, which would remove a carriage return at the end of a name.
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
    // From a server. The sender is the group's server from now on: if it ends without a `Bye`, another is started. It
    // sends the message again when it serves all kept volumes. (Builds that do not know the difference read the same
    // message.)
    Serve {
        took_over: bool,
    },
    /// The sender wants to notice the keeper's end. There are no more messages.
    Watch,
    /// Keep this descriptor, which comes with the message, or replace the one with the same `file`.
    Hold(Entry),
    Release(String),
    /// Send everything that is kept.
    List,
    /// Send your status. Any process may ask.
    Tell,
    /// The service manager's store may be empty: give it everything again (K6).
    Store,
    /// The group has this name from now on, and its directory has moved.
    Rename(String),
    /// The server ends on purpose, and its successor continues with the kept descriptors. No death is counted. The
    /// number, if any, says for how many milliseconds it has read no requests. `stays`: its process may not end, because
    /// requests hang, and has let go of what a successor needs (DT2). (An older keeper waits for its end.)
    HandOver {
        paused: Option<u64>,
        stays: bool,
    },
    /// The sender asks which versions of these messages the keeper supports.
    Versions,
    /// The program that comes with the message replaces the keeper's and the server's. The message has the versions
    /// that the program supports. The sender stays connected; if its connection ends before the old server, the upgrade
    /// is cancelled.
    Upgrade(Versions),
    /// The sender is the successor in an upgrade: it is ready except for the disks.
    Ready,
    /// Cancel the upgrade, if the old server still serves.
    Abandon,
    /// Send the progress of the upgrade.
    Progress,
    /// The server ends on purpose and nothing is active: the keeper ends too.
    Bye,
    // From the keeper.
    Done,
    /// One kept descriptor (it comes with the message).
    Held(Entry),
    Refused(String),
    Told(KeeperAnswer),
    Speaks(Versions),
    Upgrading(Progress),
}

fn encode_answer(answer: &KeeperAnswer) -> String {
    format!("started={}\ndeaths={}\nfailures={}\nheld={}", answer.started, answer.deaths, answer.failures, answer.held)
}

fn decode_answer(text: &str) -> Option<KeeperAnswer> {
    let field = |key: &str| number(text, key);
    let started = field("started")?;
    // A keeper of an earlier version does not count them separately.
    let deaths = field("deaths").unwrap_or(started);
    Some(KeeperAnswer { started, deaths, failures: field("failures")?, held: field("held")? })
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
            Message::Store => ('F', String::new()),
            Message::Rename(group) => ('N', group.clone()),
            Message::HandOver { paused, stays } => {
                let paused = paused.map(|paused| format!("paused={paused}"));
                let lines = [paused, stays.then(|| "stays=1".to_owned())];
                ('O', lines.into_iter().flatten().collect::<Vec<_>>().join("\n"))
            }
            Message::Versions => ('V', String::new()),
            Message::Upgrade(versions) => ('U', versions.encode()),
            Message::Ready => ('Y', String::new()),
            Message::Abandon => ('A', String::new()),
            Message::Progress => ('P', String::new()),
            Message::Bye => ('B', String::new()),
            Message::Done => ('d', String::new()),
            Message::Held(entry) => ('h', entry.encode()),
            Message::Refused(why) => ('r', why.clone()),
            Message::Told(answer) => ('t', encode_answer(answer)),
            Message::Speaks(versions) => ('v', versions.encode()),
            Message::Upgrading(progress) => ('u', progress.encode()),
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
            'F' => Message::Store,
            'N' => Message::Rename(rest.into()),
            'O' => Message::HandOver { paused: number(rest, "paused"), stays: number(rest, "stays") == Some(1) },
            'V' => Message::Versions,
            'U' => Message::Upgrade(Versions::decode(rest)?),
            'Y' => Message::Ready,
            'A' => Message::Abandon,
            'P' => Message::Progress,
            'B' => Message::Bye,
            'd' => Message::Done,
            'h' => Message::Held(Entry::decode(rest)?),
            'r' => Message::Refused(rest.into()),
            't' => Message::Told(decode_answer(rest)?),
            'v' => Message::Speaks(Versions::decode(rest)?),
            'u' => Message::Upgrading(Progress::decode(rest)?),
            _ => return None,
        })
    }
}

/// Sends one message. Raises no signal if the other end is closed.
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

/// Receives one message. `Ok(None)`: the other end is closed.
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
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "that is not a message of a server or keeper");
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
            Message::Told(KeeperAnswer { started: 3, deaths: 1, failures: 2, held: 1 }),
            Message::Store,
            Message::Rename("other".into()),
            Message::HandOver { paused: None, stays: false },
            Message::HandOver { paused: Some(12), stays: false },
            Message::HandOver { paused: Some(12), stays: true },
            Message::Versions,
            Message::Upgrade(Versions { newest: 4, oldest: 3 }),
            Message::Ready,
            Message::Abandon,
            Message::Progress,
            Message::Speaks(Versions::OWN),
            Message::Upgrading(Progress { stage: Stage::Failed, pause: Some(7), why: "it ended".into() }),
            Message::Upgrading(Progress::default()),
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
    fn a_long_reason_is_cut() {
        let progress = Progress { stage: Stage::Failed, pause: None, why: "\u{e4}".repeat(1000) };
        let bytes = Message::Upgrading(progress).encode();
        assert!(bytes.len() <= MAX_MESSAGE && Message::decode(&bytes).is_some());
    }

    #[test]
    fn versions_fit_that_have_one_in_common() {
        let of = |oldest, newest| Versions { newest, oldest };
        assert!(of(2, 2).fit(of(2, 3)) && of(2, 3).fit(of(3, 4)) && of(3, 4).fit(of(2, 3)));
        assert!(!of(2, 2).fit(of(3, 4)) && !of(3, 4).fit(of(2, 2)));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [
            &b""[..],
            b"x",
            b"H",
            b"Hfile=a\nid=x\nname=b",
            b"Hfile=a\nid=1\nname=b\nloop=x",
            b"\xff",
            b"Unewest=2",
            b"uso",
        ] {
            assert_eq!(Message::decode(bytes), None, "{bytes:?}");
        }
    }
}
