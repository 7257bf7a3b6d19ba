//! The trees compared with plain arrays: random changes, snapshots, checkpoints and evictions. A seed replays a run.
//!
//! Rule I6.

use super::*;
use crate::format::node::NODE_SIZE;
use crate::planted::must_be_found;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

const GROUP: u64 = 0xFEED;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Metadata blocks: which are live, free, or freed and awaiting a checkpoint.
#[derive(Default)]
struct Blocks {
    next: u64,
    free: Vec<u64>,
    live: BTreeSet<u64>,
    /// Released nodes of closed generations, which a checkpoint may still write.
    waiting: Vec<NodeRef>,
    generation: u64,
    epoch: u64,
    refuse: bool,
}

struct Owner<'a> {
    blocks: &'a mut Blocks,
    cache: &'a NodeCache,
    last_snapshot: Epoch,
    granted: Cell<Option<usize>>,
}

impl NodeOwner for Owner<'_> {
    fn can_alloc(&self, nodes: usize) -> bool {
        assert!(nodes > 0 && self.granted.get().is_none(), "asked once, for something");
        self.granted.set(Some(nodes));
        !self.blocks.refuse
    }
    fn alloc(&mut self) -> MetaBlock {
        let granted = self.granted.get().expect("asked before");
        self.granted.set(Some(granted.checked_sub(1).expect("no more than asked for")));
        let addr = self.blocks.free.pop().unwrap_or_else(|| {
            self.blocks.next += 1;
            self.blocks.next
        });
        assert!(self.blocks.live.insert(addr));
        MetaBlock(addr)
    }
    fn release(&mut self, node: NodeRef) {
        assert!(node.birth > self.last_snapshot, "released what a snapshot uses: {node}");
        assert!(self.blocks.live.remove(&node.addr.0), "released twice: {node}");
        if node.generation == self.blocks.generation {
            assert!(self.cache.get(node).is_none(), "should have left the cache: {node}");
            self.blocks.free.push(node.addr.0);
        } else {
            self.blocks.waiting.push(node);
        }
    }
    fn owned(&self, birth: Epoch, _key: u64) -> bool {
        birth > self.last_snapshot
    }
    fn birth(&self) -> Epoch {
        Epoch(self.blocks.epoch)
    }
    fn generation(&self) -> u64 {
        self.blocks.generation
    }
}

type Model = Vec<Option<(u64, Epoch, u16)>>;

struct Volume {
    tree: Tree,
    model: Model,
    last_snapshot: Epoch,
    frozen: bool,
}

struct World {
    cache: NodeCache,
    disk: BTreeMap<u64, [u8; NODE_SIZE]>,
    blocks: Blocks,
    volumes: Vec<Volume>,
    random: Random,
    keys: u64,
    misses: u64,
}

impl World {
    fn new(seed: u64, keys: u64) -> World {
        let volume =
            Volume { tree: Tree::default(), model: vec![None; keys as usize], last_snapshot: Epoch(0), frozen: false };
        World {
            cache: NodeCache::new(0),
            disk: BTreeMap::new(),
            blocks: Blocks { generation: 1, epoch: 1, ..Blocks::default() },
            volumes: vec![volume],
            random: Random(seed),
            keys,
            misses: 0,
        }
    }

    fn load(&mut self, error: MapError) {
        let MapError::Missing(name, level) = error else { panic!("{error}") };
        let node = Node::decode(&self.disk[&name.addr.0], name, level, GROUP).unwrap();
        self.cache.insert_clean(node);
        self.misses += 1;
    }

    /// Calls `f` until no node is missing.
    fn with_all_nodes<R>(&mut self, mut f: impl FnMut(&NodeCache) -> Result<R, MapError>) -> R {
        loop {
            match f(&self.cache) {
                Ok(r) => return r,
                Err(e) => self.load(e),
            }
        }
    }

    fn replace(&mut self, v: usize, start: u64, end: u64, new: &[Extent]) {
        let mut removed = vec![Extent::default()];
        loop {
            let (before, dirty) = (self.volumes[v].tree, self.cache.dirty_bytes());
            let volume = &mut self.volumes[v];
            let mut owner = Owner {
                blocks: &mut self.blocks,
                cache: &self.cache,
                last_snapshot: volume.last_snapshot,
                granted: Cell::new(None),
            };
            let result = replace(&self.cache, &mut volume.tree, &mut owner, start, end, new, &mut removed);
            let Err(error) = result else { break };
            assert_eq!((volume.tree, self.cache.dirty_bytes(), removed.len()), (before, dirty, 1), "I8");
            match error {
                MapError::NoSpace => self.blocks.refuse = false,
                missing => self.load(missing),
            }
        }
        let model = &mut self.volumes[v].model;
        assert_eq!(blocks_of(&removed[1..]), slice_of(model, start, end));
        model[start as usize..end as usize].fill(None);
        for (key, what) in blocks_of(new) {
            model[key as usize] = Some(what);
        }
    }

    /// In pieces, as long ranges are.
    fn unmap(&mut self, v: usize, start: u64, end: u64) {
        for at in (start..end).step_by(9_000) {
            self.replace(v, at, end.min(at + 9_000), &[]);
        }
    }

    fn lookup(&mut self, v: usize, start: u64, end: u64) {
        let tree = self.volumes[v].tree;
        let mut out = Extents::new();
        self.with_all_nodes(|cache| {
            assert!(out.is_empty(), "I8");
            lookup(cache, &tree, start, end, &mut out)
        });
        assert_eq!(blocks_of(&out), slice_of(&self.volumes[v].model, start, end));
    }

    fn first_fit(&mut self, v: usize, from: u64, min_len: u32) {
        let tree = self.volumes[v].tree;
        let extents = self.extents(v);
        let expected = extents.iter().filter_map(|e| e.cut(from, u64::MAX)).find(|e| e.len >= min_len);
        let mut at = from;
        let found = loop {
            match self.with_all_nodes(|cache| first_fit(cache, &tree, at, min_len, 3)) {
                Fit::Found(e) => break Some(e),
                Fit::None => break None,
                Fit::Continue(next) => {
                    assert!(next > at);
                    at = next;
                }
            }
        };
        assert_eq!(found, expected);
    }

    /// New extents in `[start, end)`: dense or sparse, mergeable or not.
    fn extents_in(&mut self, start: u64, end: u64) -> Vec<Extent> {
        let (longest, gap) = (1 + self.random.below(4), self.random.below(3));
        let flags = self.random.below(2) as u16;
        let scattered = self.random.one_in(2);
        let mut new = Vec::new();
        let mut at = start + self.random.below(gap + 1);
        while at < end {
            let len = (1 + self.random.below(longest)).min(end - at);
            let value = if scattered { self.random.below(1 << 40) } else { at + 7 };
            new.push(Extent { key: at, len: len as u32, value, birth: Epoch(self.blocks.epoch), flags });
            at += len + self.random.below(gap + 1);
        }
        new
    }

    fn checkpoint_write(&mut self, last: u64, waiting: Vec<NodeRef>) {
        for node in self.cache.dirty_nodes(last) {
            let (name, block) = (node.this(), node.encode(GROUP));
            assert_eq!(Node::decode(&block, name, node.level(), GROUP).as_ref(), Ok(&*node));
            self.disk.insert(name.addr.0, block);
            self.cache.mark_clean(name.addr, name.generation);
        }
        for node in waiting {
            self.cache.forget(node.addr);
            self.disk.remove(&node.addr.0);
            self.blocks.free.push(node.addr.0);
        }
    }

    fn evict_some(&mut self) {
        let keep = self.random.below(4);
        let random = &mut self.random;
        self.cache.drop_clean(|_| random.below(4) < keep);
    }

    fn node(&self, name: NodeRef, level: u8) -> Arc<Node> {
        let read = || Arc::new(Node::decode(&self.disk[&name.addr.0], name, level, GROUP).unwrap());
        self.cache.get(name).unwrap_or_else(read)
    }

    /// All extents of a tree in order, with the invariants of its nodes checked on the way.
    fn check(&self, tree: &Tree, reachable: &mut BTreeSet<u64>) -> Vec<Extent> {
        let mut extents = Vec::new();
        match tree.root {
            Some(root) => {
                assert!(tree.level == 0 || self.node(root, tree.level).entries().len() > 1, "I5");
                self.check_node(&Place::root(root), tree.level, reachable, &mut extents);
            }
            None => assert_eq!(tree.level, 0),
        }
        extents
    }

    fn check_node(&self, place: &Place, level: u8, reachable: &mut BTreeSet<u64>, out: &mut Vec<Extent>) {
        reachable.insert(place.node.addr.0);
        let node = self.node(place.node, level);
        assert_eq!((node.this(), node.level()), (place.node, level));
        let within = |key: u64| place.first <= key && place.end.is_none_or(|end| key < end);
        assert!(!node.entries().is_empty(), "I5");
        if level == 0 {
            let extents: Vec<_> = node.extents().collect();
            assert!(extents.iter().all(|e| within(e.key) && within(e.end() - 1)), "I4");
            assert!(extents.windows(2).all(|w| w[0].end() <= w[1].key && w[0].joined(&w[1]).is_none()), "I1");
            out.extend(extents);
        } else {
            assert!(node.entries()[0].key() >= place.first, "I3");
            assert!(node.children().all(|(key, _)| within(key)), "I2");
            for i in 0..node.entries().len() {
                self.check_node(&place.child(&node, i), level - 1, reachable, out);
            }
        }
    }

    fn extents(&self, v: usize) -> Vec<Extent> {
        self.check(&self.volumes[v].tree, &mut BTreeSet::new())
    }

    fn check_all(&self) {
        let mut reachable = BTreeSet::new();
        for volume in &self.volumes {
            let extents = self.check(&volume.tree, &mut reachable);
            assert_eq!(blocks_of(&extents), slice_of(&volume.model, 0, self.keys));
        }
        assert_eq!(reachable, self.blocks.live, "I7");
    }

    /// Walks all that was born after `after`. Each such node and extent is met once.
    fn walk(&mut self, v: usize, after: Epoch) -> Vec<Passed> {
        let tree = self.volumes[v].tree;
        let (mut at, mut passed, mut extents) = (Some(0), Vec::<Passed>::new(), Vec::new());
        while let Some(cursor) = at {
            let step =
                self.with_all_nodes(|cache| walk_step(cache, &tree, cursor, &|name, _, _| Ok(name.birth <= after)));
            assert!(step.next.is_none_or(|next| next > cursor));
            let ends = |p: &Passed| match (p.end_key, step.next) {
                (Some(end), Some(next)) => cursor < end && end <= next,
                (Some(end), None) => cursor < end,
                (None, next) => next.is_none(),
            };
            assert!(step.passed.iter().all(ends), "{step:?} from {cursor}");
            if let Some(leaf) = &step.leaf {
                extents.extend(leaf.extents().filter(|e| e.birth > after));
            }
            passed.extend(step.passed);
            at = step.next;
        }
        let expected: Vec<_> = self.extents(v).into_iter().filter(|e| e.birth > after).collect();
        assert_eq!(extents, expected);
        let mut young = BTreeSet::new();
        if let Some(root) = tree.root {
            self.young_nodes(root, tree.level, after, &mut young);
        }
        let addrs: BTreeSet<_> = passed.iter().map(|p| p.node.addr.0).collect();
        assert_eq!((addrs.len(), &addrs), (passed.len(), &young), "each node once");
        passed
    }

    fn young_nodes(&self, name: NodeRef, level: u8, after: Epoch, out: &mut BTreeSet<u64>) {
        if name.birth > after {
            out.insert(name.addr.0);
            self.node(name, level).children().for_each(|(_, child)| self.young_nodes(child, level - 1, after, out));
        }
    }

    /// Removes a head: frees the blocks that only it has.
    fn remove_head(&mut self, v: usize) {
        let passed = self.walk(v, self.volumes[v].last_snapshot);
        let volume = self.volumes.remove(v);
        let mut owner = Owner {
            blocks: &mut self.blocks,
            cache: &self.cache,
            last_snapshot: volume.last_snapshot,
            granted: Cell::new(None),
        };
        for p in passed {
            if p.node.generation == owner.generation() {
                self.cache.forget(p.node.addr);
            }
            owner.release(p.node);
        }
    }

    /// Takes a point, and sometimes a second head that begins there.
    fn snapshot(&mut self, v: usize) {
        let epoch = Epoch(self.blocks.epoch);
        self.blocks.epoch += 1;
        self.volumes[v].last_snapshot = epoch;
        let copies = if self.random.one_in(2) { 2 } else { 1 };
        for copy in 0..copies {
            let Volume { tree, ref model, .. } = self.volumes[v];
            self.volumes.push(Volume { tree, model: model.clone(), last_snapshot: epoch, frozen: copy == 0 });
        }
    }

    fn head(&mut self) -> usize {
        let heads: Vec<_> = (0..self.volumes.len()).filter(|&v| !self.volumes[v].frozen).collect();
        heads[self.random.below(heads.len() as u64) as usize]
    }

    fn range(&mut self, longest: u64) -> (u64, u64) {
        let start = self.random.below(self.keys);
        (start, (start + 1 + self.random.below(longest)).min(self.keys))
    }

    fn run(&mut self, steps: u64) {
        let mut checkpoint = None;
        for _ in 0..steps {
            let v = self.head();
            let any = self.random.below(self.volumes.len() as u64) as usize;
            self.blocks.refuse = self.random.one_in(10);
            match self.random.below(100) {
                0..50 => {
                    let (start, end) = self.range(12);
                    let new = self.extents_in(start, end);
                    self.replace(v, start, end, &new);
                }
                50..60 => {
                    let (start, end) = self.range(1000);
                    let new = self.extents_in(start, end);
                    self.replace(v, start, end, &new);
                }
                60..68 => {
                    let (start, end) = self.range(20);
                    self.replace(v, start, end, &[]);
                }
                68..70 => {
                    let longest = self.keys;
                    let (start, end) = self.range(longest);
                    self.unmap(v, start, end);
                }
                70..82 => {
                    let (start, end) = self.range(200);
                    self.lookup(any, start, end);
                }
                82..84 => {
                    let (from, _) = self.range(1);
                    let min_len = 1 + self.random.below(6) as u32;
                    self.first_fit(any, from, min_len);
                }
                84..86 => {
                    let after = Epoch(self.random.below(self.blocks.epoch + 1));
                    // Pruning is exact for the epochs of the tree's own snapshots.
                    let after = if after < self.volumes[any].last_snapshot {
                        self.volumes[any].last_snapshot
                    } else {
                        Epoch(0)
                    };
                    self.walk(any, after);
                }
                86..88 if self.volumes.len() < 8 => self.snapshot(v),
                88 if v > 0 => self.remove_head(v),
                89..91 => self.evict_some(),
                91..95 if checkpoint.is_none() => {
                    checkpoint = Some((self.blocks.generation, std::mem::take(&mut self.blocks.waiting)));
                    self.blocks.generation += 1;
                }
                91..95 => {
                    if let Some((last, waiting)) = checkpoint.take() {
                        self.checkpoint_write(last, waiting);
                    }
                }
                95 if self.random.one_in(4) => self.check_all(),
                _ => {
                    let (start, _) = self.range(1);
                    self.lookup(any, start, start + 1);
                }
            }
        }
        self.check_all();
    }
}

fn blocks_of(extents: &[Extent]) -> Vec<(u64, (u64, Epoch, u16))> {
    let block = |e: &Extent, i| (e.key + i, (e.value + i, e.birth, e.flags));
    extents.iter().flat_map(|e| (0..u64::from(e.len)).map(move |i| block(e, i))).collect()
}

fn slice_of(model: &Model, start: u64, end: u64) -> Vec<(u64, (u64, Epoch, u16))> {
    (start..end.min(model.len() as u64)).filter_map(|key| model[key as usize].map(|what| (key, what))).collect()
}

#[test]
fn random_histories_agree_with_the_model() {
    let mut misses = 0;
    for seed in 0..200 {
        let mut world = World::new(seed, 2_000);
        world.run(600);
        misses += world.misses;
    }
    assert!(misses > 1_000, "{misses}: evictions no longer make anything missing");
}

#[test]
fn random_histories_of_tall_trees_agree_with_the_model() {
    let mut tallest = 0;
    for seed in 1000..1006 {
        let mut world = World::new(seed, 60_000);
        let dense: Vec<_> = (0..60_000).map(|key| single(key, key * 2, 1)).collect();
        world.replace(0, 0, 60_000, &dense);
        tallest = tallest.max(world.volumes[0].tree.level);
        world.run(600);
    }
    assert!(tallest >= 2);
    for seed in 2000..2100 {
        let fan_out = 8 + seed as usize % 24;
        set_fan_out(fan_out);
        World::new(seed, 12 * fan_out as u64).run(600);
    }
}

fn single(key: u64, value: u64, birth: u64) -> Extent {
    Extent { key, len: 1, value, birth: Epoch(birth), flags: 0 }
}

fn count_leaves(world: &World) -> (usize, usize) {
    let mut nodes = BTreeSet::new();
    let extents = world.check(&world.volumes[0].tree, &mut nodes).len();
    (extents, nodes.len())
}

#[test]
fn filling_in_order_packs_nodes() {
    for tail in [false, true] {
        let mut world = World::new(1, 40_000);
        if tail {
            let rest = Extent { key: 0, len: 40_000, value: 1 << 30, birth: Epoch(1), flags: 1 };
            world.replace(0, 0, 40_000, &[rest]);
        }
        for key in 0..30_000 {
            world.replace(0, key, key + 1, &[single(key, key * 2, 1)]);
        }
        let (extents, nodes) = count_leaves(&world);
        assert!(extents as f64 > 0.9 * (nodes * 168) as f64, "{extents} extents in {nodes} nodes");
    }
}

#[test]
fn filling_in_order_with_one_value_stays_one_extent() {
    let mut world = World::new(1, 5_000);
    for key in 0..5_000 {
        world.replace(0, key, key + 1, &[single(key, key + 9, 1)]);
    }
    assert_eq!(world.extents(0).len(), 1);
    let whole = Extent { key: 0, len: 5_000, value: 9, birth: Epoch(1), flags: 0 };
    world.replace(0, 0, 5_000, &[Extent { flags: 1, ..whole }]);
    world.replace(0, 100, 200, &[]);
    assert_eq!(world.extents(0).len(), 2);
    world.replace(0, 100, 200, &[Extent { key: 100, len: 100, value: 109, flags: 1, ..whole }]);
    assert_eq!(world.extents(0), [Extent { flags: 1, ..whole }], "both neighbours join");
}

#[test]
fn emptying_a_tree_gives_back_every_node() {
    let mut world = World::new(3, 60_000);
    let dense: Vec<_> = (0..60_000).map(|key| single(key, key * 2, 1)).collect();
    world.replace(0, 0, 60_000, &dense);
    assert!(world.blocks.live.len() > 300);
    world.unmap(0, 1, 60_000);
    assert_eq!((world.volumes[0].tree.level, world.blocks.live.len()), (0, 1), "one extent, one leaf");
    world.unmap(0, 0, 1);
    assert_eq!((world.volumes[0].tree, world.blocks.live.len()), (Tree::default(), 0));
}

/// Ranges that begin and end where nodes do: whole children are removed, also first ones (I3).
#[test]
fn whole_children_go() {
    for seed in 0..6 {
        let mut world = World::new(seed, 90_000);
        let dense: Vec<_> = (0..90_000).map(|key| single(key, key * 2, 1)).collect();
        world.replace(0, 0, 90_000, &dense);
        assert_eq!(world.volumes[0].tree.level, 2);
        for round in 0..60 {
            let tree = world.volumes[0].tree;
            let Some(root) = tree.root.filter(|_| tree.level > 0) else { break };
            let mut bounds: Vec<u64> = world.node(root, tree.level).children().map(|(key, _)| key).collect();
            if tree.level == 2 {
                let child = world.random.below(bounds.len() as u64) as usize;
                let (_, child) = world.node(root, 2).children().nth(child).unwrap();
                bounds.extend(world.node(child, 1).children().map(|(key, _)| key));
            }
            let end = bounds[world.random.below(bounds.len() as u64) as usize];
            let below: Vec<u64> = bounds.iter().copied().filter(|&key| key < end).collect();
            let start = if world.random.one_in(2) { 0 } else { below.first().map_or(0, |_| below[below.len() / 2]) };
            if world.random.one_in(8) {
                world.snapshot(0);
            }
            world.replace(0, start, end, &[]);
            let epoch = world.blocks.epoch;
            for _ in 0..world.random.below(200) {
                let key = start + world.random.below((end - start).max(1));
                world.replace(0, key, key + 1, &[single(key, 1 << 20 | round, epoch)]);
            }
            world.check_all();
        }
    }
}

/// A node whose first child was removed is joined to its left sibling. Keys of its new first child below the child's
/// own key are still found there (I3).
#[test]
fn a_first_child_moves_behind_another() {
    let mut world = World::new(9, 90_000);
    let dense: Vec<_> = (0..90_000).map(|key| single(key, key * 2, 1)).collect();
    world.replace(0, 0, 90_000, &dense);
    let tree = world.volumes[0].tree;
    assert_eq!(tree.level, 2);
    let nodes: Vec<_> = world.node(tree.root.unwrap(), 2).children().collect();
    let leaves = |i: usize| world.node(nodes[i].1, 1).children().map(|(key, _)| key).collect::<Vec<u64>>();
    let (left, right, end) = (leaves(0), leaves(1), nodes[2].0);
    world.replace(0, right[0], right[1], &[]);
    world.replace(0, right[0] + 5, right[0] + 6, &[single(right[0] + 5, 7, 1)]);
    world.unmap(0, left[60], right[0]);
    world.unmap(0, right[30], end);
    let root = world.node(world.volumes[0].tree.root.unwrap(), 2);
    assert!(root.entries().len() < nodes.len(), "they are one node now");
    world.check_all();
    world.lookup(0, right[0], right[2]);
}

#[test]
fn thinning_a_tree_joins_its_nodes() {
    let mut world = World::new(4, 60_000);
    let dense: Vec<_> = (0..60_000).map(|key| single(key, key * 2, 1)).collect();
    world.replace(0, 0, 60_000, &dense);
    for key in (0..60_000).filter(|key| key % 50 != 0) {
        world.replace(0, key, key + 1, &[]);
    }
    let (extents, nodes) = count_leaves(&world);
    assert_eq!(extents, 1_200);
    assert!(nodes < 1_200 / 30, "{nodes} nodes for {extents} extents");
}

#[test]
fn a_change_that_changes_nothing_copies_nothing() {
    let mut world = World::new(5, 1_000);
    world.replace(0, 10, 20, &[single(10, 1, 1)]);
    world.snapshot(0);
    let tree = world.volumes[0].tree;
    world.replace(0, 500, 600, &[]);
    world.replace(0, 11, 12, &[]);
    assert_eq!(world.volumes[0].tree, tree);
    world.replace(0, 10, 11, &[]);
    assert_eq!((world.volumes[0].tree, world.volumes[1].tree), (Tree::default(), tree));
}

#[test]
fn node_at_names_each_level() {
    let mut world = World::new(6, 60_000);
    let dense: Vec<_> = (0..60_000).map(|key| single(key, key * 2, 1)).collect();
    world.replace(0, 0, 60_000, &dense);
    let tree = world.volumes[0].tree;
    assert_eq!(node_at(&world.cache, &tree, tree.level, 7), Ok(tree.root));
    assert_eq!(node_at(&world.cache, &tree, tree.level + 1, 7), Ok(None));
    assert_eq!(node_at(&world.cache, &tree, u8::MAX, 7), Ok(None));
    let leaf = node_at(&world.cache, &tree, 0, 30_000).unwrap().unwrap();
    assert!(world.node(leaf, 0).extents().any(|e| e.key == 30_000));
    assert_eq!(node_at(&world.cache, &Tree::default(), 0, 0), Ok(None));
}

#[test]
fn what_two_trees_share() {
    let mut world = World::new(8, 60_000);
    let dense: Vec<_> = (0..60_000).map(|key| single(key, key * 2, 1)).collect();
    world.replace(0, 0, 60_000, &dense);
    world.snapshot(0);
    let (before, key) = (world.volumes[0].tree, 30_000);
    world.replace(0, key, key + 1, &[single(key, 5, 2)]);
    let after = world.volumes[0].tree;
    let leaf = |tree: &Tree, key| node_at(&world.cache, tree, 0, key).unwrap().unwrap();
    assert_eq!(has_node(&world.cache, &after, leaf(&before, 0), 0, 0), Ok(true));
    assert_eq!(has_node(&world.cache, &after, leaf(&before, key), 0, key), Ok(false));

    let extent = Extent { key: key - 2, len: 5, value: 1000, birth: Epoch(1), flags: 0 };
    let tree = |world: &mut World, new: &[Extent]| {
        world.replace(0, key - 2, key + 3, new);
        world.volumes[0].tree
    };
    let cut = |from: u64, to: u64| Extent { birth: Epoch(2), ..extent.cut(from, to).unwrap() };
    let parts = [cut(key - 1, key), cut(key + 1, key + 2)];
    let other = tree(&mut world, &[parts[0], single(key, 7, 2), parts[1]]);
    let same = same_places(&world.cache, &other, &extent).unwrap();
    assert_eq!(same[..], parts);
    let left: Vec<(u64, u32)> = rest(&extent, &same).map(|e| (e.key, e.len)).collect();
    assert_eq!(left, [(key - 2, 1), (key, 1), (key + 2, 1)]);
    assert!(rest(&extent, &[extent]).next().is_none());
}

#[test]
fn a_long_walk_over_pruned_nodes_pauses() {
    let mut world = World::new(7, 160_000);
    let dense: Vec<_> = (0..160_000).map(|key| single(key, key * 2, 1)).collect();
    world.replace(0, 0, 160_000, &dense);
    world.snapshot(0);
    world.replace(0, 150_000, 150_001, &[single(150_000, 5, 2)]);
    let tree = world.volumes[0].tree;
    let calls = Cell::new(0);
    let prune = |name: NodeRef, level: u8, _: u64| {
        calls.set(calls.get() + 1);
        Ok(level == 0 && name.birth <= Epoch(1))
    };
    let step = walk_step(&world.cache, &tree, 0, &prune);
    let step = step.unwrap();
    assert!(step.leaf.is_none() && step.next.is_some() && calls.get() < 600, "{} calls", calls.get());
}

/// Damage that each node alone cannot show (its checksum is right, its keys rise) must not panic.
#[test]
fn nodes_that_contradict_each_other_never_panic() {
    let mut corrupt_seen = 0;
    for seed in 0..300 {
        let mut world = World::new(seed, 30_000);
        let dense: Vec<_> = (0..30_000).map(|key| single(key, key * 2, 1)).collect();
        world.replace(0, 0, 30_000, &dense);
        let nodes = world.cache.dirty_nodes(u64::MAX);
        let (leaves, interior): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| node.is_leaf());
        let pick = |random: &mut Random| {
            let from = if random.one_in(2) { &leaves } else { &interior };
            from[random.below(from.len() as u64) as usize].clone()
        };
        for _ in 0..20 {
            let (mut to, from) = ((*pick(&mut world.random)).clone(), pick(&mut world.random));
            if to.level() == from.level() || world.random.one_in(3) {
                let entry = from.entries()[world.random.below(from.entries().len() as u64) as usize];
                let i = world.random.below(to.entries().len() as u64) as usize;
                let own = to.entries()[i].key();
                let key = if world.random.one_in(2) { own } else { entry.key() };
                to.splice(i..i + 1, &[entry.with_key(key)]);
            }
            let block = to.encode(GROUP);
            if let Ok(node) = Node::decode(&block, to.this(), to.level(), GROUP) {
                world.cache.insert_dirty(node);
            }
        }
        let mut volume = world.volumes.remove(0);
        for _ in 0..200 {
            let (start, end) = world.range(3_000);
            let new = if world.random.one_in(2) { world.extents_in(start, end) } else { Vec::new() };
            let mut owner = Lenient(&mut world.blocks);
            let results = [
                replace(&world.cache, &mut volume.tree, &mut owner, start, end, &new, &mut Vec::new()),
                lookup(&world.cache, &volume.tree, start, end, &mut Extents::new()),
                walk_step(&world.cache, &volume.tree, start, &|_, _, _| Ok(false)).map(drop),
                first_fit(&world.cache, &volume.tree, start, 5, 10).map(drop),
            ];
            corrupt_seen += results.iter().filter(|r| matches!(r, Err(MapError::Corrupt(_)))).count();
        }
    }
    assert!(corrupt_seen > 1000, "{corrupt_seen}");
}

/// An owner that relies on a damaged tree.
struct Lenient<'a>(&'a mut Blocks);

impl NodeOwner for Lenient<'_> {
    fn can_alloc(&self, _nodes: usize) -> bool {
        true
    }
    fn alloc(&mut self) -> MetaBlock {
        self.0.next += 1;
        MetaBlock(self.0.next)
    }
    fn release(&mut self, _node: NodeRef) {}
    fn owned(&self, birth: Epoch, _key: u64) -> bool {
        birth.0 > 0
    }
    fn birth(&self) -> Epoch {
        Epoch(self.0.epoch)
    }
    fn generation(&self) -> u64 {
        self.0.generation
    }
}

/// Readers of a snapshot during writes to its origin, through a cache that is much too small for both.
#[test]
fn a_snapshot_is_read_while_its_origin_changes() {
    let mut world = World::new(8, 60_000);
    let dense: Vec<_> = (0..60_000).map(|key| single(key, key * 2, 1)).collect();
    world.replace(0, 0, 60_000, &dense);
    world.snapshot(0);
    world.blocks.generation += 1;
    world.checkpoint_write(1, Vec::new());
    let (point, disk) = (world.volumes[1].tree, world.disk.clone());
    let mut head = world.volumes.remove(0);
    let World { cache, mut blocks, .. } = world;
    let load = |error: MapError| match error {
        MapError::Missing(name, level) => {
            drop(cache.insert_clean(Node::decode(&disk[&name.addr.0], name, level, GROUP).unwrap()));
        }
        other => panic!("{other}"),
    };
    std::thread::scope(|threads| {
        for seed in 0..2 {
            let (cache, load) = (&cache, &load);
            threads.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..30_000 {
                    let (key, mut out) = (random.below(60_000), Extents::new());
                    while let Err(e) = lookup(cache, &point, key, key + 1, &mut out) {
                        load(e);
                    }
                    assert_eq!(out[..], [single(key, key * 2, 1)]);
                }
            });
        }
        let mut random = Random(9);
        for _ in 0..30_000 {
            let (key, mut removed) = (random.below(60_000), Vec::new());
            let mut owner = Owner {
                blocks: &mut blocks,
                cache: &cache,
                last_snapshot: head.last_snapshot,
                granted: Cell::new(None),
            };
            let new = [single(key, random.below(1 << 40), 2)];
            let old = head.model[key as usize].replace((new[0].value, Epoch(2), 0));
            while let Err(e) = replace(&cache, &mut head.tree, &mut owner, key, key + 1, &new, &mut removed) {
                load(e);
                owner.granted.set(None);
            }
            assert_eq!(blocks_of(&removed).first().map(|b| b.1), old);
        }
    });
    assert!(cache.bytes() - cache.dirty_bytes() <= 300 * NODE_COST);
}

/// I1 to I8, one after the other.
#[test]
fn faults_of_trees_are_found() {
    must_be_found("neighbours_apart", filling_in_order_with_one_value_stays_one_extent);
    must_be_found("last_child_open", random_histories_of_tall_trees_agree_with_the_model);
    must_be_found("first_key_stays", a_first_child_moves_behind_another);
    must_be_found("end_of_leaf_off", random_histories_agree_with_the_model);
    must_be_found("lone_root_stays", emptying_a_tree_gives_back_every_node);
    must_be_found("shared_in_place", random_histories_agree_with_the_model);
    must_be_found("older_node_kept", random_histories_agree_with_the_model);
    must_be_found("partial_result_kept", random_histories_agree_with_the_model);
}
