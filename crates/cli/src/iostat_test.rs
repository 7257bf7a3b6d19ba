//! Transcripts of `rowen iostat` and `rowen metrics`, over counters that tests set.

use crate::fake::Fake;
use crate::transcript_test::{play, with_group};
use rowen_control::protocol::{IoCounts, OpCounts, bucket_of};
use rowen_control::service::platform::Faults;
use rowen_control::status::{IoSeen, Process, Seen, ServerSeen};
use std::collections::BTreeSet;
use std::time::Duration;

/// This many requests of 4 KiB, each of which took this many microseconds.
fn op(requests: u64, micros: u64) -> OpCounts {
    let mut counts = OpCounts { requests, bytes: requests * 4096, micros: requests * micros, ..OpCounts::default() };
    counts.buckets[bucket_of(micros)] = requests;
    counts
}

fn both(one: OpCounts, other: OpCounts) -> OpCounts {
    one.plus(&other)
}

/// After ten seconds.
fn first(world: &Fake) {
    let volume = IoCounts { read: op(50, 100), write: op(1000, 200), flush: op(10, 9000), ..IoCounts::default() };
    let disk = IoCounts { write: op(1200, 90), flush: op(10, 8000), under_way: 3, ..IoCounts::default() };
    world.set_io("vg0", Duration::from_secs(10), &[("lv1", volume)], &[disk]);
}

/// Five seconds later: 500 more quick writes, 5 slow ones, and a failure.
fn second(world: &mut Fake) {
    let write = both(op(1000, 200), both(op(500, 200), OpCounts { failed: 1, ..op(5, 20_000_000) }));
    let volume = IoCounts { read: op(50, 100), write, flush: op(10, 9000), ..IoCounts::default() };
    let disk = IoCounts { write: op(2200, 90), flush: op(10, 8000), ..IoCounts::default() };
    world.set_io("vg0", Duration::from_secs(15), &[("lv1", volume)], &[disk]);
}

#[test]
fn rates_are_of_the_time_between_two_reports() {
    let mut world = with_group();
    first(&world);
    world.between = Some(second);
    play(
        &mut world,
        "$ rowen iostat vg0 5 2
        O|  NAME               READS/S WRITES/S FLUSHES/S DISCARDS/S  READ/S WRITTEN/S UNDER WAY FAILED$
        O|  vg0                      5      100         1          0   20.0K      400K         0      0$
        O|    /dev/ubda              0      120         1          0       0      480K         3      0$
        O|    lv1                    5      100         1          0   20.0K      400K         0      0$
        O|  $
        O|  vg0                      0      101         0          0       0      404K         0      1$
        O|    /dev/ubda              0      200         0          0       0      800K         0      0$
        O|    lv1                    0      101         0          0       0      404K         0      1$
        rc=0",
    );
}

#[test]
fn latencies_are_of_the_time_between_two_reports() {
    let mut world = with_group();
    first(&world);
    world.between = Some(second);
    play(
        &mut world,
        "$ rowen iostat -l vg0/lv1 5 2
        O|  NAME                OPERATION REQUESTS/S  BYTES/S    MEAN     P50     P99      MAX$
        O|  vg0                 read               5    20.0K   100us    96us   127us   <128us$
        O|                      write            100     400K   200us   192us   255us   <256us$
        O|                      flush              1    4.00K  9.00ms  12.3ms  16.3ms  <16.4ms$
        O|    lv1               read               5    20.0K   100us    96us   127us   <128us$
        O|                      write            100     400K   200us   192us   255us   <256us$
        O|                      flush              1    4.00K  9.00ms  12.3ms  16.3ms  <16.4ms$
        O|  $
        O|  vg0                 write            101     404K   198ms   193us   256us   >16.8s$
        O|    lv1               write            101     404K   198ms   193us   256us   >16.8s$
        rc=0",
    );
}

#[test]
fn what_is_not_served_or_not_active_is_said() {
    let mut world = with_group();
    first(&world);
    world.io_seen.insert("vg7".into(), IoSeen::Silent);
    world.io_seen.insert("vg8".into(), IoSeen::Opening);
    play(
        &mut world,
        "$ rowen iostat nosuch 1
        E|  No server of volume group \"nosuch\" runs, so nothing is counted (see rowen status nosuch).
        rc=5

        $ rowen iostat vg7
        E|  The server of volume group \"vg7\" does not answer: rowen status vg7 says what to do.
        rc=5

        $ rowen iostat vg8
        E|  The server of volume group \"vg8\" is starting or ending: try again.
        rc=5

        $ rowen iostat vg0/nosuch
        O|  NAME               READS/S WRITES/S FLUSHES/S DISCARDS/S  READ/S WRITTEN/S UNDER WAY FAILED$
        O|  vg0                      5      100         1          0   20.0K      400K         0      0$
        E|  Failed to find logical volume \"vg0/nosuch\", or it is not active.
        rc=5

        $ rowen iostat vg0 0
        E|  Invalid interval 0: it is a number of seconds from 0.1 to 86400.
        E|  Run `rowen iostat --help' for more information.
        rc=3

        $ rowen iostat vg0 1 0
        E|  Invalid count 0: it is a whole number of reports from 1.
        E|  Run `rowen iostat --help' for more information.
        rc=3

        $ rowen iostat ../etc
        E|  Invalid volume group name \"..\".
        E|  Run `rowen iostat --help' for more information.
        rc=3

        $ vgchange -qq -an vg0
        rc=0

        $ rowen iostat vg0
        O|  NAME               READS/S WRITES/S FLUSHES/S DISCARDS/S  READ/S WRITTEN/S UNDER WAY FAILED$
        O|  vg0                      5      100         1          0   20.0K      400K         0      0$
        O|    /dev/ubda              0      120         1          0       0      480K         3      0$
        rc=0",
    );
    assert!(world.pauses.is_empty(), "nothing comes of waiting for what does not run");
    play(
        &mut Fake::new(),
        "$ rowen iostat
        O|  No volume group has a server, so nothing is counted.$
        rc=0",
    );
}

#[test]
fn a_group_that_ends_or_hangs_in_between_ends_nothing() {
    let mut world = with_group();
    first(&world);
    world.between = Some(|world| match world.pauses.len() {
        1 => drop(world.io_seen.insert("vg0".into(), IoSeen::Silent)),
        2 => drop(world.io_seen.insert("vg0".into(), IoSeen::None)),
        _ => {
            world.io_seen.clear();
            world.set_io("vg0", Duration::from_secs(4), &[("lv1", IoCounts::default())], &[]);
        }
    });
    play(
        &mut world,
        "$ rowen iostat vg0/lv1 5 4
        O|  NAME               READS/S WRITES/S FLUSHES/S DISCARDS/S  READ/S WRITTEN/S UNDER WAY FAILED$
        O|  vg0                      5      100         1          0   20.0K      400K         0      0$
        O|    lv1                    5      100         1          0   20.0K      400K         0      0$
        O|  $
        O|  vg0                      0        0         0          0       0         0         0      0$
        O|    lv1                    0        0         0          0       0         0         0      0$
        E|  The server of volume group \"vg0\" does not answer: rowen status vg0 says what to do.
        E|  No server of volume group \"vg0\" runs, so nothing is counted (see rowen status vg0).
        E|  Another server has opened volume group \"vg0\" and counts from zero.
        rc=0",
    );
    assert_eq!(world.pauses.len(), 3);
}

#[test]
fn programs_get_the_counters_as_they_are() {
    let mut world = with_group();
    first(&world);
    world.between = Some(second);
    world.io_seen.insert("vg7".into(), IoSeen::Silent);
    let printed = world.run("rowen iostat --json vg0 vg7 5 2");
    assert_eq!(printed.code, 5, "{}", printed.err);
    let reports: Vec<serde_json::Value> = printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0]["bucket_ends_micros"].as_array().unwrap().len(), 23);
    let group = &reports[1]["groups"][0];
    assert_eq!((&group["name"], &group["open_micros"]), (&"vg0".into(), &15_000_000.into()));
    assert_eq!(group["volumes"][0]["name"], "lv1");
    let write = &group["volumes"][0]["counts"]["write"];
    assert_eq!((&write["requests"], &write["failed"]), (&1505.into(), &1.into()));
    assert_eq!((&write["bytes"], &write["micros"]), (&(1505 * 4096).into(), &100_300_000.into()));
    assert_eq!(write["buckets"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), 1505);
    assert_eq!(group["physical_volumes"][0]["counts"]["write"]["requests"], 2200);
    assert!(reports[1]["groups"][1]["trouble"].as_str().unwrap().contains("does not answer"));
}

#[test]
fn prometheus_gets_what_is_known() {
    let mut world = with_group();
    first(&world);
    let process = Process { pid: 99, state: Some('T') };
    world.seen.push(Seen { name: "vg1".into(), server: ServerSeen::Silent(Some(process)), ..Seen::default() });
    world.set_faults("vg0", &[Faults { reads: 1, writes: 20, ..Faults::default() }]);
    assert_eq!(world.run("lvcreate -qq -T -L 200M -V 40M -n thin vg0/pool").code, 0);
    let printed = world.run("rowen metrics");
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    for line in [
        "# TYPE rowen_volume_read_bytes_total counter",
        "rowen_volume_read_bytes_total{vg=\"vg0\",lv=\"lv1\"} 204800",
        "rowen_volume_written_bytes_total{vg=\"vg0\",lv=\"lv1\"} 4096000",
        "rowen_volume_requests_total{vg=\"vg0\",lv=\"lv1\",operation=\"flush\"} 10",
        "# TYPE rowen_volume_request_duration_seconds histogram",
        "rowen_volume_request_duration_seconds_sum{vg=\"vg0\",lv=\"lv1\",operation=\"flush\"} 0.09",
        "rowen_volume_request_duration_seconds_bucket{vg=\"vg0\",lv=\"lv1\",operation=\"flush\",le=\"0.008192\"} 0",
        "rowen_volume_request_duration_seconds_bucket{vg=\"vg0\",lv=\"lv1\",operation=\"flush\",le=\"0.016384\"} 10",
        "rowen_volume_request_duration_seconds_bucket{vg=\"vg0\",lv=\"lv1\",operation=\"flush\",le=\"+Inf\"} 10",
        "rowen_pv_written_bytes_total{vg=\"vg0\",pv=\"/dev/ubda\"} 4915200",
        "rowen_pv_requests_under_way{vg=\"vg0\",pv=\"/dev/ubda\"} 3.0",
        "rowen_pv_failed_requests_total{vg=\"vg0\",pv=\"/dev/ubda\",operation=\"write\"} 20",
        "rowen_pv_healthy{vg=\"vg0\",pv=\"/dev/ubda\"} 0.0",
        "rowen_group_healthy{vg=\"vg0\"} 0.0",
        "rowen_group_state{vg=\"vg0\",state=\"serving\"} 1.0",
        "rowen_group_state{vg=\"vg1\",state=\"serving\"} 0.0",
        "rowen_group_state{vg=\"vg1\",state=\"not_answering\"} 1.0",
        "rowen_group_size_bytes{vg=\"vg0\"} 729808896.0",
        "rowen_group_server_starts_total{vg=\"vg0\"} 2",
        "rowen_group_server_deaths_total{vg=\"vg0\"} 1",
        "rowen_pool_size_bytes{vg=\"vg0\",lv=\"pool\"} 209715200.0",
        "rowen_engine_recovered_total{vg=\"vg0\"} 0",
    ] {
        assert!(printed.out.lines().any(|told| told == line), "{line} is not in\n{}", printed.out);
    }
    // Each name has one description, each number stands once, and nothing of the silent group is made up.
    let described: Vec<&str> = printed.out.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let numbers: Vec<&str> = printed.out.lines().filter(|line| !line.starts_with('#')).collect();
    let series: BTreeSet<&str> = numbers.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(described.iter().collect::<BTreeSet<_>>().len(), described.len());
    assert_eq!(series.len(), numbers.len());
    assert!(!printed.out.contains("free_bytes{vg=\"vg1\"}"));
    assert!(printed.out.contains("free_bytes{vg=\"vg0\"}"));
    let one = world.run("rowen metrics vg1 nosuch");
    assert_eq!(
        (one.code, one.err.as_str()),
        (5, "  Volume group \"nosuch\" not found\n  Cannot process volume group nosuch\n")
    );
    assert!(one.out.contains("vg=\"vg1\"") && !one.out.contains("vg=\"vg0\""));
}
