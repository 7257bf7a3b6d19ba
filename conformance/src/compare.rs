//! Two transcripts side by side. This module owns the verdict: each command is equal, explained by a list, or a difference.

use crate::normal::Normaliser;
use crate::rules::{Rule, Side};
use crate::transcript::{Outcome, Step, Stream};
use std::fmt::Write;

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Commands that did the same in both worlds.
    pub equal: usize,
    /// Commands that an entry of the lists explains.
    pub explained: usize,
    /// What no list explains, in words.
    pub differences: Vec<String>,
}

/// Compares what the same commands did on LVM2 and on Rowen.
pub fn compare(lvm: &[Step], rowen: &[Step], rules: &[&Rule]) -> Verdict {
    let mut verdict = Verdict::default();
    let normaliser = Normaliser::new();
    for (index, theirs) in lvm.iter().enumerate() {
        let Some(ours) =
            rowen.get(index).filter(|ours| (&ours.script, &ours.command) == (&theirs.script, &theirs.command))
        else {
            verdict.differences.push(format!("{}: `{}` was not run on both", theirs.script, theirs.command));
            return verdict;
        };
        let (mut left, mut right) = (normaliser.apply(&theirs.outcome), normaliser.apply(&ours.outcome));
        if left == right {
            verdict.equal += 1;
            continue;
        }
        for rule in rules.iter().filter(|rule| rule.concerns(&theirs.script, &theirs.command)) {
            rule.apply(Side::Lvm, &mut left);
            rule.apply(Side::Rowen, &mut right);
        }
        if left == right {
            verdict.explained += 1;
        } else {
            verdict.differences.push(describe(theirs, &left, &right));
        }
    }
    if rowen.len() > lvm.len() {
        verdict.differences.push(format!("{} commands were run on Rowen alone", rowen.len() - lvm.len()));
    }
    verdict
}

fn describe(step: &Step, lvm: &Outcome, rowen: &Outcome) -> String {
    let mut text = format!("{}: {}\n", step.script, step.command);
    for stream in Stream::ALL {
        let (left, right) = (lvm.get(stream), rowen.get(stream));
        if left == right {
            continue;
        }
        for (who, own, other) in [("lvm  ", left, right), ("rowen", right, left)] {
            for line in own.lines().filter(|line| !other.lines().any(|same| same == *line)) {
                let _infallible = writeln!(text, "    {who} {stream}: {line}");
            }
        }
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        if sorted(left) == sorted(right) {
            let _infallible = writeln!(text, "    the lines of {stream} are in another order");
        }
    }
    text
}
