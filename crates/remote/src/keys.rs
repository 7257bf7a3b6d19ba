//! The key of an encrypted store. It lies in the store, sealed with a secret: the contents of a key file, which the hosts that use the
//! store have. Several secrets can open one store.

use crate::encrypted::{Encrypted, KEYS, StoreKey, random};
use crate::failure::{Result, failed, of_store, usage};
use crate::known::{Known, hex};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::pbkdf2;
use rowen_transfer::store::{Created, Header, Objects, StoreError, Trouble, identify};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

const MAGIC: [u8; 4] = *b"RwKy";
const VERSION: u16 = 1;
/// Magic, version, two zeros, iterations, salt, store.
const HEAD: usize = 4 + 2 + 2 + 4 + 32 + 16;
const LEN: usize = HEAD + 32 + 16;
/// Rounds of PBKDF2-HMAC-SHA256 (RFC 8018): what OWASP's cheat sheet of passwords asks for in 2023. A secret of "rowen store keygen" would
/// need none of them.
const ITERATIONS: u32 = 600_000;
/// What an object may ask for: a hostile one could let everybody compute for ever.
const MOST_ITERATIONS: u32 = 20_000_000;
/// Bytes of a secret.
const SHORTEST: usize = 16;
const LONGEST: u64 = 4096;
/// Keys of one store.
const MOST_KEYS: u64 = 100;

/// What opens the key of a store.
pub struct Secret(Vec<u8>);

impl Secret {
    /// The contents of a key file, without white space at its ends.
    pub fn read(path: &Path) -> Result<Secret> {
        let shown = path.display();
        let cannot = |e: std::io::Error| failed(format!("Cannot read key file {shown}: {e}."));
        // A pipe would be waited for, and is empty the next time.
        let metadata = fs::metadata(path).map_err(cannot)?;
        if !metadata.is_file() {
            return Err(failed(format!("{shown} is no file: a key file is read each time the store is used.")));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(failed(format!("Other users may read key file {shown}: chmod 600 {shown}.")));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(cannot)?;
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(cannot)?;
        let secret = bytes.trim_ascii();
        if secret.len() < SHORTEST || bytes.len() as u64 > LONGEST {
            return Err(failed(format!(
                "Key file {shown} has {} bytes: a secret has {SHORTEST} to {LONGEST}. \"rowen store keygen FILE\" makes a file with one.",
                if bytes.len() as u64 > LONGEST { format!("more than {LONGEST}") } else { secret.len().to_string() }
            )));
        }
        Ok(Secret(secret.to_vec()))
    }

    fn key(&self, salt: &[u8], iterations: NonZeroU32) -> LessSafeKey {
        let mut key = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, &self.0, &mut key);
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).expect("a key has 32 bytes"))
    }
}

/// A store and its key.
pub struct Unlocked {
    pub store: [u8; 16],
    pub key: StoreKey,
}

/// The salt is random and makes a key of its own, which seals one thing.
fn only() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn seal(unlocked: &Unlocked, secret: &Secret) -> Result<Vec<u8>, Trouble> {
    let salt: [u8; 32] = random()?;
    let mut out = Vec::with_capacity(LEN);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0, 0]);
    out.extend(ITERATIONS.to_le_bytes());
    out.extend(salt);
    out.extend(unlocked.store);
    let head = Aad::from(out.clone());
    let mut sealed = unlocked.key.to_vec();
    let key = secret.key(&salt, NonZeroU32::new(ITERATIONS).expect("it is no zero"));
    key.seal_in_place_append_tag(only(), head, &mut sealed).expect("a key is short");
    out.extend(sealed);
    Ok(out)
}

/// None: it is sealed with another secret, or damaged.
fn open(bytes: &[u8], secret: &Secret) -> Option<Unlocked> {
    let (head, sealed) = bytes.split_at_checked(HEAD).filter(|_| bytes.len() == LEN)?;
    let version = VERSION.to_le_bytes();
    if head[..4] != MAGIC || head[4..6] != version || head[6..8] != [0, 0] {
        return None;
    }
    let iterations = u32::from_le_bytes(head[8..12].try_into().ok()?);
    let iterations = NonZeroU32::new(iterations).filter(|count| count.get() <= MOST_ITERATIONS)?;
    let mut sealed = sealed.to_vec();
    let key = secret.key(&head[12..44], iterations).open_in_place(only(), Aad::from(head), &mut sealed).ok()?;
    Some(Unlocked { store: head[44..60].try_into().ok()?, key: (*key).try_into().ok()? })
}

fn name_of(number: u64) -> String {
    format!("{KEYS}{number:016x}")
}

fn told(error: &Trouble) -> StoreError {
    StoreError::Request { name: KEYS.trim_end_matches('/').to_owned(), why: error.why.clone() }
}

/// Opens the key of the store with a secret. None: no key of the store is sealed with it.
fn unlocked(place: &dyn Objects, secret: &Secret) -> Result<Option<Unlocked>, StoreError> {
    let mut names: Vec<String> = place.list(KEYS).map_err(|e| told(&e))?.into_iter().map(|(name, _)| name).collect();
    names.sort();
    for name in names.iter().take(MOST_KEYS as usize) {
        let found = place.get(name, None).map_err(|e| told(&e))?;
        if let Some(unlocked) = found.and_then(|bytes| open(&bytes, secret)) {
            return Ok(Some(unlocked));
        }
    }
    Ok(None)
}

/// Adds a sealed copy of the key.
fn put(place: &dyn Objects, unlocked: &Unlocked, secret: &Secret, first: u64) -> Result<bool, StoreError> {
    let bytes = seal(unlocked, secret).map_err(|e| told(&e))?;
    let mut number = first;
    while number <= MOST_KEYS {
        match place.create(&name_of(number), &bytes).map_err(|e| told(&e))? {
            Created::New => return Ok(true),
            Created::Exists if first == number && first == 1 => return Ok(false),
            Created::Exists => number += 1,
        }
    }
    Err(StoreError::Refused(format!("the store has {MOST_KEYS} keys, and takes no more")))
}

/// The key of a store that is about to be made. Of several programs that make it, all get the same key, if they have the same secret.
pub fn first(place: &dyn Objects, fresh: [u8; 16], secret: &Secret) -> Result<Unlocked, StoreError> {
    if let Some(there) = unlocked(place, secret)? {
        return Ok(there);
    }
    let made = Unlocked { store: fresh, key: random().map_err(|e| told(&e))? };
    if put(place, &made, secret, 1)? {
        return Ok(made);
    }
    unlocked(place, secret)?.ok_or_else(|| {
        StoreError::Refused(format!(
            "somebody else makes, or made, an encrypted store there with another key file. If nobody does, delete {} there",
            name_of(1)
        ))
    })
}

/// Lets another secret open the store, too.
pub fn add(place: &dyn Objects, unlocked: &Unlocked, secret: &Secret) -> Result<(), StoreError> {
    if self::unlocked(place, secret)?.is_some() {
        return Err(StoreError::Refused("this key file opens the store already".into()));
    }
    put(place, unlocked, secret, 2).map(drop)
}

/// The objects of a store that this host knows, opened with its key file if it is encrypted.
pub fn opened(place: Box<dyn Objects>, known: &Known) -> Result<(Box<dyn Objects>, Option<Unlocked>)> {
    let name = &known.name;
    let header = identify(&*place).map_err(|error| of_store(&format!("Cannot use store {name}"), &error))?;
    match (header, &known.key_file) {
        (Some(Header { is_encrypted: true, .. }), None) => Err(failed(format!(
            "Store {name} is encrypted, and was not when this host added it: another store was put there. If that is right: rowen store \
             remove {name}, and add it again with --key-file FILE."
        ))),
        (Some(Header { is_encrypted: false, .. }), Some(_)) => Err(failed(format!(
            "Store {name} is not encrypted, and was when this host added it: another store was put there. Nothing was written to it."
        ))),
        // Whoever opens its log says what is wrong.
        (None, _) | (Some(_), None) => Ok((place, None)),
        (Some(header), Some(path)) => {
            let unlocked = with_file(&*place, name, &header, path)?;
            Ok((Box::new(Encrypted::new(place, unlocked.key)), Some(unlocked)))
        }
    }
}

/// The key of a store that is there.
pub fn with_file(place: &dyn Objects, name: &str, header: &Header, path: &Path) -> Result<Unlocked> {
    let secret = Secret::read(path)?;
    let found = unlocked(place, &secret).map_err(|error| of_store(&format!("Cannot use store {name}"), &error))?;
    found.filter(|unlocked| unlocked.store == header.store).ok_or_else(|| {
        failed(format!(
            "Key file {} does not open store {name}. It was made with another one, or its keys are damaged.",
            path.display()
        ))
    })
}

/// `rowen store keygen`: makes a key file.
pub fn generate(path: &Path) -> Result {
    let shown = path.display();
    let secret: [u8; 32] = random().map_err(|trouble| failed(format!("Cannot make a key: {}.", trouble.why)))?;
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(format!("{}\n", hex(&secret)).as_bytes())?;
        file.sync_all()
    };
    write().map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            usage(format!("{shown} is there already, and is not overwritten: it may be a key."))
        }
        _ => failed(format!("Cannot write {shown}: {e}.")),
    })
}

#[cfg(test)]
#[path = "keys_test.rs"]
mod tests;
