//! A server of volumes kept in files, for the tests of exports and of the keeper: `export_server serve VG` serves the
//! volumes that `ROWEN_TEST_VOLUMES` names (`NAME:FILE:SIZE:SECTOR`, blank between them), `export_server keeper VG` is its
//! keeper. SIGTERM ends it cleanly, SIGUSR1 makes it hand over to a successor.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "common/signals.rs"]
mod signals;

use common::FileTarget;
use rowen_host::export::{Exports, Target};
use rowen_host::reactor::Pool;
use rowen_host::{harden, helper, keeper};
use signals::{block_signals, wait_for_signal};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if helper::is_one(&words[1..]) {
        std::process::exit(helper::main(|_| {}).into());
    }
    let code = match words.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["keeper", group] => keeper::main(group),
        ["serve", group] => serve(group),
        _ => 3,
    };
    std::process::exit(code);
}

fn serve(group: &str) -> i32 {
    if std::env::var_os("ROWEN_TEST_FAIL").is_some_and(|file| Path::new(&file).exists()) {
        eprintln!("told to fail");
        return 5;
    }
    for refused in harden::harden() {
        eprintln!("warning: {refused}");
    }
    let signals = block_signals();
    let pool = Pool::start(2).expect("threads");
    let late = std::env::var("ROWEN_TEST_LATE").ok().and_then(|late| late.parse().ok()).unwrap_or(8);
    let volumes: HashMap<String, Arc<dyn Target>> = std::env::var("ROWEN_TEST_VOLUMES")
        .unwrap_or_default()
        .split_whitespace()
        .enumerate()
        .map(|(at, volume)| {
            let fields: Vec<_> = volume.split(':').collect();
            let [name, file, size, sector] = fields[..] else { panic!("{volume} is not NAME:FILE:SIZE:SECTOR") };
            let (size, sector) = (size.parse().expect("a size"), sector.parse().expect("a sector size"));
            let target: Arc<dyn Target> =
                FileTarget::open(Path::new(file), at as u64, size, sector, late, pool.runtime());
            (name.to_owned(), target)
        })
        .collect();
    let keeper = keeper::Client::connect_or_start(group).expect("a keeper");
    let exports = Arc::new(Exports::new(group, &pool, keeper).expect("exports"));
    let (serving, known) = (exports.clone(), volumes);
    pool.block_on(async move {
        let by_id: HashMap<u64, _> =
            known.iter().map(|(name, target)| (target.id(), (name.clone(), target.clone()))).collect();
        let taken = serving.takeover(move |entry| by_id.get(&entry.id).cloned()).await.expect("takeover");
        eprintln!("took over {} volumes, dropped {:?}", taken.taken.len(), taken.dropped);
        for (name, target) in known {
            if serving.find(&name).is_none() {
                serving.activate(&name, target, false).await.expect("activate");
            }
        }
    });
    eprintln!("ready, process {}", std::process::id());
    let end = wait_for_signal(&signals);
    pool.block_on(async move {
        if end == libc::SIGUSR1 {
            exports.hand_over().await.expect("hand over");
            return;
        }
        for node in exports.active() {
            // A namespace that another test makes has a copy of each mount, for as long as it lives.
            let begun = Instant::now();
            while let Err(error) = exports.deactivate(&node.name).await {
                assert!(begun.elapsed() < Duration::from_secs(9), "deactivate: {error:?}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        exports.goodbye().await.expect("goodbye");
    });
    0
}
