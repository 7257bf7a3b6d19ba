//! Failures on the control socket: a kind for programs, and a sentence for people. The sentence names the group, volume
//! or device, and says what to do. If LVM has a sentence for it, Rowen uses LVM's.

use crate::protocol::{ErrorKind, Outcome};
use crate::uuids::lvm_text;
use rowen_engine::disk::{DiskError, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::WHILE_MISSING;
use rowen_engine::units::Uuid;
use std::path::PathBuf;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: ErrorKind,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }

    /// LVM's sentence for a volume that does not exist.
    pub fn no_volume(group: &str, name: &str) -> Failure {
        Failure::new(ErrorKind::NotFound, format!("Failed to find logical volume \"{group}/{name}\""))
    }

    /// Several failures as one: the kind of the first, and all sentences.
    pub fn join(failures: Vec<Failure>) -> Option<Failure> {
        let kind = failures.first()?.kind;
        let message = failures.into_iter().map(|failure| failure.message).collect::<Vec<_>>().join("\n");
        Some(Failure { kind, message })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        Outcome::Error { kind: failure.kind, message: failure.message }
    }
}

/// The kind of an engine's error.
pub fn engine_kind(error: &Error) -> ErrorKind {
    match error {
        Error::Disk(_) | Error::Poisoned(_) => ErrorKind::Io,
        Error::Corrupt { .. } => ErrorKind::Damaged,
        Error::NoSpace { .. } | Error::NoRoom(_) => ErrorKind::NoSpace,
        Error::NotFound(_) | Error::MissingPv(_) | Error::OlderCopy(_) => ErrorKind::NotFound,
        Error::Exists(_) => ErrorKind::Exists,
        Error::Invalid(_) | Error::Unrelated => ErrorKind::Invalid,
        Error::Moved => ErrorKind::Changed,
        Error::Busy(_) => ErrorKind::InUse,
        Error::ReadOnly | Error::ReadableOnly { .. } | Error::InvalidSnapshot | Error::Unsupported(_) => {
            ErrorKind::Denied
        }
        Error::Closed | Error::DiskLost(_) => ErrorKind::Closed,
    }
}

/// Starts with a capital letter and ends with a full stop.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let mut whole: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    if !whole.ends_with(['.', '!', '?', '"']) {
        whole.push('.');
    }
    whole
}

/// The refusal of a change that needs all physical volumes, in LVM's words.
pub fn refused_while_missing(group: &str) -> String {
    format!(
        "Cannot change VG {group} while PVs are missing.\n\
         See vgreduce --removemissing and vgextend --restoremissing.\n\
         Cannot process volume group {group}"
    )
}

/// The names for an engine's error.
pub struct Context<'a> {
    pub group: &'a str,
    pub extent_blocks: u64,
    /// The group's devices, in order.
    pub devices: &'a dyn Fn(usize) -> Option<PathBuf>,
}

impl Context<'_> {
    /// An engine's error about the volume `name`, or about the group if `name` is empty.
    pub fn failure(&self, error: &Error, name: &str) -> Failure {
        let group = self.group;
        let subject = if name.is_empty() {
            format!("Volume group \"{group}\"")
        } else {
            format!("Logical volume {group}/{name}")
        };
        let message = match error {
            // Free blocks are not the problem: metadata grows by whole extents, two at a time.
            Error::NoSpace { needed, free } if free >= needed => format!(
                "Insufficient free space for metadata in volume group \"{group}\": what is free is in pieces that are too small. Remove \
                 volumes, or add a physical volume with vgextend."
            ),
            Error::NoSpace { needed, free } => {
                let extents = self.extent_blocks.max(1);
                let (needed, free) = (needed.div_ceil(extents), free / extents);
                format!("Insufficient free space: {needed} extents needed, but only {free} available")
            }
            Error::NotFound(what) if what.is_empty() || what == name => {
                return Failure::no_volume(group, name);
            }
            Error::Exists(_) if !name.is_empty() => {
                format!("Logical Volume \"{name}\" already exists in volume group \"{group}\"")
            }
            Error::Disk(error) => self.disk_sentence(error),
            Error::NoRoom(error) => format!(
                "No room behind physical volume {} of volume group \"{group}\": make room on what it lies on.",
                self.device(error.pv)
            ),
            Error::Corrupt { what, place, detail } => format!(
                "Volume group \"{group}\": {what} at {place} is damaged: {detail}. Run \"rowen check {group}\" to see all of it."
            ),
            Error::Poisoned(why) => format!(
                "Volume group \"{group}\" stopped after a failed write ({}). Once the disk is well, run \
                 \"rowen clear {group}\".",
                self.with_devices(why)
            ),
            Error::DiskLost(error) => {
                format!("{} Volume group \"{group}\" goes on without it; try again.", self.disk_sentence(error))
            }
            Error::Closed => format!("Volume group \"{group}\" is shutting down; try again."),
            Error::OlderCopy(pv) => format!(
                "Physical volume {} of volume group \"{group}\" is an older copy: it lacks what was written to mirrored volumes later. \
                 Attach its newest copy. If there is none: detach this one, and open the group without it (vgchange -ay --activationmode \
                 degraded {group}); if it is open without it, give it up (vgreduce --removemissing {group}).",
                self.device(*pv)
            ),
            Error::MissingPv(why) if why == WHILE_MISSING => refused_while_missing(group),
            Error::ReadOnly => format!("{subject} is read-only."),
            Error::InvalidSnapshot => {
                format!(
                    "{subject} is invalid and can only be removed: it used up its reserve, or was dropped for room."
                )
            }
            other => self.words_about(&subject, &with_lvms_identifiers(&other.to_string())),
        };
        Failure { kind: engine_kind(error), message }
    }

    /// The engine's words as a sentence about a subject, which is said once.
    fn words_about(&self, subject: &str, words: &str) -> String {
        let own = format!("volume group {}", self.group);
        let rest = words.strip_prefix(&own).filter(|_| subject.starts_with("Volume group")).unwrap_or_default();
        match rest.strip_prefix(": ") {
            Some(rest) => format!("{subject}: {}", sentence(rest)),
            None if rest.starts_with(' ') => format!("{subject}{}", sentence(rest)),
            None => format!("{subject}: {}", sentence(words)),
        }
    }

    /// The name of a physical volume.
    pub fn device(&self, pv: PvIndex) -> String {
        let device = (self.devices)(usize::from(pv.0));
        device.map_or_else(|| format!("number {}", pv.0), |path| path.display().to_string())
    }

    /// The engine's message, with device names instead of the numbers of physical volumes.
    pub fn with_devices(&self, words: &str) -> String {
        const MARK: &str = "physical volume ";
        let (mut text, mut rest) = (String::new(), words);
        while let Some((before, after)) = rest.split_once(MARK) {
            let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            text.push_str(before);
            text.push_str(MARK);
            rest = match after[..digits].parse() {
                Ok(index) => {
                    text.push_str(&self.device(PvIndex(index)));
                    &after[digits..]
                }
                Err(_) => after,
            };
        }
        text + rest
    }

    fn disk_sentence(&self, error: &DiskError) -> String {
        let device = self.device(error.pv);
        let what = std::io::Error::from_raw_os_error(error.errno);
        let op = format!("{:?}", error.op).to_lowercase();
        format!(
            "Physical volume {device} of volume group \"{}\": {op} failed at byte {}: {what}.",
            self.group, error.offset
        )
    }
}

/// The engine's words with identifiers as reports show them.
fn with_lvms_identifiers(words: &str) -> String {
    const DIGITS: usize = 32;
    let (mut text, mut rest) = (String::new(), words);
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        let length = from.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(from.len());
        let (word, after) = from.split_at(length.max(1));
        text.push_str(before);
        let starts_word = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        match u128::from_str_radix(word, 16).ok().filter(|_| word.len() == DIGITS && starts_word) {
            Some(number) => text.push_str(&lvm_text(Uuid(number.to_be_bytes()))),
            None => text.push_str(word),
        }
        rest = after;
    }
    text + rest
}

#[cfg(test)]
#[path = "failure_test.rs"]
mod tests;
