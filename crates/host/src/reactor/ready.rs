//! Waiting for a descriptor to become readable.

use super::mailbox::{Mailbox, Message};
use super::worker;
use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct PollState {
    /// What the kernel answered: events, or a negative error number.
    answer: Option<i32>,
    waker: Option<Waker>,
}

/// Shared by a waiting future and the worker that watches its descriptor.
#[derive(Default)]
pub(crate) struct PollCell(Mutex<PollState>);

impl PollCell {
    pub fn answer(&self, answer: i32) {
        let waker = {
            let mut state = self.0.lock();
            state.answer = Some(answer);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Watch {
    cell: Arc<PollCell>,
    home: Arc<Mailbox>,
    key: usize,
}

struct Readable {
    fd: RawFd,
    watch: Option<Watch>,
}

/// Completes when a read of `fd` would not block: data, end of file or an error condition. Must run on a worker.
/// The descriptor has to stay open until then; dropping the future ends the watch.
pub async fn readable(fd: RawFd) -> io::Result<()> {
    Readable { fd, watch: None }.await
}

impl Future for Readable {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(watch) = &self.watch else {
            let cell = Arc::new(PollCell(Mutex::new(PollState { answer: None, waker: Some(cx.waker().clone()) })));
            let Some((home, key)) = worker::watch(self.fd, &cell) else {
                return Poll::Ready(Err(io::Error::other("readable() was awaited outside the reactor's workers")));
            };
            self.watch = Some(Watch { cell, home, key });
            return Poll::Pending;
        };
        let mut state = watch.cell.0.lock();
        let Some(answer) = state.answer else {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        self.watch = None;
        Poll::Ready(if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(()) })
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        if let Some(Watch { cell, home, key }) = self.watch.take()
            && cell.0.lock().answer.is_none()
            && !worker::cancel_watch(&home, key, &cell)
        {
            // A worker that has ended watches nothing any more.
            drop(home.post(Message::CancelPoll(key, cell)));
        }
    }
}
