//! A stream, held back until it shows what it is.
//!
//! Events without content (the start of a message, comments) tell nothing yet: as long as only such have come, a failure can
//! be tried again and the client never knows. They are held for half of `timeouts.stream_first_event` at most, and only up
//! to `stream.hold`. In shield mode the stream is held to its end.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::{Instant, timeout_at};

use super::{Answer, Reading};
use crate::clock::after;
use crate::policy::failure::{Kind, Phase, TransportError};
use crate::wire::dialect::stream::Ended;

/// Bytes of a stream that shield mode keeps at most; a longer one goes on as relay.
const SHIELD_LIMIT: usize = 16 * 1024 * 1024;

/// How long a stream is held.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// Bytes at most; 0: it is not held at all.
    pub bytes: usize,
    /// To its end, not only to its first content.
    pub whole: bool,
    /// The limit from the head to the first event.
    pub first_event: Duration,
}

impl Holding {
    /// Up to the first content.
    pub fn to_content(bytes: u64, first_event: Duration) -> Self {
        Holding { bytes: usize::try_from(bytes).unwrap_or(usize::MAX), whole: false, first_event }
    }

    /// Up to the end.
    pub fn to_end(first_event: Duration) -> Self {
        Holding { bytes: SHIELD_LIMIT, whole: true, first_event }
    }
}

impl Answer {
    /// Read the stream as far as it is held.
    ///
    /// # Errors
    /// If it is cut, stalls, or ends before it has shown any content.
    pub(super) async fn hold(&mut self, how: Reading<'_>) -> Result<(), TransportError> {
        let release = after(Instant::now(), how.holding.first_event / 2);
        let (mut size, mut limit) = (0, how.holding.first_event);
        while !self.has_shown(how.holding, size) {
            // The client's patience ends, the stream goes on: it is handed over as it is.
            let handover = if self.may_be_shown(how.holding) { release.min(how.deadline) } else { how.deadline };
            let Some(rest) = self.rest.as_mut() else { break };
            if rest.is_end_stream() {
                self.rest = None;
                break;
            }
            let idle = after(Instant::now(), limit);
            let Ok(frame) = timeout_at(idle.min(handover), rest.frame()).await else {
                return if Instant::now() >= handover || self.is_over() { Ok(()) } else { Err(stalled(limit)) };
            };
            match frame {
                None => self.rest = None,
                Some(Err(error)) if !self.is_over() => return Err(error),
                Some(Err(_)) => self.rest = None,
                Some(Ok(frame)) => {
                    size += self.take(frame);
                    limit = if self.watch.as_ref().is_some_and(|watch| watch.is_empty()) { limit } else { how.idle };
                }
            }
        }
        self.check_end()
    }

    /// An event has come, though none with content: a client that waits for it is not kept waiting for ever.
    fn may_be_shown(&self, holding: Holding) -> bool {
        !holding.whole && self.watch.as_ref().is_some_and(|watch| !watch.is_empty())
    }

    fn take(&mut self, frame: http_body::Frame<bytes::Bytes>) -> usize {
        match frame.into_data() {
            Ok(bytes) => {
                if let Some(watch) = &mut self.watch {
                    watch.feed(&bytes);
                }
                let size = bytes.len();
                self.held.push(bytes);
                size
            }
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                0
            }
        }
    }

    /// Enough has come to hand it over, or to call it failed.
    fn has_shown(&self, holding: Holding, size: usize) -> bool {
        let Some(watch) = &self.watch else { return true };
        let full = size >= holding.bytes;
        if full && holding.whole {
            tracing::warn!(limit = holding.bytes, "a shielded stream is too long to be held; it goes on as relay");
        }
        full || watch.is_over() || !holding.whole && (watch.has_content() || watch.ended() != Ended::No)
    }

    /// What the dialect calls the end of a stream has come.
    fn is_over(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.ended() != Ended::No)
    }

    /// A stream that ended in HTTP, but not by its dialect, is a cut one.
    fn check_end(&mut self) -> Result<(), TransportError> {
        let Some(watch) = self.watch.as_mut().filter(|_| self.rest.is_none()) else { return Ok(()) };
        watch.finish();
        if watch.is_complete() || watch.error().is_some() {
            return Ok(());
        }
        let detail = if watch.has_content() {
            "the stream ended before its end marker"
        } else {
            "the stream ended before any content"
        };
        Err(TransportError { phase: Phase::Body, kind: Kind::Protocol, sent: true, detail: detail.into() })
    }
}

fn stalled(limit: Duration) -> TransportError {
    let detail = format!("no event of the stream for {} ([timeouts])", humantime::format_duration(limit));
    TransportError { phase: Phase::Body, kind: Kind::Timeout, sent: true, detail }
}
