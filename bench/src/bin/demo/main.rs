//! `make demo`: the steps of Dennis van Dok's "LVM2 snapshot performance problems" with Rowen, and John Newbigin's
//! chunk sizes, beside their figures.
//!
//! A file becomes a physical volume, a group and a volume `original` with ext2 on it. 1000 MiB are written with `dd` and
//! `sync`, without a snapshot, with one, and on one. The document writes zeros over zeros, which would prove nothing about
//! a snapshot's content; here pseudo-random bytes are written before, and a checksum of what the snapshot (or the origin)
//! holds after the timed write must be theirs.
//!
//! Promise: whatever happens, also on Ctrl-C and SIGTERM, nothing is left: no mount, device, process or file.

mod content;
mod table;
mod world;

use content::Content;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::Row;
use world::{Failure, MIB, PV_MIB, Result, WRITE_MIB, World};

const CHUNKS: [&str; 8] = ["4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k"];
const ROUNDS: usize = 3;
/// No further round begins when it would end later than this.
const BUDGET: Duration = Duration::from_secs(205);

const HELP: &str = "\
Usage: demo [--dir DIR] [--rounds N] [--clean]

Measures what a snapshot costs, with the steps of a well-known document about LVM2. Run it as root.

  --dir DIR     where the physical volume's file is made (default /var/tmp; 7 GiB are needed for a few minutes)
  --rounds N    measure everything N times and show medians (default 3, fewer on a slow disk)
  --clean       remove what an earlier demo left that was killed, and end
";

struct Options {
    dir: PathBuf,
    rounds: Option<usize>,
    clean: bool,
}

fn options() -> Result<Option<Options>> {
    let mut options = Options { dir: PathBuf::from("/var/tmp"), rounds: None, clean: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| Failure::Told(format!("{word} needs a value.")));
        match word.as_str() {
            "--dir" => options.dir = PathBuf::from(value()?),
            "--rounds" => {
                let rounds = value()?.parse().ok().filter(|n| (1..=100).contains(n));
                options.rounds = Some(rounds.ok_or_else(|| Failure::Told("--rounds takes 1 to 100.".into()))?);
            }
            "--clean" => options.clean = true,
            "--help" | "-h" => return Ok(None),
            _ => return Err(Failure::Told(format!("\"{word}\" is not an option of the demo; see --help."))),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let outcome = options().and_then(|options| match options {
        Some(options) => run(&options),
        None => {
            print!("{HELP}");
            Ok(())
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told(why)) => {
            eprintln!("demo: {why}");
            ExitCode::FAILURE
        }
        Err(Failure::Interrupted) => {
            eprintln!("demo: interrupted; everything it made is removed.");
            ExitCode::from(130)
        }
    }
}

fn run(options: &Options) -> Result<()> {
    if options.clean {
        return World::adopt(&options.dir)?.clean();
    }
    let mut world = World::new(&options.dir)?;
    let outcome = measure(&mut world, options.rounds);
    // What is left behind is worse news than why the run ended.
    world.clean()?;
    let (rows, rounds) = outcome?;
    print!("{}", table::render(&rows, rounds));
    Ok(())
}

/// What the user sees meanwhile: a bar on a terminal, lines elsewhere.
struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    fn new(rounds: usize) -> Progress {
        let lines = !std::io::stderr().is_terminal();
        let target = if lines { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(PV_MIB + rounds as u64 * round_mib()), target);
        let look = ProgressStyle::with_template("{bar:24} {percent:>3}%  {elapsed} gone, about {eta} left  {wide_msg}");
        bar.set_style(look.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, lines }
    }

    fn says(&self, what: String) {
        if self.lines {
            let percent = 100 * self.bar.position() / self.bar.length().unwrap_or(1).max(1);
            eprintln!("[{percent:>3}%] {what}");
        } else {
            self.bar.set_message(what);
        }
    }

    fn done(&self, mib: u64) {
        self.bar.inc(mib);
    }
}

/// What a round writes and reads, as the progress bar counts it.
fn round_mib() -> u64 {
    CHUNKS.len() as u64 * 8 * WRITE_MIB
}

fn measure(world: &mut World, asked: Option<usize>) -> Result<(Vec<Row>, usize)> {
    let started = Instant::now();
    let progress = Progress::new(asked.unwrap_or(ROUNDS));
    progress.says(format!("writing a file of {PV_MIB} MiB, the physical volume"));
    world.make_file()?;
    progress.done(PV_MIB);
    progress.says("pvcreate, vgcreate, lvcreate -L 3G -n original, mkfs.ext2, mount".into());
    world.make_original()?;

    let mut rows: Vec<Row> = CHUNKS.iter().map(|chunk| Row::new(chunk)).collect();
    let mut rounds = 0;
    loop {
        let round = Instant::now();
        for row in &mut rows {
            one_chunk_size(world, &progress, row, rounds)?;
        }
        rounds += 1;
        let is_late = started.elapsed() + round.elapsed() > BUDGET;
        if rounds >= asked.unwrap_or(ROUNDS) || (asked.is_none() && is_late) {
            break;
        }
    }
    progress.says("checking the group, removing everything".into());
    world.check()?;
    progress.bar.finish_and_clear();
    Ok((rows, rounds))
}

/// The three measurements for one chunk size. Before each of them the file gets pseudo-random bytes that it never had
/// before, so that all three find the same: a file just written, and content that a checksum can tell.
fn one_chunk_size(world: &mut World, progress: &Progress, row: &mut Row, round: usize) -> Result<()> {
    let chunk = row.chunk;
    let mut pass = (round as u64) << 32 | row.document.order << 8;
    let mut fill = |world: &World| {
        progress.says(format!("-c {chunk}: pseudo-random bytes into the file"));
        pass += 1;
        let content = Content::write(&world.file(), pass, WRITE_MIB * MIB, &world.interrupted);
        progress.done(WRITE_MIB);
        content
    };

    fill(world)?;
    progress.says(format!("-c {chunk}: dd without a snapshot"));
    row.without.push(world.timed_write(&world.file())?);
    progress.done(WRITE_MIB);

    let content = fill(world)?;
    progress.says(format!("-c {chunk}: lvcreate -s, dd with the snapshot"));
    world.snapshot(chunk)?;
    row.with.push(world.timed_write(&world.file())?);
    progress.done(WRITE_MIB);
    world.mount_snapshot("ro")?;
    world.must_hold(&world.snapshot_file(), &content, "the snapshot, after its origin was written to")?;
    progress.done(WRITE_MIB);
    world.unmount_snapshot()?;
    world.remove_snapshot()?;

    let content = fill(world)?;
    progress.says(format!("-c {chunk}: lvcreate -s, dd on the snapshot"));
    world.snapshot(chunk)?;
    world.mount_snapshot("rw")?;
    row.on_snapshot.push(world.timed_write(&world.snapshot_file())?);
    progress.done(WRITE_MIB);
    world.must_hold(&world.file(), &content, "the origin, after its snapshot was written to")?;
    progress.done(WRITE_MIB);
    world.unmount_snapshot()?;
    world.remove_snapshot()
}
