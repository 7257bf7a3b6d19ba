//! Fields that LVM does not have: the space that each volume uses.

use super::group::vg;
use super::volume::{Lv, lv, when_full};
use crate::report::field::{blocks, fields};
use crate::report::value::Value;
use crate::roles::extent_bytes;
use rowen_control::holds::holds;
use rowen_control::protocol::{HexUuid, Layout, VolumeReport};
use rowen_control::uuids::lvm_text;

fields! { VOLUME: RowenVolume, lv;
    "lv_referenced", "Refs", Size 4, "Space mapped and written, shared space included.",
        |lv| blocks(lv.volume.referenced_blocks);
    "lv_exclusive", "Excl", Size 4, "Space written to it since its last snapshot, which no other volume uses.", |lv| blocks(lv.volume.exclusive_blocks);
    "lv_freed", "Freed", Size 5, "Space that comes back when it is removed.",
        |lv| blocks(lv.volume.freed_if_removed_blocks);
    "lv_reserve", "Reserve", Size 7, "Space set aside for a snapshot.",
        |lv| lv.volume.reserve_blocks.map_or(Value::None, blocks);
    "lv_chunk_size", "LChunk", Size 6, "Contiguous space that the first write to a shared chunk reserves.",
        |lv| blocks(u64::from(lv.volume.chunk_blocks));
    "lv_full_policy", "Full", Text 4, "What a write does when the group has no space.",
        |lv| Value::text(when_full(lv.volume));
    "lv_laid_out_for", "For", Text 4, "Whether shared blocks are copied next to redirected ones (read) or not (space).",
        |lv| Value::text(laid_out_for(lv.volume));
    "point_uuid", "Point UUID", Text 38, "What its contents are called on every host, while they are those of a snapshot that nobody wrote to.",
        |lv| lv.volume.point_uuid.map_or(Value::None, |point| Value::text(lvm_text(point.0)));
    "holds", "Holds", List 5, "Who needs the snapshot: it is not removed meanwhile.",
        |lv| Value::list(holds(&lv.volume.attributes.tags).map(|hold| hold.name));
    "bookmarks", "Bookmarks", List 9, "Bookmarks of its snapshots, from which changes can be sent.",
        |lv| Value::list(bookmarks(lv));
}

fields! { GROUP: RowenGroup, vg;
    "vg_reserved", "Reserved", Size 8, "Space reserved for thick volumes and snapshots.",
        |group| blocks(group.reserved_blocks);
    "vg_metadata", "Metadata", Size 8, "Space that metadata takes.", |group| blocks(group.metadata_blocks);
    "vg_journal_copies", "#Jrnl", Number 5, "Copies of the journal that are written, each on a physical volume of its own.",
        |group| Value::number(group.journal_copies_written);
    "vg_mirrored", "Mirrored", Size 8, "Space of mirrored extents, each counted once; it is on two physical volumes.",
        |group| Value::Size(group.mirrors.bytes);
    "vg_mirrored_free", "MirFree", Size 7, "Of that, extents of which nothing is used: room for mirrored volumes only, until background work gives it back.",
        |group| Value::Size(group.mirrors.free_bytes());
    "vg_mirrored_single", "MirSingle", Size 9, "Of that, extents with one copy: the physical volume of the other one was removed.",
        |group| Value::Size(group.mirrors.single_bytes());
    "vg_striped", "Striped", Size 7, "Space of striped extents, which are on several physical volumes.",
        |group| Value::Size(group.stripes.map_or(0, |own| own.extents).saturating_mul(extent_bytes(group)));
    "vg_striped_free", "StrFree", Size 7, "Of that, extents of which nothing is used: room for striped volumes only, until background work gives it back.",
        |group| Value::Size(group.stripes.map_or(0, |own| own.free_extents).saturating_mul(extent_bytes(group)));
    "vg_reclaim", "Reclaim", Size 7, "Space that background removal has still to search.",
        |group| blocks(group.reclaim_left_blocks);
    "vg_sequence", "Sequence", Number 8, "Sequence number of the last checkpoint.",
        |group| Value::number(group.sequence);
}

fn bookmarks<'r>(lv: &Lv<'r>) -> impl Iterator<Item = &'r str> {
    let of = HexUuid(lv.volume.uuid);
    let all = lv.group.report.bookmarks.iter().filter(move |bookmark| bookmark.of == of);
    all.map(|bookmark| bookmark.name.as_str())
}

/// The layout by the volume's tags, or else the default of its group.
fn laid_out_for(volume: &VolumeReport) -> &'static str {
    match Layout::of(&volume.attributes.tags) {
        Some(Layout::Space) => "space",
        Some(Layout::Read) => "read",
        None => "auto",
    }
}
