//! Writes of one size, one after another, each timed; and a writer in the background. For passes that are so short that fio's start
//! takes longer, of which an experiment makes hundreds: fio takes a second to start in user-mode-linux, and 64 small writes 10 ms.
//!
//! Promises: which places are written depends on the pass and its seed alone; no place is written twice in a pass; after a pass
//! through the page cache everything is on the disk and the cache is empty; the writer ends when it is dropped.

use crate::command::{self, Result};
use crate::context::forget;
use crate::streams::{Through, fill, next, open};
use rowen_engine::disk::PageBuf;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Writes<'a> {
    pub target: &'a Path,
    pub block: u64,
    pub is_random: bool,
    pub through: Through,
    /// The range that is used, in bytes: where it begins and how long it is.
    pub offset: u64,
    pub span: u64,
    pub requests: u64,
    /// The pass ends early when it has taken this long.
    pub limit: Duration,
    pub seed: u64,
}

/// The blocks that are written, in their order.
fn places(writes: &Writes<'_>) -> Vec<u64> {
    let blocks = writes.span / writes.block;
    let wanted = writes.requests.min(blocks) as usize;
    let mut places: Vec<u64> = (0..blocks).collect();
    if writes.is_random {
        let mut state = writes.seed;
        for at in 0..wanted {
            let other = at as u64 + next(&mut state) % (blocks - at as u64);
            places.swap(at, other as usize);
        }
    }
    places.truncate(wanted);
    places
}

/// How long each request of a pass took, in milliseconds; of none if none was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    sorted: Vec<f64>,
}

impl Times {
    fn new(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        Times { sorted: times }
    }

    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    /// Requests a second, one after another.
    pub fn rate(&self) -> f64 {
        1e3 / self.mean()
    }

    /// The time that this share of the requests does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let at = (self.sorted.len() as f64 * share).ceil() as usize;
        self.sorted.get(at.max(1) - 1).copied().unwrap_or(f64::NAN)
    }
}

/// Makes the pass.
pub fn pass(writes: &Writes<'_>) -> Result<Times> {
    command::in_time()?;
    let file = open(writes.target, true, writes.through)?;
    let mut data = PageBuf::zeroed(writes.block as usize);
    fill(&mut data, !writes.seed);
    let begun = Instant::now();
    let mut times = Vec::new();
    for place in places(writes) {
        let before = begun.elapsed();
        if before > writes.limit {
            break;
        }
        file.write_all_at(data.as_slice(), writes.offset + place * writes.block)
            .map_err(|e| format!("cannot write to {}: {e}", writes.target.display()))?;
        times.push((begun.elapsed() - before).as_secs_f64() * 1e3);
    }
    if writes.through == Through::Cache {
        forget(writes.target)?;
    }
    Ok(Times::new(times))
}

/// Random writes in the background, at this rate per second, or as fast as the device takes them.
pub struct Writer {
    stop: Arc<AtomicBool>,
    lanes: Vec<JoinHandle<()>>,
}

/// Requests under way at a time.
const LANES: u64 = 4;

impl Writer {
    /// Begins at once.
    pub fn start(target: &Path, block: u64, span: u64, rate: u64) -> Result<Writer> {
        let mut writer = Writer { stop: Arc::default(), lanes: Vec::new() };
        for lane in 0..LANES {
            let (stop, target): (_, PathBuf) = (writer.stop.clone(), target.to_owned());
            let file = open(&target, true, Through::Past)?;
            writer.lanes.push(std::thread::spawn(move || {
                let mut data = PageBuf::zeroed(block as usize);
                fill(&mut data, lane);
                let (begun, pause) = (Instant::now(), Duration::from_secs_f64(LANES as f64 / rate as f64));
                let (mut state, mut due) = (lane, Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let place = next(&mut state) % (span / block) * block;
                    if let Err(e) = file.write_all_at(data.as_slice(), place) {
                        // The backup that is measured goes on, without writes: nobody must take that for a figure with them.
                        eprintln!("cannot write to {}: {e}", target.display());
                        return;
                    }
                    // What was late is not caught up with.
                    due = (due + pause).max(begun.elapsed());
                    std::thread::sleep(due - begun.elapsed().min(due));
                }
            }));
        }
        Ok(writer)
    }

    /// Ends it. Fails if it had ended by itself.
    pub fn stop(self) -> Result {
        match self.lanes.iter().any(|lane| lane.is_finished()) {
            true => Err("the writes in the background failed".to_owned()),
            false => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A lane has nothing to say.
        self.lanes.drain(..).for_each(|lane| drop(lane.join()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_pass_writes_its_places_once_and_the_seed_decides() {
        let path = std::env::temp_dir().join(format!("rowen-writes-{}", std::process::id()));
        let writes = Writes {
            target: &path,
            block: 8192,
            is_random: true,
            through: Through::Cache,
            offset: 1 << 20,
            span: 1 << 20,
            requests: 100,
            limit: Duration::MAX,
            seed: 1,
        };
        let found = places(&writes);
        assert_eq!((found.len(), found.iter().collect::<HashSet<_>>().len()), (100, 100));
        assert_eq!(found, places(&writes));
        assert_ne!(found, places(&Writes { seed: 2, ..writes }));
        assert_eq!(places(&Writes { requests: 999, ..writes }).len(), 128);
        assert_eq!(places(&Writes { is_random: false, requests: 3, ..writes }), [0, 1, 2]);

        for through in [Through::Cache, Through::Past] {
            std::fs::write(&path, vec![0; 2 << 20]).unwrap();
            let times = pass(&Writes { through, ..writes }).unwrap();
            assert!(times.sorted.len() == 100 && times.sorted[0] > 0.0);
            let bytes = std::fs::read(&path).unwrap();
            let is_written = |n: &usize| bytes[n * 8192..(n + 1) * 8192].iter().any(|byte| *byte != 0);
            let written: HashSet<u64> = (0..256).filter(is_written).map(|n| n as u64).collect();
            assert_eq!(written, found.iter().map(|place| place + 128).collect());
        }
        assert!(pass(&Writes { limit: Duration::ZERO, ..writes }).unwrap().sorted.len() <= 1);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn quantiles_are_of_the_requests() {
        let times = Times::new((1..=1000).rev().map(f64::from).collect());
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|share| times.quantile(share)), [500.0, 990.0, 999.0, 1000.0]);
        assert_eq!((times.mean(), Times::new(vec![2.0, 2.0]).rate()), (500.5, 500.0));
        assert!(Times::new(Vec::new()).quantile(0.5).is_nan());
    }

    #[test]
    fn a_writer_writes_until_it_is_stopped() {
        let path = std::env::temp_dir().join(format!("rowen-writer-{}", std::process::id()));
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let writer = Writer::start(&path, 16384, 1 << 20, 1_000_000).unwrap();
        let is_empty = || std::fs::read(&path).unwrap().chunks(16384).any(|page| page.iter().all(|byte| *byte == 0));
        while is_empty() {
            std::thread::yield_now();
        }
        writer.stop().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(Writer::start(Path::new("/no/such/dir/file"), 16384, 1 << 20, 1).is_err());
    }
}
