//! The program as systemd starts it: its socket is standard input, and where the test is root, it is nobody.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected happens")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const NOBODY: u32 = 65534;
/// One test at a time: a program that is being copied cannot be started while another thread starts one, which has the copy open.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_rowen-web"))
}

/// Ends with the test, also if that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _may_have_ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts the program at a socket of its own, with a directory in which its facts are.
fn start(name: &str, facts: &str) -> (Running, SocketAddr, PathBuf) {
    let dir = std::env::temp_dir().join(format!("rowen-web-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let file = dir.join("facts.json");
    fs::write(&file, facts).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut command = program();
    if rustix::process::geteuid().is_root() {
        // The one that is tested may lie where nobody may look.
        let copy = dir.join("rowen-web");
        fs::copy(env!("CARGO_BIN_EXE_rowen-web"), &copy).unwrap();
        command = Command::new(copy);
        command.uid(NOBODY).gid(NOBODY);
    }
    command.arg("--facts").arg(&file).stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::piped());
    (Running(command.spawn().unwrap()), at, dir)
}

fn get(at: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_serves_at_the_socket_that_it_is_given() {
    let _alone = alone();
    let facts = r#"{"version": 1, "host": "h", "groups": [{"name": "<vg>", "state": "serving", "healthy": true}]}"#;
    let (mut running, at, dir) = start("given", facts);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("  The page is at http://{at}/.\n"));
    let page = get(at, "/");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("&lt;vg&gt;"), "{page}");
    // Facts of before the host was started.
    assert!(page.contains("thing is wrong"), "{page}");
    assert!(get(at, "/facts.json").contains("\"name\":\"<vg>\""));
    if rustix::process::geteuid().is_root() {
        let status = fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!((field("Uid:"), field("CapEff:")), ("65534\t65534\t65534\t65534", "0000000000000000"));
    }
    // A fact that is written again is reported again, and a fact that is gone is missed.
    fs::remove_file(dir.join("facts.json")).unwrap();
    let is_missed = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        get(at, "/").contains("is not there")
    });
    assert!(is_missed, "WB1");
    drop(running);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let _alone = alone();
    let run = |words: &[&str]| {
        let output = program().args(words).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = run(&[]);
    assert!(code == Some(5) && said.contains("Cannot take the socket that is standard input"), "{said}");
    let (code, said) = run(&["--listen", "localhost:1"]);
    assert!(code == Some(3) && said.contains("Cannot listen at localhost:1."), "{said}");
    // 192.0.2.0/24 is nobody's.
    let (code, said) = run(&["--listen", "192.0.2.1:1"]);
    assert!(code == Some(5) && said.contains("Cannot listen at 192.0.2.1:1: "), "{said}");
    let (code, said) = run(&["--help"]);
    assert!(code == Some(0) && said.contains("rowen facts"), "{said}");
    let (code, said) = run(&["--version"]);
    assert!(code == Some(0) && said.contains(env!("CARGO_PKG_VERSION")), "{said}");
}
