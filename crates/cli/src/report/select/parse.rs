//! The parser of criteria. Messages are LVM's, with the position of the error.

use super::moment;
use super::tree::{Comparison, Node, Operand, Operator};
use crate::failure::{Failure, Result};
use crate::report::field::Field;
use crate::report::fields;
use crate::report::listing;
use crate::report::value::Type;
use regex_lite::Regex;

/// The limit of nested parentheses.
const DEEPEST: usize = 64;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    prefix: &'static str,
    depth: usize,
}

pub fn parse(text: &str, prefix: &'static str) -> Result<Option<Node>> {
    // `all` selects as if there were no criteria.
    if text.is_empty() || text.trim() == "all" {
        return Ok(None);
    }
    if matches!(text.trim(), "help" | "?") {
        let lines = listing::typed_fields().into_iter().chain(listing::grammar()).collect();
        return Err(Failure::Shown(lines));
    }
    let mut reader = Reader { text, at: 0, prefix, depth: 0 };
    let root = reader.any()?;
    reader.skip_blanks();
    if !reader.rest().is_empty() {
        return Err(reader.wrong_here("Expecting logical operator"));
    }
    Ok(Some(root))
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let rest = self.rest().trim_start();
        let Some(found) = wanted.iter().find(|wanted| rest.starts_with(**wanted)) else { return false };
        self.skip_blanks();
        self.at += found.len();
        true
    }

    /// A message and the position of the error.
    fn wrong(&self, sentence: String, from: usize) -> Failure {
        let place = format!("Selection syntax error at '{}'.", &self.text[from..]);
        let help = "Use 'help' for selection to get more help.".to_owned();
        Failure::Failed(vec![sentence, place, help])
    }

    fn wrong_here(&self, sentence: &str) -> Failure {
        self.wrong(sentence.to_owned(), self.at)
    }

    fn any(&mut self) -> Result<Node> {
        let mut nodes = vec![self.all()?];
        while self.take(&["||", "#"]) {
            nodes.push(self.all()?);
        }
        Ok(Node::Any(nodes))
    }

    fn all(&mut self) -> Result<Node> {
        let mut nodes = vec![self.one()?];
        while self.take(&["&&", ","]) {
            nodes.push(self.one()?);
        }
        Ok(Node::All(nodes))
    }

    fn one(&mut self) -> Result<Node> {
        self.skip_blanks();
        let begun = self.at;
        let is_negated = self.take(&["!"]);
        if is_negated && !self.rest().starts_with('(') {
            return Err(Failure::failed(format!("Syntax error: left parenthesis expected at '{}'", self.rest())));
        }
        if !self.take(&["("]) {
            return self.comparison().map(Node::Compare);
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong("Too many parentheses within each other.".to_owned(), begun));
        }
        let inner = self.any()?;
        self.depth -= 1;
        if !self.take(&[")"]) {
            return Err(Failure::failed(format!("Syntax error: right parenthesis expected at '{}'", self.rest())));
        }
        Ok(if is_negated { Node::Not(Box::new(inner)) } else { inner })
    }

    fn comparison(&mut self) -> Result<Comparison> {
        let begun = self.at;
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..length];
        if name.is_empty() {
            return Err(self.wrong_here("Expecting field name"));
        }
        let Some(field) = fields::find(self.prefix, name) else {
            let mut lines = listing::typed_fields();
            lines.push(format!("Unrecognised selection field: {name}"));
            lines.extend(self.wrong(String::new(), begun).lines("").into_iter().skip(1).map(|l| l.trim().to_owned()));
            return Err(Failure::Failed(lines));
        };
        self.at += length;
        let operator = self.operator(field, begun)?;
        self.skip_blanks();
        let operand = self.operand(field, operator, begun)?;
        Ok(Comparison { field, operator, operand })
    }

    fn operator(&mut self, field: &Field, begun: usize) -> Result<Operator> {
        const OPERATORS: &[(&str, Operator)] = &[
            ("=~", Operator::Match),
            ("!~", Operator::NoMatch),
            ("!=", Operator::NotEqual),
            (">=", Operator::AtLeast),
            ("<=", Operator::AtMost),
            ("=", Operator::Equal),
            (">", Operator::More),
            ("<", Operator::Less),
        ];
        const TIMES: &[(&str, Operator)] = &[
            ("since", Operator::AtLeast),
            ("after", Operator::More),
            ("until", Operator::AtMost),
            ("before", Operator::Less),
        ];
        let words = if field.kind == Type::Time { TIMES } else { &[] };
        let Some((_, operator)) = OPERATORS.iter().chain(words).find(|(text, _)| self.take(&[text])) else {
            let mut lines = listing::grammar();
            lines.push(format!("Unrecognised comparison operator: {}", self.rest().trim_start()));
            return Err(self.with(lines, begun));
        };
        let is_regex = matches!(operator, Operator::Match | Operator::NoMatch);
        let is_ordering = !is_regex && !matches!(operator, Operator::Equal | Operator::NotEqual);
        if is_regex && field.kind != Type::Text {
            return Err(Failure::failed(format!(
                "dm_report: incompatible comparison type for selection field {}",
                field.name
            )));
        }
        if is_ordering && !field.kind.is_ordered() {
            let mut lines = listing::grammar();
            lines.push(format!(
                "Operator can be used only with number, size, time or percent fields: {}",
                &self.text[begun..]
            ));
            return Err(self.with(lines, begun));
        }
        Ok(*operator)
    }

    fn with(&self, mut lines: Vec<String>, begun: usize) -> Failure {
        if let Failure::Failed(place) = self.wrong(String::new(), begun) {
            lines.extend(place.into_iter().skip(1));
        }
        Failure::Failed(lines)
    }

    fn operand(&mut self, field: &'static Field, operator: Operator, begun: usize) -> Result<Operand> {
        if matches!(operator, Operator::Match | Operator::NoMatch) {
            return self.regex(field, begun);
        }
        match field.kind {
            Type::Text => self.string().map(Operand::Text).map_err(|why| self.unparsed(why, "string", field, begun)),
            Type::List => self.list().map_err(|why| self.unparsed(why, "string list", field, begun)),
            Type::Time => {
                let text = self.string().map_err(|why| self.unparsed(why, "time", field, begun))?;
                match moment::parse(&text) {
                    Some((first, last)) => Ok(Operand::Span(first, last)),
                    None => {
                        let why = format!("Unrecognized string in date/time specification at \"{text}\".");
                        Err(self.unparsed(&why, "time", field, begun))
                    }
                }
            }
            Type::Number | Type::Size | Type::Percent | Type::Flag => self.number(field, begun),
        }
    }

    fn unparsed(&self, why: &str, what: &str, field: &Field, begun: usize) -> Failure {
        let sentence = format!("Failed to parse {what} value for selection field {}.", field.name);
        let lines = (!why.is_empty()).then(|| why.to_owned()).into_iter().chain([sentence]).collect();
        self.with(lines, begun)
    }

    fn regex(&mut self, field: &Field, begun: usize) -> Result<Operand> {
        if self.rest().is_empty() {
            let sentence = format!("Regular expression expected for selection field {}", field.name);
            return Err(self.wrong(sentence, begun));
        }
        // Brackets quote, too, as in LVM.
        let closing = match self.rest().chars().next() {
            Some('(') => Some(')'),
            Some('[') => Some(']'),
            Some('{') => Some('}'),
            _ => None,
        };
        let text = match closing {
            Some(closing) => self.quoted(closing),
            None => self.string(),
        };
        let text = text.map_err(|why| self.unparsed(why, "regex", field, begun))?;
        match Regex::new(&text) {
            Ok(regex) => Ok(Operand::Regex(regex)),
            Err(why) => Err(self.unparsed(&format!("Regular expression \"{text}\": {why}."), "regex", field, begun)),
        }
    }

    /// The text between the quote or bracket at the cursor and `closing`.
    fn quoted(&mut self, closing: char) -> std::result::Result<String, &'static str> {
        let inner = self.rest().get(1..).unwrap_or_default();
        let length = inner.find(closing).ok_or("Missing end quote.")?;
        self.at += 1 + length + closing.len_utf8();
        Ok(inner[..length].to_owned())
    }

    fn string(&mut self) -> std::result::Result<String, &'static str> {
        match self.rest().chars().next() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            _ => Ok(self.word()),
        }
    }

    /// Characters up to a blank, a parenthesis or a logical operator.
    fn word(&mut self) -> String {
        let rest = self.rest();
        let is_end = |at: usize| {
            let rest = &rest[at..];
            rest.starts_with([' ', '\t', ',', '#', '(', ')', '[', ']', '{', '}'])
                || rest.starts_with("&&")
                || rest.starts_with("||")
        };
        let end = rest.char_indices().map(|(at, _)| at).find(|at| is_end(*at)).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn list(&mut self) -> std::result::Result<Operand, &'static str> {
        let (closing, is_whole) = match self.rest().chars().next() {
            Some('[') => ("]", true),
            Some('{') => ("}", false),
            _ => {
                let item = self.string()?;
                let items = if item.is_empty() { Vec::new() } else { vec![item] };
                return Ok(Operand::List { items, is_whole: false, is_any: false });
            }
        };
        self.at += 1;
        let mut items = Vec::new();
        let mut is_any = None;
        while !self.take(&[closing]) {
            self.skip_blanks();
            if !items.is_empty() {
                let any = if self.take(&["&&", ","]) {
                    false
                } else if self.take(&["||", "#"]) {
                    true
                } else {
                    return Err("Invalid operator in selection list.");
                };
                if *is_any.get_or_insert(any) != any {
                    return Err("Only one type of logical operator allowed in selection list at a time.");
                }
                self.skip_blanks();
            }
            let item = self.string()?;
            if item.is_empty() && self.rest().is_empty() {
                return Err("Invalid operator in selection list.");
            }
            items.push(item);
        }
        items.retain(|item| !item.is_empty());
        Ok(Operand::List { items, is_whole, is_any: is_any.unwrap_or(false) })
    }

    fn number(&mut self, field: &'static Field, begun: usize) -> Result<Operand> {
        if let Some(operand) = self.reserved(field) {
            return Ok(operand);
        }
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let digits = &rest[..length];
        let Ok(figure) = digits.parse::<f64>() else {
            return Err(self.unparsed("", "numeric", field, begun));
        };
        self.at += length;
        let whole: u64 = digits.split('.').next().unwrap_or_default().parse().unwrap_or(0);
        match field.kind {
            Type::Size => {
                // No exact number has more digits. A value beyond the largest size counts as the largest.
                let bytes = figure * self.unit();
                Ok(Operand::Number(if bytes >= u64::MAX as f64 { u64::MAX } else { bytes.round() as u64 }))
            }
            Type::Percent => {
                let _sign = self.rest().starts_with('%') && self.take(&["%"]);
                if figure > 100.0 {
                    return Err(Failure::failed(format!(
                        "Field selection value {digits} out of supported range for field {}.",
                        field.name
                    )));
                }
                Ok(Operand::Number((figure * 100.0).round() as u64))
            }
            _ => Ok(Operand::Number(whole)),
        }
    }

    /// The bytes of the unit at the cursor: lower case for powers of 1024, upper case for powers of 1000. Without a
    /// unit: mebibytes.
    fn unit(&mut self) -> f64 {
        const LETTERS: &str = "kmgtpe";
        let letter = self.rest().chars().next().unwrap_or(' ');
        let base: f64 = if letter.is_ascii_uppercase() { 1000.0 } else { 1024.0 };
        let factor = match letter.to_ascii_lowercase() {
            'b' => 1.0,
            's' => 512.0,
            lower => match LETTERS.find(lower) {
                Some(power) => base.powi(power as i32 + 1),
                None => return 1_048_576.0,
            },
        };
        self.at += 1;
        factor
    }

    /// A word that stands for a value of the field.
    fn reserved(&mut self, field: &'static Field) -> Option<Operand> {
        const UNKNOWN: &[&str] = &["-1", "unknown", "undefined", "undef"];
        let before = self.at;
        let word = self.string().unwrap_or_default();
        let found = match field.kind {
            _ if UNKNOWN.contains(&word.as_str()) => Some(Operand::Unknown),
            // A field whose type is size and whose value can be a word.
            Type::Size if word == "auto" && field.name == "lv_read_ahead" => Some(Operand::Unknown),
            Type::Flag => flag(field, &word).map(|is_set| Operand::Number(u64::from(is_set))),
            _ => None,
        };
        if found.is_none() {
            self.at = before;
        }
        found
    }
}

/// The value of a flag for a word. The flag's own word, or the first part of it, means set.
fn flag(field: &'static Field, word: &str) -> Option<bool> {
    match word {
        "yes" => return Some(true),
        "no" => return Some(false),
        "" => return None,
        _ => {}
    }
    let is_named = FLAG_WORDS
        .iter()
        .any(|(name, own)| *name == field.name && (*own == word || own.split(' ').next() == Some(word)));
    is_named.then_some(true)
}

/// The word that each flag is shown by.
const FLAG_WORDS: &[(&str, &str)] = &[
    ("lv_merging", "merging"),
    ("lv_skip_activation", "skip activation"),
    ("lv_autoactivation", "enabled"),
    ("lv_active_locally", "active locally"),
    ("lv_active_remotely", "active remotely"),
    ("lv_active_exclusively", "active exclusively"),
    ("lv_suspended", "suspended"),
    ("lv_live_table", "live table present"),
    ("lv_inactive_table", "inactive table present"),
    ("lv_device_open", "open"),
    ("lv_check_needed", "check needed"),
    ("lv_merge_failed", "merge failed"),
    ("lv_snapshot_invalid", "snapshot invalid"),
    ("vg_extendable", "extendable"),
    ("vg_exported", "exported"),
    ("vg_autoactivation", "enabled"),
    ("vg_partial", "partial"),
    ("vg_clustered", "clustered"),
    ("vg_shared", "shared"),
    ("pv_allocatable", "allocatable"),
    ("pv_exported", "exported"),
    ("pv_missing", "missing"),
    ("pv_in_use", "used"),
    ("pv_duplicate", "duplicate"),
    ("zero", "zero"),
];
