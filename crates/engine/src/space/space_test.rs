use super::longest_run::all_leaves;
use super::metadata::NODES_FOR_WRITE;
use super::*;
use crate::map::{self, Extent, Fit};
use crate::planted::must_be_found;
use std::ops::Range;

const CACHE: u64 = 64 << 20;

/// A volume that is written in order, block by block. Every slot is used up soon after it was taken, and so is its
/// arena.
#[test]
fn what_is_kept_of_arenas_and_slots_is_bounded_however_much_is_written() {
    const CHUNK: u64 = 2;
    let blocks = 3 * MAX_SLOTS as u64 * CHUNK;
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(blocks, 0)]));
    space.add_free(context, (0, blocks)).unwrap();
    for at in 0..blocks {
        space
            .alloc(context, (VolumeId(1), SegmentType::Linear), CHUNK, (at, 1), Account::Open, &mut Runs::new())
            .unwrap();
        assert!(space.slots.len() <= MAX_SLOTS + 1, "S5");
    }
    // The same blocks again and again: arenas are opened and closed.
    space.arena_order.clear();
    for _ in 0..3 * MAX_ARENAS {
        space.free_later((0, ARENA_BLOCKS));
        space.begin_commit();
        while !space.finish_commit(context).unwrap() {}
        let mut taken = Runs::new();
        space
            .alloc(context, (VolumeId(2), SegmentType::Linear), 1, (0, ARENA_BLOCKS), Account::Open, &mut taken)
            .unwrap();
        assert_eq!(taken[..], [(0, ARENA_BLOCKS)]);
        assert!(space.arena_order.len() <= 2 * MAX_ARENAS + 1);
    }
}

/// Blocks that are freed twice: two owners call them their own. The second free gets an error, and so does the next
/// checkpoint.
#[test]
fn free_space_that_contradicts_itself_is_not_kept() {
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(4096, 0)]));
    space.add_free(context, (0, 4096)).unwrap();
    assert!(space.check_double_free().is_ok());
    let Err(MapError::Corrupt(error)) = space.add_free(context, (100, 1)) else { panic!("they are free already") };
    assert!(error.to_string().contains("100+1 were free already"), "{error}");
    assert_eq!(space.check_double_free().unwrap_err().to_string(), error.to_string());
}

/// The first free extent of `min` blocks in `place`, found by a search of the whole tree.
fn found_in_all_leaves(space: &Space, context: AllocContext<'_>, min: u32, place: &Range<u64>) -> Option<Extent> {
    let fit = map::first_fit(context.cache, &space.free_tree, place.start, min, usize::MAX).unwrap();
    let mut at = place.start;
    let mut fit = fit;
    loop {
        let Fit::Found(e) = fit else { return None };
        if let Some(part) = e.cut(at, place.end).filter(|part| part.len >= min) {
            return Some(part);
        }
        at = e.end();
        if at >= place.end {
            return None;
        }
        fit = map::first_fit(context.cache, &space.free_tree, at, min, usize::MAX).unwrap();
    }
}

/// LR1: searches that skip chunks find the same as a search of all leaves, whatever was taken and freed in between.
#[test]
fn searches_find_the_first_fit_of_all_leaves() {
    const BLOCKS: u64 = 40 * longest_run::CHUNK;
    for seed in 1..=8u64 {
        let mut dice = seed;
        let mut below = |n: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % n
        };
        let cache = NodeCache::new(CACHE);
        let meta = Mutex::new(MetaSpace::new(&[[0, 1 << 20]], &[], 1 << 20));
        let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
        let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(BLOCKS / 2, 0), (BLOCKS, 0)]));
        space.add_free(context, (0, BLOCKS / 2)).unwrap();
        space.add_free(context, (BLOCKS / 2, BLOCKS / 2)).unwrap();
        let mut taken: Vec<Run> = Vec::new();
        // In half of the runs the first chunks are in single blocks, so that each has many leaves.
        let pieces = if seed % 2 == 0 { 4 * longest_run::CHUNK } else { 0 };
        for block in (0..pieces).step_by(2) {
            space.take_run(context, (block, 1)).unwrap();
            taken.push((block, 1));
        }
        for round in 0..6000 {
            // At first more is taken than freed, in pieces. Then the other way round.
            let takes = if round < 3000 { 3 } else { 1 };
            for _ in 0..4 {
                if below(4) < takes
                    && let Some(e) = found_in_all_leaves(&space, context, 1, &(below(BLOCKS)..u64::MAX))
                {
                    let class = below(12);
                    let most = 1 + below(1 << class);
                    let first = e.key + below(u64::from(e.len)).min(below(200));
                    let run = (first, most.min(e.end() - first));
                    space.take_run(context, run).unwrap();
                    taken.push(run);
                } else if !taken.is_empty() {
                    let run = taken.swap_remove(below(taken.len() as u64) as usize);
                    space.put_run(context, run).unwrap();
                }
            }
            let min = 1 << below(13);
            let most = if below(2) == 0 { BLOCKS } else { pieces.max(1) };
            let from = below(most);
            let place = from..if below(2) == 0 { u64::MAX } else { from + below(BLOCKS) };
            // A search that is limited to a few leaves leaves an unfinished search of a chunk.
            let hurried = u64::from(min) << below(3);
            space.search_in(context, SegmentType::Linear, hurried, 0..u64::MAX, &mut (below(4) as usize)).unwrap();
            if below(2) == 0 {
                continue;
            }
            let wanted = found_in_all_leaves(&space, context, min, &place);
            let found = space
                .search_in(context, SegmentType::Linear, u64::from(min), place.clone(), &mut all_leaves())
                .unwrap();
            assert_eq!(found, wanted, "seed {seed}, round {round}: {min} blocks in {place:?}");
        }
    }
}

/// A run that is freed in the searched part of an unfinished search counts, too.
#[test]
fn an_unfinished_search_counts_freed_runs() {
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(longest_run::CHUNK, 0)]));
    space.add_free(context, (0, longest_run::CHUNK)).unwrap();
    for block in (0..longest_run::CHUNK).step_by(2) {
        space.take_run(context, (block, 1)).unwrap();
    }
    let search = |space: &mut Space, min, mut leaves| {
        let found = space.search_in(context, SegmentType::Linear, min, 0..u64::MAX, &mut leaves).unwrap();
        found.map(|e| (e.key, e.len))
    };
    assert_eq!(search(&mut space, 2, 2), None);
    space.put_run(context, (2, 1)).unwrap();
    assert_eq!(search(&mut space, 8, all_leaves()), None);
    assert_eq!(search(&mut space, 2, all_leaves()), Some((1, 3)));
    // Now all chunks are known, and no unknown leaf has to be searched.
    assert_eq!(search(&mut space, 8, 0), None);
}

#[test]
fn a_search_that_misses_freed_runs_is_found() {
    must_be_found("search_not_updated", an_unfinished_search_counts_freed_runs);
}

/// An arena is used up, a part of it is freed, and another arena begins there. Slots of the first arena say nothing
/// about it (S5).
#[test]
fn a_slot_ends_with_its_arena() {
    const CHUNK: u64 = 4;
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(1024, 0)]));
    space.add_free(context, (0, 2 * CHUNK)).unwrap();
    let alloc = |space: &mut Space, volume, chunk, run| {
        let mut taken = Runs::new();
        space
            .alloc(context, (VolumeId(volume), SegmentType::Linear), chunk, run, Account::Open, &mut taken)
            .map(|()| taken.to_vec())
    };
    for run in [(0, 1), (4, 1), (1, 3), (5, 3)] {
        alloc(&mut space, 1, CHUNK, run).unwrap();
    }
    assert_eq!(space.free_blocks(), 0);
    space.free_later((0, CHUNK));
    space.begin_commit();
    while !space.finish_commit(context).unwrap() {}
    assert_eq!(alloc(&mut space, 2, 1, (0, 1)), Ok(vec![(0, 1)]));
    // The slot belongs to another volume's arena by now.
    alloc(&mut space, 1, CHUNK, (1, 1)).unwrap();
    let left: Vec<Run> = (0..2).flat_map(|at| alloc(&mut space, 2, 1, (1 + at, 1)).unwrap()).collect();
    assert_eq!((left.len(), space.free_blocks()), (2, 0));
}

#[test]
fn a_slot_that_outlives_its_arena_is_found() {
    must_be_found("slot_of_another", a_slot_ends_with_its_arena);
}

/// S4: a thick volume gets its blocks when it needs them.
#[test]
fn reserved_blocks_go_to_no_other_volume() {
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(16, 0)]));
    space.add_free(context, (0, 16)).unwrap();
    space.reserve_blocks(SegmentType::Linear, 10);
    let mut alloc = |volume, run, account| {
        space.alloc(context, (VolumeId(volume), SegmentType::Linear), 1, run, account, &mut Runs::new())
    };
    assert_eq!(alloc(1, (0, 7), Account::Open), Err(AllocError::Full), "S4");
    assert_eq!(alloc(1, (0, 6), Account::Open), Ok(()));
    assert_eq!(alloc(2, (0, 10), Account::Thick), Ok(()), "S4");
}

/// M3: no more writes are admitted at a time than there are blocks for.
#[test]
fn writes_are_let_in_while_there_are_blocks_for_all() {
    let mut meta = MetaSpace::new(&[[0, 1024]], &[], 1024);
    let free = meta.free_beyond_reserve();
    let under_way = (0..free).take_while(|_| meta.admit_write()).count() as u64;
    assert!(
        under_way > 1 && NODES_FOR_WRITE + 2 * (under_way - 1) <= free,
        "M3: {under_way} writes with {free} blocks"
    );
    meta.write_done();
    assert!(meta.admit_write() && !meta.admit_write(), "M3");
}

/// M5: while free space gets into arenas, metadata growth is requested in time. There is still a node for every few of
/// their blocks.
#[test]
fn metadata_is_asked_for_while_there_are_whole_extents() {
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1024]], &[], 1024));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(1 << 20, 0)]));
    space.add_free(context, (0, 1 << 20)).unwrap();
    let is_asked = (1..1000).find(|volume| {
        space
            .alloc(context, (VolumeId(*volume), SegmentType::Linear), 1, (0, 1), Account::Open, &mut Runs::new())
            .unwrap();
        space.take_metadata_request()
    });
    let nodes = meta.lock().free_beyond_reserve();
    assert!(
        is_asked.is_some_and(|arenas| (arenas - 1) * ARENA_BLOCKS / 64 <= nodes),
        "M5: asked for with arena {is_asked:?}"
    );
}

#[test]
fn faults_of_reservations_and_of_metadata_are_found() {
    must_be_found("reserve_not_exclusive", reserved_blocks_go_to_no_other_volume);
    must_be_found("writes_uncounted", writes_are_let_in_while_there_are_blocks_for_all);
    must_be_found("grown_too_late", metadata_is_asked_for_while_there_are_whole_extents);
}

/// Single free blocks in unknown chunks, in a space that may read two leaves at once.
fn scattered(context: AllocContext<'_>, chunks: u64) -> Space {
    let blocks = chunks * longest_run::CHUNK;
    let mut space = Space::new(Tree::default(), 0, pvs::Pvs::in_a_row(&[(blocks, 0)]));
    space.add_free(context, (0, blocks)).unwrap();
    for block in (0..blocks).step_by(2) {
        space.take_run(context, (block, 1)).unwrap();
    }
    space.longest = LongestRuns::default();
    space.part.leaves = 2;
    space
}

/// LR3: a search of all leaves is done in parts, and has the same result.
#[test]
fn large_runs_are_searched_in_parts() {
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1 << 12]], &[], 1 << 12));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = scattered(context, 4);
    let mut parts = 0;
    let runs = loop {
        match space.alloc_large(context, SegmentType::Linear, 100, &[]) {
            Err(MapError::Again) => parts += 1,
            outcome => break outcome.unwrap().unwrap(),
        }
    };
    assert_eq!(runs.len(), 100, "one block each");
    assert!(parts > 10, "LR3: {parts} parts");
    assert_eq!(space.part.leaves(), 2, "the next search begins with small parts");
    let wanted = AllocContext { keep: 0, ..context };
    assert!(matches!(space.alloc_contiguous(wanted, 2, 0, OpenArenas::StayWithReserved), Ok(None)), "all is known now");
}

#[test]
fn a_search_that_is_not_divided_is_found() {
    must_be_found("search_not_divided", large_runs_are_searched_in_parts);
}

/// A search ends even if bounds are forgotten between its parts, because the parts grow.
#[test]
fn parts_of_a_search_grow() {
    let cache = NodeCache::new(CACHE);
    let meta = Mutex::new(MetaSpace::new(&[[0, 1 << 12]], &[], 1 << 12));
    let context = AllocContext { cache: &cache, meta: &meta, generation: 1, keep: 0 };
    let mut space = scattered(context, 4);
    let mut parts = 0;
    while let Err(error) = space.alloc_contiguous(context, 2, 0, OpenArenas::StayWithReserved) {
        assert!(matches!(error, AllocError::Map(MapError::Again)), "{error:?}");
        space.longest = LongestRuns::default();
        parts += 1;
        assert!(parts < 10_000, "the search never ends");
    }
    assert!(parts >= 256, "{parts}");
}
