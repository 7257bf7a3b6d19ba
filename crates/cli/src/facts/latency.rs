//! Latencies of the last hour, one point for each minute. Servers count from their start; a point is the difference of
//! two samples.

use crate::commands::iostat::Before;
use crate::top::model::Group;
use rowen_control::protocol::{IoReport, Latency, OpCounts, VolumeIo};
use rowen_web::facts::{self, BusyVolume, Facts, HOUR, POINT, Point};
use std::collections::BTreeMap;

/// Seconds. The current minute is not reported before, because so few requests say nothing.
const MIN: f64 = 5.0;
/// The largest number of busy volumes of a group in the document.
const BUSY: usize = 100;

#[derive(Default)]
pub struct Latencies {
    groups: BTreeMap<String, Course>,
}

/// A group's.
#[derive(Default)]
struct Course {
    points: Vec<Point>,
    /// The counters at the beginning of the current minute, and the time.
    begin: Option<(Before, f64)>,
    /// The point of the current minute up to now.
    begun: Option<Point>,
    busy: Busy,
}

/// What volumes did in the last complete minute or, if there was none, in the current one.
#[derive(Default)]
struct Busy {
    volumes: Vec<BusyVolume>,
    /// The end of that time.
    uptime: f64,
    is_complete: bool,
}

impl Latencies {
    pub fn go_on(&mut self, before: &Facts, uptime: f64) {
        for group in &before.groups {
            let mut points = group.latency.clone();
            // Points after the present time are from an earlier boot of the host. The last minute may be incomplete.
            points.retain(|point| point.uptime <= uptime && point.seconds >= POINT);
            self.groups.insert(group.name.clone(), Course { points, ..Course::default() });
        }
    }

    pub fn see(&mut self, groups: &[Group], uptime: f64) {
        for group in groups.iter().filter(|group| !group.is_silent()) {
            let Some(counted) = &group.counted else { continue };
            self.groups.entry(group.status.name.clone()).or_default().see(counted, uptime);
        }
        for course in self.groups.values_mut() {
            course.points.retain(|point| uptime - point.uptime <= HOUR);
        }
        // Removed and renamed groups are dropped after an hour.
        self.groups
            .retain(|name, course| !course.points.is_empty() || groups.iter().any(|group| group.status.name == *name));
    }

    /// All points of a group, the oldest first.
    pub fn of(&self, group: &str, uptime: f64) -> Vec<Point> {
        let Some(course) = self.groups.get(group) else { return Vec::new() };
        let begun = course.begun.iter().filter(|point| uptime - point.uptime <= POINT);
        course.points.iter().chain(begun).cloned().collect()
    }

    /// What the volumes of a group did in the last minute.
    pub fn busy(&self, group: &str, uptime: f64) -> Vec<BusyVolume> {
        let course = self.groups.get(group).filter(|course| uptime - course.busy.uptime <= 2.0 * POINT);
        course.map(|course| course.busy.volumes.clone()).unwrap_or_default()
    }
}

impl Course {
    fn see(&mut self, counted: &Before, uptime: f64) {
        let begin = self.begin.take();
        // A new server counts from zero, so the minute begins again.
        let done = begin.and_then(|(before, at)| Some((before.since(counted.pid, &counted.io)?, before, at)));
        let now = || (Before { pid: counted.pid, io: counted.io.clone() }, uptime);
        self.begun = None;
        let Some((done, before, at)) = done else {
            self.begin = Some(now());
            return;
        };
        let point = point(&done, at, uptime);
        if uptime - at >= POINT {
            self.points.push(point);
            self.busy = Busy { volumes: busy(&done, uptime - at), uptime, is_complete: true };
            self.begin = Some(now());
            return;
        }
        self.begun = Some(point).filter(|point| point.seconds >= MIN);
        let is_recent = self.busy.is_complete && uptime - self.busy.uptime <= 2.0 * POINT;
        if self.begun.is_some() && !is_recent {
            self.busy = Busy { volumes: busy(&done, uptime - at), uptime, is_complete: false };
        }
        self.begin = Some((before, at));
    }
}

fn point(done: &IoReport, from: f64, to: f64) -> Point {
    let sum = done.sum();
    Point {
        uptime: to,
        seconds: to - from,
        read: latency(&sum.read),
        write: latency(&sum.write),
        flush: latency(&sum.flush),
    }
}

/// Active volumes that had requests, those with most requests first.
fn busy(done: &IoReport, seconds: f64) -> Vec<BusyVolume> {
    let mut busy: Vec<_> = done.volumes.iter().filter(|one| one.is_active && one.counts.all().requests > 0).collect();
    busy.sort_by_key(|one| (std::cmp::Reverse(one.counts.all().requests), one.name.clone()));
    let volume = |one: &&VolumeIo| BusyVolume {
        name: one.name.clone(),
        seconds,
        read: latency(&one.counts.read),
        write: latency(&one.counts.write),
        flush: latency(&one.counts.flush),
    };
    busy.iter().take(BUSY).map(volume).collect()
}

fn latency(op: &OpCounts) -> Option<facts::Latency> {
    let micros = |share| match op.percentile(share)? {
        Latency::Micros(micros) => Some(micros),
        Latency::From(micros) => Some(micros as f64),
    };
    Some(facts::Latency { requests: op.requests, median: micros(0.5)?, p99: micros(0.99)? })
}
