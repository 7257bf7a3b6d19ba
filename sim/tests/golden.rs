//! The golden image of format version 1: a volume group that was written once and is kept in `sim/tests/golden`. Every
//! later program must open, read and check it.
//!
//! It uses the whole format: two physical volumes, thick and thin volumes, writable, read-only, reserved and invalid
//! snapshots. It also has a snapshot of a snapshot, a reverted volume and a removal in progress. Its journal has
//! records that no checkpoint contains. No flush covered one of these, and its data is missing. `ROWEN_GOLDEN=write`
//! makes a missing image, for a new version. `v1.txt` lists the contents of the image; no program writes it.
//!
//! There are six more groups:
//!
//! 1. The first physical volume left (`FEATURE_GAPS`), so the journal is at its second place.
//! 2. One physical volume is not allocatable (`FEATURE_ALLOCATION`).
//! 3. The group was opened without one of its physical volumes (`FEATURE_MEMBERS`).
//! 4. The journal has two copies (`FEATURE_SECOND_JOURNAL`).
//! 5. There is a bookmark (`FEATURE_BOOKMARKS`).
//! 6. There are a striped and a mirrored volume (`FEATURE_STRIPES`, `FEATURE_MIRRORS`).

use rowen_engine::disk::{Disks, PageBuf, PvGeometry, PvIndex};
use rowen_engine::error::Error;
use rowen_engine::format::superblock::{
    COPY_OFFSETS, FEATURE_ALLOCATION, FEATURE_BOOKMARKS, FEATURE_GAPS, FEATURE_MEMBERS, FEATURE_MIRRORS,
    FEATURE_SECOND_JOURNAL, FEATURE_STRIPES, SLOTS, Superblock, VERSION,
};
use rowen_engine::group::{
    Attributes, Changed, Config, Content, FullPolicy, Group, NewGroup, NewPv, NewSnapshot, NewVolume, PvExtents,
    SegmentType, StripeLayout, Volume, VolumeKind, VolumeState, point_identity,
};
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::disk::{Image, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

fn path(version: u32, what: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}.{what}"))
}

fn config() -> Config {
    Config { cache_bytes: 256 << 10, ..Config::default() }
}

/// Each block is full of one byte. So the image stays small, and a reader sees which write made the block.
async fn fill(volume: &Volume, block: u64, blocks: u64, byte: u8) {
    let len = blocks * BLOCK_SIZE;
    let mut buf = PageBuf::zeroed(len as usize);
    buf.as_mut_slice().fill(byte);
    volume.write(block * BLOCK_SIZE, len as u32, Arc::new(buf)).await.unwrap();
}

fn new_volume(name: &str, kind: VolumeKind, blocks: u64, number: u8) -> NewVolume {
    let attributes =
        Attributes { autoactivate: true, created: 1_700_000_000, tags: vec!["golden".into()], ..Attributes::default() };
    NewVolume {
        name: name.into(),
        uuid: Uuid([number; 16]),
        kind,
        blocks,
        sector: if number % 2 == 0 { 4096 } else { 512 },
        chunk_blocks: 4,
        full: FullPolicy::DropSnapshot,
        attributes,
    }
}

async fn snapshot(
    group: &Arc<Group>,
    origin: VolumeId,
    name: &str,
    number: u8,
    reserve: Option<u64>,
    read_only: bool,
) -> VolumeId {
    let attributes =
        Attributes { skip_activation: true, created: 1_700_000_001, pool: "pool".into(), ..Attributes::default() };
    let spec = NewSnapshot {
        origin,
        name: name.into(),
        uuid: Uuid([number; 16]),
        reserve,
        read_only,
        chunk_blocks: 1,
        attributes,
    };
    group.snapshot(&[spec]).await.unwrap()[0]
}

/// Blocks of the thin volume.
const THIN: u64 = 1 << 14;
const PV: PvGeometry = PvGeometry { size: 8 << 20, sector: 512 };

/// Makes the group that this file's head describes, as the death of the program leaves it.
fn make() -> Image {
    let world = World::new(1);
    let disks = SimDisks::new(world.handle(), &[PV; 2]);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let pvs = vec![NewPv { uuid: Uuid([0xA1; 16]) }, NewPv { uuid: Uuid([0xA2; 16]) }];
        let spec =
            NewGroup { uuid: Uuid([0x60; 16]), name: "golden".into(), extent_blocks: 256, pvs, second_journal: None };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks.clone(), runtime.clone(), config()).await.unwrap();
        let gone = first_life(&group).await;
        group.close().await.unwrap();
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        second_life(&group, gone).await;
    });
    let mut image = disks.moment().killed(&mut Rng::new(1));
    let lost = lost_block(&image).expect("the last write reached the disk");
    image.write(lost.0, lost.1, &[0; BLOCK_SIZE as usize]);
    image
}

/// The contents of checkpoints.
async fn first_life(group: &Arc<Group>) -> VolumeId {
    let thick = group.create_volume(new_volume("thick", VolumeKind::Thick, 64, 1)).await.unwrap();
    let thin = group.create_volume(new_volume("thin", VolumeKind::Thin, THIN, 2)).await.unwrap();
    let (a, b) = (group.volume(thick).unwrap(), group.volume(thin).unwrap());
    fill(&a, 0, 32, 0x11).await;
    for at in 0..20 {
        fill(&b, at * 500, 1, 0x21 + at as u8).await;
    }
    snapshot(group, thick, "before", 3, None, true).await;
    fill(&a, 8, 4, 0x12).await;
    let clone = snapshot(group, thick, "clone", 4, None, false).await;
    fill(&group.volume(clone).unwrap(), 0, 2, 0x41).await;
    snapshot(group, clone, "clone-of-clone", 5, None, false).await;
    fill(&group.volume(clone).unwrap(), 1, 2, 0x42).await;
    snapshot(group, thin, "reserved", 6, Some(16), false).await;
    fill(&b, 0, 1, 0x61).await;
    let small = snapshot(group, thin, "outgrown", 7, Some(1), false).await;
    fill(&b, 500, 1, 0x62).await;
    fill(&b, 1000, 1, 0x63).await;
    assert_eq!(group.volume_info(small).unwrap().state, VolumeState::Invalid);
    let gone = snapshot(group, thick, "gone", 8, None, false).await;
    fill(&a, 20, 4, 0x13).await;
    group.reclaim_idle().await.unwrap();
    gone
}

/// The contents of the journal alone.
async fn second_life(group: &Arc<Group>, gone: VolumeId) {
    let find = |name: &str| group.find(name).unwrap();
    let (thick, thin) = (find("thick"), find("thin"));
    let (a, b) = (group.volume(thick).unwrap(), group.volume(thin).unwrap());
    fill(&a, 40, 2, 0x14).await;
    b.discard(1500 * BLOCK_SIZE, BLOCK_SIZE).await.unwrap();
    group.rename(find("clone"), "renamed").await.unwrap();
    group.resize(thin, THIN + 256).await.unwrap();
    group.create_volume(new_volume("late", VolumeKind::Thick, 16, 9)).await.unwrap();
    let kept = snapshot(group, thin, "kept", 10, None, false).await;
    fill(&b, 2000, 1, 0x64).await;
    group.revert(thin, kept, false).await.unwrap();
    fill(&group.volume(thin).unwrap(), 2500, 1, LAST_FLUSHED).await;
    group.remove(&[gone]).await.unwrap();
    a.flush().await.unwrap();
    fill(&a, 60, 1, LOST).await;
}

const LAST_FLUSHED: u8 = 0x65;
/// The write whose record is on the disk and whose data is not.
const LOST: u8 = 0x15;

fn lost_block(image: &Image) -> Option<(PvIndex, u64)> {
    let places = (0..2).map(PvIndex).flat_map(|pv| image.page_offsets(pv).into_iter().map(move |offset| (pv, offset)));
    places.into_iter().find(|&(pv, offset)| {
        let mut page = [0; BLOCK_SIZE as usize];
        image.read(pv, offset, &mut page);
        page.iter().all(|&byte| byte == LOST)
    })
}

/// The group as text: volumes, properties, counters, and each run of blocks that are full of one byte.
async fn describe(group: &Arc<Group>) -> String {
    let mut text = String::new();
    let info = group.info();
    let _ = writeln!(text, "group {} {} extent {} extents {}", info.name, info.uuid, info.extent_blocks, info.extents);
    for v in group.volumes() {
        let _ = writeln!(
            text,
            "{} id {} uuid {} {:?} {:?} blocks {} sector {} chunk {} read-only {} {:?} origin {:?} reserve {:?}",
            v.name,
            v.id,
            v.uuid,
            v.kind,
            v.state,
            v.blocks,
            v.sector,
            v.chunk_blocks,
            v.read_only,
            v.full,
            v.origin.map(|o| o.0),
            v.reserve
        );
        let a = &v.attributes;
        let _ = writeln!(
            text,
            "  auto {} skip {} active {} created {} pool {:?} tags {:?}",
            a.autoactivate, a.skip_activation, a.active, a.created, a.pool, a.tags
        );
        let _ = writeln!(text, "  referenced {} exclusive {} used {}", v.referenced, v.exclusive, v.snapshot_used);
        if v.state == VolumeState::Ok {
            contents(&group.volume(v.id).unwrap(), v.blocks, &mut text).await;
        }
    }
    text
}

async fn contents(volume: &Volume, blocks: u64, text: &mut String) {
    const STEP: u64 = 256;
    let mut run: Option<(u64, u64, u8)> = None;
    for first in (0..blocks).step_by(STEP as usize) {
        let count = STEP.min(blocks - first);
        let len = (count * BLOCK_SIZE) as u32;
        let buf = volume.read(first * BLOCK_SIZE, len, PageBuf::zeroed(len as usize)).await.unwrap();
        for (block, bytes) in (first..).zip(buf.as_slice()[..len as usize].chunks_exact(BLOCK_SIZE as usize)) {
            assert!(bytes.iter().all(|&byte| byte == bytes[0]), "block {block} is nobody's");
            run = match run {
                Some((start, end, byte)) if end == block && byte == bytes[0] => Some((start, block + 1, byte)),
                other => {
                    note(other, text);
                    Some((block, block + 1, bytes[0]))
                }
            };
        }
    }
    note(run, text);
}

fn note(run: Option<(u64, u64, u8)>, text: &mut String) {
    if let Some((start, end, byte)) = run.filter(|(.., byte)| *byte != 0) {
        let _ = writeln!(text, "  {start}+{} {byte:02x}", end - start);
    }
}

/// Opens an image and compares it with its description: read-only (which must not write), then for writing.
fn judge(image: &Image, expected: &str) {
    let world = World::new(3);
    let sim = SimDisks::with_image(world.handle(), image.clone());
    let disks: Arc<dyn Disks> = sim.clone();
    world.run(async {
        let report = Group::check(disks.clone()).await.unwrap();
        assert_eq!(report.findings, Vec::<String>::new());
        let config = Config { read_only: true, ..config() };
        let group = Group::open(disks.clone(), world.handle(), config).await.unwrap();
        let stats = group.stats();
        assert!(stats.recovered >= 9 && stats.recovery_skipped == 1, "{stats:?}");
        same(&describe(&group).await, expected, "read-only");
        assert_eq!(sim.counts().writes, 0, "it was opened to be read");
    });
    for round in ["recovered", "closed and opened again"] {
        world.run(async {
            let group = Group::open(disks.clone(), world.handle(), config()).await.unwrap();
            same(&contents_only(&describe(&group).await), &contents_only(expected), round);
            group.reclaim_idle().await.unwrap();
            assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new(), "{round}");
            let thick = group.volume(group.find("thick").unwrap()).unwrap();
            fill(&thick, 63, 1, 0x99).await;
            thick.discard(63 * BLOCK_SIZE, BLOCK_SIZE).await.unwrap();
            group.close().await.unwrap();
        });
    }
}

fn same(found: &str, expected: &str, when: &str) {
    let difference = found.lines().zip(expected.lines()).find(|(a, b)| a != b);
    assert!(found == expected, "{when}: first difference {difference:?}; all of it:\n{found}");
}

/// Without the counters, which removal in the background changes.
fn contents_only(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("  referenced")).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn the_golden_image_of_version_1_opens() {
    let text = std::fs::read_to_string(path(1, "image")).unwrap();
    assert!(text.len() <= 64 << 10, "{} bytes", text.len());
    judge(&Image::from_text(&text).unwrap(), &std::fs::read_to_string(path(1, "txt")).unwrap());
}

#[test]
fn a_group_made_today_is_like_the_golden_one() {
    assert_eq!(VERSION, 1, "a new version needs an image and a description of its own");
    let image = make();
    assert!(Image::from_text(&image.to_text()).unwrap() == image, "text keeps every byte");
    if std::env::var("ROWEN_GOLDEN").is_ok_and(|word| word == "write") && !path(1, "image").exists() {
        let head =
            "# A volume group of format version 1; sim/tests/golden.rs says what it holds and how it is written.\n";
        std::fs::write(path(1, "image"), head.to_string() + &image.to_text()).unwrap();
    }
    judge(&image, &std::fs::read_to_string(path(1, "txt")).unwrap());
}

/// A group of two physical volumes of which the first left, as the death of the program leaves it after some more
/// writes.
fn make_with_gap() -> Image {
    let world = World::new(1);
    let disks = SimDisks::new(world.handle(), &[PV; 2]);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let pvs = vec![NewPv { uuid: Uuid([0xA1; 16]) }, NewPv { uuid: Uuid([0xA2; 16]) }];
        let spec =
            NewGroup { uuid: Uuid([0x61; 16]), name: "gap".into(), extent_blocks: 256, pvs, second_journal: None };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        let mut before = Vec::new();
        for number in 0..group.info().pvs[0].free_extents {
            let volume = new_volume(&format!("before{number}"), VolumeKind::Thick, 256, 3);
            before.push(group.create_volume(volume).await.unwrap());
        }
        let kept = group.create_volume(new_volume("kept", VolumeKind::Thick, 64, 1)).await.unwrap();
        fill(&group.volume(kept).unwrap(), 0, 32, 0x11).await;
        group.remove(&before).await.unwrap();
        group.close_without(PvIndex(0)).await.unwrap();
    });
    let image = disks.moment().killed(&mut Rng::new(1)).reordered(&[1]);
    let world = World::new(2);
    let disks = SimDisks::with_image(world.handle(), image);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        let kept = group.find("kept").unwrap();
        snapshot(&group, kept, "before", 4, None, true).await;
        let kept = group.volume(kept).unwrap();
        fill(&kept, 8, 4, 0x12).await;
        kept.flush().await.unwrap();
    });
    disks.moment().killed(&mut Rng::new(1))
}

/// The features of the newest superblock.
fn features(image: &Image) -> u64 {
    let superblocks = COPY_OFFSETS.iter().flat_map(|copy| (0..SLOTS).map(move |slot| copy + slot * BLOCK_SIZE));
    let groups = superblocks.filter_map(|offset| {
        let mut block = [0; BLOCK_SIZE as usize];
        image.read(PvIndex(0), offset, &mut block);
        Superblock::decode(&block, "here").ok().flatten()?.group
    });
    groups.max_by_key(|group| group.generation).unwrap().features
}

fn judge_with_gap(image: &Image) {
    assert!(features(image) & FEATURE_GAPS != 0);
    let world = World::new(3);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image.clone());
    world.run(async {
        assert_eq!(Group::check(disks.clone()).await.unwrap().findings, Vec::<String>::new());
        let group = Group::open(disks.clone(), world.handle(), config()).await.unwrap();
        let pvs: Vec<Uuid> = group.info().pvs.iter().map(|pv| pv.uuid).collect();
        assert_eq!(pvs, [Uuid([0xA2; 16])]);
        for (name, expected) in [("kept", "  0+8 11\n  8+4 12\n  12+20 11\n"), ("before", "  0+32 11\n")] {
            let mut found = String::new();
            contents(&group.volume(group.find(name).unwrap()).unwrap(), 64, &mut found).await;
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.close().await.unwrap();
    });
}

/// A group made today, and the kept one. `ROWEN_GOLDEN=write` makes the kept one if it is missing.
fn made_and_kept(name: &str, what: &str, image: &Image) -> [Image; 2] {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("ROWEN_GOLDEN").is_ok_and(|word| word == "write") && !path.exists() {
        let head = format!("# {what}; sim/tests/golden.rs says what it holds and how it is written.\n");
        std::fs::write(&path, head + &image.to_text()).unwrap();
    }
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.len() <= 64 << 10, "{} bytes", text.len());
    [image.clone(), Image::from_text(&text).unwrap()]
}

#[test]
fn a_golden_group_with_a_gap_opens() {
    let what = "A volume group whose first physical volume left";
    made_and_kept("v1-gap.image", what, &make_with_gap()).iter().for_each(judge_with_gap);
}

/// A group of two physical volumes. The second is not allocatable, and a part of a volume lies on it. The program died
/// after some more writes.
fn make_with_unallocatable() -> Image {
    let world = World::new(1);
    let disks = SimDisks::new(world.handle(), &[PV; 2]);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let pvs = vec![NewPv { uuid: Uuid([0xA1; 16]) }, NewPv { uuid: Uuid([0xA2; 16]) }];
        let spec =
            NewGroup { uuid: Uuid([0x62; 16]), name: "barred".into(), extent_blocks: 256, pvs, second_journal: None };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        let on = [PvExtents { pv: PvIndex(1), extents: 2..3 }];
        let there = group.create_volume_on(new_volume("there", VolumeKind::Thick, 256, 3), &on).await.unwrap();
        fill(&group.volume(there).unwrap(), 0, 32, 0x11).await;
        group.set_allocatable(PvIndex(1), false).await.unwrap();
        snapshot(&group, there, "before", 4, None, true).await;
        let there = group.volume(there).unwrap();
        fill(&there, 8, 4, 0x12).await;
        there.flush().await.unwrap();
    });
    disks.moment().killed(&mut Rng::new(1))
}

fn judge_with_unallocatable(image: &Image) {
    assert!(features(image) & FEATURE_ALLOCATION != 0);
    let world = World::new(3);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image.clone());
    world.run(async {
        assert_eq!(Group::check(disks.clone()).await.unwrap().findings, Vec::<String>::new());
        let mut free = 0;
        for round in 0..2 {
            let group = Group::open(disks.clone(), world.handle(), config()).await.unwrap();
            let pvs = group.info().pvs;
            assert_eq!(pvs.iter().map(|pv| pv.is_allocatable).collect::<Vec<_>>(), [true, false]);
            assert!(pvs[1].free_blocks >= free.max(256), "{round}: nothing is taken from the second: {pvs:?}");
            free = pvs[1].free_blocks;
            let there = group.volume(group.find("there").unwrap()).unwrap();
            let mut found = String::new();
            contents(&there, 256, &mut found).await;
            let rest = ["  0+8 11\n  8+4 12\n  12+20 11\n", "  0+8 11\n  8+4 12\n  12+20 11\n  100+40 13\n"];
            assert_eq!(found, rest[round], "{round}");
            found.clear();
            contents(&group.volume(group.find("before").unwrap()).unwrap(), 256, &mut found).await;
            assert_eq!(found, "  0+32 11\n", "{round}");
            fill(&there, 100, 40, 0x13).await;
            let all = group.info().allocatable_extents;
            let refused =
                group.create_volume(new_volume("more", VolumeKind::Thick, (all + 1) * 256, 5)).await.unwrap_err();
            assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
            assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new(), "{round}");
            group.close().await.unwrap();
        }
    });
}

/// A group of three physical volumes that was opened without the third, which holds a volume. The program died after
/// some more writes.
fn make_without_one() -> Image {
    let world = World::new(1);
    let disks = SimDisks::new(world.handle(), &[PV; 3]);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let pvs = (0xA1..0xA4).map(|byte| NewPv { uuid: Uuid([byte; 16]) }).collect();
        let spec =
            NewGroup { uuid: Uuid([0x63; 16]), name: "partial".into(), extent_blocks: 256, pvs, second_journal: None };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        for (name, number, pv) in [("here", 1, 1), ("lost", 2, 2)] {
            let on = [PvExtents { pv: PvIndex(pv), extents: 2..3 }];
            let id = group.create_volume_on(new_volume(name, VolumeKind::Thick, 256, number), &on).await.unwrap();
            fill(&group.volume(id).unwrap(), 0, 32, 0x10 + number).await;
        }
        group.close().await.unwrap();
    });
    let whole = disks.moment().killed(&mut Rng::new(1));
    let mut image = whole.clone();
    image.set_size(PvIndex(2), 0);
    let world = World::new(2);
    let disks = SimDisks::with_image(world.handle(), image);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let group = Group::open_without(as_disks, runtime, config(), 0x1234_5678_9ABC_DEF0).await.unwrap();
        let here = group.volume(group.find("here").unwrap()).unwrap();
        fill(&here, 8, 4, 0x13).await;
        here.flush().await.unwrap();
    });
    // The third came back in the state in which it left.
    disks.moment().killed(&mut Rng::new(1)).with_pv_of(PvIndex(2), &whole)
}

fn judge_without_one(image: &Image) {
    assert!(features(image) & FEATURE_MEMBERS != 0);
    let world = World::new(3);
    let sim = SimDisks::with_image(world.handle(), image.clone());
    let disks: Arc<dyn Disks> = sim.clone();
    world.run(async {
        assert_eq!(Group::check(disks.clone()).await.unwrap().findings, Vec::<String>::new());
        let group = Group::open(disks.clone(), world.handle(), config()).await.unwrap();
        assert_eq!(group.out().0, 4);
        let volume = |name: &str| group.volume(group.find(name).unwrap()).unwrap();
        let mut found = String::new();
        contents(&volume("here"), 256, &mut found).await;
        assert_eq!(found, "  0+8 11\n  8+4 13\n  12+20 11\n");
        let lost = volume("lost").read(0, 4096, PageBuf::zeroed(4096)).await;
        assert!(matches!(lost, Err(Error::Disk(_))), "{lost:?}");
        group.restore_missing(PvIndex(2)).await.unwrap();
        found.clear();
        contents(&volume("lost"), 256, &mut found).await;
        assert_eq!(found, "  0+32 12\n");
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.close().await.unwrap();
    });
    assert!(features(&sim.current()) & FEATURE_MEMBERS == 0, "nothing is left to tell");
}

/// A group with its journal on both of its physical volumes. Flushed writes to blocks that a snapshot shares are in the
/// journal alone.
fn make_with_two_journals() -> Image {
    let world = World::new(1);
    let disks = SimDisks::new(world.handle(), &[PV; 2]);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let pvs = (0xB1..0xB3).map(|byte| NewPv { uuid: Uuid([byte; 16]) }).collect();
        let second_journal = Some(4);
        let spec = NewGroup { uuid: Uuid([0x64; 16]), name: "twice".into(), extent_blocks: 256, pvs, second_journal };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        let mut ids = Vec::new();
        for (name, number, pv) in [("first", 1, 0), ("second", 2, 1)] {
            let on = [PvExtents { pv: PvIndex(pv), extents: 3..4 }];
            let id = group.create_volume_on(new_volume(name, VolumeKind::Thick, 256, number), &on).await.unwrap();
            fill(&group.volume(id).unwrap(), 0, 32, 0x20 + number).await;
            ids.push(id);
        }
        group.checkpoint().await.unwrap();
        for pv in 0..2 {
            // Redirected writes go to the other one.
            group.set_allocatable(PvIndex(1 - pv), false).await.unwrap();
            let id = ids[usize::from(pv)];
            snapshot(&group, id, &format!("of{pv}"), 5 + pv as u8, None, true).await;
            let volume = group.volume(id).unwrap();
            fill(&volume, 8, 4, 0x33).await;
            volume.flush().await.unwrap();
            group.set_allocatable(PvIndex(1 - pv), true).await.unwrap();
        }
    });
    disks.moment().killed(&mut Rng::new(1))
}

fn judge_with_two_journals(image: &Image) {
    assert!(features(image) & FEATURE_SECOND_JOURNAL != 0);
    for lost in [None, Some(0), Some(1)] {
        let mut image = image.clone();
        lost.iter().for_each(|pv| image.set_size(PvIndex(*pv), 0));
        let world = World::new(3);
        let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
        world.run(async {
            let group = Group::open_without(disks.clone(), world.handle(), config(), 9).await.unwrap();
            assert_eq!(group.journal_copies(), (2, if lost.is_some() { 1 } else { 2 }));
            for (name, byte, pv) in [("first", 0x21, 0), ("second", 0x22, 1)] {
                let volume = group.volume(group.find(name).unwrap()).unwrap();
                let mut found = String::new();
                if lost != Some(pv) {
                    contents(&volume, 256, &mut found).await;
                    assert_eq!(found, format!("  0+8 {byte:x}\n  8+4 33\n  12+20 {byte:x}\n"), "{name}, {lost:?}");
                }
            }
            assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
            group.close().await.unwrap();
        });
    }
}

/// A group with a bookmark whose snapshot is gone. Later writes and discards followed.
fn make_with_a_bookmark() -> Image {
    let world = World::new(1);
    let disks = SimDisks::new(world.handle(), &[PV; 1]);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let pvs = vec![NewPv { uuid: Uuid([0xC1; 16]) }];
        let spec =
            NewGroup { uuid: Uuid([0x65; 16]), name: "marked".into(), extent_blocks: 256, pvs, second_journal: None };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        let id = group.create_volume(new_volume("marked", VolumeKind::Thin, THIN, 1)).await.unwrap();
        let volume = group.volume(id).unwrap();
        fill(&volume, 0, 100, 0x21).await;
        fill(&volume, 200, 100, 0x22).await;
        let mon = snapshot(&group, id, "mon", 5, None, true).await;
        let mark = group.bookmark(mon, "mon", Uuid([6; 16]), 1_700_000_002).await.unwrap();
        while group.empty_bookmark(mark).await.unwrap() {}
        group.remove(&[mon]).await.unwrap();
        fill(&volume, 10, 5, 0x23).await;
        group.reclaim_idle().await.unwrap();
        group.checkpoint().await.unwrap();
        volume.discard(210 * BLOCK_SIZE, 20 * BLOCK_SIZE).await.unwrap();
        volume.flush().await.unwrap();
    });
    disks.moment().killed(&mut Rng::new(1))
}

fn judge_with_a_bookmark(image: &Image) {
    assert!(features(image) & FEATURE_BOOKMARKS != 0);
    let world = World::new(3);
    let sim = SimDisks::with_image(world.handle(), image.clone());
    let disks: Arc<dyn Disks> = sim.clone();
    world.run(async {
        let group = Group::open(disks, world.handle(), config()).await.unwrap();
        let found = group.find_bookmark("mon").unwrap();
        assert_eq!((found.of, found.created, found.has_ended), (Uuid([1; 16]), 1_700_000_002, false));
        assert_eq!(found.point, point_identity(Uuid([5; 16]), THIN));
        let compared = group.compare(Some(found.id), group.find("marked").unwrap()).unwrap();
        let part = group.changed(&compared, 0, 100).await.unwrap();
        let has = |block: u64| part.ranges.iter().find(|range| range.start <= block && block < range.end());
        assert_eq!(part.ranges[0], Changed { start: 10, blocks: 5, content: Content::Data });
        assert!((210..230).all(|block| has(block).is_some_and(|range| range.content == Content::Zeros)));
        assert!((200..210).chain(0..10).chain(15..100).all(|block| has(block).is_none()), "{part:?}");
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        // Without a bookmark, an older program may open the group.
        group.remove(&[found.id]).await.unwrap();
        group.close().await.unwrap();
    });
    assert!(features(&sim.current()) & FEATURE_BOOKMARKS == 0);
}

const LAYOUT: StripeLayout = StripeLayout { columns: 2, shift: 2 };

/// A striped and a mirrored volume over two physical volumes, each with a snapshot. Blocks 0 to 39 of each were
/// written before it, and blocks 10 to 14 after it.
fn make_over_several() -> Image {
    let world = World::new(1);
    let disks = SimDisks::new(world.handle(), &[PV; 2]);
    let (as_disks, runtime) = (disks.clone() as Arc<dyn Disks>, world.handle());
    world.run(async move {
        let pvs = (1..3).map(|number| NewPv { uuid: Uuid([0xD0 + number; 16]) }).collect();
        let spec =
            NewGroup { uuid: Uuid([0x66; 16]), name: "several".into(), extent_blocks: 64, pvs, second_journal: None };
        Group::create(as_disks.clone(), spec).await.unwrap();
        let group = Group::open(as_disks, runtime, config()).await.unwrap();
        let striped = new_volume("striped", VolumeKind::Thick, 2 * 64, 1);
        let striped = group.create_striped(striped, LAYOUT, &[]).await.unwrap();
        let mirrored = new_volume("mirrored", VolumeKind::Thick, 2 * 64, 2);
        let mirrored = group.create_mirrored(mirrored, &[]).await.unwrap();
        for (id, name, number) in [(striped, "of-striped", 5), (mirrored, "of-mirrored", 6)] {
            let volume = group.volume(id).unwrap();
            fill(&volume, 0, 40, 0x30 + number).await;
            snapshot(&group, id, name, number, None, true).await;
            fill(&volume, 10, 5, 0x40 + number).await;
            volume.flush().await.unwrap();
        }
    });
    disks.moment().killed(&mut Rng::new(1))
}

fn judge_over_several(image: &Image) {
    assert_eq!(features(image) & (FEATURE_STRIPES | FEATURE_MIRRORS), FEATURE_STRIPES | FEATURE_MIRRORS);
    let world = World::new(9);
    let disks = SimDisks::with_image(world.handle(), image.clone());
    let runtime = world.handle();
    world.run(async move {
        let group = Group::open(disks as Arc<dyn Disks>, runtime, config()).await.unwrap();
        assert_eq!(group.stripe_info().unwrap().layout, LAYOUT);
        assert!(group.mirror_info().extents >= 2);
        for (name, segment, written, later) in [
            ("striped", SegmentType::Striped, 0x35, Some(0x45)),
            ("of-striped", SegmentType::Striped, 0x35, None),
            ("mirrored", SegmentType::Raid1, 0x36, Some(0x46)),
            ("of-mirrored", SegmentType::Raid1, 0x36, None),
        ] {
            let info = group.volumes().into_iter().find(|info| info.name == name).unwrap();
            assert_eq!(info.segment, segment, "{name}");
            let len = info.blocks * BLOCK_SIZE;
            let volume = group.volume(info.id).unwrap();
            let found = volume.read(0, len as u32, PageBuf::zeroed(len as usize)).await.unwrap();
            let expected = |block: u64| match block {
                10..15 => later.unwrap_or(written),
                0..40 => written,
                _ => 0,
            };
            for (block, bytes) in (0..).zip(found.as_slice().chunks(BLOCK_SIZE as usize)) {
                assert!(bytes.iter().all(|byte| *byte == expected(block)), "{name}, block {block}: {}", bytes[0]);
            }
        }
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
    });
}

#[test]
fn a_golden_group_over_several_physical_volumes_opens() {
    let what = "over several physical volumes";
    made_and_kept("v1-several.image", what, &make_over_several()).iter().for_each(judge_over_several);
}

#[test]
fn a_golden_group_with_a_bookmark_opens() {
    let what = "A volume group with a bookmark, and what changed since";
    made_and_kept("v1-bookmarks.image", what, &make_with_a_bookmark()).iter().for_each(judge_with_a_bookmark);
}

#[test]
fn a_golden_group_with_two_journals_opens() {
    let what = "A volume group over two physical volumes with its journal on both";
    made_and_kept("v1-journals.image", what, &make_with_two_journals()).iter().for_each(judge_with_two_journals);
}

#[test]
fn a_golden_group_without_a_physical_volume_opens() {
    let what = "A volume group that was opened without its third physical volume, which came back";
    made_and_kept("v1-members.image", what, &make_without_one()).iter().for_each(judge_without_one);
}

#[test]
fn a_golden_group_with_a_physical_volume_that_is_not_allocatable_opens() {
    let what = "A volume group of whose physical volumes one is not allocatable";
    made_and_kept("v1-allocation.image", what, &make_with_unallocatable()).iter().for_each(judge_with_unallocatable);
}

/// In the golden group the second physical volume's blocks follow the first one's, so the first has no room to grow.
#[test]
fn what_is_behind_it_in_an_old_group_keeps_one_from_growing() {
    let text = std::fs::read_to_string(path(1, "image")).unwrap();
    let mut image = Image::from_text(&text).unwrap();
    assert!(features(&image) & FEATURE_GAPS == 0);
    for pv in 0..2 {
        image.set_size(PvIndex(pv), 2 * PV.size);
    }
    let world = World::new(3);
    let disks: Arc<dyn Disks> = SimDisks::with_image(world.handle(), image);
    world.run(async {
        let group = Group::open(disks.clone(), world.handle(), config()).await.unwrap();
        let has = group.info().pvs[0].extents;
        assert_eq!(group.max_extents(PvIndex(0)), has);
        let refused = group.resize_pv(PvIndex(0), 2 * PV.size).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        group.resize_pv(PvIndex(1), 2 * PV.size).await.unwrap();
        let pvs = group.info().pvs;
        assert_eq!((pvs[0].extents, pvs[1].extents), (has, has + PV.size / (256 * BLOCK_SIZE)));
        group.reclaim_idle().await.unwrap();
        assert_eq!(group.check_open().await.unwrap().findings, Vec::<String>::new());
        group.close().await.unwrap();
    });
}
