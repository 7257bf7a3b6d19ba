//! A physical volume that is a sparse file on a filesystem that fills up: writes wait, the server may be killed meanwhile, and all
//! goes on by itself when there is room.

use crate::world::{MIB, Running, World, tool};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than anything here takes: only what hangs takes so long.
const LIMIT: Duration = Duration::from_secs(300);

/// A small filesystem; dropped, it is gone. It must outlive the group on it.
struct Small(PathBuf);

impl Small {
    /// In memory.
    fn new(name: &str, mib: u64) -> Small {
        let small = Small::empty(name);
        tool("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "none", small.path()]);
        small
    }

    /// One that never writes in place.
    fn btrfs(name: &str, mib: u64) -> Small {
        let small = Small::empty(name);
        let image = small.0.with_extension("image");
        File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        tool("mkfs.btrfs", &["-q", image.to_str().unwrap()]);
        tool("mount", &["-o", "loop", image.to_str().unwrap(), small.path()]);
        // What is mounted stays until the end.
        fs::remove_file(image).unwrap();
        small
    }

    fn empty(name: &str) -> Small {
        let path = std::env::temp_dir().join(format!("rowen-small-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Small(path)
    }

    /// Takes all the room that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        for block in [1 << 20, 4096] {
            while file.write_all(&vec![1; block]).and_then(|()| file.sync_data()).is_ok() {}
        }
        path
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn resize(&self, mib: u64) {
        tool("mount", &["-o", &format!("remount,size={mib}m"), self.path()]);
    }

    fn file(&self, mib: u64) -> String {
        let path = self.0.join("pv");
        File::create(&path).unwrap().set_len(mib * MIB).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _may_be_gone = Command::new("umount").args(["-l", self.path()]).status();
        let _left = fs::remove_dir(&self.0);
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn log(world: &World) -> String {
    fs::read_to_string(world.dir.join("run").join(&world.group).join("server.log")).unwrap_or_default()
}

/// What `vgs` warns of.
fn warned(world: &World) -> bool {
    String::from_utf8_lossy(&world.run("vgs VG").stderr).contains("There is no room behind physical volume")
}

fn copy(from: &Path, to: &Path) -> Running {
    let words = [format!("if={}", from.display()), format!("of={}", to.display())];
    let mut dd = Command::new("dd");
    dd.args(words).args(["bs=1M", "oflag=direct", "conv=notrunc", "status=none"]);
    Running(dd.stdin(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_full_filesystem_under_a_physical_volume_is_waited_for() {
    let small = Small::new("full", 24);
    let world = World::empty("room");
    fs::create_dir_all(world.dir.join("etc")).unwrap();
    fs::write(world.dir.join("etc/rowen.conf"), "server { no_space_timeout = 0 }\n").unwrap();
    let pv = small.file(256);
    world.ok(&format!("vgcreate VG {pv}"));
    world.ok("lvcreate -y -T -L 100M VG/pool");
    world.ok("lvcreate -y -V 64M -T VG/pool -n data");
    world.ok("lvcreate -y -L 32M -n thick VG");
    let bytes: Vec<u8> =
        (0..31 * MIB / 8).flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()).collect();
    let source = world.dir.join("bytes");
    fs::write(&source, &bytes).unwrap();
    let mut writer = copy(&source, &world.node("data"));
    until("the filesystem is full", || warned(&world));
    until("the log says so", || log(&world).contains("There is no room behind physical volume"));
    // A thick volume's write fails, as its policy is.
    let mut refused = copy(&source, &world.node("thick"));
    until("the write is refused", || refused.0.try_wait().unwrap().is_some());
    assert!(!refused.0.wait().unwrap().success());
    // Everything else goes on, also with another server.
    world.ok("lvcreate -y -s -n before VG/data");
    world.ok("lvremove -f VG/before");
    let server = world.server().unwrap();
    tool("kill", &["-9", &server.to_string()]);
    until("there is another server", || world.server().is_some_and(|pid| pid != server) && warned(&world));
    assert!(writer.0.try_wait().unwrap().is_none(), "the write should wait");
    world.ok("lvs VG");
    small.resize(300);
    until("the write is done", || writer.0.try_wait().unwrap().is_some());
    assert!(writer.0.wait().unwrap().success());
    until("vgs is silent", || !warned(&world));
    until("the log says so", || log(&world).contains("There is room again"));
    assert!(fs::read(world.node("data")).unwrap()[..bytes.len()] == bytes[..], "other bytes were read");
    world.ok("check VG");
    drop(world);
    drop(small);
}

/// Rule U6: the journal waits for room, too, where nothing is written in place.
#[test]
fn a_full_filesystem_that_never_writes_in_place_is_waited_for() {
    let small = Small::btrfs("btrfs", 300);
    let world = World::empty("copied");
    fs::create_dir_all(world.dir.join("etc")).unwrap();
    fs::write(world.dir.join("etc/rowen.conf"), "server { no_space_timeout = 0 }\n").unwrap();
    let pv = small.file(128);
    world.ok(&format!("vgcreate VG {pv}"));
    world.ok("lvcreate -y -T -L 100M VG/pool");
    world.ok("lvcreate -y -V 64M -T VG/pool -n data");
    let source = world.dir.join("bytes");
    fs::write(&source, vec![7; 16 << 20]).unwrap();
    assert!(copy(&source, &world.node("data")).0.wait().unwrap().success());
    world.ok("lvcreate -y -s -n before VG/data");
    let filler = small.fill();
    fs::write(&source, vec![8; 16 << 20]).unwrap();
    let mut writer = copy(&source, &world.node("data"));
    let mut command = Running(world.command("lvcreate -y -s -n meanwhile VG/data").spawn().unwrap());
    until("the filesystem is full", || warned(&world));
    let is_refused = || {
        let refused = world.run("lvchange --addtag late VG/before");
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("No room behind physical volume")
    };
    until("changes are refused", is_refused);
    world.ok("lvs VG");
    let status = world.run("status -x VG");
    let output = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.status.code() == Some(1) && output.contains("state: waiting for space: there is no room behind"),
        "{output}"
    );
    assert!(output.contains("make room on the filesystem"), "{output}");
    // A successor waits, too.
    let server = world.server().unwrap();
    tool("kill", &["-TERM", &server.to_string()]);
    until("a successor says what is missing", || log(&world).contains("No room behind physical volume"));
    assert!(writer.0.try_wait().unwrap().is_none(), "the write should wait");
    fs::remove_file(filler).unwrap();
    until("the write is done", || writer.0.try_wait().unwrap().is_some());
    assert!(writer.0.wait().unwrap().success());
    // A command that still waited learns that its server ended.
    command.0.wait().unwrap();
    until("vgs is silent", || !warned(&world));
    world.ok("lvchange --addtag late VG/before");
    assert!(fs::read(world.node("data")).unwrap()[..16 << 20].iter().all(|byte| *byte == 8));
    world.ok("check VG");
    drop(world);
    drop(small);
}

#[test]
fn a_group_is_refused_where_its_areas_have_no_room() {
    let small = Small::new("none", 3);
    let world = World::empty("noroom");
    let pv = small.file(256);
    world.refused(&format!("vgcreate VG {pv}"), 5, "there is no room behind physical volume");
    assert!(world.run("vgs VG").status.code() == Some(5));
    small.resize(64);
    world.ok(&format!("vgcreate VG {pv}"));
    drop(world);
    drop(small);
}

/// Its file has holes where the journal and metadata were never written, as a group of an older program has.
#[test]
fn an_older_group_on_a_full_filesystem_gives_what_is_free() {
    let small = Small::new("older", 300);
    let world = World::empty("older");
    let pv = small.file(256);
    world.ok(&format!("vgcreate VG {pv}"));
    world.ok("lvcreate -y -L 64M -n gone VG");
    world.ok("lvcreate -y -L 8M -n kept VG");
    for (volume, mib) in [("gone", 64), ("kept", 8)] {
        let bytes = vec![7; (mib * MIB) as usize];
        let device = File::options().write(true).open(world.node(volume)).unwrap();
        device.write_all_at(&bytes, 0).unwrap();
        device.sync_all().unwrap();
    }
    let free = || world.ok("vgs --noheadings -o vg_free_count VG").trim().parse::<u64>().unwrap();
    let before = free();
    world.ok("lvremove -f VG/gone");
    until("its space is free", || free() >= before + 64 / 4);
    world.ok("vgchange -an VG");
    let server = world.server().unwrap();
    tool("kill", &[&server.to_string()]);
    until("the server ended", || !Path::new(&format!("/proc/{server}")).exists());
    tool("fallocate", &["--dig-holes", &pv]);
    let has = fs::metadata(&pv).unwrap().blocks() * 512;
    small.resize(has.div_ceil(MIB));
    let left = fs::OpenOptions::new().append(true).create(true).open(small.0.join("fill")).unwrap();
    while (&left).write_all(&[1; 4096]).is_ok() {}
    world.ok("vgchange -ay VG");
    assert!(!log(&world).contains("have too little room"), "{}", log(&world));
    assert!(fs::read(world.node("kept")).unwrap().iter().all(|byte| *byte == 7));
    world.ok("check VG");
    drop(world);
    drop(small);
}
