use super::*;

fn command(id: &str, command: &str, failure: Option<&str>) -> Command {
    Command {
        time: 1_795_198_414,
        group: "vg0".into(),
        id: id.into(),
        command: command.into(),
        request: "resize".into(),
        failure: failure.map(str::to_owned),
        user: "root".into(),
        host: "h".into(),
        pid: 7,
        milliseconds: 5,
    }
}

#[test]
fn lines_come_back_in_their_order_whatever_the_clock_did() {
    let mut later = command("b", "lvs", None);
    later.time = 1;
    let lines = [command("a", "lvcreate -L 1G vg0", Some("no room")), later];
    let text: String = lines.iter().map(write).collect();
    assert_eq!(read::<Command>(text.as_bytes()), Read { lines: lines.to_vec(), damaged: 0 });
}

/// HS3
#[test]
fn a_damaged_line_costs_itself_only() {
    let good = write(&command("a", "lvs", None));
    for bad in [
        "no json",
        "{}",
        "[1]",
        "\u{0}\u{0}\u{0}",
        r#"{"time":"now","group":"vg0","command":"lvs"}"#,
        r#"{"time":-1,"group":"vg0","command":"lvs"}"#,
        r#"{"time":1,"group":"../etc","command":"lvs"}"#,
        r#"{"time":1,"group":"vg0","command":["lvs"]}"#,
        r#"{"time":1,"group":"vg0","command":"lvs","pid":4294967296}"#,
        &good[..good.len() / 2],
        &"x".repeat(LONGEST_LINE + 1),
    ] {
        let text = format!("{good}{bad}\n{good}");
        let read = read::<Command>(text.as_bytes());
        assert_eq!((read.lines.len(), read.damaged), (2, 1), "{bad:.80}");
    }
    let not_text = [good.as_bytes(), b"\xff\xfe\n", good.as_bytes()].concat();
    assert_eq!(read::<Command>(&not_text).damaged, 1);
    let older = r#"{"time":1,"group":"vg0","command":"lvs","what a later version says":{"x":1}}"#;
    assert_eq!(read::<Command>(older.as_bytes()).lines.len(), 1);
    assert_eq!(read::<Command>(b"\n\n"), Read::default());
}

/// HS3
#[test]
fn nothing_that_is_read_reaches_a_terminal_as_it_is() {
    let mut hostile = command("\u{1b}", "lvcreate \u{1b}[2J\u{9b}31m \u{202e} \r\n -n ä", Some("\u{7}"));
    hostile.user = "\u{7f}".repeat(10_000);
    for (text, is_cleaned) in [
        (write(&hostile), false),
        (
            {
                hostile.clean();
                write(&hostile)
            },
            true,
        ),
    ] {
        let read = read::<Command>(text.as_bytes());
        let [line] = &read.lines[..] else { panic!("{read:?} {is_cleaned}") };
        let shown = format!("{}{}{}{:?}", line.command, line.id, line.user, line.failure);
        assert!(!shown.chars().any(is_hostile), "{shown}");
        assert!(line.command.contains("\\u{1b}[2J") && line.command.ends_with("-n ä"), "{}", line.command);
    }
    let long = clean(&"x".repeat(2 * LONGEST), LONGEST);
    assert_eq!((long.chars().count(), long.ends_with('…')), (LONGEST + 1, true));
    let longest = Command { command: "\u{10ffff}".repeat(LONGEST), ..command("a", "", None) };
    assert!(write(&longest).len() < LONGEST_LINE);
}

#[test]
fn the_requests_of_a_command_are_one_entry() {
    let other = |id: &str| Command { pid: 8, ..command(id, "other", None) };
    let lines = vec![
        command("a", "lvremove vg0", None),
        other("b"),
        command("a", "lvremove vg0", Some("in use")),
        command("a", "lvremove vg0", Some("later")),
        command("", "by itself", None),
        command("", "by itself", None),
        other("a"),
    ];
    let merged = merge(lines);
    let told: Vec<_> =
        merged.iter().map(|one| (one.command.as_str(), one.failure.as_deref(), one.milliseconds)).collect();
    assert_eq!(
        told,
        [
            ("lvremove vg0", Some("in use"), 15),
            ("other", None, 5),
            ("by itself", None, 5),
            ("by itself", None, 5),
            ("other", None, 5)
        ]
    );
}

#[test]
fn each_kind_of_event_has_a_word_of_its_own() {
    let words: std::collections::BTreeSet<_> = What::ALL.iter().map(|what| what.word()).collect();
    assert_eq!(words.len(), What::ALL.len());
}

#[test]
fn a_damaged_line_that_costs_others_is_found() {
    rowen_engine::planted::must_be_found("damaged_line_ends", a_damaged_line_costs_itself_only);
}
