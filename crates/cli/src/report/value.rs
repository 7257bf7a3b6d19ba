//! Values of fields, their text and their order. A missing value is [`Value::None`]: blank in a report, last in an
//! order, and false in every comparison.

use super::time::TimeFormat;
use rowen_control::units::{Units, percent};
use std::borrow::Cow;
use std::cmp::Ordering;

/// The type of a field's values. It decides their alignment and their comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Text,
    List,
    Number,
    Size,
    Percent,
    Time,
    /// A flag: shown as a word or as 1 and 0.
    Flag,
}

impl Type {
    pub fn is_right(self) -> bool {
        matches!(self, Type::Number | Type::Size | Type::Flag)
    }

    /// Whether `<` and `>` can compare the values.
    pub fn is_ordered(self) -> bool {
        !matches!(self, Type::Text | Type::List)
    }

    /// In the list of fields for `--select`.
    pub fn shown(self) -> &'static str {
        match self {
            Type::Text => "string",
            Type::List => "string list",
            Type::Number | Type::Flag => "number",
            Type::Size => "size",
            Type::Percent => "percent",
            Type::Time => "time",
        }
    }
}

/// A field's value in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    None,
    /// Usually borrowed from the group's report: with ten thousand rows, copies of all names would take too long.
    Text(Cow<'a, str>),
    List(Vec<String>),
    Number(i64),
    /// Bytes.
    Size(u64),
    /// A part and the whole.
    Percent(u64, u64),
    /// Seconds since 1970.
    Time(u64),
    /// Whether it is set (`None`: unknown), and the word for it.
    Flag(Option<bool>, &'static str),
}

/// How values are shown.
#[derive(Clone, Debug)]
pub struct Style {
    pub units: Units,
    pub has_suffix: bool,
    /// Flags as 1, 0 and -1.
    pub is_binary: bool,
    pub time: TimeFormat,
    pub between_items: String,
}

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Cow<'a, str>>) -> Value<'a> {
        Value::Text(text.into())
    }

    pub fn number(number: u64) -> Value<'a> {
        Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub fn count(count: usize) -> Value<'a> {
        Value::number(count as u64)
    }

    /// A list in the order of its items.
    pub fn list(items: impl IntoIterator<Item = impl Into<String>>) -> Value<'a> {
        let mut items: Vec<String> = items.into_iter().map(Into::into).collect();
        items.sort();
        Value::List(items)
    }

    pub fn flag(is_set: bool, word: &'static str) -> Value<'a> {
        Value::Flag(Some(is_set), word)
    }

    /// Whether its formatting takes noticeable time.
    pub fn is_figure(&self) -> bool {
        matches!(self, Value::Size(_) | Value::Percent(..) | Value::Time(_))
    }

    /// Appends the text that a report shows.
    pub fn show_to(&self, style: &Style, to: &mut String) {
        match self {
            Value::None => {}
            Value::Text(text) => to.push_str(text),
            _ => to.push_str(&self.show(style)),
        }
    }

    pub fn show(&self, style: &Style) -> String {
        match self {
            Value::None => String::new(),
            Value::Text(text) => text.clone().into_owned(),
            Value::List(items) => items.join(&style.between_items),
            Value::Number(number) => number.to_string(),
            Value::Size(size) => style.units.show(*size, style.has_suffix),
            Value::Percent(part, whole) => percent(*part, *whole),
            Value::Time(seconds) => style.time.show(*seconds),
            Value::Flag(is_set, _) if style.is_binary => match is_set {
                Some(true) => "1",
                Some(false) => "0",
                None => "-1",
            }
            .to_owned(),
            Value::Flag(Some(true), word) => (*word).to_owned(),
            Value::Flag(Some(false), _) => String::new(),
            Value::Flag(None, _) => "unknown".to_owned(),
        }
    }

    /// The value in typed JSON: a number without quotes, a list as an array, a missing value as null.
    pub fn show_typed(&self, style: &Style) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Value::None => "null".to_owned(),
            Value::List(items) => format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(",")),
            Value::Flag(Some(is_set), _) => u8::from(*is_set).to_string(),
            Value::Flag(None, _) => "null".to_owned(),
            Value::Number(_) | Value::Size(_) | Value::Percent(..) => {
                let shown = self.show(style);
                let is_number = shown.parse::<f64>().is_ok();
                if is_number { shown } else { quoted(shown.trim_end()) }
            }
            Value::Text(_) | Value::Time(_) => quoted(&self.show(style)),
        }
    }

    /// A percentage in ten-thousandths.
    pub fn ten_thousandths(part: u64, whole: u64) -> u64 {
        percent(part, whole).replace('.', "").parse().unwrap_or(10_000)
    }

    /// The order of rows. Missing and negative values come last.
    pub fn order(&self, other: &Value<'_>) -> Ordering {
        match (self, other) {
            // The bracket of a hidden name does not count.
            (Value::Text(a), Value::Text(b)) => a.trim_start_matches('[').cmp(b.trim_start_matches('[')),
            (Value::List(a), Value::List(b)) => a.is_empty().cmp(&b.is_empty()).then_with(|| a.cmp(b)),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u64 {
        match self {
            Value::Number(number) => u64::try_from(*number).unwrap_or(u64::MAX),
            Value::Size(size) => *size,
            Value::Percent(part, whole) => Value::ten_thousandths(*part, *whole),
            Value::Time(seconds) => *seconds,
            Value::Flag(Some(is_set), _) => u64::from(*is_set),
            // If only some rows have text, those come first.
            Value::Text(_) | Value::List(_) => 0,
            Value::None | Value::Flag(None, _) => u64::MAX,
        }
    }
}
