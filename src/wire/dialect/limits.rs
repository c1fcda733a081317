//! The headers in which providers tell the state of their rate limits.

use http::HeaderMap;

use crate::wire::headers::single;

/// How a limit writes its reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// A length of time: `6m0s`, `45`.
    Span,
    /// A moment: RFC 3339, or seconds since 1970.
    Moment,
}

/// One limit of one dimension (requests, tokens).
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The header that says whether anything is left.
    left: &'static str,
    /// Its value when nothing is.
    none_left: &'static str,
    /// The header that says when it is reset.
    pub reset: &'static str,
    /// How that one is written.
    pub form: Reset,
}

impl Limit {
    /// Nothing is left of it.
    pub fn exhausted(&self, headers: &HeaderMap) -> bool {
        single(headers, self.left).is_some_and(|left| left.eq_ignore_ascii_case(self.none_left))
    }
}

/// The limit of a subscription's window (five hours, a week), which has its own status word.
const SUBSCRIPTION: Limit = Limit {
    left: "anthropic-ratelimit-unified-status",
    none_left: "rejected",
    reset: "anthropic-ratelimit-unified-reset",
    form: Reset::Moment,
};

/// Every limit that we read.
pub const ALL: &[Limit] = &[
    span("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    span("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    moment("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    moment("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    moment("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    moment("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    SUBSCRIPTION,
];

const fn span(left: &'static str, reset: &'static str) -> Limit {
    Limit { left, none_left: "0", reset, form: Reset::Span }
}

const fn moment(left: &'static str, reset: &'static str) -> Limit {
    Limit { left, none_left: "0", reset, form: Reset::Moment }
}

/// A subscription's usage window is used up.
pub fn subscription_spent(headers: &HeaderMap) -> bool {
    SUBSCRIPTION.exhausted(headers)
}
