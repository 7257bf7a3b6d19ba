//! Sends answers to the kernel together. Written one by one, each would wake a thread that takes the processor before
//! the next answer is written.
//!
//! An answer is written once, as a whole or not at all. Its memory stays valid until the kernel is done with it, even
//! if its task is dropped.

use super::worker;
use parking_lot::Mutex;
use rowen_engine::disk::PageBuf;
use rustix::io::writev;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Bytes that a head may have.
pub const HEAD: usize = 32;

/// One message: a head and, after it, the first bytes of a buffer.
pub struct Reply {
    fd: Arc<OwnedFd>,
    head: [u8; HEAD],
    head_len: usize,
    body: Option<(PageBuf, usize)>,
}

impl Reply {
    /// `head` has at most [`HEAD`] bytes. `body` has the number of bytes to send from its buffer.
    pub fn new(fd: Arc<OwnedFd>, head: &[u8], body: Option<(PageBuf, usize)>) -> Reply {
        let mut reply = Reply { fd, head: [0; HEAD], head_len: head.len(), body };
        reply.head[..head.len()].copy_from_slice(head);
        reply
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The parts to send, in order.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        let body = self.body.as_ref().map_or(&[][..], |(buf, len)| &buf.as_slice()[..*len]);
        [&self.head[..self.head_len], body]
    }

    fn into_body(self) -> Option<PageBuf> {
        self.body.map(|(buf, _)| buf)
    }

    /// Sends it at once. Gives back its buffer.
    pub fn send(self) -> (io::Result<()>, Option<PageBuf>) {
        let parts = self.parts();
        let sent = writev(&*self.fd, &parts.map(IoSlice::new)).map(|_| ()).map_err(io::Error::from);
        (sent, self.into_body())
    }

    /// Sends it with the others of this worker's turn, at once where there is no ring. Gives back its buffer.
    pub async fn send_with_others(self) -> (io::Result<()>, Option<PageBuf>) {
        let cell = Arc::new(ReplyCell::default());
        if let Err(reply) = worker::reply_here(self, &cell) {
            return reply.send();
        }
        let (result, buf) = poll_fn(|cx| {
            let mut state = cell.0.lock();
            match state.sent.take() {
                Some(sent) => Poll::Ready(sent),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        (if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }, buf)
    }
}

/// The result of a reply: bytes or a negative error number, and its buffer.
type Sent = (i32, Option<PageBuf>);

#[derive(Default)]
struct State {
    sent: Option<Sent>,
    waker: Option<Waker>,
}

/// Shared by the task that answers and the worker whose ring has the answer.
#[derive(Default)]
pub(crate) struct ReplyCell(Mutex<State>);

impl ReplyCell {
    pub fn sent(&self, reply: Reply, result: i32) {
        let mut state = self.0.lock();
        state.sent = Some((result, reply.into_body()));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
