//! Disks that answer nothing (MB10).
//!
//! * DT1 A disk hangs if it has requests, answers none of them for `server/disk_timeout`, and answers no question
//!   either: a read through a ring of its own, which waits for nothing else. It is asked after half of the time, and has the
//!   other half for the answer. A disk that answers anything is only slow. If two disks are silent, none is left: nobody
//!   knows whether the group can go on.
//! * DT2 The server ends as if it were killed, and lets go of everything first: a process whose requests hang in the
//!   kernel may end only when they do. So it answers nothing any more and begins no more requests, waits for those to
//!   the other disks, and closes these disks, its sockets and its locks. Then the keeper starts a successor, which does not wait for this process.
//!   The requests that hang keep their memory and the descriptor of their disk. Nobody takes their answers, and
//!   nobody can use the disk before they have ended.
//! * DT3 If the group needs the disk, its requests wait. An event says so once, and another that it answers again.
//! * DT4 No worker waits for a lock of a disk that hangs. io_uring begins requests on the worker's own thread, and on files
//!   whose kernel code makes no promise such a request may wait, for example for a flush. To such files every request
//!   is begun by a thread of the kernel. The server would watch nothing and answer nobody otherwise, and could not be ended.
//!
//! Looks are counted besides the time, because this process may be stopped meanwhile, and find the answers later.

use super::state::Server;
use super::{log, recorder, run, watchdog};
use crate::disks::Question;
use crate::processes;
use rowen_control::history::What;
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::planted;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// So many looks in the time that a disk has.
const LOOKS: u32 = 20;
/// The interval of looks if there is no limit.
const IDLE: Duration = Duration::from_secs(5);
/// The interval of looks whether it hangs, after all.
const RETRY: Duration = Duration::from_millis(100);
/// How long the requests to the other disks may take at the end.
const OTHERS: Duration = Duration::from_secs(10);

/// Watches the disks of this server from now on, until the process ends.
pub fn start(server: &Arc<Server>) {
    let server = Arc::downgrade(server);
    let watch = move || watch(&server);
    if let Err(e) = std::thread::Builder::new().name("rowen-hung".into()).spawn(watch) {
        log::warning(format_args!("nothing watches for disks that hang: {e}"));
    }
}

fn watch(server: &Weak<Server>) {
    let mut disks: BTreeMap<u16, Patience> = BTreeMap::new();
    let mut pause = IDLE;
    loop {
        std::thread::sleep(pause);
        let Some(server) = server.upgrade() else { return };
        if server.service.ending.is_asked() {
            return;
        }
        let limit = Duration::from_secs(server.service.disk_timeout.load(Ordering::Relaxed));
        pause = if limit.is_zero() { IDLE } else { (limit / LOOKS).min(IDLE) };
        if limit.is_zero() {
            disks.clear();
            continue;
        }
        look(&server, limit, &mut disks);
    }
}

fn look(server: &Server, limit: Duration, disks: &mut BTreeMap<u16, Patience>) {
    let mut hung = None;
    for (at, pv) in (0..).zip(server.service.group.info().pvs) {
        if pv.is_missing {
            disks.remove(&at);
            continue;
        }
        let silent = server.pvs.faults(PvIndex(at)).silent;
        let disk = disks.entry(at).or_default();
        match disk.look(silent, limit) {
            Step::Wait => {}
            Step::Ask => disk.asked = Some((server.pvs.ask(PvIndex(at)), 0)),
            Step::Answers(after) => log::event(
                What::PvBack,
                format_args!("{} answers again, after {} s", name(server, PvIndex(at)), after.as_secs()),
            ),
            Step::Hangs(silence) => hung = Some((at, silence)),
        }
    }
    let Some((at, silence)) = hung else { return };
    let is_alone = disks.iter().all(|(other, disk)| *other == at || disk.asked.is_none());
    if is_alone && server.exports.can_be_taken_over() && is_left(server, PvIndex(at)) {
        leave(server, PvIndex(at), silence);
    }
    let disk = disks.entry(at).or_default();
    if !std::mem::replace(&mut disk.is_told, true) && !planted::is("needed_untold") {
        log::event(
            What::PvError,
            format_args!(
                "{} has answered nothing for {} s, and the volume group waits for it: check the disk and its path (dmesg); \
                 the volume group goes on by itself when it answers",
                name(server, PvIndex(at)),
                silence.as_secs()
            ),
        );
    }
}

fn name(server: &Server, pv: PvIndex) -> String {
    let path = server.pvs.path(pv).unwrap_or_default();
    format!("physical volume {} of volume group \"{}\"", path.display(), server.service.name)
}

/// What is to be done about a disk.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Wait,
    /// It is to be asked.
    Ask,
    /// It has answered nothing for so long.
    Hangs(Duration),
    /// It answers after so long, and was reported.
    Answers(Duration),
}

/// What is known of one disk (DT1).
#[derive(Default)]
struct Patience {
    /// How long it had been silent at the last look, and when it answered the last question.
    silent: Duration,
    answered: Duration,
    /// The answer to the question, and the number of looks since.
    asked: Option<(Question, u32)>,
    is_told: bool,
}

impl Patience {
    /// `silent`: how long requests have been in flight without an answer.
    fn look(&mut self, silent: Option<Duration>, limit: Duration) -> Step {
        let Some(silent) = silent.filter(|silent| *silent >= self.silent) else {
            let before = std::mem::take(self);
            return if before.is_told { Step::Answers(before.silent) } else { Step::Wait };
        };
        self.silent = silent;
        if self.asked.as_mut().is_some_and(|(asked, _)| asked.is_answered()) && !planted::is("slow_is_hung") {
            (self.answered, self.asked) = (silent, None);
        }
        let time = silent.saturating_sub(self.answered);
        match &mut self.asked {
            None if time >= limit / 2 => Step::Ask,
            None => Step::Wait,
            Some((_, looks)) => {
                *looks = looks.saturating_add(1);
                if *looks >= LOOKS / 2 && time >= limit { Step::Hangs(silent) } else { Step::Wait }
            }
        }
    }
}

/// Waits while another thread ends this process for a disk that hangs.
pub fn wait(server: &Server) {
    while server.service.ending.is_hanging() {
        std::thread::sleep(RETRY);
    }
}

/// Stops the group for a successor, if it can do without the disk.
fn is_left(server: &Server, pv: PvIndex) -> bool {
    // Before the group stops, so that no other thread ends the process.
    server.service.ending.set_hanging(true);
    let is_left = server.service.group.leave_hung(pv);
    server.service.ending.set_hanging(is_left);
    if let (false, Err(Error::DiskLost(error))) = (is_left, server.service.group.failed()) {
        // Another disk failed at this moment, and whoever was told looked away.
        server.service.go_on_without(error);
    }
    is_left
}

/// Ends this process (DT2).
fn leave(server: &Server, pv: PvIndex, silence: Duration) -> ! {
    let since = Instant::now();
    server.exports.stop_reading();
    server.service.go_on_without_hung(pv, silence);
    // Before the notes: a write there that is acknowledged after them would be missing from them.
    let freed = server.exports.fall_silent().and_then(|()| {
        if let Err(failure) = run::leave_to_successor(server) {
            log::event(What::Failed, failure.message);
        }
        recorder::flush();
        match server.pvs.let_go_but(pv, OTHERS) {
            true => server.exports.farewell_of_hung(since),
            false => Err(io::Error::other("other disks have requests that do not end")),
        }
    });
    if let Err(e) = freed {
        log::warning(format_args!("a successor waits for the end of this process: {e}"));
    }
    // Rings, events and the like have no name, and no other process waits for them.
    let held = processes::descriptors(|name| !name.starts_with("anon_inode:"));
    let held = if crate::planted::is("hung_keeps_others") { Vec::new() } else { held };
    if let Err(e) = processes::replace_by_null(&held) {
        log::warning(format_args!("what this process holds is held until its requests end: {e}"));
    }
    // SAFETY: ends the process at once; nothing of it is cleaned up, as if it had been killed.
    unsafe { libc::_exit(watchdog::WEDGED) }
}

#[cfg(test)]
#[path = "hung_test.rs"]
mod tests;
