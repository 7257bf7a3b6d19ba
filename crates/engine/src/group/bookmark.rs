//! Bookmarks. A bookmark keeps enough of a snapshot that a list of changes can begin there after its contents are gone.
//!
//! A bookmark is made as a snapshot of the snapshot, with a name that no request can use ([`BOOKMARK`]). Then all of it
//! is discarded. It keeps the point, and so the births of later blocks. Blocks that only the point had become its
//! orphans, and are freed ([`orphans`](super::orphans)).
//!
//! Invariants
//!
//! * MK1 A bookmark counts while an ancestor of its head is the point that it was made of, or a later point with the
//!   same contents. The epoch that is stored in the bookmark shows which. When the last other volume that came from the
//!   point is gone, the point is merged. Then the bookmark has ended: nothing can be compared with it.
//! * MK2 If a range was unmapped in a head since a point, the leaf that covers the range is younger than the point.
//!   When [`apply_unmap`](crate::volume::state::apply_unmap) leaves a leaf to cover a hole, the head owns that leaf. So
//!   a hole in an older leaf is older than the point.
//! * MK3 A list of changes from a bookmark has all blocks that are younger than the point. It also has, as zeros, every
//!   hole that a younger leaf covers, because the point's contents there are unknown. So it may list zeros that were
//!   zeros before. It lists no other equal block.
//! * MK4 A full group drops bookmarks only when it has no snapshot left to drop: an empty bookmark holds no data.

use super::Group;
use super::catalog::Catalog;
use super::point::HeadState;
use crate::error::{Error, Result};
use crate::model::{Attributes, BOOKMARK, NewSnapshot, TreeKind, VolumeInfo, VolumeState, is_bookmark};
use crate::planted;
use crate::units::{BLOCK_SIZE, Epoch, TreeId, Uuid, VolumeId};
use std::sync::Arc;

/// Tags of a bookmark.
const EPOCH: &str = "epoch=";
const POINT: &str = "point=";
const OF: &str = "of=";
/// Blocks that are discarded in one step.
const PART: u64 = 1 << 18;

/// A bookmark as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    pub id: VolumeId,
    pub name: String,
    /// The identity of the contents that it stands for.
    pub point: Uuid,
    /// The identifier of the volume from which the snapshot was taken.
    pub of: Uuid,
    /// Seconds since 1970.
    pub created: u64,
    pub blocks: u64,
    /// Blocks that it still maps.
    pub held: u64,
    /// Nothing can be compared with it any more (MK1).
    pub has_ended: bool,
}

fn tag<'a>(attributes: &'a Attributes, key: &str) -> Option<&'a str> {
    attributes.tags.iter().find_map(|tag| tag.strip_prefix(key))
}

fn uuid(text: &str) -> Option<Uuid> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex).map(|number| Uuid(number.to_be_bytes()))
}

/// The epoch of the oldest point that a bookmark counts with.
pub(super) fn epoch_of(attributes: &Attributes) -> Option<Epoch> {
    tag(attributes, EPOCH)?.parse().ok().map(Epoch)
}

impl Catalog {
    /// MK1.
    fn has_point(&self, parent: Option<TreeId>, since: Epoch) -> bool {
        let most = self.trees.len() + 1;
        let above = std::iter::successors(parent, |id| self.trees.get(id).and_then(|tree| tree.parent)).take(most);
        let mut trees = above.map_while(|id| self.trees.get(&id)).take_while(|tree| tree.epoch >= since);
        trees.any(|tree| tree.kind == TreeKind::Point)
    }
}

impl Group {
    /// Keeps what a list of changes needs to begin at this snapshot, under a name of its own. The snapshot stays, and
    /// may be removed later.
    pub async fn bookmark(
        self: &Arc<Self>,
        snapshot: VolumeId,
        name: &str,
        id: Uuid,
        created: u64,
    ) -> Result<VolumeId> {
        let (point, epoch, of) = {
            let catalog = self.catalog.read();
            let volume = catalog.volumes.get(&snapshot).ok_or_else(|| Error::NotFound(format!("volume {snapshot}")))?;
            let (head, origin, own) = {
                let state = volume.state.lock();
                if state.closed || state.invalid() {
                    return Err(Error::InvalidSnapshot);
                }
                (HeadState::of(&state.meta, &state.head), state.meta.origin, state.meta.uuid)
            };
            let origin = origin.and_then(|id| catalog.volumes.get(&id)).map(|origin| origin.state.lock().meta.uuid);
            let point = catalog.identity(head).ok_or(Error::Moved)?;
            let epoch = catalog.oldest_point(head).ok_or(Error::Moved)?;
            (point, epoch, origin.unwrap_or(own))
        };
        let tags = vec![format!("{EPOCH}{}", epoch.0), format!("{POINT}{point}"), format!("{OF}{of}")];
        let spec = NewSnapshot {
            origin: snapshot,
            name: format!("{BOOKMARK}{name}"),
            uuid: id,
            reserve: None,
            read_only: false,
            chunk_blocks: 1,
            attributes: Attributes { created, tags, ..Attributes::default() },
        };
        let made = self.snapshot(&[spec]).await?[0];
        // A write may have come just before.
        if self.point_of(made)? != Some(point) && !planted::is("bookmark_of_written_head") {
            self.remove(&[made]).await?;
            return Err(Error::Moved);
        }
        // From here on, a program that does not know bookmarks refuses the group.
        if let Err(error) = self.checkpoint().await {
            self.remove(&[made]).await?;
            return Err(error);
        }
        Ok(made)
    }

    /// Unmaps a part of what a bookmark still maps. False: it maps nothing any more.
    pub async fn empty_bookmark(self: &Arc<Self>, id: VolumeId) -> Result<bool> {
        let info = self.volume_info(id)?;
        if !is_bookmark(&info.name) || info.state == VolumeState::Invalid {
            return Ok(false);
        }
        let volume = self.volume(id)?;
        let compared = self.compare(None, id)?;
        // A volume may be larger than any disk. Only mapped blocks take time.
        let part = self.changed(&compared, 0, 1).await?;
        let (Some(first), size) = (part.ranges.first().map(|range| range.start).or(part.next), info.blocks) else {
            return Ok(false);
        };
        let end = size.min(first + PART);
        volume.discard(first * BLOCK_SIZE, (end - first) * BLOCK_SIZE).await?;
        Ok(true)
    }

    /// All bookmarks, in the order in which they were made.
    pub fn bookmarks(&self) -> Vec<Bookmark> {
        let infos = self.volumes_where(|meta| is_bookmark(&meta.name));
        infos.iter().filter_map(|info| self.as_bookmark(info)).collect()
    }

    /// The bookmark of this name.
    pub fn find_bookmark(&self, name: &str) -> Option<Bookmark> {
        let id = self.find(&format!("{BOOKMARK}{name}"))?;
        self.as_bookmark(&self.volume_info(id).ok()?)
    }

    fn as_bookmark(&self, info: &VolumeInfo) -> Option<Bookmark> {
        let attributes = &info.attributes;
        let has_point = {
            let catalog = self.catalog.read();
            let parent = catalog.volumes.get(&info.id)?.state.lock().head.parent;
            epoch_of(attributes).is_some_and(|since| catalog.has_point(parent, since))
        };
        Some(Bookmark {
            id: info.id,
            name: info.name.strip_prefix(BOOKMARK)?.to_owned(),
            point: tag(attributes, POINT).and_then(uuid)?,
            of: tag(attributes, OF).and_then(uuid)?,
            created: attributes.created,
            blocks: info.blocks,
            held: info.referenced,
            has_ended: !has_point || info.state == VolumeState::Invalid,
        })
    }
}
