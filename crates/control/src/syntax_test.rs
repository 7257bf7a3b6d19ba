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
fn nonsense_is_refused_where_it_stands() {
    for (text, line, words) in [
        ("a = 1\nb", 2, "followed by"),
        ("a = \"x\ny\"", 1, "does not end"),
        ("a {\n b = 1\n", 3, "begins on line 1"),
        ("}", 1, "where a name"),
        ("a = 1.5", 1, "whole number"),
        ("a = 99999999999999999999", 1, "whole number"),
        ("a = [1,]", 1, "comma"),
        ("a = [1 2]", 1, "comma or ]"),
        ("a = yes", 1, "where a value"),
        ("a =", 1, "ends where"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.why.contains(words), "{text}: {error}");
    }
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
