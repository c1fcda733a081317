//! Every answer that Backstop writes itself.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::wire::dialect::{self, Dialect};

/// `x-should-retry`, which the SDKs obey.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// What went wrong, as `type` or `code` of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Name, connect or TLS: nothing was sent.
    UpstreamUnreachable,
    /// A reset, a cut or garbage after that.
    UpstreamProtocolError,
    /// No answer in time.
    UpstreamTimeout,
    /// The request's deadline passed.
    DeadlineExceeded,
    /// Too many requests wait for their turn, or this one's turn would come too late.
    QueueFull,
    /// The upstream's circuit breaker is open.
    CircuitOpen,
    /// The idempotency key is that of another request.
    IdempotencyKeyReused,
    /// The request's body is larger than `server.max_body`.
    RequestTooLarge,
    /// The path names no upstream and its form says nothing.
    UnknownRoute,
    /// The `Host` is not one of ours.
    HostNotAllowed,
    /// A web page of a foreign origin.
    OriginNotAllowed,
    /// No client key, or a wrong one.
    ClientKeyRequired,
    /// The request is not valid HTTP, or could be read in two ways.
    BadRequest,
    /// The request's body stopped coming.
    RequestTimeout,
}

/// How a request ended, as `x-backstop-outcome` and the metrics write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A good answer.
    Success,
    /// An answer that no waiting betters, passed on at once.
    Terminal,
    /// The attempts ran out.
    Exhausted,
    /// The deadline passed.
    Deadline,
    /// Backstop turned it away.
    Rejected,
    /// A good answer, made for another call with the same key.
    Coalesced,
    /// A good answer that was given before.
    Replayed,
    /// The client left before its answer. Never sent; metrics and logs only.
    ClientGone,
}

impl Outcome {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Terminal => "terminal",
            Outcome::Exhausted => "exhausted",
            Outcome::Deadline => "deadline",
            Outcome::Rejected => "rejected",
            Outcome::Coalesced => "coalesced",
            Outcome::Replayed => "replayed",
            Outcome::ClientGone => "client_gone",
        }
    }
}

impl Fault {
    /// Status and name.
    const fn parts(self) -> (StatusCode, &'static str) {
        match self {
            Fault::UpstreamUnreachable => (StatusCode::BAD_GATEWAY, "upstream_unreachable"),
            Fault::UpstreamProtocolError => (StatusCode::BAD_GATEWAY, "upstream_protocol_error"),
            Fault::UpstreamTimeout => (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout"),
            Fault::DeadlineExceeded => (StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded"),
            Fault::QueueFull => (StatusCode::SERVICE_UNAVAILABLE, "queue_full"),
            Fault::CircuitOpen => (StatusCode::SERVICE_UNAVAILABLE, "circuit_open"),
            Fault::IdempotencyKeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
            Fault::RequestTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
            Fault::UnknownRoute => (StatusCode::NOT_FOUND, "unknown_route"),
            Fault::HostNotAllowed => (StatusCode::MISDIRECTED_REQUEST, "host_not_allowed"),
            Fault::OriginNotAllowed => (StatusCode::FORBIDDEN, "origin_not_allowed"),
            Fault::ClientKeyRequired => (StatusCode::UNAUTHORIZED, "client_key_required"),
            Fault::BadRequest => (StatusCode::BAD_REQUEST, "bad_request"),
            Fault::RequestTimeout => (StatusCode::REQUEST_TIMEOUT, "request_timeout"),
        }
    }

    /// The status that it is told with.
    pub const fn status(self) -> StatusCode {
        self.parts().0
    }

    /// Its name in the error body.
    pub const fn name(self) -> &'static str {
        self.parts().1
    }
}

/// An error of Backstop's own, for one client.
#[derive(Debug, Clone)]
pub struct LocalReply {
    /// What went wrong.
    pub fault: Fault,
    /// What happened, how often and how long it was tried, what to do.
    pub message: String,
    /// When it makes sense to come back.
    pub retry_after: Option<Duration>,
}

impl LocalReply {
    /// An error without a time.
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        LocalReply { fault, message: message.into(), retry_after: None }
    }

    /// With a time to come back.
    pub fn after(self, wait: Duration) -> Self {
        LocalReply { retry_after: Some(wait), ..self }
    }

    /// As a response in the client's own dialect. It says `x-should-retry: false`: what could be tried, was.
    pub fn render(&self, dialect: Dialect) -> Response<Bytes> {
        let (status, name) = self.fault.parts();
        let body = dialect::render_error(dialect, status.as_u16(), name, &self.message);
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        no_retry(headers);
        response
    }
}

/// Whole seconds from 1 to 59, rounded up: the one range that every SDK reads alike.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).clamp(1, 59)
}

/// Tell SDKs that a repeat cannot do better.
pub fn no_retry(headers: &mut HeaderMap) {
    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_in_the_range_that_everybody_reads() {
        for (ms, told) in [(0, 1), (999, 1), (1000, 1), (1001, 2), (58_001, 59), (3_600_000, 59)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), told, "{ms} ms");
        }
    }
}
