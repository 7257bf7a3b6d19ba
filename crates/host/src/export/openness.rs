//! Which of many devices are mounted or open: one pass over /proc, without touching the devices. (An exclusive open
//! would show more, but could make a concurrent mount fail.) The pass reads all processes of the host and their open
//! files, so concurrent callers share one.

use super::openers::{Numbers, device_named, open_devices};
use super::usage::{OF_SEVERAL, processes, unescape};
use crate::planted;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

/// The passes over the processes of the host.
#[derive(Default)]
pub struct Openness {
    passes: Mutex<Passes>,
    ended: Condvar,
}

#[derive(Default)]
struct Passes {
    begun: u64,
    /// The last one that has ended, and what it found.
    ended: u64,
    found: Arc<HashSet<Numbers>>,
    is_under_way: bool,
    waiting: usize,
}

impl Openness {
    /// Of `devices`, those that are in use by somebody other than this process.
    pub fn in_use(&self, devices: &[Numbers]) -> HashSet<Numbers> {
        if devices.is_empty() {
            return HashSet::new();
        }
        let used = self.shared(used_devices);
        let stacked = |&(major, minor): &Numbers| {
            let holders = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders"));
            holders.is_ok_and(|mut holders| holders.next().is_some())
        };
        devices.iter().copied().filter(|numbers| used.contains(numbers) || stacked(numbers)).collect()
    }

    /// The result of a pass that begins after the call: a running pass may have missed a change. Callers that come
    /// during a pass share the next one.
    fn shared(&self, find: impl FnOnce() -> HashSet<Numbers>) -> Arc<HashSet<Numbers>> {
        let mut passes = self.passes.lock();
        let wanted = passes.begun + 1;
        while passes.is_under_way {
            passes.waiting += 1;
            self.ended.wait(&mut passes);
            passes.waiting -= 1;
            if passes.ended >= wanted {
                return passes.found.clone();
            }
        }
        passes.begun += 1;
        passes.is_under_way = true;
        let this = passes.begun;
        drop(passes);
        let under_way = UnderWay(self);
        let found = Arc::new(find());
        let mut passes = self.passes.lock();
        (passes.ended, passes.found) = (this, found.clone());
        drop(passes);
        drop(under_way);
        found
    }
}

/// A running pass. It also ends when it fails, so no caller waits for ever.
struct UnderWay<'a>(&'a Openness);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.passes.lock().is_under_way = false;
        self.0.ended.notify_all();
    }
}

/// The block devices that a mountinfo file shows: by number, and by source for filesystems over several devices. Others are
/// mounted by any user, from a source of any name.
fn mounted(mountinfo: &str) -> impl Iterator<Item = Numbers> + '_ {
    mountinfo.lines().filter_map(|line| {
        let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
        match (major.parse().ok()?, minor.parse().ok()?) {
            (0, _) => {
                let (kind, rest) = line.split_once(" - ")?.1.split_once(' ')?;
                (OF_SEVERAL.contains(&kind) || planted::is("believes_sources"))
                    .then(|| device_named(&unescape(rest.split(' ').next()?)))?
            }
            numbers => Some(numbers),
        }
    })
}

/// All block devices that somebody other than this process has mounted, open or in use as swap.
fn used_devices() -> HashSet<Numbers> {
    let mut used = HashSet::new();
    let mut namespaces = HashSet::new();
    let own = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    used.extend(mounted(&own));
    namespaces.extend(fs::read_link("/proc/self/ns/mnt").ok());
    for pid in processes().into_iter().skip(1) {
        let elsewhere =
            fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|namespace| namespaces.insert(namespace));
        if elsewhere {
            used.extend(mounted(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default()));
        }
        used.extend(open_devices(pid));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    used.extend(swaps.lines().skip(1).filter_map(|line| device_named(&unescape(line.split_whitespace().next()?))));
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    #[test]
    fn mounts_are_found_by_number() {
        let text = "36 35 7:3 / /mnt rw shared:1 - ext4 /dev/loop3 rw\n37 35 0:44 / /proc rw - proc proc rw\nshort\n1 2 x:y\n\
             38 35 0:45 / /x rw - tmpfs /dev/loop4 rw\n39 35 0:46 / /y rw - btrfs /dev/none rw\n";
        assert_eq!(mounted(text).collect::<Vec<_>>(), [(7, 3)]);
    }

    #[test]
    fn nothing_is_looked_for_where_nothing_is_asked() {
        let openness = Openness::default();
        assert!(openness.in_use(&[]).is_empty());
        assert_eq!(openness.passes.lock().begun, 0);
    }

    #[test]
    fn who_asks_meanwhile_shares_the_next_pass_and_not_the_one_under_way() {
        let openness = Openness::default();
        let made = AtomicU64::new(0);
        let (go, wait) = mpsc::channel::<()>();
        // Each pass finds its own number.
        let pass = || HashSet::from([(7, made.fetch_add(1, Ordering::SeqCst) as u32)]);
        std::thread::scope(|threads| {
            let (inside, begun) = mpsc::channel();
            let first = threads.spawn(|| {
                openness.shared(move || {
                    inside.send(()).unwrap();
                    wait.recv().unwrap();
                    pass()
                })
            });
            begun.recv().unwrap();
            let others: Vec<_> = (0..64).map(|_| threads.spawn(|| openness.shared(pass))).collect();
            while openness.passes.lock().waiting < 64 {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            assert_eq!(*first.join().unwrap(), HashSet::from([(7, 0)]));
            for other in others {
                assert_eq!(*other.join().unwrap(), HashSet::from([(7, 1)]), "what the first found may be too old");
            }
        });
        assert_eq!(openness.passes.lock().begun, 2);
    }

    #[test]
    fn a_pass_that_fails_lets_the_next_one_begin() {
        let openness = Openness::default();
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| openness.shared(|| panic!("a bug"))));
        assert!(failed.is_err());
        assert_eq!(*openness.shared(|| HashSet::from([(7, 1)])), HashSet::from([(7, 1)]));
    }
}
