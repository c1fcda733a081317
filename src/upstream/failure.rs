//! hyper's errors in our words.

use std::error::Error as StdError;
use std::io;

use hyper::client::conn::TrySendError;

use super::body::{Progress, SendBody};
use super::sockets::{chain, io_kind};
use crate::policy::failure::{Kind, Phase, TransportError};

/// An error that knows whether the request was ever written.
pub(super) trait Sent {
    /// hyper's error, and whether it gave the request back unwritten.
    fn split(self) -> (hyper::Error, bool);
}

impl Sent for TrySendError<http::Request<SendBody>> {
    fn split(mut self) -> (hyper::Error, bool) {
        let unwritten = self.take_message().is_some();
        (self.into_error(), unwritten)
    }
}

/// A failure before the response head was whole.
pub(super) fn head<E: Sent>(error: E, progress: &Progress) -> TransportError {
    let (error, unwritten) = error.split();
    let kind = kind(&error);
    // A body that was never asked for shows that the head was not written either; a request without one was.
    let sent = !unwritten && kind != Kind::Unprocessed && (progress.started() || progress.finished());
    TransportError { phase: Phase::Head, kind, sent, detail: detail(kind, "before the response head", &error) }
}

/// A failure in the middle of the response body.
pub(super) fn body(error: &hyper::Error) -> TransportError {
    let kind = kind(error);
    TransportError {
        phase: Phase::Body,
        kind,
        sent: true,
        detail: detail(kind, "in the middle of the response body", error),
    }
}

fn detail(kind: Kind, place: &str, error: &hyper::Error) -> String {
    let what = match kind {
        Kind::Reset => "the upstream closed or reset the connection",
        Kind::Unprocessed => "the upstream refused the HTTP/2 stream",
        _ => "the upstream's answer was not valid HTTP, or was cut",
    };
    format!("{what} {place} ({})", chain(error))
}

fn kind(error: &hyper::Error) -> Kind {
    if let Some(h2) = h2_cause(error) {
        return h2_kind(h2);
    }
    if error.is_parse() {
        return Kind::Protocol;
    }
    match io_kind(error) {
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Kind::Protocol,
        _ => Kind::Reset,
    }
}

/// RFC 9113 section 8.7: REFUSED_STREAM, and GOAWAY without an error for a stream above its last id, say that nothing was done.
fn h2_kind(error: &h2::Error) -> Kind {
    let unprocessed = error.is_remote()
        && (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
            || error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR));
    match (unprocessed, error.is_io()) {
        (true, _) => Kind::Unprocessed,
        (false, true) => Kind::Reset,
        (false, false) if error.is_reset() || error.is_go_away() => Kind::Reset,
        (false, false) => Kind::Protocol,
    }
}

fn h2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(h2) = error.downcast_ref::<h2::Error>() {
            return Some(h2);
        }
        cause = error.source();
    }
    None
}
