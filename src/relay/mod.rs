//! The answer on its way to the client: head, then body, byte for byte.

mod body;
mod waiting;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;

use crate::account::Account;
use crate::answer::Answer;
use crate::call::Call;
use crate::opening::{Opening, Reply};
use crate::policy::verdict::{Class, Verdict};
use crate::reply::{self, Fault, LocalReply, Outcome};
use crate::transcript::{Head, Reader};
use crate::wire::dialect::Dialect;
use crate::wire::hop;
pub use body::OutBody;
use body::{Plain, Rest};
use waiting::Waiting;
pub use waiting::{Trying, held, within};
use watched::Watched;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-backstop-request-id");
const UPSTREAM: HeaderName = HeaderName::from_static("x-backstop-upstream");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-backstop-attempts");
const OUTCOME: HeaderName = HeaderName::from_static("x-backstop-outcome");

/// Send what the call came to.
pub fn relay(opening: Opening, mut account: Account) -> Response<OutBody> {
    let (outcome, attempts, call) = (opening.outcome, opening.attempts, &opening.call);
    account.served_by(&call.route.upstream.config.name, opening.passage);
    let mut response = match opening.reply {
        Reply::Local(local) => local.render(call.route.dialect).map(|bytes| OutBody::held(vec![bytes], None)),
        Reply::Upstream(answer) => {
            if answer.is_stream() {
                account.streams();
            }
            from_upstream(*answer, outcome, opening.verdict.as_ref(), call)
        }
    };
    if opening.no_retry {
        reply::no_retry(response.headers_mut());
    }
    send(response, outcome, attempts, account)
}

/// Send the head of a stream now, and heartbeats until the attempts are over.
pub fn relay_early(attempts: Trying, beat: Duration, call: Arc<Call>, mut account: Account) -> Response<OutBody> {
    let waiting = Waiting::new(attempts, beat, &call);
    // Until the attempts say otherwise.
    account.answered(StatusCode::OK.as_u16(), Outcome::ClientGone, 0);
    let mut response = Response::new(OutBody::coming(Vec::new(), None, Rest::Waiting(Box::new(waiting))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    name(headers, &account);
    response.map(|body| body.accounted(account))
}

/// Send an answer that is read from a record, perhaps by others too. `as_what`: how to name a good one that was not made for
/// this request.
pub fn relay_shared(head: Head, as_what: Option<Outcome>, reader: Reader, mut account: Account) -> Response<OutBody> {
    account.served_by(&head.upstream, None);
    if head.stream {
        account.streams();
    }
    let mut response = Response::new(OutBody::coming(Vec::new(), None, Rest::Shared(reader)));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    *response.extensions_mut() = head.extensions;
    let Some((outcome, attempts)) = head.told else {
        account.answered(head.status.as_u16(), as_what.unwrap_or(Outcome::Success), 0);
        name(response.headers_mut(), &account);
        return response.map(|body| body.accounted(account));
    };
    match as_what.filter(|_| outcome == Outcome::Success) {
        Some(as_what) => send(response, as_what, 0, account),
        None => send(response, outcome, attempts, account),
    }
}

/// Turn a request away.
pub fn reject(reply: &LocalReply, dialect: Dialect, account: Account) -> Response<OutBody> {
    let response = reply.render(dialect).map(|bytes| OutBody::held(vec![bytes], None));
    let late = reply.fault == Fault::DeadlineExceeded;
    send(response, if late { Outcome::Deadline } else { Outcome::Rejected }, 0, account)
}

fn send(response: Response<OutBody>, outcome: Outcome, attempts: u32, mut account: Account) -> Response<OutBody> {
    let (mut head, body) = response.into_parts();
    account.answered(head.status.as_u16(), outcome, attempts);
    mark(&mut head.headers, &account, outcome, attempts);
    Response::from_parts(head, body.accounted(account))
}

fn from_upstream(answer: Answer, outcome: Outcome, verdict: Option<&Verdict>, call: &Call) -> Response<OutBody> {
    let limits = &call.route.upstream.config.timeouts;
    let first =
        if answer.is_stream() && answer.held.is_empty() { limits.stream_first_event } else { limits.stream_idle };
    let watched = answer.watch.is_some();
    let rest = match (answer.watch, answer.rest) {
        (Some(watch), rest) => Rest::Stream(Watched::new(rest, watch, limits.stream_idle, call.beat)),
        (None, Some(body)) => Rest::Plain(Plain::new(body, first)),
        (None, None) => Rest::Nothing,
    };
    let trailers = answer.trailers.clone();
    let mut response = Response::new(OutBody::coming(answer.held, answer.trailers, rest));
    *response.status_mut() = status(answer.status, outcome, verdict);
    let raised = response.status() != answer.status;
    // A stream may get last words of ours, for which a declared length has no room.
    let sized = |name: &HeaderName| watched && name == CONTENT_LENGTH;
    *response.headers_mut() = hop::end_to_end(HeaderMap::new(), &answer.headers, sized);
    if let Some(trailers) = &trailers {
        hop::announce_trailers(response.headers_mut(), trailers);
    }
    *response.extensions_mut() = answer.extensions;
    if raised {
        // The words of the 200 do not go with the status that is told instead.
        response.extensions_mut().remove::<ReasonPhrase>();
    }
    response
}

/// The upstream's own status; but a failure told inside a 2xx that could not be got past takes the one that it names, so
/// that SDKs raise: 502 if it names none and would have passed with time.
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
    name(headers, account);
    headers.insert(ATTEMPTS, HeaderValue::from(attempts));
    headers.insert(OUTCOME, HeaderValue::from_static(outcome.name()));
}

/// Those of them that are known from the start.
fn name(headers: &mut HeaderMap, account: &Account) {
    let text = |value: &str| HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static("?"));
    headers.insert(REQUEST_ID, text(account.id()));
    headers.insert(UPSTREAM, text(account.upstream()));
}
