//! Forgets points, deletes what no point needs, and checks a store.

use super::SEGMENT_BLOCKS;
use super::entry::{Kind, Numbers, Say};
use super::error::{Result, StoreError};
use super::fetch::Segments;
use super::log::Log;
use super::objects;
use super::page::{self, Contents};
use super::segment::Index;
use super::state::{Outcome, State, ranges_of};
use rowen_engine::planted;
use std::collections::{BTreeMap, BTreeSet};

/// Forgets points: from now on nobody lists or reads them. Cleaning deletes what they alone need.
pub fn forget(log: &mut Log<'_>, points: &[u64]) -> Result<()> {
    let made = log.add(|state| {
        let there: Vec<u64> = points.iter().copied().filter(|point| state.points.contains_key(point)).collect();
        Ok((!there.is_empty()).then_some(Say::Forget { points: there }))
    })?;
    match made {
        Some((_, Outcome::Valid)) | None => Ok(()),
        Some((_, Outcome::Void(why))) => Err(StoreError::Refused(why)),
    }
}

/// Gives up jobs. Their writers find that when they next add an entry.
pub fn abandon(log: &mut Log<'_>, is_old: impl Fn(u64, &super::state::Job) -> bool) -> Result<Vec<u64>> {
    log.catch_up()?;
    let old = log.state.jobs.iter().filter(|(number, job)| is_old(**number, job));
    let old: Vec<u64> = old.map(|(number, _)| *number).collect();
    let mut ended = Vec::new();
    for job in old {
        if log.add(|state| Ok(state.jobs.contains_key(&job).then_some(Say::Abandon { job })))?.is_some() {
            ended.push(job);
        }
    }
    Ok(ended)
}

/// What cleaning did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub segments: u64,
    /// Segments that stay.
    pub kept: u64,
}

/// The segments that points of the state, and bases of open jobs, need (SO4, SO5).
pub fn needed(log: &Log<'_>) -> Result<BTreeSet<u64>> {
    let segments = Segments::new(log.objects, log.seal.clone(), log.state.store);
    let mut needed = BTreeSet::new();
    for (_, point) in log.state.needed() {
        needed.extend(segments.table(point.table.at)?.uses.into_keys());
    }
    Ok(needed)
}

/// Numbers of jobs that ended, and that nothing needs.
fn dead(state: &State, needed: &BTreeSet<u64>) -> Vec<(Kind, u64)> {
    let mut ended: Vec<Numbers> = state.ended.clone();
    if planted::is("store_open_jobs_cleaned") {
        ended.extend(state.jobs.values().flat_map(|job| job.numbers()));
    }
    ended.iter().flat_map(Numbers::all).filter(|(_, number)| !needed.contains(number)).collect()
}

/// Deletes what nothing needs. What is dead stays dead, so this may end anywhere and be done by several at once (SO5).
pub fn clean(log: &mut Log<'_>, is_dry: bool, tell: &mut dyn FnMut(u64, u64)) -> Result<Cleaned> {
    log.catch_up()?;
    let needed = needed(log)?;
    let dead = dead(&log.state, &needed);
    let total = dead.len() as u64;
    let cleaned = Cleaned { segments: total, kept: needed.len() as u64 };
    if is_dry || dead.is_empty() {
        return Ok(cleaned);
    }
    for (done, (kind, number)) in (1..).zip(&dead) {
        objects::delete(log.objects, &kind.name(*number))?;
        tell(done, total);
    }
    let numbers = ranges_of(dead);
    log.add(|_| Ok(Some(Say::Cleaned { numbers: numbers.clone() })))?;
    Ok(cleaned)
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub entries: u64,
    pub points: u64,
    pub segments: u64,
    pub pages: u64,
    pub blocks: u64,
    /// Points that cannot be read as a whole, by the number of their Commit, with the reasons.
    pub damaged: BTreeMap<u64, Vec<String>>,
    /// What else is wrong.
    pub faults: Vec<String>,
    /// Segments that nothing needs, and that no open job has: `gc` deletes them.
    pub unused: Vec<(Kind, u64)>,
}

/// Reads the whole log, all maps and all indexes; with `data` all data, too.
pub fn check(log: &Log<'_>, data: bool, tell: &mut dyn FnMut(u64, u64)) -> Result<Checked> {
    let mut checked = Checked { entries: log.state.next_entry - 1, ..Checked::default() };
    if let Err(error) = whole_log(log) {
        checked.faults.push(error.to_string());
    }
    let segments = Segments::new(log.objects, log.seal.clone(), log.state.store);
    let mut pages: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut used: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (number, point) in &log.state.points {
        checked.points += 1;
        let faults = match segments.table(point.table.at) {
            Ok(contents) => map_of(&segments, &contents, point.table.at, &mut pages, &mut checked.pages),
            Err(error) => Err(vec![error.to_string()]),
        };
        match faults {
            Ok(uses) => uses.keys().for_each(|segment| {
                used.entry(*segment).or_default().insert(*number);
            }),
            Err(faults) => checked.damaged.entry(*number).or_default().extend(faults),
        }
    }
    let listed = listed(log, &mut checked.faults)?;
    let total = used.len() as u64;
    for (done, (segment, points)) in (1..).zip(&used) {
        if let Err(error) = segment_of(log, &segments, (*segment, &listed), data, &mut checked.blocks) {
            for point in points {
                checked.damaged.entry(*point).or_default().push(error.to_string());
            }
        }
        tell(done, total);
    }
    checked.segments = listed.len() as u64;
    // What a table names is not litter, also where its map is damaged.
    let tables = log.state.needed().filter_map(|(_, point)| segments.table(point.table.at).ok());
    let kept: BTreeSet<u64> = tables.flat_map(|contents| contents.uses.into_keys()).collect();
    checked.unused = unused(&log.state, &listed, &kept);
    Ok(checked)
}

/// Segments that are there, of jobs that ended, and that nothing needs.
fn unused(state: &State, listed: &BTreeMap<u64, (Kind, u64)>, needed: &BTreeSet<u64>) -> Vec<(Kind, u64)> {
    let open = state.jobs.values().flat_map(|job| job.numbers()).flat_map(Numbers::all);
    let open: BTreeSet<u64> = open.map(|(_, number)| number).collect();
    let is_unused = |number: &u64| !needed.contains(number) && !open.contains(number) && *number < state.next_number;
    listed.iter().filter(|(number, _)| is_unused(number)).map(|(number, (kind, _))| (*kind, *number)).collect()
}

/// Deletes segments that landed after their job was cleaned away: the only ones that a list of names finds.
pub fn sweep(log: &Log<'_>) -> Result<u64> {
    let unused = unused(&log.state, &listed(log, &mut Vec::new())?, &needed(log)?);
    unused.iter().try_for_each(|(kind, number)| objects::delete(log.objects, &kind.name(*number)))?;
    Ok(unused.len() as u64)
}

fn whole_log(log: &Log<'_>) -> Result<()> {
    let mut state = State::new(log.state.store);
    while state.next_entry < log.state.next_entry {
        let number = state.next_entry;
        let name = super::entry::entry_name(number);
        let bytes = objects::must_get(log.objects, &name, None)?;
        let entry = super::entry::Entry::decode(&log.seal, number, &bytes)?;
        state.apply(&entry, super::entry::hash_of(&bytes))?;
    }
    if state != log.state {
        return Err(StoreError::Broken("a kept state is not what its log says".into()));
    }
    Ok(())
}

fn listed(log: &Log<'_>, faults: &mut Vec<String>) -> Result<BTreeMap<u64, (Kind, u64)>> {
    let mut all = BTreeMap::new();
    for kind in [Kind::Data, Kind::Map] {
        for (name, len) in objects::list(log.objects, kind.prefix())? {
            let number = name.strip_prefix(kind.prefix()).and_then(|digits| u64::from_str_radix(digits, 16).ok());
            match number.filter(|number| kind.name(*number) == name) {
                Some(number) => {
                    all.insert(number, (kind, len));
                }
                None => faults.push(format!("{name} is not an object of rowen")),
            }
        }
    }
    Ok(all)
}

/// The segments that a map uses, if they are as many as its table says.
fn map_of(
    segments: &Segments<'_>,
    contents: &Contents,
    table: u64,
    pages: &mut BTreeMap<u64, BTreeMap<u64, u64>>,
    read: &mut u64,
) -> std::result::Result<BTreeMap<u64, u64>, Vec<String>> {
    let mut faults = Vec::new();
    let mut uses = match contents.root {
        0 => BTreeMap::new(),
        root => below(segments, (contents.height - 1, root), (pages, read), &mut faults),
    };
    *uses.entry(table / SEGMENT_BLOCKS).or_default() += 1;
    if faults.is_empty() && uses != contents.uses {
        faults.push("its table does not say what its map uses".into());
    }
    if faults.is_empty() { Ok(uses) } else { Err(faults) }
}

/// What a page and all below it use. Pages that several maps share are read once.
fn below(
    segments: &Segments<'_>,
    (level, address): (u8, u64),
    (pages, read): (&mut BTreeMap<u64, BTreeMap<u64, u64>>, &mut u64),
    faults: &mut Vec<String>,
) -> BTreeMap<u64, u64> {
    // Leaves are many: what they use is not kept.
    if let Some(known) = pages.get(&address).filter(|_| level > 0) {
        return known.clone();
    }
    *read += 1;
    let mut uses = BTreeMap::from([(address / SEGMENT_BLOCKS, 1)]);
    let slots = match segments.page(level, address) {
        Ok(slots) => slots,
        Err(error) => {
            faults.push(error.to_string());
            page::empty()
        }
    };
    for child in slots.iter().filter(|child| **child != 0) {
        if level == 0 {
            *uses.entry(child / SEGMENT_BLOCKS).or_default() += 1;
            continue;
        }
        for (number, count) in below(segments, (level - 1, *child), (&mut *pages, &mut *read), faults) {
            *uses.entry(number).or_default() += count;
        }
    }
    if level > 0 && faults.is_empty() {
        pages.insert(address, uses.clone());
    }
    uses
}

/// One segment: it is there, as long as its index says, and with `data` every frame of it is as it was written.
fn segment_of(
    log: &Log<'_>,
    segments: &Segments<'_>,
    (number, listed): (u64, &BTreeMap<u64, (Kind, u64)>),
    data: bool,
    blocks: &mut u64,
) -> Result<()> {
    let (kind, len) = *listed.get(&number).ok_or(StoreError::Missing { name: Kind::Data.name(number) })?;
    let name = kind.name(number);
    let index = match kind {
        Kind::Data => segments.index(number)?.ok_or_else(|| StoreError::Missing { name: name.clone() })?,
        Kind::Map => {
            let bytes = objects::must_get(log.objects, &name, None)?;
            Index::decode(&log.seal, log.state.store, (kind, number), &bytes)?.into()
        }
    };
    if index.len != len {
        return Err(StoreError::Damaged { name, what: "it has another length than its index says" });
    }
    if data && kind == Kind::Data {
        let frames: Vec<usize> = (0..index.frames()).collect();
        for some in frames.chunks(64) {
            *blocks += segments.frames(number, some)?.values().map(|raw| raw.len() as u64 / crate::BLOCK).sum::<u64>();
        }
    }
    Ok(())
}
