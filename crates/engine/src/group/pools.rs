//! How much space the volumes of each pool use. Blocks that two volumes of a pool share count once: they belong to a
//! point.

use super::Group;
use super::catalog::Catalog;
use super::snapshot_usage::SnapshotUsage;
use crate::fixed_hash::Map;
use crate::model::{Attributes, VolumeMeta};
use crate::space::pools::PoolLeft;
use crate::units::{TreeId, VolumeId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A volume that names itself as its pool is the pool.
pub(super) fn is_pool(meta: &VolumeMeta) -> bool {
    is_pool_name(&meta.name, &meta.attributes)
}

/// The same, from a volume's name and attributes.
pub(super) fn is_pool_name(name: &str, attributes: &Attributes) -> bool {
    !attributes.pool.is_empty() && attributes.pool == name
}

impl Group {
    /// Sets how long writes wait for room, if that is their policy; `None`: for ever.
    pub fn set_no_space_timeout(&self, limit: Option<Duration>) {
        self.core.no_space_timeout.set_limit(limit);
        self.core.space_event.notify();
    }

    /// From now on writes that wait for room end with [`Error::Closed`](crate::error::Error::Closed). For a process
    /// that ends: the kernel repeats the requests to its successor.
    pub fn end_waiting(&self) {
        self.core.waiting_ended.store(true, Ordering::Release);
        self.core.space_event.notify();
    }

    /// The pools whose writes fail because they have waited too long for room; `None` stands for the group itself.
    pub fn timed_out_pools(&self) -> Vec<Option<String>> {
        self.core.no_space_timeout.over()
    }

    /// The names of the volumes with writes that wait for room now.
    pub fn volumes_waiting_for_space(&self) -> Vec<String> {
        let mut ids: Vec<VolumeId> = self.core.waiting_writes.lock().keys().copied().collect();
        ids.sort_unstable();
        let catalog = self.catalog.read();
        let volumes = ids.iter().filter_map(|id| catalog.volumes.get(id));
        volumes.map(|volume| volume.state.lock().meta.name.clone()).collect()
    }

    /// Recounts how much the pool's volumes may still take. If the pool does not exist, there is no limit.
    pub(crate) fn measure_pool(&self, pool: &str) -> PoolLeft {
        let changes = self.core.pools.lock().changes();
        let left = {
            let catalog = self.catalog.read();
            let volume = catalog.names.get(pool).and_then(|id| catalog.volumes.get(id));
            let size = volume.and_then(|volume| {
                let state = volume.state.lock();
                is_pool(&state.meta).then_some(state.meta.blocks)
            });
            match size {
                None => PoolLeft { size: 0, now: u64::MAX, soon: 0 },
                Some(size) => {
                    let usage = Usage::of(&catalog);
                    let now = size.saturating_sub(usage.used(pool));
                    PoolLeft { size, now, soon: usage.get(pool).map_or(0, |held| held.moving) }
                }
            }
        };
        self.core.pools.lock().measured(pool, changes, left.now);
        left
    }
}

#[derive(Default)]
struct PoolBlocks {
    /// Blocks of its volumes and of points that only it uses, including blocks of writes in flight.
    blocks: u64,
    /// Of these, blocks on the reserves of snapshots.
    charged: u64,
    /// Of these, blocks that writes in flight will free.
    moving: u64,
}

/// The pool, by its number, whose volumes descend from a point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Pool(usize),
    /// Volumes of several pools, or some of none.
    Others,
}

/// The use of all pools of a group: their volumes' own blocks, also of writes in flight, and the blocks of points that
/// only one pool uses. Blocks on a snapshot's reserve do not count. Volumes are locked briefly, one at a time.
#[derive(Default)]
pub(super) struct Usage {
    numbers: Map<String, usize>,
    held: Vec<PoolBlocks>,
}

impl Usage {
    pub fn of(catalog: &Catalog) -> Usage {
        let mut usage = Usage::default();
        let mut points: BTreeMap<TreeId, Below> = BTreeMap::new();
        for volume in catalog.volumes.values() {
            let state = volume.state.lock();
            if is_pool(&state.meta) {
                continue;
            }
            let parent = state.head.parent;
            let own = state.head.own.max(0) as u64;
            if state.meta.reserve.is_some() {
                let origin = state.meta.origin;
                drop(state);
                // A snapshot with a reserve is not in its origin's pool.
                let origin = origin.and_then(|id| catalog.volumes.get(&id));
                let pool = origin.and_then(|origin| usage.number(&origin.state.lock().meta.attributes.pool));
                if let Some(pool) = pool {
                    let held = SnapshotUsage(catalog).held(volume.id);
                    usage.held[pool].charged += held.saturating_sub(own);
                }
                continue;
            }
            let pool = usage.number(&state.meta.attributes.pool);
            let on_the_way: u64 = state.in_flight.iter().flat_map(|op| &op.allocated).map(|run| run.1).sum();
            let moving: u64 = state.in_flight.iter().map(|op| op.replaces).sum();
            drop(state);
            if let Some(pool) = pool {
                let held = &mut usage.held[pool];
                held.blocks += own + on_the_way;
                held.moving += moving.min(on_the_way);
            }
            mark(catalog, &mut points, parent, pool.map_or(Below::Others, Below::Pool));
        }
        for (point, below) in points {
            if let (Below::Pool(pool), Some(tree)) = (below, catalog.trees.get(&point)) {
                usage.held[pool].blocks += tree.own.max(0) as u64;
            }
        }
        usage
    }

    /// The pool's number, a new one for a new name. None: no pool.
    fn number(&mut self, pool: &str) -> Option<usize> {
        if pool.is_empty() {
            return None;
        }
        if let Some(number) = self.numbers.get(pool) {
            return Some(*number);
        }
        self.numbers.insert(pool.to_owned(), self.held.len());
        self.held.push(PoolBlocks::default());
        Some(self.held.len() - 1)
    }

    fn get(&self, pool: &str) -> Option<&PoolBlocks> {
        self.numbers.get(pool).map(|number| &self.held[*number])
    }

    /// Blocks that the pool's volumes use together.
    pub fn used(&self, pool: &str) -> u64 {
        self.get(pool).map_or(0, |held| held.blocks.saturating_sub(held.charged))
    }
}

/// Marks the points from here upwards, until nothing changes.
fn mark(catalog: &Catalog, points: &mut BTreeMap<TreeId, Below>, from: Option<TreeId>, below: Below) {
    let mut above = from;
    while let Some(point) = above {
        match points.get_mut(&point) {
            None => {
                points.insert(point, below);
            }
            Some(known) if *known == Below::Others || *known == below => return,
            Some(known) => *known = Below::Others,
        }
        above = catalog.trees.get(&point).and_then(|tree| tree.parent);
    }
}
