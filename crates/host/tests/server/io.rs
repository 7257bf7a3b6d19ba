//! What a server counts of the requests to its volumes and disks.

use super::Test;
use super::world::{MIB, Vg, run};
use rowen_control::protocol::{IoCounts, IoReport, OpCounts, Outcome, Request, VolumeKind};
use std::path::Path;

pub const TESTS: &[Test] = &[
    ("io::what_is_written_and_read_is_counted", what_is_written_and_read_is_counted),
    ("io::counters_outlive_a_device_and_a_name_but_no_volume", counters_outlive_a_device_and_a_name_but_no_volume),
];

fn io(vg: &Vg) -> IoReport {
    match vg.ask(Request::Io) {
        Outcome::Io(report) => *report,
        other => panic!("{other:?}"),
    }
}

fn counts(vg: &Vg, name: &str) -> IoCounts {
    let report = io(vg);
    report.volumes.iter().find(|volume| volume.name == name).unwrap_or_else(|| panic!("{name}: {report:?}")).counts
}

/// Writes without the page cache, a request for each block.
fn write(node: &Path, block: u64, blocks: u64) {
    let node = node.to_str().unwrap();
    let (size, count, of) = (format!("bs={block}"), format!("count={blocks}"), format!("of={node}"));
    run("dd", &["if=/dev/zero", &of, &size, &count, "oflag=direct", "status=none"]);
}

fn is_whole(op: &OpCounts) -> bool {
    op.requests == op.buckets.iter().sum::<u64>() && (op.requests == 0) == (op.micros == 0)
}

fn what_is_written_and_read_is_counted() {
    let vg = Vg::make(&[64 * MIB]);
    let node = vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let (before, report) = (counts(&vg, "lv"), io(&vg));
    let disk_before = report.pvs[0].counts;
    write(&node, 4096, 256);
    run("dd", &["if=/dev/zero", &format!("of={}", node.display()), "bs=1M", "count=2", "conv=fsync", "status=none"]);
    let device = format!("if={}", node.display());
    run("dd", &[&device, "of=/dev/null", "bs=64k", "count=16", "iflag=direct", "status=none"]);
    run("blkdiscard", &["-f", "-o", "8M", "-l", "4M", node.to_str().unwrap()]);
    let report = io(&vg);
    let done = counts(&vg, "lv").since(&before);
    assert_eq!(done.write.bytes, 3 * MIB, "{done:?}");
    assert!((257..=256 + 512).contains(&done.write.requests), "{done:?}");
    // Others may read a new device, too.
    assert!(done.read.requests >= 16 && done.read.bytes >= MIB, "{done:?}");
    assert!(done.flush.requests >= 1 && done.flush.bytes == 0, "{done:?}");
    assert_eq!(done.discard.bytes, 4 * MIB, "{done:?}");
    assert_eq!((done.failed(), done.under_way), (0, 0), "{done:?}");
    assert!(done.each().iter().all(|(_, op)| is_whole(op)), "{done:?}");
    let disk = report.pvs[0].counts.since(&disk_before);
    assert!(disk.write.bytes >= 3 * MIB && disk.write.requests >= 1, "{disk:?}");
    assert!(disk.read.bytes >= MIB && disk.flush.requests >= 1 && disk.discard.bytes <= 4 * MIB, "{disk:?}");
    assert_eq!(disk.failed(), 0);
    assert!(disk.each().iter().all(|(_, op)| is_whole(op)), "{disk:?}");
    assert!(report.open_micros > 0);
    vg.ask(Request::Remove { names: vec!["lv".into()] });
    assert!(io(&vg).volumes.is_empty());
}

fn counters_outlive_a_device_and_a_name_but_no_volume() {
    let vg = Vg::make(&[64 * MIB]);
    let (kept, other) =
        (vg.create("a", VolumeKind::Thin, 8 * MIB, true), vg.create("b", VolumeKind::Thin, 8 * MIB, true));
    write(&kept, 65536, 16);
    write(&other, 4096, 3);
    vg.ask(Request::Deactivate { names: Some(vec!["a".into()]) });
    vg.ask(Request::Rename { from: "a".into(), to: "c".into() });
    assert_eq!(counts(&vg, "c").write.bytes, MIB);
    assert!(io(&vg).volumes.iter().all(|volume| volume.is_active == (volume.name == "b")));
    vg.ask(Request::Activate { names: Some(vec!["c".into()]), ignore_skip: true, auto: false, partial: false });
    write(&vg.node("c"), 65536, 16);
    assert_eq!((counts(&vg, "c").write.requests, counts(&vg, "c").write.bytes), (32, 2 * MIB));
    assert_eq!(counts(&vg, "b").write.bytes, 3 * 4096);
    vg.ask(Request::Remove { names: vec!["c".into()] });
    vg.create("c", VolumeKind::Thin, 8 * MIB, true);
    assert_eq!(counts(&vg, "c").write, OpCounts::default(), "another volume of that name");
}
