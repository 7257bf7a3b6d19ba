//! A question to a disk: whether it answers at all.

use super::{IoEngine, sys};
use crate::reactor::IoFile;
use io_uring::{IoUring, opcode, squeue, types};
use rowen_engine::disk::PageBuf;
use std::io;
use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BYTES: usize = 4096;

/// A read that was sent to a disk.
pub enum Question {
    /// It needs no answer, or has one.
    Answered,
    InRing(Box<InRing>),
    /// The kernel has no rings.
    OnThread(Arc<AtomicBool>),
}

impl Question {
    /// Reads the first block, through a ring of its own: a killed process ends although a ring has requests in flight. With a
    /// thread in a read it would end with that read, and keep its sockets and locks until then.
    pub(super) fn ask(file: Arc<IoFile>, engine: IoEngine) -> Question {
        match engine {
            IoEngine::Sync => Question::on_thread(file),
            IoEngine::Uring => InRing::ask(file).map_or(Question::Answered, |asked| Question::InRing(Box::new(asked))),
        }
    }

    fn on_thread(file: Arc<IoFile>) -> Question {
        let answered = Arc::new(AtomicBool::new(false));
        let (answers, mut page) = (answered.clone(), PageBuf::zeroed(BYTES));
        let work = move || {
            let memory = page.as_mut_slice();
            // SAFETY: the memory is as long as we say, and lives until the call returns.
            let _read = unsafe { sys::read_at(file.fd(), memory.as_mut_ptr(), memory.len(), 0) };
            answers.store(true, Ordering::Release);
        };
        match std::thread::Builder::new().name("rowen-ask".into()).spawn(work) {
            Ok(_) => Question::OnThread(answered),
            Err(_) => Question::Answered,
        }
    }

    /// Whether the disk has answered, with data or an error, or nobody could be sent.
    pub fn is_answered(&mut self) -> bool {
        match self {
            Question::Answered => true,
            Question::InRing(asked) => asked.is_answered(),
            Question::OnThread(answered) => answered.load(Ordering::Acquire),
        }
    }
}

/// A read in a ring of its own.
pub struct InRing {
    ring: IoUring,
    is_answered: bool,
    /// None after this was dropped.
    memory: Option<(PageBuf, Arc<IoFile>)>,
}

impl InRing {
    fn ask(file: Arc<IoFile>) -> io::Result<InRing> {
        let mut page = PageBuf::zeroed(BYTES);
        let mut ring = IoUring::new(2)?;
        let read = opcode::Read::new(types::Fd(file.fd()), page.as_mut_slice().as_mut_ptr(), BYTES as u32).build();
        // Who asks waits for no lock of a file that hangs (DT4).
        let read = read.flags(squeue::Flags::ASYNC);
        // SAFETY: the memory and the file stay until the answer comes, or for ever.
        let queued = unsafe { ring.submission().push(&read) };
        queued.map_err(io::Error::other)?;
        let asked = InRing { ring, is_answered: false, memory: Some((page, file)) };
        asked.ring.submit()?;
        Ok(asked)
    }

    fn is_answered(&mut self) -> bool {
        self.is_answered |= self.ring.completion().next().is_some();
        self.is_answered
    }
}

impl Drop for InRing {
    fn drop(&mut self) {
        if !self.is_answered() {
            // The disk may write there still.
            forget(self.memory.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::{OpenMode, PvSet};
    use crate::reactor::Pool;
    use rowen_engine::disk::PvIndex;
    use std::time::{Duration, Instant};

    #[test]
    fn a_disk_answers() {
        let path = std::env::temp_dir().join(format!("rowen-question-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let pool = Pool::start(1).unwrap();
        for engine in [IoEngine::Uring, IoEngine::Sync] {
            let set = PvSet::open(&pool, &[&path], OpenMode::ReadOnly, engine).unwrap();
            let (begun, mut question) = (Instant::now(), set.ask(PvIndex(0)));
            while !question.is_answered() {
                assert!(begun.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
            assert!(set.ask(PvIndex(1)).is_answered(), "there is none");
        }
        std::fs::remove_file(path).unwrap();
    }
}
