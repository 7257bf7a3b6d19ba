//! Messages from other threads to a worker: tasks to run, requests to start. A message that is posted before the worker
//! stops is handled. Posting to a worker that is awake takes no system call.

use super::file::Forget;
use super::io::IoRequest;
use super::pulse::Pulse;
use super::ready::PollCell;
use super::task::TaskCell;
use super::time::TimerCell;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(crate) enum Message {
    Run(Arc<TaskCell>),
    Request(IoRequest),
    Timer(Instant, Arc<TimerCell>),
    /// This poll is not needed any more. The number is its index in the worker's table.
    CancelPoll(usize, Arc<PollCell>),
    Forget(Forget),
    /// Finish what is queued and under way, then end.
    Stop,
}

#[derive(Default)]
struct Queue {
    messages: Vec<Message>,
    closed: bool,
}

/// A worker's inbox and its bell.
pub(crate) struct Mailbox {
    /// The worker's number in its pool.
    pub index: usize,
    pub pulse: Pulse,
    queue: Mutex<Queue>,
    /// Set while messages wait, so that a busy worker looks without taking the lock.
    pending: AtomicBool,
    /// Set while the worker sleeps or is about to. The thread that clears it rings the bell.
    sleeping: AtomicBool,
    bell: OwnedFd,
}

impl Mailbox {
    pub fn new(index: usize) -> io::Result<Mailbox> {
        // SAFETY: eventfd takes no pointer; a non-negative result is a new descriptor that nobody else owns.
        let bell = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Mailbox {
            index,
            pulse: Pulse::default(),
            queue: Mutex::default(),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            bell,
        })
    }

    /// Gives the message back when the worker has ended.
    pub fn post(&self, message: Message) -> Result<(), Message> {
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err(message);
            }
            queue.messages.push(message);
            self.pending.store(true, Ordering::SeqCst);
        }
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.ring();
        }
        Ok(())
    }

    fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is eight readable bytes. The counter cannot overflow, so this does not fail.
        unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Resets the bell, so that it does not count as rung at the next poll.
    pub fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the buffer is eight writable bytes; the descriptor does not block.
        unsafe { libc::read(self.bell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Moves what waits into `into`, which is empty.
    pub fn take(&self, into: &mut Vec<Message>) {
        if self.pending.load(Ordering::SeqCst) {
            let mut queue = self.queue.lock();
            self.pending.store(false, Ordering::SeqCst);
            std::mem::swap(&mut queue.messages, into);
        }
    }

    /// Announces sleep. False: a message came meanwhile, do not sleep.
    pub fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.pending.load(Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Refuses further messages and returns the last ones; the caller drops them, which fails their requests.
    pub fn close(&self) -> Vec<Message> {
        let mut queue = self.queue.lock();
        queue.closed = true;
        std::mem::take(&mut queue.messages)
    }
}
