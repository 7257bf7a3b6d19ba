//! Times in reports, names and documents, in UTC.

/// Year, month, day, hour, minute, second of a count of seconds since 1970.
fn civil(seconds: u64) -> (u64, u64, u64, u64, u64, u64) {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Counted in eras of 400 years that begin on the first of March, so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// `2026-11-20 18:13:34 +0000`.
pub fn long(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} +0000")
}

/// `20261120181334`, for names.
pub fn compact(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(seconds);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// `Fri Nov 20 18:13:34 2026`, as C's `ctime` has it.
pub fn ctime(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day, hour, minute, second) = civil(seconds);
    let weekday = DAYS[(seconds / 86_400 % 7) as usize];
    let month = MONTHS[(month - 1) as usize];
    format!("{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_calendars_get_wrong() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 +0000"),
            (951_782_400, "2000-02-29 00:00:00 +0000"),
            (951_868_800, "2000-03-01 00:00:00 +0000"),
            (1_709_251_199, "2024-02-29 23:59:59 +0000"),
            (1_795_198_414, "2026-11-20 18:13:34 +0000"),
            (4_107_542_400, "2100-03-01 00:00:00 +0000"),
        ] {
            assert_eq!(long(seconds), expected);
        }
        assert_eq!(compact(1_795_198_414), "20261120181334");
        assert_eq!(ctime(1_795_198_414), "Fri Nov 20 18:13:34 2026");
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        // An absurd clock gives a year with many digits, not a panic.
        assert!(compact(u64::MAX / 2).len() > 14);
    }
}
