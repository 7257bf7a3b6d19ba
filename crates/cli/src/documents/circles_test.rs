//! Files that need each other can only be understood together. So no files of these crates form a circle: a file refers to
//! another if a path in it leads to something that is defined there. A module that only passes a name on (`pub use`) does not
//! count. Methods of a type can lie in several files; a call does not count, a type's name does.

use super::pages_test::{root, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Circles that exist, by one of their files, and how many files they have. They shrink: the test fails if a circle has more
/// files than it says here, or fewer, or is gone.
const KNOWN: [(&str, &str, usize); 0] = [];
const CRATES: [&str; 5] = ["engine", "control", "transfer", "cli", "web"];
/// Names in a path that begin somewhere else than in the module itself.
const ROOTS: [&str; 3] = ["crate", "self", "super"];

type Module = Vec<String>;

struct Use {
    path: Vec<String>,
    /// By which name the module knows it; `*`: all that is there.
    name: String,
    is_passed_on: bool,
}

struct Source {
    file: String,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Paths in the code itself.
    paths: Vec<Vec<String>>,
}

/// The code without comments, strings, characters and tests.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => end_of_string(rest),
            'r' if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            '\'' => end_of_char(rest),
            _ => 0,
        };
        match skipped {
            0 => code.push(c),
            _ => code.push(' '),
        }
        rest = &rest[skipped.max(c.len_utf8())..];
    }
    let words: Vec<&str> = code.split("#[cfg(test)]").collect();
    let is_module = |part: &&str| {
        let mut words = part.lines().filter(|line| !line.starts_with("#[")).flat_map(str::split_whitespace);
        words.next() == Some("mod") && words.nth(1) == Some("{")
    };
    let end = words.iter().position(is_module).unwrap_or(words.len());
    words[..end].concat()
}

fn end_of_string(text: &str) -> usize {
    let mut is_escaped = true; // The quote that begins it does not end it.
    for (i, c) in text.char_indices() {
        match c {
            '"' if !is_escaped => return i + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

/// Behind a character; 0 for a lifetime.
fn end_of_char(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |end| 3 + end + 1),
        Some((_, c)) if text[1 + c.len_utf8()..].starts_with('\'') => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// `a::{b, c::{d as e, self}}` as single paths.
fn paths_of(tree: &str, before: &[String], out: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    let names =
        |text: &str| text.split("::").map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect();
    if let Some((head, list)) = tree.split_once('{') {
        let head: Vec<String> = names(head);
        let before = [before, &head].concat();
        let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
        let (mut depth, mut from) = (0, 0);
        for (i, c) in list.char_indices().chain([(list.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    paths_of(&list[from..i], &before, out);
                    from = (i + 1).min(list.len());
                }
                _ => {}
            }
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = [before, &names(path)].concat();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    if let Some(last) = path.last() {
        let name = alias.unwrap_or(last).to_owned();
        out.push((path, name));
    }
}

/// The word that a declaration on this line declares.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    });
    let mut words = line.split_whitespace().skip_while(|word| ["async", "unsafe"].contains(word)).peekable();
    let mut kind = words.next()?;
    if kind == "const" && words.peek() == Some(&"fn") {
        kind = words.next()?;
    }
    let is_kind = ["struct", "enum", "fn", "const", "static", "type", "trait", "union", "macro_rules!"].contains(&kind);
    let name = words.next().filter(|_| is_kind)?;
    Some(name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(name))
}

fn source_of(file: &str, text: &str) -> Source {
    let code = code_of(text);
    let mut uses = Vec::new();
    let mut body = String::new();
    let mut rest = code.as_str();
    loop {
        let is_use = |at: usize| {
            let line = rest[..at].rsplit('\n').next().unwrap_or("").trim();
            line.is_empty() || line.starts_with("pub") && !line.contains(' ')
        };
        let Some(at) = rest.match_indices("use ").map(|(at, _)| at).find(|at| is_use(*at)) else { break };
        let is_passed_on = rest[..at].trim_end().ends_with(['b', ')']) && rest[..at].rsplit('\n').next() != Some("");
        let end = rest[at..].find(';').map_or(rest.len(), |end| at + end);
        let mut paths = Vec::new();
        paths_of(&rest[at + 4..end], &[], &mut paths);
        uses.extend(paths.into_iter().map(|(path, name)| Use { path, name, is_passed_on }));
        body.push_str(&rest[..at]);
        rest = &rest[end..];
    }
    body.push_str(rest);
    let words = body.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let paths = words.map(|word| word.trim_matches(':')).filter(|word| word.contains("::"));
    Source {
        file: file.to_owned(),
        items: body.lines().filter_map(declared).map(String::from).collect(),
        uses,
        paths: paths.map(|path| path.split("::").map(String::from).collect()).collect(),
    }
}

struct Files(BTreeMap<Module, Source>);

impl Files {
    /// From the names of files, as they lie in `src`, and what is in them.
    fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Files {
        let module = |file: &str| -> Module {
            let file = file.trim_end_matches(".rs").trim_end_matches("/mod");
            if ["lib", "main"].contains(&file) { Vec::new() } else { file.split('/').map(String::from).collect() }
        };
        Files(files.into_iter().map(|(file, text)| (module(file), source_of(file, text))).collect())
    }

    fn of(name: &str) -> Files {
        let src = root().join("crates").join(name).join("src");
        let mut found = sources(&src, &src);
        found.retain(|(file, _)| !file.ends_with("_test.rs"));
        assert!(found.len() >= 5, "where is the crate {name}?");
        Files::new(found.iter().map(|(file, text)| (file.as_str(), text.as_str())))
    }

    fn child(&self, module: &[String], name: &str) -> Option<Module> {
        let child = [module, &[name.to_owned()]].concat();
        self.0.contains_key(&child).then_some(child)
    }

    /// Where a path begins that stands in `module`; none: in another crate, or in the module itself.
    fn begin<'p>(&self, module: &Module, path: &'p [String]) -> Option<(Module, &'p [String])> {
        match path.first()?.as_str() {
            "crate" => Some((Vec::new(), &path[1..])),
            "self" => Some((module.clone(), &path[1..])),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                Some((module[..module.len().checked_sub(up)?].to_vec(), &path[up..]))
            }
            first => self.child(module, first).map(|_| (module.clone(), path)),
        }
    }

    /// The module that defines what the path names, from `module` on. `depth` ends circles of names.
    fn defines(&self, module: &Module, path: &[String], depth: u32) -> Option<Module> {
        let Some(first) = path.first() else { return Some(module.clone()) };
        if let Some(child) = self.child(module, first) {
            return self.defines(&child, &path[1..], depth);
        }
        let source = self.0.get(module).filter(|_| depth < 16)?;
        if first == "*" || source.items.contains(first) {
            return Some(module.clone());
        }
        let named = source.uses.iter().filter(|u| u.name == *first || u.name == "*" && u.is_passed_on);
        named.into_iter().find_map(|u| {
            let whole = match u.name.as_str() {
                "*" => [&u.path[..u.path.len() - 1], path].concat(),
                _ => [&u.path[..], &path[1..]].concat(),
            };
            let (from, rest) = self.begin(module, &whole)?;
            self.defines(&from, rest, depth + 1)
        })
    }

    /// The modules that each refers to.
    fn references(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |(module, source): (&'_ Module, &'_ Source)| -> BTreeSet<Module> {
            let used = source.uses.iter().filter(|u| !u.is_passed_on).map(|u| u.path.clone());
            // A path in the code begins with a module that was imported, or with one that is below.
            let named = source.paths.iter().map(|path| {
                let import = source.uses.iter().find(|u| u.name == path[0] && !ROOTS.contains(&path[0].as_str()));
                import.map_or_else(|| path.clone(), |u| [&u.path[..], &path[1..]].concat())
            });
            let found = used.chain(named).filter_map(|path| {
                let (from, rest) = self.begin(module, &path)?;
                // Behind a type come its own names.
                (1..=rest.len()).rev().find_map(|end| self.defines(&from, &rest[..end], 0))
            });
            found.filter(|other| other != module).collect()
        };
        self.0.iter().map(|entry| (entry.0, of(entry))).collect()
    }

    /// Files that lead back to themselves, each circle with all its files.
    fn circles(&self) -> Vec<Vec<&str>> {
        let references = self.references();
        let mut reached: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
        for from in self.0.keys() {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(module) = next.pop() {
                next.extend(references[module].iter().filter(|other| seen.insert(*other)));
            }
            reached.insert(from, seen);
        }
        let circle = |from: &&Module| -> Vec<&Module> {
            reached[*from].iter().copied().filter(|other| reached[other].contains(*from)).collect()
        };
        let circles: BTreeSet<Vec<&Module>> = self.0.keys().map(|from| circle(&from)).collect();
        let names = |circle: Vec<&Module>| circle.into_iter().map(|module| self.0[module].file.as_str()).collect();
        circles.into_iter().filter(|circle| !circle.is_empty()).map(names).collect()
    }
}

#[test]
fn files_form_no_circles() {
    for name in CRATES {
        let files = Files::of(name);
        let mut circles = files.circles();
        for (_, file, size) in KNOWN.into_iter().filter(|(of, ..)| *of == name) {
            let at = circles.iter().position(|circle| circle.contains(&file));
            let found = at.map_or(0, |at| circles.swap_remove(at).len());
            assert_eq!(found, size, "{name}: the circle of {file} has another size now; if it is smaller, say so here");
        }
        let references = files.references();
        let lines = circles.iter().flatten().map(|file| {
            let (module, _) = files.0.iter().find(|(_, source)| source.file == *file).unwrap();
            let all = references[module].iter().map(|other| files.0[other].file.as_str());
            let within = all.filter(|other| circles.iter().any(|c| c.contains(file) && c.contains(other)));
            format!("{file} -> {}", within.collect::<Vec<_>>().join(" "))
        });
        assert!(circles.is_empty(), "{name}: these files need each other:\n{}", lines.collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn a_circle_is_found_through_names_that_are_passed_on() {
    let files = [
        ("lib.rs", "mod a; pub mod b; use a::First;"),
        ("a/mod.rs", "mod c;\npub use c::*;\npub struct First;"),
        ("a/c.rs", "use crate::{\n    b::{Other as Another},\n};\npub struct Second(Another);"),
        (
            "b.rs",
            "// crate::nothing\nconst TEXT: &str = \"super::a\";\nuse crate::a;\npub struct Other(Box<a::Second>);",
        ),
    ];
    assert_eq!(Files::new(files).circles(), [["a/c.rs", "b.rs"]]);
}

#[test]
fn names_that_are_passed_on_are_no_circle() {
    let files = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod c;\npub use c::Second;\npub struct First;"),
        ("a/c.rs", "use super::First;\npub struct Second(First);\n#[cfg(test)]\nmod tests { use super::super::*; }"),
    ];
    assert!(Files::new(files).circles().is_empty());
    let through = [files[0], ("a/mod.rs", "mod c;\nuse c::Second;\npub struct First;"), files[2]];
    assert_eq!(Files::new(through).circles(), [["a/mod.rs", "a/c.rs"]]);
}
