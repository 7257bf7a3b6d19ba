//! Groups: state, space, and the sum of requests.

use super::cells;
use crate::top::face::Tone;
use crate::top::model::{Group, Model};
use crate::top::table::{Cell, Column, Form, Row, Table};
use rowen_control::protocol::IoReport;
use rowen_control::status::State;
use rowen_engine::units::BLOCK_SIZE;

const COLUMNS: &[Column] = &[
    Column { title: "GROUP", form: Form::Name, rank: 0 },
    Column { title: "STATE", form: Form::Text, rank: 1 },
    Column { title: "WRONG", form: Form::Number, rank: 2 },
    Column { title: "USED", form: Form::Number, rank: 3 },
    Column { title: "FREE", form: Form::Number, rank: 4 },
    Column { title: "REQ/S", form: Form::Number, rank: 5 },
    Column { title: "READ/S", form: Form::Number, rank: 6 },
    Column { title: "WRITTEN/S", form: Form::Number, rank: 7 },
    Column { title: "P99", form: Form::Number, rank: 8 },
    Column { title: "MEAN", form: Form::Number, rank: 9 },
    Column { title: "MAX", form: Form::Number, rank: 12 },
    Column { title: "SIZE", form: Form::Number, rank: 10 },
    Column { title: "METADATA", form: Form::Number, rank: 14 },
    Column { title: "VOLUMES", form: Form::Number, rank: 11 },
    Column { title: "ACTIVE", form: Form::Number, rank: 13 },
    Column { title: "UNDER WAY", form: Form::Number, rank: 15 },
];

pub fn table(model: &Model) -> Table {
    let rows = model.shown().map(row).collect();
    Table { columns: COLUMNS, rows, empty: "No volume groups are known.".to_owned(), is_sparse: false }
}

/// What a state means for users of the group.
pub fn tone(state: State) -> Tone {
    match state {
        State::Serving => Tone::Good,
        State::NotRunning => Tone::Dim,
        State::Opening | State::TakingOver => Tone::Warn,
        State::WaitingForSpace
        | State::WaitingForDisk
        | State::Stopped
        | State::NotAnswering
        | State::Killed
        | State::Incomplete
        | State::CannotOpen
        | State::OtherVersion => Tone::Bad,
    }
}

fn row(group: &Group) -> Row {
    let status = &group.status;
    let state = tone(status.state);
    let wrong = status.problems.len() as u64;
    let row_tone = match state {
        Tone::Bad | Tone::Warn => state,
        _ if wrong > 0 => Tone::Warn,
        _ => Tone::Plain,
    };
    let report = group.report.as_deref();
    let is_filling = report.is_some_and(|report| report.filling.iter().any(|full| full.volume.is_none()));
    let used = status.used_percent.map_or_else(Cell::unknown, |percent| cells::percent(percent / 100.0));
    let bytes = |blocks: u64| cells::size(blocks.saturating_mul(BLOCK_SIZE));
    let sum = group.done.as_ref().map(|done| (done.sum(), done.seconds()));
    let [requests, read, written, mean, p99, max, ..] = cells::io(sum.as_ref().map(|(sum, seconds)| (sum, *seconds)));
    let under_way = |io: &IoReport| io.sum().under_way;
    let counted = group.counted.as_ref().filter(|_| report.is_some());
    let cells = vec![
        Cell::text(&*status.name).toned(row_tone.max(Tone::Strong)),
        Cell::text(status.state.word()).toned(state),
        cells::count(wrong).toned(if wrong > 0 { row_tone } else { Tone::Dim }),
        if is_filling { used.toned(Tone::Warn) } else { used },
        report.map_or_else(Cell::unknown, |report| bytes(report.available_blocks)),
        requests,
        read,
        written,
        p99,
        mean,
        max,
        report.map_or_else(Cell::unknown, |report| bytes(report.blocks)),
        report.map_or_else(Cell::unknown, |report| bytes(report.metadata_blocks)),
        cells::maybe_count(status.volumes),
        cells::maybe_count(status.active_volumes),
        cells::maybe_count(counted.map(|counted| under_way(&counted.io))),
    ];
    Row { id: status.name.clone(), tone: row_tone, cells }
}
