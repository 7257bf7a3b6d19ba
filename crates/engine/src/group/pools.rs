//! How much the volumes of each pool hold. What two volumes of a pool share counts once: it is a point's.

use super::Group;
use super::catalog::Catalog;
use super::report::Holdings;
use super::types::Attributes;
use crate::fixed_hash::Map;
use crate::format::stream::VolumeMeta;
use crate::units::TreeId;
use std::collections::BTreeMap;

/// A volume that names itself as its pool is the pool.
pub(super) fn is_pool(meta: &VolumeMeta) -> bool {
    is_pool_name(&meta.name, &meta.attributes)
}

/// The same of a volume of which this much is known.
pub(super) fn is_pool_name(name: &str, attributes: &Attributes) -> bool {
    !attributes.pool.is_empty() && attributes.pool == name
}

/// What a pool has left, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// What its volumes may still take.
    pub now: u64,
    /// What writes under way give back when they are done: they put elsewhere what has a place already.
    pub soon: u64,
}

impl Group {
    /// What the pool's volumes may still take, counted anew. Of a pool that is not there: as many blocks as they like.
    pub(crate) fn measure_pool(&self, pool: &str) -> Left {
        let changes = self.core.pools.lock().changes();
        let left = {
            let catalog = self.catalog.read();
            let volume = catalog.names.get(pool).and_then(|id| catalog.volumes.get(id));
            let size = volume.and_then(|volume| {
                let state = volume.state.lock();
                is_pool(&state.meta).then_some(state.meta.blocks)
            });
            match size {
                None => Left { now: u64::MAX, soon: 0 },
                Some(size) => {
                    let usage = Usage::of(&catalog);
                    let now = size.saturating_sub(usage.used(pool));
                    Left { now, soon: usage.pools.get(pool).map_or(0, |pool| pool.moving) }
                }
            }
        };
        self.core.pools.lock().measured(pool, changes, left.now);
        left
    }
}

#[derive(Default)]
struct Held {
    /// Blocks of its volumes and of the points that belong to it alone, and what is on the way to them.
    blocks: u64,
    /// Of these, what reserved snapshots of its volumes pay for.
    charged: u64,
    /// Of these, what writes under way give back when they are done.
    moving: u64,
}

/// Whose volumes lie below a point.
#[derive(Clone, PartialEq, Eq)]
enum Below {
    Pool(String),
    /// Volumes of several pools, or some of none.
    Others,
}

/// What all pools of a group hold: their volumes' own blocks, also those on the way, and the blocks of points that belong to
/// one pool alone. What is charged to a reserved snapshot of a volume is the snapshot's. Each volume's lock is held for a
/// moment, and one at a time.
pub(super) struct Usage {
    pools: Map<String, Held>,
}

impl Usage {
    pub fn of(catalog: &Catalog) -> Usage {
        let mut usage = Usage { pools: Map::default() };
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
                // It is beside its origin's pool, whatever that is.
                let origin = origin.and_then(|id| catalog.volumes.get(&id));
                let pool = origin.map(|origin| origin.state.lock().meta.attributes.pool.clone()).unwrap_or_default();
                if !pool.is_empty() {
                    let held = Holdings(catalog).held(volume.id);
                    usage.pools.entry(pool).or_default().charged += held.saturating_sub(own);
                }
                continue;
            }
            let pool = state.meta.attributes.pool.clone();
            let on_the_way: u64 = state.in_flight.iter().flat_map(|op| &op.allocated).map(|run| run.1).sum();
            let moving: u64 = state.in_flight.iter().map(|op| op.replaces).sum();
            drop(state);
            if !pool.is_empty() {
                let held = usage.pools.entry(pool.clone()).or_default();
                held.blocks += own + on_the_way;
                held.moving += moving.min(on_the_way);
            }
            let below = if pool.is_empty() { Below::Others } else { Below::Pool(pool) };
            mark(catalog, &mut points, parent, below);
        }
        for (point, below) in points {
            if let (Below::Pool(pool), Some(tree)) = (below, catalog.trees.get(&point)) {
                usage.pools.entry(pool).or_default().blocks += tree.own.max(0) as u64;
            }
        }
        usage
    }

    /// Blocks that the pool's volumes hold together.
    pub fn used(&self, pool: &str) -> u64 {
        self.pools.get(pool).map_or(0, |held| held.blocks.saturating_sub(held.charged))
    }
}

/// Marks the points from here upwards, as far as this is news.
fn mark(catalog: &Catalog, points: &mut BTreeMap<TreeId, Below>, from: Option<TreeId>, below: Below) {
    let mut above = from;
    while let Some(point) = above {
        match points.get_mut(&point) {
            None => {
                points.insert(point, below.clone());
            }
            Some(known) if *known == Below::Others || *known == below => return,
            Some(known) => *known = Below::Others,
        }
        above = catalog.trees.get(&point).and_then(|tree| tree.parent);
    }
}
