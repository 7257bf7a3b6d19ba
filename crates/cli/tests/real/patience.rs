//! What only shows something ends, whatever hangs (PA1).

use crate::held_up::soon;
use crate::world::{Looped, MIB, Stopped, World, tool};
use std::time::{Duration, Instant};

/// What shows all groups.
const LOOKS: [&str; 11] =
    ["pvs", "vgs", "lvs", "fullreport", "pvdisplay", "vgdisplay", "lvdisplay", "lvscan", "vgscan", "pvscan", "tree"];

/// A look at all groups says that this one does not answer, and shows the other.
fn leave_out(silent: &World, other: &World) {
    let told = format!(
        "The server of volume group \"{0}\" does not answer within 1 s. For what it waits: rowen status {0}",
        silent.group
    );
    for line in LOOKS {
        let output = soon(silent, line);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // As LVM: only what was named fails.
        assert!(output.status.success(), "{line}: {out}{err}");
        assert!(err.contains(&told) && !err.contains("panicked"), "{line}: {err}");
        assert!(out.contains(&other.group), "{line}: {out}");
    }
    for line in ["vgs VG", "lvs VG/disk", "lvdisplay VG", "stats VG"] {
        let output = soon(silent, line);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(5) && err.contains(&told), "{line}: {err}");
    }
}

fn group_with_volume(world: &World, disk: &str) {
    world.ok(&format!("vgcreate -y VG {disk}"));
    world.ok("lvcreate -y -L 8M -n disk VG");
}

#[test]
fn a_server_that_does_not_answer_holds_up_no_look() {
    let world = World::empty("silent");
    let other = world.beside("b");
    for (number, group) in [&world, &other].into_iter().enumerate() {
        let disk = world.device(&format!("disk{number}"), 64 * MIB);
        group_with_volume(group, disk.to_str().unwrap());
    }
    let stopped = Stopped::new(world.server().unwrap());
    leave_out(&world, &other);
    drop(stopped);
    world.ok("lvs VG/disk");
}

/// The server that is started instead of the killed one waits for the disk.
#[test]
fn a_server_that_cannot_start_holds_up_no_look() {
    let below = World::new("below", 160);
    below.ok("lvcreate -y -L 128M -n disk VG");
    let (above, other) = (below.beside("a"), below.beside("b"));
    group_with_volume(&above, below.node("disk").to_str().unwrap());
    group_with_volume(&other, below.device("other", 64 * MIB).to_str().unwrap());
    let stopped = Stopped::new(below.server().unwrap());
    let server = above.server().unwrap();
    tool("kill", &["-KILL", &server.to_string()]);
    for line in LOOKS {
        let output = soon(&above, line);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(err.contains("does not answer") && !err.contains("panicked"), "{line}: {err}");
        assert!(out.contains(&other.group), "{line}: {out}{err}");
    }
    drop(stopped);
    let until = Instant::now() + Duration::from_secs(60);
    while !above.run("lvs VG/disk").status.success() {
        assert!(Instant::now() < until, "it does not come back");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A server that ends after it has renamed a group keeps a lock until its end.
#[test]
fn a_rename_that_does_not_end_holds_up_no_look() {
    let world = World::empty("rename");
    let other = world.beside("b");
    for (number, group) in [&world, &other].into_iter().enumerate() {
        let disk = world.device(&format!("disk{number}"), 64 * MIB);
        group_with_volume(group, disk.to_str().unwrap());
    }
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let note = world.dir.join(format!("run/renaming@{0}@{0}x", world.group));
    let lock = std::fs::File::create(&note).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for line in LOOKS {
        let output = soon(&world, line);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(err.contains("is being renamed") && !err.contains("panicked"), "{line}: {out}{err}");
        assert!(out.contains(&other.group), "{line}: {out}{err}");
    }
    drop(lock);
    world.ok("lvs VG/disk");
    assert!(!note.exists());
}

/// PA1: `cargo test -p rowen-cli --features planted --test real patience::planted`.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let test = "patience::a_server_that_does_not_answer_holds_up_no_look";
    let output = program.args(["--exact", test]).env("ROWEN_PLANTED", "looks_wait").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("running 1 test"), "{said}");
    assert!(!output.status.success() && said.contains("is held up"), "looks_wait was not found: {said}");
}

/// A separate instance reads no devices but its own (`ROWEN_SYSTEM_DIR`). Others may hang, and are nothing to it.
#[test]
fn a_separate_instance_lists_its_own_devices() {
    let world = World::new("apart", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    let other = Looped::new(&world.device("other", 16 * MIB));
    let listed = |chosen: &str| {
        let output =
            world.command("pvs -a --noheadings -o pv_name").env("ROWEN_SCAN_DEVICES", chosen).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let own = world.dir.join("pv").display().to_string();
    assert_eq!(listed(""), std::slice::from_ref(&own));
    let mut both = [own, other.path().to_owned()];
    both.sort();
    assert_eq!(listed(other.path()), both);
}
