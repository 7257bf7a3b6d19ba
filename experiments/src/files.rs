//! Scratch: a directory that vanishes, files that were written once, loop devices on them.

use crate::command::{self, Result};
use crate::stack::text;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A directory that is removed with its owner.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(parent: &Path) -> Result<Scratch> {
        let path = parent.join(format!("rowen-experiments-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {e}", self.0.display());
        }
    }
}

/// A file of `mib` MiB that was written from end to end, so that the filesystem under it has its say before anything is
/// timed.
pub fn written(path: &Path, mib: u64) -> Result {
    let write = || {
        let mut file = std::fs::File::create(path)?;
        // Not zeros: some filesystems and disks keep those for nothing.
        let block: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        (0..mib).try_for_each(|_| file.write_all(&block))?;
        file.sync_all()
    };
    write().map_err(|e: std::io::Error| format!("cannot write {}: {e}", path.display()))
}

/// A file of `mib` MiB without data.
pub fn sparse(path: &Path, mib: u64) -> Result {
    let made = std::fs::File::create(path).and_then(|file| file.set_len(mib << 20));
    made.map_err(|e| format!("cannot make {}: {e}", path.display()))
}

/// A loop device on a file, past the page cache where the file can be read so.
pub struct Loop(pub PathBuf);

impl Loop {
    pub fn new(file: &Path) -> Result<Loop> {
        let name = command::run("losetup", &["--find", "--show", "--direct-io=on", &text(file)])?;
        Ok(Loop(PathBuf::from(name.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut detach = command::command("losetup");
        detach.args(["--detach", &text(&self.0)]);
        if let Err(why) = command::output_always(detach) {
            eprintln!("{why}");
        }
    }
}
