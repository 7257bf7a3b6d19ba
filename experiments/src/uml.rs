//! user-mode-linux: a kernel with device-mapper as a process, over this machine's files, with disks that are files. LVM is
//! measured there, and raw disks and Rowen, on the same kernel and the same kind of disk.
//!
//! Promises: a body that runs there is the same code as here; what it says arrives, or the part has failed; the process ends
//! when it is interrupted or takes too long.

use crate::catalogue::Sizes;
use crate::command::{self, Result};
use crate::context::{Disks, Event, Form};
use crate::stack::{ROWEN_RECORD, System};
use crate::trace::{self, Request};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const INIT: &str = include_str!("../uml/init.sh");

/// Before what the body says, among what the kernel says.
const MARK: &str = "@@";

/// The file in which a body inside says everything but its steps.
pub const EVENTS: &str = "events.jsonl";

/// What is to be done inside.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    pub experiment: String,
    pub form: Form,
    pub systems: Vec<System>,
    pub rowen: PathBuf,
    pub recording: bool,
    /// What the body may take.
    pub seconds: f64,
    /// Where everything that is said is written too.
    pub events: PathBuf,
}

/// Why user-mode-linux cannot be used here, if it cannot.
pub fn missing() -> Option<String> {
    let needed = ["linux.uml", "modprobe", "vgcreate", "thin_check", "fio", "nbdkit", "nbd-client", "mkfs.xfs"];
    let lacking: Vec<&str> = needed.into_iter().filter(|name| !command::is_installed(name)).collect();
    if !lacking.is_empty() {
        return Some(format!("not installed: {} (`.ci/packages experiments` does)", lacking.join(", ")));
    }
    (!Path::new("/usr/lib/uml/modules").is_dir()).then(|| "user-mode-linux has no modules here".to_owned())
}

/// Boots, runs the plan, and gives all events to `on_event` as they come. Disks of these sizes are made in the directory for it.
pub fn run(dir: &Path, plan: &Plan, sizes: Sizes, limit: Duration, on_event: &mut dyn FnMut(Event)) -> Result {
    let write = |path: &Path, text: &[u8]| {
        std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
    };
    let (init, file) = (dir.join("init.sh"), dir.join("plan.json"));
    write(&init, INIT.as_bytes())?;
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    write(&file, &serde_json::to_vec(plan).map_err(|e| e.to_string())?)?;
    write(&plan.events, b"")?;
    let disks = ["ubda", "ubdb", "ubdc", "ubdd", "ubde"].map(|name| dir.join(format!("{name}.img")));
    let mib = [sizes.raw, sizes.lvm, sizes.mirror, sizes.rowen, sizes.rowen_mirror];
    // A recorded run is not timed: a file full of holes will do.
    let make = if plan.recording { crate::files::sparse } else { crate::files::written };
    let made = disks.iter().zip(mib).try_for_each(|(path, mib)| make(path, mib));
    let outcome = made.and_then(|()| boot(dir, plan, &init, &file, &disks, limit, on_event));
    for disk in &disks {
        // It may not have been made.
        let _ = std::fs::remove_file(disk);
    }
    outcome
}

fn boot(
    dir: &Path,
    plan: &Plan,
    init: &Path,
    file: &Path,
    disks: &[PathBuf; 5],
    limit: Duration,
    on_event: &mut dyn FnMut(Event),
) -> Result {
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut kernel = command::command("linux.uml");
    kernel.args(["mem=1536M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "quiet"]);
    kernel.args(["con=null", "con0=fd:0,fd:1"]).arg(format!("init={}", init.display()));
    kernel.arg(format!("PLAN={}", file.display())).arg(format!("PROGRAM={}", program.display()));
    if plan.recording {
        kernel.arg("RECORD=1");
    }
    for (n, disk) in disks.iter().enumerate() {
        kernel.arg(format!("ubd{n}={}", disk.display()));
    }
    let log = std::fs::File::create(dir.join("kernel.log")).map_err(|e| e.to_string())?;
    kernel.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    command::go_on()?;
    let mut child = kernel.spawn().map_err(|e| format!("cannot start user-mode-linux: {e}"))?;
    let out = child.stdout.take().ok_or("user-mode-linux has no output")?;
    let (send, receive) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(|line| line.ok()) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let begun = Instant::now();
    let mut last_words = Vec::new();
    let outcome = loop {
        match receive.recv_timeout(Duration::from_millis(200)) {
            // Steps come by the console at once; the rest is read from the file, in which nothing else is.
            Ok(line) => match line.split_once(MARK).and_then(|(_, text)| serde_json::from_str(text.trim()).ok()) {
                Some(event @ Event::Step { .. }) => on_event(event),
                Some(_) => {}
                None => last_words.push(line),
            },
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break Ok(()),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
        }
        if let Err(why) = command::go_on() {
            break Err(why);
        }
        if begun.elapsed() > limit {
            break Err(format!("user-mode-linux did not end within {} s and was ended", limit.as_secs()));
        }
    };
    command::end(&mut child);
    // The pipe is closed with the last of its processes.
    let _ = reader.join();
    // What it found before it was ended is reported, too.
    let said = events(plan, on_event);
    outcome?;
    if !said? {
        let from = last_words.len().saturating_sub(5);
        return Err(format!("user-mode-linux ended early: {}", last_words[from..].join(" | ")));
    }
    Ok(())
}

/// Tells what the body said in its file. False if it does not say that it came to its end.
fn events(plan: &Plan, on_event: &mut dyn FnMut(Event)) -> Result<bool> {
    let text = std::fs::read_to_string(&plan.events).map_err(|e| format!("{}: {e}", plan.events.display()))?;
    let mut finished = false;
    for line in text.lines() {
        match serde_json::from_str(line).map_err(|e| format!("user-mode-linux said {line:?}: {e}"))? {
            Event::Step { .. } => {}
            // The sentence of a limit is known by how it begins.
            Event::Failed(why) if command::is_too_long(&why) => return Err(why),
            Event::Failed(why) => return Err(format!("in user-mode-linux: {why}")),
            Event::Finished => finished = true,
            event => on_event(event),
        }
    }
    Ok(finished)
}

/// The disks as they are called inside.
pub fn disks_inside(recording: bool) -> Disks {
    let name = |n: usize| match recording {
        true => PathBuf::from(format!("/dev/nbd{n}")),
        false => PathBuf::from(format!("/dev/ubd{}", ["a", "b", "c"][n])),
    };
    // Rowen records by itself what it sends to its disk.
    let [rowen, rowen_mirror] = ["/dev/ubdd", "/dev/ubde"].map(PathBuf::from);
    Disks { raw: name(0), rowen, rowen_mirror, lvm: Some([name(1), name(2)]) }
}

/// The file of a system's record.
fn record_name(system: System) -> &'static str {
    match system {
        System::Raw => "ubda.log",
        System::Rowen | System::RowenMirror => ROWEN_RECORD,
        _ => "ubdb.log",
    }
}

/// Copies what a recording left: the systems' requests, and the events, which say when each row began and ended.
pub fn keep_records(dir: &Path, into: &Path) -> Result {
    std::fs::create_dir_all(into).map_err(|e| format!("cannot make {}: {e}", into.display()))?;
    let names = System::ALL.map(record_name);
    for name in names.iter().chain([&EVENTS]).filter(|name| dir.join(name).exists()) {
        std::fs::copy(dir.join(name), into.join(name)).map_err(|e| format!("cannot keep {name}: {e}"))?;
    }
    Ok(())
}

/// What a recording left in the directory of a system's disk.
pub fn record_of(dir: &Path, system: System) -> Result<Vec<Request>> {
    let path = dir.join(record_name(system));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let requests = if system.is_rowen() { trace::from_rowen(&text) } else { trace::from_nbdkit(&text) };
    requests.map_err(|why| format!("{}: {why}", path.display()))
}

/// Says an event from inside: on the console for the progress, and in the file.
pub fn say(events: &Path, event: &Event) {
    let Ok(text) = serde_json::to_string(event) else { return };
    println!("{MARK}{text}");
    let file = std::fs::OpenOptions::new().append(true).open(events);
    // What cannot be written is missed by the other side, which says so.
    let _ = file.and_then(|mut file| writeln!(file, "{text}"));
}

pub fn read_plan(path: &Path) -> Result<Plan> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_kept_and_what_was_not_is_no_error() {
        let dir = crate::files::Scratch::new(&std::env::temp_dir()).unwrap();
        let (from, into) = (dir.0.join("from"), dir.0.join("records/hp-ux"));
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join(ROWEN_RECORD), "begin").unwrap();
        std::fs::write(from.join(EVENTS), "{}").unwrap();
        std::fs::write(from.join("ubda.img"), "disk").unwrap();
        keep_records(&from, &into).unwrap();
        let mut kept: Vec<_> = std::fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        kept.sort();
        assert_eq!(kept, [EVENTS, ROWEN_RECORD]);
        let file = into.join(EVENTS);
        assert!(keep_records(&from, &file).unwrap_err().contains("cannot make"));
    }
}
