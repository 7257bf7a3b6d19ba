//! The objects of an encrypted store, over those of a place. docs/stores.md specifies their bytes.
//!
//! An object is cut into chunks, and each is sealed with ChaCha20-Poly1305 (RFC 8439). The numbers of the chunks are their nonces, and
//! the last chunk says that it is the last: STREAM (Hoang, Reyhanitabar, Rogaway and Vizár, "Online Authenticated-Encryption and its
//! Nonce-Reuse Misuse-Resistance", 2015), with age's nonces. So a part of an object can be read without the rest.
//!
//! * SO6 Each object has a key of its own, made (HKDF-SHA256, RFC 5869) of the store's key, a random salt and its name. So no two
//!   contents share a key, also if two programs create one name, and an object that was changed, cut, or put under another name is
//!   noticed before any byte of it is used. Only the header and the sealed keys of a store can be read without its key.

use crate::planted;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rowen_transfer::store::{Created, HEADER, Objects, Remedy, Trouble};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

const MAGIC: [u8; 4] = *b"RwEn";
const VERSION: u16 = 1;
const SALT: usize = 32;
/// Bytes before the chunks: magic, version, two zeros, salt.
const HEAD: usize = 8 + SALT;
/// Bytes of a chunk, and of a sealed one.
const CHUNK: usize = 16 << 10;
const TAG: usize = 16;
const SEALED: usize = CHUNK + TAG;
/// What the keys of objects are for.
const PURPOSE: &[u8] = b"rowen store 1 object ";
/// The folder of the sealed keys.
pub const KEYS: &str = "keys/";
/// Salts of objects that are kept.
const KEPT: usize = 4096;

/// A store's key.
pub type StoreKey = [u8; 32];

/// Objects that are sealed on their way to a place, and opened on their way back.
pub struct Encrypted {
    place: Box<dyn Objects>,
    key: StoreKey,
    /// Salts of objects of which a part was read.
    salts: Mutex<BTreeMap<String, [u8; SALT]>>,
}

/// Fills an array with random bytes.
pub fn random<const N: usize>() -> Result<[u8; N], Trouble> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Trouble { why: "the system gives no random numbers".into(), remedy: Remedy::Nothing })?;
    Ok(bytes)
}

fn damaged() -> Trouble {
    Trouble { why: "it is not what was written".into(), remedy: Remedy::OtherCopy }
}

fn nonce(chunk: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3..11].copy_from_slice(&chunk.to_be_bytes());
    bytes[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

fn salt_of(bytes: &[u8]) -> Result<[u8; SALT], Trouble> {
    let (head, salt) = bytes.get(..HEAD).and_then(<[u8]>::split_last_chunk::<SALT>).ok_or_else(damaged)?;
    let version = VERSION.to_le_bytes();
    if head[..4] != MAGIC || head[4..6] != version || head[6..] != [0, 0] {
        return Err(damaged());
    }
    Ok(*salt)
}

/// Bytes of an object of which a place has so many.
fn opened_len(sealed: u64) -> u64 {
    let chunks = sealed.saturating_sub(HEAD as u64);
    chunks.saturating_sub(chunks.div_ceil(SEALED as u64) * TAG as u64)
}

fn is_plain(name: &str) -> bool {
    name == HEADER || name.starts_with(KEYS) || planted::is("store_not_encrypted")
}

impl Encrypted {
    pub fn new(place: Box<dyn Objects>, key: StoreKey) -> Encrypted {
        Encrypted { place, key, salts: Mutex::default() }
    }

    fn salts(&self) -> MutexGuard<'_, BTreeMap<String, [u8; SALT]>> {
        self.salts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn key_of(&self, name: &str, salt: &[u8; SALT]) -> LessSafeKey {
        let name = if planted::is("store_names_not_bound") { "" } else { name };
        let from = Salt::new(HKDF_SHA256, salt).extract(&self.key);
        let info = [PURPOSE, name.as_bytes()];
        let key = from.expand(&info, &CHACHA20_POLY1305).expect("a key is short");
        LessSafeKey::new(UnboundKey::from(key))
    }

    fn sealed(&self, name: &str, bytes: &[u8]) -> Result<Vec<u8>, Trouble> {
        let salt = random()?;
        let key = self.key_of(name, &salt);
        let count = bytes.len().div_ceil(CHUNK).max(1);
        let mut out = Vec::with_capacity(HEAD + bytes.len() + count * TAG);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0, 0]);
        out.extend(salt);
        for number in 0..count {
            let chunk = &bytes[number * CHUNK..bytes.len().min((number + 1) * CHUNK)];
            let begin = out.len();
            out.extend_from_slice(chunk);
            let nonce = nonce(number as u64, number + 1 == count);
            let tag: Tag = key
                .seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[begin..])
                .map_err(|_| Trouble { why: "it is too long to be encrypted".into(), remedy: Remedy::Nothing })?;
            out.extend_from_slice(tag.as_ref());
        }
        Ok(out)
    }

    /// The contents of chunks, of which the first has this number. `is_whole`: nothing comes after them.
    fn opened(
        &self,
        (name, salt): (&str, &[u8; SALT]),
        first: u64,
        chunks: &[u8],
        is_whole: bool,
    ) -> Result<Vec<u8>, Trouble> {
        let key = self.key_of(name, salt);
        let mut out = Vec::with_capacity(chunks.len());
        let count = chunks.len().div_ceil(SEALED);
        for (number, chunk) in (first..).zip(chunks.chunks(SEALED)) {
            let at_end = number + 1 == first + count as u64;
            // A part may end with a full chunk that is the last one of its object, or is not.
            let may_be_last: &[bool] = match (at_end, is_whole || chunk.len() < SEALED) {
                (false, _) => &[false],
                (true, false) => &[false, true],
                (true, true) if planted::is("store_cut_objects_pass") => &[false, true],
                (true, true) => &[true],
            };
            let open = |is_last: bool| {
                let mut bytes = chunk.to_vec();
                let len = key.open_in_place(nonce(number, is_last), Aad::empty(), &mut bytes).ok()?.len();
                bytes.truncate(len);
                Some(bytes)
            };
            out.extend(may_be_last.iter().find_map(|is_last| open(*is_last)).ok_or_else(damaged)?);
        }
        Ok(out)
    }

    fn whole(&self, name: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let Some(bytes) = self.place.get(name, None)? else { return Ok(None) };
        let salt = salt_of(&bytes)?;
        if bytes.len() == HEAD {
            return Err(damaged());
        }
        self.opened((name, &salt), 0, &bytes[HEAD..], true).map(Some)
    }

    /// The part of an object that lies in a range, whose salt may be known.
    fn part(&self, name: &str, range: &Range<u64>, known: Option<[u8; SALT]>) -> Result<Option<Vec<u8>>, Trouble> {
        let (chunk, head) = (CHUNK as u64, HEAD as u64);
        let (first, end) = (range.start / chunk, range.end.div_ceil(chunk));
        let place = |number: u64| head.saturating_add(number.saturating_mul(SEALED as u64));
        // The beginning of an object comes with its head.
        let (known, from) = match (first, known) {
            (0, _) => (None, 0),
            (_, Some(salt)) => (Some(salt), place(first)),
            (_, None) => match self.place.get(name, Some(0..head))? {
                Some(bytes) => (Some(salt_of(&bytes)?), place(first)),
                None => return Ok(None),
            },
        };
        let Some(bytes) = self.place.get(name, Some(from..place(end)))? else { return Ok(None) };
        // A range behind the end has nothing, and nothing that proves it.
        if bytes.is_empty() && first > 0 {
            return Ok(Some(bytes));
        }
        let (salt, chunks) = match known {
            Some(salt) => (salt, &bytes[..]),
            None => (salt_of(&bytes)?, &bytes[HEAD..]),
        };
        // What ends before it was asked to ends with the object.
        let is_end = (bytes.len() as u64) < place(end) - from;
        let opened = self.opened((name, &salt), first, chunks, is_end)?;
        let mut salts = self.salts();
        if salts.len() >= KEPT {
            salts.clear();
        }
        salts.insert(name.to_owned(), salt);
        let skipped = (range.start - first * chunk) as usize;
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        Ok(Some(opened.into_iter().skip(skipped).take(wanted).collect()))
    }
}

impl Objects for Encrypted {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<Created, Trouble> {
        if is_plain(name) {
            return self.place.create(name, bytes);
        }
        self.place.create(name, &self.sealed(name, bytes)?)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Trouble> {
        if is_plain(name) {
            return self.place.replace(name, bytes);
        }
        self.place.replace(name, &self.sealed(name, bytes)?)
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>, Trouble> {
        let range = match range {
            range if is_plain(name) => return self.place.get(name, range),
            None => return self.whole(name),
            Some(range) if range.is_empty() => {
                return Ok(self.place.get(name, Some(0..HEAD as u64))?.map(|_| Vec::new()));
            }
            Some(range) => range,
        };
        let known = self.salts().get(name).copied();
        match self.part(name, &range, known) {
            // In a store for a single writer an object may have been written again.
            Err(trouble) if known.is_some() && trouble.remedy == Remedy::OtherCopy => self.part(name, &range, None),
            answer => answer,
        }
    }

    fn delete(&self, name: &str) -> Result<(), Trouble> {
        self.place.delete(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble> {
        let mut found = self.place.list(prefix)?;
        for (name, len) in &mut found {
            if !is_plain(name) {
                *len = opened_len(*len);
            }
        }
        Ok(found)
    }

    fn pause(&self, attempt: u32) {
        self.place.pause(attempt);
    }
}

#[cfg(test)]
#[path = "encrypted_test.rs"]
pub mod tests;
