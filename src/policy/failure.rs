//! An attempt that ended without a whole answer: in which phase, how, and whether the upstream may have acted.

use std::fmt;

/// How far the attempt had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Name resolution, TCP, TLS: no byte of the request was sent.
    Connect,
    /// The request was being sent, or had been sent and no whole response head came.
    Head,
    /// The head came, the body did not end well.
    Body,
}

/// What went wrong on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The name did not resolve.
    Dns,
    /// Nobody listens there, or no route to it.
    Refused,
    /// The certificate does not verify: waiting does not help.
    Certificate,
    /// The TLS handshake failed in another way.
    Tls,
    /// The limit for this phase passed.
    Timeout,
    /// The connection was reset or closed.
    Reset,
    /// What came was no valid HTTP, or was cut short of its declared length.
    Protocol,
    /// HTTP/2 said that this request was not processed (REFUSED_STREAM, GOAWAY above the last id).
    Unprocessed,
}

/// A transport failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportError {
    /// How far it had come.
    pub phase: Phase,
    /// What happened.
    pub kind: Kind,
    /// Some byte of the request may have reached the upstream, and it did not say that it did nothing.
    pub sent: bool,
    /// For people, without secrets: "connection refused by 127.0.0.1:9".
    pub detail: String,
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for TransportError {}
