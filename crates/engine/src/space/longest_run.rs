//! The length of the longest run in each chunk of the free tree. A search skips chunks without a run of the length that
//! it needs.
//!
//! * LR1 A chunk's bound is not below the class of any run that begins in it; runs that touch across leaves count as
//!   one. Freed runs, and the rest of a run of which a part was taken, raise the bound. Only a search of the whole
//!   chunk lowers it.
//! * LR2 A chunk without a bound must be searched. Bounds are set when a search comes to a chunk, and pages of bounds
//!   are dropped when there are too many. So memory is bounded: 4 MiB at most, for 64 TiB.
//! * LR3 A search of all leaves runs in parts, and is called again after each. So writes wait for one part, not for the
//!   whole search.

use crate::planted;
use std::collections::BTreeMap;

/// Unknown leaves that are searched for one arena. If they have no long run, the arena gets a shorter one, and the next
/// search continues with other leaves.
pub(super) const LEAVES_FOR_ARENA: usize = 256;

/// Unknown leaves that a search reads in one hold of the lock: one to two milliseconds of a processor.
const LEAVES_AT_ONCE: usize = 1024;
/// After this many parts of one search, the parts become twice as large. If a search needs more pages than are kept, it
/// may forget bounds before it is done. With larger parts it still ends.
const PARTS_BEFORE_DOUBLED: u32 = 256;

/// How many leaves a search may read before it releases the lock (LR3).
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

/// For a search that always finds a run in its first leaf.
pub(super) fn all_leaves() -> usize {
    usize::MAX
}

/// Blocks of a chunk: 16 MiB. Its free runs are in a few leaves.
pub const CHUNK: u64 = 4096;
/// Chunks of a page.
const CHUNKS: u64 = 1024;
const PAGE_BLOCKS: u64 = CHUNK * CHUNKS;
/// Pages that are kept.
const MAX_PAGES: usize = 4096;
/// The bound of an unknown chunk: above all classes.
const UNKNOWN: u8 = u8::MAX;

/// Longer runs have a class that is not lower. 0: no run.
pub fn class(blocks: u64) -> u8 {
    (u64::BITS - blocks.leading_zeros()) as u8
}

struct Page {
    bounds: [u8; CHUNKS as usize],
    /// Not below any of the chunks' bounds.
    most: u8,
    /// No run begins behind this page and before that one.
    next: u64,
}

/// An unfinished search of a chunk: all runs that begin in it before `at` were seen.
#[derive(Clone, Copy)]
pub struct ChunkSearch {
    pub chunk: u64,
    pub at: u64,
    /// The last run that was seen: where it begins, and where it ends.
    pub run: (u64, u64),
    pub most: u8,
}

impl ChunkSearch {
    /// Counts a free extent. Extents that touch are one run.
    pub fn add_extent(&mut self, start: u64, end: u64) {
        let begins = if self.run.1 == start { self.run.0 } else { start };
        self.run = (begins, end);
        self.most = self.most.max(class(end - begins));
    }
}

/// See the module.
#[derive(Default)]
pub struct LongestRuns {
    pages: BTreeMap<u64, Box<Page>>,
    /// A search that was interrupted because a node was missing. It resumes here.
    pub search: Option<ChunkSearch>,
}

impl LongestRuns {
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

    /// From now on a run of this many blocks begins here (LR1).
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
        let search = self.search.as_mut().filter(|_| !planted::is("search_not_updated"));
        if let Some(search) = search.filter(|search| search.chunk == start / CHUNK) {
            search.most = search.most.max(class);
        }
    }

    /// All runs that begin in the chunk were seen, and none begins behind it before `next`, or at all.
    pub fn settle(&mut self, chunk: u64, most: u8, next: Option<u64>) {
        let number = chunk / CHUNKS;
        if !self.pages.contains_key(&number) && self.pages.len() >= MAX_PAGES {
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
#[path = "longest_run_test.rs"]
mod tests;
