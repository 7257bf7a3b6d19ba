//! Facts as the tests have them: a busy group, one whose server hangs, and names that would like to be markup.

use crate::facts::{BusyVolume, Event, Facts, Group, Latency, Point, Pool, Problem, Pv, Space, Volume, Work};

/// What nobody sane calls anything.
pub const HOSTILE: &str = "</td><script>alert(1)</script><img src=x onerror=\"alert('2')\">&amp;\u{202e}";

fn latency(requests: u64, median: f64, p99: f64) -> Option<Latency> {
    Some(Latency { requests, median, p99 })
}

/// A minute that ended this many seconds ago.
pub fn minute(before: f64, read: Option<Latency>, write: Option<Latency>) -> Point {
    Point { uptime: 10_000.0 - before, seconds: 60.0, read, write, flush: None }
}

pub fn volume(name: &str, parent: Option<&str>, depth: u64) -> Volume {
    Volume {
        name: name.into(),
        parent: parent.map(str::to_owned),
        depth,
        size_bytes: 4 << 30,
        referenced_bytes: 3 << 30,
        own_bytes: 5 << 20,
        freed_if_removed_bytes: 1 << 20,
        created: "2026-11-24 13:12".into(),
        state: vec!["active".into()],
        tags: Vec::new(),
    }
}

/// A healthy group with all that a group can have.
pub fn busy() -> Group {
    let hour = (0..58).map(|at| {
        let slow = 1.0 + f64::from(at % 7);
        minute(f64::from(58 - at) * 60.0, latency(3000, 90.0, 400.0 * slow), latency(900, 200.0, 2000.0 * slow))
    });
    Group {
        name: "vg0".into(),
        state: "serving".into(),
        healthy: true,
        sentence: "2 active volumes of 3; 42.0% of its space is in use".into(),
        runs: Some("server 1234 for 2 h, keeper 1230, 0 restarts".into()),
        space: Some(Space { size_bytes: 10 << 30, free_bytes: 6 << 30, metadata_bytes: 24 << 20 }),
        pools: vec![Pool { name: "pool".into(), size_bytes: 2 << 30, used_bytes: 1 << 30 }],
        physical_volumes: vec![Pv {
            path: "/dev/sdb".into(),
            state: "ok".into(),
            size_bytes: Some(10 << 30),
            failed: Some(0),
        }],
        volumes: vec![volume("data", None, 0), volume("monday", Some("data"), 1), volume("test", Some("monday"), 2)],
        volumes_uptime: Some(10_000.0),
        work: vec![Work {
            what: "removal".into(),
            why: "gives back the space of what was removed".into(),
            done: Some(0.25),
            seconds_left: Some(240),
            is_stuck: false,
        }],
        latency: hour.collect(),
        busy_volumes: vec![BusyVolume {
            name: "data".into(),
            seconds: 60.0,
            read: latency(3000, 90.0, 800.0),
            write: latency(600, 200.0, 4000.0),
            flush: None,
        }],
        events: vec![Event {
            time: 1_795_575_600,
            at: "2026-11-25 03:00:00 +0000".into(),
            event: "space".into(),
            message: "Volume group \"vg0\" is 80% full.".into(),
        }],
        ..Group::default()
    }
}

/// One whose server does not answer.
pub fn silent() -> Group {
    let next = "continue it: kill -CONT 1234".to_owned();
    let what = "its server (process 1234, which was stopped by a signal (SIGSTOP)) does not answer".to_owned();
    Group {
        name: "archive".into(),
        state: "not answering".into(),
        healthy: false,
        sentence: what.clone(),
        problems: vec![Problem { what, next }],
        volumes: vec![volume("old", None, 0)],
        volumes_uptime: Some(9000.0),
        work: vec![Work { what: "all requests wait".into(), is_stuck: true, ..Work::default() }],
        ..Group::default()
    }
}

pub fn facts(groups: Vec<Group>) -> Facts {
    Facts {
        version: crate::facts::VERSION,
        program: "0.1.0".into(),
        host: "backup1".into(),
        time: 1_795_575_600,
        at: "2026-11-25 03:00:00 +0000".into(),
        uptime: 10_000.0,
        every: 10,
        healthy: groups.iter().all(|group| group.healthy),
        problems: Vec::new(),
        groups,
    }
}

/// A group in which every text is hostile.
pub fn hostile() -> Facts {
    let text = || HOSTILE.to_owned();
    let group = Group {
        name: text(),
        state: text(),
        sentence: text(),
        runs: Some(text()),
        problems: vec![Problem { what: text(), next: text() }],
        space: Some(Space { size_bytes: u64::MAX, free_bytes: u64::MAX, metadata_bytes: u64::MAX }),
        pools: vec![Pool { name: text(), size_bytes: 0, used_bytes: u64::MAX }],
        physical_volumes: vec![Pv { path: text(), state: text(), size_bytes: Some(u64::MAX), failed: Some(u64::MAX) }],
        volumes: vec![Volume {
            name: text(),
            parent: Some(text()),
            depth: u64::MAX,
            created: text(),
            state: vec![text()],
            tags: vec!["<script>".into()],
            ..Volume::default()
        }],
        volumes_left_out: u64::MAX,
        work: vec![Work {
            what: text(),
            why: text(),
            done: Some(f64::NAN),
            seconds_left: Some(u64::MAX),
            is_stuck: true,
        }],
        latency: vec![
            minute(-60.0, latency(1, 1.0, 1.0), None),
            minute(60.0, latency(1, f64::NAN, f64::INFINITY), latency(u64::MAX, -5.0, 1e300)),
            Point { seconds: 0.0, ..minute(30.0, latency(1, 1.0, 1.0), None) },
        ],
        busy_volumes: vec![BusyVolume {
            name: text(),
            seconds: f64::NAN,
            read: latency(u64::MAX, -5.0, 1e300),
            write: latency(1, 1.0, f64::NAN),
            flush: None,
        }],
        events: vec![Event { time: u64::MAX, at: text(), event: text(), message: text() }],
        ..Group::default()
    };
    let mut facts = facts(vec![group]);
    (facts.host, facts.at, facts.program) = (text(), text(), text());
    facts.problems = vec![Problem { what: text(), next: text() }];
    facts
}
