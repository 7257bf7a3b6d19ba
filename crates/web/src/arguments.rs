//! The command line of `rowen-web`. Help and the manual page are made from the same table.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Where `rowen-web-facts.service` has the facts written.
pub const FACTS: &str = "/run/rowen-web/facts.json";
/// The program in a sentence.
pub const SUMMARY: &str = "Show volume groups as a web page, to look at and nothing else";
/// How it is called.
pub const FORM: &str = "[ --listen systemd|[ADDRESS:]PORT ] [ --facts FILE ] [ --host NAME ... ]";
/// What the page is, for help and manual.
pub const ABOUT: &str = "The page shows what is wrong, and of each group its space, volumes and snapshots, latencies of the last \
                         hour, background work, disks and events. The program needs no rights: it reads one file, which \
                         `rowen facts` writes as root every few seconds. It has no password and no encryption.";
/// Options, with what they take.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "--listen systemd|[ADDRESS:]PORT",
        "Answer HTTP there; a port alone is one of 127.0.0.1. systemd, if nothing is said: at the socket that is standard input.",
    ),
    ("--facts FILE", "The file that `rowen facts --to FILE` writes; else /run/rowen-web/facts.json."),
    ("--host NAME", "A name by which browsers may ask for the page, besides addresses and localhost; may be repeated."),
    ("--help", "Show this help."),
    ("--version", "Show the version."),
];
/// Examples, with what they do.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("systemctl enable --now rowen-web.socket", "the page at http://127.0.0.1:10859/"),
    ("ssh -L 10859:127.0.0.1:10859 HOST", "and from another machine, at the same address there"),
    ("rowen-web --listen 8080 --facts /tmp/facts.json", "by hand, with `rowen facts --to /tmp/facts.json` beside it"),
    ("rowen-web --host disks.example.org", "behind a proxy that passes the name on"),
];

/// Where it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    At(SocketAddr),
    /// Standard input is a socket that listens.
    HandedOver,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Serve { place: Place, facts: PathBuf, names: Vec<String> },
    Help,
    Version,
}

/// Names of hosts are no places: what they mean may change, and what is listened at must be what was asked for.
fn place(text: &str) -> Result<Place, String> {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match text {
        "systemd" => Ok(Place::HandedOver),
        _ => text.parse().map(loopback).or_else(|_| text.parse()).map(Place::At).map_err(|_| {
            format!("Cannot listen at {text}. Give a port, an IP address and a port (127.0.0.1:10859, [::1]:10859), or systemd.")
        }),
    }
}

/// Understands a command line, without the program's name.
pub fn understand(words: impl IntoIterator<Item = String>) -> Result<Wanted, String> {
    let (mut at, mut facts, mut names) = (Place::HandedOver, PathBuf::from(FACTS), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (option, given) = match word.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        let mut value = || given.clone().or_else(|| words.next()).ok_or_else(|| format!("{option} needs a value."));
        match option.as_str() {
            "--help" | "-h" => return Ok(Wanted::Help),
            "--version" => return Ok(Wanted::Version),
            "--listen" => at = place(&value()?)?,
            "--facts" => facts = value()?.into(),
            "--host" => names.push(value()?),
            _ => return Err(format!("There is no {option}.")),
        }
    }
    Ok(Wanted::Serve { place: at, facts, names })
}

/// The help.
pub fn help() -> String {
    let mut text = format!("  rowen-web - {SUMMARY}\n\n  rowen-web {FORM}\n\n  {ABOUT}\n\n");
    let mut list = |title: &str, rows: &[(&str, &str)]| {
        text.push_str(&format!("  {title}\n"));
        rows.iter().for_each(|(word, what)| text.push_str(&format!("    {word}\n        {what}\n")));
    };
    list("Options:", OPTIONS);
    list("Examples:", EXAMPLES);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Wanted, String> {
        understand(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line_is_understood_or_refused() {
        let serve = |place, facts: &str, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Ok(Wanted::Serve { place, facts: facts.into(), names })
        };
        assert_eq!(of(""), serve(Place::HandedOver, FACTS, &[]));
        let local = Place::At("127.0.0.1:8080".parse().unwrap());
        assert_eq!(of("--listen 8080 --facts /f --host=a --host b"), serve(local, "/f", &["a", "b"]));
        assert_eq!(of("--listen=[::1]:9"), serve(Place::At("[::1]:9".parse().unwrap()), FACTS, &[]));
        assert_eq!((of("-h"), of("--version")), (Ok(Wanted::Help), Ok(Wanted::Version)));
        for line in ["--listen", "--listen localhost:9", "--listen 70000", "--nonsense", "word"] {
            assert!(of(line).is_err(), "{line}");
        }
    }

    #[test]
    fn each_option_has_help() {
        let help = help();
        for (option, _) in OPTIONS.iter().chain(EXAMPLES) {
            assert!(help.contains(option), "{option}");
        }
        assert!(help.contains(FACTS));
    }
}
