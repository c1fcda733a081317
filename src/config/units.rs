//! Durations and sizes as people write them.

use std::time::Duration;

/// Longer than anyone means, and short enough to be added to any clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// Larger than anyone means, and exact in floating point.
const LARGEST: u64 = 1 << 40;

/// `"500ms"`, `"2m"`, `"1h 30m"`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok().filter(|d| *d <= LONGEST)
}

/// `"32MiB"`, `"1.5 MB"`, `"512B"`, `"0"`. Any other number needs its unit.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    // The number has no sign and is finite, and the product is below 2^40, so the cast is exact.
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    (bytes <= LARGEST as f64).then_some(bytes.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("32MiB", 32 << 20),
            ("1.5 MB", 1_500_000),
            ("512B", 512),
            ("0", 0),
            ("0B", 0),
            ("1gib", 1 << 30),
            ("64KiB", 65536),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "lots", "100", "-1B", "1.2.3MB", "MiB", "1XB", "99999999999GiB", "1e3B", ".B"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("1h 30m"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("0s"), Some(Duration::ZERO));
        for text in ["", "10", "1 parsec", "-1s", "99999999years", "1e3s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
