//! Latencies of the last hour, one point for each minute. Servers count from their start; a point is the difference of
//! two samples.

use crate::commands::iostat::Before;
use crate::top::model::Group;
use rowen_control::protocol::{IoReport, Latency, OpCounts};
use rowen_web::facts::{self, Facts, HOUR, POINT, Point};
use std::collections::BTreeMap;

/// Seconds. The current minute is not reported before, because so few requests say nothing.
const MIN: f64 = 5.0;

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
            self.begin = Some(now());
            return;
        }
        self.begun = Some(point).filter(|point| point.seconds >= MIN);
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

fn latency(op: &OpCounts) -> Option<facts::Latency> {
    let micros = |share| match op.percentile(share)? {
        Latency::Micros(micros) => Some(micros),
        Latency::From(micros) => Some(micros as f64),
    };
    Some(facts::Latency { requests: op.requests, median: micros(0.5)?, p99: micros(0.99)? })
}
