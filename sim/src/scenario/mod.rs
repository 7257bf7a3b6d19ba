//! Scenarios: short programs over a volume group, written by hand, enumerated, or random.
//!
//! A [`Step`] names volumes by their place in the scenario (see [`Runner`]), so that any sequence of steps makes sense.
//! A step whose volume does not exist does nothing.

mod drawn;
mod scripted;

pub use drawn::{alphabet, prelude, random};
pub use scripted::scripted;

use crate::client::{BLOCK, Client, Failure, Op, SnapshotKind, VolumeSpec};
use crate::oracle::{Life, Vol};
use rowen_engine::error::Error;
use std::collections::{BTreeMap, BTreeSet};

/// A volume of the scenario. `A` and `B` are the first and second that were made, `Snap(n)` is the n-th newest snapshot
/// that still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    A,
    B,
    Snap(usize),
}

/// One step of a scenario. Places and lengths are in sectors of 512 bytes.
#[derive(Clone, Debug)]
pub enum Step {
    Write(Target, u64, u64),
    Discard(Target, u64, u64),
    Zero(Target, u64, u64),
    Flush(Target),
    Snapshot(Target, SnapshotKind),
    /// One atomic snapshot of all these volumes.
    Group(Vec<Target>),
    /// The target, the source, whether the source goes with it.
    Revert(Target, Target, bool),
    Remove(Vec<Target>),
    /// New size in blocks.
    Resize(Target, u64),
    Rename(Target),
    Create(VolumeSpec),
    Checkpoint,
    /// Waits until background removal is done.
    Reclaim,
    /// Waits until re-homing and filling are idle.
    Rehome,
    /// All at once, in tasks of their own. No creation, revert, resize or rename may be among them, and no step may use
    /// a volume that another removes.
    Together(Vec<Step>),
    /// Reads everything back, with nothing in flight.
    Verify,
}

/// Runs steps, and knows which volumes the scenario's names stand for.
pub struct Runner {
    client: Client,
    made: Vec<Vol>,
    snapshots: Vec<Vol>,
    origins: BTreeMap<Vol, Vol>,
    /// Blocks whose next write is certainly redirected: never written, or not written since a snapshot.
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

    /// Runs all steps. Refusals for lack of space are allowed, and so is a snapshot that outgrew its reserve. Any other
    /// error ends the scenario.
    pub async fn run(&mut self, steps: &[Step]) -> Result<(), Failure> {
        let trace = std::env::var_os("ROWEN_TRACE").is_some();
        for step in steps {
            let outcome = self.step(step).await;
            if trace {
                eprintln!("{step:?}: {outcome:?}");
            }
            match outcome {
                Ok(()) | Err(Failure::Refused(Error::NoSpace { .. })) => {}
                // A snapshot was dropped. Only one that may be dropped is accepted.
                Err(Failure::Refused(Error::InvalidSnapshot)) => drop(self.client.note_invalid()?),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn find(&self, who: Target) -> Option<Vol> {
        let vol = match who {
            Target::A => self.made.first().copied(),
            Target::B => self.made.get(1).copied(),
            Target::Snap(n) => self.snapshots.iter().rev().nth(n).copied(),
        }?;
        self.client.oracle.lock().readable().contains(&vol).then_some(vol)
    }

    fn find_all(&self, who: &[Target]) -> Vec<Vol> {
        let mut vols: Vec<Vol> = who.iter().filter_map(|&who| self.find(who)).collect();
        vols.sort_unstable();
        vols.dedup();
        vols
    }

    /// The volume and the range cut to its size. None: there is nothing to do.
    fn range(&self, who: Target, sector: u64, count: u64) -> Option<(Vol, u64, u64)> {
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
                // Filled blocks are written in place.
                self.redirects.clear();
            }
            Step::Together(steps) => self.together(steps).await?,
            Step::Verify => self.verify().await?,
        }
        Ok(())
    }

    /// The ranges of a write that are certainly redirected, block by block. After it they are not any more.
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

    async fn revert(&mut self, target: Target, source: Target, consume: bool) -> Result<(), Failure> {
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

    async fn remove(&mut self, who: &[Target]) -> Result<(), Failure> {
        let vols = self.find_all(who);
        if vols.is_empty() {
            return Ok(());
        }
        self.client.remove(&vols).await?;
        self.snapshots.retain(|vol| !vols.contains(vol));
        // Whether the neighbours own their blocks again is the engine's business.
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

    /// Adds snapshots that tasks made to the scenario.
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
