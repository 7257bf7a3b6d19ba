//! `rowen replicate --group`: all volumes as they were at one moment, and what can be seen if a run ends half way.
//!
//! Rules RP4 and RP5.

use super::tests::said;
use crate::commands::transfer_world::{contents, ok, write};
use crate::fake::Fake;
use rowen_engine::planted::must_be_found;

const THERE: &str = "rowen replicate --group vg0 root@h2:vg1";

/// What is cut must be long.
const PLAIN: &str = "rowen replicate --group --plain vg0 root@h2:vg1";

const VOLUMES: [&str; 3] = ["db", "log", "www"];

/// Two groups, the second one on the host h2. The first one has three volumes.
fn world() -> Fake {
    let mut world = super::tests::world();
    for volume in ["log", "www"] {
        ok(&mut world, &format!("lvcreate -L 8M -n {volume} vg0"));
        write(&world, ("vg0", volume), 5, 900, 3);
    }
    world
}

/// Names of a group's volumes.
fn names(world: &mut Fake, group: &str) -> Vec<String> {
    let told = world.run(&format!("lvs --noheadings -o name {group}"));
    told.out.lines().map(|line| line.trim().to_owned()).collect()
}

/// The snapshots of a volume that replications made.
fn made(world: &mut Fake, group: &str, volume: &str) -> Vec<String> {
    let start = format!("{volume}-repl-");
    names(world, group).into_iter().filter(|name| name.starts_with(&start)).collect()
}

fn same(world: &Fake) {
    for volume in VOLUMES {
        assert!(contents(world, "vg0", volume) == contents(world, "vg1", volume), "{volume} is another one");
    }
}

/// Each volume gets this.
fn write_all(world: &Fake, block: u64, blocks: u64, byte: u8) {
    VOLUMES.iter().for_each(|volume| write(world, ("vg0", volume), block, blocks, byte));
}

#[test]
fn all_volumes_show_one_moment() {
    let mut world = world();
    let done = said(&mut world, THERE, 0, "root@h2:vg1 is up to date: it shows 3 volume(s) of vg0 as they were at");
    assert!(done.out.contains("root@h2:vg1/log is up to date: log-repl-20261120T181434Z has arrived"), "{done:?}");
    same(&world);
    for group in ["vg0", "vg1"] {
        for volume in VOLUMES {
            assert_eq!(made(&mut world, group, volume), [format!("{volume}-repl-20261120T181434Z")]);
            said(&mut world, &format!("lvremove -y {group}/{volume}-repl-20261120T181434Z"), 5, "is held (replicate-");
        }
    }
    let held = world.run("lvs --noheadings -o holds vg0").out;
    assert!(held.split_whitespace().all(|holds| !holds.contains(',')), "each has the hold of its pair alone: {held}");
    // One that did not change, and a new one.
    write(&world, ("vg0", "db"), 7, 3, 9);
    write(&world, ("vg0", "www"), 7, 3, 9);
    ok(&mut world, "lvcreate -L 4M -n new vg0");
    let done = said(&mut world, THERE, 0, "it shows 4 volume(s) of vg0");
    assert!(done.out.contains("it has log-repl-20261120T181434Z, and vg0/log did not change since"), "{done:?}");
    same(&world);
    assert_eq!(contents(&world, "vg0", "new"), contents(&world, "vg1", "new"));
    assert_eq!(made(&mut world, "vg1", "log"), ["log-repl-20261120T181434Z"]);
    let (here, there) = (made(&mut world, "vg0", "db"), made(&mut world, "vg1", "db"));
    assert!(here.len() == 1 && here == there, "{here:?} {there:?}");
    // Nothing changed: nothing is left of the run.
    let before = (names(&mut world, "vg0"), names(&mut world, "vg1"));
    said(&mut world, THERE, 0, "it shows 4 volume(s)");
    assert_eq!((names(&mut world, "vg0"), names(&mut world, "vg1")), before);
    // One volume alone goes on from there, and the way back needs nothing.
    write(&world, ("vg0", "db"), 9, 3, 9);
    said(&mut world, "rowen replicate vg0/db root@h2:vg1/db", 0, "has arrived");
    write(&world, ("vg1", "www"), 9, 3, 8);
    said(&mut world, "rowen replicate --group --pull root@h2:vg1 vg0", 0, "vg0 is up to date: it shows 4 volume(s)");
    same(&world);
}

#[test]
fn the_volumes_that_are_named() {
    let mut world = world();
    said(&mut world, "rowen replicate --group vg0 log vg0/www log vg1", 0, "vg1 is up to date: it shows 2 volume(s)");
    assert_eq!((made(&mut world, "vg1", "log").len(), made(&mut world, "vg1", "db").len()), (1, 0));
    said(&mut world, "rowen replicate --group vg0 log none vg1", 5, "Failed to find logical volume \"vg0/none\"");
    assert_eq!(made(&mut world, "vg0", "log").len(), 1, "nothing was taken");
    // What is a snapshot is not a volume of its own, if nobody names it.
    assert!(!names(&mut world, "vg1").contains(&"mon".to_owned()));
}

#[test]
fn one_that_fails_keeps_no_other_one_from_its_turn() {
    let mut world = world();
    said(&mut world, THERE, 0, "it shows 3 volume(s)");
    write(&world, ("vg1", "log"), 3, 1, 77);
    for byte in 1..4 {
        write_all(&world, 40, 3, byte);
        let done = said(&mut world, THERE, 5, "2 of 3 volumes of vg0 are up to date at root@h2:vg1");
        assert!(done.err.contains("vg0/log to root@h2:vg1/log:"), "{done:?}");
        assert!(done.err.contains("root@h2:vg1/log was changed since log-repl-20261120T181434Z"), "{done:?}");
        for volume in ["db", "www"] {
            assert_eq!(contents(&world, "vg0", volume), contents(&world, "vg1", volume));
            // The moment of the last complete run, and the newest one.
            let there = made(&mut world, "vg1", volume);
            assert!(there.len() == 2 && there[0].ends_with("20261120T181434Z"), "{there:?}");
        }
        assert_eq!(made(&mut world, "vg0", "log").len(), 1, "nothing was taken of what cannot be sent");
    }
    said(&mut world, "rowen revert -y vg1/log log-repl-20261120T181434Z", 0, "");
    said(&mut world, THERE, 0, "it shows 3 volume(s)");
    same(&world);
    for volume in ["db", "www"] {
        assert_eq!((made(&mut world, "vg0", volume).len(), made(&mut world, "vg1", volume).len()), (1, 1));
    }
}

/// RP5: what the last complete run brought can be found until all have arrived.
fn half_way() {
    let mut world = world();
    said(&mut world, PLAIN, 0, "it shows 3 volume(s)");
    let before: Vec<Vec<u8>> = VOLUMES.iter().map(|volume| contents(&world, "vg0", volume)).collect();
    for byte in 1..4 {
        write_all(&world, 100, 900, byte);
        // The second volume is cut behind a mark; what was cut before goes on first.
        world.cuts = vec![usize::MAX; if byte == 1 { 1 } else { 2 }];
        world.cuts.push(2 << 20);
        let done = said(&mut world, PLAIN, 5, "2 of 3 volumes of vg0 are up to date");
        assert!(done.err.contains("vg0/log to root@h2:vg1/log:"), "{done:?}");
        for (volume, before) in VOLUMES.iter().zip(&before) {
            let first = made(&mut world, "vg1", volume)[0].clone();
            assert!(contents(&world, "vg1", &first) == *before, "{first} is another one");
        }
        assert!(made(&mut world, "vg0", "log").len() <= 3, "{:?}", made(&mut world, "vg0", "log"));
    }
    said(&mut world, PLAIN, 0, "it shows 3 volume(s)");
    same(&world);
    for volume in VOLUMES {
        assert_eq!((made(&mut world, "vg0", volume).len(), made(&mut world, "vg1", volume).len()), (1, 1));
    }
}

#[test]
fn what_was_brought_last_stays_until_all_have_arrived() {
    half_way();
    must_be_found("half_a_group_is_pruned", half_way);
}

#[test]
fn a_run_that_cannot_begin_leaves_nothing() {
    let mut world = world();
    let before = names(&mut world, "vg0");
    for (line, code, part) in [
        ("rowen replicate --group vg0", 3, "Please specify a volume group, and where the copies are"),
        ("rowen replicate --group vg0/db h2:vg1", 3, "--group takes a volume group, and vg0/db is a logical volume"),
        ("rowen replicate --group vg0 h2:vg1/db", 3, "the copies have the names of their volumes"),
        ("rowen replicate --group vg0 vg1/db root@h2:vg1", 3, "\"vg1/db\" is not in volume group \"vg0\""),
        ("rowen replicate --group h2:vg0 vg1", 3, "h2:vg0 is not on this host: --pull replicates from there"),
        ("rowen replicate --group --pull vg0 vg1", 3, "With --pull the first name is on another host: HOST:VG."),
        ("rowen replicate --group --pull h2:vg0 h3:vg1", 3, "With --pull the copy is on this host: VG."),
        ("rowen replicate --group vg0 vg0", 5, "are in one volume group"),
        ("rowen replicate --group vg0 root@h2:vg9", 5, "root@h2: Volume group \"vg9\" not found"),
        ("rowen replicate --group vg9 root@h2:vg1", 5, "Volume group \"vg9\" not found"),
        ("rowen replicate --group vg1 root@h2:vg0", 5, "vg1 has no volume that could be replicated"),
        ("rowen replicate --group vg0 nobody:vg1", 5, "nobody cannot be reached"),
    ] {
        said(&mut world, line, code, part);
    }
    let dry = said(
        &mut world,
        "rowen replicate --group --dryrun vg0 root@h2:vg1",
        0,
        "Would take a snapshot of vg0 in one step: db, log, www.",
    );
    assert!(dry.out.contains("Would send vg0/log to root@h2:vg1/log: all of it."), "{dry:?}");
    assert_eq!((names(&mut world, "vg0"), names(&mut world, "vg1").len()), (before, 0));
    said(&mut world, THERE, 0, "");
    write(&world, ("vg1", "log"), 3, 1, 77);
    let before = (names(&mut world, "vg0"), names(&mut world, "vg1"));
    let dry = said(&mut world, "rowen replicate --group -t vg0 root@h2:vg1", 5, "vg1/log was changed since");
    assert!(dry.out.contains("Would take a snapshot of vg0 in one step: db, www."), "{dry:?}");
    assert!(dry.out.contains("Would send vg0/db to root@h2:vg1/db: what changed since db-repl-"), "{dry:?}");
    assert_eq!((names(&mut world, "vg0"), names(&mut world, "vg1")), before);
}

#[test]
fn a_key_that_may_only_receive_is_enough() {
    let mut world = world();
    world.hosts.insert("root@h2".to_owned(), Some("vg1".to_owned()));
    said(&mut world, THERE, 0, "it shows 3 volume(s)");
    write_all(&world, 4, 1, 78);
    let done = said(&mut world, THERE, 0, "it shows 3 volume(s)");
    same(&world);
    assert!(done.err.contains("stays, for it cannot be removed from here"), "{done:?}");
}
