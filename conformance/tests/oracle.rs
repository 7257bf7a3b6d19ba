//! The same command scripts on the real LVM2 (inside user-mode-linux, which has device-mapper) and on Rowen: what they print,
//! their exit codes and the names that they make under /dev are the same, or the lists say why not.
#![allow(clippy::unwrap_used, reason = "tests end where something unexpected happens")]

mod common;

use common::{Scratch, here, rowen};
use rowen_conformance::compare::compare;
use rowen_conformance::rules::{self, Rule};
use rowen_conformance::transcript;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Of each disk, in both worlds.
const DISK: &str = "256M";
const MIN_COMMANDS: usize = 300;
/// More would take memory, and the longest script has its time anyway.
const MAX_GUESTS: usize = 4;
/// Slow machines take their time; only a world that hangs takes this long.
const LIMIT: Duration = Duration::from_secs(1100);

fn tool(name: &str) -> Option<PathBuf> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A process that ends with its scope, with all that it started.
struct World {
    child: Child,
    transcript: PathBuf,
    log: PathBuf,
}

impl World {
    fn start(name: &str, command: &mut Command, output: &Path) -> World {
        let log = output.join(format!("{name}.log"));
        let out = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        World { child: command.spawn().unwrap(), transcript: output.join(format!("{name}.txt")), log }
    }

    /// What it wrote down, once it has ended.
    fn text(&mut self, until: Instant) -> String {
        let said = |world: &World| fs::read_to_string(&world.log).unwrap_or_default();
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "{} is not finished in time: {}", self.transcript.display(), said(self));
            std::thread::sleep(Duration::from_millis(100));
        }
        let text = fs::read_to_string(&self.transcript).unwrap_or_default();
        let steps = transcript::parse(&text).unwrap_or_else(|e| panic!("{e}: {}", said(self)));
        assert!(!steps.is_empty(), "nothing was recorded: {}", said(self));
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        // Both end their children and clean up when they are asked to.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _may_have_ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _may_have_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn list(name: &str) -> Vec<Rule> {
    rules::parse(&fs::read_to_string(here().join(name)).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The scripts of a folder, in order.
fn scripts_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

/// The scripts, divided among `guests` guests with about the same number of commands each.
fn dealt(scripts: &[PathBuf], guests: usize) -> Vec<Vec<PathBuf>> {
    let commands = |script: &PathBuf| fs::read_to_string(script).unwrap().lines().count();
    let mut sized: Vec<(usize, &PathBuf)> = scripts.iter().map(|script| (commands(script), script)).collect();
    sized.sort_by(|a, b| b.cmp(a));
    let mut hands: Vec<(usize, Vec<PathBuf>)> = vec![(0, Vec::new()); guests];
    for (size, script) in sized {
        let least = hands.iter_mut().min_by_key(|(sum, _)| *sum).unwrap();
        least.0 += size;
        least.1.push(script.clone());
    }
    hands.into_iter().map(|(_, scripts)| scripts).filter(|scripts| !scripts.is_empty()).collect()
}

/// Several transcripts as one, in the order of scripts.
fn joined(texts: &[String]) -> String {
    let mut sections: Vec<&str> = Vec::new();
    for text in texts {
        let mut starts: Vec<usize> = text.match_indices("\n######## ").map(|(at, _)| at + 1).collect();
        starts.insert(0, 0);
        starts.push(text.len());
        sections.extend(starts.windows(2).map(|ends| &text[ends[0]..ends[1]]));
    }
    sections.sort_unstable();
    sections.concat()
}

/// A guest of its own for these scripts.
fn start_lvm(scratch: &Scratch, scripts: &[PathBuf], output: &Path, guest: usize) -> World {
    let oracle = here().join("oracle");
    let name = format!("lvm-{guest}");
    let folder = output.join(&name);
    let _none_yet = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for script in scripts {
        fs::copy(script, folder.join(script.file_name().unwrap())).unwrap();
    }
    let mut command = Command::new(tool("linux.uml").unwrap());
    command.args([
        "mem=1G",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        "con=null",
        "con0=fd:0,fd:1",
        "quiet",
    ]);
    command.arg(format!("init={}", oracle.join("guest.sh").display()));
    for (index, name) in ["a", "b", "c", "d"].iter().enumerate() {
        let disk = scratch.0.join(format!("{guest}-{name}"));
        let size = DISK.trim_end_matches('M').parse::<u64>().unwrap() << 20;
        File::create(&disk).unwrap().set_len(size).unwrap();
        command.arg(format!("ubd{index}={}", disk.display()));
    }
    command.arg(format!("record={}", oracle.join("record.sh").display()));
    command.arg(format!("world={}", oracle.join("lvm.sh").display()));
    command.arg(format!("out={}", output.join(format!("{name}.txt")).display()));
    command.arg(format!("scripts={}", folder.display()));
    World::start(&name, &mut command, output)
}

fn start_rowen(scratch: &Scratch, scripts: &[PathBuf], output: &Path) -> World {
    let oracle = here().join("oracle");
    let mut command = Command::new("bash");
    command.arg(oracle.join("record.sh")).arg(oracle.join("rowen.sh")).arg(output.join("rowen.txt")).args(scripts);
    command.env("ROWEN", rowen()).env("WORLD_DIR", &scratch.0).env("DISK", DISK);
    World::start("rowen", &mut command, output)
}

/// Why the oracle cannot run here.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    let missing = ["linux.uml", "lvm", "thin_check", "insmod"].into_iter().find(|name| tool(name).is_none())?;
    Some(format!("{missing} is not installed; `.ci/packages conformance` does it"))
}

#[test]
fn the_same_commands_do_the_same_as_on_lvm2() {
    if let Some(reason) = missing() {
        assert!(std::env::var_os("ROWEN_ORACLE_OPTIONAL").is_some(), "the real LVM2 cannot run: {reason}");
        eprintln!("NOT TESTED: the real LVM2 cannot run: {reason}");
        return;
    }
    let lock = File::create(std::env::temp_dir().join("rowen-conformance.lock")).unwrap();
    let until = Instant::now() + LIMIT;
    while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        assert!(Instant::now() < until, "another run of this test, which uses the same names, does not end");
        std::thread::sleep(Duration::from_millis(500));
    }
    let other_folder = std::env::var_os("ROWEN_SCRIPTS").map(PathBuf::from);
    let is_core = std::env::var_os("ROWEN_CONFORMANCE_CORE").is_some();
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
    fs::create_dir_all(&output).unwrap();
    let mut scripts = scripts_in(&other_folder.clone().unwrap_or_else(|| here().join("scripts")));
    if is_core {
        let core = fs::read_to_string(here().join("core.txt")).unwrap();
        let core: Vec<&str> = core.lines().filter(|line| !line.starts_with('#')).collect();
        let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scripts.retain(|path| core.contains(&name(path).as_str()));
        assert_eq!(scripts.len(), core.len(), "core.txt names scripts that are not there");
    }
    // A guest has one processor, and most of the time is theirs.
    let guests = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_GUESTS);
    let hands = dealt(&scripts, guests);
    for name in (0..hands.len()).map(|guest| format!("lvm-{guest}.txt")).chain(["lvm.txt".into(), "rowen.txt".into()]) {
        let _none_yet = fs::remove_file(output.join(name));
    }
    let (their_scratch, our_scratch) = (Scratch::new("lvm"), Scratch::new("rowen"));
    let until = Instant::now() + LIMIT;
    let mut lvm: Vec<World> =
        hands.iter().enumerate().map(|(guest, scripts)| start_lvm(&their_scratch, scripts, &output, guest)).collect();
    let mut rowen = start_rowen(&our_scratch, &scripts, &output);
    let ours = transcript::parse(&rowen.text(until)).unwrap();
    let texts: Vec<String> = lvm.iter_mut().map(|guest| guest.text(until)).collect();
    let text = joined(&texts);
    fs::write(output.join("lvm.txt"), &text).unwrap();
    let theirs = transcript::parse(&text).unwrap();

    let (wanted, gaps) = (list("differences.txt"), list("gaps.txt"));
    let rules: Vec<&Rule> = wanted.iter().chain(&gaps).collect();
    let verdict = compare(&theirs, &ours, &rules);
    let mut problems = verdict.differences;
    let whole = other_folder.is_none() && !is_core;
    for (name, rules) in [("differences.txt", &wanted), ("gaps.txt", &gaps)].into_iter().filter(|_| whole) {
        for line in rules.iter().flat_map(Rule::unused) {
            problems.push(format!("{name}, line {line}: nothing differs in this way: take it out"));
        }
    }
    let programs = theirs.iter().filter(|step| step.is_of_lvm()).count();
    eprintln!(
        "{programs} commands of LVM in {} steps: {} equal, {} explained, {} problems; transcripts in {}",
        theirs.len(),
        verdict.equal,
        verdict.explained,
        problems.len(),
        output.display()
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(other_folder.is_some() || programs >= MIN_COMMANDS, "only {programs} commands were compared");
}
