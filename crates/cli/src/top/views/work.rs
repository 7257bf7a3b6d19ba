//! Background work with its expected time, and waiting work.

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

/// Work that runs or waits.
pub struct Item<'a> {
    pub what: String,
    pub why: String,
    pub tone: Tone,
    /// The progress, and whether it is counted in blocks. None: it waits.
    pub pace: Option<(&'a Pace, bool)>,
}

pub fn table(model: &Model) -> Table {
    let rows = model.shown().flat_map(|group| items(group).into_iter().map(|item| row(group, item))).collect();
    Table { columns: COLUMNS, rows, empty: "Nothing waits, and no work is under way.".to_owned(), is_sparse: true }
}

/// The waiting and running work of a group.
pub fn items(group: &Group) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    if matches!(group.status.state, State::Opening | State::TakingOver | State::NotAnswering) {
        let tone = if group.is_silent() { Tone::Bad } else { Tone::Warn };
        items.push(waits("all requests wait", &group.status.sentence, tone));
    }
    if let Some(report) = &group.report {
        items.extend(waiting(group, report));
        items.extend(group.paces.iter().map(|(work, pace)| under_way(work, pace, report)));
        items.extend(merges(report));
    }
    items
}

/// Writes that wait, or have waited too long, and the reason.
fn waiting<'a>(group: &Group, report: &StatusReport) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    let pool_of = |name: &str| -> Option<&str> {
        let volume = group.volumes.as_ref()?.volume(name)?;
        Some(volume.attributes.pool.as_str()).filter(|pool| !pool.is_empty())
    };
    for held in &report.held {
        let place = pool_of(&held.name).map_or_else(|| "the group".to_owned(), |pool| format!("thin pool {pool}"));
        let why = format!("no space in {place} for {}", duration(held.seconds));
        items.push(waits(&format!("{}: writes wait", held.name), &why, Tone::Bad));
    }
    if let Some(path) = &report.waits_for_room {
        items.push(waits("the journal waits", &format!("no room behind {path}"), Tone::Bad));
    }
    for full in &report.timed_out {
        let place = full.as_ref().map_or_else(|| "the group".to_owned(), |pool| format!("thin pool {pool}"));
        let why = "they waited too long for space";
        items.push(waits(&format!("{place}: writes fail"), why, Tone::Bad));
    }
    for pv in &report.pvs {
        if let Some(seconds) = pv.silent_seconds.filter(|_| group.status.state == State::WaitingForDisk) {
            let why = format!("no answer for {}", duration(seconds));
            items.push(waits(&format!("{}: requests wait", pv.path), &why, Tone::Bad));
        }
    }
    if let Some(why) = &report.stopped {
        items.push(waits("writes fail", why, Tone::Bad));
    }
    items
}

/// Snapshots that wait for their merge.
fn merges<'a>(report: &StatusReport) -> impl Iterator<Item = Item<'a>> {
    let why = "it waits for the next activation of its origin";
    report.merging.iter().map(move |name| waits(&format!("{name}: merge"), why, Tone::Plain))
}

fn waits<'a>(what: &str, why: &str, tone: Tone) -> Item<'a> {
    Item { what: what.to_owned(), why: why.to_owned(), tone, pace: None }
}

fn under_way<'a>(work: &Work, pace: &'a Pace, report: &StatusReport) -> Item<'a> {
    let in_blocks = !matches!(work, Work::Check);
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
        Work::Move(path) => {
            let waits = report.moving.as_ref().and_then(|moving| moving.waits.clone());
            let why = waits.map_or_else(|| "moves extents to other disks".to_owned(), |why| format!("waits: {why}"));
            (format!("{path}: pvmove"), why)
        }
        Work::Check => match report.checks {
            0 | 1 => ("check".to_owned(), "reads metadata nodes".to_owned()),
            checks => ("check".to_owned(), format!("reads metadata nodes; {checks} checks run")),
        },
    };
    Item { what, why, tone: Tone::Plain, pace: Some((pace, in_blocks)) }
}

fn row(group: &Group, item: Item<'_>) -> Row {
    let Item { what, why, tone, pace } = item;
    let [done, left, rate, seconds] = pace.map_or_else(|| std::array::from_fn(|_| Cell::unknown()), figures);
    let id = id(group, &what);
    let cells =
        vec![Cell::text(&*group.status.name), Cell::text(what).toned(tone), done, left, rate, seconds, Cell::text(why)];
    Row { id, tone, cells }
}

/// The done share, the remaining amount, the rate, and the time to the end.
fn figures((pace, in_blocks): (&Pace, bool)) -> [Cell; 4] {
    let left = if in_blocks { cells::size(pace.left().saturating_mul(BLOCK_SIZE)) } else { cells::count(pace.left()) };
    let rate = |rate: f64| {
        let number = if in_blocks { rate * BLOCK_SIZE as f64 } else { rate };
        let text = if in_blocks { layout::size(number as u64) } else { layout::count(number.round()) };
        Cell::number(text, number)
    };
    let seconds = |seconds: u64| Cell::number(duration(seconds), seconds as f64);
    [
        pace.share().map_or_else(Cell::unknown, cells::percent),
        left,
        pace.rate().map_or_else(Cell::unknown, rate),
        pace.seconds_left().map_or_else(Cell::unknown, seconds),
    ]
}
