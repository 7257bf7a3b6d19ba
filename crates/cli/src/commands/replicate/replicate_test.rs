//! `rowen replicate`: increments, cuts, refusals, the way back, and what is left of each.
//!
//! Rules RP1 to RP3.

use crate::commands::transfer_world::{self, contents, ok, two_groups, write};
use crate::fake::{Fake, Printed};
use rowen_engine::planted::must_be_found;

const THERE: &str = "rowen replicate vg0/db root@h2:vg1/db";

/// What is cut must be long.
const PLAIN: &str = "rowen replicate --plain vg0/db root@h2:vg1/db";

/// Two groups, the second one on the host h2.
pub(super) fn world() -> Fake {
    let mut world = two_groups();
    world.hosts.insert("root@h2".to_owned(), None);
    world
}

/// A minute later, what a command said.
pub(super) fn said(world: &mut Fake, line: &str, code: u8, part: &str) -> Printed {
    world.clock += 60;
    transfer_world::said(world, line, code, part)
}

/// Names of a group's volumes, with those who hold them.
fn names(world: &mut Fake, group: &str) -> Vec<String> {
    let told = world.run(&format!("lvs --noheadings --separator : -o name,holds {group}"));
    let names = told.out.lines().map(|line| line.trim().trim_end_matches(':').to_owned());
    names.collect()
}

fn same(world: &Fake) {
    assert!(contents(world, "vg0", "db") == contents(world, "vg1", "db"), "the copy is another one");
}

#[test]
fn a_copy_is_made_and_kept_up_to_date() {
    let mut world = world();
    said(&mut world, THERE, 0, "root@h2:vg1/db is up to date: db-repl-20261120T181434Z has arrived");
    same(&world);
    // The newest common point is held on both sides, and each side says whose it is.
    let (here, there) = (names(&mut world, "vg0"), names(&mut world, "vg1"));
    assert!(here.iter().any(|name| name.starts_with("db-repl-20261120T181434Z:replicate-vg1.db-")), "{here:?}");
    assert!(there.iter().any(|name| name.starts_with("db-repl-20261120T181434Z:replicate-vg0.db-")), "{there:?}");
    said(&mut world, THERE, 0, "it has db-repl-20261120T181434Z, and vg0/db did not change since");
    assert_eq!((names(&mut world, "vg0"), names(&mut world, "vg1")), (here, there), "nothing was left");
    write(&world, ("vg0", "db"), 7, 3, 9);
    said(&mut world, THERE, 0, "db-repl-20261120T181634Z has arrived");
    same(&world);
    let (here, there) = (names(&mut world, "vg0"), names(&mut world, "vg1"));
    assert_eq!((here.len(), there.len()), (4, 2), "what was only made for it is gone: {here:?} {there:?}");
    assert!(here.iter().any(|name| name == "mon") && here.iter().any(|name| name == "tue"), "{here:?}");
    let sent = world.ran_there.iter().filter(|line| line.contains("receive vg1/db --hold")).count();
    assert_eq!(sent, 2, "{:?}", world.ran_there);
}

#[test]
fn a_snapshot_that_is_there_is_sent_and_stays() {
    let mut world = world();
    said(&mut world, "rowen replicate vg0/mon vg1/copy", 0, "vg1/copy is up to date: mon has arrived");
    assert_eq!(contents(&world, "vg1", "copy"), contents(&world, "vg0", "mon"));
    said(&mut world, "rowen replicate vg0/tue vg1/copy", 0, "tue has arrived");
    said(&mut world, "rowen replicate vg0/tue vg1/copy", 0, "it has tue");
    said(&mut world, "rowen replicate vg0/mon vg1/copy", 5, "vg1/copy is at tue, which is newer than mon");
    assert_eq!(contents(&world, "vg1", "copy"), contents(&world, "vg0", "tue"));
    // The hold has moved on; nobody's snapshot was removed.
    said(&mut world, "lvremove -y vg0/mon", 0, "removed");
    said(&mut world, "lvremove -y vg0/tue", 5, "is held (replicate-vg1.copy-");
    assert!(names(&mut world, "vg1").contains(&"mon".to_owned()));
    // A bookmark will do as the base.
    said(&mut world, "rowen bookmark -n mark vg0/tue", 0, "is made");
    said(&mut world, "rowen release --all vg0/tue", 0, "");
    said(&mut world, "lvremove -y vg0/tue", 0, "removed");
    write(&world, ("vg0", "db"), 11, 30, 8);
    said(&mut world, "rowen replicate vg0/db vg1/copy", 0, "has arrived");
    assert_eq!(contents(&world, "vg1", "copy"), contents(&world, "vg0", "db"));
    let full = world.ran_there.len();
    assert_eq!(full, 0, "nothing ran on another host");
}

#[test]
fn what_was_cut_goes_on() {
    let mut world = world();
    ok(&mut world, "lvextend -L 40M vg0/db");
    write(&world, ("vg0", "db"), 2048, 900, 9);
    // Before the first mark, and then twice behind one.
    world.cuts = vec![100 << 10, 2 << 20, 1 << 20];
    for _ in 0..3 {
        said(&mut world, PLAIN, 5, "the same command goes on there");
        assert_eq!(names(&mut world, "vg1").len(), 0, "nothing can be seen");
    }
    let resumed = world.ran_there.iter().filter(|line| line.contains("points")).count();
    assert!(resumed >= 3);
    said(&mut world, PLAIN, 0, "has arrived");
    same(&world);
    assert_eq!(
        (names(&mut world, "vg0").len(), names(&mut world, "vg1").len()),
        (4, 2),
        "{:?}",
        names(&mut world, "vg0")
    );
    // An increment that is cut, and of which the source is gone then.
    write(&world, ("vg0", "db"), 100, 900, 3);
    world.cuts = vec![2 << 20];
    let cut = said(&mut world, PLAIN, 5, "cannot be reached, or the connection ended");
    assert!(cut.err.contains("What has arrived is kept"), "{cut:?}");
    let new = names(&mut world, "vg0").into_iter().rfind(|name| name.contains("-repl-")).unwrap();
    let new = new.split(':').next().unwrap().to_owned();
    ok(&mut world, &format!("rowen release --all vg0/{new}"));
    ok(&mut world, &format!("lvremove -y vg0/{new}"));
    let done = said(&mut world, PLAIN, 0, "has arrived");
    assert!(done.err.contains("is given up: vg0/db does not have its snapshots any more"), "{done:?}");
    same(&world);
}

#[test]
fn nothing_is_taken_back_on_the_target() {
    let mut world = world();
    said(&mut world, THERE, 0, "has arrived");
    write(&world, ("vg1", "db"), 3, 1, 77);
    write(&world, ("vg0", "db"), 4, 1, 78);
    let before = (names(&mut world, "vg0"), contents(&world, "vg1", "db"));
    let refused = said(&mut world, THERE, 5, "root@h2:vg1/db was changed since db-repl-20261120T181434Z");
    assert!(
        refused.err.contains("On root@h2: \"rowen revert vg1/db db-repl-20261120T181434Z\" gives up"),
        "{refused:?}"
    );
    assert_eq!((names(&mut world, "vg0"), contents(&world, "vg1", "db")), before, "nothing was taken or changed");
    // As it says.
    said(&mut world, "rowen revert -y vg1/db db-repl-20261120T181434Z", 0, "");
    said(&mut world, THERE, 0, "has arrived");
    same(&world);
    // Nothing in common.
    ok(&mut world, "lvcreate -L 8M -n other vg1");
    said(&mut world, "rowen replicate vg0/db h2:vg1/other", 5, "h2 cannot be reached");
    said(&mut world, "rowen replicate vg0/db vg1/other", 5, "has no snapshot that vg0/db has, too");
}

#[test]
fn the_way_back_after_a_failover() {
    let mut world = world();
    said(&mut world, THERE, 0, "has arrived");
    // The first host fails, with writes that were not replicated; the second one is used meanwhile.
    write(&world, ("vg0", "db"), 50, 5, 66);
    write(&world, ("vg1", "db"), 60, 5, 67);
    let pull = "rowen replicate --pull root@h2:vg1/db vg0/db";
    let refused = said(&mut world, pull, 5, "vg0/db was changed since db-repl-20261120T181434Z");
    assert!(refused.err.contains("\"rowen revert vg0/db db-repl-20261120T181434Z\""), "{refused:?}");
    said(&mut world, "lvcreate -s -n lost vg0/db", 0, "");
    said(&mut world, "rowen revert -y vg0/db db-repl-20261120T181434Z", 0, "");
    said(&mut world, pull, 0, "vg0/db is up to date: db-repl-");
    same(&world);
    // And forth again: one hold on each side, and one snapshot.
    write(&world, ("vg0", "db"), 70, 5, 68);
    said(&mut world, THERE, 0, "has arrived");
    same(&world);
    let held = |names: Vec<String>| names.into_iter().filter(|name| name.contains("replicate-")).count();
    assert_eq!((held(names(&mut world, "vg0")), held(names(&mut world, "vg1"))), (1, 1));
    assert_eq!(names(&mut world, "vg1").len(), 2);
}

#[test]
fn a_key_that_may_only_receive_is_enough() {
    let mut world = world();
    world.hosts.insert("root@h2".to_owned(), Some("vg1".to_owned()));
    said(&mut world, THERE, 0, "has arrived");
    write(&world, ("vg0", "db"), 4, 1, 78);
    let done = said(&mut world, THERE, 0, "has arrived");
    same(&world);
    assert!(done.err.contains("stays, for it cannot be removed from here"), "{done:?}");
    assert_eq!(names(&mut world, "vg1").len(), 3);
    // Not of other groups, and nothing else.
    said(&mut world, "rowen replicate vg0/db root@h2:vg0/copy", 5, "This key is for \"rowen receive\"");
}

#[test]
fn nothing_is_done_in_a_dry_run() {
    let mut world = world();
    let before = names(&mut world, "vg0");
    said(
        &mut world,
        "rowen replicate --dry-run vg0/db root@h2:vg1/db",
        0,
        "Would take a snapshot of vg0/db, and send all of it",
    );
    said(
        &mut world,
        "rowen replicate --dry-run vg0/mon root@h2:vg1/db",
        0,
        "Would send vg0/mon to root@h2:vg1/db: all of it",
    );
    said(
        &mut world,
        "rowen replicate -t vg0/db vg1",
        0,
        "Would take a snapshot of vg0/db, and send all of it to vg1/db",
    );
    assert_eq!((names(&mut world, "vg0"), names(&mut world, "vg1").len()), (before, 0));
    said(&mut world, "rowen replicate vg0/mon vg1/db", 0, "has arrived");
    said(&mut world, "rowen replicate --dry-run vg0/db vg1/db", 0, "and send what changed since mon to vg1/db");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = world();
    for (line, code, part) in [
        ("rowen replicate vg0/db", 3, "where its copy is"),
        ("rowen replicate vg0 vg1", 3, "is a volume group"),
        ("rowen replicate h2:vg0/db vg1/db", 3, "--pull replicates from there"),
        ("rowen replicate --pull vg0/db vg1/db", 3, "the first name is on another host"),
        ("rowen replicate --pull h2:vg0/db h3:vg1/db", 3, "the copy is on this host"),
        ("rowen replicate vg0/db -oProxyCommand=id:vg1/db", 3, ""),
        ("rowen replicate --limit 0 vg0/db vg1/db", 3, "is no rate"),
        ("rowen replicate --limit fast vg0/db vg1/db", 3, "is no rate"),
        ("rowen replicate vg0/none vg1/db", 5, "Failed to find logical volume \"vg0/none\""),
        ("rowen replicate vg0/db vg9/db", 5, "Volume group \"vg9\" not found"),
        ("rowen replicate vg0/db root@h2:vg9/db", 5, "root@h2: Volume group \"vg9\" not found"),
        ("rowen replicate vg0/db nobody:vg1/db", 5, "nobody cannot be reached"),
        ("rowen replicate vg0/db vg0/db", 5, "are in one volume group"),
        ("rowen replicate vg0/db vg0/copy", 5, "\"lvcreate -s -n NAME vg0/db\""),
        ("rowen points vg0", 3, "Please specify a logical volume"),
        ("rowen points vg0/none", 5, "Failed to find logical volume"),
    ] {
        said(&mut world, line, code, part);
    }
    assert_eq!((names(&mut world, "vg0").len(), names(&mut world, "vg1").len()), (3, 0));
    let told = said(&mut world, "rowen points vg0/db", 0, "POINT UUID");
    assert!(told.out.contains("mon") && told.out.contains("tue") && !told.out.contains("unchanged"), "{told:?}");
}

/// A snapshot that somebody took names the contents that are sent: it is held, and not the one beside it.
#[test]
fn what_names_the_common_point_is_held() {
    let mut world = world();
    ok(&mut world, "lvcreate -s -n wed vg0/db");
    said(&mut world, THERE, 0, "has arrived");
    said(&mut world, "lvremove -y vg0/wed", 5, "is held (replicate-vg1.db-");
    assert_eq!(names(&mut world, "vg0").len(), 4, "what was made beside it is gone");
    said(&mut world, THERE, 0, "it has wed, and vg0/db did not change since");
    write(&world, ("vg0", "db"), 4, 1, 78);
    said(&mut world, THERE, 0, "has arrived");
    same(&world);
    said(&mut world, "lvremove -y vg0/wed", 0, "removed");
    write(&world, ("vg0", "db"), 5, 1, 79);
    said(&mut world, THERE, 0, "has arrived");
    same(&world);
    assert_eq!((names(&mut world, "vg0").len(), names(&mut world, "vg1").len()), (4, 2));
}

/// What a failed run took is removed by the next one, which takes another one.
#[test]
fn failed_runs_leave_one_snapshot() {
    let mut world = world();
    said(&mut world, PLAIN, 0, "has arrived");
    write(&world, ("vg0", "db"), 100, 900, 3);
    for _ in 0..3 {
        // Before the first mark.
        world.cuts = vec![100 << 10];
        said(&mut world, PLAIN, 5, "the same command goes on there");
        let made = names(&mut world, "vg0").into_iter().filter(|name| name.contains("-repl-")).count();
        assert_eq!(made, 2, "the common point and the newest one");
    }
    said(&mut world, PLAIN, 0, "has arrived");
    same(&world);
    assert_eq!((names(&mut world, "vg0").len(), names(&mut world, "vg1").len()), (4, 2));
}

/// The other group has the contents as another volume, and a snapshot's identifier is there once. Nothing is left of runs of which
/// nothing arrived.
fn nothing_arrives() {
    let mut world = world();
    said(&mut world, THERE, 0, "has arrived");
    let before = names(&mut world, "vg0");
    for _ in 0..3 {
        let done = said(&mut world, "rowen replicate vg0/db root@h2:vg1/other", 5, "nothing has arrived");
        assert!(done.err.contains("has the identifier") && !done.err.contains("goes on there"), "{done:?}");
        assert_eq!(names(&mut world, "vg0"), before);
    }
    said(&mut world, THERE, 0, "up to date");
}

#[test]
fn a_run_of_which_nothing_arrives_leaves_nothing() {
    nothing_arrives();
    must_be_found("leftovers_stay", nothing_arrives);
}

/// RP1: nobody can remove what the next increment needs. RP2: what people made stays.
fn held_and_kept() {
    let mut world = world();
    said(&mut world, THERE, 0, "has arrived");
    let newest = names(&mut world, "vg0").into_iter().find(|name| name.contains("-repl-")).unwrap();
    let newest = newest.split(':').next().unwrap().to_owned();
    for group in ["vg0", "vg1"] {
        let done = world.run(&format!("lvremove -y {group}/{newest}"));
        assert_eq!(done.code, 5, "{group}: {done:?}");
    }
    write(&world, ("vg0", "db"), 4, 1, 78);
    said(&mut world, THERE, 0, "has arrived");
    let here = names(&mut world, "vg0");
    assert!(here.contains(&"mon".to_owned()) && here.contains(&"tue".to_owned()), "{here:?}");
}

#[test]
fn the_common_point_is_held_and_what_people_made_stays() {
    held_and_kept();
    must_be_found("replicated_unheld", held_and_kept);
    must_be_found("removes_what_people_made", held_and_kept);
}
