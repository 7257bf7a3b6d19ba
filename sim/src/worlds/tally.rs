//! Counts of events in worlds, by name.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name. Names of faults begin with `fault: `.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub fn count(&mut self, what: &'static str) {
        self.add_to(what, 1);
    }

    pub fn add_to(&mut self, what: &'static str, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    pub fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Tally) {
        other.counts.iter().for_each(|(what, count)| self.add_to(what, *count));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(what, count)| writeln!(f, "{count:>12}  {what}"))
    }
}
