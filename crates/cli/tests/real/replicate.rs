//! `rowen replicate` over real devices, to another host by a stand-in for ssh: it runs the command line in a shell, as sshd does, with the
//! directories of the other world, and can be cut in mid-stream.

use crate::world::{MIB, Random, World, tool};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;

/// The other host. The file `cut` says how many bytes of the next stream arrive.
fn stand_in(from: &World, to: &World) -> PathBuf {
    let path = from.dir.join("ssh");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_rowen"));
    let cut = from.dir.join("cut");
    let script = format!(
        "#!/bin/sh\n\
         test \"$1\" = root@h2 || {{ echo \"no host $1\" >&2; exit 255; }}\n\
         shift\n\
         export ROWEN_SYSTEM_DIR={dir}/etc ROWEN_RUN_DIR={dir}/run PATH={bin}:$PATH\n\
         case \"$*\" in *--hold*) if test -f {cut}; then\n\
         head -c $(cat {cut}) | sh -c \"$*\"\n\
         rm {cut}; exit 255\n\
         fi;; esac\n\
         exec sh -c \"$*\"\n",
        dir = to.dir.display(),
        bin = program.parent().unwrap().display(),
        cut = cut.display(),
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

struct Pair {
    from: World,
    to: World,
    ssh: PathBuf,
}

impl Pair {
    fn new(name: &str) -> Pair {
        let (from, to) = (World::new(&format!("{name}from"), 512), World::new(&format!("{name}to"), 512));
        let ssh = stand_in(&from, &to);
        Pair { from, to, ssh }
    }

    fn replicate(&self, options: &str) -> Output {
        self.from.run(&format!("replicate -e {} {options} VG/db root@h2:{}/db", self.ssh.display(), self.to.group))
    }

    fn arrives(&self, options: &str) -> String {
        let done = self.replicate(options);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    fn write(&self, random: &mut Random, at: u64, mib: u64) {
        let mut node = File::options().write(true).open(self.from.node("db")).unwrap();
        node.seek(SeekFrom::Start(at * MIB)).unwrap();
        (0..mib).for_each(|_| node.write_all(&random.bytes(MIB as usize)).unwrap());
        node.sync_all().unwrap();
    }

    fn are_same(&self) {
        self.are_same_of("db");
    }

    fn are_same_of(&self, volume: &str) {
        assert_eq!(sum_of(&self.from, volume), sum_of(&self.to, volume));
        self.to.ok(&format!("lvchange -an VG/{volume}"));
    }
}

fn sum_of(world: &World, volume: &str) -> String {
    world.ok(&format!("lvchange -ay -K VG/{volume}"));
    let sum = tool("sha256sum", &[world.node(volume).to_str().unwrap()]);
    sum.split_whitespace().next().unwrap().to_owned()
}

fn snapshots(world: &World) -> usize {
    world.ok("lvs --noheadings -o name VG").lines().filter(|line| line.contains("-repl-")).count()
}

#[test]
fn a_copy_on_another_host_is_cut_goes_on_and_comes_back() {
    let pair = Pair::new("repl");
    let (from, to) = (&pair.from, &pair.to);
    let mut random = Random(5);
    from.ok("lvcreate -L 100M -n db VG");
    pair.write(&mut random, 0, 60);
    // Cut twice, a server killed between.
    for bytes in [30 * MIB, 10 * MIB] {
        fs::write(from.dir.join("cut"), bytes.to_string()).unwrap();
        let cut = pair.replicate("");
        let err = String::from_utf8_lossy(&cut.stderr);
        assert!(cut.status.code() == Some(5) && err.contains("the same command goes on there"), "{err}");
        assert_eq!(to.ok("lvs --noheadings VG").trim(), "", "nothing can be seen");
        tool("kill", &["-9", &to.server().unwrap().to_string()]);
    }
    let dry = pair.arrives("--dry-run");
    assert!(dry.contains("Would go on with db-repl-"), "{dry}");
    let told = pair.arrives("");
    assert!(told.contains("has arrived"), "{told}");
    pair.are_same();
    // Mounted all the time, and written to.
    tool("mkfs.ext4", &["-q", from.node("db").to_str().unwrap()]);
    let point = from.mount("db", "defaults");
    fs::write(point.join("file"), random.bytes(2 * MIB as usize)).unwrap();
    let told = pair.arrives("--limit 8m");
    assert!(told.contains("has arrived"), "{told}");
    fs::write(point.join("file2"), b"later").unwrap();
    pair.arrives("");
    from.unmount("db");
    pair.arrives("");
    pair.are_same();
    assert!(pair.arrives("").contains("did not change since"));
    assert_eq!((snapshots(from), snapshots(to)), (1, 1));
    // Failover: the copy is used, and the way back.
    let newest = to
        .ok("lvs --noheadings -o name VG")
        .split_whitespace()
        .find(|name| name.contains("-repl-"))
        .unwrap()
        .to_owned();
    to.ok("lvchange -ay VG/db");
    let there = to.mount("db", "defaults");
    assert_eq!(fs::read(there.join("file2")).unwrap(), b"later");
    fs::write(there.join("file3"), b"after the failover").unwrap();
    to.unmount("db");
    to.ok("lvchange -an VG/db");
    pair.write(&mut random, 90, 1);
    let pull = format!("replicate -e {} --pull root@h2:{}/db VG/db", pair.ssh.display(), to.group);
    from.ok("lvchange -an VG/db");
    from.refused(&pull, 5, "was changed since db-repl-");
    from.ok(&format!("revert -y VG/db {newest}"));
    from.ok(&pull);
    pair.are_same();
    from.ok("check VG");
    to.ok("check VG");
}

#[test]
fn copies_of_a_group_show_one_moment_again_after_a_cut() {
    let pair = Pair::new("replgroup");
    let (from, to) = (&pair.from, &pair.to);
    let mut random = Random(7);
    for volume in ["db", "log"] {
        from.ok(&format!("lvcreate -L 48M -n {volume} VG"));
    }
    pair.write(&mut random, 0, 30);
    let command = format!("replicate --group -e {} VG root@h2:{}", pair.ssh.display(), to.group);
    // Words that name groups are no volumes of the default group.
    let done = from.command(&command).env("LVM_VG_NAME", &from.group).output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(told.contains("it shows 2 volume(s)"), "{told} {}", String::from_utf8_lossy(&done.stderr));
    let first = sum_of(from, "db");
    // The first stream of the next run is cut, and the other host's server is killed.
    pair.write(&mut random, 5, 20);
    let mut log = File::options().write(true).open(from.node("log")).unwrap();
    log.write_all(&random.bytes(2 * MIB as usize)).unwrap();
    log.sync_all().unwrap();
    fs::write(from.dir.join("cut"), (8 * MIB).to_string()).unwrap();
    from.refused(&command, 5, "1 of 2 volumes of");
    pair.are_same_of("log");
    assert_eq!(sum_of(to, "db"), first, "no part of the new moment can be seen");
    to.ok("lvchange -an VG/db");
    // The last complete moment is still there.
    assert_eq!(to.ok("lvs --noheadings -o name VG").matches("log-repl-").count(), 2);
    tool("kill", &["-9", &to.server().unwrap().to_string()]);
    let told = from.ok(&command);
    assert!(told.contains("it shows 2 volume(s)"), "{told}");
    pair.are_same();
    pair.are_same_of("log");
    assert_eq!((snapshots(from), snapshots(to)), (2, 2));
    from.ok("check VG");
    to.ok("check VG");
}

#[test]
fn policies_take_send_and_remove() {
    let pair = Pair::new("backup");
    let (from, to) = (&pair.from, &pair.to);
    let mut random = Random(6);
    from.ok("lvcreate -L 64M -n db VG");
    // As if three runs had been.
    for number in 0..3 {
        pair.write(&mut random, 10 * number, 8);
        from.ok(&format!("lvcreate -s -pr -n db-p-{number} --addtag backup=p VG/db"));
    }
    from.ok("lvcreate -s -n mine VG/db");
    let target = format!("to = \"root@h2:{}\"\n ssh = \"{}\"\n limit = \"500m\"", to.group, pair.ssh.display());
    let policy = format!("volumes = [\"{}/db\"]\n every = \"1d\"\n keep = \"frequent:1\"\n", from.group);
    let conf = format!("policies {{\n p {{\n {policy} targets {{\n h2 {{\n {target}\n }}\n }}\n }}\n}}\n");
    fs::write(from.dir.join("etc/backup.conf"), conf.replace("every", "evry")).unwrap();
    from.refused("backup run", 4, "there is no setting \"policies/p/evry\"");
    fs::write(from.dir.join("etc/backup.conf"), &conf).unwrap();
    from.refused("backup status", 1, "");
    // Two runs at once.
    let lock = File::options().create(true).append(true).open(from.dir.join("run/backup.lock")).unwrap();
    lock.lock().unwrap();
    from.refused("backup run", 5, "Another run of the command does this already");
    drop(lock);
    // The stream is cut, and the other host's server is killed: the next run goes on.
    fs::write(from.dir.join("cut"), (4 * MIB).to_string()).unwrap();
    from.refused("backup run", 5, "the same command goes on there");
    let status = from.run("backup status");
    let told = String::from_utf8_lossy(&status.stdout);
    assert!(status.status.code() == Some(1) && told.contains("the last attempt failed"), "{told}");
    tool("kill", &["-9", &to.server().unwrap().to_string()]);
    let told = from.ok("backup run --all");
    assert!(told.contains("db-p-2 has arrived"), "{told}");
    pair.are_same();
    let status = from.ok("backup status");
    assert!(status.contains("ok   p") && status.contains("the newest db-p-2"), "{status}");
    assert!(from.ok("backup status --format prometheus").contains("rowen_backup_target_late"));
    // One of the policy is left on each side, and what a person made.
    let names = |world: &World| {
        world.ok("lvs --noheadings -o name VG").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((names(from), names(to)), (words(&["db", "db-p-2", "mine"]), words(&["db", "db-p-2"])));
    from.refused("lvremove -y VG/db-p-2", 5, "is held (replicate-");
    to.refused("lvremove -y VG/db-p-2", 5, "is held (replicate-");
    from.ok("check VG");
    to.ok("check VG");
    // The disk of the copy loses a bit, and no one is told.
    let told = from.ok("backup verify");
    assert!(told.contains("ok   p") && told.contains("db-p-2 is the same, 64.00m"), "{told}");
    let place = 20 * MIB + 8 * BLOCK as u64;
    rot(&from.node("db"), place, &to.dir.join("pv"));
    let damaged = from.run("backup verify");
    let told = String::from_utf8_lossy(&damaged.stdout);
    let differs = format!("differs, first in the 4096 bytes at byte {place} of the volume");
    assert!(damaged.status.code() == Some(1) && told.contains(&differs), "{told}");
}

const BLOCK: usize = 4096;

/// Changes a bit of the block on a disk that has what the volume has there.
fn rot(volume: &Path, place: u64, disk: &Path) {
    let mut wanted = [0; BLOCK];
    File::open(volume).unwrap().read_exact_at(&mut wanted, place).unwrap();
    let disk = File::options().read(true).write(true).open(disk).unwrap();
    let mut piece = vec![0; MIB as usize];
    for start in (0..disk.metadata().unwrap().len()).step_by(MIB as usize) {
        disk.read_exact_at(&mut piece, start).unwrap();
        let found = piece.chunks(BLOCK).position(|block| *block == wanted);
        if let Some(at) = found {
            wanted[9] ^= 1;
            disk.write_all_at(&wanted, start + (at * BLOCK) as u64).unwrap();
            return disk.sync_all().unwrap();
        }
    }
    panic!("the disk does not have the block");
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
