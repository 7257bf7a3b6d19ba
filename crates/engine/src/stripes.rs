//! Striped sets: extents on several physical volumes, the *columns*, whose blocks alternate between them in *stripes*.
//!
//! Block `v` of a set lies in stripe `v / blocks`. Stripe `n` lies in column `n % columns`, behind the `n / columns`
//! stripes that the column has before it. So as many extents of each column as there are columns' extents, a *row*, can be
//! taken out of a set, and sets that follow each other in all columns are one set.

use crate::format::zones::StripeLayout;
use std::ops::Range;

/// How many rows can be made on physical volumes with so many free extents each, if each row has its extents on different
/// ones. `m` rows can be made if no more than `m` extents of each, together, are enough for them.
pub fn rows_on(free: &[u64], columns: usize) -> u64 {
    let columns = columns.max(1) as u64;
    let (mut made, mut over) = (0, free.iter().sum::<u64>() / columns + 1);
    while over - made > 1 {
        let rows = made + (over - made) / 2;
        let usable: u64 = free.iter().map(|free| (*free).min(rows)).sum();
        match usable >= rows * columns {
            true => made = rows,
            false => over = rows,
        }
    }
    made
}

/// How many rows can be taken from the physical volumes with most free extents, so that [`rows_on`] finds as many in all as
/// before. `free`: the free extents of all physical volumes, the most first.
pub fn rows_at_once(free: &[u64], columns: usize) -> u64 {
    let Some(least) = free.get(columns.saturating_sub(1)) else { return 0 };
    let rows = rows_on(free, columns);
    // The others must give what they can to the rows that are left.
    let next = free.get(columns).map_or(0, |next| *next);
    (*least).min(rows.saturating_sub(next).max(1)).min(rows)
}

/// A set of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeSet {
    pub layout: StripeLayout,
    /// Of each column its physical volume, and the first block there.
    pub places: Vec<(u16, u64)>,
}

/// Blocks of a set on one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnPart {
    pub pv: u16,
    /// The first block there.
    pub at: u64,
    pub blocks: u64,
}

impl StripeSet {
    /// The physical volume of a block of the set, the block there, and how many blocks follow it there, itself included.
    pub fn place(&self, block: u64) -> (u16, u64, u64) {
        let (columns, blocks) = (u64::from(self.layout.columns), self.layout.blocks());
        let (stripe, within) = (block / blocks, block % blocks);
        let (pv, first) = self.places[(stripe % columns) as usize];
        (pv, first + stripe / columns * blocks + within, blocks - within)
    }

    /// How many blocks of a column come before a block of the set.
    fn before(&self, column: u64, block: u64) -> u64 {
        let (columns, blocks) = (u64::from(self.layout.columns), self.layout.blocks());
        let (whole, rest) = (block / (blocks * columns), block % (blocks * columns));
        whole * blocks + rest.saturating_sub(column * blocks).min(blocks)
    }

    /// What each physical volume has of these blocks of the set, in the order of the columns.
    pub fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = ColumnPart> {
        (0..).zip(&self.places).filter_map(move |(column, (pv, first))| {
            let [from, to] = [range.start, range.end].map(|block| self.before(column, block));
            (from < to).then_some(ColumnPart { pv: *pv, at: first + from, blocks: to - from })
        })
    }

    /// The same set from a block on, which begins a row.
    #[must_use]
    pub fn behind(&self, block: u64) -> StripeSet {
        let skipped = block / u64::from(self.layout.columns);
        let places = self.places.iter().map(|(pv, first)| (*pv, first + skipped)).collect();
        StripeSet { places, ..self.clone() }
    }

    /// Whether another set follows this one, of so many blocks, in all columns.
    pub fn continues(&self, blocks: u64, next: &StripeSet) -> bool {
        *next == self.behind(blocks)
    }

    /// Whether a column is on the physical volume.
    pub fn is_on(&self, pv: u16) -> bool {
        self.places.iter().any(|(on, _)| *on == pv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> StripeSet {
        StripeSet { layout: StripeLayout { columns: 3, shift: 1 }, places: vec![(4, 100), (2, 0), (7, 50)] }
    }

    #[test]
    fn no_row_has_two_extents_on_one_physical_volume() {
        for (free, columns, expected) in [
            (vec![10, 10], 2, 10),
            (vec![10, 3], 2, 3),
            (vec![10, 10, 10], 2, 15),
            (vec![9, 10, 10, 10], 2, 19),
            (vec![10, 2, 2], 2, 4),
            (vec![5, 4, 3, 2], 3, 4),
            (vec![5], 2, 0),
            (vec![0, 5], 2, 0),
            (vec![], 2, 0),
            (vec![250; 4], 3, 333),
            (vec![255; 6], 5, 306),
            (vec![1000, 900, 800], 2, 1350),
        ] {
            assert_eq!(rows_on(&free, columns), expected, "{free:?} {columns}");
        }
    }

    #[test]
    fn rows_that_are_taken_at_once_cost_no_others() {
        let mut numbers = (1u64..).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        let mut below = |limit: u64| numbers.next().unwrap() % limit;
        for _ in 0..2000 {
            let columns = 2 + below(3) as usize;
            let mut free: Vec<u64> = (0..columns as u64 + below(4)).map(|_| below(40)).collect();
            let (all, before) = (rows_on(&free, columns), free.clone());
            let (mut made, mut steps) = (0, 0);
            loop {
                free.sort_unstable_by(|one, other| other.cmp(one));
                let rows = rows_at_once(&free, columns);
                if rows == 0 {
                    break;
                }
                free[..columns].iter_mut().for_each(|free| *free -= rows);
                (made, steps) = (made + rows, steps + 1);
            }
            assert_eq!(made, all, "{before:?} {columns}");
            assert!(steps <= 4 * before.len(), "{before:?} {columns}: {steps} steps");
        }
    }

    #[test]
    fn blocks_alternate_between_columns() {
        let places: Vec<_> = (0..9).map(|block| set().place(block)).collect();
        let expected = [
            (4, 100, 2),
            (4, 101, 1),
            (2, 0, 2),
            (2, 1, 1),
            (7, 50, 2),
            (7, 51, 1),
            (4, 102, 2),
            (4, 103, 1),
            (2, 2, 2),
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn parts_are_what_single_blocks_say() {
        let set = set();
        for start in 0..14 {
            for end in start..20 {
                let parts: Vec<_> = set.parts(&(start..end)).collect();
                let blocks: Vec<_> = (start..end).map(|block| set.place(block)).collect();
                for (pv, ..) in &set.places {
                    let mut own = blocks.iter().filter(|(on, ..)| on == pv);
                    let part = parts.iter().find(|part| part.pv == *pv);
                    assert_eq!(own.next().map(|(_, at, _)| *at), part.map(|part| part.at));
                    assert_eq!(own.count() as u64 + 1, part.map_or(1, |part| part.blocks));
                }
            }
        }
    }

    #[test]
    fn rows_come_out_and_join_again() {
        let set = set();
        let behind = set.behind(12);
        assert!((12..30).all(|block| behind.place(block - 12) == set.place(block)));
        assert!(set.continues(12, &behind) && !set.continues(6, &behind) && set.is_on(7) && !set.is_on(3));
    }
}
