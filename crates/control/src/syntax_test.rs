use super::*;

const SAMPLE: &str = r#"
# A comment
contents = "Text Format Volume Group" # another
version = 1
vg-0 {
	id = "a\"b\\c"
	flags = []
	tags = ["one", "two"]	# three
	steps = [80, 90]
	1 { a=-3 }
}
"#;

#[test]
fn what_lvm_writes_is_read() {
    let root = parse(SAMPLE).unwrap();
    assert_eq!(root.text("contents").unwrap(), Some("Text Format Volume Group"));
    assert_eq!(root.number("version").unwrap(), Some(1));
    let group = root.section("vg-0").unwrap();
    assert_eq!(group.text("id").unwrap(), Some("a\"b\\c"));
    assert_eq!(group.texts("tags").unwrap(), ["one", "two"]);
    assert!(group.texts("flags").unwrap().is_empty());
    assert_eq!(group.entry("tags").unwrap().line, 8);
    assert_eq!(group.section("1").unwrap().number("a").unwrap_err().line, 10);
    assert!(group.texts("steps").is_err(), "numbers are no strings");
    assert_eq!(group.text("nothing").unwrap(), None);
}

#[test]
fn every_cut_is_a_tree_or_an_error_with_its_line() {
    let lines = SAMPLE.lines().count();
    let mut refused = 0;
    for end in (0..SAMPLE.len()).filter(|end| SAMPLE.is_char_boundary(*end)) {
        match parse(&SAMPLE[..end]) {
            Ok(_) => {}
            Err(error) => {
                refused += 1;
                assert!((1..=lines).contains(&error.line), "{end}: {error}");
            }
        }
    }
    assert!(refused > SAMPLE.len() / 2, "most cuts fall inside the section: {refused}");
}

#[test]
fn everything_that_lvms_reader_takes_is_taken() {
    let text = "a/b = bare 'quoted key' { c='single \"' d=[\"x\" \"y\" , 3,] } e = 0644 f=+1.5 g=.5 h=[]\n\
                i=\"two\nlines \\n \\\" \\\\\" # comment\n\"j\"{}k=\"cut off";
    let root = parse(text).unwrap();
    assert_eq!(root.text("a/b").unwrap(), Some("bare"));
    let inner = root.section("quoted key").unwrap();
    assert_eq!(inner.text("c").unwrap(), Some("single \""));
    assert_eq!(
        inner.entry("d").unwrap().node,
        Node::Value(Value::List(vec![text_of("x"), text_of("y"), Value::Number(3)]))
    );
    assert_eq!(root.number("e").unwrap(), Some(0o644));
    assert_eq!(root.entry("f").unwrap().node, Node::Value(Value::Real("+1.5".into())));
    assert_eq!(root.entry("g").unwrap().node, Node::Value(Value::Real(".5".into())));
    assert!(root.texts("h").unwrap().is_empty());
    assert_eq!(root.text("i").unwrap(), Some("two\nlines \\n \" \\"));
    assert_eq!(root.entry("j").unwrap().line, 4);
    assert_eq!(root.text("k").unwrap(), Some("cut of"), "LVM drops the last character, too");
}

fn text_of(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn nonsense_is_refused_where_it_stands_in_lvms_words() {
    for (text, line, at, words) in [
        ("report {", 1, 9, "unexpected token"),
        ("report/headings=", 1, 17, "expected a value"),
        ("garbage", 1, 8, "unexpected token"),
        ("=3", 1, 1, "unexpected token"),
        ("a/b=3}", 1, 6, "unexpected token"),
        ("a/b=[1,2", 1, 9, "expected a value"),
        ("a = 1\nb", 2, 8, "unexpected token"),
        ("a {\n b = 1\n", 3, 12, "unexpected token"),
        ("}", 1, 1, "unexpected token"),
        ("a = 99999999999999999999", 1, 5, "Failed to read int token."),
        ("a = [1 2]", 1, 8, "expected a value"),
        ("a =", 1, 4, "expected a value"),
        ("a = \"", 1, 5, "expected a string token."),
        ("\"\" = 1", 1, 4, "empty section identifier"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.line, error.at, error.why.as_str()), (line, Some(at), words), "{text}");
    }
    assert_eq!(parse("a = [1 2]").unwrap_err().sentence("x"), "Parse error at byte 8 (line 1): expected a value");
    assert!(parse(&"a {".repeat(100_000)).is_err(), "depth is bounded");
}

#[test]
fn strings_turn_back() {
    for text in ["", "plain", "\"quoted\" \\ back", "lvcreate -n \u{e4}"] {
        let root = parse(&format!("a = {}\nb = {}", quoted(text), list(&[text]))).unwrap();
        assert_eq!(root.text("a").unwrap(), Some(text));
        assert_eq!(root.texts("b").unwrap(), [text]);
    }
    assert_eq!(quoted("two\nlines"), "\"two lines\"");
}
