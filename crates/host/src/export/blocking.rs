//! Work that may block, off the workers.
//!
//! Attaching, opening, freezing and unmounting a device makes the kernel send requests to this process. A worker that
//! waits for such a call would wait for itself. So all of them run on separate threads. They are rare.

use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

enum State<T> {
    Running(Option<Waker>),
    Done(std::thread::Result<T>),
    Taken,
}

/// The outcome of work under way on another thread.
struct Outcome<T>(Arc<Mutex<State<T>>>);

impl<T> Future for Outcome<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(Ok(value)) => Poll::Ready(value),
            State::Done(Err(panic)) => std::panic::resume_unwind(panic),
            State::Running(_) => {
                *state = State::Running(Some(cx.waker().clone()));
                Poll::Pending
            }
            State::Taken => panic!("an outcome was polled after it was ready"),
        }
    }
}

/// Runs `work` on a separate thread and completes with its result. The work continues when the future is dropped. Fails
/// only if no thread can be started.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let state = Arc::new(Mutex::new(State::Running(None)));
    let result = state.clone();
    std::thread::Builder::new().name("rowen-blocking".into()).spawn(move || {
        let value = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        if let State::Running(Some(waker)) = std::mem::replace(&mut *result.lock(), State::Done(value)) {
            waker.wake();
        }
    })?;
    Ok(Outcome(state).await)
}
