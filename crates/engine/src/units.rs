//! The engine's units: numbers whose type says what they count.

use std::fmt;

/// Bytes in a block, the unit of sharing and of every mapping.
pub const BLOCK_SIZE: u64 = 4096;
/// Bytes in a sector, the smallest unit that a request may address.
pub const SECTOR_SIZE: u64 = 512;

macro_rules! unit {
    ($(#[$m:meta])* $name:ident) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit! {
    /// A block's number within a logical volume.
    LvBlock
}
unit! {
    /// A block's number within the volume group's address space
    /// (extent number x blocks in an extent + block in the extent).
    VgBlock
}
unit! {
    /// A metadata block's number within the metadata area, which grows in pairs of extents.
    MetaBlock
}
unit! {
    /// The volume group's snapshot counter. A mapping's *birth* is an epoch.
    Epoch
}
unit! {
    /// A journal record's position in the order in which changes were made.
    Seq
}
unit! {
    /// Identifies a logical volume for the life of its volume group; never reused.
    VolumeId
}
unit! {
    /// Identifies a head or a point (one tree of mappings); never reused.
    TreeId
}

/// Physical volumes in a group, at most: their table lies in the superblock.
pub const MAX_PVS: usize = 64;

/// A flag of each physical volume of a group, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvFlags(pub u64);

impl PvFlags {
    /// Set for this many, and for no others.
    pub fn of_first(pvs: usize) -> PvFlags {
        PvFlags(u64::MAX.checked_shr(MAX_PVS.saturating_sub(pvs) as u32).unwrap_or(0))
    }

    /// Whether all flags of `other` are set here.
    pub fn has_all(self, other: PvFlags) -> bool {
        other.0 & !self.0 == 0
    }

    /// Set for none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are set, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_PVS).filter(move |pv| self.has(*pv))
    }

    pub fn has(self, pv: usize) -> bool {
        pv < MAX_PVS && self.0 >> pv & 1 == 1
    }

    pub fn set(&mut self, pv: usize, flag: bool) {
        if pv < MAX_PVS {
            self.0 = self.0 & !(1 << pv) | u64::from(flag) << pv;
        }
    }

    /// The physical volume is gone, and those behind it have moved up.
    pub fn remove(&mut self, pv: usize) {
        if pv < MAX_PVS {
            let below = (1 << pv) - 1;
            self.0 = self.0 & below | self.0 >> 1 & !below;
        }
    }
}

/// A 128-bit identifier, made by the caller and stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// Lower-case hexadecimal without separators. LVM's form is made where LVM's text is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
