//! `rowen backup verify`: copies that are the same, copies that are not, and what cannot be compared.
//!
//! Rule BK6.

use crate::commands::transfer_world::{BLOCK, contents, discard, ok, said, two_groups, write};
use crate::fake::Fake;
use rowen_engine::planted::must_be_found;

const CONF: &str = "/etc/rowen/backup.conf";

const POLICY: &str = "policies {\n\
    nightly {\n volumes = [\"vg0/db\"]\n every = \"1h\"\n keep = \"hourly:3\"\n\
    targets {\n h2 {\n to = \"root@h2:vg1\"\n }\n }\n }\n\
    local {\n volumes = [\"vg0\"]\n keep = \"daily:2\"\n }\n}\n";

fn world() -> Fake {
    let mut world = two_groups();
    // A key that may only receive is enough.
    world.hosts.insert("root@h2".to_owned(), Some("vg1".to_owned()));
    world.files.insert(CONF.to_owned(), POLICY.to_owned());
    world.full_after = 1000;
    world
}

/// BK6: a copy of which a disk lost a bit is found, with its place.
fn compared() {
    let mut world = world();
    let line = "FAIL nightly vg0/db at h2 (root@h2:vg1/db): its newest snapshot was not compared";
    said(&mut world, "rowen backup verify", 1, line);
    said(&mut world, "rowen backup verify", 1, "Nothing has arrived yet.");
    said(&mut world, "rowen backup run", 0, "has arrived");
    let done = said(&mut world, "rowen backup verify", 0, "ok   nightly vg0/db at h2 (root@h2:vg1/db): db-nightly-");
    assert!(done.out.contains("is the same, 12.00m") && !done.out.contains("local"), "{done:?}");
    // What is written later does not matter, and neither does what the copy's newer blocks lost.
    world.clock += 3600;
    discard(&world, ("vg0", "db"), 700, 1);
    write(&world, ("vg0", "db"), 1500, 3, 9);
    said(&mut world, "rowen backup verify nightly", 0, "is the same");
    said(&mut world, "rowen backup run", 0, "has arrived");
    said(&mut world, "rowen backup verify nightly", 0, "is the same");
    let block = contents(&world, "vg1", "db")[1501 * BLOCK..][..BLOCK].to_vec();
    world.memory("vg1").rot(&block);
    let done =
        said(&mut world, "rowen backup verify", 1, "differs, first in the 4096 bytes at byte 6148096 of the volume");
    assert!(done.out.starts_with("  DIFF nightly vg0/db at h2"), "{done:?}");
    assert!(done.out.contains("remove root@h2:vg1/db and its snapshots"), "{done:?}");
    let done = said(&mut world, "rowen backup verify --json", 1, "\"result\": \"different\"");
    assert!(done.out.contains("\"healthy\": false") && done.out.contains("\"first_difference\": 6148096"), "{done:?}");
    // As it says.
    said(&mut world, "rowen release --all vg1", 0, "no longer held");
    let names = world.run("lvs --noheadings -o full_name vg1").out;
    let names: Vec<&str> = names.split_whitespace().collect();
    said(&mut world, &format!("lvremove -y {}", names.join(" ")), 0, "removed");
    world.clock += 3600;
    write(&world, ("vg0", "db"), 1, 3, 9);
    let run = world.run("rowen backup run");
    assert!(run.out.contains("has arrived"), "{run:?}");
    let done = said(&mut world, "rowen backup verify --json", 0, "\"result\": \"same\"");
    assert!(done.out.contains("\"healthy\": true") && done.out.contains("\"bytes\": 12582912"), "{done:?}");
}

#[test]
fn copies_are_compared() {
    compared();
    must_be_found("sums_not_compared", compared);
}

#[test]
fn what_cannot_be_compared() {
    let mut world = world();
    said(&mut world, "rowen backup verify local", 5, "Policy local has no target: there is no copy to compare");
    said(&mut world, "rowen backup verify other", 5, "has no policy \"other\"");
    said(&mut world, "rowen backup verify --format json", 3, "does not accept option: --format");
    said(&mut world, "rowen backup run", 0, "has arrived");
    ok(&mut world, "lvcreate -L 4M -n log vg0");
    world.files.insert(CONF.to_owned(), POLICY.replace("[\"vg0/db\"]", "[\"vg0/db\", \"vg0/log\", \"vg0/none\"]"));
    let done = said(&mut world, "rowen backup verify", 1, "ok   nightly vg0/db");
    assert!(
        done.out.contains("FAIL nightly vg0/log") && done.err.contains("failed to find logical volume"),
        "{done:?}"
    );
    world.files.insert(CONF.to_owned(), POLICY.replace("root@h2", "nobody"));
    said(&mut world, "rowen backup verify", 1, "nobody cannot be reached");
    world.files.insert(CONF.to_owned(), POLICY.replace("targets {\n h2 {\n to = \"root@h2:vg1\"\n }\n }\n", ""));
    said(&mut world, "rowen backup verify", 5, "No policy has a target");
    world.files.insert(CONF.to_owned(), "policies {".to_owned());
    said(&mut world, "rowen backup verify", 4, "cannot be read");
}

#[test]
fn the_sum_of_a_snapshot() {
    let mut world = world();
    let told = world.run("rowen points vg0/db").out;
    let mut uuid = told.lines().find(|line| line.contains("tue")).unwrap().split_whitespace();
    let uuid = uuid.rfind(|word| word.len() == 38).unwrap().to_owned();
    let sum = |world: &mut Fake, blocks: &str| {
        let told = said(world, &format!("rowen points --sum {uuid} {blocks} vg0/db"), 0, "Sum: ").out;
        told.lines().last().unwrap().trim().to_owned()
    };
    assert_eq!(sum(&mut world, ""), sum(&mut world, "--blocks 0:3072"));
    assert_eq!(sum(&mut world, "--blocks 4000:9"), sum(&mut world, "--blocks 0:0"));
    assert_ne!(sum(&mut world, ""), sum(&mut world, "--blocks 0:2500"));
    for (line, code, part) in [
        ("rowen points --sum x vg0/db", 5, "vg0/db has no snapshot with the point UUID x."),
        ("rowen points --blocks 0:1 vg0/db", 3, "--blocks goes with --sum"),
        ("rowen points --sum x --blocks 1 vg0/db", 3, "\"1\" is no range of blocks"),
        ("rowen points --sum x --blocks 0:-1 vg0/db", 3, "\"0:-1\" is no range of blocks"),
    ] {
        said(&mut world, line, code, part);
    }
}
