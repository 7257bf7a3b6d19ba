//! The output of `rowen facts` for groups that tests made, sample by sample.

use crate::facts::Collector;
use crate::top::fixtures::{TIME, count, hung, op, report, served, with_snapshots};
use crate::top::sample::Sample;
use crate::transcript_test::with_group;
use rowen_control::history::{Event, What, write};
use rowen_control::protocol::{IoCounts, PoolFill};
use rowen_control::status::{LostPv, Seen, Survey};
use rowen_web::facts::{self, Facts, HOUR};

fn collector() -> Collector {
    Collector::new("backup1".into(), Vec::new(), 10)
}

/// A sample of these groups, `at` seconds after the host was started.
fn see(collector: &mut Collector, at: u64, groups: Vec<Seen>) -> Facts {
    let survey = Survey { groups, ..Survey::default() };
    collector.see(Sample::new(survey, TIME + at), at as f64);
    collector.facts(at as f64)
}

/// A group whose server has made these writes, of 200 us each, since it opened the group.
fn busy(open: u64, writes: u64) -> Seen {
    let mut group = served("vg0");
    let volume = IoCounts { write: op(writes, 200), ..IoCounts::default() };
    count(&mut group, open, &[("data", volume)], &[]);
    group.report = Some(Box::new(with_snapshots("vg0")));
    group
}

#[test]
fn a_group_is_described_as_by_other_commands() {
    let mut collector = collector();
    let mut group = busy(8000, 500);
    report(&mut group).pools = vec![PoolFill { name: "pool".into(), blocks: 1024, used_blocks: 512 }];
    report(&mut group).reclaim_left_blocks = 1000;
    see(&mut collector, 100, vec![group]);
    let mut group = busy(8010, 1500);
    report(&mut group).reclaim_left_blocks = 800;
    let facts = see(&mut collector, 110, vec![group]);
    assert_eq!((facts.version, facts.host.as_str(), facts.healthy, facts.every), (1, "backup1", true, 10));
    assert_eq!((facts.time, facts.uptime, facts.at.as_str()), (TIME + 110, 110.0, "2026-11-25 03:01:50 +0000"));
    let [group] = &facts.groups[..] else { panic!("{facts:?}") };
    assert_eq!((group.state.as_str(), group.healthy), ("serving", true));
    let space = group.space.clone().unwrap();
    assert_eq!((space.size_bytes, space.free_bytes, space.metadata_bytes), (10 << 30, 1_520_435 << 12, 24 << 20));
    assert_eq!((group.load.as_ref().unwrap().requests, group.load.as_ref().unwrap().written_bytes), (100.0, 409_600.0));
    let names: Vec<_> = group.volumes.iter().map(|one| (one.name.as_str(), one.parent.as_deref(), one.depth)).collect();
    assert_eq!(names, [("data", None, 0), ("monday", Some("data"), 1), ("tuesday", Some("data"), 1)]);
    assert!(group.volumes.iter().all(|one| one.created == "2026-11-22 03:00" && one.size_bytes == 100 << 20));
    assert_eq!(group.physical_volumes[0].path, "/dev/sdb");
    assert_eq!((group.physical_volumes[0].state.as_str(), group.physical_volumes[0].failed), ("ok", Some(0)));
    let [removal] = &group.work[..] else { panic!("{:?}", group.work) };
    assert_eq!((removal.what.as_str(), removal.seconds_left, removal.is_stuck), ("removal", Some(40), false));
    assert!((removal.done.unwrap() - 0.2).abs() < 1e-9);
    // As it is written, it is read.
    let text = serde_json::to_vec(&facts).unwrap();
    assert_eq!(facts::parse(&text), Ok(facts));
}

#[test]
fn latencies_are_of_minutes_and_kept_for_an_hour() {
    let mut collector = collector();
    let mut facts = Facts::default();
    // 100 writes in each look of ten seconds.
    for look in 0..=7 {
        facts = see(&mut collector, 1000 + 10 * look, vec![busy(5000 + 10 * look, 100 * look)]);
    }
    let [minute, now] = &facts.groups[0].latency[..] else { panic!("{:?}", facts.groups[0].latency) };
    assert_eq!((minute.uptime, minute.seconds, now.uptime, now.seconds), (1060.0, 60.0, 1070.0, 10.0));
    let writes = minute.write.as_ref().unwrap();
    assert_eq!((writes.requests, now.write.as_ref().unwrap().requests), (600, 100));
    // The bucket from 128 to 256 us.
    assert!((128.0..=256.0).contains(&writes.median) && writes.median < writes.p99, "{writes:?}");
    assert!(minute.read.is_none() && minute.flush.is_none());
    // Volumes: those of the complete minute.
    let [data] = &facts.groups[0].busy_volumes[..] else { panic!("{:?}", facts.groups[0].busy_volumes) };
    assert_eq!((data.name.as_str(), data.seconds, data.write.as_ref()), ("data", 60.0, Some(writes)));
    // Another server counts from zero: what is not known is left out, and nothing is made up.
    facts = see(&mut collector, 1080, vec![busy(1, 7)]);
    assert_eq!(facts.groups[0].latency.len(), 1);
    for look in 1..=12 {
        facts = see(&mut collector, 1080 + 10 * look, vec![busy(1 + 10 * look, 7 + look)]);
    }
    let ends: Vec<f64> = facts.groups[0].latency.iter().map(|point| point.uptime).collect();
    assert_eq!(ends, [1060.0, 1140.0, 1200.0]);
    let later = 1140 + HOUR as u64;
    facts = see(&mut collector, later, vec![busy(61 + HOUR as u64, 900)]);
    let points = &facts.groups[0].latency;
    assert!(points.iter().all(|point| point.uptime >= 1140.0) && points.len() == 3, "{points:?}");
}

#[test]
fn busy_volumes_are_those_of_the_last_minute() {
    let mut collector = collector();
    let seen = |facts: Facts| {
        let writes = |one: &facts::BusyVolume| (one.seconds, one.write.as_ref().map(|write| write.requests));
        facts.groups[0].busy_volumes.first().map(writes)
    };
    let mut look = |at, open, writes| seen(see(&mut collector, at, vec![busy(open, writes)]));
    assert_eq!(look(1000, 500, 100), None);
    // Before a minute is complete, the current one.
    assert_eq!(look(1010, 510, 130), Some((10.0, Some(30))));
    assert_eq!(look(1020, 520, 150), Some((20.0, Some(50))));
    assert_eq!(look(1060, 560, 200), Some((60.0, Some(100))));
    assert_eq!(look(1070, 570, 900), Some((60.0, Some(100))));
    // Nothing was written any more.
    assert_eq!(look(1120, 620, 900), Some((60.0, Some(700))));
    assert_eq!(look(1180, 680, 900), None);
}

#[test]
fn a_server_that_hangs_is_reported_with_its_last_answer() {
    let mut collector = collector();
    see(&mut collector, 100, vec![busy(50, 10), served("vg1")]);
    let facts = see(&mut collector, 110, vec![hung(busy(60, 20)), served("vg1")]);
    let silent = &facts.groups[0];
    assert_eq!((silent.state.as_str(), silent.healthy, facts.healthy), ("not answering", false, false));
    assert!(silent.problems[0].next.contains("kill -CONT"), "{silent:?}");
    assert_eq!((silent.volumes.len(), silent.volumes_uptime), (3, Some(100.0)));
    assert!(silent.space.is_none() && silent.load.is_none() && silent.latency.is_empty());
    assert!(silent.work[0].is_stuck && silent.work[0].what == "all requests wait");
    assert_eq!(facts.groups[1].state, "serving");
    // It goes on, and what it did meanwhile is of the whole time.
    let facts = see(&mut collector, 160, vec![busy(110, 70), served("vg1")]);
    let point = &facts.groups[0].latency[0];
    assert_eq!((point.seconds, point.write.as_ref().unwrap().requests), (60.0, 60));
    assert_eq!(facts.groups[0].volumes_uptime, Some(160.0));
}

#[test]
fn another_collector_goes_on_with_the_latencies() {
    let mut first = collector();
    let mut facts = Facts::default();
    for look in 0..=7 {
        facts = see(&mut first, 1000 + 10 * look, vec![busy(5000 + 10 * look, 100 * look)]);
    }
    let mut next = collector();
    next.go_on(&facts, 1080.0);
    let now = see(&mut next, 1080, vec![busy(5080, 800)]);
    // Of the minute under way nothing is known: it was another's.
    assert_eq!(now.groups[0].latency, facts.groups[0].latency[..1]);
    // A time after now is from before the host was started.
    let mut next = collector();
    next.go_on(&facts, 50.0);
    assert!(see(&mut next, 50, vec![busy(40, 8)]).groups[0].latency.is_empty());
}

#[test]
fn events_are_those_of_the_group_that_has_the_name() {
    let line = |time, group: &str, message: &str| {
        let (event, group, message) = (What::Space.word().to_owned(), group.to_owned(), message.to_owned());
        write(&Event { time: TIME + time, group, event, message, host: "host".into(), pid: 9 })
    };
    let mut collector = collector();
    collector.events.add("old", line(1, "vg0", "of one that was there before").as_bytes());
    collector.events.add("new", line(2, "vg1", "under another name").as_bytes());
    let many: String = (3..50).map(|at| line(at, "vg0", &format!("number {at}"))).collect();
    collector.events.add("new", many.as_bytes());
    collector.events.add("new", b"{\"damaged\n");
    let facts = see(&mut collector, 100, vec![served("vg0")]);
    let told = &facts.groups[0].events;
    assert_eq!((told.len(), told[0].message.as_str(), told[29].message.as_str()), (30, "number 49", "number 20"));
    assert_eq!((told[0].event.as_str(), told[0].at.as_str()), ("space", "2026-11-25 03:00:49 +0000"));
}

#[test]
fn what_is_wrong_with_no_group_is_reported() {
    let mut collector = collector();
    let lost = vec![LostPv { path: "/dev/gone".into(), uuid: "u".into() }];
    collector.see(Sample::new(Survey { lost, ..Survey::default() }, TIME), 1.0);
    let facts = collector.facts(1.0);
    assert!(!facts.healthy && facts.problems[0].what.contains("/dev/gone"), "{facts:?}");
}

#[test]
fn the_command_prints_once_or_again_and_again() {
    let mut world = with_group();
    let printed = world.run("rowen facts");
    let facts = facts::parse(printed.out.as_bytes()).unwrap();
    assert_eq!((printed.code, facts.every, facts.groups[0].volumes[0].name.as_str()), (0, 0, "lv1"));
    assert_eq!(world.pauses.len(), 1);
    let printed = world.run("rowen facts vg0 nosuch");
    assert_eq!((printed.code, printed.err.contains("nosuch")), (5, true), "{}", printed.err);
    // Until the file cannot be written any more.
    (world.full_after, world.pauses) = (3, Vec::new());
    let printed = world.run("rowen facts --to /nowhere/facts.json");
    assert_eq!((printed.code, world.pauses.len()), (5, 3), "{}", printed.err);
    assert!(printed.err.contains("/nowhere/facts.json: write failed: No space left on device"), "{}", printed.err);
    let last = facts::parse(world.published.last().unwrap().as_bytes()).unwrap();
    assert_eq!((last.every, last.groups.len(), printed.out.as_str()), (10, 1, ""));
}
