//! What both comparisons need: the program under test, and a place that ends with its scope.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of this crate.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The program under test: `ROWEN` in the environment, or the one next to the tests' folder.
pub fn rowen() -> PathBuf {
    let beside = || std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("rowen");
    let program = std::env::var_os("ROWEN").map_or_else(beside, PathBuf::from);
    assert!(program.is_file(), "{} is not there: `cargo build -p rowen-cli` makes it", program.display());
    program
}

/// A directory in memory that ends with its scope.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes it.
    pub fn new(name: &str) -> Scratch {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = parent.join(format!("rowen-conformance-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}
