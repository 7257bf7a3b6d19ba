use super::*;
use crate::failure::Failure;
use crate::fake::Fake;
use crate::report::fields;
use crate::report::value::Type;

/// The volumes of the oracle's session: see the names.
fn world() -> Fake {
    let mut world = Fake::new();
    for line in [
        "vgcreate --addtag g1 vt /dev/ubda",
        "lvcreate -L 100M -n lin vt",
        "lvcreate -s -L 12M -n snap vt/lin",
        "lvcreate -T -L 40M vt/pool",
        "lvcreate -V 20M -T vt/pool -n thin",
        "lvcreate -s -n tsnap vt/thin --addtag a --addtag b",
        "lvcreate -L 200M -n big vt -an",
    ] {
        let printed = world.run(line);
        assert_eq!(printed.code, 0, "{line}: {printed:?}");
    }
    world
}

/// The names that criteria choose, as LVM 2.03.16 chose them.
fn chosen(world: &mut Fake, criteria: &str) -> Result<String> {
    let words = ["--noheadings", "-o", "lv_name", "-S", criteria].map(str::to_owned);
    let printed = world.run_words("lvs", &words, None);
    match printed.code {
        0 => Ok(printed.out.split_whitespace().collect::<Vec<_>>().join(" ")),
        _ => Err(Failure::failed(printed.err.lines().map(|line| format!("{}\n", line.trim())).collect::<String>())),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of criteria")]
fn what_lvm_chooses() {
    let mut world = world();
    const ALL: &str = "big lin pool snap thin tsnap";
    for (criteria, expected) in [
        ("lv_size=100m", "lin"),
        ("lv_size=100", "lin"),
        ("lv_size=104857600b", "lin"),
        ("lv_size=100M", ""),
        ("lv_size = 102400k", "lin"),
        ("lv_size>=40m && lv_size<=100m", "lin pool"),
        ("size>40", "big lin"),
        ("lv_size!=100m", "big pool snap thin tsnap"),
        ("!(lv_size=100m)", "big pool snap thin tsnap"),
        ("lv_size=100m || lv_name=thin", "lin thin"),
        ("lv_size=100m # lv_name=thin", "lin thin"),
        ("lv_size>1m , lv_name=thin", "thin"),
        ("lv_name=~^t", "thin tsnap"),
        ("lv_name!~^t", "big lin pool snap"),
        ("lv_name=~\"^(lin|snap)$\"", "lin snap"),
        ("lv_name=~(lin|snap)", "lin snap tsnap"),
        ("lv_name = 'lin'", "lin"),
        ("lv_name=", ""),
        ("origin=\"\"", "big lin pool thin"),
        ("origin!=\"\"", "snap tsnap"),
        ("", ALL),
        ("seg_count=1", ALL),
        ("seg_count=1.5", ALL),
        ("lv_tags=a", "tsnap"),
        ("lv_tags={a}", "tsnap"),
        ("lv_tags=[a]", ""),
        ("lv_tags={a&&b}", "tsnap"),
        ("lv_tags=[a,b]", "tsnap"),
        ("lv_tags={a||b}", "tsnap"),
        ("lv_tags=[a||b]", "tsnap"),
        ("lv_tags={a#c}", "tsnap"),
        ("lv_tags={a,c}", ""),
        ("lv_tags=\"\"", "big lin pool snap thin"),
        ("lv_tags={}", "big lin pool snap thin"),
        ("lv_tags=[]", "big lin pool snap thin"),
        ("lv_tags!=a", "big lin pool snap thin"),
        ("lv_tags!={}", "tsnap"),
        ("lv_tags={\"a\",\"b\"}", "tsnap"),
        ("lv_tags={ a , b }", "tsnap"),
        ("tags=a", "tsnap"),
        ("lv_role=public", "big lin snap thin tsnap"),
        ("lv_role=[public]", "big"),
        ("lv_role={origin}", "lin thin"),
        ("vg_tags=g1", ALL),
        ("data_percent=0", "pool snap thin"),
        ("data_percent>=0", "pool snap thin"),
        ("data_percent>0%", ""),
        ("data_percent<50%", "pool snap thin"),
        ("data_percent!=0", ""),
        ("lv_skip_activation=1", "tsnap"),
        ("lv_skip_activation=0", "big lin pool snap thin"),
        ("lv_skip_activation=\"skip activation\"", "tsnap"),
        ("lv_skip_activation=skip", "tsnap"),
        ("lv_skip_activation=yes", "tsnap"),
        ("lv_active=active", "lin pool snap thin"),
        ("lv_active=1", ""),
        ("lv_active_locally=1", "lin pool snap thin"),
        ("lv_active_locally=\"active locally\"", "lin pool snap thin"),
        ("lv_snapshot_invalid=-1", "big lin pool thin tsnap"),
        ("lv_snapshot_invalid=unknown", "big lin pool thin tsnap"),
        ("lv_merging=undefined", ""),
        ("lv_snapshot_invalid=0", "snap"),
        ("lv_path=/dev/vt/lin", "lin"),
        ("vg_name=vt", ALL),
        ("thin_count=2", "pool"),
        ("thin_count>=0", "pool"),
        ("segtype=thin", "thin tsnap"),
        // A pool has no device here.
        ("lv_kernel_major=-1", "big pool tsnap"),
        ("lv_major>=0", ""),
        ("origin_size=100m", "lin snap"),
        ("zero=1", "pool thin tsnap"),
        ("zero=zero", "pool thin tsnap"),
        ("discards=passdown", "pool thin tsnap"),
        ("raid_mismatch_count>=0", ""),
        ("lv_read_ahead=auto", ALL),
        ("lv_read_ahead=0", ""),
        ("lv_attr=~^V", "thin tsnap"),
        ("selected=1", ALL),
        ("lv_size<1.5g", ALL),
        ("lv_size=.5g", ""),
        ("lv_name=~lin && (lv_size>1m || lv_size<1m) && !(lv_name=snap)", "lin"),
        ("lv_name==lin", ""),
        ("lv_name=li*", ""),
        ("LV_NAME=lin", "lin"),
        ("lvname=lin", "lin"),
        ("lv_size>1m,lv_size<50m,lv_name!=pool", "snap thin tsnap"),
        ("lv_name=lin||lv_name=snap", "lin snap"),
        ("lv_name=lin&lv_name=snap", ""),
    ] {
        assert_eq!(chosen(&mut world, criteria), Ok(expected.to_owned()), "{criteria}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of criteria")]
fn what_lvm_refuses() {
    let mut world = world();
    let at = |place: &str| format!("Selection syntax error at '{place}'.\nUse 'help' for selection to get more help.");
    for (criteria, expected) in [
        ("! lv_size=100m", "Syntax error: left parenthesis expected at ' lv_size=100m'".to_owned()),
        ("!!lv_name=lin", "Syntax error: left parenthesis expected at '!lv_name=lin'".to_owned()),
        ("(lv_name=lin", "Syntax error: right parenthesis expected at ''".to_owned()),
        ("lv_name=lin)", format!("Expecting logical operator\n{}", at(")"))),
        ("lv_name=lin or lv_name=snap", format!("Expecting logical operator\n{}", at("or lv_name=snap"))),
        ("lv_name=lin &&", format!("Expecting field name\n{}", at(""))),
        ("=", format!("Expecting field name\n{}", at("="))),
        (" ", format!("Expecting field name\n{}", at(""))),
        ("lv_size=abc", format!("Failed to parse numeric value for selection field lv_size.\n{}", at("lv_size=abc"))),
        ("lv_size=10q", format!("Expecting logical operator\n{}", at("q"))),
        ("lv_size=-5", format!("Failed to parse numeric value for selection field lv_size.\n{}", at("lv_size=-5"))),
        ("lv_size=~1", "dm_report: incompatible comparison type for selection field lv_size".to_owned()),
        ("lv_tags=~a", "dm_report: incompatible comparison type for selection field lv_tags".to_owned()),
        ("lv_name=~", format!("Regular expression expected for selection field lv_name\n{}", at("lv_name=~"))),
        (
            "lv_name=~[",
            format!(
                "Missing end quote.\nFailed to parse regex value for selection field lv_name.\n{}",
                at("lv_name=~[")
            ),
        ),
        (
            "lv_tags={a b}",
            format!(
                "Invalid operator in selection list.\nFailed to parse string list value for selection field lv_tags.\n{}",
                at("lv_tags={a b}")
            ),
        ),
        (
            "lv_tags={a && b || c}",
            format!(
                "Only one type of logical operator allowed in selection list at a time.\nFailed to parse string list value \
                 for selection field lv_tags.\n{}",
                at("lv_tags={a && b || c}")
            ),
        ),
        ("data_percent=150", "Field selection value 150 out of supported range for field data_percent.".to_owned()),
        (
            "lv_active_locally=y",
            format!(
                "Failed to parse numeric value for selection field lv_active_locally.\n{}",
                at("lv_active_locally=y")
            ),
        ),
        (
            "lv_time>abc",
            format!(
                "Unrecognized string in date/time specification at \"abc\".\nFailed to parse time value for selection field \
                 lv_time.\n{}",
                at("lv_time>abc")
            ),
        ),
    ] {
        assert_eq!(chosen(&mut world, criteria), Err(Failure::failed(expected)), "{criteria}");
    }
    for (criteria, end) in [
        ("badfield=1", format!("Unrecognised selection field: badfield\n{}", at("badfield=1"))),
        ("lv_name", format!("Unrecognised comparison operator:\n{}", at("lv_name"))),
        (
            "lv_name>lin",
            format!(
                "Operator can be used only with number, size, time or percent fields: lv_name>lin\n{}",
                at("lv_name>lin")
            ),
        ),
    ] {
        let Err(Failure::Failed(lines)) = chosen(&mut world, criteria) else { panic!("accepted: {criteria}") };
        assert!(lines.join("\n").ends_with(&end), "{criteria}: {:?}", &lines[lines.len() - 4..]);
    }
    assert!(chosen(&mut world, &"(".repeat(100_000)).is_err());
}

#[test]
fn times_are_spans_as_long_as_what_is_left_out() {
    let mut world = world();
    // Made on 2026-11-20 18:13:34 UTC.
    for (criteria, is_chosen) in [
        ("lv_time=2026", true),
        ("lv_time=2026-11", true),
        ("lv_time=2026-11-20", true),
        ("lv_time=\"2026-11-20 18\"", true),
        ("lv_time=\"2026-11-20 18:13\"", true),
        ("lv_time=\"2026-11-20 18:13:34\"", true),
        ("lv_time=\"2026-11-20 19:13:34 +0100\"", true),
        ("lv_time=\"2026-11-20 18:13:34 +01:00\"", false),
        ("lv_time>2026", false),
        ("lv_time>=2026", true),
        ("lv_time<2026-11-21", true),
        ("lv_time before 2026-11-20", false),
        ("lv_time until 2026-11-20", true),
        ("lv_time since @1795198414", true),
        ("lv_time after @1795198414", false),
        ("lv_time!=2026-11-20", false),
        ("lv_time_removed>2000", false),
    ] {
        let names = chosen(&mut world, criteria).unwrap();
        assert_eq!(!names.is_empty(), is_chosen, "{criteria}");
    }
    for criteria in
        ["lv_time<\"1 year ago\"", "lv_time>=\"1 week ago\"", "lv_time=today", "lv_time<sunday", "lv_time<yesterday"]
    {
        assert!(chosen(&mut world, criteria).is_ok(), "{criteria}");
    }
}

#[test]
fn groups_and_devices_are_chosen_by_what_is_in_them() {
    let mut world = world();
    for (line, expected) in [
        ("vgs --noheadings -o vg_name -S lv_name=lin", "vt"),
        ("vgs --noheadings -o vg_name -S lv_name=nosuch", ""),
        ("vgs --noheadings -o vg_name -S pv_name=/dev/ubda", "vt"),
        ("vgs --noheadings -o vg_name,lv_name -S lv_size=100m", "vt lin"),
        ("pvs --noheadings -o pv_name -S vg_name=vt", "/dev/ubda"),
        ("pvs --noheadings -o pv_name -S lv_name=lin", "/dev/ubda"),
        ("pvs --noheadings -o pv_name -S lv_name=nosuch", ""),
    ] {
        let printed = world.run(line);
        assert_eq!(printed.out.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{line}");
    }
}

/// Every flag that a row can show as a word can be chosen by that word.
#[test]
fn flags_are_chosen_by_the_words_that_show_them() {
    let mut world = world();
    world.run("lvcreate -s -L 12M -n waits vt/big");
    world.write("lin", 13 * 256);
    world.set_open("lin", true);
    world.set_open("big", true);
    assert_eq!(world.run("lvconvert --merge vt/waits").code, 0);
    let mut seen = 0;
    for field in fields::all().filter(|field| field.kind == Type::Flag) {
        let report = if field.name.starts_with("pv") { "pvs" } else { "lvs" };
        let shown = world.run(&format!("{report} --noheadings -o {}", field.name)).out;
        for word in shown.lines().map(str::trim).filter(|word| !word.is_empty() && *word != "unknown") {
            let words =
                ["--noheadings", "-o", field.name, "-S", &format!("{}=\"{word}\"", field.name)].map(str::to_owned);
            let chosen = world.run_words(report, &words, None);
            assert_eq!(chosen.code, 0, "{}: {}", field.name, chosen.err);
            assert!(!chosen.out.is_empty() && chosen.out.lines().all(|line| line.trim() == word), "{}", field.name);
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
}
