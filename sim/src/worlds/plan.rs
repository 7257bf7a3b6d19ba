//! The plan of a world: everything that the seed decides before the first request.
//!
//! A plan is a list of numbered [`Item`]s, each with its own seed. If some items are left out ([`Plan::keep`]), the
//! others do the same as before. So a failing plan can be made small.

use super::faults::Fault;
use crate::crash::Setup;
use crate::disk::{Delays, POLICIES, Policy};
use crate::rng::Rng;
use rowen_engine::disk::PvGeometry;
use rowen_engine::format::node::CAPACITY;
use rowen_engine::group::{Config, Layout, SegmentType};
use rowen_engine::planted;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Write,
    /// Discard, or write zeroes.
    Zero,
    Read,
    Flush,
    Create,
    Snapshot,
    GroupSnapshot,
    Remove,
    RemoveSome,
    Revert,
    Resize,
    Rename,
    Reserve,
    FullPolicy,
    Checkpoint,
    Reclaim,
    Check,
    /// Writes until the group is full.
    Fill,
    /// Makes a physical volume not allocatable, or allocatable again.
    Allocatable,
    GrowOrShrinkPv,
    AddPv,
    RemovePv,
    /// Extents move to other physical volumes.
    Move,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The group is closed.
    Close,
    /// The power fails.
    Cut(Policy),
    /// The server dies, and everything that it was answered is on the disks.
    Death,
    /// The server dies, and the disks' caches stay volatile: power may fail after it.
    VolatileDeath,
}

/// One event of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client makes a request.
    Client(u32, Act),
    /// A fault of a disk begins at this time, in microseconds after the beginning of the life.
    Fault(u64, Fault),
    /// The life ends this many disk events after it began.
    End(u64, End),
    /// A fault of the disks after the life.
    Between(Fault),
    /// The power fails again this many disk events after the next opening began.
    CutOpening(u64, Policy),
}

#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub number: usize,
    pub life: usize,
    pub what: Event,
    pub seed: u64,
}

/// A whole world.
#[derive(Clone, Debug)]
pub struct Plan {
    pub setup: Setup,
    pub delays: Delays,
    pub lives: usize,
    /// The group becomes full.
    pub is_full: bool,
    /// Physical volumes join, leave, grow, shrink, and become not allocatable.
    pub changes_pvs: bool,
    /// How long writes are held, in microseconds.
    pub no_space_timeout: u64,
    /// The most entries of a tree node. Few make deep trees.
    pub fan_out: usize,
    pub items: Vec<Item>,
}

impl Plan {
    /// The world of this seed, with these kinds of faults.
    pub fn new(seed: u64, faults: &[Fault]) -> Plan {
        let mut rng = Rng::new(seed);
        let is_full = rng.one_in(5);
        let changes_pvs = is_full || rng.one_in(3);
        let mut setup = setup(&mut rng, is_full);
        // Drawn separately, so that all other draws of a seed stay the same.
        let mut apart = Rng::new(!seed);
        setup.config.rehome = apart.one_in(2);
        setup.config.layout = *apart.pick(&[Layout::Space, Layout::Read]);
        setup.config.fill_keeps = *apart.pick(&[0, 10, 25]);
        let delays = delays(&mut rng);
        let lives = rng.range(1, 4) as usize;
        let no_space_timeout = rng.range(1, 40) * 500;
        let mut items = Items { rng, items: Vec::new(), life: 0 };
        for life in 0..lives {
            items.life = life;
            items.life(is_full, faults);
        }
        for life in 0..if faults.contains(&Fault::Gone) { lives } else { 0 } {
            if apart.one_in(4) {
                let (number, what) = (items.items.len(), Event::Between(Fault::Gone));
                items.items.push(Item { number, life, what, seed: apart.bits() });
            }
        }
        let mut deep = Rng::new(seed.rotate_left(29));
        let fan_out = if deep.one_in(3) { deep.range(8, 32) as usize } else { CAPACITY };
        let mut failing = Rng::new(seed.rotate_left(17));
        setup.config.leaves_failed_disks = failing.one_in(2);
        let mut mirrors = Rng::new(seed.rotate_left(41));
        if setup.pvs.len() > 1 {
            let types = [SegmentType::Raid1, SegmentType::Raid1, SegmentType::Striped, SegmentType::Linear];
            setup.segment = *mirrors.pick(&types);
        }
        let fails = setup.config.leaves_failed_disks && faults.contains(&Fault::Away);
        for life in 0..if fails { lives } else { 0 } {
            if failing.one_in(3) {
                let (number, what) = (items.items.len(), Event::Fault(failing.below(20_000), Fault::Away));
                items.items.push(Item { number, life, what, seed: failing.bits() });
            }
        }
        Plan { setup, delays, lives, is_full, changes_pvs, no_space_timeout, fan_out, items: items.items }
    }

    /// Drops all items but these.
    pub fn keep(&mut self, numbers: &[usize]) {
        self.items.retain(|item| numbers.contains(&item.number));
        if planted::is("items_are_renumbered") {
            self.items.iter_mut().enumerate().for_each(|(number, item)| item.number = number);
        }
    }

    /// What happens in one life.
    pub fn of_life(&self, life: usize) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.life == life)
    }
}

fn setup(rng: &mut Rng, is_full: bool) -> Setup {
    let count = rng.range(1, 4) as usize;
    let whole = if is_full { rng.range(9, 14) } else { rng.range(24, 48) };
    let mut setup = Setup::small(count, 0);
    for pv in &mut setup.pvs {
        // Some sizes are no multiple of an extent.
        let kib = (whole << 10) / count as u64;
        let kib = rng.range(kib * 3 / 4, kib * 5 / 4).max(4 << 10) / 4 * 4;
        *pv = PvGeometry { size: (kib + 1024) << 10, sector: if rng.one_in(5) { 4096 } else { 512 } };
    }
    // The journal and the first metadata are on the first physical volume.
    setup.pvs[0].size = setup.pvs[0].size.max(8 << 20);
    setup.extent_blocks = *rng.pick(&[16, 64, 256, 256]);
    setup.config = Config {
        cache_bytes: *rng.pick(&[64 << 10, 256 << 10, 4 << 20]),
        dirty_bytes: *rng.pick(&[32 << 10, 64 << 10]),
        orphan_blocks: *rng.pick(&[1, 16, u64::MAX]),
        ..Config::default()
    };
    setup.second_journal = Rng::new(setup.pvs[0].size ^ whole).one_in(2).then_some(4);
    setup
}

fn delays(rng: &mut Rng) -> Delays {
    match rng.below(4) {
        // A rotating disk, one with slow flushes, and one that hardly waits.
        0 => Delays { read: (50, 4_000), write: (50, 4_000), flush: (100, 8_000) },
        1 => Delays { flush: (1_000, 20_000), ..Delays::default() },
        2 => Delays { read: (1, 3), write: (1, 3), flush: (1, 3) },
        _ => Delays::default(),
    }
}

struct Items {
    rng: Rng,
    items: Vec<Item>,
    life: usize,
}

impl Items {
    fn add(&mut self, what: Event) {
        let (number, seed) = (self.items.len(), self.rng.bits());
        self.items.push(Item { number, life: self.life, what, seed });
    }

    fn life(&mut self, is_full: bool, faults: &[Fault]) {
        let begun = self.items.len();
        let clients = self.rng.range(1, 4) as u32;
        if self.life == 0 {
            for _ in 0..self.rng.range(1, 3) {
                self.add(Event::Client(0, Act::Create));
            }
            if is_full {
                self.add(Event::Client(0, Act::Snapshot));
                self.add(Event::Client(0, Act::Fill));
            }
        }
        for client in 0..clients {
            for _ in 0..self.rng.range(4, 24) {
                let act = act(&mut self.rng, is_full);
                self.add(Event::Client(client, act));
            }
        }
        let events = (self.items.len() - begun) as u64 * 7;
        let at = self.rng.range(1, events);
        let policy = *self.rng.pick(&POLICIES);
        match self.rng.below(8) {
            0 => {}
            1 => self.add(Event::End(at, End::Death)),
            2 => self.add(Event::End(at, End::VolatileDeath)),
            _ => self.add(Event::End(at, End::Cut(policy))),
        }
        while self.rng.one_in(3) {
            let (at, policy) = (self.rng.range(1, 60), *self.rng.pick(&POLICIES));
            self.add(Event::CutOpening(at, policy));
        }
        // Drawn separately.
        let faults: Vec<Fault> = faults.iter().copied().filter(|fault| *fault != Fault::Gone).collect();
        if !faults.is_empty() && self.rng.one_in(2) {
            let (at, fault) = (self.rng.below(12_000), *self.rng.pick(&faults));
            self.add(if fault.is_between() { Event::Between(fault) } else { Event::Fault(at, fault) });
        }
    }
}

pub(super) fn act(rng: &mut Rng, is_full: bool) -> Act {
    match rng.below(100) {
        0..=39 => Act::Write,
        40..=45 => Act::Zero,
        46..=54 => Act::Read,
        55..=57 => Act::Move,
        58..=64 => Act::Flush,
        65..=71 => Act::Snapshot,
        72..=73 => Act::GroupSnapshot,
        74..=78 => Act::Remove,
        79 => Act::RemoveSome,
        80..=82 => Act::Revert,
        83..=85 => Act::Resize,
        86 => Act::Rename,
        87..=88 => Act::Create,
        89 => Act::Checkpoint,
        90 => Act::Reclaim,
        91..=92 => Act::Check,
        93 => Act::Reserve,
        94 => Act::FullPolicy,
        95 if is_full => Act::Fill,
        95 => Act::Write,
        96 => Act::Allocatable,
        97 => Act::GrowOrShrinkPv,
        98 => Act::AddPv,
        _ => Act::RemovePv,
    }
}
