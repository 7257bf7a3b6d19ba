//! The stores that this host knows: a file for each, and what was seen last of its log.

use crate::failure::{Result, failed, usage};
use rowen_control::config::Config;
use rowen_control::names;
use rowen_control::syntax::quoted;
use rowen_transfer::store::Seen;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What is known of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    pub url: String,
    pub uuid: [u8; 16],
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// The file that opens its key, if it is encrypted.
    pub key_file: Option<PathBuf>,
    /// It does not keep SO1: one program at a time may write to it.
    pub single_writer: bool,
}

pub fn folder() -> PathBuf {
    let system = std::env::var_os("ROWEN_SYSTEM_DIR").filter(|dir| !dir.is_empty());
    system.map_or_else(|| PathBuf::from("/etc/rowen"), PathBuf::from).join("stores")
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..N).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect();
    bytes?.try_into().ok()
}

pub fn check_name(name: &str) -> Result {
    names::check_form(name)
        .map_err(|refusal| usage(format!("\"{}\" is no name of a store: {refusal}", name.escape_debug())))
}

fn file_of(name: &str) -> PathBuf {
    folder().join(format!("{name}.conf"))
}

/// Writes a small file in one step.
fn publish(path: &Path, text: &str) -> Result {
    let part = path.with_extension(format!("part{}", std::process::id()));
    let write = || {
        fs::create_dir_all(folder())?;
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        File::open(folder())?.sync_all()
    };
    write().map_err(|e| failed(format!("Cannot write {}: {e}.", path.display())))
}

impl Known {
    pub fn read(name: &str) -> Result<Option<Known>> {
        check_name(name)?;
        let path = file_of(name);
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|e| failed(format!("Cannot read {}: {e}.", path.display())))?,
        };
        let wrong = |what: &str| failed(format!("{} is not as \"rowen store add\" writes it: {what}.", path.display()));
        let config = Config::read(&text).map_err(|_| wrong("it cannot be parsed"))?;
        let uuid = config.text("uuid").and_then(|text| unhex(&text));
        Ok(Some(Known {
            name: name.to_owned(),
            url: config.text("url").ok_or_else(|| wrong("it has no url"))?,
            uuid: uuid.ok_or_else(|| wrong("it has no uuid"))?,
            endpoint: config.text("endpoint"),
            region: config.text("region"),
            key_file: config.text("key_file").map(PathBuf::from),
            single_writer: config.is_on("single_writer") == Some(true),
        }))
    }

    pub fn write(&self) -> Result {
        let mut text = String::from("# A store of \"rowen push\". \"rowen store add\" wrote this file.\n");
        text.push_str(&format!("url={}\nuuid={}\n", quoted(&self.url), quoted(&hex(&self.uuid))));
        let key_file = self.key_file.as_ref().map(|path| path.to_string_lossy().into_owned());
        for (name, value) in [("endpoint", &self.endpoint), ("region", &self.region), ("key_file", &key_file)] {
            if let Some(value) = value {
                text.push_str(&format!("{name}={}\n", quoted(value)));
            }
        }
        if self.single_writer {
            text.push_str("single_writer=1\n");
        }
        publish(&file_of(&self.name), &text)
    }

    /// This host knows the store no more.
    pub fn remove(&self) -> Result {
        remove_files(&file_of(&self.name), &self.seen_file())
    }

    /// All names, in order.
    pub fn all() -> Result<Vec<String>> {
        let entries = match fs::read_dir(folder()) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| failed(format!("Cannot read {}: {e}.", folder().display())))?,
        };
        let names = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_suffix(".conf").map(str::to_owned)
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    pub fn seen_file(&self) -> PathBuf {
        folder().join(format!("{}.seen", self.name))
    }

    /// What this host saw last of the store's log.
    pub fn seen(&self) -> Option<Seen> {
        seen_of(&fs::read_to_string(self.seen_file()).ok()?, self.uuid)
    }

    /// Remembers what was seen last, unless this host has forgotten the store meanwhile: its file would stay behind.
    pub fn saw(&self, seen: Seen) -> Result {
        let is_known = Known::read(&self.name)?.is_some_and(|known| known.uuid == self.uuid);
        if is_known { publish(&self.seen_file(), &seen_text(seen, self.uuid)) } else { Ok(()) }
    }
}

/// The file of what was seen goes last: it counts as long as the store is known.
fn remove_files(conf: &Path, seen: &Path) -> Result {
    let cannot = |path: &Path, e: std::io::Error| failed(format!("Cannot remove {}: {e}.", path.display()));
    fs::remove_file(conf).map_err(|e| cannot(conf, e))?;
    match fs::remove_file(seen) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(cannot(seen, e)),
        _ => Ok(()),
    }
}

/// It names the store: a file that stayed behind says nothing of another store that gets the name.
fn seen_text(seen: Seen, store: [u8; 16]) -> String {
    format!("{} {} {}\n", seen.entry, hex(&seen.hash), hex(&store))
}

/// Without a store, as older programs wrote it, it is of this one.
fn seen_of(text: &str, store: [u8; 16]) -> Option<Seen> {
    let mut words = text.split_whitespace();
    let seen = Seen { entry: words.next()?.parse().ok()?, hash: unhex(words.next()?)? };
    let of = words.next().map_or(Some(store), unhex)?;
    (of == store).then_some(seen)
}

#[cfg(test)]
#[path = "known_test.rs"]
mod tests;
