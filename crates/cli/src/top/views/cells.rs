//! Cells and names that several views have. Numbers look as in `rowen iostat`.

use crate::commands::iostat::layout;
use crate::top::model::{Group, Model};
use crate::top::table::Cell;
use rowen_control::protocol::{IoCounts, Latency, OpCounts};
use std::collections::BTreeMap;

/// Cells of [`io`].
pub const IO: usize = 13;

/// The requests of an interval: requests, bytes read and written, mean, 99th percentile and longest latency; then
/// reads, writes, flushes and discards separately, and the 99th percentile of the first three.
pub fn io(done: Option<(&IoCounts, f64)>) -> [Cell; IO] {
    let Some((io, seconds)) = done else { return std::array::from_fn(|_| Cell::unknown()) };
    let all = io.all();
    let discards = io.discard.requests.saturating_add(io.zero.requests);
    [
        requests(all.requests, seconds),
        bytes(io.read.bytes, seconds),
        bytes(io.write.bytes, seconds),
        mean(&all),
        percentile(&all),
        longest(&all),
        requests(io.read.requests, seconds),
        requests(io.write.requests, seconds),
        requests(io.flush.requests, seconds),
        requests(discards, seconds),
        percentile(&io.read),
        percentile(&io.write),
        percentile(&io.flush),
    ]
}

fn per_second(number: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { number as f64 / seconds } else { 0.0 }
}

pub fn requests(number: u64, seconds: f64) -> Cell {
    Cell::number(layout::rate(number, seconds), per_second(number, seconds))
}

pub fn bytes(number: u64, seconds: f64) -> Cell {
    Cell::number(layout::bytes(number, seconds), per_second(number, seconds))
}

fn mean(op: &OpCounts) -> Cell {
    op.mean().map_or_else(Cell::unknown, |micros| Cell::number(layout::time(micros), micros))
}

fn percentile(op: &OpCounts) -> Cell {
    latency(op.percentile(0.99), layout::latency)
}

fn longest(op: &OpCounts) -> Cell {
    latency(op.longest(), layout::longest)
}

fn latency(latency: Option<Latency>, shown: fn(Option<Latency>) -> String) -> Cell {
    match latency {
        None => Cell::unknown(),
        Some(Latency::Micros(micros)) => Cell::number(shown(latency), micros),
        Some(Latency::From(micros)) => Cell::number(shown(latency), micros as f64),
    }
}

pub fn count(number: u64) -> Cell {
    Cell::number(layout::count(number as f64), number as f64)
}

pub fn maybe_count(number: Option<u64>) -> Cell {
    number.map_or_else(Cell::unknown, count)
}

pub fn size(number: u64) -> Cell {
    Cell::number(layout::size(number), number as f64)
}

pub fn maybe_size(number: Option<u64>) -> Cell {
    number.map_or_else(Cell::unknown, size)
}

pub fn percent(share: f64) -> Cell {
    Cell::number(format!("{:.1}%", share * 100.0), share)
}

/// A volume's or disk's name, with its group if several groups are shown.
pub fn named(model: &Model, group: &Group, name: &str) -> String {
    if model.opened.is_some() { name.to_owned() } else { format!("{}/{name}", group.status.name) }
}

/// The row's name: the group's comes first.
pub fn id(group: &Group, rest: &str) -> String {
    format!("{}/{rest}", group.status.name)
}

/// The volumes whose writes wait for space, with the seconds of waiting.
pub fn held(group: &Group) -> BTreeMap<&str, u64> {
    let held = group.report.iter().flat_map(|report| &report.held);
    held.map(|volume| (volume.name.as_str(), volume.seconds)).collect()
}
