//! A physical volume is lost. The group is opened and used without it, for a life or two. Then the disk comes back, or
//! the physical volume is removed for good (rules MB1 to MB5).

use super::plan::{Act, Event, Item, act};
use super::{History, Power, all, members};
use crate::client::{BLOCK, Client, number};
use crate::crash::{judge_group, survivors};
use crate::disk::{Image, Moment, POLICIES, Policy, SimDisks};
use crate::exec::World;
use crate::oracle::{Since, Vol};
use crate::rng::Rng;
use crate::stamp::Found;
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{Group, VolumeState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many sectors are read together where nothing is lost.
const STEP: u64 = 32 * BLOCK;

/// The contents of each sector of each volume. None: it cannot be read.
type Partly = BTreeMap<Vol, Vec<Option<Found>>>;

/// A group that was opened, in its world.
struct Opened {
    world: World,
    disks: Arc<SimDisks>,
    group: Result<Arc<Group>, Error>,
}

impl History {
    /// A physical volume is detached. False: this world cannot lose one.
    pub(super) fn lose(&mut self, seed: u64) -> Result<bool, String> {
        // The other copy of bad metadata may be the one that is lost.
        let is_whole = self.is_sound() && self.unreadable.is_empty();
        let Power::Off(image) = &self.power else { return Ok(false) };
        let whole = members(image)?;
        if !is_whole || whole.count() < 2 {
            return Ok(false);
        }
        let mut rng = Rng::new(seed);
        let pv = PvIndex(rng.below(whole.count() as u64) as u16);
        if !all_have_joined(&whole)? {
            return Ok(false);
        }
        self.trace(|| format!("physical volume {} of {} is lost", pv.0, whole.count()));
        let mut rest = whole.clone();
        rest.set_size(pv, 0);
        self.refused(&rest, rng.bits())?;
        self.continues_without(rest, &whole, pv, &mut rng)
    }

    /// A physical volume has failed, and the group has ended for that (MB9). The next server opens the group without
    /// it, as if all acknowledged writes were there. Unflushed writes on it may be lost. False: this world cannot judge
    /// that.
    pub(super) fn fails_in_use(&mut self, moment: &Moment, pv: PvIndex, seed: u64) -> Result<bool, String> {
        let mut rng = Rng::new(seed);
        let policy = *rng.pick(&POLICIES);
        let mut rest = moment.killed(&mut rng);
        // It has left meanwhile.
        if usize::from(pv.0) >= rest.count() {
            return Ok(false);
        }
        let whole = rest.with_pv_of(pv, &moment.power_cut(policy, &mut rng));
        // It was joining or leaving.
        let is_settled = members(&whole).is_ok_and(|known| known == whole) && all_have_joined(&whole)?;
        if !self.is_sound() || !is_settled || whole.count() < 2 {
            return Ok(false);
        }
        self.trace(|| format!("physical volume {} of {} has failed in use ({policy:?})", pv.0, whole.count()));
        self.seen.tally.count("physical volumes that failed in use, and were left out");
        rest.set_size(pv, 0);
        (self.since, self.has_failed_in_use) = (Since::Death, true);
        self.continues_without(rest, &whole, pv, &mut rng)
    }

    /// Lives without it, and then its return or its removal.
    fn continues_without(
        &mut self,
        mut rest: Image,
        whole: &Image,
        pv: PvIndex,
        rng: &mut Rng,
    ) -> Result<bool, String> {
        for life in 0..rng.range(1, 3) {
            let opened = match life {
                0 => self.open_lost(rest.clone(), Some(rng.bits()), rng.bits())?,
                // It may be attached: no opening uses it.
                _ if rng.one_in(2) => self.open_lost(rest.with_pv_of(pv, whole), None, rng.bits())?,
                _ => self.open_lost(rest.clone(), None, rng.bits())?,
            };
            match &opened.group {
                Ok(group) => self.are_out(group, &[pv])?,
                // If the others have just joined, only the lost one names the group.
                Err(Error::MissingPv(_) | Error::NotFound(_)) if life == 0 && !self.has_failed_in_use => {
                    self.seen.tally.count("lost physical volumes without which a group does not open");
                    return if opened.disks.current() == rest { Ok(true) } else { Err("it was changed".into()) };
                }
                Err(error) => return Err(format!("it does not open without physical volume {}: {error}", pv.0)),
            }
            rest = self.life_without(opened, pv, rng)?;
        }
        match rng.one_in(4) {
            true => self.goes_for_good(&rest, whole, pv, rng),
            false => self.comes_back(&rest, whole, pv, rng),
        }?;
        Ok(true)
    }

    /// `lineage`: physical volumes may be missing.
    fn open_lost(&mut self, image: Image, lineage: Option<u64>, seed: u64) -> Result<Opened, String> {
        let world = World::new(seed);
        let disks = SimDisks::with_image(world.handle(), image);
        disks.set_delays(self.plan.delays);
        let (given, config) = (disks.clone(), self.plan.setup.config.clone());
        let opening = async {
            match lineage {
                Some(lineage) => Group::open_without(given, world.handle(), config, lineage).await,
                None => Group::open(given, world.handle(), config).await,
            }
        };
        let group = world.try_run(opening).map_err(|stuck| format!("opening without a disk: {stuck}"))?;
        self.seen.trace = self.seen.trace.rotate_left(7) ^ world.handle().trace_hash();
        Ok(Opened { world, disks, group })
    }

    /// MB4.
    fn are_out(&self, group: &Group, pvs: &[PvIndex]) -> Result<(), String> {
        let (out, wanted) = (group.out().0, pvs.iter().fold(0, |all, pv| all | 1 << pv.0));
        match out == wanted {
            true => Ok(()),
            false => Err(format!("physical volumes {wanted:b} are lost, and {out:b} are out")),
        }
    }

    /// Judges the group, uses it, and ends it in some way. Returns its disks.
    fn life_without(&mut self, opened: Opened, pv: PvIndex, rng: &mut Rng) -> Result<Image, String> {
        let Opened { world, disks, group } = opened;
        let group = group.map_err(|error| error.to_string())?;
        self.judge_without(&world, &group, pv)?;
        let age = self.age(&world, &disks, &group);
        drop(group);
        let count = rng.below(16) as usize;
        let items: Vec<Item> = (0..count).map(|number| self.item_without(number, rng)).collect();
        let event = disks.events() + rng.range(1, 20 + count as u64 * 7);
        let at = rng.one_in(2).then_some(event);
        let outcome = Self::until(&world, &disks, at, all(age.clone(), items, self.plan.delays))?;
        self.seen.trace = self.seen.trace.rotate_left(7) ^ world.handle().trace_hash();
        self.seen.tally.add(&age.tally.lock());
        self.seen.tally.count("lives without a physical volume");
        if let Some(finished) = outcome {
            finished.map_err(|failure| format!("without physical volume {}: {failure}", pv.0))?;
        }
        Ok(self.ends_somehow(&disks, rng))
    }

    /// The power fails, or the server dies.
    fn ends_somehow(&mut self, disks: &SimDisks, rng: &mut Rng) -> Image {
        let policy = *rng.pick(&POLICIES);
        self.seen.tally.count("crash states");
        let (image, since) = match rng.one_in(3) {
            true => (disks.moment().killed(rng), Since::Death),
            false => (disks.moment().power_cut(policy, rng), Since::PowerLoss),
        };
        self.trace(|| format!("it ends: {since:?} {policy:?}"));
        // The contents may not have been read since the last end.
        if self.since != Since::PowerLoss {
            self.since = since;
        }
        image
    }

    /// Requests to a group that has lost a physical volume. None is added, and none leaves.
    fn item_without(&self, number: usize, rng: &mut Rng) -> Item {
        let act = match act(rng, self.plan.is_full) {
            Act::AddPv | Act::RemovePv | Act::GrowOrShrinkPv | Act::Move | Act::Fill => Act::Write,
            act => act,
        };
        Item { number, life: usize::MAX, what: Event::Client(rng.below(2) as u32, act), seed: rng.bits() }
    }

    /// Judges all that can be read. What cannot be read lies on the lost physical volume (MB2), or could not be
    /// compared when it was lost (MB7).
    fn judge_without(&mut self, world: &World, group: &Arc<Group>, pv: PvIndex) -> Result<(), String> {
        let client = Client::new(world.handle(), group.clone(), Arc::default());
        self.seen.tally.add_to("unproven blocks", group.unproven_blocks());
        let found = world.try_run(read_partly(&client)).map_err(|stuck| format!("reading: {stuck}"))??;
        let check = world.try_run(group.check_open()).map_err(|stuck| format!("check: {stuck}"))?;
        let check = check.map_err(|error| format!("check without physical volume {}: {error}", pv.0))?;
        if let Some(first) = check.findings.first() {
            return Err(format!("check without physical volume {}: {first}", pv.0));
        }
        let infos = group.volumes();
        let since = self.since;
        let mut oracle = self.oracle.lock();
        let whole = |(vol, sectors): (&Vol, &Vec<Option<Found>>)| {
            Some((*vol, sectors.iter().copied().collect::<Option<Vec<Found>>>()?))
        };
        let whole: BTreeMap<Vol, Vec<Found>> = found.iter().filter_map(whole).collect();
        judge_group(&oracle, &infos, &whole, since).map_err(|what| format!("without {}: {what}", pv.0))?;
        for (vol, sectors) in found.iter().filter(|(vol, _)| !whole.contains_key(vol)) {
            self.seen.tally.count("volumes of which a part was lost");
            for (first, part) in parts(sectors) {
                oracle.judge(*vol, first, &part, since).map_err(|what| format!("without {}: {what}", pv.0))?;
            }
        }
        let invalid = infos.iter().filter(|info| info.state == VolumeState::Invalid);
        let invalid = invalid.map(|info| (number(info.uuid), info.name.clone())).collect();
        // Blocks that cannot be read may hold what the disk had flushed when it failed.
        let lost_since = if std::mem::take(&mut self.has_failed_in_use) { Since::PowerLoss } else { since };
        oracle.restart_without(survivors(&infos, found), &invalid, lost_since);
        self.since = Since::Death;
        // There is less space than before: snapshots may be dropped.
        oracle.may_drop = true;
        for info in infos.iter().filter(|info| info.origin.is_some()) {
            oracle.volumes.entry(number(info.uuid)).and_modify(|volume| volume.may_become_invalid = true);
        }
        Ok(())
    }

    /// The disk is attached again in the state in which it left, and returns to the group. The power may fail meanwhile
    /// (MB5).
    fn comes_back(&mut self, rest: &Image, whole: &Image, pv: PvIndex, rng: &mut Rng) -> Result<(), String> {
        let mut image = rest.with_pv_of(pv, whole);
        loop {
            let opened = self.open_lost(image, None, rng.bits())?;
            let group = opened.group.map_err(|error| format!("it does not open with the disk back: {error}"))?;
            if group.out().is_empty() {
                return self.check_all_present(&opened.world, &opened.disks, group, pv, rng);
            }
            self.are_out(&group, &[pv])?;
            let event = opened.disks.events() + rng.range(1, 60);
            let at = rng.one_in(2).then_some(event);
            let taken = Self::until(&opened.world, &opened.disks, at, group.restore_missing(pv))?;
            if let Some(taken) = taken {
                taken.map_err(|error| format!("a disk is not taken back as it left: {error}"))?;
                self.are_out(&group, &[])?;
                self.seen.tally.count("physical volumes taken back");
            }
            image = self.ends_somehow(&opened.disks, rng);
        }
    }

    /// The disk is back. Blocks that were being written when it was lost can be read, or be written once more (MB7).
    fn check_all_present(
        &mut self,
        world: &World,
        disks: &SimDisks,
        group: Arc<Group>,
        pv: PvIndex,
        rng: &mut Rng,
    ) -> Result<(), String> {
        self.judge_without(world, &group, pv)?;
        let client = Client::new(world.handle(), group, self.oracle.clone());
        let mended = world.try_run(repair_lost(&client, rng)).map_err(|stuck| format!("mending: {stuck}"))?;
        let mended = mended.map_err(|what| format!("with the disk back: {what}"))?;
        self.seen.tally.add_to("blocks that were being written when their disk was lost", mended);
        self.power = Power::Off(self.ends_somehow(disks, rng));
        Ok(())
    }

    /// Removes the volumes that have lost blocks, and then the physical volume.
    fn goes_for_good(&mut self, rest: &Image, whole: &Image, pv: PvIndex, rng: &mut Rng) -> Result<(), String> {
        let opened = self.open_lost(rest.clone(), None, rng.bits())?;
        let group = opened.group.map_err(|error| format!("it does not open without the disk: {error}"))?;
        self.judge_without(&opened.world, &group, pv)?;
        let client = Client::new(opened.world.handle(), group, self.oracle.clone());
        let going = async {
            for info in client.group.volumes() {
                if client.group.is_partial(info.id).await? || info.state == VolumeState::Invalid {
                    client.remove(&[number(info.uuid)]).await?;
                }
            }
            client.group.close_without(pv).await
        };
        let began = self.oracle.lock().tick();
        match opened.world.try_run(going).map_err(|stuck| format!("leaving for good: {stuck}"))? {
            Ok(()) => {
                self.oracle.lock().flushed_all(began);
                self.seen.tally.count("lost physical volumes that left for good");
                let image = opened.disks.moment().power_cut(Policy::Nothing, rng);
                let others: Vec<usize> = (0..image.count()).filter(|at| *at != usize::from(pv.0)).collect();
                self.power = Power::Off(image.reordered(&others));
                self.since = Since::PowerLoss;
                Ok(())
            }
            // The rest has no room for reserved space.
            Err(Error::Busy(_) | Error::NoSpace { .. }) => {
                self.seen.tally.count("lost physical volumes that could not leave");
                let rest = self.ends_somehow(&opened.disks, rng);
                self.comes_back(&rest, whole, pv, rng)
            }
            Err(error) => Err(format!("physical volume {} cannot leave: {error}", pv.0)),
        }
    }
}

/// Whether all of the disks name all of them. If a disk was joining when the power failed, some may not name it. It is
/// empty and need not come back. Without another disk nothing may name it at all.
fn all_have_joined(image: &Image) -> Result<bool, String> {
    let world = World::new(1);
    let disks = SimDisks::with_image(world.handle(), image.clone());
    for pv in (0..image.count()).map(|at| PvIndex(at as u16)) {
        let label = world.try_run(async { Group::read_label(&*disks, pv).await });
        let label = label.map_err(|stuck| stuck.to_string())?.map_err(|error| error.to_string())?;
        if label.and_then(|label| label.group).is_none_or(|group| group.members.len() != image.count()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads everything, block by block where something is lost.
async fn read_partly(client: &Client) -> Result<Partly, String> {
    let mut all = Partly::new();
    for info in client.group.volumes() {
        if info.state == VolumeState::Invalid {
            continue;
        }
        let vol = number(info.uuid);
        let Some(sectors) = read_volume(client, vol, info.blocks * BLOCK).await? else { continue };
        let partial = client.group.is_partial(info.id).await.map_err(|error| error.to_string())?;
        // Blocks that were never written are zeros, wherever they would be.
        if sectors.contains(&None) && !partial && client.group.unproven_blocks() == 0 {
            return Err(format!("volume {vol} cannot be read, and is not said to be partial"));
        }
        all.insert(vol, sectors);
    }
    Ok(all)
}

/// None: it was dropped meanwhile.
async fn read_volume(client: &Client, vol: Vol, size: u64) -> Result<Option<Vec<Option<Found>>>, String> {
    let mut sectors = Vec::with_capacity(size as usize);
    let mut step = STEP;
    while (sectors.len() as u64) < size {
        let at = sectors.len() as u64;
        match client.look(vol, at, step.min(size - at)).await {
            Ok(found) => {
                sectors.extend(found.into_iter().map(Some));
                step = if sectors.len() as u64 % STEP == 0 { STEP } else { step };
            }
            Err(Error::InvalidSnapshot) => return Ok(None),
            Err(Error::Disk(error)) if client.is_lost(&error) => match step {
                BLOCK => sectors.extend([None; BLOCK as usize]),
                _ => step = BLOCK,
            },
            Err(error) => return Err(format!("reading volume {vol}: {error}")),
        }
    }
    Ok(Some(sectors))
}

/// Writes or discards the unreadable blocks, or removes the volume. Returns the number of these blocks.
async fn repair_lost(client: &Client, rng: &mut Rng) -> Result<u64, String> {
    let mut mended = 0;
    for (vol, sectors) in read_partly(client).await? {
        let lost: Vec<u64> = sectors.iter().zip(0..).filter(|(found, _)| found.is_none()).map(|(_, at)| at).collect();
        // Writes to other volumes may have taken the room of a snapshot.
        let Ok(volume) = client.volume(vol) else { continue };
        let read_only = volume.read_only();
        if read_only && !lost.is_empty() {
            client.remove(&[vol]).await.map_err(|error| error.to_string())?;
        }
        for at in lost.into_iter().filter(|at| at % BLOCK == 0 && !read_only) {
            mended += 1;
            let half = client.write(vol, at, BLOCK / 2, &[]).await;
            if !matches!(half, Err(Error::Disk(_) | Error::InvalidSnapshot)) {
                return Err(format!("volume {vol}, sector {at}: half of what cannot be read was written: {half:?}"));
            }
            let done = match rng.one_in(2) {
                true => client.write(vol, at, BLOCK, &[]).await,
                false => client.zero(vol, at, BLOCK, rng.one_in(2)).await,
            };
            match done {
                Ok(()) => {
                    let found = client.verify(vol, at, BLOCK).await;
                    found.map_err(|failure| format!("volume {vol}, sector {at}: {failure}"))?;
                }
                // No space: the error stays, which is allowed.
                Err(Error::NoSpace { .. } | Error::InvalidSnapshot) => {
                    client.remove(&[vol]).await.map_err(|error| error.to_string())?;
                    break;
                }
                Err(error) => return Err(format!("volume {vol}, sector {at}: {error}")),
            }
        }
    }
    client.note_invalid().map_err(|failure| failure.to_string())?;
    // Unflushed writes may be lost. Then the blocks are unproven as before.
    client.checkpoint().await.map_err(|error| error.to_string())?;
    let still = read_partly(client).await?;
    match still.iter().find(|(_, sectors)| sectors.contains(&None)) {
        Some((vol, _)) => Err(format!("volume {vol} cannot be read after it was written")),
        None => Ok(mended),
    }
}

/// The ranges that could be read: their first sectors, and their contents.
fn parts(sectors: &[Option<Found>]) -> Vec<(u64, Vec<Found>)> {
    let mut parts: Vec<(u64, Vec<Found>)> = Vec::new();
    let mut goes_on = false;
    for (found, at) in sectors.iter().zip(0..) {
        match (found, parts.last_mut().filter(|_| goes_on)) {
            (Some(found), Some((_, part))) => part.push(*found),
            (Some(found), None) => parts.push((at, vec![*found])),
            (None, _) => {}
        }
        goes_on = found.is_some();
    }
    parts
}
