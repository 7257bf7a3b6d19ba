//! Whole worlds from numbered seeds: clients, commands, deaths, power cuts and faults. `ROWEN_SIM_SEEDS` scales their
//! number (in percent), `ROWEN_SIM_WORLDS` sets it. A world that fails prints the line that replays it. docs/testing.md
//! says what a world is.
//!
//! Rules SW1, SW2 and SW3.

use rowen_engine::planted::must_be_found;
use rowen_sim::effort;
use rowen_sim::worlds::plan::Plan;
use rowen_sim::worlds::shrink::shrink;
use rowen_sim::worlds::tally::Tally;
use rowen_sim::worlds::{Options, Seen, run};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of worlds that meet all events together.
const USUAL: u64 = 2000;

/// Runs `one` for numbers from 1 on, on all cores, until one of them returns that it is enough.
fn each<T: Send>(count: u64, one: impl Fn(u64) -> Option<T> + Sync) -> Vec<T> {
    let next = AtomicU64::new(1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        let mut all = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number > count {
                return all;
            }
            match one(number) {
                Some(value) => all.push(value),
                None => next.store(count + 1, Ordering::Relaxed),
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn worlds() {
    let failures = parking_lot::Mutex::new(Vec::new());
    let options = Options::default();
    let count = effort::worlds(USUAL);
    let seen = each(count, |seed| match run(seed, &options) {
        Ok(seen) => Some(seen),
        Err(broken) => {
            let mut failures = failures.lock();
            failures.push(broken);
            (failures.len() < 3).then(Seen::default)
        }
    });
    let failures = failures.into_inner();
    let shown: Vec<String> = failures.iter().map(|broken| shrink(broken, &options).to_string()).collect();
    assert!(failures.is_empty(), "{}", shown.join("\n"));
    let mut tally = Tally::default();
    seen.iter().for_each(|seen| tally.add(&seen.tally));
    println!("{tally}");
    // All worlds together meet all events. A part of them need not.
    let must = ["groups filled up", "refused: no space", "physical volumes joined", "physical volumes left"];
    let faults = options.faults.iter().map(|fault| fault.name());
    for what in must.into_iter().chain(faults) {
        assert!(count < USUAL || tally.of(what) > 0, "no world met this: {what}\n{tally}");
    }
}

#[test]
fn a_seed_is_one_world() {
    let differ = each(60, |seed| {
        let options = Options::default();
        Some((seed, run(seed, &options).ok() != run(seed, &options).ok()))
    });
    let differ: Vec<_> = differ.into_iter().filter(|(_, differs)| *differs).collect();
    assert!(differ.is_empty(), "not the same when they are run again: {differ:?}");
}

/// SW2.
fn a_panic_is_a_sentence(bug: &'static str) {
    let broken = run(1, &Options { planted: Some(bug), ..Options::default() }).expect_err("it panics");
    assert!(broken.to_string().contains("PANIC: this world was asked to panic"), "{broken}");
}

#[test]
fn a_world_that_panics_ends_with_a_sentence() {
    a_panic_is_a_sentence("world_panics");
    must_be_found("panic_ignored", || a_panic_is_a_sentence("panic_ignored"));
}

/// SW1: state that one world leaves for the next is found.
#[test]
fn worlds_that_know_of_each_other_are_found() {
    let options = Options { planted: Some("worlds_share_random"), ..Options::default() };
    assert!((1..=20).any(|seed| run(seed, &options).ok() != run(seed, &options).ok()));
}

/// SW3: an item that is dropped changes no other.
#[test]
fn an_item_that_is_dropped_changes_no_other() {
    let faults = Options::default().faults;
    for seed in 1..=20 {
        let mut plan = Plan::new(seed, &faults);
        let said = |plan: &Plan| plan.items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>();
        let all = said(&plan);
        let kept: Vec<usize> = (0..all.len()).filter(|number| number % 3 != 1).collect();
        plan.keep(&kept);
        let wanted: Vec<_> = kept.iter().map(|number| all[*number].clone()).collect();
        assert_eq!(said(&plan), wanted, "seed {seed}");
    }
}

#[test]
fn items_that_change_with_others_are_found() {
    must_be_found("items_are_renumbered", an_item_that_is_dropped_changes_no_other);
}

/// Bugs that worlds must find, each with a world that found it.
const FOUND: &[(&str, u64)] = &[
    ("early_ack", 75),
    ("no_flush", 1),
    // MB7: numbers of free extents end while a disk is out.
    ("unproven_outlive_extents", 2_704_399),
    // Two take free extents from each other.
    ("room_sought_for_ever", 3_125_653),
    ("reuse_early", 9),
    ("skip_crc", 2),
    ("stale_partial", 2),
    ("child_not_searched", 8),
    ("snapshot_not_durable", 5),
    ("stale_pv_accepted", 53),
    ("marker_takes_number", 2),
    ("fresh_in_place", 13),
    ("slot_assumed_unused", 137),
    ("freed_over_arena", 2),
    ("record_later", 100),
    ("head_kept", 84),
    ("orphans_stay_mapped", 20),
    ("shared_taken_over", 355),
    ("journal_not_needed", 11),
    ("lost_are_zeros", 12),
    ("missing_pv_not_recorded", 8),
    ("missing_data_rejected", 32),
    ("unproven_forgotten", 886),
    ("unproven_accepted", 886),
];

/// The same for bugs that take minutes.
const FOUND_LATE: &[(&str, u64)] = &[("merged_before_durable", 1260), ("read_below_cursor", 2202)];

/// A search that never finds anything proves nothing. The world that found the bug before is tried first. Another
/// engine makes other worlds from the same seeds, so more worlds are run than were needed.
fn find(bugs: &[(&'static str, u64)]) {
    for &(bug, before) in bugs {
        let options = Options { planted: Some(bug), ..Options::default() };
        let found = parking_lot::Mutex::new(None);
        let try_one = |seed| match run(seed, &options) {
            Ok(_) => Some(()),
            Err(broken) => {
                found.lock().get_or_insert(broken);
                None
            }
        };
        if try_one(before).is_some() {
            each(6000, try_one);
        }
        let found = found.into_inner();
        let found = found.unwrap_or_else(|| panic!("the planted bug {bug} was not found"));
        println!("{bug}, found by world {before} once: {found}");
    }
}

#[test]
fn finds_planted_bugs() {
    find(FOUND);
}

#[test]
#[ignore = "minutes: docs/testing.md has the command"]
fn finds_rare_planted_bugs() {
    find(FOUND_LATE);
}
