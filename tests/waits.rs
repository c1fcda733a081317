//! Waits in exact virtual time: never earlier than the provider said, never spread further than it should be.

use std::time::Duration;

use crate::support::bed::{EXACT, WALL};
use crate::support::*;

/// The wait before the second attempt when the first answer is this.
async fn wait_after(toml: &str, first: Step, path: &str) -> Duration {
    let bed = Bed::new(toml, [first, chat()]);
    let answer = bed.call(&post(path)).await;
    assert_eq!(answer.attempts(), 2, "{}", answer.text());
    bed.upstream.gaps()[0]
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_a_floor_and_a_fifth_of_it_at_most_comes_on_top() {
    for (retry_after, floor, spread) in [("2", ms(2000), ms(400)), ("0.5", ms(500), ms(100)), ("60", secs(60), secs(1))]
    {
        for _ in 0..20 {
            let wait = wait_after("", limited(retry_after), CHAT).await;
            assert!(wait >= floor && wait <= floor + spread + ms(2), "{retry_after}: {wait:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_hint_full_jitter_spreads_over_the_whole_step() {
    let mut waits = Vec::new();
    for _ in 0..60 {
        waits.push(wait_after("", busy(), CHAT).await);
    }
    assert!(waits.iter().all(|wait| *wait <= ms(1002)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait < ms(300)) && waits.iter().any(|wait| *wait > ms(700)), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_jitter_keeps_its_bounds() {
    for (kind, low, high) in [("equal", 500, 1000), ("additive", 1000, 1250), ("none", 1000, 1000)] {
        for _ in 0..20 {
            let wait = wait_after(&format!("[retry]\njitter = \"{kind}\"\n"), busy(), CHAT).await;
            assert!(wait >= ms(low) && wait <= ms(high + 2), "{kind}: {wait:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_place_where_a_wait_may_be_said_is_read() {
    let at = |secs: u64| httpdate::fmt_http_date(std::time::UNIX_EPOCH + WALL + Duration::from_secs(secs));
    let stamp = |secs: i64| jiff::Timestamp::from_second(WALL.as_secs() as i64 + secs).unwrap().to_string();
    let retry_info = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36.5s"}]}}"#;
    for (what, first, path, wait) in [
        ("seconds", limited("3"), CHAT, ms(3000)),
        ("milliseconds win", limited("9").header("retry-after-ms", "250"), CHAT, ms(250)),
        ("a date", limited(&at(3)), CHAT, ms(3000)),
        ("a date, against their own clock", limited(&at(3603)).header("date", at(3600)), CHAT, ms(3000)),
        ("in the body", Step::json(429, retry_info), GEMINI, ms(36_500)),
        (
            "the reset of what is spent",
            Step::json(429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"x"}}"#)
                .header("anthropic-ratelimit-requests-remaining", "0")
                .header("anthropic-ratelimit-requests-reset", stamp(7)),
            MESSAGES,
            ms(7000),
        ),
    ] {
        let waited = wait_after(EXACT, first, path).await;
        assert!(waited >= wait && waited <= wait + ms(2), "{what}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_the_limit_is_passed_on_at_once_with_its_hint() {
    let bed = Bed::new("", limited("121"));
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts(), answer.outcome()), (429, 1, "terminal"));
    assert_eq!((answer.value("retry-after"), answer.no_retry(), bed.now()), (Some("121"), true, ms(0)));
    let patient = Bed::new("[retry]\nmax_wait_hint = \"3m\"\n", [limited("121"), chat()]);
    assert_eq!(patient.call(&post(CHAT)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_would_end_after_the_deadline_is_not_begun() {
    let bed = Bed::new("[retry]\ndeadline = \"10s\"\n", limited("11"));
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts(), answer.outcome(), bed.now()), (429, 1, "deadline", ms(0)));
    assert_eq!(answer.text(), LIMITED_BODY);
    assert!(answer.no_retry());
}

#[tokio::test(start_paused = true)]
async fn nonsense_in_a_hint_falls_back_to_the_schedule() {
    for nonsense in ["0", "-5", "NaN", "soon", "", "1, 2"] {
        let wait = wait_after(EXACT, limited(nonsense), CHAT).await;
        assert!(wait >= ms(1000) && wait <= ms(1002), "{nonsense:?}: {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn delays_stop_growing_at_the_maximum() {
    let bed = Bed::new("[retry]\njitter = \"none\"\nmax_attempts = 8\nmax_delay = \"5s\"\n", busy());
    bed.call(&post(CHAT)).await;
    let gaps: Vec<u64> = bed.upstream.gaps().iter().map(Duration::as_secs).collect();
    assert_eq!(gaps, [1, 2, 4, 5, 5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_may_have_a_schedule_of_its_own() {
    let toml = "[retry]\njitter = \"none\"\n[upstreams.openai.retry]\nbase_delay = \"3s\"\nmax_attempts = 2\n";
    let bed = Bed::new(toml, busy());
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.upstream.gaps(), [secs(3)]);
    bed.call(&post(MESSAGES)).await;
    assert_eq!(bed.upstream.count(), 2 + 5);
}
