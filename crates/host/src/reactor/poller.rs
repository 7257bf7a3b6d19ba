//! What a worker waits with where io_uring is forbidden: `poll`. Disk requests never come here, helper threads do
//! them (`disks::sync`).

use super::mailbox::Mailbox;
use super::ready::PollCell;
use super::ring::{Completions, Wait};
use slab::Slab;
use std::os::fd::RawFd;
use std::sync::Arc;

pub(crate) struct Poller {
    mailbox: Arc<Mailbox>,
    watched: Slab<(RawFd, Arc<PollCell>)>,
}

impl Poller {
    pub fn new(mailbox: Arc<Mailbox>) -> Poller {
        Poller { mailbox, watched: Slab::new() }
    }

    pub fn watch(&mut self, fd: RawFd, cell: Arc<PollCell>) -> usize {
        self.watched.insert((fd, cell))
    }

    pub fn cancel_watch(&mut self, key: usize, cell: &Arc<PollCell>) {
        if matches!(self.watched.get(key), Some((_, mine)) if Arc::ptr_eq(mine, cell)) {
            self.watched.remove(key);
        }
    }

    pub fn turn(&mut self, wait: Wait, completions: &mut Completions) {
        let timeout = match wait {
            Wait::No if self.watched.is_empty() => return,
            Wait::No => 0,
            Wait::Until(None) => -1,
            // Rounded up: waking a little early would spin until the deadline.
            Wait::Until(Some(limit)) => i32::try_from(limit.as_millis() + 1).unwrap_or(i32::MAX),
        };
        let bell = libc::pollfd { fd: self.mailbox.bell(), events: libc::POLLIN, revents: 0 };
        let watched =
            self.watched.iter().map(|(_, (fd, _))| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 });
        let mut polled: Vec<libc::pollfd> = std::iter::once(bell).chain(watched).collect();
        let keys: Vec<usize> = self.watched.iter().map(|(key, _)| key).collect();
        // SAFETY: the array is valid for its length. A failure (a signal) leaves `revents` zero.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        if polled[0].revents != 0 {
            self.mailbox.silence();
        }
        for (key, fd) in keys.into_iter().zip(&polled[1..]) {
            if fd.revents != 0 {
                let (_, cell) = self.watched.remove(key);
                let answer = if fd.revents & libc::POLLNVAL != 0 { -libc::EBADF } else { i32::from(fd.revents) };
                completions.polled.push((cell, answer));
            }
        }
    }
}
