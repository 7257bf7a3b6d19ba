use crate::fake::{Fake, Printed};
use rowen_control::protocol::GroupReport;

/// A group with two volumes, a snapshot with a size, and a copy of all that.
fn world() -> Fake {
    let mut world = Fake::new();
    for line in [
        "vgcreate vg0 /dev/ubda /dev/ubdb",
        "lvcreate -L 40M -n a vg0",
        "lvcreate -L 80M -n b vg0",
        "lvcreate -s -L 20M -n s vg0/a",
        "vgcfgbackup vg0",
    ] {
        assert_eq!(world.run(line).code, 0, "{line}");
    }
    world.requests.clear();
    world
}

fn printed(world: &mut Fake, line: &str, code: u8) -> Printed {
    let printed = world.run(line);
    assert_eq!(printed.code, code, "{line}: {printed:?}");
    printed
}

/// The group without the number of its changes.
fn contents(world: &Fake) -> GroupReport {
    GroupReport { sequence: 0, ..world.report("vg0") }
}

#[test]
fn a_group_that_is_as_the_copy_says_needs_no_change() {
    let mut world = world();
    assert_eq!(printed(&mut world, "vgcfgrestore vg0", 0).out, "  Restored volume group vg0.\n");
    assert_eq!(world.requests, []);
}

#[test]
fn names_and_properties_come_back() {
    let mut world = world();
    let before = contents(&world);
    for line in [
        "lvrename vg0 a temporary",
        "lvrename vg0 b a",
        "lvrename vg0 temporary b",
        "lvchange -pr vg0/a",
        "lvchange --addtag x --setautoactivation n vg0/b",
        "vgchange --addtag y vg0",
    ] {
        printed(&mut world, line, 0);
    }
    let test = printed(&mut world, "vgcfgrestore --test vg0", 0);
    assert!(test.out.contains("Renamed \"a\" to"), "{test:?}");
    assert_ne!(contents(&world), before, "a test changes nothing");
    printed(&mut world, "vgcfgrestore vg0", 0);
    assert_eq!(contents(&world), before);
}

#[test]
fn volumes_that_are_gone_are_named_and_nothing_is_changed() {
    let mut world = world();
    printed(&mut world, "lvremove -y vg0/s", 0);
    printed(&mut world, "lvremove -y vg0/a", 0);
    printed(&mut world, "lvrename vg0 b c", 0);
    world.requests.clear();
    let refused = printed(&mut world, "vgcfgrestore vg0", 5);
    for words in ["vg0/a was removed", "vg0/s was removed", "--force", "Restore failed."] {
        assert!(refused.err.contains(words), "{refused:?}");
    }
    assert_eq!(world.requests, []);
    let forced = printed(&mut world, "vgcfgrestore --force vg0", 0);
    assert!(forced.err.contains("WARNING: Logical volume vg0/a was removed"), "{forced:?}");
    assert!(world.report("vg0").volume("b").is_some());
}

#[test]
fn newer_volumes_and_other_sizes_stay() {
    let mut world = world();
    printed(&mut world, "lvcreate -L 4M -n newer vg0", 0);
    printed(&mut world, "lvextend -L 120M vg0/b", 0);
    let restored = printed(&mut world, "vgcfgrestore vg0", 0);
    assert!(restored.err.contains("vg0/newer is newer"), "{restored:?}");
    assert!(restored.err.contains("vg0/b had 80.00 MiB and keeps 120.00 MiB"), "{restored:?}");
    printed(&mut world, "lvrename vg0 b other", 0);
    printed(&mut world, "lvrename vg0 newer b", 0);
    let refused = printed(&mut world, "vgcfgrestore vg0", 5);
    assert!(refused.err.contains("vg0/other was called b, which a newer volume is called"), "{refused:?}");
}

#[test]
fn another_groups_copy_is_refused() {
    let mut world = world();
    printed(&mut world, "vgremove -f vg0", 0);
    printed(&mut world, "vgcreate vg0 /dev/ubda", 0);
    assert!(printed(&mut world, "vgcfgrestore vg0", 5).err.contains("another volume group"));
}

#[test]
fn a_missing_or_damaged_copy_is_refused() {
    let mut world = world();
    let whole = world.files["/etc/rowen/backup/vg0"].clone();
    world.files.insert("/half".into(), whole[..whole.len() / 2].to_owned());
    world.requests.clear();
    for (line, words) in
        [("vgcfgrestore -f /nosuch vg0", "/nosuch: read failed"), ("vgcfgrestore -f /half vg0", "Parse error at byte ")]
    {
        let refused = printed(&mut world, line, 5);
        assert!(refused.err.contains(words) && refused.err.ends_with("  Restore failed.\n"), "{refused:?}");
    }
    assert_eq!(world.requests, []);
    printed(&mut world, "vgcfgrestore", 3);
    printed(&mut world, "vgcfgrestore vg0 vg1", 3);
    printed(&mut world, "vgcfgrestore ../../etc", 3);
}

#[test]
fn copies_are_listed_as_lvm_lists_them() {
    let mut world = world();
    let listed = printed(&mut world, "vgcfgrestore --list vg0", 0).out;
    assert_eq!(
        listed,
        "   \n  File:\t\t/etc/rowen/backup/vg0\n  VG name:    \tvg0\n  Description:\tvgcfgbackup: created by \
         'vgcfgbackup vg0'\n  Backup Time:\tFri Nov 20 18:13:34 2026\n\n"
    );
    assert!(printed(&mut world, "vgcfgrestore -l vg1", 0).out.contains("No archives found in /etc/rowen/archive."));
}

#[test]
fn groups_go_into_different_files() {
    let mut world = world();
    printed(&mut world, "pvcreate /dev/ubdb", 5);
    printed(&mut world, "vgreduce vg0 /dev/ubdb", 0);
    printed(&mut world, "vgcreate vg1 /dev/ubdb", 0);
    assert!(printed(&mut world, "vgcfgbackup -f /all", 3).err.contains("different files"));
    printed(&mut world, "vgcfgbackup -f /copy-%s", 0);
    assert!(world.files.contains_key("/copy-vg0") && world.files.contains_key("/copy-vg1"));
    printed(&mut world, "vgcfgbackup nosuch", 5);
}

#[test]
fn copies_are_kept_as_the_settings_of_the_command_line_say() {
    let mut world = world();
    world.settings = "backup { archive = 1 retain_min = 10 retain_days = 5 }".into();
    printed(&mut world, "vgcfgbackup --config backup/retain_min=3 vg0", 0);
    let kept = world.kept_with.last().unwrap();
    assert_eq!((kept.archive, kept.retain_min, kept.retain_days), (true, 3, 5));
    printed(&mut world, "vgcfgbackup --config backup/archive=0 vg0", 0);
    let kept = world.kept_with.last().unwrap();
    assert_eq!((kept.archive, kept.retain_min, kept.retain_days), (false, 10, 5));
}

#[test]
fn servers_learn_who_asks_and_whether_to_keep_a_copy() {
    let mut world = world();
    printed(&mut world, "lvcreate -An -L 4M -n x vg0", 0);
    let first = world.callers.last().cloned().unwrap();
    assert_eq!((first.command.as_str(), first.no_backup), ("lvcreate -An -L 4M -n x vg0", true));
    assert!(!first.id.is_empty() && !first.user.is_empty() && first.pid > 0, "{first:?}");
    printed(&mut world, "lvs vg0", 0);
    assert_ne!(world.callers.last().unwrap().id, first.id, "each run has an identifier of its own");
}

#[test]
fn settings_that_cannot_be_read_stop_lvms_commands_only() {
    let mut world = world();
    world.bad_settings = Some("Parse error in x, line 1: y\nFailed to load config file x".into());
    world.requests.clear();
    for line in ["lvs", "lvcreate -L 4M vg0", "vgremove -f vg0", "rowen snapshot vg0"] {
        let refused = printed(&mut world, line, 4);
        assert_eq!(refused.err, "  Parse error in x, line 1: y\n  Failed to load config file x\n", "{line}");
    }
    assert_eq!(world.requests, []);
    for line in ["rowen check vg0", "rowen stop vg0", "lvs --help", "rowen version"] {
        printed(&mut world, line, 0);
    }
}
