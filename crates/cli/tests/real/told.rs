//! What commands say of disks that are not all there, or not all new: it is true, and names the next step.

use crate::mirrors::{close, field, kill_server, made, open_without, with_older_copy};
use crate::missing::{holds, pull, write};
use crate::world::{MIB, World};
use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

fn said(output: &Output) -> String {
    [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat()
}

/// A closed group of which one disk is an older copy: the status names it. It was made before a clean end, or lacks what a
/// killed server wrote.
#[test]
fn the_status_of_a_closed_group_names_an_older_copy() {
    let (world, disks, [older, newest]) = with_older_copy("toldolder");
    let status = |code: i32| {
        let output = world.run("status -x VG");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        said(&output)
    };
    let names_it = |state: &str| {
        let text = status(1);
        assert!(text.contains(&format!("{} (", disks[0].display())) && text.contains("is an older copy"), "{text}");
        assert!(text.contains(&format!("rowen vgchange -ay --activationmode degraded {}", world.group)), "{text}");
        assert!(text.contains(state), "{text}");
    };
    let exchange = || {
        fs::rename(&disks[0], &newest).unwrap();
        fs::copy(&older, &disks[0]).unwrap();
    };
    world.ok("vgchange -an VG");
    kill_server(&world);
    exchange();
    names_it("cannot be opened");
    fs::rename(&newest, &disks[0]).unwrap();
    status(0);
    world.ok("vgchange -ay VG");
    close(&world);
    status(0);
    exchange();
    names_it("cannot be opened");
    world.refused("vgchange -ay VG", 5, "is an older copy");
    fs::rename(&newest, &disks[0]).unwrap();
    world.ok("vgchange -ay VG");
    holds(&world, "m", 0, b'm');
    world.ok("vgchange -an VG");
}

/// Servers that cannot open a group in use, one after the other: the status has the reason.
#[test]
fn why_no_server_can_be_kept_up_is_said() {
    let (world, disks, [older, newest]) = with_older_copy("toldwhy");
    fs::rename(&disks[0], &newest).unwrap();
    fs::rename(&older, &disks[0]).unwrap();
    kill_server(&world);
    let until = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let text = said(&world.run("status -x VG"));
        if text.contains("servers in a row failed") {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let line = text.lines().find(|line| line.contains("servers in a row failed")).unwrap();
    assert!(line.contains("is an older copy"), "{text}");
    fs::rename(&disks[0], &older).unwrap();
    fs::rename(&newest, &disks[0]).unwrap();
    holds(&world, "m", 0, b'm');
    world.ok("vgchange -an VG");
}

/// Files that have each other's names: what is told of one does not make another one unknown.
#[test]
fn files_that_were_exchanged_stay_known() {
    let world = World::empty("toldswap");
    let names = ["a", "b", "c"];
    let disks = names.map(|name| world.device(name, 64 * MIB));
    world.ok("vgcreate VG a b c");
    close(&world);
    let known = || field(&world, "lvmdevices").replace(&world.dir.display().to_string(), "");
    let is_known = || {
        let known = known();
        for name in names {
            let uuid = field(&world, &format!("pvs --noheadings -o pv_uuid {name}")).replace('-', "");
            assert!(known.contains(&format!("DEVNAME=/{name} PVID={uuid}")), "{name} {uuid}: {known}");
        }
    };
    is_known();
    let aside = disks[0].with_extension("aside");
    for order in [vec![0, 1], vec![0, 1, 2], vec![2, 0]] {
        fs::rename(&disks[order[0]], &aside).unwrap();
        for pair in order.windows(2) {
            fs::rename(&disks[pair[1]], &disks[pair[0]]).unwrap();
        }
        fs::rename(&aside, &disks[order[order.len() - 1]]).unwrap();
        world.ok(&format!("lvmdevices --adddev {}", names[order[0]]));
        is_known();
    }
    world.ok("vgchange -ay VG");
    world.ok("vgchange -an VG");
}

/// A disk that was removed while it was missing comes back: it can be used again, and the refusal says how.
#[test]
fn a_former_member_says_how_it_becomes_free() {
    let (world, disks) = made("toldformer");
    close(&world);
    let away = open_without(&world, &disks[1]);
    world.ok("vgreduce --removemissing VG");
    // Nothing of the group is missing any more, whatever the last copy of its metadata says.
    world.ok("status VG");
    fs::rename(&away, &disks[1]).unwrap();
    let path = disks[1].display().to_string();
    world.refused("vgextend VG b", 5, &format!("pvremove -ff {path}"));
    world.device("c", 64 * MIB);
    world.ok("pvcreate c");
    world.refused("vgcreate VG2 c b", 5, &format!("pvremove -ff {path}"));
    // What is a member is not given away.
    let text = said(&world.run("vgextend VG a"));
    assert!(text.contains("already in volume group") && !text.contains("pvremove"), "{text}");
    world.ok("pvremove -ff -y b");
    world.ok("vgextend VG b");
    close(&world);
    let text = said(&world.run("vgcreate VG2 c b"));
    assert!(text.contains("already in volume group") && !text.contains("pvremove"), "{text}");
}

/// Both disks with the journal are away: nothing leads out but their return, and nothing else is advised.
#[test]
fn no_way_is_named_that_leads_nowhere() {
    let world = World::empty("toldjournal");
    let disks = ["a", "b", "c"].map(|name| world.device(name, 200 * MIB));
    world.ok("vgcreate VG a b c");
    close(&world);
    let away = [pull(&disks[0]), pull(&disks[1])];
    for line in ["vgs VG", "vgchange -ay VG", "check VG"] {
        let text = said(&world.run(line));
        assert!(text.contains("are missing") && text.contains("journal"), "{line}: {text}");
        assert!(!text.contains("--activationmode"), "{line}: {text}");
    }
    world.refused("vgchange -ay --activationmode partial VG", 5, "journal");
    // With one of them there is a way.
    fs::rename(&away[0], &disks[0]).unwrap();
    world.refused("vgs VG", 5, "To go on without: vgchange -ay --activationmode partial VG.");
    world.ok("vgchange -ay --activationmode partial VG");
}

/// A mirror that lacks a disk has nothing to compare, and says so.
#[test]
fn a_comparison_without_a_disk_says_what_it_compared() {
    let (world, disks) = made("toldscrub");
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    (0..9).for_each(|at| write(&world, "m", at * 16, b'm'));
    // It has ended when the command has, however often.
    for _ in 0..5 {
        world.ok("lvchange --syncaction check VG/m");
        world.ok("lvchange --syncaction idle VG/m");
        assert_eq!(field(&world, "lvs --noheadings -o raid_sync_action VG/m"), "idle");
    }
    close(&world);
    open_without(&world, &disks[1]);
    let output = world.run("lvchange --syncaction check VG/m");
    assert!(output.status.success(), "{output:?}");
    let text = said(&output);
    assert!(text.contains("WARNING: ") && text.contains(&format!("{}/m", world.group)), "{text}");
    let until = Instant::now() + Duration::from_secs(60);
    let event = loop {
        let events = world.ok("events VG");
        let last = events.lines().rev().find(|line| line.contains("scrubbed")).map(str::to_owned);
        if let Some(event) = last.filter(|event| !event.contains("none differ")) {
            break event;
        }
        assert!(Instant::now() < until, "{events}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(event.contains("nothing was compared") && event.contains("36864 blocks"), "{event}");
    world.ok("vgchange -an VG");
}

/// What is not known of a group that does not open is blank.
#[test]
fn what_is_free_on_a_closed_group_is_not_guessed() {
    let (world, disks) = made("toldfree");
    world.ok("lvcreate -y -L 300M -n l VG a");
    close(&world);
    pull(&disks[1]);
    let output = world.run("pvs --noheadings --separator , --units m -o pv_name,vg_name,pv_size,pv_free,pv_used,pv_pe_count,pv_pe_alloc_count");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("/a,")).unwrap().trim();
    assert_eq!(line, format!("{},{},400.00m,,,,", disks[0].display(), world.group), "{text}");
}

/// A repair that finds room for a part says what is left, with the count that all reports have.
#[test]
fn what_has_one_copy_is_counted_once() {
    let (world, disks) = made("toldsingle");
    world.ok("lvcreate -y --type raid1 -L 120M -n m VG");
    write(&world, "m", 0, b'm');
    world.ok("lvcreate -y -s -n s VG/m");
    write(&world, "m", 0, b'n');
    close(&world);
    fs::remove_file(&disks[1]).unwrap();
    world.ok("vgreduce --removemissing VG");
    world.ok("vgchange -ay VG");
    world.device("c", 64 * MIB);
    world.ok("vgextend VG c");
    let single = || {
        let mib = field(&world, "vgs --noheadings --nosuffix --units m -o vg_mirrored_single VG");
        mib.split('.').next().unwrap().parse::<u64>().unwrap()
    };
    let before = single();
    let text = said(&world.run("lvconvert --repair -y VG/m"));
    let after = single();
    assert!(after > 0 && after < before, "{before} {after}");
    assert!(text.contains(&format!(": {} extents have one copy", after / 4)), "{after} MiB: {text}");
    let status = said(&world.run("status VG"));
    assert!(status.contains(&format!("{after}.00 MiB of mirrored extents have one copy")), "{status}");
    let metrics = said(&world.run("metrics"));
    let line = metrics.lines().find(|line| line.starts_with("rowen_mirror_single_bytes")).unwrap();
    assert!(line.ends_with(&format!(" {}.0", after * MIB)), "{line}");
    world.ok("vgchange -an VG");
}

/// A disk was catching up, and is alone now: its mirrors lost something, and are not called whole.
#[test]
fn a_disk_that_was_catching_up_does_not_owe_nothing() {
    let (world, disks) = made("toldowes");
    world.ok("lvcreate -y --type raid1 -L 160M -n m VG");
    world.ok("lvcreate -y -L 8M -n l VG a");
    (0..9).for_each(|at| write(&world, "m", at * 16, b'm'));
    close(&world);
    let away = open_without(&world, &disks[1]);
    (0..9).for_each(|at| write(&world, "m", at * 16, b'n'));
    fs::rename(&away, &disks[1]).unwrap();
    world.ok("vgextend --restoremissing VG b");
    let away = pull(&disks[0]);
    kill_server(&world);
    let output = world.run("vgchange -ay --activationmode partial VG");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    // It was copied by then, or it is known not to be.
    if field(&world, "lvs --noheadings -o lv_health_status VG/m") == "partial" {
        let line = text.lines().find(|line| line.contains("the next flush of each fails once")).unwrap();
        assert!(line.ends_with(": l, m.") && !text.contains("lost nothing"), "{text}");
    }
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    fs::rename(&away, &disks[0]).unwrap();
    world.ok("vgextend --restoremissing VG a");
}
