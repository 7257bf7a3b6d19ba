//! Files below the system directory that nobody can read: no command is held up by them (H15).

use crate::world::{MIB, World};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// What it says and how it ends, which has to be soon.
pub fn soon(world: &World, line: &str) -> Output {
    let mut command = world.command(line);
    command.env("ROWEN_PROBE_SECONDS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("{line}: it is held up");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn refused(world: &World, line: &str, words: &[&str]) {
    let output = soon(world, line);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{line} succeeded");
    assert!(words.iter().all(|words| err.contains(words)) && !err.contains("panicked"), "{line}: {err}");
}

fn works(world: &World, line: &str) {
    let output = soon(world, line);
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Something else at a path, until this is dropped.
struct Instead(PathBuf);

impl Instead {
    fn of(path: PathBuf, put: impl FnOnce(&Path)) -> Instead {
        let _none_before = fs::rename(&path, path.with_extension("aside"));
        put(&path);
        Instead(path)
    }

    fn fifo(path: PathBuf) -> Instead {
        Instead::of(path, |path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        })
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        let _may_be_replaced = fs::remove_file(&self.0);
        let _none_before = fs::rename(self.0.with_extension("aside"), &self.0);
    }
}

fn made(name: &str) -> World {
    let world = World::new(name, 64);
    world.ok("lvcreate -an -y -L 8M -n lv VG");
    world.ok("stop VG");
    world.device("new", 64 * MIB);
    world
}

#[test]
fn a_fifo_below_the_system_directory_holds_up_no_command() {
    let world = made("fifo");
    let etc = world.dir.join("etc");
    let is_no_file = "it is not a regular file";
    {
        let _fifo = Instead::fifo(etc.join("rowen.conf"));
        for line in ["lvs VG", "pvcreate new"] {
            refused(&world, line, &[is_no_file, "etc/rowen.conf"]);
        }
    }
    {
        let _fifo = Instead::fifo(etc.join("devices"));
        for line in ["pvs", "lvs VG", "pvcreate new", "lvmdevices"] {
            refused(&world, line, &[is_no_file, "etc/devices"]);
        }
    }
    {
        let _fifo = Instead::fifo(etc.join("devices.lock"));
        refused(&world, "pvcreate -y new", &[is_no_file, "devices.lock"]);
        works(&world, "lvs VG");
        world.ok("stop VG");
    }
    {
        let _fifos = [Instead::fifo(etc.join("backup.conf")), Instead::fifo(etc.join("backup-state.json"))];
        for line in ["backup list", "backup status", "backup run"] {
            refused(&world, line, &[is_no_file, "etc/backup.conf"]);
        }
    }
    {
        let _fifo = Instead::fifo(etc.join("backup").join(&world.group));
        refused(&world, "vgcfgrestore VG", &[is_no_file]);
        refused(&world, "vgcfgbackup VG", &["it exists and is not a regular file"]);
        works(&world, "vgcfgrestore -l VG");
        works(&world, "lvcreate -an -y -L 4M -n more VG");
        world.ok("stop VG");
    }
    world.ok("pvcreate -y new");
    world.ok("lvs VG");
}

#[test]
fn a_filesystem_that_does_not_answer_holds_up_no_command() {
    let world = made("silent");
    let etc = world.dir.join("etc");
    let silent = Silent::mount(&world);
    let tells = "nothing answers for 1 s; look at the filesystem on which it lies";
    let linked = |name: &str| {
        Instead::of(etc.join(name), |path| std::os::unix::fs::symlink(silent.point.join("what"), path).unwrap())
    };
    for (name, lines) in [
        ("rowen.conf", &["lvs VG", "pvcreate new"][..]),
        ("devices", &["pvs", "lvs VG", "pvcreate new", "vgchange -ay VG"]),
        ("backup.conf", &["backup list", "backup status"]),
        ("backup", &["vgcfgrestore -l VG"]),
        ("archive", &["vgcfgrestore -l VG"]),
    ] {
        let _there = linked(name);
        lines.iter().for_each(|line| refused(&world, line, &[tells, &format!("etc/{name}")]));
    }
    {
        let _there = linked("history");
        let output = soon(&world, "history");
        assert!(String::from_utf8_lossy(&output.stderr).contains(tells), "{output:?}");
    }
    drop(silent);
    world.ok("pvcreate -y new");
    world.ok("lvs VG");
}

/// A filesystem that answers nothing.
struct Silent {
    point: PathBuf,
    _connection: File,
}

impl Silent {
    fn mount(world: &World) -> Silent {
        let point = world.dir.join("silent");
        fs::create_dir_all(&point).unwrap();
        let connection = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", connection.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("silent", &point, "fuse", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        Silent { point, _connection: connection }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _gone = unmount(&self.point, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}
