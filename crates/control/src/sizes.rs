//! Parses sizes as LVM does: `3G`, `3.3m`, `+4M`, `1TB`, `100%FREE`; and rounds to extents. Both cases of a unit's
//! letter are powers of 1024. Arithmetic is exact and checked: an overflow is refused.

use std::fmt;

/// Bytes in a sector, the granularity of sizes given in bytes.
const SECTOR: u64 = 512;
/// The largest size that is accepted: beyond it no extent count would be meaningful.
pub const MAX_BYTES: u64 = 1 << 62;

/// Whether a size replaces, enlarges or reduces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    None,
    Plus,
    Minus,
}

/// A size in bytes, as given to `-L`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub sign: Sign,
    pub bytes: u64,
}

/// A count of extents or a share, as given to `-l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    pub sign: Sign,
    pub count: u64,
    /// The base of a percentage. None: the number counts extents.
    pub of: Option<ShareOf>,
}

/// What a percentage is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareOf {
    Group,
    Free,
    Pvs,
    Origin,
    Volume,
}

/// Why a size was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeError {
    NoNumber,
    NoSize,
    /// A percentage of an unknown base.
    NoShare(String),
    NotSectors,
    TooBig,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::NoNumber => "Size requires number argument.",
            SizeError::NoSize => "Can't parse size argument.",
            SizeError::NoShare(of) => return write!(f, "Specified %{of} is unknown."),
            SizeError::NotSectors => "Size is not a multiple of 512. Try using 512 or 1024.",
            SizeError::TooBig => "Size is too big (>=16EiB).",
        })
    }
}

fn split_sign(text: &str) -> (Sign, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Sign::Plus, &text[1..]),
        Some(b'-') => (Sign::Minus, &text[1..]),
        _ => (Sign::None, text),
    }
}

/// Bytes in the unit of this letter.
pub fn unit_bytes(letter: char) -> Option<u64> {
    let power = match letter.to_ascii_lowercase() {
        'b' => return Some(1),
        's' => return Some(SECTOR),
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        'p' => 50,
        'e' => 60,
        _ => return None,
    };
    Some(1 << power)
}

impl Size {
    /// Reads a size; a bare number counts `default_unit` (a unit's letter).
    pub fn parse(text: &str, default_unit: char) -> Result<Size, SizeError> {
        let (sign, text) = split_sign(text);
        if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(SizeError::NoNumber);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let mut letters = suffix.chars();
        let letter = letters.next().unwrap_or(default_unit);
        let tail = letters.as_str();
        let unit = unit_bytes(letter).ok_or(SizeError::NoSize)?;
        // "TB" and "TiB" mean "T". Bytes and sectors have no long form.
        let is_plain =
            tail.is_empty() || (unit > SECTOR && (tail.eq_ignore_ascii_case("b") || tail.eq_ignore_ascii_case("ib")));
        if !is_plain {
            return Err(SizeError::NoSize);
        }
        let bytes = scaled(number, unit)?;
        if unit == 1 && bytes % SECTOR != 0 {
            return Err(SizeError::NotSectors);
        }
        let bytes = bytes.checked_next_multiple_of(SECTOR).ok_or(SizeError::TooBig)?;
        Ok(Size { sign, bytes })
    }
}

/// `number` (digits with at most one point) times `unit`, rounded up to whole bytes.
fn scaled(number: &str, unit: u64) -> Result<u64, SizeError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(SizeError::NoSize);
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    // Only digits are left, so the only way to fail is to be too long.
    let whole: u64 = whole.parse().map_err(|_| SizeError::TooBig)?;
    // Digits that change nothing at this precision are cut off.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts = 10u128.pow(fraction.len() as u32);
    let above: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| SizeError::NoSize)? };
    let bytes = u128::from(whole) * u128::from(unit) + (above * u128::from(unit)).div_ceil(parts);
    u64::try_from(bytes).map_err(|_| SizeError::TooBig)
}

impl Extents {
    /// Reads a count of extents or a percentage.
    pub fn parse(text: &str) -> Result<Extents, SizeError> {
        let (sign, text) = split_sign(text);
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        if number.is_empty() {
            return Err(SizeError::NoSize);
        }
        let of = match suffix.to_ascii_uppercase().as_str() {
            "" => None,
            // LVM takes any leading part of the word.
            "%V" | "%VG" => Some(ShareOf::Group),
            "%F" | "%FR" | "%FRE" | "%FREE" => Some(ShareOf::Free),
            "%P" | "%PV" | "%PVS" => Some(ShareOf::Pvs),
            "%O" | "%OR" | "%ORI" | "%ORIG" | "%ORIGI" | "%ORIGIN" => Some(ShareOf::Origin),
            "%L" | "%LV" => Some(ShareOf::Volume),
            "%" => return Err(SizeError::NoSize),
            other => match other.strip_prefix('%') {
                Some(_) => return Err(SizeError::NoShare(suffix[1..].to_owned())),
                None => return Err(SizeError::NoSize),
            },
        };
        let count = number.parse().map_err(|_| SizeError::TooBig)?;
        if count > MAX_BYTES / SECTOR {
            return Err(SizeError::TooBig);
        }
        Ok(Extents { sign, count, of })
    }
}

/// `percent` of `total`, rounded down.
pub fn share(percent: u64, total: u64) -> u64 {
    let share = u128::from(percent) * u128::from(total) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// `percent` of `total`, rounded up.
pub fn share_up(percent: u64, total: u64) -> u64 {
    let share = (u128::from(percent) * u128::from(total)).div_ceil(100);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The most extents that a snapshot's reserve can use: those of the origin, and LVM's space for its exception table (16
/// bytes a chunk and two chunks). So `100%ORIGIN` has LVM's meaning.
pub fn most_useful_reserve(origin_bytes: u64, chunk_bytes: u64, extent_bytes: u64) -> u64 {
    let chunks = origin_bytes.div_ceil(chunk_bytes);
    let table_chunks = chunks.div_ceil((chunk_bytes / 16).max(1)) + 2;
    (origin_bytes + table_chunks * chunk_bytes).div_ceil(extent_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<u64, SizeError> {
        Size::parse(text, 'm').map(|size| size.bytes)
    }

    #[test]
    fn sizes_that_documents_and_clients_use() {
        for (text, expected) in [
            ("3G", 3 << 30),
            ("1TB", 1 << 40),
            ("2TiB", 2 << 40),
            ("1", 1 << 20),
            ("50331648b", 50_331_648),
            ("40960K", 40_960 << 10),
            ("51200k", 51_200 << 10),
            ("1024s", 524_288),
            ("0", 0),
            ("0.5g", 1 << 29),
            (".5g", 1 << 29),
            ("3.3M", 3_460_608),
            ("4e", 4 << 60),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        assert_eq!(Size::parse("256", 'k').unwrap().bytes, 256 << 10);
        assert_eq!(Size::parse("+4M", 'm'), Ok(Size { sign: Sign::Plus, bytes: 4 << 20 }));
        assert_eq!(Size::parse("-4M", 'm'), Ok(Size { sign: Sign::Minus, bytes: 4 << 20 }));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["10X", ".", "1.2.3g", "1 G", "0x10", "1GG", "1bb", "1e5", "1,5g"] {
            assert_eq!(bytes(text), Err(SizeError::NoSize), "{text}");
        }
        for text in ["", "G", "+-1", "NaN", "inf", "½g", "vg0"] {
            assert_eq!(bytes(text), Err(SizeError::NoNumber), "{text}");
        }
        for text in ["1000b", "1023b", "1b"] {
            assert_eq!(bytes(text), Err(SizeError::NotSectors), "{text}");
        }
        for text in ["16E", "99999999999999999999", "18446744073709551615E", "16777216T"] {
            assert_eq!(bytes(text), Err(SizeError::TooBig), "{text}");
        }
    }

    #[test]
    fn extents_and_shares() {
        let parsed = |sign, count, of| Ok(Extents { sign, count, of });
        assert_eq!(Extents::parse("100%FREE"), parsed(Sign::None, 100, Some(ShareOf::Free)));
        assert_eq!(Extents::parse("+100%ORIGIN"), parsed(Sign::Plus, 100, Some(ShareOf::Origin)));
        assert_eq!(Extents::parse("20%vg"), parsed(Sign::None, 20, Some(ShareOf::Group)));
        assert_eq!(Extents::parse("5"), parsed(Sign::None, 5, None));
        for text in ["", "%FREE", "5%", "5x", "-", "1.5"] {
            assert_eq!(Extents::parse(text), Err(SizeError::NoSize), "{text}");
        }
        assert_eq!(Extents::parse("5%x"), Err(SizeError::NoShare("x".to_owned())));
        assert_eq!(Extents::parse("99999999999999999999"), Err(SizeError::TooBig));
        assert_eq!(share(10, 447), 44);
        assert_eq!(share_up(20, 26), 6);
        assert_eq!(share(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_reserve_has_a_useful_maximum() {
        const MIB: u64 = 1 << 20;
        assert_eq!(most_useful_reserve(48 * MIB, 4096, 4 * MIB), 13);
        assert_eq!(most_useful_reserve(100 * MIB, 4096, 4 * MIB), 26);
        assert_eq!(most_useful_reserve(1 << 40, 4096, 4 * MIB), 262_144 + 1025);
    }
}
