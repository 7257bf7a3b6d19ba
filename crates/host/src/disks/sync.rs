//! Disk requests without a ring: helper threads with `pread`, `pwrite` and `fdatasync`. Used where io_uring is forbidden
//! or not wanted (fault injection by system call), and for discards of block devices, which rings cannot do.

use super::sys;
use crate::reactor::{IoRequest, Part, Payload, Progress, progress};
use parking_lot::{Condvar, Mutex};
use rowen_engine::disk::{DiskError, DiskOpKind};
use std::collections::VecDeque;
use std::sync::Arc;

/// As many requests are carried out at a time; the rest wait their turn.
const MAX_THREADS: usize = 32;

type Job = IoRequest;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

/// Helper threads, started when they are first needed. They end when this is dropped and the queue is empty.
#[derive(Default)]
pub struct Helpers {
    queue: Arc<Queue>,
}

impl Helpers {
    pub fn submit(&self, job: Job) {
        let mut state = self.queue.state.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < MAX_THREADS {
            let queue = self.queue.clone();
            let started = std::thread::Builder::new().name("rowen-sync-io".into()).spawn(move || work(&queue));
            match started {
                Ok(_) => state.threads += 1,
                // Those that run already will come to it. Without any the request fails by being dropped.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    let job = state.jobs.pop_back();
                    job.iter().flat_map(|job| &job.parts).for_each(|part| part.file.meter.withdraw());
                }
            }
        }
        drop(state);
        self.queue.bell.notify_one();
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.bell.notify_all();
    }
}

fn work(queue: &Queue) {
    loop {
        let job = {
            let mut state = queue.state.lock();
            loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.closed {
                    state.threads -= 1;
                    return;
                }
                state.idle += 1;
                queue.bell.wait(&mut state);
                state.idle -= 1;
            }
        };
        perform(job);
    }
}

/// Carries a request out and completes it.
fn perform(mut job: Job) {
    let base = match &mut job.payload {
        Payload::None | Payload::Flush(_) => std::ptr::null_mut(),
        Payload::Read(buf) => buf.as_mut_slice().as_mut_ptr(),
        // Only read from.
        Payload::Write(buf) => buf.as_slice().as_ptr().cast_mut(),
    };
    let mut error = None;
    for part in &job.parts {
        let result = transfer(job.kind, part, base);
        part.count(job.kind, job.begun, result.is_ok());
        if let Err(failed) = result {
            part.fails(failed, &mut error);
        }
    }
    job.finish(error);
}

fn transfer(kind: DiskOpKind, part: &Part, base: *mut u8) -> Result<(), DiskError> {
    let fd = part.file.fd();
    let mut done = 0u32;
    let mut tries = 0;
    loop {
        let (offset, len) = (part.offset + u64::from(done), part.len - done);
        let memory = base.wrapping_add(part.at as usize + done as usize);
        // SAFETY: requests are made by `PvSet`, which checks that each part lies within the buffer, and the buffer is
        // held by the request that our caller holds.
        let result = match kind {
            DiskOpKind::Read => unsafe { sys::read_at(fd, memory, len as usize, offset) },
            DiskOpKind::Write => unsafe { sys::write_at(fd, memory, len as usize, offset) },
            DiskOpKind::Flush => sys::sync_data(fd),
            DiskOpKind::Discard if part.device => match sys::device_discard(fd, offset, u64::from(len)) {
                Ok(()) => 0,
                Err(e) => -e.raw_os_error().unwrap_or(libc::EIO),
            },
            DiskOpKind::Discard => sys::punch(fd, offset, u64::from(len)),
        };
        let errno = match progress(kind, part, done, result) {
            Progress::Done => return Ok(()),
            Progress::Continue(after) => {
                tries = if after == done { tries + 1 } else { 0 };
                done = after;
                if tries < 1000 {
                    continue;
                }
                libc::EAGAIN
            }
            Progress::Failed(errno) => errno,
        };
        return Err(DiskError { op: kind, pv: part.pv, offset, errno });
    }
}
