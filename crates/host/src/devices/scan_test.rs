use super::*;

fn uuid(byte: u8) -> Uuid {
    Uuid([byte; 16])
}

fn member(path: &str, byte: u8, group: (&str, u8), index: u16, members: &[u8], sequence: u64) -> Pv {
    let group = PvMembership {
        group_uuid: uuid(group.1),
        group_name: group.0.to_owned(),
        index,
        extent_blocks: 1024,
        members: members.iter().map(|&byte| uuid(byte)).collect(),
        out: Vec::new(),
        lineage: 0,
        sequence,
    };
    let label = PvLabel { pv_uuid: uuid(byte), group: Some(group), size: 1 << 30 };
    Pv { path: PathBuf::from(path), size: 1 << 30, state: PvState::Present(label), tally: None }
}

fn scan_of(pvs: &[Pv]) -> Scan {
    Scan { pvs: pvs.to_vec(), ..Scan::default() }
}

const VG: (&str, u8) = ("vg", 100);

#[test]
fn members_come_in_the_order_of_the_label_not_of_the_scan() {
    let scan = scan_of(&[member("/b", 2, VG, 1, &[1, 2], 5), member("/a", 1, VG, 0, &[1, 2], 5)]);
    let group = scan.group("vg").unwrap();
    assert_eq!(group.paths, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(scan.groups(), [GroupSummary { name: "vg".into(), uuid: uuid(100), pvs: 2, missing: 0 }]);
}

#[test]
fn the_newest_label_says_who_is_a_member() {
    // An older label does not know the second member yet.
    let scan = scan_of(&[member("/a", 1, VG, 0, &[1], 4), member("/b", 2, VG, 1, &[1, 2], 5)]);
    assert_eq!(scan.group("vg").unwrap().paths.len(), 2);
}

#[test]
fn one_that_the_group_goes_on_without_is_not_waited_for() {
    let without = |mut pv: Pv, out: &[u8]| {
        let PvState::Present(label) = &mut pv.state else { panic!("it is there") };
        label.group.as_mut().unwrap().out = out.iter().map(|&byte| uuid(byte)).collect();
        pv
    };
    let a = without(member("/a", 1, VG, 0, &[1, 2, 3], 9), &[3]);
    let b = without(member("/b", 2, VG, 1, &[1, 2, 3], 9), &[3]);
    // It is back, with what it knew when it left: no server opens it.
    let c = member("/c", 3, VG, 2, &[1, 2, 3], 7);
    for pvs in [vec![a.clone(), b.clone()], vec![c, b, a.clone()]] {
        let scan = scan_of(&pvs);
        assert_eq!(scan.group("vg").unwrap().paths, ["/a", "/b", MISSING].map(PathBuf::from));
        assert_eq!((scan.groups()[0].missing, scan.out("vg")), (0, vec![uuid(3)]));
    }
    // One more is missing: that is not known yet.
    let scan = scan_of(&[a]);
    assert!(matches!(scan.group("vg"), Err(Error::MissingPvs { missing, .. }) if missing.len() == 1));
    assert_eq!(scan.group_without("vg").unwrap().paths, ["/a", MISSING, MISSING].map(PathBuf::from));
}

#[test]
fn a_group_that_lacks_some_is_no_older_than_what_was_seen() {
    let label = |byte, index, sequence| member(if byte == 1 { "/a" } else { "/b" }, byte, VG, index, &[1, 2], sequence);
    let seen = |sequence, out: &[u8]| {
        let out = out.iter().map(|byte| [*byte; 16]).collect();
        Membership { group: [VG.1; 16], sequence, lineage: 0, members: vec![[1; 16], [2; 16]], out }
    };
    let knowing = |pvs: &[Pv], seen: Membership| {
        let witnessed = BTreeMap::from([(uuid(VG.1), seen)]);
        Scan { witnessed, ..scan_of(pvs) }
    };
    let lost = Pv { path: "/gone".into(), size: 0, state: PvState::Missing(uuid(1)), tally: None };
    let scan = knowing(&[label(2, 1, 8), lost], seen(20, &[2]));
    for error in [scan.group("vg").unwrap_err(), scan.group_without("vg").unwrap_err()] {
        let text = error.to_string();
        assert!(
            text.contains("went on without the disks that are attached") && text.contains("(last seen at /gone)"),
            "{text}"
        );
        assert!(text.ends_with("vgchange -ay --activationmode partial --force vg."), "{text}");
    }
    let scan = knowing(&[label(1, 0, 8)], seen(20, &[2]));
    assert!(matches!(scan.group("vg"), Err(Error::Older { is_left_behind: false, .. })));
    assert!(matches!(scan.group_without("vg"), Err(Error::Older { .. })));
    assert!(knowing(&[label(1, 0, 20)], seen(20, &[2])).group_without("vg").is_ok());
    // A group that is whole was put back as it was, on purpose (NW3).
    let whole = [label(1, 0, 8), label(2, 1, 8)];
    assert!(knowing(&whole, seen(20, &[2])).group("vg").is_ok());
    // And one that this host does not know is opened as it is there.
    assert!(scan_of(&[label(2, 1, 8)]).group_without("vg").is_ok());
}

#[test]
fn an_unknown_group_is_not_found() {
    let error = scan_of(&[]).group("nope").unwrap_err();
    assert_eq!(error.to_string(), "Volume group \"nope\" not found\nCannot process volume group nope");
}

#[test]
fn a_missing_member_is_named_with_its_last_place() {
    let lost = Pv { path: "/gone".into(), size: 0, state: PvState::Missing(uuid(2)), tally: None };
    let scan = scan_of(&[member("/a", 1, VG, 0, &[1, 2], 5), lost]);
    let text = scan.group("vg").unwrap_err().to_string();
    assert!(text.contains("\"vg\" cannot be opened") && text.contains("(last seen at /gone) is missing"), "{text}");
    assert_eq!(scan.groups()[0].missing, 1);
}

#[test]
fn a_damaged_label_is_named_where_a_member_is_missing() {
    let damaged =
        Pv { path: "/hurt".into(), size: 1 << 30, state: PvState::Damaged("bad checksum".into()), tally: None };
    let text = scan_of(&[member("/a", 1, VG, 0, &[1, 2], 5), damaged]).group("vg").unwrap_err().to_string();
    let end = "is missing. The label on /hurt is damaged. To go on without: vgchange -ay --activationmode partial vg.";
    assert!(text.ends_with(end), "{text}");
    // A disk that does not read is not one whose contents are bad.
    let silent =
        Pv { path: "/dead".into(), size: 1 << 30, state: PvState::Unreadable("I/O error".into()), tally: None };
    let text = scan_of(&[member("/a", 1, VG, 0, &[1, 2], 5), silent]).group("vg").unwrap_err().to_string();
    assert!(text.contains("The label on /dead cannot be read") && !text.contains("damaged"), "{text}");
}

#[test]
fn two_devices_with_one_identifier_are_refused_with_both_paths() {
    let scan = scan_of(&[member("/a", 1, VG, 0, &[1], 5), member("/copy", 1, VG, 0, &[1], 5)]);
    let text = scan.group("vg").unwrap_err().to_string();
    assert!(text.contains("/a and /copy"), "{text}");
}

#[test]
fn two_groups_of_one_name_are_refused() {
    let scan = scan_of(&[member("/a", 1, VG, 0, &[1], 5), member("/b", 2, ("vg", 101), 0, &[2], 9)]);
    assert!(matches!(scan.group("vg").unwrap_err(), Error::AmbiguousGroup { paths, .. } if paths.len() == 2));
}

#[test]
fn a_group_that_was_being_renamed_has_the_newest_name() {
    let renamed = ("new", VG.1);
    let mut scan = scan_of(&[member("/a", 1, renamed, 0, &[1, 2], 6), member("/b", 2, VG, 1, &[1, 2], 5)]);
    assert_eq!(scan.groups().len(), 2, "as the labels stand");
    scan.agree_on_names();
    assert_eq!(scan.groups(), [GroupSummary { name: "new".into(), uuid: uuid(100), pvs: 2, missing: 0 }]);
    assert!(scan.group("vg").is_err() && scan.group("new").unwrap().paths.len() == 2);
}

#[test]
fn two_halves_of_a_group_are_refused() {
    let half = |path, byte, index, out: u8, sequence| {
        let mut pv = member(path, byte, VG, index, &[1, 2], sequence);
        let PvState::Present(label) = &mut pv.state else { panic!("it is there") };
        label.group.as_mut().unwrap().out = vec![uuid(out)];
        pv
    };
    let (a, b) = (half("/a", 1, 0, 2, 12), half("/b", 2, 1, 1, 30));
    assert_eq!(scan_of(std::slice::from_ref(&a)).group("vg").unwrap().paths, ["/a", MISSING].map(PathBuf::from));
    assert_eq!(scan_of(std::slice::from_ref(&b)).group("vg").unwrap().paths, [MISSING, "/b"].map(PathBuf::from));
    for pvs in [[a.clone(), b.clone()], [b, a]] {
        let error = scan_of(&pvs).group_without("vg").unwrap_err();
        assert!(matches!(error, Error::TwoHalves { .. }), "{error}");
    }
}

#[test]
fn an_older_copy_is_known_by_its_number_or_by_what_another_one_has_counted() {
    let counted = |mut pv: Pv, own: u32, known: [u32; 3]| {
        let mut tally = Tally { own, ..Tally::default() };
        tally.known[..3].copy_from_slice(&known);
        pv.tally = Some(tally);
        pv
    };
    let of = |byte: u8, sequence| member(&format!("/{byte}"), byte, VG, u16::from(byte) - 1, &[1, 2, 3], sequence);
    let older = |pvs: &[Pv]| scan_of(pvs).older("vg");
    // One number behind: a power cut does that. Two: nothing but a copy.
    assert_eq!(older(&[of(1, 9), of(2, 8), of(3, 9)]), []);
    assert_eq!(older(&[of(1, 9), of(2, 7), of(3, 9)]), [uuid(2)]);
    assert_eq!(older(&[of(1, 6), of(3, 9)]), [uuid(1)], "one is missing");
    // A step of the tallies that was interrupted, and a copy from before one.
    let (one, two) = (counted(of(1, 9), 5, [5, 5, 5]), counted(of(2, 9), 6, [5, 5, 5]));
    assert_eq!(older(&[one.clone(), two.clone(), counted(of(3, 9), 5, [5; 3])]), []);
    assert_eq!(older(&[one.clone(), two.clone(), counted(of(3, 9), 4, [4; 3])]), [uuid(3)]);
    assert_eq!(older(&[one.clone(), two.clone(), of(3, 9)]), [], "what cannot be read proves nothing");
    // The others went on without it: it is not used.
    let without = |mut pv: Pv| {
        let PvState::Present(label) = &mut pv.state else { panic!("it is there") };
        label.group.as_mut().unwrap().out = vec![uuid(3)];
        pv
    };
    assert_eq!(older(&[without(one), without(two), counted(of(3, 4), 1, [0; 3])]), []);
    assert_eq!(scan_of(&[]).older("vg"), []);
}

#[test]
fn one_that_was_removed_while_it_was_missing_is_no_member() {
    let former = member("/b", 2, VG, 1, &[1, 2], 5);
    let label = |pv: &Pv| pv.label().unwrap().clone();
    let scan = scan_of(&[member("/a", 1, VG, 0, &[1], 9), former.clone()]);
    assert!(scan.is_former(&label(&former)));
    assert!(!scan.is_former(&label(&scan.pvs[0])));
    // Its group is not there, or is as it knows it.
    assert!(!scan_of(std::slice::from_ref(&former)).is_former(&label(&former)));
    assert!(!scan_of(&[member("/a", 1, VG, 0, &[1, 2], 6), former.clone()]).is_former(&label(&former)));
}
