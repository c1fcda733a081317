//! What an attempt turned out to be: the one verdict that retry, metrics, logs and headers all read.

use std::time::Duration;

/// The three buckets, and success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A good answer.
    Success,
    /// Not the caller's fault and will pass: wait, then send the same again.
    Transient,
    /// The model's own output is bad: the model can fix it, waiting cannot.
    Recoverable,
    /// No waiting helps: pass it on at once.
    Terminal,
}

impl Class {
    /// The class as metrics, logs and the command line write it.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Success => "success",
            Class::Transient => "transient",
            Class::Recoverable => "recoverable",
            Class::Terminal => "terminal",
        }
    }
}

/// Why, from a short and fixed list: it is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing went wrong.
    Ok,
    /// 429 that is a rate limit.
    RateLimited,
    /// 503, 529, or an error that says the provider has no capacity.
    Overloaded,
    /// Any other 5xx.
    ServerError,
    /// Spent quota, credit or plan window: no wait that a caller could sit through helps.
    QuotaExhausted,
    /// No answer in time: ours, or the provider's own (408, 504).
    Timeout,
    /// Name, TCP or TLS: nothing was sent.
    Connect,
    /// The connection was reset or closed after something was sent.
    Reset,
    /// The answer was no valid HTTP, or was cut.
    Protocol,
    /// An error event inside a stream.
    StreamError,
    /// A 2xx without content.
    Empty,
    /// The request is wrong.
    BadRequest,
    /// The credential is wrong or may not do this.
    Auth,
    /// No such model or resource.
    NotFound,
    /// The request is too large.
    TooLarge,
    /// None of these.
    Other,
}

impl Reason {
    /// The reason as metrics, logs and the command line write it.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Ok => "ok",
            Reason::RateLimited => "rate_limited",
            Reason::Overloaded => "overloaded",
            Reason::ServerError => "server_error",
            Reason::QuotaExhausted => "quota_exhausted",
            Reason::Timeout => "timeout",
            Reason::Connect => "connect",
            Reason::Reset => "reset",
            Reason::Protocol => "protocol",
            Reason::StreamError => "stream_error",
            Reason::Empty => "empty",
            Reason::BadRequest => "bad_request",
            Reason::Auth => "auth",
            Reason::NotFound => "not_found",
            Reason::TooLarge => "too_large",
            Reason::Other => "other",
        }
    }
}

/// The verdict on one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which bucket.
    pub class: Class,
    /// Why.
    pub reason: Reason,
    /// The rule that decided, for people: `backstop classify`, logs.
    pub rule: &'static str,
    /// The provider's own wait, measured from the arrival of the answer. `Duration::MAX` for one too large to read.
    pub wait: Option<Duration>,
    /// The upstream may have carried the request out although no good answer came.
    pub ambiguous: bool,
    /// No rule knew this status or body: the verdict is the default for its range.
    pub unknown: bool,
    /// The HTTP status that a failure told inside a 200 names, if it names one.
    pub named_status: Option<u16>,
}
