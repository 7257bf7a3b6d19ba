use super::*;

const GROUP: Uuid = Uuid([9; 16]);

fn seen(sequence: u64, lineage: u64, members: &[u8], out: &[u8]) -> Membership {
    let all = |bytes: &[u8]| bytes.iter().map(|byte| [*byte; 16]).collect();
    Membership { group: GROUP.0, sequence, lineage, members: all(members), out: all(out) }
}

fn label(sequence: u64, lineage: u64, members: &[u8], out: &[u8]) -> PvMembership {
    let all = |bytes: &[u8]| bytes.iter().map(|byte| Uuid([*byte; 16])).collect();
    PvMembership {
        group_uuid: GROUP,
        group_name: "vg".into(),
        index: 0,
        extent_blocks: 1024,
        members: all(members),
        out: all(out),
        lineage,
        sequence,
    }
}

#[test]
fn what_is_written_is_read() {
    for membership in [seen(20, u64::MAX, &[1, 2, 3], &[2]), seen(0, 0, &[1], &[])] {
        let text = write(&membership);
        assert_eq!(parse(GROUP, &text), Some(membership));
        // Cut anywhere, or with something more, it says nothing.
        (0..text.len()).for_each(|end| assert_eq!(parse(GROUP, &text[..end]), None, "{end}"));
        assert_eq!(parse(GROUP, &text.replace("lineage", "linage")), None);
        assert_eq!(parse(GROUP, &text.replace("in ", "in x")), None);
    }
    let most: Vec<u8> = (1..=64).collect();
    assert!((write(&seen(u64::MAX, u64::MAX, &most, &[])).len() as u64) < LONGEST);
}

#[test]
fn older_ones_and_those_left_behind_are_distinguished_from_newer_ones() {
    let pv = |byte: u8| Uuid([byte; 16]);
    // The first went on without the second.
    let without = seen(20, 7, &[1, 2], &[2]);
    let doubted = |label: &PvMembership, there: &[u8]| {
        doubt(&without, label, &there.iter().map(|byte| pv(*byte)).collect::<Vec<_>>())
            .map(|doubt| doubt.is_left_behind)
    };
    assert_eq!(doubted(&label(10, 0, &[1, 2], &[]), &[2]), Some(true), "as it was left");
    assert_eq!(doubted(&label(500, 8, &[1, 2], &[1]), &[2]), Some(true), "it went on, too");
    assert_eq!(doubted(&label(10, 0, &[1, 2], &[]), &[1]), Some(false), "an older copy of the first");
    assert_eq!(doubted(&label(20, 7, &[1, 2], &[2]), &[1]), None);
    assert_eq!(doubted(&label(90, 7, &[1, 2], &[2]), &[1]), None);
    // Elsewhere the second was taken back, a third joined, and the first is away.
    assert_eq!(doubted(&label(90, 0, &[1, 2, 3], &[]), &[2, 3]), Some(true), "nobody here can know that");
    // Of three, one was taken back elsewhere while another stayed out: that is the same history.
    let two = seen(20, 7, &[1, 2, 3], &[2, 3]);
    assert_eq!(doubt(&two, &label(90, 7, &[1, 2, 3], &[3]), &[pv(2)]), None);
    // All were there, and one is not now.
    let whole = seen(20, 0, &[1, 2], &[]);
    assert_eq!(doubt(&whole, &label(20, 0, &[1, 2], &[]), &[pv(2)]), None);
    let older = doubt(&whole, &label(19, 0, &[1, 2], &[]), &[pv(2)]);
    assert_eq!(older, Some(Doubt { is_left_behind: false, newer: vec![pv(1), pv(2)] }));
    // It was taken out for good.
    let smaller = seen(30, 0, &[1], &[]);
    assert_eq!(doubt(&smaller, &label(10, 0, &[1, 2], &[]), &[pv(2)]).map(|doubt| doubt.is_left_behind), Some(true));
}
