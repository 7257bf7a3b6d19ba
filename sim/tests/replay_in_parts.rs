//! Recovery takes checkpoints during replay if metadata is short (rule L1). Here it takes one before each record and
//! between the parts of a record. The power is also cut at every disk command of such openings. `ROWEN_SIM_SEEDS`
//! scales the effort (in percent).

use rowen_engine::group::Config;
use rowen_sim::crash::{Effort, Explorer, Report, Setup};
use rowen_sim::effort::{one_in, scaled};
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{self, Step};

/// `parts`: the planted word that makes recovery take these checkpoints, alone or with a bug.
fn explore(parts: &'static str, steps: &[Step], seed: u64, sample: u64) -> Report {
    let setup = if seed % 2 == 0 { Setup::small(2, 16) } else { Setup::small(1, 24) };
    let setup = Setup { config: Config { planted: Some(parts), ..setup.config.clone() }, ..setup };
    let effort = Effort { recovery: 4, resume: 8, sample, ..Effort::default() };
    Explorer { setup: &setup, effort, seed, only: None, skip_steps: 0 }.explore(steps)
}

fn expect_none(report: &Report) {
    println!("{} states, {} of recoveries, {:?}", report.states, report.recovery_states, report.stats);
    assert!(report.failures == 0, "{} crash states failed:\n{}", report.failures, report.findings.join("\n"));
    assert!(report.recovery_states > 0 && report.stats.recovered > 0, "{:?}", report.stats);
}

#[test]
fn scripted_scenarios() {
    let mut sum = Report::default();
    for (number, (_, steps)) in (1..).zip(scenario::scripted()) {
        for seed in 0..2 {
            sum.add(explore("small_parts", &steps, number + seed, one_in(8)));
        }
    }
    expect_none(&sum);
}

#[test]
fn random_scenarios() {
    let mut sum = Report::default();
    for seed in 1..=scaled(8) {
        sum.add(explore("small_parts", &scenario::random(&mut Rng::new(seed), 30), seed, 16));
    }
    expect_none(&sum);
}

/// A search that never finds anything proves nothing.
fn find_planted(bug: &'static str) {
    for seed in 1..=20 {
        let report = explore(bug, &scenario::random(&mut Rng::new(seed), 30), seed, 4);
        if report.failures > 0 {
            let is_of_a_cut = |finding: &String| finding.contains("recovery cut again");
            assert!(report.findings.iter().all(is_of_a_cut), "{bug}: {:?}", report.findings);
            println!("{bug}: seed {seed}, {} of {} states", report.failures, report.states);
            return;
        }
    }
    panic!("the planted bug {bug} was not found");
}

#[test]
fn a_record_that_is_passed_over_is_found() {
    find_planted("small_parts_passed");
}

#[test]
fn a_checkpoint_that_names_the_wrong_journal_is_found() {
    find_planted("small_parts_own_journal");
}

#[test]
fn records_that_were_open_and_are_forgotten_are_found() {
    find_planted("small_parts_all_closed");
}
