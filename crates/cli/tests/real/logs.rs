//! What servers and keepers say of themselves: in the file of the log, which keeps what was said last, and in the journal, which
//! learns how urgent a line is and what it is about, and holds nobody up. And how their restarts are counted.

use crate::world::{Running, World, tool};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn log(world: &World, name: &str) -> PathBuf {
    world.dir.join("run").join(&world.group).join(name)
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Ends the server with this signal, and waits for the next one.
fn end_server(world: &World, signal: &str) {
    let served = || text(log(world, "server.log")).matches(" is served\n").count();
    let (server, before) = (world.server().unwrap(), served());
    tool("kill", &[signal, &server.to_string()]);
    wait_for("no successor came", || {
        let is_other = world.server().is_some_and(|next| next != server);
        // The log may have been set aside in between.
        (is_other && served() != before && world.run("vgs VG").status.success()).then_some(())
    });
}

fn counter(world: &World, name: &str) -> u64 {
    let line = format!("{name}{{vg=\"{}\"}} ", world.group);
    let metrics = world.ok("metrics VG");
    let value = metrics.lines().find_map(|output| output.strip_prefix(line.as_str()));
    value.unwrap_or_else(|| panic!("no {line} in {metrics}")).parse().unwrap()
}

#[test]
fn a_server_that_dies_is_counted_and_one_that_hands_over_is_not() {
    let world = World::new("deaths", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let counts =
        || (counter(&world, "rowen_group_server_starts_total"), counter(&world, "rowen_group_server_deaths_total"));
    assert_eq!(counts(), (0, 0));
    // In use, so that the server cannot just end.
    let user = File::open(world.node("lv")).unwrap();
    for n in 1..=2 {
        end_server(&world, "-TERM");
        assert_eq!(counts(), (n, 0));
    }
    end_server(&world, "-KILL");
    assert_eq!(counts(), (3, 1));
    end_server(&world, "-TERM");
    assert_eq!(counts(), (4, 1));
    // The server counts a keeper that dies, and reports it.
    assert_eq!(counter(&world, "rowen_group_keeper_deaths_total"), 0);
    let keepers = text(log(&world, "keeper.log"));
    let keeper = keepers.lines().rev().find_map(|line| Some(line.split_once(" started, process ")?.1.to_owned()));
    tool("kill", &["-KILL", &keeper.unwrap()]);
    wait_for("the keeper's death is not told", || {
        let is_told = world.ok("events VG").contains("keeper-died");
        (is_told && counter(&world, "rowen_group_keeper_deaths_total") == 1).then_some(())
    });
    assert!(world.ok("events VG").contains("server-died"));
    drop(user);
}

#[test]
fn a_log_that_grew_long_keeps_what_was_said_last() {
    let world = World::new("longlog", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let path = log(&world, "server.log");
    let mut said = text(path.clone());
    said.push_str(&"a line\n".repeat(200_000));
    said.push_str("why the first server died\n");
    fs::write(&path, said).unwrap();
    end_server(&world, "-KILL");
    let kept = [text(path.clone()), text(log(&world, "server.log.old"))].concat();
    assert!(kept.contains("why the first server died\n"), "{} bytes are kept", kept.len());
    assert!(text(path).len() < 1 << 20);
}

/// A journal of the test's own: the environment leads this world's processes to it.
struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    fn new(world: &World) -> Journal {
        let path = world.dir.join("journal");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Journal { socket, path }
    }

    fn run(&self, world: &World, line: &str) {
        let output = world.command(line).env("ROWEN_JOURNAL", &self.path).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The fields of the next line of which the message has these words.
    fn line(&self, words: &str) -> String {
        let mut buffer = vec![0; 1 << 17];
        loop {
            let length = self.socket.recv(&mut buffer).unwrap_or_else(|e| panic!("no line with \"{words}\": {e}"));
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.lines().any(|line| line.starts_with("MESSAGE=") && line.contains(words)) {
                return text;
            }
        }
    }
}

fn has(text: &str, field: &str) {
    assert!(text.lines().any(|line| line == field), "{field} is not in {text}");
}

#[test]
fn the_journal_learns_how_urgent_a_line_is_and_what_it_is_about() {
    let world = World::empty("journal");
    let journal = Journal::new(&world);
    world.device("pv", 64 << 20);
    journal.run(&world, "vgcreate VG pv");
    journal.run(&world, "lvcreate -y -L 16M -T VG/pool");
    let group = format!("ROWEN_VG={}", world.group);
    let line = journal.line("is served");
    [group.as_str(), "PRIORITY=6", "SYSLOG_IDENTIFIER=rowen"].iter().for_each(|field| has(&line, field));
    assert!(!line.contains("ROWEN_LV="), "{line}");
    journal.run(&world, "lvcreate -y -V 16M -n thin --thinpool VG/pool");
    let node = world.node("thin");
    tool(
        "dd",
        &["if=/dev/zero", &format!("of={}", node.display()), "bs=1M", "count=15", "oflag=direct", "status=none"],
    );
    let line = journal.line("WARNING: Thin pool");
    [group.as_str(), "PRIORITY=4", "ROWEN_LV=pool"].iter().for_each(|field| has(&line, field));
    tool("kill", &["-KILL", &world.server().unwrap().to_string()]);
    let line = journal.line("disconnected without a message");
    [group.as_str(), "PRIORITY=4"].iter().for_each(|field| has(&line, field));
    has(&journal.line("is served"), &group);
}

#[test]
fn a_journal_that_takes_nothing_holds_nobody_up() {
    let world = World::empty("stuck");
    let journal = Journal::new(&world);
    // Nobody reads it, and it is full.
    let writer = UnixDatagram::unbound().unwrap();
    writer.set_nonblocking(true).unwrap();
    while writer.send_to(b"MESSAGE=x\n", &journal.path).is_ok() {}
    world.device("pv", 64 << 20);
    journal.run(&world, "vgcreate VG pv");
    journal.run(&world, "lvcreate -y -L 8M -n lv VG");
    for n in 2..5 {
        tool("kill", &["-USR1", &world.server().unwrap().to_string()]);
        let path = || text(log(&world, "server.log"));
        wait_for("the log has no line", || (path().lines().count() >= n).then_some(()));
    }
    end_server(&world, "-KILL");
    journal.run(&world, "lvremove -y VG/lv");
}

/// A server as systemd starts it: standard error is a socket to the journal.
fn serve(world: &World, journal: &str) -> (Running, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = OwnedFd::from(theirs);
    let stat = File::from(theirs.try_clone().unwrap()).metadata().unwrap();
    let mut command = world.command("serve VG");
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino())).env("ROWEN_JOURNAL", journal);
    let child = command.stdout(Stdio::null()).stderr(Stdio::from(theirs)).spawn().unwrap();
    ours.set_read_timeout(Some(LIMIT)).unwrap();
    (Running(child), ours)
}

#[test]
fn a_service_without_a_journal_says_it_on_standard_error_or_in_the_file() {
    let world = World::new("service", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    world.ok("stop VG");
    let (server, mut said) = serve(&world, "/nonexistent/journal");
    wait_for("it does not serve", || world.run("vgs VG").status.success().then_some(()));
    let mut text_so_far = Vec::new();
    let words = format!("<6>volume group \"{}\" is served\n", world.group);
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&text_so_far).contains(&words) {
        let length = said.read(&mut buffer).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&text_so_far));
        text_so_far.extend_from_slice(&buffer[..length]);
    }
    let all = String::from_utf8_lossy(&text_so_far).into_owned();
    assert!(all.lines().all(|line| line.starts_with('<') && line.as_bytes()[2] == b'>'), "{all}");
    // Nobody reads it any more. What does not go there is in the file.
    let pid = server.0.id().to_string();
    let before = text(log(&world, "server.log")).matches(" passes_over_processes=").count();
    wait_for("the file has nothing", || {
        tool("kill", &["-USR1", &pid]);
        (text(log(&world, "server.log")).matches(" passes_over_processes=").count() > before).then_some(())
    });
    world.ok("lvs VG");
}
