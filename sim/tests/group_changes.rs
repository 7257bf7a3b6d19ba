//! Changes of the group itself, which are checkpoints and no records: whenever the power goes, the group has all of the
//! old attributes or all of the new ones, and what a command answered for is there.
#![allow(clippy::unwrap_used)]

use rowen_engine::disk::Disks;
use rowen_engine::group::{Config, Group, GroupAttributes};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Moment, POLICIES, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a group says of itself: its name and attributes.
type Said = (String, GroupAttributes);

fn attributes() -> GroupAttributes {
    GroupAttributes {
        exported: true,
        max_volumes: 3,
        tags: vec!["one".into(), "two".into()],
        pv_tags: vec![Vec::new(), vec!["second".into()]],
        ..GroupAttributes::default()
    }
}

/// What is found after a cut.
fn found(moment: &Moment, policy: Option<rowen_sim::disk::Policy>, seed: u64) -> Said {
    let mut rng = Rng::new(seed);
    let image = match policy {
        Some(policy) => moment.power_cut(policy, &mut rng),
        None => moment.killed(&mut rng),
    };
    let world = World::new(seed);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
    world.run(async {
        assert_eq!(Group::check(disks.clone()).await.unwrap().findings, Vec::<String>::new());
        let group = Group::open(disks.clone(), world.handle(), Config::default()).await.unwrap();
        let before = (group.info().name, group.info().attributes);
        group.close().await.unwrap();
        let group = Group::open(disks.clone(), world.handle(), Config::default()).await.unwrap();
        assert_eq!(before, (group.info().name, group.info().attributes), "opened a second time");
        before
    })
}

#[test]
fn attributes_and_name_change_as_a_whole() {
    let setup = Setup::small(2, 16);
    let world = World::new(7);
    let (disks, group) = setup.make(&world).unwrap();
    let old = (group.info().name, GroupAttributes::default());
    let states = [
        old.clone(),
        (old.0.clone(), attributes()),
        ("renamed".to_owned(), attributes()),
        ("renamed".to_owned(), GroupAttributes::default()),
    ];
    let done = AtomicUsize::new(0);
    disks.keep_moments();
    let change = async {
        group.set_group_attributes(attributes()).await.unwrap();
        done.store(1, Ordering::SeqCst);
        group.rename_group("renamed").await.unwrap();
        done.store(2, Ordering::SeqCst);
        group.set_group_attributes(GroupAttributes::default()).await.unwrap();
        done.store(3, Ordering::SeqCst);
    };
    let mut seen = [0; 4];
    let mut judge = |moment: &Moment, answered: usize| {
        for policy in POLICIES.into_iter().map(Some).chain([None]) {
            let said = found(moment, policy, moment.event + 1);
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
    world.try_run_observed(change, &mut observe).unwrap();
    judge(&disks.moment(), 3);
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}

#[test]
fn too_much_is_refused_and_changes_nothing() {
    let world = World::new(1);
    let (_disks, group) = Setup::small(1, 16).make(&world).unwrap();
    world.run(async {
        for tags in [vec!["x".repeat(1025)], vec!["x".to_owned(); 257]] {
            assert!(group.set_group_attributes(GroupAttributes { tags, ..Default::default() }).await.is_err());
        }
        assert!(group.rename_group("").await.is_err());
        assert!(group.rename_group(&"x".repeat(128)).await.is_err());
        assert_eq!(group.info().attributes, GroupAttributes::default());
    });
}
