//! All tests on simulated disks, as one program. So the engine's code is compiled once, and the tests share the
//! processors. A test file must be named here: a test checks that. `cargo test -p rowen-sim --test all gates` runs the
//! tests of `gates.rs`.
#![allow(clippy::unwrap_used)]

mod aborted_writes;
mod aging;
mod allocatable;
mod backing;
mod bad_journal_blocks;
mod bad_metadata_blocks;
mod bad_sectors;
mod bandwidth;
mod bookmarks;
mod check_during_writes;
mod checkpoint_during_writes;
mod commit_in_parts;
mod conversions;
mod crash;
mod damage;
mod diff;
mod discards;
mod disk;
mod errors;
mod exec;
mod failing_disks;
mod figures;
mod free_space_search;
mod fuzz_image;
mod gates;
mod golden;
mod group_changes;
mod group_snapshots;
mod holds;
mod io_counts;
mod journal_copies;
mod large_frees;
mod members;
mod merge_races;
mod metadata_repairs;
mod mirror_layer;
mod mirrors;
mod model;
mod moved_legs;
mod moves;
mod moves_aborted;
mod no_metadata_space;
mod no_space_wakeup;
mod oracle;
mod orphans;
mod physical_volumes;
mod points;
mod pools;
mod pv_extents;
mod read_only;
mod reads_during_pv_removal;
mod rehome;
mod reopen_full_metadata;
mod replay_in_parts;
mod revived_blocks;
mod scrubs;
mod shrink;
mod slow_frame;
mod slow_reads;
mod stale_pvs;
mod stripes;
mod three_years;
mod unread_nodes;
mod unreadable_superblocks;
mod waiting_merges;
mod worlds;
mod wrong_free_counters;
mod years;

use std::collections::BTreeSet;

#[test]
fn every_file_of_tests_is_named_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_test =
        |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists();
    let names = entries.filter(is_test).map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let files: BTreeSet<String> = names.filter(|name| name != "main").collect();
    let lines = include_str!("main.rs").lines();
    let named = lines.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).map(str::to_owned).collect();
    assert_eq!(files, named);
}
