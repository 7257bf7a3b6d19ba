//! The server process from start to end.
//!
//! * EN2 The files of a removed group are free as soon as the group is removed. The kernel would hold them until it has
//!   removed the rings of this process: more than a second after its end, on a busy machine.

use super::archive::Archive;
use super::listen::Listener;
use super::members::OpenMembers;
use super::notes::ServerNotes;
use super::opening::{self, Opening};
use super::presence::Presence;
use super::recorder::Recorder;
use super::signals::{Signal, Signals};
use super::state::{Server, Workers};
use super::steps::Steps;
use super::{LAUNCHED_BY_COMMAND, hung, left, log, lost, recorder, renaming, returns, successor, systemd, watchdog};
use crate::disks::IoEngine;
use crate::export::{ExportedDevices, Exports, Target, VolumeTarget};
use crate::reactor::Pool;
use crate::reactor::latency::{self, Latency};
use crate::{archive, devices, harden, journal, keeper, last_failure, paths, planted, programs, settings};
use rowen_control::history::What;
use rowen_control::lists::{self, Lists};
use rowen_control::protocol::{ErrorKind, Outcome};
use rowen_control::service::failure::{Failure, Result};
use rowen_control::service::platform::Platform;
use rowen_control::service::{Service, document};
use rowen_control::settings::{Loaded, ProcessorLatency};
use rowen_control::uuids;
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::Config;
use rowen_engine::units::VolumeId;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server that starts waits for the settings: one that follows another, which users wait for, and the first
/// since boot, which has nothing else to go by. And how long one waits that serves.
const SETTINGS_OF_A_SUCCESSOR: Duration = Duration::from_millis(500);
const SETTINGS: Duration = Duration::from_secs(10);
const SETTINGS_AGAIN: Duration = Duration::from_secs(600);
/// How long a killed predecessor's last writes may take.
const PREDECESSOR: Duration = Duration::from_secs(10);
/// How long an idle server that a command started keeps running.
const IDLE: Duration = Duration::from_secs(10);
/// How long a server that ends waits for commands under way, and for a change that no command waits for.
const COMMANDS: Duration = Duration::from_secs(60);
const LAST_CHANGE: Duration = Duration::from_secs(1);
/// The same after a disk failed: all requests wait meanwhile, and commands cannot continue.
const END_LIMIT_WITHOUT_A_DISK: Duration = Duration::from_millis(100);
/// The interval of the main loop's periodic work.
const PERIOD: Duration = Duration::from_secs(5);

/// LVM's exit code of a command that failed.
const FAILED: u8 = 5;

/// How a server runs.
#[derive(Clone, Debug)]
pub struct Options {
    pub group: String,
    /// Worker threads of the reactor.
    pub workers: usize,
    pub io_engine: IoEngine,
    /// Bound of the engine's node cache.
    pub cache_bytes: usize,
    /// How long to keep running while idle. None: for ever.
    pub idle: Option<Duration>,
    /// A file to which all requests to the disks are recorded (`disks/record.rs`).
    pub record_io: Option<PathBuf>,
    /// Started by a command, which waits for a message on standard output.
    pub launched: bool,
    /// Started by the keeper to replace a server that still serves.
    pub is_successor: bool,
    /// Called at steps of a start, a rename and a join: tests end the process there.
    pub reached: fn(&str),
}

impl Options {
    /// The usual ones; the environment may change them, for tests and unusual hosts: `ROWEN_WORKERS`, `ROWEN_IO_ENGINE`
    /// (`uring` or `sync`), `ROWEN_CACHE_MIB`, `ROWEN_IDLE_SECONDS`, `ROWEN_RECORD_IO` (a file).
    pub fn new(group: &str) -> Options {
        let launched = std::env::var_os(LAUNCHED_BY_COMMAND).is_some();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
        let idle = number("ROWEN_IDLE_SECONDS").map_or(IDLE, |seconds| Duration::from_secs(seconds as u64));
        Options {
            group: group.to_owned(),
            workers: number("ROWEN_WORKERS").unwrap_or(cores).clamp(1, 64),
            io_engine: std::env::var("ROWEN_IO_ENGINE").ok().and_then(|text| text.parse().ok()).unwrap_or_default(),
            cache_bytes: number("ROWEN_CACHE_MIB").map_or(Config::default().cache_bytes, |mib| mib.max(1) << 20),
            idle: launched.then_some(idle),
            record_io: std::env::var_os("ROWEN_RECORD_IO").filter(|path| !path.is_empty()).map(PathBuf::from),
            launched,
            is_successor: successor::is_one(),
            reached: |_| {},
        }
    }
}

/// `rowen serve VG`: serves the group until a request to end. Returns the exit code.
pub fn main(options: &Options) -> u8 {
    programs::take_name();
    let kept = keeper::Kept::take();
    let present = Options { group: kept.group().unwrap_or_else(|| options.group.clone()), ..options.clone() };
    if present.group != options.group {
        log::line(format_args!("volume group {} is {} now", options.group, present.group));
    }
    let options = &present;
    journal::of_group(&options.group);
    journal::events_to(|what, text| log::event(what, text));
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(e) => return failed(options, Failure::new(ErrorKind::Internal, format!("Cannot catch signals: {e}."))),
    };
    if options.launched {
        // Starts its own session, so that the command's terminal cannot signal the server. A process that already leads
        // a process group, as when it is run by hand, does not.
        let _ = rustix::process::setsid();
    }
    raise_descriptor_limit();
    for refusal in harden::harden() {
        log::warning(refusal);
    }
    let kept = kept.pass_on(&options.group).unwrap_or_else(|e| {
        log::warning(format_args!("what systemd kept of volume group {} is lost: {e}", options.group));
        None
    });
    match start(options, kept) {
        Ok((server, presence, listener)) => {
            announce(options, &Outcome::Ok);
            last_failure::forget(&server.service.name);
            systemd::ready(&server.service.name);
            watchdog::start(&server);
            returns::start(&server);
            hung::start(&server);
            log::event(What::Started, format_args!("volume group \"{}\" is served", server.service.name));
            log_death(&server);
            log_missing(&server);
            if options.is_successor {
                let (name, version) = (&server.service.name, env!("CARGO_PKG_VERSION"));
                log::event(What::Upgraded, format_args!("volume group \"{name}\" is upgraded to Rowen {version}"));
            }
            let ending = serve(&server, &listener, &signals, options);
            hung::wait(&server);
            let code = finish(server, listener, ending);
            recorder::flush();
            drop(presence);
            code
        }
        Err(failure) if failure.kind == ErrorKind::Exists && !options.launched && systemd::adopt(&options.group) => {
            log::line(&failure.message);
            0
        }
        Err(failure) => failed(options, failure),
    }
}

/// How the server before this one died, as the keeper saw it.
fn log_death(server: &Server) {
    if let Ok(how) = std::env::var(keeper::DEATH) {
        let name = &server.service.name;
        log::event(What::ServerDied, format_args!("volume group \"{name}\": {how}; its keeper started this server"));
    }
}

/// Reports the physical volumes without which the group runs (MB1).
fn log_missing(server: &Server) {
    let (name, info) = (&server.service.name, server.service.group.info());
    for pv in info.pvs.iter().filter(|pv| pv.is_missing) {
        let uuid = uuids::lvm_text(pv.uuid);
        log::event(What::PvMissing, format_args!("volume group \"{name}\" goes on without physical volume {uuid}"));
    }
}

/// Each active volume and each client takes descriptors; the usual soft limit is for programs with few of either. The
/// keeper inherits it.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        log::warning(format_args!("cannot raise the limit of open files: {e}"));
    }
}

/// Reports to the command that started this server, over a pipe. A successor that the keeper starts has the same
/// environment, but no reader.
fn announce(options: &Options, word: &Outcome) {
    let is_pipe = rustix::fs::fstat(io::stdout()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_fifo());
    if !options.launched || !is_pipe {
        return;
    }
    // If the command was interrupted, no process listens.
    let _ = rowen_control::protocol::write_frame(&mut io::stdout().lock(), word);
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

fn failed(options: &Options, failure: Failure) -> u8 {
    recorder::event(What::Failed, &failure.message);
    if failure.kind != ErrorKind::Exists {
        last_failure::note(&options.group, &failure.message);
    }
    recorder::flush();
    if options.launched || journal::is_stderr() {
        log::error(&failure.message);
    } else {
        for line in failure.message.lines() {
            eprintln!("  {line}");
        }
    }
    announce(options, &failure.into());
    FAILED
}

fn internal(doing: &str, group: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorKind::Internal, format!("Cannot {doing} of volume group \"{group}\": {error}."))
}

/// `kept`: the keeper, if this server follows one that died together with its keeper.
fn start(options: &Options, kept: Option<keeper::Client>) -> Result<(Arc<Server>, Presence, Listener)> {
    let name = &options.group;
    let mut steps = Steps::begin();
    let asked = settings::Asked::begin();
    renaming::settle(name, None)?;
    // This comes first, so that a missing group leaves no directory behind.
    let (mut members, lost) = opening::find_members(name)?;
    steps.done("devices found");
    let Started { loaded, is_late } = settings_at_start(name, asked);
    let settings = loaded.settings();
    let latency = processor_latency(settings.processor_latency);
    let (presence, pool, prepared) = if options.is_successor {
        let ready = successor::await_end(name, options.workers, latency, &mut members, options.reached)?;
        steps = Steps::begin();
        (ready.presence, ready.pool, Some(ready.keeper))
    } else {
        let presence = become_the_server(name)?;
        let pool = Pool::start_alert(options.workers, latency).map_err(|e| internal("start the workers", name, e))?;
        (presence, Arc::new(pool), kept)
    };
    Recorder::start(name, members.uuid);
    let same_boot = served_since_boot(name);
    steps.done("workers started");
    // If no server ran before, the holder of the disks is no dead predecessor. It may be a server of another group that
    // is just closing them.
    let limit = if same_boot { PREDECESSOR } else { devices::LETTING_GO };
    let has_keeper = prepared.is_some() || keeper::is_there(name).unwrap_or(true);
    let may_only_read = opening::may_only_read(name, has_keeper);
    let opening = Opening { options, settings: &settings, pool: &pool, same_boot, limit, may_only_read };
    let opened = opening.open_members(&mut members, &lost, &mut steps)?;
    let opening::Opened { pvs, group, read_only } = opened;
    opening::mark_read_only(name, read_only.is_some());
    group.set_no_space_timeout(settings.no_space_timeout());
    let keeper = match prepared {
        Some(keeper) => keeper.become_server(),
        None => keeper::Client::connect_or_start(name),
    };
    let keeper = keeper.map_err(|e| internal("reach the keeper", name, e))?;
    let exports = Arc::new(Exports::new(name, &pool, keeper)?);
    exports.memory().set_limit(usize::try_from(settings.request_memory << 20).unwrap_or(usize::MAX));
    let members = Arc::new(OpenMembers { group: name.clone(), pvs: pvs.clone() });
    let archive = {
        let (group, members) = (group.clone(), members.clone());
        let describe = move |origin| document(&group, &*members, origin);
        Archive::start(name, settings.clone(), Box::new(describe))
            .map_err(|e| internal("start the archive", name, e))?
    };
    let archive = Arc::new(archive);
    let notes = ServerNotes::new(name, archive.clone()).map_err(|e| internal("start the server", name, e))?;
    let notes = Arc::new(notes);
    let platform = Platform {
        devices: Arc::new(ExportedDevices { exports: exports.clone(), pool: pool.clone() }),
        members,
        notes: notes.clone(),
        executor: Arc::new(Workers(pool.clone())),
    };
    let mut service = Service::new(name, group, platform, &settings, lists_of(&loaded));
    service.reached = options.reached;
    service.read_only = read_only.unwrap_or_default();
    let server = Arc::new(Server { service, exports, archive, notes, pvs, pool });
    server.service.note_members();
    devices::members::Joining::forget(name);
    watch_failures(&server);
    bring_back_nodes(&server, same_boot, steps);
    // The volumes are served: the file may lie on one of them.
    server.service.note_membership();
    (options.reached)("taken over");
    if is_late {
        reload(&server);
    }
    if let Err(e) = settings::keep(name, &loaded) {
        log::warning(format_args!("the settings are not kept for a successor: {e}"));
    }
    let listener = Listener::bind(name, server.clone()).map_err(|e| internal("bind the control socket", name, e))?;
    Ok((server, presence, listener))
}

/// Ends the server if a disk fails that the group can do without (MB9).
fn watch_failures(server: &Arc<Server>) {
    let (runtime, group) = (server.pool.runtime(), server.service.group.clone());
    let server = Arc::downgrade(server);
    let watch = async move {
        if let Error::DiskLost(error) = group.stopped().await
            && let Some(server) = server.upgrade()
            && !server.service.ending.is_hanging()
        {
            server.service.go_on_without(error);
        }
    };
    runtime.spawn("failures", Box::pin(watch));
}

fn become_the_server(name: &str) -> Result<Presence> {
    Presence::take(name).map_err(|e| internal("take the lock", name, e))?.map_err(|taken| {
        let by = taken.0.map(|pid| format!(" by process {pid}")).unwrap_or_default();
        Failure::new(ErrorKind::Exists, format!("Volume group \"{name}\" is already served{by}."))
    })
}

/// The settings with which a server starts.
struct Started {
    loaded: Loaded,
    /// They were not read in time.
    is_late: bool,
}

/// H14
fn settings_at_start(group: &str, asked: settings::Asked) -> Started {
    let before = settings::kept(group);
    let limit = if before.is_some() { SETTINGS_OF_A_SUCCESSOR } else { SETTINGS };
    match asked.end(limit) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(log::warning);
            Started { loaded, is_late: false }
        }
        // Applications may be waiting for this server: an error in a settings file must not prevent its start.
        Err(settings::Unread { why, may_come }) => {
            why.lines().for_each(log::warning);
            let which = if before.is_some() { "settings of the server before it" } else { "default settings" };
            log::warning(format_args!("the {which} are used"));
            Started { loaded: before.unwrap_or_default(), is_late: may_come }
        }
    }
}

/// The workers' limit on the processors' wake-up latency. Without it they work, but more slowly.
fn processor_latency(wanted: ProcessorLatency) -> Option<Arc<Latency>> {
    let micros = match wanted {
        ProcessorLatency::Auto => latency::suitable()?,
        ProcessorLatency::Off => return None,
        ProcessorLatency::Micros(micros) => micros,
    };
    match Latency::new(micros) {
        Ok(latency) => Some(latency),
        Err(e) => {
            log::warning(format_args!("cannot change the processors' time to wake: {e}"));
            None
        }
    }
}

/// Continues the exports that a predecessor left with the keeper. Other active volumes get new nodes.
fn bring_back_nodes(server: &Server, same_boot: bool, mut steps: Steps) {
    let service = &server.service;
    let group = service.group.clone();
    let owed = if same_boot { left::owed(&service.name) } else { Vec::new() };
    let resolve = move |entry: &keeper::Entry| {
        let id = VolumeId(entry.id);
        let info = group.volume_info(id).ok()?;
        let owes = owed.contains(&entry.id) || owed.contains(&left::EVERY);
        let target: Arc<dyn Target> = VolumeTarget::owing(group.volume(id).ok()?, &info, owes);
        Some((info.name, target))
    };
    match server.export(|exports| async move { exports.takeover(resolve).await }) {
        Ok(outcome) => {
            if !outcome.taken.is_empty() {
                outcome.served.iter().for_each(|at| steps.done_at("volumes served", *at));
                log::event(What::TakenOver, format_args!("taken over: {}", outcome.taken.join(", ")));
                log::line(&steps);
            }
            for why in outcome.dropped {
                log::warning(&why);
                recorder::event(What::TakenOver, &why);
            }
        }
        Err(error) => {
            let why = format!("exports of an earlier server could not be taken over: {error}");
            log::warning(&why);
            recorder::event(What::TakenOver, &why);
        }
    }
    left::forget(&service.name);
    if let Err(e) = std::fs::write(boot_marker(&service.name), this_boot()) {
        log::warning(format_args!("cannot write {}: {e}", boot_marker(&service.name).display()));
    }
    for failure in service.restore_nodes(same_boot) {
        log::error(failure.message);
    }
}

/// The file that says in which boot of this host the group was served last.
fn boot_marker(group: &str) -> PathBuf {
    paths::group_dir(group).join("boot")
}

fn this_boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Whether a server of the group ran since this host was booted.
fn served_since_boot(group: &str) -> bool {
    std::fs::read_to_string(boot_marker(group)).is_ok_and(|before| before == this_boot())
}

/// Why the main loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// By signal; volumes may be in use.
    Signalled,
    /// The group has stopped and must be opened again; volumes may be in use.
    Reopened,
    /// By request or idleness; nothing is in use.
    Closed,
    /// The group was removed.
    Destroyed,
    /// The group has another name; volumes may be in use.
    Renamed,
    /// This physical volume leaves the group; volumes may be in use.
    Leaves(PvIndex),
    /// A successor is ready; volumes may be in use.
    Upgraded,
}

fn serve(server: &Arc<Server>, listener: &Listener, signals: &Signals, options: &Options) -> Ending {
    let period = PERIOD.min(options.idle.unwrap_or(PERIOD)).max(Duration::from_millis(50));
    let timeout = Timespec { tv_sec: period.as_secs().cast_signed(), tv_nsec: period.subsec_nanos().into() };
    // A move of its predecessor continues at once.
    server.service.continue_move();
    // A flush may have failed already.
    let mut owing = left::owed(&server.service.name);
    loop {
        let mut events = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::new(server.notes.bell(), PollFlags::IN),
        ];
        // Interrupted or out of memory: the next turn tries again.
        if rustix::event::poll(&mut events, Some(&timeout)).is_err() {
            continue;
        }
        listener.accept();
        while let Some(signal) = signals.next() {
            match signal {
                Signal::End => return Ending::Signalled,
                Signal::Stats => log_stats(server),
                Signal::Reload => reload(server),
            }
        }
        let ending = &server.service.ending;
        if ending.is_destroyed() {
            return Ending::Destroyed;
        }
        if ending.is_renamed() {
            return Ending::Renamed;
        }
        if let Some(pv) = ending.leaving() {
            return Ending::Leaves(pv);
        }
        if ending.is_upgraded() {
            return Ending::Upgraded;
        }
        if ending.is_reopened() {
            return Ending::Reopened;
        }
        if ending.is_asked() {
            return Ending::Closed;
        }
        let idle = listener.idle();
        if options.idle.zip(idle).is_some_and(|(bound, idle)| idle >= bound) && is_needless(server) {
            return Ending::Closed;
        }
        server.service.periodic_work();
        server.notes.rewrite_witness();
        note_paid(server, &mut owing);
    }
}

/// Updates the note: volumes whose flush has failed need not fail another. `before` are those that owed one.
fn note_paid(server: &Server, before: &mut Vec<u64>) {
    let (group, owing) = (&server.service.name, server.exports.owing());
    if *before != owing {
        let before = std::mem::replace(before, owing.clone());
        log_paid(server, before.into_iter().filter(|volume| !owing.contains(volume)));
    }
    // This server has lost a disk, so its successor must report the lost writes (RT5).
    let has_lost = server.service.group.failed().is_err() || left::is_noted(group);
    if left::owed(group) != owing && (!has_lost || planted::is("debt_forgotten")) {
        // Otherwise a successor reports them again, which is better than no report.
        let _may_be_full = left::note_owed(group, &owing);
    }
}

/// Tells why a flush of these volumes failed (RT2). Those that were deactivated meanwhile failed none.
fn log_paid(server: &Server, paid: impl Iterator<Item = u64>) {
    let (active, group) = (server.exports.volumes(), &server.service.name);
    for volume in paid.filter(|volume| active.contains(volume)) {
        // It may have been removed meanwhile.
        let Ok(info) = server.service.group.volume_info(VolumeId(volume)) else { continue };
        let line = format!(
            "a flush of volume {group}/{} failed once, so that its user knows: what was written last before a physical \
             volume failed may be lost. Later flushes work; a filesystem that could not be mounted for it can be mounted now",
            info.name
        );
        log::event(What::PvError, line);
    }
}

/// No volume is active, and there is no removal, discard or move in the background.
fn is_needless(server: &Server) -> bool {
    let (service, group) = (&server.service, &server.service.group);
    !service.any_active()
        && group.info().reclaim_left == 0
        && !group.is_discarding()
        && !service.is_moving()
        && !group.is_scrubbing()
}

fn lists_of(loaded: &Loaded) -> Lists {
    Lists::of(&loaded.config, lists::host_tags(&loaded.config, &archive::host_name()))
}

/// Has the settings read again, and waits for them in the background. If that fails, nothing changes.
fn reload(server: &Arc<Server>) {
    let (asked, server) = (settings::Asked::begin(), Arc::downgrade(server));
    let wait = move || {
        let loaded = asked.end(SETTINGS_AGAIN);
        let Some(server) = server.upgrade() else { return };
        match loaded {
            Ok(loaded) => {
                loaded.warnings.iter().for_each(log::warning);
                let settings = loaded.settings();
                server.service.set_settings(&settings, lists_of(&loaded));
                server.archive.set_settings(settings);
                // The next server may have to do with older ones.
                let _may_be_full = settings::keep(&server.service.name, &loaded);
                log::event(What::Changed, "the settings were read again");
            }
            Err(unread) => unread.why.lines().for_each(log::warning),
        }
    };
    if let Err(e) = std::thread::Builder::new().name("rowen-settings".into()).spawn(wait) {
        log::warning(format_args!("the settings are not read again: {e}"));
    }
}

fn log_stats(server: &Server) {
    let report = rowen_control::protocol::StatsReport::from(server.service.group.stats());
    let rows: Vec<String> = report.rows().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let passes = crate::export::usage::passes();
    log::line(format_args!("{} passes_over_processes={passes}", rows.join(" ")));
}

/// Answers running requests, and then ends in the requested way.
fn finish(server: Arc<Server>, listener: Listener, ending: Ending) -> u8 {
    let service = &server.service;
    if ending == Ending::Destroyed {
        // EN2
        if !planted::is("destroyed_holds_on") {
            server.pvs.let_go();
        }
        (service.reached)("let go");
    }
    let lacks_room =
        service.group.has_room_for_records().err().filter(|_| matches!(ending, Ending::Signalled | Ending::Reopened));
    if lacks_room.is_some() {
        // Commands wait for space, and the thread that closes the listener waits for them.
        server.exports.stop_reading();
        service.group.end_waiting();
    }
    let lost = service.ending.lost();
    if lost.is_some() && service.any_active() {
        // From here on requests wait. The note comes first, in case something delays the end of this server.
        server.exports.stop_reading();
        if let Err(failure) = leave_to_successor(&server) {
            log::event(What::Failed, failure.message);
        }
    }
    let (limit, last_change) = match lost {
        None => (end_limit(), LAST_CHANGE),
        Some(_) => (END_LIMIT_WITHOUT_A_DISK, Duration::ZERO),
    };
    let until = Instant::now() + limit;
    let stuck = listener.close(until);
    // This comes before anything of the group is removed: the history may be on it.
    recorder::flush();
    let Some(_change) = service.change.try_lock_until(until.max(Instant::now() + last_change)) else {
        // After a disk failed, such a command may wait for a device, and so for the successor, which has its notes by now.
        end_at_once(&server, &stuck, limit);
    };
    if ending == Ending::Renamed {
        // The successor keeps copies under the new name; the last one under the old is history.
        server.archive.retire();
    }
    if let Some(error) = lacks_room.filter(|_| service.any_active()) {
        hand_over(&server, &service.failure(&error, ""), |_| Ok(()));
    }
    match ending {
        Ending::Destroyed => {
            server.archive.retire();
            server.notes.forget_witness(service.group.info().uuid);
            leave(&server);
            remove_traces(&service.name);
            log::event(What::Ended, format_args!("volume group \"{}\" was removed", service.name));
            systemd::ended();
            return 0;
        }
        Ending::Signalled => {
            let volumes = service.group.volumes();
            if let Err(failure) = service.switch_off_all(&volumes) {
                hand_over(&server, &failure, Service::checkpoint);
            }
        }
        // Also unused ones: they are active, and stay active.
        Ending::Reopened if service.any_active() => {
            let why = format!("Volume group \"{}\" is opened again.", service.name);
            hand_over(&server, &Failure::new(ErrorKind::Closed, why), |_| leave_to_successor(&server));
        }
        // Devices must keep their numbers, so even unused ones are handed over.
        Ending::Renamed if service.any_active() => {
            let why = format!("Volume group \"{}\" has another name.", service.name);
            hand_over(&server, &Failure::new(ErrorKind::Closed, why), Service::checkpoint);
        }
        Ending::Leaves(pv) if service.any_active() => {
            let why = format!("A physical volume leaves volume group \"{}\".", service.name);
            hand_over(&server, &Failure::new(ErrorKind::Closed, why), |service| service.close_without(pv));
        }
        Ending::Upgraded => upgrade(&server),
        Ending::Renamed | Ending::Closed | Ending::Reopened | Ending::Leaves(_) => {}
    }
    close(&server, ending)
}

/// Closes a group without open volumes.
fn close(server: &Server, ending: Ending) -> u8 {
    let service = &server.service;
    systemd::stopping();
    server.archive.close();
    leave(server);
    devices::members::forget(&service.name);
    let closed = match ending {
        Ending::Leaves(pv) => service.close_without(pv),
        _ => service.close_for_good(),
    };
    systemd::ended();
    match closed {
        Ok(()) => {
            server.pvs.let_go();
            left::forget(&service.name);
            log::event(What::Ended, format_args!("volume group \"{}\" is closed", service.name));
            0
        }
        Err(failure) => {
            // No volume is in use. An older copy of a lost disk is refused all the same.
            let left = left::Left::of(&service.name, &service.group, &server.pvs, false);
            if let Err(e) = left.note() {
                log::warning(format_args!("cannot record the state of the disks: {e}"));
            }
            log::event(What::Failed, failure.message);
            FAILED
        }
    }
}

/// How long a server that ends waits for running commands. `ROWEN_END_SECONDS` in the environment changes it, for tests
/// and unusual hosts.
fn end_limit() -> Duration {
    let seconds = std::env::var("ROWEN_END_SECONDS").ok().and_then(|text| text.parse().ok());
    seconds.map_or(COMMANDS, Duration::from_secs)
}

/// A change hangs, and the group cannot be closed in the middle of a change. The process ends as if it were killed:
/// acknowledged writes are safe, the change is done or not, and a successor takes over if volumes are active.
fn end_at_once(server: &Server, stuck: &[String], limit: Duration) -> ! {
    let stuck = if stuck.is_empty() { "a change that nobody waits for".to_owned() } else { stuck.join(", ") };
    log::event(
        What::Failed,
        format_args!(
            "volume group \"{}\" cannot be closed: {stuck} has not ended in {} s. This server ends as if it were killed; nothing \
             that was acknowledged is lost",
            server.service.name,
            limit.as_secs_f32()
        ),
    );
    recorder::flush();
    std::process::exit(watchdog::WEDGED);
}

/// Volumes are in use: answers requests in flight, makes all acknowledged writes durable as the last act, and lets a
/// successor take over.
fn hand_over(server: &Server, why: &Failure, last_act: impl FnOnce(&Service) -> Result<()>) -> ! {
    log::event(What::HandedOver, format_args!("{} A successor takes over.", why.message));
    recorder::flush();
    // This comes before the end of waiting: otherwise the kernel would get an error.
    let since = Instant::now();
    server.exports.stop_reading();
    server.service.group.end_waiting();
    (server.service.reached)("stopped reading");
    if let Err(error) = server.export(|exports| async move { exports.hand_over().await }) {
        log::warning(error);
    }
    if let Err(failure) = last_act(&server.service) {
        log::event(What::Failed, failure.message);
    }
    server.archive.close();
    // A keeper of an earlier version does not know this message.
    let _counted_as_a_death = server.export(|exports| async move { exports.farewell(since).await });
    std::process::exit(0);
}

/// The successor is ready: it opens what this server closes.
fn upgrade(server: &Server) -> ! {
    // This happens while the volumes are served, so that the last checkpoint is short and no copy of metadata is
    // pending.
    if let Err(failure) = server.service.checkpoint() {
        log::warning(failure.message);
    }
    server.archive.close();
    let why = format!("Volume group \"{}\" is upgraded.", server.service.name);
    hand_over(server, &Failure::new(ErrorKind::Closed, why), |service| {
        service.close()?;
        server.pvs.let_go();
        Ok(())
    });
}

/// Leaves notes for the successor of a server that lost a disk. This server gets no more requests.
pub(super) fn leave_to_successor(server: &Server) -> Result<()> {
    let service = &server.service;
    let left = left::Left::of(&service.name, &service.group, &server.pvs, !service.ending.is_unasked());
    let lost = service.ending.lost();
    let owed =
        lost.map_or_else(|| server.exports.unflushed(), |pv| server.exports.unflushed_on(lost::suspects(server, pv)));
    let noted = left.note().and_then(|()| left::note_owed(&service.name, &owed));
    let noted = noted.and_then(|()| lost.map_or(Ok(()), |pv| lost::note(server, pv)));
    noted.map_err(|e| internal("note the disks", &service.name, e))
}

/// No node is left: the keeper is not needed any more.
fn leave(server: &Server) {
    if let Err(error) = server.export(|exports| async move { exports.goodbye().await }) {
        log::warning(format_args!("the keeper does not end: {error}"));
    }
}

/// A removed group leaves nothing in the run directory. This process still has its locks: a process that waits for one
/// finds that the file is gone, and tries again.
fn remove_traces(group: &str) {
    if let Err(e) = paths::remove_group_dir(group) {
        log::warning(format_args!("cannot remove {}: {e}", paths::group_dir(group).display()));
    }
}
