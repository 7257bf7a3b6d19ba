//! Programs before and after a snapshot that end, fail, hang, or lose who started them.
//!
//! Rule BK5.

use super::*;
use rowen_engine::planted::must_be_found;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory for a test, with programs.
struct Dir(PathBuf);

impl Dir {
    /// The directory is new: tests that run at the same time share none.
    fn new(name: &str) -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("rowen-hooks-{name}-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn hook(&self, name: &str, script: &str, limit: Duration) -> Hook {
        let path = self.0.join(name);
        // Another process writes it. A test that forks now has a child with all open files of this process. While a
        // file is open for writing, it cannot be executed (ETXTBSY).
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
        let written = Command::new("sh").args(["-c", write, "sh"]).arg(&path).arg(script).status().unwrap();
        assert!(written.success());
        let variables =
            vec![("ROWEN_GROUP".to_owned(), "vg0".to_owned()), ("DIR".into(), self.0.display().to_string())];
        Hook { program: path.display().to_string(), variables, limit }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _may_have_failed = fs::remove_dir_all(&self.0);
    }
}

const LONG: Duration = Duration::from_secs(60);

fn comes(path: &Path, limit: Duration) {
    let until = Instant::now() + limit;
    while fs::read_to_string(path).map_or(true, |text| text.is_empty()) {
        assert!(Instant::now() < until, "BK5: {} does not come", path.display());
        std::thread::sleep(LOOK);
    }
}

#[test]
fn a_program_runs_and_its_failure_is_told() {
    let dir = Dir::new("runs");
    dir.hook("ok", "echo $ROWEN_GROUP >$DIR/said", LONG).run().unwrap();
    assert_eq!(fs::read_to_string(dir.0.join("said")).unwrap(), "vg0\n");
    let told = |hook: Hook| format!("{:?}", hook.run().unwrap_err());
    assert!(told(dir.hook("bad", "exit 3", LONG)).contains("failed with exit code 3"));
    assert!(told(dir.hook("dies", "kill -9 $$", LONG)).contains("was killed"));
    let missing = Hook { program: "/nowhere/x".into(), ..dir.hook("x", "", LONG) };
    assert!(told(missing).contains("cannot be started"));
}

#[test]
fn a_program_that_hangs_is_ended_with_what_it_started() {
    let dir = Dir::new("hangs");
    let hook = dir.hook("hangs", "(sleep 1000; echo) & echo $! >$DIR/child; wait", Duration::from_secs(1));
    assert!(format!("{:?}", hook.run().unwrap_err()).contains("did not end within 1 s and was killed"));
    let child = fs::read_to_string(dir.0.join("child")).unwrap();
    let stat = Path::new("/proc").join(child.trim()).join("stat");
    let is_alive = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    let until = Instant::now() + LONG;
    while is_alive() {
        assert!(Instant::now() < until, "BK5: what it started is still there");
        std::thread::sleep(LOOK);
    }
}

/// It does not run before the request, and it runs if its caller is gone.
fn after_runs(limit: Duration) {
    let dir = Dir::new("after");
    let hook = |name: &str| dir.hook(name, &format!("echo $ROWEN_GROUP >$DIR/{name}-ran"), LONG);
    let later = hook("told").later().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(!dir.0.join("told-ran").exists(), "it ran too early");
    Box::new(later).run().unwrap();
    comes(&dir.0.join("told-ran"), limit);
    drop(hook("dropped").later().unwrap());
    comes(&dir.0.join("dropped-ran"), limit);
    // As if this process had been killed: only the kernel closes the pipe.
    let mut later = hook("left").later().unwrap();
    let mut child = later.child.take().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    drop(child.stdin.take());
    comes(&dir.0.join("left-ran"), limit);
    child.wait().unwrap();
}

#[test]
fn the_program_after_a_snapshot_always_runs() {
    after_runs(LONG);
}

#[test]
fn a_program_that_is_forgotten_is_found() {
    // It never comes.
    must_be_found("after_is_forgotten", || after_runs(Duration::from_secs(5)));
}
