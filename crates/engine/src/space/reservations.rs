//! Reservations: free blocks that only one volume or snapshot may take (S4).

use super::{Account, AllocError, Reserve, Space};
use crate::planted;
use crate::units::VolumeId;

impl Space {
    pub fn reserved_blocks(&self) -> u64 {
        self.reserved_blocks.max(0) as u64
    }

    /// Raises (or lowers) what is reserved for thick volumes.
    pub fn reserve_blocks(&mut self, blocks: i64) {
        self.reserved_blocks += blocks;
    }

    /// Restarts the count of reservations: the unmapped blocks of thick volumes, and no reserves.
    pub fn reset_reserved(&mut self, blocks: i64) {
        self.reserved_blocks = blocks;
        self.reserves.clear();
    }

    /// Sets a snapshot's reserve and what is charged to it; `None` removes it.
    pub fn set_reserve(&mut self, snapshot: VolumeId, reserve: Option<Reserve>) {
        let before = match reserve {
            Some(reserve) => {
                self.reserved_blocks += reserve.unused();
                self.reserves.insert(snapshot, reserve)
            }
            None => self.reserves.remove(&snapshot),
        };
        self.reserved_blocks -= before.map_or(0, |r| r.unused());
    }

    pub fn reserve(&self, snapshot: VolumeId) -> Option<Reserve> {
        self.reserves.get(&snapshot).copied()
    }

    /// The snapshots that have a reserve, in no order.
    pub fn reserved(&self) -> Vec<VolumeId> {
        self.reserves.keys().copied().collect()
    }

    /// Charges a snapshot (negative: credits). A snapshot without a reserve is charged nothing.
    pub fn charge(&mut self, snapshot: VolumeId, blocks: i64) {
        if let Some(reserve) = self.reserves.get_mut(&snapshot) {
            let before = reserve.unused();
            reserve.used = reserve.used.saturating_add_signed(blocks);
            self.reserved_blocks += reserve.unused() - before;
        }
    }

    pub(super) fn admit(&self, blocks: u64, account: Account) -> Result<(), AllocError> {
        let limit = match account {
            Account::Open if planted::is("reserve_not_exclusive") => self.allocatable_blocks(),
            Account::Open => self.available(),
            Account::Thick => self.allocatable_blocks(),
            Account::Reserve(snapshot) => match self.reserves.get(&snapshot) {
                Some(r) if r.used + blocks > r.blocks => return Err(AllocError::ReserveFull(snapshot)),
                Some(_) => self.allocatable_blocks(),
                None => self.available(),
            },
        };
        if blocks > limit { Err(AllocError::Full) } else { Ok(()) }
    }

    pub(super) fn settle(&mut self, blocks: i64, account: Account) {
        match account {
            Account::Open => {}
            Account::Thick => self.reserved_blocks -= blocks,
            Account::Reserve(snapshot) => self.charge(snapshot, blocks),
        }
    }

    /// Undoes the accounting of allocated blocks that are freed in another way.
    pub fn unsettle(&mut self, blocks: u64, account: Account) {
        self.settle(-(blocks as i64), account);
    }
}
