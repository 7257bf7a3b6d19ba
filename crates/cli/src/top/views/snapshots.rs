//! Snapshots by the space that their removal frees, as in `rowen tree`.

use super::cells::{self, id, named};
use crate::commands::tree;
use crate::top::face::Tone;
use crate::top::model::{Group, Model};
use crate::top::table::{Cell, Column, Form, Row, Table};
use rowen_control::protocol::VolumeReport;
use rowen_control::status::duration;
use rowen_control::time;

const COLUMNS: &[Column] = &[
    Column { title: "SNAPSHOT", form: Form::Name, rank: 0 },
    Column { title: "OF", form: Form::Name, rank: 2 },
    Column { title: "FREED", form: Form::Number, rank: 1 },
    Column { title: "OWN", form: Form::Number, rank: 5 },
    Column { title: "REFERENCED", form: Form::Number, rank: 6 },
    Column { title: "SIZE", form: Form::Number, rank: 7 },
    Column { title: "FULL", form: Form::Number, rank: 8 },
    Column { title: "AGE", form: Form::Number, rank: 3 },
    Column { title: "CREATED", form: Form::Text, rank: 9 },
    Column { title: "STATE", form: Form::Text, rank: 4 },
];

pub fn table(model: &Model) -> Table {
    let rows = model.shown().flat_map(|group| rows(model, group)).collect();
    Table { columns: COLUMNS, rows, empty: "There are no snapshots.".to_owned(), is_sparse: false }
}

fn rows(model: &Model, group: &Group) -> Vec<Row> {
    let Some(report) = &group.volumes else { return Vec::new() };
    let snapshot = |row: tree::Row<'_>| {
        let volume = report.volume(row.name)?;
        let origin = volume.origin.as_ref()?;
        Some(self::row(model, group, (&row, volume), origin))
    };
    tree::rows(report).into_iter().filter_map(snapshot).collect()
}

fn row(model: &Model, group: &Group, (row, volume): (&tree::Row<'_>, &VolumeReport), origin: &str) -> Row {
    let is_invalid = row.state.iter().any(|word| word == "invalid");
    let tone = if is_invalid { Tone::Warn } else { Tone::Plain };
    let age = model.time.map(|now| now.saturating_sub(row.created));
    let full = volume.reserve_blocks.filter(|reserve| *reserve > 0);
    let full = full.map(|reserve| volume.snapshot_used_blocks as f64 / reserve as f64);
    let cells = vec![
        Cell::text(named(model, group, row.name)).toned(tone),
        Cell::text(origin),
        cells::size(row.freed_if_removed_bytes),
        cells::size(row.own_bytes),
        cells::size(row.referenced_bytes),
        cells::size(row.size_bytes),
        full.map_or_else(Cell::unknown, cells::percent),
        age.map_or_else(Cell::unknown, |age| Cell::number(duration(age), age as f64)),
        Cell::text(time::long(row.created).get(..16).unwrap_or_default()),
        Cell::text(row.state.join(", ")).toned(tone),
    ];
    Row { id: id(group, row.name), tone, cells }
}
