//! Worker threads that run the engine's tasks. Each has its own io_uring and run queue. There is no lock or thread that
//! all I/O passes through: a request is submitted and completed on the worker whose task made it.
//!
//! A task stays on its worker. A wake-up from there costs a queue entry; from another thread, a queue entry and at most
//! one system call. A turn of a worker runs all ready tasks, and then makes one system call for all requests. If
//! io_uring is forbidden, the workers wait with `poll`, and helper threads carry out disk requests.

mod failures;
mod file;
mod io;
pub(crate) mod latency;
mod mailbox;
mod poller;
mod pulse;
mod ready;
mod reply;
mod ring;
mod softirq;
mod task;
#[cfg(test)]
mod tests;
mod time;
mod witness;
mod worker;

pub use pulse::{Beat, Pulse};
pub use ready::readable;
pub(crate) use reply::{HEAD as REPLY_HEAD, Reply};

pub(crate) use file::{FileTable, IoFile};
pub(crate) use io::{IoRequest, Part, Payload, Progress, progress};
pub(crate) use softirq::raised as softirq_raised;
pub(crate) use witness::{Place, SAMPLE};

use latency::{Latency, SleepRate};
use mailbox::{Mailbox, Message};
use ring::Ring;
use rowen_engine::runtime::{Runtime, Task};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use task::TaskCell;
use time::Sleep;

/// The part of a pool that disks and other parts of the host use. It does not keep the threads alive.
pub(crate) struct Shared {
    pub mailboxes: Vec<Arc<Mailbox>>,
    pub files: Arc<FileTable>,
    /// Whether the workers have rings.
    pub rings: bool,
}

impl Shared {
    /// Starts a request on this worker's ring, or on worker 0's for any other thread.
    pub fn submit(&self, request: IoRequest) {
        if let Err(request) = worker::start_here(request, &self.mailboxes) {
            // A pool that has stopped drops the request, which fails it.
            drop(self.mailboxes[0].post(Message::Request(request)));
        }
    }

    fn spawn_on(&self, worker: usize, task: Task) {
        task::schedule(TaskCell::queued(task, self.mailboxes[worker].clone()));
    }

    fn spawn(&self, task: Task) {
        let here = worker::current().filter(|here| self.mailboxes.iter().any(|mine| Arc::ptr_eq(mine, here)));
        self.spawn_on(here.map_or(0, |here| here.index), task);
    }
}

impl Runtime for Shared {
    fn spawn(&self, _name: &'static str, task: Task) {
        Shared::spawn(self, task);
    }

    fn sleep(&self, pause: Duration) -> Task {
        Box::pin(Sleep::new(pause, self.mailboxes[0].clone()))
    }
}

/// The pulses of a pool's workers, in order.
pub struct Pulses(Vec<Arc<Mailbox>>);

impl Pulses {
    pub fn beats(&self) -> impl Iterator<Item = Beat> {
        self.0.iter().map(|mailbox| mailbox.pulse.read())
    }
}

/// Running workers. Dropping the pool lets what is queued and under way finish, then ends the threads; tasks that
/// still wait for something are dropped.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `workers` threads (at least one).
    pub fn start(workers: usize) -> std::io::Result<Pool> {
        Pool::start_with(workers, true, None)
    }

    /// The same with processors that wake so fast while the workers are busy.
    pub fn start_alert(workers: usize, latency: Option<Arc<Latency>>) -> std::io::Result<Pool> {
        Pool::start_with(workers, true, latency)
    }

    /// The same without io_uring: what [`Pool::start`] falls back to where the kernel forbids it.
    pub fn start_without_rings(workers: usize) -> std::io::Result<Pool> {
        Pool::start_with(workers, false, None)
    }

    fn start_with(workers: usize, rings: bool, latency: Option<Arc<Latency>>) -> std::io::Result<Pool> {
        let mailboxes: Vec<_> =
            (0..workers.max(1)).map(|index| Mailbox::new(index).map(Arc::new)).collect::<std::io::Result<_>>()?;
        let (made, answers) = mpsc::channel();
        let (decide, decisions): (Vec<_>, Vec<_>) = mailboxes.iter().map(|_| mpsc::channel::<bool>()).unzip();
        let mut threads = Vec::new();
        for (mailbox, decision) in mailboxes.iter().zip(decisions) {
            let (mailbox, made, sleep_rate) = (mailbox.clone(), made.clone(), SleepRate::new(latency.clone()));
            let body = move || {
                let ring = if rings { Ring::new(mailbox.clone()).ok() } else { None };
                let _ = made.send(ring.is_some());
                // Either all workers have rings or none. A pool that could not be started sends no message, and its
                // workers end.
                if let Ok(use_rings) = decision.recv() {
                    worker::run(mailbox, ring.filter(|_| use_rings), sleep_rate);
                }
            };
            threads.push(std::thread::Builder::new().name(format!("rowen-io-{}", threads.len())).spawn(body)?);
        }
        drop(made);
        let rings = answers.iter().take(threads.len()).fold(true, |all, made| all & made);
        for tell in decide {
            let _ = tell.send(rings);
        }
        let files = Arc::new(FileTable::new(mailboxes.clone()));
        Ok(Pool { shared: Arc::new(Shared { mailboxes, files, rings }), threads })
    }

    /// The engine's view of this pool. A task spawned from a worker runs on that worker, any other on worker 0.
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        self.shared.clone()
    }

    /// Runs a future on worker 0 and waits for it. A panic in it is passed on. Not to be called from a worker, which
    /// would wait for itself.
    pub fn block_on<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        self.block_on_polling(future, Duration::MAX, &mut || {})
    }

    /// The same; the caller looks each time that it has waited for so long.
    pub fn block_on_polling<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        every: Duration,
        poll: &mut dyn FnMut(),
    ) -> T {
        assert!(!worker::is_worker(), "block_on was called on a worker thread, which would wait for itself");
        let (send, receive) = mpsc::sync_channel(1);
        let caught = Caught(Box::pin(future));
        self.spawn_on(
            0,
            Box::pin(async move {
                // The receiver waits below.
                let _ = send.send(caught.await);
            }),
        );
        loop {
            match receive.recv_timeout(every) {
                Ok(Ok(value)) => return value,
                Ok(Err(panic)) => resume_unwind(panic),
                Err(mpsc::RecvTimeoutError::Timeout) => poll(),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    panic!("the future was dropped: nothing is left that could wake it")
                }
            }
        }
    }

    /// Runs a task on the given worker.
    pub fn spawn_on(&self, worker: usize, task: Task) {
        self.shared.spawn_on(worker, task);
    }

    /// The data for a watchdog. It does not keep threads alive.
    pub fn pulses(&self) -> Pulses {
        Pulses(self.shared.mailboxes.clone())
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.shared.mailboxes.len()
    }

    /// Whether the workers use io_uring.
    pub fn has_rings(&self) -> bool {
        self.shared.rings
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for mailbox in &self.shared.mailboxes {
            // Refused only by a worker that has ended.
            drop(mailbox.post(Message::Stop));
        }
        let me = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != me {
                // A worker that panicked has ended the process.
                let _ = thread.join();
            }
        }
    }
}

/// Catches a panic of the future, for the thread that waits for it.
struct Caught<T>(Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> Future for Caught<T> {
    type Output = std::thread::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}
