//! A world in one thread: seeded scheduling and virtual time.
//!
//! [`World`] owns every task and every event of a simulation. It polls one ready task at a time, chosen by the seed.
//! Its clock is virtual: the seed moves it, and it jumps to the next event when no task is ready. So a seed replays a
//! run exactly. A run without progress does not hang: it ends with the names of the tasks that wait.

use crate::rng::Rng;
use parking_lot::Mutex;
use rowen_engine::runtime::{Runtime, Task};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Which of the ready tasks runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Any of them, by the seed.
    Random,
    /// In the order in which they became ready.
    Fifo,
}

/// Why a run ended before its future did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// No task is ready, no timer is set and no request is in flight. The names are those of the waiting tasks.
    Deadlock(Vec<&'static str>),
    /// Virtual time or the number of steps passed its bound: tasks wake each other for ever.
    Livelock(Vec<&'static str>),
    /// [`Handle::stop`] was called (the power was cut).
    Stopped,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stuck::Deadlock(names) => write!(f, "deadlock: nothing can run; waiting: the caller, {}", names.join(", ")),
            Stuck::Livelock(names) => write!(f, "livelock: no end in sight; alive: the caller, {}", names.join(", ")),
            Stuck::Stopped => f.write_str("the world was stopped"),
        }
    }
}

/// Virtual microseconds after which a run counts as endless. It is longer than any real timer.
const LONGEST_RUN: u64 = 3_600_000_000;
/// Polls after which a run counts as endless.
const MOST_STEPS: u64 = 2_000_000;
/// The task number of the future that was passed to `run`.
const MAIN: usize = usize::MAX;

struct Event {
    at: u64,
    order: u64,
    run: Box<dyn FnOnce() + Send>,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct Slot {
    name: &'static str,
    /// Empty while the task is being polled and after it has ended.
    task: Option<Task>,
    wake: Arc<TaskWake>,
}

struct TaskWake {
    id: usize,
    queued: AtomicBool,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().push(self.id);
        }
    }
}

struct State {
    now: u64,
    order: u64,
    rng: Rng,
    schedule: Schedule,
    events: BinaryHeap<Reverse<Event>>,
    slots: Vec<Slot>,
    vacant: Vec<usize>,
    trace: u64,
    stopped: bool,
    /// Set when the world is torn down: tasks spawned from destructors are dropped at once.
    ended: bool,
}

/// A handle of tasks and disks to their world: its clock, random numbers and event queue. Implements [`Runtime`].
pub struct Handle {
    state: Mutex<State>,
    ready: Arc<Mutex<Vec<usize>>>,
}

/// The owner of a simulation. When it is dropped, it drops every task that still waits.
pub struct World {
    handle: Arc<Handle>,
    most_steps: u64,
}

impl World {
    /// A world that this seed decides.
    pub fn new(seed: u64) -> World {
        World::with_schedule(seed, Schedule::Random)
    }

    /// Its runs count as endless after so many polls.
    pub fn bounded(mut self, steps: u64) -> World {
        self.most_steps = steps;
        self
    }

    /// The same with a choice of schedule.
    pub fn with_schedule(seed: u64, schedule: Schedule) -> World {
        let state = State {
            now: 0,
            order: 0,
            rng: Rng::new(seed),
            schedule,
            events: BinaryHeap::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            stopped: false,
            ended: false,
        };
        World { handle: Arc::new(Handle { state: Mutex::new(state), ready: Arc::default() }), most_steps: MOST_STEPS }
    }

    /// The engine's runtime, and the clock of the disks.
    pub fn handle(&self) -> Arc<Handle> {
        self.handle.clone()
    }

    /// Runs until `future` is done.
    ///
    /// # Panics
    /// If it cannot end: see [`Stuck`].
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        match self.try_run(future) {
            Ok(value) => value,
            Err(stuck) => panic!("{stuck}"),
        }
    }

    /// Runs until `future` is done or nothing can happen any more.
    pub fn try_run<T>(&self, future: impl Future<Output = T>) -> Result<T, Stuck> {
        self.try_run_observed(future, &mut || {})
    }

    /// The same, calling `observe` between any two steps. No task is being polled during the call.
    pub fn try_run_observed<T>(&self, future: impl Future<Output = T>, observe: &mut dyn FnMut()) -> Result<T, Stuck> {
        let mut future = pin!(future);
        let wake = Arc::new(TaskWake { id: MAIN, queued: AtomicBool::new(false), ready: self.handle.ready.clone() });
        wake.wake_by_ref();
        let waker = Waker::from(wake.clone());
        let end = self.handle.now() + LONGEST_RUN;
        for _ in 0..self.most_steps {
            observe();
            if self.handle.state.lock().stopped {
                return Err(Stuck::Stopped);
            }
            self.deliver_due();
            // Once more, before a task can act on what was delivered.
            observe();
            let Some(id) = self.next_ready() else {
                if !self.jump_to_next_event() {
                    return Err(Stuck::Deadlock(self.alive()));
                }
                if self.handle.now() > end {
                    break;
                }
                continue;
            };
            if id == MAIN {
                wake.queued.store(false, Ordering::Relaxed);
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    self.forget_main();
                    return Ok(value);
                }
            } else {
                self.poll_task(id);
            }
        }
        Err(Stuck::Livelock(self.alive()))
    }

    /// Runs background tasks until all of them wait for something that will not come, or until `micros` have passed.
    pub fn settle(&self, micros: u64) {
        let handle = self.handle.clone();
        self.run(async move { handle.sleep(Duration::from_micros(micros)).await });
    }

    fn deliver_due(&self) {
        loop {
            let mut state = self.handle.state.lock();
            let now = state.now;
            match state.events.peek() {
                Some(Reverse(event)) if event.at <= now => {}
                _ => return,
            }
            let event = state.events.pop().map(|Reverse(event)| event);
            drop(state);
            if let Some(event) = event {
                (event.run)();
            }
        }
    }

    fn next_ready(&self) -> Option<usize> {
        let mut ready = self.handle.ready.lock();
        if ready.is_empty() {
            return None;
        }
        let mut state = self.handle.state.lock();
        state.now += state.rng.below(3);
        let at = match state.schedule {
            Schedule::Fifo => 0,
            Schedule::Random => state.rng.below(ready.len() as u64) as usize,
        };
        let id = ready.remove(at);
        state.mix(id as u64);
        Some(id)
    }

    fn jump_to_next_event(&self) -> bool {
        let mut state = self.handle.state.lock();
        let Some(at) = state.events.peek().map(|Reverse(event)| event.at) else { return false };
        state.now = state.now.max(at);
        true
    }

    fn poll_task(&self, id: usize) {
        let (mut task, wake) = {
            let mut state = self.handle.state.lock();
            let slot = &mut state.slots[id];
            // A late wake of a task that has ended finds its slot empty.
            let Some(task) = slot.task.take() else { return };
            slot.wake.queued.store(false, Ordering::Relaxed);
            (task, slot.wake.clone())
        };
        let waker = Waker::from(wake);
        let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if done {
            drop(task);
            let mut state = self.handle.state.lock();
            // A new waker for the next task in the slot. Old wakes cannot reach that task through it.
            let ready = self.handle.ready.clone();
            state.slots[id].wake = Arc::new(TaskWake { id, queued: AtomicBool::new(false), ready });
            state.vacant.push(id);
        } else {
            self.handle.state.lock().slots[id].task = Some(task);
        }
    }

    fn forget_main(&self) {
        self.handle.ready.lock().retain(|&id| id != MAIN);
    }

    fn alive(&self) -> Vec<&'static str> {
        let state = self.handle.state.lock();
        state.slots.iter().filter(|slot| slot.task.is_some()).map(|slot| slot.name).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Tasks own the engine, the engine owns the handle, the handle owns the tasks: break the cycle here.
        let (slots, events) = {
            let mut state = self.handle.state.lock();
            state.ended = true;
            (std::mem::take(&mut state.slots), std::mem::take(&mut state.events))
        };
        drop(slots);
        drop(events);
    }
}

impl State {
    fn mix(&mut self, word: u64) {
        self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }
}

impl Handle {
    /// Virtual microseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.state.lock().now
    }

    /// Runs `event` after `delay` virtual microseconds.
    pub fn after(&self, delay: u64, event: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        let (at, order) = (state.now + delay, state.order);
        state.order += 1;
        state.events.push(Reverse(Event { at, order, run: Box::new(event) }));
    }

    /// Draws random numbers of the world.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.state.lock().rng)
    }

    /// Adds an event to the trace hash.
    pub fn note(&self, word: u64) {
        self.state.lock().mix(word);
    }

    /// The hash of everything that happened so far. Two runs of a seed must agree on it.
    pub fn trace_hash(&self) -> u64 {
        self.state.lock().trace
    }

    /// Ends the current run with [`Stuck::Stopped`] before its next step.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// Starts `future` as a task of its own and returns a future of its result.
    pub fn start<T: Send + 'static>(
        &self,
        name: &'static str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Joined<T> {
        let cell = Arc::new(Mutex::new(Cell { value: None, waker: None }));
        let fill = cell.clone();
        self.spawn(
            name,
            Box::pin(async move {
                let value = future.await;
                let mut cell = fill.lock();
                cell.value = Some(value);
                if let Some(waker) = cell.waker.take() {
                    waker.wake();
                }
            }),
        );
        Joined { cell }
    }
}

struct Cell<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// The result of a task that [`Handle::start`] started.
pub struct Joined<T> {
    cell: Arc<Mutex<Cell<T>>>,
}

impl<T> Future for Joined<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut cell = self.cell.lock();
        match cell.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                cell.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Runtime for Handle {
    fn spawn(&self, name: &'static str, task: Task) {
        let wake = {
            let mut state = self.state.lock();
            if state.ended {
                drop(state);
                drop(task);
                return;
            }
            let id = state.vacant.pop().unwrap_or(state.slots.len());
            let wake = Arc::new(TaskWake { id, queued: AtomicBool::new(false), ready: self.ready.clone() });
            let slot = Slot { name, task: Some(task), wake: wake.clone() };
            if id == state.slots.len() {
                state.slots.push(slot);
            } else {
                state.slots[id] = slot;
            }
            wake
        };
        wake.wake_by_ref();
    }

    fn sleep(&self, pause: Duration) -> Task {
        let cell = Arc::new(Mutex::new(Cell { value: None, waker: None }));
        let fill = cell.clone();
        self.after(pause.as_micros() as u64, move || {
            let mut cell = fill.lock();
            cell.value = Some(());
            if let Some(waker) = cell.waker.take() {
                waker.wake();
            }
        });
        Box::pin(Joined { cell })
    }
}
