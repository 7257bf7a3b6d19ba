use super::*;

fn zone(first_extent: u64, extents: u64, place: Option<(u16, u64)>) -> Zone {
    let place = place.map(|(pv, first_pe)| ZonePlace { pv, first_pe });
    Zone { place, ..Zone::nowhere(first_extent, extents) }
}

const MOST: u64 = (1 << 47) - 1;

fn mirrored(first: u64, extents: u64, place: (u16, u64), second: (u16, u64)) -> Zone {
    let second = Some(ZonePlace { pv: second.0, first_pe: second.1 });
    Zone { second, ..zone(MIRRORED_FROM + first, extents, Some(place)) }
}

#[test]
fn a_table_is_read_as_it_was_written_and_no_other() {
    let single = Zone { is_converted: true, ..zone(6, 1, Some((1, 9))) };
    let zones = vec![zone(0, 4, Some((1, 2))), mirrored(9, 1, (0, 7), (3, 5)), single];
    let table = ZoneTable::default().next(zones.clone(), 77);
    assert_eq!((table.serial, table.count, table.offset(), table.bytes()), (1, 3, ZONE_SLOTS[1], BLOCK_SIZE));
    let bytes = table.encode(77);
    let named = ZoneTable { zones: Vec::new(), ..table.clone() };
    assert_eq!(named.decode(&bytes, 77, "here").unwrap(), zones);
    for (at, change) in
        [(0, 1), (8, 1), (12, 1), (16, 1), (24, 1), (40, 1), (64 + 26, 1), (64 + 28, 1), (96, 1), (4095, 1)]
    {
        let mut bad = bytes.clone();
        bad[at] ^= change;
        assert!(named.decode(&bad, 77, "here").is_err(), "byte {at}");
    }
    assert!(named.decode(&bytes, 78, "here").is_err(), "another group's");
    assert!(named.decode(&bytes[..64], 77, "here").is_err(), "cut short");
    assert!(named.decode(&[], 77, "here").is_err());
    let next = table.next(Vec::new(), 77);
    assert_eq!((next.serial, next.offset(), next.is_empty()), (2, ZONE_SLOTS[0], true));
}

#[test]
fn the_largest_table_fits_into_a_slot() {
    let table = ZoneTable { count: MAX_ZONES as u32, ..ZoneTable::default() };
    assert!(ZONE_SLOTS[0] + table.bytes() <= ZONE_SLOTS[1]);
    assert!(ZONE_SLOTS[1] + table.bytes() <= super::super::superblock::COPY_OFFSETS[1]);
    let slots = super::super::superblock::COPY_OFFSETS[0] + super::super::superblock::SLOTS * BLOCK_SIZE;
    assert!(slots <= ZONE_SLOTS[0]);
}

/// Z1, Z2
#[test]
fn each_extent_has_one_number() {
    let homes = [0..8, 8..16];
    for (zones, sound) in [
        (vec![], true),
        (vec![zone(0, 2, Some((1, 0))), zone(8, 2, Some((0, 0)))], true),
        (vec![zone(0, 2, Some((1, 0))), zone(8, 2, None)], false),
        (vec![zone(0, 2, Some((1, 0))), zone(8, 2, None), zone(100, 2, Some((0, 0)))], true),
        (vec![zone(0, 2, Some((1, 0)))], false),
        (vec![zone(0, 2, Some((1, 7))), zone(8, 2, Some((0, 0)))], false),
        (vec![zone(8, 2, Some((0, 0))), zone(0, 2, Some((1, 0)))], false),
        (vec![zone(0, 2, Some((1, 0))), zone(1, 2, Some((0, 0)))], false),
        (vec![zone(0, 2, Some((2, 0))), zone(8, 2, Some((0, 0)))], false),
        (vec![zone(0, 0, Some((1, 0)))], false),
        (vec![zone(u64::MAX, 2, None)], false),
        (vec![zone(0, 2, Some((1, u64::MAX))), zone(8, 2, Some((0, 0)))], false),
        (vec![zone(MOST - 1, 2, None)], false),
    ] {
        assert_eq!(are_sound(&zones, &homes, 1, MOST), sound, "{zones:?}");
    }
}

/// Z2, Z3, Z4
#[test]
fn both_legs_of_a_number_lie_apart() {
    let homes = [0..8, 8..16];
    let gone = [zone(0, 2, None), zone(8, 2, None)];
    let with = |zones: &[Zone]| [&gone[..], zones].concat();
    for (zones, sound) in [
        (with(&[mirrored(0, 2, (0, 0), (1, 0))]), true),
        (with(&[mirrored(0, 1, (0, 1), (1, 0)), mirrored(5, 1, (1, 1), (0, 0))]), true),
        // One leg alone, for the time being.
        (vec![zone(0, 2, None), zone(MIRRORED_FROM, 2, Some((0, 0)))], true),
        (with(&[mirrored(0, 1, (0, 0), (1, 0))]), false),
        (with(&[mirrored(0, 2, (0, 0), (0, 0))]), false),
        (with(&[mirrored(0, 1, (0, 0), (0, 1)), mirrored(1, 1, (1, 0), (1, 1))]), false),
        (with(&[mirrored(0, 2, (0, 0), (2, 0))]), false),
        (with(&[mirrored(0, 2, (0, 0), (1, 7))]), false),
        (
            vec![zone(0, 2, None), Zone { second: Some(ZonePlace { pv: 1, first_pe: 0 }), ..zone(8, 2, Some((0, 0))) }],
            false,
        ),
        (with(&[Zone { place: None, ..mirrored(0, 2, (0, 0), (1, 0)) }]), false),
    ] {
        assert_eq!(are_sound(&zones, &homes, 1, MOST), sound, "{zones:?}");
    }
    let high = [0..8, MIRRORED_FROM..MIRRORED_FROM + 8];
    let zones = [zone(0, 1, None), zone(MIRRORED_FROM, 1, None), mirrored(9, 1, (0, 0), (1, 0))];
    assert!(!are_sound(&zones, &high, 1, MOST), "a home among the mirrored numbers");
}

#[test]
fn what_no_zone_covers_is_at_home() {
    let zones = [zone(2, 2, None), zone(6, 4, None)];
    let parts = |range: Range<u64>| outside(&zones, &range).map(|part| (part.start, part.end)).collect::<Vec<_>>();
    assert_eq!(parts(0..12), [(0, 2), (4, 6), (10, 12)]);
    assert_eq!(parts(3..7), [(4, 6)]);
    assert!(parts(7..9).is_empty());
    assert_eq!(parts(8..11), [(10, 11)]);
    assert_eq!(parts(20..21), [(20, 21)]);
}

const LAYOUT: StripeLayout = StripeLayout { columns: 2, shift: 0 };

/// A set of columns from a number on, of extents of one block.
fn striped(first: u64, extents: u64, layout: StripeLayout, places: &[(u16, u64)]) -> Vec<Zone> {
    let column = |(number, place): (u8, &(u16, u64))| Zone {
        column: Some(Column { layout, number }),
        ..zone(MIRRORED_FROM + first + u64::from(number) * extents, extents, Some(*place))
    };
    (0..).zip(places).map(column).collect()
}

/// Z6
#[test]
fn all_columns_of_a_set_are_there() {
    let homes = [0..8, 8..16, 16..24];
    let gone = [zone(0, 2, None), zone(8, 2, None)];
    let with = |zones: &[Zone]| [&gone[..], zones].concat();
    let good = striped(0, 2, LAYOUT, &[(0, 0), (1, 0)]);
    let wide = StripeLayout { columns: 3, ..LAYOUT };
    let changed = |at: usize, change: fn(&mut Zone)| {
        let mut zones = good.clone();
        change(&mut zones[at]);
        with(&zones)
    };
    let two = [striped(0, 1, LAYOUT, &[(0, 0), (1, 0)]), striped(2, 1, LAYOUT, &[(1, 1), (0, 1)])].concat();
    let mixed = [striped(0, 1, LAYOUT, &[(0, 0), (1, 0)]), striped(6, 1, wide, &[(1, 1), (0, 1), (2, 0)])].concat();
    for (zones, sound) in [
        (with(&good), true),
        (with(&two), true),
        ([&gone[..], &[zone(16, 1, None)], &mixed].concat(), false),
        (with(&good[..1]), false),
        (with(&striped(1, 2, LAYOUT, &[(0, 0), (1, 0)])), false),
        (with(&striped(0, 2, LAYOUT, &[(0, 0), (0, 2)])), false),
        (with(&striped(0, 2, StripeLayout { columns: 2, shift: 1 }, &[(0, 0), (1, 0)])), false),
        (with(&striped(0, 2, StripeLayout { columns: 2, shift: 200 }, &[(0, 0), (1, 0)])), false),
        (with(&striped(0, 2, StripeLayout { columns: 1, shift: 0 }, &[(0, 0)])), false),
        (changed(1, |zone| zone.column = None), false),
        (changed(0, |zone| zone.column = None), false),
        (changed(1, |zone| zone.place = None), false),
        (changed(1, |zone| zone.is_converted = true), false),
        (changed(1, |zone| zone.is_filling = true), false),
        (changed(1, |zone| zone.first_extent += 2), false),
        (vec![Zone { column: Some(Column { layout: LAYOUT, number: 0 }), ..zone(0, 2, Some((1, 0))) }], false),
    ] {
        assert_eq!(are_sound(&zones, &homes, 1, MOST), sound, "{zones:?}");
    }
    let table = ZoneTable::default().next(with(&two), 77);
    let named = ZoneTable { zones: Vec::new(), ..table.clone() };
    assert_eq!(named.decode(&table.encode(77), 77, "here").unwrap(), with(&two));
    assert!(!table.zones[2].is_mirrored(1));
}
