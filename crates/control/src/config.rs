//! Settings by their path, `section/key`, from a file or `--config`. This module owns how texts override each other,
//! and how LVM understands a value. It knows no setting by name: [`settings`](crate::settings) has those that Rowen
//! uses.

use crate::syntax::{self, Error, Node, Section, Value};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Settings in the order in which they were first given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    entries: Vec<Entry>,
}

/// One setting, or a section that has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub path: String,
    /// None: a section.
    pub value: Option<Value>,
    pub line: usize,
}

impl Config {
    /// Reads a text. If a setting is given twice, the last one counts.
    pub fn read(text: &str) -> Result<Config, Error> {
        let mut config = Config::default();
        config.add_section(&syntax::parse(text)?, "");
        Ok(config)
    }

    fn add_section(&mut self, section: &Section, above: &str) {
        for entry in &section.entries {
            let parts = above.split('/').chain(entry.name.split('/')).filter(|part| !part.is_empty());
            let path = parts.collect::<Vec<_>>().join("/");
            match &entry.node {
                Node::Value(value) => self.set(&path, Some(value.clone()), entry.line),
                Node::Section(inner) if inner.entries.is_empty() => self.set(&path, None, entry.line),
                Node::Section(inner) => self.add_section(inner, &path),
            }
        }
    }

    /// Gives a setting a value.
    pub fn set(&mut self, path: &str, value: Option<Value>, line: usize) {
        let entry = Entry { path: path.to_owned(), value, line };
        match self.entries.iter_mut().find(|known| known.path == path) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Settings of `other` come before these.
    pub fn add(&mut self, other: Config) {
        for entry in other.entries {
            self.set(&entry.path, entry.value, entry.line);
        }
    }

    /// Everything that is given.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Removes entries for which `keep` is false.
    pub fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
    }

    /// The setting of this path.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path)
    }

    /// The value of a setting that was given.
    pub fn value(&self, path: &str) -> Option<&Value> {
        self.entry(path)?.value.as_ref()
    }

    /// The same as a text; a number is its digits.
    pub fn text(&self, path: &str) -> Option<String> {
        match self.value(path)? {
            Value::Text(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Real(number) => Some(number.clone()),
            Value::List(_) => None,
        }
    }

    /// The same as a switch, which may be a word.
    pub fn is_on(&self, path: &str) -> Option<bool> {
        switch(self.value(path)?)
    }

    /// The same as a list of strings; a single value is a list of one. None: the setting does not exist.
    pub fn texts(&self, path: &str) -> Option<Vec<String>> {
        let strings = |value: &Value| match value {
            Value::Text(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        match self.value(path)? {
            Value::List(items) => Some(items.iter().filter_map(strings).collect()),
            one => Some(strings(one).into_iter().collect()),
        }
    }

    /// The names of the sections in a section, also of empty ones.
    pub fn sections(&self, above: &str) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for entry in &self.entries {
            let Some(rest) = entry.path.strip_prefix(above).and_then(|rest| rest.strip_prefix('/')) else { continue };
            let name = match (rest.split_once('/'), &entry.value) {
                (Some((name, _)), _) => name,
                (None, None) => rest,
                (None, Some(_)) => continue,
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// All settings as a text; with `path` only the setting or section of that name, if it exists.
    pub fn write(&self, path: Option<&str>) -> Option<String> {
        let mut text = String::new();
        let Some(path) = path else {
            write_all(&mut text, &self.rows(""), 0);
            return Some(text);
        };
        let path = path.trim_matches('/');
        let name = path.rsplit('/').next().unwrap_or(path);
        if let Some(Entry { value: Some(value), .. }) = self.entry(path) {
            writeln!(text, "{name}={value}").ok()?;
            return Some(text);
        }
        let rows = self.rows(path);
        if rows.is_empty() && self.entry(path).is_none() {
            return None;
        }
        text.push_str(&format!("{name} {{\n"));
        write_all(&mut text, &rows, 1);
        text.push_str("}\n");
        Some(text)
    }

    /// The entries below a path, with their relative paths.
    fn rows(&self, above: &str) -> Vec<(&str, Option<&Value>)> {
        let below = |entry: &'_ Entry| match above {
            "" => Some(0),
            _ => entry.path.strip_prefix(above)?.starts_with('/').then_some(above.len() + 1),
        };
        let rows = self.entries.iter().filter_map(|entry| Some((&entry.path[below(entry)?..], entry.value.as_ref())));
        rows.collect()
    }
}

/// Writes the contents of a section. A nested section is at the place of its first setting.
fn write_all(to: &mut String, rows: &[(&str, Option<&Value>)], depth: usize) {
    let tabs = "\t".repeat(depth);
    let mut done: Vec<&str> = Vec::new();
    for (path, value) in rows {
        let (name, is_deeper) = path.split_once('/').map_or((*path, false), |(name, _)| (name, true));
        if let (false, Some(value)) = (is_deeper, value) {
            to.push_str(&format!("{tabs}{name}={value}\n"));
            continue;
        }
        if done.contains(&name) {
            continue;
        }
        done.push(name);
        let inner = rows.iter().filter_map(|(path, value)| {
            let rest = path.strip_prefix(name)?.strip_prefix('/')?;
            Some((rest, *value))
        });
        to.push_str(&format!("{tabs}{name} {{\n"));
        write_all(to, &inner.collect::<Vec<_>>(), depth + 1);
        to.push_str(&format!("{tabs}}}\n"));
    }
}

/// The values that LVM takes for yes and no.
pub fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Number(number) => Some(*number != 0),
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "on" | "true" => Some(true),
            "n" | "no" | "off" | "false" => Some(false),
            _ => None,
        },
        Value::Real(_) | Value::List(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms() {
        let text =
            "report/time_format=\"%s\" report { headings = 0 sub { x=[1, \"2\"] } } a=b tags { @one {} two { x=1 } }";
        let config = Config::read(text).unwrap();
        assert_eq!(config.text("report/time_format").as_deref(), Some("%s"));
        assert_eq!(config.text("report/headings").as_deref(), Some("0"));
        assert_eq!(config.is_on("report/headings"), Some(false));
        assert_eq!(config.texts("report/sub/x"), Some(vec!["2".to_owned()]));
        assert_eq!(config.texts("a"), Some(vec!["b".to_owned()]));
        assert_eq!(config.texts("b"), None);
        assert_eq!(config.sections("tags"), ["@one", "two"]);
        assert!(Config::read("activation { retry_deactivation = 1} ").is_ok());
        assert_eq!(
            Config::read("a=On b=FALSE c=maybe").map(|c| ["a", "b", "c"].map(|key| c.is_on(key))),
            Ok([Some(true), Some(false), None])
        );
    }

    #[test]
    fn the_last_counts_and_what_is_laid_over_comes_first() {
        let mut config = Config::read("a { x = 1 y = 2 } a/x = 3").unwrap();
        config.add(Config::read("a/y = 4 b = 5").unwrap());
        assert_eq!(config.write(None).as_deref(), Some("a {\n\tx=3\n\ty=4\n}\nb=5\n"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = "log {\n\tindent=1\n\tfile=\"a \\\"b\\\"\"\n\tdeep {\n\t\tlist=[\"x\",2]\n\t\tnone=[]\n\t}\n}\ntags {\n\t@foo {\n\t}\n}\nlast=1.5\n";
        let config = Config::read(text).unwrap();
        assert_eq!(config.write(None).as_deref(), Some(text));
        assert_eq!(config.write(Some("log/indent")).as_deref(), Some("indent=1\n"));
        assert_eq!(config.write(Some("log/deep")).as_deref(), Some("deep {\n\tlist=[\"x\",2]\n\tnone=[]\n}\n"));
        assert_eq!(config.write(Some("tags/@foo")).as_deref(), Some("@foo {\n}\n"));
        assert_eq!(config.write(Some("log/nothing")), None);
        assert_eq!(config.write(Some("lo")), None);
    }
}
