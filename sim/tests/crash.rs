//! The power is cut at every disk command of every scenario. `ROWEN_SIM_SEEDS` scales the effort (in percent).
//!
//! Rules J1, J2, J3, J4, G1, G2, G3, D2, D3, V2, V3, S2 and M1.

use rowen_engine::group::{Config, SegmentType};
use rowen_sim::crash::{Effort, Explorer, Report, Setup, State};
use rowen_sim::disk::{POLICIES, Policy};
use rowen_sim::effort::{percent, scaled};
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{self, Step};
use std::sync::atomic::{AtomicU64, Ordering};

/// One or two physical volumes, with small or large sectors and extents. The seed chooses.
fn setup(seed: u64) -> Setup {
    let mut setup = match seed % 4 {
        1 | 3 => Setup::small(1, 24),
        _ => Setup::small(2, 16),
    };
    if seed % 4 == 3 {
        setup.pvs[0].sector = 4096;
    }
    if seed % 8 == 4 {
        setup.pvs[1].sector = 4096;
    }
    match seed % 16 {
        5 => setup.extent_blocks = 1,
        6 => setup.extent_blocks = 32,
        _ => {}
    }
    if seed % 16 == 8 {
        setup.segment = SegmentType::Striped;
        setup.pvs.iter_mut().for_each(|pv| pv.size += 4 << 20);
    }
    if seed % 4 == 2 {
        setup.segment = SegmentType::Raid1;
        setup.pvs[0].size += 4 << 20;
    }
    setup
}

fn explore(setup: &Setup, effort: Effort, seed: u64, steps: &[Step], skip_steps: usize) -> Report {
    Explorer { setup, effort, seed, only: None, skip_steps }.explore(steps)
}

/// Runs numbered explorations on all cores and sums their reports.
fn explore_all(count: u64, one: impl Fn(u64) -> (String, Report) + Sync) -> Report {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        let mut sum = Report::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || sum.failures > 100 {
                return sum;
            }
            let (name, mut report) = one(number);
            for finding in &mut report.findings {
                *finding = format!("ROWEN_SCENARIO={name} {finding}");
            }
            sum.add(report);
        }
    };
    let mut sum = Report::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| sum.add(worker.join().unwrap()));
    });
    println!(
        "{} states, {} of recoveries, {} failures, {:?}",
        sum.states, sum.recovery_states, sum.failures, sum.stats
    );
    sum
}

fn expect_none(report: &Report) {
    assert!(
        report.failures == 0,
        "{} crash states failed; replay one with its variables and \
         `cargo test -p rowen-sim --test all crash::replay -- --nocapture --ignored`:\n{}",
        report.failures,
        report.findings.join("\n")
    );
}

/// The scenario with a name: `script:NAME:SEED`, `enum:NUMBER`, `random:SEED`.
fn scenario_of(name: &str) -> (Vec<Step>, u64, usize) {
    let mut parts = name.split(':');
    let kind = parts.next().unwrap();
    let word = parts.next().expect("a scenario's name has two parts at least");
    match kind {
        "script" => {
            let steps =
                scenario::scripted().into_iter().find(|(name, _)| *name == word).expect("a scripted scenario").1;
            (steps, parts.next().map_or(1, |seed| seed.parse().unwrap()), 0)
        }
        "enum" => enumerated(word.parse().unwrap()),
        "random" => {
            let seed = word.parse().unwrap();
            (scenario::random(&mut Rng::new(seed), 30), seed, 0)
        }
        _ => panic!("{name} names no scenario"),
    }
}

/// Sequence number `n` of all sequences of up to three steps.
fn enumerated(n: u64) -> (Vec<Step>, u64, usize) {
    let alphabet = scenario::alphabet();
    let mut steps = scenario::prelude();
    let skip = steps.len();
    let base = alphabet.len() as u64;
    for at in [n / base / base, n / base % base, n % base] {
        steps.push(alphabet[at as usize].clone());
    }
    (steps, n, skip)
}

fn named(name: String, effort: Effort) -> (String, Report) {
    let (steps, seed, skip) = scenario_of(&name);
    let report = explore(&setup(seed), effort, seed, &steps, skip);
    (name, report)
}

#[test]
fn scripted_scenarios() {
    let scripts = scenario::scripted();
    let seeds = scaled(4);
    let report = explore_all(scripts.len() as u64 * seeds, |n| {
        let (script, seed) = (n as usize % scripts.len(), n / scripts.len() as u64 + 1);
        named(format!("script:{}:{seed}", scripts[script].0), Effort::default())
    });
    expect_none(&report);
    let stats = &report.stats;
    assert!(
        stats.recovered > 0
            && stats.recovery_skipped > 0
            && stats.checkpoints > 0
            && stats.reclaim_steps > 0
            && stats.orphans_freed > 0,
        "{stats:?}"
    );
    assert!(stats.writes_again > 0 && stats.waits_for_marker > 0 && stats.volumes_invalidated > 0, "{stats:?}");
    assert!(report.recovery_states > 0);
}

#[test]
fn all_sequences_of_three_steps() {
    let base = scenario::alphabet().len() as u64;
    let all = base * base * base;
    // A prime stride spreads a part of the sequences over all of them.
    let count = (all * percent() / 600).clamp(1, all);
    let report = explore_all(count, |n| {
        let effort = Effort { recovery: 200, resume: 16, ..Effort::default() };
        named(format!("enum:{}", n * 1009 % all), effort)
    });
    expect_none(&report);
}

#[test]
fn random_scenarios() {
    let report = explore_all(scaled(150), |n| {
        named(format!("random:{}", n + 1), Effort { sample: 3, recovery: 100, ..Effort::default() })
    });
    expect_none(&report);
}

/// A search that never finds anything proves nothing: each planted bug of the engine must be found. `first`: the
/// scenario that found it before, which is tried first.
fn find_planted(bug: &'static str, first: &str) {
    let setup = Setup { config: Config { planted: Some(bug), ..setup(1).config }, ..setup(1) };
    let mut scripts = scenario::scripted();
    scripts.sort_by_key(|(name, _)| *name != first);
    let effort = Effort { repeat: 2, recovery: 100, resume: 4, sample: 1 };
    for seed in 1..20 {
        for (name, steps) in &scripts {
            let report = explore(&setup, effort, seed, steps, 0);
            if let Some(first) = report.findings.first() {
                println!("{bug}: {name}, seed {seed}, {} of {} states; {first}", report.failures, report.states);
                return;
            }
        }
    }
    panic!("the planted bug {bug} was not found");
}

#[test]
fn finds_early_ack() {
    find_planted("early_ack", "first-writes");
}

#[test]
fn finds_no_flush() {
    find_planted("no_flush", "first-writes");
}

#[test]
fn finds_reuse_early() {
    find_planted("reuse_early", "queue-depth");
}

#[test]
fn finds_skip_crc() {
    find_planted("skip_crc", "first-writes");
}

#[test]
fn finds_stale_partial() {
    find_planted("stale_partial", "first-writes");
}

#[test]
fn finds_child_not_asked() {
    find_planted("child_not_searched", "snapshots");
}

#[test]
fn finds_snapshot_not_durable() {
    find_planted("snapshot_not_durable", "snapshots");
}

/// Explores one scenario, or one state of it: `ROWEN_SCENARIO`, and `ROWEN_STATE=EVENT:POLICY:DRAW` (POLICY: a number,
/// or `death`).
#[test]
#[ignore = "only with the environment that a failure prints"]
fn replay() {
    let name = std::env::var("ROWEN_SCENARIO").expect("ROWEN_SCENARIO is set");
    let (steps, seed, skip_steps) = scenario_of(&name);
    let only = std::env::var("ROWEN_STATE").ok().map(|state| {
        let parts: Vec<&str> = state.split(':').collect();
        let policy: Option<Policy> = POLICIES.iter().copied().find(|p| format!("{p:?}") == parts[1]);
        State { event: parts[0].parse().unwrap(), policy, throw: parts[2].parse().unwrap() }
    });
    let setup = setup(seed);
    // At least as much is done with each state as when it was found.
    let effort = Effort { repeat: 2, recovery: 1, resume: 1, sample: 1 };
    let report = Explorer { setup: &setup, effort, seed, only, skip_steps }.explore(&steps);
    println!("{} states, {:?}", report.states, report.stats);
    expect_none(&report);
}
