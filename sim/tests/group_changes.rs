//! Changes of the group itself, which are checkpoints and no records. Whenever the power fails, the group has all of
//! the old attributes or all of the new ones. A change that a command answered is there.

use rowen_engine::group::{Group, GroupAttributes};
use rowen_sim::crash::Setup;
use rowen_sim::exec::World;
use rowen_sim::steps::each_is_whole;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A group's name and attributes.
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

async fn said(group: &Arc<Group>) -> Said {
    (group.info().name, group.info().attributes)
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
    let change = async {
        group.set_group_attributes(attributes()).await.unwrap();
        done.store(1, Ordering::SeqCst);
        group.rename_group("renamed").await.unwrap();
        done.store(2, Ordering::SeqCst);
        group.set_group_attributes(GroupAttributes::default()).await.unwrap();
        done.store(3, Ordering::SeqCst);
    };
    each_is_whole(&world, &disks, &states, &done, change, said);
}

#[test]
fn too_much_is_refused_and_changes_nothing() {
    let world = World::new(1);
    let (_disks, group) = Setup::small(1, 16).make(&world).unwrap();
    world.run(async {
        for tags in [vec!["x".repeat(1025)], vec!["x".repeat(1024); 257]] {
            assert!(group.set_group_attributes(GroupAttributes { tags, ..Default::default() }).await.is_err());
        }
        assert!(group.rename_group("").await.is_err());
        assert!(group.rename_group(&"x".repeat(128)).await.is_err());
        assert_eq!(group.info().attributes, GroupAttributes::default());
    });
}
