use super::*;

fn volume(name: &str, number: u8) -> Volume {
    Volume {
        name: name.into(),
        uuid: Uuid([number; 16]),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        stripes: None,
        extents: 25,
        read_only: false,
        autoactivate: true,
        skip_activation: false,
        created: 1_795_198_414,
        tags: Vec::new(),
        sector: 512,
        chunk_blocks: 16,
        full: FullPolicy::DropSnapshot,
        pool: String::new(),
        origin: None,
        reserve_blocks: None,
    }
}

fn document() -> Document {
    let snapshot = Volume {
        read_only: true,
        skip_activation: true,
        autoactivate: false,
        origin: Some("data".into()),
        reserve_blocks: Some(2048),
        tags: vec!["a/b".into(), "c=d".into()],
        full: FullPolicy::Hold,
        kind: VolumeKind::Thin,
        ..volume("before", 2)
    };
    let pool = Volume { kind: VolumeKind::Thin, pool: "pool".into(), ..volume("pool", 3) };
    let thin = Volume { kind: VolumeKind::Thin, pool: "pool".into(), sector: 4096, ..volume("1", 4) };
    let mirror = Volume { segment: SegmentType::Raid1, ..volume("mirror", 5) };
    let stripes = Some(Stripes { columns: 3, blocks: 16 });
    let striped = Volume { segment: SegmentType::Striped, stripes, ..volume("striped", 6) };
    Document {
        origin: Origin { description: "Created *after* executing 'lvcreate \"x\"'".into(), host: "h".into(), time: 1 },
        name: "vg-0".into(),
        uuid: Uuid([9; 16]),
        sequence: 7,
        extent_blocks: 1024,
        attributes: GroupAttributes {
            tags: vec!["web".into()],
            exported: true,
            autoactivate: false,
            alloc: AllocPolicy::Cling,
            max_volumes: 9,
            ..GroupAttributes::default()
        },
        pvs: vec![Pv {
            uuid: Uuid([8; 16]),
            path: "/srv/a b\".img".into(),
            size_bytes: 1 << 30,
            data_offset_bytes: 1 << 20,
            extents: 255,
            is_allocatable: false,
            tags: vec!["ssd".into()],
        }],
        volumes: vec![volume("data", 1), snapshot, pool, thin, mirror, striped],
    }
}

#[test]
fn a_document_turns_back_into_itself() {
    let document = document();
    assert_eq!(Document::read(&document.write()), Ok(document));
}

#[test]
fn it_reads_like_lvms() {
    let text = document().write();
    for line in [
        "contents = \"Text Format Volume Group\"",
        "vg-0 {",
        "\textent_size = 8192\t\t# 4.00 MiB",
        "\t\t\tpe_start = 2048",
        "\t\t\tstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]",
        "\t\t\tflags = [\"ACTIVATION_SKIP\", \"NOAUTOACTIVATE\"]",
        "\t\t\ttags = [\"a/b\", \"c=d\"]",
        "\t\t\t\ttype = \"snapshot\"",
        "\t\t\t\ttype = \"thin-pool\"",
        "\t\t\t\textent_count = 25\t# 100.00 MiB",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
}

#[test]
fn the_substance_is_what_the_group_was() {
    let before = document();
    let mut after = Document { sequence: 8, origin: Origin { time: 99, ..Origin::default() }, ..document() };
    assert_eq!(Document::substance(&before.write()), Document::substance(&after.write()));
    after.volumes[0].read_only = true;
    assert_ne!(Document::substance(&before.write()), Document::substance(&after.write()));
}

#[test]
fn any_damage_gives_a_document_or_a_line() {
    let text = document().write();
    for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
        let _any = Document::read(&text[..at]).map_err(|error| assert!(error.line > 0));
        for byte in ["\"", "{", "}", "=", "9", "-", "#", "\n"] {
            if text.is_char_boundary(at + 1) {
                let damaged = format!("{}{byte}{}", &text[..at], &text[at + 1..]);
                let _any = Document::read(&damaged);
            }
        }
    }
}

#[test]
fn what_is_no_metadata_of_ours_is_refused() {
    let text = document().write();
    for (from, to, words) in [
        ("format = \"rowen\"", "format = \"lvm2\"", "not Rowen's"),
        ("version = 1", "version = 2", "version 1 is understood"),
        ("contents = ", "content = ", "no metadata"),
        ("vg-0 {", "-vg {", "cannot be a name"),
        ("\t\tbefore {", "\t\tdata {", "shares its name"),
        ("extent_count = 25", "extent_count = -25", "negative"),
        ("\"cling\"", "\"clang\"", "none of contiguous, cling"),
        ("extent_size = 8192", "extent_size = 0", "power of two"),
        ("dev_size = 2097152", "dev_size = 9223372036854775807", "too large"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Document::read(&text.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains(words), "{to}: {error}");
    }
}

#[test]
fn sizes_that_no_group_can_have_are_refused() {
    let text = document().write();
    for (key, value) in [
        ("extent_size = 8192", "extent_size = 36028797018963968"),
        ("extent_count = 25", "extent_count = 9223372036854775807"),
        ("pe_count = 255", "pe_count = 9223372036854775807"),
    ] {
        assert!(text.contains(key), "{key}");
        let why = Document::read(&text.replace(key, value)).unwrap_err().why;
        assert_eq!(why, "a size is too large", "{value}");
    }
}

#[test]
fn names_of_any_kind_come_back() {
    let mut document = document();
    document.volumes[1].origin = Some("a \" b".into());
    document.volumes[3].pool = "p \\ q".into();
    assert_eq!(Document::read(&document.write()).unwrap(), document);
}
