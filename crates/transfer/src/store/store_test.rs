//! Stores in memory: what is pushed comes back, shares what it can, and is cleaned away when nobody needs it.
//!
//! Rules SO1 to SO5; two writers, a cleaner and a reader in many interleavings are in `model_test.rs`.

use super::memory::{Client, Doing, Memory};
use super::*;
use crate::{BLOCK, Base, Event, Head, Range, StreamReader, StreamWriter, Volume};
use rowen_engine::planted::must_be_found;
use std::collections::BTreeMap;

pub const STORE: [u8; 16] = [7; 16];
pub const PLAIN: Header = Header { store: STORE, is_encrypted: false };

/// What a volume has: of each block that is not zeros a number, from which its bytes are made.
pub type Contents = BTreeMap<u64, u64>;

pub fn bytes_of(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().repeat(BLOCK as usize / 8);
    // A part of it does not compress.
    let mut state = number;
    for byte in &mut bytes[..200] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 33) as u8;
    }
    bytes
}

pub fn uuid_of(contents: &Contents, blocks: u64) -> [u8; 16] {
    let text = format!("{blocks}{contents:?}");
    blake3::hash(text.as_bytes()).as_bytes()[..16].try_into().unwrap()
}

pub fn about(name: &str, contents: &Contents, blocks: u64) -> About {
    About {
        volume: "db".into(),
        point: name.into(),
        uuid: uuid_of(contents, blocks),
        group: [9; 16],
        group_name: "vg0".into(),
        made: 1_790_000_000,
        blocks,
        sector: 512,
        thick: false,
    }
}

/// What `rowen send` writes, from a block on.
pub fn stream(old: Option<&(Contents, u64)>, new: &Contents, blocks: u64, from: u64) -> Vec<u8> {
    let head = Head { stream: [1; 16], continues: None, volumes: 1, time: 0, group: [9; 16], group_name: "vg0".into() };
    let volume = Volume {
        name: "db".into(),
        blocks,
        sector: 512,
        thick: false,
        base: old.map(|(old, blocks)| Base { point: uuid_of(old, *blocks), name: "before".into() }),
        point: uuid_of(new, blocks),
        snapshot: "now".into(),
        changed: None,
    };
    let mut writer = StreamWriter::begin(Vec::new(), &head, &[volume], true).unwrap();
    let empty = Contents::new();
    let old = old.map_or(&empty, |(old, _)| old);
    let mut keys: Vec<u64> =
        old.keys().chain(new.keys()).copied().filter(|key| *key < blocks && *key >= from).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys.into_iter().filter(|key| old.get(key) != new.get(key)) {
        match new.get(&key) {
            Some(number) => writer.data(0, &[Range { start: key, blocks: 1 }], &bytes_of(*number)).unwrap(),
            None => writer.zeros(0, key, 1).unwrap(),
        }
    }
    writer.end().unwrap()
}

/// Applies a stream to what a volume has.
pub fn apply(contents: &mut Contents, stream: &[u8]) {
    let (mut reader, _, volumes) = StreamReader::begin(stream).unwrap();
    contents.retain(|block, _| *block < volumes[0].blocks);
    loop {
        match reader.next_event().unwrap() {
            Event::Data { ranges, bytes, .. } => {
                let blocks = ranges.iter().flat_map(|range| range.start..range.start + u64::from(range.blocks));
                for (block, bytes) in blocks.zip(bytes.chunks_exact(BLOCK as usize)) {
                    let number = u64::from_le_bytes(bytes[4088..].try_into().unwrap());
                    assert!(bytes == bytes_of(number), "block {block} has bytes that nobody wrote");
                    contents.insert(block, number);
                }
            }
            Event::Zeros { start, blocks, .. } => contents.retain(|block, _| !(start..start + blocks).contains(block)),
            Event::Mark(_) => {}
            Event::End(_) => return,
        }
    }
}

pub fn open<'c>(client: &'c Client<'_>) -> Log<'c> {
    Log::open(client, PLAIN, [3; 16], || 1_790_000_000, None).unwrap()
}

pub fn push_all(
    log: &mut Log<'_>,
    name: &str,
    base: Option<(u64, &(Contents, u64))>,
    (new, blocks): (&Contents, u64),
    threads: usize,
) -> Result<Pushed, StoreError> {
    let about = about(name, new, blocks);
    let begun = begin(log, &about, base.map(|(point, _)| point), None)?;
    let bytes = stream(base.map(|(_, old)| old), new, blocks, 0);
    let (mut reader, _, _) = StreamReader::begin(&bytes[..])?;
    push(log, &about, begun, &mut reader, Ways { threads, tell: &mut |_, _| {} })
}

/// What a pull gives.
pub fn pulled(log: &Log<'_>, point: u64, since: Option<(u64, &Contents)>) -> Result<Contents, StoreError> {
    let of = &log.state.points[&point];
    let base = since.map(|(number, _)| Since { point: &log.state.points[&number], name: "there".into() });
    let how = Pull { stream: [2; 16], time: 0, from: "store".into(), continues: None, at_once: 1, tell: &mut |_| {} };
    let bytes = pull(log, of, base.as_ref(), Vec::new(), how)?;
    let mut contents = since.map_or_else(Contents::new, |(_, contents)| contents.clone());
    apply(&mut contents, &bytes);
    Ok(contents)
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Changes a volume as programs do: runs and single blocks, data and holes.
    pub fn change(&mut self, contents: &mut Contents, blocks: u64) {
        for _ in 0..1 + self.below(12) {
            let start = self.below(blocks);
            let len = 1 + if self.below(3) == 0 { self.below(700) } else { self.below(3) };
            let is_hole = self.below(4) == 0;
            for block in start..(start + len).min(blocks) {
                if is_hole {
                    contents.remove(&block);
                } else {
                    contents.insert(block, 1 + self.below(1 << 30));
                }
            }
        }
    }
}

#[test]
fn what_is_pushed_comes_back_from_every_point() {
    for seed in 0..3 {
        let memory = Memory::default();
        let client = Client::new(&memory);
        create(&client, PLAIN).unwrap();
        let mut log = open(&client);
        let mut random = Random(seed);
        let mut versions: Vec<(u64, (Contents, u64))> = Vec::new();
        let mut contents = Contents::new();
        for step in 0..10 {
            let blocks = [3000, 300_000, 200, 70_000_000][random.below(4) as usize];
            contents.retain(|block, _| *block < blocks);
            random.change(&mut contents, blocks);
            let base = match versions.len() {
                0 => None,
                many => Some(&versions[random.below(many as u64) as usize]),
            };
            let base = base.filter(|_| random.below(5) > 0).map(|(point, old)| (*point, old));
            let threads = random.below(3) as usize;
            let pushed = push_all(&mut log, &format!("p{step}"), base, (&contents, blocks), threads).unwrap();
            assert_eq!(pushed.table.data_blocks, contents.len() as u64, "seed {seed}");
            versions.push((pushed.point, (contents.clone(), blocks)));
            if random.below(3) == 0 {
                let (point, _) = versions.remove(random.below(versions.len() as u64) as usize);
                forget(&mut log, &[point]).unwrap();
                clean(&mut log, false, &mut |_, _| {}).unwrap();
            }
            // Another program knows the same.
            let other = Client::new(&memory);
            let other = open(&other);
            assert_eq!(other.state, log.state);
            for (point, (expected, _)) in &versions {
                assert!(pulled(&other, *point, None).unwrap() == *expected, "seed {seed}, point {point}");
            }
            for _ in 0..3.min(versions.len()) {
                let (old, (has, old_blocks)) = &versions[random.below(versions.len() as u64) as usize];
                let (new, (expected, new_blocks)) = &versions[random.below(versions.len() as u64) as usize];
                if old_blocks <= new_blocks {
                    assert!(
                        pulled(&other, *new, Some((*old, has))).unwrap() == *expected,
                        "seed {seed}: {old} to {new}"
                    );
                }
            }
        }
        let checked = check(&log, true, &mut |_, _| {}).unwrap();
        assert!(checked.damaged.is_empty() && checked.faults.is_empty() && checked.unused.is_empty(), "{checked:?}");
        let all: Vec<u64> = log.state.points.keys().copied().collect();
        forget(&mut log, &all).unwrap();
        clean(&mut log, false, &mut |_, _| {}).unwrap();
        let left = memory.all.lock().unwrap();
        assert!(!left.keys().any(|name| name.starts_with("d/") || name.starts_with("m/")), "{:?}", left.keys());
        assert!(memory.wrongs.lock().unwrap().is_empty());
    }
}

/// A volume with several segments, in a store with two points.
fn two_points(memory: &Memory) -> [(u64, Contents); 2] {
    let client = Client::new(memory);
    create(&client, PLAIN).unwrap();
    let mut log = open(&client);
    let old: Contents = (0..200).map(|block| (block * 3, block + 1)).collect();
    let mut new = old.clone();
    new.extend((100..180).map(|block| (block * 2, 1000 + block)));
    new.remove(&3);
    let first = push_all(&mut log, "first", None, (&old, 3000), 0).unwrap();
    let second = push_all(&mut log, "second", Some((first.point, &(old.clone(), 3000))), (&new, 3000), 0).unwrap();
    [(first.point, old), (second.point, new)]
}

/// A push that dies at each of its requests goes on where it was: no block is uploaded twice.
#[test]
fn a_push_that_was_cut_goes_on() {
    let mut dies_at = 0;
    loop {
        let memory = Memory::default();
        let [(base, old), _] = two_points(&memory);
        let new: Contents = old.iter().map(|(block, number)| (*block + 1, number + 5000)).collect();
        let uploaded = |memory: &Memory| {
            let puts = memory.puts.lock().unwrap();
            puts.keys().filter(|name| name.starts_with("d/")).count()
        };
        let before = uploaded(&memory);
        let mut requests = 0;
        let died = {
            let fate = move |_: &str, _: bool| {
                requests += 1;
                if requests > dies_at { Doing::Dies { done: dies_at % 2 == 0 } } else { Doing::Right }
            };
            let client = Client::with(&memory, Box::new(fate));
            match Log::open(&client, PLAIN, [4; 16], || 0, None) {
                Ok(mut log) => {
                    push_all(&mut log, "third", Some((base, &(old.clone(), 3000))), (&new, 3000), 0).is_err()
                }
                Err(_) => true,
            }
        };
        let client = Client::new(&memory);
        let mut log = open(&client);
        let about = about("third", &new, 3000);
        if log.state.find(&about.uuid).is_none() {
            let begun = match open_job(&log.state, &about.uuid) {
                Some(job) => take_over(&mut log, job).unwrap(),
                None => begin(&mut log, &about, Some(base), None).unwrap(),
            };
            let bytes = stream(Some(&(old.clone(), 3000)), &new, 3000, begun.from);
            let mut reader = StreamReader::begin(&bytes[..]).unwrap().0;
            push(&mut log, &about, begun, &mut reader, Ways { threads: 0, tell: &mut |_, _| {} }).unwrap();
        }
        let (point, _) = log.state.find(&about.uuid).unwrap();
        assert!(pulled(&log, point, None).unwrap() == new, "died at request {dies_at}");
        // 200 blocks are four segments of 64; written again they would be up to eight.
        let segments = uploaded(&memory) - before;
        assert!(segments <= 5, "died at request {dies_at}: {segments} segments were uploaded");
        let checked = check(&log, true, &mut |_, _| {}).unwrap();
        assert!(checked.damaged.is_empty() && checked.faults.is_empty(), "{checked:?}");
        if !died {
            return;
        }
        dies_at += 1;
        assert!(dies_at < 1000);
    }
}

/// Each byte of each object is changed, and each object is cut and left out: what comes is a sentence, or what was pushed.
fn damage(step: usize) {
    let memory = Memory::default();
    let points = two_points(&memory);
    let whole = memory.all.lock().unwrap().clone();
    for (name, bytes) in &whole {
        let places = (0..bytes.len()).step_by(if bytes.len() > 20_000 { step * 37 } else { step });
        let changed = places.map(|at| {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            Some(changed)
        });
        let cut = [None, Some(bytes[..bytes.len() / 2].to_vec()), Some(Vec::new()), Some([&bytes[..], b"x"].concat())];
        for damaged in changed.chain(cut) {
            let mut all = whole.clone();
            match damaged {
                Some(bytes) => all.insert(name.clone(), bytes),
                None => all.remove(name),
            };
            *memory.all.lock().unwrap() = all;
            let client = Client::new(&memory);
            let Ok(log) = Log::open(&client, PLAIN, [3; 16], || 0, None) else { continue };
            let known = points.iter().filter(|(point, _)| log.state.points.contains_key(point));
            for (point, contents) in known {
                match pulled(&log, *point, None) {
                    Ok(pulled) => assert!(pulled == *contents, "{name}: a point has other contents"),
                    Err(error) => assert!(error.to_string().len() > 20, "{error}"),
                }
            }
            let _sentences = check(&log, true, &mut |_, _| {});
        }
    }
}

#[test]
fn damaged_objects_are_noticed() {
    damage(31);
    must_be_found("store_sums_unread", || damage(31));
}

/// A log that is shorter than it was, or has another entry, is refused.
#[test]
fn a_store_that_went_back_in_time_is_refused() {
    let memory = Memory::default();
    let [(point, _), _] = two_points(&memory);
    let old = memory.all.lock().unwrap().clone();
    let client = Client::new(&memory);
    let mut log = open(&client);
    forget(&mut log, &[point]).unwrap();
    let seen = log.seen();
    let again = |seen| Log::open(&client, PLAIN, [3; 16], || 0, Some(seen)).map(drop);
    again(seen).unwrap();
    let other = Seen { hash: [0; 32], ..seen };
    assert!(matches!(again(other), Err(StoreError::Broken(_))));
    *memory.all.lock().unwrap() = old;
    assert!(matches!(again(seen), Err(StoreError::Broken(_))));
    // And another store, and none.
    assert!(matches!(
        Log::open(&client, Header { store: [8; 16], ..PLAIN }, [3; 16], || 0, None).map(drop),
        Err(StoreError::Refused(_))
    ));
    let encrypted = Header { is_encrypted: true, ..PLAIN };
    assert!(matches!(Log::open(&client, encrypted, [3; 16], || 0, None).map(drop), Err(StoreError::Refused(_))));
    memory.all.lock().unwrap().clear();
    assert!(matches!(again(seen), Err(StoreError::Refused(_))));
}

/// SO1: a store went back in time, and somebody who did not notice has gone on with it, past the next kept state.
fn another_history_is_refused() {
    let memory = Memory::default();
    let client = Client::new(&memory);
    create(&client, PLAIN).unwrap();
    let mut log = open(&client);
    let old = memory.all.lock().unwrap().clone();
    let add = |log: &mut Log<'_>, from: u64, to: u64| {
        for number in from..to {
            let contents = Contents::from([(number, number + 1)]);
            push_all(log, &format!("p{number}"), None, (&contents, 3000), 0).unwrap();
        }
    };
    add(&mut log, 0, 3);
    let seen = log.seen();
    *memory.all.lock().unwrap() = old;
    add(&mut open(&client), 10, 30);
    let again = Log::open(&client, PLAIN, [3; 16], || 0, Some(seen)).map(drop);
    assert!(matches!(again, Err(StoreError::Broken(_))), "{:?}", again.err());
}

#[test]
fn a_store_with_another_history_is_refused() {
    another_history_is_refused();
    must_be_found("store_past_unread", another_history_is_refused);
}

/// An opening of a store with a long log reads a kept state, and not all entries.
#[test]
fn a_long_log_is_opened_with_few_requests() {
    let memory = Memory::default();
    let client = Client::new(&memory);
    create(&client, PLAIN).unwrap();
    let mut log = open(&client);
    for number in 0..40 {
        let contents = Contents::from([(number, number + 1)]);
        push_all(&mut log, &format!("p{number}"), None, (&contents, 3000), 0).unwrap();
    }
    let requests = std::sync::Arc::new(std::sync::Mutex::new(0));
    let counted = requests.clone();
    let count = move |_: &str, _: bool| {
        *counted.lock().unwrap() += 1;
        Doing::Right
    };
    let other = Client::with(&memory, Box::new(count));
    let other = open(&other).state;
    assert_eq!(other, log.state);
    assert!(*requests.lock().unwrap() <= 20, "{} requests", requests.lock().unwrap());
}
