//! Evidence → verdict.
//!
//! The order of rules: the user's own; the server's `x-should-retry`; what the error body says in so many words (spent
//! quota, a request that does not fit); the status. A 2xx is believed unless a model was asked and the body is no answer.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::failure::{Kind, Phase, TransportError};
use super::status;
use super::verdict::{Class, Reason, Verdict};
use crate::wire::dialect::Dialect;
use crate::wire::dialect::answer::{AnswerFacts, Content, Shape};
use crate::wire::dialect::errors::ErrorFacts;
use crate::wire::dialect::limits;
use crate::wire::dialect::words::{Meaning, Sense};
use crate::wire::headers::{Media, media, single};
use crate::wire::hints::{self, Source};

/// No caller sits through a longer wait, whatever the limits are set to: such a limit is spent, not strained.
const HOPELESS_WAIT: Duration = Duration::from_secs(3600);
/// A subscription's window that is reset sooner than this is nearly over, and its refusal an ordinary rate limit.
const SHORT_WINDOW: Duration = Duration::from_secs(300);

/// One `[[classify]]` rule of the user: every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Any of these statuses; empty: any.
    pub status: Vec<u16>,
    /// Any of these in the body's error type, code or status field; empty: any.
    pub error_type: Vec<String>,
    /// This text in the decoded body; empty: any.
    pub body_contains: String,
    /// The verdict's class.
    pub class: Class,
}

/// What an attempt left behind.
#[derive(Debug, Clone, Copy)]
pub enum Evidence<'a> {
    /// A whole answer, or as much of it as is looked at.
    Answer(Answer<'a>),
    /// No whole answer.
    Failure(&'a TransportError),
    /// An error event in a stream.
    Stream(StreamEvidence<'a>),
}

/// An answer to look at.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The dialect of the route.
    pub dialect: Dialect,
    /// The request asks a model for an answer (chat, messages, responses, generateContent, embeddings …), so that a 2xx must hold one.
    pub model_call: bool,
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body, content encoding undone; cut at a bound, see `whole`.
    pub body: &'a [u8],
    /// `body` is all of it.
    pub whole: bool,
    /// When the answer arrived, by our clock.
    pub now: SystemTime,
}

impl<'a> Answer<'a> {
    /// The facts of the body as an answer of a model; unread where it is not judged as one (no 2xx, no model call, a
    /// stream, audio, a body that was not read whole).
    pub fn facts(&self) -> AnswerFacts<'a> {
        let read = match media(self.headers) {
            Media::Json | Media::Html | Media::Text | Media::Unstated => true,
            Media::Binary => self.body.is_empty(),
            Media::Stream => false,
        };
        // 204 and 205 have no body by definition.
        let bodied = self.status.is_success() && !matches!(self.status.as_u16(), 204 | 205);
        let judged = self.model_call && self.whole && bodied;
        if judged && read { AnswerFacts::read(self.body) } else { AnswerFacts::default() }
    }
}

/// An error event in a stream that began with a 2xx.
#[derive(Debug, Clone, Copy)]
pub struct StreamEvidence<'a> {
    /// The dialect of the route.
    pub dialect: Dialect,
    /// The headers of the answer.
    pub headers: &'a HeaderMap,
    /// The JSON of the event.
    pub data: &'a [u8],
    /// When the answer arrived, by our clock.
    pub now: SystemTime,
}

/// Evidence → verdict. Pure; the same evidence gives the same verdict.
pub fn classify(evidence: Evidence<'_>, rules: &[Rule]) -> Verdict {
    match evidence {
        Evidence::Failure(error) => failed(error),
        Evidence::Answer(answer) => classify_answer(&answer, &answer.facts(), rules),
        Evidence::Stream(event) => stream_error(&event, rules),
    }
}

/// An error event is judged as an error told inside a 2xx. What it does not name more closely is a `stream_error`.
fn stream_error(event: &StreamEvidence<'_>, rules: &[Rule]) -> Verdict {
    let StreamEvidence { dialect, headers, data: body, now } = *event;
    let answer = Answer { dialect, model_call: true, status: StatusCode::OK, headers, body, whole: true, now };
    let facts = AnswerFacts { shape: Shape::Json, error: true, ..AnswerFacts::default() };
    let verdict = classify_answer(&answer, &facts, rules);
    let reason = if verdict.reason == Reason::ServerError { Reason::StreamError } else { verdict.reason };
    // Some SDKs do not raise on an error event, but all do on a status.
    let named_status = verdict.named_status.or_else(|| status_of(reason));
    Verdict { reason, named_status, ..verdict }
}

/// The status that goes with a reason that no waiting betters.
fn status_of(reason: Reason) -> Option<u16> {
    match reason {
        Reason::QuotaExhausted | Reason::RateLimited => Some(429),
        Reason::Auth => Some(401),
        Reason::NotFound => Some(404),
        Reason::TooLarge => Some(413),
        Reason::BadRequest | Reason::Other => Some(400),
        _ => None,
    }
}

/// A stream that came to a natural end without content, as an answer without content is judged. `malformed`: what the
/// model wrote was a tool call that the provider could not use.
pub fn empty_stream(malformed: bool) -> Verdict {
    verdict(Class::Recoverable, Reason::Empty, if malformed { "malformed tool call" } else { "no content" })
}

/// [`classify`] for an answer whose facts ([`Answer::facts`]) are wanted for more than the verdict: the body is read once.
pub fn classify_answer(answer: &Answer<'_>, facts: &AnswerFacts<'_>, rules: &[Rule]) -> Verdict {
    let seen = Seen::new(answer, facts);
    let built_in = seen.verdict();
    if let Some(rule) = rules.iter().find(|r| r.holds(&seen)) {
        return by_user(rule, built_in);
    }
    if answer.status.as_u16() < 400 {
        return built_in;
    }
    // The server's word on itself: the SDKs obey it too.
    match single(answer.headers, "x-should-retry") {
        Some("true") => Verdict { class: Class::Transient, rule: "x-should-retry: true", unknown: false, ..built_in },
        Some("false") => Verdict { class: Class::Terminal, rule: "x-should-retry: false", unknown: false, ..built_in },
        _ => built_in,
    }
}

fn by_user(rule: &Rule, built_in: Verdict) -> Verdict {
    let reason = match (rule.class, built_in.reason) {
        (Class::Success, _) => Reason::Ok,
        (_, Reason::Ok) => Reason::Other,
        (_, reason) => reason,
    };
    // A good answer that the user calls a failure was carried out all the same.
    let ambiguous = built_in.ambiguous || built_in.class == Class::Success && rule.class == Class::Transient;
    Verdict { class: rule.class, reason, rule: "user rule", unknown: false, ambiguous, ..built_in }
}

impl Rule {
    fn holds(&self, seen: &Seen<'_>) -> bool {
        let answer = seen.answer;
        let status = self.status.is_empty() || self.status.contains(&answer.status.as_u16());
        let words = || seen.error.iter().flat_map(|e| &e.words);
        let error_type =
            self.error_type.is_empty() || words().any(|w| self.error_type.iter().any(|t| t.eq_ignore_ascii_case(w)));
        let text = self.body_contains.as_bytes();
        status && error_type && (text.is_empty() || memchr::memmem::find(answer.body, text).is_some())
    }
}

/// An answer with what was read from it.
struct Seen<'a> {
    answer: &'a Answer<'a>,
    facts: &'a AnswerFacts<'a>,
    /// Where the answer is an error, by its status or by its body.
    error: Option<ErrorFacts>,
}

impl<'a> Seen<'a> {
    fn new(answer: &'a Answer<'a>, facts: &'a AnswerFacts<'a>) -> Self {
        let is_error = answer.status.as_u16() >= 400 || facts.error;
        let error = is_error.then(|| ErrorFacts::read(answer.headers, answer.body));
        Seen { answer, facts, error }
    }

    fn verdict(&self) -> Verdict {
        let status = self.answer.status.as_u16();
        match &self.error {
            Some(error) if status >= 400 => self.error(status, error, error.sense(status)),
            Some(error) => self.error_inside_success(error),
            None => self.answered(),
        }
    }

    /// An error told inside a 2xx is judged as if it had come with the status that it names.
    fn error_inside_success(&self, error: &ErrorFacts) -> Verdict {
        let guess = error.sense(error.status.unwrap_or(502));
        let named = error.status.or_else(|| guess.map(|s| s.meaning.status(self.answer.dialect.overloaded_status())));
        let status = named.unwrap_or(502);
        let verdict = self.error(status, error, error.sense(status));
        // What is passed on at once is passed on as it is, unless it names a status by number.
        let told = if verdict.class == Class::Terminal { error.status } else { Some(status) };
        let verdict = Verdict { named_status: told, ..verdict };
        match named {
            Some(_) => verdict,
            None => Verdict { unknown: true, rule: "error of no known kind inside a 2xx", ..verdict },
        }
    }

    /// An error: what its body says in so many words, then its status.
    fn error(&self, status: u16, error: &ErrorFacts, sense: Option<Sense>) -> Verdict {
        let wait = self.wait(status, error);
        let base = match sense.and_then(|s| by_sense(s, status)).or_else(|| self.spent_window(wait)) {
            Some(verdict) => verdict,
            None => by_status(status, sense, wait),
        };
        let ambiguous = base.class == Class::Transient && status::ambiguous(status, error.shaped);
        Verdict { wait, ambiguous, ..base }
    }

    fn wait(&self, status: u16, error: &ErrorFacts) -> Option<Duration> {
        let limited = matches!(status, 429 | 503 | 529);
        let Answer { headers, now, .. } = *self.answer;
        hints::wait(&Source { headers, facts: error, limited, now })
    }

    fn spent_window(&self, wait: Option<Duration>) -> Option<Verdict> {
        let long = wait.is_none_or(|w| w > SHORT_WINDOW);
        let spent = limits::subscription_spent(self.answer.headers) && long;
        spent.then(|| verdict(Class::Terminal, Reason::QuotaExhausted, "spent quota: subscription window"))
    }

    /// A 2xx or 3xx that tells no error.
    fn answered(&self) -> Verdict {
        let facts = self.facts;
        let unread = |reason, rule| Verdict { ambiguous: true, ..verdict(Class::Transient, reason, rule) };
        let media = media(self.answer.headers);
        match facts.shape {
            Shape::Unread => success(),
            // A transcript of silence is blank.
            Shape::Empty if media == Media::Text && !self.answer.body.is_empty() => success(),
            Shape::Empty => unread(Reason::Empty, "empty body"),
            // A transcript may begin with anything.
            Shape::Html if media == Media::Text && !is_page(self.answer.body) => success(),
            Shape::Html => unread(Reason::Protocol, "web page instead of an answer"),
            _ if media == Media::Html => unread(Reason::Protocol, "web page instead of an answer"),
            Shape::Truncated if media == Media::Json => unread(Reason::Protocol, "truncated JSON"),
            Shape::Other if media == Media::Json && !begins_like_json(self.answer.body) => {
                unread(Reason::Protocol, "invalid JSON")
            }
            // Not what the standard says, but whole: NaN, a lone surrogate, an odd byte. The SDKs read much of that, and what
            // has been paid for is theirs to judge.
            Shape::Truncated | Shape::Other => success(),
            Shape::Json if facts.malformed => empty_stream(true),
            Shape::Json if facts.content == Content::Absent => empty_stream(false),
            Shape::Json => success(),
        }
    }
}

/// What an error's words decide, whatever its status.
fn by_sense(sense: Sense, status: u16) -> Option<Verdict> {
    let (class, reason) = match sense.meaning {
        Meaning::SpentQuota => (Class::Terminal, Reason::QuotaExhausted),
        Meaning::TooLarge => (Class::Terminal, Reason::TooLarge),
        Meaning::BadOutput if status < 500 => (Class::Recoverable, Reason::Other),
        Meaning::Locked if status < 500 => (Class::Transient, Reason::Other),
        Meaning::Auth if status == 400 => (Class::Terminal, Reason::Auth),
        _ => return None,
    };
    Some(verdict(class, reason, sense.rule))
}

/// What the status decides. The words only tell a lack of capacity from other faults.
fn by_status(status: u16, sense: Option<Sense>, wait: Option<Duration>) -> Verdict {
    let row = status::of(status);
    let mut v = Verdict { unknown: !row.known, ..verdict(row.class, row.reason, row.rule) };
    if let Some(Sense { meaning: Meaning::Overloaded, rule }) = sense.filter(|_| v.class == Class::Transient) {
        (v.reason, v.rule, v.unknown) = (Reason::Overloaded, rule, false);
    }
    if status == 402 && wait.is_some() {
        // Money that is held by requests in flight comes back.
        v = verdict(Class::Transient, Reason::RateLimited, "status 402 with a wait");
    }
    if v.class == Class::Transient && wait.is_some_and(|w| w > HOPELESS_WAIT) {
        let reason = if v.reason == Reason::RateLimited { Reason::QuotaExhausted } else { v.reason };
        v = verdict(Class::Terminal, reason, "stated wait of more than an hour");
    }
    v
}

/// No whole answer.
fn failed(error: &TransportError) -> Verdict {
    let (class, reason, rule) = match (error.kind, error.phase) {
        (Kind::Certificate, _) => (Class::Terminal, Reason::Connect, "certificate"),
        (Kind::Timeout, Phase::Connect) => (Class::Transient, Reason::Timeout, "timeout connecting"),
        (Kind::Timeout, Phase::Head) => (Class::Transient, Reason::Timeout, "timeout before the answer"),
        (Kind::Timeout, Phase::Body) => (Class::Transient, Reason::Timeout, "timeout within the answer"),
        (Kind::Dns, _) => (Class::Transient, Reason::Connect, "name not resolved"),
        (Kind::Refused, _) => (Class::Transient, Reason::Connect, "connection refused"),
        (Kind::Tls, _) => (Class::Transient, Reason::Connect, "TLS failed"),
        (_, Phase::Connect) => (Class::Transient, Reason::Connect, "connecting failed"),
        (Kind::Unprocessed, _) => (Class::Transient, Reason::Reset, "not processed, says HTTP/2"),
        (Kind::Reset, _) => (Class::Transient, Reason::Reset, "connection lost"),
        (Kind::Protocol, _) => (Class::Transient, Reason::Protocol, "no valid HTTP"),
    };
    let ambiguous = error.sent && error.phase != Phase::Connect && error.kind != Kind::Unprocessed;
    Verdict { ambiguous, ..verdict(class, reason, rule) }
}

/// Text that is a web page, whatever its content type says.
fn is_page(body: &[u8]) -> bool {
    let body = body.trim_ascii_start();
    let begins = |with: &[u8]| body.get(..with.len()).is_some_and(|b| b.eq_ignore_ascii_case(with));
    begins(b"<!doctype html") || begins(b"<html")
}

fn begins_like_json(body: &[u8]) -> bool {
    matches!(body.trim_ascii_start().first(), Some(b'{' | b'['))
}

fn success() -> Verdict {
    verdict(Class::Success, Reason::Ok, "success")
}

fn verdict(class: Class, reason: Reason, rule: &'static str) -> Verdict {
    Verdict { class, reason, rule, wait: None, ambiguous: false, unknown: false, named_status: None }
}
