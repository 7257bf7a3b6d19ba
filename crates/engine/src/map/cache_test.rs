use super::*;
use crate::format::node::{Entry, Extent};
use crate::planted::must_be_found;
use crate::units::Epoch;

fn name(addr: u64, generation: u64) -> NodeRef {
    NodeRef { addr: MetaBlock(addr), generation, birth: Epoch(1) }
}

fn node(addr: u64, generation: u64) -> Node {
    let extent = Extent { key: 0, len: 1, value: addr, birth: Epoch(1), flags: 0 };
    Node::new(name(addr, generation), 0, &[Entry::leaf(&extent)])
}

const ROOM: u64 = 256;

#[test]
fn clean_nodes_keep_to_the_bound_and_dirty_ones_stay() {
    let cache = NodeCache::new(ROOM * NODE_COST);
    (0..100).for_each(|addr| cache.insert_dirty(node(addr, 1)));
    for addr in 1000..3000 {
        cache.insert_clean(node(addr, 1));
        assert!(cache.get(name(addr, 1)).is_some(), "the newest stays");
        assert!(cache.bytes() <= ROOM * NODE_COST, "NC1");
    }
    assert_eq!(cache.dirty_bytes(), 100 * NODE_COST);
    assert!((0..100).all(|addr| cache.get(name(addr, 1)).is_some()), "NC1");
    assert_eq!(cache.len() as u64, ROOM);
}

#[test]
fn a_cache_full_of_dirty_nodes_shrinks_once_they_are_clean() {
    let cache = NodeCache::new(ROOM * NODE_COST);
    (0..1000).for_each(|addr| cache.insert_dirty(node(addr, 1)));
    assert_eq!(cache.len(), 1000);
    (0..1000).for_each(|addr| cache.mark_clean(MetaBlock(addr), 1));
    assert_eq!((cache.dirty_bytes(), cache.bytes()), (0, ROOM * NODE_COST));
}

#[test]
fn clean_nodes_have_room_next_to_any_number_of_dirty_ones() {
    let cache = NodeCache::new(ROOM * NODE_COST);
    (0..1000).for_each(|addr| cache.insert_dirty(node(addr, 1)));
    (2000..2100).for_each(|addr| drop(cache.insert_clean(node(addr, 1))));
    let kept = (2000..2100).filter(|&addr| cache.get(name(addr, 1)).is_some()).count() as u64;
    assert_eq!(kept, ROOM / 8, "NC1");
}

#[test]
fn nodes_in_use_outlive_those_that_are_not() {
    let cache = NodeCache::new(ROOM * NODE_COST);
    (0..64).for_each(|addr| drop(cache.insert_clean(node(addr, 1))));
    for addr in 1000..3000 {
        cache.insert_clean(node(addr, 1));
        (0..64).for_each(|hot| drop(cache.get(name(hot, 1))));
    }
    let kept = (0..64).filter(|&hot| cache.get(name(hot, 1)).is_some()).count();
    assert!(kept >= 60, "{kept} of 64"); // Before the first round all nodes look alike.
}

#[test]
fn a_node_answers_only_to_its_exact_name() {
    let cache = NodeCache::new(0);
    cache.insert_dirty(node(5, 3));
    assert!(cache.get(name(5, 3)).is_some());
    assert!(cache.get(name(5, 2)).is_none() && cache.get(name(6, 3)).is_none(), "NC2");
    assert!(cache.get(NodeRef { birth: Epoch(2), ..name(5, 3) }).is_none(), "NC2");
    cache.insert_clean(node(5, 2));
    assert!(cache.get(name(5, 3)).is_some(), "a late read of the old block does not replace the new node (NC2)");
    cache.mark_clean(MetaBlock(5), 2);
    assert_eq!(cache.dirty_bytes(), NODE_COST, "nor does a late write clean it");
    cache.mark_clean(MetaBlock(5), 3);
    cache.insert_clean(node(5, 4));
    assert!(cache.get(name(5, 4)).is_some() && cache.get(name(5, 3)).is_none());
    assert_eq!((cache.len(), cache.dirty_bytes()), (1, 0));
}

#[test]
fn dirty_nodes_come_by_generation_in_order_of_address() {
    let cache = NodeCache::new(0);
    for addr in (0..200).rev() {
        cache.insert_dirty(node(addr, addr % 3));
    }
    cache.insert_clean(node(900, 0));
    let addrs: Vec<_> = cache.dirty_nodes(1).iter().map(|node| node.this().addr.0).collect();
    assert_eq!(addrs, (0..200).filter(|addr| addr % 3 < 2).collect::<Vec<_>>());
}

#[test]
fn a_node_that_is_held_does_not_change() {
    let cache = NodeCache::new(0);
    cache.insert_clean(node(7, 1));
    let held = cache.get(name(7, 1)).unwrap();
    let other = Entry::leaf(&Extent { key: 9, len: 1, value: 9, birth: Epoch(1), flags: 0 });
    let edited = cache.edit(name(7, 1), |node| {
        node.splice(0..1, &[other]);
        true
    });
    assert_eq!((edited, cache.edit(name(7, 2), |_| true)), (Some(true), None));
    assert_eq!(held.entries()[0].key(), 0, "NC3");
    assert_eq!(cache.get(name(7, 1)).unwrap().entries(), [other]);
    assert_eq!(cache.dirty_bytes(), NODE_COST, "a changed node is dirty");
}

#[test]
fn forgotten_nodes_are_gone_and_not_counted() {
    let cache = NodeCache::new(0);
    (0..50).for_each(|addr| cache.insert_dirty(node(addr, 1)));
    (100..150).for_each(|addr| drop(cache.insert_clean(node(addr, 1))));
    (0..25).chain(100..125).chain(500..600).for_each(|addr| cache.forget(MetaBlock(addr)));
    assert_eq!((cache.bytes(), cache.dirty_bytes()), (50 * NODE_COST, 25 * NODE_COST));
    assert!((25..50).chain(125..150).all(|addr| cache.get(name(addr, 1)).is_some()));
    cache.drop_clean(|name| name.addr.0 < 130);
    assert_eq!((cache.len(), cache.dirty_bytes()), (30, 25 * NODE_COST));
    assert!(!cache.is_empty());
}

/// NC4: a change of a node holds its shard and no other, and afterwards none.
#[test]
fn no_two_shards_are_held() {
    let cache = NodeCache::new(0);
    let held = || cache.shards.iter().filter(|shard| shard.0.try_write().is_none()).count();
    // Above its bound, so that each of these evicts.
    (0..1000).for_each(|addr| drop(cache.insert_clean(node(addr, 1))));
    assert_eq!(held(), 0, "NC4");
    cache.insert_clean(node(7, 1));
    let (edited, looked) = (cache.edit(name(7, 1), |_| held() == 1), cache.with(name(7, 1), |_| held()));
    assert_eq!((edited, looked), (Some(true), Some(1)), "NC4");
    cache.mark_clean(MetaBlock(7), 1);
    cache.forget(MetaBlock(7));
    cache.drop_clean(|_| held() == 1);
    assert_eq!(held(), 0, "NC4");
}

#[test]
fn faults_of_the_cache_are_found() {
    must_be_found("changed_stays_clean", a_node_that_is_held_does_not_change);
    must_be_found("found_by_address", a_node_answers_only_to_its_exact_name);
}
