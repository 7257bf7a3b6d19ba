//! `rowen send` into `rowen receive` over real devices: filesystems arrive as they were, also when a server is killed meanwhile.

use crate::world::{MIB, Random, World, tool};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Output, Stdio};

fn sending(from: &World, line: &str) -> Child {
    from.command(line).stdout(Stdio::piped()).spawn().unwrap()
}

/// A pipe from one group into another.
fn pipe(from: &World, send: &str, to: &World, receive: &str) -> Output {
    let mut sender = sending(from, send);
    let received = to.command(receive).stdin(sender.stdout.take().unwrap()).output().unwrap();
    let sent = sender.wait().unwrap();
    assert!(sent.success() || !received.status.success(), "{send}");
    received
}

fn arrives(from: &World, send: &str, to: &World, receive: &str) {
    let output = pipe(from, send, to, receive);
    assert!(output.status.success(), "{send}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The hash of a volume's bytes.
fn bytes_of(world: &World, volume: &str) -> String {
    world.ok(&format!("lvchange -ay -K VG/{volume}"));
    let sum = tool("sha256sum", &[world.node(volume).to_str().unwrap()]);
    sum.split_whitespace().next().unwrap().to_owned()
}

fn files(world: &World, volume: &str) -> String {
    let point = world.mount(volume, "ro,noload");
    let command = format!("cd {} && find . -type f | sort | xargs sha256sum", point.display());
    let sums = tool("sh", &["-c", &command]);
    world.unmount(volume);
    sums
}

#[test]
fn a_filesystem_arrives_and_is_kept_up_to_date() {
    let (from, to) = (World::new("sendfrom", 512), World::new("sendto", 512));
    from.ok("lvcreate -L 200M -n db VG");
    tool("mkfs.ext4", &["-q", from.node("db").to_str().unwrap()]);
    let point = from.mount("db", "defaults");
    let mut random = Random(7);
    for at in 0..20 {
        fs::write(point.join(format!("file{at}")), random.bytes(MIB as usize)).unwrap();
    }
    // The volume is mounted all the time.
    from.ok("lvcreate -s -n mon VG/db");
    arrives(&from, "send VG/mon", &to, "receive VG/db");
    for at in 0..10 {
        fs::write(point.join(format!("more{at}")), random.bytes(MIB as usize / 2)).unwrap();
        fs::remove_file(point.join(format!("file{at}"))).unwrap();
    }
    tool("fstrim", &[point.to_str().unwrap()]);
    from.ok("lvcreate -s -n tue VG/db");
    fs::write(point.join("later"), b"not sent").unwrap();
    assert_eq!(bytes_of(&from, "mon"), bytes_of(&to, "mon"));
    // A target in use is refused, and is as it was.
    to.ok("lvchange -ay VG/db");
    let target = to.mount("db", "ro,noload");
    let refused = pipe(&from, "send -i mon VG/tue", &to, "receive VG/db");
    let err = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(5) && err.contains("contains a filesystem in use"), "{err}");
    assert!(target.join("file0").exists());
    to.unmount("db");
    arrives(&from, "send -i mon VG/tue", &to, "receive VG/db");
    assert_eq!(bytes_of(&from, "tue"), bytes_of(&to, "tue"));
    assert_eq!(bytes_of(&to, "db"), bytes_of(&to, "tue"));
    assert_eq!(files(&from, "tue"), files(&to, "db"));
    assert_ne!(bytes_of(&to, "mon"), bytes_of(&to, "tue"));
    // The same twice.
    let again = pipe(&from, "send -i mon VG/tue", &to, "receive VG/db");
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).contains("has this already"));
    from.unmount("db");
    from.ok("check VG");
    to.ok("check VG");
}

fn kill_server(world: &World) {
    let server = world.server().unwrap();
    tool("kill", &["-9", &server.to_string()]);
}

/// A filesystem that is written to, files that go and are trimmed, and servers that are killed: a bookmark alone is the base.
#[test]
fn a_filesystem_is_kept_up_to_date_from_bookmarks() {
    let (from, to) = (World::new("markfrom", 512), World::new("markto", 512));
    from.ok("lvcreate -L 200M -n db VG");
    tool("mkfs.ext4", &["-q", from.node("db").to_str().unwrap()]);
    let point = from.mount("db", "defaults");
    let mut random = Random(11);
    for at in 0..30 {
        fs::write(point.join(format!("file{at}")), random.bytes(MIB as usize)).unwrap();
    }
    from.ok("lvcreate -s -n day0 VG/db");
    from.ok("hold -n offsite VG/day0");
    kill_server(&from);
    let refused = from.run("lvremove -ff VG/day0");
    assert!(refused.status.code() == Some(5), "{}", String::from_utf8_lossy(&refused.stderr));
    arrives(&from, "send VG/day0", &to, "receive VG/db");
    from.ok("release -n offsite VG/day0");
    for day in 1..4 {
        let before = day - 1;
        let marked = from.run(&format!("bookmark VG/day{before}"));
        if !marked.status.success() {
            // Who wrote to it, and where.
            let counted = from.ok("stats --json VG");
            let written = from.ok(&format!("diff VG/day{before} VG/db"));
            let fields = from.ok(&format!("lvs -o lv_all --reportformat json VG/day{before}"));
            let said = String::from_utf8_lossy(&marked.stderr);
            panic!("{said}\n{written}\n{fields}\n{counted}\n{}", from.ok("events VG"));
        }
        kill_server(&from);
        from.ok(&format!("lvremove -y VG/day{before}"));
        for at in 0..6 {
            let number = 6 * before + at;
            fs::remove_file(point.join(format!("file{number}"))).unwrap();
            fs::write(point.join(format!("day{day}-{at}")), random.bytes(MIB as usize / 4)).unwrap();
        }
        tool("sync", &["-f", point.to_str().unwrap()]);
        tool("fstrim", &[point.to_str().unwrap()]);
        kill_server(&from);
        from.ok(&format!("lvcreate -s -n day{day} VG/db"));
        arrives(&from, &format!("send -i day{before} VG/day{day}"), &to, "receive VG/db");
        assert_eq!(bytes_of(&from, &format!("day{day}")), bytes_of(&to, "db"), "day {day}");
        to.ok("lvchange -an VG/db");
        from.ok(&format!("bookmark --remove VG/day{before}"));
    }
    assert_eq!(bytes_of(&from, "day3"), bytes_of(&to, "day3"));
    assert_eq!(files(&from, "day3"), files(&to, "day3"));
    from.unmount("db");
    from.ok("check VG");
    to.ok("check VG");
}

#[test]
fn a_stream_outlives_the_server_that_receives_it() {
    let (from, to) = (World::new("outfrom", 512), World::new("outto", 512));
    from.ok("lvcreate -L 200M -n db VG");
    let mut node = File::options().write(true).open(from.node("db")).unwrap();
    let mut random = Random(9);
    for _ in 0..150 {
        node.write_all(&random.bytes(MIB as usize)).unwrap();
    }
    drop(node);
    from.ok("lvcreate -s -n mon VG/db");
    let file = from.dir.join("stream");
    let sent = from.command("send VG/mon").stdout(File::create(&file).unwrap()).status().unwrap();
    assert!(sent.success());
    let stream = fs::read(&file).unwrap();
    assert!(stream.len() > 150 << 20, "random bytes get no shorter");
    // The pipe breaks, twice, and a server is killed between.
    for share in [2, 1] {
        let part = &stream[..stream.len() * (3 - share) / 3];
        let mut receiver = to.command("receive VG/db").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _broken = receiver.stdin.take().unwrap().write_all(part);
        let mut err = String::new();
        receiver.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(receiver.wait().unwrap().code(), Some(5), "{err}");
        assert!(err.contains("the stream ends before its end"), "{err}");
        assert_eq!(to.ok("lvs --noheadings VG").trim(), "");
        assert!(to.ok("receive --status VG").contains("/db: all of mon, of 200.00m, is being received"));
        let server = to.server().unwrap();
        tool("kill", &["-9", &server.to_string()]);
    }
    let whole = to.command("receive VG/db").stdin(File::open(&file).unwrap()).output().unwrap();
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
    assert_eq!(bytes_of(&from, "mon"), bytes_of(&to, "db"));
    to.ok("check VG");
}

#[test]
fn a_stream_is_for_no_terminal() {
    let world = World::new("sendtty", 64);
    world.ok("lvcreate -L 8M -n db VG");
    world.ok("lvcreate -s -n mon VG/db");
    let line = format!("{} send {}/mon", env!("CARGO_BIN_EXE_rowen"), world.group);
    let environment = [("ROWEN_SYSTEM_DIR", world.dir.join("etc")), ("ROWEN_RUN_DIR", world.dir.join("run"))];
    let mut script = std::process::Command::new("script");
    let output = script.args(["-qec", &line, "/dev/null"]).envs(environment).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("A stream is not written to a terminal") && !said.contains("RwTr"), "{said}");
}
