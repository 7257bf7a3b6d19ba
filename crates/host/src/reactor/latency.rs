//! Asks the kernel to keep processors out of deep sleep while many requests arrive.
//!
//! A sleeping processor takes time to wake: a few microseconds from light sleep, a hundred from deep sleep, tens in a
//! virtual machine, where sleep exits to the hypervisor. A single small request pays this four times on its way to the
//! disk and back, which can take longer than the request itself. A process can tell the kernel how long a wake-up may
//! take (Documentation/power/pm_qos_interface.rst). At 0 an idle processor polls for work: that slows down no other
//! program, but uses power.
//!
//! Nothing is requested unless a worker is woken [`DENSE`] times in [`WINDOW`], so an idle server lets the machine
//! sleep. The request ends with the process, however it ends.

use parking_lot::Mutex;
use std::fs::{File, OpenOptions, read_to_string};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEVICE: &str = "/dev/cpu_dma_latency";
/// How long a worker's sleeps are counted before it decides.
const WINDOW: Duration = Duration::from_millis(5);
/// The number of sleeps in a window that counts as busy: a thousand single requests a second, with two sleeps each.
const DENSE: u32 = 10;
/// The kernel's value for "no request" (PM_QOS_DEFAULT_VALUE).
const NO_WISH: i32 = -1;
/// Microseconds that let a processor sleep lightly and not deeply.
const LIGHT_SLEEP: u32 = 10;
/// In a virtual machine any sleep is a deep one. The wish is for all processors alike: with more of them, too many would
/// be kept awake for one.
const FEW: usize = 8;

/// The setting for this machine, in microseconds; none if there is no gain or the cost is too high.
pub fn suitable() -> Option<u32> {
    let driver = read_to_string("/sys/devices/system/cpu/cpuidle/current_driver").ok()?;
    suits(driver.trim(), std::thread::available_parallelism().map_or(1, usize::from))
}

fn suits(driver: &str, processors: usize) -> Option<u32> {
    match driver {
        // Without a driver the kernel does not look at wishes.
        "" | "none" => None,
        "haltpoll" => (processors <= FEW).then_some(0),
        _ => Some(LIGHT_SLEEP),
    }
}

/// A wish to the kernel that workers make and withdraw: it stands while one of them holds it.
pub struct Latency {
    device: File,
    micros: i32,
    holders: Mutex<usize>,
}

impl Latency {
    /// Requests a wake-up latency of at most this many microseconds.
    pub fn new(micros: u32) -> io::Result<Arc<Latency>> {
        Ok(Latency::on(OpenOptions::new().write(true).open(DEVICE)?, micros))
    }

    fn on(device: File, micros: u32) -> Arc<Latency> {
        Arc::new(Latency { device, micros: i32::try_from(micros).unwrap_or(i32::MAX), holders: Mutex::new(0) })
    }

    fn hold(&self) {
        let mut holders = self.holders.lock();
        *holders += 1;
        if *holders == 1 {
            self.write_wish(self.micros);
        }
    }

    fn release(&self) {
        let mut holders = self.holders.lock();
        *holders -= 1;
        if *holders == 0 {
            self.write_wish(NO_WISH);
        }
    }

    fn write_wish(&self, micros: i32) {
        // A wish that is refused is one that was not made.
        let _ = (&self.device).write_all(&micros.to_ne_bytes());
    }
}

/// One worker's count of its sleeps.
pub(crate) struct SleepRate {
    latency: Option<Arc<Latency>>,
    since: Instant,
    sleeps: u32,
    holding: bool,
}

impl SleepRate {
    pub fn new(latency: Option<Arc<Latency>>) -> SleepRate {
        SleepRate { latency, since: Instant::now(), sleeps: 0, holding: false }
    }

    /// How long the worker may sleep so that it can withdraw its wish in time.
    pub fn limit(&self) -> Option<Duration> {
        self.holding.then_some(WINDOW)
    }

    /// The worker slept and is awake again.
    pub fn slept(&mut self) {
        if self.latency.is_some() {
            self.slept_until(Instant::now());
        }
    }

    fn slept_until(&mut self, now: Instant) {
        let Some(latency) = &self.latency else { return };
        self.sleeps += 1;
        let window = now.saturating_duration_since(self.since);
        if window < WINDOW {
            return;
        }
        let dense = window.as_nanos() * u128::from(DENSE) <= WINDOW.as_nanos() * u128::from(self.sleeps);
        if dense != self.holding {
            self.holding = dense;
            if dense { latency.hold() } else { latency.release() }
        }
        (self.since, self.sleeps) = (now, 0);
    }
}

impl Drop for SleepRate {
    fn drop(&mut self) {
        if let (true, Some(latency)) = (self.holding, &self.latency) {
            latency.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// The values that the kernel would have received since the last call.
    fn written(pipe: &mut File) -> Vec<i32> {
        let mut bytes = [0; 64];
        match pipe.read(&mut bytes) {
            Ok(len) => bytes[..len].chunks(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap())).collect(),
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
                Vec::new()
            }
        }
    }

    fn latency() -> (Arc<Latency>, File) {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        (Latency::on(write.into(), 0), read.into())
    }

    fn sleeps(sleep_rate: &mut SleepRate, count: u32, apart: Duration) {
        for _ in 0..count {
            sleep_rate.slept_until(sleep_rate.since + apart * (sleep_rate.sleeps + 1));
        }
    }

    #[test]
    fn the_wish_stands_while_sleeps_are_dense() {
        let (latency, mut pipe) = latency();
        let mut sleep_rate = SleepRate::new(Some(latency));
        sleeps(&mut sleep_rate, 100, WINDOW / DENSE * 2);
        assert_eq!((written(&mut pipe), sleep_rate.limit()), (Vec::<i32>::new(), None), "too seldom");
        sleeps(&mut sleep_rate, 100, WINDOW / DENSE);
        assert_eq!((written(&mut pipe), sleep_rate.limit()), (vec![0], Some(WINDOW)), "once, not each time");
        sleeps(&mut sleep_rate, 1, WINDOW);
        assert_eq!((written(&mut pipe), sleep_rate.limit()), (vec![NO_WISH], None), "one sleep without news");
    }

    #[test]
    fn the_last_worker_withdraws_it() {
        let (latency, mut pipe) = latency();
        let mut sleep_rates: Vec<_> = (0..3).map(|_| SleepRate::new(Some(latency.clone()))).collect();
        sleep_rates.iter_mut().for_each(|sleep_rate| sleeps(sleep_rate, 100, WINDOW / 100));
        assert_eq!(written(&mut pipe), [0]);
        sleeps(&mut sleep_rates[1], 1, WINDOW);
        sleep_rates.truncate(1);
        assert!(written(&mut pipe).is_empty(), "one still wants it");
        drop(sleep_rates);
        assert_eq!(written(&mut pipe), [NO_WISH], "a worker that ends wants nothing");
    }

    #[test]
    fn few_processors_of_a_virtual_machine_stay_awake() {
        assert_eq!(suits("haltpoll", 2), Some(0));
        assert_eq!(suits("haltpoll", 64), None);
        assert_eq!(suits("intel_idle", 64), Some(LIGHT_SLEEP));
        assert_eq!(suits("none", 2), None);
    }
}
