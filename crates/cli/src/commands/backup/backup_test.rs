//! `rowen backup`: what runs take, send and remove, whatever the clock does, and what status says of it.
//!
//! Rules BK2 and BK4.

use crate::commands::transfer_world::{contents, ok, said, two_groups, write};
use crate::fake::Fake;
use rowen_engine::planted::must_be_found;

const CONF: &str = "/etc/rowen/backup.conf";

const POLICY: &str = "policies {\n\
    nightly {\n volumes = [\"vg0/db\"]\n every = \"1h\"\n keep = \"hourly:3 daily:2\"\n\
    targets {\n h2 {\n to = \"root@h2:vg1\"\n keep = \"hourly:2\"\n }\n }\n }\n}\n";

fn world() -> Fake {
    let mut world = two_groups();
    world.hosts.insert("root@h2".to_owned(), None);
    world.files.insert(CONF.to_owned(), POLICY.to_owned());
    world.full_after = 1000;
    world
}

/// Snapshots of the policy in a group, from the oldest to the newest.
fn of_policy(world: &mut Fake, group: &str) -> Vec<String> {
    let told = world.run(&format!("lvs --noheadings -o name {group}"));
    told.out.lines().map(|line| line.trim().to_owned()).filter(|name| name.starts_with("db-nightly-")).collect()
}

/// An hour later, after some writes.
fn next(world: &mut Fake, hours: i64) {
    world.clock += hours * 3600;
    let block = world.clock.unsigned_abs() / 3600 % 400;
    write(world, ("vg0", "db"), block, 3, 5);
}

/// BK5: what a policy runs before and after its snapshots.
#[test]
fn programs_run_before_and_after_a_snapshot() {
    let mut world = world();
    let hooks = "before = \"/etc/freeze\"\n after = \"/etc/thaw\"\n hook_timeout = \"5s\"\n every =";
    let policy = POLICY.replacen("every =", hooks, 1);
    world.files.insert(CONF.to_owned(), policy);
    let ran = |world: &Fake| std::mem::take(&mut *world.hooks.ran.lock().unwrap());
    said(&mut world, "rowen backup run --dry-run", 0, "Would take");
    assert!(ran(&world).is_empty());
    said(&mut world, "rowen backup run", 0, "Took vg0/db-nightly-20261120T181334Z.");
    assert_eq!(ran(&world), ["/etc/freeze nightly vg0 db", "/etc/thaw nightly vg0 db"]);
    // Nothing is due.
    said(&mut world, "rowen backup run", 0, "");
    assert!(ran(&world).is_empty());
    // If the first one fails nothing is taken, and the application goes on.
    next(&mut world, 1);
    *world.hooks.failing.lock().unwrap() = Some("/etc/freeze".into());
    said(&mut world, "rowen backup run", 5, "/etc/freeze failed with exit code 1. No snapshot was taken.");
    assert_eq!(ran(&world), ["/etc/freeze nightly vg0 db", "/etc/thaw nightly vg0 db"]);
    assert_eq!(of_policy(&mut world, "vg0").len(), 1);
    *world.hooks.failing.lock().unwrap() = Some("/etc/thaw".into());
    let done = said(&mut world, "rowen backup run", 5, "/etc/thaw failed with exit code 1.");
    assert!(done.out.contains("Took vg0/db-nightly-"), "{done:?}");
    assert_eq!(of_policy(&mut world, "vg0").len(), 2);
}

#[test]
fn a_run_takes_sends_and_removes() {
    let mut world = world();
    said(&mut world, "rowen backup status", 1, "LATE nightly vg0/db: 0 snapshots, the newest none");
    let dry = said(&mut world, "rowen backup run --dry-run", 0, "Would take vg0/db-nightly-20261120T181334Z.");
    assert!(!dry.out.contains("Took"), "{dry:?}");
    let first = said(&mut world, "rowen backup run", 0, "Took vg0/db-nightly-20261120T181334Z.");
    assert!(first.out.contains("root@h2:vg1/db is up to date: db-nightly-20261120T181334Z has arrived"), "{first:?}");
    assert!(contents(&world, "vg0", "db") == contents(&world, "vg1", "db"));
    said(
        &mut world,
        "rowen backup status",
        0,
        "ok   nightly vg0/db: 1 snapshots, the newest db-nightly-20261120T181334Z",
    );
    // It is not due again in this hour.
    assert_eq!(said(&mut world, "rowen backup run", 0, "").out, "");
    for _ in 0..5 {
        next(&mut world, 1);
        said(&mut world, "rowen backup run", 0, "has arrived");
        assert!(contents(&world, "vg0", "db") == contents(&world, "vg1", "db"));
    }
    assert_eq!((of_policy(&mut world, "vg0").len(), of_policy(&mut world, "vg1").len()), (3, 2));
    // What people made is there.
    said(&mut world, "lvs vg0/mon vg0/tue", 0, "");
    let list = said(&mut world, "rowen backup list", 0, "KEPT AS");
    assert!(list.out.contains("hourly,daily") && list.out.contains("replicate-vg1.db-"), "{list:?}");
    // A target that cannot be reached keeps the base, whatever is removed around it.
    world.hosts.clear();
    for _ in 0..6 {
        next(&mut world, 5);
        said(&mut world, "rowen backup run", 5, "root@h2 cannot be reached");
    }
    let status = said(&mut world, "rowen backup status", 1, "the last attempt failed");
    assert!(status.out.contains("ok   nightly vg0/db") && status.out.contains("LATE   at h2"), "{status:?}");
    world.hosts.insert("root@h2".to_owned(), None);
    next(&mut world, 1);
    said(&mut world, "rowen backup run", 0, "has arrived");
    assert!(contents(&world, "vg0", "db") == contents(&world, "vg1", "db"));
    let full = world.ran_there.iter().filter(|line| line.contains("receive --abort")).count();
    assert_eq!(full, 0);
    said(&mut world, "rowen backup status", 0, "ok");
}

/// B11, through the command: the clock jumps by a year, ahead and back, and nothing is lost.
fn jumps() {
    let mut world = world();
    for hours in [0, 1, 24, 24, 365 * 24, -365 * 24, 1, 1] {
        next(&mut world, hours);
        let before = of_policy(&mut world, "vg0");
        said(&mut world, "rowen backup run", 0, "has arrived");
        let after = of_policy(&mut world, "vg0");
        assert!(before.iter().filter(|name| !after.contains(name)).count() <= 2, "{hours}: {before:?} {after:?}");
        assert!(contents(&world, "vg0", "db") == contents(&world, "vg1", "db"), "{hours}");
        assert!(after.len() >= before.len().min(3), "{hours}: {after:?}");
    }
    said(&mut world, "lvs vg0/mon vg0/tue", 0, "");
}

#[test]
fn a_clock_that_jumps_deletes_no_history() {
    jumps();
    must_be_found("any_snapshot_is_the_policys", jumps);
}

#[test]
fn many_snapshots_do_not_go_at_once() {
    let mut world = world();
    world.files.insert(CONF.to_owned(), POLICY.replace("hourly:3 daily:2", "hourly:40"));
    for _ in 0..11 {
        next(&mut world, 1);
        said(&mut world, "rowen backup run", 0, "Took");
    }
    world.files.insert(CONF.to_owned(), POLICY.replace("hourly:3 daily:2", "hourly:1"));
    assert_eq!(of_policy(&mut world, "vg0").len(), 11);
    said(&mut world, "rowen backup run", 0, "Removed vg0/db-nightly-");
    assert_eq!(of_policy(&mut world, "vg0").len(), 6, "half of them");
    said(&mut world, "rowen backup run --all", 0, "Removed vg0/db-nightly-");
    assert_eq!(of_policy(&mut world, "vg0").len(), 1);
}

/// A person holds a snapshot that has its identity from one of the policy: that one stays, and is no failure.
#[test]
fn what_names_a_held_snapshot_is_kept() {
    let mut world = world();
    world.files.insert(CONF.to_owned(), POLICY.replace("hourly:3 daily:2", "hourly:1"));
    said(&mut world, "rowen backup run", 0, "Took");
    let first = of_policy(&mut world, "vg0");
    ok(&mut world, "lvcreate -s -n mine vg0/db");
    ok(&mut world, "rowen hold -n me vg0/mine");
    for _ in 0..4 {
        next(&mut world, 1);
        said(&mut world, "rowen backup run --all", 0, "has arrived");
    }
    assert_eq!((of_policy(&mut world, "vg0").len(), of_policy(&mut world, "vg0")[0] == first[0]), (2, true));
    ok(&mut world, "rowen release --all vg0/mine");
    said(&mut world, "rowen backup run", 0, "Removed vg0/db-nightly-20261120T181334Z.");
}

#[test]
fn status_is_for_monitors() {
    let mut world = world();
    said(&mut world, "rowen backup run", 0, "Took");
    let json = said(&mut world, "rowen backup status --json", 0, "");
    let told: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&told["healthy"], &told["volumes"][0]["targets"][0]["target"]), (&true.into(), &"h2".into()));
    let text = said(&mut world, "rowen backup status --format prometheus", 0, "").out;
    for line in [
        "rowen_backup_snapshots{policy=\"nightly\",volume=\"vg0/db\"} 1",
        "rowen_backup_late{policy=\"nightly\",volume=\"vg0/db\"} 0",
        "rowen_backup_target_late{policy=\"nightly\",volume=\"vg0/db\",target=\"h2\"} 0",
        "rowen_backup_newest_timestamp_seconds{policy=\"nightly\",volume=\"vg0/db\"} 1795198414",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    world.clock += 3 * 3600;
    said(&mut world, "rowen backup status", 1, "the newest snapshot: 3 h ago, and it is due every 60 min");
    said(
        &mut world,
        "rowen backup status --format prometheus",
        1,
        "rowen_backup_late{policy=\"nightly\",volume=\"vg0/db\"} 1",
    );
    // A damaged file of results loses those results, and nothing else.
    world.files.insert("/etc/rowen/backup-state.json".to_owned(), "{".to_owned());
    said(&mut world, "rowen backup status", 1, "nothing has arrived yet");
    said(&mut world, "rowen backup run", 0, "Took");
    said(&mut world, "rowen backup status", 0, "ok");
}

#[test]
fn what_is_wrong_is_told() {
    let mut world = world();
    for (conf, line, code, part) in [
        (POLICY, "rowen backup", 3, "run, status, list, verify or import-sanoid"),
        (POLICY, "rowen backup walk", 3, "is none of run, status"),
        (POLICY, "rowen backup status --dry-run", 3, "does not accept option"),
        (POLICY, "rowen backup run --json", 3, "does not accept option"),
        (POLICY, "rowen backup run weekly", 5, "has no policy \"weekly\""),
        ("policies {", "rowen backup run", 4, "/etc/rowen/backup.conf"),
        ("policies { a { keep = \"daily:1\" } }", "rowen backup status", 4, "has no \"volumes\""),
        (
            "policies { a { volumes = \"vg9/x\" keep = \"daily:1\" } }",
            "rowen backup run",
            5,
            "Volume group \"vg9\" not found",
        ),
        (
            "policies { a { volumes = \"vg9/x\" keep = \"daily:1\" } }",
            "rowen backup status",
            1,
            "Volume group \"vg9\" not found",
        ),
        (
            "policies { a { volumes = \"vg0/none\" keep = \"daily:1\" } }",
            "rowen backup run",
            5,
            "failed to find logical volume",
        ),
        (
            "policies { a { volumes = \"vg0/db\" keep = \"daily:1\" targets { x { to = \"h2:vg1/db\" } } } }",
            "rowen backup run",
            5,
            "names a volume",
        ),
        (POLICY, "rowen backup import-sanoid", 3, "sanoid's file"),
        (POLICY, "rowen backup import-sanoid /none", 5, "/none"),
    ] {
        world.files.insert(CONF.to_owned(), conf.to_owned());
        said(&mut world, line, code, part);
    }
    world.files.remove(CONF);
    said(&mut world, "rowen backup run", 4, "This file says what is backed up");
    world.files.insert(
        "/sanoid".to_owned(),
        "[vg0/db]\nuse_template = a\n[template_a]\nhourly = 3\ndaily=0\nmonthly=0\n".to_owned(),
    );
    let made = said(&mut world, "rowen backup import-sanoid /sanoid", 0, "keep = \"hourly:3\"");
    world.files.insert(CONF.to_owned(), made.out);
    world.clock += 24 * 3600;
    said(&mut world, "rowen backup run", 0, "Took vg0/db-a-");
    // One that works is not kept from its turn by one that does not.
    ok(&mut world, "lvcreate -L 4M -n other vg0");
    let both = "policies { a { volumes = [\"vg9/x\", \"vg0/other\"] keep = \"daily:1\" } b { volumes = \"vg0/other\" keep = \"daily:1\" } }";
    world.files.insert(CONF.to_owned(), both.to_owned());
    let done = said(&mut world, "rowen backup run", 5, "Took vg0/other-a-");
    assert!(done.out.contains("Took vg0/other-b-"), "{done:?}");
}
