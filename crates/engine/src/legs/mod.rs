//! Stub, until the layer is merged.
mod types;
pub use types::{Leg, LegsOwner, LegsState, MirroredRun, PvReport, RunReport};

use crate::disk::{Completer, DiscardLimits, DiskOp, Disks, PvGeometry, PvIndex, Segment, Segments};
use crate::error::Result;
use crate::runtime::Runtime;
use std::sync::{Arc, Weak};

pub const LARGEST_MIRRORED: u64 = 7 << 40;

pub struct Legs {
    disks: Arc<dyn Disks>,
}

impl Legs {
    pub fn new(disks: Arc<dyn Disks>, _: Arc<dyn Runtime>, _: u64) -> Arc<Legs> {
        Arc::new(Legs { disks })
    }
    pub fn set_owner(&self, _: Weak<dyn LegsOwner>) {}
    pub async fn open(self: &Arc<Self>, _: Vec<MirroredRun>, _: LegsState) -> Result<()> {
        Ok(())
    }
    pub async fn set_runs(self: &Arc<Self>, _: Vec<MirroredRun>) -> Result<()> {
        Ok(())
    }
    pub fn all(&self) -> &Arc<dyn Disks> {
        &self.disks
    }
    pub fn is_readable(&self, _: &Segment) -> bool {
        false
    }
    pub fn is_mirrored(&self, _: &Segment) -> bool {
        false
    }
    pub async fn prepare_return(self: &Arc<Self>, _: PvIndex) -> Result<()> {
        Ok(())
    }
    pub fn returned(&self, _: PvIndex) {}
    pub async fn work(self: &Arc<Self>) -> Result<bool> {
        Ok(false)
    }
    pub fn is_caught_up(&self, _: PvIndex) -> bool {
        true
    }
    pub fn caught_up(&self, _: PvIndex) {}
    pub fn report(&self) -> Vec<RunReport> {
        Vec::new()
    }
}

impl Disks for Legs {
    fn count(&self) -> usize {
        self.disks.count()
    }
    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.disks.geometry(pv)
    }
    fn is_missing(&self, pv: PvIndex) -> bool {
        self.disks.is_missing(pv)
    }
    fn discards(&self, pv: PvIndex) -> DiscardLimits {
        self.disks.discards(pv)
    }
    fn submit(&self, op: DiskOp, done: Completer) {
        self.disks.submit(op, done);
    }
    fn back(&self, segments: Segments, done: Completer) {
        self.disks.back(segments, done);
    }
}
