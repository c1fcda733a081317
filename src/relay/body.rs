//! The body of a response to a client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::waiting::Waiting;
use super::watched::{Step, Watched};
use crate::account::Account;
use crate::answer::stalled;
use crate::metrics::StreamEnd;
use crate::policy::failure::{Kind, TransportError};
use crate::transcript::{End, Next, Reader};
use crate::upstream::ResponseBody;

/// A response body: what is held, then what is still to come. An error ends the client's connection without whole
/// framing, so that a cut is never taken for an end.
pub struct OutBody {
    held: std::vec::IntoIter<Bytes>,
    rest: Rest,
    trailers: Option<HeaderMap>,
    account: Option<Box<Account>>,
}

/// What is still to come.
pub(super) enum Rest {
    Nothing,
    Plain(Plain),
    Stream(Watched),
    /// The attempts are still at it, behind a head that was sent already.
    Waiting(Box<Waiting>),
    /// It is read from a record that others read too.
    Shared(Reader),
}

/// A body that is passed on as it comes, unwatched.
pub(super) struct Plain {
    body: ResponseBody,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
}

impl OutBody {
    /// A body that is whole.
    pub fn held(frames: Vec<Bytes>, trailers: Option<HeaderMap>) -> Self {
        OutBody { held: frames.into_iter(), rest: Rest::Nothing, trailers, account: None }
    }

    /// No body.
    pub fn empty() -> Self {
        OutBody::held(Vec::new(), None)
    }

    /// A stream of events that is watched as it passes.
    pub fn is_stream(&self) -> bool {
        matches!(self.rest, Rest::Stream(_) | Rest::Waiting(_))
    }

    pub(super) fn coming(held: Vec<Bytes>, trailers: Option<HeaderMap>, rest: Rest) -> Self {
        OutBody { held: held.into_iter(), rest, trailers, account: None }
    }

    pub(super) fn accounted(mut self, account: Account) -> Self {
        self.account = Some(Box::new(account));
        // A body that hyper need not ask for is over before it begins.
        self.note_end();
        self
    }

    /// All of it was handed over.
    fn note_end(&mut self) {
        if self.is_end_stream() {
            self.end(StreamEnd::Complete);
        }
    }

    fn end(&mut self, how: StreamEnd) {
        if let Some(mut account) = self.account.take() {
            account.ended(how);
            self.spent(&mut account);
        }
    }

    /// Put down what a stream has told of its cost.
    fn spent(&self, account: &mut Account) {
        if let Rest::Stream(stream) = &self.rest {
            account.spent(stream.watch().usage(), stream.watch().model());
        }
    }

    /// What the rest gives next; `None` at its end.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        loop {
            match &mut self.rest {
                Rest::Nothing => {
                    return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
                }
                Rest::Plain(plain) => return plain.poll(cx),
                Rest::Stream(stream) => {
                    return Poll::Ready(match ready!(stream.poll(cx)) {
                        Step::Frame(frame) => Some(Ok(frame)),
                        Step::Over(end, last) => {
                            self.end(end);
                            self.rest = Rest::Nothing;
                            match last {
                                Some(last) => Some(Ok(Frame::data(last))),
                                None => continue,
                            }
                        }
                        Step::Broken(end, error) => {
                            self.end(end);
                            self.rest = Rest::Nothing;
                            Some(Err(error))
                        }
                    });
                }
                Rest::Shared(reader) => {
                    return Poll::Ready(match ready!(reader.poll_next(cx)) {
                        Next::Piece(bytes) => Some(Ok(Frame::data(bytes))),
                        Next::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                        Next::End(End::Broken(error)) => Some(Err(error)),
                        Next::End(End::Whole(end)) => {
                            self.end(end);
                            None
                        }
                    });
                }
                Rest::Waiting(waiting) => match ready!(waiting.poll(cx, self.account.as_deref_mut())) {
                    Ok(beat) => return Poll::Ready(Some(Ok(Frame::data(beat)))),
                    Err(mut body) => {
                        self.held = std::mem::take(&mut body.held);
                        self.trailers = body.trailers.take();
                        self.rest = std::mem::replace(&mut body.rest, Rest::Nothing);
                        if let Some(bytes) = self.held.next() {
                            return Poll::Ready(Some(Ok(Frame::data(bytes))));
                        }
                    }
                },
            }
        }
    }
}

impl Drop for OutBody {
    fn drop(&mut self) {
        // The client left: what the stream had cost so far is known all the same.
        if let Some(mut account) = self.account.take() {
            self.spent(&mut account);
        }
    }
}

impl Plain {
    pub(super) fn new(body: ResponseBody, idle: Duration) -> Self {
        Plain { body, idle, timer: Box::pin(sleep(idle)) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.timer.as_mut().poll(cx));
            return Poll::Ready(Some(Err(stalled(self.idle))));
        };
        let wake = Instant::now() + self.idle;
        self.timer.as_mut().reset(wake);
        Poll::Ready(frame)
    }
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let this = &mut *self;
        let frame = match this.held.next() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None => ready!(this.poll_rest(cx)),
        };
        match &frame {
            None => this.end(StreamEnd::Complete),
            Some(Ok(_)) => this.note_end(),
            Some(Err(error)) => {
                tracing::warn!(%error, "the answer was lost on its way");
                let stalled = error.kind == Kind::Timeout;
                this.end(if stalled { StreamEnd::Stalled } else { StreamEnd::Interrupted });
                this.rest = Rest::Nothing;
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let over = match &self.rest {
            Rest::Nothing => true,
            Rest::Plain(plain) => plain.body.is_end_stream(),
            Rest::Shared(reader) => reader.left() == Some(0),
            Rest::Stream(_) | Rest::Waiting(_) => false,
        };
        self.held.len() == 0 && self.trailers.is_none() && over
    }

    fn size_hint(&self) -> SizeHint {
        let held: u64 = self.held.as_slice().iter().map(|bytes| bytes.len() as u64).sum();
        match &self.rest {
            Rest::Nothing if self.trailers.is_none() => SizeHint::with_exact(held),
            Rest::Plain(plain) => {
                let rest = plain.body.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(held + rest.lower());
                if let Some(upper) = rest.upper() {
                    hint.set_upper(held + upper);
                }
                hint
            }
            Rest::Shared(reader) => reader.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            _ => SizeHint::default(),
        }
    }
}
