//! `rowen iostat` and `rowen metrics` over real devices: what was written is counted, and nothing that hangs holds them up.

use crate::world::{Stopped, World, tool};
use std::time::{Duration, Instant};

/// What the commands promise.
const PROMISED: Duration = Duration::from_secs(2);

/// What a command prints, its errors, and its exit code, in the time that it promises.
fn quick(world: &World, line: &str) -> (String, String, i32) {
    let begun = Instant::now();
    let output = world.run(line);
    let took = begun.elapsed();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(took < PROMISED, "{line} took {took:?}: {out}{err}");
    (out, err, output.status.code().unwrap())
}

fn write(world: &World, volume: &str, block: &str, count: &str) {
    let node = world.node(volume);
    let (of, block, count) = (format!("of={}", node.display()), format!("bs={block}"), format!("count={count}"));
    tool("dd", &["if=/dev/zero", &of, &block, &count, "oflag=direct", "status=none"]);
}

#[test]
fn what_was_written_is_counted() {
    let world = World::new("iostat", 64);
    world.ok("lvcreate -y -L 16M -n lv VG");
    write(&world, "lv", "4k", "100");
    write(&world, "lv", "1M", "2");
    let written = (100 << 12) + (2 << 20);
    let counts = |kind: &str| -> u64 {
        let (out, err, code) = quick(&world, "iostat --json VG/lv");
        assert_eq!((code, err.as_str()), (0, ""));
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        report["groups"][0]["volumes"][0]["counts"]["write"][kind].as_u64().unwrap()
    };
    assert_eq!((counts("bytes"), counts("failed")), (written, 0));
    assert!(counts("requests") >= 102 && counts("micros") > 0);
    let (metrics, _, code) = quick(&world, "metrics VG");
    let line = format!("rowen_volume_written_bytes_total{{vg=\"{}\",lv=\"lv\"}} {written}", world.group);
    assert!(code == 0 && metrics.lines().any(|output| output == line), "{line} is not in {metrics}");
    // Two reports: the second is of a tenth of a second in which nothing was written.
    let (out, _, code) = quick(&world, "iostat VG/lv 0.1 2");
    let volumes: Vec<&str> = out.lines().filter(|line| line.trim_start().starts_with("lv ")).collect();
    assert!(code == 0 && volumes.len() == 2, "{out}");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(cells(volumes[0])[2], "0", "{out}");
    assert_eq!(cells(volumes[1])[2], "0", "{out}");
    // A server that does not run is not started to count nothing.
    world.ok("stop VG");
    let noted = world.server();
    let (out, err, code) = quick(&world, "iostat VG 0.1");
    assert!(code == 5 && out.is_empty() && err.contains("No server of volume group"), "{out}{err}");
    assert_eq!(world.server(), noted, "no other server has noted its number");
}

#[test]
fn a_server_that_hangs_holds_nothing_up() {
    let (world, other) = (World::new("iohangs", 64), World::new("iogoes", 64));
    world.ok("lvcreate -y -L 8M -n lv VG");
    other.ok("lvcreate -y -L 8M -n lv VG");
    let stopped = Stopped::new(world.server().unwrap());
    let (out, err, code) = quick(&world, "iostat VG");
    assert!(code == 5 && out.is_empty() && err.contains("does not answer"), "{out}{err}");
    // Most of these looks wait as long as one may, and none ends the command.
    let begun = Instant::now();
    let output = world.run("iostat -l VG 0.1 3");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.matches("does not answer").count()), (Some(5), 3), "{errors}");
    assert!(begun.elapsed() < 3 * PROMISED);
    let (out, err, code) = quick(&world, "metrics");
    assert_eq!((code, err.as_str()), (0, ""));
    let state = format!("rowen_group_state{{vg=\"{}\",state=\"not_answering\"}} 1.0", world.group);
    assert!(out.lines().any(|line| line == state), "{out}");
    drop(stopped);
    let (out, err, code) = quick(&world, "iostat VG");
    assert!(code == 0 && err.is_empty() && out.contains("  lv "), "{out}{err}");
}
