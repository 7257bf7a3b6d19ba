use super::*;

const CACHE: u64 = 64 << 20;

/// A volume that is written in order, block by block: every slot is used up soon after it was taken, and its arena with it.
#[test]
fn what_is_kept_of_arenas_and_slots_is_bounded_however_much_is_written() {
    const CHUNK: u64 = 2;
    let blocks = 3 * MAX_SLOTS as u64 * CHUNK;
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let hands = Hands { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::new(vec![(blocks, 0)]));
    space.add_free(hands, (0, blocks)).unwrap();
    for at in 0..blocks {
        space.alloc(hands, VolumeId(1), CHUNK, (at, 1), Account::Open, &mut Runs::new()).unwrap();
        assert!(space.slots.len() <= MAX_SLOTS + 1, "S5");
    }
    // The same blocks over and over: arenas come and go.
    space.arena_order.clear();
    for _ in 0..3 * MAX_ARENAS {
        space.free_later((0, ARENA_BLOCKS));
        space.begin_commit();
        while !space.finish_commit(hands).unwrap() {}
        let mut taken = Runs::new();
        space.alloc(hands, VolumeId(2), 1, (0, ARENA_BLOCKS), Account::Open, &mut taken).unwrap();
        assert_eq!(taken[..], [(0, ARENA_BLOCKS)]);
        assert!(space.arena_order.len() <= 2 * MAX_ARENAS + 1);
    }
}

/// Blocks that become free twice: two owners call them their own. Whoever met it gets an error, and so does the next checkpoint.
#[test]
fn free_space_that_contradicts_itself_is_not_kept() {
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let hands = Hands { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::new(vec![(4096, 0)]));
    space.add_free(hands, (0, 4096)).unwrap();
    assert!(space.sound().is_ok());
    let Err(MapError::Corrupt(error)) = space.add_free(hands, (100, 1)) else { panic!("they are free already") };
    assert!(error.to_string().contains("100+1 were free already"), "{error}");
    assert_eq!(space.sound().unwrap_err().to_string(), error.to_string());
}
