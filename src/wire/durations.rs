//! Lengths of time as providers write them.
//!
//! `None` is text that states no time to wait: garbage, zero, negative. A number too large for the clock is
//! [`Duration::MAX`], because "come back in a billion years" is a statement, and a longer one than any limit.

use std::time::Duration;

/// A number of seconds: `20`, `1.6`. Words that parse as floats (`inf`, `NaN`) are garbage.
pub fn seconds(text: &str) -> Option<Duration> {
    decimal(text.trim()).and_then(|n| scaled(n, 1.0))
}

/// A number of milliseconds.
pub fn milliseconds(text: &str) -> Option<Duration> {
    decimal(text.trim()).and_then(|n| scaled(n, 1e-3))
}

/// A duration with units, as Go prints it (`6m0s`, `1m2.5s`, `644ms`), or a bare number of seconds.
pub fn span(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(bare) = seconds(text) {
        return Some(bare);
    }
    let (length, rest) = amounts(text)?;
    rest.is_empty().then_some(length)
}

/// The wait that a sentence asks for: "try again in 4.77s", "retry in 1m2s", "retry after 45 seconds".
pub fn in_text(message: &str) -> Option<Duration> {
    const LEADS: [&str; 4] = ["try again in ", "try again after ", "retry in ", "retry after "];
    let lower = message.to_ascii_lowercase();
    LEADS.iter().find_map(|lead| {
        lower.match_indices(lead).find_map(|(at, _)| amounts(&lower[at + lead.len()..]).map(|(length, _)| length))
    })
}

/// A number as headers write it. `f64::from_str` also takes `inf`, `nan` and signs: none of these is a length of time.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|_| plain)
}

/// `number × unit` (unit in seconds); nothing for zero, the maximum where it does not fit.
fn scaled(number: f64, unit: f64) -> Option<Duration> {
    let seconds = number * unit;
    if seconds.is_nan() || seconds <= 0.0 {
        return None;
    }
    let length = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    (!length.is_zero()).then_some(length)
}

/// One or more amounts with units at the start of a text, added up, and what follows them.
fn amounts(text: &str) -> Option<(Duration, &str)> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while let Some((length, after)) = amount(rest.trim_start()) {
        total = total.saturating_add(length);
        rest = after;
    }
    (!total.is_zero()).then_some((total, rest))
}

/// One amount: `2.5s`, `45 seconds`, `0s`.
fn amount(text: &str) -> Option<(Duration, &str)> {
    let digits = number_length(text);
    let number = decimal(&text[..digits])?;
    let tail = text[digits..].trim_start();
    let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
    let unit = unit(&tail[..letters])?;
    Some((scaled(number, unit).unwrap_or_default(), &tail[letters..]))
}

/// The bytes of digits with at most one point between them: a full stop that ends the sentence is not part of it.
fn number_length(text: &str) -> usize {
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    match text[whole..].strip_prefix('.').map(digits) {
        Some(fraction) if fraction > 0 => whole + 1 + fraction,
        _ => whole,
    }
}

/// A unit in seconds.
fn unit(word: &str) -> Option<f64> {
    Some(match word {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" | "millisecond" | "milliseconds" => 1e-3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(n: u64) -> Option<Duration> {
        Some(Duration::from_millis(n))
    }

    #[test]
    fn numbers_of_seconds() {
        for (text, want) in
            [("20", ms(20_000)), (" 1 ", ms(1000)), ("1.6", ms(1600)), (".5", ms(500)), ("1e1", ms(10_000))]
        {
            assert_eq!(seconds(text), want, "{text:?}");
        }
        for huge in ["1e400", "99999999999999999999", "1e30"] {
            assert_eq!(seconds(huge), Some(Duration::MAX), "{huge:?}");
        }
        for garbage in [
            "", " ", "0", "-0", "0.0", "-5", "+5", "inf", "Infinity", "NaN", "nan", "soon", "1, 2", "1 2", "0x10", ".",
            "e5", "1s",
        ] {
            assert_eq!(seconds(garbage), None, "{garbage:?}");
        }
        assert_eq!(milliseconds("644"), ms(644));
        assert_eq!(milliseconds("1e-30"), None, "rounds to nothing");
    }

    #[test]
    fn spans() {
        for (text, want) in [
            ("6m0s", 360_000),
            ("1m2.5s", 62_500),
            ("644ms", 644),
            ("120ms", 120),
            ("2m59.56s", 179_560),
            ("1h", 3_600_000),
            ("45", 45_000),
            ("58s", 58_000),
            ("2.2s", 2200),
        ] {
            assert_eq!(span(text), ms(want), "{text:?}");
        }
        for garbage in ["", "0s", "0", "-1s", "s", "m5", "5x", "5s!", "6m0", "1.s", "∞s"] {
            assert_eq!(span(garbage), None, "{garbage:?}");
        }
        assert_eq!(span("999999999999999999999999h"), Some(Duration::MAX));
    }

    #[test]
    fn sentences() {
        for (text, want) in [
            ("Rate limit reached. Please try again in 644ms.", ms(644)),
            ("Please try again in 4.77s.", ms(4770)),
            ("Please try again in 20s. Visit", ms(20_000)),
            ("Try again in 1m2s", ms(62_000)),
            ("Please retry in 58.217s.", ms(58_217)),
            ("Please retry in 10h17m5.5s.", ms(37_025_500)),
            ("Please retry after 45 seconds.", ms(45_000)),
            ("try again in 1 minute 30 seconds or so", ms(90_000)),
            ("try again in 5 minutes, 3 requests left", ms(300_000)),
            ("retry in a few seconds", None),
            ("retry after a brief wait.", None),
            ("try again in 20", None),
            ("try again later", None),
            ("retry in İ 3 s; try again in 2s", ms(2000)),
        ] {
            assert_eq!(in_text(text), want, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(retry in |try again in )?[0-9.a-zµ∞ ,+-]{0,40}", any in ".*") {
            for t in [&text, &any] {
                let _ = (seconds(t), milliseconds(t), span(t), in_text(t));
            }
        }

        #[test]
        fn whole_seconds_are_exact(n in 1u32..) {
            prop_assert_eq!(seconds(&n.to_string()), Some(Duration::from_secs(n.into())));
        }
    }
}
