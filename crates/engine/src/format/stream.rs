//! The checkpoint stream: the whole state of a group except the nodes of its trees. Each checkpoint writes a new one.
//!
//! The stream's bytes are cut into pages. Index blocks name the pages, and the superblock names the first index block.
//! `docs/format.md` has the order of the parts.

use super::codec::{Decoder, Encoder, RECORD_LIMIT};
use super::packed;
use super::record::{block_crc, on_disk, seal};
use super::superblock::{
    FEATURE_ALLOCATION, FEATURE_ATTRIBUTES, FEATURE_BOOKMARKS, FEATURE_PACKED_RUNS, FEATURE_PAIR_LENGTHS,
    FEATURE_UNPROVEN,
};
use crate::error::{Error, Result};
use crate::map::NodeRef;
use crate::model::{
    AllocPolicy, ArenaMeta, Attributes, FullPolicy, GroupAttributes, PvFlags, SegmentType, Tree, TreeKind, TreeMeta,
    VolumeKind, VolumeMeta, VolumeState, is_bookmark,
};
use crate::units::{BLOCK_SIZE, Epoch, MetaBlock, TreeId, Uuid, VolumeId};
use crate::unproven::UnprovenRun;

const INDEX_MAGIC: u64 = u64::from_le_bytes(*b"ROWENIDX");
const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"ROWENPAG");
/// Pages named by one index block.
pub const INDEX_ENTRIES: usize = 168;
/// Bytes of the stream in one page.
pub const PAGE_PAYLOAD: usize = BLOCK_SIZE as usize - PageHeader::SIZE;

on_disk! {
    /// Head of an index block; its entries follow. The next index block's copies are `next_a`, `next_b` (0: none).
    IndexHeader, 64 {
        0 => magic: u64,
        8 => crc: u32,
        12 => count: u32,
        16 => generation: u64,
        24 => self_a: u64,
        32 => self_b: u64,
        40 => next_a: u64,
        48 => next_b: u64,
        56 => group: u64,
    }
}

on_disk! {
    /// One page of the stream: the VG blocks of its two copies and its checksum.
    IndexEntry, 24 {
        0 => copy_a: u64,
        8 => copy_b: u64,
        16 => crc: u32,
        20 => reserved: u32,
    }
}

on_disk! {
    /// Head of a page of the stream.
    PageHeader, 48 {
        0 => magic: u64,
        8 => crc: u32,
        12 => len: u32,
        16 => generation: u64,
        24 => number: u64,
        32 => self_a: u64,
        40 => group: u64,
    }
}

on_disk! {
    /// Head of the stream: the group's counters, its free-space tree and how many items of each kind follow.
    StreamHeader, 192 {
        0 => epoch: u64,
        8 => next_volume: u64,
        16 => next_tree: u64,
        24 => free_blocks: u64,
        32 => free_root_addr: u64,
        40 => free_root_gen: u64,
        48 => free_root_birth: u64,
        56 => free_root_level: u64,
        64 => pairs: u64,
        72 => trees: u64,
        80 => volumes: u64,
        88 => arenas: u64,
        96 => to_free: u64,
        104 => open_records: u64,
        112 => bitmap_bytes: u64,
        120 => pvs: u64,
        128 => has_group: u64,
        136 => packed_bytes: u64,
        144 => pair_lengths: u64,
        152 => unproven: u64,
        160 => reserved: [u8; 32],
    }
}

on_disk! {
    /// The group's own properties; `tags` strings follow, then for each of `pvs` physical volumes the number of its tags and
    /// these.
    GroupRecord, 64 {
        0 => autoactivate: u8,
        1 => exported: u8,
        2 => resizeable: u8,
        3 => alloc: u8,
        4 => reserved: u32,
        8 => max_volumes: u64,
        16 => max_pvs: u64,
        24 => tags: u64,
        32 => pvs: u64,
        40 => unallocatable: u64,
        48 => reserved_tail: [u8; 16],
    }
}

on_disk! {
    /// A pair of runs that hold metadata: VG blocks of the first block of each copy.
    PairRecord, 16 {
        0 => copy_a: u64,
        8 => copy_b: u64,
    }
}

on_disk! {
    /// A head, point, or tree under removal; `dead` entries follow. A root address of all ones: an empty tree.
    TreeRecord, 128 {
        0 => id: u64,
        8 => parent: u64,
        16 => kind: u64,
        24 => epoch: u64,
        32 => birth: u64,
        40 => root_addr: u64,
        48 => root_gen: u64,
        56 => root_birth: u64,
        64 => root_level: u64,
        72 => mapped: u64,
        80 => written: u64,
        88 => own: u64,
        96 => charged: u64,
        104 => cursor: u64,
        112 => progress: u64,
        120 => dead: u64,
    }
}

on_disk! {
    /// Blocks born in an epoch that the tree's parent still maps and the tree no longer does.
    DeadRecord, 16 {
        0 => birth: u64,
        8 => blocks: u64,
    }
}

on_disk! {
    /// The fixed part of a volume; its name, pool and tags follow as strings.
    VolumeRecord, 104 {
        0 => id: u64,
        8 => uuid: [u8; 16],
        24 => head: u64,
        32 => blocks: u64,
        40 => origin: u64,
        48 => reserve: u64,
        56 => created: u64,
        64 => sector: u32,
        68 => chunk_blocks: u32,
        72 => kind: u8,
        73 => state: u8,
        74 => full: u8,
        75 => read_only: u8,
        76 => autoactivate: u8,
        77 => skip_activation: u8,
        78 => active: u8,
        79 => has_reserve: u8,
        80 => tags: u64,
        88 => merging: u8,
        89 => segment: u8,
        90 => reserved: [u8; 14],
    }
}

on_disk! {
    /// An arena: a run of VG blocks that are allocated one by one. Bit i of `used` is block `start + i`.
    ArenaRecord, 144 {
        0 => start: u64,
        8 => len: u64,
        16 => used: [u8; 128],
    }
}

on_disk! {
    /// A run of VG blocks whose data could not be compared with its record. `has_crc` 0: it never can be.
    UnprovenRecord, 24 {
        0 => start: u64,
        8 => len: u64,
        16 => crc: u32,
        20 => has_crc: u32,
    }
}

on_disk! {
    /// A run of VG blocks.
    RunRecord, 16 {
        0 => start: u64,
        8 => len: u64,
    }
}

/// The stream's contents.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub epoch: u64,
    pub next_volume: u64,
    pub next_tree: u64,
    pub free_blocks: u64,
    pub free_tree: Tree,
    /// Free blocks in the range of each physical volume.
    pub pv_free: Vec<u64>,
    pub attributes: GroupAttributes,
    pub pairs: Vec<[u64; 2]>,
    /// Blocks in each copy of each pair. Empty if every copy has one extent.
    pub pair_lengths: Vec<u64>,
    pub trees: Vec<TreeMeta>,
    pub volumes: Vec<VolumeMeta>,
    pub arenas: Vec<ArenaMeta>,
    pub to_free: Vec<(u64, u64)>,
    /// The runs to free are packed: they are in order and do not touch.
    pub packs: bool,
    pub open_records: Vec<u64>,
    pub unproven: Vec<UnprovenRun>,
    pub bitmap: Vec<u8>,
}

/// Stands for "none" where an id or address is kept.
const NONE: u64 = u64::MAX;

fn root_words(tree: &Tree) -> [u64; 4] {
    match tree.root {
        Some(root) => [root.addr.0, root.generation, root.birth.0, u64::from(tree.level)],
        None => [NONE, 0, 0, 0],
    }
}

fn root_from(words: [u64; 4], input: &Decoder<'_>) -> Result<Tree> {
    let [addr, generation, birth, level] = words;
    if addr == NONE {
        return Ok(Tree::default());
    }
    let level = u8::try_from(level).ok().filter(|level| *level < 16);
    let level = level.ok_or_else(|| input.corrupt("a tree of impossible height"))?;
    for part in [addr, generation, birth] {
        input.limited(part, "a root")?;
    }
    Ok(Tree { root: Some(NodeRef { addr: MetaBlock(addr), generation, birth: Epoch(birth) }), level })
}

fn some(id: u64) -> Option<u64> {
    (id != NONE).then_some(id)
}

fn get_strings(input: &mut Decoder<'_>, count: u64) -> Result<Vec<String>> {
    (0..input.count(count, 2)?).map(|_| input.string()).collect()
}

/// Appends a volume: its record, then name, pool and tags.
pub fn put_volume(out: &mut Encoder, v: &VolumeMeta) {
    let record = VolumeRecord {
        id: v.id.0,
        uuid: v.uuid.0,
        head: v.head.0,
        blocks: v.blocks,
        origin: v.origin.map_or(NONE, |o| o.0),
        reserve: v.reserve.unwrap_or(0),
        created: v.attributes.created,
        sector: v.sector,
        chunk_blocks: v.chunk_blocks,
        kind: match v.kind {
            VolumeKind::Thick => 0,
            VolumeKind::Thin => 1,
        },
        state: match v.state {
            VolumeState::Ok => 0,
            VolumeState::Invalid => 1,
        },
        full: match v.full {
            FullPolicy::DropSnapshot => 0,
            FullPolicy::Hold => 1,
            FullPolicy::Fail => 2,
        },
        read_only: u8::from(v.read_only),
        autoactivate: u8::from(v.attributes.autoactivate),
        skip_activation: u8::from(v.attributes.skip_activation),
        active: u8::from(v.attributes.active),
        has_reserve: u8::from(v.reserve.is_some()),
        tags: v.attributes.tags.len() as u64,
        merging: u8::from(v.attributes.merging),
        segment: v.segment as u8,
        reserved: [0; 14],
    };
    out.record(&record.encode());
    out.string(&v.name);
    out.string(&v.attributes.pool);
    v.attributes.tags.iter().for_each(|tag| out.string(tag));
}

/// Takes a volume that [`put_volume`] wrote.
pub fn get_volume(input: &mut Decoder<'_>) -> Result<VolumeMeta> {
    let r = VolumeRecord::decode(input.array()?);
    let flag = |byte: u8| match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(input.corrupt(format!("a flag of {other}"))),
    };
    let kind = if flag(r.kind)? { VolumeKind::Thin } else { VolumeKind::Thick };
    let state = if flag(r.state)? { VolumeState::Invalid } else { VolumeState::Ok };
    let full = match r.full {
        0 => FullPolicy::DropSnapshot,
        1 => FullPolicy::Hold,
        2 => FullPolicy::Fail,
        other => return Err(input.corrupt(format!("a full-policy of {other}"))),
    };
    let segment = SegmentType::ALL.get(usize::from(r.segment)).copied();
    let segment = segment.ok_or_else(|| input.corrupt(format!("a volume of type {}", r.segment)))?;
    let (read_only, has_reserve) = (flag(r.read_only)?, flag(r.has_reserve)?);
    let (autoactivate, skip_activation, active) = (flag(r.autoactivate)?, flag(r.skip_activation)?, flag(r.active)?);
    let merging = flag(r.merging)?;
    let sane = matches!(r.sector, 512 | 4096)
        && r.chunk_blocks.is_power_of_two()
        && r.chunk_blocks <= 1024
        && r.blocks < RECORD_LIMIT;
    if !sane {
        return Err(input.corrupt("a volume with impossible sizes"));
    }
    input.zero(&r.reserved)?;
    input.limited(r.id, "a volume's id")?;
    input.limited(r.reserve, "a reserve")?;
    if !(state == VolumeState::Invalid && r.head == NONE) {
        input.limited(r.head, "a head's id")?;
    }
    let name = input.string()?;
    let pool = input.string()?;
    let tags = get_strings(input, r.tags)?;
    Ok(VolumeMeta {
        id: VolumeId(r.id),
        uuid: Uuid(r.uuid),
        name,
        kind,
        segment,
        state,
        blocks: r.blocks,
        sector: r.sector,
        chunk_blocks: r.chunk_blocks,
        read_only,
        full,
        origin: some(r.origin).map(VolumeId),
        reserve: has_reserve.then_some(r.reserve),
        head: TreeId(r.head),
        attributes: Attributes { autoactivate, skip_activation, active, created: r.created, pool, tags, merging },
    })
}

fn put_tree(out: &mut Encoder, t: &TreeMeta) {
    let [root_addr, root_gen, root_birth, root_level] = root_words(&t.tree);
    let record = TreeRecord {
        id: t.id.0,
        parent: t.parent.map_or(NONE, |p| p.0),
        kind: match t.kind {
            TreeKind::Head => 0,
            TreeKind::Point => 1,
            TreeKind::Dying => 2,
        },
        epoch: t.epoch.0,
        birth: t.birth.0,
        root_addr,
        root_gen,
        root_birth,
        root_level,
        mapped: t.mapped,
        written: t.written,
        own: t.own.cast_unsigned(),
        charged: t.charged.map_or(NONE, |g| g.0),
        cursor: t.cursor,
        progress: t.progress,
        dead: t.dead.len() as u64,
    };
    out.record(&record.encode());
    for (birth, blocks) in &t.dead {
        out.record(&DeadRecord { birth: birth.0, blocks: *blocks }.encode());
    }
}

fn get_tree(input: &mut Decoder<'_>) -> Result<TreeMeta> {
    let r = TreeRecord::decode(input.array()?);
    let kind = match r.kind {
        0 => TreeKind::Head,
        1 => TreeKind::Point,
        2 => TreeKind::Dying,
        other => return Err(input.corrupt(format!("a tree of kind {other}"))),
    };
    let tree = root_from([r.root_addr, r.root_gen, r.root_birth, r.root_level], input)?;
    for part in [r.id, r.epoch, r.birth, r.mapped, r.written, r.cursor, r.progress, r.own.cast_signed().unsigned_abs()]
    {
        input.limited(part, "a tree's number")?;
    }
    let mut dead: Vec<(Epoch, u64)> = Vec::with_capacity(input.count(r.dead, DeadRecord::SIZE)?);
    for _ in 0..r.dead {
        let d = DeadRecord::decode(input.array()?);
        input.limited(d.blocks, "a count of dead blocks")?;
        if dead.last().is_some_and(|(birth, _)| birth.0 >= d.birth) {
            return Err(input.corrupt("births of dead blocks that do not rise"));
        }
        dead.push((Epoch(d.birth), d.blocks));
    }
    Ok(TreeMeta {
        id: TreeId(r.id),
        parent: some(r.parent).map(TreeId),
        kind,
        epoch: Epoch(r.epoch),
        birth: Epoch(r.birth),
        tree,
        mapped: r.mapped,
        written: r.written,
        own: r.own.cast_signed(),
        charged: some(r.charged).map(VolumeId),
        cursor: r.cursor,
        progress: r.progress,
        dead,
    })
}

fn put_group(out: &mut Encoder, group: &GroupAttributes) {
    let record = GroupRecord {
        autoactivate: u8::from(group.autoactivate),
        exported: u8::from(group.exported),
        resizeable: u8::from(group.resizeable),
        alloc: match group.alloc {
            AllocPolicy::Normal => 0,
            AllocPolicy::Contiguous => 1,
            AllocPolicy::Cling => 2,
            AllocPolicy::Anywhere => 3,
        },
        reserved: 0,
        max_volumes: group.max_volumes,
        max_pvs: group.max_pvs,
        tags: group.tags.len() as u64,
        pvs: group.pv_tags.len() as u64,
        unallocatable: group.unallocatable.0,
        reserved_tail: [0; 16],
    };
    out.record(&record.encode());
    group.tags.iter().for_each(|tag| out.string(tag));
    for tags in &group.pv_tags {
        out.u64(tags.len() as u64);
        tags.iter().for_each(|tag| out.string(tag));
    }
}

fn get_group(input: &mut Decoder<'_>) -> Result<GroupAttributes> {
    let r = GroupRecord::decode(input.array()?);
    let flag = |byte: u8| match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(input.corrupt(format!("a flag of {other}"))),
    };
    let (autoactivate, exported, resizeable) = (flag(r.autoactivate)?, flag(r.exported)?, flag(r.resizeable)?);
    let alloc = match r.alloc {
        0 => AllocPolicy::Normal,
        1 => AllocPolicy::Contiguous,
        2 => AllocPolicy::Cling,
        3 => AllocPolicy::Anywhere,
        other => return Err(input.corrupt(format!("an allocation policy of {other}"))),
    };
    input.zero(&r.reserved.to_le_bytes())?;
    input.zero(&r.reserved_tail)?;
    let tags = get_strings(input, r.tags)?;
    let mut pv_tags = Vec::with_capacity(input.count(r.pvs, 8)?);
    for _ in 0..r.pvs {
        let count = input.u64()?;
        pv_tags.push(get_strings(input, count)?);
    }
    let (max_volumes, max_pvs) = (r.max_volumes, r.max_pvs);
    let unallocatable = PvFlags(r.unallocatable);
    Ok(GroupAttributes {
        autoactivate,
        exported,
        resizeable,
        alloc,
        max_volumes,
        max_pvs,
        tags,
        pv_tags,
        unallocatable,
    })
}

impl Stream {
    fn has_group(&self) -> bool {
        self.attributes != GroupAttributes::default()
    }

    /// The incompatible features that this stream uses.
    pub fn features(&self) -> u64 {
        let uses = self.has_group() || self.volumes.iter().any(|volume| volume.attributes.merging);
        let allocates = self.attributes.unallocatable == PvFlags::default();
        let packs = self.packs && !self.to_free.is_empty();
        (if uses { FEATURE_ATTRIBUTES } else { 0 })
            | (if allocates { 0 } else { FEATURE_ALLOCATION })
            | (if packs { FEATURE_PACKED_RUNS } else { 0 })
            | (if self.unproven.is_empty() { 0 } else { FEATURE_UNPROVEN })
            | (if self.volumes.iter().any(|volume| is_bookmark(&volume.name)) { FEATURE_BOOKMARKS } else { 0 })
            | if self.pair_lengths.is_empty() { 0 } else { FEATURE_PAIR_LENGTHS }
    }

    /// The stream's bytes. The bitmap comes last, is `bitmap_bytes` long, and may be filled in later.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        let (plain, packed) = match self.packs {
            true => (&[][..], packed::pack(&self.to_free)),
            false => (&self.to_free[..], Vec::new()),
        };
        let [free_root_addr, free_root_gen, free_root_birth, free_root_level] = root_words(&self.free_tree);
        let header = StreamHeader {
            epoch: self.epoch,
            next_volume: self.next_volume,
            next_tree: self.next_tree,
            free_blocks: self.free_blocks,
            free_root_addr,
            free_root_gen,
            free_root_birth,
            free_root_level,
            pairs: self.pairs.len() as u64,
            trees: self.trees.len() as u64,
            volumes: self.volumes.len() as u64,
            arenas: self.arenas.len() as u64,
            to_free: plain.len() as u64,
            open_records: self.open_records.len() as u64,
            bitmap_bytes: self.bitmap.len() as u64,
            pvs: self.pv_free.len() as u64,
            has_group: u64::from(self.has_group()),
            packed_bytes: packed.len() as u64,
            pair_lengths: self.pair_lengths.len() as u64,
            unproven: self.unproven.len() as u64,
            reserved: [0; 32],
        };
        out.record(&header.encode());
        if self.has_group() {
            put_group(&mut out, &self.attributes);
        }
        self.pv_free.iter().for_each(|free| out.u64(*free));
        for [copy_a, copy_b] in &self.pairs {
            out.record(&PairRecord { copy_a: *copy_a, copy_b: *copy_b }.encode());
        }
        self.pair_lengths.iter().for_each(|blocks| out.u64(*blocks));
        self.trees.iter().for_each(|t| put_tree(&mut out, t));
        self.volumes.iter().for_each(|v| put_volume(&mut out, v));
        for a in &self.arenas {
            out.record(&ArenaRecord { start: a.start, len: a.len, used: a.used }.encode());
        }
        for (start, len) in plain {
            out.record(&RunRecord { start: *start, len: *len }.encode());
        }
        out.record(&packed);
        self.open_records.iter().for_each(|seq| out.u64(*seq));
        for UnprovenRun { start, len, crc } in &self.unproven {
            let (start, len, has_crc) = (*start, *len, u32::from(crc.is_some()));
            out.record(&UnprovenRecord { start, len, crc: crc.unwrap_or(0), has_crc }.encode());
        }
        out.record(&self.bitmap);
        out.bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Stream> {
        let mut input = Decoder::new("checkpoint", bytes);
        let h = StreamHeader::decode(input.array()?);
        input.zero(&h.reserved)?;
        let attributes = match h.has_group {
            0 => GroupAttributes::default(),
            1 => get_group(&mut input)?,
            other => return Err(input.corrupt(format!("a flag of {other}"))),
        };
        for part in [h.epoch, h.next_volume, h.next_tree, h.free_blocks] {
            input.limited(part, "a counter")?;
        }
        let root = [h.free_root_addr, h.free_root_gen, h.free_root_birth, h.free_root_level];
        let mut stream = Stream {
            epoch: h.epoch,
            next_volume: h.next_volume,
            next_tree: h.next_tree,
            free_blocks: h.free_blocks,
            free_tree: root_from(root, &input)?,
            attributes,
            ..Stream::default()
        };
        for _ in 0..input.count(h.pvs, 8)? {
            stream.pv_free.push(input.u64()?);
        }
        for _ in 0..input.count(h.pairs, PairRecord::SIZE)? {
            let r = PairRecord::decode(input.array()?);
            stream.pairs.push([r.copy_a, r.copy_b]);
        }
        for _ in 0..input.count(h.pair_lengths, 8)? {
            stream.pair_lengths.push(input.u64()?);
        }
        if !stream.pair_lengths.is_empty() && stream.pair_lengths.len() != stream.pairs.len() {
            return Err(input.corrupt("lengths of pairs that do not exist"));
        }
        for _ in 0..input.count(h.trees, TreeRecord::SIZE)? {
            stream.trees.push(get_tree(&mut input)?);
        }
        for _ in 0..input.count(h.volumes, VolumeRecord::SIZE)? {
            stream.volumes.push(get_volume(&mut input)?);
        }
        for _ in 0..input.count(h.arenas, ArenaRecord::SIZE)? {
            let r = ArenaRecord::decode(input.array()?);
            if r.len == 0 || r.len > 1024 {
                return Err(input.corrupt("an arena of impossible length"));
            }
            if (r.len..1024).any(|i| r.used[(i / 8) as usize] >> (i % 8) & 1 == 1) {
                return Err(input.corrupt("an arena that uses blocks past its end"));
            }
            stream.arenas.push(ArenaMeta { start: r.start, len: r.len, used: r.used });
        }
        for _ in 0..input.count(h.to_free, RunRecord::SIZE)? {
            let r = RunRecord::decode(input.array()?);
            stream.to_free.push((r.start, r.len));
        }
        if h.packed_bytes > 0 {
            let bytes = input.count(h.packed_bytes, 1)?;
            stream.to_free.append(&mut packed::unpack(Decoder::new("checkpoint", input.take(bytes)?))?);
        }
        for _ in 0..input.count(h.open_records, 8)? {
            stream.open_records.push(input.u64()?);
        }
        for _ in 0..input.count(h.unproven, UnprovenRecord::SIZE)? {
            let r = UnprovenRecord::decode(input.array()?);
            let crc = match (r.has_crc, r.crc) {
                (0, 0) => None,
                (1, crc) => Some(crc),
                _ => return Err(input.corrupt("a run that has half a checksum")),
            };
            stream.unproven.push(UnprovenRun { start: r.start, len: r.len, crc });
        }
        let bitmap = input.count(h.bitmap_bytes, 1)?;
        stream.bitmap = input.take(bitmap)?.to_vec();
        match input.remaining() {
            0 => Ok(stream),
            left => Err(input.corrupt(format!("{left} bytes left over"))),
        }
    }
}

/// One page of the stream. `addresses`: the VG blocks of its two copies.
pub fn encode_page(payload: &[u8], generation: u64, number: u64, self_a: u64, group: u64) -> Vec<u8> {
    let mut block = vec![0u8; BLOCK_SIZE as usize];
    let len = u32::try_from(payload.len()).expect("a page holds at most PAGE_PAYLOAD bytes");
    let header = PageHeader { magic: PAGE_MAGIC, crc: 0, len, generation, number, self_a, group };
    block[..PageHeader::SIZE].copy_from_slice(&header.encode());
    block[PageHeader::SIZE..PageHeader::SIZE + payload.len()].copy_from_slice(payload);
    seal(&mut block, 8);
    block
}

/// The payload of a page, if it is the expected page.
pub fn decode_page(block: &[u8], generation: u64, number: u64, entry: &IndexEntry, group: u64) -> Result<Vec<u8>> {
    let fail = |detail: &str| Error::Corrupt {
        what: "checkpoint page",
        place: format!("VG block {}", entry.copy_a),
        detail: detail.to_string(),
    };
    let header = PageHeader::decode_from(block).ok_or_else(|| fail("it is cut short"))?;
    if header.magic != PAGE_MAGIC || block_crc(block, 8) != header.crc || header.crc != entry.crc {
        return Err(fail("its checksum does not match"));
    }
    let named = (header.generation, header.number, header.self_a, header.group);
    if named != (generation, number, entry.copy_a, group) || header.len as usize > PAGE_PAYLOAD {
        return Err(fail("another page lies there"));
    }
    Ok(block[PageHeader::SIZE..PageHeader::SIZE + header.len as usize].to_vec())
}

/// The checksum that a sealed page or index block carries.
pub fn sealed_crc(block: &[u8]) -> u32 {
    u32::from_le_bytes(*block[8..12].first_chunk().expect("a block is longer than its header"))
}

/// One index block.
pub fn encode_index(entries: &[IndexEntry], generation: u64, own: [u64; 2], next: [u64; 2], group: u64) -> Vec<u8> {
    let mut block = vec![0u8; BLOCK_SIZE as usize];
    let header = IndexHeader {
        magic: INDEX_MAGIC,
        crc: 0,
        count: u32::try_from(entries.len()).expect("at most INDEX_ENTRIES"),
        generation,
        self_a: own[0],
        self_b: own[1],
        next_a: next[0],
        next_b: next[1],
        group,
    };
    block[..IndexHeader::SIZE].copy_from_slice(&header.encode());
    for (i, entry) in entries.iter().enumerate() {
        let at = IndexHeader::SIZE + i * IndexEntry::SIZE;
        block[at..at + IndexEntry::SIZE].copy_from_slice(&entry.encode());
    }
    seal(&mut block, 8);
    block
}

/// The entries of an index block and the address of the next one.
pub fn decode_index(block: &[u8], generation: u64, own: [u64; 2], group: u64) -> Result<(Vec<IndexEntry>, [u64; 2])> {
    let fail = |detail: &str| Error::Corrupt {
        what: "checkpoint index",
        place: format!("VG block {}", own[0]),
        detail: detail.to_string(),
    };
    let header = IndexHeader::decode_from(block).ok_or_else(|| fail("it is cut short"))?;
    if header.magic != INDEX_MAGIC || block_crc(block, 8) != header.crc {
        return Err(fail("its checksum does not match"));
    }
    let named = (header.generation, header.self_a, header.self_b, header.group);
    if named != (generation, own[0], own[1], group) || header.count as usize > INDEX_ENTRIES {
        return Err(fail("another index lies there"));
    }
    let entries = (0..header.count as usize)
        .map(|i| IndexEntry::decode_from(&block[IndexHeader::SIZE + i * IndexEntry::SIZE..]))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| fail("it is cut short"))?;
    if entries.iter().any(|entry| entry.reserved != 0) {
        return Err(fail("reserved bytes are not zero"));
    }
    Ok((entries, [header.next_a, header.next_b]))
}
