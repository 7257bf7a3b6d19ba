//! A load that knows what it wrote: `verified_load run FILE STATE SEED BYTES [SECONDS]` writes, reads and flushes the first BYTES
//! of FILE, which may be a block device, until SIGTERM or until SECONDS have passed; `verified_load check FILE STATE` reads all of
//! it. Every sector has its place and version in each of its words, so that old, misplaced and torn contents are seen.
//!
//! A request that fails is counted and changes what may be read: a failed write may have left the old version or its own. Data that
//! may not be read is a fault. `run` wants what was acknowledged last; `check` also takes what was written since the last
//! flush that was answered, unless it is called as `check-strictly`: a group that stopped may have lost that. Blocks that cannot be
//! read are listed by number; `check` fails for wrong data alone.

#[path = "common/cache.rs"]
#[allow(dead_code, reason = "of this module only the dice are used here")]
mod cache;
#[path = "common/signals.rs"]
mod signals;

use cache::{Dice, SECTOR};
use rowen_engine::disk::PageBuf;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const THREADS: u64 = 4;
/// One in this many requests is a flush.
const FLUSH: u64 = 24;
/// How long to wait after a request that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(5);

/// What a block may hold. 0: zeros.
#[derive(Clone)]
struct Block {
    /// Acknowledged last, and what failed after it.
    now: BTreeSet<u64>,
    /// `now`, and all since the last flush.
    durable: BTreeSet<u64>,
}

#[derive(Default)]
struct Tally {
    writes: u64,
    reads: u64,
    flushes: u64,
    failed: [u64; 3],
    wrong: Vec<String>,
}

fn stamp(number: u64, version: u64, block: &mut [u8]) {
    for (sector, bytes) in (number * (BLOCK / SECTOR)..).zip(block.chunks_mut(SECTOR as usize)) {
        for (at, word) in (0u64..).zip(bytes.chunks_mut(8)) {
            let value = if version == 0 { 0 } else { Dice(version ^ (sector << 24) ^ (at << 56)).next() };
            word.copy_from_slice(&if at == 0 { version } else { value }.to_le_bytes());
        }
    }
}

/// Why `bytes` are not what the block may hold.
fn judge(number: u64, bytes: &[u8], may: &BTreeSet<u64>) -> Result<BTreeSet<u64>, String> {
    let mut found = BTreeSet::new();
    let mut stamped = vec![0; BLOCK as usize];
    for (sector, bytes) in bytes.chunks(SECTOR as usize).enumerate() {
        let version = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        stamp(number, version, &mut stamped);
        let at = sector * SECTOR as usize;
        if bytes != &stamped[at..at + SECTOR as usize] {
            return Err(format!("block {number}, sector {sector}: rubbish (begins like version {version:#x})"));
        }
        if !may.contains(&version) {
            return Err(format!("block {number}, sector {sector}: version {version:#x}, not one of {may:x?}"));
        }
        found.insert(version);
    }
    Ok(found)
}

struct Worker {
    file: Arc<File>,
    blocks: Vec<Block>,
    thread: u64,
    dice: Dice,
    buf: PageBuf,
    tally: Tally,
}

impl Worker {
    fn number(&self, index: usize) -> u64 {
        index as u64 * THREADS + self.thread
    }

    fn step(&mut self) {
        let index = self.dice.below(self.blocks.len() as u64) as usize;
        let number = self.number(index);
        let outcome = match self.dice.below(FLUSH) {
            0 => {
                let outcome = self.file.sync_data();
                match outcome {
                    Ok(()) => self.blocks.iter_mut().for_each(|block| block.durable = block.now.clone()),
                    Err(_) => self.tally.failed[2] += 1,
                }
                self.tally.flushes += 1;
                outcome
            }
            kind if kind % 2 == 0 => {
                self.tally.reads += 1;
                let outcome = self.file.read_exact_at(&mut self.buf.as_mut_slice()[..BLOCK as usize], number * BLOCK);
                match outcome {
                    Ok(()) => {
                        let found = judge(number, &self.buf.as_slice()[..BLOCK as usize], &self.blocks[index].now);
                        self.tally.wrong.extend(found.err());
                    }
                    Err(_) => self.tally.failed[0] += 1,
                }
                outcome
            }
            _ => {
                self.tally.writes += 1;
                let version = self.dice.next() | 1;
                stamp(number, version, &mut self.buf.as_mut_slice()[..BLOCK as usize]);
                let outcome = self.file.write_all_at(&self.buf.as_slice()[..BLOCK as usize], number * BLOCK);
                let block = &mut self.blocks[index];
                match outcome {
                    Ok(()) => block.now.clear(),
                    Err(_) => self.tally.failed[1] += 1,
                }
                block.now.insert(version);
                block.durable.insert(version);
                outcome
            }
        };
        if outcome.is_err() {
            std::thread::sleep(AFTER_FAILURE);
        }
    }
}

fn open(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// One line for each block: what it may hold now, and what after a stop.
fn store(path: &str, blocks: &[Block]) -> io::Result<()> {
    let set = |set: &BTreeSet<u64>| set.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let lines = blocks.iter().map(|block| format!("{} {}\n", set(&block.now), set(&block.durable)));
    fs::write(path, lines.collect::<String>())
}

fn load(path: &str) -> io::Result<Vec<Block>> {
    let bad = |_| io::Error::new(io::ErrorKind::InvalidData, "not a state");
    let set = |text: &str| text.split(',').map(str::parse).collect::<Result<BTreeSet<u64>, _>>().map_err(bad);
    let block = |line: &str| {
        let (now, durable) = line.split_once(' ').unwrap_or((line, line));
        Ok(Block { now: set(now)?, durable: set(durable)? })
    };
    fs::read_to_string(path)?.lines().map(block).collect()
}

fn run(path: &str, state: &str, seed: u64, bytes: u64, seconds: Option<u64>) -> io::Result<Vec<String>> {
    let zeros = || BTreeSet::from([0]);
    let blocks =
        load(state).unwrap_or_else(|_| vec![Block { now: zeros(), durable: zeros() }; (bytes / BLOCK) as usize]);
    let file = Arc::new(open(path)?);
    let stop = Arc::new(AtomicBool::new(false));
    let signals = signals::block_signals();
    let ended = stop.clone();
    std::thread::spawn(move || {
        signals::wait_for_signal(&signals);
        ended.store(true, Ordering::SeqCst);
    });
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let own = blocks.iter().skip(thread as usize).step_by(THREADS as usize).cloned().collect();
            let dice = Dice(seed ^ (thread << 48));
            let buf = PageBuf::zeroed(BLOCK as usize);
            let mut worker = Worker { file: file.clone(), blocks: own, thread, dice, buf, tally: Tally::default() };
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) && until.is_none_or(|until| Instant::now() < until) {
                    worker.step();
                }
                worker
            })
        })
        .collect();
    let mut left = blocks;
    let (mut tally, mut wrong) = (Tally::default(), Vec::new());
    for thread in threads {
        let worker = thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
        for (index, block) in worker.blocks.iter().enumerate() {
            left[worker.number(index) as usize] = block.clone();
        }
        tally.writes += worker.tally.writes;
        tally.reads += worker.tally.reads;
        tally.flushes += worker.tally.flushes;
        (0..3).for_each(|kind| tally.failed[kind] += worker.tally.failed[kind]);
        wrong.extend(worker.tally.wrong);
    }
    store(state, &left)?;
    let Tally { writes, reads, flushes, failed: [bad_reads, bad_writes, bad_flushes], .. } = tally;
    println!(
        "{writes} writes {reads} reads {flushes} flushes; failed {bad_reads} reads {bad_writes} writes {bad_flushes} flushes"
    );
    Ok(wrong)
}

fn check(path: &str, state: &str, is_strict: bool) -> io::Result<Vec<String>> {
    let mut blocks = load(state)?;
    let file = open(path)?;
    let mut buf = PageBuf::zeroed(BLOCK as usize);
    let (mut wrong, mut unread) = (Vec::new(), Vec::new());
    for (number, block) in (0..).zip(&mut blocks) {
        if file.read_exact_at(&mut buf.as_mut_slice()[..BLOCK as usize], number * BLOCK).is_err() {
            unread.push(number.to_string());
            continue;
        }
        let may = if is_strict { &block.now } else { &block.durable };
        match judge(number, &buf.as_slice()[..BLOCK as usize], may) {
            // It stays so: the group has been opened again since.
            Ok(found) => *block = Block { now: found.clone(), durable: found },
            Err(why) => wrong.push(why),
        }
    }
    store(state, &blocks)?;
    say(&format!("{} blocks, {} wrong, unread: {}", blocks.len(), wrong.len(), unread.join(" ")));
    Ok(wrong)
}

fn say(line: &str) {
    let _nobody_may_listen = writeln!(io::stdout(), "{line}");
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", file, state, seed, bytes] => run(file, state, number(seed), number(bytes), None),
        ["run", file, state, seed, bytes, seconds] => {
            run(file, state, number(seed), number(bytes), Some(number(seconds)))
        }
        ["check", file, state] => check(file, state, false),
        ["check-strictly", file, state] => check(file, state, true),
        _ => panic!("usage: verified_load run FILE STATE SEED BYTES [SECONDS] | check|check-strictly FILE STATE"),
    };
    match outcome {
        Ok(wrong) => {
            wrong.iter().take(20).for_each(|why| say(&format!("WRONG: {why}")));
            ExitCode::from(u8::from(!wrong.is_empty()))
        }
        Err(e) => {
            say(&e.to_string());
            ExitCode::from(2)
        }
    }
}
