use super::*;

fn spec() -> SnapshotSpec {
    SnapshotSpec {
        origin: "original".into(),
        name: "snap".into(),
        uuid: Uuid([7; 16]),
        reserve_blocks: Some(1024),
        read_only: true,
        chunk_blocks: 16,
        activate: true,
        attributes: Attributes { tags: vec!["t".into()], ..Attributes::default() },
    }
}

#[test]
fn frames_come_back_as_they_were_sent() {
    let requests = [
        Request::Hello { version: VERSION, caller: Caller { command: "lvs".into(), no_backup: true } },
        Request::Snapshot { specs: vec![spec()], freeze: true },
        Request::SetAttributes { name: "a".into(), change: AttributeChange::default() },
        Request::Stop,
    ];
    let mut bytes = Vec::new();
    for request in &requests {
        write_frame(&mut bytes, request).unwrap();
    }
    let mut from = &bytes[..];
    for request in &requests {
        assert_eq!(read_frame::<Request>(&mut from).unwrap().as_ref(), Some(request));
    }
    assert_eq!(read_frame::<Request>(&mut from).unwrap(), None);
}

#[test]
fn a_cut_an_overlong_or_a_senseless_frame_is_an_error() {
    let whole = encode(&Request::Report).unwrap();
    for end in 1..whole.len() {
        assert!(read_frame::<Request>(&mut &whole[..end]).is_err(), "cut at {end}");
    }
    let overlong = u32::try_from(FRAME_CAP + 1).unwrap().to_le_bytes();
    assert_eq!(frame_length(overlong).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(read_frame::<Request>(&mut &overlong[..]).is_err());
    assert!(decode::<Request>(b"{\"no-such-request\":{}}").is_err());
    assert!(decode::<Request>(b"\xff\xfe").is_err());
}

#[test]
fn an_identifier_must_be_whole() {
    let good = serde_json::to_string(&spec()).unwrap();
    assert!(good.contains(&"07".repeat(16)));
    for bad in ["07", "+7070707070707070707070707070707", "zz"] {
        let text = good.replace(&"07".repeat(16), bad);
        assert!(serde_json::from_str::<SnapshotSpec>(&text).is_err(), "{bad}");
    }
}

#[test]
fn a_change_of_attributes_leaves_the_rest() {
    let before = engine::Attributes { tags: vec!["a".into(), "b".into()], created: 5, ..Default::default() };
    let change = AttributeChange {
        skip_activation: Some(true),
        add_tags: vec!["b".into(), "c".into()],
        remove_tags: vec!["a".into(), "nosuch".into()],
        ..Default::default()
    };
    let after = change.apply(&before);
    assert_eq!(after.tags, ["b", "c"]);
    assert!(after.skip_activation && !after.autoactivate);
    assert_eq!(after.created, 5);
}

#[test]
fn progress_and_notices_are_not_the_last_word() {
    assert!(Outcome::Progress { done: 1, total: 2, what: "nodes".into() }.is_interim());
    assert!(Outcome::Notice { message: "nearly full".into() }.is_interim());
    assert!(!Outcome::Ok.is_interim());
}
