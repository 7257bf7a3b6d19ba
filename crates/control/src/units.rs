//! Sizes as reports and messages show them. The default chooses the unit and shows two decimals, and a `<` before a
//! number that was rounded up. As in `--units`, lower-case units are powers of 1024, and upper-case units powers of 1000.

const LETTERS: [char; 6] = ['k', 'm', 'g', 't', 'p', 'e'];

/// How sizes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// The largest unit that leaves at least one; `marks` shows `<` before what was rounded up.
    Human {
        base: u64,
        marks: bool,
    },
    Bytes,
    Sectors,
    /// One unit for all, with its letter.
    Fixed {
        bytes: u64,
        letter: char,
    },
}

impl Default for Units {
    fn default() -> Self {
        Units::Human { base: 1024, marks: true }
    }
}

impl Units {
    /// Parses the argument of `--units`: a letter, perhaps with a number before it for a custom unit.
    pub fn parse(text: &str) -> Option<Units> {
        let letter = text.chars().last()?;
        let number = &text[..text.len() - letter.len_utf8()];
        let base: u64 = if letter.is_ascii_uppercase() { 1000 } else { 1024 };
        let units = match letter.to_ascii_lowercase() {
            'r' => Units::Human { base, marks: true },
            'h' => Units::Human { base, marks: false },
            'b' => Units::Bytes,
            's' => Units::Sectors,
            lower => {
                let power = LETTERS.iter().position(|known| *known == lower)? as u32 + 1;
                Units::Fixed { bytes: base.checked_pow(power)?, letter }
            }
        };
        let unit = match units {
            _ if number.is_empty() => return Some(units),
            // A factor has no meaning if the unit is chosen for each size.
            Units::Human { .. } => return Some(units),
            Units::Bytes => 1,
            Units::Sectors => 512,
            Units::Fixed { bytes, .. } => bytes,
        };
        let bytes = times(number, unit)?;
        Some(if bytes == unit { units } else { Units::Fixed { bytes, letter: 'U' } })
    }

    /// As in a report.
    pub fn show(self, size: u64, with_suffix: bool) -> String {
        let (unit, letter) = match self {
            Units::Bytes => return with(size.to_string(), 'B', with_suffix),
            Units::Sectors => return with((size / 512).to_string(), 'S', with_suffix),
            _ if size == 0 => return with("0".to_owned(), ' ', with_suffix),
            Units::Fixed { bytes, letter } => (bytes, letter),
            Units::Human { base, marks } => {
                let Some((unit, letter)) = human(size, base) else { return with(size.to_string(), 'B', with_suffix) };
                // Without its letter the number would be meaningless.
                return with(decimal(size, unit, marks), letter, true);
            }
        };
        with(decimal(size, unit, false), letter, with_suffix)
    }
}

impl Units {
    /// As in the output of lvdisplay and similar commands: `4.00 MiB`, `4194304 B `, in the unit of `--units`.
    pub fn words(self, size: u64) -> String {
        match self {
            _ if size == 0 => "0   ".to_owned(),
            Units::Bytes => format!("{size} B "),
            Units::Sectors => format!("{} Se", size / 512),
            Units::Human { base, marks } => match human(size, base) {
                Some((unit, letter)) => format!("{} {}", decimal(size, unit, marks), word(letter)),
                None => format!("{size} B "),
            },
            Units::Fixed { bytes, letter } => format!("{} {}", decimal(size, bytes, false), word(letter)),
        }
    }
}

/// A unit as a word: `MiB`, or `MB` where it is a power of 1000.
fn word(letter: char) -> String {
    match letter {
        'U' => "Un".to_owned(),
        _ if letter.is_ascii_uppercase() => format!("{letter}B"),
        _ => format!("{}iB", letter.to_ascii_uppercase()),
    }
}

/// A decimal number times a unit, in whole bytes. `None`: the result is zero or too large.
fn times(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_decimal = |digits: &str| digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal(part) || whole.is_empty() || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(part.len()).ok()?);
    let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let scaled = whole.parse::<u128>().ok()?.checked_mul(scale)?.checked_add(part)?;
    let bytes = scaled.checked_mul(u128::from(unit))? / scale;
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

/// As in messages: `4.00 MiB`, `<1.27 GiB`.
pub fn sentence(size: u64) -> String {
    match human(size, 1024) {
        _ if size == 0 => "0 ".to_owned(),
        Some((unit, letter)) => format!("{} {}iB", decimal(size, unit, true), letter.to_ascii_uppercase()),
        None => format!("{size} B"),
    }
}

fn with(mut text: String, letter: char, with_suffix: bool) -> String {
    if with_suffix {
        text.push(letter);
    }
    text
}

/// The largest unit that leaves at least one, and its letter.
fn human(size: u64, base: u64) -> Option<(u64, char)> {
    let cased = |letter: char| if base == 1000 { letter.to_ascii_uppercase() } else { letter };
    let mut units = LETTERS.iter().enumerate().map(|(power, letter)| (base.pow(power as u32 + 1), cased(*letter)));
    units.rfind(|(unit, _)| size >= *unit)
}

fn decimal(size: u64, unit: u64, marks: bool) -> String {
    let (exact, unit) = (u128::from(size) * 100, u128::from(unit));
    let rounded = (exact + unit / 2) / unit;
    let mark = if marks && rounded * unit > exact { "<" } else { "" };
    format!("{mark}{}.{:02}", rounded / 100, rounded % 100)
}

/// A percentage with two decimals. Only zero is shown as 0.00, and only the whole as 100.00.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part >= whole {
        return if part == 0 { "0.00".to_owned() } else { "100.00".to_owned() };
    }
    let rounded = (u128::from(part) * 10_000 + u128::from(whole) / 2) / u128::from(whole);
    let rounded = rounded.clamp(u128::from(part > 0), 9_999);
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn shown(units: &str, size: u64) -> String {
        Units::parse(units).unwrap().show(size, true)
    }

    #[test]
    fn reports_show_sizes_as_lvm_does() {
        for (units, expected) in [
            ("h", "8.00m"),
            ("H", "8.39M"),
            ("r", "8.00m"),
            ("s", "16384S"),
            ("k", "8192.00k"),
            ("K", "8388.61K"),
            ("g", "0.01g"),
            ("G", "0.01G"),
            ("4m", "2.00U"),
            ("b", "8388608B"),
            ("B", "8388608B"),
        ] {
            assert_eq!(shown(units, 8 * MIB), expected, "--units {units}");
        }
        assert_eq!(shown("r", 348 * 4 * MIB), "<1.36g");
        assert_eq!(shown("h", 348 * 4 * MIB), "1.36g");
        assert_eq!(shown("r", 346 * 4 * MIB), "1.35g");
        assert_eq!(shown("r", 0), "0 ");
        assert_eq!(shown("b", 0), "0B");
        assert_eq!(Units::default().show(0, false), "0");
        assert_eq!(Units::parse("m").unwrap().show(1296 * MIB, false), "1296.00");
        assert_eq!(shown("r", u64::MAX), "<16.00e");
        assert_eq!(shown("R", 100 * MIB), "<104.86M");
        assert_eq!(shown("1.5m", 640 * MIB), "426.67U");
        assert_eq!(shown("1s", 8 * MIB), "16384S");
        assert_eq!(shown("2b", 20 * MIB), "10485760.00U");
        assert_eq!(shown("4h", 8 * MIB), "8.00m");
        assert_eq!(Units::default().show(640 * MIB, false), "640.00m");
        for bad in ["q", "", "0m", "xm", "mm", "-1m", ".m", "1.m.", "0.0m", "99999999999e", "½"] {
            assert_eq!(Units::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn pages_show_sizes_as_lvm_does() {
        for (units, size, expected) in [
            ("r", 100 * MIB, "100.00 MiB"),
            ("r", 348 * 4 * MIB, "<1.36 GiB"),
            ("b", 100 * MIB, "104857600 B "),
            ("k", 4 * MIB, "4096.00 KiB"),
            ("M", 100 * MIB, "104.86 MB"),
            ("b", 0, "0   "),
        ] {
            assert_eq!(Units::parse(units).unwrap().words(size), expected, "--units {units}");
        }
    }

    #[test]
    fn sentences() {
        assert_eq!(sentence(4 * MIB), "4.00 MiB");
        assert_eq!(sentence(324 * 4 * MIB), "<1.27 GiB");
        assert_eq!(sentence(512), "512 B");
        assert_eq!(sentence(0), "0 ");
    }

    #[test]
    fn percentages_keep_the_ends_for_the_ends() {
        assert_eq!(percent(0, 100), "0.00");
        assert_eq!(percent(1, u64::MAX), "0.01");
        assert_eq!(percent(u64::MAX - 1, u64::MAX), "99.99");
        assert_eq!(percent(3, 3), "100.00");
        assert_eq!(percent(5, 3), "100.00");
        assert_eq!(percent(1, 3), "33.33");
        assert_eq!(percent(0, 0), "0.00");
    }
}
