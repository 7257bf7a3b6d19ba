//! `rowen send` into `rowen receive` over a real ssh, with a key that may only receive: cut in the middle, and on with the rest. The
//! sshd is this test's own, on a port of 127.0.0.1, with keys and settings in its directory.

use crate::world::{MIB, Random, Running, World, tool};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Where sshd keeps its processes without rights; systemd makes it where sshd is a service.
const SEPARATION: &str = "/run/sshd";

/// A server of ssh, and a client's key that may do one thing.
struct Sshd {
    dir: PathBuf,
    port: u16,
    _server: Running,
    made_separation: bool,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if self.made_separation {
            let _in_use = fs::remove_dir(SEPARATION);
        }
    }
}

fn key(dir: &Path, name: &str) -> String {
    let path = dir.join(name);
    tool("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path.to_str().unwrap()]);
    fs::read_to_string(path.with_extension("pub")).unwrap().trim().to_owned()
}

impl Sshd {
    /// The key may run `rowen receive --restrict` for the group of this world.
    fn for_group(to: &World) -> Sshd {
        let dir = to.dir.join("ssh");
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        let made_separation = fs::create_dir(SEPARATION).is_ok();
        let (host, client) = (key(&dir, "host"), key(&dir, "key"));
        let (etc, run, program) = (to.dir.join("etc"), to.dir.join("run"), env!("CARGO_BIN_EXE_rowen"));
        let environment = format!("ROWEN_SYSTEM_DIR={} ROWEN_RUN_DIR={}", etc.display(), run.display());
        let command = format!("env {environment} {program} receive --restrict {}", to.group);
        fs::write(dir.join("authorized_keys"), format!("restrict,command=\"{command}\" {client}\n")).unwrap();
        // Another program may take the port before sshd has it.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{port} {host}\n")).unwrap();
            if let Some(server) = serve(&dir, port) {
                return Sshd { dir, port, _server: server, made_separation };
            }
        }
        panic!("sshd does not start: {}", fs::read_to_string(dir.join("log")).unwrap_or_default());
    }

    /// What a client types after `ssh`.
    fn ssh(&self, words: &str) -> Command {
        let at = |name: &str| self.dir.join(name).display().to_string();
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none", "-p", &self.port.to_string(), "-i", &at("key"), "-o", "IdentitiesOnly=yes"]);
        ssh.args(["-o", "BatchMode=yes", "-o", &format!("UserKnownHostsFile={}", at("known_hosts"))]);
        ssh.args(["root@127.0.0.1", words]).stdin(Stdio::null());
        ssh
    }

    fn asked(&self, words: &str) -> Output {
        self.ssh(words).output().unwrap()
    }
}

fn serve(dir: &Path, port: u16) -> Option<Running> {
    let at = |name: &str| dir.join(name).display().to_string();
    let lines = [
        format!("Port {port}"),
        "ListenAddress 127.0.0.1".to_owned(),
        format!("HostKey {}", at("host")),
        format!("AuthorizedKeysFile {}", at("authorized_keys")),
        format!("PidFile {}", at("pid")),
        "PermitRootLogin forced-commands-only".to_owned(),
        "PasswordAuthentication no".to_owned(),
        "KbdInteractiveAuthentication no".to_owned(),
        "UsePAM no".to_owned(),
        // The directory for temporary files belongs to everybody.
        "StrictModes no".to_owned(),
    ];
    fs::write(dir.join("sshd_config"), lines.join("\n") + "\n").unwrap();
    let log = File::create(dir.join("log")).unwrap();
    let mut sshd = Command::new("/usr/sbin/sshd");
    let sshd = sshd.args(["-D", "-e", "-f", &at("sshd_config")]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut server = Running(sshd.spawn().expect("`.ci/packages real` installs sshd"));
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until && server.0.try_wait().unwrap().is_none() {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(server);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `rowen send ... | ssh ... rowen receive ...`, of which only this many bytes pass. Returns what ssh says and how many passed. The end
/// of a pipe that is cut is that ssh is killed.
fn through(from: &World, send: &str, sshd: &Sshd, receive: &str, most: u64) -> (Output, u64) {
    let mut sender = Running(from.command(send).stdout(Stdio::piped()).spawn().unwrap());
    let mut out = sender.0.stdout.take().unwrap();
    let mut receiver: Child =
        sshd.ssh(receive).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut into = receiver.stdin.take().unwrap();
    let mut passed = 0;
    let mut buf = vec![0; 64 << 10];
    loop {
        let wanted = buf.len().min((most - passed) as usize);
        let read = out.read(&mut buf[..wanted]).unwrap();
        if read == 0 || into.write_all(&buf[..read]).is_err() {
            break;
        }
        passed += read as u64;
    }
    if passed == most {
        receiver.kill().unwrap();
    } else {
        assert!(sender.0.wait().unwrap().success(), "{send}");
    }
    drop(into);
    (receiver.wait_with_output().unwrap(), passed)
}

fn sum_of(world: &World, volume: &str) -> String {
    world.ok(&format!("lvchange -ay -K VG/{volume}"));
    let sum = tool("sha256sum", &[world.node(volume).to_str().unwrap()]);
    sum.split_whitespace().next().unwrap().to_owned()
}

/// The token, as soon as the receiver has a mark beyond the one before.
fn token(sshd: &Sshd, target: &str, before: &str) -> String {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let asked = sshd.asked(&format!("rowen receive --token {target}"));
        let word = text(&asked.stdout).trim().to_owned();
        if asked.status.success() && word != before {
            return word;
        }
        assert!(Instant::now() < until, "{}", text(&asked.stderr));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_transfer_over_ssh_is_cut_and_goes_on() {
    let (from, to) = (World::new("sshfrom", 512), World::new("sshto", 512));
    let sshd = Sshd::for_group(&to);
    from.ok("lvcreate -L 200M -n db VG");
    let mut node = File::options().write(true).open(from.node("db")).unwrap();
    let mut random = Random(11);
    (0..150).for_each(|_| node.write_all(&random.bytes(MIB as usize)).unwrap());
    drop(node);
    from.ok("lvcreate -s -n mon VG/db");
    let (target, receive) = (format!("{}/db", to.group), format!("rowen receive {}/db", to.group));
    // The key can do nothing else.
    for words in ["id", "rowen lvs", &format!("rowen receive {}/db", from.group), &format!("{receive}; id"), ""] {
        let refused = sshd.asked(words);
        assert!(matches!(refused.status.code(), Some(3 | 5)) && refused.stdout.is_empty(), "{words}: {refused:?}");
    }
    // Cut twice; between the cuts the receiving group's server is killed.
    let (cut, _) = through(&from, "send VG/mon", &sshd, &receive, 90 * MIB);
    assert!(!cut.status.success());
    let first = token(&sshd, &target, "");
    assert_eq!(to.ok("lvs --noheadings VG").trim(), "", "nothing can be seen");
    tool("kill", &["-9", &to.server().unwrap().to_string()]);
    let (cut, _) = through(&from, &format!("send --resume {first}"), &sshd, &receive, 20 * MIB);
    assert!(!cut.status.success());
    let second = token(&sshd, &target, &first);
    let (done, passed) = through(&from, &format!("send --resume {second}"), &sshd, &receive, u64::MAX);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("and its snapshot mon"), "{}", text(&done.stdout));
    assert!(passed < 90 * MIB, "{passed} bytes: most of it was there");
    assert_eq!(sum_of(&from, "mon"), sum_of(&to, "db"));
    assert_eq!(sum_of(&from, "mon"), sum_of(&to, "mon"));
    // What changed since.
    let mut node = File::options().write(true).open(from.node("db")).unwrap();
    node.write_all(&random.bytes(3 * MIB as usize)).unwrap();
    drop(node);
    from.ok("lvcreate -s -n tue VG/db");
    to.ok("lvchange -an VG/db");
    let (done, passed) = through(&from, "send -i mon VG/tue", &sshd, &receive, u64::MAX);
    assert!(done.status.success() && passed < 4 * MIB, "{passed}: {}", text(&done.stderr));
    assert_eq!(sum_of(&from, "tue"), sum_of(&to, "db"));
    to.ok("check VG");
}
