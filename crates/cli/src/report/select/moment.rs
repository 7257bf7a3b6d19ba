//! Times in criteria. An incomplete date is a span: `2026` is the whole year, `2026-11-20 18` one hour.

use crate::report::time::zone;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, Timestamp, ToSpan, Zoned};

/// The first and the last second that `text` stands for.
pub fn parse(text: &str) -> Option<(i64, i64)> {
    let text = text.trim();
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = seconds.parse().ok()?;
        return Some((seconds, seconds));
    }
    named(text).or_else(|| ago(text)).or_else(|| dated(text))
}

fn now() -> Zoned {
    Timestamp::now().to_zoned(zone())
}

/// The span from `from` with this length.
fn span(from: DateTime, zone: &TimeZone, length: Span) -> Option<(i64, i64)> {
    let until = from.checked_add(length).ok()?;
    let second = |moment: DateTime| moment.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp().as_second());
    Some((second(from)?, second(until)?.saturating_sub(1)))
}

/// `today`, `yesterday`, and days of the week: the last such day, today included.
fn named(text: &str) -> Option<(i64, i64)> {
    const DAYS: [(&str, Weekday); 7] = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let today = now().date();
    let lower = text.to_ascii_lowercase();
    let date = match lower.as_str() {
        "today" => today,
        "yesterday" => today.yesterday().ok()?,
        _ => {
            let (_, day) = DAYS.iter().find(|(name, _)| *name == lower)?;
            let back = today.weekday().since(*day);
            today.checked_sub(i64::from(back).days()).ok()?
        }
    };
    span(date.at(0, 0, 0, 0), &zone(), 1.day())
}

/// `2 weeks ago`, `1 year`, `3 days 2 hours ago`: a moment in the past.
fn ago(text: &str) -> Option<(i64, i64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = match words.as_slice() {
        [rest @ .., "ago"] => rest,
        all => all,
    };
    if words.is_empty() || words.len() % 2 != 0 {
        return None;
    }
    let mut moment = now();
    for pair in words.chunks(2) {
        let count: i64 = pair[0].parse().ok().filter(|count| (0..1_000_000).contains(count))?;
        let span = match pair[1].trim_end_matches('s') {
            "second" | "sec" => count.seconds(),
            "minute" | "min" => count.minutes(),
            "hour" | "hr" => count.hours(),
            "day" => count.days(),
            "week" | "wk" => count.weeks(),
            "fortnight" => (2 * count).weeks(),
            "month" => Span::new().try_months(count).ok()?,
            "year" | "yr" => Span::new().try_years(count).ok()?,
            _ => return None,
        };
        moment = moment.checked_sub(span).ok()?;
    }
    let second = moment.timestamp().as_second();
    Some((second, second))
}

/// `YYYY[-MM[-DD]] [HH[:MM[:SS]]] [+HH[:]MM]`.
fn dated(text: &str) -> Option<(i64, i64)> {
    let mut words = text.split_whitespace();
    let (date, date_length) = date(words.next()?)?;
    let (mut zone, mut moment, mut length) = (zone(), date.at(0, 0, 0, 0), date_length);
    for word in words {
        match offset(word) {
            Some(offset) => zone = TimeZone::fixed(offset),
            None => (moment, length) = clock(date, word)?,
        }
    }
    span(moment, &zone, length)
}

fn date(word: &str) -> Option<(Date, Span)> {
    let parts: Vec<i16> = word.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let small = |part: i16| i8::try_from(part).ok();
    match parts[..] {
        [year] => Some((Date::new(year, 1, 1).ok()?, 1.year())),
        [year, month] => Some((Date::new(year, small(month)?, 1).ok()?, 1.month())),
        [year, month, day] => Some((Date::new(year, small(month)?, small(day)?).ok()?, 1.day())),
        _ => None,
    }
}

fn clock(date: Date, word: &str) -> Option<(DateTime, Span)> {
    let parts: Vec<i8> = word.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let at = |hour, minute, second| DateTime::new(date.year(), date.month(), date.day(), hour, minute, second, 0).ok();
    match parts[..] {
        [hour] => Some((at(hour, 0, 0)?, 1.hour())),
        [hour, minute] => Some((at(hour, minute, 0)?, 1.minute())),
        [hour, minute, second] => Some((at(hour, minute, second)?, 1.second())),
        _ => None,
    }
}

fn offset(word: &str) -> Option<Offset> {
    let (sign, rest) = match (word.strip_prefix('+'), word.strip_prefix('-')) {
        (Some(rest), _) => (1, rest),
        (None, Some(rest)) => (-1, rest),
        (None, None) => return None,
    };
    let digits = rest.replace(':', "");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match digits.len() {
        2 => (digits.parse::<i32>().ok()?, 0),
        4 => (digits[..2].parse().ok()?, digits[2..].parse::<i32>().ok()?),
        _ => return None,
    };
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}
