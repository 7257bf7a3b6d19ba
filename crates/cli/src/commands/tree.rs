//! `rowen tree`: volumes below their origins, and the space of each.

use super::reports::end_of_query;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Detail, SelectedGroup, Session};
use rowen_control::protocol::{GroupReport, VolumeReport, VolumeState};
use rowen_control::time;
use rowen_control::units::Units;
use rowen_engine::units::BLOCK_SIZE;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Deeper branches are drawn at this depth, with their depth as a number.
const DEEPEST: usize = 32;

/// A group, with its sizes in bytes.
struct Group<'a> {
    name: &'a str,
    size_bytes: u64,
    free_bytes: u64,
    metadata_bytes: u64,
    /// The snapshots of a volume follow it.
    volumes: Vec<Row<'a>>,
}

/// A volume in the tree.
pub struct Row<'a> {
    pub name: &'a str,
    /// The volume or pool below which it stands.
    pub parent: Option<&'a str>,
    pub depth: usize,
    /// Whether the volume is the last one below its parent, and the same for each of its ancestors, from the top.
    is_last: Vec<bool>,
    pub size_bytes: u64,
    /// Bytes that it maps, shared space included.
    pub referenced_bytes: u64,
    /// Bytes that only this volume has: written since its last snapshot.
    pub own_bytes: u64,
    pub freed_if_removed_bytes: u64,
    /// Seconds since 1970.
    pub created: u64,
    pub state: Vec<String>,
}

/// The characters of branches: to a child that is not the last, to the last one, past later siblings, and past none.
struct Lines([&'static str; 4]);

const ASCII: Lines = Lines(["|-", "`-", "| ", "  "]);
const UNICODE: Lines = Lines(["├─", "└─", "│ ", "  "]);

pub fn tree(session: &mut Session<'_>, args: &Args) -> Result {
    let detail = Detail { all_volumes: true, with_use: false };
    let mut selection = session.select_all(&args.positionals, detail)?;
    selection.groups.sort_by(|a, b| a.report.name.cmp(&b.report.name));
    // A group without a selected volume is not shown, for instance if no volume has the tag.
    let is_meant = |selected: &&SelectedGroup| selected.is_whole || !selected.volumes.is_empty();
    let groups: Vec<Group<'_>> = selection.groups.iter().filter(is_meant).map(group).collect();
    if args.has(Opt::Json) {
        let value = json!({ "groups": groups.iter().map(Group::json).collect::<Vec<_>>() });
        let text = serde_json::to_string_pretty(&value).map_err(|e| Failure::failed(e.to_string()))?;
        session.console.raw_out(&format!("{text}\n"));
    } else {
        let lines = if is_utf8() { &UNICODE } else { &ASCII };
        for (at, group) in groups.iter().enumerate() {
            if at > 0 {
                session.console.say("");
            }
            drawn(group, args.units(), lines).iter().for_each(|line| session.console.say(line));
        }
    }
    end_of_query(args, selection.is_incomplete)
}

impl Group<'_> {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "size_bytes": self.size_bytes,
            "free_bytes": self.free_bytes,
            "metadata_bytes": self.metadata_bytes,
            "volumes": self.volumes.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}

impl Row<'_> {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "parent": self.parent,
            "depth": self.depth,
            "size_bytes": self.size_bytes,
            "referenced_bytes": self.referenced_bytes,
            "own_bytes": self.own_bytes,
            "freed_if_removed_bytes": self.freed_if_removed_bytes,
            "created": self.created,
            "state": self.state,
        })
    }
}

/// Whether the terminal uses Unicode. locale(7) says which variable decides.
pub fn is_utf8() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    set.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.ends_with("utf-8") || locale.ends_with("utf8")
    })
}

fn group(selected: &SelectedGroup) -> Group<'_> {
    let report = &selected.report;
    let bytes = |blocks: u64| blocks * BLOCK_SIZE;
    let tree = Tree::of(report);
    let roots = match selected.is_whole {
        true => tree.roots.clone(),
        false => tree.families(&selected.volumes),
    };
    Group {
        name: &report.name,
        size_bytes: bytes(report.extents * report.extent_blocks),
        free_bytes: bytes(report.free_extents * report.extent_blocks),
        metadata_bytes: bytes(report.metadata_blocks),
        volumes: tree.rows(&roots),
    }
}

/// All volumes of the group.
pub fn rows(report: &GroupReport) -> Vec<Row<'_>> {
    let tree = Tree::of(report);
    tree.rows(&tree.roots)
}

/// A group's volumes by their index in the report, in the order of creation.
struct Tree<'a> {
    report: &'a GroupReport,
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

impl<'a> Tree<'a> {
    fn of(report: &'a GroupReport) -> Tree<'a> {
        let volumes = &report.volumes;
        let places: HashMap<&str, usize> =
            volumes.iter().enumerate().map(|(at, volume)| (volume.name.as_str(), at)).collect();
        let mut order: Vec<usize> = (0..volumes.len()).collect();
        order.sort_by_key(|at| volumes[*at].id);
        // A snapshot shares space with its origin, even if it is in a pool and its origin is not. So it stands below
        // its origin.
        let parent = |volume: &VolumeReport| match &volume.origin {
            Some(origin) => places.get(origin.as_str()).copied(),
            None if volume.is_pool() => None,
            None => places.get(volume.attributes.pool.as_str()).copied(),
        };
        let parents: Vec<Option<usize>> = volumes.iter().map(parent).collect();
        let (mut children, mut roots) = (vec![Vec::new(); volumes.len()], Vec::new());
        for at in order {
            match parents[at] {
                Some(parent) => children[parent].push(at),
                None => roots.push(at),
            }
        }
        Tree { report, parents, children, roots }
    }

    /// The first ancestors of the named volumes, without their pools.
    fn families(&self, names: &[String]) -> Vec<usize> {
        let wanted: HashSet<&String> = names.iter().collect();
        let mut tops = BTreeSet::new();
        for (mut at, volume) in self.report.volumes.iter().enumerate() {
            if !wanted.contains(&volume.name) {
                continue;
            }
            // A report of another program version may have a cycle.
            for _ in 0..self.parents.len() {
                match self.parents[at].filter(|parent| !self.report.volumes[*parent].is_pool()) {
                    Some(parent) => at = parent,
                    None => break,
                }
            }
            tops.insert((self.report.volumes[at].id, at));
        }
        tops.into_iter().map(|(_, at)| at).collect()
    }

    /// The rows below these volumes, each after its origin.
    fn rows(&self, roots: &[usize]) -> Vec<Row<'a>> {
        let mut rows = Vec::with_capacity(self.report.volumes.len());
        let mut left: Vec<(usize, usize, Vec<bool>)> = roots.iter().rev().map(|at| (*at, 0, Vec::new())).collect();
        // Each volume comes once, even in a cycle.
        let mut shown = vec![false; self.report.volumes.len()];
        while let Some((at, depth, is_last)) = left.pop() {
            if std::mem::replace(&mut shown[at], true) {
                continue;
            }
            let children = &self.children[at];
            for (n, child) in children.iter().enumerate().rev() {
                let mut branch = is_last.clone();
                branch.truncate(DEEPEST - 1);
                branch.push(n + 1 == children.len());
                left.push((*child, depth + 1, branch));
            }
            rows.push(self.row(at, depth, is_last));
        }
        rows
    }

    fn row(&self, at: usize, depth: usize, is_last: Vec<bool>) -> Row<'a> {
        let volume = &self.report.volumes[at];
        let bytes = |blocks: u64| blocks * BLOCK_SIZE;
        let parent = self.parents[at].filter(|_| depth > 0).map(|parent| &self.report.volumes[parent]);
        Row {
            name: &volume.name,
            parent: parent.map(|parent| parent.name.as_str()),
            depth,
            is_last,
            size_bytes: bytes(volume.blocks),
            referenced_bytes: bytes(volume.referenced_blocks),
            own_bytes: bytes(volume.exclusive_blocks),
            freed_if_removed_bytes: bytes(volume.freed_if_removed_blocks),
            created: volume.attributes.created,
            state: state(volume, parent),
        }
    }
}

/// The state of a volume in a few words.
fn state(volume: &VolumeReport, parent: Option<&VolumeReport>) -> Vec<String> {
    let pool = volume.attributes.pool.as_str();
    let is_elsewhere =
        !pool.is_empty() && !volume.is_pool() && parent.is_none_or(|above| above.attributes.pool != pool);
    let words = [
        (volume.is_pool(), "thin pool".to_owned()),
        (volume.node.active, "active".to_owned()),
        (volume.read_only, "read only".to_owned()),
        (volume.state == VolumeState::Invalid, "invalid".to_owned()),
        (volume.is_waiting_to_merge(), "waits to be merged".to_owned()),
        (is_elsewhere, format!("in {pool}")),
    ];
    words.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word).collect()
}

/// A group in lines, with columns that line up.
fn drawn(group: &Group<'_>, units: Units, lines: &Lines) -> Vec<String> {
    let size = |bytes| units.show(bytes, true).trim_end().to_owned();
    let mut all = vec![format!(
        "{}: {}, {} free, {} of metadata",
        group.name,
        size(group.size_bytes),
        size(group.free_bytes),
        size(group.metadata_bytes)
    )];
    let heading = ["NAME", "SIZE", "REFERENCED", "OWN", "FREED", "CREATED", "STATE"].map(str::to_owned);
    let row = |row: &Row<'_>| {
        [
            format!("{}{}", branch(row, lines), row.name),
            size(row.size_bytes),
            size(row.referenced_bytes),
            size(row.own_bytes),
            size(row.freed_if_removed_bytes),
            // To the minute: the year comes first, so that it stays readable.
            time::long(row.created).get(..16).unwrap_or_default().to_owned(),
            row.state.join(", "),
        ]
    };
    let rows: Vec<[String; 7]> = std::iter::once(heading).chain(group.volumes.iter().map(row)).collect();
    let widths: [usize; 7] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let cell = |(at, text): (usize, &String)| {
        let width = widths[at];
        // Text is aligned left, numbers right.
        if matches!(at, 1..=4) { format!("{text:>width$}") } else { format!("{text:<width$}") }
    };
    let line =
        |row: &[String; 7]| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned();
    all.extend(rows.iter().map(line));
    all
}

/// The lines that lead to a volume.
fn branch(row: &Row<'_>, lines: &Lines) -> String {
    let Lines([to_next, to_last, past, nothing]) = lines;
    let Some((own, above)) = row.is_last.split_last() else { return String::new() };
    // A volume at the top has no line.
    let mut text: String = above.iter().map(|is_last| if *is_last { *nothing } else { *past }).collect();
    text.push_str(if *own { to_last } else { to_next });
    if row.depth > DEEPEST {
        text.push_str(&format!("({}) ", row.depth));
    }
    text
}

#[cfg(test)]
#[path = "tree_test.rs"]
mod tests;
