//! The examples of every target, and a few thousand changes of them, the same on every run.
//!
//! Rule FU4.
#![allow(clippy::unwrap_used)]

use rowen_fuzz::driver::{Fuzzer, Target, corpus};
use rowen_fuzz::targets::TARGETS;

/// Changes of each target's examples: `ROWEN_FUZZ` asks for more.
fn rounds() -> u64 {
    std::env::var("ROWEN_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(4000)
}

#[test]
fn every_target_takes_any_bytes() {
    let before = peak_bytes();
    for target in TARGETS {
        let examples = corpus(target.name);
        assert!(!examples.is_empty(), "{} has no examples", target.name);
        let mut fuzzer =
            Fuzzer::new(*target, examples, 1).unwrap_or_else(|failure| panic!("{}: {failure:?}", target.name));
        for _ in 0..rounds() {
            fuzzer.step().unwrap_or_else(|failure| panic!("{}: {failure:?}", target.name));
        }
    }
    let grown = peak_bytes() - before;
    assert!(grown < 1 << 30, "{grown} bytes were claimed");
}

/// From one example: all of them together may have every answer that a target gives.
#[test]
fn changes_lead_to_new_answers() {
    for target in TARGETS {
        let example = corpus(target.name).swap_remove(0);
        let mut fuzzer = Fuzzer::new(*target, vec![example], 1).unwrap();
        let first = fuzzer.answers();
        for _ in 0..1000 {
            fuzzer.step().unwrap_or_else(|failure| panic!("{}: {failure:?}", target.name));
        }
        assert!(fuzzer.answers() > first, "{}: the changes lead nowhere", target.name);
    }
}

/// A finder that finds nothing proves nothing.
#[test]
fn a_planted_panic_is_found() {
    let planted = |bytes: &[u8]| {
        let Some(rest) = bytes.strip_prefix(b"count ") else { return "no count".to_string() };
        let count =
            rest.iter().take_while(|byte| byte.is_ascii_digit()).fold(0u64, |n, byte| n * 10 + u64::from(byte - b'0'));
        format!("{}", count * 512)
    };
    let target = Target { name: "planted", run: planted };
    let mut fuzzer = Fuzzer::new(target, vec![b"count 17".to_vec()], 1).unwrap();
    let found = (0..4000).find_map(|_| fuzzer.step().err()).expect("the planted panic is found");
    assert!(found.what.contains("overflow"), "{found:?}");
}

/// The most address space that this process ever had: claims count, whether the bytes were touched or not.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
