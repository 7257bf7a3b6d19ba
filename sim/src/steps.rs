//! A few changes one after the other, cut at every disk event. Whenever the power fails or the program dies, the group
//! has the state before or after the change in flight. A change that was answered is there. For changes that the oracle
//! of [`crate::crash`] does not know.

use crate::disk::{Moment, POLICIES, Policy, SimDisks};
use crate::exec::World;
use crate::rng::Rng;
use rowen_engine::disk::Disks;
use rowen_engine::group::{Config, Group};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Opens the group after a crash and returns its answer to `ask`. Panics if a check finds something, or if a second
/// opening answers differently.
fn found<T: Debug + PartialEq>(moment: &Moment, policy: Option<Policy>, ask: &impl AsyncFn(&Arc<Group>) -> T) -> T {
    let seed = moment.event + 1;
    let image = moment.crash(policy, &mut Rng::new(seed));
    let world = World::new(seed);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
    world.run(async {
        assert_eq!(Group::check(disks.clone()).await.expect("it can be checked").findings, Vec::<String>::new());
        let group = Group::open(disks.clone(), world.handle(), Config::default()).await.expect("it opens");
        let first = ask(&group).await;
        group.close().await.expect("it closes");
        let group = Group::open(disks.clone(), world.handle(), Config::default()).await.expect("it opens");
        assert_eq!(first, ask(&group).await, "opened a second time");
        first
    })
}

/// Runs `change`, which counts the answered steps in `done`. `states`: the answers to `ask` before the first step and
/// after each step. Panics if `ask` finds another state, or if it never finds one of them.
pub fn each_is_whole<T: Debug + PartialEq>(
    world: &World,
    disks: &SimDisks,
    states: &[T],
    done: &AtomicUsize,
    change: impl Future<Output = ()>,
    ask: impl AsyncFn(&Arc<Group>) -> T,
) {
    disks.keep_moments();
    let mut seen = vec![0; states.len()];
    let mut judge = |moment: &Moment, answered: usize| {
        for policy in POLICIES.into_iter().map(Some).chain([None]) {
            let said = found(moment, policy, &ask);
            let place = states.iter().position(|state| *state == said);
            let place = place.unwrap_or_else(|| panic!("event {}, {policy:?}: {said:?}", moment.event));
            assert!((answered..=answered + 1).contains(&place), "event {}, {policy:?}: {said:?}", moment.event);
            seen[place] += 1;
        }
    };
    let mut observe = || {
        for moment in disks.take_moments() {
            judge(&moment, done.load(Ordering::SeqCst));
        }
    };
    world.try_run_observed(change, &mut observe).expect("the change ends");
    judge(&disks.moment(), states.len() - 1);
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}
