//! Figures in words.

/// Bytes with a unit that suits them.
pub fn size(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes == 0.0 {
        return "0".to_owned();
    }
    let (mut number, mut unit) = (bytes, "bytes");
    for next in UNITS {
        if number < 1023.5 {
            break;
        }
        number /= 1024.0;
        unit = next;
    }
    format!("{} {unit}", digits(number))
}

/// Three digits, but no part of a byte.
fn digits(number: f64) -> String {
    let places = match number {
        _ if number.fract() == 0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.places$}")
}

/// So many in a second.
pub fn rate(number: f64) -> String {
    match number {
        ..0.05 => "0".to_owned(),
        ..9.95 => format!("{number:.1}"),
        ..9999.5 => format!("{number:.0}"),
        _ => format!("{:.0}k", number / 1000.0),
    }
}

/// Microseconds with a unit that suits them.
pub fn time(micros: f64) -> String {
    match micros {
        ..999.5 => format!("{} µs", digits(micros.round())),
        ..999_500.0 => format!("{} ms", digits(micros / 1e3)),
        _ => format!("{} s", digits(micros / 1e6)),
    }
}

/// How long something has lasted or will last.
pub fn duration(seconds: f64) -> String {
    match seconds {
        ..119.5 => format!("{seconds:.0} s"),
        ..7170.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

pub fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}%", 100.0 * part / whole) } else { "0%".to_owned() }
}

pub fn times(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_suit_figures() {
        assert_eq!(size(0.0), "0");
        assert_eq!(size(1023.0), "1023 bytes");
        assert_eq!(size(4096.0), "4 KiB");
        assert_eq!(size(1_500_000.0), "1.43 MiB");
        assert_eq!(size(12.34 * 1_073_741_824.0), "12.3 GiB");
        assert_eq!(size(u64::MAX as f64), "16 EiB");
        assert_eq!([0.0, 0.4, 250.2, 80_123.0].map(rate), ["0", "0.4", "250", "80k"]);
        assert_eq!([8.0, 1234.5, 2.5e6, 16.0e6].map(time), ["8 µs", "1.23 ms", "2.50 s", "16 s"]);
        assert_eq!([4.4, 240.0, 7200.0, 1e6].map(duration), ["4 s", "4 min", "2 h", "12 days"]);
        assert_eq!((percent(1.0, 3.0), percent(1.0, 0.0)), ("33.3%".into(), "0%".into()));
    }
}
