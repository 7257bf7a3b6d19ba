//! In which hour, day, week, month and year a time is, by the clock on the wall.

use crate::report::time::zone;
use jiff::Timestamp;
use jiff::Zoned;
use rowen_control::backup::Period;

fn zoned(seconds: u64) -> Zoned {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    moment.unwrap_or(Timestamp::MAX).to_zoned(zone())
}

/// Seconds on the clock on the wall.
fn wall(at: &Zoned) -> i64 {
    at.timestamp().as_second() + i64::from(at.offset().seconds())
}

/// A number for each period, which is equal for times in the same one.
pub fn bucket(period: Period, seconds: u64) -> i64 {
    let at = zoned(seconds);
    match period {
        Period::Frequent | Period::Hourly | Period::Daily => wall(&at).div_euclid(period.seconds() as i64),
        Period::Weekly => {
            let week = at.date().iso_week_date();
            i64::from(week.year()) * 54 + i64::from(week.week())
        }
        Period::Monthly => i64::from(at.year()) * 12 + i64::from(at.month()),
        Period::Yearly => i64::from(at.year()),
    }
}

/// Whether another snapshot is due: the newest one is of another span of this length, also of a later one.
pub fn is_due(newest: Option<u64>, now: u64, every: u64) -> bool {
    let span = |seconds| wall(&zoned(seconds)).div_euclid(every.max(1) as i64);
    newest.is_none_or(|newest| span(newest) != span(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_periods_of_the_wall() {
        // 2026-11-20 18:13:34, a Friday.
        let now = 1_795_198_414;
        let same = |period, before: u64| bucket(period, now) == bucket(period, now - before);
        assert!(same(Period::Hourly, 800) && !same(Period::Hourly, 900));
        assert!(same(Period::Daily, 18 * 3600) && !same(Period::Daily, 19 * 3600));
        assert!(same(Period::Weekly, 4 * 86400) && !same(Period::Weekly, 5 * 86400));
        assert!(same(Period::Monthly, 19 * 86400) && !same(Period::Monthly, 20 * 86400));
        assert!(same(Period::Yearly, 300 * 86400) && !same(Period::Yearly, 330 * 86400));
        assert_eq!(bucket(Period::Yearly, u64::MAX), 9999);
        assert!(is_due(None, now, 3600) && !is_due(Some(now - 800), now, 3600) && is_due(Some(now - 900), now, 3600));
        assert!(is_due(Some(now + 90 * 86400), now, 3600), "a clock that was ahead stops nothing");
    }
}
