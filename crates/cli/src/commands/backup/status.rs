//! `rowen backup status` for people and monitors, and `rowen backup list`.

use super::calendar::bucket;
use super::files::{policies, state, volumes};
use super::run::own;
use crate::backend::Where;
use crate::commands::metrics::exposition::{Exposition, Value};
use crate::commands::replicate::Side;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::plain;
use crate::session::Session;
use rowen_control::backup::{Policy, Shot, State, kept};
use rowen_control::points::{Point, Points};
use rowen_control::status::duration;
use serde_json::json;
use std::collections::BTreeMap;

/// How much later than twice its time something may be: a run every 15 minutes, and what a run takes.
const GRACE: u64 = 1800;

/// One copy of a volume.
struct Copy {
    target: String,
    to: String,
    arrived: Option<u64>,
    snapshot: Option<String>,
    /// Why it is behind.
    problem: Option<String>,
}

/// What a policy has of a volume.
struct Row {
    policy: String,
    volume: String,
    points: usize,
    newest: Option<(String, u64)>,
    problem: Option<String>,
    copies: Vec<Copy>,
}

impl Row {
    fn is_well(&self) -> bool {
        self.problem.is_none() && self.copies.iter().all(|copy| copy.problem.is_none())
    }
}

/// Why a time is too long ago. A time in the future comes from a clock that was ahead.
fn late(what: &str, at: Option<u64>, now: u64, every: u64) -> Option<String> {
    match at {
        None => Some(format!("{what}: never")),
        Some(at) if now.saturating_sub(at) > 2 * every + GRACE => {
            Some(format!("{what}: {} ago, and it is due every {}", duration(now - at), duration(every)))
        }
        Some(_) => None,
    }
}

fn row(policy: &Policy, side: &Side, points: &Points, state: &State, now: u64) -> Row {
    let newest = own(points, policy).last().map(|point| (point.name.clone(), point.made));
    let copies = policy.targets.iter().map(|target| {
        let known =
            state.attempts.get(&State::key(&policy.name, &side.full(), &target.name)).cloned().unwrap_or_default();
        let failed =
            known.failed.map(|_| format!("the last attempt failed: {}", known.why.clone().unwrap_or_default()));
        Copy {
            target: target.name.clone(),
            to: target.to.clone(),
            arrived: known.arrived,
            snapshot: known.snapshot,
            problem: failed.or_else(|| late("the last time it was up to date", known.arrived, now, policy.every)),
        }
    });
    Row {
        policy: policy.name.clone(),
        volume: side.full(),
        points: own(points, policy).count(),
        problem: late("the newest snapshot", newest.as_ref().map(|(_, made)| *made), now, policy.every),
        newest,
        copies: copies.collect(),
    }
}

/// Visits each volume of these policies. True: something that a policy names is not there.
fn each_volume(
    session: &mut Session<'_>,
    names: &[String],
    mut visit: impl FnMut(&Policy, &Side, &Points),
) -> Result<bool> {
    let (mut is_incomplete, mut reports) = (false, BTreeMap::new());
    for policy in policies(session, names)? {
        let (groups, missing) = volumes(session, &policy, &mut reports);
        is_incomplete |= missing;
        for (group, volumes) in groups {
            let Some(Some(report)) = reports.get(&group) else { continue };
            for volume in volumes {
                let points = Points::of(report, &volume, &[]);
                visit(&policy, &Side { at: Where::Here, group: group.clone(), volume }, &points);
            }
        }
    }
    Ok(is_incomplete)
}

pub fn status(session: &mut Session<'_>, args: &Args, names: &[String]) -> Result {
    let (state, now, mut rows) = (state(session), session.backend.now(), Vec::new());
    let is_incomplete =
        each_volume(session, names, |policy, side, points| rows.push(row(policy, side, points, &state, now)))?;
    let is_well = !is_incomplete && rows.iter().all(Row::is_well);
    let format = if args.has(Opt::Json) { "json" } else { args.text(Opt::StatusFormat).unwrap_or("table") };
    match format {
        "json" => {
            let rows: Vec<_> = rows.iter().map(json_of).collect();
            let told = json!({ "healthy": is_well, "volumes": rows });
            session.console.raw_out(&format!("{told:#}\n"));
        }
        "prometheus" => {
            let text = metrics(&rows, is_incomplete).text().map_err(|e| Failure::failed(e.to_string()))?;
            session.console.raw_out(&text);
        }
        _ => rows.iter().for_each(|row| tell(session, row, now)),
    }
    if is_well { Ok(()) } else { Err(Failure::Unhealthy) }
}

fn tell(session: &mut Session<'_>, row: &Row, now: u64) {
    let age = |at: u64| if at > now { "in the future".to_owned() } else { format!("{} ago", duration(now - at)) };
    let newest = row.newest.as_ref().map_or("none".to_owned(), |(name, made)| format!("{name}, {}", age(*made)));
    let mark = |problem: &Option<String>| if problem.is_some() { "LATE" } else { "ok" };
    session.console.say(format!(
        "{:<4} {} {}: {} snapshots, the newest {newest}",
        mark(&row.problem),
        row.policy,
        row.volume,
        row.points
    ));
    if let Some(problem) = &row.problem {
        session.console.say(format!("     {problem}"));
    }
    for copy in &row.copies {
        let arrived = match (copy.arrived, &copy.snapshot) {
            (Some(at), Some(name)) => format!("{name}, up to date {}", age(at)),
            _ => "nothing has arrived yet".to_owned(),
        };
        session.console.say(format!("{:<4}   at {} ({}): {arrived}", mark(&copy.problem), copy.target, copy.to));
        if let Some(problem) = &copy.problem {
            session.console.say(format!("       {problem}"));
        }
    }
}

fn json_of(row: &Row) -> serde_json::Value {
    let copy = |copy: &Copy| {
        json!({
            "target": copy.target, "to": copy.to, "arrived": copy.arrived, "snapshot": copy.snapshot,
            "problem": copy.problem,
        })
    };
    json!({
        "policy": row.policy,
        "volume": row.volume,
        "snapshots": row.points,
        "newest": row.newest.as_ref().map(|(name, _)| name),
        "newest_made": row.newest.as_ref().map(|(_, made)| made),
        "problem": row.problem,
        "targets": row.copies.iter().map(copy).collect::<Vec<_>>(),
    })
}

fn metrics(rows: &[Row], is_incomplete: bool) -> Exposition {
    let mut told = Exposition::default();
    let one = |is: bool| Value::Gauge(if is { 1.0 } else { 0.0 });
    told.add(
        "rowen_backup_incomplete",
        "Whether something that a policy names is not there.",
        Vec::new(),
        one(is_incomplete),
    );
    for row in rows {
        let labels = vec![("policy", row.policy.clone()), ("volume", row.volume.clone())];
        let points = Value::Gauge(row.points as f64);
        told.add("rowen_backup_snapshots", "Snapshots that the policy has of the volume.", labels.clone(), points);
        if let Some((_, made)) = &row.newest {
            let help = "When the newest snapshot was taken, in seconds since 1970.";
            told.add("rowen_backup_newest_timestamp_seconds", help, labels.clone(), Value::Gauge(*made as f64));
        }
        let help = "Whether a snapshot is overdue.";
        told.add("rowen_backup_late", help, labels.clone(), one(row.problem.is_some()));
        for copy in &row.copies {
            let labels = [labels.clone(), vec![("target", copy.target.clone())]].concat();
            if let Some(arrived) = copy.arrived {
                let help = "When the target was last up to date, in seconds since 1970.";
                told.add("rowen_backup_target_timestamp_seconds", help, labels.clone(), Value::Gauge(arrived as f64));
            }
            let help = "Whether the target is behind, or the last attempt failed.";
            told.add("rowen_backup_target_late", help, labels, one(copy.problem.is_some()));
        }
    }
    told
}

/// `rowen backup list`: the snapshots of each policy, and for what each of them is kept.
pub fn list(session: &mut Session<'_>, args: &Args, names: &[String]) -> Result {
    let (mut cells, mut rows) = (Vec::new(), Vec::new());
    let is_incomplete = each_volume(session, names, |policy, side, points| {
        let own: Vec<&Point> = own(points, policy).collect();
        let shots: Vec<Shot> = own.iter().map(|point| Shot { made: point.made, is_held: false }).collect();
        for (point, kept) in own.iter().zip(kept(&shots, &policy.keep, bucket)) {
            let periods: Vec<&str> = kept.iter().map(|period| period.name()).collect();
            let name = side.of(&point.name);
            let made = rowen_control::time::long(point.made);
            let kept = if periods.is_empty() { "-".to_owned() } else { periods.join(",") };
            cells.push([name, made, kept, point.holds.join(",")]);
            rows.push(json!({
                "policy": policy.name, "volume": side.full(), "snapshot": point.name,
                "made": point.made, "kept_for": periods, "holds": point.holds, "point_uuid": point.point_uuid,
            }));
        }
    })?;
    if args.has(Opt::Json) {
        session.console.raw_out(&format!("{:#}\n", json!({ "snapshots": rows })));
    } else {
        session.console.raw_out(&plain::table(["SNAPSHOT", "MADE", "KEPT AS", "HELD BY"], &cells));
    }
    if is_incomplete { Err(Failure::Told) } else { Ok(()) }
}
