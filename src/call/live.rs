//! A request body that is passed on while it comes: what was read of it first, then the rest, within the size limit.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::body::{broken, stopped, too_large};
use crate::reply::LocalReply;
use crate::upstream::body::BodyError;

/// The body. It fails when it grows over the limit, or stops coming, and leaves the reply for that in `fault`.
pub struct Capped {
    held: VecDeque<Bytes>,
    rest: Incoming,
    limit: u64,
    left: u64,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    fault: Arc<OnceLock<LocalReply>>,
}

impl Capped {
    /// `held` was read already, `rest` is to come; `limit` bytes in all; `idle` between two pieces.
    pub fn new(held: Vec<Bytes>, rest: Incoming, limit: u64, idle: Duration) -> Self {
        let size: u64 = held.iter().map(|bytes| bytes.len() as u64).sum();
        let left = limit.saturating_sub(size);
        Capped { held: held.into(), rest, limit, left, idle, timer: Box::pin(sleep(idle)), fault: Arc::default() }
    }

    /// Where the reply will be, should the body fail.
    pub fn fault(&self) -> Arc<OnceLock<LocalReply>> {
        self.fault.clone()
    }

    fn fail(&self, reply: LocalReply) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let error = reply.message.clone().into();
        // The first fault is the one that is told.
        let _ = self.fault.set(reply);
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for Capped {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(bytes) = self.held.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.rest).poll_frame(cx) else {
            ready!(self.timer.as_mut().poll(cx));
            return self.fail(stopped());
        };
        let wake = Instant::now() + self.idle;
        self.timer.as_mut().reset(wake);
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return self.fail(broken(&error)),
            None => return Poll::Ready(None),
        };
        let size = frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => return self.fail(too_large(self.limit)),
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held: u64 = self.held.iter().map(|bytes| bytes.len() as u64).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(held + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(held + upper);
        }
        hint
    }
}
