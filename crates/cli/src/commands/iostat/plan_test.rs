use super::*;

fn plan(line: &str) -> Result<Plan> {
    Plan::of(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn names_come_first_and_then_numbers() {
    let one = Plan { count: Some(1), ..Plan::default() };
    assert_eq!(plan("").unwrap(), one);
    assert_eq!(plan("vg0 vg0").unwrap(), Plan { groups: vec!["vg0".into()], ..one });
    let seen = plan("vg0/a vg1 /dev/vg0/b 0.5 3").unwrap();
    assert_eq!(seen.groups, ["vg0", "vg1"]);
    assert_eq!(seen.volumes, BTreeMap::from([("vg0".into(), vec!["a".into(), "b".into()])]));
    assert_eq!((seen.pause, seen.count), (Some(Duration::from_millis(500)), Some(3)));
    assert!(seen.shows("vg0", "b") && !seen.shows("vg0", "c") && seen.shows("vg1", "c"));
    // A group that is named as a whole is shown as a whole, in whatever order.
    assert!(plan("vg0/a vg0").unwrap().volumes.is_empty() && plan("vg0 vg0/a").unwrap().volumes.is_empty());
    assert_eq!(plan("5").unwrap().count, None);
    // Three numbers: the first is a name.
    assert_eq!(plan("7 1 2").unwrap().groups, ["7"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in ["0", "0.01", "1e9", "vg0 1 0", "vg0 1 1.5", "../x", "vg0/a/b", "@tag", "1 99999999999999999999"] {
        assert!(plan(line).is_err(), "{line}");
    }
    assert!(plan("vg0 nan").unwrap().pause.is_none(), "a name");
}
