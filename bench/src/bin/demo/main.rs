//! `make demo`: the steps of Dennis van Dok's "LVM2 snapshot performance problems" with Rowen, and John Newbigin's
//! chunk sizes, with their figures.
//!
//! A file becomes a physical volume, a group and a volume `original` with ext2 on it. 1000 MiB are written with `dd` and
//! `sync`, without a snapshot and with one, in turn. There are as many rounds as fit into five minutes, at most three.
//! Then they are written once on a snapshot. The document writes zeros over zeros, which would prove nothing about
//! a snapshot's content; here pseudo-random bytes are written before, and a checksum of what the snapshot (or the origin)
//! holds after the timed write must be theirs.
//!
//! Promise: whatever happens, also on Ctrl-C and SIGTERM, nothing is left: no mount, device, process or file.

mod content;
mod table;
mod world;

use content::Content;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rowen_bench::published::{NEWBIGIN_CHUNKS, WRITE_MIB};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::Row;
use world::{Failure, MIB, PV_MIB, Result, World};

const ROUNDS: usize = 3;
/// No further round begins when it would end later than this; what comes after it takes some seconds.
const BUDGET: Duration = Duration::from_secs(285);

const HELP: &str = "\
Usage: demo [--dir DIR] [--rounds N] [--clean]

Measures what a snapshot costs, with the steps of a well-known document about LVM2. Run it as root.

  --dir DIR     where the physical volume's file is made (default /var/tmp; 7 GiB are needed for a few minutes)
  --rounds N    measure without and with a snapshot N times and show medians (default 3, fewer on a slow disk)
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
    let cleaned = world.clean();
    if let Ok((rows, rounds)) = &outcome {
        print!("{}", table::render(rows, *rounds));
    }
    // What is left behind is worse news than why the run ended, which is to be known as well.
    if let (Err(_), Err(Failure::Told(why))) = (&cleaned, &outcome) {
        eprintln!("demo: {why}");
    }
    cleaned.and(outcome.map(drop))
}

/// What the user sees meanwhile: a bar on a terminal, lines elsewhere.
struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    fn new(work: u64) -> Progress {
        let lines = !std::io::stderr().is_terminal();
        let target = if lines { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(work), target);
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

    fn done(&self, work: u64) {
        self.bar.inc(work);
    }

    /// So much work is left after all: fewer rounds than were hoped for.
    fn left(&self, work: u64) {
        self.bar.set_length(self.bar.position() + work);
    }
}

/// The work of each step, in MiB that are written as fast as a disk takes them: it gives the time left.
mod work {
    use super::{PV_MIB, WRITE_MIB};

    pub const MAKE: u64 = PV_MIB;
    /// Made up, summed, written and synced.
    pub const FILL: u64 = 2 * WRITE_MIB;
    pub const WRITE: u64 = WRITE_MIB;
    pub const READ: u64 = WRITE_MIB;
    /// A pair of measurements: without a snapshot and with one.
    pub const PAIR: u64 = 2 * FILL + 2 * WRITE + READ;
    pub const ON_SNAPSHOT: u64 = FILL + WRITE + READ;
    /// Checking the group.
    pub const CHECK: u64 = WRITE_MIB;
}

/// How many rounds of pairs there is time for, if each takes as long as the last.
fn rounds_left(planned: usize, done: usize, is_asked: bool, elapsed: Duration, each: Duration) -> usize {
    let wanted = planned - done;
    if is_asked {
        return wanted;
    }
    let room = BUDGET.saturating_sub(elapsed).as_secs_f64() / each.as_secs_f64().max(0.001);
    wanted.min(room as usize)
}

fn measure(world: &mut World, asked: Option<usize>) -> Result<(Vec<Row>, usize)> {
    let started = Instant::now();
    let planned = asked.unwrap_or(ROUNDS);
    let mut rows: Vec<Row> = NEWBIGIN_CHUNKS.iter().map(Row::new).collect();
    let chunks = rows.len() as u64;
    let rest = chunks * work::ON_SNAPSHOT + work::CHECK;
    let progress = Progress::new(work::MAKE + planned as u64 * chunks * work::PAIR + rest);
    progress.says(format!("writing a file of {PV_MIB} MiB, the physical volume"));
    world.make_file()?;
    progress.done(work::MAKE);
    progress.says("pvcreate, vgcreate, lvcreate -L 3G -n original, mkfs.ext2, mount".into());
    world.make_original()?;

    let mut steps = Steps { world, progress: &progress, seed: 0 };
    let mut rounds = 0;
    loop {
        let (round, mut pairs, mut more) = (Instant::now(), Duration::ZERO, 0);
        for (n, row) in rows.iter_mut().enumerate() {
            let begun = Instant::now();
            // Now one, now the other comes first: what the order does to them, it does to both.
            if (n + rounds) % 2 == 0 {
                steps.without(row)?;
                steps.with(row)?;
            } else {
                steps.with(row)?;
                steps.without(row)?;
            }
            pairs += begun.elapsed();
            let once = if rounds == 0 { work::ON_SNAPSHOT } else { 0 };
            if rounds == 0 {
                steps.on_snapshot(row)?;
            }
            // As long as the chunk sizes so far took, on the average, the others will.
            let (done, rest) = (n as u32 + 1, (NEWBIGIN_CHUNKS.len() - n - 1) as u32);
            let elapsed = started.elapsed() + round.elapsed() * rest / done;
            let each = pairs * (done + rest) / done;
            more = rounds_left(planned, rounds + 1, asked.is_some(), elapsed, each);
            progress.left(u64::from(rest) * (work::PAIR + once) + more as u64 * chunks * work::PAIR + work::CHECK);
        }
        rounds += 1;
        if more == 0 {
            break;
        }
    }
    progress.says("checking the group".into());
    world.check()?;
    progress.done(work::CHECK);
    progress.says("removing everything".into());
    progress.bar.finish_and_clear();
    Ok((rows, rounds))
}

/// The measurements. Before each of them the file gets pseudo-random bytes that it never had before, so that all find
/// the same: a file just written, no snapshot, and content that a checksum identifies.
struct Steps<'a> {
    world: &'a World,
    progress: &'a Progress,
    seed: u64,
}

impl Steps<'_> {
    fn fill(&mut self, chunk: &str) -> Result<Content> {
        self.progress.says(format!("-c {chunk}: pseudo-random bytes into the file"));
        self.seed += 1;
        let content = Content::write(&self.world.file(), self.seed, WRITE_MIB * MIB, &self.world.interrupted)?;
        self.progress.done(work::FILL);
        Ok(content)
    }

    fn timed(&self, what: String, file: &Path) -> Result<Duration> {
        self.progress.says(what);
        let took = self.world.timed_write(file)?;
        self.progress.done(work::WRITE);
        Ok(took)
    }

    fn without(&mut self, row: &mut Row) -> Result<()> {
        let chunk = row.document.size;
        self.fill(chunk)?;
        row.without.push(self.timed(format!("-c {chunk}: dd without a snapshot"), &self.world.file())?);
        Ok(())
    }

    fn with(&mut self, row: &mut Row) -> Result<()> {
        let (world, chunk) = (self.world, row.document.size);
        let content = self.fill(chunk)?;
        world.snapshot(chunk)?;
        row.with.push(self.timed(format!("-c {chunk}: dd with a snapshot"), &world.file())?);
        self.progress.says(format!("-c {chunk}: does the snapshot hold the old content?"));
        world.mount_snapshot("ro")?;
        world.must_hold(&world.snapshot_file(), &content, "the snapshot, after its origin was written to")?;
        self.progress.done(work::READ);
        world.unmount_snapshot()?;
        world.remove_snapshot()
    }

    fn on_snapshot(&mut self, row: &mut Row) -> Result<()> {
        let (world, chunk) = (self.world, row.document.size);
        let content = self.fill(chunk)?;
        world.snapshot(chunk)?;
        world.mount_snapshot("rw")?;
        row.on_snapshot.push(self.timed(format!("-c {chunk}: dd on a snapshot"), &world.snapshot_file())?);
        self.progress.says(format!("-c {chunk}: does the origin hold the old content?"));
        world.must_hold(&world.file(), &content, "the origin, after its snapshot was written to")?;
        self.progress.done(work::READ);
        world.unmount_snapshot()?;
        world.remove_snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_as_many_as_there_is_time_for() {
        let seconds = Duration::from_secs;
        assert_eq!(rounds_left(3, 1, false, seconds(100), seconds(60)), 2);
        assert_eq!(rounds_left(3, 1, false, BUDGET - seconds(100), seconds(60)), 1);
        assert_eq!(rounds_left(3, 1, false, BUDGET + seconds(1), seconds(60)), 0);
        assert_eq!(rounds_left(3, 3, false, seconds(1), seconds(1)), 0);
        // Who asked for them gets them.
        assert_eq!(rounds_left(9, 1, true, BUDGET * 2, seconds(60)), 8);
    }
}
