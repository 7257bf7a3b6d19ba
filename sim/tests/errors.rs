//! Every request of a scenario fails once: no panic, no hang, the error is reported, and the group is sound afterwards.
//!
//! Rule J5.

use rowen_engine::disk::DiskOpKind;
use rowen_engine::group::Config;
use rowen_engine::planted::must_be_found;
use rowen_sim::crash::Setup;
use rowen_sim::scenario::{self, Step};
use rowen_sim::sweep::{FailedRequests, FaultOutcome, fail_at};

/// How many failures an operation reported.
fn sweep_on(setup: &Setup, kind: DiskOpKind, extent: FailedRequests) -> u32 {
    let mut reported = 0;
    let mut failures = Vec::new();
    for (name, steps) in chosen() {
        for number in 0.. {
            match fail_at(setup, &steps, kind, number, extent, 1 + number) {
                Ok(FaultOutcome::NotReached) => break,
                Ok(FaultOutcome::Error) => reported += 1,
                Ok(FaultOutcome::Nothing) => {}
                Err(e) => failures.push(format!(
                    "ROWEN_SCENARIO={name} ROWEN_FAULT={kind:?}:{number}:{extent:?} cargo test -p rowen-sim --test all errors::replay \
                     -- --nocapture --ignored: {e}"
                )),
            }
            if failures.len() > 4 {
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    reported
}

fn sweep(kind: DiskOpKind, extent: FailedRequests) {
    let reported = sweep_on(&Setup::small(2, 24), kind, extent);
    assert!(reported > 0, "no failure of a {kind:?} was ever reported");
}

fn chosen() -> Vec<(&'static str, Vec<Step>)> {
    let wanted = ["snapshots", "group-snapshot", "revert", "resize", "checkpoints", "queue-depth"];
    scenario::scripted().into_iter().filter(|(name, _)| wanted.contains(name)).collect()
}

#[test]
fn one_write_fails() {
    sweep(DiskOpKind::Write, FailedRequests::One);
}

#[test]
fn one_read_fails() {
    let reported = sweep_on(&Setup::small(2, 24), DiskOpKind::Read, FailedRequests::One);
    assert_eq!(reported, 0, "it is tried again, so nobody needs to know");
}

#[test]
fn a_read_that_is_tried_once_is_found() {
    let setup = Setup::small(2, 24);
    let setup = Setup { config: Config { planted: Some("read_not_retried"), ..setup.config.clone() }, ..setup };
    assert!(sweep_on(&setup, DiskOpKind::Read, FailedRequests::One) > 0, "the planted bug was not found");
}

#[test]
fn one_flush_fails() {
    sweep(DiskOpKind::Flush, FailedRequests::One);
}

/// Writes that a disk lost with a failed flush are still lost after a flush that succeeds.
#[test]
fn a_flush_that_is_tried_again_is_found() {
    must_be_found("flush_tried_again", one_flush_fails);
}

#[test]
fn all_writes_fail_from_some_point_on() {
    sweep(DiskOpKind::Write, FailedRequests::AllFrom);
}

#[test]
fn all_flushes_fail_from_some_point_on() {
    sweep(DiskOpKind::Flush, FailedRequests::AllFrom);
}

#[test]
fn all_reads_fail_from_some_point_on() {
    sweep(DiskOpKind::Read, FailedRequests::AllFrom);
}

/// One failure alone: `ROWEN_SCENARIO=NAME ROWEN_FAULT=KIND:NUMBER:EXTENT`, as the sweep prints them.
#[test]
#[ignore = "only with the environment that names a failure"]
fn replay() {
    let name = std::env::var("ROWEN_SCENARIO").expect("ROWEN_SCENARIO is set");
    let fault = std::env::var("ROWEN_FAULT").expect("ROWEN_FAULT is set");
    let parts: Vec<&str> = fault.split(':').collect();
    let kinds = [DiskOpKind::Read, DiskOpKind::Write, DiskOpKind::Flush];
    let kind = kinds.into_iter().find(|kind| format!("{kind:?}") == parts[0]).expect("Read, Write or Flush");
    let extent = if parts[2] == "One" { FailedRequests::One } else { FailedRequests::AllFrom };
    let number: u64 = parts[1].parse().unwrap();
    let steps = scenario::scripted().into_iter().find(|(known, _)| *known == name).expect("a scripted scenario").1;
    let reported = fail_at(&Setup::small(2, 24), &steps, kind, number, extent, 1 + number);
    println!("{reported:?}");
    assert!(reported.is_ok());
}
