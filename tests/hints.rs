//! How long a provider asks us to wait: every source alone, which goes before which, and what is no wait at all.

use std::time::{Duration, SystemTime};

use backstop::wire::dialect::errors::ErrorFacts;
use backstop::wire::hints::{Source, wait};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

/// Mon, 30 Nov 2026 18:00:00 GMT
const NOW: u64 = 1_796_061_600;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn seconds_of(fields: &[(&str, &str)], body: &str, limited: bool) -> Option<f64> {
    let headers = headers(fields);
    let facts = ErrorFacts::read(&headers, body.as_bytes());
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    wait(&Source { headers: &headers, facts: &facts, limited, now }).map(|d| d.as_secs_f64())
}

fn seconds(fields: &[(&str, &str)]) -> Option<f64> {
    seconds_of(fields, "", true)
}

#[test]
fn retry_after() {
    for (value, want) in [
        ("20", Some(20.0)),
        ("1.6", Some(1.6)),
        (" 1 ", Some(1.0)),
        ("Mon, 30 Nov 2026 18:00:03 GMT", Some(3.0)),
        ("Monday, 30-Nov-26 18:00:03 GMT", Some(3.0)),
        ("1e400", Some(Duration::MAX.as_secs_f64())),
        ("99999999999999999999", Some(Duration::MAX.as_secs_f64())),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Some(253_402_300_799.0 - NOW as f64)),
        ("0", None),
        ("-5", None),
        ("NaN", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("1, 2", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ("Mon, 30 Nov 2026 18:00:00 GMT", None),
        ("Mon, 99 Nov 2026 18:00:00 GMT", None),
    ] {
        assert_eq!(seconds(&[("retry-after", value)]), want, "{value:?}");
    }
    assert_eq!(seconds(&[("retry-after", "1"), ("retry-after", "2")]), None, "said twice");
}

#[test]
fn the_answers_own_clock_counts() {
    for (date, at, want) in [
        ("Mon, 30 Nov 2026 17:00:00 GMT", "Mon, 30 Nov 2026 17:00:05 GMT", 5.0),
        ("Mon, 30 Nov 2026 19:00:00 GMT", "Mon, 30 Nov 2026 19:00:05 GMT", 5.0),
        ("garbage", "Mon, 30 Nov 2026 18:00:05 GMT", 5.0),
    ] {
        assert_eq!(seconds(&[("date", date), ("retry-after", at)]), Some(want), "{date}");
    }
}

#[test]
fn the_more_exact_word_goes_first() {
    let info = r#"{"error":{"message":"Please retry in 8s.","details":[{"retryDelay":"7s"}]}}"#;
    let fields = [
        ("retry-after-ms", "5500"),
        ("retry-after", "6"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "9s"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-30T18:00:10Z"),
    ];
    let text = r#"{"error":{"message":"Please retry in 8s."}}"#;
    assert_eq!(seconds_of(&fields, info, true), Some(5.5));
    assert_eq!(seconds_of(&fields[1..], info, true), Some(6.0));
    assert_eq!(seconds_of(&fields[2..], info, true), Some(7.0));
    assert_eq!(seconds_of(&fields[2..], text, true), Some(9.0));
    assert_eq!(seconds_of(&fields[4..], text, true), Some(10.0));
    assert_eq!(seconds_of(&[], text, true), Some(8.0));
    assert_eq!(seconds_of(&fields[2..], "", false), None, "no limit was hit");
    assert_eq!(
        seconds_of(&[("retry-after-ms", "0"), ("retry-after", "6")], "", true),
        Some(6.0),
        "nothing said gives way"
    );
}

#[test]
fn resets_of_exhausted_limits_only() {
    let x = |left_r, reset_r, left_t, reset_t| {
        seconds(&[
            ("x-ratelimit-remaining-requests", left_r),
            ("x-ratelimit-reset-requests", reset_r),
            ("x-ratelimit-remaining-tokens", left_t),
            ("x-ratelimit-reset-tokens", reset_t),
        ])
    };
    assert_eq!(x("0", "6m0s", "10", "20ms"), Some(360.0));
    assert_eq!(x("499", "6m0s", "0", "644ms"), Some(0.644));
    assert_eq!(x("0", "1m2.5s", "0", "3s"), Some(62.5), "the last to come");
    assert_eq!(x("1", "6m0s", "1", "1s"), None);
    assert_eq!(x("0", "soon", "0", "45"), Some(45.0));
    assert_eq!(seconds(&[("x-ratelimit-reset-tokens", "45")]), None, "whether any are left is not said");
    let a = |reset| {
        seconds(&[("anthropic-ratelimit-requests-remaining", "0"), ("anthropic-ratelimit-requests-reset", reset)])
    };
    assert_eq!(a("2026-11-30T18:00:02Z"), Some(2.0));
    assert_eq!(a("2026-11-30T19:00:02+01:00"), Some(2.0));
    assert_eq!(a("1796061605"), Some(5.0));
    for garbage in ["2026-11-30T17:59:59Z", "1", "tomorrow", "", "99999999999999999999"] {
        assert_eq!(a(garbage), None, "{garbage:?}");
    }
    let unified = |status| {
        seconds(&[("anthropic-ratelimit-unified-status", status), ("anthropic-ratelimit-unified-reset", "1796061660")])
    };
    assert_eq!((unified("rejected"), unified("allowed")), (Some(60.0), None));
}

proptest! {
    #[test]
    fn no_header_panics(name in prop::sample::select(vec!["retry-after", "retry-after-ms", "date", "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"]), value in "[ -~]{0,40}|[0-9.eE+-]{0,30}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.Z+-]{0,20}") {
        let _ = seconds(&[(name, &value), ("x-ratelimit-remaining-tokens", "0"), ("anthropic-ratelimit-tokens-remaining", "0"), ("retry-after", "Mon, 30 Nov 2026 18:00:03 GMT")]);
    }
}
