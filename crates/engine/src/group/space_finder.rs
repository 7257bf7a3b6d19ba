//! How the group finds space for its parts: see [`SpaceFinder`].

use super::Group;
use crate::core::{Answer, SpaceFinder};
use crate::disk::DiskError;
use crate::error::Result;
use crate::model::SegmentType;
use crate::space::pools::PoolLeft;
use crate::units::VolumeId;
use std::sync::Arc;

impl SpaceFinder for Group {
    fn take_checkpoint(self: Arc<Self>) -> Answer<Result<()>> {
        Box::pin(async move { self.checkpoint().await })
    }

    fn wait_for_space(self: Arc<Self>, segment: SegmentType) -> Answer<Result<bool>> {
        Box::pin(async move { self.more_space_for(segment).await })
    }

    fn is_removing(&self) -> bool {
        self.reclaiming()
    }

    fn droppable_snapshot(&self, volume: VolumeId) -> Option<VolumeId> {
        self.droppable(volume)
    }

    fn being_received(&self) -> Option<VolumeId> {
        self.received_to_drop()
    }

    fn invalidate_snapshot(self: Arc<Self>, snapshot: VolumeId) -> Answer<Result<()>> {
        Box::pin(async move { self.invalidate(snapshot).await })
    }

    fn pool_left(&self, pool: &str) -> PoolLeft {
        self.measure_pool(pool)
    }

    fn back_metadata(self: Arc<Self>) -> Answer<std::result::Result<(), DiskError>> {
        Box::pin(async move { self.back_areas().await })
    }

    fn request_filling(&self, volume: VolumeId) {
        self.request_filling_of(volume);
    }
}
