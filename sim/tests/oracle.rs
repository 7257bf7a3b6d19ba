//! The oracle's rules, each on the smallest history that needs it.
//!
//! Rules OR1, OR2, OR3, OR4, OR5 and OR6.

use rowen_engine::planted::must_be_found;
use rowen_sim::oracle::{Oracle, Since, Vol};
use rowen_sim::stamp::{self, Found};

const ZEROS: Found = Found::Zeros;

fn with_volume(sectors: u64) -> (Oracle, Vol) {
    let mut oracle = Oracle::default();
    let (vol, command) = oracle.begin_create(sectors);
    oracle.end_create(command, true);
    (oracle, vol)
}

/// A write that is answered before anything else happens.
fn wrote(oracle: &mut Oracle, vol: Vol, sector: u64, count: u64) -> u64 {
    let request = oracle.begin_write(vol, sector, count, false, &[]);
    oracle.end_write(vol, sector, count, request, true);
    request
}

fn by(volume: Vol, sector: u64, version: u64) -> Found {
    Found::Stamp { volume, sector, version }
}

fn now(oracle: &mut Oracle) -> Since {
    Since::Read(oracle.tick())
}

#[test]
fn a_read_sees_the_last_write_or_one_under_way() {
    let (mut oracle, vol) = with_volume(8);
    let first = wrote(&mut oracle, vol, 0, 1);
    let since = now(&mut oracle);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, first)], since).is_ok());
    assert!(oracle.judge(vol, 0, &[ZEROS], since).unwrap_err().contains("LOST"));
    let second = oracle.begin_write(vol, 0, 1, false, &[]);
    let since = now(&mut oracle);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, first)], since).is_ok());
    assert!(oracle.judge(vol, 0, &[by(vol, 0, second)], since).is_ok());
    oracle.end_write(vol, 0, 1, second, true);
    let since = now(&mut oracle);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, first)], since).unwrap_err().contains("too old"));
}

#[test]
fn of_overlapping_writes_a_read_settles_the_last() {
    let (mut oracle, vol) = with_volume(8);
    let (a, b) = (oracle.begin_write(vol, 0, 1, false, &[]), oracle.begin_write(vol, 0, 1, false, &[]));
    oracle.end_write(vol, 0, 1, a, true);
    oracle.end_write(vol, 0, 1, b, true);
    let since = now(&mut oracle);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, b)], since).is_ok());
    assert!(oracle.judge(vol, 0, &[by(vol, 0, a)], since).is_ok());
    oracle.settle(vol, 0, &[by(vol, 0, a)]);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, a)], since).is_ok());
    assert!(oracle.judge(vol, 0, &[by(vol, 0, b)], since).is_err());
    let began = oracle.tick();
    oracle.flushed(vol, began);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, b)], Since::PowerLoss).is_err(), "recovery replays in run order");
}

#[test]
fn power_loss_takes_what_was_not_flushed_and_death_nothing() {
    let (mut oracle, vol) = with_volume(8);
    let first = wrote(&mut oracle, vol, 0, 1);
    let began = oracle.tick();
    let second = wrote(&mut oracle, vol, 0, 1);
    assert!(oracle.judge(vol, 0, &[ZEROS], Since::PowerLoss).is_ok());
    oracle.flushed(vol, began);
    assert!(oracle.judge(vol, 0, &[ZEROS], Since::PowerLoss).is_err());
    assert!(oracle.judge(vol, 0, &[by(vol, 0, first)], Since::PowerLoss).is_ok(), "written after the flush began");
    assert!(oracle.judge(vol, 0, &[by(vol, 0, first)], Since::Death).is_err());
    assert!(oracle.judge(vol, 0, &[by(vol, 0, second)], Since::Death).is_ok());
}

#[test]
fn a_failed_write_may_be_there_or_not_until_it_is_written_again() {
    let (mut oracle, vol) = with_volume(8);
    let first = wrote(&mut oracle, vol, 0, 1);
    let failed = oracle.begin_write(vol, 0, 1, false, &[]);
    oracle.end_write(vol, 0, 1, failed, false);
    let since = now(&mut oracle);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, first)], since).is_ok());
    assert!(oracle.judge(vol, 0, &[by(vol, 0, failed)], since).is_ok());
    oracle.settle(vol, 0, &[by(vol, 0, first)]);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, failed)], Since::Death).is_ok(), "opened again, its record may count");
    let second = wrote(&mut oracle, vol, 0, 1);
    let since = now(&mut oracle);
    assert!(oracle.judge(vol, 0, &[by(vol, 0, failed)], since).is_err());
    assert!(oracle.judge(vol, 0, &[by(vol, 0, second)], since).is_ok());
}

#[test]
fn foreign_misplaced_and_broken_sectors_are_distinguished() {
    let (mut oracle, vol) = with_volume(8);
    let request = wrote(&mut oracle, vol, 0, 2);
    let since = now(&mut oracle);
    let verdict = |found: Found| oracle.judge(vol, 0, &[found], since).unwrap_err();
    assert!(verdict(by(vol, 1, request)).contains("MISPLACED"));
    assert!(verdict(by(vol + 1, 0, 77)).contains("LEAK"));
    assert!(verdict(Found::Rubbish).contains("RUBBISH"));
}

#[test]
fn a_snapshot_holds_one_moment_for_ever() {
    let (mut oracle, vol) = with_volume(8);
    let before = wrote(&mut oracle, vol, 0, 1);
    let during = oracle.begin_write(vol, 1, 1, false, &[]);
    let (snapshots, command) = oracle.begin_snapshot(&[vol]);
    let snapshot = snapshots[0];
    assert!(oracle.judge_whole(snapshot, &[by(vol, 0, before); 1], Since::PowerLoss).is_err(), "wrong size");
    oracle.end_create(command, true);
    oracle.end_write(vol, 1, 1, during, true);
    let after = wrote(&mut oracle, vol, 0, 1);
    let since = now(&mut oracle);
    assert!(oracle.judge(snapshot, 0, &[by(vol, 0, before), ZEROS], since).is_ok());
    assert!(oracle.judge(snapshot, 0, &[by(vol, 0, before), by(vol, 1, during)], since).is_ok());
    assert!(oracle.judge(snapshot, 0, &[by(vol, 0, after)], since).is_err());
    assert!(oracle.judge(snapshot, 0, &[ZEROS], Since::PowerLoss).is_err(), "its command makes it durable");
    assert!(oracle.judge(vol, 0, &[ZEROS], Since::PowerLoss).is_err(), "and what its origin held");
    oracle.settle(snapshot, 0, &[by(vol, 0, before), ZEROS]);
    assert!(oracle.judge(snapshot, 1, &[by(vol, 1, during)], since).is_err());
}

#[test]
fn an_atomic_request_is_whole_or_not_there() {
    let (mut oracle, vol) = with_volume(8);
    let old = wrote(&mut oracle, vol, 0, 4);
    let new = oracle.begin_write(vol, 0, 4, false, &[(0, 4)]);
    oracle.end_write(vol, 0, 4, new, true);
    let found =
        |versions: [u64; 4]| versions.iter().enumerate().map(|(at, &v)| by(vol, at as u64, v)).collect::<Vec<_>>();
    assert!(oracle.judge(vol, 0, &found([old; 4]), Since::PowerLoss).is_ok());
    assert!(oracle.judge(vol, 0, &found([new; 4]), Since::PowerLoss).is_ok());
    assert!(oracle.judge(vol, 0, &found([old, new, new, new]), Since::PowerLoss).unwrap_err().contains("TORN"));
    let later = wrote(&mut oracle, vol, 0, 1);
    assert!(oracle.judge(vol, 0, &found([later, new, new, new]), Since::PowerLoss).is_ok());
    assert!(oracle.judge(vol, 0, &found([later, old, old, old]), Since::PowerLoss).unwrap_err().contains("TORN"));
}

#[test]
fn a_revert_under_way_left_the_old_or_the_new() {
    let (mut oracle, vol) = with_volume(2);
    let old = wrote(&mut oracle, vol, 0, 2);
    let (snapshots, command) = oracle.begin_snapshot(&[vol]);
    oracle.end_create(command, true);
    let new = wrote(&mut oracle, vol, 0, 2);
    let began = oracle.tick();
    oracle.flushed(vol, began);
    let command = oracle.begin_revert(vol, snapshots[0], true);
    let both = |version| [by(vol, 0, version), by(vol, 1, version)];
    let mixed = [by(vol, 0, old), by(vol, 1, new)];
    assert!(oracle.judge_whole(vol, &both(old), Since::PowerLoss).is_ok());
    assert!(oracle.judge_whole(vol, &both(new), Since::PowerLoss).is_ok());
    assert!(oracle.judge_whole(vol, &mixed, Since::PowerLoss).is_err());
    assert!(oracle.is_next(vol, &both(old), Since::PowerLoss));
    assert!(oracle.is_old(vol, &both(new), Since::PowerLoss));
    oracle.end_revert(command, true);
    assert!(oracle.judge_whole(vol, &both(old), Since::PowerLoss).is_ok());
    assert!(oracle.judge_whole(vol, &both(new), Since::PowerLoss).is_err());
}

/// OR1 to OR6: an oracle that overlooks something is found.
#[test]
fn an_oracle_that_is_blind_is_found() {
    must_be_found("stale_read_accepted", a_read_sees_the_last_write_or_one_under_way);
    must_be_found("power_loses_all", power_loss_takes_what_was_not_flushed_and_death_nothing);
    must_be_found("death_loses_all", power_loss_takes_what_was_not_flushed_and_death_nothing);
    must_be_found("snapshot_of_any_version", a_snapshot_holds_one_moment_for_ever);
    must_be_found("torn_is_whole", an_atomic_request_is_whole_or_not_there);
    must_be_found("interrupted_command_unchecked", a_revert_under_way_left_the_old_or_the_new);
}

#[test]
fn pruning_changes_no_verdict() {
    let (mut oracle, vol) = with_volume(1);
    let versions: Vec<u64> = (0..5).map(|_| wrote(&mut oracle, vol, 0, 1)).collect();
    let began = oracle.tick();
    oracle.flushed(vol, began);
    let late = wrote(&mut oracle, vol, 0, 1);
    let verdicts = |oracle: &Oracle| {
        let all = versions.iter().chain([&late]);
        all.map(|&v| oracle.judge(vol, 0, &[by(vol, 0, v)], Since::PowerLoss).is_ok()).collect::<Vec<_>>()
    };
    let before = verdicts(&oracle);
    assert_eq!(before, [false, false, false, false, true, true]);
    oracle.prune();
    assert_eq!(verdicts(&oracle), before);
}

#[test]
fn stamps_read_back_and_breaks_show() {
    let mut bytes = [0u8; 1024];
    assert_eq!(stamp::read(&bytes[..512]), Found::Zeros);
    stamp::stamp(&mut bytes, 3, 40, 99);
    assert_eq!(stamp::read(&bytes[512..]), by(3, 41, 99));
    for at in (0..512).step_by(37) {
        let mut broken = bytes;
        broken[at] ^= 1;
        assert_eq!(stamp::read(&broken[..512]), Found::Rubbish, "byte {at}");
    }
}
