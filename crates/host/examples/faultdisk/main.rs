//! A disk that fails on request, for tests: `faultdisk --help`.

#[path = "../common/cache.rs"]
mod cache;
mod disk;
mod rules;
#[path = "../common/signals.rs"]
mod signals;

use disk::{Caching, Disk, Faults};
use parking_lot::Mutex;
use rowen_host::export::fuse::{Connection, Memory, mount};
use rowen_host::meter::Meter;
use rowen_host::reactor::Pool;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

const HELP: &str = "\
faultdisk shows a file as a disk that fails as it is told to. It is for tests, and needs root.

  faultdisk serve IMAGE FILE [--loop | --loop-on DEVICE,DEVICE...] [--seed N] [--sector BYTES]
      Shows IMAGE as FILE, an existing regular file, until SIGTERM. --loop: FILE.dev is a link to a loop device on it;
      --loop-on: to the first of these that is free.
      Says \"ready\". Random choices follow the seed (1).
  faultdisk set FILE COMMAND
      Gives the disk a command, and prints its answer.

Commands:
  add FAULT [on=read,write,flush,discard] [at=OFFSET+LENGTH] [chance=PERCENT] [times=N]
      error [errno=EIO]   the request fails, and nothing is done
      delay ms=A-B        it is answered later
      hang                it is answered when the rule is dropped
      lose                it is answered and not done (writes, unless on= says otherwise; so are those below)
      misdirect by=BYTES  it lands elsewhere
      rot                 one bit of each sector is flipped: of a write on the disk, of a read (on=read) in the answer
      tear                only its first half is done
      Prints the rule's number. A range meets requests that touch it. K, M and G are powers of 1024.
  drop all|N...           rules end; requests that hang go on
  cache through|volatile|lies
      volatile: what was not flushed is in memory alone. lies: flushes are answered and do nothing.
  abort                   the plug is pulled (/sys/fs/fuse/connections/N/abort), and what used the disk has a dead one.
                          Of a volatile cache some is kept.
  pull                    the same, and FILE is an empty file, its loop device is detached
  plug [COPY]             the disk is back, with the contents of COPY if one is given. Its loop device has another number.
  save COPY               copies the image as it is now
  state                   prints rules and counters

Examples:
  truncate -s 1G image; touch disk; faultdisk serve image disk --loop &
  faultdisk set disk add error on=write at=512M+64K       # a bad range
  faultdisk set disk add delay ms=10-200                  # a slow disk
  faultdisk set disk add hang on=flush; faultdisk set disk drop all
  faultdisk set disk save old; faultdisk set disk pull; faultdisk set disk plug old
";

/// The disk, whether it is plugged in or not.
struct Bench {
    image: PathBuf,
    file: PathBuf,
    /// Loop devices to try; none: a file is enough.
    loops: Vec<String>,
    sector: u32,
    faults: Arc<Mutex<Faults>>,
    plugged: Mutex<Option<Plugged>>,
    pool: Pool,
}

struct Plugged {
    disk: Arc<Disk>,
    loop_device: Option<String>,
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn tool(program: &str, words: &[&str]) -> Result<String, String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(words).env("PATH", path).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(format!("{program}: {}", said(&output.stderr))) }
}

/// The number of the connection of the file that is mounted there.
fn connection_of(file: &Path) -> Result<String, String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let device = fields.rev().find(|fields| fields.get(4).is_some_and(|at| Path::new(at) == file));
    let device = device.and_then(|fields| fields[2].split_once(':').map(|(_, minor)| minor.to_owned()));
    device.ok_or_else(|| format!("nothing is mounted on {}", file.display()))
}

impl Bench {
    fn plug(&self, copy: Option<&str>) -> Result<String, String> {
        let mut plugged = self.plugged.lock();
        if plugged.is_some() {
            return Err("it is plugged in".to_owned());
        }
        if connection_of(&self.file).is_ok() {
            mount::unmount(&self.file).map_err(|e| e.to_string())?;
        }
        if let Some(copy) = copy {
            copy_file(Path::new(copy), &self.image)?;
        }
        let image = OpenOptions::new().read(true).write(true).open(&self.image).map_err(|e| e.to_string())?;
        let size = image.metadata().map_err(|e| e.to_string())?.len();
        let runtime = self.pool.runtime();
        let disk = Disk::new(image, size, self.sector, self.faults.clone(), runtime.clone());
        let mounted = mount::mount_as(&self.file, "faultdisk").map_err(|e| e.to_string())?;
        let meter = Arc::new(Meter::for_one_thread());
        let connection = Connection::new(Arc::new(mounted.fd), disk.clone(), &Memory::default(), meter);
        self.pool.spawn_on(
            0,
            Box::pin(async move {
                if let Err(e) = connection.serve(runtime).await {
                    eprintln!("the connection ended: {e}");
                }
            }),
        );
        let file = self.file.to_string_lossy();
        let mut made = Ok(None);
        for device in &self.loops {
            made = tool("losetup", &["--show", "--direct-io=on", device, &file]).map(Some);
            if made.is_ok() {
                break;
            }
        }
        let loop_device = made.inspect_err(|_| drop(mount::unmount(&self.file)))?;
        if let Some(device) = &loop_device {
            let link = beside(&self.file, ".dev");
            let _of_the_last_time = fs::remove_file(&link);
            std::os::unix::fs::symlink(device, link).map_err(|e| e.to_string())?;
        }
        let told = loop_device.clone().unwrap_or_default();
        *plugged = Some(Plugged { disk, loop_device });
        Ok(told)
    }

    fn abort(&self) -> Result<String, String> {
        let mut plugged = self.plugged.lock();
        let Some(Plugged { disk, loop_device }) = plugged.take() else {
            return Err("it is not plugged in".to_owned());
        };
        let number = connection_of(&self.file)?;
        let control = "/sys/fs/fuse/connections";
        if !Path::new(control).join(&number).exists() {
            tool("mount", &["-t", "fusectl", "none", control])?;
        }
        // Before the kernel is notified: no request in flight gets through afterwards.
        let kept = disk.pull().map_err(|e| e.to_string())?;
        fs::write(Path::new(control).join(number).join("abort"), "1").map_err(|e| e.to_string())?;
        if let Some(device) = loop_device {
            // It goes when its last user lets it go.
            let _may_be_gone = tool("losetup", &["-d", &device]);
        }
        Ok(kept)
    }

    fn pull(&self) -> Result<String, String> {
        let kept = self.abort()?;
        let _dangles = fs::remove_file(beside(&self.file, ".dev"));
        rustix::mount::unmount(&self.file, rustix::mount::UnmountFlags::DETACH).map_err(|e| e.to_string())?;
        Ok(kept)
    }

    fn carry_out(&self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (command, rest) = words.split_first().ok_or("no command. See faultdisk --help")?;
        match (*command, rest) {
            ("add", rule) => self.faults.lock().rules.add(rule).map(|number| number.to_string()),
            ("drop", ["all"]) => {
                let mut faults = self.faults.lock();
                faults.rules.all.clear();
                faults.look_again();
                Ok(String::new())
            }
            ("drop", numbers) if !numbers.is_empty() => {
                let mut faults = self.faults.lock();
                for word in numbers {
                    let before = faults.rules.all.len();
                    faults.rules.all.retain(|rule| rule.number.to_string() != *word);
                    if faults.rules.all.len() == before {
                        return Err(format!("{word}: no such rule"));
                    }
                }
                faults.look_again();
                Ok(String::new())
            }
            ("cache", [kind]) => {
                let caching = match *kind {
                    "through" => Caching::Through,
                    "volatile" => Caching::Volatile,
                    "lies" => Caching::Lies,
                    _ => return Err(format!("{kind}: not through, volatile, lies")),
                };
                self.faults.lock().caching = caching;
                Ok(String::new())
            }
            ("abort", []) => self.abort(),
            ("pull", []) => self.pull(),
            ("plug", []) => self.plug(None),
            ("plug", [copy]) => self.plug(Some(copy)),
            ("save", [copy]) => copy_file(&self.image, Path::new(copy)).map(|()| String::new()),
            ("state", []) => {
                let plugged = self.plugged.try_lock().map(|plugged| plugged.is_some());
                let word = plugged.map_or("changing", |is_in| if is_in { "yes" } else { "no" });
                Ok(format!("plugged {word}\n{}", self.faults.lock().lines()))
            }
            _ => Err(format!("{command}: no such command, or not with these words. See faultdisk --help")),
        }
    }

    fn end(&self) {
        if let Some(Plugged { disk, loop_device }) = self.plugged.lock().take() {
            if let Some(device) = loop_device {
                let _in_use = tool("losetup", &["-d", &device]);
            }
            disk.make_durable().unwrap_or_else(|e| eprintln!("the image: {e}"));
        }
        if connection_of(&self.file).is_ok() {
            mount::unmount(&self.file).unwrap_or_else(|e| eprintln!("{e}"));
        }
        for suffix in [".dev", ".ctl"] {
            let _may_be_gone = fs::remove_file(beside(&self.file, suffix));
        }
    }
}

fn copy_file(from: &Path, to: &Path) -> Result<(), String> {
    let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
    tool("cp", &["--sparse=always", "--", &from, &to]).map(drop)
}

/// Each client has a thread, so that none waits for another's command.
fn listen(bench: &Arc<Bench>, listener: &UnixListener) {
    for client in listener.incoming().flatten() {
        let bench = bench.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(&client).read_line(&mut line).is_ok() {
                let answer = match bench.carry_out(&line) {
                    Ok(text) => format!("ok\n{text}"),
                    Err(why) => format!("error\n{why}"),
                };
                let _nobody_may_listen = (&client).write_all(answer.as_bytes());
            }
        });
    }
}

fn set(file: &str, words: &[String]) -> Result<String, String> {
    let socket = beside(Path::new(file), ".ctl");
    let ask = || -> io::Result<String> {
        let mut stream = UnixStream::connect(&socket)?;
        stream.write_all(format!("{}\n", words.join(" ")).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|e| format!("{}: {e}", socket.display()))?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some((_, why)) => Err(why.to_owned()),
        None => Err("it has ended".to_owned()),
    }
}

fn serve(image: &str, file: &str, options: &[String]) -> Result<(), String> {
    let (mut loops, mut seed, mut sector) = (Vec::new(), 1, 512);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if option == "--loop-on" {
            let devices = options.next().ok_or("--loop-on needs devices")?;
            loops = devices.split(',').map(str::to_owned).collect();
            continue;
        }
        let mut number = || options.next().and_then(|word| word.parse::<u64>().ok());
        match option.as_str() {
            "--loop" => loops = vec!["-f".to_owned()],
            "--seed" => seed = number().ok_or("--seed needs a number")?,
            "--sector" => sector = number().filter(|n| [512, 4096].contains(n)).ok_or("--sector needs 512 or 4096")?,
            _ => return Err(format!("{option}: no such option. See faultdisk --help")),
        }
    }
    let absolute = |path: &str| fs::canonicalize(path).map_err(|e| format!("{path}: {e}"));
    let signals = signals::block_signals();
    let pool = Pool::start(1).map_err(|e| e.to_string())?;
    let bench = Arc::new(Bench {
        image: absolute(image)?,
        file: absolute(file)?,
        loops,
        sector: sector as u32,
        faults: Arc::new(Mutex::new(Faults::new(seed))),
        plugged: Mutex::default(),
        pool,
    });
    let socket = beside(&bench.file, ".ctl");
    let _of_one_that_was_killed = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(|e| format!("{}: {e}", socket.display()))?;
    bench.plug(None)?;
    let listening = bench.clone();
    std::thread::spawn(move || listen(&listening, &listener));
    let _nobody_may_listen = writeln!(io::stdout(), "ready").and_then(|()| io::stdout().flush());
    while signals::wait_for_signal(&signals) != libc::SIGTERM {}
    bench.end();
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => Ok(HELP.to_owned()),
        ["serve", image, file, ..] => match serve(image, file, &words[3..]) {
            // Requests may still be under way: nobody waits for them.
            Ok(()) => std::process::exit(0),
            Err(why) => Err(why),
        },
        ["set", file, _, ..] => set(file, &words[2..]),
        _ => Err("what? See faultdisk --help".to_owned()),
    };
    match outcome {
        Ok(text) => {
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            let _nobody_may_listen = write!(io::stdout(), "{text}{end}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("faultdisk: {why}");
            ExitCode::from(2)
        }
    }
}
