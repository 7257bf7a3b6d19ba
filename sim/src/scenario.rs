//! Scenarios: short programs over a volume group, written by hand, enumerated, or random.
//!
//! A [`Step`] names volumes by their place in the scenario (see [`Runner`]), so that any sequence of steps makes
//! sense: a step whose volume is not there does nothing.

use crate::client::{BLOCK, Client, Failure, Op, SnapshotKind, VolumeSpec};
use crate::oracle::{Life, Vol};
use crate::rng::Rng;
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, VolumeKind};
use std::collections::{BTreeMap, BTreeSet};

/// Which volume: `A` and `B` are the first and second that were made, `Snap(n)` the n-th newest snapshot that
/// still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    A,
    B,
    Snap(usize),
}

/// One step of a scenario. Places and lengths are in sectors of 512 bytes.
#[derive(Clone, Debug)]
pub enum Step {
    Write(Who, u64, u64),
    Discard(Who, u64, u64),
    Zero(Who, u64, u64),
    Flush(Who),
    Snapshot(Who, SnapshotKind),
    /// One atomic snapshot of all that are named.
    Group(Vec<Who>),
    /// Target, source, whether the source goes with it.
    Revert(Who, Who, bool),
    Remove(Vec<Who>),
    /// New size in blocks.
    Resize(Who, u64),
    Rename(Who),
    Create(VolumeSpec),
    Checkpoint,
    /// Waits until background removal is done.
    Reclaim,
    /// Waits until nothing is brought together or filled.
    Rehome,
    /// All at once, in tasks of their own. Not creation, reverts, resizes, renames; nothing may touch what is removed.
    Together(Vec<Step>),
    /// Reads everything back, with nothing under way.
    Verify,
}

/// Does steps, and knows which volumes the scenario's names stand for.
pub struct Runner {
    client: Client,
    made: Vec<Vol>,
    snapshots: Vec<Vol>,
    origins: BTreeMap<Vol, Vol>,
    /// Blocks whose next write is certainly redirected: never written, or not since a snapshot.
    redirects: BTreeMap<Vol, BTreeSet<u64>>,
    renames: u32,
}

impl Runner {
    pub fn new(client: Client) -> Runner {
        Runner {
            client,
            made: Vec::new(),
            snapshots: Vec::new(),
            origins: BTreeMap::new(),
            redirects: BTreeMap::new(),
            renames: 0,
        }
    }

    /// Does all steps. Refusals for lack of space are part of life, and so is a snapshot that outgrew its reserve;
    /// anything else ends the scenario.
    pub async fn run(&mut self, steps: &[Step]) -> Result<(), Failure> {
        let trace = std::env::var_os("ROWEN_TRACE").is_some();
        for step in steps {
            let outcome = self.step(step).await;
            if trace {
                eprintln!("{step:?}: {outcome:?}");
            }
            match outcome {
                Ok(()) | Err(Failure::Refused(Error::NoSpace { .. })) => {}
                // A snapshot gave way: only one that may is forgiven.
                Err(Failure::Refused(Error::InvalidSnapshot)) => drop(self.client.note_invalid()?),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn find(&self, who: Who) -> Option<Vol> {
        let vol = match who {
            Who::A => self.made.first().copied(),
            Who::B => self.made.get(1).copied(),
            Who::Snap(n) => self.snapshots.iter().rev().nth(n).copied(),
        }?;
        self.client.oracle.lock().readable().contains(&vol).then_some(vol)
    }

    fn find_all(&self, who: &[Who]) -> Vec<Vol> {
        let mut vols: Vec<Vol> = who.iter().filter_map(|&who| self.find(who)).collect();
        vols.sort_unstable();
        vols.dedup();
        vols
    }

    /// The volume and the range cut to its size. None: there is nothing to do.
    fn range(&self, who: Who, sector: u64, count: u64) -> Option<(Vol, u64, u64)> {
        let vol = self.find(who)?;
        let sectors = self.client.oracle.lock().volumes[&vol].sectors();
        let count = count.min(sectors.saturating_sub(sector));
        (count > 0).then_some((vol, sector, count))
    }

    fn writable(&self, vol: Vol) -> bool {
        !self.client.oracle.lock().volumes[&vol].read_only
    }

    async fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Write(who, sector, count) => {
                let Some((vol, sector, count)) = self.range(*who, *sector, *count) else { return Ok(()) };
                if self.writable(vol) {
                    let atomic = self.redirected(vol, sector, count);
                    self.client.write(vol, sector, count, &atomic).await?;
                }
            }
            Step::Discard(who, sector, count) | Step::Zero(who, sector, count) => {
                let Some((vol, sector, count)) = self.range(*who, *sector, *count) else { return Ok(()) };
                if self.writable(vol) {
                    self.redirects.entry(vol).or_default().clear();
                    self.client.zero(vol, sector, count, matches!(step, Step::Zero(..))).await?;
                }
            }
            Step::Flush(who) => {
                if let Some(vol) = self.find(*who) {
                    self.client.flush(vol).await?;
                }
            }
            Step::Snapshot(who, kind) => {
                let origins = self.find_all(&[*who]);
                self.snapshot(&origins, *kind).await?;
            }
            Step::Group(who) => {
                let origins = self.find_all(who);
                self.snapshot(&origins, SnapshotKind::default()).await?;
            }
            Step::Revert(target, source, consume) => self.revert(*target, *source, *consume).await?,
            Step::Remove(who) => self.remove(who).await?,
            Step::Resize(who, blocks) => {
                if let Some(vol) = self.find(*who) {
                    self.redirects.remove(&vol);
                    self.client.resize(vol, *blocks).await?;
                }
            }
            Step::Rename(who) => {
                if let Some(vol) = self.find(*who) {
                    self.renames += 1;
                    self.client.rename(vol, &format!("renamed{}", self.renames)).await?;
                }
            }
            Step::Create(spec) => {
                let vol = self.client.create(*spec).await?;
                self.made.push(vol);
                self.redirects.insert(vol, (0..spec.blocks).collect());
            }
            Step::Checkpoint => self.client.checkpoint().await?,
            Step::Reclaim => self.client.group.reclaim_idle().await?,
            Step::Rehome => {
                self.client.group.rehome_idle().await?;
                // What was filled is written in place.
                self.redirects.clear();
            }
            Step::Together(steps) => self.together(steps).await?,
            Step::Verify => self.verify().await?,
        }
        Ok(())
    }

    /// Ranges of a write that are certainly redirected, block by block; they are not any more after it.
    fn redirected(&mut self, vol: Vol, sector: u64, count: u64) -> Vec<(u64, u64)> {
        let Some(blocks) = self.redirects.get_mut(&vol) else { return Vec::new() };
        let (first, last) = (sector / BLOCK, (sector + count - 1) / BLOCK);
        (first..=last)
            .filter(|block| blocks.remove(block))
            .map(|block| {
                let (from, to) = (sector.max(block * BLOCK), (sector + count).min((block + 1) * BLOCK));
                (from, to - from)
            })
            .collect()
    }

    async fn snapshot(&mut self, origins: &[Vol], kind: SnapshotKind) -> Result<(), Failure> {
        if origins.is_empty() {
            return Ok(());
        }
        let vols = self.client.snapshot(origins, kind).await?;
        for (&origin, &vol) in origins.iter().zip(&vols) {
            self.origins.insert(vol, origin);
            let blocks = self.client.oracle.lock().volumes[&origin].sectors() / BLOCK;
            self.redirects.insert(origin, (0..blocks).collect());
            self.redirects.insert(vol, (0..blocks).collect());
        }
        self.snapshots.extend(vols);
        Ok(())
    }

    async fn revert(&mut self, target: Who, source: Who, consume: bool) -> Result<(), Failure> {
        let (Some(target), Some(source)) = (self.find(target), self.find(source)) else { return Ok(()) };
        if self.origins.get(&source) != Some(&target) {
            return Ok(());
        }
        self.redirects.remove(&target);
        self.redirects.remove(&source);
        self.client.revert(target, source, consume).await?;
        if consume {
            self.snapshots.retain(|&vol| vol != source);
        }
        Ok(())
    }

    async fn remove(&mut self, who: &[Who]) -> Result<(), Failure> {
        let vols = self.find_all(who);
        if vols.is_empty() {
            return Ok(());
        }
        self.client.remove(&vols).await?;
        self.snapshots.retain(|vol| !vols.contains(vol));
        // Whether the neighbours' blocks are theirs alone again is the engine's business.
        self.redirects.clear();
        Ok(())
    }

    async fn together(&mut self, steps: &[Step]) -> Result<(), Failure> {
        let mut ops: Vec<Op> = Vec::new();
        for step in steps {
            let client = self.client.clone();
            match step {
                Step::Write(who, sector, count) => {
                    let Some((vol, sector, count)) = self.range(*who, *sector, *count) else { continue };
                    if self.writable(vol) {
                        ops.push(Box::pin(async move { client.write(vol, sector, count, &[]).await }));
                    }
                }
                Step::Discard(who, sector, count) | Step::Zero(who, sector, count) => {
                    let Some((vol, sector, count)) = self.range(*who, *sector, *count) else { continue };
                    let zero = matches!(step, Step::Zero(..));
                    if self.writable(vol) {
                        ops.push(Box::pin(async move { client.zero(vol, sector, count, zero).await }));
                    }
                }
                Step::Flush(who) => {
                    let Some(vol) = self.find(*who) else { continue };
                    ops.push(Box::pin(async move { client.flush(vol).await }));
                }
                Step::Checkpoint => ops.push(Box::pin(async move { client.checkpoint().await })),
                Step::Snapshot(who, kind) => {
                    let (origins, kind) = (self.find_all(&[*who]), *kind);
                    if origins.is_empty() {
                        continue;
                    }
                    ops.push(Box::pin(async move { client.snapshot(&origins, kind).await.map(drop) }));
                }
                Step::Remove(who) => {
                    let vols = self.find_all(who);
                    if vols.is_empty() {
                        continue;
                    }
                    ops.push(Box::pin(async move { client.remove(&vols).await }));
                }
                Step::Reclaim => ops.push(Box::pin(async move { client.group.reclaim_idle().await })),
                Step::Rehome => ops.push(Box::pin(async move { client.group.rehome_idle().await })),
                Step::Group(who) => {
                    let origins = self.find_all(who);
                    let kind = SnapshotKind::default();
                    if origins.is_empty() {
                        continue;
                    }
                    ops.push(Box::pin(async move { client.snapshot(&origins, kind).await.map(drop) }));
                }
                _ => return Err(Failure::Wrong(format!("{step:?} cannot be done together with others"))),
            }
        }
        self.redirects.clear();
        for result in self.client.together(ops).await {
            match result {
                Ok(()) | Err(Error::NoSpace { .. } | Error::InvalidSnapshot) => {}
                Err(e) => return Err(Failure::Refused(e)),
            }
        }
        self.adopt();
        Ok(())
    }

    /// Takes snapshots that tasks made into the scenario.
    fn adopt(&mut self) {
        let oracle = self.client.oracle.lock();
        for vol in oracle.readable() {
            if !self.made.contains(&vol) && !self.snapshots.contains(&vol) {
                self.snapshots.push(vol);
            }
        }
        self.snapshots.sort_unstable();
        self.snapshots.retain(|vol| oracle.volumes[vol].life == Life::Here);
    }

    async fn verify(&mut self) -> Result<(), Failure> {
        self.client.note_invalid()?;
        let vols = self.client.oracle.lock().readable();
        for vol in vols {
            self.client.verify_all(vol).await?;
        }
        Ok(())
    }
}

fn thick(blocks: u64) -> Step {
    let spec = VolumeSpec { kind: VolumeKind::Thick, blocks, chunk_blocks: 1, full: FullPolicy::DropSnapshot };
    Step::Create(spec)
}

fn thin(blocks: u64, chunk_blocks: u32) -> Step {
    Step::Create(VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks, full: FullPolicy::Fail })
}

fn snap(who: Who) -> Step {
    Step::Snapshot(who, SnapshotKind::default())
}

fn frozen(who: Who) -> Step {
    Step::Snapshot(who, SnapshotKind { read_only: true, ..SnapshotKind::default() })
}

/// The scenarios written by hand: each one's name and steps.
pub fn scripted() -> Vec<(&'static str, Vec<Step>)> {
    use Step::*;
    use Who::*;
    let fill = |who, sectors: u64| -> Vec<Step> { (0..sectors / 64).map(|at| Write(who, at * 64, 64)).collect() };
    let mut all: Vec<(&'static str, Vec<Step>)> = Vec::new();
    all.push((
        "first-writes",
        vec![
            thick(256),
            Write(A, 0, 8),
            Write(A, 8, 1),
            Write(A, 11, 3),
            Flush(A),
            Write(A, 0, 16),
            Write(A, 100, 30),
            Flush(A),
            Write(A, 8, 1),
            Write(A, 2040, 8),
            Flush(A),
            Verify,
        ],
    ));
    all.push((
        "thin-partial",
        vec![
            thin(256, 1),
            Write(A, 3, 1),
            Write(A, 5, 2),
            Write(A, 4, 1),
            Flush(A),
            Write(A, 30, 20),
            Flush(A),
            Write(A, 31, 1),
            Discard(A, 32, 8),
            Flush(A),
            Write(A, 35, 2),
            Flush(A),
            Verify,
        ],
    ));
    let mut steps = vec![thick(256)];
    steps.extend(fill(A, 512));
    steps.extend([
        Flush(A),
        snap(A),
        Write(A, 0, 8),
        Write(A, 9, 1),
        Write(A, 128, 64),
        Flush(A),
        snap(A),
        Write(A, 0, 24),
        Flush(A),
        Write(A, 4, 2),
        Remove(vec![Snap(0)]),
        Write(A, 0, 8),
        Flush(A),
        Remove(vec![Snap(0)]),
        Reclaim,
        Write(A, 512, 64),
        Flush(A),
        Verify,
    ]);
    all.push(("snapshots", steps));
    all.push((
        "snapshot-of-snapshot",
        vec![
            thin(256, 4),
            Write(A, 0, 64),
            Flush(A),
            snap(A),
            Write(Snap(0), 0, 8),
            snap(Snap(0)),
            Write(Snap(1), 8, 8),
            Write(A, 16, 8),
            Flush(Snap(1)),
            Remove(vec![A]),
            Reclaim,
            Write(Snap(0), 24, 8),
            Flush(Snap(0)),
            Remove(vec![Snap(1)]),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "group-snapshot",
        vec![
            thick(128),
            thin(128, 1),
            Write(A, 0, 32),
            Write(B, 0, 32),
            Flush(A),
            Flush(B),
            Group(vec![A, B]),
            Write(A, 0, 8),
            Write(B, 8, 8),
            Flush(A),
            Group(vec![A, B, Snap(0)]),
            Write(B, 0, 16),
            Flush(B),
            Remove(vec![Snap(0), Snap(1)]),
            Verify,
        ],
    ));
    all.push((
        "revert",
        vec![
            thick(128),
            Write(A, 0, 64),
            Flush(A),
            frozen(A),
            Write(A, 0, 32),
            Flush(A),
            snap(A),
            Write(A, 8, 8),
            Revert(A, Snap(1), false),
            Write(A, 16, 8),
            Flush(A),
            Revert(A, Snap(0), true),
            Write(A, 0, 8),
            Flush(A),
            Verify,
            Reclaim,
            Revert(A, Snap(0), true),
            Reclaim,
            Write(A, 24, 8),
            Flush(A),
            Verify,
        ],
    ));
    all.push((
        "discard",
        vec![
            thick(256),
            Write(A, 0, 128),
            Flush(A),
            Discard(A, 0, 64),
            Write(A, 8, 8),
            Flush(A),
            Zero(A, 70, 20),
            Flush(A),
            snap(A),
            Discard(A, 0, 128),
            Flush(A),
            Write(A, 0, 16),
            Zero(A, 4, 8),
            Flush(A),
            Remove(vec![Snap(0)]),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "resize",
        vec![
            thick(256),
            thin(128, 1),
            Write(A, 1024, 64),
            Write(B, 512, 64),
            Flush(A),
            snap(A),
            Resize(A, 512),
            Write(A, 4000, 64),
            Flush(A),
            Resize(A, 128),
            Resize(A, 256),
            Write(A, 1040, 8),
            Flush(A),
            Resize(B, 64),
            Resize(B, 256),
            Verify,
        ],
    ));
    all.push((
        "checkpoints",
        vec![
            thick(256),
            Write(A, 0, 64),
            Checkpoint,
            Write(A, 0, 8),
            snap(A),
            Write(A, 0, 8),
            Checkpoint,
            Write(A, 0, 8),
            Write(A, 64, 8),
            Checkpoint,
            Write(A, 1, 1),
            Flush(A),
            Remove(vec![Snap(0)]),
            Checkpoint,
            Reclaim,
            Checkpoint,
            Write(A, 72, 8),
            Verify,
        ],
    ));
    all.push((
        "rename-remove",
        vec![
            thick(128),
            Rename(A),
            thin(128, 1),
            Write(A, 0, 16),
            snap(A),
            Rename(Snap(0)),
            Flush(A),
            Remove(vec![A, B]),
            Rename(Snap(0)),
            thin(128, 1),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "queue-depth",
        vec![
            thick(256),
            Together((0..16).map(|at| Write(A, at * 8, 8)).collect()),
            Together(vec![Write(A, 0, 16), Write(A, 8, 16), Write(A, 4, 8), Flush(A), Write(A, 1, 1), Write(A, 2, 1)]),
            Verify,
            snap(A),
            Together((0..12).map(|at| Write(A, at * 5, 9)).collect()),
            Flush(A),
            Verify,
            Together(vec![
                Write(A, 0, 64),
                Discard(A, 16, 32),
                Write(A, 20, 8),
                Flush(A),
                snap(A),
                Checkpoint,
                Write(A, 16, 8),
            ]),
            Verify,
            Flush(A),
        ],
    ));
    all.push((
        "marker-trap",
        vec![
            // A block redirected, then written in place at once, before any flush: the record's checksum no longer fits.
            thin(128, 1),
            Write(A, 0, 8),
            Write(A, 0, 8),
            Write(A, 2, 1),
            Flush(A),
            snap(A),
            Write(A, 0, 8),
            Write(A, 0, 8),
            Write(A, 3, 2),
            Write(A, 8, 8),
            Write(A, 0, 8),
            Flush(A),
            Write(A, 0, 8),
            Write(A, 16, 8),
            Flush(A),
            Verify,
        ],
    ));
    all.push((
        "remove-race",
        vec![
            // While a volume is being removed its blocks become its snapshot's own, and are written at once.
            thin(128, 1),
            Write(A, 0, 32),
            snap(A),
            Write(A, 32, 8),
            Together(vec![
                Remove(vec![A]),
                Write(Snap(0), 0, 8),
                Write(Snap(0), 0, 8),
                Write(Snap(0), 8, 8),
                Reclaim,
                Write(Snap(0), 17, 2),
            ]),
            Write(Snap(0), 0, 16),
            Flush(Snap(0)),
            snap(Snap(0)),
            Write(Snap(1), 0, 8),
            Together(vec![Remove(vec![Snap(0)]), Write(Snap(1), 0, 24), Write(Snap(1), 4, 8), Reclaim, Checkpoint]),
            Write(Snap(0), 0, 8),
            Write(Snap(0), 3, 2),
            Flush(Snap(0)),
            Verify,
        ],
    ));
    all.push((
        "reserve",
        vec![
            thick(256),
            Write(A, 0, 512),
            Flush(A),
            Step::Snapshot(A, SnapshotKind { read_only: true, reserve: Some(16), chunk_blocks: 1 }),
            Write(A, 0, 64),
            Flush(A),
            Write(A, 64, 64),
            Flush(A),
            Write(A, 128, 64),
            Flush(A),
            Verify,
            Remove(vec![Snap(0)]),
            Reclaim,
        ],
    ));
    all.push((
        "orphans",
        vec![
            // What both children of a point have written over, one of them, or none; and what came of it.
            thin(256, 1),
            Write(A, 0, 512),
            Flush(A),
            snap(A),
            Write(A, 0, 256),
            Write(Snap(0), 128, 256),
            Flush(A),
            Checkpoint,
            Reclaim,
            Checkpoint,
            Write(A, 512, 256),
            snap(Snap(0)),
            Write(Snap(0), 0, 200),
            Write(Snap(1), 64, 200),
            Write(A, 300, 100),
            Checkpoint,
            Reclaim,
            Write(A, 900, 128),
            Flush(A),
            Remove(vec![Snap(0)]),
            Checkpoint,
            Reclaim,
            Verify,
            Remove(vec![A]),
            Reclaim,
            Verify,
        ],
    ));
    all.push((
        "reuse-large",
        vec![
            // Whole arenas go round: given back by one discard, taken again by the next write.
            thin(1536, 1),
            Write(A, 0, 2048),
            Write(A, 2048, 2048),
            Write(A, 4096, 2048),
            Write(A, 6144, 2048),
            Flush(A),
            Discard(A, 0, 8192),
            Write(A, 8192, 2048),
            Write(A, 10240, 2048),
            Flush(A),
            Discard(A, 8192, 4096),
            Write(A, 0, 2048),
            Flush(A),
            Verify,
        ],
    ));
    all.push(("reuse", {
        // Space that goes round: freed blocks must not come back before what freed them is durable.
        let mut steps = vec![thin(256, 1), Write(A, 0, 256), Flush(A)];
        for round in 0..6 {
            steps.extend([
                snap(A),
                Write(A, round * 8, 64),
                Flush(A),
                Discard(A, 128, 64),
                Remove(vec![Snap(0)]),
                Write(A, 128, 32),
                Reclaim,
                Write(A, 512 + round * 16, 16),
            ]);
        }
        steps.extend([Flush(A), Verify]);
        steps
    }));
    all
}

/// The alphabet of the enumerated scenarios.
pub fn alphabet() -> Vec<Step> {
    use Step::*;
    use Who::*;
    vec![
        Write(A, 0, 8),
        Write(A, 2, 3),
        Write(A, 4, 40),
        Write(Snap(0), 0, 8),
        Write(B, 0, 8),
        Discard(A, 0, 16),
        Zero(A, 4, 8),
        Flush(A),
        snap(A),
        Group(vec![A, B]),
        Remove(vec![Snap(0)]),
        Remove(vec![A]),
        Revert(A, Snap(0), false),
        Revert(A, Snap(0), true),
        Resize(A, 96),
        Resize(A, 160),
        Checkpoint,
        Together(vec![Write(A, 0, 8), Write(A, 4, 8), Flush(A), Write(A, 16, 1)]),
    ]
}

/// What the enumerated scenarios start from: two volumes with flushed contents and a snapshot.
pub fn prelude() -> Vec<Step> {
    use Who::*;
    vec![
        thick(128),
        thin(128, 1),
        Step::Write(A, 0, 32),
        Step::Write(B, 0, 8),
        snap(A),
        Step::Write(A, 8, 8),
        Step::Flush(A),
        Step::Flush(B),
    ]
}

/// A random scenario.
pub fn random(rng: &mut Rng, length: usize) -> Vec<Step> {
    let mut steps = vec![thick(128 + rng.below(3) * 64), thin(192, 1 << rng.below(4))];
    for _ in 0..length {
        steps.push(random_step(rng));
    }
    steps.push(Step::Verify);
    steps
}

fn random_who(rng: &mut Rng) -> Who {
    *rng.pick(&[Who::A, Who::A, Who::A, Who::B, Who::B, Who::Snap(0), Who::Snap(1)])
}

fn random_range(rng: &mut Rng) -> (u64, u64) {
    let hot = rng.one_in(2);
    let sector = rng.below(if hot { 64 } else { 1536 });
    match rng.below(4) {
        0 => (sector, rng.range(1, 7)),
        1 => (sector, rng.range(1, 80)),
        2 => (sector / 8 * 8, 8),
        _ => (sector / 8 * 8, 8 * rng.range(1, 32)),
    }
}

fn random_write(rng: &mut Rng) -> Step {
    let (sector, count) = random_range(rng);
    Step::Write(random_who(rng), sector, count)
}

fn random_step(rng: &mut Rng) -> Step {
    let who = random_who(rng);
    let (sector, count) = random_range(rng);
    match rng.below(40) {
        0..=15 => Step::Write(who, sector, count),
        16..=17 => Step::Discard(who, sector, count),
        18 => Step::Zero(who, sector, count),
        19..=24 => Step::Flush(who),
        25..=27 => Step::Snapshot(
            who,
            SnapshotKind {
                read_only: rng.one_in(3),
                reserve: rng.one_in(6).then_some(24),
                chunk_blocks: 1 << rng.below(4),
            },
        ),
        28 => Step::Group(vec![Who::A, Who::B, Who::Snap(0)]),
        29..=30 => Step::Remove(vec![Who::Snap(rng.below(3) as usize)]),
        31 => Step::Revert(who, Who::Snap(rng.below(3) as usize), rng.one_in(2)),
        32 => Step::Resize(who, 64 * rng.range(1, 4)),
        33 => Step::Checkpoint,
        34 => Step::Reclaim,
        35 => Step::Rename(who),
        36 if rng.one_in(3) => Step::Remove(vec![who, random_who(rng)]),
        36 => Step::Verify,
        _ => {
            let mut steps: Vec<Step> = (0..rng.range(2, 8)).map(|_| random_write(rng)).collect();
            steps.push(Step::Flush(who));
            if rng.one_in(3) {
                steps.push(if rng.one_in(2) { snap(who) } else { Step::Checkpoint });
            }
            for at in (1..steps.len()).rev() {
                steps.swap(at, rng.below(at as u64 + 1) as usize);
            }
            Step::Together(steps)
        }
    }
}
