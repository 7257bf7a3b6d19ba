//! How much the volumes of each pool hold. What two volumes of a pool share counts once: it is a point's.

use super::Group;
use super::catalog::Catalog;
use super::holdings::Holdings;
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

/// The same of a volume of which this much is known.
pub(super) fn is_pool_name(name: &str, attributes: &Attributes) -> bool {
    !attributes.pool.is_empty() && attributes.pool == name
}

impl Group {
    /// How long writes wait for room where that is their policy; `None`: for ever.
    pub fn set_no_space_timeout(&self, limit: Option<Duration>) {
        self.core.no_space_timeout.set_limit(limit);
        self.core.space_event.notify();
    }

    /// Writes that wait for room end with [`Error::Closed`](crate::error::Error::Closed), now and from now on: for a process that
    /// ends and has a successor, which is asked them again.
    pub fn end_waiting(&self) {
        self.core.waits_no_more.store(true, Ordering::Release);
        self.core.space_event.notify();
    }

    /// The pools whose writes fail because they have waited for room for too long; `None`: those that wait for the group's own.
    pub fn timed_out(&self) -> Vec<Option<String>> {
        self.core.no_space_timeout.over()
    }

    /// The names of the volumes that have writes which wait for room at this moment.
    pub fn held(&self) -> Vec<String> {
        let mut ids: Vec<VolumeId> = self.core.held.lock().keys().copied().collect();
        ids.sort_unstable();
        let catalog = self.catalog.read();
        let volumes = ids.iter().filter_map(|id| catalog.volumes.get(id));
        volumes.map(|volume| volume.state.lock().meta.name.clone()).collect()
    }

    /// What the pool's volumes may still take, counted anew. Of a pool that is not there: as many blocks as they like.
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
struct Held {
    /// Blocks of its volumes and of the points that belong to it alone, and what is on the way to them.
    blocks: u64,
    /// Of these, what reserved snapshots of its volumes pay for.
    charged: u64,
    /// Of these, what writes under way give back when they are done.
    moving: u64,
}

/// Whose volumes lie below a point: of which pool, by its number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Pool(usize),
    /// Volumes of several pools, or some of none.
    Others,
}

/// What all pools of a group hold: their volumes' own blocks, also those on the way, and the blocks of points that belong to
/// one pool alone. What is charged to a reserved snapshot of a volume is the snapshot's. Each volume's lock is held for a
/// moment, and one at a time.
#[derive(Default)]
pub(super) struct Usage {
    numbers: Map<String, usize>,
    held: Vec<Held>,
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
                // It is beside its origin's pool, whatever that is.
                let origin = origin.and_then(|id| catalog.volumes.get(&id));
                let pool = origin.and_then(|origin| usage.number(&origin.state.lock().meta.attributes.pool));
                if let Some(pool) = pool {
                    let held = Holdings(catalog).held(volume.id);
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

    /// The pool's number, a new one for a new name; none for no pool.
    fn number(&mut self, pool: &str) -> Option<usize> {
        if pool.is_empty() {
            return None;
        }
        if let Some(number) = self.numbers.get(pool) {
            return Some(*number);
        }
        self.numbers.insert(pool.to_owned(), self.held.len());
        self.held.push(Held::default());
        Some(self.held.len() - 1)
    }

    fn get(&self, pool: &str) -> Option<&Held> {
        self.numbers.get(pool).map(|number| &self.held[*number])
    }

    /// Blocks that the pool's volumes hold together.
    pub fn used(&self, pool: &str) -> u64 {
        self.get(pool).map_or(0, |held| held.blocks.saturating_sub(held.charged))
    }
}

/// Marks the points from here upwards, as far as this is news.
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
