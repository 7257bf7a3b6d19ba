//! The program under test, run as a user runs it, in a world of its own that leaves nothing behind.

use crate::world::{Bench, Result, text};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often, and after which pauses, the world is taken away.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// One group's name and the directories of its world. Dropped, it removes the group and ends its server.
pub struct World<'a> {
    bench: &'a Bench,
    dir: PathBuf,
    pub group: String,
}

impl World<'_> {
    pub fn new<'a>(bench: &'a Bench, name: &str) -> Result<World<'a>> {
        let group = format!("rowenbench{name}{}", std::process::id());
        let dir = bench.settings.dir.join(&group);
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(World { bench, dir, group })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.bench.settings.rowen);
        command
            .args(words)
            .env("ROWEN_SYSTEM_DIR", self.dir.join("etc"))
            .env("ROWEN_RUN_DIR", self.dir.join("run"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command, which must succeed.
    pub fn run(&self, words: &[&str]) -> Result {
        self.say(words).map(drop)
    }

    /// The same; gives what it says.
    pub fn say(&self, words: &[&str]) -> Result<String> {
        self.bench.go_on()?;
        let output = self.command(words).output();
        let output = output.map_err(|e| format!("{}: {e}", self.bench.settings.rowen.display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Err(format!("rowen {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim_end()))
    }

    /// Runs a command, which must succeed; gives the milliseconds that it took, and those that it and the server had a
    /// processor: of use where others take the processors, too. The latter are exact to ten, so only sums mean something.
    pub fn time(&self, words: &[&str]) -> Result<(f64, f64)> {
        self.bench.go_on()?;
        let server = self.server()?;
        let before = processor_time(&server);
        let begun = std::time::Instant::now();
        let mut command = self.command(words);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(text)?;
        let pid = rustix::process::Pid::from_child(&child);
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), ended).map_err(text)?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        let own = processor_time(&format!("/proc/{}", child.id()));
        if !child.wait().map_err(text)?.success() {
            let mut why = String::new();
            let said = child.stderr.take().ok_or("it has no standard error")?.read_to_string(&mut why);
            said.map_err(text)?;
            return Err(format!("rowen {}: {}", words.join(" "), why.trim_end()));
        }
        Ok((took, own + (processor_time(&server) - before)))
    }

    /// The directory of the server's process.
    fn server(&self) -> Result<String> {
        let file = self.dir.join("run").join(&self.group).join("server.pid");
        let pid = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(format!("/proc/{}", pid.trim()))
    }

    /// The memory that the group's server has in use, in KiB.
    pub fn server_memory(&self) -> Result<f64> {
        let status = format!("{}/status", self.server()?);
        let status = std::fs::read_to_string(&status).map_err(|e| format!("{status}: {e}"))?;
        let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        size.and_then(|size| size.parse().ok())
            .ok_or_else(|| "the kernel does not say how much memory is used".to_owned())
    }

    pub fn node(&self, volume: &str) -> PathBuf {
        PathBuf::from("/dev").join(&self.group).join(volume)
    }
}

/// Milliseconds that a process had a processor, with all its threads, also those that have ended. In steps of ten: of use
/// in sums.
fn processor_time(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // User and system time, in hundredths of a second on every Linux.
    (ticks(11) + ticks(12)) * 10.0
}

impl World<'_> {
    /// Whether the group's server runs.
    fn is_served(&self) -> bool {
        self.server().is_ok_and(|process| std::path::Path::new(&process).exists())
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        // Something on the host may look into a new device for a moment, and then the group is in use.
        let mut why = String::new();
        for _ in 0..TRIES {
            let removed = self.command(&["vgremove", "-f", &self.group]).output();
            // Of a group that was never made, or is gone, only its server may be left.
            let stopped = self.command(&["stop", &self.group]).output();
            if !self.is_served() && std::fs::remove_dir_all(&self.dir).is_ok() {
                return;
            }
            let words = [removed, stopped].into_iter().flatten();
            why = words.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).collect();
            std::thread::sleep(PAUSE);
        }
        // Its directory is needed to remove what is left by hand.
        eprintln!("rowen-bench: {} is left, with what it serves: {}", self.dir.display(), why.trim_end());
    }
}
