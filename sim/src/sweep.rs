//! The error sweep: a scenario in which the n-th request of a kind fails, for every n.
//!
//! Whatever fails, nothing panics or hangs, and the failure is reported. The group opens again and keeps all of its
//! promises.

use crate::client::{Client, Failure};
use crate::crash::{Setup, judge_image, panic_text};
use crate::disk::{Faults, Policy};
use crate::exec::World;
use crate::oracle::{Oracle, Since};
use crate::rng::Rng;
use crate::scenario::{Runner, Step};
use parking_lot::Mutex;
use rowen_engine::disk::DiskOpKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Which requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedRequests {
    /// Only the n-th.
    One,
    /// The n-th and all after it.
    AllFrom,
}

/// The result of one run with a failing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// The scenario has fewer requests than that: the sweep has ended.
    NotReached,
    /// An operation reported an error.
    Error,
    /// All operations succeeded: a second copy or a retry covered the failure, or no operation needed the request.
    Nothing,
}

/// Runs `steps` with the `number`-th request of `kind` failing, counted from the group's opening.
pub fn fail_at(
    setup: &Setup,
    steps: &[Step],
    kind: DiskOpKind,
    number: u64,
    extent: FailedRequests,
    seed: u64,
) -> Result<FaultOutcome, String> {
    let run = || fail_inside(setup, steps, kind, number, extent, seed);
    let outcome =
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(format!("PANIC: {}", panic_text(&panic))));
    outcome.map_err(|e| format!("{kind:?} {number} failing ({extent:?}), seed {seed}: {e}"))
}

fn fail_inside(
    setup: &Setup,
    steps: &[Step],
    kind: DiskOpKind,
    number: u64,
    extent: FailedRequests,
    seed: u64,
) -> Result<FaultOutcome, String> {
    let world = World::new(seed);
    let (disks, group) = setup.make(&world).map_err(|e| e.to_string())?;
    let at = disks.requests(kind) + number;
    disks.set_faults(match extent {
        FailedRequests::One => Faults { fail: Some((kind, at)), ..Faults::default() },
        FailedRequests::AllFrom => Faults { fail_from: Some((kind, at)), ..Faults::default() },
    });
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let client = Client::new(world.handle(), group.clone(), oracle.clone());
    let mut runner = Runner::new(client.clone());
    // After an error the scenario continues. Later operations fail with an error or work, and nothing is lost by
    // either.
    let mut outcome = FaultOutcome::Nothing;
    for step in steps {
        match world.try_run(runner.run(std::slice::from_ref(step))) {
            Ok(Ok(())) => {}
            Ok(Err(Failure::Refused(_))) => outcome = FaultOutcome::Error,
            Ok(Err(Failure::Wrong(what))) => return Err(what),
            Err(stuck) => return Err(format!("{stuck} at {step:?}")),
        }
    }
    if disks.requests(kind) <= at {
        return Ok(FaultOutcome::NotReached);
    }
    let oracle = oracle.lock();
    let mut rng = Rng::new(seed);
    let moment = disks.moment();
    for policy in [Policy::Nothing, Policy::All, Policy::Commands] {
        let image = moment.power_cut(policy, &mut rng);
        judge_image(setup, &oracle, Since::PowerLoss, image, seed).map_err(|e| format!("then {policy:?}: {e}"))?;
    }
    let image = moment.killed(&mut rng);
    judge_image(setup, &oracle, Since::Death, image, seed).map_err(|e| format!("then death: {e}"))?;
    Ok(outcome)
}
