//! What a disk does to requests: rules, each with an action, and which requests it meets. Nothing here waits.

use crate::cache::Dice;
use rowen_host::export::Errno;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Discard,
}

pub const KINDS: [(Kind, &str); 4] =
    [(Kind::Read, "read"), (Kind::Write, "write"), (Kind::Flush, "flush"), (Kind::Discard, "discard")];

const ERRNOS: [(Errno, &str); 7] = [
    (libc::EIO, "EIO"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ENXIO, "ENXIO"),
    (libc::ENODEV, "ENODEV"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::EREMOTEIO, "EREMOTEIO"),
    (libc::EILSEQ, "EILSEQ"),
];

/// What is done to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It fails, and nothing is done.
    Error(Errno),
    /// It is answered later, after a time between these.
    Delay(Range<Duration>),
    /// It is answered when the rule is dropped.
    Hang,
    /// It is answered, and nothing is done.
    Lose,
    /// A write lands this many bytes further on.
    Misdirect(u64),
    /// One bit of each sector is another: of a write on the disk, of a read in the answer.
    Rot,
    /// Only the first half of a write is done.
    Tear,
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub number: u64,
    pub action: Action,
    kinds: Vec<Kind>,
    at: Option<Range<u64>>,
    percent: f64,
    times: Option<u64>,
    pub hits: u64,
}

/// Bytes: a number, with K, M or G for powers of 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("{text}: not a number of bytes")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text}: not a number of bytes"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text}: too many bytes"))
}

/// `OFFSET+LENGTH`.
fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, len) = text.split_once('+').ok_or_else(|| format!("{text}: a range is OFFSET+LENGTH"))?;
    let (from, len) = (bytes(from)?, bytes(len)?);
    Ok(from..from.checked_add(len).ok_or_else(|| format!("{text}: beyond every disk"))?)
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}

fn millis(text: &str) -> Result<Range<Duration>, String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most): (u64, u64) = (number(least)?, number(most)?);
    if most < least {
        return Err(format!("{text}: ends before it begins"));
    }
    Ok(Duration::from_millis(least)..Duration::from_millis(most))
}

impl Rule {
    /// From the words of `add`.
    pub fn parse(number_of_it: u64, words: &[&str]) -> Result<Rule, String> {
        let (name, options) = words.split_first().ok_or("add what? See faultdisk --help")?;
        let (mut errno, mut pause, mut by) = (libc::EIO, None, None);
        let default = match *name {
            "misdirect" | "rot" | "tear" | "lose" => vec![Kind::Write],
            _ => KINDS.map(|(kind, _)| kind).to_vec(),
        };
        let mut rule = Rule {
            number: number_of_it,
            action: Action::Hang,
            kinds: default,
            at: None,
            percent: 100.0,
            times: None,
            hits: 0,
        };
        for option in options {
            let (key, value) = option.split_once('=').ok_or_else(|| format!("{option}: an option is KEY=VALUE"))?;
            match key {
                "on" => {
                    let kind = |word: &str| KINDS.iter().find(|(_, name)| *name == word).map(|(kind, _)| *kind);
                    let kinds: Option<Vec<Kind>> = value.split(',').map(kind).collect();
                    rule.kinds = kinds.ok_or_else(|| format!("{value}: not read, write, flush, discard"))?;
                }
                "at" => rule.at = Some(range(value)?),
                "chance" => rule.percent = number(value)?,
                "times" => rule.times = Some(number(value)?),
                "errno" => {
                    let known = ERRNOS.iter().find(|(_, name)| *name == value).map(|(errno, _)| *errno);
                    errno = known.ok_or_else(|| format!("{value}: an error that is not known here"))?;
                }
                "ms" => pause = Some(millis(value)?),
                "by" => by = Some(bytes(value)?),
                _ => return Err(format!("{key}: no such option. See faultdisk --help")),
            }
        }
        rule.action = match *name {
            "error" => Action::Error(errno),
            "delay" => Action::Delay(pause.ok_or("delay needs ms=FROM-TO")?),
            "hang" => Action::Hang,
            "lose" => Action::Lose,
            "misdirect" => Action::Misdirect(by.ok_or("misdirect needs by=BYTES")?),
            "rot" => Action::Rot,
            "tear" => Action::Tear,
            _ => return Err(format!("{name}: no such fault. See faultdisk --help")),
        };
        Ok(rule)
    }

    fn meets(&self, kind: Kind, range: &Range<u64>) -> bool {
        let is_there = self.at.as_ref().is_none_or(|at| at.start < range.end && range.start < at.end);
        self.kinds.contains(&kind) && is_there && self.times.is_none_or(|times| self.hits < times)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} {:?} on", self.number, self.action)?;
        for kind in &self.kinds {
            write!(f, " {kind:?}")?;
        }
        if let Some(at) = &self.at {
            write!(f, " at {}+{}", at.start, at.end - at.start)?;
        }
        write!(f, ", {} %, hits {}", self.percent, self.hits)
    }
}

/// What happens to one request.
#[derive(Debug, Default, PartialEq)]
pub struct Fate {
    pub delay: Duration,
    /// The rules for as long as which it hangs.
    pub hangs: Vec<u64>,
    pub errno: Option<Errno>,
    pub is_lost: bool,
    pub is_torn: bool,
    pub misdirected: u64,
    /// Bits that are flipped, by their place on the disk; the number chooses the bit.
    pub rot: Vec<(Range<u64>, u64)>,
}

/// All rules of a disk.
pub struct Rules {
    pub all: Vec<Rule>,
    dice: Dice,
    next: u64,
}

impl Rules {
    pub fn new(seed: u64) -> Rules {
        Rules { all: Vec::new(), dice: Dice(seed), next: 1 }
    }

    pub fn add(&mut self, words: &[&str]) -> Result<u64, String> {
        let rule = Rule::parse(self.next, words)?;
        self.next += 1;
        self.all.push(rule);
        Ok(self.next - 1)
    }

    pub fn chance(&mut self) -> u64 {
        self.dice.next()
    }

    /// What happens to a request. A rule that meets it by chance is counted as often as it does.
    pub fn fate(&mut self, kind: Kind, range: &Range<u64>) -> Fate {
        let mut fate = Fate::default();
        for rule in &mut self.all {
            if !rule.meets(kind, range) || self.dice.below(1_000_000) as f64 >= rule.percent * 10_000.0 {
                continue;
            }
            rule.hits += 1;
            match &rule.action {
                Action::Error(errno) => fate.errno = Some(*errno),
                Action::Delay(pause) => {
                    let spread = (pause.end - pause.start).as_micros() as u64 + 1;
                    fate.delay += pause.start + Duration::from_micros(self.dice.below(spread));
                }
                Action::Hang => fate.hangs.push(rule.number),
                Action::Lose => fate.is_lost = true,
                Action::Tear => fate.is_torn = true,
                Action::Misdirect(by) => fate.misdirected += by,
                Action::Rot => fate.rot.push((rule.at.clone().unwrap_or(0..u64::MAX), self.dice.next())),
            }
        }
        fate
    }
}
