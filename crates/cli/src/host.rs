//! The implementation of [`Backend`] on the real host: its devices and the servers of its groups.

use crate::backend::{
    Answer, Asker, Backend, Consent, Follow, Gathered, Hook, LabelledPv, NewVg, News, Pending, Pipe, Piped, Place,
    Probe, PvFormat, Said, Scrapes, Surveyor, Trouble, Upgraded, WentOn, Where,
};
use crate::commands::stores::REMOTE;
use crate::failure::exit;
use crate::gather;
use rowen_control::history;
use rowen_control::protocol::{Caller, CheckOutcome, ErrorKind, Outcome, Request};
use rowen_control::settings::{Loaded, Settings};
use rowen_control::status::{Depth, IoSeen, Survey};
use rowen_control::uuids;
use rowen_engine::units::Uuid;
use rowen_host::devices::{self, PvState};
use rowen_host::programs::Program;
use rowen_host::{archive, helper, keeper, patience, server, settings};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs a process that is no command: the keeper, which a server starts, or a helper. Returns its exit code. This is
/// checked before anything else.
pub fn special_role(words: &[String]) -> Option<u8> {
    if helper::is_one(words) {
        return Some(helper::main(|_| {}));
    }
    if crate::scrape::is_front(words) {
        return Some(crate::scrape::front());
    }
    match words {
        [role, group] if role == "keeper" && rowen_control::names::check_form(group).is_ok() => {
            Some(u8::try_from(keeper::main(group)).unwrap_or(exit::FAILED))
        }
        _ => None,
    }
}

/// This host.
#[derive(Default)]
pub struct Host {
    /// Groups that this process has created.
    made: BTreeMap<String, Uuid>,
}

/// The name of the user with this number in the file of users. Directory services are not asked, because that can take
/// long.
fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)?.parse::<u32>().ok()? == uid).then_some(name)
    };
    users.lines().find_map(of)
}

/// The user who logged in, which the kernel keeps across changes of user. Otherwise the user that sudo names.
fn user() -> String {
    let uid = |text: &str| text.trim().parse::<u32>().ok().filter(|uid| *uid != u32::MAX);
    let login = std::fs::read_to_string("/proc/self/loginuid").ok().and_then(|text| uid(&text));
    let sudo = || std::env::var("SUDO_UID").ok().and_then(|text| uid(&text));
    let uid = login.or_else(sudo).unwrap_or_else(|| rustix::process::geteuid().as_raw());
    user_name(uid).unwrap_or_else(|| uid.to_string())
}

fn trouble(error: devices::Error) -> Trouble {
    match error {
        devices::Error::Confirm { question, refused } => Trouble::Confirm { question, refused },
        other => Trouble::other(ErrorKind::Denied, other.to_string()),
    }
}

fn refused(failure: server::Failure) -> Trouble {
    Trouble::Other { kind: failure.kind, message: failure.message }
}

fn device_consent(consent: Consent) -> devices::Consent {
    devices::Consent { force: consent.force, yes: consent.yes }
}

/// A program of Rowen's is beside this one, and can run it again; others are in the PATH.
fn tool(program: &str) -> Command {
    if program != REMOTE {
        return Command::new(program);
    }
    let own = std::env::current_exe().ok();
    let beside = own.as_ref().and_then(|own| Some(own.parent()?.join(program))).filter(|path| path.exists());
    let mut command = Command::new(beside.unwrap_or_else(|| program.into()));
    if let Some(own) = own {
        command.env("ROWEN_PROGRAM", own);
    }
    command
}

fn no_tool(program: &str, error: &std::io::Error) -> Trouble {
    if program == REMOTE {
        let message = format!(
            "Cannot run {REMOTE}, which reads and writes stores: {error}. Debian's package of Rowen that has it is {REMOTE}."
        );
        return Trouble::other(ErrorKind::Internal, message);
    }
    Trouble::other(ErrorKind::Internal, format!("Cannot run {program}: {error}. Is it installed?"))
}

/// How long a server may take to release its devices after its last answer.
const LAST_WORK: Duration = Duration::from_secs(60);

fn server_process(group: &str) -> Option<u32> {
    std::fs::read_to_string(rowen_host::paths::pid_file(group)).ok()?.trim().parse().ok()
}

/// A server still holds its devices when it answers a request to stop. The next command, for instance pvremove, must
/// find them free.
fn wait_for_end(group: &str, process: u32) -> Answer<()> {
    let deadline = Instant::now() + LAST_WORK;
    while is_alive(process) {
        if Instant::now() > deadline {
            let message =
                format!("The server of volume group \"{group}\" (process {process}) was asked to end and still runs.");
            return Err(Trouble::other(ErrorKind::Internal, message));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Why a file was not read, in LVM's words if it does not exist.
/// A text that has a sensible length. A user may name a pipe; below the system directory only files count (H15).
fn text_at(path: &Path) -> std::io::Result<String> {
    if path.starts_with(rowen_host::paths::system_dir()) {
        let text = rowen_host::files::read_text(path, archive::LONGEST)?;
        return text.ok_or_else(|| std::io::ErrorKind::NotFound.into());
    }
    let mut text = String::new();
    File::open(path)?.take(archive::LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > archive::LONGEST {
        return Err(std::io::Error::other(format!("it has more than {} bytes", archive::LONGEST)));
    }
    Ok(text)
}

fn unreadable(path: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("{path}: stat failed: No such file or directory"),
        _ => format!("{path}: read failed: {error}"),
    }
}

/// A zombie process holds no devices.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

fn ask(group: &str, request: &Request, news: News<'_>) -> Answer<Outcome> {
    let ends_server = request.traits().ends_server;
    let mut client = server::ensure_running(group).map_err(refused)?;
    let may_end_server = ends_server || matches!(request, Request::RemovePv { .. } | Request::RemoveMissing);
    let process = if may_end_server { server_process(group) } else { None };
    match client.ask(request, &mut |outcome| news(outcome.clone())) {
        Outcome::Error { kind, message } => Err(Trouble::Other { kind, message }),
        outcome => {
            if let Some(process) = process.filter(|_| ends_server || matches!(outcome, Outcome::HandsOver)) {
                wait_for_end(group, process)?;
            }
            Ok(outcome)
        }
    }
}

impl Backend for Host {
    fn groups(&mut self) -> Answer<Vec<String>> {
        if patience::is_over() {
            return Err(Trouble::other(ErrorKind::Internal, "Devices do not answer in time."));
        }
        let mut names: Vec<String> =
            devices::scan().map_err(trouble)?.groups().into_iter().map(|group| group.name).collect();
        // A group whose disks are all gone may still have a server, which reports the problem.
        names.extend(rowen_host::survey::groups_with_server());
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn ask(&mut self, group: &str, request: Request, news: News<'_>) -> Answer<Outcome> {
        ask(group, &request, news)
    }

    fn asker(&mut self, group: &str) -> Option<Asker> {
        let group = group.to_owned();
        Some(Box::new(move |request, news| ask(&group, &request, news)))
    }

    fn is_running(&mut self, group: &str) -> Answer<bool> {
        Ok(server::connect(group).map_err(refused)?.is_some())
    }

    fn survey(&mut self, groups: &[String]) -> Survey {
        rowen_host::survey::survey(groups)
    }

    fn survey_with_counters(&mut self, groups: &[String]) -> Survey {
        rowen_host::survey::survey_with_counters(groups)
    }

    fn survey_groups(&mut self, groups: &[String], depth: Depth) -> Survey {
        rowen_host::survey::survey_groups(groups, depth)
    }

    fn surveyor(&self) -> Surveyor {
        Box::new(rowen_host::survey::survey_groups)
    }

    fn io(&mut self, groups: &[String]) -> BTreeMap<String, IoSeen> {
        rowen_host::survey::io(groups)
    }

    fn listen(&mut self, at: Place) -> Answer<(String, Box<dyn Scrapes>)> {
        crate::scrape::listen(at)
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn served_groups(&mut self) -> Vec<String> {
        server::served_groups()
    }

    fn upgrade(&mut self, group: &str, check: bool) -> Answer<Upgraded> {
        let unknown = |e| Trouble::other(ErrorKind::Internal, format!("This program cannot be found: {e}."));
        let program = Program::own().map_err(unknown)?;
        match server::upgrade(group, &program, env!("CARGO_PKG_VERSION"), check).map_err(refused)? {
            server::Upgraded::NotRunning => Ok(Upgraded::NotRunning),
            server::Upgraded::Tried => Ok(Upgraded::Tried),
            server::Upgraded::Done { pause } => Ok(Upgraded::Done { pause }),
        }
    }

    fn clear_remains(&mut self, group: &str) -> Answer<Option<usize>> {
        server::clear_remains(group).map_err(refused)
    }

    fn accept_disks(&mut self, group: &str) -> Answer<()> {
        server::accept_disks(group).map_err(refused)
    }

    fn was_cut(&mut self, path: &str) -> bool {
        let found = devices::read_pv(Path::new(path)).and_then(|pv| pv.label().map(|label| label.pv_uuid));
        found.is_some_and(rowen_host::witness::was_cut)
    }

    fn go_on_without(&mut self, group: &str, anyway: bool) -> Answer<WentOn> {
        let server::WentOn { missing, warnings } = server::go_on_without(group, anyway).map_err(refused)?;
        Ok(WentOn { missing, warnings })
    }

    fn check_closed(&mut self, group: &str, repair: bool, progress: &mut dyn FnMut(u64, u64)) -> Answer<CheckOutcome> {
        server::check_closed(group, repair, progress).map_err(refused)
    }

    fn labels(&mut self) -> Answer<Vec<LabelledPv>> {
        let scan = devices::scan().map_err(trouble)?;
        Ok(scan
            .pvs
            .into_iter()
            .map(|pv| {
                let path = pv.path.display().to_string();
                let group = pv.membership().map(|membership| membership.group_name.clone());
                let usable = pv.label().map_or(pv.size, |label| label.size.min(pv.size));
                let shrank = pv.lost_size().map(|size| {
                    let has = pv.size;
                    format!(
                        "the device shrank: it has {has} bytes, the physical volume {size}; make its device as large \
                         again."
                    )
                });
                let (uuid, trouble) = match pv.state {
                    PvState::Present(label) => (Some(label.pv_uuid), shrank),
                    PvState::Damaged(why) => (None, Some(format!("the label is damaged ({why})."))),
                    PvState::Unreadable(why) => (None, Some(format!("the label cannot be read ({why})."))),
                    PvState::Missing(uuid) => (Some(uuid), Some("the device is missing.".to_owned())),
                };
                LabelledPv { path, uuid, size: pv.size, usable, group, trouble }
            })
            .collect())
    }

    fn formats(&mut self) -> Answer<(Vec<PvFormat>, Vec<String>)> {
        let (found, silent) = devices::formats::formats().map_err(trouble)?;
        let shown = |path: PathBuf| path.display().to_string();
        let formats = found.into_iter().map(|(path, format)| PvFormat { path: shown(path), format }).collect();
        Ok((formats, silent.into_iter().map(shown).collect()))
    }

    fn gather(&mut self, probes: &[Probe], together: Duration) -> Vec<Gathered> {
        let own = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
        gather::gather(&own, probes, together)
    }

    fn directories(&mut self) -> (String, String) {
        let shown = |path: PathBuf| path.display().to_string();
        (shown(rowen_host::paths::system_dir()), shown(rowen_host::paths::run_dir()))
    }

    fn new_bundle(&mut self, path: &str) -> Answer<Option<File>> {
        let file = File::options().create_new(true).write(true).mode(0o600).open(path);
        file.map(Some).map_err(|e| Trouble::other(ErrorKind::Io, format!("{path}: cannot be made: {e}")))
    }

    fn write_bundle(&mut self, file: Option<File>, path: &str, parts: Vec<(String, Vec<u8>)>) -> Answer<()> {
        let written = file.map_or(Ok(()), |file| gather::write_archive(file, self.now(), parts));
        written.map_err(|e| {
            // An incomplete archive is useless.
            let _may_be_gone = std::fs::remove_file(path);
            Trouble::other(ErrorKind::Io, format!("{path}: write failed: {e}"))
        })
    }

    fn known(&mut self) -> Answer<Vec<(String, Uuid)>> {
        let entries = devices::file::read().map_err(trouble)?;
        Ok(entries.into_iter().map(|entry| (entry.path.display().to_string(), entry.uuid)).collect())
    }

    fn know(&mut self, path: &str, really: bool) -> Answer<()> {
        let found = devices::read_pv(Path::new(path)).and_then(|pv| pv.label().map(|label| label.pv_uuid));
        let Some(uuid) = found else {
            let message = format!("No physical volume label read from {path}.\nFailed to add device {path}.");
            return Err(Trouble::other(ErrorKind::NotFound, message));
        };
        // What is known already would be lost, and an older copy taken for it.
        let is_there = |other: &PathBuf| {
            let label = devices::read_pv(other).and_then(|pv| pv.label().map(|label| label.pv_uuid));
            label == Some(uuid) && devices::Identity::of(other) != devices::Identity::of(Path::new(path))
        };
        let entries = devices::file::read().map_err(trouble)?.into_iter();
        let mut known =
            entries.filter(|entry| entry.uuid == uuid && entry.path != Path::new(path)).map(|entry| entry.path);
        if let Some(other) = known.find(is_there) {
            let other = other.display();
            let message = format!(
                "{path} has the identifier of {other}, which is attached, too: one is a copy of the other. To have this one instead: \
                 lvmdevices --deldev {other}, and detach that.\nFailed to add device {path}."
            );
            return Err(Trouble::other(ErrorKind::Exists, message));
        }
        let at = |path: &Path| devices::read_pv(path).and_then(|pv| pv.label().map(|label| label.pv_uuid));
        if really { devices::file::remember_moved(uuid, Path::new(path), at).map_err(trouble) } else { Ok(()) }
    }

    fn forget(&mut self, path: &str, really: bool) -> Answer<()> {
        if !self.known()?.iter().any(|(known, _)| known == path) {
            return Err(Trouble::other(ErrorKind::NotFound, format!("No devices file entry for {path}.")));
        }
        if really { devices::file::forget(Path::new(path)).map_err(trouble) } else { Ok(()) }
    }

    fn pvcreate(&mut self, path: &str, consent: Consent) -> Answer<Vec<String>> {
        devices::pvcreate(Path::new(path), uuids::fresh(), device_consent(consent)).map_err(trouble)
    }

    fn without_room(&mut self, path: &str) -> u64 {
        devices::writeout::without_room(Path::new(path))
    }

    fn write_out(&mut self, path: &str, tell: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        devices::writeout::write_out(Path::new(path), tell).map_err(trouble)
    }

    fn pvresize(&mut self, path: &str, bytes: Option<u64>) -> Answer<()> {
        devices::pvresize(Path::new(path), bytes).map_err(trouble)
    }

    fn pvremove(&mut self, path: &str, consent: Consent) -> Answer<Vec<String>> {
        devices::pvremove(Path::new(path), device_consent(consent)).map_err(trouble)
    }

    fn vgcreate(&mut self, group: &NewVg<'_>, paths: &[String], consent: Consent) -> Answer<Vec<String>> {
        let pvs: Vec<(PathBuf, Uuid)> = paths.iter().map(|path| (PathBuf::from(path), uuids::fresh())).collect();
        let uuid = uuids::fresh();
        let notes = devices::vgcreate(
            group.name,
            uuid,
            group.extent_blocks,
            &pvs,
            group.second_journal,
            device_consent(consent),
        )
        .map_err(trouble)?;
        self.made.insert(group.name.to_owned(), uuid);
        Ok(notes)
    }

    fn other_devices(&mut self) -> Answer<Vec<(String, u64)>> {
        let others = devices::scan().and_then(|scan| scan.others()).map_err(trouble)?;
        Ok(others.into_iter().map(|(path, size)| (path.display().to_string(), size)).collect())
    }

    fn default_group(&mut self) -> Option<String> {
        std::env::var("LVM_VG_NAME").ok().filter(|name| rowen_control::names::check_form(name).is_ok())
    }

    fn ssh_command(&mut self) -> Option<String> {
        std::env::var_os("SSH_ORIGINAL_COMMAND").map(|command| command.to_string_lossy().into_owned())
    }

    fn rowen(&mut self, at: &Where, words: &[String]) -> Answer<Said> {
        crate::passing::run(at, words)
    }

    fn hook(&mut self, hook: &Hook) -> Answer<()> {
        hook.run()
    }

    fn later(&mut self, hook: Hook) -> Answer<Box<dyn Pending>> {
        Ok(Box::new(hook.later()?))
    }

    fn pass(&mut self, pipe: &Pipe<'_>, tell: &mut dyn FnMut(u64)) -> Answer<Piped> {
        crate::passing::pass(pipe, tell)
    }

    fn only_one(&mut self, name: &str) -> Answer<Option<File>> {
        crate::passing::only_one(name).map(Some)
    }

    fn absolute(&mut self, path: &str) -> String {
        std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
    }

    fn exists(&mut self, path: &str) -> bool {
        Path::new(path).symlink_metadata().is_ok()
    }

    fn filesystem(&mut self, device: &str) -> Answer<Option<String>> {
        let arguments = ["-p", "-s", "TYPE", "-o", "value", device];
        let output = Command::new("blkid").args(arguments).stderr(Stdio::null()).output();
        let output = output.map_err(|e| no_tool("blkid", &e))?;
        let kind = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Some(kind).filter(|kind| !kind.is_empty()))
    }

    fn mounted_at(&mut self, major: u32, minor: u32) -> Option<String> {
        let mounts = rowen_host::export::usage::mounts_of(major, minor);
        mounts.first().map(|mount| mount.point.display().to_string())
    }

    fn run_tool(&mut self, words: &[&str]) -> Answer<i32> {
        let Some((program, arguments)) = words.split_first() else { return Ok(0) };
        let status = tool(program).args(arguments).stdin(Stdio::null()).status();
        // Any code but 0 will do; this one is the signal's number.
        Ok(status.map_err(|e| no_tool(program, &e))?.code().unwrap_or(i32::from(exit::FAILED)))
    }

    fn turn(&mut self, group: &str) -> Answer<Option<File>> {
        let path = rowen_host::paths::turn_lock(group);
        let lock = File::options().create(true).write(true).truncate(false).mode(0o600).open(&path);
        let locked = lock.and_then(|lock| lock.lock().map(|()| lock));
        let failed = |e| Trouble::other(ErrorKind::Internal, format!("Cannot lock {}: {e}.", path.display()));
        locked.map(Some).map_err(failed)
    }

    fn temporary_directory(&mut self) -> Answer<String> {
        let path = rowen_host::paths::run_dir().join(format!("mount-{}", std::process::id()));
        let made = rowen_host::paths::make_private_dir(&path);
        made.map_err(|e| Trouble::other(ErrorKind::Io, format!("Cannot make {}: {e}.", path.display())))?;
        Ok(path.display().to_string())
    }

    fn remove_directory(&mut self, path: &str) {
        // A directory that is still mounted stays: removal must never delete files of a filesystem.
        let _ = std::fs::remove_dir(path);
    }

    fn serve(&mut self, group: &str) -> u8 {
        server::main(&server::Options::new(group))
    }

    fn caller(&mut self) -> Caller {
        let id = uuids::lvm_text(uuids::fresh());
        Caller { id, user: user(), pid: std::process::id(), ..Caller::default() }
    }

    fn note(&mut self, line: history::Command) -> Answer<()> {
        let known = self.made.get(&line.group).copied();
        // A group that cannot be found has no identifiable history. The reason has been printed.
        let Some(uuid) = known.or_else(|| Some(devices::find_group(&line.group).ok()?.uuid)) else { return Ok(()) };
        let group = line.group.clone();
        server::command_alone(uuid, line).map_err(|e| {
            let dir = rowen_host::history::dir();
            let message =
                format!("WARNING: History of volume group \"{group}\" cannot be kept in {}: {e}.", dir.display());
            Trouble::other(ErrorKind::Io, message)
        })
    }

    fn history(&mut self) -> Vec<history::Kept> {
        rowen_host::history::read()
    }

    fn follow(&mut self) -> Follow {
        let mut follower = rowen_host::history::Follower::begin();
        Box::new(move || Some(follower.poll()))
    }

    fn introduce(&mut self, caller: Caller, only_shows: bool) {
        server::introduce(caller);
        patience::begin(only_shows);
    }

    fn settings(&mut self) -> Result<Loaded, String> {
        settings::load()
    }

    fn keep_copy(&mut self, group: &str, path: Option<&str>, text: &str, settings: &Settings) -> Answer<()> {
        let (kept, path) = match path {
            Some(path) => (archive::replace(Path::new(path), text), PathBuf::from(path)),
            None => (archive::keep(group, text, settings.into()), archive::backup_path(group)),
        };
        kept.map_err(|e| {
            let message = format!("{}: write failed: {e}\nBackup of volume group {group} failed.", path.display());
            Trouble::other(ErrorKind::Io, message)
        })
    }

    fn backup_path(&mut self, group: &str) -> String {
        archive::backup_path(group).display().to_string()
    }

    fn archive_dir(&mut self) -> String {
        archive::archive_dir().display().to_string()
    }

    fn copies(&mut self, group: &str) -> Answer<Vec<String>> {
        let unreadable = |directory: PathBuf| {
            move |e| Trouble::other(ErrorKind::Io, format!("{}: read failed: {e}", directory.display()))
        };
        // By this it is known which of the two cannot be read.
        archive::archived(group).map_err(unreadable(archive::archive_dir()))?;
        let paths = archive::copies(group).map_err(unreadable(archive::backup_dir()))?;
        Ok(paths.iter().map(|path| path.display().to_string()).collect())
    }

    fn write_text(&mut self, path: &str, text: &str) -> Answer<()> {
        std::fs::write(path, text).map_err(|e| Trouble::other(ErrorKind::Io, format!("{path}: write failed: {e}")))
    }

    fn publish(&mut self, path: &str, text: &str) -> Answer<()> {
        archive::publish(Path::new(path), text)
            .map_err(|e| Trouble::other(ErrorKind::Io, format!("{path}: write failed: {e}")))
    }

    fn read_text(&mut self, path: &str) -> Answer<String> {
        text_at(Path::new(path)).map_err(|e| Trouble::other(ErrorKind::NotFound, unreadable(path, &e)))
    }

    fn udev_properties(&mut self, path: &str) -> Vec<(&'static str, String)> {
        devices::udev_properties(Path::new(path))
    }

    fn host_name(&mut self) -> String {
        archive::host_name()
    }

    fn now(&mut self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn fresh_uuid(&mut self) -> Uuid {
        uuids::fresh()
    }
}
