//! Counters of requests to volumes and disks, and the rates and latencies that follow from them.
//!
//! Counters only rise. They begin at zero when a server opens the group. The difference of two samples from one server
//! ([`OpCounts::since`]) is the work in between.

use super::attributes::hex;
use rowen_engine::units::Uuid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of buckets of a latency histogram.
pub const BUCKETS: usize = 23;
/// The first bucket has latencies below two to the power of this, in microseconds.
const FIRST: u32 = 3;

/// The bucket that counts a latency of `micros` microseconds. The last one has everything from 16.8 s.
pub fn bucket_of(micros: u64) -> usize {
    let bits = u64::BITS - micros.leading_zeros();
    (bits.saturating_sub(FIRST) as usize).min(BUCKETS - 1)
}

/// The upper bound of a bucket's latencies, in microseconds; the last bucket has none.
pub fn bucket_end(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1 << (bucket as u32 + FIRST))
}

/// The least latency of a bucket, in microseconds.
fn bucket_start(bucket: usize) -> u64 {
    bucket.checked_sub(1).and_then(bucket_end).unwrap_or(0)
}

/// The counters of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpCounts {
    /// Requests that were answered, also those that failed.
    pub requests: u64,
    pub failed: u64,
    /// Bytes of successful requests.
    pub bytes: u64,
    /// The sum of all latencies.
    pub micros: u64,
    /// How many requests took how long ([`bucket_of`]).
    pub buckets: [u64; BUCKETS],
}

/// A latency that a histogram gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Latency {
    /// Microseconds.
    Micros(f64),
    /// In the last bucket, which begins at this many microseconds and has no end.
    From(u64),
}

impl OpCounts {
    /// What was done since `earlier`, an older look at the same server.
    pub fn since(&self, earlier: &OpCounts) -> OpCounts {
        OpCounts {
            requests: self.requests.saturating_sub(earlier.requests),
            failed: self.failed.saturating_sub(earlier.failed),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            micros: self.micros.saturating_sub(earlier.micros),
            buckets: std::array::from_fn(|at| self.buckets[at].saturating_sub(earlier.buckets[at])),
        }
    }

    /// Both together.
    pub fn plus(&self, other: &OpCounts) -> OpCounts {
        OpCounts {
            requests: self.requests.saturating_add(other.requests),
            failed: self.failed.saturating_add(other.failed),
            bytes: self.bytes.saturating_add(other.bytes),
            micros: self.micros.saturating_add(other.micros),
            buckets: std::array::from_fn(|at| self.buckets[at].saturating_add(other.buckets[at])),
        }
    }

    /// The mean latency in microseconds; none without requests.
    pub fn mean(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.micros as f64 / self.requests as f64)
    }

    /// The latency that a share of the requests does not exceed. Within a bucket, latencies are assumed to be spread
    /// evenly, as in Prometheus.
    pub fn percentile(&self, share: f64) -> Option<Latency> {
        let total: u128 = self.buckets.iter().map(|count| u128::from(*count)).sum();
        if total == 0 {
            return None;
        }
        let wanted = (share.clamp(0.0, 1.0) * total as f64).max(1.0);
        let mut below = 0.0;
        for (bucket, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                return Some(within(bucket, ((wanted - below) / count).min(1.0)));
            }
            below += count;
        }
        self.longest()
    }

    /// The end of the last bucket that has a request: no request took longer.
    pub fn longest(&self) -> Option<Latency> {
        self.buckets.iter().rposition(|count| *count > 0).map(|bucket| within(bucket, 1.0))
    }
}

/// The latency at a share of a bucket's width.
fn within(bucket: usize, share: f64) -> Latency {
    let start = bucket_start(bucket);
    match bucket_end(bucket) {
        Some(end) => Latency::Micros(start as f64 + (end - start) as f64 * share),
        None => Latency::From(start),
    }
}

/// The counters of a volume or a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounts {
    pub read: OpCounts,
    pub write: OpCounts,
    pub flush: OpCounts,
    pub discard: OpCounts,
    /// Requests for a range to read as zeros. Disks get none.
    pub zero: OpCounts,
    /// Requests in flight.
    pub under_way: u64,
}

impl IoCounts {
    /// Each kind of request with its name.
    pub fn each(&self) -> [(&'static str, &OpCounts); 5] {
        let IoCounts { read, write, flush, discard, zero, .. } = self;
        [("read", read), ("write", write), ("flush", flush), ("discard", discard), ("zero", zero)]
    }

    fn with(&self, other: &IoCounts, both: impl Fn(&OpCounts, &OpCounts) -> OpCounts) -> IoCounts {
        IoCounts {
            read: both(&self.read, &other.read),
            write: both(&self.write, &other.write),
            flush: both(&self.flush, &other.flush),
            discard: both(&self.discard, &other.discard),
            zero: both(&self.zero, &other.zero),
            under_way: self.under_way,
        }
    }

    /// The work since `earlier`, and the requests in flight now.
    pub fn since(&self, earlier: &IoCounts) -> IoCounts {
        self.with(earlier, OpCounts::since)
    }

    /// All kinds of requests together.
    pub fn all(&self) -> OpCounts {
        self.each().into_iter().fold(OpCounts::default(), |sum, (_, op)| sum.plus(op))
    }

    /// Both together.
    pub fn plus(&self, other: &IoCounts) -> IoCounts {
        let under_way = self.under_way.saturating_add(other.under_way);
        IoCounts { under_way, ..self.with(other, OpCounts::plus) }
    }

    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.each().iter().fold(0, |sum, (_, op)| sum.saturating_add(op.failed))
    }
}

/// The counters of a physical volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvIo {
    pub path: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub counts: IoCounts,
}

/// The counters of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeIo {
    pub name: String,
    #[serde(with = "hex")]
    pub uuid: Uuid,
    pub is_active: bool,
    pub counts: IoCounts,
}

/// All counters since a server opened the group. Volumes that were not active since then are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoReport {
    /// How long the group has been open.
    pub open_micros: u64,
    /// Bytes of memory that requests of all volumes use now, and may use at most.
    pub request_memory_bytes: u64,
    pub request_memory_limit_bytes: u64,
    pub pvs: Vec<PvIo>,
    pub volumes: Vec<VolumeIo>,
}

impl IoReport {
    /// What was done since `earlier`, an older look at the same server. `open_micros` is then the time between the two.
    pub fn since(&self, earlier: &IoReport) -> IoReport {
        let pvs: BTreeMap<Uuid, &IoCounts> = earlier.pvs.iter().map(|pv| (pv.uuid, &pv.counts)).collect();
        let volumes: BTreeMap<Uuid, &IoCounts> = earlier.volumes.iter().map(|one| (one.uuid, &one.counts)).collect();
        let done = |now: &IoCounts, before: Option<&&IoCounts>| before.map_or(*now, |before| now.since(before));
        IoReport {
            open_micros: self.open_micros.saturating_sub(earlier.open_micros),
            request_memory_bytes: self.request_memory_bytes,
            request_memory_limit_bytes: self.request_memory_limit_bytes,
            pvs: self.pvs.iter().map(|pv| PvIo { counts: done(&pv.counts, pvs.get(&pv.uuid)), ..pv.clone() }).collect(),
            volumes: self
                .volumes
                .iter()
                .map(|one| VolumeIo { counts: done(&one.counts, volumes.get(&one.uuid)), ..one.clone() })
                .collect(),
        }
    }

    pub fn seconds(&self) -> f64 {
        self.open_micros as f64 / 1e6
    }

    /// All volumes together.
    pub fn sum(&self) -> IoCounts {
        self.volumes.iter().fold(IoCounts::default(), |sum, volume| sum.plus(&volume.counts))
    }
}

#[cfg(test)]
#[path = "io_test.rs"]
mod tests;
