//! How long making and deleting a snapshot takes, and what a volume is like that was overwritten at random. Nobody publishes it.
//!
//! `make experiments EXPERIMENT=lifecycle`

use super::{Experiment, Remark, Sizes, UNUSED};
use crate::command::Result;
use crate::context::{Context, Form, Key, MIB, Quantity};
use crate::runner::Pass;
use crate::stack::{Stack, System};
use crate::streams::{self, Through};
use crate::writes::{self, Writes};
use std::path::Path;
use std::time::Duration;

pub const EXPERIMENT: Experiment = Experiment {
    name: "lifecycle",
    title: "Making, overwriting, reading and deleting",
    source: None,
    question: "How long do making and deleting a snapshot take, before and after its origin was overwritten; and how fast are origin and \
               snapshot then read from end to end?",
    expected: "Making takes milliseconds with Rowen and some tenths of a second with LVM, whatever was written. Deleting returns at \
               once with Rowen. After random overwrites the origin reads in pieces where writes are redirected (Rowen, LVM thin), the \
               snapshot reads in pieces where they are copied (LVM classic).",
    steps: "lvcreate; write all of it; read it; lvcreate -s; random writes of 4 KiB, each block of it once; read origin and snapshot, 1 MiB at \
            a time, past the page cache; lvremove",
    notes: "Chunks of 64 KiB. Commands are timed from their start to their end; LVM's have no udev to wait for in user-mode-linux.",
    systems: &[System::Raw, System::Classic, System::Thin, System::Rowen],
    axis: "state",
    base: &[],
    body,
    published: Vec::new,
    sizes,
    passes: &Pass::ALL,
    quick_passes: &[Pass::Host],
    is_long: false,
    remarks: &[Remark {
        system: "Rowen",
        metric: "read",
        parameters: &[("state", "origin, overwritten at random")],
        why: "A chunk of 64 KiB takes its place when it is first written to, so chunks lie in the order of the random writes, and are \
              whole inside. Reading from end to end is one request for each 64 KiB at a place of its own: a seek and half a turn for \
              0.8 ms of transfer on a disk that turns, no cost on one that does not.",
    }],
    mib: [16, 64, 256],
    seconds: [[10.0, 110.0, 23.0], [40.0, 200.0, 60.0]],
};

const CHUNK: &str = "64k";

fn sizes(form: &Form) -> Sizes {
    let all = 4 * form.mib + 192;
    Sizes { raw: form.mib + 16, lvm: all, mirror: UNUSED, rowen: all, rowen_mirror: UNUSED }
}

fn body(context: &Context) -> Result {
    context.in_turn(|system, round, _| one(context, &context.stack(system), round))
}

fn one(context: &Context, stack: &Stack<'_>, round: usize) -> Result {
    let (system, mib) = (stack.system, context.form.mib);
    stack.begin()?;
    let node = stack.origin(mib, CHUNK, 3 * mib)?;
    streams::fill_device(&node, mib)?;
    let read = |state: &str, from: &Path| {
        let pairs = [("state", state)];
        let key = Key::new(system, "read", if system == System::Raw { &[] } else { &pairs }, round);
        context.section(key, Quantity::Bytes(mib * MIB), || streams::read(from, 0, mib, Through::Past))
    };
    read("origin, in order", &node)?;
    if system == System::Raw {
        return Ok(());
    }
    let timed = |metric: &str, state: &str, body: &dyn Fn() -> Result| {
        context.section(Key::new(system, metric, &[("state", state)], round), Quantity::Once, body)
    };
    let reserve = mib + mib / 8 + 8;
    timed("making a snapshot", "of a volume just written", &|| stack.snapshot("before", CHUNK, reserve).map(drop))?;
    let writes = Writes {
        target: &node,
        block: 4096,
        is_random: true,
        through: Through::Past,
        offset: 0,
        span: mib * MIB,
        requests: mib * MIB / 4096,
        limit: Duration::from_secs(120),
        seed: 5 + round as u64,
    };
    writes::pass(&writes)?;
    read("origin, overwritten at random", &node)?;
    read("snapshot, its origin overwritten", &stack.node("before"))?;
    timed("making a snapshot", "of one overwritten at random", &|| stack.snapshot("second", CHUNK, reserve).map(drop))?;
    timed("deleting a snapshot", "with nothing of its own", &|| stack.remove("second"))?;
    timed("deleting a snapshot", "its origin overwritten", &|| stack.remove("before"))
}
