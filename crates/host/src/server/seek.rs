//! The search for the devices of physical volumes: at paths, and after devices have changed anywhere (RT4).

use crate::devices::probe::{self, Found};
use crate::{devices, patience, processes};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// If this many earlier helpers hang in the kernel, including those of other groups, no more are started.
const STUCK: usize = 4;

/// Whether so few helpers hang that another one may be started.
pub fn may_search() -> bool {
    processes::stuck_helpers() < STUCK
}

/// A search that is repeated.
#[derive(Default)]
pub struct Seeker {
    /// The fingerprint of the devices at the last search of all devices.
    devices: u64,
    /// The paths that did not answer in the last search.
    silent: Vec<PathBuf>,
}

impl Seeker {
    /// The files and devices at these paths and at the paths of the devices file. If they are not enough, also all devices, unless
    /// these were searched already and have not changed, or helpers hang.
    pub fn search(
        &mut self,
        mut paths: Vec<PathBuf>,
        are_enough: impl Fn(&[(PathBuf, Found)]) -> bool,
    ) -> Result<Vec<(PathBuf, Found)>, devices::Error> {
        let others: Vec<PathBuf> = devices::file_paths().into_iter().filter(|path| !paths.contains(path)).collect();
        paths.extend(others);
        let (at_paths, silent) = probe::probe_until(&paths, Instant::now() + patience::limit())?;
        self.silent = silent;
        let mut seen: Vec<(PathBuf, Found)> =
            paths.into_iter().zip(at_paths).filter_map(|(path, found)| Some((path, found?))).collect();
        let is_free = processes::stuck_helpers() == 0;
        if is_free && !are_enough(&seen) {
            let devices = fingerprint();
            if devices != self.devices {
                self.devices = devices;
                seen.extend(devices::candidates_until(Instant::now() + patience::limit())?);
            }
        }
        Ok(seen)
    }

    /// Whether what is at this path did not answer in the last search.
    pub fn is_silent(&self, path: &Path) -> bool {
        self.silent.iter().any(|silent| silent == path)
    }

    /// The next search looks at all devices again, even if they have not changed.
    pub fn search_all_again(&mut self) {
        self.devices = 0;
    }
}

/// A number that changes with the devices.
fn fingerprint() -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut names: Vec<_> =
        std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    names.sort();
    for path in names {
        path.hash(&mut hasher);
        for file in ["size", "dev", "diskseq"] {
            std::fs::read(path.join(file)).unwrap_or_default().hash(&mut hasher);
        }
    }
    // 0 forces a search.
    hasher.finish().max(1)
}
