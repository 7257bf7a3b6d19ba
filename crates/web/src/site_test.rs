//! What is answered, to whom; then the same through sockets.

use crate::facts::{self, Facts};
use crate::http::{self, Asked, Reply};
use crate::planted::must_be_found;
use crate::sample;
use crate::site::Site;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any limit, by far.
const PATIENCE: Duration = Duration::from_secs(60);

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("rowen-web-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("facts.json")
    }

    fn write(&self, facts: &Facts) {
        fs::write(self.file(), serde_json::to_vec(facts).unwrap()).unwrap();
    }

    fn site(&self) -> Site {
        Site::new(self.file(), vec!["disks.example.org".into()])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn asked(path: &str, host: &str) -> Asked {
    Asked { path: path.into(), is_look: true, hosts: vec![host.into()] }
}

fn body(reply: &Reply) -> String {
    String::from_utf8(reply.body.to_vec()).unwrap()
}

#[test]
fn there_are_five_things_to_look_at() {
    let scratch = Scratch::new("paths");
    scratch.write(&sample::facts(vec![sample::busy()]));
    let site = scratch.site();
    for (path, kind, part) in [
        ("/", "text/html; charset=utf-8", "Rowen on backup1"),
        ("/facts.json", "application/json", "\"name\":\"vg0\""),
        ("/style.css", "text/css; charset=utf-8", "prefers-color-scheme"),
        ("/refresh.js", "text/javascript; charset=utf-8", "use strict"),
        ("/icon.svg", "image/svg+xml", "<svg"),
    ] {
        let reply = site.answer(&asked(path, "localhost"));
        assert_eq!((reply.status, reply.headers[0]), (200, ("content-type", kind)), "{path}");
        assert!(body(&reply).contains(part), "{path}");
        let other = Asked { is_look: false, ..asked(path, "localhost") };
        let reply = site.answer(&other);
        assert!(reply.status == 405 && reply.headers.contains(&("allow", "GET, HEAD")), "{path}");
    }
    for path in ["/x", "//", "/../etc/passwd", "/facts.json/", "/run/rowen", ""] {
        assert_eq!(site.answer(&asked(path, "localhost")).status, 404, "{path}");
    }
}

#[test]
fn every_answer_forbids_what_is_not_needed() {
    let scratch = Scratch::new("headers");
    let site = scratch.site();
    let wrong = Asked { is_look: false, ..asked("/", "localhost") };
    for asked in [asked("/", "localhost"), asked("/x", "localhost"), asked("/", "evil.example"), wrong] {
        let reply = site.answer(&asked);
        let of =
            |name| reply.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).unwrap_or_default();
        assert!(of("content-security-policy").starts_with("default-src 'none';"), "{asked:?}");
        assert!(!of("content-security-policy").contains("unsafe"));
        assert!(of("content-security-policy").contains("frame-ancestors 'none'"));
        assert_eq!((of("x-content-type-options"), of("cache-control")), ("nosniff", "no-store"));
        assert_eq!((of("referrer-policy"), of("cross-origin-resource-policy")), ("no-referrer", "same-origin"));
    }
}

#[test]
fn names_of_others_lead_nowhere() {
    let scratch = Scratch::new("hosts");
    let site = scratch.site();
    for host in [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1:10859",
        "192.0.2.7",
        "[::1]",
        "[2001:db8::1]:8080",
        "disks.Example.org",
    ] {
        assert_eq!(site.answer(&asked("/", host)).status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[evil]",
        "",
        ":80",
        "localhost:x",
        "::1",
        "[::1",
    ] {
        assert_eq!(site.answer(&asked("/", host)).status, 421, "{host}");
    }
    let of = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        site.answer(&Asked { hosts, ..asked("/", "") }).status
    };
    assert_eq!((of(&[]), of(&["localhost", "evil.example"]), of(&["localhost", "localhost"])), (400, 421, 200));
}

#[test]
fn whatever_is_where_the_facts_should_be_the_page_says_so() {
    let scratch = Scratch::new("bad");
    let says = |part: &str| {
        let site = scratch.site();
        let page = body(&site.answer(&asked("/", "localhost")));
        assert!(page.contains("1 thing is wrong") && page.contains(part), "WB1: {part}: {page}");
        assert_eq!(site.answer(&asked("/facts.json", "localhost")).status, 503);
    };
    says("is not there");
    fs::write(scratch.file(), "{\"version\": 1, \"groups\": [").unwrap();
    says("it is damaged");
    fs::write(scratch.file(), "{\"version\": 2}").unwrap();
    says("it is of version 2");
    fs::write(scratch.file(), b"\xff\0").unwrap();
    says("it is damaged");
    fs::File::create(scratch.file()).unwrap().set_len(facts::MOST_BYTES + 1).unwrap();
    says("it is too long");
    fs::remove_file(scratch.file()).unwrap();
    assert!(Command::new("mkfifo").arg(scratch.file()).status().unwrap().success());
    says("it is no regular file");
    fs::remove_file(scratch.file()).unwrap();
    fs::create_dir(scratch.file()).unwrap();
    says("it is no regular file");
}

/// The device is no file of facts, and another name leads to what is none of the page's.
fn only_facts_are_read() {
    let site = Site::new("/dev/null".into(), Vec::new());
    let page = body(&site.answer(&asked("/", "localhost")));
    assert!(page.contains("it is no regular file"), "WB1: {page}");
}

#[test]
fn a_page_that_reads_anything_is_found() {
    only_facts_are_read();
    must_be_found("anything_is_read", only_facts_are_read);
}

#[test]
fn facts_of_a_later_version_keep_their_names() {
    let text = br#"{"version": 1, "new": [1], "groups": [{"name": "vg0", "also": {"x": null}, "space": null}]}"#;
    let facts = facts::parse(text).unwrap();
    assert_eq!(facts.groups[0].name, "vg0");
    let whole = sample::facts(vec![sample::busy(), sample::silent()]);
    assert_eq!(facts::parse(&serde_json::to_vec(&whole).unwrap()), Ok(whole));
}

/// Serves the site in a thread that ends with the test program.
fn serve(site: Site) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let site = Arc::new(site);
    std::thread::spawn(move || {
        http::serve(listener, move |asked| {
            let site = site.clone();
            async move { site.answer(&asked) }
        })
    });
    at
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that comes until the end, also if the end is a reset.
fn read(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    if let Err(e) = stream.read_to_end(&mut text) {
        assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "not closed in time");
    }
    String::from_utf8(text).unwrap()
}

fn say(at: SocketAddr, request: &str) -> String {
    let mut stream = connect(at);
    // One that is refused early may be closed before it has been sent.
    let _may_be_refused = stream.write_all(request.as_bytes());
    read(&mut stream)
}

#[test]
fn clients_that_are_slow_large_or_mad_harm_nobody() {
    let scratch = Scratch::new("clients");
    scratch.write(&sample::facts(vec![sample::busy()]));
    let at = serve(scratch.site());
    let good = || say(at, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(good().starts_with("HTTP/1.1 200 OK\r\n"));
    let head = say(at, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.0\r\n\r\n", "400"),
        ("GET\r\n\r\n", "400"),
        ("\0\x01\r\n\r\n", "400"),
    ] {
        let answer = say(at, request);
        assert!(answer.is_empty() || answer.split(' ').nth(1) == Some(status), "{request:?}: {answer}");
    }
    for long in [
        format!("GET /{} HTTP/1.1\r\n", "x".repeat(64 << 10)),
        format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(1000)),
    ] {
        let answer = say(at, &format!("{long}Host: localhost\r\n\r\n"));
        assert!(
            answer.is_empty() || answer.split(' ').nth(1).is_some_and(|status| status.starts_with('4')),
            "{answer}"
        );
    }
    // More than may be connected at once, and none of them says what it wants.
    let mut slow: Vec<TcpStream> = (0..2 * http::CONNECTIONS).map(|_| connect(at)).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET /").unwrap());
    assert!(good().starts_with("HTTP/1.1 200 OK\r\n"));
    for stream in &mut slow {
        assert!(!read(stream).contains("200 OK"));
    }
}
