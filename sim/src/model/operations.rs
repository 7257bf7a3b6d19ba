//! The operations of a run. Each goes to the engine, and the oracle and the accounts record its result.

use super::{Model, Profile, Step};
use crate::client::{BLOCK, Failure, Op, SnapshotKind, VolumeSpec};
use crate::oracle::Vol;
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, VolumeKind};

impl Model {
    pub(super) fn write(&mut self, vol: Vol) -> Step {
        if self.read_only(vol) {
            return Ok(());
        }
        let (sector, count) = self.range(vol);
        self.note(format!("write {vol} {sector}+{count}"));
        let client = self.client.clone();
        let result = self.run(async move { client.write(vol, sector, count, &[]).await })?;
        match self.done(result)? {
            true => self.accounts.write(vol, sector, count),
            false => self.exact = false,
        }
        self.verify(vol, sector, count)
    }

    pub(super) fn zero(&mut self, vol: Vol) -> Step {
        if self.read_only(vol) {
            return Ok(());
        }
        let (sector, count) = self.range(vol);
        let zeroes = self.rng.one_in(2);
        self.note(format!("zero {vol} {sector}+{count} zeroes={zeroes}"));
        if self.exact {
            // A discard keeps the place of blocks that the volume owns. A merge in progress may still decide that.
            let group = self.client.group.clone();
            self.run(async move { group.reclaim_idle().await })??;
        }
        let client = self.client.clone();
        let result = self.run(async move { client.zero(vol, sector, count, zeroes).await })?;
        match self.done(result)? {
            true => self.accounts.zero(vol, sector, count),
            false => self.exact = false,
        }
        self.verify(vol, sector, count)
    }

    /// Several requests at once. In exact runs they are writes, which leave the same counters in any order.
    pub(super) fn batch(&mut self, vols: &[Vol]) -> Step {
        let exact = self.profile == Profile::Exact;
        let mut ops: Vec<Op> = Vec::new();
        let mut touched = Vec::new();
        let mut words = Vec::new();
        let requests = if self.profile == Profile::Deep { self.rng.range(8, 160) } else { self.rng.range(2, 16) };
        for _ in 0..requests {
            let vol = *self.rng.pick(vols);
            if self.read_only(vol) {
                continue;
            }
            let (sector, count) = self.range(vol);
            let client = self.client.clone();
            touched.push((vol, sector, count));
            if !exact && self.rng.one_in(6) {
                let zeroes = self.rng.one_in(2);
                self.exact = false;
                words.push(format!("zero {vol} {sector}+{count} zeroes={zeroes}"));
                ops.push(Box::pin(async move { client.zero(vol, sector, count, zeroes).await }));
            } else if self.rng.one_in(6) {
                words.push(format!("flush {vol}"));
                ops.push(Box::pin(async move { client.flush(vol).await }));
            } else {
                words.push(format!("write {vol} {sector}+{count}"));
                self.accounts.write(vol, sector, count);
                ops.push(Box::pin(async move { client.write(vol, sector, count, &[]).await }));
            }
        }
        if !exact && self.rng.one_in(3) {
            self.exact = false;
            let origins: Vec<Vol> = vols.iter().copied().filter(|_| self.rng.one_in(3)).collect();
            let client = self.client.clone();
            words.push(format!("snapshot {origins:?}"));
            if !origins.is_empty() && vols.len() + origins.len() <= self.profile.most_volumes() {
                ops.push(Box::pin(async move { client.snapshot(&origins, SnapshotKind::default()).await.map(drop) }));
            }
        }
        if self.rng.one_in(8) {
            let client = self.client.clone();
            self.seen.raced_checkpoints += 1;
            words.push("checkpoint".into());
            ops.push(Box::pin(async move { client.checkpoint().await }));
        }
        self.note(format!("together: {}", words.join("; ")));
        let client = self.client.clone();
        for result in self.run(async move { client.together(ops).await })? {
            self.exact &= self.done(result)?;
        }
        self.may_become_invalid();
        self.take_invalid()?;
        for (vol, sector, count) in touched {
            self.verify(vol, sector, count)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, vol: Vol) -> Step {
        self.note(format!("flush {vol}"));
        let client = self.client.clone();
        let flushed = self.run(async move { client.flush(vol).await })?;
        flushed.or_else(|error| self.dropped_meanwhile(Failure::Refused(error)))
    }

    pub(super) fn checkpoint(&mut self) -> Step {
        self.note("checkpoint".into());
        let client = self.client.clone();
        Ok(self.run(async move { client.checkpoint().await })??)
    }

    pub(super) fn create(&mut self) -> Step {
        let kind = *self.rng.pick(&[VolumeKind::Thick, VolumeKind::Thin]);
        let full = *self.rng.pick(&[FullPolicy::DropSnapshot, FullPolicy::Fail]);
        let blocks = self.profile.blocks(&mut self.rng);
        let spec = VolumeSpec { kind, blocks, chunk_blocks: 1 << self.rng.below(6), full };
        self.note(format!("create {spec:?}"));
        let client = self.client.clone();
        match self.run(async move { client.create(spec).await })? {
            Ok(vol) => self.accounts.create(vol, blocks, kind == VolumeKind::Thick),
            Err(e) => drop(self.done(Err(e))?),
        }
        Ok(())
    }

    pub(super) fn snapshot(&mut self, origins: &[Vol]) -> Step {
        let reserve = (self.profile == Profile::Full && self.rng.one_in(3)).then(|| self.rng.range(4, 64));
        let kind = SnapshotKind { read_only: self.rng.one_in(3), reserve, chunk_blocks: 1 << self.rng.below(6) };
        self.note(format!("snapshot {origins:?} {kind:?}"));
        let (client, owned) = (self.client.clone(), origins.to_vec());
        match self.run(async move { client.snapshot(&owned, kind).await })? {
            Ok(vols) => {
                for (&origin, &vol) in origins.iter().zip(&vols) {
                    self.accounts.snapshot(origin, vol, false);
                    self.origins.insert(vol, origin);
                }
                self.may_become_invalid();
                vols.iter().try_for_each(|&vol| self.verify_all(vol))
            }
            Err(e) => self.done(Err(e)).map(drop),
        }
    }

    /// In a full group, the engine may drop any snapshot.
    pub(super) fn may_become_invalid(&mut self) {
        if self.may_fill {
            self.client.oracle.lock().volumes.values_mut().for_each(|volume| volume.may_become_invalid = true);
        }
    }

    pub(super) fn group_snapshot(&mut self, vols: &[Vol]) -> Step {
        let mut some: Vec<Vol> = vols.iter().copied().filter(|_| self.rng.one_in(2)).take(3).collect();
        some.dedup();
        if some.is_empty() {
            return Ok(());
        }
        self.seen.group_snapshots += 1;
        self.snapshot(&some)
    }

    pub(super) fn revert(&mut self) -> Step {
        let readable = self.client.oracle.lock().readable();
        let pairs: Vec<(Vol, Vol)> = self
            .origins
            .iter()
            .map(|(&snapshot, &origin)| (origin, snapshot))
            .filter(|(origin, snapshot)| readable.contains(origin) && readable.contains(snapshot))
            .filter(|&(origin, snapshot)| !self.read_only(origin) && self.sectors(origin) == self.sectors(snapshot))
            .collect();
        if pairs.is_empty() {
            return Ok(());
        }
        let (target, source) = *self.rng.pick(&pairs);
        let consume = self.rng.one_in(2);
        self.note(format!("revert {target} to {source} consume={consume}"));
        let client = self.client.clone();
        let result = self.run(async move { client.revert(target, source, consume).await })?;
        if self.done(result)? {
            self.seen.reverts += 1;
            self.accounts.revert(target, source, consume);
            if consume {
                self.origins.remove(&source);
            }
        }
        self.verify_all(target)
    }

    pub(super) fn remove_some(&mut self, vols: &[Vol]) -> Step {
        let some: Vec<Vol> = vols.iter().copied().filter(|_| self.rng.one_in(4)).collect();
        if some.is_empty() { Ok(()) } else { self.remove(&some) }
    }

    pub(super) fn remove(&mut self, vols: &[Vol]) -> Step {
        self.note(format!("remove {vols:?}"));
        let (client, owned) = (self.client.clone(), vols.to_vec());
        self.run(async move { client.remove(&owned).await })??;
        for vol in vols {
            self.seen.removed_origins += u64::from(self.origins.values().any(|origin| origin == vol));
            self.accounts.remove(*vol);
            self.origins.retain(|snapshot, origin| snapshot != vol && origin != vol);
        }
        Ok(())
    }

    pub(super) fn resize(&mut self, vol: Vol) -> Step {
        if self.read_only(vol) {
            return Ok(());
        }
        let (before, blocks) = (self.sectors(vol) / BLOCK, self.profile.blocks(&mut self.rng));
        self.note(format!("resize {vol} to {blocks} blocks"));
        let client = self.client.clone();
        let result = self.run(async move { client.resize(vol, blocks).await })?;
        if self.done(result)? {
            self.accounts.resize(vol, before, blocks);
        }
        self.verify_all(vol)
    }

    pub(super) fn rename(&mut self, vol: Vol) -> Step {
        let name = format!("n{}", self.rng.below(1 << 40));
        self.note(format!("rename {vol} to {name}"));
        let client = self.client.clone();
        Ok(self.run(async move { client.rename(vol, &name).await })??)
    }

    /// Adds a physical volume to a group that has become too small.
    pub(super) fn grow_group(&mut self) -> Step {
        if self.setup.pvs.len() >= 5 {
            return Ok(());
        }
        self.note("add a physical volume".into());
        let geometry = self.setup.pvs[0];
        self.setup.pvs.push(geometry);
        self.disks.add_pv(geometry);
        let uuid = rowen_engine::units::Uuid([self.setup.pvs.len() as u8; 16]);
        let group = self.client.group.clone();
        Ok(self.run(async move { group.add_pv(rowen_engine::group::NewPv { uuid }).await })??)
    }

    /// Makes one of the physical volumes not allocatable, or allocatable again.
    pub(super) fn change_allocatable(&mut self) -> Step {
        let pv = self.rng.below(self.setup.pvs.len() as u64) as u16;
        let allocatable = self.unallocatable.contains_key(&pv);
        self.note(format!("physical volume {pv} allocatable={allocatable}"));
        let group = self.client.group.clone();
        let result = self.run(async move { group.set_allocatable(PvIndex(pv), allocatable).await })?;
        match result {
            Ok(()) if allocatable => drop(self.unallocatable.remove(&pv)),
            Ok(()) => {
                self.seen.unallocatable += 1;
                self.may_become_invalid();
                let free = self.client.group.info().pvs[usize::from(pv)].free_blocks;
                self.unallocatable.insert(pv, free);
            }
            // It has reserved space.
            Err(Error::NoSpace { .. }) if !allocatable => self.seen.refused_for_space += 1,
            Err(e) => return Err(Failure::Refused(e)),
        }
        Ok(())
    }

    /// A physical volume loses its unused end, or has all of its disk again.
    pub(super) fn resize_pv(&mut self) -> Step {
        let pv = self.rng.below(self.setup.pvs.len() as u64) as u16;
        let index = usize::from(pv);
        let disk = self.setup.pvs[index].size;
        let bytes = if self.rng.one_in(3) { disk } else { self.rng.range(disk / 2, disk) };
        self.note(format!("physical volume {pv} has {bytes} bytes"));
        let before = self.client.group.info().pvs[index].extents;
        let group = self.client.group.clone();
        let result = self.run(async move { group.resize_pv(PvIndex(pv), bytes).await })?;
        let now = self.client.group.info().pvs[index].clone();
        match result {
            Ok(()) => {
                self.seen.shrunk_pvs += u64::from(now.extents < before);
                self.seen.grown_pvs += u64::from(now.extents > before);
                self.may_become_invalid();
                self.unallocatable.entry(pv).and_modify(|free| *free = now.free_blocks);
            }
            Err(Error::Busy(_) | Error::NoSpace { .. }) if now.extents == before => {}
            Err(e) => return Err(Failure::Refused(e)),
        }
        Ok(())
    }
}
