//! The checks of a run. After a close, a crash or an opening, every volume has what the oracle allows, and the accounts
//! agree.

use super::{Model, Seen, Step, count_wraps, wrong};
use crate::client::{BLOCK, Client, Failure, Op, number};
use crate::crash::{add_stats, judge_group};
use crate::disk::{Image, POLICIES, Policy, SimDisks};
use crate::exec::World;
use crate::oracle::{Since, Vol};
use rowen_engine::disk::Disks;
use rowen_engine::error::Error;
use rowen_engine::group::{Group, VolumeInfo, VolumeState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Model {
    /// No space is taken from a physical volume that is not allocatable: its free space only grows.
    pub(super) fn check_unallocatable(&mut self) -> Step {
        for (pv, info) in self.client.group.info().pvs.iter().enumerate() {
            let before = self.unallocatable.get_mut(&(pv as u16));
            if info.is_allocatable != before.is_none() {
                return wrong(format!("physical volume {pv} says allocatable={}", info.is_allocatable));
            }
            let Some(before) = before else { continue };
            if info.free_blocks < *before {
                return wrong(format!("physical volume {pv} is not allocatable and has {info:?}, {before} were free"));
            }
            *before = info.free_blocks;
        }
        Ok(())
    }

    /// A clean close. The caches are lost, and nothing may be missing.
    pub(super) fn reopen(&mut self) -> Step {
        self.note("close and open".into());
        let client = self.client.clone();
        self.run(async move { client.close().await })??;
        self.seen.reopened += 1;
        let image = self.disks.moment().power_cut(Policy::Nothing, &mut self.rng);
        self.open(image)?;
        self.verify_everything()
    }

    pub(super) fn open(&mut self, image: Image) -> Step {
        add_stats(&mut self.seen.stats, &self.client.group.stats());
        let world = World::new(self.rng.bits());
        let disks = SimDisks::with_image(world.handle(), image);
        let opening = Group::open(disks.clone(), world.handle(), self.setup.config.clone());
        let group = world.try_run(opening).map_err(|stuck| Failure::Wrong(format!("opening: {stuck}")))??;
        self.client = Client::new(world.handle(), group, self.client.oracle.clone());
        count_wraps(&disks, &self.wraps);
        self.disks = disks;
        self.world = world;
        Ok(())
    }

    /// The power fails or the program dies while requests are in flight. The run continues with what is left.
    pub(super) fn crash(&mut self) -> Step {
        let mut vols = self.client.oracle.lock().readable();
        vols.retain(|&vol| !self.read_only(vol));
        let death = self.rng.one_in(3);
        let mut ops: Vec<Op> = Vec::new();
        for &vol in vols.iter().take(6) {
            let (client, (sector, count)) = (self.client.clone(), self.range(vol));
            ops.push(Box::pin(async move { client.write(vol, sector, count, &[]).await }));
        }
        self.note(format!("crash death={death} with writes under way on {vols:?}"));
        let (client, handle) = (self.client.clone(), self.world.handle());
        let stopper = handle.clone();
        handle.after(self.rng.below(600), move || stopper.stop());
        match self.world.try_run(async move { client.together(ops).await }) {
            Ok(_) | Err(crate::exec::Stuck::Stopped) => {}
            Err(stuck) => return wrong(stuck.to_string()),
        }
        let moment = self.disks.moment();
        let (image, since) = match death {
            true => (moment.killed(&mut self.rng), Since::Death),
            false => (moment.power_cut(*self.rng.pick(&POLICIES), &mut self.rng), Since::PowerLoss),
        };
        self.seen.power_cuts += u64::from(!death);
        self.seen.deaths += u64::from(death);
        self.exact = false;
        self.open(image)?;
        self.judge_crash(since)?;
        self.check_open()
    }

    pub(super) fn judge_crash(&mut self, since: Since) -> Step {
        let infos = self.client.group.volumes();
        let mut found = BTreeMap::new();
        for info in infos.iter().filter(|info| info.state == VolumeState::Ok) {
            let (client, vol, sectors) = (self.client.clone(), number(info.uuid), info.blocks * BLOCK);
            found.insert(vol, self.run(async move { client.look(vol, 0, sectors).await })??);
        }
        let mut oracle = self.client.oracle.lock();
        judge_group(&oracle, &infos, &found, since).map_err(Failure::Wrong)?;
        let names: BTreeMap<Vol, String> = infos.iter().map(|info| (number(info.uuid), info.name.clone())).collect();
        oracle.restart(found.into_iter().map(|(vol, sectors)| (vol, (names[&vol].clone(), sectors))).collect());
        drop(oracle);
        self.origins.retain(|snapshot, origin| names.contains_key(snapshot) && names.contains_key(origin));
        // The oracle knows no more of snapshots that were dropped.
        let gone: Vec<_> = infos.iter().filter(|info| info.state == VolumeState::Invalid).map(|info| info.id).collect();
        if !gone.is_empty() {
            self.origins.retain(|snapshot, _| {
                infos.iter().any(|info| number(info.uuid) == *snapshot && info.state == VolumeState::Ok)
            });
            let group = self.client.group.clone();
            self.run(async move { group.remove(&gone).await })??;
        }
        Ok(())
    }

    pub(super) fn take_invalid(&mut self) -> Step {
        for vol in self.client.note_invalid()? {
            self.seen.invalidated += 1;
            self.accounts.remove(vol);
            // The blocks that it holds until it is removed are the engine's business.
            self.exact = false;
            self.origins.retain(|snapshot, origin| *snapshot != vol && *origin != vol);
        }
        Ok(())
    }

    pub(super) fn verify(&mut self, vol: Vol, sector: u64, count: u64) -> Step {
        self.take_invalid()?;
        if !self.client.oracle.lock().readable().contains(&vol) {
            return Ok(());
        }
        let client = self.client.clone();
        let found = match self.run(async move { client.verify(vol, sector, count).await })? {
            Ok(found) => found,
            Err(failure) => return self.dropped_meanwhile(failure),
        };
        self.client.oracle.lock().settle(vol, sector, &found);
        Ok(())
    }

    pub(super) fn verify_all(&mut self, vol: Vol) -> Step {
        let client = self.client.clone();
        self.run(async move { client.verify_all(vol).await })?.or_else(|failure| self.dropped_meanwhile(failure))
    }

    /// A snapshot may outgrow its reserve in the background, when it inherits another one's share.
    pub(super) fn dropped_meanwhile(&mut self, failure: Failure) -> Step {
        match failure {
            Failure::Refused(Error::InvalidSnapshot) if self.may_fill => self.take_invalid(),
            failure => Err(failure),
        }
    }

    pub(super) fn verify_everything(&mut self) -> Step {
        self.take_invalid()?;
        let vols = self.client.oracle.lock().readable();
        vols.into_iter().try_for_each(|vol| self.verify_all(vol))
    }

    /// The reports of one volume and of a family agree with the report of all.
    pub(super) fn check_parts(&self) -> Step {
        let group = &self.client.group;
        let all = group.volumes();
        let text = |info: &VolumeInfo| format!("{info:?}");
        for info in &all {
            let alone = group.volume_info(info.id)?;
            if text(&alone) != text(info) {
                return wrong(format!("{alone:?} alone, {info:?} among all"));
            }
        }
        let Some(first) = all.get(self.seen.steps as usize % all.len().max(1)) else { return Ok(()) };
        let mut family = BTreeSet::from([first.id]);
        // Origins are older. In the order of creation, one pass down and one pass up find all.
        for info in &all {
            if info.origin.is_some_and(|origin| family.contains(&origin)) {
                family.insert(info.id);
            }
        }
        for info in all.iter().rev() {
            if family.contains(&info.id) {
                family.extend(info.origin);
            }
        }
        let found: Vec<String> = group.family(std::slice::from_ref(&first.name)).iter().map(text).collect();
        let expected: Vec<String> = all.iter().filter(|info| family.contains(&info.id)).map(text).collect();
        if found != expected {
            return wrong(format!("the family of {} is {found:?}, it should be {expected:?}", first.name));
        }
        Ok(())
    }

    pub(super) fn check_referenced(&mut self) -> Step {
        self.check_parts()?;
        for info in self.client.group.volumes() {
            let expected = self.accounts.referenced(number(info.uuid));
            if info.referenced != expected {
                return wrong(format!("{} references {} blocks, it should be {expected}", info.name, info.referenced));
            }
        }
        Ok(())
    }

    /// Once background removal is idle every counter is exact.
    pub(super) fn check_accounts(&mut self) -> Step {
        let group = self.client.group.clone();
        self.run(async move { group.reclaim_idle().await })??;
        let group = self.client.group.info();
        if group.reclaim_left != 0 {
            return wrong(format!("reclaim is idle with {} blocks left", group.reclaim_left));
        }
        if !self.exact {
            return Ok(());
        }
        self.seen.exact_checks += 1;
        for info in self.client.group.volumes() {
            let expected = self.accounts.counters(number(info.uuid));
            let reported = (info.referenced, info.exclusive, info.freed_if_removed);
            if reported != (expected.referenced, expected.own, expected.freed) {
                return wrong(format!(
                    "{}: referenced, exclusive, freed are {reported:?}, expected {expected:?}",
                    info.name
                ));
            }
        }
        let used = group.blocks - group.free_blocks - group.pending_blocks - group.metadata_blocks;
        if used != self.accounts.used() {
            return wrong(format!(
                "{used} blocks are in use, heads and points map {}: {group:?}",
                self.accounts.used()
            ));
        }
        Ok(())
    }

    pub(super) fn check_open(&mut self) -> Step {
        let group = self.client.group.clone();
        let open = self.run(async move { group.check_open().await })??;
        self.seen.most_nodes = self.seen.most_nodes.max(open.nodes);
        match open.findings.first() {
            Some(first) => wrong(format!("check of the open group: {} findings; first: {first}", open.findings.len())),
            None => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> Result<Seen, Failure> {
        self.note("the end".into());
        self.verify_everything()?;
        self.check_accounts()?;
        self.check_open()?;
        let client = self.client.clone();
        self.run(async move { client.close().await })??;
        let disks: Arc<dyn Disks> = self.disks.clone();
        let closed = self.run(Group::check(disks))??;
        if let Some(first) = closed.findings.first() {
            return wrong(format!("check of the closed group: {} findings; first: {first}", closed.findings.len()));
        }
        add_stats(&mut self.seen.stats, &self.client.group.stats());
        self.seen.journal_wraps = self.wraps.load(Ordering::Relaxed);
        Ok(self.seen)
    }
}
