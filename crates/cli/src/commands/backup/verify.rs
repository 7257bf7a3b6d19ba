//! `rowen backup verify`: whether the copies at the targets have what the volumes have here.
//!
//! Invariants
//!
//! * BK6 A copy is the same only if both sides have read all blocks of one snapshot, and the sums and sizes are equal.

use super::files::{policies, volumes};
use super::run::job;
use crate::commands::replicate::Side;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::backup::{Policy, Target};
use rowen_control::points::Summed;
use rowen_control::units::Units;
use rowen_engine::planted;
use rowen_engine::units::BLOCK_SIZE;
use serde_json::json;
use std::collections::BTreeMap;

/// Blocks that are compared at a time: 4 GiB. The progress is shown after each.
const PIECE: u64 = (4 << 30) / BLOCK_SIZE;

/// One copy of a volume.
struct Copy {
    policy: String,
    target: String,
    from: Side,
    to: Side,
    /// What is compared; none: it is not known what.
    common: Option<Common>,
    found: Found,
}

/// The newest snapshot that both sides have.
#[derive(Clone)]
struct Common {
    snapshot: String,
    point_uuid: String,
    blocks: u64,
}

enum Found {
    Same,
    /// The first byte of the first block that differs.
    Different(u64),
    NotCompared(String),
}

pub fn verify(session: &mut Session<'_>, args: &Args, names: &[String]) -> Result {
    let (mut copies, is_incomplete) = copies(session, names)?;
    let total = copies.iter().filter_map(|copy| copy.common.as_ref()).map(|common| common.blocks).sum();
    let mut done = 0;
    for copy in &mut copies {
        let Some(common) = copy.common.clone() else { continue };
        copy.found = copy.compare(session, &common, (done, total)).unwrap_or_else(not_compared);
        done += common.blocks;
    }
    let is_well = !is_incomplete && copies.iter().all(|copy| matches!(copy.found, Found::Same));
    if args.has(Opt::Json) {
        let rows: Vec<_> = copies.iter().map(Copy::json).collect();
        session.console.raw_out(&format!("{:#}\n", json!({ "healthy": is_well, "copies": rows })));
    } else {
        copies.iter().for_each(|copy| copy.tell(session, args.units()));
    }
    if is_well { Ok(()) } else { Err(Failure::Unhealthy) }
}

fn not_compared(failure: Failure) -> Found {
    let lines = failure.lines("");
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    Found::NotCompared(lines.join(" "))
}

/// The copies that these policies make. True: something that a policy names is missing.
fn copies(session: &mut Session<'_>, names: &[String]) -> Result<(Vec<Copy>, bool)> {
    let mut policies = policies(session, names)?;
    let without = policies.iter().find(|policy| policy.targets.is_empty());
    if let (Some(policy), false) = (without, names.is_empty()) {
        let name = &policy.name;
        return Err(Failure::failed(format!(
            "Policy {name} has no target: there is no copy to compare. Leave it out."
        )));
    }
    policies.retain(|policy| !policy.targets.is_empty());
    if policies.is_empty() {
        return Err(Failure::failed(
            "No policy has a target: there is no copy to compare. docs/backup.md shows how a policy gets one.",
        ));
    }
    let (mut copies, mut is_incomplete, mut reports) = (Vec::new(), false, BTreeMap::new());
    for policy in &policies {
        let (groups, missing) = volumes(session, policy, &mut reports);
        is_incomplete |= missing;
        for (group, volumes) in groups {
            for volume in volumes {
                let side = Side { at: crate::backend::Where::Here, group: group.clone(), volume };
                for target in &policy.targets {
                    copies.push(copy(session, policy, &side, target)?);
                }
            }
        }
    }
    Ok((copies, is_incomplete))
}

/// A copy, and what can be compared of it.
fn copy(session: &mut Session<'_>, policy: &Policy, side: &Side, target: &Target) -> Result<Copy> {
    let job = job(side, target, true)?;
    let mut copy = Copy {
        policy: policy.name.clone(),
        target: target.name.clone(),
        from: job.from,
        to: job.to,
        common: None,
        found: Found::NotCompared(String::new()),
    };
    match copy.common(session) {
        Ok(common) => copy.common = Some(common),
        Err(failure) => copy.found = not_compared(failure),
    }
    Ok(copy)
}

/// The sum of some blocks of a point, and its size.
fn sum(session: &mut Session<'_>, side: &Side, point_uuid: &str, (from, count): (u64, u64)) -> Result<Summed> {
    let blocks = format!("{from}:{count}");
    let points = side.look_with(session, &["--sum", point_uuid, "--blocks", &blocks])?;
    points.summed.ok_or_else(|| {
        Failure::failed(format!("{} gives no sum of its contents: is Rowen of an older version there?", side.shown()))
    })
}

impl Copy {
    /// The newest snapshot that both sides have, in one size.
    fn common(&self, session: &mut Session<'_>) -> Result<Common> {
        let (from, to) = (self.from.look(session)?, self.to.look(session)?);
        if !to.exists {
            return Err(Failure::failed("Nothing has arrived yet."));
        }
        let at_source = |uuid: &str| from.snapshots().find(|point| point.point_uuid == uuid);
        let Some(point) = to.snapshots().rev().find_map(|point| at_source(&point.point_uuid)) else {
            return Err(Failure::failed("Both sides have no snapshot in common."));
        };
        let (here, there) =
            (sum(session, &self.from, &point.point_uuid, (0, 0))?, sum(session, &self.to, &point.point_uuid, (0, 0))?);
        if here.blocks != there.blocks {
            return Err(Failure::failed(format!(
                "{} has {} bytes here and {} bytes there.",
                point.name,
                here.blocks * BLOCK_SIZE,
                there.blocks * BLOCK_SIZE
            )));
        }
        Ok(Common { snapshot: point.name.clone(), point_uuid: point.point_uuid.clone(), blocks: here.blocks })
    }

    /// Reads all of it on both sides (BK6).
    fn compare(&self, session: &mut Session<'_>, common: &Common, (done, total): (u64, u64)) -> Result<Found> {
        let what = format!("Comparing {} with {}", self.from.shown(), self.to.shown());
        let mut at = 0;
        while at < common.blocks {
            session.console.progress(done + at, total, &what);
            let count = PIECE.min(common.blocks - at);
            if self.differs(session, common, (at, count))? {
                return Ok(Found::Different(self.first(session, common, (at, count))? * BLOCK_SIZE));
            }
            at += count;
        }
        Ok(Found::Same)
    }

    fn differs(&self, session: &mut Session<'_>, common: &Common, blocks: (u64, u64)) -> Result<bool> {
        let here = sum(session, &self.from, &common.point_uuid, blocks)?;
        let there = sum(session, &self.to, &common.point_uuid, blocks)?;
        Ok(here.sum != there.sum && !planted::is("sums_not_compared"))
    }

    /// The first block that differs, of some of which one does.
    fn first(&self, session: &mut Session<'_>, common: &Common, (mut at, mut count): (u64, u64)) -> Result<u64> {
        while count > 1 {
            let half = count / 2;
            if self.differs(session, common, (at, half))? {
                count = half;
            } else {
                (at, count) = (at + half, count - half);
            }
        }
        Ok(at)
    }

    fn snapshot(&self) -> Option<&str> {
        self.common.as_ref().map(|common| common.snapshot.as_str())
    }

    fn bytes(&self) -> Option<u64> {
        self.common.as_ref().map(|common| common.blocks * BLOCK_SIZE)
    }

    fn tell(&self, session: &mut Session<'_>, units: Units) {
        let size = units.show(self.bytes().unwrap_or(0), true);
        let name = self.snapshot().unwrap_or("its newest snapshot");
        let (mark, told) = match &self.found {
            Found::Same => ("ok", format!("{name} is the same, {}", size.trim())),
            Found::Different(byte) => {
                ("DIFF", format!("{name} differs, first in the {BLOCK_SIZE} bytes at byte {byte} of the volume"))
            }
            Found::NotCompared(_) => ("FAIL", format!("{name} was not compared")),
        };
        let (from, to) = (self.from.shown(), self.to.shown());
        session.console.say(format!("{mark:<4} {} {from} at {} ({to}): {told}", self.policy, self.target));
        match &self.found {
            Found::Same => {}
            Found::Different(_) => session.console.say(format!(
                "     One side is damaged. If it is the copy, remove {to} and its snapshots (rowen release --all, lvremove): the next run \
                 sends all of {from} again."
            )),
            Found::NotCompared(why) => session.console.say(format!("     {why}")),
        }
    }

    fn json(&self) -> serde_json::Value {
        let (result, first, problem) = match &self.found {
            Found::Same => ("same", None, None),
            Found::Different(byte) => ("different", Some(byte), None),
            Found::NotCompared(why) => ("not_compared", None, Some(why)),
        };
        json!({
            "policy": self.policy, "volume": self.from.full(), "target": self.target, "to": self.to.shown(),
            "snapshot": self.snapshot(), "bytes": self.bytes(), "result": result,
            "first_difference": first, "first_difference_bytes": first.map(|_| BLOCK_SIZE), "problem": problem,
        })
    }
}
