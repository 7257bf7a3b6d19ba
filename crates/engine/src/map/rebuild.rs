//! Changes that create, split, join or drop nodes.
//!
//! First the change is planned, level by level from the leaves up, with references to all affected nodes. After that
//! nothing can fail. On each level the change affects a *span*, a run of neighbouring nodes. The first node keeps its
//! entries left of the change, and the last node those right of it. The entries in between come from the level below.
//! The span's entries are then distributed to as many nodes as they need, and the level above gets the new names of
//! these nodes. The change ends at a level where one node is changed in place, because its parent's entry stays valid,
//! or at the root.

use super::change::{Change, in_place, push_joined};
use super::fan_out::{fan_out, sparse};
use super::{MapError, NodeCache, NodeOwner, NodeRef, Place, Tree, fetch};
use crate::format::node::{CAPACITY, Entry, Extent, Node, corrupt};
use crate::planted;
use smallvec::SmallVec;
use std::sync::Arc;

/// The largest number of entries of two nodes that are joined. It leaves room for the next insertions.
fn joined() -> usize {
    fan_out() * 3 / 4
}

/// Entries of a node that was split by appending: no more insertions into it are expected.
fn packed() -> usize {
    fan_out() - fan_out() / 20
}

/// A change with at most this many extents to its right counts as appending: a volume that is filled in order has the
/// rest of its old extent there.
const TAIL: usize = 4;

/// See [`super::replace`].
pub(super) fn replace<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    tree: &mut Tree,
    owner: &mut O,
    change: &Change<'_>,
    removed: &mut Vec<Extent>,
) -> Result<(), MapError> {
    let mut spans = hold(cache, tree, owner, change)?;
    let mut leaves = cut_leaves(&spans[0], change);
    if leaves.removed.is_empty() && change.new.is_empty() {
        return Ok(());
    }
    let reached = plan(cache, owner, &mut spans, &mut leaves)?;
    let root = plan_root(cache, owner, &mut spans, reached)?;
    let blocks = blocks_needed(&spans, &root);
    if blocks > 0 && !owner.can_alloc(blocks) {
        return Err(MapError::NoSpace);
    }
    // From here on nothing fails (I8).
    removed.append(&mut leaves.removed);
    let new_root = commit(cache, owner, &spans, &leaves, root);
    *tree = new_root.unwrap_or(*tree);
    Ok(())
}

/// An affected node, with a reference so that it cannot be evicted.
struct Held {
    node: Arc<Node>,
    place: Place,
    owned: bool,
    in_place: bool,
}

/// The affected nodes of one level, and the plan for them.
#[derive(Default)]
struct Span {
    held: Vec<Held>,
    /// Siblings that join the span because it has become too small.
    left: Option<Held>,
    right: Option<Held>,
    /// On interior levels: in the first node, the position of the first child in the span below...
    low: usize,
    /// ... and in the last node that of the last child. They and all between are replaced.
    high: usize,
    /// How many entries each node gets.
    sizes: SmallVec<[usize; 4]>,
}

impl Span {
    fn all(&self) -> impl Iterator<Item = &Held> {
        self.left.iter().chain(&self.held).chain(&self.right)
    }

    /// The lower bound of the span's keys. There is no node yet when the tree is empty.
    fn first_key(&self) -> u64 {
        self.all().next().map_or(0, |held| held.place.first)
    }

    fn reusable(&self) -> impl Iterator<Item = &Held> {
        self.all().filter(|held| held.in_place).take(self.sizes.len())
    }

    /// An interior span's entries that stay: left and right of the children that are replaced.
    fn remaining_entries(&self) -> (&[Entry], &[Entry]) {
        match (self.held.first(), self.held.last()) {
            (Some(first), Some(last)) => (&first.node.entries()[..self.low], &last.node.entries()[self.high + 1..]),
            _ => (&[], &[]),
        }
    }

    /// An interior span's new entries, with `children` in the place of the old ones.
    fn entries(&self, children: &[Entry]) -> Vec<Entry> {
        let (before, after) = self.remaining_entries();
        let mut all: Vec<Entry> = Vec::with_capacity(self.sizes.iter().sum());
        // A first child may cover keys below its own key (I3), and may no longer be the first one here.
        let mut take = |entries: &mut dyn Iterator<Item = Entry>, first: Option<&Held>| {
            let at = all.len();
            all.extend(entries);
            let first = first.filter(|_| !planted::is("first_key_stays"));
            if let (Some(entry), Some(first)) = (all.get_mut(at), first) {
                *entry = entry.with_key(first.place.first);
            }
        };
        take(&mut self.left.iter().flat_map(|held| held.node.entries()).copied(), self.left.as_ref());
        take(&mut [before, children, after].into_iter().flatten().copied(), self.held.first());
        take(&mut self.right.iter().flat_map(|held| held.node.entries()).copied(), self.right.as_ref());
        all
    }

    /// The change ends here: one node, changed in place.
    fn absorbs(&self) -> bool {
        self.sizes.len() == 1 && self.all().count() == 1 && self.all().all(|held| held.in_place)
    }
}

/// The span of leaves after the change.
struct Leaves {
    extents: SmallVec<[Extent; 0]>,
    removed: Vec<Extent>,
    appending: bool,
}

/// Holds every node that overlaps the change; the leaves' span comes first.
fn hold<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    tree: &Tree,
    owner: &O,
    change: &Change<'_>,
) -> Result<Vec<Span>, MapError> {
    let mut places: Vec<_> = tree.root.map(Place::root).into_iter().collect();
    let mut spans = Vec::with_capacity(usize::from(tree.level) + 1);
    for level in (0..=tree.level).rev() {
        let held = places.iter().map(|&p| hold_node(cache, owner, p, level)).collect::<Result<Vec<_>, _>>()?;
        places.clear();
        if level > 0 {
            for Held { node, place, .. } in &held {
                let concerned = node.child_at(change.start)..=node.child_at(change.end - 1);
                places.extend(concerned.map(|i| place.child(node, i)));
            }
        }
        let low = held.first().map_or(0, |h| h.node.child_at(change.start));
        let high = held.last().map_or(0, |h| h.node.child_at(change.end - 1));
        spans.push(Span { held, low, high, ..Span::default() });
    }
    spans.reverse();
    Ok(spans)
}

fn hold_node<O: NodeOwner + ?Sized>(cache: &NodeCache, owner: &O, place: Place, level: u8) -> Result<Held, MapError> {
    let node = fetch(cache, place.node, level)?;
    check_range(&node, &place)?;
    let owned = super::change::owned(owner, &node);
    Ok(Held { node, place, owned, in_place: in_place(owner, &place) })
}

/// I3 and I4: a node must match its parent's entry. Each node by itself was checked when it was read.
fn check_range(node: &Node, place: &Place) -> Result<(), MapError> {
    let (Some(first), Some(last)) = (node.entries().first(), node.entries().last()) else {
        return Err(MapError::Corrupt(corrupt(place.node, "it has no entries".into())));
    };
    let last_end = if node.is_leaf() { last.extent().end() } else { last.key() + 1 };
    if first.key() >= place.first && place.end.is_none_or(|end| last_end <= end) {
        return Ok(());
    }
    let (from, to) = (place.first, place.end);
    let detail =
        format!("its keys {} to {last_end} are not those that its parent gives it, {from} to {to:?}", first.key());
    Err(MapError::Corrupt(corrupt(place.node, detail)))
}

/// Applies the change to the leaves' extents.
fn cut_leaves(span: &Span, change: &Change<'_>) -> Leaves {
    let mut extents = SmallVec::with_capacity(CAPACITY + change.new.len() + 2);
    let mut removed = Vec::new();
    let mut rest = span.held.iter().flat_map(|h| h.node.extents()).peekable();
    // Extents that begin before the range. The last one may reach into it, or beyond it.
    let mut reaching = None;
    while let Some(e) = rest.next_if(|e| e.key < change.start) {
        e.cut(0, change.start).into_iter().for_each(|piece| push_joined(&mut extents, piece));
        reaching = Some(e);
    }
    change.new.iter().for_each(|&e| push_joined(&mut extents, e));
    let mut tail = 0;
    for e in reaching.into_iter().chain(rest) {
        removed.extend(e.cut(change.start, change.end));
        if let Some(piece) = e.cut(change.end, u64::MAX) {
            push_joined(&mut extents, piece);
            tail += 1;
        }
    }
    Leaves { extents, removed, appending: tail <= TAIL }
}

impl Leaves {
    fn join_siblings(&mut self, span: &Span) {
        if let Some(left) = &span.left {
            let own = std::mem::replace(&mut self.extents, left.node.extents().collect());
            own.into_iter().for_each(|e| push_joined(&mut self.extents, e));
        }
        if let Some(right) = &span.right {
            right.node.extents().for_each(|e| push_joined(&mut self.extents, e));
        }
    }
}

/// Plans each level's nodes. True if the change reaches the root; else the last of `spans` is the one where it ends.
fn plan<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    owner: &O,
    spans: &mut Vec<Span>,
    leaves: &mut Leaves,
) -> Result<bool, MapError> {
    let mut children = 0;
    for level in 0..spans.len() {
        let (lower, upper) = spans.split_at_mut(level + 1);
        let span = &mut lower[level];
        let (before, after) = span.remaining_entries();
        let (own, appending) = match level {
            0 => (leaves.extents.len(), leaves.appending),
            _ => (before.len() + children + after.len(), after.is_empty()),
        };
        let old: usize = span.held.iter().map(|h| h.node.entries().len()).sum();
        if let (true, Some(above)) = ((1..sparse()).contains(&own) && own < old, upper.first_mut()) {
            join_sibling(cache, owner, span, above, level as u8, own)?;
        }
        let joined: usize = span.left.iter().chain(&span.right).map(|h| h.node.entries().len()).sum();
        let total = match level {
            0 => {
                leaves.join_siblings(span);
                leaves.extents.len()
            }
            _ => own + joined,
        };
        span.sizes = deal_sizes(total, appending);
        let lone_root = upper.is_empty() && level > 0 && total == 1 && !planted::is("lone_root_stays"); // To be dropped: I5.
        if span.absorbs() && !lone_root {
            spans.truncate(level + 1);
            return Ok(false);
        }
        children = span.sizes.len();
    }
    Ok(true)
}

/// Joins a span that has become small with a sibling, if one has room.
fn join_sibling<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    owner: &O,
    span: &mut Span,
    above: &mut Span,
    level: u8,
    own: usize,
) -> Result<(), MapError> {
    let (Some(first), Some(last)) = (above.held.first(), above.held.last()) else { return Ok(()) };
    let fits = |sibling: &Held| sibling.node.entries().len() + own <= joined();
    if let Some(i) = above.low.checked_sub(1) {
        let left = hold_node(cache, owner, first.place.child(&first.node, i), level)?;
        if fits(&left) {
            (span.left, above.low) = (Some(left), i);
            return Ok(());
        }
    }
    let i = above.high + 1;
    if i < last.node.entries().len() {
        let right = hold_node(cache, owner, last.place.child(&last.node, i), level)?;
        if fits(&right) {
            (span.right, above.high) = (Some(right), i);
        }
    }
    Ok(())
}

/// How `total` entries are dealt out to nodes: evenly, or packed when more are expected only at the end.
fn deal_sizes(total: usize, appending: bool) -> SmallVec<[usize; 4]> {
    if total <= fan_out() {
        return (total > 0).then_some(total).into_iter().collect();
    }
    if appending {
        let full = std::iter::repeat_n(packed(), total / packed());
        return full.chain(Some(total % packed()).filter(|&rest| rest > 0)).collect();
    }
    let nodes = total.div_ceil(fan_out());
    (0..nodes).map(|i| total / nodes + usize::from(i < total % nodes)).collect()
}

/// What the tree's root will be.
enum Root {
    /// The change ends below it, or changes it in place.
    Same,
    Empty,
    /// The planned nodes of this level, under new levels if they are several.
    Planned(usize),
    /// A node that stays as it is; those above it have no other child and are dropped.
    Old {
        place: Place,
        level: u8,
        dropped: Vec<Held>,
    },
}

/// Lowers the tree where the upper levels have become a single path (I5). Their planned nodes are not made.
fn plan_root<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    owner: &O,
    spans: &mut [Span],
    reached: bool,
) -> Result<Root, MapError> {
    if !reached {
        return Ok(Root::Same);
    }
    let mut level = spans.len() - 1;
    if spans[level].sizes.is_empty() {
        return Ok(Root::Empty);
    }
    while level > 0 && spans[level].sizes.iter().sum::<usize>() == 1 {
        let span = &mut spans[level];
        span.sizes.clear();
        let (before, after) = span.remaining_entries();
        let only = match (before, after, span.held.first(), span.held.last()) {
            ([_], _, Some(first), _) => Some(first.place.child(&first.node, span.low - 1)),
            (_, [_], _, Some(last)) => Some(last.place.child(&last.node, span.high + 1)),
            _ => None,
        };
        level -= 1;
        if let Some(place) = only {
            return old_root(cache, owner, place, level as u8);
        }
    }
    Ok(Root::Planned(level))
}

fn old_root<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    owner: &O,
    mut place: Place,
    mut level: u8,
) -> Result<Root, MapError> {
    let mut dropped = Vec::new();
    while level > 0 {
        let held = hold_node(cache, owner, place, level)?;
        if held.node.entries().len() > 1 {
            break;
        }
        place = place.child(&held.node, 0);
        level -= 1;
        dropped.push(held);
    }
    Ok(Root::Old { place, level, dropped })
}

/// How many new metadata blocks the plan takes.
fn blocks_needed(spans: &[Span], root: &Root) -> usize {
    let mut blocks = spans.iter().map(|span| span.sizes.len() - span.reusable().count()).sum();
    if let Root::Planned(level) = root {
        let mut nodes = spans[*level].sizes.len();
        while nodes > 1 {
            nodes = deal_sizes(nodes, false).len();
            blocks += nodes;
        }
    }
    blocks
}

/// Applies the plan. Returns the new tree, unless the root is unchanged.
fn commit<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    owner: &mut O,
    spans: &[Span],
    leaves: &Leaves,
    root: Root,
) -> Option<Tree> {
    let top = if let Root::Planned(level) = root { level } else { spans.len() - 1 };
    let mut children = Vec::new();
    for (level, span) in spans.iter().enumerate() {
        if level <= top {
            let entries = match level {
                0 => leaves.extents.iter().map(Entry::leaf).collect(),
                _ => span.entries(&children),
            };
            children = make_nodes(cache, owner, span, level as u8, &entries);
        }
        release_rest(cache, owner, span);
    }
    match root {
        Root::Same => None,
        Root::Empty => Some(Tree::default()),
        Root::Planned(level) => Some(grow(cache, owner, children, level as u8)),
        Root::Old { place, level, dropped } => {
            dropped.iter().for_each(|held| release(cache, owner, held));
            Some(Tree { root: Some(place.node), level })
        }
    }
}

/// Makes a span's nodes from its entries, in place where that is permitted. Returns the entries for their parent.
fn make_nodes<O: NodeOwner + ?Sized>(
    cache: &NodeCache,
    owner: &mut O,
    span: &Span,
    level: u8,
    entries: &[Entry],
) -> Vec<Entry> {
    let mut reusable = span.reusable().map(|held| held.place.node);
    let mut rest = entries;
    let mut named = Vec::with_capacity(span.sizes.len());
    for &size in &span.sizes {
        let (part, more) = rest.split_at(size);
        rest = more;
        let name = reusable.next().unwrap_or_else(|| NodeRef {
            addr: owner.alloc(),
            generation: owner.generation(),
            birth: owner.birth(),
        });
        cache.insert_dirty(Node::new(name, level, part));
        let first_key = if named.is_empty() { span.first_key() } else { part[0].key() };
        named.push(Entry::interior(first_key, name));
    }
    named
}

fn release_rest<O: NodeOwner + ?Sized>(cache: &NodeCache, owner: &mut O, span: &Span) {
    let mut reused = span.reusable().map(|held| held.place.node).peekable();
    for held in span.all() {
        if reused.next_if_eq(&held.place.node).is_none() {
            release(cache, owner, held);
        }
    }
}

/// I7. A node that no checkpoint has seen is removed from the cache at once.
fn release<O: NodeOwner + ?Sized>(cache: &NodeCache, owner: &mut O, held: &Held) {
    if held.owned && (held.in_place || !planted::is("older_node_kept")) {
        if held.in_place {
            cache.forget(held.place.node.addr);
        }
        owner.release(held.place.node);
    }
}

/// Adds levels above the nodes until one node is left: the root.
fn grow<O: NodeOwner + ?Sized>(cache: &NodeCache, owner: &mut O, mut nodes: Vec<Entry>, mut level: u8) -> Tree {
    while nodes.len() > 1 {
        level += 1;
        let span = Span { sizes: deal_sizes(nodes.len(), false), ..Span::default() };
        nodes = make_nodes(cache, owner, &span, level, &nodes);
    }
    Tree { root: nodes.first().map(Entry::child), level }
}
