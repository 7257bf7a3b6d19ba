//! `rowen send` into `rowen receive`, over real engines: what arrives is what was sent, or nothing.
//!
//! Rules RX1, RX2, RX7, TR2, TR4 and RS1.

use crate::commands::transfer_world::{BLOCK, contents, discard, frames, ok, receive, seen, send, two_groups, write};
use crate::fake::Fake;
use crate::transcript_test::play;
use rowen_engine::planted::must_be_found;

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
    let told = "Logical Volume \"mon\" already exists in volume group \"vg1\"\n  The received snapshot would have this name: \"-n NAME\"";
    assert!(done.err.contains(told), "{}", done.err);
    assert_eq!(receive(&mut world, "receive -n m1 vg1/new", &full).code, 0);
    // Nothing changed: the snapshot is made, and is what the base is.
    ok(&mut world, "lvcreate -s -n m2 vg0/mon");
    let nothing = send(&mut world, "send -i mon vg0/m2");
    assert_eq!(receive(&mut world, "receive vg1/new", &nothing).code, 0);
    let names = |volume: &str| world.report("vg1").volume(volume).unwrap().point_uuid.unwrap();
    assert_eq!(names("m1"), names("m2"));
    let again = receive(&mut world, "receive vg1/new", &nothing);
    assert_eq!((again.out.as_str(), again.code), ("  vg1/new has this already: its snapshot m2.\n", 0));
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

/// Another size, or another map with the same data, and no data in the stream: the next increment fits.
fn empty_increments() {
    let mut world = Fake::new();
    for line in [
        "vgcreate vg0 /dev/ubda",
        "vgcreate vg1 /dev/ubdb",
        "lvcreate -L 8M -n thick vg0",
        "lvcreate -T -L 16M -V 8M -n thin vg0/pool",
        "lvcreate -T -L 16M -V 8M -n empty vg0/pool2",
    ] {
        ok(&mut world, line);
    }
    for name in ["thick", "thin", "empty"] {
        let db = ("vg0", name);
        if name != "empty" {
            write(&world, db, 3, 20, 1);
        }
        ok(&mut world, &format!("lvcreate -s -n {name}0 vg0/{name}"));
        let whole = send(&mut world, &format!("send vg0/{name}0"));
        assert_eq!(receive(&mut world, &format!("receive vg1/{name}"), &whole).code, 0);
        for point in 1..9 {
            match point {
                1 | 2 | 7 => ok(&mut world, &format!("lvextend -L +4M vg0/{name}")),
                4 => {
                    write(&world, db, 1900, 2, 6);
                    discard(&world, db, 1900, 2);
                }
                5 => ok(&mut world, &format!("lvreduce -y -L -4M vg0/{name}")),
                // Nothing.
                6 => {}
                _ => write(&world, db, point, 2, 7),
            }
            ok(&mut world, &format!("lvcreate -s -n {name}{point} vg0/{name}"));
            let stream = send(&mut world, &format!("send -i {name}{} vg0/{name}{point}", point - 1));
            let done = receive(&mut world, &format!("receive vg1/{name}"), &stream);
            assert_eq!(done.code, 0, "{name}{point}: {}", done.err);
            let snapshot = format!("{name}{point}");
            let id = |group: &str| world.report(group).volume(&snapshot).unwrap().point_uuid.unwrap();
            assert_eq!(id("vg0"), id("vg1"), "{snapshot}");
            assert!(contents(&world, "vg0", &snapshot) == contents(&world, "vg1", &snapshot), "{snapshot}");
            assert!(contents(&world, "vg0", &snapshot) == contents(&world, "vg1", name), "{snapshot}");
        }
    }
}

#[test]
fn increments_without_data_have_the_name_that_they_have_where_they_come_from() {
    empty_increments();
}

#[test]
fn what_is_in_use_or_changes_meanwhile_is_refused() {
    let mut world = two_groups();
    let (full, increment) = (send(&mut world, "send vg0/mon"), send(&mut world, "send -i mon vg0/tue"));
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    ok(&mut world, "lvchange -ay vg1/db");
    world.set_open("db", false);
    world.memory("vg1").devices.set_user("db", Some(rowen_control::service::platform::User::Filesystem));
    let done = receive(&mut world, "receive vg1/db", &increment);
    assert_eq!((done.err.as_str(), done.code), ("  Logical volume vg1/db contains a filesystem in use.\n", 5));
    world.memory("vg1").devices.set_user("db", None);
    // It is mounted while the stream comes, and something is written.
    let cut = &increment[..increment.len() - 10];
    assert_eq!(receive(&mut world, "receive vg1/db", cut).code, 5);
    world.memory("vg1").devices.set_user("db", Some(rowen_control::service::platform::User::Filesystem));
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
    assert_eq!(done.err, "  Cannot receive into vg1/db: what came is no stream of \"rowen send\".\n");
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
    must_be_found("has_name_of_base", empty_increments);
    must_be_found("unfinished_is_shown", cuts);
}
