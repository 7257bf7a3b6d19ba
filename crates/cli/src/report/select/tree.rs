//! Criteria as a tree of comparisons, and whether a row meets them.

use crate::report::field::Field;
use crate::report::row::Row;
use crate::report::value::Value;
use regex_lite::Regex;

#[derive(Debug)]
pub enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Compare(Comparison),
}

#[derive(Debug)]
pub struct Comparison {
    pub field: &'static Field,
    pub operator: Operator,
    pub operand: Operand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Match,
    NoMatch,
    Equal,
    NotEqual,
    AtLeast,
    More,
    AtMost,
    Less,
}

#[derive(Debug)]
pub enum Operand {
    Text(String),
    Regex(Regex),
    List {
        items: Vec<String>,
        is_whole: bool,
        is_any: bool,
    },
    /// As [`Value::order`] has it: numbers, bytes, ten-thousandths.
    Number(u64),
    /// Seconds since 1970, both included.
    Span(i64, i64),
    /// No value.
    Unknown,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Node {
    pub fn add_fields(&self, to: &mut Vec<&'static Field>) {
        match self {
            Node::All(nodes) | Node::Any(nodes) => nodes.iter().for_each(|node| node.add_fields(to)),
            Node::Not(node) => node.add_fields(to),
            Node::Compare(comparison) => to.push(comparison.field),
        }
    }

    pub fn is_met(&self, row: &Row<'_>) -> bool {
        match self {
            Node::All(nodes) => nodes.iter().all(|node| node.is_met(row)),
            Node::Any(nodes) => nodes.iter().any(|node| node.is_met(row)),
            Node::Not(node) => !node.is_met(row),
            Node::Compare(comparison) => comparison.is_met(&comparison.field.of(row)),
        }
    }
}

impl Comparison {
    fn is_met(&self, value: &Value<'_>) -> bool {
        match &self.operand {
            Operand::Regex(regex) => regex.is_match(text(value)) == (self.operator == Operator::Match),
            Operand::Text(wanted) => (text(value) == wanted) == (self.operator == Operator::Equal),
            Operand::List { items, is_whole, is_any } => {
                let of_row = if let Value::List(of_row) = value { of_row.as_slice() } else { &[] };
                has_items(of_row, items, *is_whole, *is_any) == (self.operator == Operator::Equal)
            }
            Operand::Number(wanted) => number(value).is_some_and(|number| self.compares(&number, wanted, wanted)),
            Operand::Span(first, last) => match value {
                Value::Time(seconds) => {
                    let seconds = i64::try_from(*seconds).unwrap_or(i64::MAX);
                    self.compares(&seconds, first, last)
                }
                _ => false,
            },
            Operand::Unknown => number(value).is_none() == (self.operator == Operator::Equal),
        }
    }

    /// Compares with a span: less means below it, greater above it.
    fn compares<T: Ord>(&self, value: &T, first: &T, last: &T) -> bool {
        match self.operator {
            Operator::Equal | Operator::Match => value >= first && value <= last,
            Operator::NotEqual | Operator::NoMatch => value < first || value > last,
            Operator::AtLeast => value >= first,
            Operator::More => value > last,
            Operator::AtMost => value <= last,
            Operator::Less => value < first,
        }
    }
}

fn text<'v>(value: &'v Value<'_>) -> &'v str {
    if let Value::Text(text) = value { text } else { "" }
}

/// The value as a number. `None`: it has none, or a negative one.
fn number(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Number(number) => u64::try_from(*number).ok(),
        Value::Size(size) => Some(*size),
        Value::Percent(part, whole) => Some(Value::ten_thousandths(*part, *whole)),
        Value::Flag(is_set, _) => is_set.map(u64::from),
        Value::Time(seconds) => Some(*seconds),
        Value::None | Value::Text(_) | Value::List(_) => None,
    }
}

fn has_items(of_row: &[String], items: &[String], is_whole: bool, is_any: bool) -> bool {
    if items.is_empty() {
        return of_row.is_empty();
    }
    let is_there = |item: &String| of_row.contains(item);
    let is_enough = if is_any { items.iter().any(is_there) } else { items.iter().all(is_there) };
    is_enough && (!is_whole || of_row.len() == items.len())
}
