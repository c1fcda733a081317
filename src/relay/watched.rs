//! A stream on its way to the client: every byte as it comes, a heartbeat in a silence, and an honest end.
//!
//! A stream that is lost after content cannot be retried. It is closed in the dialect's own error event, with whole framing:
//! an abnormal end makes some clients throw away what they had not read yet.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::answer::stalled;
use crate::clock::after;
use crate::metrics::StreamEnd;
use crate::policy::failure::TransportError;
use crate::upstream::ResponseBody;
use crate::wire::dialect::stream::Watch;

/// After its end marker a stream may stay open so long: some servers never close.
const GRACE: Duration = Duration::from_secs(2);
/// The one beat that every SDK passes over (measured over 18 SDK versions).
const BEAT: &[u8] = b"\n";

/// A stream that is being passed on.
pub(super) struct Watched {
    rest: Option<ResponseBody>,
    watch: Box<Watch>,
    idle: Duration,
    beat: Option<Duration>,
    /// When the last byte came from the upstream, and when the last went to the client.
    heard: Instant,
    said: Instant,
    timer: Pin<Box<Sleep>>,
}

/// What comes of asking for more.
pub(super) enum Step {
    /// This goes to the client.
    Frame(Frame<Bytes>),
    /// It is over; last words, if there are any.
    Over(StreamEnd, Option<Bytes>),
    /// It is lost, and that cannot be told inside it.
    Broken(StreamEnd, TransportError),
}

impl Watched {
    pub(super) fn new(rest: Option<ResponseBody>, watch: Box<Watch>, idle: Duration, beat: Option<Duration>) -> Self {
        let now = Instant::now();
        let mut watched = Watched { rest, watch, idle, beat, heard: now, said: now, timer: Box::pin(sleep_until(now)) };
        // What is held may hold its end already.
        watched.set_timer();
        watched
    }

    /// What the stream has told of itself.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(self.ended(None)) };
        match Pin::new(rest).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(bytes) = frame.data_ref() {
                    self.watch.feed(bytes);
                }
                self.heard = Instant::now();
                self.said = self.heard;
                self.set_timer();
                Poll::Ready(Step::Frame(frame))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(self.ended(Some(error))),
            Poll::Ready(None) => Poll::Ready(self.ended(None)),
            Poll::Pending => self.poll_silence(cx),
        }
    }

    /// Nothing comes. For how long?
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if now >= after(self.heard, self.patience()) {
                return Poll::Ready(if self.watch.is_complete() || self.watch.is_over() {
                    self.ended(None)
                } else {
                    self.lost(StreamEnd::Stalled, None)
                });
            }
            let due = self.beat.is_some_and(|beat| now >= after(self.said, beat));
            self.said = if due { now } else { self.said };
            self.set_timer();
            if due && self.watch.takes_beat() {
                return Poll::Ready(Step::Frame(Frame::data(Bytes::from_static(BEAT))));
            }
        }
    }

    fn patience(&self) -> Duration {
        if self.watch.is_over() { GRACE } else { self.idle }
    }

    fn set_timer(&mut self) {
        let end = after(self.heard, self.patience());
        let beat = self.beat.filter(|_| !self.watch.is_over()).map(|beat| after(self.said, beat));
        self.timer.as_mut().reset(beat.map_or(end, |beat| beat.min(end)));
    }

    /// The upstream's side is over, well or badly.
    fn ended(&mut self, error: Option<TransportError>) -> Step {
        self.rest = None;
        if error.is_none() {
            self.watch.finish();
        }
        if self.watch.error().is_some() {
            return Step::Over(StreamEnd::ErrorEvent, None);
        }
        // Of an unknown kind any end is good, but a cut is none; of a known one its own word counts.
        if self.watch.is_complete() && (error.is_none() || self.watch.is_known()) {
            return Step::Over(StreamEnd::Complete, None);
        }
        self.lost(StreamEnd::Interrupted, error)
    }

    fn lost(&mut self, end: StreamEnd, error: Option<TransportError>) -> Step {
        self.rest = None;
        let (kind, message) = match end {
            StreamEnd::Stalled => (
                "stream_stalled",
                format!(
                    "stream stalled: nothing came from the upstream for {} (timeouts.stream_idle); what came before is not the whole answer",
                    humantime::format_duration(self.idle)
                ),
            ),
            _ => (
                "stream_interrupted",
                "stream interrupted: the upstream's answer was cut before its end; what came before is not the whole answer".into(),
            ),
        };
        tracing::warn!(
            kind,
            cause = error.as_ref().map(tracing::field::display),
            "a stream was lost after its first content"
        );
        let event = self.watch.error_event(kind, &message);
        if event.is_empty() {
            return Step::Broken(end, error.unwrap_or_else(|| stalled(self.idle)));
        }
        Step::Over(end, Some([self.watch.closing(), &event].concat().into()))
    }
}
