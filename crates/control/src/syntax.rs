//! The syntax of LVM's text files, for metadata and configuration: `key = value`, `section { ... }`, and comments from
//! `#` to the end of the line. Values are numbers, strings with single, double or no quotes, and lists of these. The
//! parser accepts exactly what LVM's parser accepts, and reports errors with the same message at the same byte.
//!
//! Promise: any text gives a tree or an [`Error`] with its position. The text's length limits the size, and [`DEEPEST`]
//! the depth.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest depth of nested sections.
const DEEPEST: usize = 16;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    Number(i64),
    /// A number with a decimal point, as text.
    Real(String),
    Text(String),
    List(Vec<Value>),
}

/// The contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Value(Value),
    Section(Section),
}

/// An entry: its name, its contents, and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub node: Node,
    pub line: usize,
}

/// Entries in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    pub entries: Vec<Entry>,
    /// The line on which it begins.
    pub line: usize,
}

/// Why a text is invalid, and the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub line: usize,
    /// The byte of the syntax error, counted from 1. None: the syntax is correct, but a value is invalid.
    pub at: Option<usize>,
    pub why: String,
}

impl Error {
    /// LVM's message for a syntax error; for other errors the reason and the file.
    pub fn sentence(&self, path: &str) -> String {
        match self.at {
            Some(at) => format!("Parse error at byte {at} (line {}): {}", self.line, self.why),
            None => format!("Parse error in {path}, {self}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Error {}

/// An error about the value of a key.
pub fn wrong(line: usize, why: impl Into<String>) -> Error {
    Error { line, at: None, why: why.into() }
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

    /// The section of this name. It is an error if it does not exist.
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

    /// The value, or an error if it is missing.
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
        // An entry must stay on one line, so control characters are replaced by blanks.
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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Real(number) => f.write_str(number),
            Value::Text(text) => f.write_str(&quoted(text)),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::to_string).collect();
                write!(f, "[{}]", items.join(","))
            }
        }
    }
}

/// Reads a whole text.
pub fn parse(text: &str) -> Result<Section, Error> {
    let mut reader = Reader { text, token: Token::End, begins: 0, ends: 0, line: 1 };
    reader.advance()?;
    let mut root = Section { entries: Vec::new(), line: 1 };
    while reader.token != Token::End {
        root.entries.push(reader.entry(0)?);
    }
    Ok(root)
}

/// What a text is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Number,
    Real,
    /// In double quotes, with `\"` and `\\` in it.
    Quoted,
    /// In single quotes.
    Plain,
    /// A value without quotes.
    Bare,
    Name,
    Is,
    Opens,
    Closes,
    ListOpens,
    ListCloses,
    Comma,
    End,
}

struct Reader<'a> {
    text: &'a str,
    token: Token,
    /// The bytes of the token, and the line on which they begin.
    begins: usize,
    ends: usize,
    line: usize,
}

impl Reader<'_> {
    fn wrong<T>(&self, why: impl Into<String>) -> Result<T, Error> {
        Err(Error { line: self.line, at: Some(self.begins + 1), why: why.into() })
    }

    fn is(&self, at: usize, wanted: impl Fn(u8) -> bool) -> bool {
        self.text.as_bytes().get(at).is_some_and(|byte| wanted(*byte))
    }

    /// Goes on to the next token.
    fn advance(&mut self) -> Result<(), Error> {
        let takes_value = matches!(self.token, Token::Is | Token::ListOpens | Token::Comma);
        let bytes = self.text.as_bytes();
        let mut at = self.ends;
        loop {
            while self.is(at, |byte| byte.is_ascii_whitespace() || byte == 0x0b) {
                at += 1;
            }
            if !self.is(at, |byte| byte == b'#') {
                break;
            }
            while self.is(at, |byte| byte != b'\n' && byte != 0) {
                at += 1;
            }
        }
        self.line += bytes[self.begins..at].iter().filter(|byte| **byte == b'\n').count();
        self.begins = at;
        let Some(first) = bytes.get(at).copied().filter(|byte| *byte != 0) else {
            self.ends = at;
            self.token = Token::End;
            return Ok(());
        };
        let one = |token| (token, at + 1);
        (self.token, self.ends) = match first {
            b'{' => one(Token::Opens),
            b'}' => one(Token::Closes),
            b'[' => one(Token::ListOpens),
            b']' => one(Token::ListCloses),
            b',' => one(Token::Comma),
            b'=' => one(Token::Is),
            b'"' | b'\'' => {
                let mut end = at + 1;
                while self.is(end, |byte| byte != 0 && byte != first) {
                    let escapes = first == b'"' && bytes[end] == b'\\' && end + 1 < bytes.len();
                    end += 1 + usize::from(escapes);
                }
                // As in LVM, a string without its closing quote ends at the end of the text.
                let is_ended = self.is(end, |byte| byte == first);
                (if first == b'"' { Token::Quoted } else { Token::Plain }, end + usize::from(is_ended))
            }
            b'.' | b'+' | b'-' | b'0'..=b'9' if takes_value => {
                let (mut end, mut has_point) = (at + 1, first == b'.');
                loop {
                    if self.is(end, |byte| byte == b'.') && !has_point {
                        has_point = true;
                    } else if !self.is(end, |byte| byte.is_ascii_digit()) {
                        break;
                    }
                    end += 1;
                }
                (if has_point { Token::Real } else { Token::Number }, end)
            }
            _ => {
                let is_part = |byte: u8| !byte.is_ascii_whitespace() && !matches!(byte, 0 | b'#' | b'=' | b'{' | b'}');
                let mut end = at;
                while self.is(end, is_part) {
                    end += 1;
                }
                (if takes_value { Token::Bare } else { Token::Name }, end)
            }
        };
        Ok(())
    }

    /// The token as it stands.
    fn word(&self) -> &str {
        &self.text[self.begins..self.ends]
    }

    /// Goes on if the token is this one.
    fn pass(&mut self, token: Token) -> Result<(), Error> {
        if self.token != token {
            return self.wrong("unexpected token");
        }
        self.advance()
    }

    /// What is between the quotes.
    fn quoted(&self) -> Result<String, Error> {
        let word = self.word();
        let quote = &word[..1];
        let inner = match word.len() {
            1 => return self.wrong("expected a string token."),
            // As in LVM, a string that the end of the text cuts off loses its last character.
            _ => &word[1..word.len() - word.chars().next_back().map_or(1, char::len_utf8)],
        };
        if quote != "\"" {
            return Ok(inner.to_owned());
        }
        let mut text = String::with_capacity(inner.len());
        let mut rest = inner.chars().peekable();
        while let Some(c) = rest.next() {
            match rest.peek() {
                Some(&next @ ('"' | '\\')) if c == '\\' => {
                    text.push(next);
                    rest.next();
                }
                _ => text.push(c),
            }
        }
        Ok(text)
    }

    fn entry(&mut self, depth: usize) -> Result<Entry, Error> {
        let line = self.line;
        let name = match self.token {
            Token::Quoted | Token::Plain => self.quoted()?,
            Token::Name => self.word().to_owned(),
            _ => return self.wrong("unexpected token"),
        };
        self.advance()?;
        if name.is_empty() {
            return self.wrong("empty section identifier");
        }
        if self.token != Token::Opens {
            self.pass(Token::Is)?;
            return Ok(Entry { name, node: Node::Value(self.value()?), line });
        }
        if depth >= DEEPEST {
            return self.wrong(format!("sections are nested more than {DEEPEST} deep"));
        }
        self.advance()?;
        let mut section = Section { entries: Vec::new(), line };
        while self.token != Token::Closes {
            section.entries.push(self.entry(depth + 1)?);
        }
        self.advance()?;
        Ok(Entry { name, node: Node::Section(section), line })
    }

    fn value(&mut self) -> Result<Value, Error> {
        if self.token != Token::ListOpens {
            return self.single();
        }
        self.advance()?;
        let mut items = Vec::new();
        while self.token != Token::ListCloses {
            items.push(self.single()?);
            if self.token == Token::Comma {
                self.advance()?;
            }
        }
        self.advance()?;
        Ok(Value::List(items))
    }

    fn single(&mut self) -> Result<Value, Error> {
        let value = match self.token {
            Token::Number => Value::Number(self.number()?),
            Token::Real => Value::Real(self.word().to_owned()),
            Token::Quoted | Token::Plain => Value::Text(self.quoted()?),
            Token::Bare => Value::Text(self.word().to_owned()),
            _ => return self.wrong("expected a value"),
        };
        self.advance()?;
        Ok(value)
    }

    /// A whole number; as in C, one that begins with 0 is octal.
    fn number(&self) -> Result<i64, Error> {
        let digits = self.word().trim_start_matches('+');
        let unsigned = digits.trim_start_matches('-');
        let base = if unsigned.len() > 1 && unsigned.starts_with('0') { 8 } else { 10 };
        i64::from_str_radix(digits, base).or_else(|_| self.wrong("Failed to read int token."))
    }
}

#[cfg(test)]
#[path = "syntax_test.rs"]
mod tests;
