//! What Dennis van Dok and John Newbigin measured of LVM2 ("LVM2 snapshot performance problems", 2007 to 2014): seconds
//! of `dd if=/dev/zero of=FILE bs=1M count=1000; sync` on ext2. The one place of these figures: the demo and the
//! experiments show them next to their own.

/// MiB that the document's `dd` writes.
pub const WRITE_MIB: u64 = 1000;

/// MB/s of the document's write, if it took this many seconds.
pub fn speed(seconds: f64) -> f64 {
    WRITE_MIB as f64 * 1.048_576 / seconds
}

/// A machine that van Dok measured, in seconds of the whole command with its `sync`.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its system and disks.
    pub name: &'static str,
    /// Its kernel.
    pub kernel: &'static str,
    /// Without a snapshot.
    pub without: f64,
    /// With one, of which nothing was copied before.
    pub with: f64,
}

/// Van Dok's two machines. Their `dd` alone, without `sync`, took 10.3 and 796.6 s, and 4.9 and 54.1 s.
pub const VAN_DOK: [Machine; 2] = [
    Machine { name: "CentOS 5, ST3750640NS mirror", kernel: "Linux 2.6.18", without: 20.285, with: 1004.222 },
    Machine { name: "Debian, ST373455SS", kernel: "Linux 2.6.26", without: 11.801, with: 123.906 },
];

/// One chunk size on Newbigin's machine, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    /// As `lvcreate -c` takes it.
    pub size: &'static str,
    /// Written to the origin, with a snapshot.
    pub with: f64,
    /// Written to the snapshot.
    pub on_snapshot: f64,
}

/// Newbigin's machine: an HP DL380 G5 with six disks of 10,000 turns a minute as a RAID 5.
pub const NEWBIGIN: &str = "DL380, RAID5 of 6";

/// Newbigin's seconds without a snapshot.
pub const NEWBIGIN_WITHOUT: f64 = 5.0;

/// Newbigin's seconds for each chunk size.
pub const NEWBIGIN_CHUNKS: [Chunk; 8] = [
    Chunk { size: "4k", with: 625.0, on_snapshot: 179.0 },
    Chunk { size: "8k", with: 304.0, on_snapshot: 169.0 },
    Chunk { size: "16k", with: 200.0, on_snapshot: 105.0 },
    Chunk { size: "32k", with: 63.0, on_snapshot: 66.0 },
    Chunk { size: "64k", with: 83.0, on_snapshot: 58.0 },
    Chunk { size: "128k", with: 49.0, on_snapshot: 58.0 },
    Chunk { size: "256k", with: 49.0, on_snapshot: 53.0 },
    Chunk { size: "512k", with: 55.0, on_snapshot: 49.0 },
];
