//! What is done in the background and how long that takes, and what waits for something.

use super::cells::{self, id};
use crate::commands::iostat::layout;
use crate::top::face::Tone;
use crate::top::model::{Group, Model, Work};
use crate::top::pace::Pace;
use crate::top::table::{Cell, Column, Form, Row, Table};
use rowen_control::protocol::StatusReport;
use rowen_control::status::{State, duration};
use rowen_engine::units::BLOCK_SIZE;

const COLUMNS: &[Column] = &[
    Column { title: "GROUP", form: Form::Name, rank: 1 },
    Column { title: "WORK", form: Form::Name, rank: 0 },
    Column { title: "DONE", form: Form::Number, rank: 3 },
    Column { title: "LEFT", form: Form::Number, rank: 5 },
    Column { title: "RATE/S", form: Form::Number, rank: 6 },
    Column { title: "TIME LEFT", form: Form::Number, rank: 4 },
    Column { title: "WHY", form: Form::Rest, rank: 2 },
];

pub fn table(model: &Model) -> Table {
    let rows = model.shown().flat_map(rows).collect();
    Table { columns: COLUMNS, rows, empty: "Nothing waits, and no work is under way.".to_owned(), is_sparse: true }
}

fn rows(group: &Group) -> Vec<Row> {
    let mut rows = Vec::new();
    if matches!(group.status.state, State::Opening | State::TakingOver | State::NotAnswering) {
        let tone = if group.is_silent() { Tone::Bad } else { Tone::Warn };
        rows.push(waits(group, "all requests wait", &group.status.sentence, tone));
    }
    if let Some(report) = &group.report {
        rows.extend(waiting(group, report));
        let running = group.paces.iter().map(|(work, pace)| under_way(group, work, pace, report));
        rows.extend(running);
        rows.extend(merges(group, report));
    }
    rows
}

/// Writes that wait, or have waited too long, and what for.
fn waiting(group: &Group, report: &StatusReport) -> Vec<Row> {
    let mut rows = Vec::new();
    let pool_of = |name: &str| -> Option<&str> {
        let volume = group.volumes.as_ref()?.volume(name)?;
        Some(volume.attributes.pool.as_str()).filter(|pool| !pool.is_empty())
    };
    for held in &report.held {
        let place = pool_of(&held.name).map_or_else(|| "the group".to_owned(), |pool| format!("thin pool {pool}"));
        let why = format!("no space in {place} for {}", duration(held.seconds));
        rows.push(waits(group, &format!("{}: writes wait", held.name), &why, Tone::Bad));
    }
    if let Some(path) = &report.waits_for_room {
        rows.push(waits(group, "the journal waits", &format!("no room behind {path}"), Tone::Bad));
    }
    for full in &report.timed_out {
        let place = full.as_ref().map_or_else(|| "the group".to_owned(), |pool| format!("thin pool {pool}"));
        let why = "they waited too long for space";
        rows.push(waits(group, &format!("{place}: writes fail"), why, Tone::Bad));
    }
    for pv in &report.pvs {
        if let Some(seconds) = pv.silent_seconds.filter(|_| group.status.state == State::WaitingForDisk) {
            let why = format!("no answer for {}", duration(seconds));
            rows.push(waits(group, &format!("{}: requests wait", pv.path), &why, Tone::Bad));
        }
    }
    if let Some(why) = &report.stopped {
        rows.push(waits(group, "writes fail", why, Tone::Bad));
    }
    rows
}

/// Snapshots that wait to be merged.
fn merges(group: &Group, report: &StatusReport) -> Vec<Row> {
    let why = "it waits for the next activation of its origin";
    report.merging.iter().map(|name| waits(group, &format!("{name}: merge"), why, Tone::Plain)).collect()
}

fn waits(group: &Group, what: &str, why: &str, tone: Tone) -> Row {
    let cells = vec![
        Cell::text(&*group.status.name),
        Cell::text(what).toned(tone),
        Cell::unknown(),
        Cell::unknown(),
        Cell::unknown(),
        Cell::unknown(),
        Cell::text(why),
    ];
    Row { id: id(group, what), tone, cells }
}

fn under_way(group: &Group, work: &Work, pace: &Pace, report: &StatusReport) -> Row {
    let in_bytes = !matches!(work, Work::Check);
    let (what, why) = match work {
        Work::Removal => ("removal".to_owned(), "gives back the space of what was removed".to_owned()),
        Work::Rehoming(name) => {
            let waiting = report.rehoming.as_ref().map_or(0, |rehoming| rehoming.waiting);
            let then = match waiting {
                0 => "brings the volume to one place".to_owned(),
                1 => "brings the volume to one place; 1 volume waits".to_owned(),
                _ => format!("brings the volume to one place; {waiting} volumes wait"),
            };
            (format!("{name}: re-homing"), then)
        }
        Work::Check => match report.checks {
            0 | 1 => ("check".to_owned(), "reads metadata nodes".to_owned()),
            checks => ("check".to_owned(), format!("reads metadata nodes; {checks} checks run")),
        },
    };
    let left = if in_bytes { cells::size(pace.left().saturating_mul(BLOCK_SIZE)) } else { cells::count(pace.left()) };
    let rate = |rate: f64| {
        let number = if in_bytes { rate * BLOCK_SIZE as f64 } else { rate };
        let text = if in_bytes { layout::size(number as u64) } else { layout::count(number.round()) };
        Cell::number(text, number)
    };
    let seconds = |seconds: u64| Cell::number(duration(seconds), seconds as f64);
    let cells = vec![
        Cell::text(&*group.status.name),
        Cell::text(&*what),
        pace.share().map_or_else(Cell::unknown, cells::percent),
        left,
        pace.rate().map_or_else(Cell::unknown, rate),
        pace.seconds_left().map_or_else(Cell::unknown, seconds),
        Cell::text(why),
    ];
    Row { id: id(group, &what), tone: Tone::Plain, cells }
}
