//! Records every request of a group to its disks, for measurements and debugging: `ROWEN_RECORD_IO=FILE`.
//!
//! Requests are passed on unchanged. Each has a `begin` line before it reaches the disk, and an `end` line before its
//! answer reaches the engine. If the record cannot be written, it ends, and the group continues. Lines:
//!
//! ```text
//! begin read|write|flush|discard ID PV OFFSET LENGTH MICROSECONDS    one for each segment of a request
//! end ID MICROSECONDS
//! ```
//!
//! Times are of the real-time clock, since 1970. A flush is one line on volume 0, whatever the number of volumes.

use parking_lot::Mutex;
use rowen_engine::disk::{Completer, DiskOp, DiskOpKind, Disks, PvGeometry, PvIndex, Segment, Segments, completion};
use rowen_engine::runtime::Runtime;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How much is gathered before it is written.
const GATHERED: usize = 64 << 10;

struct Record {
    /// None after an error.
    file: Option<File>,
    text: String,
    next: u64,
}

impl Record {
    fn write_out(&mut self) {
        if let Some(file) = &mut self.file
            && let Err(e) = file.write_all(self.text.as_bytes())
        {
            crate::journal::warn(format_args!("the record of I/O ends here: {e}"));
            self.file = None;
        }
        self.text.clear();
    }

    fn written_if_much(&mut self) {
        if self.text.len() >= GATHERED {
            self.write_out();
        }
    }
}

/// Disks whose requests are recorded.
pub struct Recorded<D> {
    disks: Arc<D>,
    runtime: Arc<dyn Runtime>,
    record: Arc<Mutex<Record>>,
}

impl<D: Disks> Recorded<D> {
    /// Appends to the file.
    pub fn new(disks: Arc<D>, runtime: Arc<dyn Runtime>, path: &Path) -> io::Result<Recorded<D>> {
        let file = File::options().append(true).create(true).open(path)?;
        let record = Record { file: Some(file), text: String::new(), next: 0 };
        Ok(Recorded { disks, runtime, record: Arc::new(Mutex::new(record)) })
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros())
}

impl<D: Disks> Disks for Recorded<D> {
    fn count(&self) -> usize {
        self.disks.count()
    }

    fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.disks.geometry(pv)
    }

    fn turns(&self, pv: PvIndex) -> bool {
        self.disks.turns(pv)
    }

    fn submit(&self, op: DiskOp, done: Completer) {
        let (name, segments) = match &op {
            DiskOp::Read { segments, .. } => ("read", segments.clone()),
            DiskOp::Write { segments, .. } => ("write", segments.clone()),
            DiskOp::Discard { segments } => ("discard", segments.clone()),
            DiskOp::Flush => {
                let whole = Segment { pv: PvIndex(0), offset: 0, at: 0, len: 0 };
                ("flush", Segments::from_iter([whole]))
            }
        };
        let is_flush = op.kind() == DiskOpKind::Flush;
        let id = {
            let mut record = self.record.lock();
            record.next += 1;
            let (id, at) = (record.next, now());
            for Segment { pv, offset, len, .. } in segments {
                // Writing to text cannot fail.
                let _ = writeln!(record.text, "begin {name} {id} {} {offset} {len} {at}", pv.0);
            }
            record.written_if_much();
            id
        };
        let (completer, answer) = completion();
        self.disks.submit(op, completer);
        let record = self.record.clone();
        let recording = async move {
            let result = answer.await;
            {
                let mut record = record.lock();
                let _ = writeln!(record.text, "end {id} {}", now());
                // After a flush the record contains everything before it.
                if is_flush {
                    record.write_out();
                } else {
                    record.written_if_much();
                }
            }
            done.complete(result);
        };
        self.runtime.spawn("record", Box::pin(recording));
    }

    fn back(&self, segments: Segments, done: Completer) {
        self.disks.back(segments, done);
    }
}

impl<D> Drop for Recorded<D> {
    fn drop(&mut self) {
        self.record.lock().write_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::{IoEngine, OpenMode, PvSet};
    use crate::reactor::Pool;
    use rowen_engine::disk::{PageBuf, start};

    #[test]
    fn each_request_begins_and_ends_in_the_record() {
        let path = |name: &str| std::env::temp_dir().join(format!("rowen-record-{name}-{}", std::process::id()));
        let (disk, record) = (path("disk"), path("io"));
        File::create(&disk).unwrap().set_len(8 << 20).unwrap();
        let pool = Pool::start(2).unwrap();
        let disks = Arc::new(PvSet::open(&pool, &[&disk], OpenMode::Exclusive, IoEngine::Uring).unwrap());
        let recorded = Arc::new(Recorded::new(disks, pool.runtime(), &record).unwrap());
        let segments = |offset| Segments::from_iter([Segment { pv: PvIndex(0), offset, at: 0, len: 4096 }]);
        let target = recorded.clone();
        let read = pool.block_on(async move {
            let buf = Arc::new(PageBuf::from_slice(&[7; 4096]));
            start(&*target, DiskOp::Write { segments: segments(8192), buf }).await?;
            start(&*target, DiskOp::Flush).await?;
            start(&*target, DiskOp::Read { segments: segments(8192), buf: PageBuf::zeroed(4096) }).await
        });
        assert_eq!(read.unwrap().unwrap().as_slice()[0], 7, "the requests are not passed on as they are");
        drop(recorded);
        let text = std::fs::read_to_string(&record).unwrap();
        std::fs::remove_file(&disk).unwrap();
        std::fs::remove_file(&record).unwrap();
        let without_time: Vec<&str> = text.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        let asked =
            ["begin write 1 0 8192 4096", "end 1", "begin flush 2 0 0 0", "end 2", "begin read 3 0 8192 4096", "end 3"];
        assert_eq!(without_time, asked);
    }
}
