//! `rowen status`: the state of groups and their problems.

use super::groups::known_group;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, no_group};
use rowen_control::status::{GroupStatus, Problem, PvState, Status, duration, judge};
use rowen_control::units::sentence;

/// The width of the longest label with its colon.
const LABEL: usize = 8;

pub fn status(session: &mut Session<'_>, args: &Args) -> Result {
    let mut wanted: Vec<String> = Vec::with_capacity(args.positionals.len());
    for word in &args.positionals {
        let name = known_group(word)?;
        if !wanted.contains(&name) {
            wanted.push(name);
        }
    }
    let mut status = judge(session.backend.survey(&wanted));
    let missing: Vec<&String> =
        wanted.iter().filter(|name| !status.groups.iter().any(|group| group.name == **name)).collect();
    missing.iter().for_each(|name| session.console.complain(no_group(name)));
    let is_missing = !missing.is_empty();
    let healthy = status.healthy;
    if args.has(Opt::Unhealthy) {
        status.groups.retain(|group| !group.healthy);
    }
    if args.has(Opt::Json) {
        let text = serde_json::to_string_pretty(&status).map_err(|e| Failure::failed(e.to_string()))?;
        session.console.raw_out(&format!("{text}\n"));
    } else {
        if healthy && !is_missing && status.groups.is_empty() {
            let well = if args.has(Opt::Unhealthy) { "all groups are healthy" } else { "no volume groups are known" };
            session.console.say(well);
        }
        lines(&status).iter().for_each(|line| session.console.say(line));
    }
    match (is_missing, healthy) {
        (true, _) => Err(Failure::Told),
        (_, false) => Err(Failure::Unhealthy),
        (_, true) => Ok(()),
    }
}

fn lines(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    for group in &status.groups {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(group_lines(group));
    }
    if !status.problems.is_empty() && !lines.is_empty() {
        lines.push(String::new());
    }
    status.problems.iter().for_each(|problem| add_problem(&mut lines, problem));
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn add(lines: &mut Vec<String>, label: &str, text: impl AsRef<str>) {
    lines.push(format!("{label:>LABEL$} {}", text.as_ref()));
}

fn add_problem(lines: &mut Vec<String>, problem: &Problem) {
    add(lines, "wrong:", &problem.what);
    add(lines, "next:", &problem.next);
}

fn group_lines(group: &GroupStatus) -> Vec<String> {
    let mut lines = Vec::new();
    add(&mut lines, "group:", &group.name);
    add(&mut lines, "state:", format!("{}: {}", group.state.word(), group.sentence));
    for problem in &group.problems {
        if problem.what == group.sentence {
            add(&mut lines, "next:", &problem.next);
        } else {
            add_problem(&mut lines, problem);
        }
    }
    if let Some(runs) = runs(group) {
        add(&mut lines, "runs:", runs);
    }
    group.work.iter().for_each(|work| add(&mut lines, "work:", work));
    for (at, line) in table(&group.physical_volumes).into_iter().enumerate() {
        add(&mut lines, if at == 0 { "disks:" } else { "" }, line);
    }
    lines
}

/// The group's processes.
pub fn runs(group: &GroupStatus) -> Option<String> {
    let server = group.server_pid.map(|pid| match group.open_seconds {
        Some(seconds) => format!("server {pid} for {}", duration(seconds)),
        None => format!("server {pid}"),
    });
    let keeper = match (group.keeper_pid, group.restarts) {
        (Some(pid), Some(1)) => format!("keeper {pid}, 1 restart"),
        (Some(pid), Some(restarts)) => format!("keeper {pid}, {restarts} restarts"),
        (Some(pid), None) => format!("keeper {pid}"),
        (None, _) => "no keeper".to_owned(),
    };
    match server {
        None if group.keeper_pid.is_none() => None,
        None => Some(format!("no server, {keeper}")),
        Some(server) => Some(format!("{server}, {keeper}")),
    }
}

/// Physical volumes in columns: text is aligned left, numbers right.
fn table(pvs: &[PvState]) -> Vec<String> {
    if pvs.is_empty() {
        return Vec::new();
    }
    let number = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let heading = ["PATH", "STATE", "SIZE", "FAILED READS", "WRITES", "FLUSHES"].map(str::to_owned);
    let row = |pv: &PvState| {
        [
            pv.path.clone().unwrap_or_else(|| pv.uuid.clone()),
            pv.state.word().to_owned(),
            pv.size_bytes.map_or_else(|| "-".to_owned(), sentence),
            number(pv.failed_reads),
            number(pv.failed_writes),
            number(pv.failed_flushes),
        ]
    };
    let rows: Vec<[String; 6]> = std::iter::once(heading).chain(pvs.iter().map(row)).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let cell = |(at, text): (usize, &String)| {
        let width = widths[at];
        if at < 2 { format!("{text:<width$}") } else { format!("{text:>width$}") }
    };
    rows.iter().map(|row| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")).collect()
}
