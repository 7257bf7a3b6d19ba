//! The key of an encrypted store. It lies in the store, sealed with a secret: the contents of a key file, which the hosts that use the
//! store have. Several secrets can open one store.

use crate::encrypted::{Encrypted, KEYS, StoreKey, random};
use crate::failure::{Result, failed, of_store, usage};
use crate::known::{Known, hex};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::pbkdf2;
use rowen_transfer::store::{Header, Objects, StoreError, Trouble, create_object, get_object, identify, list_objects};
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
const MOST_ITERATIONS: u32 = 2_000_000;
/// Bytes of a secret.
const SHORTEST: usize = 16;
const LONGEST: u64 = 4096;
/// Keys of one store.
const MOST_KEYS: u64 = 16;

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

/// `wanted`: the store, if it is known. None: the key is another store's, or sealed with another secret, or damaged.
fn open(bytes: &[u8], secret: &Secret, wanted: Option<[u8; 16]>) -> Option<Unlocked> {
    let (head, sealed) = bytes.split_at_checked(HEAD).filter(|_| bytes.len() == LEN)?;
    let store: [u8; 16] = head[44..60].try_into().ok()?;
    if wanted.is_some_and(|wanted| wanted != store) {
        return None;
    }
    let version = VERSION.to_le_bytes();
    if head[..4] != MAGIC || head[4..6] != version || head[6..8] != [0, 0] {
        return None;
    }
    let iterations = u32::from_le_bytes(head[8..12].try_into().ok()?);
    let iterations = NonZeroU32::new(iterations).filter(|count| count.get() <= MOST_ITERATIONS)?;
    let mut sealed = sealed.to_vec();
    let key = secret.key(&head[12..44], iterations).open_in_place(only(), Aad::from(head), &mut sealed).ok()?;
    Some(Unlocked { store, key: (*key).try_into().ok()? })
}

fn name_of(number: u64) -> String {
    format!("{KEYS}{number:016x}")
}

fn told(error: &Trouble) -> StoreError {
    StoreError::Request { name: KEYS.trim_end_matches('/').to_owned(), why: error.why.clone() }
}

/// Whether the place has keys.
pub fn are_there(place: &dyn Objects) -> Result<bool, StoreError> {
    Ok(!list_objects(place, KEYS)?.is_empty())
}

/// Opens the key of the store with a secret. `wanted`: the store, if it is known. None: no key of it is sealed with the secret.
fn unlocked(place: &dyn Objects, secret: &Secret, wanted: Option<[u8; 16]>) -> Result<Option<Unlocked>, StoreError> {
    let listed = list_objects(place, KEYS)?;
    for name in (1..=MOST_KEYS).map(name_of) {
        if !listed.iter().any(|(there, len)| *there == name && *len == LEN as u64) {
            continue;
        }
        let found = get_object(place, &name, Some(0..LEN as u64))?;
        if let Some(unlocked) = found.and_then(|bytes| open(&bytes, secret, wanted)) {
            return Ok(Some(unlocked));
        }
    }
    Ok(None)
}

/// Adds a sealed copy of the key, under this number. False: another one has it.
fn put(place: &dyn Objects, unlocked: &Unlocked, secret: &Secret, number: u64) -> Result<bool, StoreError> {
    let bytes = seal(unlocked, secret).map_err(|e| told(&e))?;
    Ok(create_object(place, &name_of(number), &bytes)?.is_none())
}

/// The key of a store that is about to be made. Of several programs that make it, all get the same key, if they have the same secret.
pub fn first(place: &dyn Objects, fresh: [u8; 16], secret: &Secret) -> Result<Unlocked, StoreError> {
    if let Some(there) = unlocked(place, secret, None)? {
        return Ok(there);
    }
    let made = Unlocked { store: fresh, key: random().map_err(|e| told(&e))? };
    put(place, &made, secret, 1)?;
    // As the place has it: where two can write one object, the other's may be there.
    unlocked(place, secret, None)?.ok_or_else(|| {
        StoreError::Refused(format!(
            "somebody else makes, or made, an encrypted store there with another key file. If nobody does, delete {} there",
            name_of(1)
        ))
    })
}

/// Lets another secret open the store, too.
pub fn add(place: &dyn Objects, unlocked: &Unlocked, secret: &Secret) -> Result<(), StoreError> {
    if self::unlocked(place, secret, Some(unlocked.store))?.is_some() {
        return Err(StoreError::Refused("this key file opens the store already".into()));
    }
    for number in 2..=MOST_KEYS {
        if put(place, unlocked, secret, number)? {
            return Ok(());
        }
    }
    Err(StoreError::Refused(format!("the store has {MOST_KEYS} keys, and takes no more")))
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
        (None, _) => Err(failed(format!("Cannot use store {name}: there is no store of rowen at {}.", known.url))),
        (Some(header), _) if header.store != known.uuid => {
            Err(failed(format!("Cannot use store {name}: another store is there than the one that was added.")))
        }
        (Some(_), None) => Ok((place, None)),
        (Some(header), Some(path)) => {
            let unlocked = with_file(&*place, name, &header, path)?;
            Ok((Box::new(Encrypted::new(place, unlocked.key)), Some(unlocked)))
        }
    }
}

/// The key of a store that is there.
pub fn with_file(place: &dyn Objects, name: &str, header: &Header, path: &Path) -> Result<Unlocked> {
    let secret = Secret::read(path)?;
    let found = unlocked(place, &secret, Some(header.store));
    found.map_err(|error| of_store(&format!("Cannot use store {name}"), &error))?.ok_or_else(|| {
        failed(format!(
            "Key file {} does not open store {name}. It was made with another one, or its keys are damaged.",
            path.display()
        ))
    })
}

/// `rowen store keygen`: makes a key file.
pub fn generate(path: &Path) -> Result {
    let shown = path.display();
    let cannot = |e: std::io::Error| failed(format!("Cannot write {shown}: {e}."));
    let secret: [u8; 32] = random().map_err(|trouble| failed(format!("Cannot make a key: {}.", trouble.why)))?;
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut file = made.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            usage(format!("{shown} is there already, and is not overwritten: it may be a key."))
        }
        _ => cannot(e),
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut write = || {
        file.write_all(format!("{}\n", hex(&secret)).as_bytes())?;
        file.sync_all()?;
        // The name of the new file is durable, too.
        File::open(folder)?.sync_all()
    };
    write().map_err(|e| {
        // A part of a key must not be taken for one.
        let _stays = fs::remove_file(path);
        cannot(e)
    })
}

#[cfg(test)]
#[path = "keys_test.rs"]
mod tests;
