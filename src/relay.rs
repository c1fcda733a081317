//! The answer on its way to the client: head, then body, byte for byte.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::account::Account;
use crate::answer::Answer;
use crate::config::Timeouts;
use crate::metrics::StreamEnd;
use crate::opening::{Opening, Reply};
use crate::policy::failure::{Kind, TransportError};
use crate::policy::verdict::{Class, Verdict};
use crate::reply::{self, LocalReply, Outcome};
use crate::upstream::ResponseBody;
use crate::wire::dialect::Dialect;
use crate::wire::hop;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-backstop-request-id");
const UPSTREAM: HeaderName = HeaderName::from_static("x-backstop-upstream");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-backstop-attempts");
const OUTCOME: HeaderName = HeaderName::from_static("x-backstop-outcome");

/// Send what the call came to. `limits`: for the pieces of a body that is still coming.
pub fn relay(opening: Opening, dialect: Dialect, limits: &Timeouts, mut account: Account) -> Response<OutBody> {
    let (outcome, attempts) = (opening.outcome, opening.attempts);
    let mut response = match opening.reply {
        Reply::Local(local) => local.render(dialect).map(|bytes| OutBody::held(vec![bytes], None)),
        Reply::Upstream(answer) => {
            if answer.is_stream() {
                account.streams();
            }
            from_upstream(*answer, outcome, opening.verdict.as_ref(), limits)
        }
    };
    if opening.no_retry {
        reply::no_retry(response.headers_mut());
    }
    send(response, outcome, attempts, account)
}

/// Turn a request away.
pub fn reject(reply: &LocalReply, dialect: Dialect, account: Account) -> Response<OutBody> {
    let response = reply.render(dialect).map(|bytes| OutBody::held(vec![bytes], None));
    send(response, Outcome::Rejected, 0, account)
}

fn send(response: Response<OutBody>, outcome: Outcome, attempts: u32, mut account: Account) -> Response<OutBody> {
    let (mut head, body) = response.into_parts();
    account.answered(head.status.as_u16(), outcome, attempts);
    mark(&mut head.headers, &account, outcome, attempts);
    Response::from_parts(head, body.accounted(account))
}

fn from_upstream(answer: Answer, outcome: Outcome, verdict: Option<&Verdict>, limits: &Timeouts) -> Response<OutBody> {
    let first = if answer.is_stream() { limits.stream_first_event } else { limits.stream_idle };
    let body = OutBody {
        held: answer.held.into_iter(),
        trailers: answer.trailers,
        rest: answer.rest.map(|body| Rest { body, idle: limits.stream_idle, timer: Box::pin(sleep(first)) }),
        account: None,
    };
    let mut response = Response::new(body);
    *response.status_mut() = status(answer.status, outcome, verdict);
    *response.headers_mut() = hop::end_to_end(HeaderMap::new(), &answer.headers, |_| false);
    *response.extensions_mut() = answer.extensions;
    response
}

/// The upstream's own status; but a failure told inside a 2xx that could not be got past takes the one that it names, so
/// that SDKs raise.
fn status(own: StatusCode, outcome: Outcome, verdict: Option<&Verdict>) -> StatusCode {
    let Some(verdict) = verdict.filter(|_| own.is_success() && outcome != Outcome::Success) else { return own };
    match verdict.named_status.and_then(|status| StatusCode::from_u16(status).ok()) {
        Some(named) => named,
        None if verdict.class == Class::Transient => StatusCode::BAD_GATEWAY,
        None => own,
    }
}

/// The headers that every proxied answer carries.
fn mark(headers: &mut HeaderMap, account: &Account, outcome: Outcome, attempts: u32) {
    let text = |value: &str| HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static("?"));
    headers.insert(REQUEST_ID, text(account.id()));
    headers.insert(UPSTREAM, text(account.upstream()));
    headers.insert(ATTEMPTS, HeaderValue::from(attempts));
    headers.insert(OUTCOME, HeaderValue::from_static(outcome.name()));
}

/// A response body: what is held, then what is still to come. An error ends the client's connection without whole
/// framing, so that a cut is never taken for an end.
pub struct OutBody {
    held: std::vec::IntoIter<Bytes>,
    trailers: Option<HeaderMap>,
    rest: Option<Rest>,
    account: Option<Box<Account>>,
}

struct Rest {
    body: ResponseBody,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
}

impl OutBody {
    /// A body that is whole.
    pub fn held(frames: Vec<Bytes>, trailers: Option<HeaderMap>) -> Self {
        OutBody { held: frames.into_iter(), trailers, rest: None, account: None }
    }

    /// No body.
    pub fn empty() -> Self {
        OutBody::held(Vec::new(), None)
    }

    fn accounted(mut self, account: Account) -> Self {
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
        }
    }
}

impl Rest {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                let wake = Instant::now() + self.idle;
                self.timer.as_mut().reset(wake);
                Poll::Ready(frame)
            }
            Poll::Pending => {
                ready!(self.timer.as_mut().poll(cx));
                Poll::Ready(Some(Err(TransportError {
                    phase: crate::policy::failure::Phase::Body,
                    kind: Kind::Timeout,
                    sent: true,
                    detail: "the response body stalled".into(),
                })))
            }
        }
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
        let frame = match (this.held.next(), &mut this.rest) {
            (Some(bytes), _) => Some(Ok(Frame::data(bytes))),
            (None, Some(rest)) => ready!(rest.poll(cx)),
            (None, None) => this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
        };
        match &frame {
            None => this.end(StreamEnd::Complete),
            Some(Ok(_)) => this.note_end(),
            Some(Err(error)) => {
                let stalled = error.kind == Kind::Timeout;
                tracing::warn!(%error, "the answer was lost on its way");
                this.end(if stalled { StreamEnd::Stalled } else { StreamEnd::Interrupted });
                this.rest = None;
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let over = self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream());
        self.held.len() == 0 && self.trailers.is_none() && over
    }

    fn size_hint(&self) -> SizeHint {
        let held: u64 = self.held.as_slice().iter().map(|bytes| bytes.len() as u64).sum();
        let Some(rest) = &self.rest else {
            return if self.trailers.is_some() { SizeHint::default() } else { SizeHint::with_exact(held) };
        };
        let mut hint = SizeHint::new();
        hint.set_lower(held + rest.body.size_hint().lower());
        if let Some(upper) = rest.body.size_hint().upper() {
            hint.set_upper(held + upper);
        }
        hint
    }
}
