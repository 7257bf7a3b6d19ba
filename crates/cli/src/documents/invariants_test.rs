//! The index of invariants in ARCHITECTURE.md and the code say the same: each rule has one label and one place where it is
//! stated, and the asserts, tests and planted bugs of its row are there.

use super::pages_test::{root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Capital letters, a number, perhaps a small letter.
fn is_label(word: &str) -> bool {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let (letters, digits) = (word.len() - rest.len(), rest.trim_end_matches(|c: char| c.is_ascii_lowercase()));
    (1..=2).contains(&letters)
        && !digits.is_empty()
        && digits.bytes().all(|c| c.is_ascii_digit())
        && rest.len() <= digits.len() + 1
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// All sources of the product's crates and of the simulator, by their path from the root.
fn all_sources() -> BTreeMap<String, String> {
    ["crates", "sim", "fuzz"].into_iter().flat_map(|folder| sources(&root().join(folder), &root())).collect()
}

fn is_test(file: &str) -> bool {
    file.ends_with("_test.rs") || file.contains("/tests/")
}

/// The label that a line of a module's head states: `//! * J1 Records ...`, `//! - I1. The ...`, `//! SV1. Every ...`.
fn stated(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("//! ")?;
    let rest = rest.strip_prefix("* ").or_else(|| rest.strip_prefix("- ")).unwrap_or(rest);
    let (word, text) = rest.split_once(' ')?;
    let label = word.strip_suffix('.').unwrap_or(word);
    (is_label(label) && !text.is_empty()).then_some(label)
}

/// A row of the index.
struct Row {
    label: String,
    stated_in: String,
    cited_by: Vec<String>,
    planted: Vec<String>,
    /// No bug is planted, and the cell does not say so as it should: `-`, or `none:` and why there cannot be one.
    is_unclear: bool,
}

fn rows(page: &str) -> Vec<Row> {
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let (_, index) = page.split_once("## Index of invariants").expect("ARCHITECTURE.md has an index");
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let table = index.lines().filter(|line| line.starts_with("| ")).map(cells).filter(|row| is_label(&row[0]));
    table
        .map(|row| Row {
            label: row[0].clone(),
            stated_in: names(&row[2]).concat(),
            cited_by: names(&row[3]),
            planted: names(&row[4]),
            is_unclear: !row[4].contains('`') && row[4] != "-" && !row[4].starts_with("none: "),
        })
        .collect()
}

/// What the index says that is not so.
fn wrong(rows: &[Row], sources: &BTreeMap<String, String>, design: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, text) in sources.iter().filter(|(file, _)| !is_test(file)) {
        text.lines().filter_map(stated).for_each(|label| places.entry(label).or_default().push(file));
    }
    for row in rows {
        let label = row.label.as_str();
        match places.remove(label).as_deref() {
            Some([file]) if *file == row.stated_in => {}
            None if row.stated_in == "docs/design.md" && words(design).any(|word| word == label) => {}
            found => wrong.push(format!("{label} is stated in {found:?}, not in {}", row.stated_in)),
        }
        if row.stated_in != "docs/design.md" && design.contains(&format!("**{label}**")) {
            wrong.push(format!("docs/design.md states {label} again: a link is enough"));
        }
        for file in &row.cited_by {
            let text = sources.get(file).map_or("", String::as_str);
            if !words(text).any(|word| word == label) {
                wrong.push(format!("{file} does not cite {label}"));
            }
        }
        if row.is_unclear {
            wrong.push(format!("{label} has no planted bug and does not say why"));
        }
        for bug in &row.planted {
            let quoted = format!("\"{bug}\"");
            let (tests, code): (Vec<_>, Vec<_>) =
                sources.iter().filter(|(_, text)| text.contains(&quoted)).partition(|(file, _)| is_test(file));
            if tests.is_empty() || code.is_empty() {
                wrong.push(format!("no test looks for {bug}, or it is not planted"));
            }
        }
    }
    wrong.extend(places.into_iter().map(|(label, files)| format!("{label} of {files:?} has no row")));
    let labels: BTreeSet<_> = rows.iter().map(|row| &row.label).collect();
    if labels.len() < rows.len() {
        wrong.push("a label has two rows".into());
    }
    wrong
}

#[test]
fn the_index_of_invariants_is_true() {
    let rows = rows(&read("ARCHITECTURE.md"));
    assert!(rows.len() > 100, "{} rows", rows.len());
    assert_eq!(wrong(&rows, &all_sources(), &read("docs/design.md")), Vec::<String>::new());
    let uncited: Vec<&str> = rows.iter().filter(|row| row.cited_by.is_empty()).map(|row| row.label.as_str()).collect();
    assert!(uncited.is_empty(), "these rules are cited by no assert and no test: {uncited:?}");
}

#[test]
fn an_index_that_is_wrong_is_noticed() {
    let row = |label: &str, stated_in: &str, cited_by: &str, planted: &str| Row {
        label: label.into(),
        stated_in: stated_in.into(),
        cited_by: vec![cited_by.into()],
        planted: vec![planted.into()],
        is_unclear: false,
    };
    let sources: BTreeMap<String, String> = [
        ("a.rs", "//! * X1 This holds.\n//! * X2. This, too.\nplanted(\"bug\")"),
        ("b.rs", "//! - X2 Said twice."),
        ("x/tests/c.rs", "//! Rule X1.\nfind(\"bug\")"),
    ]
    .map(|(file, text)| (file.to_owned(), text.to_owned()))
    .into();
    let right = [row("X1", "a.rs", "x/tests/c.rs", "bug")];
    assert_eq!(wrong(&right, &sources, "").len(), 1, "X2 has no row");
    assert_eq!(wrong(&right, &sources, "- **X1** This holds.").len(), 2, "X1 is stated again");
    let rows =
        [row("X1", "b.rs", "a.rs", "bug"), row("X2", "a.rs", "x/tests/c.rs", "none"), row("X1", "a.rs", "a.rs", "bug")];
    assert_eq!(wrong(&rows, &sources, "X2").len(), 6);
}
