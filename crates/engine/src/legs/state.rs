//! What the layer knows in memory: which requests are in flight, which regions are open, and which ranges are unsure.

use super::table::{Part, Parts, Piece, Place, Table, bytes_of, do_meet, place_of};
use super::types::{LegsState, MirroredRun, PvReport};
use crate::disk::{DiskError, DiskOpKind, PvIndex, Segments};
use crate::format::superblock::MAX_PVS;
use crate::format::tally::Tally;
use crate::planted;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::VecDeque;

const EIO: i32 = 5;
/// Places that wait to be healed, at most.
const MAX_TO_HEAL: usize = 1024;

/// A region that counts as open. Its physical volume, and its number.
pub type RegionId = (u16, u32);

/// A region whose bit is set, or about to be set.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its bit is durable.
    pub is_durable: bool,
    /// Writes in flight.
    pub writes: u32,
    /// The round in which a write began or ended last.
    pub touched: u64,
}

/// A range of first legs where the legs may differ. Its key is its physical volume and first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsure {
    pub end: u64,
    /// The leg that counts. None: nobody knows which.
    pub source: Option<usize>,
    /// It could not be copied.
    pub is_stuck: bool,
    /// Its copying waits until writes that are not tracked have ended.
    pub is_held: bool,
}

/// A write in flight, or one that waits. Those that overlap are carried out in the order in which they came.
pub type Ticket = SmallVec<[Place; 2]>;

/// The replacing of a leg that is under way, if there is one: the table says of which runs.
#[derive(Default)]
pub struct Replacing {
    /// A table that names the replacement may be on a disk.
    pub is_counted: bool,
    /// Why the replacement may lack something, and where, by the places on first legs.
    pub failed: Option<DiskError>,
    pub missed: Vec<Place>,
}

#[derive(Default)]
pub struct State {
    pub table: Table,
    pub pvs: LegsState,
    /// Physical volumes whose intents are written although they are out.
    pub returning: crate::model::PvFlags,
    pub tickets: BTreeMap<u64, Ticket>,
    pub next_ticket: u64,
    pub regions: BTreeMap<RegionId, Region>,
    pub unsure: BTreeMap<(u16, u64), Unsure>,
    /// Counts settling rounds.
    pub round: u64,
    pub is_round_due: bool,
    pub has_timer: bool,
    /// The newest tally, and those that the physical volumes have at least (ML11).
    pub tally: Tally,
    /// Mirrors are written after a pause.
    pub is_count_due: bool,
    /// A task makes a step of the tallies.
    pub is_counting: bool,
    /// Declarations in this round.
    pub declarations: u64,
    /// A task writes intents.
    pub is_writing_intents: bool,
    /// No request is carried out any more.
    pub stopped: Option<DiskError>,
    /// Bytes of reads in flight.
    pub reading: BTreeMap<u16, u64>,
    /// Where recent reads ended, and their leg.
    pub read_ends: VecDeque<(PvIndex, u64, usize)>,
    /// Places on first legs that could not be read on this leg.
    pub to_heal: VecDeque<(Place, usize)>,
    pub reports: BTreeMap<u16, PvReport>,
    /// Windows copied to physical volumes that are behind, and how many of them are flushed.
    pub copied: u64,
    pub flushed: u64,
    pub replacing: Replacing,
}

/// How a write may go on.
pub enum Turn {
    /// It is in flight from now on.
    Begun(Box<Begun>),
    /// An earlier one must end.
    Wait,
    /// These must become open.
    Declare(Vec<Piece>),
    Refused(DiskError),
}

/// A write that may be given to the disks.
#[derive(Clone, Debug, Default)]
pub struct Begun {
    pub parts: Parts,
    /// Regions in which it is counted.
    pub regions: Vec<RegionId>,
    /// Where it goes.
    pub segments: Segments,
}

pub fn eio(op: DiskOpKind, pv: PvIndex, offset: u64) -> DiskError {
    DiskError { op, pv, offset, errno: EIO }
}

impl State {
    pub fn split(&self, segments: &Segments) -> Parts {
        let mut parts = Parts::new();
        segments.iter().for_each(|segment| self.table.split(segment, &mut parts));
        parts
    }

    pub fn is_in(&self, pv: PvIndex) -> bool {
        !self.pvs.out.has(usize::from(pv.0))
    }

    /// Intents of this physical volume are written.
    pub fn has_intents(&self, pv: PvIndex) -> bool {
        self.is_in(pv) || self.returning.has(usize::from(pv.0))
    }

    /// Whether a piece has the same legs still.
    pub fn is_current(&self, piece: &Piece) -> bool {
        let place = |piece: &Piece| piece.legs.map(|leg| (leg.pv, leg.offset, leg.len));
        let mut known = 0;
        let is_same = |now: &Piece| {
            let own = piece.cut(known, now.legs[0].len);
            known += own.legs[0].len;
            place(now) == place(&own)
        };
        self.table.pieces(&piece.place()).iter().all(is_same) && known == piece.legs[0].len
    }

    /// Whether a leg has all that it should have, so that it can go on alone.
    pub fn is_whole(&self, piece: &Piece, leg: usize) -> bool {
        let pv = piece.legs[leg].pv;
        self.is_in(pv) && piece.filling != Some(leg) && !self.pvs.behind.has(usize::from(pv.0))
    }

    pub fn legs_in(&self, piece: &Piece) -> impl Iterator<Item = usize> {
        [0, 1].into_iter().filter(|leg| self.is_in(piece.legs[*leg].pv)).collect::<SmallVec<[usize; 2]>>().into_iter()
    }

    /// The source of copies in this run (ML6). None: nobody knows which.
    pub fn source_of(&self, run: &MirroredRun) -> Option<usize> {
        if let Some(filling) = run.filling {
            return Some(1 - filling);
        }
        let has = |flags: crate::model::PvFlags| run.legs.map(|leg| flags.has(usize::from(leg.pv.0)));
        match (has(self.pvs.behind), has(self.pvs.behind_longer)) {
            ([false, false | true], _) => Some(0),
            ([true, false], _) => Some(1),
            ([true, true], [false, true]) => Some(0),
            ([true, true], [true, false]) => Some(1),
            ([true, true], _) => None,
        }
    }

    /// The regions that must be open before a write to this piece (ML1).
    pub fn needed(&self, piece: &Piece) -> impl Iterator<Item = RegionId> + use<> {
        let legs = [0, 1].into_iter().filter(|leg| self.has_intents(piece.legs[*leg].pv));
        legs.flat_map(|leg| piece.regions(leg)).collect::<SmallVec<[RegionId; 4]>>().into_iter()
    }

    /// Why a request to this piece is an error (ML7).
    pub fn refusal(&self, piece: &Piece, op: DiskOpKind) -> Option<DiskError> {
        let error = |leg: usize| Some(eio(op, piece.legs[leg].pv, piece.legs[leg].offset));
        let mut legs = self.legs_in(piece);
        let Some(leg) = legs.next() else { return error(0) };
        if legs.next().is_some() {
            let unknown = self.unsure_at(&piece.place()).any(|(_, unsure)| unsure.source.is_none());
            return if unknown { error(0) } else { None };
        }
        if self.is_whole(piece, leg) || planted::is("read_from_behind") {
            return None;
        }
        let is_open = || piece.regions(leg).any(|region| self.regions.contains_key(&region));
        // The cause is the leg that is out.
        if op == DiskOpKind::Write || is_open() { error(1 - leg) } else { None }
    }

    /// How many bytes of a piece cannot be read because the one leg that is in may have missed them (ML7).
    pub fn outdated_bytes(&self, piece: &Piece) -> u64 {
        let legs: SmallVec<[usize; 2]> = self.legs_in(piece).collect();
        let [leg] = legs[..] else { return 0 };
        if self.is_whole(piece, leg) || planted::is("outdated_untold") {
            return 0;
        }
        let (from, to) = (piece.legs[leg].offset, piece.legs[leg].offset + u64::from(piece.legs[leg].len));
        let open = piece.regions(leg).filter(|region| self.regions.contains_key(region));
        open.map(|region| bytes_of(region).1).map(|bytes| bytes.end.min(to).saturating_sub(bytes.start.max(from))).sum()
    }

    /// The unsure ranges that meet a place.
    pub fn unsure_at<'a>(&'a self, place: &Place) -> impl Iterator<Item = (Place, Unsure)> + use<'a> {
        let (pv, range) = (place.0, place.1.clone());
        let before = self.unsure.range(..(pv.0, range.start)).next_back();
        let before = before.filter(|(key, unsure)| key.0 == pv.0 && unsure.end > range.start);
        let within = self.unsure.range((pv.0, range.start)..(pv.0, range.end.max(range.start)));
        before.into_iter().chain(within).map(move |(key, unsure)| ((pv, key.1..unsure.end), *unsure))
    }

    /// The legs may differ here from now on. What is unsure already keeps its source.
    pub fn set_unsure(&mut self, place: &Place, how: Unsure) {
        let known: Vec<_> = self.unsure_at(place).map(|(known, _)| known.1).collect();
        let mut at = place.1.start;
        for known in known {
            if at < known.start {
                self.unsure.insert((place.0.0, at), Unsure { end: known.start, ..how });
            }
            at = at.max(known.end);
        }
        if at < place.1.end {
            self.unsure.insert((place.0.0, at), Unsure { end: place.1.end, ..how });
        }
    }

    /// Takes the unsure ranges out of a place.
    pub fn take_unsure(&mut self, place: &Place) -> Vec<(Place, Unsure)> {
        let met: Vec<_> = self.unsure_at(place).collect();
        let mut taken = Vec::new();
        for ((pv, range), unsure) in met {
            self.unsure.remove(&(pv.0, range.start));
            if range.start < place.1.start {
                self.unsure.insert((pv.0, range.start), Unsure { end: place.1.start, ..unsure });
            }
            if range.end > place.1.end {
                self.unsure.insert((pv.0, place.1.end), Unsure { end: range.end, ..unsure });
            }
            let (from, to) = (range.start.max(place.1.start), range.end.min(place.1.end));
            taken.push(((pv, from..to), Unsure { end: to, ..unsure }));
        }
        taken
    }

    /// Whether reads of an unsure range may go to its source before it is copied: then nobody takes the other leg for whole
    /// later.
    pub fn is_read_at_source(&self, run: &Piece, unsure: &Unsure) -> bool {
        let Some(source) = unsure.source else { return false };
        unsure.is_stuck || unsure.is_held || self.pvs.is_read_only || !self.is_whole(run, 1 - source)
    }

    pub fn enter(&mut self, segments: &Segments) -> u64 {
        let id = self.next_ticket;
        self.next_ticket += 1;
        self.tickets.insert(id, segments.iter().map(place_of).collect());
        id
    }

    /// Whether it is the turn of a write (ML1, ML3). If it is, it counts as begun.
    pub fn turn(&mut self, id: u64, segments: &Segments, op: DiskOpKind) -> Turn {
        if let Some(error) = self.stopped {
            return Turn::Refused(error);
        }
        let own = &self.tickets[&id];
        let meets = |other: &Ticket| other.iter().any(|other| own.iter().any(|own| do_meet(own, other)));
        if !planted::is("overlapping_legs_pass") && self.tickets.range(..id).any(|(_, other)| meets(other)) {
            return Turn::Wait;
        }
        let parts = self.split(segments);
        let (mut begun, mut missing) = (Begun::default(), Vec::new());
        for part in &parts {
            let piece = match part {
                Part::Plain(segment) => {
                    begun.segments.push(*segment);
                    continue;
                }
                Part::Mirrored(piece) => piece,
            };
            if let Some(error) = self.refusal(piece, op).filter(|_| op != DiskOpKind::Discard) {
                return Turn::Refused(error);
            }
            let legs = self.legs_in(piece).take(if planted::is("one_leg_written") { 1 } else { 2 });
            begun.segments.extend(legs.map(|leg| piece.legs[leg]));
            begun.segments.extend(piece.replacement.filter(|_| !planted::is("replacement_not_written")));
            if op == DiskOpKind::Write {
                let needed: SmallVec<[RegionId; 4]> = self.needed(piece).collect();
                let is_open = |region: &RegionId| self.regions.get(region).is_some_and(|region| region.is_durable);
                if !needed.iter().all(is_open) {
                    missing.push(*piece);
                }
                begun.regions.extend(needed);
            }
        }
        if !missing.is_empty() {
            return Turn::Declare(missing);
        }
        let round = self.round;
        for region in &begun.regions {
            if let Some(region) = self.regions.get_mut(region) {
                (region.writes, region.touched) = (region.writes + 1, round);
            }
        }
        begun.parts = parts;
        Turn::Begun(Box::new(begun))
    }

    /// A write has ended, or is given up.
    pub fn leave(&mut self, id: u64, regions: &[RegionId]) {
        self.tickets.remove(&id);
        for region in regions {
            if let Some(region) = self.regions.get_mut(region) {
                (region.writes, region.touched) = (region.writes.saturating_sub(1), self.round);
            }
        }
    }

    /// The leg from which a piece is read: it is sure there, or read at its source.
    ///
    /// # Errors
    /// This must be copied first.
    pub fn choose(&mut self, piece: &Piece) -> Result<usize, Place> {
        let mut source = None;
        if !planted::is("unsure_read") {
            for (place, unsure) in self.unsure_at(&piece.place()) {
                let both = self.legs_in(piece).count() == 2;
                match both && !self.is_read_at_source(piece, &unsure) {
                    true => return Err(place),
                    false => source = source.or(unsure.source.filter(|_| both)),
                }
            }
        }
        if let Some(source) = source {
            return Ok(source);
        }
        let legs: SmallVec<[usize; 2]> = self.legs_in(piece).collect();
        let (pv, range) = piece.place();
        let load = |leg: &usize| self.reading.get(&piece.legs[*leg].pv.0).copied().unwrap_or(0);
        let last =
            self.read_ends.iter().position(|(of, end, leg)| *of == pv && *end == range.start && legs.contains(leg));
        let leg = match last.and_then(|at| self.read_ends.remove(at)) {
            Some((.., leg)) => leg,
            None => legs.iter().copied().min_by_key(load).unwrap_or(0),
        };
        if self.read_ends.len() >= 16 {
            self.read_ends.pop_front();
        }
        self.read_ends.push_back((pv, range.end, leg));
        Ok(leg)
    }

    /// The leg from which a piece can be read if `failed` cannot.
    pub fn other_leg(&self, piece: &Piece, failed: usize) -> Option<usize> {
        let other = 1 - failed;
        let can = self.is_in(piece.legs[other].pv) && self.unsure_at(&piece.place()).next().is_none();
        can.then_some(other)
    }

    /// Whether both legs of all runs with a leg in this region are in, and equal there as far as is known (ML4), and so is the
    /// replacement of a leg.
    pub fn can_settle(&self, region: RegionId) -> bool {
        let is_known = self.replacing.missed.is_empty();
        is_known
            && self.table.at(&bytes_of(region)).iter().all(|(_, run, place)| {
                let are_in = run.legs.iter().all(|leg| self.is_in(leg.pv)) || planted::is("bit_cleared_while_out");
                are_in && self.unsure_at(place).next().is_none()
            })
    }

    /// Whether a part of a run is unsure.
    pub fn has_unsure(&self, run: &MirroredRun) -> bool {
        let first = run.legs[0];
        self.unsure_at(&(first.pv, first.offset..first.offset + run.bytes)).next().is_some()
    }

    pub fn runs_of(&self, pv: PvIndex) -> impl Iterator<Item = &MirroredRun> {
        self.table.runs().filter(move |run| run.legs.iter().any(|leg| leg.pv == pv))
    }

    /// Whether something is being filled or caught up.
    pub fn is_catching_up(&self) -> bool {
        !self.pvs.behind.is_empty() || self.table.runs().any(|run| run.filling.is_some())
    }

    /// A leg cannot read this piece, and the other one can: it is to be written anew (ML8).
    pub fn note_unreadable(&mut self, piece: &Piece, leg: usize) {
        self.report_of(piece.legs[leg].pv).read_errors += 1;
        if self.to_heal.len() < MAX_TO_HEAL && !self.pvs.is_read_only {
            self.to_heal.push_back((piece.place(), leg));
        }
    }

    pub fn report_of(&mut self, pv: PvIndex) -> &mut PvReport {
        debug_assert!(usize::from(pv.0) < MAX_PVS);
        self.reports.entry(pv.0).or_default()
    }
}
