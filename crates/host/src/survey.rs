//! The survey of all groups of this host, with time limits for everything that can hang. Each server is asked in
//! parallel, and devices are read at the same time. The result names what did not answer in time.
//!
//! * ST2 Nothing here starts a server, takes a lock, or opens a device to write.
//! * ST3 Nothing here waits longer than its limit. Sockets do not block, a helper reads devices, and no device of a
//!   dead server is opened.

use crate::disks::holders;
use crate::sockets::{self, Reach};
use crate::{archive, devices, keeper, last_failure, paths, planted, processes, witness};
use devices::Scan;
use rowen_control::names;
use rowen_control::protocol::{self, Caller, ErrorKind, GroupReport, Outcome, Request};
use rowen_control::status::{Counters, Depth, IoSeen, LostPv, MembersSeen, Process, PvSeen, Seen, ServerSeen, Survey};
use rowen_control::uuids::lvm_text;
use rowen_engine::units::Uuid;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

/// The time limit of an answer.
const LIMIT: Duration = Duration::from_millis(1400);
/// The additional time after which unfinished work is abandoned.
const GRACE: Duration = Duration::from_millis(200);
/// If this many earlier helpers hang in the kernel, no more are started.
const STUCK: usize = 4;

enum Word {
    Group(Box<Seen>),
    Devices(Devices),
}

type Devices = Result<(Scan, Vec<PathBuf>), String>;

/// Surveys the groups of these names, or all.
pub fn survey(wanted: &[String]) -> Survey {
    survey_groups(wanted, Depth { counters: false, reports: false, devices: true })
}

/// The same, with the counters of servers.
pub fn survey_with_counters(wanted: &[String]) -> Survey {
    survey_groups(wanted, Depth { counters: true, reports: false, devices: true })
}

/// The request counters of the servers of these groups, or of all groups with a server. Devices are not read.
pub fn io(wanted: &[String]) -> BTreeMap<String, IoSeen> {
    let deadline = Instant::now() + LIMIT;
    let names = if wanted.is_empty() { groups_of_run_dir() } else { wanted.to_vec() };
    let (say, hear) = mpsc::channel();
    let mut seen = BTreeMap::new();
    for name in names {
        if names::check_form(&name).is_err() {
            seen.insert(name, IoSeen::None);
            continue;
        }
        let say = say.clone();
        let ask = {
            let name = name.clone();
            move || drop(say.send((name.clone(), ask_for_io(&name, deadline))))
        };
        let unknown = if is_locked(&name) { IoSeen::Silent } else { IoSeen::None };
        start("rowen-ask", ask);
        seen.insert(name, unknown);
    }
    drop(say);
    while let Ok((name, found)) = hear.recv_timeout((deadline + GRACE).saturating_duration_since(Instant::now())) {
        seen.insert(name, found);
    }
    if wanted.is_empty() {
        // A run directory alone is no group.
        seen.retain(|_, found| *found != IoSeen::None);
    }
    seen
}

fn ask_for_io(group: &str, deadline: Instant) -> IoSeen {
    let conversation =
        converse(group, "rowen iostat", &[Request::Io], deadline.saturating_duration_since(Instant::now()));
    let Some(Conversation { process, mut answers, .. }) = conversation else {
        return if is_locked(group) { IoSeen::Opening } else { IoSeen::None };
    };
    match answers.pop() {
        Some(Outcome::Io(io)) => IoSeen::Answered { pid: process.map_or(0, |process| process.pid), io },
        Some(Outcome::Error { kind: ErrorKind::Version, message }) => IoSeen::Refused(message),
        Some(_) | None => IoSeen::Silent,
    }
}

/// The same, with as many details as `depth` asks for.
pub fn survey_groups(wanted: &[String], depth: Depth) -> Survey {
    let limit = if planted::is("waits_to_know") { Duration::from_secs(3600) } else { LIMIT };
    if planted::is("look_leaves_traces") {
        wanted.iter().for_each(|name| drop(std::fs::write(paths::group_dir(name).join("looked"), "")));
    }
    let deadline = Instant::now() + limit;
    let (say, hear) = mpsc::channel();
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    for name in groups_of_run_dir().into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
        let say = say.clone();
        let ask = {
            let name = name.clone();
            move || drop(say.send(Word::Group(Box::new(survey_group(&name, deadline, depth)))))
        };
        // Until it answers, it counts as silent.
        let server = if is_locked(&name) { ServerSeen::Silent(noted(&name)) } else { ServerSeen::None };
        let unknown = Seen { server, log: log_of(&name), name: name.clone(), ..Seen::default() };
        if start("rowen-ask", ask) {
            seen.insert(name, unknown);
        }
    }
    let read = move || drop(say.send(Word::Devices(read_devices(deadline))));
    let mut devices: Option<Devices> = None;
    if !depth.devices {
        drop(read);
    } else if !start("rowen-devices", read) {
        devices = Some(Err("no thread can be started".to_owned()));
    }
    while let Ok(word) = hear.recv_timeout((deadline + GRACE).saturating_duration_since(Instant::now())) {
        match word {
            Word::Group(group) => drop(seen.insert(group.name.clone(), *group)),
            Word::Devices(found) => devices = Some(found),
        }
    }
    let mut survey = Survey::default();
    if !depth.devices {
        survey.groups = seen.into_values().filter(is_group).collect();
        return survey;
    }
    match devices.unwrap_or_else(|| Err("devices did not answer in time".to_owned())) {
        Ok((scan, silent)) => {
            add_devices(&mut seen, &scan, wanted);
            seen.values_mut().for_each(|seen| remember_members(seen, &silent));
            survey.lost = add_lost(&mut seen, &scan, wanted, &silent);
            survey.silent_devices = silent.iter().map(|path| path.display().to_string()).collect();
        }
        Err(why) => survey.troubles.push(format!("groups that are not served are not shown: {why}")),
    }
    // A run directory alone is no group.
    survey.groups = seen.into_values().filter(is_group).collect();
    survey
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).is_ok()
}

fn is_group(seen: &Seen) -> bool {
    let has_labels = !matches!(seen.members, MembersSeen::Unknown);
    let is_served = !matches!(seen.server, ServerSeen::None) || seen.keeper.is_some();
    has_labels || is_served || seen.devices > 0
}

/// The groups that have a server on this machine.
pub fn groups_with_server() -> impl Iterator<Item = String> {
    // A process number in a file may belong to another process by now; a lock cannot.
    groups_of_run_dir().into_iter().filter(|name| is_locked(name))
}

fn groups_of_run_dir() -> Vec<String> {
    let entries = std::fs::read_dir(paths::run_dir()).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = directories.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| names::check_form(name).is_ok() && paths::pid_file(name).exists()).collect()
}

fn log_of(group: &str) -> String {
    paths::server_log(group).display().to_string()
}

/// Whether a process has the lock of the group's server.
fn is_locked(group: &str) -> bool {
    std::fs::metadata(paths::pid_file(group)).is_ok_and(|file| holders::lock_of(&file).is_some())
}

/// The server whose number is in the file.
fn noted(group: &str) -> Option<Process> {
    let pid = std::fs::read_to_string(paths::pid_file(group)).ok()?.trim().parse().ok()?;
    Some(processes::see(pid))
}

fn survey_group(group: &str, deadline: Instant, depth: Depth) -> Seen {
    let directory = paths::group_dir(group);
    let left = || deadline.saturating_duration_since(Instant::now());
    // The keeper answers at once, or not at all.
    let keeper = keeper::query(group, left() / 4);
    let asked = ask_server(group, left(), depth);
    let Asked { server, counters, report } =
        asked.unwrap_or_else(|| Asked { server: absent_or_opening(group), counters: None, report: None });
    let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let frozen = files.filter(|file| file.file_name().as_encoded_bytes().starts_with(b"frozen-")).count();
    Seen {
        name: group.to_owned(),
        server,
        keeper,
        members: MembersSeen::Unknown,
        devices: devices::stack::volumes_of(&directory) as u64,
        frozen: frozen as u64,
        log: log_of(group),
        last_failure: last_failure::read(group),
        counters,
        report,
    }
}

/// No process listens. A process that has the lock is starting or ending.
fn absent_or_opening(group: &str) -> ServerSeen {
    match noted(group) {
        Some(process) if is_locked(group) => {
            let since = std::fs::metadata(paths::pid_file(group)).and_then(|file| file.modified()).ok();
            let seconds = since.and_then(|since| SystemTime::now().duration_since(since).ok()).unwrap_or_default();
            ServerSeen::Opening { process, seconds: seconds.as_secs() }
        }
        _ => ServerSeen::None,
    }
}

/// What a server answered.
struct Conversation {
    process: Option<Process>,
    /// One answer for each request, up to the first that was refused or late.
    answers: Vec<Outcome>,
}

/// The status of the group's server, and the other requested data.
struct Asked {
    server: ServerSeen,
    counters: Option<Box<Counters>>,
    report: Option<Box<GroupReport>>,
}

/// None: no process listens.
fn ask_server(group: &str, limit: Duration, depth: Depth) -> Option<Asked> {
    let mut requests = vec![Request::Status];
    if depth.counters {
        requests.extend([Request::Io, Request::Stats]);
    }
    if depth.reports {
        // The last, as it takes longest.
        requests.push(Request::Report { with_use: false });
    }
    let Conversation { process, mut answers } = converse(group, "rowen status", &requests, limit)?;
    let pid = process.map(|process| process.pid);
    let report = match answers.pop_if(|answer| matches!(answer, Outcome::Report(_))) {
        Some(Outcome::Report(report)) => Some(report),
        _ => None,
    };
    let mut answers = answers.into_iter();
    let server = match answers.next() {
        Some(Outcome::Status(report)) => ServerSeen::Answered { pid: pid.unwrap_or(0), report },
        Some(Outcome::Error { kind: ErrorKind::Version, message }) => ServerSeen::Refused { pid, why: message },
        Some(_) | None => ServerSeen::Silent(process.map(|process| processes::see(process.pid)).or(process)),
    };
    let counters = match (answers.next(), answers.next()) {
        (Some(Outcome::Io(io)), Some(Outcome::Stats(stats))) => Some(Box::new(Counters { io: *io, stats })),
        _ => None,
    };
    Some(Asked { server, counters, report })
}

/// Sends the requests to the group's server one after the other, within the limit. None: no process listens, or it is
/// ending.
fn converse(group: &str, command: &str, requests: &[Request], limit: Duration) -> Option<Conversation> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    match rustix::net::connect(&socket, &Reach::of(paths::control_socket(group)).ok()?.address().ok()?) {
        Ok(()) => {}
        // The queue of connections is full.
        Err(Errno::AGAIN) => return Some(Conversation { process: noted(group), answers: Vec::new() }),
        Err(_) => return None,
    }
    let process = sockets::peer(&socket).map(processes::see);
    let mut answers = Vec::with_capacity(requests.len());
    let ask_all = || -> io::Result<()> {
        let mut stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        let deadline = Instant::now() + limit;
        let left = || Some(deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        let caller = Caller { command: command.to_owned(), ..Caller::default() };
        let mut frame = protocol::encode(&Request::Hello { version: protocol::VERSION, caller })?;
        for request in requests {
            frame.extend(protocol::encode(request)?);
            stream.set_write_timeout(left())?;
            stream.write_all(&std::mem::take(&mut frame))?;
            loop {
                stream.set_read_timeout(left())?;
                match protocol::read_frame::<Outcome>(&mut stream)? {
                    Some(Outcome::Hello { .. }) => {}
                    Some(outcome) if outcome.is_interim() => {}
                    Some(outcome) => {
                        answers.push(outcome);
                        break;
                    }
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
        }
        Ok(())
    };
    let end = ask_all().err().map(|error| error.kind());
    let is_ending = matches!(answers.first(), Some(Outcome::Error { kind: ErrorKind::Closed, .. }))
        || (answers.is_empty() && end == Some(io::ErrorKind::UnexpectedEof));
    (!is_ending).then_some(Conversation { process, answers })
}

fn read_devices(deadline: Instant) -> Devices {
    // A helper waits for a dead device for ever. A monitor that asks each minute must not add a process each time.
    let stuck = processes::stuck_helpers();
    if stuck >= STUCK {
        return Err(format!("{stuck} earlier reads of devices still hang in the kernel"));
    }
    devices::scan_until(deadline).map_err(|e| e.to_string().trim_end_matches('.').to_owned())
}

/// Adds the contents of labels to each group.
fn add_devices(seen: &mut BTreeMap<String, Seen>, scan: &Scan, wanted: &[String]) {
    for name in scan.groups().into_iter().map(|group| group.name) {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let log = log_of(&name);
        let group = seen.entry(name.clone()).or_insert_with(|| Seen { name: name.clone(), log, ..Seen::default() });
        // Where a server writes, labels and tallies are of several moments.
        let is_closed = matches!(group.server, ServerSeen::None) && !is_locked(&name);
        let older = if is_closed { scan.older(&name) } else { Vec::new() };
        group.members = members(scan, &name, &older);
    }
}

/// Adds known physical volumes that are missing and that no group was seen to miss. If a copy of metadata shows the
/// group of one, that group misses it, unless labels of the group say otherwise: they are newer than a copy.
fn add_lost(seen: &mut BTreeMap<String, Seen>, scan: &Scan, wanted: &[String], silent: &[PathBuf]) -> Vec<LostPv> {
    let labelled: Vec<String> = scan.groups().into_iter().map(|group| group.name).collect();
    let mut lost = Vec::new();
    for entry in scan.lost.iter().filter(|entry| !silent.contains(&entry.path)) {
        let (path, uuid) = (entry.path.display().to_string(), lvm_text(entry.uuid));
        if seen.values().any(|seen| misses(seen, &path)) {
            continue;
        }
        match archive::group_with(&uuid).filter(|group| !labelled.contains(group)) {
            Some(group) if wanted.is_empty() || wanted.contains(&group) => {
                let log = log_of(&group);
                let empty = || Seen { name: group.clone(), log, ..Seen::default() };
                let seen = seen.entry(group.clone()).or_insert_with(empty);
                let pv = PvSeen { path: Some(path), uuid, ..PvSeen::default() };
                match &mut seen.members {
                    MembersSeen::Found(pvs) => pvs.push(pv),
                    members => *members = MembersSeen::Found(vec![pv]),
                }
            }
            None if wanted.is_empty() => lost.push(LostPv { path, uuid }),
            _ => {}
        }
    }
    lost
}

fn misses(seen: &Seen, path: &str) -> bool {
    matches!(&seen.members, MembersSeen::Found(pvs) if pvs.iter().any(|pv| pv.path.as_deref() == Some(path)))
}

/// Adds the paths of physical volumes to a group without any label: from its server's notes, which exist while it runs
/// or after a crash.
fn remember_members(seen: &mut Seen, silent: &[PathBuf]) {
    if !matches!(seen.members, MembersSeen::Unknown) {
        return;
    }
    let lost = |path: String, uuid| PvSeen { path: Some(path), uuid, ..PvSeen::default() };
    let members: Vec<PvSeen> = match &seen.server {
        // A disk that does not answer is reported separately.
        ServerSeen::Answered { report, .. }
            if !report.pvs.iter().any(|pv| silent.contains(&PathBuf::from(&pv.path))) =>
        {
            report.pvs.iter().map(|pv| lost(pv.path.clone(), lvm_text(pv.uuid))).collect()
        }
        ServerSeen::Answered { .. } => Vec::new(),
        _ => {
            let paths = devices::members::read(&seen.name).into_iter();
            paths.map(|path| lost(path.display().to_string(), String::new())).collect()
        }
    };
    if !members.is_empty() {
        seen.members = MembersSeen::Found(members);
    }
}

/// `older`: members that are attached as older copies.
fn members(scan: &Scan, name: &str, older: &[Uuid]) -> MembersSeen {
    match scan.group(name) {
        Ok(_) | Err(devices::Error::MissingPvs { .. }) => {}
        Err(devices::Error::Shrunk { pvs, .. }) => {
            let sentences: Vec<String> = pvs.iter().map(devices::shrank).collect();
            return MembersSeen::Shrunk(sentences.join("; "));
        }
        Err(error) => return MembersSeen::Contradictory(error.to_string().trim_end_matches('.').to_owned()),
    }
    let out = scan.out(name);
    let member = |(uuid, path, pv): (_, Option<PathBuf>, Option<&devices::Pv>)| PvSeen {
        path: path.map(|path| path.display().to_string()),
        uuid: lvm_text(uuid),
        size_bytes: pv.map_or(0, |pv| pv.label().map_or(pv.size, |label| label.size)),
        is_there: pv.is_some(),
        is_out: out.contains(&uuid),
        is_older: older.contains(&uuid),
        is_cut: witness::was_cut(uuid),
        is_silent: false,
    };
    MembersSeen::Found(scan.members(name).into_iter().map(member).collect())
}
