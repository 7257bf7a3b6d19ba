//! Times in reports: in the machine's time zone and in the format of `report/time_format`.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// LVM's form: `2026-11-20 18:13:34 +0000`.
const USUAL: &str = "%Y-%m-%d %T %z";

/// The format of times in a report. [`TimeFormat::parse`] has checked it.
#[derive(Clone, Debug)]
pub struct TimeFormat {
    form: String,
    zone: TimeZone,
}

impl Default for TimeFormat {
    fn default() -> Self {
        TimeFormat { form: USUAL.to_owned(), zone: zone() }
    }
}

/// The machine's time zone; for tests UTC, wherever they run.
pub fn zone() -> TimeZone {
    if cfg!(test) { TimeZone::UTC } else { TimeZone::system() }
}

fn moment(seconds: u64) -> Timestamp {
    // A time beyond the calendar is shown as its end.
    i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::MAX)
}

impl TimeFormat {
    /// Parses a format of strftime.
    pub fn parse(form: &str) -> Option<TimeFormat> {
        let format = TimeFormat { form: form.to_owned(), zone: zone() };
        strtime::format(form, &moment(0).to_zoned(format.zone.clone())).ok().map(|_| format)
    }

    pub fn show(&self, seconds: u64) -> String {
        strtime::format(&self.form, &moment(seconds).to_zoned(self.zone.clone())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_calendars_get_wrong() {
        let usual = TimeFormat::default();
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 +0000"),
            (951_782_400, "2000-02-29 00:00:00 +0000"),
            (951_868_800, "2000-03-01 00:00:00 +0000"),
            (1_709_251_199, "2024-02-29 23:59:59 +0000"),
            (1_795_198_414, "2026-11-20 18:13:34 +0000"),
            (4_107_542_400, "2100-03-01 00:00:00 +0000"),
        ] {
            assert_eq!(usual.show(seconds), expected);
        }
        // A time beyond the calendar gives its last day, not a panic.
        assert!(usual.show(u64::MAX / 2).starts_with("9999-"));
    }

    #[test]
    fn forms_of_ones_own() {
        assert_eq!(TimeFormat::parse("%s").unwrap().show(1_795_198_414), "1795198414");
        assert_eq!(TimeFormat::parse("%Y/%m/%d week %V").unwrap().show(1_795_198_414), "2026/11/20 week 47");
        assert!(TimeFormat::parse("%").is_none());
    }
}
