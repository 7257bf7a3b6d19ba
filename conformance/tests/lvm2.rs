//! LVM2's own shell tests, unchanged, on Rowen: the scripts that `lvm2/list.txt` declares pass, and each of the others stands in
//! `lvm2/left-out.txt` with its reason.
#![allow(clippy::unwrap_used, reason = "tests end where something unexpected happens")]

mod common;

use common::{Scratch, here, rowen};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// At once.
const PARALLEL: usize = 2;
/// Of one script: slow machines take their time, only a script that hangs takes this long.
const LIMIT: Duration = Duration::from_secs(300);
/// What a script says that cannot run.
const SKIPPED: i32 = 200;

/// The names in a list: one a line, up to a colon; `#` begins a comment.
fn names(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(here().join("lvm2").join(file)).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut found = BTreeMap::new();
    for line in lines {
        let (name, rest) = line.split_once(':').unwrap_or((line, ""));
        let twice = found.insert(name.trim().to_owned(), rest.trim().to_owned());
        assert!(twice.is_none(), "{file}: {name} is there twice");
    }
    found
}

/// Runs a script; what went wrong, in words.
fn run(tree: &Path, script: &str, world: &Path, logs: &Path) -> Result<(), String> {
    let log = logs.join(format!("{script}.log"));
    let out = File::create(&log).unwrap();
    let mut child = Command::new("bash")
        .arg(here().join("lvm2/run.sh"))
        .args([tree, Path::new(script), world])
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .process_group(0)
        .spawn()
        .unwrap();
    let until = Instant::now() + LIMIT;
    let mut asked = false;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until && !asked {
            // All of them are asked to end; the runner cleans up after them.
            let group = rustix::process::Pid::from_child(&child);
            let _may_have_ended = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
            asked = true;
        }
        if Instant::now() > until + Duration::from_secs(60) {
            let group = rustix::process::Pid::from_child(&child);
            let _may_have_ended = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("## LVMCONF")).collect();
    let end = lines[lines.len().saturating_sub(40)..].join("\n");
    match status.code() {
        _ if asked => Err(format!("{script} is not finished after {LIMIT:?}:\n{end}")),
        Some(0) => Ok(()),
        Some(SKIPPED) => Err(format!("{script} was skipped:\n{end}")),
        _ => Err(format!("{script} failed ({status}); the end of {}:\n{end}", log.display())),
    }
}

#[test]
fn lvm2s_own_tests_pass() {
    assert!(rustix::process::geteuid().is_root(), "these tests make block devices: run them as root");
    let scratch = Scratch::new("lvm2");
    let tree = scratch.0.join("tree");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let logs = kept.join("lvm2-logs");
    fs::create_dir_all(&logs).unwrap();
    let prepared = Command::new("bash")
        .arg(here().join("lvm2/prepare.sh"))
        .args([&kept.join("lvm2-source"), &tree, &rowen()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(prepared.status.success(), "LVM2's source: {}", String::from_utf8_lossy(&prepared.stderr));

    let (list, left_out) = (names("list.txt"), names("left-out.txt"));
    let all: BTreeSet<String> = fs::read_dir(tree.join("lvm2-testsuite/shell"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    for name in &all {
        assert_ne!(list.contains_key(name), left_out.contains_key(name), "{name} belongs into one of the two lists");
    }
    for (name, reason) in &left_out {
        assert!(all.contains(name) && !reason.is_empty(), "{name} is left out without a reason, or is no script");
    }
    let only = std::env::var("ROWEN_LVM2_SCRIPTS").ok();
    let chosen = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == name));
    let waiting: Mutex<Vec<&String>> = Mutex::new(list.keys().rev().filter(|name| chosen(name)).collect());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let Some(script) = waiting.lock().unwrap().pop() else { return };
                    let begun = Instant::now();
                    let outcome = run(&tree, script, &scratch.0.join(script), &logs);
                    eprintln!(
                        "{script}: {} ({:.1?})",
                        if outcome.is_ok() { "passed" } else { "failed" },
                        begun.elapsed()
                    );
                    failed.lock().unwrap().extend(outcome.err());
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    eprintln!("{} of LVM2's {} scripts, {} failed", list.len(), all.len(), failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
