//! SO6.

use super::*;
use crate::planted::must_be_found;
use std::sync::Arc;

/// Objects in memory. Several clients may have them.
#[derive(Clone, Default)]
pub struct Memory(pub Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Objects for Memory {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<Created, Trouble> {
        let mut all = self.0.lock().unwrap();
        if all.contains_key(name) {
            return Ok(Created::Exists);
        }
        all.insert(name.into(), bytes.into());
        Ok(Created::New)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Trouble> {
        self.0.lock().unwrap().insert(name.into(), bytes.into());
        Ok(())
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>, Trouble> {
        let all = self.0.lock().unwrap();
        let Some(bytes) = all.get(name) else { return Ok(None) };
        let range = range.unwrap_or(0..u64::MAX);
        let end = (bytes.len() as u64).min(range.end);
        Ok(Some(bytes.get(range.start as usize..end as usize).unwrap_or_default().to_vec()))
    }

    fn delete(&self, name: &str) -> Result<(), Trouble> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble> {
        let all = self.0.lock().unwrap();
        let found = all.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(found.map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect())
    }

    fn pause(&self, _attempt: u32) {}
}

const KEY: StoreKey = [7; 32];

fn with_key(memory: &Memory, key: StoreKey) -> Encrypted {
    Encrypted::new(Box::new(memory.clone()), key)
}

/// Sizes around those at which an object gets another chunk.
const SIZES: [usize; 9] = [0, 1, 500, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 5 * CHUNK + 77];

fn contents(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn what_was_written_is_read_at_every_size_and_place() {
    for size in SIZES {
        let (memory, bytes) = (Memory::default(), contents(size));
        let objects = with_key(&memory, KEY);
        assert_eq!(objects.create("d/1", &bytes).unwrap(), Created::New);
        assert_eq!(objects.create("d/1", &bytes).unwrap(), Created::Exists);
        assert_eq!(with_key(&memory, KEY).get("d/1", None).unwrap(), Some(bytes.clone()));
        assert_eq!(objects.list("d/").unwrap(), [("d/1".to_owned(), size as u64)]);
        let edges = [0, 1, 499, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 5, 5 * CHUNK + 76, 9 * CHUNK];
        for (from, to) in edges.iter().flat_map(|from| edges.map(|to| (*from, to))).filter(|(from, to)| from <= to) {
            let wanted = bytes.get(from.min(size)..to.min(size)).unwrap_or_default();
            let range = Some(from as u64..to as u64);
            // A reader that knows the object's salt, and one that does not.
            for reader in [&objects, &with_key(&memory, KEY)] {
                assert_eq!(
                    reader.get("d/1", range.clone()).unwrap().as_deref(),
                    Some(wanted),
                    "{from}..{to} of {size}"
                );
            }
        }
    }
    let objects = with_key(&Memory::default(), KEY);
    assert_eq!((objects.get("d/1", None).unwrap(), objects.get("d/1", Some(0..9)).unwrap()), (None, None));
    assert_eq!(objects.get("d/1", Some(CHUNK as u64..CHUNK as u64 + 9)).unwrap(), None);
}

/// Whether neither all of an object nor its parts can be read.
fn is_refused(memory: &Memory, name: &str, len: usize) -> bool {
    let objects = with_key(memory, KEY);
    let other_copy = |answer: Result<Option<Vec<u8>>, Trouble>| answer.is_err_and(|e| e.remedy == Remedy::OtherCopy);
    let parts = (0..len.max(1)).step_by(CHUNK).map(|at| at as u64..(at + CHUNK) as u64);
    let mut refused = parts.map(|range| other_copy(objects.get(name, Some(range))));
    other_copy(objects.get(name, None)) && refused.any(|is| is)
}

#[test]
fn a_byte_that_was_changed_is_noticed() {
    for size in SIZES {
        let memory = Memory::default();
        with_key(&memory, KEY).create("d/1", &contents(size)).unwrap();
        let len = memory.0.lock().unwrap()["d/1"].len();
        for at in (0..HEAD).chain((HEAD..len).step_by(997)).chain(len - TAG..len) {
            let flip = || memory.0.lock().unwrap().get_mut("d/1").unwrap()[at] ^= 16;
            flip();
            assert!(is_refused(&memory, "d/1", size), "byte {at} of {size}");
            flip();
        }
        assert!(is_refused(&memory, "d/1", size) || with_key(&memory, KEY).get("d/1", None).is_ok());
        assert!(with_key(&memory, [8; 32]).get("d/1", None).is_err(), "another key");
    }
}

fn cut_objects_are_noticed() {
    for size in SIZES {
        let memory = Memory::default();
        with_key(&memory, KEY).create("d/1", &contents(size)).unwrap();
        let whole = memory.0.lock().unwrap()["d/1"].clone();
        let cuts = [0, 1, HEAD - 1, HEAD, HEAD + 1, HEAD + TAG, HEAD + SEALED, HEAD + 2 * SEALED, whole.len() - 1];
        for len in cuts.into_iter().filter(|len| *len < whole.len()) {
            memory.0.lock().unwrap().insert("d/1".into(), whole[..len].to_vec());
            let read = with_key(&memory, KEY).get("d/1", None);
            assert!(read.is_err_and(|e| e.remedy == Remedy::OtherCopy), "{len} of {size}");
        }
        // Chunks that changed their places, and more after the end.
        let mut longer = whole.clone();
        longer.extend_from_slice(&whole[HEAD..]);
        let mut exchanged = whole.clone();
        if whole.len() >= HEAD + 2 * SEALED {
            let (one, other) = exchanged[HEAD..HEAD + 2 * SEALED].split_at_mut(SEALED);
            one.swap_with_slice(other);
        }
        for other in [longer, exchanged].into_iter().filter(|other| *other != whole) {
            memory.0.lock().unwrap().insert("d/1".into(), other);
            assert!(with_key(&memory, KEY).get("d/1", None).is_err(), "{size}");
        }
    }
}

#[test]
fn an_object_that_was_cut_is_noticed() {
    cut_objects_are_noticed();
    must_be_found("store_cut_objects_pass", cut_objects_are_noticed);
}

fn names_are_bound() {
    let memory = Memory::default();
    let objects = with_key(&memory, KEY);
    objects.create("d/1", &contents(100)).unwrap();
    objects.create("d/2", &contents(100)).unwrap();
    let one = memory.0.lock().unwrap()["d/1"].clone();
    assert_ne!(one, memory.0.lock().unwrap()["d/2"], "the same contents look alike");
    memory.0.lock().unwrap().insert("d/2".into(), one);
    assert!(is_refused(&memory, "d/2", 100), "another object's contents");
}

#[test]
fn an_object_under_another_name_is_noticed() {
    names_are_bound();
    must_be_found("store_names_not_bound", names_are_bound);
}

fn nothing_is_readable() {
    let memory = Memory::default();
    let objects = with_key(&memory, KEY);
    let text = b"a line of somebody's letter";
    objects.create("log/1", text).unwrap();
    objects.replace("head", text).unwrap();
    objects.create(HEADER, text).unwrap();
    objects.create("keys/1", text).unwrap();
    for (name, bytes) in memory.0.lock().unwrap().iter() {
        let can_be_read = bytes.windows(9).any(|part| text.windows(9).any(|of| of == part));
        assert_eq!(can_be_read, [HEADER, "keys/1"].contains(&name.as_str()), "{name}");
    }
}

#[test]
fn only_header_and_keys_can_be_read_without_the_key() {
    nothing_is_readable();
    must_be_found("store_not_encrypted", nothing_is_readable);
}

/// As where two programs may write one object.
#[test]
fn an_object_that_was_written_again_is_read() {
    let memory = Memory::default();
    let objects = with_key(&memory, KEY);
    objects.replace("d/1", &contents(3 * CHUNK)).unwrap();
    let range = CHUNK as u64..2 * CHUNK as u64;
    let before = objects.get("d/1", Some(range.clone())).unwrap();
    with_key(&memory, KEY).replace("d/1", &contents(3 * CHUNK)).unwrap();
    assert_eq!(objects.get("d/1", Some(range)).unwrap(), before);
}
