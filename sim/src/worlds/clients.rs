//! The clients of a world: their requests, and the answers that each accepts.

use super::plan::{Act, Item};
use super::tally::Tally;
use crate::client::{BLOCK, Client, Failure, SnapshotKind, VolumeSpec, is_known};
use crate::disk::SimDisks;
use crate::exec::Handle;
use crate::oracle::{Life, Since, Vol};
use crate::rng::Rng;
use parking_lot::Mutex;
use rowen_engine::disk::{Disks, PvGeometry, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::group::{FullPolicy, NewMove, NewPv, PvExtents, SegmentType, VolumeInfo, VolumeKind, VolumeState};
use rowen_engine::runtime::Runtime;
use rowen_engine::units::Uuid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most volumes that clients make.
const MOST_VOLUMES: usize = 8;
/// The most physical volumes that a group grows to.
const MOST_PVS: usize = 6;
/// How often a command checks whether the volume's requests have ended, and the pause between two checks.
const PATIENCE: (u32, Duration) = (100, Duration::from_micros(200));

/// The volumes that a request or command uses. The oracle knows no request that overlaps a change of a whole volume.
#[derive(Default)]
struct Claims {
    /// Volumes with a command: one command at a time for each.
    commands: BTreeSet<Vol>,
    /// Volumes that take no requests for now.
    closed: BTreeSet<Vol>,
    requests: BTreeMap<Vol, u32>,
}

/// The state that the clients of one life share.
pub struct LifeState {
    pub client: Client,
    pub disks: Arc<SimDisks>,
    pub handle: Arc<Handle>,
    pub trace: bool,
    /// Snapshots may be dropped: the group is small, or a part of it is not allocatable.
    pub may_fill: bool,
    /// A disk had a fault: requests may fail.
    pub is_faulty: AtomicBool,
    /// No request is answered any more.
    pub hangs: AtomicBool,
    /// A copy of metadata is bad, and check may report it.
    pub has_bad_metadata: AtomicBool,
    /// Any data may have been overwritten.
    pub has_misdirected_write: AtomicBool,
    /// The group promises nothing any more.
    pub may_be_anything: AtomicBool,
    /// The group has stopped, or a command has no known outcome: it gets no more requests.
    pub has_stopped: AtomicBool,
    pub tally: Mutex<Tally>,
    claims: Mutex<Claims>,
    changing_pvs: AtomicBool,
    /// A physical volume joined or left.
    pub pvs_changed: AtomicBool,
}

type Outcome = Result<(), Failure>;

/// The kind of an answered request: it decides which errors are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// A write: it may need space.
    Write,
    /// A request that never needs space.
    Request,
    /// A command that may need space.
    Space,
    /// A command that never needs space.
    NoSpace,
    /// A change that the group may refuse with a message.
    Change,
}

impl LifeState {
    pub fn new(client: Client, disks: Arc<SimDisks>, handle: Arc<Handle>, may_fill: bool, trace: bool) -> LifeState {
        LifeState {
            client,
            disks,
            handle,
            trace,
            may_fill,
            is_faulty: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            has_bad_metadata: AtomicBool::new(false),
            has_misdirected_write: AtomicBool::new(false),
            may_be_anything: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
            tally: Mutex::default(),
            claims: Mutex::default(),
            changing_pvs: AtomicBool::new(false),
            pvs_changed: AtomicBool::new(false),
        }
    }

    pub fn count(&self, what: &'static str) {
        self.tally.lock().count(what);
    }

    pub fn trace(&self, words: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>9} us  {}", self.handle.now(), words());
        }
    }

    fn may_be_harmed(&self) -> bool {
        self.is_faulty.load(Ordering::SeqCst) || self.has_bad_metadata.load(Ordering::SeqCst)
    }

    fn stopped(&self) -> bool {
        self.has_stopped.load(Ordering::SeqCst)
    }

    /// Does one act.
    pub async fn act(&self, item: Item, act: Act) -> Outcome {
        if self.stopped() {
            return Ok(());
        }
        let mut rng = Rng::new(item.seed);
        let longest = if rng.one_in(8) { 2_000 } else { 60 };
        let pause = rng.below(longest);
        self.handle.sleep(Duration::from_micros(pause)).await;
        let outcome = self.dispatch(item, &mut rng, act).await;
        self.trace(|| format!("#{} {act:?}: {}", item.number, shown(&outcome)));
        self.client.note_invalid()?;
        outcome.map_err(|failure| match failure {
            Failure::Wrong(what) => Failure::Wrong(format!("#{} {act:?}: {what}", item.number)),
            Failure::Refused(e) => Failure::Wrong(format!("#{} {act:?} was refused: {e}", item.number)),
        })
    }

    async fn dispatch(&self, item: Item, rng: &mut Rng, act: Act) -> Outcome {
        match act {
            Act::Write => self.write(rng).await,
            Act::Zero => self.zero(rng).await,
            Act::Read => self.read(rng).await,
            Act::Flush => self.flush(rng).await,
            Act::Create => self.create(rng).await,
            Act::Snapshot => self.snapshot(rng, 1).await,
            Act::GroupSnapshot => self.snapshot(rng, 3).await,
            Act::Remove => self.remove(rng, 1).await,
            Act::RemoveSome => self.remove(rng, 3).await,
            Act::Revert => self.revert(rng).await,
            Act::Resize => self.resize(rng).await,
            Act::Rename => self.rename(rng).await,
            Act::Reserve => self.reserve(rng).await,
            Act::FullPolicy => self.full_policy(rng).await,
            Act::Checkpoint => {
                let done = self.client.checkpoint().await;
                self.answered(Asked::NoSpace, &[], done).map(drop)
            }
            Act::Reclaim => {
                let mut done = self.client.group.reclaim_idle().await;
                if done.is_ok() && rng.one_in(2) {
                    done = self.client.group.rehome_idle().await;
                }
                self.answered(Asked::NoSpace, &[], done).map(drop)
            }
            Act::Check => self.check().await,
            Act::Fill => self.fill(rng).await,
            Act::Allocatable if Rng::new(item.seed.rotate_left(23)).one_in(2) => self.convert(item).await,
            Act::Allocatable => self.allocatable(rng).await,
            Act::GrowOrShrinkPv => self.resize_pv(rng).await,
            Act::AddPv => self.add_pv(rng).await,
            Act::RemovePv => self.remove_pv().await,
            Act::Move => self.move_extents(rng).await,
        }
    }

    /// Judges an answer. True: it was done.
    fn answered(&self, asked: Asked, vols: &[Vol], answer: Result<(), Error>) -> Result<bool, Failure> {
        let Err(error) = answer else { return Ok(true) };
        let oracle = self.client.oracle.lock();
        let gone = |vol: &Vol| oracle.volumes.get(vol).is_none_or(|volume| volume.life != Life::Here);
        let may_drop = |vol: &Vol| oracle.volumes.get(vol).is_none_or(|volume| volume.may_become_invalid);
        let accepted = match &error {
            Error::NoSpace { .. } => !matches!(asked, Asked::NoSpace | Asked::Request),
            Error::InvalidSnapshot => vols.iter().any(|vol| gone(vol) || may_drop(vol)),
            Error::NotFound(_) | Error::Closed => vols.iter().any(gone),
            // Mirrored and striped extents are not made while extents move.
            Error::Busy(_)
                if oracle.segment != SegmentType::Linear && !matches!(asked, Asked::Write | Asked::Request) =>
            {
                true
            }
            Error::Busy(_) | Error::Invalid(_) => asked == Asked::Change,
            Error::Disk(error) if matches!(asked, Asked::Write | Asked::Request) && self.client.is_lost(error) => true,
            Error::MissingPv(_) => {
                !self.client.group.out().is_empty() && !matches!(asked, Asked::Write | Asked::Request)
            }
            Error::Disk(_) | Error::DiskLost(_) | Error::Poisoned(_) | Error::Corrupt { .. } => {
                let faulty = self.is_faulty.load(Ordering::SeqCst);
                // The next opening of the group shows the outcome of the command.
                let goes_on = matches!((&error, asked), (Error::Disk(_), Asked::Write | Asked::Request));
                self.has_stopped.fetch_or(faulty && !goes_on, Ordering::SeqCst);
                faulty
            }
            _ => false,
        };
        drop(oracle);
        match accepted {
            true => {
                self.count(refusal(&error));
                Ok(false)
            }
            false => Err(Failure::Refused(error)),
        }
    }

    // ---- requests -------------------------------------------------------------------------------------------

    /// A volume that takes requests, and a range of it.
    fn target(&self, rng: &mut Rng, writable: bool) -> Option<(Vol, u64, u64)> {
        let (which, kind) = (rng.bits(), rng.below(8));
        let (place, count) = (rng.bits(), rng.bits());
        let oracle = self.client.oracle.lock();
        let claims = self.claims.lock();
        let fits = |vol: &Vol| !(claims.closed.contains(vol) || writable && oracle.volumes[vol].read_only);
        let vols: Vec<Vol> = oracle.readable().into_iter().filter(fits).collect();
        let vol = *vols.get((which % vols.len().max(1) as u64) as usize)?;
        let sectors = oracle.volumes[&vol].sectors();
        let (from, count) = match kind {
            0 => (place % sectors, 1 + count % 7),
            1 => (place % sectors, 1 + count % 200),
            2 => (place % sectors.min(128), 1 + count % 40),
            3 => (0, sectors.min(1024)),
            4 => (place % sectors / BLOCK * BLOCK, BLOCK * (1 + count % 64)),
            // The same few blocks again and again.
            5 => (place % 4 * BLOCK, BLOCK),
            _ => (place % sectors / BLOCK * BLOCK, BLOCK),
        };
        let from = from.min(sectors - 1);
        Some((vol, from, count.min(sectors - from)))
    }

    fn begin_request(&self, vol: Vol) {
        *self.claims.lock().requests.entry(vol).or_default() += 1;
    }

    fn end_request(&self, vol: Vol) {
        let mut claims = self.claims.lock();
        let left = claims.requests.get_mut(&vol).map_or(0, |left| {
            *left -= 1;
            *left
        });
        if left == 0 {
            claims.requests.remove(&vol);
        }
    }

    async fn write(&self, rng: &mut Rng) -> Outcome {
        let Some((vol, sector, count)) = self.target(rng, true) else { return Ok(()) };
        self.write_at(vol, sector, count).await.map(drop)
    }

    async fn write_at(&self, vol: Vol, sector: u64, count: u64) -> Result<bool, Failure> {
        self.begin_request(vol);
        let done = self.client.write(vol, sector, count, &[]).await;
        self.end_request(vol);
        self.trace(|| format!("write {vol} {sector}+{count}"));
        self.answered(Asked::Write, &[vol], done)
    }

    async fn zero(&self, rng: &mut Rng) -> Outcome {
        let Some((vol, sector, count)) = self.target(rng, true) else { return Ok(()) };
        self.begin_request(vol);
        let zeroes = rng.one_in(2);
        let done = self.client.zero(vol, sector, count, zeroes).await;
        self.end_request(vol);
        self.trace(|| format!("zero {vol} {sector}+{count}"));
        // Parts of blocks are written.
        let whole = sector % BLOCK == 0 && count % BLOCK == 0;
        self.answered(if whole { Asked::Request } else { Asked::Write }, &[vol], done).map(drop)
    }

    /// Reads during all other work, and judges the contents.
    async fn read(&self, rng: &mut Rng) -> Outcome {
        let Some((vol, sector, count)) = self.target(rng, false) else { return Ok(()) };
        self.begin_request(vol);
        let began = self.client.oracle.lock().tick();
        let found = self.client.look(vol, sector, count).await;
        self.end_request(vol);
        let found = match found {
            Ok(found) => found,
            Err(e) => return self.answered(Asked::Request, &[vol], Err(e)).map(drop),
        };
        let oracle = self.client.oracle.lock();
        match oracle.volumes.get(&vol) {
            Some(volume) if volume.life == Life::Here => {
                oracle.judge(vol, sector, &found, Since::Read(began)).map_err(Failure::Wrong)
            }
            _ => Ok(()),
        }
    }

    async fn flush(&self, rng: &mut Rng) -> Outcome {
        let Some((vol, ..)) = self.target(rng, false) else { return Ok(()) };
        let done = self.client.flush(vol).await;
        self.answered(Asked::Request, &[vol], done).map(drop)
    }

    /// Writes until no space is free.
    async fn fill(&self, rng: &mut Rng) -> Outcome {
        let mut misses = 0;
        for _ in 0..400 {
            let Some((vol, _, _)) = self.target(rng, true) else { return Ok(()) };
            let sectors = self.client.oracle.lock().volumes[&vol].sectors();
            let sector = rng.below(sectors) / BLOCK * BLOCK;
            let count = (BLOCK * rng.range(8, 64)).min(sectors - sector);
            misses += u64::from(!self.write_at(vol, sector, count).await?);
            if self.stopped() {
                return Ok(());
            }
            let free = self.client.group.info().available_blocks;
            if misses > 2 || free == 0 {
                self.count("groups filled up");
                return Ok(());
            }
        }
        Ok(())
    }

    // ---- commands -------------------------------------------------------------------------------------------

    /// Volumes without a command, claimed for one. `closed`: they take no requests until the command has ended.
    async fn claim(&self, vols: &[Vol], closed: bool) -> bool {
        {
            let mut claims = self.claims.lock();
            if vols.is_empty() || vols.iter().any(|vol| claims.commands.contains(vol)) {
                return false;
            }
            claims.commands.extend(vols);
            if closed {
                claims.closed.extend(vols);
            }
        }
        for _ in 0..PATIENCE.0 {
            if !closed || vols.iter().all(|vol| !self.claims.lock().requests.contains_key(vol)) {
                return true;
            }
            self.handle.sleep(PATIENCE.1).await;
        }
        self.release(vols);
        false
    }

    fn release(&self, vols: &[Vol]) {
        let mut claims = self.claims.lock();
        for vol in vols {
            claims.commands.remove(vol);
            claims.closed.remove(vol);
        }
    }

    /// Releases volumes after a command. If its outcome is unknown, as after a failed flush, the oracle knows what this
    /// command may have left. So no other command uses these volumes.
    fn release_after<T>(&self, vols: &[Vol], done: &Result<T, Error>) {
        if is_known(done) {
            return self.release(vols);
        }
        let mut claims = self.claims.lock();
        for vol in vols {
            claims.closed.remove(vol);
        }
    }

    fn some(&self, rng: &mut Rng, most: u64) -> Vec<Vol> {
        let vols = self.client.oracle.lock().readable();
        let mut some: Vec<Vol> = Vec::new();
        for _ in 0..rng.range(1, most) {
            let which = rng.bits();
            if let Some(&vol) = vols.get((which % vols.len().max(1) as u64) as usize)
                && !some.contains(&vol)
            {
                some.push(vol);
            }
        }
        some
    }

    async fn create(&self, rng: &mut Rng) -> Outcome {
        let spec = VolumeSpec {
            kind: *rng.pick(&[VolumeKind::Thick, VolumeKind::Thin, VolumeKind::Thin]),
            blocks: rng.range(16, 384),
            chunk_blocks: 1 << rng.below(6),
            full: policy(rng),
        };
        if self.client.group.volume_count() >= MOST_VOLUMES {
            return Ok(());
        }
        let done = self.client.create(spec).await;
        if let Ok(vol) = done {
            self.trace(|| format!("volume {vol}: {spec:?}"));
        }
        self.answered(Asked::Space, &[], done.map(drop)).map(drop)
    }

    async fn snapshot(&self, rng: &mut Rng, most: u64) -> Outcome {
        let origins = self.some(rng, most);
        let kind = SnapshotKind {
            read_only: rng.one_in(3),
            reserve: rng.one_in(5).then(|| rng.range(4, 64)),
            chunk_blocks: 1 << rng.below(6),
        };
        if self.client.group.volume_count() + origins.len() > MOST_VOLUMES || !self.claim(&origins, false).await {
            return Ok(());
        }
        let done = self.client.snapshot(&origins, kind).await;
        self.release(&origins);
        self.trace(|| format!("snapshot of {origins:?} {kind:?}: {done:?}"));
        self.answered(Asked::Space, &origins, done.map(drop)).map(drop)
    }

    async fn remove(&self, rng: &mut Rng, most: u64) -> Outcome {
        let vols = self.some(rng, most);
        // Other commands may be running. The group handles the requests in flight.
        if !self.claim(&vols, false).await {
            return Ok(());
        }
        self.trace(|| format!("remove {vols:?}"));
        let done = self.client.remove(&vols).await;
        self.release_after(&vols, &done);
        self.answered(Asked::NoSpace, &vols, done).map(drop)
    }

    async fn revert(&self, rng: &mut Rng) -> Outcome {
        let (which, consume) = (rng.bits(), rng.one_in(2));
        let pairs: Vec<(Vol, Vol)> = {
            let infos = self.client.group.volumes();
            let origin = |id| infos.iter().find(|info| info.id == id).map(|info| crate::client::number(info.uuid));
            let readable = self.client.oracle.lock().readable();
            let pair = infos.iter().filter_map(|info| {
                let pair = (origin(info.origin?)?, crate::client::number(info.uuid));
                (readable.contains(&pair.0) && readable.contains(&pair.1)).then_some(pair)
            });
            pair.collect()
        };
        let Some(&(target, source)) = pairs.get((which % pairs.len().max(1) as u64) as usize) else { return Ok(()) };
        if self.client.oracle.lock().volumes[&target].read_only || !self.claim(&[target, source], true).await {
            return Ok(());
        }
        self.trace(|| format!("revert {target} to {source}, consume={consume}"));
        let done = self.client.revert(target, source, consume).await;
        self.release_after(&[target, source], &done);
        self.answered(Asked::Change, &[target, source], done).map(drop)
    }

    async fn resize(&self, rng: &mut Rng) -> Outcome {
        let vols = self.some(rng, 1);
        let blocks = rng.range(8, 400);
        let Some(&vol) = vols.first() else { return Ok(()) };
        if self.client.oracle.lock().volumes[&vol].read_only || !self.claim(&vols, true).await {
            return Ok(());
        }
        self.trace(|| format!("resize {vol} to {blocks} blocks"));
        let done = self.client.resize(vol, blocks).await;
        self.release_after(&vols, &done);
        self.answered(Asked::Change, &vols, done).map(drop)
    }

    async fn rename(&self, rng: &mut Rng) -> Outcome {
        let vols = self.some(rng, 1);
        let name = format!("n{}", rng.below(1 << 40));
        if !self.claim(&vols, false).await {
            return Ok(());
        }
        let done = self.client.rename(vols[0], &name).await;
        self.release_after(&vols, &done);
        self.answered(Asked::Change, &vols, done).map(drop)
    }

    async fn reserve(&self, rng: &mut Rng) -> Outcome {
        let vols = self.some(rng, 1);
        let reserve = (!rng.one_in(3)).then(|| rng.range(1, 96));
        if !self.claim(&vols, false).await {
            return Ok(());
        }
        let id = self.client.id(vols[0])?;
        let snapshot = self.client.group.volume_info(id).is_ok_and(|info| info.origin.is_some());
        let done = match snapshot {
            true => {
                if let Some(volume) = self.client.oracle.lock().volumes.get_mut(&vols[0]) {
                    volume.may_become_invalid = true;
                }
                self.client.group.set_reserve(id, reserve).await
            }
            false => Ok(()),
        };
        self.release(&vols);
        self.answered(Asked::Change, &vols, done).map(drop)
    }

    async fn full_policy(&self, rng: &mut Rng) -> Outcome {
        let vols = self.some(rng, 1);
        let policy = policy(rng);
        let Some(&vol) = vols.first() else { return Ok(()) };
        let Ok(id) = self.client.id(vol) else { return Ok(()) };
        let done = self.client.group.set_full_policy(id, policy).await;
        self.answered(Asked::Change, &vols, done).map(drop)
    }

    /// A check reads the present disks: no physical volume joins or leaves meanwhile.
    async fn check(&self) -> Outcome {
        if self.changing_pvs.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // A disk that failed to join is in the set, but in no group.
        if self.disks.count() != self.client.group.info().pvs.len() {
            self.changing_pvs.store(false, Ordering::SeqCst);
            return Ok(());
        }
        let checked = self.client.group.check_open().await;
        self.changing_pvs.store(false, Ordering::SeqCst);
        match checked {
            Ok(report) => match report.findings.first() {
                // A copy that could not be read counts as a bad one.
                Some(_) if self.may_be_harmed() && report.repairable == report.findings.len() as u64 => Ok(()),
                None => {
                    self.count("checks beside the foreground");
                    Ok(())
                }
                Some(first) => Err(Failure::Wrong(format!("{} findings; first: {first}", report.findings.len()))),
            },
            Err(e) => self.answered(Asked::Change, &[], Err(e)).map(drop),
        }
    }

    // ---- physical volumes -----------------------------------------------------------------------------------

    /// One change of physical volumes at a time.
    fn claim_pvs(&self) -> bool {
        self.may_fill && !self.changing_pvs.swap(true, Ordering::SeqCst)
    }

    fn pvs_answered(&self, what: &'static str, done: Result<(), Error>) -> Outcome {
        self.changing_pvs.store(false, Ordering::SeqCst);
        self.trace(|| format!("{what}: {done:?}"));
        if done.is_ok() {
            self.count(what);
        }
        self.answered(Asked::Change, &[], done).map(drop)
    }

    async fn allocatable(&self, rng: &mut Rng) -> Outcome {
        if !self.claim_pvs() {
            return Ok(());
        }
        let info = self.client.group.info();
        let pv = rng.below(info.pvs.len() as u64) as usize;
        let allocatable = !info.pvs[pv].is_allocatable;
        let done = self.client.group.set_allocatable(PvIndex(pv as u16), allocatable).await;
        self.pvs_answered("physical volumes allocatable or not", done)
    }

    /// A linear volume becomes mirrored, or a mirrored one linear. New volumes are like it from then on.
    async fn convert(&self, item: Item) -> Outcome {
        if !self.claim_pvs() {
            return Ok(());
        }
        let mut rng = Rng::new(item.seed);
        let to = if rng.below(3) == 0 { SegmentType::Linear } else { SegmentType::Raid1 };
        let others =
            |info: &VolumeInfo| info.segment != to && info.segment != SegmentType::Striped && info.origin.is_none();
        let volumes: Vec<_> = self.client.group.volumes().into_iter().filter(others).collect();
        let group = &self.client.group;
        let done = match (volumes.is_empty(), to) {
            (true, _) => Err(Error::Busy("there is no volume of the other type".into())),
            (false, SegmentType::Raid1) => {
                self.become_mirrored();
                group.convert_to_mirror(rng.pick(&volumes).id, &[]).await
            }
            (false, _) => {
                let id = rng.pick(&volumes).id;
                let from = PvIndex(rng.below(group.info().pvs.len() as u64) as u16);
                let from: Vec<PvIndex> = (rng.below(2) == 0).then_some(from).into_iter().collect();
                group.convert_to_linear(id, &from).await.map(drop)
            }
        };
        match done {
            // It was removed meanwhile, lost its snapshots' space, or has no leg there.
            Err(Error::NotFound(_) | Error::InvalidSnapshot | Error::Invalid(_)) => {
                self.pvs_answered("volumes converted", Err(Error::Busy(String::new())))
            }
            done => self.pvs_answered("volumes converted", done),
        }
    }

    /// New volumes are mirrored from now on, but in a group of striped ones.
    fn become_mirrored(&self) {
        let mut oracle = self.client.oracle.lock();
        if oracle.segment != SegmentType::Striped {
            oracle.segment = SegmentType::Raid1;
        }
    }

    async fn resize_pv(&self, rng: &mut Rng) -> Outcome {
        if !self.claim_pvs() {
            return Ok(());
        }
        let count = self.client.group.info().pvs.len() as u64;
        let pv = PvIndex(rng.below(count) as u16);
        let disk = self.disks.geometry(pv).size;
        let bytes = if rng.one_in(3) { disk } else { rng.range(disk / 2, disk) };
        let done = self.client.group.resize_pv(pv, bytes).await;
        self.pvs_answered("physical volumes grown or shrunk", done)
    }

    async fn add_pv(&self, rng: &mut Rng) -> Outcome {
        let size = rng.range(4, 12) << 20;
        let number = rng.bits();
        if !self.claim_pvs() {
            return Ok(());
        }
        let count = self.client.group.info().pvs.len();
        if count >= MOST_PVS {
            self.changing_pvs.store(false, Ordering::SeqCst);
            return Ok(());
        }
        self.pvs_changed.store(true, Ordering::SeqCst);
        if self.disks.count() == count {
            self.disks.add_pv(PvGeometry { size, sector: 512 });
        }
        let mut uuid = [0xAD; 16];
        uuid[..8].copy_from_slice(&number.to_le_bytes());
        let mut done = self.client.group.add_pv(NewPv { uuid: Uuid(uuid) }).await;
        if done.is_ok() && number % 4 != 0 {
            done = self.client.group.add_second_journal(4).await.map(|is_there| {
                self.tally.lock().add_to("second copies of the journal", u64::from(is_there));
            });
        }
        self.pvs_answered("physical volumes joined", done)
    }

    async fn remove_pv(&self) -> Outcome {
        if !self.claim_pvs() {
            return Ok(());
        }
        self.pvs_changed.store(true, Ordering::SeqCst);
        let before = self.client.group.info().pvs.len();
        // A disk that failed to join is in the set, but in no group.
        let done = match self.disks.count() == before {
            true => self.client.group.remove_last_pv().await,
            false => Err(Error::Busy("a disk is in no group".into())),
        };
        if done.is_ok() {
            self.disks.remove_last_pv();
        }
        self.pvs_answered("physical volumes left", done)
    }

    /// Extents of one physical volume move to others: all, some, or those of a volume; to the end, or until the move is
    /// stopped.
    async fn move_extents(&self, rng: &mut Rng) -> Outcome {
        if !self.claim_pvs() {
            return Ok(());
        }
        let pvs = self.client.group.info().pvs;
        let from = rng.below(pvs.len() as u64) as usize;
        let mut wanted = NewMove { from: PvIndex(from as u16), extents: Vec::new(), to: Vec::new(), volume: None };
        if rng.one_in(3) && pvs[from].extents > 1 {
            let first = rng.below(pvs[from].extents - 1);
            wanted.extents.push(first..rng.range(first + 1, pvs[from].extents));
        }
        if rng.one_in(4) {
            let vols = self.client.oracle.lock().readable();
            wanted.volume = (!vols.is_empty()).then(|| *rng.pick(&vols)).and_then(|vol| self.client.id(vol).ok());
        }
        if rng.one_in(4) {
            let to = rng.below(pvs.len() as u64) as usize;
            wanted.to.push(PvExtents { pv: PvIndex(to as u16), extents: 0..pvs[to].extents });
        }
        let stops = rng.one_in(6).then(|| rng.below(20_000));
        let begun = self.client.group.start_move(wanted).await;
        let done = match begun {
            Ok(_) => {
                if let Some(pause) = stops {
                    self.handle.sleep(Duration::from_micros(pause)).await;
                    self.client.group.stop_move();
                }
                self.client.group.move_ended().await;
                let ended = self.client.group.move_progress();
                self.tally.lock().add_to("extents moved", ended.moved);
                match ended.failed {
                    None | Some(Error::Closed) => Ok(()),
                    Some(error) => Err(error),
                }
            }
            // There was nothing to move, or it is already at its target.
            Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        };
        self.pvs_answered("moves of extents", done)
    }

    // ---- the end --------------------------------------------------------------------------------------------

    /// The end of a life: all volumes are read and judged, the group is checked and closed.
    pub async fn finish_life(&self) -> Outcome {
        self.client.note_invalid()?;
        let vols = self.client.oracle.lock().readable();
        for vol in vols {
            match self.client.verify_all(vol).await {
                Ok(()) => {}
                Err(Failure::Refused(e)) => drop(self.answered(Asked::Request, &[vol], Err(e))?),
                Err(wrong) => return Err(wrong),
            }
            if self.stopped() {
                return Ok(());
            }
        }
        self.check().await?;
        let done = self.client.close().await;
        if self.answered(Asked::NoSpace, &[], done)? {
            self.count("clean closes");
        }
        Ok(())
    }

    /// Every removal works, however full the group is, and frees all blocks.
    pub async fn remove_all(&self) -> Outcome {
        loop {
            let infos = self.client.group.volumes();
            let Some(info) = infos.first() else { break };
            if info.state == VolumeState::Ok {
                self.client.verify_all(crate::client::number(info.uuid)).await.or_else(|failure| match failure {
                    Failure::Refused(Error::InvalidSnapshot) => self.client.note_invalid().map(drop),
                    failure => Err(failure),
                })?;
            }
            self.client.group.remove(&[info.id]).await?;
        }
        self.client.group.reclaim_idle().await?;
        let report = self.client.group.check_open().await?;
        if let Some(first) = report.findings.first() {
            return Err(Failure::Wrong(format!("check of the emptied group: {first}")));
        }
        let info = self.client.group.info();
        let used = info.blocks - info.free_blocks - info.pending_blocks - info.metadata_blocks;
        if used != 0 || info.reserved_blocks != 0 {
            return Err(Failure::Wrong(format!("the group is empty and {used} blocks are in use: {info:?}")));
        }
        Ok(self.client.close().await?)
    }
}

fn policy(rng: &mut Rng) -> FullPolicy {
    *rng.pick(&[FullPolicy::DropSnapshot, FullPolicy::Fail, FullPolicy::Hold])
}

fn refusal(error: &Error) -> &'static str {
    match error {
        Error::NoSpace { .. } => "refused: no space",
        Error::InvalidSnapshot => "refused: the snapshot is invalid",
        Error::NotFound(_) | Error::Closed => "refused: the volume is being removed",
        Error::Disk(_) => "refused: a disk failed",
        Error::Poisoned(_) => "refused: the group has stopped",
        Error::DiskLost(_) => "refused: the group goes on without a disk",
        Error::Corrupt { .. } => "refused: damaged metadata",
        Error::MissingPv(_) => "refused: a physical volume is lost",
        _ => "refused: in use or makes no sense",
    }
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Ok(()) => "answered".into(),
        Err(failure) => failure.to_string(),
    }
}
