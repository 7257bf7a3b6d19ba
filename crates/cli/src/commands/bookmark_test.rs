//! Bookmarks: made, listed, sent from when the snapshot is gone, ended.
//!
//! Rules MK1 and MK3.

use crate::commands::transfer_world::{
    contents, discard, ok, receive, run, send, token, two_groups, with_marks, write,
};
use crate::fake::Fake;

fn told(world: &mut Fake, line: &str, code: u8, part: &str) {
    let done = world.run(line);
    assert!(done.code == code && format!("{}{}", done.out, done.err).contains(part), "{line}: {done:?}");
}

/// The first snapshot is in both groups, and then a bookmark of it alone is in the first one.
fn world() -> Fake {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    told(&mut world, "rowen bookmark vg0/mon", 0, "Bookmark vg0/mon is made");
    ok(&mut world, "lvremove -y vg0/mon");
    world
}

#[test]
fn changes_are_sent_from_a_bookmark() {
    let mut world = world();
    let point = world.report("vg1").volume("mon").unwrap().point_uuid;
    assert_eq!(world.report("vg0").bookmarks[0].point_uuid, point.unwrap());
    assert!(world.report("vg0").volume("mon").is_none());
    let stream = send(&mut world, "send -i mon vg0/tue");
    let all = send(&mut world, "send vg0/tue");
    assert!(stream.len() < all.len(), "{} of {}", stream.len(), all.len());
    assert_eq!(receive(&mut world, "receive vg1/db", &stream).err, "");
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "tue"));
    // And so on, with bookmarks alone. All that was there is discarded.
    told(&mut world, "rowen bookmark -n kept vg0/tue", 0, "Bookmark vg0/kept is made");
    told(&mut world, "rowen bookmark --remove vg0/mon", 0, "Bookmark vg0/mon is removed.");
    ok(&mut world, "lvremove -y vg0/tue");
    discard(&world, ("vg0", "db"), 0, 3000);
    write(&world, ("vg0", "db"), 77, 3, 9);
    ok(&mut world, "lvcreate -s -n wed vg0/db");
    told(&mut world, "rowen diff --summary vg0/kept wed", 0, "12.00k of data");
    let stream = send(&mut world, "send -i kept vg0/wed");
    assert_eq!(receive(&mut world, "receive vg1/db", &stream).err, "");
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "wed"));
}

#[test]
fn a_stream_from_a_bookmark_goes_on_after_a_cut() {
    let (mut world, _) = with_marks();
    ok(&mut world, "rowen bookmark vg0/mon");
    ok(&mut world, "lvremove -y vg0/mon");
    let stream = send(&mut world, "send -i mon vg0/wed");
    assert_eq!(receive(&mut world, "receive vg1/db", &stream[..stream.len() * 2 / 3]).code, 5);
    let word = token(&mut world, "vg1/db").unwrap();
    let rest = send(&mut world, &format!("send --resume {word}"));
    assert_eq!(receive(&mut world, "receive vg1/db", &rest).err, "");
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "wed"));
}

#[test]
fn a_group_is_sent_from_bookmarks() {
    let mut world = Fake::new();
    for line in
        ["vgcreate vg0 /dev/ubda", "vgcreate vg1 /dev/ubdb", "lvcreate -L 8M -n a vg0", "lvcreate -L 8M -n b vg0"]
    {
        ok(&mut world, line);
    }
    write(&world, ("vg0", "a"), 0, 100, 1);
    write(&world, ("vg0", "b"), 0, 100, 2);
    ok(&mut world, "rowen snapshot vg0 --suffix mon");
    let full = send(&mut world, "send --suffix mon vg0");
    assert_eq!(receive(&mut world, "receive vg1", &full).code, 0);
    for name in ["a-mon", "b-mon"] {
        ok(&mut world, &format!("rowen bookmark vg0/{name}"));
        ok(&mut world, &format!("lvremove -y vg0/{name}"));
    }
    write(&world, ("vg0", "a"), 50, 9, 3);
    discard(&world, ("vg0", "b"), 0, 2048);
    ok(&mut world, "rowen snapshot vg0 --suffix tue");
    let stream = send(&mut world, "send --suffix tue -i mon vg0");
    assert!(stream.len() < full.len(), "{} of {}", stream.len(), full.len());
    assert_eq!(receive(&mut world, "receive vg1", &stream).err, "");
    for name in ["a", "b"] {
        assert!(contents(&world, "vg1", name) == contents(&world, "vg0", name), "{name}");
    }
}

#[test]
fn bookmarks_are_shown_and_are_no_volumes() {
    let mut world = world();
    told(
        &mut world,
        "rowen bookmark --list vg0",
        0,
        "BOOKMARK LV MADE                      POINT UUID\n  mon      db 2026-",
    );
    told(&mut world, "rowen bookmark --list --json vg0", 0, "\"name\":\"mon\"");
    told(&mut world, "lvs --noheadings -o bookmarks vg0/db", 0, "mon");
    for line in ["lvs -a vg0", "rowen tree vg0", "lvdisplay vg0"] {
        let done = world.run(line);
        assert!(done.code == 0 && !done.out.contains("bookmark:") && !done.out.contains("mon"), "{line}: {done:?}");
    }
    for line in ["lvremove -y vg0/bookmark:mon", "lvchange -ay vg0/bookmark:mon", "lvcreate -s -n x vg0/bookmark:mon"] {
        assert_ne!(world.run(line).code, 0, "{line}");
    }
    told(&mut world, "vgremove -f vg0", 0, "successfully removed");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = world();
    ok(&mut world, "lvcreate -L 4M -n other vg0");
    ok(&mut world, "lvcreate -s -n of-other vg0/other");
    ok(&mut world, "lvcreate -s -n written vg0/db");
    write(&world, ("vg0", "written"), 0, 1, 9);
    for (line, code, part) in [
        ("rowen bookmark vg0/db", 5, "is no snapshot"),
        ("rowen bookmark vg0/none", 5, "Failed to find"),
        ("rowen bookmark vg0/written", 5, "was written to since it was taken"),
        ("rowen bookmark -n mon vg0/tue", 5, "has a bookmark \"mon\""),
        ("rowen bookmark -n a/b vg0/tue", 5, "is invalid"),
        ("rowen bookmark -n snapshot1 vg0/tue", 5, "reserved"),
        ("rowen bookmark vg0", 3, "Please specify one snapshot"),
        ("rowen bookmark", 3, "Please specify one snapshot"),
        ("rowen bookmark --remove vg0/tue", 5, "has no bookmark \"tue\""),
        ("rowen bookmark --list vg0/tue", 3, "is no volume group"),
        ("rowen diff vg0/mon of-other", 5, "does not come from the bookmark mon"),
        ("rowen diff vg0/tue mon", 5, "Failed to find"),
    ] {
        told(&mut world, line, code, part);
    }
    for (line, part) in [
        ("send -i mon vg0/of-other", "does not come from the bookmark mon"),
        ("send -i none vg0/tue", "and there is no bookmark of that name"),
        ("send vg0/mon", "Failed to find"),
    ] {
        let (_, err, code) = run(&mut world, line, None);
        assert!(code == 5 && err.contains(part), "{line}: {err}");
    }
}

/// MK1: nothing comes from there any more.
#[test]
fn a_bookmark_ends_with_all_that_came_from_its_snapshot() {
    let mut world = world();
    ok(&mut world, "lvremove -y vg0/tue vg0/db");
    let service = &world.memory("vg0").service;
    let group = service.group.clone();
    service.run(async move { group.reclaim_idle().await.unwrap() });
    assert!(world.report("vg0").bookmarks[0].has_ended);
    told(&mut world, "rowen bookmark --list vg0", 0, "(ended)");
    world.memory("vg0").service.periodic_work();
    assert!(world.report("vg0").bookmarks.is_empty());
    let events = world.memory("vg0").notes.events.lock().clone();
    assert!(events.iter().any(|(_, line)| line.contains("the bookmark vg0/mon has ended")), "{events:?}");
}
