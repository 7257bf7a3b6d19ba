//! The oracle: every version of every sector that was ever requested, and which of them may be read.
//!
//! A version is a write (or discard) of one sector with the moments of its submission and its answer. It is
//! *superseded* by another version that began after it had ended. All rules follow from this:
//!
//! * OR1 a read returns a version that no version acknowledged before the read began supersedes;
//! * OR2 after power loss, that no version acknowledged before the last completed flush began supersedes;
//! * OR3 after the program's death, that no acknowledged version supersedes;
//! * OR4 a snapshot holds what OR1 allows to a read that lasts as long as the command, and never changes;
//! * OR5 requests marked atomic are found whole or not at all;
//! * OR6 commands in flight at the cut have left the old state or the new one.
//!
//! Moments are numbers drawn from [`Oracle::tick`]; the oracle knows no other clock.

use crate::client::BLOCK;
use crate::disk::UnknownSectors;
use crate::stamp::Found;
use rowen_engine::fixed_hash::Map;
use rowen_engine::group::SegmentType;
use rowen_engine::planted;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A volume's number in the oracle. It never changes, and the engine's UUID is made from it.
pub type Vol = u32;

#[derive(Clone, Copy, Debug)]
struct Version {
    /// The request; 0 for zeros that were there from the beginning.
    request: u64,
    /// The volume that was written. It may be a snapshot's ancestor.
    volume: Vol,
    zeros: bool,
    /// Sectors that a power cut spoiled: they hold nothing that was written.
    rubbish: bool,
    began: u64,
    ended: u64,
    /// The moment up to which a read has shown this version to be the last; 0 for never.
    settled: u64,
    acked: bool,
}

const NEVER: u64 = u64::MAX;
const BLANK: Version =
    Version { request: 0, volume: 0, zeros: true, rubbish: false, began: 0, ended: 0, settled: 0, acked: true };

impl Version {
    fn superseded_by(&self, later: &Version) -> bool {
        // A failed write may still appear when the group is opened again. No read settles it.
        let settled = self.acked && later.settled > self.began.max(self.settled);
        self.ended < later.began || (settled && self.request != later.request)
    }
    fn is(&self, at: u64, found: Found) -> bool {
        match found {
            Found::Zeros => self.zeros,
            Found::Stamp { volume, sector, version } => {
                !self.zeros && !self.rubbish && (self.request, self.volume, at) == (version, volume, sector)
            }
            Found::Rubbish => self.rubbish,
        }
    }
}

/// Which versions must have survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// A read that began at this moment (OR1).
    Read(u64),
    /// Power loss now (OR2).
    PowerLoss,
    /// The program's death now (OR3).
    Death,
}

/// One life of a volume's contents: from its creation, or a revert, or a resize, to the next.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Size in sectors.
    pub sectors: u64,
    versions: Map<u64, Vec<Version>>,
    /// Parts of requests that are found whole or not at all: (request, first sector) and number of sectors.
    atomic: BTreeMap<(u64, u64), u64>,
}

impl Contents {
    fn of(&self, sector: u64) -> &[Version] {
        self.versions.get(&sector).map_or(std::slice::from_ref(&BLANK), Vec::as_slice)
    }

    fn legal(&self, sector: u64, must: &dyn Fn(&Version) -> bool) -> impl Iterator<Item = &Version> {
        let all = self.of(sector);
        // Few versions: the quadratic search is the short one.
        let kept: Vec<bool> =
            all.iter().map(|version| !all.iter().any(|later| must(later) && version.superseded_by(later))).collect();
        all.iter().zip(kept).filter(|(_, kept)| *kept).map(|(version, _)| version)
    }

    /// The contents as a snapshot taken between `began` and now has them: any one version that is allowed.
    fn frozen(&self, began: u64) -> Contents {
        let must =
            |version: &Version| version.acked && version.ended < began && !planted::is("snapshot_of_any_version");
        let mut versions = Map::default();
        for &sector in self.versions.keys() {
            let candidates: Vec<Version> = self
                .legal(sector, &must)
                .map(|version| Version { began: 0, ended: 0, settled: 0, acked: true, ..*version })
                .collect();
            if !candidates.iter().all(|version| version.zeros) {
                versions.insert(sector, candidates);
            }
        }
        Contents { sectors: self.sectors, versions, atomic: BTreeMap::new() }
    }

    fn resized(&self, sectors: u64) -> Contents {
        let mut contents = self.clone();
        contents.sectors = sectors;
        contents.versions.retain(|&sector, _| sector < sectors);
        contents.atomic.retain(|(_, first), count| *first + *count <= sectors);
        contents
    }
}

/// Whether a volume exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its creation is in flight: it may exist after a cut.
    Coming,
    Here,
    /// Its removal is in flight.
    Going,
    Gone,
}

/// What the oracle knows about one volume.
#[derive(Clone, Debug)]
pub struct Volume {
    pub life: Life,
    pub name: String,
    /// The name that a rename in flight gives it.
    pub next_name: Option<String>,
    pub read_only: bool,
    /// The engine may declare it invalid (it has a reserve, or the group was full).
    pub may_become_invalid: bool,
    /// It was found invalid and has no contents any more.
    pub invalid: bool,
    /// For a snapshot whose command is in flight: its origin and when the command began.
    pending_of: Option<(Vol, u64)>,
    contents: Contents,
    /// The contents that a revert or resize in flight makes.
    next: Option<Contents>,
    /// For a revert in flight: its source.
    next_of: Option<Vol>,
    /// Versions acknowledged before this moment are durable.
    durable: u64,
}

impl Volume {
    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.contents.sectors
    }

    fn must(&self, since: Since) -> impl Fn(&Version) -> bool + use<> {
        let durable = self.durable;
        move |version| {
            version.acked
                && match since {
                    Since::Read(began) => version.ended < began && !planted::is("stale_read_accepted"),
                    Since::PowerLoss => version.ended < durable && !planted::is("power_loses_all"),
                    Since::Death => version.ended != NEVER && !planted::is("death_loses_all"),
                }
        }
    }
}

/// A command in flight that touches several volumes, or a volume as a whole.
#[derive(Clone, Debug)]
pub enum Command {
    Create(Vec<Vol>),
    Remove(Vec<Vol>),
    /// Target, source, and whether the source goes with it.
    Revert(Vol, Vol, bool),
    Resize(Vol),
    Rename(Vol),
}

/// All requests of a group, and their answers.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// The type of new volumes.
    pub segment: SegmentType,
    /// Some are linear nevertheless.
    pub is_mixed: bool,
    clock: u64,
    requests: u64,
    pub volumes: BTreeMap<Vol, Volume>,
    next_volume: Vol,
    /// Commands that have not been answered.
    commands: BTreeMap<u64, Command>,
    /// The group may become full: any snapshot may be dropped.
    pub may_drop: bool,
    /// Sectors, of any volume, that may hold anything: a disk lost their data.
    pub wild: UnknownSectors,
}

impl Oracle {
    /// A power cut spoiled sectors that were being written. All of these blocks may hold rubbish, because parts of
    /// blocks may be read, changed and written whole.
    pub fn spoil(&mut self) {
        for contents in self.volumes.values_mut().map(|volume| &mut volume.contents) {
            let in_flight =
                contents.versions.iter().filter(|(_, all)| all.iter().any(|version| version.ended == NEVER));
            let units: BTreeSet<u64> = in_flight.map(|(sector, _)| sector / BLOCK * BLOCK).collect();
            for sector in units.into_iter().flat_map(|first| first..first + BLOCK) {
                let rubbish =
                    Version { zeros: false, rubbish: true, began: NEVER - 1, ended: NEVER, acked: false, ..BLANK };
                contents.versions.entry(sector).or_insert_with(|| vec![BLANK]).push(rubbish);
            }
        }
    }

    /// The next moment.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Volumes that exist for certain, can be read, and are not changed by a command.
    pub fn readable(&self) -> Vec<Vol> {
        let here = |volume: &Volume| volume.life == Life::Here && !volume.invalid && volume.next.is_none();
        self.volumes.iter().filter(|(_, volume)| here(volume)).map(|(&vol, _)| vol).collect()
    }

    /// A write (or, with `zeros`, a discard) of `count` sectors begins. Returns the request's number. `atomic` are
    /// ranges (first sector, number of sectors) of it that must be found whole or not at all.
    pub fn begin_write(&mut self, vol: Vol, sector: u64, count: u64, zeros: bool, atomic: &[(u64, u64)]) -> u64 {
        self.requests += 1;
        let (request, began) = (self.requests, self.tick());
        let contents = &mut self.volume(vol).contents;
        let version = Version { request, volume: vol, zeros, began, ended: NEVER, acked: false, ..BLANK };
        for sector in sector..sector + count {
            contents.versions.entry(sector).or_insert_with(|| vec![BLANK]).push(version);
        }
        contents.atomic.extend(atomic.iter().map(|&(first, count)| ((request, first), count)));
        request
    }

    /// The write was answered. With `acked`, all of it is there. Otherwise, any part of it may be.
    pub fn end_write(&mut self, vol: Vol, sector: u64, count: u64, request: u64, acked: bool) {
        let ended = self.tick();
        let contents = &mut self.volume(vol).contents;
        if !acked {
            contents.atomic.retain(|&(of, _), _| of != request);
        }
        for sector in sector..sector + count {
            let versions = contents.versions.get_mut(&sector).into_iter().flatten();
            for version in versions.filter(|version| version.request == request) {
                (version.ended, version.acked) = (ended, acked);
            }
        }
    }

    /// A flush of `vol` that began at `began` was completed.
    pub fn flushed(&mut self, vol: Vol, began: u64) {
        let volume = self.volume(vol);
        volume.durable = volume.durable.max(began);
    }

    /// The same for every volume.
    pub fn flushed_all(&mut self, began: u64) {
        self.volumes.values_mut().for_each(|volume| volume.durable = volume.durable.max(began));
    }

    fn command(&mut self, command: Command) -> u64 {
        let began = self.tick();
        self.commands.insert(began, command);
        began
    }

    fn volume(&mut self, vol: Vol) -> &mut Volume {
        self.volumes.get_mut(&vol).expect("the oracle numbered this volume")
    }

    fn add(&mut self, contents: Contents, origin: Option<(Vol, u64)>) -> Vol {
        self.next_volume += 1;
        let vol = self.next_volume;
        let volume = Volume {
            life: Life::Coming,
            name: format!("v{vol}"),
            next_name: None,
            read_only: false,
            may_become_invalid: origin.is_some() && self.may_drop,
            invalid: false,
            pending_of: origin,
            contents,
            next: None,
            next_of: None,
            durable: 0,
        };
        self.volumes.insert(vol, volume);
        vol
    }

    /// A volume of `sectors` is being made. Returns its number and the command's.
    pub fn begin_create(&mut self, sectors: u64) -> (Vol, u64) {
        let vol = self.add(Contents { sectors, ..Contents::default() }, None);
        (vol, self.command(Command::Create(vec![vol])))
    }

    /// Snapshots of `origins` are being made in one step.
    pub fn begin_snapshot(&mut self, origins: &[Vol]) -> (Vec<Vol>, u64) {
        let began = self.tick();
        let vols: Vec<Vol> = origins
            .iter()
            .map(|&origin| {
                let sectors = self.volume(origin).contents.sectors;
                self.add(Contents { sectors, ..Contents::default() }, Some((origin, began)))
            })
            .collect();
        let command = self.command(Command::Create(vols.clone()));
        (vols, command)
    }

    /// Creation (of volumes or snapshots) was answered.
    pub fn end_create(&mut self, command: u64, done: bool) {
        let Some(Command::Create(vols)) = self.commands.remove(&command) else { return };
        for vol in vols {
            if !done {
                self.volumes.remove(&vol);
                continue;
            }
            if let Some((origin, began)) = self.volume(vol).pending_of.take() {
                let contents = self.volume(origin).contents.frozen(began);
                self.volume(vol).contents = contents;
                self.flushed(origin, began);
            }
            self.volume(vol).life = Life::Here;
        }
    }

    /// Volumes are being removed in one step.
    pub fn begin_remove(&mut self, vols: &[Vol]) -> u64 {
        vols.iter().for_each(|&vol| self.volume(vol).life = Life::Going);
        self.command(Command::Remove(vols.to_vec()))
    }

    pub fn end_remove(&mut self, command: u64, done: bool) {
        let Some(Command::Remove(vols)) = self.commands.remove(&command) else { return };
        for vol in vols {
            self.volume(vol).life = if done { Life::Gone } else { Life::Here };
            if done {
                self.volume(vol).contents = Contents::default();
            }
        }
    }

    /// `target` gets the contents of `source`. No other request on the two may be in flight.
    pub fn begin_revert(&mut self, target: Vol, source: Vol, consume: bool) -> u64 {
        let now = self.tick();
        let contents = self.volume(source).contents.frozen(now);
        self.volume(target).next = Some(contents);
        self.volume(target).next_of = Some(source);
        if consume {
            self.volume(source).life = Life::Going;
        }
        self.command(Command::Revert(target, source, consume))
    }

    pub fn end_revert(&mut self, command: u64, done: bool) {
        let Some(Command::Revert(target, source, consume)) = self.commands.remove(&command) else { return };
        let next = self.volume(target).next.take();
        self.volume(target).next_of = None;
        if let (true, Some(contents)) = (done, next) {
            self.volume(target).contents = contents;
        }
        if consume {
            self.volume(source).life = if done { Life::Gone } else { Life::Here };
        }
    }

    pub fn begin_resize(&mut self, vol: Vol, sectors: u64) -> u64 {
        let volume = self.volume(vol);
        volume.next = Some(volume.contents.resized(sectors));
        self.command(Command::Resize(vol))
    }

    pub fn end_resize(&mut self, command: u64, done: bool) {
        let Some(Command::Resize(vol)) = self.commands.remove(&command) else { return };
        let next = self.volume(vol).next.take();
        if let (true, Some(contents)) = (done, next) {
            self.volume(vol).contents = contents;
        }
    }

    pub fn begin_rename(&mut self, vol: Vol, name: &str) -> u64 {
        self.volume(vol).next_name = Some(name.to_string());
        self.command(Command::Rename(vol))
    }

    pub fn end_rename(&mut self, command: u64, done: bool) {
        let Some(Command::Rename(vol)) = self.commands.remove(&command) else { return };
        let volume = self.volume(vol);
        let name = volume.next_name.take();
        if let (true, Some(name)) = (done, name) {
            volume.name = name;
        }
    }

    /// Judges a whole volume after a crash, its size included.
    pub fn judge_whole(&self, vol: Vol, found: &[Found], since: Since) -> Result<(), String> {
        let volume = &self.volumes[&vol];
        let size = found.len() as u64;
        match &volume.next {
            _ if size == volume.contents.sectors => self.judge(vol, 0, found, since),
            Some(next) if size == next.sectors => self.judge_next(vol, 0, found, since).unwrap_or(Ok(())),
            _ => Err(format!("volume {vol} has {size} sectors, it was made with {}", volume.contents.sectors)),
        }
    }

    /// Judges contents. `found` has one entry for each sector from `first` on.
    pub fn judge(&self, vol: Vol, first: u64, found: &[Found], since: Since) -> Result<(), String> {
        let Err(old) = self.old(vol, since).judge(vol, first, found, &self.wild.lock()) else { return Ok(()) };
        match self.judge_next(vol, first, found, since) {
            Some(outcome) => outcome.map_err(|new| format!("{old}; nor as the command under way leaves it: {new}")),
            None => Err(old),
        }
    }

    /// Judges contents by the result of a command in flight. None: there is no such command.
    fn judge_next(&self, vol: Vol, first: u64, found: &[Found], since: Since) -> Option<Result<(), String>> {
        let next = self.next(vol, since)?;
        if planted::is("interrupted_command_unchecked") {
            return Some(Ok(()));
        }
        Some(next.judge(vol, first, found, &self.wild.lock()))
    }

    /// The contents of a volume that a command in flight has not changed.
    fn old(&self, vol: Vol, since: Since) -> Allowed<'_> {
        let volume = &self.volumes[&vol];
        match volume.pending_of {
            // Not answered, but there after power loss: it shares what its origin had when the command began, or later.
            // That need not be all.
            Some((origin, began)) if since == Since::PowerLoss => {
                let origin = &self.volumes[&origin];
                let must = origin.must(since);
                let must = move |version: &Version| version.ended < began && must(version);
                Allowed { contents: Cow::Borrowed(&origin.contents), must: Box::new(must) }
            }
            Some((origin, began)) => {
                let contents = self.volumes[&origin].contents.frozen(began);
                Allowed { contents: Cow::Owned(contents), must: Box::new(volume.must(since)) }
            }
            None => Allowed { contents: Cow::Borrowed(&volume.contents), must: Box::new(volume.must(since)) },
        }
    }

    /// The result of a command in flight for a volume.
    fn next(&self, vol: Vol, since: Since) -> Option<Allowed<'_>> {
        let volume = &self.volumes[&vol];
        let next = volume.next.as_ref()?;
        Some(match volume.next_of {
            // Not answered: it has what its source has after the power loss.
            Some(source) if since == Since::PowerLoss => {
                let source = &self.volumes[&source];
                Allowed { contents: Cow::Borrowed(&source.contents), must: Box::new(source.must(since)) }
            }
            _ => Allowed { contents: Cow::Borrowed(next), must: Box::new(volume.must(since)) },
        })
    }

    /// Whether the contents are those that the command in flight leaves, and not the old ones.
    pub fn is_next(&self, vol: Vol, found: &[Found], since: Since) -> bool {
        let (old, next) = self.old_and_next(vol, found, since);
        next && !old
    }

    /// Whether the contents are the old ones, and not those that the command in flight leaves.
    pub fn is_old(&self, vol: Vol, found: &[Found], since: Since) -> bool {
        let (old, next) = self.old_and_next(vol, found, since);
        old && !next
    }

    fn old_and_next(&self, vol: Vol, found: &[Found], since: Since) -> (bool, bool) {
        let volume = &self.volumes[&vol];
        let old = Allowed { contents: Cow::Borrowed(&volume.contents), must: Box::new(volume.must(since)) };
        let old = old.judge(vol, 0, found, &self.wild.lock()).is_ok();
        (old, self.judge_next(vol, 0, found, since).is_some_and(|next| next.is_ok()))
    }

    /// The versions that a sector may hold.
    fn may_hold(&self, vol: Vol, sector: u64, since: Since) -> Vec<Version> {
        let both = [Some(self.old(vol, since)), self.next(vol, since)];
        let within = both.iter().flatten().filter(|allowed| sector < allowed.contents.sectors);
        let versions = within.flat_map(|allowed| allowed.contents.legal(sector, &allowed.must));
        versions.map(|version| Version { began: 0, ended: 0, settled: 0, acked: true, ..*version }).collect()
    }

    /// Commands that were not answered.
    pub fn in_flight(&self) -> impl Iterator<Item = &Command> {
        self.commands.values()
    }

    /// A read while nothing was being written returned `found`. It shows which of the versions that overlapped in time
    /// came last, for good. Later reads and recovery must agree.
    pub fn settle(&mut self, vol: Vol, first: u64, found: &[Found]) {
        let now = self.tick();
        let wild = self.wild.clone();
        let versions = &mut self.volume(vol).contents.versions;
        for (at, &found) in found.iter().enumerate() {
            let sector = first + at as u64;
            if wild.lock().contains(&sector) {
                continue;
            }
            let Some(versions) = versions.get_mut(&sector) else { continue };
            if versions.len() < 2 {
                continue;
            }
            // Of several discards, it is one that was not superseded.
            let after = |version: &Version| versions.iter().any(|later| later.acked && version.superseded_by(later));
            let fits = versions.iter().enumerate().filter(|(_, version)| version.is(sector, found) && !after(version));
            let Some((last, _)) = fits.max_by_key(|(_, version)| (version.ended, version.began)) else { continue };
            if versions[last].began == 0 {
                // One of a snapshot's candidates. From now on it is the only one.
                let only = versions[last];
                versions.retain(|version| version.began > 0);
                versions.insert(0, only);
            } else {
                versions[last].settled = now;
            }
        }
    }

    /// Forgets versions that no crash can bring back any more. This keeps long runs short.
    pub fn prune(&mut self) {
        for volume in self.volumes.values_mut() {
            let durable = volume.durable;
            volume.contents.versions.retain(|_, versions| {
                let durable: Vec<Version> = versions.iter().filter(|v| v.acked && v.ended < durable).copied().collect();
                versions.retain(|version| !durable.iter().any(|later| version.superseded_by(later)));
                versions.len() != 1 || !versions[0].zeros
            });
            let oldest = volume.contents.versions.values().flatten().map(|v| v.request).filter(|&r| r > 0).min();
            volume.contents.atomic.retain(|&(request, _), _| oldest.is_some_and(|oldest| request >= oldest));
        }
    }

    /// After a crash, `found` is the new state. `exists` and `found` show the outcome of commands in flight.
    pub fn restart(&mut self, found: BTreeMap<Vol, (String, Vec<Found>)>) {
        self.restart_with_invalid(found, &BTreeMap::new());
    }

    /// The same. Invalid volumes have only a name.
    pub fn restart_with_invalid(
        &mut self,
        found: BTreeMap<Vol, (String, Vec<Found>)>,
        invalid: &BTreeMap<Vol, String>,
    ) {
        let all_read = |sectors: Vec<Found>| sectors.into_iter().map(Some).collect();
        let found = found.into_iter().map(|(vol, (name, sectors))| (vol, (name, all_read(sectors)))).collect();
        self.restart_without(found, invalid, Since::PowerLoss);
    }

    /// The same. Sectors that could not be read (None) may hold whatever they may hold since the crash. The next read
    /// that succeeds shows which.
    pub fn restart_without(
        &mut self,
        mut found: BTreeMap<Vol, (String, Vec<Option<Found>>)>,
        invalid: &BTreeMap<Vol, String>,
        since: Since,
    ) {
        let unread = |(vol, (_, sectors)): (&Vol, &(String, Vec<Option<Found>>))| {
            let sectors = sectors.iter().zip(0..).filter(|(found, _)| found.is_none());
            let may_hold = |(_, sector)| (sector, self.may_hold(*vol, sector, since));
            (*vol, sectors.map(may_hold).collect::<Vec<_>>())
        };
        let mut unread: BTreeMap<Vol, _> = found.iter().map(unread).collect();
        self.commands.clear();
        let now = self.tick();
        self.volumes.retain(|vol, _| found.contains_key(vol) || invalid.contains_key(vol));
        for (vol, volume) in &mut self.volumes {
            if let Some(name) = invalid.get(vol) {
                volume.invalid = true;
                found.insert(*vol, (name.clone(), Vec::new()));
            }
            let Some((name, sectors)) = found.remove(vol) else { continue };
            let mut contents = Contents { sectors: sectors.len() as u64, ..Contents::default() };
            for (sector, found) in sectors.into_iter().enumerate() {
                let only = match found {
                    None | Some(Found::Zeros) => continue,
                    Some(Found::Stamp { volume, version, .. }) => {
                        Version { request: version, volume, zeros: false, ..BLANK }
                    }
                    Some(Found::Rubbish) => Version { zeros: false, rubbish: true, ..BLANK },
                };
                contents.versions.insert(sector as u64, vec![only]);
            }
            contents.versions.extend(unread.remove(vol).into_iter().flatten());
            (volume.life, volume.pending_of, volume.next, volume.next_name) = (Life::Here, None, None, None);
            volume.next_of = None;
            (volume.name, volume.contents, volume.durable) = (name, contents, now);
        }
    }
}

/// Contents, and the versions whose superseded versions must be gone.
struct Allowed<'a> {
    contents: Cow<'a, Contents>,
    must: Box<dyn Fn(&Version) -> bool>,
}

impl Allowed<'_> {
    fn judge(&self, vol: Vol, first: u64, found: &[Found], wild: &BTreeSet<u64>) -> Result<(), String> {
        judge_contents(&self.contents, vol, first, found, &self.must, wild)
    }
}

fn judge_contents(
    contents: &Contents,
    vol: Vol,
    first: u64,
    found: &[Found],
    must: &dyn Fn(&Version) -> bool,
    wild: &BTreeSet<u64>,
) -> Result<(), String> {
    for (at, &found) in found.iter().enumerate() {
        let sector = first + at as u64;
        if contents.versions.is_empty() && found == Found::Zeros || wild.contains(&sector) {
            continue;
        }
        if !contents.legal(sector, must).any(|version| version.is(sector, found)) {
            return Err(explain(contents, vol, sector, found, must));
        }
    }
    judge_atomic(contents, vol, first, found, must, wild)
}

/// OR5.
fn judge_atomic(
    contents: &Contents,
    vol: Vol,
    first: u64,
    found: &[Found],
    must: &dyn Fn(&Version) -> bool,
    wild: &BTreeSet<u64>,
) -> Result<(), String> {
    for (&(request, start), &count) in contents.atomic.iter().filter(|_| !planted::is("torn_is_whole")) {
        let (mut old, mut new) = (None, None);
        for sector in start.max(first)..(start + count).min(first + found.len() as u64) {
            let all = if wild.contains(&sector) { &[] } else { contents.of(sector) };
            let Some(this) = all.iter().find(|version| version.request == request) else { continue };
            let matches = |version: &&Version| version.is(sector, found[(sector - first) as usize]);
            let before = |version: &Version| version.superseded_by(this);
            let at_or_after = |version: &Version| version.request == request || this.superseded_by(version);
            if contents.legal(sector, must).filter(matches).all(before) {
                old.get_or_insert(sector);
            }
            if contents.legal(sector, must).filter(matches).all(at_or_after) {
                new.get_or_insert(sector);
            }
        }
        if let (Some(old), Some(new)) = (old, new) {
            return Err(format!(
                "volume {vol}: TORN: request {request} (sectors {start}+{count}) is in sector {new} and not in sector {old}"
            ));
        }
    }
    Ok(())
}

fn explain(contents: &Contents, vol: Vol, sector: u64, found: Found, must: &dyn Fn(&Version) -> bool) -> String {
    let all = contents.of(sector);
    let legal: Vec<String> = contents.legal(sector, must).map(show).collect();
    let what = match found {
        Found::Rubbish => "RUBBISH: not one request's data".to_string(),
        Found::Zeros => "LOST: zeros".to_string(),
        Found::Stamp { volume, sector: other, version } if other != sector => {
            format!("MISPLACED: request {version} of volume {volume} for sector {other}")
        }
        Found::Stamp { version, .. } if all.iter().any(|v| v.request == version && !v.zeros) => {
            format!("LOST: request {version}, which is too old")
        }
        Found::Stamp { volume, version, .. } => {
            format!("LEAK: request {version} of volume {volume}, never written here")
        }
    };
    if std::env::var_os("ROWEN_TRACE").is_some() {
        eprintln!("volume {vol} sector {sector}: {found:?} of {all:#?}");
    }
    format!("volume {vol} sector {sector}: {what}; allowed: {}", legal.join(" or "))
}

fn show(version: &Version) -> String {
    match version {
        Version { rubbish: true, .. } => "rubbish of a power cut".into(),
        Version { zeros: true, request, .. } => format!("zeros of request {request}"),
        Version { request, .. } => format!("request {request}"),
    }
}
