//! Which snapshots of a policy stay.
//!
//! Invariants
//!
//! * BK1 Retention counts points in the order in which they were taken, and never compares their times with a clock:
//!   each period has a count, and keeps the newest point of each of that many hours, days, ... that have one. A clock
//!   that jumps costs each period one point at most.
//! * BK2 What is held stays, and so does the newest point. The last common base of a target is held (RP1), so it is never removed.
//! * BK3 One run removes at most half of a volume's points, the oldest first, unless all are asked for.

use rowen_engine::planted;
use std::collections::BTreeSet;
use std::fmt;

/// A span of time of which one point is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// Each point.
    Frequent,
    Hourly,
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

/// From the shortest to the longest.
pub const PERIODS: [Period; 6] =
    [Period::Frequent, Period::Hourly, Period::Daily, Period::Weekly, Period::Monthly, Period::Yearly];

impl Period {
    pub fn name(self) -> &'static str {
        match self {
            Period::Frequent => "frequent",
            Period::Hourly => "hourly",
            Period::Daily => "daily",
            Period::Weekly => "weekly",
            Period::Monthly => "monthly",
            Period::Yearly => "yearly",
        }
    }

    /// About how long it is.
    pub fn seconds(self) -> u64 {
        const DAY: u64 = 24 * 3600;
        match self {
            Period::Frequent => 900,
            Period::Hourly => 3600,
            Period::Daily => DAY,
            Period::Weekly => 7 * DAY,
            Period::Monthly => 30 * DAY,
            Period::Yearly => 365 * DAY,
        }
    }
}

/// How many points each period keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    counts: [u64; PERIODS.len()],
}

impl Keep {
    /// Reads `hourly:36 daily:30`.
    pub fn parse(text: &str) -> Result<Keep, String> {
        let mut keep = Keep::default();
        for word in text.split_whitespace() {
            let (name, count) = word.split_once(':').unwrap_or((word, ""));
            let Some(period) = PERIODS.iter().find(|period| period.name() == name) else {
                let names = PERIODS.map(Period::name).join(", ");
                return Err(format!("\"{name}\" is no period: these are {names}, each with a number, as in hourly:36"));
            };
            let number: u64 = count.parse().map_err(|_| format!("\"{word}\" has no number, as in {name}:30"))?;
            if keep.counts[*period as usize] > 0 {
                return Err(format!("\"{name}\" is given twice"));
            }
            if number > 100_000 {
                return Err(format!("\"{word}\" is more than a group has room for"));
            }
            keep.counts[*period as usize] = number;
        }
        Ok(keep)
    }

    pub fn count(&self, period: Period) -> u64 {
        self.counts[period as usize]
    }

    pub fn set(&mut self, period: Period, count: u64) {
        self.counts[period as usize] = count;
    }

    /// Whether it keeps nothing but the newest point.
    pub fn is_nothing(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// The shortest period that keeps something.
    pub fn shortest(&self) -> Option<Period> {
        PERIODS.into_iter().find(|period| self.count(*period) > 0)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = PERIODS.iter().filter(|period| self.count(**period) > 0);
        let words: Vec<String> = some.map(|period| format!("{}:{}", period.name(), self.count(*period))).collect();
        f.write_str(&words.join(" "))
    }
}

/// A point that a policy made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// What the clock said then, in seconds since 1970.
    pub made: u64,
    pub is_held: bool,
}

/// For which periods each of these is kept; they are from the oldest to the newest. `bucket`: which hour, day, ... a time is in.
pub fn kept(shots: &[Shot], keep: &Keep, bucket: impl Fn(Period, u64) -> i64) -> Vec<BTreeSet<Period>> {
    let mut kept = vec![BTreeSet::new(); shots.len()];
    let newest = shots.iter().map(|shot| shot.made).max().unwrap_or(0);
    for period in PERIODS {
        let mut left = keep.count(period);
        let mut last = None;
        for (shot, kept) in shots.iter().zip(&mut kept).rev() {
            let is_old = newest - shot.made > period.seconds() * keep.count(period);
            if left == 0 || is_old && planted::is("kept_by_age") {
                break;
            }
            // Of a period in which the clock jumped there may be several parts, each of which counts.
            let now = bucket(period, shot.made);
            if period == Period::Frequent || last != Some(now) {
                kept.insert(period);
                left -= 1;
            }
            last = Some(now);
        }
    }
    kept
}

/// Which of these may be removed now (BK1 to BK3), by their places. `all`: as many as the policy says.
pub fn removable(shots: &[Shot], keep: &Keep, all: bool, bucket: impl Fn(Period, u64) -> i64) -> Vec<usize> {
    let kept = kept(shots, keep, bucket);
    let last = shots.len().saturating_sub(1);
    let is_base = |shot: &Shot| shot.is_held && !planted::is("base_is_removed");
    let old = (0..shots.len()).filter(|at| kept[*at].is_empty() && !is_base(&shots[*at]) && *at != last);
    let most = if all || planted::is("removes_all_at_once") { usize::MAX } else { shots.len() / 2 };
    old.take(most).collect()
}

#[cfg(test)]
#[path = "retention_test.rs"]
mod tests;
