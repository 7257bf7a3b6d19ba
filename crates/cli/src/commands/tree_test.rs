use super::*;
use crate::fake::Fake;

/// A world with a group whose origin has snapshots, one of them with a snapshot of its own, and a thin pool.
fn world() -> Fake {
    let mut world = Fake::new();
    for line in [
        "pvcreate /dev/ubda",
        "vgcreate vg0 /dev/ubda",
        "lvcreate -L 16M -n data vg0",
        "lvcreate -s -n monday vg0/data",
        "lvcreate -s -n copy vg0/monday",
        "lvcreate -s -n tuesday vg0/data",
        "lvcreate -T -L 64M vg0/pool",
        "lvcreate -V 32M -T vg0/pool -n thin",
        "lvcreate -L 4M -n log vg0",
    ] {
        let printed = world.run(line);
        assert_eq!(printed.code, 0, "{line}: {}", printed.err);
    }
    world
}

fn names(group: &Group<'_>, lines: &Lines) -> Vec<String> {
    group.volumes.iter().map(|row| format!("{}{}", branch(row, lines), row.name)).collect()
}

fn selected(report: GroupReport, volumes: &[&str]) -> SelectedGroup {
    let volumes: Vec<String> = volumes.iter().map(|name| (*name).to_owned()).collect();
    SelectedGroup { report, is_whole: volumes.is_empty(), volumes }
}

#[test]
fn snapshots_stand_below_what_they_came_from() {
    let world = world();
    let whole = selected(world.report("vg0"), &[]);
    let shown = group(&whole);
    let expected = ["data", "|-monday", "| `-copy", "`-tuesday", "pool", "`-thin", "log"];
    assert_eq!(names(&shown, &ASCII), expected);
    let part = selected(world.report("vg0"), &["copy", "thin"]);
    let shown = group(&part);
    assert_eq!(names(&shown, &UNICODE), ["data", "├─monday", "│ └─copy", "└─tuesday", "thin"]);
    assert_eq!(shown.volumes[4].state, ["active", "in pool"]);
}

#[test]
fn the_numbers_are_those_of_lvs() {
    let mut world = world();
    let shown = world.run("rowen tree --json vg0");
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let fields = "lv_name,lv_size,lv_referenced,lv_exclusive,lv_freed";
    let listed = world.run(&format!("lvs --units b --nosuffix --reportformat json -o {fields} vg0"));
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let listed = listed["report"][0]["lv"].as_array().unwrap();
    let volumes = shown["groups"][0]["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), listed.len());
    for volume in volumes {
        let same = listed.iter().find(|row| row["lv_name"] == volume["name"]).unwrap();
        for (ours, theirs) in [
            ("size_bytes", "lv_size"),
            ("referenced_bytes", "lv_referenced"),
            ("own_bytes", "lv_exclusive"),
            ("freed_if_removed_bytes", "lv_freed"),
        ] {
            assert_eq!(volume[ours].to_string(), same[theirs].as_str().unwrap(), "{volume}");
        }
    }
}

#[test]
fn columns_line_up_and_what_is_missing_is_named() {
    let mut world = world();
    let printed = world.run("rowen tree vg0/data --units m");
    assert_eq!(printed.code, 0, "{}", printed.err);
    let lines: Vec<&str> = printed.out.lines().collect();
    assert!(lines[0].starts_with("  vg0: "), "{}", printed.out);
    let column = |line: &str, word: &str| line.chars().count() - line[line.find(word).unwrap()..].chars().count();
    let state = column(lines[1], "STATE");
    for line in &lines[2..5] {
        assert_eq!(column(line, "active").min(state), state, "{}", printed.out);
    }
    let printed = world.run("rowen tree vg0/nosuch");
    assert_eq!((printed.code, printed.err.as_str()), (5, "  Failed to find logical volume \"vg0/nosuch\"\n"));
    assert_eq!(printed.out, "");
    let printed = world.run("rowen tree @nosuch");
    assert_eq!((printed.code, printed.out.as_str()), (0, ""));
    assert_eq!(world.run("rowen tree --units q").code, 3);
    assert_eq!(world.run("rowen tree nosuch").code, 5);
}

#[test]
fn a_long_chain_and_a_circle_are_drawn_once() {
    let world = world();
    let mut chain = world.report("vg0");
    let one = chain.volumes[0].clone();
    let made = |n: u64| VolumeReport {
        id: n,
        name: format!("v{n}"),
        origin: (n > 0).then(|| format!("v{}", n - 1)),
        ..one.clone()
    };
    chain.volumes = (0..5000).map(made).collect();
    let chain = selected(chain, &[]);
    let shown = group(&chain);
    let lines = drawn(&shown, Units::default(), &ASCII);
    assert_eq!((shown.volumes.len(), shown.volumes[4999].depth), (5000, 4999));
    assert!(lines.last().unwrap().contains("(4999) v4999") && lines.iter().all(|line| line.len() < 200));
    let mut circle = chain.report.clone();
    circle.volumes[0].origin = Some("v4999".into());
    assert!(group(&selected(circle.clone(), &[])).volumes.is_empty());
    assert!(!group(&selected(circle, &["v7"])).volumes.is_empty());
}
