//! Reservations: free blocks that only one volume or snapshot may take (S4).

use super::{Account, AllocContext, AllocError, Reserve, Run, Space};
use crate::map::MapError;
use crate::model::SegmentType;
use crate::planted;
use crate::units::VolumeId;

impl Space {
    /// What is reserved for volumes of all types.
    pub fn reserved_blocks(&self) -> u64 {
        SegmentType::ALL.iter().map(|segment| self.reserved_for(*segment)).sum()
    }

    /// What is reserved for volumes of this type.
    pub fn reserved_for(&self, segment: SegmentType) -> u64 {
        self.class(segment).reserved_blocks.max(0) as u64
    }

    /// Raises (or lowers) what is reserved for thick volumes of this type.
    pub fn reserve_blocks(&mut self, segment: SegmentType, blocks: i64) {
        self.class_mut(segment).reserved_blocks += blocks;
    }

    /// Blocks that are promised to a volume: its `shortfall`, and what its reserve has left.
    pub fn promised_to(&self, volume: VolumeId, shortfall: i64) -> u64 {
        let unused = self.reserve(volume).map_or(0, |reserve| reserve.unused());
        (shortfall.max(0) + unused).max(0) as u64
    }

    /// A volume takes blocks of another type from now on. What is promised to it (`shortfall`, and its reserve) is promised
    /// in the new type, which must fit, or not. Inner error: there are too few for that, needed and free ones. Nothing
    /// changes then.
    pub fn change_type(
        &mut self,
        context: AllocContext<'_>,
        volume: VolumeId,
        shortfall: i64,
        [from, to]: [SegmentType; 2],
        must_fit: bool,
    ) -> Result<Result<(), (u64, u64)>, MapError> {
        let reserve = self.reserve(volume);
        let (needed, free) = (self.promised_to(volume, shortfall), self.available_for(to));
        if must_fit && needed > free {
            return Ok(Err((needed, free)));
        }
        // Slots of the volume must not be in arenas of the other type.
        self.close_arenas(context)?;
        self.reserve_blocks(from, -shortfall);
        self.reserve_blocks(to, shortfall);
        if let Some(reserve) = reserve {
            self.set_reserve(volume, Some(Reserve { segment: to, ..reserve }));
        }
        Ok(Ok(()))
    }

    /// Restarts the count of reservations: the unmapped blocks of thick volumes of each type, and no reserves.
    pub fn reset_reserved(&mut self, blocks: [i64; SegmentType::ALL.len()]) {
        self.classes.iter_mut().zip(blocks).for_each(|(class, blocks)| class.reserved_blocks = blocks);
        self.reserves.clear();
    }

    /// Sets a snapshot's reserve and what is charged to it; `None` removes it.
    pub fn set_reserve(&mut self, snapshot: VolumeId, reserve: Option<Reserve>) {
        let before = match reserve {
            Some(reserve) => {
                self.reserve_blocks(reserve.segment, reserve.unused());
                self.reserves.insert(snapshot, reserve)
            }
            None => self.reserves.remove(&snapshot),
        };
        if let Some(before) = before {
            self.reserve_blocks(before.segment, -before.unused());
        }
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
            let (segment, change) = (reserve.segment, reserve.unused() - before);
            self.reserve_blocks(segment, change);
        }
    }

    pub(super) fn admit(&self, segment: SegmentType, blocks: u64, account: Account) -> Result<(), AllocError> {
        let limit = match account {
            Account::Open if planted::is("reserve_not_exclusive") => self.allocatable_blocks(segment),
            Account::Open => self.available_for(segment),
            Account::Thick => self.allocatable_blocks(segment),
            Account::Reserve(snapshot) => match self.reserves.get(&snapshot) {
                Some(r) if r.used + blocks > r.blocks => return Err(AllocError::ReserveFull(snapshot)),
                Some(_) => self.allocatable_blocks(segment),
                None => self.available_for(segment),
            },
        };
        if blocks > limit { Err(AllocError::Full) } else { Ok(()) }
    }

    pub(super) fn settle(&mut self, segment: SegmentType, blocks: i64, account: Account) {
        match account {
            Account::Open => {}
            Account::Thick => self.reserve_blocks(segment, -blocks),
            Account::Reserve(snapshot) => self.charge(snapshot, blocks),
        }
    }

    /// Undoes the accounting of allocated blocks that are freed in another way.
    pub fn unsettle(&mut self, run: Run, account: Account) {
        self.settle(self.pvs.type_of(run.0), -(run.1 as i64), account);
    }
}
