//! Thousands of random runs of the engine, compared with the oracle and the accounts. `ROWEN_SIM_SEEDS` scales their
//! number (in percent of the usual).
//!
//! Rules G3, C1, S1, S3 and S4.

use rowen_sim::effort::{percent, scaled};
use rowen_sim::model::{MOVES, Moves, PROFILES, Profile, Seen, run_seed_with};
use std::sync::atomic::{AtomicU64, Ordering};

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Events that all seeds together have to meet. A part of the seeds need not.
#[track_caller]
pub fn assert_met(met: bool, seen: &Seen) {
    assert!(met || percent() < 100, "{seen:?}");
}

/// Runs the seeds on all cores; panics with the first failures.
fn run_all(profile: Profile, seeds: u64, steps: u32) -> Seen {
    run_all_with(profile, seeds, steps, None)
}

/// The same. With `lists`, lists of changes are compared with bytes (`diff.rs`).
#[track_caller]
pub fn run_all_with(profile: Profile, seeds: u64, steps: u32, lists: Option<Moves>) -> Seen {
    let next = AtomicU64::new(1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        let (mut seen, mut failures) = (Seen::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds || failures.len() > 2 {
                return (seen, failures);
            }
            match run_seed_with(seed, steps, profile, lists) {
                Ok(run) => seen.add(&run),
                Err(failure) => failures.push(failure),
            }
        }
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut seen = Seen::default();
    let mut failures = Vec::new();
    for (run, mut failed) in results {
        seen.add(&run);
        failures.append(&mut failed);
    }
    assert!(failures.is_empty(), "{} runs failed:\n{}", failures.len(), failures.join("\n"));
    seen
}

#[test]
fn exact() {
    let seen = run_all(Profile::Exact, scaled(600), 120);
    assert_met(
        seen.exact_checks > 0 && seen.reverts > 0 && seen.group_snapshots > 0 && seen.removed_origins > 0,
        &seen,
    );
    let stats = &seen.stats;
    assert_met(seen.unallocatable > 0 && seen.shrunk_pvs > 0 && seen.grown_pvs > 0, &seen);
    assert_met(stats.checkpoints > 0 && stats.reclaim_steps > 0 && stats.writes_in_place > 0, &seen);
}

#[test]
fn wild() {
    let seen = run_all(Profile::UnknownSectors, scaled(750), 120);
    assert_met(
        seen.unallocatable > 0
            && seen.raced_checkpoints > 0
            && seen.power_cuts > 0
            && seen.deaths > 0
            && seen.reopened > 0,
        &seen,
    );
    let stats = &seen.stats;
    assert_met(stats.recovered > 0 && stats.recovery_skipped > 0 && stats.writes_again > 0, &seen);
}

#[test]
fn full() {
    let seen = run_all(Profile::Full, scaled(400), 150);
    assert_met(
        seen.unallocatable > 0
            && seen.refused_for_space > 0
            && seen.invalidated > 0
            && seen.stats.volumes_invalidated > 0,
        &seen,
    );
    assert_met(seen.stats.slots_taken > 0, &seen);
}

#[test]
fn deep() {
    let seen = run_all(Profile::Deep, scaled(20), 1200);
    assert_met(seen.unallocatable + seen.shrunk_pvs > 0, &seen);
    assert_met(seen.stats.node_loads > 0 && seen.journal_wraps > 0 && seen.most_nodes > 40, &seen);
}

/// Runs the one that a failure named.
#[test]
#[ignore = "only with the environment that a failure prints"]
fn replay() {
    let number = |name: &str| setting(name).and_then(|s| s.parse().ok());
    let seed = number("ROWEN_SEED").expect("ROWEN_SEED is set");
    let steps = number("ROWEN_STEPS").unwrap_or(150);
    let name = setting("ROWEN_PROFILE").unwrap_or("exact".into());
    let profile = PROFILES.iter().find(|(known, _)| *known == name).expect("a profile of that name").1;
    let lists = setting("ROWEN_DIFFS");
    let lists = lists.and_then(|name| MOVES.iter().find(|(known, _)| *known == name)).map(|(_, moves)| *moves);
    match run_seed_with(seed, steps as u32, profile, lists) {
        Ok(seen) => println!("passed: {seen:?}"),
        Err(failure) => panic!("{failure}"),
    }
}
