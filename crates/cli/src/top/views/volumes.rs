//! Active volumes: requests and latencies.

use super::cells::{self, held, id, named};
use crate::top::face::Tone;
use crate::top::model::{Group, Model};
use crate::top::table::{Cell, Column, Form, Row, Table};
use rowen_control::protocol::{IoCounts, VolumeIo};
use rowen_control::status::duration;
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::collections::BTreeMap;

const COLUMNS: &[Column] = &[
    Column { title: "VOLUME", form: Form::Name, rank: 0 },
    Column { title: "STATE", form: Form::Text, rank: 1 },
    Column { title: "REQ/S", form: Form::Number, rank: 2 },
    Column { title: "READ/S", form: Form::Number, rank: 4 },
    Column { title: "WRITTEN/S", form: Form::Number, rank: 5 },
    Column { title: "MEAN", form: Form::Number, rank: 6 },
    Column { title: "P99", form: Form::Number, rank: 3 },
    Column { title: "MAX", form: Form::Number, rank: 8 },
    Column { title: "FAILED", form: Form::Number, rank: 7 },
    Column { title: "UNDER WAY", form: Form::Number, rank: 9 },
    Column { title: "READS/S", form: Form::Number, rank: 10 },
    Column { title: "WRITES/S", form: Form::Number, rank: 11 },
    Column { title: "FLUSHES/S", form: Form::Number, rank: 12 },
    Column { title: "DISCARDS/S", form: Form::Number, rank: 17 },
    Column { title: "READ P99", form: Form::Number, rank: 13 },
    Column { title: "WRITE P99", form: Form::Number, rank: 14 },
    Column { title: "FLUSH P99", form: Form::Number, rank: 15 },
    Column { title: "SIZE", form: Form::Number, rank: 16 },
];

pub fn table(model: &Model) -> Table {
    let rows = model.shown().flat_map(|group| rows(model, group)).collect();
    Table { columns: COLUMNS, rows, empty: "No volume is active.".to_owned(), is_sparse: false }
}

fn rows(model: &Model, group: &Group) -> Vec<Row> {
    let active = group.counted.iter().flat_map(|counted| &counted.io.volumes).filter(|volume| volume.is_active);
    if group.is_silent() {
        return vec![silent(group, active.count())];
    }
    let done = group.done.as_ref();
    let seconds = done.map_or(0.0, |done| done.seconds());
    let rates: BTreeMap<Uuid, &IoCounts> =
        done.iter().flat_map(|done| &done.volumes).map(|volume| (volume.uuid, &volume.counts)).collect();
    let held = held(group);
    let sizes: BTreeMap<Uuid, u64> =
        group.volumes.iter().flat_map(|report| &report.volumes).map(|volume| (volume.uuid, volume.blocks)).collect();
    let row = |volume: &VolumeIo| {
        let rates = rates.get(&volume.uuid).map(|counts| (*counts, seconds));
        let size = sizes.get(&volume.uuid).map(|blocks| blocks.saturating_mul(BLOCK_SIZE));
        let name = Cell::text(named(model, group, &volume.name));
        row(id(group, &volume.name), name, state(volume, held.get(&*volume.name), rates), (volume, rates), size)
    };
    active.map(row).collect()
}

/// The row for the volumes of a server that does not answer.
fn silent(group: &Group, volumes: usize) -> Row {
    let name = match volumes {
        // It never answered.
        0 => format!("{}/*", group.status.name),
        1 => format!("{}/* (1 volume)", group.status.name),
        _ => format!("{}/* ({volumes} volumes)", group.status.name),
    };
    let name = Cell::text(name).toned(Tone::Bad);
    let mut cells = vec![name, Cell::text(group.status.state.word()).toned(Tone::Bad)];
    cells.resize_with(COLUMNS.len(), Cell::unknown);
    Row { id: id(group, ""), tone: Tone::Bad, cells }
}

fn state(volume: &VolumeIo, held: Option<&u64>, done: Option<(&IoCounts, f64)>) -> (String, Tone) {
    let is_stuck = volume.counts.under_way > 0 && done.is_some_and(|(done, _)| done.all().requests == 0);
    match (held, done) {
        (Some(seconds), _) => (format!("no space for {}", duration(*seconds)), Tone::Bad),
        (None, Some((done, _))) if done.failed() > 0 => ("fails".to_owned(), Tone::Bad),
        _ if is_stuck => ("waits".to_owned(), Tone::Warn),
        _ => ("active".to_owned(), Tone::Plain),
    }
}

fn row(
    id: String,
    name: Cell,
    (state, tone): (String, Tone),
    (volume, done): (&VolumeIo, Option<(&IoCounts, f64)>),
    size: Option<u64>,
) -> Row {
    let [requests, read, written, mean, p99, max, by_kind @ ..] = cells::io(done);
    let [reads, writes, flushes, discards, read_p99, write_p99, flush_p99] = by_kind;
    let failed = cells::count(volume.counts.failed());
    let failed = if volume.counts.failed() > 0 { failed.toned(Tone::Warn) } else { failed };
    let cells = vec![
        name.toned(tone),
        Cell::text(state).toned(tone),
        requests,
        read,
        written,
        mean,
        p99,
        max,
        failed,
        cells::count(volume.counts.under_way),
        reads,
        writes,
        flushes,
        discards,
        read_p99,
        write_p99,
        flush_p99,
        cells::maybe_size(size),
    ];
    Row { id, tone, cells }
}
