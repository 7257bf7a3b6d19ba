//! Large requests to an origin of which a part was overwritten at random: while its snapshot is held, laid out for space and for
//! reading; as soon as the snapshot is removed; and when the background is through with it.
//!
//! 'Fresh' is a twin: filled in the same way and left alone, so that both can be taken in turn.

use crate::load::{Action, Job, Limit, Order};
use crate::redirect::CHUNK;
use crate::report::{Asked, Row};
use crate::world::{Bench, DEEP, Lab, MIB, Result, WIDE, text};
use rowen_engine::group::{Attributes, Config, Volume};
use rowen_engine::units::VolumeId;
use std::sync::Arc;

const PERCENTS: [u64; 3] = [10, 50, 90];

/// What an origin is measured in.
#[derive(Clone, Copy)]
enum State {
    HeldForSpace,
    HeldForReading,
    RemovedAtOnce,
    RemovedAndIdle,
}

const STATES: [(State, &str); 4] = [
    (State::HeldForSpace, "snapshot held, laid out for space"),
    (State::HeldForReading, "snapshot held, laid out for reading"),
    (State::RemovedAtOnce, "snapshot just removed"),
    (State::RemovedAndIdle, "snapshot removed, background through"),
];

pub fn origins(bench: &Bench) -> Result {
    let (span, rounds) = (bench.settings.span, bench.settings.rounds);
    let pv = bench.written("pv", 6 * span + 512 * MIB)?;
    let lab = bench.group(bench.disks(&pv.path)?, Config { rehome: true, ..Config::default() })?;
    let twin = lab.filled(bench, span, CHUNK)?;
    for (n, percent) in PERCENTS.into_iter().enumerate() {
        let mut rows = STATES.map(|(_, state)| {
            [("scattered_read", "read"), ("scattered_write", "write")].map(|(name, action)| {
                let what = format!("1 MiB {action} of an origin, {percent} % overwritten, {state} / fresh");
                Row::ratio(name, what, Asked::Nothing, "kIOPS")
            })
        });
        for round in 0..rounds {
            for (at, (state, ..)) in STATES.into_iter().enumerate() {
                let done = (n * rounds + round) * STATES.len() + at;
                bench.step("origins in pieces", done as f64 / (PERCENTS.len() * rounds * STATES.len()) as f64);
                let (origin, snapshot) = prepare(bench, &lab, state, span, percent, round as u64)?;
                for (action, row) in [Action::Read, Action::Write].into_iter().zip(&mut rows[at]) {
                    let job = Job::pass(action, Order::Sequential, MIB as u32, WIDE, span, 1);
                    let (rowen, other) = bench.in_turn(8, (&origin, &job), (&twin, &job))?;
                    row.add(rowen.kiops(), other.kiops());
                }
                let rest = snapshot.into_iter().chain([origin.id()]).collect::<Vec<_>>();
                lab.remove(bench, &rest)?;
            }
        }
        rows.into_iter().flatten().for_each(|row| bench.add(row));
    }
    lab.close(bench)
}

/// An origin in this state, and its snapshot if it has one.
fn prepare(
    bench: &Bench,
    lab: &Lab,
    state: State,
    span: u64,
    percent: u64,
    round: u64,
) -> Result<(Arc<Volume>, Option<VolumeId>)> {
    let origin = lab.filled(bench, span, CHUNK)?;
    let layout = if matches!(state, State::HeldForReading) { "layout=read" } else { "layout=space" };
    let attributes = Attributes { tags: vec![layout.to_owned()], ..Attributes::default() };
    let (group, id) = (lab.group.clone(), origin.id());
    bench.block_on(async move { group.set_attributes(id, attributes).await }).map_err(text)?;
    let snapshot = lab.snapshot(bench, &origin, CHUNK)?;
    let mut job = Job::pass(Action::Write, Order::Shuffled, 4096, DEEP, span, round * 100 + percent);
    job.limit = Limit::requests(span / 4096 * percent / 100);
    bench.run(&origin, &job)?;
    lab.flush(bench, &origin)?;
    match state {
        State::HeldForSpace => return Ok((origin, Some(snapshot))),
        State::HeldForReading => {
            idle(bench, lab)?;
            return Ok((origin, Some(snapshot)));
        }
        State::RemovedAtOnce => lab.remove_later(bench, &[snapshot])?,
        State::RemovedAndIdle => {
            lab.remove(bench, &[snapshot])?;
            idle(bench, lab)?;
        }
    }
    Ok((origin, None))
}

/// Waits until nothing is brought together or filled any more.
fn idle(bench: &Bench, lab: &Lab) -> Result {
    let group = lab.group.clone();
    bench.block_on(async move { group.rehome_idle().await }).map_err(text)?;
    lab.settle(bench)
}
