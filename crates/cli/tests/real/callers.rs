//! Many who call at once, as programs do that start a command for each of their threads.

use crate::world::{World, tool};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};

#[test]
fn sixty_four_callers_at_once_are_all_served() {
    const CALLERS: usize = 64;
    let world = Arc::new(World::new("callers", 256));
    world.ok("lvcreate -y -L 16M -n lv VG");
    at_once(&world, CALLERS, |world, n| {
        let lines = [
            format!("lvcreate -y -s -an -n s{n} VG/lv"),
            format!("lvs --noheadings -o lv_name,origin VG/s{n}"),
            "vgs VG".to_owned(),
            format!("lvremove -f VG/s{n}"),
        ];
        for line in lines {
            let output = world.run(&line);
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && err.is_empty(), "{line}: {err}");
        }
    });
    assert_eq!(world.ok("lvs --noheadings -o lv_name VG").trim(), "lv");
}

/// A caller's open files are not the server's: a filesystem that they lie on could not be unmounted, a volume not be deactivated.
#[test]
fn what_a_caller_has_open_is_not_held_by_the_server() {
    let world = World::new("leaks", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    world.ok("vgchange -an VG");
    world.ok("stop VG");
    let held = world.device("held", 0);
    let command = world.command("vgchange -ay VG");
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 9<held; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    shell.current_dir(&world.dir).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(shell.stdin(Stdio::null()).status().unwrap().success());
    let open = fs::read_dir(format!("/proc/{}/fd", world.server().unwrap())).unwrap();
    let files: Vec<PathBuf> = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect();
    assert!(!files.is_empty() && !files.contains(&held), "{files:?}");
}

/// Every one that says it has changed the size has changed it: each asks for more or less than what there is.
#[test]
fn sizes_that_many_change_at_once_add_up() {
    const CALLERS: usize = 12;
    let world = Arc::new(World::new("sizes", 1024));
    world.ok("lvcreate -y -L 16M -n thick VG");
    world.ok("lvcreate -y -L 128M -n origin VG");
    world.ok("lvcreate -y -s -L 8M -n kept VG/origin");
    world.ok("lvcreate -y -L 16M -T VG/pool");
    world.ok("lvcreate -y -V 64M -n thin -T VG/pool");
    world.ok("lvcreate -y -L 32M -n files VG");
    let node = world.node("files");
    tool("mkfs.ext4", &["-q", node.to_str().unwrap()]);
    let size = |world: &World, volume: &str| -> u64 {
        let output = world.ok(&format!("lvs --noheadings --units m --nosuffix -o lv_size VG/{volume}"));
        output.trim().parse::<f64>().unwrap() as u64
    };
    at_once(&world, CALLERS, |world, n| {
        // Up in three ways, by 12 MiB, and down again, by 4.
        let thick = ["lvextend -L +12M VG/thick", "lvresize -l +3 VG/thick", "lvextend -L +9M VG/thick"][n % 3];
        for line in [
            thick,
            "lvreduce -f -L -4M VG/thick",
            "lvextend -l +1 VG/kept",
            "lvextend -L +4M VG/pool",
            "lvresize -L +8M VG/thin",
            "lvreduce -f -l -1 VG/thin",
            "lvextend -r -L +4M VG/files",
        ] {
            let output = world.run(line);
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {err}");
        }
    });
    let callers = CALLERS as u64;
    for (volume, before, more) in [("thick", 16, 8), ("pool", 16, 4), ("thin", 64, 4), ("files", 32, 4), ("kept", 8, 4)]
    {
        assert_eq!(size(&world, volume), before + callers * more, "{volume}");
    }
    let point = world.mount("files", "rw");
    let blocks = rustix::fs::statvfs(point).unwrap();
    let bytes = blocks.f_blocks * blocks.f_frsize;
    assert!(bytes > (32 + callers * 4 - 16) << 20, "the filesystem did not follow: {bytes} bytes");
    world.unmount("files");
    tool("e2fsck", &["-f", "-n", node.to_str().unwrap()]);
    world.ok("check VG");
}

/// So many callers do the same at once, each with its number. One that fails fails the test when all have ended.
fn at_once<T: Send + 'static>(
    world: &Arc<World>,
    callers: usize,
    act: impl Fn(&World, usize) -> T + Send + Copy + 'static,
) -> Vec<T> {
    let start = Arc::new(Barrier::new(callers));
    let call = |n| {
        let (world, start) = (world.clone(), start.clone());
        std::thread::spawn(move || {
            start.wait();
            act(&world, n)
        })
    };
    let threads: Vec<_> = (0..callers).map(call).collect();
    let done: Vec<T> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
    assert_eq!(done.len(), callers, "callers that were not served");
    done
}

/// What many make up, take and mark at once: names are made up once each, space is given once, no tag is lost.
#[test]
fn names_space_and_tags_are_given_once() {
    const CALLERS: usize = 12;
    let world = Arc::new(World::new("once", 256));
    world.ok("lvcreate -y -an -L 4M -n marked VG");
    at_once(&world, CALLERS, |world, n| {
        world.ok("lvcreate -y -an -L 4M VG");
        world.ok(&format!("lvchange --addtag t{n} VG/marked"));
        world.ok(&format!("vgchange --addtag g{n} VG"));
    });
    let takers = at_once(&world, CALLERS, |world, n| {
        let output = world.run(&format!("lvcreate -y -an -l 100%FREE -n all{n} VG"));
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => 1,
            Some(5) if err.contains("free space") || err.contains("0 extents") => 0,
            code => panic!("{code:?}: {err}"),
        }
    });
    assert_eq!(takers.iter().sum::<u32>(), 1, "who has all that is free");
    assert_eq!(world.ok("vgs --noheadings -o vg_free_count VG").trim(), "0");
    let names = world.ok("lvs --noheadings -o lv_name VG");
    let named: std::collections::BTreeSet<&str> =
        names.split_whitespace().filter(|name| name.starts_with("lvol")).collect();
    assert_eq!(named.len(), CALLERS, "{names}");
    for (report, letter) in [("lvs --noheadings -o lv_tags VG/marked", "t"), ("vgs --noheadings -o vg_tags VG", "g")] {
        let output = world.ok(report);
        let mut tags: Vec<&str> = output.trim().split(',').collect();
        tags.sort_unstable();
        let mut wanted: Vec<String> = (0..CALLERS).map(|n| format!("{letter}{n}")).collect();
        wanted.sort_unstable();
        assert_eq!(tags, wanted, "{report}");
    }
    world.ok("check VG");
}
