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
    /// The same, each as an entry of a list that says exactly this.
    pub entries: Vec<String>,
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
        for rule in rules.iter().filter(|rule| rule.concerns(theirs)) {
            rule.apply(Side::Lvm, &mut left);
            rule.apply(Side::Rowen, &mut right);
        }
        if left == right {
            verdict.explained += 1;
        } else {
            verdict.differences.push(describe(theirs, &left, &right));
            verdict.entries.push(entry(theirs, &left, &right));
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

/// An entry of a list for what one command does differently: lines that only one side has, or, when the difference is in their
/// order, all of them.
fn entry(step: &Step, lvm: &Outcome, rowen: &Outcome) -> String {
    let exactly = |text: &str| format!("^{}$", regex::escape(text));
    let mut text = String::new();
    for stream in Stream::ALL {
        let (left, right) = (lvm.get(stream), rowen.get(stream));
        if left == right {
            continue;
        }
        let (command, script) = (exactly(&step.command), exactly(&step.script));
        let _infallible = writeln!(
            text,
            "why: not as in LVM2 yet\ncommand: {command}\nscript: {script}\noccurrence: {}\nstream: {stream}",
            step.occurrence
        );
        let mut said: Vec<String> = Vec::new();
        for (side, own, other) in [("lvm-only", left, right), ("rowen-only", right, left)] {
            for line in own.lines().filter(|line| !other.lines().any(|same| same == *line)) {
                said.push(format!("{side}: {}", exactly(line)));
            }
        }
        let rest = |own: &str, other: &str| -> Vec<String> {
            own.lines().filter(|line| other.lines().any(|same| same == *line)).map(str::to_owned).collect()
        };
        if rest(left, right) != rest(right, left) {
            said.extend(["lvm-only: .*".to_owned(), "rowen-only: .*".to_owned()]);
        }
        let mut seen = std::collections::BTreeSet::new();
        said.retain(|line| seen.insert(line.clone()));
        for line in said {
            let _infallible = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    text
}
