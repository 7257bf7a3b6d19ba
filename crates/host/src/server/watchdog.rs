//! Watches the workers: one that is wedged serves no volume, and no other worker can do its work.
//!
//! * WD1 A worker that has something to do and does not come back to its loop for [`LIMIT`] is named in the log with its
//!   stack. Where the kernel repeats requests the process then ends, as if it had been killed, and a successor goes on.
//! * WD2 A worker that waits in the kernel, or that the machine gives no time, ends nothing: another process would wait as
//!   well. It is named in the log, once.
//! * WD3 The service manager is told that all is well after each look that finds no worker wedged, and by nobody else while this
//!   server serves: where this process stands still, or its watchdog does, it is killed and replaced. While it is replaced, the
//!   keeper tells it.
//!
//! Looks are counted, not seconds: while the whole process stands still (SIGSTOP, a debugger, suspend) nobody looks.

use super::state::Server;
use super::{log, recorder};
use crate::export::Exports;
use crate::reactor::{Beat, Pulses};
use crate::{notify, planted, processes};
use rowen_control::history::What;
use std::backtrace::Backtrace;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a worker may work on one thing. The environment may change it, for tests and unusual hosts:
/// `ROWEN_WATCHDOG_SECONDS`; 0: nobody watches.
pub const LIMIT: Duration = Duration::from_secs(10);
/// So many looks in a row that find a worker where it was are too many.
const LOOKS: u32 = 10;
/// How long a wedged worker may take to tell where it is.
const TELLING: Duration = Duration::from_secs(5);
/// The exit code of a server that ends as if it were killed: systemd's unit takes it for that.
pub const WEDGED: i32 = 6;

fn limit() -> Option<Duration> {
    let seconds = std::env::var("ROWEN_WATCHDOG_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = seconds.map_or(LIMIT, Duration::from_secs);
    (!limit.is_zero()).then_some(limit)
}

/// Watches this server's workers from now on, until the process ends.
pub fn start(server: &Server) {
    let Some(limit) = limit() else { return notify::unwatched() };
    if !server.exports.can_be_taken_over() {
        // Who would be killed has no successor.
        notify::unwatched();
    }
    catch_question();
    let (pulses, exports) = (server.pool.pulses(), server.exports.clone());
    let watch = move || watch(&pulses, &exports, limit);
    if let Err(e) = std::thread::Builder::new().name("rowen-watchdog".into()).spawn(watch) {
        log::warning(format_args!("nobody watches the workers: {e}"));
    }
}

fn watch(pulses: &Pulses, exports: &Arc<Exports>, limit: Duration) {
    let mut workers: Vec<Watched> = pulses.look().map(Watched::new).collect();
    let mut is_wedged = false;
    loop {
        std::thread::sleep(limit / LOOKS);
        if !is_wedged || planted::is("alive_anyway") {
            notify::alive();
        }
        for (number, (worker, beat)) in workers.iter_mut().zip(pulses.look()).enumerate() {
            if !worker.is_late(beat) {
                continue;
            }
            let name = format!("worker {number} (thread {})", beat.thread);
            let seconds = limit.as_secs_f64();
            match worker.doing(beat.thread) {
                Doing::WaitsInKernel => {
                    let what =
                        format!("{name} has waited in the kernel for {seconds} s, as for a disk that does not answer");
                    log::event(What::Worker, what);
                    tell_kernel_stack(beat.thread);
                }
                Doing::HasNoTime => {
                    log::event(What::Worker, format_args!("{name} was given no processor for {seconds} s"));
                }
                Doing::IsWedged => {
                    is_wedged = exports.can_be_taken_over();
                    replace(&name, seconds, beat.thread, exports);
                }
            }
        }
    }
}

/// A worker, and when it was seen to move.
struct Watched {
    seen: Beat,
    /// Looks since then.
    looks: u32,
    /// The time that it had had from the processors then, in clock ticks.
    ticks: u64,
}

/// What a worker does that does not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    WaitsInKernel,
    HasNoTime,
    IsWedged,
}

impl Watched {
    fn new(beat: Beat) -> Watched {
        Watched { seen: beat, looks: 0, ticks: 0 }
    }

    /// Whether it has been where it is for too long. True once for each place.
    fn is_late(&mut self, beat: Beat) -> bool {
        if beat != self.seen || beat.waits() || beat.thread == 0 {
            (self.seen, self.looks) = (beat, 0);
            return false;
        }
        if self.looks == 0 {
            self.ticks = processes::thread(beat.thread).map_or(0, |thread| thread.ticks);
        }
        self.looks = self.looks.saturating_add(1);
        self.looks == LOOKS
    }

    fn doing(&self, thread: i32) -> Doing {
        let Some(thread) = processes::thread(thread) else { return Doing::IsWedged };
        judge(thread.state, thread.ticks.saturating_sub(self.ticks))
    }
}

/// What a thread in this state (proc(5)) does that has had so many ticks meanwhile.
fn judge(state: char, ticks: u64) -> Doing {
    match state {
        'D' if !rowen_engine::planted::is("ends_in_kernel") => Doing::WaitsInKernel,
        'R' if ticks == 0 => Doing::HasNoTime,
        _ => Doing::IsWedged,
    }
}

/// The server ends where a successor can go on; else who uses its volumes is better off with a part of them.
fn replace(name: &str, seconds: f64, thread: i32, exports: &Exports) {
    log::event(
        What::Worker,
        format_args!("{name} is wedged: it has not come back for {seconds} s (the log has its stack)"),
    );
    tell_kernel_stack(thread);
    tell_stack(thread);
    if planted::is("watchdog_sleeps") {
        return;
    }
    if exports.can_be_taken_over() {
        log::event(What::Worker, "this server ends, so that a successor takes over: nothing acknowledged is lost");
        recorder::flush();
        // SAFETY: ends the process at once; nothing of it is cleaned up, as if it had been killed.
        unsafe { libc::_exit(WEDGED) }
    }
    log::event(
        What::Worker,
        "the kernel (Linux 6.9 can) does not repeat requests to a successor: this server stays; stop what uses its volumes, then kill it",
    );
}

fn tell_kernel_stack(thread: i32) {
    let stack = std::fs::read_to_string(format!("/proc/self/task/{thread}/stack")).unwrap_or_default();
    stack.lines().for_each(|line| log::warning(format_args!("  kernel: {line}")));
}

static TOLD: AtomicBool = AtomicBool::new(false);

/// The signal that asks a thread where it is.
fn question() -> libc::c_int {
    libc::SIGRTMIN() + 4
}

/// Writes the stack of the thread that it meets to the log. It takes memory, as no handler should: a thread that is wedged
/// in the allocator does not answer, and is not waited for.
extern "C" fn answer(_: libc::c_int) {
    let stack = Backtrace::force_capture();
    log::warning(format_args!("\n{stack}"));
    TOLD.store(true, Ordering::Release);
}

fn catch_question() {
    // SAFETY: a zeroed sigaction with a handler and SA_RESTART is valid; the handler lives as long as the process.
    let caught = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = answer as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(question(), &action, std::ptr::null_mut())
    };
    if caught != 0 {
        log::warning("a wedged worker will be named without its stack");
    }
}

fn tell_stack(thread: i32) {
    TOLD.store(false, Ordering::Release);
    // SAFETY: plain numbers; the signal has a handler (`catch_question`), and the thread is this process's.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, question()) };
    let begun = Instant::now();
    while asked == 0 && !TOLD.load(Ordering::Acquire) && begun.elapsed() < TELLING {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
#[path = "watchdog_test.rs"]
mod tests;
