//! The pages of the repository: links lead somewhere, the tour names functions that exist, pictures are made from their sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files below a folder of the repository: their path from `base`, which is above them, and their text.
pub(super) fn sources(folder: &Path, base: &Path) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let file = path.strip_prefix(base).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if file.ends_with(".rs") => found.push((file, fs::read_to_string(path).unwrap())),
                false => {}
            }
        }
    }
    found
}

/// Files of this kind in these folders of the repository, but not in those below them.
fn files(folders: &[&str], extension: &str) -> Vec<PathBuf> {
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files
}

fn pages() -> Vec<PathBuf> {
    files(&["", "docs", "docs/adr", "docs/experiments", "conformance"], "md")
}

/// The text without blocks of code, in which nothing is a link.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    text.split("```").step_by(2).collect()
}

/// What the links of a page lead to.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(link, _)| link).filter(|link| !link.contains("://"))
}

/// The name by which a link finds a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Links of these pages that lead nowhere.
fn dead_links(pages: &[PathBuf]) -> Vec<String> {
    let mut dead = Vec::new();
    for page in pages {
        for link in links(&prose(page)) {
            let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let has = |heading: &str| {
                let text = prose(&target);
                text.lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor(line.trim_start_matches('#')) == heading)
            };
            if !target.exists() || heading.is_some_and(|heading| !has(heading)) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    dead
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    assert!(pages.len() > 40, "where are the pages? {pages:?}");
    let dead = dead_links(&pages);
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn a_dead_link_is_noticed() {
    let page = std::env::temp_dir().join(format!("rowen-page-{}.md", std::process::id()));
    fs::write(&page, "# A word, and 2\n[a](#a-word-and-2) [b](#another) [c](no-such.md) [d](https://example.org)\n")
        .unwrap();
    let dead = dead_links(std::slice::from_ref(&page));
    fs::remove_file(&page).unwrap();
    assert_eq!(dead.len(), 2, "{dead:?}");
}

/// Files and folders of the repository that a text names in backticks, and that are not there.
fn missing_files(text: &str) -> Vec<&str> {
    const FOLDERS: [&str; 9] =
        ["crates/", "sim/", "docs/", "fuzz/", "conformance/", "packaging/", "clients/", "bench/", "experiments/"];
    let is_file = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let named = text.split('`').filter(|name| FOLDERS.iter().any(|folder| name.starts_with(folder)));
    named.filter(|name| name.chars().all(is_file) && !root().join(name).exists()).collect()
}

#[test]
fn files_that_pages_name_are_there() {
    assert_eq!(missing_files("`sim/src` `sim/no/such.rs` `sim and more`"), ["sim/no/such.rs"]);
    for page in pages() {
        let text = prose(&page);
        let missing = missing_files(&text);
        assert!(missing.is_empty(), "{}: {missing:?}", page.display());
    }
}

/// Names that a page says are in a file and that the file does not declare. A line that counts begins with a link to the file, and
/// has the names in backticks behind it.
fn strangers(page: &Path) -> (usize, Vec<String>) {
    let (text, mut named, mut strangers) = (prose(page), 0, Vec::new());
    for line in text.lines().filter(|line| line.starts_with("- [crates/")) {
        let (link, names) = line.split_once("](").unwrap().1.split_once("): ").unwrap();
        let source = fs::read_to_string(page.with_file_name(link)).unwrap();
        for name in names.split('`').skip(1).step_by(2) {
            let kinds = ["fn", "struct", "enum", "trait"];
            let declares = |kind: &str| {
                let ends = ["(", "<", " {", ":", ";"];
                ends.iter().any(|end| source.contains(&format!("{kind} {name}{end}")))
            };
            named += 1;
            if !kinds.into_iter().any(declares) {
                strangers.push(format!("{link}: {name}"));
            }
        }
    }
    (named, strangers)
}

#[test]
fn the_tour_names_what_is_there() {
    let (named, strangers) = strangers(&root().join("docs/tour.md"));
    assert!(named > 30, "the tour names {named} functions");
    assert!(strangers.is_empty(), "not in these files any more: {strangers:?}");
}

#[test]
fn a_name_that_is_gone_is_noticed() {
    let page = std::env::temp_dir().join(format!("rowen-tour-{}.md", std::process::id()));
    let source = root().join("crates/engine/src/core/ownership.rs");
    let line = format!("- [crates/x]({}): `owns`, `own`, `Ownership`, `disowns`\n", source.display());
    fs::write(&page, line).unwrap();
    let found = strangers(&page);
    fs::remove_file(&page).unwrap();
    assert_eq!(found.0, 4);
    let named: Vec<_> = found.1.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(named, ["own", "disowns"]);
}

/// The words of a picture's source, line by line.
fn words(source: &str) -> BTreeSet<&str> {
    let labels = source.split("label=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    labels.flat_map(|(label, _)| label.split("\\n")).map(str::trim).collect()
}

#[test]
fn pictures_say_what_their_sources_say() {
    for source in files(&["docs/pictures"], "dot") {
        let picture = fs::read_to_string(source.with_extension("svg")).unwrap();
        let text = fs::read_to_string(&source).unwrap();
        let missing: Vec<_> = words(&text).into_iter().filter(|word| !picture.contains(&format!("{word}<"))).collect();
        assert!(missing.is_empty(), "{}: run `make pictures`: {missing:?}", source.display());
    }
}
