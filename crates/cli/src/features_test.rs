//! Transcripts of `rowen features`, `rowen upgrade` and `rowen support-bundle`.

use crate::backend::PvFormat;
use crate::fake::Fake;
use crate::transcript_test::{play, with_group};
use rowen_control::uuids::lvm_text;
use rowen_engine::format::features::{FEATURES, FormatInfo};
use rowen_engine::units::Uuid;

fn pv(path: &str, group: (u8, &str), sequence: u64, version: u32, incompatible: u64) -> PvFormat {
    let (number, name) = group;
    let format = FormatInfo {
        version,
        incompatible,
        read_only_compatible: 0,
        compatible: 0,
        sequence,
        pv_uuid: Uuid([9; 16]),
        group_uuid: Uuid([number; 16]),
        group: name.to_owned(),
    };
    PvFormat { path: path.to_owned(), format }
}

#[test]
fn servers_are_replaced() {
    let mut world = with_group();
    play(
        &mut world,
        "$ rowen upgrade --check
        O|  Volume group \"vg0\" can be upgraded to Rowen 0.1.0.$
        rc=0

        $ rowen upgrade
        O|  Volume group \"vg0\" is upgraded to Rowen 0.1.0; its volumes waited for 40 ms.$
        rc=0

        $ rowen upgrade nosuchvg vg0 vg0
        E|  Volume group \"nosuchvg\" not found
        E|  Cannot process volume group nosuchvg
        O|  Volume group \"vg0\" is upgraded to Rowen 0.1.0; its volumes waited for 40 ms.$
        rc=5

        $ rowen upgrade vg0/lv1
        E|  Invalid volume group name vg0/lv1.
        E|  Run `rowen upgrade --help' for more information.
        rc=3
",
    );
    world.not_upgraded.push("vg0".into());
    play(
        &mut world,
        "$ rowen upgrade
        E|  Volume group \"vg0\" is not upgraded: it was told to fail.
        rc=5

        $ rowen upgrade --check vg0
        E|  Volume group \"vg0\" is not upgraded: it was told to fail.
        rc=5
",
    );
    let written: Vec<&str> = world.written.values().flat_map(|(commands, _)| commands.lines()).collect();
    let failures = written.iter().filter(|line| line.contains("\"request\":\"upgrade\"")).count();
    assert_eq!(failures, 1, "{written:?}");
    let mut empty = Fake::new();
    play(
        &mut empty,
        "$ rowen upgrade
        O|  No volume group has a server on this machine: there is nothing to upgrade.$
        rc=0
",
    );
}

#[test]
fn whether_a_group_can_be_opened() {
    let mut world = Fake::new();
    let newer = pv("/dev/c", (2, "newer"), 1, 1, 1 << 40 | 1);
    world.formats = vec![
        // The newest superblock of a group counts.
        pv("/dev/a", (1, "old"), 5, 1, 1 << 50),
        pv("/dev/b", (1, "vg0"), 6, 1, 3),
        newer,
        pv("/dev/d", (3, "other"), 1, 7, 0),
        pv("/dev/e", (0, ""), 1, 1, 0),
        PvFormat { format: FormatInfo { compatible: 8, ..pv("", (4, "more"), 1, 1, 0).format }, path: "/dev/f".into() },
        PvFormat {
            format: FormatInfo { read_only_compatible: 4, ..pv("", (5, "read"), 1, 1, 0).format },
            path: "/dev/g".into(),
        },
    ];
    world.silent = vec!["/dev/dead".into()];
    let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(|number| lvm_text(Uuid([number; 16])));
    play(
        &mut world,
        &format!(
            "$ rowen features vg0
            O|  vg0 ({one}): format version 1; this program can open it$
            O|    attributes      tags, limits and marks of the group; merges that wait$
            O|    gaps            physical volumes with room to grow, or of which one left$
            E|  WARNING: /dev/dead does not answer and is left out.
            rc=0

            $ rowen features newer other vg0
            O|  newer ({two}): format version 1; this program cannot open it$
            O|    attributes      tags, limits and marks of the group; merges that wait$
            O|    bit 40          not known to this program: a later version of Rowen added it$
            O|  other ({three}): format version 7; this program cannot open it$
            O|    this program knows format version 1 only: use the version of Rowen that made the group$
            O|  vg0 ({one}): format version 1; this program can open it$
            O|    attributes      tags, limits and marks of the group; merges that wait$
            O|    gaps            physical volumes with room to grow, or of which one left$
            E|  WARNING: /dev/dead does not answer and is left out.
            rc=5

            $ rowen features read
            O|  read ({five}): format version 1; this program can only read it$
            O|    only read 2     not known to this program, which opens the group read-only because of it$
            E|  WARNING: /dev/dead does not answer and is left out.
            rc=0

            $ rowen features more old
            O|  more ({four}): format version 1; this program can open it$
            O|    also 3          not known to this program, which can open the group all the same$
            E|  WARNING: /dev/dead does not answer and is left out.
            E|  Volume group \"old\" not found
            E|  Cannot process volume group old
            rc=5"
        ),
    );
    let printed = world.run("rowen features --json newer vg0");
    assert_eq!(printed.code, 5);
    let json: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(json["groups"][0]["can_be_opened"], false);
    assert_eq!(json["groups"][0]["unknown_bits"][0], 40);
    assert_eq!(json["groups"][1]["features"][1], "gaps");
    let known = world.run("rowen features");
    assert_eq!((known.code, known.out.lines().count()), (0, 1 + FEATURES.len()), "{}", known.out);
    let known: serde_json::Value = serde_json::from_str(&world.run("rowen features --json").out).unwrap();
    assert_eq!(known["features"].as_array().unwrap().len(), FEATURES.len());
}

#[test]
fn a_support_bundle_has_all_but_data_and_says_what_it_left_out() {
    let mut world = with_group();
    play(
        &mut world,
        "$ rowen support-bundle --output /there/x.tar.gz
        E|  /there/x.tar.gz: cannot be made: File exists
        rc=5

        $ rowen support-bundle extra
        E|  Command does not accept argument: extra.
        rc=3",
    );
    assert!(world.bundle.is_empty());
    let printed = world.run("rowen support-bundle");
    assert_eq!(printed.code, 0, "{}", printed.err);
    let title = "rowen-support-host-20261120181334";
    assert!(printed.out.contains(&format!("{title}.tar.gz")), "{}", printed.out);
    assert!(printed.err.contains("host/kernel-log.txt: it did not end within 10 s"), "{}", printed.err);
    let part = |name: &str| world.bundle.get(&format!("{title}/{name}")).map(String::as_str);
    assert!(part("README.txt").unwrap().contains("host/kernel-log.txt: it did not end"));
    assert_eq!(part("rowen/status.json"), Some("rowen status --json"));
    assert_eq!(part("groups/vg0/stats.txt"), Some("rowen stats vg0"));
    assert_eq!(part("host/kernel-log.txt"), None);
    // Nothing opens a volume, or a group that nobody serves.
    assert!(world.bundle.iter().all(|(name, words)| name.ends_with("README.txt") || !words.contains("/dev/")));
    world.seen.push(rowen_control::status::Seen { name: "vg1".into(), ..Default::default() });
    world.run("rowen support-bundle");
    let of_other: Vec<&String> = world.bundle.keys().filter(|name| name.contains("/vg1/")).collect();
    assert!(of_other.iter().all(|name| !name.contains("stats") && !name.contains("report")), "{of_other:?}");
    assert!(!of_other.is_empty());
}
