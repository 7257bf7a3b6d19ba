//! The syntax of LVM's text files, metadata and configuration alike: `key = value`, `section { ... }`, comments from `#` to
//! the end of the line, numbers, quoted strings and lists of both.
//!
//! Promise: any text gives a tree or an [`Error`] that names the line; depth and size are bounded by the text's length and
//! [`DEEPEST`].

use std::fmt;

/// Sections within sections, at most.
const DEEPEST: usize = 16;

/// What stands behind a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
}

/// What a section holds under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Value(Value),
    Section(Section),
}

/// One line's worth: its name, what it holds, and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub node: Node,
    pub line: usize,
}

/// Entries in the order in which they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    pub entries: Vec<Entry>,
    /// The line on which it begins.
    pub line: usize,
}

/// Why a text makes no sense, and on which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub line: usize,
    pub why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Error {}

/// What a key must be, but is not.
pub fn wrong(line: usize, why: impl Into<String>) -> Error {
    Error { line, why: why.into() }
}

impl Section {
    /// The entry of this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The sections in it, with their names.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.entries.iter().filter_map(|entry| match &entry.node {
            Node::Section(section) => Some((entry.name.as_str(), section)),
            Node::Value(_) => None,
        })
    }

    /// The section of this name, which must be there.
    pub fn section(&self, name: &str) -> Result<&Section, Error> {
        self.sections()
            .find(|(known, _)| *known == name)
            .map(|(_, section)| section)
            .ok_or_else(|| wrong(self.line, format!("section \"{name}\" is missing")))
    }

    fn value(&self, name: &str) -> Option<(&Value, usize)> {
        self.entries.iter().find_map(|entry| match &entry.node {
            Node::Value(value) if entry.name == name => Some((value, entry.line)),
            _ => None,
        })
    }

    /// The text under `name`, if there is such a key.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        match self.value(name) {
            None => Ok(None),
            Some((Value::Text(text), _)) => Ok(Some(text)),
            Some((_, line)) => Err(wrong(line, format!("\"{name}\" must be a string in quotes"))),
        }
    }

    /// The number under `name`, if there is such a key; negative ones are refused.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        match self.value(name) {
            None => Ok(None),
            Some((Value::Number(number), line)) => match u64::try_from(*number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(wrong(line, format!("\"{name}\" must not be negative"))),
            },
            Some((_, line)) => Err(wrong(line, format!("\"{name}\" must be a number"))),
        }
    }

    /// The strings under `name`; none when there is no such key.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, Error> {
        let Some((value, line)) = self.value(name) else { return Ok(Vec::new()) };
        let refused = || wrong(line, format!("\"{name}\" must be a list of strings in quotes"));
        let Value::List(list) = value else { return Err(refused()) };
        list.iter()
            .map(|item| match item {
                Value::Text(text) => Ok(text.clone()),
                _ => Err(refused()),
            })
            .collect()
    }

    /// The same for what must be there.
    pub fn need<T>(&self, name: &str, found: Result<Option<T>, Error>) -> Result<T, Error> {
        found?.ok_or_else(|| wrong(self.line, format!("\"{name}\" is missing")))
    }
}

/// A string as the syntax writes it.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        // A line is a line; what a command line holds besides is shown as a blank.
        quoted.push(if c.is_control() { ' ' } else { c });
    }
    quoted.push('"');
    quoted
}

/// A list of strings as the syntax writes it.
pub fn list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}

/// Reads a whole text.
pub fn parse(text: &str) -> Result<Section, Error> {
    let mut reader = Reader { rest: text.chars().peekable(), line: 1 };
    let root = reader.section(0)?;
    Ok(root)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn wrong<T>(&self, why: impl Into<String>) -> Result<T, Error> {
        Err(wrong(self.line, why))
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    /// The next character that means something; it stays.
    fn look(&mut self) -> Option<char> {
        while let Some(&c) = self.rest.peek() {
            match c {
                '#' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                c if c.is_whitespace() => drop(self.next()),
                c => return Some(c),
            }
        }
        None
    }

    /// Entries up to the closing brace, or at the top up to the end.
    fn section(&mut self, depth: usize) -> Result<Section, Error> {
        if depth > DEEPEST {
            return self.wrong(format!("sections are nested more than {DEEPEST} deep"));
        }
        let mut section = Section { entries: Vec::new(), line: self.line };
        loop {
            match self.look() {
                None if depth == 0 => return Ok(section),
                None => {
                    let begun = section.line;
                    return self.wrong(format!("the text ends inside the section that begins on line {begun}"));
                }
                Some('}') if depth > 0 => {
                    self.next();
                    return Ok(section);
                }
                Some(_) => {}
            }
            let (name, line) = (self.name()?, self.line);
            let node = match self.look() {
                Some('=') => {
                    self.next();
                    Node::Value(self.value()?)
                }
                Some('{') => {
                    self.next();
                    Node::Section(self.section(depth + 1)?)
                }
                _ => return self.wrong(format!("\"{name}\" must be followed by = or {{")),
            };
            section.entries.push(Entry { name, node, line });
        }
    }

    fn name(&mut self) -> Result<String, Error> {
        let mut name = String::new();
        let allowed = |c: &char| c.is_ascii_alphanumeric() || "_+.-/".contains(*c);
        while let Some(c) = self.rest.next_if(allowed) {
            name.push(c);
        }
        match self.rest.peek() {
            _ if !name.is_empty() => Ok(name),
            Some(&c) => self.wrong(format!("{c:?} stands where a name should")),
            None => self.wrong("a name is missing"),
        }
    }

    fn value(&mut self) -> Result<Value, Error> {
        match self.look() {
            Some('[') => {
                self.next();
                self.list()
            }
            _ => self.single(),
        }
    }

    fn single(&mut self) -> Result<Value, Error> {
        match self.look() {
            Some('"') => {
                self.next();
                self.string().map(Value::Text)
            }
            Some(c) if c.is_ascii_digit() || c == '-' => {
                let mut digits = String::new();
                while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)) {
                    digits.push(c);
                }
                match digits.parse() {
                    Ok(number) => Ok(Value::Number(number)),
                    Err(_) => self.wrong(format!("\"{digits}\" is not a whole number")),
                }
            }
            Some(c) => self.wrong(format!("{c:?} stands where a value should: a number, a string in quotes or a list")),
            None => self.wrong("the text ends where a value should be"),
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => match self.next() {
                    Some(c) => text.push(c),
                    None => return self.wrong("the text ends inside a string"),
                },
                Some('\n') => {
                    self.line -= 1;
                    return self.wrong("a string does not end on its line");
                }
                Some(c) => text.push(c),
                None => return self.wrong("the text ends inside a string"),
            }
        }
    }

    fn list(&mut self) -> Result<Value, Error> {
        let mut items = Vec::new();
        loop {
            match self.look() {
                Some(']') => {
                    self.next();
                    return Ok(Value::List(items));
                }
                Some(',') if !items.is_empty() => {
                    self.next();
                    if self.look() == Some(']') {
                        return self.wrong("a list ends in a comma");
                    }
                    items.push(self.single()?);
                }
                Some(_) if items.is_empty() => items.push(self.single()?),
                Some(c) => return self.wrong(format!("{c:?} stands where a comma or ] should")),
                None => return self.wrong("the text ends inside a list"),
            }
        }
    }
}

#[cfg(test)]
#[path = "syntax_test.rs"]
mod tests;
