//! Transfers that are cut and go on, groups in one stream, and streams that somebody made by hand.
//!
//! Rules RX1, RX5, TR5 and SD1.

use crate::commands::transfer_world::{
    BLOCK, contents, discard, frames, ok, receive, run, seen, send, token, two_groups, with_marks, write,
};
use crate::fake::Fake;
use rowen_engine::planted::must_be_found;

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

/// Volumes of which snapshots were taken together, twice; one is new the second time, and one has not changed.
fn group_of_three() -> Fake {
    let mut world = Fake::new();
    for line in ["vgcreate vg0 /dev/ubda", "vgcreate vg1 /dev/ubdb"] {
        ok(&mut world, line);
    }
    for name in ["db", "log", "still"] {
        ok(&mut world, &format!("lvcreate -L 8M -n {name} vg0"));
    }
    write(&world, ("vg0", "db"), 0, 500, 1);
    write(&world, ("vg0", "log"), 100, 300, 2);
    // Nobody writes to this one again.
    write(&world, ("vg0", "still"), 0, 90, 8);
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
        done.out.contains("Received vg1/db and its snapshot db-mon, vg1/log and its snapshot log-mon, vg1/still and its snapshot still-mon from vg0"),
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
    for name in ["db", "log", "new", "still"] {
        let sent = contents(&world, "vg0", &format!("{name}-tue"));
        assert!(
            contents(&world, "vg1", name) == sent && contents(&world, "vg1", &format!("{name}-tue")) == sent,
            "{name}"
        );
    }
    // The one that did not change is what it was, under both names.
    let point = |name: &str| world.report("vg1").volume(name).unwrap().point_uuid;
    assert_eq!(point("still-tue"), point("still-mon"));
    assert!(
        receive(&mut world, "receive vg1", &stream).out.contains("vg1/still has this already: its snapshot still-tue")
    );
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
        ("receive vg1/db", "The stream has 3 volumes, which keep their names"),
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
    // Another stream of the same two snapshots began again meanwhile, and has other marks.
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
    world.files.insert("token".into(), format!("{word}\n"));
    assert!(!send(&mut world, "send --resume token").is_empty());
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
fn planted_bugs_are_found() {
    must_be_found("pages_not_certified", base_written);
    must_be_found("mark_block_early", resumed);
}
