//! Disks: requests, latencies and failures.

use super::cells::{self, id};
use crate::top::face::Tone;
use crate::top::model::{Group, Model};
use crate::top::table::{Cell, Column, Form, Row, Table};
use rowen_control::protocol::{IoCounts, PvReport};
use rowen_control::status::{PvState, PvWord, duration};
use rowen_control::uuids::lvm_text;
use rowen_engine::units::BLOCK_SIZE;
use std::collections::BTreeMap;

const COLUMNS: &[Column] = &[
    Column { title: "DISK", form: Form::Path, rank: 0 },
    Column { title: "GROUP", form: Form::Name, rank: 7 },
    Column { title: "STATE", form: Form::Text, rank: 1 },
    Column { title: "ERRORS", form: Form::Number, rank: 2 },
    Column { title: "REQ/S", form: Form::Number, rank: 3 },
    Column { title: "READ/S", form: Form::Number, rank: 5 },
    Column { title: "WRITTEN/S", form: Form::Number, rank: 6 },
    Column { title: "MEAN", form: Form::Number, rank: 8 },
    Column { title: "P99", form: Form::Number, rank: 4 },
    Column { title: "MAX", form: Form::Number, rank: 9 },
    Column { title: "UNDER WAY", form: Form::Number, rank: 10 },
    Column { title: "READ P99", form: Form::Number, rank: 13 },
    Column { title: "WRITE P99", form: Form::Number, rank: 14 },
    Column { title: "FLUSH P99", form: Form::Number, rank: 12 },
    Column { title: "SIZE", form: Form::Number, rank: 11 },
    Column { title: "FREE", form: Form::Number, rank: 15 },
];

pub fn table(model: &Model) -> Table {
    let rows = model.shown().flat_map(rows).collect();
    Table { columns: COLUMNS, rows, empty: "No disks are known.".to_owned(), is_sparse: false }
}

/// The data of a disk besides its state.
#[derive(Default)]
struct More {
    under_way: Option<u64>,
    done: Option<IoCounts>,
    silent: Option<u64>,
    free: Option<u64>,
}

fn rows(group: &Group) -> Vec<Row> {
    let mut known: BTreeMap<String, More> = BTreeMap::new();
    let is_answering = group.report.is_some();
    for pv in group.counted.iter().filter(|_| is_answering).flat_map(|counted| &counted.io.pvs) {
        known.entry(lvm_text(pv.uuid)).or_default().under_way = Some(pv.counts.under_way);
    }
    for pv in group.done.iter().flat_map(|done| &done.pvs) {
        known.entry(lvm_text(pv.uuid)).or_default().done = Some(pv.counts);
    }
    for pv in group.report.iter().flat_map(|report| &report.pvs) {
        known.entry(lvm_text(pv.uuid)).or_default().silent = pv.silent_seconds;
    }
    if let Some(report) = &group.volumes {
        let free = |pv: &PvReport| (pv.free_extents * report.extent_blocks).saturating_mul(BLOCK_SIZE);
        report.pvs.iter().for_each(|pv| known.entry(lvm_text(pv.uuid)).or_default().free = Some(free(pv)));
    }
    let seconds = group.done.as_ref().map_or(0.0, |done| done.seconds());
    let row = |pv: &PvState| row(group, pv, known.get(&pv.uuid).unwrap_or(&More::default()), seconds);
    group.status.physical_volumes.iter().map(row).collect()
}

fn row(group: &Group, pv: &PvState, more: &More, seconds: f64) -> Row {
    let tone = match pv.state {
        PvWord::Ok => Tone::Plain,
        PvWord::Errors | PvWord::NotAnswering | PvWord::Missing | PvWord::OlderCopy => Tone::Bad,
    };
    let path = pv.path.as_deref().unwrap_or(&pv.uuid);
    let state = match more.silent.filter(|_| pv.state == PvWord::NotAnswering) {
        Some(seconds) => format!("silent for {}", duration(seconds)),
        None => pv.state.word().to_owned(),
    };
    let errors = [pv.failed_reads, pv.failed_writes, pv.failed_flushes];
    let errors = errors.into_iter().try_fold(0, |sum: u64, count| Some(sum.saturating_add(count?)));
    let [requests, read, written, mean, p99, max, _, _, _, _, read_p99, write_p99, flush_p99] =
        cells::io(more.done.as_ref().map(|done| (done, seconds)));
    let cells = vec![
        Cell::text(path).toned(tone),
        Cell::text(&*group.status.name),
        Cell::text(state).toned(tone),
        cells::maybe_count(errors).toned(if errors.is_some_and(|count| count > 0) { Tone::Bad } else { Tone::Dim }),
        requests,
        read,
        written,
        mean,
        p99,
        max,
        cells::maybe_count(more.under_way),
        read_p99,
        write_p99,
        flush_p99,
        cells::maybe_size(pv.size_bytes),
        cells::maybe_size(more.free),
    ];
    Row { id: id(group, path), tone, cells }
}
