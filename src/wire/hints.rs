//! The provider's own word on when to come back.
//!
//! Stated waits differ in how much they can be trusted, so there is an order, and the first that says something wins:
//! `retry-after-ms`, `retry-after`, a delay in the error body, the reset of an exhausted limit, the error's text. Zero,
//! the past and garbage say nothing: the own backoff applies.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::dialect::errors::ErrorFacts;
use super::dialect::limits::{self, Reset};
use super::durations;
use super::headers::single;

/// What a wait can be read from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The answer's headers.
    pub headers: &'a HeaderMap,
    /// What the body says.
    pub facts: &'a ErrorFacts,
    /// The answer says that a limit was hit, so that the reset of an exhausted limit is what to wait for. Limit headers
    /// stand on every answer, on those too that failed for another reason.
    pub limited: bool,
    /// When the answer arrived, by our clock; only asked where it has no `Date` of its own.
    pub now: SystemTime,
}

/// How long the provider wants us to wait, from the arrival of the answer. [`Duration::MAX`]: too long for the clock.
pub fn wait(source: &Source<'_>) -> Option<Duration> {
    let headers = source.headers;
    single(headers, "retry-after-ms")
        .and_then(durations::milliseconds)
        .or_else(|| retry_after(headers, source.now))
        .or(source.facts.retry_delay)
        .or_else(|| source.limited.then(|| exhausted(headers, source.now)).flatten())
        .or_else(|| durations::in_text(&source.facts.message))
}

/// `Retry-After`: seconds, with a fraction too (not in RFC 9110, but sent), or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = single(headers, "retry-after")?;
    durations::seconds(value).or_else(|| until(httpdate::parse_http_date(value).ok()?, headers, now))
}

/// The reset of the limits with nothing remaining: the last of them to come. Limits that state a length of time go
/// before those that state a moment.
pub fn exhausted(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let longest = |form: Reset| {
        let limits = limits::ALL.iter().filter(|l| l.form == form && l.exhausted(headers));
        limits.filter_map(|l| reset(single(headers, l.reset)?, form, headers, now)).max()
    };
    longest(Reset::Span).or_else(|| longest(Reset::Moment))
}

fn reset(value: &str, form: Reset, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    match form {
        Reset::Span => durations::span(value),
        Reset::Moment => until(moment(value)?, headers, now),
    }
}

/// A moment as RFC 3339, or as seconds since 1970.
fn moment(value: &str) -> Option<SystemTime> {
    if let Ok(at) = value.parse::<jiff::Timestamp>() {
        return Some(at.into());
    }
    // Beyond the year 9999 it is no moment that anybody means, and the sum would not fit every clock.
    let since = durations::seconds(value).filter(|s| s.as_secs() < 253_402_300_800)?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// From the answer's own `Date` to a moment, so that a clock of ours that is wrong does no harm.
fn until(moment: SystemTime, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = single(headers, "date").and_then(|v| httpdate::parse_http_date(v).ok());
    moment.duration_since(date.unwrap_or(now)).ok().filter(|wait| !wait.is_zero())
}
