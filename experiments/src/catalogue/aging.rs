//! Years of snapshots: taken each hour and pruned, under overwrites, discards, and volumes that come and go. Nobody publishes it.
//!
//! `make experiments EXPERIMENT=aging`

use super::{Experiment, Sizes, UNUSED};
use crate::command::Result;
use crate::context::{Context, Form, Key, MIB, Quantity};
use crate::runner::Pass;
use crate::stack::{ORIGIN, System};
use crate::store::Store;
use crate::streams::{self, Through};
use crate::writes::{self, Times, Writes};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const EXPERIMENT: Experiment = Experiment {
    name: "aging",
    title: "Years of snapshots",
    source: None,
    question: "What are writes, reads and openings like after years of hourly snapshots that were pruned, in space that is nearly full?",
    expected: "Rowen: as on the first day. Where writes are redirected, an origin that was overwritten in part reads in pieces, and free \
               space lies in pieces, so that the others get slower.",
    steps: "a volume and fillers up to the fill; then for each simulated hour: lvcreate -s, random 4 KiB and 8 KiB overwrites, a log that \
            goes round, each day a discard and a look at the fill (a filler comes or goes), lvremove of what the rule does not keep \
            (24 hours, 30 days of one each, 12 months of one each; the quick form keeps 24, 7 and 3)",
    notes: "Fresh is the same fill before the first hour. First pass: 4 KiB at random, each block once, after a snapshot of its own; in \
            place: the same blocks again. Opening is the command that makes the origin readable, after all was closed. The fillers are \
            whole volumes or files that have nothing to do with the origin: what is measured is the origin. xfs: a file and reflinks of \
            it; btrfs: a subvolume with a file, and snapshots of it. The quick form has 120 days at 80 %, the full form three years at 50, \
            80 and 90 %. A system whose turn is over (six minutes; in the full form an hour for each fill) is looked at once more and shows \
            what it had come to.",
    systems: &[System::Raw, System::Thin, System::Btrfs, System::Xfs, System::Rowen],
    axis: "days",
    base: &[],
    body,
    published: Vec::new,
    sizes,
    passes: &[Pass::Host, Pass::Inside],
    quick_passes: &[],
    is_long: true,
    remarks: &[],
    mib: [6, 32, 64],
    seconds: [[1500.0, 900.0, 0.0], [36_000.0, 21_600.0, 0.0]],
};

const CHUNK: &str = "64k";
/// The size of the origin, in units of the part that is overwritten at random.
const ORIGIN_SHARE: u64 = 4;
/// The disk, in the same unit: room for the origin, what snapshots hold of it at most, and fillers.
const DISK_SHARE: u64 = 36;
/// A filler is so much of the disk.
const FILLERS: u64 = 40;
/// The fill may differ from its goal by this many percent: both together are more than a filler.
const SLACK: f64 = 1.5;

fn sizes(form: &Form) -> Sizes {
    let all = DISK_SHARE * form.mib + 128;
    Sizes { raw: all, lvm: all + 64, mirror: UNUSED, rowen: all, rowen_mirror: UNUSED }
}

/// Which snapshots are kept, by the hour in which they were made.
#[derive(Clone, Copy)]
struct Rule {
    hours: u64,
    days: u64,
    months: u64,
}

const DAY: u64 = 24;
const MONTH: u64 = 30 * DAY;

impl Rule {
    fn keeps(self, made: u64, now: u64) -> bool {
        let age = now - made;
        let of = |unit: u64, count: u64| made.is_multiple_of(unit) && age < unit * count;
        age < self.hours || of(DAY, self.days) || of(MONTH, self.months)
    }
}

/// How long a life is, and when it is looked at, in days.
fn looks(context: &Context) -> (Rule, Vec<u64>) {
    let rule = if context.form.quick {
        Rule { hours: 24, days: 7, months: 3 }
    } else {
        Rule { hours: 24, days: 30, months: 12 }
    };
    (rule, context.pick(&[1, 2], &[5, 15, 30, 60, 90, 120], &[30, 90, 180, 365, 730, 1095]))
}

fn body(context: &Context) -> Result {
    let is_inside = context.disks.lvm.is_some();
    context.in_turns(1, |system, _, step| {
        if system == System::Raw {
            return raw(context);
        }
        // Inside there is no filesystem but the host's.
        if is_inside && system.is_files() {
            return Ok(());
        }
        let fills = context.pick(&[80], &[80], &[50, 80, 90]);
        fills.iter().try_for_each(|fill| Life::lead(context, system, *fill, step))
    })
}

/// What the disk does without anything on it.
fn raw(context: &Context) -> Result {
    let (node, mib) = (context.disks.raw.clone(), context.form.mib);
    streams::fill_device(&node, ORIGIN_SHARE * mib)?;
    for metric in ["first pass", "in place"] {
        times(context, &|name| Key::new(System::Raw, name, &[], 0), metric, &writes::pass(&probe(&node, mib, 1))?);
    }
    let read = Key::new(System::Raw, "read origin", &[], 0);
    let bytes = Quantity::Bytes(ORIGIN_SHARE * mib * MIB);
    context.section(read, bytes, || streams::read(&node, 0, ORIGIN_SHARE * mib, Through::Past))
}

/// The writes that are measured: a share of what is overwritten at random.
fn probe(target: &std::path::Path, mib: u64, seed: u64) -> Writes<'_> {
    let span = mib * MIB;
    let limit = Duration::from_secs(20);
    Writes {
        target,
        block: 4096,
        is_random: true,
        through: Through::Past,
        offset: 0,
        span,
        requests: span / 4096 / 4,
        limit,
        seed,
    }
}

fn times(context: &Context, key: &dyn Fn(&str) -> Key, metric: &str, times: &Times) {
    context.figure(key(metric), "1/s", times.rate());
    context.figure(key(&format!("{metric}, p99")), "ms", times.quantile(0.99));
}

/// One system's years at one fill.
struct Life<'a> {
    context: &'a Context,
    system: System,
    fill: u64,
    store: Store<'a>,
    snapshots: BTreeSet<u64>,
    fillers: Vec<String>,
    made: u64,
}

fn name_of(hour: u64) -> String {
    format!("hour{hour}")
}

impl Life<'_> {
    fn lead(context: &Context, system: System, fill: u64, step: &dyn Fn(&str, f64)) -> Result {
        let store = Store::make(context, system)?;
        let (snapshots, fillers) = (BTreeSet::new(), Vec::new());
        let mut life = Life { context, system, fill, store, snapshots, fillers, made: 0 };
        let (rule, looks) = looks(context);
        let node = life.store.origin(ORIGIN_SHARE * context.form.mib, CHUNK, DISK_SHARE * context.form.mib)?;
        streams::fill_device(&node, ORIGIN_SHARE * context.form.mib)?;
        life.keep_filled()?;
        life.look(0)?;
        let last = looks.last().copied().unwrap_or_default();
        let (begun, turn) = (Instant::now(), Duration::from_secs(context.pick(&[60], &[360], &[3600])[0]));
        for day in 1..=last {
            let is_over = begun.elapsed() > turn;
            step(&format!("{fill} %, day {day}"), day as f64 / last as f64);
            for hour in (day - 1) * DAY..day * DAY {
                life.hour(rule, hour)?;
            }
            life.day(day)?;
            if looks.contains(&day) || is_over {
                life.look(day)?;
            }
            if is_over {
                break;
            }
        }
        Ok(())
    }

    fn hour(&mut self, rule: Rule, hour: u64) -> Result {
        self.store.snapshot(&name_of(hour), CHUNK)?;
        self.snapshots.insert(hour);
        let gone: Vec<u64> = self.snapshots.iter().copied().filter(|made| !rule.keeps(*made, hour)).collect();
        self.store.remove(&gone.iter().copied().map(name_of).collect::<Vec<_>>())?;
        self.snapshots.retain(|made| !gone.contains(made));
        let (node, unit) = (self.store.node(ORIGIN), self.context.form.mib * MIB);
        let write = |block: u64, is_random: bool, offset: u64, span: u64, requests: u64| {
            let limit = Duration::from_secs(20);
            let writes = Writes {
                target: &node,
                block,
                is_random,
                through: Through::Past,
                offset,
                span,
                requests,
                limit,
                seed: hour,
            };
            writes::pass(&writes).map(drop)
        };
        // Single blocks, a database's pages, and a log that goes round in the next part.
        write(4096, true, 0, unit, unit / 4096 / 1024)?;
        write(8192, true, 0, unit, unit / 8192 / 1024)?;
        let log = 64 << 10;
        write(log, false, unit + (hour * log) % unit, log, 1)
    }

    fn day(&mut self, day: u64) -> Result {
        // Discards go to the part of single blocks, which comes again.
        let unit = self.context.form.mib * MIB;
        self.store.discard((day * 7 * MIB) % unit, MIB)?;
        self.keep_filled()
    }

    /// Fillers come and go: the oldest makes room, and new ones come until the fill is right.
    fn keep_filled(&mut self) -> Result {
        let aim = self.fill as f64;
        let mut is_first = true;
        while !self.fillers.is_empty() && (is_first || self.store.fill()? > aim + SLACK) {
            let oldest = self.fillers.remove(0);
            self.store.remove(&[oldest])?;
            self.store.settle()?;
            is_first = false;
        }
        while self.store.fill()? < aim - SLACK {
            self.made += 1;
            let (name, mib) = (format!("filler{}", self.made), DISK_SHARE * self.context.form.mib / FILLERS);
            let node = self.store.volume(&name, mib)?;
            streams::fill_device(&node, mib)?;
            self.fillers.push(name);
        }
        Ok(())
    }

    fn look(&mut self, day: u64) -> Result {
        let (context, system, mib) = (self.context, self.system, self.context.form.mib);
        let (fill, day) = (self.fill.to_string(), day.to_string());
        let pairs = [("days", day.as_str()), ("fill", fill.as_str())];
        let key = |metric: &str| Key::new(system, metric, &pairs, 0);
        self.store.settle()?;
        context.figure(key("fill"), "%", self.store.fill()?);
        context.figure(key("snapshots"), "", self.snapshots.len() as f64);
        for (metric, figure) in [("metadata", self.store.metadata()?), ("memory of the server", self.store.memory())] {
            figure.into_iter().for_each(|figure| context.figure(key(metric), "MiB", figure));
        }
        self.store.close()?;
        let begun = Instant::now();
        self.store.open()?;
        context.figure(key("opening"), "s", begun.elapsed().as_secs_f64());
        let all = ORIGIN_SHARE * mib;
        let read = |metric: &str, from: PathBuf| {
            context.section(key(metric), Quantity::Bytes(all * MIB), || streams::read(&from, 0, all, Through::Past))
        };
        read("read origin", self.store.node(ORIGIN))?;
        if let Some(oldest) = self.snapshots.first() {
            read("read oldest snapshot", self.store.readable(&name_of(*oldest))?)?;
        }
        self.store.snapshot("probe", CHUNK)?;
        let node = self.store.node(ORIGIN);
        let seed = 1 + day.len() as u64;
        times(context, &key, "first pass", &writes::pass(&probe(&node, mib, seed))?);
        times(context, &key, "in place", &writes::pass(&probe(&node, mib, seed))?);
        self.store.remove(&["probe".to_owned()])?;
        self.store.settle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_keeps_hours_days_and_months() {
        let rule = Rule { hours: 24, days: 30, months: 12 };
        let now = 3 * 365 * DAY;
        let kept = (0..=now).filter(|made| rule.keeps(*made, now)).count();
        // Some are the first of a day and of a month as well.
        assert!((60..=66).contains(&kept), "{kept}");
        assert!(rule.keeps(now, now) && rule.keeps(now - 23, now) && !rule.keeps(now - 25, now));
    }
}
