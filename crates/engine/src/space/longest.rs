//! How long the longest runs of the free tree are, by place: so that a search passes over places that have none of the length it wants.
//!
//! * LR1 A chunk's bound is not below the class of any run that begins in it, with what touches the run in other leaves. Runs that
//!   become free, and what is left of one of which a part was taken, raise it. Only who has looked at all of a chunk lowers it.
//! * LR2 Of a chunk without a bound nothing is known: it has to be looked at. Chunks are looked at when a search comes to them, and
//!   pages are dropped when there are too many. So memory is bounded: 4 MiB at the most, for 64 TiB.
//! * LR3 A search that leaves nothing out looks at a part of the leaves of which nothing is known, and is called again: writes wait
//!   for one part of it, not for all of it.

use crate::planted;
use std::collections::BTreeMap;

/// Leaves of which nothing is known that are looked at for one arena. Whoever opens it goes on writing in smaller runs then, and
/// the next one looks at others.
pub(super) const LEAVES_FOR_ARENA: usize = 256;

/// Leaves of which nothing is known that a search looks at in one hold of the lock: one to two milliseconds of a processor.
const LEAVES_AT_ONCE: usize = 1024;
/// Parts in a row of one search after which a part is twice as large. Only where more pages are needed than are kept, what was
/// learnt in a part may be forgotten before the search is done: it has to end all the same.
const PARTS_BEFORE_DOUBLED: u32 = 256;

/// How much a search may look at before others have their turn (LR3).
pub(super) struct Part {
    pub leaves: usize,
    /// Parts in a row that did not end a search.
    in_a_row: u32,
}

impl Default for Part {
    fn default() -> Part {
        Part { leaves: LEAVES_AT_ONCE, in_a_row: 0 }
    }
}

impl Part {
    pub fn leaves(&self) -> usize {
        self.leaves << (self.in_a_row / PARTS_BEFORE_DOUBLED).min(30)
    }

    pub fn interrupted(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    pub fn done(&mut self) {
        self.in_a_row = 0;
    }
}

/// For a search whose first leaf has what it wants.
pub(super) fn all_leaves() -> usize {
    usize::MAX
}

/// Blocks of a chunk: 16 MiB, of which a few leaves have the free runs.
pub const CHUNK: u64 = 4096;
/// Chunks of a page.
const CHUNKS: u64 = 1024;
const PAGE_BLOCKS: u64 = CHUNK * CHUNKS;
/// Pages that are kept.
const MOST_PAGES: usize = 4096;
/// The bound of a chunk of which nothing is known: above all classes.
const UNKNOWN: u8 = u8::MAX;

/// A run of more blocks is of no lower class. 0: no run.
pub fn class(blocks: u64) -> u8 {
    (u64::BITS - blocks.leading_zeros()) as u8
}

struct Page {
    bounds: [u8; CHUNKS as usize],
    /// Not below any of them.
    most: u8,
    /// No run begins behind this page and before that one.
    next: u64,
}

/// A look at a chunk that is not done: all runs that begin in it before `at` were seen.
#[derive(Clone, Copy)]
pub struct Look {
    pub chunk: u64,
    pub at: u64,
    /// The last run that was seen: where it begins, and where it ends.
    pub run: (u64, u64),
    pub most: u8,
}

impl Look {
    /// Counts a free extent in; those that touch are one run.
    pub fn see(&mut self, start: u64, end: u64) {
        let begins = if self.run.1 == start { self.run.0 } else { start };
        self.run = (begins, end);
        self.most = self.most.max(class(end - begins));
    }
}

/// See the module.
#[derive(Default)]
pub struct Longest {
    pages: BTreeMap<u64, Box<Page>>,
    /// One look goes on where it was interrupted, for want of a node.
    pub look: Option<Look>,
}

impl Longest {
    /// The first place at or after `at` where a run of `min` blocks may begin.
    pub fn next(&self, mut at: u64, min: u64) -> u64 {
        let wanted = class(min);
        loop {
            let number = at / PAGE_BLOCKS;
            let Some(page) = self.pages.get(&number) else { return at };
            let first = (at % PAGE_BLOCKS / CHUNK) as usize;
            if page.most >= wanted
                && let Some(chunk) = (first..CHUNKS as usize).find(|chunk| page.bounds[*chunk] >= wanted)
            {
                return at.max(number * PAGE_BLOCKS + chunk as u64 * CHUNK);
            }
            match page.next.checked_mul(PAGE_BLOCKS) {
                Some(next) => at = next,
                None => return u64::MAX,
            }
        }
    }

    /// A run of so many blocks begins here from now on (LR1).
    pub fn raise(&mut self, start: u64, blocks: u64) {
        let (class, number) = (class(blocks), start / PAGE_BLOCKS);
        if let Some((_, before)) = self.pages.range_mut(..number).next_back() {
            before.next = before.next.min(number);
        }
        if let Some(page) = self.pages.get_mut(&number) {
            let bound = &mut page.bounds[(start % PAGE_BLOCKS / CHUNK) as usize];
            *bound = class.max(*bound);
            page.most = page.most.max(*bound);
        }
        let look = self.look.as_mut().filter(|_| !planted::is("look_not_told"));
        if let Some(look) = look.filter(|look| look.chunk == start / CHUNK) {
            look.most = look.most.max(class);
        }
    }

    /// All runs that begin in the chunk were seen, and none begins behind it before `next`, or at all.
    pub fn settle(&mut self, chunk: u64, most: u8, next: Option<u64>) {
        let number = chunk / CHUNKS;
        if !self.pages.contains_key(&number) && self.pages.len() >= MOST_PAGES {
            self.pages.pop_first();
        }
        let bound = if planted::is("unknown_is_empty") { 0 } else { UNKNOWN };
        let unknown = || Box::new(Page { bounds: [bound; CHUNKS as usize], most: bound, next: number + 1 });
        let page = self.pages.entry(number).or_insert_with(unknown);
        let place = (chunk % CHUNKS) as usize;
        page.bounds[place] = most;
        let next_page = next.map_or(u64::MAX, |next| next / PAGE_BLOCKS);
        let free_to = match next {
            Some(next) if next_page == number => (next % PAGE_BLOCKS / CHUNK) as usize,
            _ => {
                page.next = page.next.max(next_page);
                CHUNKS as usize
            }
        };
        page.bounds[place + 1..free_to.max(place + 1)].fill(0);
        page.most = page.bounds.iter().copied().max().unwrap_or(UNKNOWN);
    }
}

#[cfg(test)]
#[path = "longest_test.rs"]
mod tests;
