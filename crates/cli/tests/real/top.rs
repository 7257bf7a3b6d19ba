//! `rowen top` in a terminal: it draws, obeys keys and signals whatever hangs, and leaves the terminal as it was.

use crate::world::{Running, Stopped, World};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, LocalModes, Termios, Winsize, tcflow, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Nothing takes so long, on whatever machine.
const LONG: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program in a terminal.
struct Terminal {
    keys: File,
    /// The side on which the program runs.
    inner: OwnedFd,
    before: Termios,
    written: Arc<Mutex<Vec<u8>>>,
    program: Running,
}

impl Terminal {
    fn start(command: &mut Command, rows: u16, columns: u16) -> Terminal {
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outer).unwrap();
        unlockpt(&outer).unwrap();
        let path = ptsname(&outer, Vec::new()).unwrap();
        let inner = rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&inner, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&inner).unwrap();
        let stream = || Stdio::from(inner.try_clone().unwrap());
        command.env("LC_ALL", "C.UTF-8").stdin(stream()).stdout(stream()).stderr(stream());
        let program = Running(command.spawn().unwrap());
        let keys = File::from(outer);
        let (mut reader, written) = (keys.try_clone().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let into = written.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut part) {
                into.lock().unwrap().extend_from_slice(&part[..read]);
            }
        });
        Terminal { keys, inner, before, written, program }
    }

    fn top(world: &World, line: &str) -> Terminal {
        Terminal::start(world.command(line).env("TERM", "xterm"), 24, 80)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until this is written, and forgets all that was.
    fn sees(&self, wanted: &str) {
        let until = Instant::now() + LONG;
        while !self.text().contains(wanted) {
            assert!(Instant::now() < until, "{wanted:?} did not come: {:?}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.written.lock().unwrap().clear();
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program.0), signal).unwrap();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.inner).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// TO2: the modes are as they were, the screen is the usual one, and the cursor is shown.
    fn is_given_back(&self) {
        let after = tcgetattr(&self.inner).unwrap();
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, of.local_modes);
        assert_eq!(modes(&after), modes(&self.before));
        wait_until("the usual screen", || {
            let text = self.text();
            text.contains("\x1b[?1049l") && text.contains("\x1b[?25h")
        });
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the end", || {
            status = self.program.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// What the kernel says the process does: `T` is stopped.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.0.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

#[test]
fn it_draws_and_ends_with_the_terminal_as_it_was() {
    let world = World::new("top", 64);
    world.ok("lvcreate -y -L 16M -n lv VG");
    let mut terminal = Terminal::top(&world, "top");
    terminal.sees(&world.group);
    assert!(terminal.is_raw());
    terminal.press("2");
    terminal.sees("active");
    // Another size: the frame is drawn again.
    tcsetwinsize(&terminal.inner, Winsize { ws_row: 12, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    terminal.signal(Signal::WINCH);
    terminal.sees("\x1b[2J");
    terminal.press("?");
    terminal.sees("Ctrl-Z");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
    terminal.is_given_back();
}

#[test]
fn keys_are_obeyed_while_a_server_hangs() {
    let (world, other) = (World::new("tophangs", 64), World::new("topgoes", 64));
    world.ok("lvcreate -y -L 8M -n lv VG");
    other.ok("lvcreate -y -L 8M -n lv VG");
    let mut terminal = Terminal::top(&world, "top");
    terminal.sees("serving");
    let stopped = Stopped::new(world.server().unwrap());
    terminal.sees("not answering");
    // TO1: looks go on, and so do keys.
    terminal.press("?");
    terminal.sees("Ctrl-Z");
    terminal.press("1");
    drop(stopped);
    terminal.sees("serving");
    let stopped = Stopped::new(world.server().unwrap());
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
    terminal.is_given_back();
    drop(stopped);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let world = World::new("topsignals", 64);
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
        let mut terminal = Terminal::top(&world, "top VG");
        terminal.sees(&world.group);
        terminal.signal(signal);
        assert_eq!(terminal.end().signal(), Some(number));
        terminal.is_given_back();
    }
    let mut terminal = Terminal::top(&world, "top VG");
    for stop in ["\x1a", ""] {
        terminal.sees(&world.group);
        if stop.is_empty() {
            terminal.signal(Signal::TSTP);
        } else {
            terminal.press(stop);
        }
        wait_until("the stop", || terminal.state() == Some('T'));
        terminal.is_given_back();
        terminal.written.lock().unwrap().clear();
        terminal.signal(Signal::CONT);
    }
    terminal.sees(&world.group);
    wait_until("the terminal", || terminal.is_raw());
    terminal.press("\x03");
    assert_eq!(terminal.end().code(), Some(0));
    terminal.is_given_back();
}

#[test]
fn a_terminal_that_takes_no_more_text_holds_no_signal_up() {
    let world = World::new("topstalls", 64);
    let mut terminal = Terminal::top(&world, "top VG");
    terminal.sees(&world.group);
    // As Ctrl-S does, or a connection that stalls.
    tcflow(&terminal.inner, Action::OOff).unwrap();
    terminal.press("?");
    std::thread::sleep(Duration::from_millis(500));
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.end().signal(), Some(15));
    assert!(!terminal.is_raw());
    tcflow(&terminal.inner, Action::OOn).unwrap();
}

#[test]
fn without_a_terminal_there_is_one_frame_as_text() {
    let world = World::new("toponce", 64);
    world.ok("lvcreate -y -L 8M -n lv VG");
    world.refused("top", 3, "rowen iostat");
    let mut dumb = Terminal::start(world.command("top").env("TERM", "dumb"), 24, 80);
    dumb.sees("rowen iostat");
    assert_eq!((dumb.end().code(), dumb.is_raw()), (Some(3), false));
    let frame = world.ok("top --once VG");
    for wanted in
        ["Groups", "Volumes", "Snapshots", "Disks", "Work", &format!("{}/lv", world.group), "1 group, healthy"]
    {
        assert!(frame.contains(wanted), "{wanted}: {frame}");
    }
    assert!(frame.lines().all(|line| line.chars().count() <= 80) && !frame.contains('\x1b'), "{frame}");
    let output = world.run("top --once VG nosuch");
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8(output.stdout).unwrap().contains("nosuch: there is no such volume group"));
    let stopped = Stopped::new(world.server().unwrap());
    let begun = Instant::now();
    let frame = world.ok("top --once VG");
    assert!(frame.contains("not answering") && frame.contains("kill -CONT"), "{frame}");
    // Two looks of two seconds at most, and a second between them.
    assert!(begun.elapsed() < LONG);
    drop(stopped);
}

/// TO1, TO2: `cargo test -p rowen-cli --features planted --test real top::planted`.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    let bugs = [
        ("waits_for_sample", "top::keys_are_obeyed_while_a_server_hangs"),
        ("terminal_kept", "top::it_draws_and_ends_with_the_terminal_as_it_was"),
    ];
    for (bug, test) in bugs {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let output = program.args(["--exact", test]).env("ROWEN_PLANTED", bug).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("running 1 test"), "{said}");
        assert!(!output.status.success(), "{bug} was not found: {said}");
    }
}
