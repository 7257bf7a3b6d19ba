#![allow(clippy::unwrap_used, reason = "tests")]

use crate::compare::compare;
use crate::{rules, transcript};

const LVM: &str =
    "######## one\n$ vgs\nO|  VG  VFree\nO|  cf0 8.00m\nrc=0\n\n$ lvremove cf0/x\nE|  gone\nN|-/dev/cf0/x l\nrc=5\n\n";

fn verdict(rowen: &str, list: &str) -> (usize, usize, usize, usize) {
    let rules = rules::parse(list).unwrap();
    let rules: Vec<_> = rules.iter().collect();
    let verdict = compare(&transcript::parse(LVM).unwrap(), &transcript::parse(rowen).unwrap(), &rules);
    let unused = rules.iter().map(|rule| rule.unused().count()).sum();
    (verdict.equal, verdict.explained, verdict.differences.len(), unused)
}

#[test]
fn equal_transcripts_are_equal() {
    assert_eq!(verdict(LVM, ""), (2, 0, 0, 0));
}

#[test]
fn each_stream_can_differ() {
    for (from, to) in
        [("8.00m", "7.00m"), ("E|  gone", "O|  gone"), ("rc=5", "rc=3"), ("N|-", "N|+"), ("E|  gone\n", "")]
    {
        assert_eq!(verdict(&LVM.replace(from, to), ""), (1, 0, 1, 0), "{from} -> {to}");
    }
}

#[test]
fn identifiers_and_times_are_no_differences() {
    let with = |uuid: &str, time: &str| format!("######## a\n$ vgs -v\nO|  {uuid} {time} |\nrc=0\n");
    let lvm = with("UUORns-1ekI-5a52-Na9K-dpJb-sVnb-z2KydV", "2026-11-20 18:13:34 +0000");
    let rowen = with("R5wAqV-pW6P-Ri8u-OaDV-XKy4-3ivt-MEynig", "2027-01-02 03:04:05 +0000");
    let found = compare(&transcript::parse(&lvm).unwrap(), &transcript::parse(&rowen).unwrap(), &[]);
    assert_eq!((found.equal, found.differences.len()), (1, 0));
}

#[test]
fn a_list_explains_its_own_commands_alone() {
    let rowen = LVM.replace("8.00m", "7.00m").replace("gone", "not found");
    let free = "why: metadata has its place in the group\ncommand: ^vgs\nstream: stdout\nmask: \\d\\.00m\n";
    assert_eq!(verdict(&rowen, free), (0, 1, 1, 0));
    assert_eq!(verdict(&rowen, &free.replace("^vgs", "^lvs")), (0, 0, 2, 1));
    let sentence = "why: better\ncommand: ^lvremove\nlvm-only: ^  gone$\nrowen-only: not found\n";
    assert_eq!(verdict(&rowen, &format!("{free}\n{sentence}")), (0, 2, 0, 0));
}

#[test]
fn lines_may_come_in_any_order() {
    let theirs = "######## a\n$ vgscan\nO|  head\nO|  b\nO|  a\nrc=0\n";
    let steps = |text: &str| transcript::parse(text).unwrap();
    let found = |ours: &str| {
        let rules = rules::parse("why: no order\ncommand: ^vgscan\nany-order: ^  [ab]$\n").unwrap();
        compare(&steps(theirs), &steps(ours), &rules.iter().collect::<Vec<_>>()).differences.len()
    };
    assert_eq!(found(&theirs.replace("O|  b\nO|  a", "O|  a\nO|  b")), 0);
    assert_eq!(found(&theirs.replace("O|  b\nO|  a", "O|  a\nO|  a")), 1);
    assert_eq!(found("######## a\n$ vgscan\nO|  a\nO|  head\nO|  b\nrc=0\n"), 1);
}

#[test]
fn what_explains_nothing_is_reported() {
    let list = "why: none\ncommand: .\nmask: \\d\\.00m\nmask: never there\n";
    assert_eq!(verdict(LVM, list), (2, 0, 0, 2));
    assert_eq!(verdict(&LVM.replace("8.00m", "7.00m"), list), (1, 1, 0, 1));
}

#[test]
fn an_entry_that_is_proposed_explains_exactly_its_difference() {
    let changes = [("8.00m", "(7.00m"), ("E|  gone", "E|  gone\nE|  gone\nE|other"), ("rc=5", "rc=3"), ("N|-", "N|+")];
    for (from, to) in changes {
        let rowen = LVM.replace(from, to);
        let steps = (transcript::parse(LVM).unwrap(), transcript::parse(&rowen).unwrap());
        let entries = compare(&steps.0, &steps.1, &[]).entries.concat();
        assert_eq!(verdict(&rowen, &entries), (1, 1, 0, 0), "{entries}");
        assert_ne!(verdict(LVM, &entries).3, 0, "{entries}");
    }
    let swapped = LVM.replace("O|  VG  VFree\nO|  cf0 8.00m", "O|  cf0 8.00m\nO|  VG  VFree");
    let steps = (transcript::parse(LVM).unwrap(), transcript::parse(&swapped).unwrap());
    let entries = compare(&steps.0, &steps.1, &[]).entries.concat();
    assert_eq!(verdict(&swapped, &entries), (1, 1, 0, 0), "{entries}");
}

#[test]
fn a_list_that_is_wrong_is_refused() {
    for list in [
        "command: .\nmask: x\n",
        "why: x\nmask: x\n",
        "why: x\ncommand: .\n",
        "why: x\ncommand: (\nmask: x\n",
        "what\n",
    ] {
        assert!(rules::parse(list).is_err(), "{list}");
    }
}

#[test]
fn a_world_that_ends_early_is_reported() {
    assert!(transcript::parse(&LVM[..LVM.len() - 8]).is_err());
    let (_, _, differences, _) = verdict(&LVM[..LVM.find("$ lvremove").unwrap()], "");
    assert_eq!(differences, 1);
}
