//! Which disks a flush asks.

use super::{IoEngine, OpenMode, PvSet};
use crate::meter::Meter;
use crate::reactor::{IoRequest, Payload, Pool};
use rowen_engine::disk::{DiskError, DiskOp, DiskOpKind, PageBuf, PvIndex, Segment, Segments, start};
use std::path::PathBuf;
use std::sync::Arc;

struct Lab {
    pool: Pool,
    disks: Arc<PvSet>,
    files: Vec<PathBuf>,
}

impl Lab {
    fn new(name: &str) -> Lab {
        let pool = Pool::start(1).unwrap();
        let dir = std::env::temp_dir();
        let files: Vec<PathBuf> =
            (0..3).map(|n| dir.join(format!("rowen-flush-{name}-{n}-{}", std::process::id()))).collect();
        for file in &files {
            std::fs::File::create(file).unwrap().set_len(4 << 20).unwrap();
        }
        let disks = PvSet::open(&pool, &files, OpenMode::Exclusive, IoEngine::Uring);
        Lab { pool, disks: Arc::new(disks.unwrap()), files }
    }

    fn run(&self, op: DiskOp) {
        let disks = self.disks.clone();
        self.pool.block_on(async move { start(&*disks, op).await.map(drop) }).unwrap();
    }

    fn segments(pv: u16) -> Segments {
        Segments::from_iter([Segment { pv: PvIndex(pv), offset: 1 << 20, at: 0, len: 4096 }])
    }

    fn write(&self, pv: u16) {
        self.run(DiskOp::Write { segments: Lab::segments(pv), buf: Arc::new(PageBuf::zeroed(4096)) });
    }

    /// What a flush would ask now.
    fn unflushed(&self) -> Vec<u16> {
        self.disks.unflushed().0.iter().map(|part| part.pv.0).collect()
    }

    /// A flush that has begun and is not done yet.
    fn begun(&self) -> IoRequest {
        let (done, _) = rowen_engine::disk::completion();
        let (parts, covers) = self.disks.unflushed();
        IoRequest { kind: DiskOpKind::Flush, parts, payload: Payload::Flush(covers), done, begun: Meter::now() }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.files.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }
}

#[test]
fn only_what_was_changed_is_flushed() {
    let lab = Lab::new("changed");
    assert_eq!(lab.unflushed(), [0, 1, 2], "an earlier holder may have left something");
    lab.run(DiskOp::Flush);
    assert_eq!(lab.unflushed(), [0; 0]);
    lab.write(1);
    assert_eq!(lab.unflushed(), [1]);
    lab.run(DiskOp::Discard { segments: Lab::segments(2) });
    assert_eq!(lab.unflushed(), [1, 2]);
    lab.run(DiskOp::Read { segments: Lab::segments(0), buf: PageBuf::zeroed(4096) });
    lab.run(DiskOp::Flush);
    assert_eq!(lab.unflushed(), [0; 0]);
    lab.run(DiskOp::Flush);
}

#[test]
fn a_flush_that_is_not_done_spares_nobody_another() {
    let lab = Lab::new("begun");
    lab.run(DiskOp::Flush);
    lab.write(0);
    let begun = lab.begun();
    assert_eq!(lab.unflushed(), [0], "it is under way");
    lab.write(0);
    begun.finish(None);
    assert_eq!(lab.unflushed(), [0], "the second write came after it began");
    let failed = lab.begun();
    failed.finish(Some(DiskError { op: DiskOpKind::Flush, pv: PvIndex(0), offset: 0, errno: libc::EIO }));
    assert_eq!(lab.unflushed(), [0], "it failed");
    lab.begun().finish(None);
    assert_eq!(lab.unflushed(), [0; 0]);
    // An older flush that ends late takes nothing back.
    lab.write(0);
    let (old, new) = (lab.begun(), lab.begun());
    new.finish(None);
    old.finish(None);
    assert_eq!(lab.unflushed(), [0; 0]);
}

#[test]
fn what_reaches_a_disk_is_counted_there() {
    let lab = Lab::new("counted");
    lab.run(DiskOp::Flush);
    lab.write(1);
    lab.write(1);
    lab.run(DiskOp::Read { segments: Lab::segments(2), buf: PageBuf::zeroed(4096) });
    lab.run(DiskOp::Flush);
    let counts = [0, 1, 2].map(|pv| lab.disks.io(PvIndex(pv)));
    assert_eq!(counts.map(|io| io.flush.requests), [1, 2, 1]);
    assert_eq!(counts.map(|io| (io.write.requests, io.write.bytes)), [(0, 0), (2, 8192), (0, 0)]);
    assert_eq!(counts.map(|io| (io.read.requests, io.read.bytes)), [(0, 0), (0, 0), (1, 4096)]);
    assert_eq!(counts.map(|io| (io.failed(), io.under_way)), [(0, 0); 3]);
}
