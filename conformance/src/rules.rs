//! The lists of differences: which commands may differ in what, and why. This module owns their format:
//!
//! ```text
//! # a comment
//! why: what the difference is good for, or what it takes to end it
//! command: a pattern of the commands that it is about
//! script: a pattern of the scripts (any, when it is left out)
//! occurrence: which of the same commands in a script, from 1 (any, when it is left out)
//! stream: stdout | stderr | nodes | exit (any, when it is left out)
//! mask: a pattern; on both sides, what it finds becomes ~
//! lvm-only: a pattern; lines of LVM2's side in which it is found are dropped
//! rowen-only: a pattern; lines of Rowen's side in which it is found are dropped
//! any-order: a pattern; on both sides, the lines in which it is found are sorted
//! ```
//!
//! An entry ends with an empty line and may have many of the last four. It applies to commands that differ, and each of its
//! patterns must change something of one of them.

use crate::transcript::{Outcome, Step, Stream};
use regex::Regex;
use std::cell::Cell;

/// Whose outcome it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Lvm,
    Rowen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Mask,
    Drop(Side),
    /// The lines that match come in any order.
    Sort,
}

struct Pattern {
    action: Action,
    regex: Regex,
    line: usize,
    used: Cell<bool>,
}

/// An explained difference.
pub struct Rule {
    /// Its reason.
    pub why: String,
    command: Regex,
    script: Option<Regex>,
    occurrence: Option<usize>,
    stream: Option<Stream>,
    patterns: Vec<Pattern>,
}

impl Rule {
    /// Whether it is about this command.
    pub fn concerns(&self, step: &Step) -> bool {
        self.command.is_match(&step.command)
            && self.script.as_ref().is_none_or(|pattern| pattern.is_match(&step.script))
            && self.occurrence.is_none_or(|number| number == step.occurrence)
    }

    /// Takes the explained difference out of one side. True when there was something to take.
    pub fn apply(&self, side: Side, outcome: &mut Outcome) -> bool {
        let mut changed = false;
        for stream in Stream::ALL.into_iter().filter(|stream| self.stream.is_none_or(|own| own == *stream)) {
            for pattern in &self.patterns {
                let text = outcome.get_mut(stream);
                let new = match pattern.action {
                    Action::Mask => pattern.regex.replace_all(text, "~").into_owned(),
                    Action::Drop(dropped) if dropped == side => text
                        .split_inclusive('\n')
                        .filter(|line| !pattern.regex.is_match(line.trim_end_matches('\n')))
                        .collect(),
                    Action::Drop(_) => continue,
                    Action::Sort => sorted(text, &pattern.regex),
                };
                if new != *text {
                    pattern.used.set(true);
                    changed = true;
                    *text = new;
                }
            }
        }
        changed
    }

    /// The lines of the list whose patterns changed nothing.
    pub fn unused(&self) -> impl Iterator<Item = usize> {
        self.patterns.iter().filter(|pattern| !pattern.used.get()).map(|pattern| pattern.line)
    }
}

/// The text with those of its lines that match in order, in the places where such lines were.
fn sorted(text: &str, regex: &Regex) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_one = |line: &&&str| regex.is_match(line.trim_end_matches('\n'));
    let mut matching: Vec<&str> = lines.iter().filter(is_one).copied().collect();
    matching.sort_unstable();
    let mut matching = matching.into_iter();
    lines.iter().map(|line| if is_one(&line) { matching.next().unwrap_or(line) } else { line }).collect()
}

/// Reads a list.
pub fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    let mut entry: Vec<(usize, &str, &str)> = Vec::new();
    for (number, line) in text.lines().chain([""]).enumerate().map(|(index, line)| (index + 1, line)) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            if !entry.is_empty() {
                rules.push(rule(&entry)?);
                entry.clear();
            }
            continue;
        }
        let (key, value) = line.split_once(": ").ok_or_else(|| format!("line {number}: `key: value` is expected"))?;
        entry.push((number, key, value));
    }
    Ok(rules)
}

fn rule(entry: &[(usize, &str, &str)]) -> Result<Rule, String> {
    let first = entry[0].0;
    let (mut why, mut command, mut script, mut occurrence, mut stream) = (None, None, None, None, None);
    let mut patterns = Vec::new();
    for &(line, key, value) in entry {
        let regex = || Regex::new(&format!("(?m){value}")).map_err(|e| format!("line {line}: {e}"));
        let mut add = |action| -> Result<(), String> {
            patterns.push(Pattern { action, regex: regex()?, line, used: Cell::new(false) });
            Ok(())
        };
        match key {
            "why" => why = Some(value.to_owned()),
            "command" => command = Some(regex()?),
            "script" => script = Some(regex()?),
            "occurrence" => occurrence = Some(value.parse().map_err(|e| format!("line {line}: {e}"))?),
            "stream" => {
                stream = Some(Stream::parse(value).ok_or_else(|| format!("line {line}: no stream is called {value}"))?);
            }
            "mask" => add(Action::Mask)?,
            "lvm-only" => add(Action::Drop(Side::Lvm))?,
            "rowen-only" => add(Action::Drop(Side::Rowen))?,
            "any-order" => add(Action::Sort)?,
            _ => return Err(format!("line {line}: no key is called {key}")),
        }
    }
    let missing = |what: &str| format!("line {first}: the entry has no `{what}`");
    if patterns.is_empty() {
        return Err(missing("mask"));
    }
    Ok(Rule {
        why: why.ok_or_else(|| missing("why"))?,
        command: command.ok_or_else(|| missing("command"))?,
        script,
        occurrence,
        stream,
        patterns,
    })
}
