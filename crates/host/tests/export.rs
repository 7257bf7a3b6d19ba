//! Volumes as block devices, with the kernel and everyday tools on top. Needs root, fuse, loop, fio and e2fsprogs.
//!
//! Rules FU1, E1, E2, E3 and E4.

#![allow(clippy::unwrap_used, reason = "this is test code")]

mod common;

use common::{World, output, run, wait_for};
use rowen_host::export::{BoxFuture, Error, Target};
use rowen_host::reactor::Pool;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn fio(device: &Path, job: &[&str]) {
    let name = format!("--filename={}", device.display());
    let fixed = [
        "--name=verify",
        &name,
        "--ioengine=io_uring",
        "--direct=1",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ];
    run("fio", &[&fixed, job].concat());
}

#[test]
fn what_is_written_is_read_back_at_every_size_and_both_sectors() {
    let world = World::new();
    for sector in [512u32, 4096] {
        let name = format!("v{sector}");
        let node = world.activate(&name, world.volume(&name, 64 * MIB, sector));
        assert_eq!(
            run("blockdev", &["--getss", "--getsize64", node.path.to_str().unwrap()]),
            format!("{sector}\n{}\n", 64 * MIB)
        );
        let smallest = format!("--bsrange={sector}-64k");
        fio(
            &node.path,
            &[
                "--rw=randwrite",
                &smallest,
                "--bs_unaligned=0",
                &format!("--blockalign={sector}"),
                "--iodepth=32",
                "--size=16M",
            ],
        );
        fio(&node.path, &["--rw=write", "--bs=1M", "--iodepth=16", "--size=64M"]);
        fio(&node.path, &["--rw=randrw", "--bs=4k", "--iodepth=64", "--size=32M"]);
        let dio = fs::read_to_string(format!("/sys/block/loop{}/loop/dio", node.loop_number)).unwrap();
        assert_eq!(dio.trim(), "1");
    }
    world.end();
}

#[test]
fn nodes_are_there_when_activation_returns_and_gone_after() {
    let world = World::new();
    let node = world.activate("a-b", world.volume("a-b", 8 * MIB, 4096));
    let mapper = Path::new("/dev/mapper").join(format!("{}-a--b", world.group.replace('-', "--")));
    let meta = fs::symlink_metadata(&mapper).unwrap();
    assert!(meta.file_type().is_block_device());
    assert_eq!(meta.permissions().mode() & 0o7777, 0o660);
    assert_eq!((meta.uid(), meta.rdev()), (0, rustix::fs::makedev(node.major, node.minor)));
    assert_eq!(fs::canonicalize(&node.path).unwrap(), mapper);
    world.deactivate("a-b").unwrap();
    assert!(fs::symlink_metadata(&mapper).is_err());
    assert!(fs::symlink_metadata(node.path.parent().unwrap()).is_err(), "the group's directory stays");
    assert!(matches!(world.deactivate("a-b"), Err(Error::NotActive(_))));
    world.end();
}

/// A socket that gets what the kernel announces of its devices, as udevd's.
fn announcements() -> OwnedFd {
    // SAFETY: plain numbers, and an all-zero address that is filled in and outlives the call; the descriptor is nobody else's.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT);
        assert!(fd >= 0);
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = 1;
        let bound = libc::bind(fd, (&raw const address).cast(), size_of::<libc::sockaddr_nl>() as u32);
        assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
        socket
    }
}

#[test]
fn a_device_is_announced_when_its_node_was_written_to_and_only_then() {
    let world = World::new();
    let read = world.activate("read", world.volume("read", 8 * MIB, 4096));
    let written = world.activate("written", world.volume("written", 16 * MIB, 4096));
    let socket = announcements();
    drop(File::open(&read.path).unwrap());
    drop(OpenOptions::new().write(true).open(&written.path).unwrap());
    // What is asked for is marked; what the kernel says by itself of a loop device is not.
    let mut asked_for = Vec::new();
    wait_for("the announcement", Duration::from_secs(30), || {
        let mut message = [0; 8192];
        while let Ok(length) = rustix::io::read(&socket, &mut message) {
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            if text.contains("SYNTH_UUID=") {
                asked_for.extend(text.split('\0').filter_map(|word| Some(word.strip_prefix("DEVNAME=")?.to_owned())));
            }
        }
        asked_for.contains(&format!("loop{}", written.loop_number))
    });
    assert!(!asked_for.contains(&format!("loop{}", read.loop_number)), "it was only read");
    world.deactivate("read").unwrap();
    world.deactivate("written").unwrap();
    world.end();
}

#[test]
fn a_filesystem_lives_on_it_and_trims() {
    let world = World::new();
    let target = world.volume("fs", 256 * MIB, 512);
    let node = world.activate("fs", target);
    let device = node.path.to_str().unwrap();
    run("mkfs.ext4", &["-q", device]);
    let point = world.mount_point("fs");
    run("mount", &[device, point.to_str().unwrap()]);
    for n in 0..20u8 {
        let mut file = File::create(point.join(format!("file{n}"))).unwrap();
        file.write_all(&vec![n; 2 << 20]).unwrap();
        file.sync_all().unwrap();
    }
    for n in 0..10 {
        fs::remove_file(point.join(format!("file{n}"))).unwrap();
    }
    run("sync", &["-f", point.to_str().unwrap()]);
    run("fstrim", &[point.to_str().unwrap()]);
    let (flushes, discards) = world.exports().io_of("fs").map(|io| (io.flush.requests, io.discard.requests)).unwrap();
    assert!(flushes >= 20, "{flushes} flushes reached the volume");
    assert!(discards > 0, "no discard reached the volume");
    for n in 10..20u8 {
        assert_eq!(fs::read(point.join(format!("file{n}"))).unwrap(), vec![n; 2 << 20]);
    }
    // In use: nothing may happen to it, and the refusal says why.
    match world.deactivate("fs") {
        Err(Error::InUse { user, .. }) => assert_eq!(user, format!("mounted on {}", point.display())),
        other => panic!("deactivated while mounted: {other:?}"),
    }
    assert!(node.path.exists());
    common::unmount(&point);
    run("fsck.ext4", &["-fn", device]);
    world.end();
}

#[test]
fn discard_and_zero_reach_the_volume_and_read_as_zeros() {
    let world = World::new();
    let node = world.activate("d", world.volume("d", 64 * MIB, 4096));
    let device = node.path.to_str().unwrap();
    let backing = File::open(world.dir.join("d")).unwrap();
    let pattern = vec![0xA5u8; 4 << 20];
    for args in [&["-o", "1048576", "-l", "1048576"][..], &["-z", "-o", "1048576", "-l", "1048576"]] {
        OpenOptions::new().write(true).open(&node.path).unwrap().write_all_at(&pattern, 0).unwrap();
        run("blockdev", &["--flushbufs", device]);
        run("blkdiscard", &[args, &["-f", device]].concat());
        let mut seen = vec![0u8; 4 << 20];
        backing.read_exact_at(&mut seen, 0).unwrap();
        let (first, rest) = seen.split_at(1 << 20);
        let (hole, last) = rest.split_at(1 << 20);
        assert!(hole.iter().all(|&b| b == 0), "{args:?}");
        assert!(first.iter().chain(last).all(|&b| b == 0xA5), "{args:?} hit its neighbours");
    }
    let counts = world.exports().io_of("d").unwrap();
    assert!(counts.discard.requests > 0 && counts.zero.requests > 0, "{counts:?}");
    // Two writes of 4 MiB, and one discard and one zeroing of 1 MiB each, however the kernel cut them.
    assert_eq!([counts.write, counts.discard, counts.zero].map(|op| op.bytes), [8 << 20, 1 << 20, 1 << 20]);
    assert!([counts.write, counts.discard, counts.zero].iter().all(|op| op.micros > 0), "{counts:?}");
    assert_eq!((counts.failed(), counts.under_way), (0, 0));
    world.end();
}

#[test]
fn a_read_only_volume_refuses_writes_until_it_is_made_writable() {
    let world = World::new();
    let target = world.volume("r", 8 * MIB, 4096);
    target.read_only.store(true, Ordering::Relaxed);
    let node = world.activate("r", target.clone());
    let device = node.path.to_str().unwrap();
    assert_eq!(run("blockdev", &["--getro", device]), "1\n");
    let write =
        || output("dd", &["if=/dev/zero", &format!("of={device}"), "bs=4k", "count=1", "oflag=direct", "conv=notrunc"]);
    assert!(!write().status.success());
    target.read_only.store(false, Ordering::Relaxed);
    world.with(|exports| async move { exports.set_read_only("r", false).await }).unwrap();
    assert_eq!(run("blockdev", &["--getro", device]), "0\n");
    assert!(write().status.success());
    // The volume's own word counts, whatever the block device's flag says.
    target.read_only.store(true, Ordering::Relaxed);
    assert!(!write().status.success());
    world.end();
}

#[test]
fn a_loop_device_is_given_back_writable_and_taken_so() {
    let world = World::new();
    let ro = |number: u32| fs::read_to_string(format!("/sys/block/loop{number}/ro")).unwrap().trim() == "1";
    let is_free = |number: u32| !Path::new(&format!("/sys/block/loop{number}/loop/backing_file")).exists();
    let given_back = |_| {
        let target = world.volume("r", 4 * MIB, 4096);
        target.read_only.store(true, Ordering::Relaxed);
        let number = world.activate("r", target).loop_number;
        assert!(ro(number));
        world.deactivate("r").unwrap();
        let found = ro(number);
        // Another test may have taken it at once.
        is_free(number).then_some((number, found))
    };
    let (number, found) = (0..50).find_map(given_back).unwrap();
    assert!(!found, "loop{number} was left read-only");

    // Others leave theirs read-only; the kernel hands out the lowest number that is free.
    run("blockdev", &["--setro", &format!("/dev/loop{number}")]);
    let node = world.activate("w", world.volume("w", 4 * MIB, 4096));
    assert!(!ro(node.loop_number));
    OpenOptions::new().write(true).open(&node.path).unwrap().write_all(&[1; 4096]).unwrap();
    world.end();
    run("blockdev", &["--setrw", &format!("/dev/loop{number}")]);
}

#[test]
fn the_device_follows_the_volumes_size_while_it_is_mounted() {
    let world = World::new();
    let target = world.volume("s", 64 * MIB, 4096);
    let node = world.activate("s", target.clone());
    let device = node.path.to_str().unwrap();
    run("mkfs.ext4", &["-q", device]);
    let point = world.mount_point("s");
    run("mount", &[device, point.to_str().unwrap()]);
    for size in [128 * MIB, 96 * MIB] {
        if size > target.size() {
            OpenOptions::new().write(true).open(world.dir.join("s")).unwrap().set_len(size).unwrap();
        }
        target.size.store(size, Ordering::Relaxed);
        world.with(|exports| async move { exports.resized("s").await }).unwrap();
        assert_eq!(run("blockdev", &["--getsize64", device]), format!("{size}\n"));
    }
    // The new end can be written, what lies behind it cannot.
    let at = |megabyte: u64| {
        output(
            "dd",
            &["if=/dev/zero", &format!("of={device}"), "bs=1M", "count=1", &format!("seek={megabyte}"), "oflag=direct"],
        )
    };
    assert!(at(95).status.success());
    assert!(!at(96).status.success());
    common::unmount(&point);
    world.end();
}

#[test]
fn a_device_that_a_process_has_open_stays_and_the_process_is_named() {
    let world = World::new();
    let node = world.activate("o", world.volume("o", 8 * MIB, 4096));
    let mut holder = Command::new("sleep").arg("60").stdin(File::open(&node.path).unwrap()).spawn().unwrap();
    wait_for("sleep to run", Duration::from_secs(5), || {
        fs::read_to_string(format!("/proc/{}/comm", holder.id())).is_ok_and(|name| name.trim() == "sleep")
    });
    let refused = world.deactivate("o");
    let seen = world.with(|exports| async move { exports.in_use("o").await }).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let expected = format!("open by sleep (pid {})", holder.id());
    match refused {
        Err(Error::InUse { user, .. }) => assert_eq!(user, expected),
        other => panic!("deactivated while open: {other:?}"),
    }
    assert_eq!(seen, Some(expected));
    fio(&node.path, &["--rw=randwrite", "--bs=4k", "--iodepth=8", "--size=4M"]);
    world.end();
}

#[test]
fn a_detach_that_lost_the_race_against_an_opener_leaves_the_device_whole() {
    let world = World::new();
    let node = world.activate("race", world.volume("race", 8 * MIB, 4096));
    // This process's own descriptors are not looked at beforehand: the kernel has the last word.
    let open = File::open(&node.path).unwrap();
    let refused = world.deactivate("race");
    assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    drop(open);
    assert!(node.path.exists());
    fio(&node.path, &["--rw=randwrite", "--bs=4k", "--iodepth=8", "--size=4M"]);
    world.end();
}

#[test]
fn errors_of_the_volume_reach_the_application_as_they_are() {
    let world = World::new();
    let target = world.volume("e", 8 * MIB, 4096);
    let node = world.activate("e", target.clone());
    let device = OpenOptions::new().read(true).write(true).open(&node.path).unwrap();
    for (number, expected) in [(libc::ENOSPC, libc::ENOSPC), (libc::EIO, libc::EIO)] {
        target.fail_with.store(number as u32, Ordering::Relaxed);
        target.fail_from.store(4 * MIB, Ordering::Relaxed);
        let write = |place: u64| device.write_all_at(&[1u8; 4096], place).and_then(|()| device.sync_all());
        write(0).unwrap();
        let failed = write(5 * MIB).unwrap_err();
        assert!([Some(expected), Some(libc::EIO)].contains(&failed.raw_os_error()), "{failed}");
        target.fail_from.store(u64::MAX, Ordering::Relaxed);
        write(5 * MIB).unwrap();
    }
    drop(device);
    world.end();
}

#[test]
fn a_mounted_volume_is_renamed_under_its_filesystem() {
    let world = World::new();
    let node = world.activate("old", world.volume("old", 64 * MIB, 4096));
    run("mkfs.ext4", &["-q", node.path.to_str().unwrap()]);
    let point = world.mount_point("old");
    run("mount", &[node.path.to_str().unwrap(), point.to_str().unwrap()]);
    let renamed = world.with(|exports| async move { exports.rename("old", "new").await }).unwrap();
    assert_eq!((renamed.major, renamed.minor), (node.major, node.minor));
    assert!(!node.path.exists() && renamed.path.exists());
    fs::write(point.join("file"), b"still here").unwrap();
    // The old name is free for another volume.
    world.activate("old", world.volume("other", 8 * MIB, 512));
    let taken = world.with(|exports| async move { exports.rename("new", "old").await });
    assert!(matches!(taken, Err(Error::Active(_))), "{taken:?}");
    assert_eq!(fs::read(point.join("file")).unwrap(), b"still here");
    common::unmount(&point);
    world.end();
}

/// A volume's file is all that its filesystem has: monitoring would take it for a full one.
#[test]
fn no_volume_is_a_filesystem_to_df() {
    let world = World::new();
    world.activate("seen", world.volume("seen", 8 * MIB, 512));
    let shown = |options: &[&str]| {
        let out = Command::new("df").args(options).arg("--output=target").output().unwrap();
        String::from_utf8(out.stdout).unwrap().contains("/seen@")
    };
    assert!(!shown(&[]) && shown(&["-a"]));
    world.end();
}

#[test]
fn a_rename_that_cannot_take_the_old_names_makes_no_new_ones() {
    let world = World::new();
    let node = world.activate("old", world.volume("old", 8 * MIB, 4096));
    let mapper = |name| Path::new("/dev/mapper").join(format!("{}-{name}", world.group.replace('-', "--")));
    fs::remove_file(mapper("old")).unwrap();
    fs::write(mapper("old"), b"precious").unwrap();
    let refused = world.with(|exports| async move { exports.rename("old", "new").await });
    let kept = fs::read(mapper("old"));
    fs::remove_file(mapper("old")).unwrap();
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert_eq!(kept.unwrap(), b"precious");
    assert!(fs::symlink_metadata(&node.path).is_ok(), "the old link stays");
    let new = [mapper("new"), node.path.with_file_name("new")];
    assert!(new.iter().all(|name| fs::symlink_metadata(name).is_err()), "there is no new name");
    assert_eq!(world.exports().find("old").unwrap(), node);
    world.end();
}

#[test]
fn a_frozen_filesystem_holds_writes_until_the_guard_goes() {
    let world = World::new();
    let node = world.activate("f", world.volume("f", 64 * MIB, 4096));
    run("mkfs.ext4", &["-q", node.path.to_str().unwrap()]);
    let point = world.mount_point("f");
    run("mount", &[node.path.to_str().unwrap(), point.to_str().unwrap()]);
    // A bind mount shows the same filesystem a second time.
    let bind = world.mount_point("f2");
    run("mount", &["--bind", point.to_str().unwrap(), bind.to_str().unwrap()]);
    let guard = world.with(|exports| async move { exports.freeze(&["f".into(), "not active".into()]).await }).unwrap();
    let marker = rowen_host::paths::group_dir(&world.group).join(format!("frozen-{}", node.loop_number));
    assert!(marker.exists());
    let file = point.join("late");
    let start = Instant::now();
    let writer = std::thread::spawn(move || {
        fs::write(file, b"x").unwrap();
        start.elapsed()
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!writer.is_finished(), "a frozen filesystem took a write");
    drop(guard);
    assert!(writer.join().unwrap() >= Duration::from_millis(300));
    wait_for("the marker to go", Duration::from_secs(5), || !marker.exists());
    fs::write(point.join("after"), b"x").unwrap();
    common::unmount(&bind);
    common::unmount(&point);
    world.end();
}

#[test]
fn what_is_not_ours_is_neither_replaced_nor_removed() {
    let world = World::new();
    let activate = |name: &'static str| {
        let target = world.volume("x", 8 * MIB, 4096);
        world.with(|exports| async move { exports.activate(name, target, false).await })
    };
    let node = world.activate("mine", world.volume("mine", 8 * MIB, 4096));
    // A file in the place of the block node.
    let mapper = Path::new("/dev/mapper").join(format!("{}-x", world.group.replace('-', "--")));
    fs::write(&mapper, b"precious").unwrap();
    let refused = activate("x");
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert_eq!(fs::read(&mapper).unwrap(), b"precious");
    fs::remove_file(&mapper).unwrap();
    // A loop device of somebody else.
    let other = world.dir.join("other");
    File::create(&other).unwrap().set_len(MIB).unwrap();
    let device = run("losetup", &["-f", "--show", other.to_str().unwrap()]);
    let number = fs::metadata(device.trim()).unwrap().rdev();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &mapper,
        rustix::fs::FileType::BlockDevice,
        rustix::fs::Mode::from_raw_mode(0o600),
        number,
    )
    .unwrap();
    let refused = activate("x");
    let kept = fs::metadata(&mapper).map(|meta| meta.rdev());
    fs::remove_file(&mapper).unwrap();
    run("losetup", &["-d", device.trim()]);
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert_eq!(kept.unwrap(), number);
    // A link to somewhere else in the group's directory.
    let link = node.path.with_file_name("x");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    let refused = activate("x");
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("/etc/passwd"));
    fs::remove_file(&link).unwrap();
    // A node of ours that lost its device is replaced.
    // The highest possible number. No kernel has that many devices.
    let stale = rustix::fs::makedev(7, 0xf_ffff);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &mapper,
        rustix::fs::FileType::BlockDevice,
        rustix::fs::Mode::from_raw_mode(0o600),
        stale,
    )
    .unwrap();
    activate("x").unwrap();
    assert_eq!(world.exports().active().len(), 2);
    world.end();
}

#[test]
fn a_mount_namespace_that_somebody_made_meanwhile_keeps_nothing_alive() {
    let world = World::new();
    world.activate("n", world.volume("n", 8 * MIB, 4096));
    let ready = world.dir.join("ready");
    let copy = format!("touch {} && exec sleep 100", ready.display());
    let mut holder =
        Command::new("unshare").args(["--mount", "--propagation=private", "sh", "-c", &copy]).spawn().unwrap();
    wait_for("the namespace", Duration::from_secs(10), || ready.exists());
    let begun = Instant::now();
    let outcome = world.deactivate("n");
    let took = begun.elapsed();
    holder.kill().unwrap();
    holder.wait().unwrap();
    outcome.unwrap();
    assert!(took < Duration::from_secs(30), "deactivation took {took:?}");
    world.end();
}

#[test]
fn names_with_tricks_are_refused_before_anything_is_made() {
    let world = World::new();
    let long = "x".repeat(128);
    for name in ["", ".", "..", "../x", "a/b", "-rf", "a b", "a\n", "a\0b", "é", "a@1", &long] {
        let (target, name) = (world.volume("x", MIB, 512), name.to_owned());
        let refused = world.with(|exports| async move { exports.activate(&name, target, false).await });
        assert!(matches!(refused, Err(Error::BadName(_))), "{refused:?}");
    }
    assert_eq!(common::loops_of(&world.group), []);
    let keeper = rowen_host::keeper::Client::connect_or_start_by(&common::server_program(), &world.group).unwrap();
    // A group whose directory would be one that others use.
    for group in ["shm", "pts", "../x", "null"] {
        let nodes = rowen_host::export::nodes::Nodes::new(Path::new("/dev"), group, Path::new("/nowhere"));
        assert!(nodes.and_then(|nodes| nodes.check_free("x")).is_err(), "{group}");
    }
    drop(keeper);
    world.end();
}

#[test]
fn a_keeper_that_dies_is_replaced_and_given_everything_again() {
    let world = World::new();
    world.activate("k", world.volume("k", 8 * MIB, 4096));
    let first = common::processes_of(&world.group, "keeper");
    assert_eq!(first.len(), 1);
    common::kill(first[0], libc::SIGKILL);
    let log = rowen_host::paths::group_dir(&world.group).join("keeper.log");
    wait_for("another keeper", Duration::from_secs(5), || {
        let now = common::processes_of(&world.group, "keeper");
        let served = fs::read_to_string(&log).is_ok_and(|text| text.matches("a server has connected").count() >= 2);
        now.len() == 1 && now != first && served
    });
    // It keeps the volume again: a client that asks is shown it.
    let client = rowen_host::keeper::Client::connect_or_start_by(&common::server_program(), &world.group).unwrap();
    wait_for("the volume to be kept again", Duration::from_secs(5), || {
        let held = client.held().unwrap();
        held.len() == 1 && held[0].0.name == "k"
    });
    let refused = client.bye().unwrap_err();
    assert!(refused.to_string().contains("still active: k"), "{refused}");
    world.end();
}

/// A process that is stopped, until this goes.
struct Stopped(i32);

impl Stopped {
    fn new(process: i32) -> Stopped {
        common::kill(process, libc::SIGSTOP);
        Stopped(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        common::kill(self.0, libc::SIGCONT);
    }
}

/// E4. A keeper that is stopped answers nothing: what has to wait for its answer does not happen.
#[test]
fn the_keeper_has_the_descriptor_before_the_loop_device_and_after_it() {
    let world = World::new();
    let keeper = common::processes_of(&world.group, "keeper")[0];
    let is_mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!("/{}/", world.group));
    let is_bound = || !common::loops_of(&world.group).is_empty();
    let by_itself = |change: BoxFuture<'static, ()>| {
        std::thread::spawn(move || Pool::start(1).unwrap().block_on(change));
    };

    let (exports, target) = (world.exports(), world.volume("e4", 8 * MIB, 4096));
    let stopped = Stopped::new(keeper);
    by_itself(Box::pin(async move { drop(exports.activate("e4", target, false).await.unwrap()) }));
    wait_for("the volume's file", Duration::from_secs(10), is_mounted);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!is_bound(), "E4: there is a loop device, and the keeper has no descriptor");
    drop(stopped);
    wait_for("the volume", Duration::from_secs(10), || world.exports().find("e4").is_some());

    let exports = world.exports();
    let stopped = Stopped::new(keeper);
    by_itself(Box::pin(async move { exports.deactivate("e4").await.unwrap() }));
    let begun = Instant::now();
    while is_bound() && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_bound(), "E4: the keeper was asked to release what a loop device needs");
    drop(stopped);
    wait_for("the end of the file", Duration::from_secs(10), || !is_mounted());
    world.end();
}

#[test]
fn a_keeper_that_has_the_descriptor_for_too_short_is_found() {
    let test = "the_keeper_has_the_descriptor_before_the_loop_device_and_after_it";
    for bug in ["held_late", "released_early"] {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let output = program.args(["--exact", test]).env("ROWEN_PLANTED", bug).output().unwrap();
        let said = common::text(&output.stdout) + &common::text(&output.stderr);
        assert!(!output.status.success() && said.contains("E4: "), "{bug} was not found: {said}");
    }
}

#[test]
fn only_root_may_talk_to_a_keeper() {
    let world = World::new();
    let socket = rowen_host::paths::group_dir(&world.group).join("keeper.sock");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    let outsider = ["--reuid=65534", "--regid=65534", "--clear-groups", "test", "-e", socket.to_str().unwrap()];
    assert!(!output("setpriv", &outsider).status.success(), "others can see the socket");
    // Even through open doors: the keeper asks who is there.
    let open_door = |directory: &Path| fs::set_permissions(directory, fs::Permissions::from_mode(0o711)).unwrap();
    open_door(socket.parent().unwrap());
    open_door(socket.parent().unwrap().parent().unwrap());
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let group = world.group.clone();
    let refused = std::thread::spawn(move || {
        // SAFETY: the plain system call changes the user of this thread alone, which ends right after.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) }, 0);
        rowen_host::keeper::Client::connect_or_start_by(Path::new("/bin/false"), &group).map(|_| ())
    });
    let refused = refused.join().unwrap();
    fs::set_permissions(rowen_host::paths::run_dir(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(refused.is_err());
    let log = fs::read_to_string(socket.with_file_name("keeper.log")).unwrap();
    assert!(log.contains("a connection of user 65534 was refused"), "{log}");
    world.end();
}

/// A server unmounts its volumes' files itself. It must not wait for who serves them, which may be nobody (H1).
#[test]
fn unmounting_a_volumes_file_waits_for_nobody() {
    use rowen_host::export::fuse::mount::{mount, unmount};
    let file = std::env::temp_dir().join(format!("rowen-unserved-{}", std::process::id()));
    File::create(&file).unwrap();
    let mounted = mount(&file).unwrap();
    let path = file.clone();
    let reader = std::thread::spawn(move || File::open(path).map(drop));
    // Its request is there, and stays without an answer.
    let mut polled = [rustix::event::PollFd::new(&mounted.fd, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut polled, None).unwrap(), 1);
    let (done, ended) = std::sync::mpsc::channel();
    let path = file.clone();
    let unmounting = std::thread::spawn(move || done.send(unmount(&path)).unwrap());
    wait_for("the reader's end", Duration::from_secs(15), || reader.is_finished());
    ended.recv_timeout(Duration::from_secs(15)).unwrap().unwrap();
    unmounting.join().unwrap();
    assert!(reader.join().unwrap().is_err());
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(file.to_str().unwrap()));
    drop(mounted);
    fs::remove_file(file).unwrap();
}
