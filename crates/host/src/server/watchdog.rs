//! The watchdog of the workers. A hung worker serves no volume, and no other worker can do its work.
//!
//! * WD1 If a worker has work and does not return to its loop for [`LIMIT`], the log gets its name and stack. If the
//!   kernel repeats requests, the process then ends as if it had been killed, and a successor continues.
//! * WD2 A worker that waits in the kernel or gets no processor time does not end the process, because a successor
//!   would wait as well. It is named in the log once.
//! * WD3 After each check that finds no hung worker, the watchdog notifies the service manager. While this server
//!   serves, nothing else does. So if this process or its watchdog stops, it is killed and replaced. During a
//!   replacement the keeper sends the notification.
//!
//! Checks are counted, not seconds: while the whole process is stopped (SIGSTOP, a debugger, suspend) there are no
//! checks.

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

/// How long a worker may take until it returns to its loop. `ROWEN_WATCHDOG_SECONDS` in the environment changes it, for
/// tests and unusual hosts; 0: no watchdog.
pub const LIMIT: Duration = Duration::from_secs(10);
/// After this many checks in a row without progress a worker is late.
const CHECKS: u32 = 10;
/// How long a hung worker may take to report its stack.
const STACK_LIMIT: Duration = Duration::from_secs(5);
/// The exit code of a server that ends as if it were killed. systemd's unit treats it so.
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
        // Without a successor the process must not be killed.
        notify::unwatched();
    }
    catch_stack_signal();
    let (pulses, exports) = (server.pool.pulses(), server.exports.clone());
    let watch = move || watch(&pulses, &exports, limit);
    if let Err(e) = std::thread::Builder::new().name("rowen-watchdog".into()).spawn(watch) {
        log::warning(format_args!("nothing watches the workers: {e}"));
    }
}

fn watch(pulses: &Pulses, exports: &Arc<Exports>, limit: Duration) {
    let mut workers: Vec<Watched> = pulses.beats().map(Watched::new).collect();
    let mut is_wedged = false;
    loop {
        std::thread::sleep(limit / CHECKS);
        if !is_wedged || planted::is("alive_anyway") {
            notify::alive();
        }
        for (number, (worker, beat)) in workers.iter_mut().zip(pulses.beats()).enumerate() {
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
                    log_kernel_stack(beat.thread);
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

/// A worker, and its last observed progress.
struct Watched {
    seen: Beat,
    /// The number of checks since then.
    checks: u32,
    /// Its processor time then, in clock ticks.
    ticks: u64,
}

/// The activity of a late worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    WaitsInKernel,
    HasNoTime,
    IsWedged,
}

impl Watched {
    fn new(beat: Beat) -> Watched {
        Watched { seen: beat, checks: 0, ticks: 0 }
    }

    /// Whether it made no progress for too long. True once until the next progress.
    fn is_late(&mut self, beat: Beat) -> bool {
        if beat != self.seen || beat.waits() || beat.thread == 0 {
            (self.seen, self.checks) = (beat, 0);
            return false;
        }
        if self.checks == 0 {
            self.ticks = processes::thread(beat.thread).map_or(0, |thread| thread.ticks);
        }
        self.checks = self.checks.saturating_add(1);
        self.checks == CHECKS
    }

    fn doing(&self, thread: i32) -> Doing {
        let Some(thread) = processes::thread(thread) else { return Doing::IsWedged };
        judge(thread.state, thread.ticks.saturating_sub(self.ticks))
    }
}

/// The activity of a thread, by its state (proc(5)) and the ticks it has used meanwhile.
fn judge(state: char, ticks: u64) -> Doing {
    match state {
        'D' if !rowen_engine::planted::is("ends_in_kernel") => Doing::WaitsInKernel,
        'R' if ticks == 0 => Doing::HasNoTime,
        _ => Doing::IsWedged,
    }
}

/// Ends the server if a successor can continue. Otherwise it stays, because some usable volumes are better than none.
fn replace(name: &str, seconds: f64, thread: i32, exports: &Exports) {
    log::event(
        What::Worker,
        format_args!("{name} is wedged: it has not answered for {seconds} s (the log has its stack)"),
    );
    log_kernel_stack(thread);
    log_stack(thread);
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

fn log_kernel_stack(thread: i32) {
    let stack = std::fs::read_to_string(format!("/proc/self/task/{thread}/stack")).unwrap_or_default();
    stack.lines().for_each(|line| log::warning(format_args!("  kernel: {line}")));
}

static STACK_IS_LOGGED: AtomicBool = AtomicBool::new(false);

/// The signal that requests a thread's stack.
fn stack_signal() -> libc::c_int {
    libc::SIGRTMIN() + 4
}

/// Writes the stack of the interrupted thread to the log. It allocates memory, although a handler should not. A thread
/// that hangs in the allocator does not answer, and the watchdog does not wait for it.
extern "C" fn log_own_stack(_: libc::c_int) {
    let stack = Backtrace::force_capture();
    log::warning(format_args!("\n{stack}"));
    STACK_IS_LOGGED.store(true, Ordering::Release);
}

fn catch_stack_signal() {
    // SAFETY: a zeroed sigaction with a handler and SA_RESTART is valid; the handler lives as long as the process.
    let caught = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = log_own_stack as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(stack_signal(), &action, std::ptr::null_mut())
    };
    if caught != 0 {
        log::warning("the stack of a wedged worker cannot be logged");
    }
}

fn log_stack(thread: i32) {
    STACK_IS_LOGGED.store(false, Ordering::Release);
    // SAFETY: plain numbers; the signal has a handler (`catch_stack_signal`), and the thread is this process's.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, stack_signal()) };
    let begun = Instant::now();
    while asked == 0 && !STACK_IS_LOGGED.load(Ordering::Acquire) && begun.elapsed() < STACK_LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
#[path = "watchdog_test.rs"]
mod tests;
