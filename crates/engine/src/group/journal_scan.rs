//! Reads the journal in recovery: which records there are, and which of them count.
//!
//! * J6 A sector that cannot be read counts as empty, both in the ring and in the data of a record that no marker
//!   covers: a power cut can leave such sectors where it interrupted a write. After the last frame, recovery searches
//!   the rest of the ring. A frame there with a marker above the journal's end proves that flushed records are missing.
//!   Then the group is not opened.

use super::read::{read_at, replay_corrupt, start_read, start_read_into};
use crate::disk::{Completion, DiskError, DiskOp, Disks, PageBuf, Segments, start};
use crate::error::{Error, Result};
use crate::format::journal::{Frame, FrameId, MAX_FRAME, Record, decode_frame, frame_id};
use crate::format::record::crc32c_append;
use crate::format::superblock::GroupRoot;
use crate::journal::bad_runs::distance;
use crate::placement::Placement;
use crate::planted;
use crate::units::{BLOCK_SIZE, Seq, VgBlock};
use crate::unproven::UnprovenRun;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Bytes of the journal read at once.
const SCAN: u64 = 4 << 20;
/// Blocks of data in one read to prove a record: the size of the largest request of an export.
const PROOF_BLOCKS: u64 = 256;
/// Such reads in flight together, and the most that they read, which is in memory meanwhile.
const PROOFS_IN_FLIGHT: usize = 32;
const PROOF_BLOCKS_IN_FLIGHT: u64 = 8 * PROOF_BLOCKS;

/// What the scan of the journal found.
pub(super) struct Scan {
    pub records: Vec<(Seq, Record)>,
    pub marker: Seq,
    pub next: Seq,
    /// The first record of each frame, and where the frame lies.
    pub frames: Vec<(Seq, u64)>,
}

/// The most unreadable blocks. If there are more, the disk fails, and a power cut is not the cause.
const MAX_UNREADABLE: usize = 256;

/// Reads around unreadable sectors, which become zeros.
struct PatchyReader<'a> {
    disks: &'a dyn Disks,
    placement: &'a Placement,
    /// Blocks of which a sector cannot be read, and the first error.
    unreadable: BTreeSet<u64>,
    error: Option<DiskError>,
}

impl<'a> PatchyReader<'a> {
    fn new(disks: &'a dyn Disks, placement: &'a Placement) -> Self {
        PatchyReader { disks, placement, unreadable: BTreeSet::new(), error: None }
    }

    /// Into a reused buffer of that size: new memory costs more than the read.
    async fn read_into(&mut self, buf: PageBuf, start: u64, blocks: u64) -> Result<PageBuf> {
        match start_read_into(buf, self.disks, self.placement, start, blocks).await {
            Ok(buf) => Ok(buf.expect("a read gives its buffer back")),
            Err(_) => self.read_by_block(start, blocks).await,
        }
    }

    async fn read_by_block(&mut self, start: u64, blocks: u64) -> Result<PageBuf> {
        let mut whole = PageBuf::zeroed((blocks * BLOCK_SIZE) as usize);
        for (block, bytes) in (start..).zip(whole.as_mut_slice().chunks_exact_mut(BLOCK_SIZE as usize)) {
            match read_at(self.disks, self.placement, block, 1).await {
                Ok(read) => bytes.copy_from_slice(read.as_slice()),
                Err(Error::Disk(error)) => {
                    self.error.get_or_insert(error);
                    self.unreadable.insert(block);
                    if self.unreadable.len() > MAX_UNREADABLE {
                        return Err(Error::Disk(error));
                    }
                    self.read_by_sector(block, bytes).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }

    async fn read_by_sector(&self, block: u64, bytes: &mut [u8]) {
        let (legs, _) = self.placement.legs_of(VgBlock(block));
        let sector = legs.map(|(pv, _)| self.disks.geometry(pv).sector).max().unwrap_or(512) as usize;
        for (i, bytes) in bytes.chunks_exact_mut(sector).enumerate() {
            let mut segments = Segments::new();
            let at = block * BLOCK_SIZE + (i * sector) as u64;
            self.placement.map_bytes(at, sector as u64, 0, &mut segments);
            let read = start(self.disks, DiskOp::Read { segments, buf: PageBuf::zeroed(sector) }).await;
            if let Ok(Some(read)) = read {
                bytes.copy_from_slice(&read.as_slice()[..sector]);
            }
        }
    }
}

/// One copy of the ring, read through a window.
struct RingCopy<'a> {
    reader: PatchyReader<'a>,
    root: &'a GroupRoot,
    /// Its first VG block.
    start: u64,
    tag: u64,
    window: Option<(u64, PageBuf)>,
}

impl RingCopy<'_> {
    fn bytes(&self) -> u64 {
        self.root.journal_blocks * BLOCK_SIZE
    }

    /// The ring's bytes from `at` on: at least enough for a frame, if there are that many.
    async fn from(&mut self, at: u64) -> Result<&[u8]> {
        let ring = self.bytes();
        let inside = self.window.as_ref().is_some_and(|(start, buf)| {
            let end = start + buf.capacity() as u64;
            *start <= at && (at + MAX_FRAME as u64 <= end || end == ring && at < ring)
        });
        if !inside {
            let first = self.start + at / BLOCK_SIZE;
            let bytes = SCAN.min(ring - at);
            let used = self.window.take().map(|(_, buf)| buf).filter(|buf| buf.capacity() as u64 == bytes);
            let buf = used.unwrap_or_else(|| PageBuf::zeroed(bytes as usize));
            let buf = self.reader.read_into(buf, first, bytes / BLOCK_SIZE).await?;
            self.window = Some((at, buf));
        }
        let (start, buf) = self.window.as_ref().expect("it was just filled");
        Ok(&buf.as_slice()[(at - start) as usize..])
    }

    /// The frame at `at`, if it begins with this record.
    async fn frame(&mut self, at: u64, first_seq: Seq) -> Result<Option<Frame>> {
        let id = FrameId { journal_id: self.root.journal_id, group: self.tag, position: at, first_seq };
        let frame = decode_frame(self.from(at).await?, id)?;
        Ok(frame.filter(|frame| !self.root.bad.touches(at..at + frame.bytes)))
    }

    /// The highest marker of all frames of this journal, anywhere in the ring.
    async fn highest_marker(&mut self) -> Result<Seq> {
        let mut highest = Seq(0);
        for at in (0..self.bytes()).step_by(BLOCK_SIZE as usize) {
            let (journal_id, group) = (self.root.journal_id, self.tag);
            let bytes = self.from(at).await?;
            let Some(id) =
                frame_id(bytes).filter(|id| (id.journal_id, id.group, id.position) == (journal_id, group, at))
            else {
                continue;
            };
            if let Ok(Some(frame)) = decode_frame(bytes, id) {
                highest = highest.max(frame.marker);
            }
        }
        Ok(highest)
    }
}

/// The whole copies of the ring. A frame that one copy lacks may be in another (JC1).
struct Ring<'a> {
    root: &'a GroupRoot,
    copies: Vec<RingCopy<'a>>,
    /// Why a copy is no longer read.
    failed: Option<DiskError>,
}

impl<'a> Ring<'a> {
    fn new(disks: &'a dyn Disks, placement: &'a Placement, root: &'a GroupRoot, tag: u64) -> Self {
        let copy = |start| RingCopy { reader: PatchyReader::new(disks, placement), root, start, tag, window: None };
        let number = if planted::is("second_copy_unread") { 1 } else { usize::MAX };
        Ring { root, copies: root.whole_journals().take(number).map(copy).collect(), failed: None }
    }

    fn bytes(&self) -> u64 {
        self.root.journal_blocks * BLOCK_SIZE
    }

    /// The next frame, and its place: this position or, if it did not fit there, further on (J7).
    async fn next(&mut self, position: u64, first_seq: Seq) -> Result<Option<(u64, Frame)>> {
        let ring = self.bytes();
        for at in self.root.bad.starts(position).filter(|at| *at < ring) {
            for n in (0..self.copies.len()).rev() {
                match self.copies[n].frame(at, first_seq).await {
                    Ok(Some(frame)) => return Ok(Some((at, frame))),
                    Ok(None) => {}
                    Err(error) => self.continue_without(n, error)?,
                }
            }
        }
        Ok(None)
    }

    /// The disk of one copy failed. The other copies have all acknowledged records.
    fn continue_without(&mut self, n: usize, error: Error) -> Result<()> {
        match error {
            Error::Disk(disk) if self.copies.len() > 1 => {
                self.failed.get_or_insert(disk);
                self.copies.remove(n);
                Ok(())
            }
            error => Err(error),
        }
    }

    /// The highest marker of all frames of this journal, in any copy.
    async fn highest_marker(&mut self) -> Result<Seq> {
        let mut highest = Seq(0);
        for n in (0..self.copies.len()).rev() {
            match self.copies[n].highest_marker().await {
                Ok(marker) => highest = highest.max(marker),
                Err(error) => self.continue_without(n, error)?,
            }
        }
        Ok(highest)
    }

    /// Why some of it could not be read.
    fn error(&self) -> Option<DiskError> {
        self.failed.or_else(|| self.copies.iter().find_map(|copy| copy.reader.error))
    }
}

/// Reads the journal from the checkpoint's position to its end. `looks_behind`: J6 is checked.
pub(super) async fn scan_journal(
    disks: &dyn Disks,
    placement: &Placement,
    root: &GroupRoot,
    tag: u64,
    open: &[u64],
    looks_behind: bool,
) -> Result<Scan> {
    let mut ring = Ring::new(disks, placement, root, tag);
    let open: BTreeSet<u64> = open.iter().copied().collect();
    let (marker, next) = (Seq(root.capture_seq), Seq(root.journal_seq));
    let mut scan = Scan { records: Vec::new(), marker, next, frames: Vec::new() };
    // Records that were open at the capture must be proven, unless a marker covers them.
    if let Some(first) = open.first() {
        scan.marker = Seq(*first);
    }
    let mut position = root.journal_position;
    let mut taken = 0;
    while let Some((at, frame)) = ring.next(position, scan.next).await? {
        let skipped = distance(position, at, ring.bytes());
        taken += skipped + frame.bytes;
        if taken > ring.bytes() {
            break;
        }
        scan.marker = scan.marker.max(frame.marker);
        scan.frames.push((scan.next, at));
        for record in frame.records {
            let seq = scan.next;
            scan.next = Seq(seq.0 + 1);
            // An Abort counts together with its record, which may be open in the checkpoint when the Abort is not.
            let is_about = if let Record::Abort { seq } = record { seq } else { seq };
            if seq.0 >= root.capture_seq || open.contains(&is_about.0) {
                scan.records.push((seq, record));
            }
        }
        position = (at + frame.bytes) % ring.bytes();
    }
    // A group that was closed cleanly has written no frame since.
    if !root.clean && looks_behind {
        let highest = ring.highest_marker().await?;
        nothing_lost(&scan, highest, root, &open, (position, ring.error()))?;
    }
    Ok(scan)
}

/// J6. Below the checkpoint's capture only the open records are needed. All others are in the checkpoint.
fn nothing_lost(
    scan: &Scan,
    marker: Seq,
    root: &GroupRoot,
    open: &BTreeSet<u64>,
    (end, error): (u64, Option<DiskError>),
) -> Result<()> {
    let needs_open = open.range(scan.next.0..).next().is_some_and(|first| *first < marker.0);
    if marker.0 <= scan.next.0.max(root.capture_seq) && !needs_open {
        return Ok(());
    }
    let because = error.map_or(String::new(), |error| format!(" ({error})"));
    Err(Error::Corrupt {
        what: "journal",
        place: format!("byte {end} of its ring"),
        detail: format!(
            "flushed records from {} to {} cannot be read{because}, and opening without them would undo writes; \
             attach a disk that has them, or restore the group's disks from copies of one moment",
            scan.next.0,
            marker.0 - 1
        ),
    })
}

/// Data of a record that must be compared, and how much of it was compared.
struct Proof {
    record: usize,
    start: u64,
    end: u64,
    /// The checksum that it must have.
    wanted: u32,
    /// The checksum of the data so far.
    crc: u32,
    at: u64,
}

/// A read of data for proofs, in flight.
struct ProofRead {
    start: u64,
    end: u64,
    /// Which proofs it is for.
    proofs: Range<usize>,
    read: Completion,
}

/// Decides which records count: all below the marker, and those whose data is on the disk. Aborted records do not
/// count. Consecutive writes are mostly adjacent on the disk, so adjacent data is read together. Many reads are in
/// flight at a time, because each may be slow.
///
/// Data on a physical volume that is out is not read: the record counts, and its blocks are unproven (MB7).
pub(super) async fn prove(
    disks: &dyn Disks,
    placement: &Placement,
    records: Vec<(Seq, Record)>,
    marker: Seq,
) -> Result<(Vec<(Seq, Record, bool)>, Vec<UnprovenRun>)> {
    let aborted: BTreeSet<u64> = records
        .iter()
        .filter_map(|(_, record)| if let Record::Abort { seq } = record { Some(seq.0) } else { None })
        .collect();
    let mut proven: Vec<(Seq, Record, bool)> = records
        .into_iter()
        .map(|(seq, record)| {
            let good = !aborted.contains(&seq.0);
            (seq, record, good)
        })
        .collect();
    let (mut proofs, mut unproven) = (Vec::new(), Vec::new());
    for (number, (seq, record, good)) in proven.iter().enumerate() {
        let Record::Write { extents, .. } = record else { continue };
        if !good || *seq < marker {
            continue;
        }
        for extent in extents {
            let (start, len) = (extent.vg_block.0, u64::from(extent.len));
            let end = start.checked_add(len).filter(|_| placement.holds(start, len) && len > 0);
            let end = end.ok_or_else(|| replay_corrupt("a write outside the group"))?;
            if is_any_missing(disks, placement, start, len) && !planted::is("missing_data_rejected") {
                unproven.push((number, UnprovenRun { start, len, crc: Some(extent.data_crc) }));
                continue;
            }
            proofs.push(Proof { record: number, start, end, wanted: extent.data_crc, crc: 0, at: start });
        }
    }
    proofs.sort_by_key(|proof| proof.start);
    let mut under_way: VecDeque<ProofRead> = VecDeque::new();
    let mut blocks_under_way = 0;
    let mut reader = PatchyReader::new(disks, placement);
    let mut next = 0;
    while let Some(first) = proofs.get(next) {
        let (mut at, mut end) = (first.start, first.end);
        let touching = proofs[next + 1..].iter().take_while(|proof| {
            let fits = proof.start <= end && proof.end.max(end) - at <= PROOF_BLOCKS;
            end = if fits { end.max(proof.end) } else { end };
            fits
        });
        let together = next..next + 1 + touching.count();
        next = together.end;
        // Piece by piece: a record may name any length.
        while at < end {
            let blocks = (end - at).min(PROOF_BLOCKS);
            while under_way.len() >= PROOFS_IN_FLIGHT || blocks_under_way + blocks > PROOF_BLOCKS_IN_FLIGHT {
                blocks_under_way -= settle_proofs(&mut reader, &mut under_way, &mut proofs, &mut proven).await?;
            }
            let read = start_read(disks, placement, at, blocks);
            under_way.push_back(ProofRead { start: at, end: at + blocks, proofs: together.clone(), read });
            blocks_under_way += blocks;
            at += blocks;
        }
    }
    while !under_way.is_empty() {
        settle_proofs(&mut reader, &mut under_way, &mut proofs, &mut proven).await?;
    }
    // Nothing of a record that does not count is mapped.
    let counts = |(number, run): (usize, UnprovenRun)| proven[number].2.then_some(run);
    let unproven = unproven.into_iter().filter_map(counts).collect();
    Ok((proven, unproven))
}

/// Whether any of these blocks lies on a physical volume that is missing.
pub(super) fn is_any_missing(disks: &dyn Disks, placement: &Placement, start: u64, len: u64) -> bool {
    let (mut at, end) = (start, start + len);
    while at < end {
        let (is_lost, run_end) = placement.is_lost(at, |pv| disks.is_missing(pv));
        if is_lost {
            return true;
        }
        at = run_end;
    }
    false
}

/// Waits for the oldest read, and decides the proofs that it completes. Returns how many blocks it read.
async fn settle_proofs(
    reader: &mut PatchyReader<'_>,
    under_way: &mut VecDeque<ProofRead>,
    proofs: &mut [Proof],
    proven: &mut [(Seq, Record, bool)],
) -> Result<u64> {
    let Some(ProofRead { start, end, proofs: together, read }) = under_way.pop_front() else { return Ok(0) };
    let data = match read.await {
        Ok(read) => read.expect("a read gives its buffer back"),
        Err(_) => reader.read_by_block(start, end - start).await?,
    };
    for proof in &mut proofs[together] {
        let (from, to) = (proof.at, proof.end.min(end));
        let bytes = ((from - start) * BLOCK_SIZE) as usize..((to - start) * BLOCK_SIZE) as usize;
        proof.crc = crc32c_append(proof.crc, &data.as_slice()[bytes]);
        proof.at = to;
        let is_read = reader.unreadable.range(from..to).next().is_none();
        if !is_read || to == proof.end && proof.crc != proof.wanted {
            proven[proof.record].2 = false;
        }
    }
    Ok(end - start)
}
