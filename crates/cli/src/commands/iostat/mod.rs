//! Requests, bytes and latencies of groups, their physical volumes and their active volumes, once or periodically.

pub mod layout;

use crate::commands::groups::known_group;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, no_volume};
use layout::{Page, Row};
use rowen_control::names;
use rowen_control::paths::Target;
use rowen_control::protocol::{BUCKETS, IoCounts, IoReport, VolumeIo, bucket_end};
use rowen_control::status::IoSeen;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The shortest and the longest time between two reports, in seconds.
const MIN: f64 = 0.1;
const MAX: f64 = 86_400.0;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    /// The named groups. Empty: all groups that have a server.
    groups: Vec<String>,
    /// For a group in this map only these volumes are shown.
    volumes: BTreeMap<String, Vec<String>>,
    pause: Option<Duration>,
    /// The number of reports.
    count: Option<u64>,
}

impl Plan {
    fn of(words: &[String]) -> Result<Plan> {
        let is_number =
            |word: &&String| word.starts_with(|c: char| c.is_ascii_digit() || c == '.') && word.parse::<f64>().is_ok();
        let numbers = words.iter().rev().take_while(is_number).count().min(2);
        let (names, numbers) = words.split_at(words.len() - numbers);
        let mut plan = Plan::default();
        for word in names {
            let (group, volume) = match Target::parse(word) {
                Some(Target::Volume { group, volume }) if !volume.is_empty() => (known_group(&group)?, Some(volume)),
                _ => (known_group(word)?, None),
            };
            if names::check_form(&group).is_err() {
                return Err(Failure::usage(format!("Invalid volume group name \"{group}\".")));
            }
            let is_new = !plan.groups.contains(&group);
            if is_new {
                plan.groups.push(group.clone());
            }
            match volume {
                // All of it is shown.
                None => drop(plan.volumes.remove(&group)),
                Some(volume) if is_new => drop(plan.volumes.insert(group, vec![volume])),
                Some(volume) => {
                    // Without an entry all of the group is shown.
                    if let Some(volumes) = plan.volumes.get_mut(&group).filter(|known| !known.contains(&volume)) {
                        volumes.push(volume);
                    }
                }
            }
        }
        if let Some(seconds) = numbers.first() {
            plan.pause = Some(pause(seconds)?);
        }
        plan.count = match (numbers.get(1), plan.pause) {
            (Some(count), _) => Some(reports(count)?),
            (None, Some(_)) => None,
            (None, None) => Some(1),
        };
        Ok(plan)
    }

    /// Whether this volume of the group is shown.
    fn shows(&self, group: &str, volume: &str) -> bool {
        self.volumes.get(group).is_none_or(|wanted| wanted.iter().any(|name| name == volume))
    }
}

fn pause(word: &str) -> Result<Duration> {
    let seconds = word.parse().ok().filter(|seconds| (MIN..=MAX).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        Failure::usage(format!("Invalid interval {word}: it is a number of seconds from {MIN} to {MAX}."))
    })
}

fn reports(word: &str) -> Result<u64> {
    let count = word.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| Failure::usage(format!("Invalid count {word}: it is a whole number of reports from 1.")))
}

/// The counters of a group at the previous report.
pub struct Before {
    pub pid: u32,
    pub io: IoReport,
}

impl Before {
    /// The difference since then. None: another server counts now.
    pub fn since(&self, pid: u32, now: &IoReport) -> Option<IoReport> {
        let is_same = self.pid == pid && self.io.open_micros <= now.open_micros;
        is_same.then(|| now.since(&self.io))
    }
}

/// The reports of one command.
struct Reports {
    plan: Plan,
    before: BTreeMap<String, Before>,
    with_latencies: bool,
    page: Page,
}

pub fn iostat(session: &mut Session<'_>, args: &Args) -> Result {
    let plan = Plan::of(&args.positionals)?;
    let page = Page::new(session.console.height());
    let mut reports = Reports { plan, before: BTreeMap::new(), with_latencies: args.has(Opt::Latencies), page };
    let mut is_missing = false;
    for number in 1.. {
        let begun = Instant::now();
        let seen = session.backend.io(&reports.plan.groups);
        let is_any_told = seen.values().any(|seen| matches!(seen, IoSeen::Answered { .. }));
        let is_complete =
            if args.has(Opt::Json) { reports.print_json(session, &seen) } else { reports.print(session, &seen) };
        session.console.flush();
        if number == 1 {
            is_missing = !is_complete;
            // A group without a server never gets counters, but a silent server may answer again.
            let may_come = seen.values().any(|seen| *seen != IoSeen::None);
            if is_missing && !is_any_told && !may_come {
                break;
            }
        }
        match reports.plan.pause {
            Some(pause) if reports.plan.count.is_none_or(|count| number < count) => {
                session.backend.pause(pause.saturating_sub(begun.elapsed()));
            }
            _ => break,
        }
    }
    if is_missing { Err(Failure::Told) } else { Ok(()) }
}

/// Why there are no counters of a group.
fn trouble(group: &str, seen: &IoSeen) -> Option<String> {
    match seen {
        IoSeen::Answered { .. } => None,
        IoSeen::None => Some(format!(
            "No server of volume group \"{group}\" runs, so nothing is counted (see rowen status {group})."
        )),
        IoSeen::Silent => Some(format!(
            "The server of volume group \"{group}\" does not answer: rowen status {group} says what to do."
        )),
        IoSeen::Opening => Some(format!("The server of volume group \"{group}\" is starting or ending: try again.")),
        IoSeen::Refused(why) => Some(why.clone()),
    }
}

impl Reports {
    /// Prints a report in columns. False: something that was asked for has no counters.
    fn print(&mut self, session: &mut Session<'_>, seen: &BTreeMap<String, IoSeen>) -> bool {
        let (mut rows, mut troubles) = (Vec::new(), Vec::new());
        for (group, seen) in seen {
            troubles.extend(trouble(group, seen));
            if let IoSeen::Answered { pid, io } = seen {
                let before = self.before.remove(group);
                let since = before.as_ref().and_then(|before| before.since(*pid, io));
                if before.is_some() && since.is_none() {
                    troubles.push(format!("Another server has opened volume group \"{group}\" and counts from zero."));
                }
                rows.extend(self.group_rows(group, &since.unwrap_or_else(|| (**io).clone())));
                troubles.extend(self.missing(group, io));
                self.before.insert(group.clone(), Before { pid: *pid, io: (**io).clone() });
            }
        }
        if seen.is_empty() {
            session.console.say("No volume group has a server, so nothing is counted.");
        }
        troubles.iter().for_each(|trouble| session.console.complain(trouble));
        if !rows.is_empty() {
            let lines = self.page.lines(&rows, self.with_latencies);
            lines.iter().for_each(|line| session.console.say(line));
        }
        troubles.is_empty()
    }

    /// Volumes that were asked for and are not active.
    fn missing(&self, group: &str, io: &IoReport) -> Vec<String> {
        let wanted = self.plan.volumes.get(group).into_iter().flatten();
        let missing = wanted.filter(|name| !io.volumes.iter().any(|volume| volume.is_active && volume.name == **name));
        missing.map(|name| format!("{}, or it is not active.", no_volume(group, name))).collect()
    }

    /// The group's sum, its physical volumes, and its active volumes.
    fn group_rows(&self, group: &str, done: &IoReport) -> Vec<Row> {
        let seconds = done.seconds();
        let row = |name: String, counts: IoCounts| Row { name, counts, seconds };
        let is_shown = |volume: &&VolumeIo| volume.is_active && self.plan.shows(group, &volume.name);
        let volumes = done.volumes.iter().filter(is_shown);
        let volumes = volumes.map(|volume| row(format!("  {}", volume.name), volume.counts)).collect();
        let pvs = done.pvs.iter().map(|pv| row(format!("  {}", pv.path), pv.counts));
        let pvs: Vec<Row> = if self.plan.volumes.contains_key(group) { Vec::new() } else { pvs.collect() };
        [vec![row(group.to_owned(), done.sum())], pvs, volumes].concat()
    }

    /// The same as one JSON object with the counters as they are.
    fn print_json(&self, session: &mut Session<'_>, seen: &BTreeMap<String, IoSeen>) -> bool {
        let mut is_complete = true;
        let mut groups = Vec::new();
        for (group, seen) in seen {
            let line = match seen {
                IoSeen::Answered { pid, io } => {
                    is_complete &= self.missing(group, io).is_empty();
                    self.group_json(group, *pid, io)
                }
                other => {
                    is_complete = false;
                    json!({ "name": group, "trouble": trouble(group, other) })
                }
            };
            groups.push(line);
        }
        let ends: Vec<Option<u64>> = (0..BUCKETS).map(bucket_end).collect();
        let report = json!({ "time": session.backend.now(), "bucket_ends_micros": ends, "groups": groups });
        session.console.raw_out(&format!("{report}\n"));
        is_complete
    }

    fn group_json(&self, group: &str, pid: u32, io: &IoReport) -> Value {
        let counts = |counts: &IoCounts| {
            let mut counted: serde_json::Map<String, Value> =
                counts.each().iter().map(|(name, op)| ((*name).to_owned(), json!(op))).collect();
            counted.insert("under_way".to_owned(), json!(counts.under_way));
            Value::Object(counted)
        };
        let pvs: Vec<Value> = io.pvs.iter().map(|pv| json!({ "path": pv.path, "uuid": rowen_control::uuids::lvm_text(pv.uuid), "counts": counts(&pv.counts) })).collect();
        let volumes = io.volumes.iter().filter(|volume| volume.is_active && self.plan.shows(group, &volume.name));
        let volumes: Vec<Value> = volumes.map(|volume| json!({ "name": volume.name, "uuid": rowen_control::uuids::lvm_text(volume.uuid), "counts": counts(&volume.counts) })).collect();
        json!({
            "name": group,
            "server_pid": pid,
            "open_micros": io.open_micros,
            "physical_volumes": pvs,
            "volumes": volumes,
        })
    }
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
