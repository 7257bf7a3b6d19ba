//! `-S`: criteria over fields, in LVM's grammar. `Criteria::parse` reads them, `is_met` asks a row. A comparison with a
//! value that is not there holds for none but `= unknown`.

mod moment;
mod parse;
#[cfg(test)]
mod select_test;

use super::fields::Field;
use super::value::Value;
use super::{Kind, Row};
use crate::backend::LabelledPv;
use crate::failure::Result;
use crate::options::Opt;
use crate::parse::Args;
use crate::report::index::Indexed;
use regex_lite::Regex;
use rowen_control::protocol::GroupReport;

/// What rows must meet.
#[derive(Debug)]
pub struct Criteria {
    root: Node,
}

#[derive(Debug)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Compare(Comparison),
}

#[derive(Debug)]
struct Comparison {
    field: &'static Field,
    operator: Operator,
    operand: Operand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
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
enum Operand {
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
    /// What has no value.
    Unknown,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Criteria {
    /// Reads criteria; `None`: there are none.
    pub fn parse(text: &str, prefix: &'static str) -> Result<Option<Criteria>> {
        parse::parse(text, prefix)
    }

    /// What `-S` of a command that changes things asks for.
    pub fn of_command(args: &Args, kind: Kind) -> Result<Option<Criteria>> {
        args.text(Opt::Select).map_or(Ok(None), |text| Criteria::parse(text, kind.prefix()))
    }

    /// Every field that is asked about.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        let mut fields = Vec::new();
        self.root.add_fields(&mut fields);
        fields.into_iter()
    }

    /// Whether it asks if devices are open.
    pub fn tells_use(&self) -> bool {
        self.fields().any(Field::tells_use)
    }

    pub fn is_met(&self, row: &Row<'_>) -> bool {
        self.root.is_met(row)
    }

    /// Whether the group, or anything in it, meets the criteria.
    pub fn takes_group(&self, report: &GroupReport) -> bool {
        let group = Indexed::new(report);
        self.any(super::rows::of_group(&group))
    }

    /// Those of the named volumes that meet the criteria.
    pub fn taken_volumes(&self, report: &GroupReport, names: &[String]) -> Vec<String> {
        let group = Indexed::new(report);
        let rows = super::rows::of_volumes(&group, names).filter(|row| self.any(*row));
        rows.filter_map(|row| row.volume).map(|volume| volume.name.clone()).collect()
    }

    /// Whether a labelled device meets the criteria; its group's report comes with it.
    pub fn takes_device(&self, group: Option<&Indexed<'_>>, label: &LabelledPv) -> bool {
        self.any(super::rows::of_label(label, group))
    }

    fn any(&self, row: Row<'_>) -> bool {
        let about = self.fields().map(|field| field.section.about());
        let finest = about.max_by_key(|about| *about as usize).unwrap_or(super::fields::About::Group);
        super::rows::refine(row, finest).iter().any(|part| self.is_met(part))
    }
}

impl Node {
    fn add_fields(&self, to: &mut Vec<&'static Field>) {
        match self {
            Node::All(nodes) | Node::Any(nodes) => nodes.iter().for_each(|node| node.add_fields(to)),
            Node::Not(node) => node.add_fields(to),
            Node::Compare(comparison) => to.push(comparison.field),
        }
    }

    fn is_met(&self, row: &Row<'_>) -> bool {
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

    /// Against a span: below it is less, above it is more.
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

/// The value as a number; `None` if it has no number, or one below zero.
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
