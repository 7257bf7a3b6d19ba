//! The simulated world itself. The same seed makes the same run, another seed another one, and no hang stays unnoticed.

use parking_lot::Mutex;
use rowen_engine::runtime::Runtime;
use rowen_sim::exec::{Schedule, Stuck, World};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

/// Ten tasks that sleep and log. Returns the log and the trace hash.
fn race(world: &World) -> (Vec<u64>, u64) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let handle = world.handle();
    world.run(async {
        let tasks: Vec<_> = (0..10)
            .map(|n| {
                let (log, runtime) = (log.clone(), handle.clone());
                handle.start("racer", async move {
                    for step in 0..3 {
                        log.lock().push(n * 10 + step);
                        runtime.sleep(Duration::from_micros(5)).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    (log.lock().clone(), handle.trace_hash())
}

#[test]
fn a_seed_is_one_run() {
    let runs: Vec<_> = (0..20).map(|seed| race(&World::new(seed))).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(*run, race(&World::new(seed as u64)), "seed {seed}");
    }
    assert!(runs.iter().skip(1).all(|run| run.0 != runs[0].0), "the seed must matter");
}

#[test]
fn fifo_runs_in_order() {
    let (log, _) = race(&World::with_schedule(3, Schedule::Fifo));
    assert_eq!(log[..10], (0..10).map(|n| n * 10).collect::<Vec<_>>()[..]);
}

#[test]
fn a_deadlock_names_the_waiting_tasks() {
    let world = World::new(1);
    world.handle().spawn("waits-for-ever", Box::pin(pending()));
    world.handle().spawn("ends", Box::pin(async {}));
    let stuck = world.try_run(pending::<()>());
    assert_eq!(stuck, Err(Stuck::Deadlock(vec!["waits-for-ever"])));
}

#[test]
fn a_timer_that_never_helps_is_a_livelock() {
    let world = World::new(1);
    let handle = world.handle();
    let again = handle.clone();
    handle.spawn(
        "ticker",
        Box::pin(async move {
            loop {
                again.sleep(Duration::from_secs(1)).await;
            }
        }),
    );
    assert_eq!(world.try_run(pending::<()>()), Err(Stuck::Livelock(vec!["ticker"])));
}

#[test]
fn a_world_takes_its_tasks_with_it() {
    let held = Arc::new(());
    let world = World::new(1);
    let theirs = held.clone();
    world.handle().spawn(
        "holder",
        Box::pin(async move {
            pending::<()>().await;
            drop(theirs);
        }),
    );
    world.settle(10);
    assert_eq!(Arc::strong_count(&held), 2);
    drop(world);
    assert_eq!(Arc::strong_count(&held), 1);
}
