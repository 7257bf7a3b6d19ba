//! The files of settings: `rowen.conf` in the system directory, with the settings of [`rowen_control::settings`]. If
//! the environment has `LVM_SYSTEM_DIR`, also `lvm.conf` in that directory, and LVM's files for the tags of this host.
//! Without the variable LVM's own directory is not read, because old files there may be about other disks.
//!
//! Commands refuse to run if a file cannot be read. A server keeps its present settings.
//!
//! * H14 A server has a helper read the settings: the files may lie on a volume that waits for this server. It waits for
//!   a limited time. Then it has the settings of the server before it, and takes those of the files when they come.

use crate::helper::{Job, Session};
use crate::{archive, files, paths, planted, run_file};
use rowen_control::lists;
use rowen_control::settings::{self, Loaded};
use rowen_control::syntax::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The size limit of a file of settings.
const LONGEST: u64 = 1 << 20;

/// Where Rowen's own file is.
pub fn path() -> PathBuf {
    paths::system_dir().join("rowen.conf")
}

/// LVM's directory, if the environment names it.
fn lvms_dir() -> Option<PathBuf> {
    std::env::var_os("LVM_SYSTEM_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// The settings, or the defaults if there is no file. The error has LVM's messages.
pub fn load() -> Result<Loaded, String> {
    let mut loaded = Loaded::default();
    if let Some(config) = read(&path(), settings::read)? {
        loaded.config = config;
    }
    let Some(dir) = lvms_dir() else { return Ok(loaded) };
    let mut waiting = vec!["lvm.conf".to_owned(), "lvmlocal.conf".to_owned()];
    let mut known = Vec::new();
    // A tag's file may give the host another tag.
    while let Some(name) = waiting.first().cloned() {
        if let Some((config, warnings)) = read(&dir.join(&name), settings::read_lvms)? {
            loaded.config.add(config);
            loaded.warnings.extend(warnings);
        }
        known.push(waiting.remove(0));
        for tag in lists::host_tags(&loaded.config, &archive::host_name()) {
            let name = format!("lvm_{tag}.conf");
            if !tag.contains('/') && !known.contains(&name) && !waiting.contains(&name) {
                waiting.push(name);
            }
        }
    }
    Ok(loaded)
}

/// The settings as a helper reads them, for a server (H14).
pub(crate) struct Asked(io::Result<Session>);

impl Asked {
    /// The helper reads while the server does other things.
    pub fn begin() -> Asked {
        Asked(Session::start_apart(&Job::Settings, "settings"))
    }

    /// What the helper has read, if it comes within this time.
    pub fn end(self, limit: Duration) -> Result<Loaded, Unread> {
        if planted::is("settings_in_server") {
            planted::reached()("settings");
            return load().map_err(|why| Unread { why, may_come: false });
        }
        let received = self.0.and_then(|mut session| session.receive::<Result<Loaded, String>>(limit));
        match received {
            Ok(loaded) => loaded.map_err(|why| Unread { why, may_come: false }),
            Err(e) => Err(Unread { why: format!("{}: read failed: {e}", path().display()), may_come: true }),
        }
    }
}

/// Why a server has no settings.
pub(crate) struct Unread {
    pub why: String,
    /// The files were not read in time.
    pub may_come: bool,
}

fn kept_at(group: &str) -> PathBuf {
    paths::group_dir(group).join("settings")
}

/// Keeps a server's settings for its successor, in one step.
pub(crate) fn keep(group: &str, loaded: &Loaded) -> io::Result<()> {
    run_file::write(&kept_at(group), loaded)
}

/// What the last server of the group had since the host was booted. None: there was none, or another version wrote it.
pub(crate) fn kept(group: &str) -> Option<Loaded> {
    run_file::read(&kept_at(group)).ok().flatten()
}

/// The contents of a file. None: there is no file.
fn read<T>(path: &Path, understand: impl FnOnce(&str) -> Result<T, Error>) -> Result<Option<T>, String> {
    let shown = path.display();
    let refused = |why: String| format!("{why}\nFailed to load config file {shown}");
    let text = match files::read(path, LONGEST) {
        Ok(None) => return Ok(None),
        Err(e) => return Err(refused(format!("{shown}: read failed: {e}"))),
        Ok(Some(bytes)) => {
            String::from_utf8(bytes).map_err(|_| refused(format!("Parse error in {shown}: it is not text in UTF-8")))?
        }
    };
    let understood = understand(&text).map_err(|error| refused(error.sentence(&shown.to_string())))?;
    Ok(Some(understood))
}
