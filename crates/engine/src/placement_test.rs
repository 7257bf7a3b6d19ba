use super::*;
use crate::format::zones::StripeLayout;
use crate::stripes::ColumnPart;
use crate::units::Uuid;

fn placement(ranges: &[(u64, u64)]) -> Placement {
    let entry = |(first_extent, extents): &(u64, u64)| PvEntry {
        uuid: Uuid([1; 16]),
        first_extent: *first_extent,
        extents: *extents,
        size: 1 << 40,
    };
    Placement::new(4, ranges.iter().map(entry).collect())
}

#[test]
fn no_block_is_in_a_gap_or_reaches_over_one() {
    // Blocks 8 to 19 and 20 to 31 are there, and 40 to 43.
    let gaps = placement(&[(2, 3), (5, 3), (10, 1)]);
    for (start, len, is_there) in [
        (8, 24, true),
        (19, 2, true),
        (40, 4, true),
        (7, 1, false),
        (0, 4, false),
        (31, 2, false),
        (32, 8, false),
        (30, 14, false),
        (43, 2, false),
        (44, 1, false),
        (u64::MAX, 2, false),
    ] {
        assert_eq!(gaps.holds(start, len), is_there, "{start}+{len}");
    }
    assert_eq!((gaps.blocks(), gaps.count()), (44, 28));
    let numbers = [8, 19, 20, 31, 40, 43].map(|block| gaps.number_of(block));
    assert_eq!(numbers, [0, 11, 12, 23, 24, 27]);
    let whole = placement(&[(0, 3), (3, 3)]);
    assert!(whole.holds(0, 24) && !whole.holds(0, 25) && !whole.holds(u64::MAX, 2));
    let mut segments = Segments::new();
    gaps.map_blocks(VgBlock(19), 2, 0, &mut segments);
    let found: Vec<_> = segments.iter().map(|segment| (segment.pv.0, segment.offset)).collect();
    assert_eq!(found, [(0, DATA_OFFSET + 11 * BLOCK_SIZE), (1, DATA_OFFSET)]);
}
/// MZ1, MZ2
#[test]
fn extents_become_mirrored_and_plain_again() {
    let plain = placement(&[(0, 8), (8, 8)]);
    // Numbers 0 to 3 lie on the second one: their extents have the numbers 32 to 35.
    let moved = plain.with_places_exchanged((0, 0), (1, 0), 4);
    for before in [plain, moved] {
        let pairs =
            [MirroredPair { first: 4, second: 36, blocks: 8 }, MirroredPair { first: 60, second: 0, blocks: 4 }];
        if before.pv_of(VgBlock(60)).0 == before.pv_of(VgBlock(0)).0 {
            continue;
        }
        let (mirrored, numbers) = before.with_mirrored(&pairs);
        let from = before.mirrored_from().unwrap();
        assert_eq!(numbers, [from..from + 8, from + 8..from + 12]);
        assert_eq!((mirrored.count(), mirrored.numbers_end()), (52, 16));
        assert!(mirrored.holds(from, 12) && !mirrored.holds(4, 1) && !mirrored.holds(36, 8) && mirrored.holds(12, 20));
        let zones = mirrored.zones();
        assert!(zones::are_sound(&zones, &[0..8, 8..16], 4, 1 << 46), "{zones:?}");
        let again = Placement::with_zones(4, mirrored.pvs.clone(), &zones);
        assert_eq!(again.runs(), mirrored.runs());
        assert_eq!(mirrored.mirrored_runs().len(), 2);
        let (after, given) = mirrored.without_zones_of(&numbers);
        assert_eq!((after.count(), given.iter().map(|range| range.end - range.start).sum::<u64>()), (64, 24));
        assert_eq!(after.runs(), before.runs());
    }
}

/// MZ4
#[test]
fn mirrored_extents_lose_either_leg() {
    let plain = placement(&[(0, 8), (8, 8)]);
    let (made, numbers) = plain.with_mirrored(&[MirroredPair { first: 4, second: 36, blocks: 8 }]);
    // Extents that were made mirrored, and extents that became so where they were.
    for (mirrored, run) in [(made, numbers[0].clone()), (plain.with_second(4, 36, 8), 4..12)] {
        for is_first_leaving in [true, false] {
            for blocks in [run.clone(), run.start + 4..run.end] {
                let len = blocks.end - blocks.start;
                let legs: Vec<_> = mirrored.part_of_run(&blocks).0.unwrap().legs().collect();
                let (after, given) = mirrored.with_one_leg(&blocks, is_first_leaving);
                let kept = after.part_of_run(&blocks).0.unwrap();
                assert_eq!((kept.pv, kept.at), legs[usize::from(is_first_leaving)]);
                assert!(!after.is_mirrored(blocks.start) && after.count() == mirrored.count() + len);
                assert_eq!(given.iter().map(|range| range.end - range.start).sum::<u64>(), len);
                let gone = after.part_of_run(&given[0]).0.unwrap();
                assert_eq!((gone.pv, gone.at), legs[usize::from(!is_first_leaving)]);
                let zones = after.zones();
                assert!(zones::are_sound(&zones, &[0..8, 8..16], 4, 1 << 46), "{zones:?}");
                assert_eq!(Placement::with_zones(4, after.pvs.clone(), &zones).runs(), after.runs());
            }
        }
    }
}

#[test]
fn a_mirrored_block_keeps_the_leg_that_stays() {
    let (mirrored, numbers) =
        placement(&[(0, 8), (8, 8)]).with_mirrored(&[MirroredPair { first: 4, second: 36, blocks: 8 }]);
    for gone in [0, 1] {
        let left = mirrored.without(PvIndex(gone));
        assert!(left.holds(numbers[0].start, 8));
        assert_eq!((left.pv_of(VgBlock(numbers[0].start)).0, left.mirrored_runs().len()), (PvIndex(0), 0));
    }
}

/// MZ1, MZ2
#[test]
fn extents_become_striped_and_plain_again() {
    let before = placement(&[(0, 8), (8, 8), (16, 8)]);
    let layout = StripeLayout { columns: 2, shift: 1 };
    let rows = [vec![4..12, 36..44], vec![64..68, 0..4]];
    let (striped, numbers) = before.with_striped(layout, &rows);
    let from = before.mirrored_from().unwrap();
    assert_eq!(numbers, [from..from + 16, from + 16..from + 24]);
    assert_eq!((striped.count(), striped.numbers_end(), striped.stripe_layout()), (96, 24, Some(layout)));
    let places: Vec<_> = (0..6).map(|at| striped.legs_of(VgBlock(from + at)).0.next().unwrap()).collect();
    assert_eq!(places, [(0, 1), (0, 1), (1, 1), (1, 1), (0, 1), (0, 1)].map(|(pv, extent)| (PvIndex(pv), extent)));
    let mut segments = Segments::new();
    striped.map_bytes((from + 1) * BLOCK_SIZE + 512, 3 * BLOCK_SIZE, 0, &mut segments);
    let found: Vec<_> = segments.iter().map(|part| (part.pv.0, part.offset - DATA_OFFSET, part.at, part.len)).collect();
    let block = BLOCK_SIZE as u32;
    assert_eq!(
        found,
        [
            (0, 5 * BLOCK_SIZE + 512, 0, block - 512),
            (1, 4 * BLOCK_SIZE, block - 512, 2 * block),
            (0, 6 * BLOCK_SIZE, 3 * block - 512, 512)
        ]
    );
    let zones = striped.zones();
    assert!(zones::are_sound(&zones, &[0..8, 8..16, 16..24], 4, 1 << 46), "{zones:?}");
    let again = Placement::with_zones(4, striped.pvs.clone(), &zones);
    assert_eq!((again.runs(), &again.sets), (striped.runs(), &striped.sets));
    let (part, end) = striped.parts_of(&(from + 15..from + 20));
    assert_eq!((part.len(), part[0], end), (1, ColumnPart { pv: 1, at: 11, blocks: 1 }, from + 16));
    let is_out = |pv: PvIndex| pv.0 == 2;
    assert_eq!(striped.is_lost(from + 3, is_out), (false, from + 16));
    assert_eq!(
        (striped.is_lost(from + 17, is_out), striped.is_lost(from + 18, is_out)),
        ((true, from + 18), (false, from + 20))
    );
    assert!(striped.has_column_on(PvIndex(2)));
    // A row of the middle is dissolved, and then everything.
    let (less, given) = striped.without_zones_of(std::slice::from_ref(&(from + 8..from + 16)));
    assert_eq!(given.iter().map(|range| range.end - range.start).sum::<u64>(), 8);
    let zones = less.zones();
    assert!(zones::are_sound(&zones, &[0..8, 8..16, 16..24], 4, 1 << 46), "{zones:?}");
    assert_eq!(Placement::with_zones(4, less.pvs.clone(), &zones).runs(), less.runs());
    let (after, _) = less.without_zones_of(&[from..from + 8, from + 16..from + 24]);
    assert_eq!((after.runs(), after.stripe_layout()), (before.runs(), None));
    // A physical volume without columns leaves.
    let (others, numbers) = before.with_striped(layout, &[vec![36..44, 68..76]]);
    let left = others.without(PvIndex(0));
    assert_eq!(left.legs_of(VgBlock(numbers[0].start)).0.next(), Some((PvIndex(0), 1)));
}
