//! `rowen restore` in groups in memory: which snapshot is taken, and what happens to the volume.

use crate::commands::transfer_world::{contents, ok, two_groups, write};
use crate::fake::{Fake, Printed};

fn said(world: &mut Fake, line: &[&str], code: u8, part: &str) -> Printed {
    let words: Vec<String> = line[1..].iter().map(|word| (*word).to_owned()).collect();
    let done = world.run_words(line[0], &words, None);
    assert!(done.code == code && format!("{}{}", done.out, done.err).contains(part), "{line:?}: {done:?}");
    done
}

/// `vg0/db` with a snapshot for each of three hours after 2026-11-20 18:13:34; also its contents in each.
fn world() -> (Fake, Vec<Vec<u8>>) {
    let mut world = two_groups();
    let mut was = Vec::new();
    for (hour, name) in [(1, "one"), (2, "two"), (3, "three")] {
        world.clock = 3600 * hour;
        write(&world, ("vg0", "db"), 10 * hour as u64, 3, hour as u8);
        was.push(contents(&world, "vg0", "db"));
        ok(&mut world, &format!("lvcreate -s -pr -n {name} vg0/db"));
    }
    world.clock = 3600 * 10;
    write(&world, ("vg0", "db"), 90, 3, 9);
    (world, was)
}

#[test]
fn the_newest_snapshot_until_then_is_taken() {
    let (mut world, was) = world();
    let now = contents(&world, "vg0", "db");
    for (at, name, taken) in [
        ("2026-11-20 19:14", "one", "2026-11-20 19:13:34"),
        ("2026-11-20 20:13", "two", "2026-11-20 20:13:34"),
        ("2026-11-20 21", "three", "2026-11-20 21:13:34"),
        ("2026-11-21", "three", "2026-11-20 21:13:34"),
        ("@1795208000", "two", "2026-11-20 20:13:34"),
    ] {
        let words = ["rowen", "restore", "vg0/db", "--dryrun", "--at", at];
        said(&mut world, &words, 0, &format!("Would restore vg0/db from vg0/{name}, taken {taken} +0000."));
    }
    let words = ["rowen", "restore", "vg0/db", "--at", "2026-11-20 20:30"];
    said(&mut world, &words, 0, "vg0/db-restored is vg0/db as it was when two was taken, 2026-11-20 20:13:34 +0000.");
    assert!(contents(&world, "vg0", "db-restored") == was[1] && contents(&world, "vg0", "db") == now);
    // It is a volume like any other: it can be written to, and the snapshot stays as it is.
    write(&world, ("vg0", "db-restored"), 0, 2, 77);
    assert!(contents(&world, "vg0", "two") == was[1]);
    said(&mut world, &["lvs", "--noheadings", "-o", "lv_active", "vg0/db-restored"], 0, "active");
    // The next one has another name; by default the newest snapshot is meant.
    said(&mut world, &["rowen", "restore", "vg0/db"], 0, "vg0/db-restored.1 is vg0/db as it was when three was taken");
    said(
        &mut world,
        &["rowen", "restore", "vg0/db", "-n", "mine", "--at", "2026-11-20 19:30"],
        0,
        "vg0/mine is vg0/db",
    );
    assert!(contents(&world, "vg0", "mine") == was[0]);
    said(&mut world, &["rowen", "restore", "vg0/db", "-n", "mine"], 5, "already exists");
}

#[test]
fn contents_are_replaced_and_those_before_are_kept() {
    let (mut world, was) = world();
    let now = contents(&world, "vg0", "db");
    let words = ["rowen", "restore", "-y", "vg0/db", "--at", "2026-11-20 19:30", "--replace"];
    said(&mut world, &words, 0, "vg0/db is as it was when one was taken, 2026-11-20 19:13:34 +0000. What it had until");
    assert!(contents(&world, "vg0", "db") == was[0]);
    assert!(contents(&world, "vg0", "db-before-restore") == now);
    for (name, was) in ["one", "two", "three"].into_iter().zip(&was) {
        assert!(contents(&world, "vg0", name) == *was, "{name} stays");
    }
    // And back.
    ok(&mut world, "rowen revert -y vg0/db db-before-restore");
    assert!(contents(&world, "vg0", "db") == now);
    // What is refused leaves nothing behind.
    let user = rowen_control::service::platform::User::Filesystem;
    world.memory("vg0").devices.set_user("db", Some(user));
    let before = world.run("lvs --noheadings -o name vg0").out;
    let words = ["rowen", "restore", "-y", "vg0/db", "--replace"];
    said(&mut world, &words, 5, "cannot be replaced while it is in use");
    assert_eq!(world.run("lvs --noheadings -o name vg0").out, before);
}

#[test]
fn what_cannot_be_restored_is_refused() {
    let (mut world, _) = world();
    ok(&mut world, "lvcreate -y -L 4m -n plain vg0");
    let before = world.run("lvs --noheadings -o name vg0").out;
    for (words, code, why) in [
        (&["vg0/db", "--at", "2026-11-19"][..], 5, "has no snapshot from so early: its oldest one, "),
        (&["vg0/db", "--at", "soon"], 3, "\"soon\" is no time"),
        (&["vg0/db", "--at", ""], 3, "\"\" is no time"),
        (&["vg0/plain"], 5, "vg0/plain has no snapshots"),
        (&["vg0/nothing"], 5, "Failed to find logical volume \"vg0/nothing\""),
        (&["vg0"], 3, "Please specify a logical volume path"),
        (&["vg0/db", "vg0/plain"], 3, "Please specify one logical volume"),
        (&["vg0/db", "-n", "a b"], 3, "is invalid"),
        (&["vg0/db", "-n", "x", "--replace"], 3, "With --replace no new volume is made"),
    ] {
        let words: Vec<&str> = ["rowen", "restore"].into_iter().chain(words.iter().copied()).collect();
        said(&mut world, &words, code, why);
    }
    // Nobody said yes.
    said(&mut world, &["rowen", "restore", "vg0/db", "--replace"], 5, "vg0/db not restored");
    assert_eq!(world.run("lvs --noheadings -o name vg0").out, before);
    // A snapshot that was written to is none of the volume as it was.
    ok(&mut world, "lvchange -prw vg0/three");
    write(&world, ("vg0", "three"), 0, 1, 1);
    said(&mut world, &["rowen", "restore", "vg0/db", "--dryrun"], 0, "Would restore vg0/db from vg0/two");
}
