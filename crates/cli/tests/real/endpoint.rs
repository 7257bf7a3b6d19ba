//! `rowen metrics --listen`: who asks by HTTP gets the metrics, whatever hangs and however others ask; who answers has no rights.

use crate::world::{Running, World, tool};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Longer than any limit of the endpoint, by far: it is waited for no longer than this.
const LIMIT: Duration = Duration::from_secs(60);

struct Endpoint {
    process: Running,
    address: String,
}

impl Endpoint {
    /// At a port that is free.
    fn start(world: &World) -> Endpoint {
        let mut command = world.command("metrics --listen 0");
        let mut process = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = line.trim().strip_prefix("Metrics are at http://").and_then(|rest| rest.strip_suffix("/metrics."));
        let address = output.unwrap_or_else(|| panic!("{line}")).to_owned();
        Endpoint { process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// What is answered to these bytes, until the connection is closed.
    fn say(&self, request: &str) -> String {
        let mut stream = self.connect();
        // One that is refused early may be closed before it has been sent.
        let _may_be_refused = stream.write_all(request.as_bytes());
        read(&mut stream)
    }

    fn get(&self, path: &str) -> String {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// The process that speaks HTTP.
    fn front(&self) -> u32 {
        let parent = self.process.0.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        let mut children = children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap());
        let is_front =
            |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.ends_with(b"front\0"));
        children.find(is_front).unwrap()
    }
}

/// All that comes until the end, also if the end is a reset.
fn read(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => panic!("not closed in time: {e}"),
        }
    }
    String::from_utf8(text).unwrap()
}

fn status(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default()
}

fn descriptors(pid: u32) -> Vec<PathBuf> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    links.filter_map(|link| fs::read_link(link.unwrap().path()).ok()).collect()
}

#[test]
fn metrics_are_there_and_nothing_else() {
    let world = World::new("http", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let endpoint = Endpoint::start(&world);
    assert!(endpoint.address.starts_with("127.0.0.1:"), "{}", endpoint.address);
    let answer = endpoint.get("/metrics");
    assert_eq!(status(&answer), "HTTP/1.1 200 OK", "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    let line = format!("rowen_group_healthy{{vg=\"{}\"}} 1.0", world.group);
    assert!(answer.lines().any(|output| output == line), "{line} is not in {answer}");
    let home = endpoint.get("/");
    assert!(status(&home) == "HTTP/1.1 200 OK" && home.contains("href=\"/metrics\""), "{home}");
    for path in ["/metricsx", "/../etc/passwd", "//metrics", "/metrics/"] {
        assert_eq!(status(&endpoint.get(path)), "HTTP/1.1 404 Not Found", "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"] {
        let answer = endpoint.say(&format!("{method} /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(status(&answer), "HTTP/1.1 405 Method Not Allowed", "{method}");
        assert!(answer.contains("allow: GET, HEAD\r\n"), "{answer}");
    }
    let head = endpoint.say("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(status(&head) == "HTTP/1.1 200 OK" && head.ends_with("\r\n\r\n"), "{head}");
    // A group that comes later is there later.
    world.ok("stop VG");
    let until = Instant::now() + LIMIT;
    let state = format!("rowen_group_state{{vg=\"{}\",state=\"serving\"}} 0.0", world.group);
    while !endpoint.get("/metrics").lines().any(|line| line == state) {
        assert!(Instant::now() < until, "{state} was never told");
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_harms_nobody() {
    let world = World::new("httpbad", 64);
    let endpoint = Endpoint::start(&world);
    let long = "x".repeat(64 << 10);
    let answer = endpoint.say(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: {long}\r\n\r\n"));
    // Closed with something unread, the connection may be reset before the answer was read.
    assert!(answer.is_empty() || status(&answer).contains("431"), "{answer}");
    let many = "a: b\r\n".repeat(1000);
    let answer = endpoint.say(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"));
    assert!(answer.is_empty() || status(&answer).contains("431"), "{answer}");
    for nonsense in ["\0\x01\x02\r\n\r\n", "GET\r\n\r\n", "GET /metrics HTTP/9.9\r\n\r\n", "\r\n\r\n\r\n:\r\n\r\n"] {
        let answer = endpoint.say(nonsense);
        assert!(answer.is_empty() || status(&answer).contains(" 400 "), "{nonsense:?}: {answer}");
    }
    // More than may be connected at once, and none of them says what it wants.
    let begun = Instant::now();
    let mut slow: Vec<TcpStream> = (0..100).map(|_| endpoint.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET /metr").unwrap());
    assert_eq!(status(&endpoint.get("/metrics")), "HTTP/1.1 200 OK");
    for stream in &mut slow {
        assert!(!read(stream).contains("200 OK"));
    }
    assert!(begun.elapsed() < LIMIT);
    // And as many that want it at the same time.
    let asked = |endpoint: &Endpoint| status(&endpoint.get("/metrics")).to_owned();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..100).map(|_| scope.spawn(|| asked(&endpoint))).collect();
        all.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), "HTTP/1.1 200 OK"));
    });
}

#[test]
fn a_server_that_hangs_holds_no_scrape_up() {
    let world = World::new("httphangs", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let endpoint = Endpoint::start(&world);
    let server = world.server().unwrap().to_string();
    tool("kill", &["-STOP", &server]);
    let begun = Instant::now();
    let answer = endpoint.get("/metrics");
    let took = begun.elapsed();
    tool("kill", &["-CONT", &server]);
    let state = format!("rowen_group_state{{vg=\"{}\",state=\"not_answering\"}} 1.0", world.group);
    assert!(answer.lines().any(|line| line == state), "{answer}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn who_speaks_http_has_no_rights_and_ends_with_the_other() {
    let world = World::new("httpfront", 64);
    let mut endpoint = Endpoint::start(&world);
    assert_eq!(status(&endpoint.get("/metrics")), "HTTP/1.1 200 OK");
    let front = endpoint.front();
    let output = fs::read_to_string(format!("/proc/{front}/status")).unwrap();
    let field = |name: &str| output.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("Uid:"), "65534\t65534\t65534\t65534");
    assert_eq!(field("Gid:"), "65534\t65534\t65534\t65534");
    assert_eq!((field("Groups:").as_str(), field("CapEff:").as_str()), ("", "0000000000000000"));
    assert_eq!(field("CapPrm:"), "0000000000000000");
    // Neither of the two has a disk between two looks, and the front has sockets, its timers and standard error.
    for pid in [front, endpoint.process.0.id()] {
        let open = descriptors(pid);
        let is_disk = |path: &PathBuf| path.starts_with(&world.dir) || path.starts_with("/dev/loop");
        assert!(!open.iter().any(is_disk), "{open:?}");
    }
    endpoint.process.0.kill().unwrap();
    endpoint.process.0.wait().unwrap();
    let until = Instant::now() + LIMIT;
    while TcpStream::connect(&endpoint.address).is_ok() {
        assert!(Instant::now() < until, "the front goes on without the process that asks");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_place_is_what_was_asked_for_or_an_error() {
    let world = World::empty("httpplace");
    for place in ["localhost:9", "70000", "127.0.0.1", "x", ":9", "-1"] {
        world.refused(&format!("metrics --listen={place}"), 3, "Cannot listen at");
    }
    world.refused("metrics --listen systemd", 5, "it passed none to this process");
    // 192.0.2.0/24 is nobody's.
    world.refused("metrics --listen 192.0.2.1:10858", 5, "Cannot listen at 192.0.2.1:10858");
    let endpoint = Endpoint::start(&world);
    let port = endpoint.address.rsplit(':').next().unwrap();
    world.refused(&format!("metrics --listen {port}"), 5, "Address already in use");
}
