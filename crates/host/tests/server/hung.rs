//! A disk answers nothing: a volume of another group whose server and keeper are stopped.
//!
//! Rules DT1, DT2, DT3 and MB10. What its requests wait for is in the kernel, so the process that has them does not end.

use crate::Test;
use crate::lost::{Pair, holds, write};
use crate::stacks::Stopped;
use crate::world::{kill, verifying_fio, wait_for};
use rowen_control::protocol::{Outcome, Request};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("hung::the_others_go_on_without_it", the_others_go_on_without_it),
    ("hung::what_is_needed_is_waited_for", what_is_needed_is_waited_for),
    ("hung::it_is_waited_for_if_the_settings_say_so", it_is_waited_for_if_the_settings_say_so),
];

/// Settings that are gone when this is dropped: disks have so many seconds.
struct Patience(PathBuf);

impl Patience {
    fn of(seconds: u32) -> Patience {
        let settings = rowen_host::paths::system_dir().join("rowen.conf");
        fs::write(&settings, format!("server/disk_timeout = {seconds}\n")).unwrap();
        Patience(settings)
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// Whether threads of this process are there, as those that hang in the kernel. Its first one has ended then.
fn has_threads(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let is_there = |state: &str| state.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']));
    threads.flat_map(|thread| fs::read_to_string(thread.path().join("stat"))).any(|stat| is_there(&stat))
}

/// No error on a volume that lies on the other disk, and a pause of the time that is set. What lay on the disk is an error. What it
/// answers later is nobody's, and it comes back when a user says so.
fn the_others_go_on_without_it() {
    let _settings = Patience::of(3);
    let pair = Pair::make();
    let Pair { above, below, stays, goes } = &pair;
    write(goes, 1).and_then(|()| goes.sync_data()).unwrap();
    write(stays, 1).and_then(|()| stays.sync_data()).unwrap();
    // Its successor is the keeper's child, whose end the keeper would wait for.
    let first = above.signal_server(Signal::KILL);
    wait_for("a server", || above.server() != first && pair.lacks(0));
    let before = above.server();
    let load = verifying_fio("stays", &above.node("stays"));
    std::thread::sleep(Duration::from_secs(1));
    let disk = above.report().pvs[0].path.clone();
    // A thread of the kernel waits for the end of a flush, and the process for that thread. The load would flush what is to be
    // flushed here.
    let pid = load.id() as i32;
    kill(pid, Signal::STOP);
    std::thread::sleep(Duration::from_millis(200));
    write(goes, 1).unwrap();
    let stopped = Stopped::all_of(below);
    let since = Instant::now();
    let [flushed, written] = [|goes: File| goes.sync_data(), |goes: File| write(&goes, 2)].map(|ask| {
        let goes = goes.try_clone().unwrap();
        std::thread::spawn(move || ask(goes))
    });
    std::thread::sleep(Duration::from_millis(200));
    kill(pid, Signal::CONT);
    wait_for("the answers", || flushed.is_finished() && written.is_finished());
    written.join().unwrap().expect_err("its disk is left");
    let was_flushed = flushed.join().unwrap().is_ok();
    assert!(since.elapsed() >= Duration::from_secs(3), "{:?}", since.elapsed());
    wait_for("a successor", || pair.lacks(1));
    eprintln!("the group goes on without the disk after {} ms", since.elapsed().as_millis());
    assert_ne!(above.server(), before);
    assert!(was_flushed || has_threads(before), "its requests hang, and so it does");
    above.ask(Request::Snapshot { specs: vec![crate::world::snapshot("stays", "point", None)], freeze: true });
    std::thread::sleep(Duration::from_secs(2));
    rustix::process::kill_process(rustix::process::Pid::from_child(&load), Signal::INT).unwrap();
    let ended = load.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(!said.contains("verify:") && !said.contains("error") && !said.contains("rror="), "{said}");
    assert!(above.log().contains("; the volume group goes on without it"), "{}", above.log());
    // The next one, too, finds nothing to wait for.
    kill(above.server(), Signal::KILL);
    write(stays, 3).and_then(|()| stays.sync_data()).unwrap();
    drop(stopped);
    wait_for("the end of who had the requests", || !has_threads(before));
    std::thread::sleep(Duration::from_secs(5));
    assert!(pair.lacks(1) && write(goes, 4).is_err(), "it was never away: nobody takes it back unasked");
    above.ask(Request::RestorePv { path: disk });
    assert!(pair.lacks(0) && (holds(goes, 1) || holds(goes, 2)));
    write(goes, 5).and_then(|()| goes.sync_data()).unwrap();
    assert!(holds(goes, 5) && holds(stays, 3));
    match above.ask(Request::Check) {
        Outcome::Check(check) => assert_eq!(check.findings, Vec::<String>::new()),
        other => panic!("{other:?}"),
    }
}

/// DT3: the journal is on this disk alone.
fn what_is_needed_is_waited_for() {
    let _settings = Patience::of(3);
    let pair = Pair::with_copies(1);
    let told = " s, and the volume group waits for it";
    waits(&pair, || pair.above.log().contains(told));
    wait_for("its answer", || pair.above.log().contains("answers again, after "));
}

fn it_is_waited_for_if_the_settings_say_so() {
    let _settings = Patience::of(0);
    let pair = Pair::make();
    let begun = Instant::now();
    waits(&pair, || begun.elapsed() > Duration::from_secs(12));
    assert!(!pair.above.log().contains("has answered nothing"));
}

fn waits(pair: &Pair, until: impl Fn() -> bool) {
    let Pair { above, below, goes, .. } = pair;
    write(goes, 1).and_then(|()| goes.sync_data()).unwrap();
    let before = above.server();
    let stopped = Stopped::all_of(below);
    std::thread::scope(|threads| {
        let written = threads.spawn(|| write(goes, 2).and_then(|()| goes.sync_data()));
        wait_for("the time", until);
        assert!(!written.is_finished());
        drop(stopped);
        written.join().unwrap().unwrap();
    });
    assert!(above.server() == before && pair.lacks(0) && holds(goes, 2));
}
