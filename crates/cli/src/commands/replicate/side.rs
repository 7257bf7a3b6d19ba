//! One side of a replication: a volume here or on another host, and the commands that are run there.

use crate::backend::{Said, Where};
use crate::failure::{Failure, Result};
use crate::session::Session;
use rowen_control::names;
use rowen_control::paths::{self, Target};
use rowen_control::points::Points;

/// How other hosts are reached, if nobody says otherwise.
pub const SSH: &str = "ssh";

/// ssh says this, and no command of Rowen's does.
const NO_CONNECTION: u8 = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    pub at: Where,
    pub group: String,
    /// Empty: nothing but the group was named.
    pub volume: String,
}

/// A host, and perhaps a user before it. Nothing that ssh could take for an option.
fn is_host(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match text.split_once('@') {
        Some((user, host)) => is_name(user) && is_name(host),
        None => is_name(text),
    }
}

impl Side {
    /// Reads `[[USER@]HOST:]VG[/LV]`.
    pub fn parse(word: &str, ssh: &str) -> Result<Side> {
        let (at, place) = match word.split_once(':') {
            None => (Where::Here, word),
            Some((host, place)) if is_host(host) => {
                let ssh: Vec<String> = ssh.split_whitespace().map(str::to_owned).collect();
                if ssh.is_empty() {
                    return Err(Failure::usage("Please say how another host is reached: \"ssh\", for instance."));
                }
                (Where::There { ssh, host: host.to_owned() }, place)
            }
            Some((host, _)) => {
                return Err(Failure::usage(format!("\"{}\" is no name of a host.", host.escape_debug())));
            }
        };
        let (group, volume) = match Target::parse(place) {
            Some(Target::Group(group)) => (group, String::new()),
            Some(Target::Volume { group, volume }) if !volume.is_empty() => (group, volume),
            Some(_) => return Err(Failure::usage(format!("Please specify a logical volume: \"{place}\" is none."))),
            None => return Err(Failure::usage(paths::refusal(place))),
        };
        for name in [&group, &volume].into_iter().filter(|name| !name.is_empty()) {
            if let Err(refusal) = names::check_form(name) {
                return Err(Failure::usage(format!("\"{}\" is no name: {refusal}", name.escape_debug())));
            }
        }
        Ok(Side { at, group, volume })
    }

    /// The volume, or the group alone.
    pub fn full(&self) -> String {
        if self.volume.is_empty() { self.group.clone() } else { self.of(&self.volume) }
    }

    /// Another volume of the group.
    pub fn of(&self, volume: &str) -> String {
        format!("{}/{volume}", self.group)
    }

    /// How people call it.
    pub fn shown(&self) -> String {
        match &self.at {
            Where::Here => self.full(),
            Where::There { host, .. } => format!("{host}:{}", self.full()),
        }
    }

    /// Where a person has to go, for the end of a sentence.
    pub fn there(&self) -> String {
        match &self.at {
            Where::Here => String::new(),
            Where::There { host, .. } => format!("On {host}: "),
        }
    }

    /// Runs a command there, which must succeed.
    pub fn run(&self, session: &mut Session<'_>, words: &[&str]) -> Result<Said> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let said = session.backend.rowen(&self.at, &words)?;
        if said.code == 0 { Ok(said) } else { Err(self.failure(&said)) }
    }

    /// What a command said that failed.
    pub fn failure(&self, said: &Said) -> Failure {
        let lines = said.err.lines().map(str::trim).filter(|line| !line.is_empty());
        match &self.at {
            Where::Here => Failure::Failed(lines.map(str::to_owned).collect()),
            Where::There { host, .. } => {
                let first = (said.code == NO_CONNECTION)
                    .then(|| format!("{host} cannot be reached, or the connection ended."))
                    .or_else(|| {
                        said.err.trim().is_empty().then(|| format!("{host}: the command failed ({}).", said.code))
                    });
                Failure::Failed(first.into_iter().chain(lines.map(|line| format!("{host}: {line}"))).collect())
            }
        }
    }

    /// Whether commands can be run there.
    pub fn answers(&self, session: &mut Session<'_>) -> bool {
        let words = ["points", "--json", &self.full()].map(str::to_owned);
        self.at == Where::Here || session.backend.rowen(&self.at, &words).is_ok_and(|said| said.code != NO_CONNECTION)
    }

    /// What there is of the volume.
    pub fn look(&self, session: &mut Session<'_>) -> Result<Points> {
        self.look_with(session, &[])
    }

    /// The same, with more options of `rowen points`.
    pub fn look_with(&self, session: &mut Session<'_>, options: &[&str]) -> Result<Points> {
        let full = self.full();
        let said = self.run(session, &[&["points", "--json", &full], options].concat())?;
        serde_json::from_str(said.out.trim()).map_err(|e| {
            let shown = self.shown();
            Failure::failed(format!("What is said of {shown} cannot be read ({e}): is Rowen of another version there?"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_here_or_on_a_host() {
        let shown = |word: &str| Side::parse(word, "ssh -p 2").map(|side| (side.shown(), side.full()));
        let both = |shown: &str, full: &str| Ok((shown.to_owned(), full.to_owned()));
        assert_eq!(shown("vg0/db"), both("vg0/db", "vg0/db"));
        assert_eq!(shown("/dev/vg0/db"), both("vg0/db", "vg0/db"));
        assert_eq!(shown("root@h-2.example:vg1/db"), both("root@h-2.example:vg1/db", "vg1/db"));
        assert_eq!(shown("h2:vg1"), both("h2:vg1", "vg1"));
        for bad in [
            "-oProxyCommand=x:vg/db",
            "a@-b:vg/db",
            ":vg/db",
            "h2:",
            "h2:@tag",
            "h2:vg/a b",
            "h2:vg/$(id)",
            "a;b:vg/db",
            "vg/",
            "h 2:vg",
        ] {
            assert_eq!(Side::parse(bad, "ssh").unwrap_err().exit_code(), 3, "{bad}");
        }
        assert!(Side::parse("h2:vg/db", " ").is_err() && Side::parse("vg/db", " ").is_ok());
    }
}
