//! The paths of the site: what each answers, who may request it, and the headers of the answer.

use crate::facts::{self, Facts};
use crate::http::{Asked, Bytes, Reply};
use crate::page::{self, Known};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A younger answer is sent again, so many requests cost no more than one.
const FRESH: Duration = Duration::from_millis(500);

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A browser runs and loads nothing but this site's own files. It shows the site in no frame, sends no referrer, and
/// keeps no copy.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// The site.
pub struct Site {
    file: PathBuf,
    /// Names by which it may be asked for, besides addresses and `localhost`.
    names: Vec<String>,
    last: Mutex<Option<(Instant, Told)>>,
}

/// What was made of the facts.
#[derive(Clone)]
struct Told {
    page: Bytes,
    /// As they were read; none: there are none.
    json: Option<Bytes>,
}

impl Site {
    pub fn new(file: PathBuf, names: Vec<String>) -> Site {
        Site { file, names, last: Mutex::new(None) }
    }

    pub fn answer(&self, asked: &Asked) -> Reply {
        let mut reply = self.reply(asked);
        reply.headers.extend(HEADERS);
        reply
    }

    fn reply(&self, asked: &Asked) -> Reply {
        let [first, others @ ..] = asked.hosts.as_slice() else {
            return Reply::new(400, TEXT, "The request names no host.\n");
        };
        if !self.is_known(first) || !others.iter().all(|host| self.is_known(host)) {
            return Reply::new(
                421,
                TEXT,
                "This page is not known by that name. Ask for it by its address, or tell rowen-web the name: --host NAME.\n",
            );
        }
        let is_there = matches!(asked.path.as_str(), "/" | "/facts.json" | "/style.css" | "/refresh.js" | "/icon.svg");
        match asked.path.as_str() {
            _ if is_there && !asked.is_look => Reply::only_looks(TEXT),
            "/" => Reply::new(200, HTML, self.told().page),
            "/facts.json" => match self.told().json {
                Some(json) => Reply::new(200, "application/json", json),
                None => Reply::new(503, TEXT, "There are no facts. The page says why.\n"),
            },
            "/style.css" => Reply::new(200, "text/css; charset=utf-8", include_str!("style.css")),
            "/refresh.js" => Reply::new(200, "text/javascript; charset=utf-8", include_str!("refresh.js")),
            "/icon.svg" => Reply::new(200, "image/svg+xml", include_str!("icon.svg")),
            _ => Reply::new(404, TEXT, "There is nothing here. The page is at /.\n"),
        }
    }

    /// Whether a browser may call this site so. What a page of somebody else's is called may lead here (DNS rebinding): then that
    /// page could read this one. An address leads nowhere else, and the others are the administrator's.
    fn is_known(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        name.parse::<Ipv4Addr>().is_ok()
            || name
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
                .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    fn told(&self) -> Told {
        // Who panicked while it had this has left it as it was.
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, told)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return told.clone();
        }
        let told = self.tell();
        *last = Some((Instant::now(), told.clone()));
        told
    }

    fn tell(&self) -> Told {
        let file = self.file.display();
        let unread = |what: String, next: &str| Told {
            page: page::page(&Known::Nothing { what, next: next.to_owned() }).into(),
            json: None,
        };
        match facts::read(&self.file) {
            Ok(Ok(facts)) => {
                let json = serde_json::to_vec(&facts).ok().map(Bytes::from);
                Told { page: page::page(&known(facts)).into(), json }
            }
            Ok(Err(why)) => unread(
                format!("{file} cannot be understood: {why}"),
                "install one version of rowen and rowen-web, then systemctl restart rowen-web-facts",
            ),
            Err(e) if e.kind() == io::ErrorKind::NotFound => unread(
                format!("nobody has looked at the groups yet: {file} is not there"),
                "systemctl start rowen-web-facts, or rowen facts --to FILE; systemctl status rowen-web-facts says why it ended",
            ),
            Err(e) => {
                unread(format!("{file} cannot be read: {e}"), "see the file's permissions, and rowen-web --facts FILE")
            }
        }
    }
}

fn known(facts: Facts) -> Known {
    let age = facts::uptime() - facts.uptime;
    Known::Facts { facts: Box::new(facts), age }
}

/// A host without its port.
fn name_of(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at(end);
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    (is_port && !name.is_empty()).then_some(name)
}
