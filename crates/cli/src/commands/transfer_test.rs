//! `rowen send` into `rowen receive`, over real engines: what arrives is what was sent, or nothing.
//!
//! Rules RX1, RX2, RX5, TR2, TR4, TR5, SD1 and RS1.

use crate::console::Console;
use crate::fake::{Fake, Printed};
use crate::transcript_test::play;
use rowen_engine::disk::PageBuf;
use rowen_engine::planted::must_be_found;
use rowen_engine::units::BLOCK_SIZE;
use std::sync::Arc;

const BLOCK: usize = BLOCK_SIZE as usize;

fn run(world: &mut Fake, line: &str, input: Option<&[u8]>) -> (Vec<u8>, String, u8) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut input = input;
    let answers = input.as_mut().map(|input| input as &mut dyn std::io::BufRead);
    let code = crate::run(world, Console::new(&mut out, &mut err, answers), "rowen", &words);
    (out, String::from_utf8(err).unwrap(), code)
}

/// A stream that could be written.
fn send(world: &mut Fake, line: &str) -> Vec<u8> {
    let (stream, err, code) = run(world, line, None);
    assert_eq!((err.as_str(), code), ("", 0), "{line}");
    stream
}

fn receive(world: &mut Fake, line: &str, stream: &[u8]) -> Printed {
    let (out, err, code) = run(world, line, Some(stream));
    Printed { out: String::from_utf8(out).unwrap(), err, code }
}

fn ok(world: &mut Fake, line: &str) {
    let done = world.run(line);
    assert_eq!(done.code, 0, "{line}: {}", done.err);
}

fn write(world: &Fake, (group, volume): (&str, &str), block: u64, blocks: u64, byte: u8) {
    let service = &world.memory(group).service;
    let volume = service.group.volume(service.group.find(volume).unwrap()).unwrap();
    let mut bytes = vec![byte; blocks as usize * BLOCK];
    // Not all of it is easy to compress.
    bytes.iter_mut().enumerate().filter(|(at, _)| at % 3 == 0).for_each(|(at, byte)| *byte = ((at * at) >> 5) as u8);
    let buf = Arc::new(PageBuf::from_slice(&bytes));
    let len = bytes.len() as u32;
    service.run(async move { volume.write(block * BLOCK_SIZE, len, buf).await }).unwrap();
}

fn discard(world: &Fake, (group, volume): (&str, &str), block: u64, blocks: u64) {
    let service = &world.memory(group).service;
    let volume = service.group.volume(service.group.find(volume).unwrap()).unwrap();
    service.run(async move { volume.discard(block * BLOCK_SIZE, blocks * BLOCK_SIZE).await }).unwrap();
}

fn contents(world: &Fake, group: &str, volume: &str) -> Vec<u8> {
    let service = &world.memory(group).service;
    let volume = service.group.volume(service.group.find(volume).unwrap()).unwrap();
    let len = volume.size_bytes() as usize;
    let read = service.run(async move { volume.read(0, len as u32, PageBuf::zeroed(len)).await }).unwrap();
    read.as_slice()[..len].to_vec()
}

/// All that can be seen of a group's volumes.
fn seen(world: &Fake, group: &str) -> Vec<(String, Vec<u8>, Option<[u8; 16]>)> {
    let volumes = world.report(group).volumes.into_iter();
    volumes
        .map(|volume| {
            let bytes = contents(world, group, &volume.name);
            (volume.name, bytes, volume.point_uuid.map(|point| point.0.0))
        })
        .collect()
}

/// Two groups. The volume `db` of the first one has snapshots `mon` and `tue`, between which there were writes, discards and
/// another size.
fn two_groups() -> Fake {
    let mut world = Fake::new();
    for line in ["vgcreate vg0 /dev/ubda", "vgcreate vg1 /dev/ubdb", "lvcreate -L 8M -n db vg0"] {
        ok(&mut world, line);
    }
    let db = ("vg0", "db");
    write(&world, db, 0, 40, 1);
    write(&world, db, 500, 600, 2);
    write(&world, db, 2047, 1, 3);
    ok(&mut world, "lvcreate -s -n mon vg0/db");
    for block in 0..6 {
        write(&world, db, 3 * block, 1, 4);
        discard(&world, db, 600 + 4 * block, 2);
    }
    write(&world, db, 100, 300, 5);
    discard(&world, db, 1000, 100);
    ok(&mut world, "lvextend -L +4M vg0/db");
    write(&world, db, 2500, 2, 6);
    ok(&mut world, "lvcreate -s -n tue vg0/db");
    // What comes later is not sent.
    write(&world, db, 0, 2000, 7);
    world
}

#[test]
fn what_arrives_is_what_was_sent() {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    let done = receive(&mut world, "receive vg1/db", &full);
    assert_eq!((done.err.as_str(), done.code), ("", 0));
    assert_eq!(
        done.out,
        "  Received vg1/db and its snapshot mon from vg0: 2.50m of data.\n  \"lvchange -ay vg1/db\" activates it.\n"
    );
    let (mon, tue) = (contents(&world, "vg0", "mon"), contents(&world, "vg0", "tue"));
    assert!(contents(&world, "vg1", "db") == mon && contents(&world, "vg1", "mon") == mon);
    let increment = send(&mut world, "send -i mon vg0/tue");
    let done = receive(&mut world, "receive vg1/db", &increment);
    assert_eq!((done.err.as_str(), done.code), ("", 0));
    assert!(contents(&world, "vg1", "db") == tue && contents(&world, "vg1", "tue") == tue);
    assert!(contents(&world, "vg1", "mon") == mon);
    // Names of contents are the same on both sides.
    let names = |group: &str, volume: &str| world.report(group).volume(volume).unwrap().point_uuid.unwrap();
    assert_eq!(names("vg0", "mon"), names("vg1", "mon"));
    assert_eq!(names("vg0", "tue"), names("vg1", "tue"));
    assert_eq!(names("vg1", "tue"), names("vg1", "db"));
    assert_ne!(names("vg1", "tue"), names("vg1", "mon"));
    // And back again: to a smaller size, and what was written is discarded.
    let back = send(&mut world, "send -i vg1/tue vg1/mon");
    ok(&mut world, "lvremove -y vg1/db vg1/tue vg1/mon");
    let all = send(&mut world, "send --plain vg0/tue");
    assert_eq!(receive(&mut world, "receive --thin vg1/other", &all).code, 0);
    let done = receive(&mut world, "receive -n monday vg1/other", &back);
    assert_eq!((done.err.as_str(), done.code), ("", 0));
    assert!(contents(&world, "vg1", "other") == mon && contents(&world, "vg1", "monday") == mon);
    for group in ["vg0", "vg1"] {
        assert_eq!(world.run(&format!("rowen check {group}")).code, 0, "{group}");
    }
}

#[test]
fn a_stream_is_as_large_as_what_changed() {
    let mut world = two_groups();
    let plain = send(&mut world, "send --plain -i mon vg0/tue");
    let changed = (300 + 6 + 2) * BLOCK;
    assert!(plain.len() < changed + changed / 100 + (64 << 10), "{}", plain.len());
    let packed = send(&mut world, "send -i mon vg0/tue");
    assert!(packed.len() < plain.len() * 3 / 4, "{} of {}", packed.len(), plain.len());
    let nothing = send(&mut world, "send -i tue vg0/tue");
    assert!(nothing.len() < 1024, "{}", nothing.len());
}

/// Where frames begin.
fn frames(stream: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        starts.push(at);
        at += 16 + u32::from_le_bytes(stream[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    starts
}

/// Every cut: the target is as it was, and the same stream again ends it.
fn cuts() {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    let increment = send(&mut world, "send -i mon vg0/tue");
    let before = seen(&world, "vg1");
    let starts = frames(&increment);
    assert!(starts.len() > 10, "{}", starts.len());
    for start in starts {
        for at in [0, 1, 15, 16, 17, 40] {
            let cut = &increment[..(start + at).min(increment.len() - 1)];
            let done = receive(&mut world, "receive vg1/db", cut);
            assert_eq!(done.code, 5, "{start}+{at}: {}", done.out);
            assert!(done.err.contains("Cannot receive"), "{}", done.err);
            assert!(seen(&world, "vg1") == before, "{start}+{at}");
        }
    }
    let status = world.run("rowen receive --status vg1");
    assert!(status.out.contains("vg1/db: from mon to tue, of 12.00m, is being received"), "{}", status.out);
    assert_eq!(receive(&mut world, "receive vg1/db", &increment).code, 0);
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "tue"));
    let status = world.run("rowen receive --status vg1");
    assert_eq!(status.out, "  Nothing is being received into volume group \"vg1\".\n");
}

/// Two groups, of which the second one has the base of a stream with several marks.
fn with_marks() -> (Fake, Vec<u8>) {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    for block in 0..6 {
        write(&world, ("vg0", "db"), 420 * block, 400, 20 + block as u8);
        discard(&world, ("vg0", "db"), 420 * block + 401, 3);
    }
    ok(&mut world, "lvcreate -s -n wed vg0/db");
    let stream = send(&mut world, "send -i mon vg0/wed");
    (world, stream)
}

fn token(world: &mut Fake, target: &str) -> Option<String> {
    let done = world.run(&format!("rowen receive --token {target}"));
    (done.code == 0).then(|| done.out.trim().to_owned())
}

/// Cut everywhere, and on with the rest alone; that one is cut, too.
fn resumed() {
    let mut whole = 0;
    let mut rests = 0;
    let (_, stream) = with_marks();
    for start in frames(&stream) {
        for at in [0, 1, 16, 40, 100] {
            let (mut world, stream) = with_marks();
            let before = seen(&world, "vg1");
            let cut = &stream[..(start + at).min(stream.len() - 1)];
            assert_eq!(receive(&mut world, "receive vg1/db", cut).code, 5);
            assert!(seen(&world, "vg1") == before, "{start}+{at}");
            let Some(word) = token(&mut world, "vg1/db") else {
                whole += 1;
                continue;
            };
            let rest = send(&mut world, &format!("send --resume {word}"));
            assert!(rest.len() < stream.len(), "{start}+{at}");
            // It is cut as well, before or after a mark of its own.
            let half = receive(&mut world, "receive vg1/db", &rest[..rest.len() * 2 / 3]);
            assert_eq!(half.code, 5, "{}", half.out);
            let word = token(&mut world, "vg1/db").unwrap();
            let rest = send(&mut world, &format!("send --resume {word}"));
            assert!(seen(&world, "vg1") == before, "{start}+{at}");
            let done = receive(&mut world, "receive vg1/db", &rest);
            assert_eq!((done.err.as_str(), done.code), ("", 0), "{start}+{at}");
            assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "wed"), "{start}+{at}");
            assert!(contents(&world, "vg1", "wed") == contents(&world, "vg0", "wed"), "{start}+{at}");
            assert!(contents(&world, "vg1", "mon") == contents(&world, "vg0", "mon"), "{start}+{at}");
            // After that the rest is what the group has.
            assert!(receive(&mut world, "receive vg1/db", &rest).out.contains("has this already"));
            rests += 1;
        }
    }
    assert!(whole > 5 && rests > 20, "{whole} {rests}");
}

#[test]
fn a_stream_that_was_cut_goes_on_with_the_rest() {
    resumed();
}

/// Three volumes of which snapshots were taken together, twice; the third one is new the second time.
fn group_of_three() -> Fake {
    let mut world = Fake::new();
    for line in
        ["vgcreate vg0 /dev/ubda", "vgcreate vg1 /dev/ubdb", "lvcreate -L 8M -n db vg0", "lvcreate -L 8M -n log vg0"]
    {
        ok(&mut world, line);
    }
    write(&world, ("vg0", "db"), 0, 500, 1);
    write(&world, ("vg0", "log"), 100, 300, 2);
    ok(&mut world, "rowen snapshot vg0 --suffix mon");
    ok(&mut world, "lvcreate -L 4M -n new vg0");
    write(&world, ("vg0", "db"), 400, 900, 3);
    discard(&world, ("vg0", "log"), 200, 50);
    write(&world, ("vg0", "new"), 9, 700, 4);
    ok(&mut world, "rowen snapshot vg0 --suffix tue");
    write(&world, ("vg0", "db"), 0, 900, 9);
    world
}

/// A group's snapshots in one stream: all become visible in one step, also after cuts everywhere.
fn whole_groups() {
    let mut world = group_of_three();
    let full = send(&mut world, "send --suffix mon vg0");
    let done = receive(&mut world, "receive vg1", &full);
    assert_eq!((done.err.as_str(), done.code), ("", 0));
    assert!(
        done.out.contains("Received vg1/db and its snapshot db-mon, vg1/log and its snapshot log-mon from vg0"),
        "{}",
        done.out
    );
    assert!(receive(&mut world, "receive vg1", &full).out.contains("vg1/log has this already: its snapshot log-mon"));
    let (stream, err, code) = run(&mut world, "send --suffix tue -i mon vg0", None);
    assert_eq!((err.as_str(), code), ("  vg0/new has no new-mon: all of new-tue is sent.\n", 0));
    let before = seen(&world, "vg1");
    let mut rests = 0;
    for start in frames(&stream) {
        for at in [0, 17] {
            let cut = &stream[..(start + at).min(stream.len() - 1)];
            assert_eq!(receive(&mut world, "receive vg1", cut).code, 5);
            assert!(seen(&world, "vg1") == before, "{start}+{at}");
            // Any of its volumes names the receive.
            if let Some(word) = token(&mut world, "vg1/log") {
                assert_eq!(token(&mut world, "vg1/new"), Some(word.clone()));
                let rest = send(&mut world, &format!("send --resume {word}"));
                let half = receive(&mut world, "receive vg1", &rest[..rest.len() / 2]);
                assert!(half.code == 5 && seen(&world, "vg1") == before, "{start}+{at}: {}", half.err);
                rests += 1;
            }
            // One that was cut before its volumes were named began nothing.
            let begun = !world.run("rowen receive --status vg1").out.contains("Nothing");
            assert_eq!(world.run("rowen receive --abort vg1/db").code == 0, begun, "{start}+{at}");
            assert!(seen(&world, "vg1") == before, "{start}+{at}");
        }
    }
    assert!(rests > 4, "{rests}");
    // A cut at the end, and the rest of it.
    assert_eq!(receive(&mut world, "receive vg1", &stream[..stream.len() - 3]).code, 5);
    let word = token(&mut world, "vg1/db").unwrap();
    let rest = send(&mut world, &format!("send --resume {word}"));
    let done = receive(&mut world, "receive vg1", &rest);
    assert_eq!((done.err.as_str(), done.code), ("", 0));
    for name in ["db", "log", "new"] {
        let sent = contents(&world, "vg0", &format!("{name}-tue"));
        assert!(
            contents(&world, "vg1", name) == sent && contents(&world, "vg1", &format!("{name}-tue")) == sent,
            "{name}"
        );
    }
    // What was received together can be sent on.
    assert_eq!(run(&mut world, "send --suffix tue vg1", None).2, 0);
    assert_eq!(world.run("rowen check vg1").code, 0);
}

#[test]
fn a_group_arrives_as_it_was_at_one_moment() {
    whole_groups();
}

#[test]
fn groups_that_cannot_be_sent_say_why() {
    let mut world = group_of_three();
    let full = send(&mut world, "send --suffix mon vg0");
    for (line, told) in [
        ("receive vg1/db", "The stream has 2 volumes, which keep their names"),
        ("receive -n x vg1", "keep their names"),
    ] {
        let done = receive(&mut world, line, &full);
        assert!(done.code == 5 && done.err.contains(told), "{}", done.err);
    }
    assert!(world.report("vg1").volumes.is_empty());
    ok(&mut world, "lvcreate -s -n db-wed vg0/db");
    ok(&mut world, "lvcreate -s -n log-wed vg0/log");
    for (line, told) in [
        ("send --suffix wed vg0", "were not taken at one moment: \"rowen snapshot vg0 --suffix NAME\""),
        ("send --suffix sun vg0", "has no snapshot that is called LV-sun"),
        ("send --suffix tue -i sun vg0", "None of them has a snapshot to go on from"),
        ("send --suffix tue vg0/db", "please specify a volume group"),
        ("send vg0", "Please specify a snapshot, or a volume group with --suffix"),
    ] {
        let (out, err, code) = run(&mut world, line, None);
        assert!(matches!(code, 3 | 5) && err.contains(told) && out.is_empty(), "{line}: {err}");
    }
    // One of the targets was written to: none of them changes.
    assert_eq!(receive(&mut world, "receive vg1", &full).code, 0);
    write(&world, ("vg1", "log"), 0, 1, 9);
    let before = seen(&world, "vg1");
    let (stream, ..) = run(&mut world, "send --suffix tue -i mon vg0", None);
    let done = receive(&mut world, "receive vg1", &stream);
    assert!(done.code == 5 && done.err.contains("vg1/log was written to since its snapshot log-mon"), "{}", done.err);
    assert!(seen(&world, "vg1") == before);
}

/// A stream that somebody made by hand: of a volume with these names.
fn by_hand(name: &str, snapshot: &str, change: impl Fn(&mut rowen_transfer::Volume)) -> Vec<u8> {
    use rowen_transfer::{Head, Range, StreamWriter, Volume};
    let mut volume = Volume {
        name: name.to_owned(),
        blocks: 2048,
        sector: 512,
        thick: false,
        base: None,
        point: [0x71; 16],
        snapshot: snapshot.to_owned(),
        changed: Some(1),
    };
    change(&mut volume);
    let head = Head {
        stream: [0x72; 16],
        continues: None,
        volumes: 1,
        time: 0,
        group: [0x73; 16],
        group_name: "far".to_owned(),
    };
    let mut writer = StreamWriter::begin(Vec::new(), &head, &[volume], true).unwrap();
    writer.data(0, &[Range { start: 0, blocks: 1 }], &[1; BLOCK]).unwrap();
    writer.end().unwrap()
}

/// Names and numbers of somebody who means harm: each is refused in words, and nothing changes.
#[test]
fn hostile_streams_change_nothing() {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    let before = seen(&world, "vg1");
    let refused = |world: &mut Fake, line: &str, stream: &[u8], what: &str| {
        let done = receive(world, line, stream);
        assert!(matches!(done.code, 3 | 5) && done.out.is_empty(), "{what}: {} {}", done.code, done.out);
        assert!(done.err.lines().count() > 0 && done.err.starts_with("  "), "{what}: {}", done.err);
        assert!(done.err.chars().all(|c| c == '\n' || !c.is_control()), "{what}: {}", done.err);
        assert!(seen(world, "vg1") == before, "{what}");
        let status = world.run("rowen receive --status vg1").out;
        assert_eq!(status, "  Nothing is being received into volume group \"vg1\".\n", "{what}");
    };
    let long = "x".repeat(128);
    let names = [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/dev/sda",
        "-rf",
        "a b",
        "a\nb",
        "a\u{1b}[2Jb",
        "ß",
        "snapshot",
        "pvmove0",
        "x_mlog",
        "x_tdata",
        "receiving:1",
        "receiving:",
        long.as_str(),
        "$(reboot)",
        "x;y",
        "@tag",
    ];
    for name in names {
        refused(&mut world, "receive vg1", &by_hand(name, "s", |_| ()), &format!("the volume {name:?}"));
        refused(&mut world, "receive vg1", &by_hand("v", name, |_| ()), &format!("the snapshot {name:?}"));
        refused(
            &mut world,
            "receive vg1/new",
            &by_hand("v", name, |_| ()),
            &format!("the snapshot {name:?} of a named volume"),
        );
    }
    for name in ["db", "mon"] {
        refused(&mut world, "receive vg1", &by_hand(name, "s", |_| ()), "a volume that exists");
        refused(&mut world, "receive vg1/new", &by_hand("v", name, |_| ()), "a snapshot that exists");
    }
    refused(&mut world, "receive vg1", &by_hand("same", "same", |_| ()), "a volume and a snapshot of one name");
    refused(&mut world, "receive vg1/receiving:1", &by_hand("v", "s", |_| ()), "the name of what is received");
    for (what, change) in [
        ("more data than room", (|v: &mut rowen_transfer::Volume| v.changed = Some(u64::MAX - 1)) as fn(&mut _)),
        ("a huge thick volume", |v| (v.thick, v.blocks) = (true, (1 << 47) - 1)),
        ("a size beyond all", |v| v.blocks = 1 << 47),
        ("no size", |v| v.blocks = 0),
        ("odd sectors", |v| v.sector = 520),
        ("an unknown base", |v| v.base = Some(rowen_transfer::Base { point: [9; 16], name: "../\u{7f}".into() })),
        ("a base of no name", |v| v.base = Some(rowen_transfer::Base { point: [9; 16], name: String::new() })),
    ] {
        refused(&mut world, "receive vg1/db", &by_hand("v", "s", change), what);
        refused(&mut world, "receive vg1/other", &by_hand("v", "s", change), what);
    }
}

/// The server ends while it makes the contents visible: the command looks whether that was done.
#[test]
fn a_lost_answer_is_told_apart() {
    let ended = "The server of volume group \"vg1\" ended before it answered, and had done it: all is received.";
    for (ends, code, told) in [
        (vec![true], 0, ended),
        (vec![false, true], 0, ended),
        (vec![false, false], 0, ""),
        (vec![false; 4], 5, "All of vg1/db was received, and waits: give the same stream again."),
    ] {
        let (mut world, stream) = with_marks();
        let before = seen(&world, "vg1");
        world.ends_at_publish = ends;
        let done = receive(&mut world, "receive vg1/db", &stream);
        assert!(done.code == code && done.err.contains(told) && done.err.is_empty() == told.is_empty(), "{}", done.err);
        if code == 5 {
            assert!(seen(&world, "vg1") == before);
            assert_eq!(receive(&mut world, "receive vg1/db", &stream).code, 0);
        }
        assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "wed"));
    }
}

/// What goes on with something else is refused, and nothing changes.
#[test]
fn a_rest_that_does_not_fit_is_refused() {
    let (mut world, stream) = with_marks();
    let cut = &stream[..stream.len() * 3 / 4];
    assert_eq!(receive(&mut world, "receive vg1/db", cut).code, 5);
    let first = token(&mut world, "vg1/db").unwrap();
    let rest = send(&mut world, &format!("send --resume {first}"));
    let before = seen(&world, "vg1");
    // For another volume: nothing of the stream is there.
    let done = receive(&mut world, "receive vg1/other", &rest);
    assert!(done.code == 5 && done.err.contains("nothing of that one is here for vg1/other"), "{}", done.err);
    assert!(seen(&world, "vg1") == before && token(&mut world, "vg1/other").is_none());
    // Another stream of the same two snapshots began anew meanwhile, and has other marks.
    let again = send(&mut world, "send -i mon vg0/wed");
    assert_eq!(receive(&mut world, "receive vg1/db", &again[..again.len() * 3 / 4]).code, 5);
    let done = receive(&mut world, "receive vg1/db", &rest);
    assert!(done.code == 5 && done.err.contains("is not the last one that vg1/db has"), "{}", done.err);
    assert!(seen(&world, "vg1") == before);
    let second = token(&mut world, "vg1/db").unwrap();
    assert_ne!(first, second);
    // Snapshots are found by what they have, whatever they are called; without them nothing goes on.
    ok(&mut world, "lvrename vg0/wed vg0/wednesday");
    let rest = send(&mut world, &format!("send --resume {second} vg0"));
    ok(&mut world, "lvrename vg0/wednesday vg0/wed");
    ok(&mut world, "lvremove -y vg0/wed");
    for (line, code, told) in [
        (format!("send --resume {second}"), 5, "Volume group \"vg0\" has no snapshot any more that is what wed ("),
        (format!("send --resume {second} vg1"), 5, "Volume group \"vg1\" has no snapshot any more that is what wed ("),
        (format!("send --resume {}", &second[..second.len() - 2]), 3, "a part of the token is missing or changed"),
        ("send --resume vg0".to_owned(), 3, "it is no token"),
        ("send --resume /none".to_owned(), 5, "/none"),
        (format!("send --resume {second} -i mon vg0"), 3, "the token says what is sent"),
    ] {
        let (out, err, is) = run(&mut world, &line, None);
        assert!(is == code && err.contains(told) && out.is_empty(), "{line}: {is} {err}");
    }
    assert_eq!(receive(&mut world, "receive vg1/db", &rest).code, 0);
    assert_eq!(world.run("rowen receive --token vg1/db").err, "  Nothing is being received into vg1/db.\n");
}

/// What is shown of it goes on, also from a file.
#[test]
fn what_is_received_says_how_it_goes_on() {
    let (mut world, stream) = with_marks();
    assert_eq!(receive(&mut world, "receive vg1/db", &stream[..stream.len() - 9]).code, 5);
    let word = token(&mut world, "vg1/db").unwrap();
    let status = world.run("rowen receive --status vg1").out;
    assert!(status.contains(&format!("It goes on with: rowen send --resume {word}\n")), "{status}");
    assert!(world.run("rowen receive --status --json vg1").out.contains(&format!("\"token\":\"{word}\"")));
    world.files.insert("/tmp/token".into(), format!("{word}\n"));
    let rest = send(&mut world, "send --resume /tmp/token");
    let done = receive(&mut world, "receive --test vg1/db", &rest);
    assert_eq!(done.out, "  The stream is whole: vg0/wed since mon, the rest of a stream that was cut.\n");
    assert_eq!(receive(&mut world, "receive vg1/db", &rest).code, 0);
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "wed"));
}

/// SD1: the base loses what the contents have lost, so the list of changes does not name it. The receiver has it still.
fn base_written() {
    let (mut world, _) = with_marks();
    world.before_diff = Some(|world| discard(world, ("vg0", "mon"), 800, 50));
    let (stream, err, code) = run(&mut world, "send -i mon vg0/wed", None);
    world.before_diff = None;
    assert!(code == 5 && err.contains("vg0/mon was written to"), "{err}");
    assert_eq!(receive(&mut world, "receive vg1/db", &stream).code, 5);
    assert!(token(&mut world, "vg1/db").is_none(), "nothing is marked that is not certain");
}

#[test]
fn what_is_marked_misses_nothing() {
    base_written();
}

#[test]
fn a_stream_that_is_cut_changes_nothing_that_can_be_seen() {
    cuts();
}

/// Every frame with a byte changed, left out, twice, or in another place.
fn damage() {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    let increment = send(&mut world, "send -i mon vg0/tue");
    let before = seen(&world, "vg1");
    let mut starts = frames(&increment);
    let last = starts.len() - 1;
    starts.push(increment.len());
    let refused = |world: &mut Fake, stream: &[u8], what: &str| {
        let done = receive(world, "receive vg1/db", stream);
        assert_eq!(done.code, 5, "{what}: {}", done.out);
        assert!(done.err.contains("annot receive"), "{what}: {}", done.err);
        assert!(seen(world, "vg1") == before, "{what}");
    };
    for (frame, pair) in starts.windows(2).enumerate() {
        let (start, end) = (pair[0], pair[1]);
        for at in [start, start + 4, start + 6, start + 8, start + 12, start + 16, usize::midpoint(start, end), end - 1]
        {
            let mut changed = increment.clone();
            changed[at] ^= 0x10;
            refused(&mut world, &changed, &format!("frame {frame}, byte {}", at - start));
        }
        let without = [&increment[..start], &increment[end..]].concat();
        refused(&mut world, &without, &format!("without frame {frame}"));
        let twice = [&increment[..end], &increment[start..]].concat();
        refused(&mut world, &twice, &format!("frame {frame} twice"));
    }
    let more = [&increment[..], b"x"].concat();
    refused(&mut world, &more, "something follows");
    // Frames of two streams.
    let other = send(&mut world, "send -i mon vg0/tue");
    let mixed = [&increment[..starts[last]], &other[*frames(&other).last().unwrap()..]].concat();
    refused(&mut world, &mixed, "another end");
    assert_eq!(receive(&mut world, "receive --abort vg1/db", &[]).code, 0);
    assert!(seen(&world, "vg1") == before);
    assert_eq!(receive(&mut world, "receive vg1/db", &increment).code, 0);
}

#[test]
fn a_stream_that_was_changed_is_refused() {
    damage();
}

/// Frames of another stream, and then a cut: the whole stream writes all that is received.
fn mixed() {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    let increment = send(&mut world, "send -i mon vg0/tue");
    // It has data where the increment has none.
    ok(&mut world, "lvcreate -s -n late vg0/db");
    let other = send(&mut world, "send vg0/late");
    for (from, is_other) in [(&other, true), (&increment, false)] {
        for pair in frames(from).windows(2).skip(2) {
            let begun = frames(&increment)[2];
            let spliced = [&increment[..begun], &from[pair[0]..pair[1]]].concat();
            let done = receive(&mut world, "receive vg1/db", &spliced);
            assert!(done.code == 5 && (is_other || pair[0] == begun || done.err.contains("damaged")), "{}", done.err);
        }
    }
    assert_eq!(receive(&mut world, "receive vg1/db", &increment).code, 0);
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "tue"));
}

#[test]
fn frames_of_another_stream_are_never_kept() {
    mixed();
}

/// RS1.
fn restricted() {
    let mut world = two_groups();
    let (full, increment) = (send(&mut world, "send vg0/mon"), send(&mut world, "send -i mon vg0/tue"));
    let before = (seen(&world, "vg0"), seen(&world, "vg1"));
    let mut asks = |to: &str, command: &str, stream: &[u8]| {
        world.ssh_command = Some(command.to_owned());
        let done = receive(&mut world, &format!("receive --restrict {to}"), stream);
        (done, (seen(&world, "vg0"), seen(&world, "vg1")))
    };
    for command in [
        "",
        "sh",
        "rowen",
        "rowen lvremove -y vg0/mon",
        "lvremove -y vg0/mon",
        "rowen receive",
        "rowen receive vg0/db2",
        "rowen receive vg1/db vg1/db2",
        "rowen receive vg0",
        "rowen receive @tag",
        "rowen receive vg1/db; reboot",
        "rowen receive vg1/db $(reboot)",
        "rowen receive vg1/db\nreboot",
        "rowen receive --config global/units=b vg1/db",
        "rowen receive --restrict vg0 vg1/db",
        "rowen receive --nolocking vg1/db",
        "rowen receive --status vg0",
        "rowen receive --abort vg0/db",
    ] {
        let (done, after) = asks("vg1", command, &full);
        assert!(matches!(done.code, 3 | 5) && after == before, "{command}: {}", done.out);
    }
    let (done, after) = asks("vg1/db", "rowen receive vg1", &full);
    assert!(done.code == 5 && done.err.contains("it names vg1.") && after == before, "{}", done.err);
    let (done, after) = asks("vg1/db", "rowen receive vg1/db2", &full);
    let told = "  This key is for \"rowen receive\" into vg1/db alone: it names vg1/db2.\n";
    assert!((done.err.as_str(), done.code) == (told, 5) && after == before, "{}", done.err);
    let (done, after) = asks("vg1", "rowen receive --test vg1/db", &full);
    assert!(done.code == 0 && done.out.contains("The stream is whole") && after == before, "{}", done.err);
    // What is asked for is done, and the increment after it.
    assert_eq!(asks("vg1/db", "/usr/sbin/rowen receive --thin -n monday vg1/db", &full).0.code, 0);
    assert_eq!(asks("vg1", "rowen receive vg1/db", &increment).0.code, 0);
    assert!(asks("vg1", "rowen receive --status vg1", &[]).0.out.contains("Nothing is being received"));
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "tue"));
    assert!(contents(&world, "vg1", "monday") == contents(&world, "vg0", "mon"));
    for line in ["receive --restrict vg1 vg1/db", "receive --restrict @tag", "receive --restrict vg1 --abort"] {
        assert_eq!(receive(&mut world, line, &full).code, 3, "{line}");
    }
    world.ssh_command = None;
    let done = receive(&mut world, "receive --restrict vg1", &full);
    assert!(done.code == 3 && done.err.contains("SSH_ORIGINAL_COMMAND"), "{}", done.err);
}

#[test]
fn a_key_that_may_only_receive() {
    restricted();
}

/// A base by name alone is none.
fn bases() {
    let mut world = two_groups();
    let (full, increment) = (send(&mut world, "send vg0/mon"), send(&mut world, "send -i mon vg0/tue"));
    // Volumes of the same names with other contents.
    ok(&mut world, "lvcreate -L 8M -n db vg1");
    ok(&mut world, "lvcreate -s -n mon vg1/db");
    let done = receive(&mut world, "receive vg1/db", &increment);
    assert_eq!(done.code, 5);
    assert!(done.err.contains("and vg1/db has no mon. The newest snapshot of vg1/db is mon"), "{}", done.err);
    let done = receive(&mut world, "receive -n m0 vg1/db", &full);
    assert!(done.err.contains("Logical volume vg1/db exists, and the stream has a whole volume."), "{}", done.err);
    let done = receive(&mut world, "receive vg1/new", &full);
    assert!(done.err.contains("Logical Volume \"mon\" already exists in volume group \"vg1\""), "{}", done.err);
    assert_eq!(receive(&mut world, "receive -n m1 vg1/new", &full).code, 0);
    // The same stream twice.
    let again = receive(&mut world, "receive -n m1 vg1/new", &full);
    assert_eq!((again.out.as_str(), again.code), ("  vg1/new has this already: its snapshot m1.\n", 0));
    // A target that was written to.
    write(&world, ("vg1", "new"), 0, 1, 9);
    let before = seen(&world, "vg1");
    let done = receive(&mut world, "receive vg1/new", &increment);
    assert_eq!(done.code, 5);
    assert!(done.err.contains("vg1/new was written to since its snapshot m1"), "{}", done.err);
    assert!(seen(&world, "vg1") == before);
    // As it says: a volume of the base beside it.
    ok(&mut world, "lvcreate -s -n beside vg1/m1");
    assert_eq!(receive(&mut world, "receive vg1/beside", &increment).code, 0);
    assert!(contents(&world, "vg1", "beside") == contents(&world, "vg0", "tue"));
    assert!(contents(&world, "vg1", "m1") == contents(&world, "vg0", "mon"));
}

#[test]
fn only_the_base_takes_an_increment() {
    bases();
}

#[test]
fn what_is_in_use_or_changes_meanwhile_is_refused() {
    let mut world = two_groups();
    let (full, increment) = (send(&mut world, "send vg0/mon"), send(&mut world, "send -i mon vg0/tue"));
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    ok(&mut world, "lvchange -ay vg1/db");
    world.set_open("db", false);
    world.memory("vg1").devices.set_user("db", Some(rowen_control::service::world::User::Filesystem));
    let done = receive(&mut world, "receive vg1/db", &increment);
    assert_eq!((done.err.as_str(), done.code), ("  Logical volume vg1/db contains a filesystem in use.\n", 5));
    world.memory("vg1").devices.set_user("db", None);
    // It is mounted while the stream comes, and something is written.
    let cut = &increment[..increment.len() - 10];
    assert_eq!(receive(&mut world, "receive vg1/db", cut).code, 5);
    world.memory("vg1").devices.set_user("db", Some(rowen_control::service::world::User::Filesystem));
    let done = receive(&mut world, "receive vg1/db", &increment);
    assert!(done.err.contains("What was received is whole, and waits"), "{}", done.err);
    world.memory("vg1").devices.set_user("db", None);
    write(&world, ("vg1", "db"), 0, 1, 9);
    let before = seen(&world, "vg1");
    let done = receive(&mut world, "receive vg1/db", &increment);
    assert!(done.err.contains("was written to, resized or reverted while the stream was received"), "{}", done.err);
    assert!(seen(&world, "vg1") == before);
    ok(&mut world, "rowen receive --abort vg1/db");
    assert_eq!(world.run("rowen receive --abort vg1/db").err, "  Nothing is being received into vg1/db.\n");
    assert!(seen(&world, "vg1") == before);
}

#[test]
fn what_cannot_be_sent_says_what_can() {
    let mut world = two_groups();
    ok(&mut world, "lvcreate -s -n wed vg0/db");
    ok(&mut world, "lvchange -ay -K vg0/wed");
    write(&world, ("vg0", "wed"), 0, 1, 9);
    play(
        &mut world,
        "$ rowen send vg0/db
        E|  Logical volume vg0/db is no snapshot, so it can change while it is sent. Take a snapshot of it, and send that: \"lvcreate -s -n NAME vg0/db\".
        rc=5

        $ rowen send vg0/wed
        E|  Logical volume vg0/wed is not what it was when it was made: it was written to, or reverted. Take a snapshot of it, and send that: \"lvcreate -s -n NAME vg0/wed\".
        rc=5

        $ rowen send vg0/none
        E|  Failed to find logical volume \"vg0/none\"
        rc=5

        $ rowen send -i vg1/mon vg0/tue
        E|  \"vg1/mon\" is not in volume group \"vg0\", and has no common snapshot.
        E|  Run `rowen send --help' for more information.
        rc=3

        $ rowen receive vg1/db
        E|  A stream is not read from a terminal: give it from a file or from a pipe.
        E|  Run `rowen receive --help' for more information.
        rc=3",
    );
    let done = receive(&mut world, "receive vg1/db", b"#!/bin/sh\nexit 1\n");
    assert_eq!(done.err, "  Cannot receive into vg1/db: it is no stream of \"rowen send\".\n");
    let stream = send(&mut world, "send vg0/mon");
    let done = receive(&mut world, "receive --test vg1/db", &stream);
    assert_eq!((done.out.as_str(), done.code), ("  The stream is whole: vg0/mon.\n", 0));
    assert!(world.report("vg1").volumes.is_empty());
    let done = receive(&mut world, "receive -n m2 vg0/copy", &stream);
    assert!(done.err.contains("vg0/mon has the identifier of the snapshot that would be made."), "{}", done.err);
}

/// A group that is removed while it receives, and its metadata, know nothing of what is hidden.
#[test]
fn what_is_not_whole_is_nowhere() {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full[..full.len() - 1]).code, 5);
    assert!(world.report("vg1").volumes.is_empty());
    assert!(!world.run("lvs -a -o name vg1").out.contains("receiving"));
    assert_eq!(world.run("lvremove -y vg1/db").code, 5);
    // Where its blocks are is not free.
    let pieces = world.run("pvs --segments --noheadings --separator , -o segtype,pvseg_size").out;
    assert!(pieces.contains("receiving,") && pieces.contains("free,"), "{pieces}");
    let map = world.run("pvdisplay -m /dev/ubdb").out;
    assert!(map.contains("being received"), "{map}");
    ok(&mut world, "vgchange -ay vg1");
    let row = world.run("rowen receive --status --json vg1").out;
    assert!(row.contains("\"volume\":\"db\"") && row.contains("\"base\":null"), "{row}");
    let other = send(&mut world, "send vg0/tue");
    let done = receive(&mut world, "receive vg1/db", &other);
    assert!(done.err.contains("Another stream is being received into vg1/db: for its snapshot mon."), "{}", done.err);
    // Another stream of the same contents goes on with it.
    let again = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &again).code, 0);
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "mon"));
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("checksum_not_compared", damage);
    must_be_found("frames_without_place", mixed);
    must_be_found("restricted_to_nothing", restricted);
    must_be_found("any_base", bases);
    must_be_found("unfinished_is_shown", cuts);
    must_be_found("pages_not_certified", base_written);
    must_be_found("mark_block_early", resumed);
}
