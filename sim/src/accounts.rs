//! The accounting model: which blocks each volume maps, by identity, and what must follow for every counter.
//!
//! A block has an identity from the write that placed it until nothing maps it any more. A snapshot maps its
//! origin's blocks; a write to a block that somebody else maps too gets a new identity, as does one to a hole.

use crate::client::BLOCK;
use crate::oracle::Vol;
use std::collections::BTreeMap;

/// What one volume's counters must say, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub referenced: u64,
    pub exclusive: u64,
}

/// The maps of all volumes of a group.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    maps: BTreeMap<Vol, BTreeMap<u64, u64>>,
    users: BTreeMap<u64, u32>,
    next: u64,
}

impl Accounts {
    pub fn create(&mut self, vol: Vol) {
        self.maps.insert(vol, BTreeMap::new());
    }

    /// Sectors were written.
    pub fn write(&mut self, vol: Vol, sector: u64, count: u64) {
        for block in sector / BLOCK..(sector + count).div_ceil(BLOCK) {
            self.place(vol, block);
        }
    }

    fn place(&mut self, vol: Vol, block: u64) {
        let map = self.maps.entry(vol).or_default();
        match map.get(&block).copied() {
            Some(id) if self.users[&id] == 1 => {}
            old => {
                self.next += 1;
                map.insert(block, self.next);
                self.users.insert(self.next, 1);
                self.drop_user(old);
            }
        }
    }

    fn drop_user(&mut self, id: Option<u64>) {
        let Some(id) = id else { return };
        let users = self.users.get_mut(&id).expect("every mapped block has users");
        *users -= 1;
        if *users == 0 {
            self.users.remove(&id);
        }
    }

    /// Sectors were discarded or zeroed: whole blocks become holes, parts of mapped blocks are written.
    pub fn zero(&mut self, vol: Vol, sector: u64, count: u64) {
        let end = sector + count;
        for block in sector / BLOCK..end.div_ceil(BLOCK) {
            if block * BLOCK >= sector && (block + 1) * BLOCK <= end {
                let old = self.maps.entry(vol).or_default().remove(&block);
                self.drop_user(old);
            } else if self.maps.get(&vol).is_some_and(|map| map.contains_key(&block)) {
                self.place(vol, block);
            }
        }
    }

    /// `vol` maps what `origin` maps, instead of what it mapped before.
    pub fn share(&mut self, origin: Vol, vol: Vol) {
        let map = self.maps.get(&origin).cloned().unwrap_or_default();
        map.values().for_each(|id| *self.users.get_mut(id).expect("mapped") += 1);
        self.remove(vol);
        self.maps.insert(vol, map);
    }

    pub fn remove(&mut self, vol: Vol) {
        for (_, id) in self.maps.remove(&vol).unwrap_or_default() {
            self.drop_user(Some(id));
        }
    }

    pub fn shrink(&mut self, vol: Vol, blocks: u64) {
        let gone = self.maps.entry(vol).or_default().split_off(&blocks);
        gone.into_values().for_each(|id| self.drop_user(Some(id)));
    }

    /// Blocks that any volume maps.
    pub fn used(&self) -> u64 {
        self.users.len() as u64
    }

    pub fn counters(&self, vol: Vol) -> Counters {
        let Some(map) = self.maps.get(&vol) else { return Counters::default() };
        let exclusive = map.values().filter(|id| self.users[id] == 1).count();
        Counters { referenced: map.len() as u64, exclusive: exclusive as u64 }
    }
}
