//! Mirrors: runs of extents with two legs, on two physical volumes. The rest of the engine knows the first leg's place.
//!
//! What may differ between the legs is recorded on the disks themselves, in bits of regions (*write intents*), as in the
//! write-intent bitmap of Linux's md driver (`drivers/md/md-bitmap.c`) and in DRBD's activity log. So mirrors need no
//! record in the journal, and recovery does not touch them. A region is *open* if its bit is set on the disk of a leg, and
//! *unsure* if it must be copied before the legs count as equal.
//!
//! * ML1 A write to a mirrored run is given to the disks only when the bits of its regions are durable on every leg that is
//!   in, or returning.
//! * ML2 A write goes to all legs that are in, from one buffer, and is answered when all of them have it.
//! * ML3 Two writes or discards of the same bytes are never in flight at once, and are carried out in the order in which
//!   they came. A window that is copied counts as a write.
//! * ML4 A bit is cleared only if both legs of all runs in its region are in, none of them is unsure there, and no write
//!   was in flight or began there since before a flush that succeeded. One task at a time writes bits, so a bit that is
//!   cleared never overtakes one that is set. So a group that was closed has no bits set, but for what one leg lacks.
//! * ML5 While the physical volume of a leg is out, writes go to the other leg, and their bits stay set. What is open
//!   when a physical volume returns becomes open in its own bits before it counts as in.
//! * ML6 After an opening, what is open on either leg is unsure, if both are in. It is copied from the leg that is not
//!   behind, else from the first one. If either leg could be taken for the right one later, a read waits until its
//!   window is equal on both, durably. Otherwise it is read at the source. A sector of bits that is not the one that
//!   belongs there has all of its regions open.
//! * ML7 If only a leg that is behind, or being filled, is in, what is open is neither read nor written, and the rest is read
//!   and not written. So nothing changes, and the other leg can return.
//! * ML8 If a leg cannot be read, the read is answered from the other one, if that is sure. Then the blocks that cannot be
//!   read are written anew. Nothing is copied but these blocks: each leg may have bad blocks of its own.
//! * ML9 A write that fails is tried once more on each leg. If a leg fails again and the other one has it, the group stops
//!   before the write is answered, and goes on without the disk. If there is no room, or no whole leg has it, the write
//!   fails and the legs may differ there: it is unsure. A flush is not tried again, because a second one would hide
//!   what the first one lost.
//! * ML10 Legs are compared only where they are in use, both are whole, and nothing is to be made equal. No write to the
//!   place is in flight meanwhile. So a difference that is found is one of the disks.
//! * ML11 While mirrors are written, all disks with legs that are in count together: each gets the next *tally*, and then
//!   each records that the others have it. This is done when writing begins after a pause, once in a round, and before
//!   bits are cleared, when the data is durable. A disk with a lower tally than another one has recorded is an older copy,
//!   and is not taken in. Disks without legs are not compared: what is recorded for their places may be of others, which
//!   have left. One that joins or returns gets the present tally. So what a disk lacks that is taken in lies in
//!   open regions. (Two copies whose tallies are the same are taken for equals: an older copy from the last 30 seconds of a
//!   group that did not end is not known.)
//! * ML12 A leg is replaced while it is in use, and counts until then. From before the copy on, all writes go to the
//!   replacement, too, and their bits stay set until it has them. A window is copied while no write to it is in flight. A
//!   write that the replacement does not take ends the replacing, and is answered. From the moment at which a table that
//!   names the replacement may be on a disk, such a write fails instead, as on a leg (ML9). Only when that table is durable
//!   writes go to the old leg no more. So whichever table is found, its two legs have all that was answered. A write that was
//!   in flight then needs the new legs only: if the old one fails it, it is answered; if the other one fails it, the group
//!   stops and goes on without that disk.

mod compare;
mod copy;
mod intents;
mod layer;
mod pace;
mod read;
mod replace;
mod replacing;
mod runs;
mod state;
mod table;
mod tally;
mod types;
mod write;

pub use crate::format::intents::LARGEST_MIRRORED;
pub use compare::Differences;
pub use intents::ROUND;
pub use layer::Legs;
pub use replace::with_replacement;
pub use types::{Leg, LegsOwner, LegsState, MirroredRun, PvReport, RunReport};

#[cfg(test)]
#[path = "legs_test.rs"]
mod tests;
