//! An upstream's answer, read as far as it must be before it can be judged.
//!
//! A plain answer is read whole first (up to [`LOOK_LIMIT`]), so that a cut or an error told inside a 200 can still be
//! retried. What comes live (streams, sound, pictures, files) is passed on from its first byte.

mod hold;

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::{Instant, timeout_at};

use crate::clock::after;
use crate::policy::classify::{self, Answer as Seen, Evidence, Rule, StreamEvidence, classify_answer};
use crate::policy::failure::{Kind, Phase, TransportError};
use crate::policy::verdict::Verdict;
use crate::upstream::ResponseBody;
use crate::wire::dialect::Dialect;
use crate::wire::dialect::form::{self, Beginning};
use crate::wire::dialect::stream::Watch;
use crate::wire::dialect::usage::Usage;
use crate::wire::encoding;
use crate::wire::headers::{Media, media};

pub use hold::Holding;

/// As much of an answer as is held to look at it, in bytes on the wire.
pub const LOOK_LIMIT: usize = 4 * 1024 * 1024;

/// A file of so many bytes at most is read whole before it is passed on.
const SMALL_FILE: usize = 64 * 1024;

/// An answer.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, hop-by-hop ones included.
    pub headers: HeaderMap,
    /// What hyper keeps beside a head (case of names, reason phrase, the upgrade).
    pub extensions: Extensions,
    /// What was read of the body.
    pub held: Vec<Bytes>,
    /// The trailers, if the body is whole.
    pub trailers: Option<HeaderMap>,
    /// What is still to come; `None`: the body is whole.
    pub rest: Option<ResponseBody>,
    /// It is passed on without a look at its body.
    pub live: bool,
    /// It begins as a stream of events does, though its content type does not say so.
    pub events: bool,
    /// A stream is watched as it passes.
    pub watch: Option<Box<Watch>>,
    /// It was to be held to its end, so that nothing of it has been shown.
    pub shielded: bool,
    /// When its head came, by our clock.
    pub at: SystemTime,
}

/// How to read an answer.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The dialect that the client speaks.
    pub dialect: Dialect,
    /// The request's path and query upstream.
    pub path: &'a str,
    /// The request's path asks for a stream, whatever the content type says.
    pub streaming: bool,
    /// The request asks to switch protocols.
    pub upgrade: bool,
    /// The request asks a model.
    pub model_call: bool,
    /// How far a stream is held back.
    pub holding: Holding,
    /// The limit between two pieces of the body.
    pub idle: Duration,
    /// When to stop looking: a good answer is passed on as it comes, a bad one has failed.
    pub deadline: Instant,
}

impl Answer {
    /// Read an answer's body as far as needed.
    ///
    /// # Errors
    /// If the body is cut, stalls, or (of a bad answer) is not there by the deadline. With it comes what that had cost.
    pub async fn read(
        response: Response<ResponseBody>,
        how: Reading<'_>,
        at: SystemTime,
    ) -> Result<Answer, (TransportError, Option<Cost>)> {
        let (head, body) = response.into_parts();
        let live = is_live(head.status, &head.headers, how);
        let mut answer = Answer {
            status: head.status,
            headers: head.headers,
            extensions: head.extensions,
            held: Vec::new(),
            trailers: None,
            rest: Some(body),
            live,
            events: false,
            watch: None,
            shielded: how.holding.whole,
            at,
        };
        if answer.status == StatusCode::SWITCHING_PROTOCOLS {
            return if how.upgrade { Ok(answer) } else { Err((unasked(), None)) };
        }
        if !live || how.streaming {
            answer.sniff(how).await.map_err(|error| (error, None))?;
        }
        if !answer.live {
            answer.fill(how).await.map_err(|error| (error, None))?;
            return Ok(answer);
        }
        answer.watch = answer.watch(how);
        if answer.watch.as_ref().is_some_and(|watch| watch.is_known()) {
            if how.holding.bytes > 0 {
                answer.hold(how).await.map_err(|error| (error, answer.told_cost()))?;
            }
        } else if !answer.is_stream() {
            answer.begin(how).await.map_err(|error| (error, None))?;
        }
        Ok(answer)
    }

    /// What has no content type, or one of plain text, may be a stream all the same: its first bytes show it.
    async fn sniff(&mut self, how: Reading<'_>) -> Result<(), TransportError> {
        let unsaid = matches!(media(&self.headers), Media::Unstated | Media::Text) && !encoding::encoded(&self.headers);
        if !unsaid || !how.model_call || !self.status.is_success() {
            return Ok(());
        }
        let shown = loop {
            match form::begins_as_events(&self.bytes()) {
                Some(shown) => break shown,
                None if self.rest.as_ref().is_none_or(Body::is_end_stream) => break false,
                None if !self.next(how).await? => break false,
                None => {}
            }
        };
        self.events = shown;
        self.live |= shown;
        Ok(())
    }

    /// Read the first piece of what will be passed on unwatched: as long as nothing has come, a failure can be retried. A
    /// stream in one JSON array shows in its first bytes whether it is one; what is none is read whole.
    async fn begin(&mut self, how: Reading<'_>) -> Result<(), TransportError> {
        loop {
            let shown = if how.streaming { form::beginning(&self.bytes()) } else { Beginning::Element };
            match (shown, self.held.is_empty()) {
                (Beginning::Other, false) => {
                    (self.live, self.watch) = (false, None);
                    return self.fill(how).await;
                }
                (Beginning::Element, false) => return Ok(()),
                _ => {}
            }
            if self.rest.as_ref().is_none_or(Body::is_end_stream) {
                // Nothing at all, or not even the beginning of an array.
                (self.live, self.watch, self.rest) = (!how.streaming, None, None);
                return Ok(());
            }
            if !self.next(how).await? {
                return Ok(());
            }
        }
    }

    /// One more piece of the body. `false`: the client's patience ends first, and what is coming is passed on as it comes.
    async fn next(&mut self, how: Reading<'_>) -> Result<bool, TransportError> {
        let Some(rest) = &mut self.rest else { return Ok(true) };
        let idle = after(Instant::now(), how.idle);
        let Ok(frame) = timeout_at(idle.min(how.deadline), rest.frame()).await else {
            if Instant::now() < idle && self.status.is_success() {
                self.live = true;
                return Ok(false);
            }
            return Err(stalled(how.idle));
        };
        match frame.transpose()?.map(http_body::Frame::into_data) {
            None => self.rest = None,
            Some(Ok(bytes)) => self.held.push(bytes),
            Some(Err(frame)) => self.trailers = frame.into_trailers().ok(),
        }
        Ok(true)
    }

    /// A watch for a stream that can be looked into. One whose bytes are encoded is passed on unseen: nothing could be
    /// told inside it either.
    fn watch(&self, how: Reading<'_>) -> Option<Box<Watch>> {
        let streams = self.is_stream() || how.streaming;
        let plain = !encoding::encoded(&self.headers);
        let kind = if self.events { Media::Stream } else { media(&self.headers) };
        let mut watch = (streams && plain).then(|| Box::new(Watch::new(how.dialect, how.path, kind)))?;
        for bytes in &self.held {
            watch.feed(bytes);
        }
        Some(watch)
    }

    async fn fill(&mut self, how: Reading<'_>) -> Result<(), TransportError> {
        let mut pieces = 0;
        let mut size = 0;
        while let Some(rest) = &self.rest {
            size += self.held[pieces..].iter().map(Bytes::len).sum::<usize>();
            pieces = self.held.len();
            if size >= LOOK_LIMIT {
                break;
            }
            if rest.is_end_stream() {
                self.rest = None;
            } else if !self.next(how).await? {
                break;
            }
        }
        Ok(())
    }

    /// The body in hand, in one piece.
    pub fn bytes(&self) -> Bytes {
        match self.held.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }

    /// What this answer means, and what it cost.
    pub fn judge(&self, dialect: Dialect, model_call: bool, rules: &[Rule]) -> (Verdict, Option<Cost>) {
        if let Some(failed) = self.judge_stream(dialect, rules) {
            return failed;
        }
        let raw = self.bytes();
        let (body, cut) = self.plain(&raw);
        let seen = Seen {
            dialect,
            model_call: model_call && !self.live && body.is_some(),
            status: self.status,
            headers: &self.headers,
            body: body.as_deref().unwrap_or_default(),
            whole: self.rest.is_none() && !cut,
            now: self.at,
        };
        let facts = seen.facts();
        let cost =
            facts.usage.map(|usage| Cost { usage, model: facts.model.as_deref().unwrap_or_default().to_owned() });
        (classify_answer(&seen, &facts, rules), cost)
    }

    /// A stream that failed while it was held. What it cost is known so far.
    fn judge_stream(&self, dialect: Dialect, rules: &[Rule]) -> Option<(Verdict, Option<Cost>)> {
        let watch = self.watch.as_ref().filter(|_| !self.held.is_empty())?;
        let verdict = match watch.error() {
            Some(error) if self.shielded || !error.after_content => classify::classify(
                Evidence::Stream(StreamEvidence { dialect, headers: &self.headers, data: &error.data, now: self.at }),
                rules,
            ),
            None if watch.is_malformed() || watch.is_empty_answer() => classify::empty_stream(watch.is_malformed()),
            _ => return None,
        };
        Some((verdict, self.told_cost()))
    }

    /// What a stream has told of its cost so far.
    fn told_cost(&self) -> Option<Cost> {
        let watch = self.watch.as_ref()?;
        Some(Cost { usage: watch.usage()?, model: watch.model().unwrap_or_default().to_owned() })
    }

    /// The body with its content encoding undone, and whether that had to be cut. `None`: it cannot be undone.
    pub fn plain<'a>(&self, raw: &'a [u8]) -> (Option<Cow<'a, [u8]>>, bool) {
        if !encoding::encoded(&self.headers) {
            return (Some(Cow::Borrowed(raw)), false);
        }
        match encoding::decode(&self.headers, raw, LOOK_LIMIT) {
            Some(decoded) => (Some(Cow::Owned(decoded.body)), decoded.cut),
            None => (None, false),
        }
    }

    /// What is in hand of the body holds this word.
    pub fn names(&self, word: &str) -> bool {
        let raw = self.bytes();
        let (plain, _) = self.plain(&raw);
        let told = self.watch.as_ref().and_then(|watch| watch.error()).map(|error| &*error.data);
        let holds = |bytes: &[u8]| memchr::memmem::find(bytes, word.as_bytes()).is_some();
        !word.is_empty() && (told.is_some_and(holds) || plain.is_some_and(|plain| holds(&plain)))
    }

    /// The body is a stream of events, by its content type or by its first bytes.
    pub fn is_stream(&self) -> bool {
        self.events || media(&self.headers) == Media::Stream
    }
}

/// What an answer cost, by the provider's own word.
#[derive(Debug, Clone)]
pub struct Cost {
    /// Tokens.
    pub usage: Usage,
    /// The model that the answer names; empty if none.
    pub model: String,
}

/// A good answer that is passed on as it comes: streams, and what holds no text to judge.
fn is_live(status: StatusCode, answer: &HeaderMap, how: Reading<'_>) -> bool {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return true;
    }
    if !status.is_success() || how.method == Method::HEAD {
        return false;
    }
    let kind = media(answer);
    if kind == Media::Stream || how.streaming && matches!(kind, Media::Json | Media::Unstated) {
        return true;
    }
    let text = kind != Media::Binary;
    let declared =
        answer.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match declared {
        // A small file is read whole, so that a cut is noticed; a large one need not wait for its end.
        Some(size) => size > LOOK_LIMIT || !text && size > SMALL_FILE,
        None => !text || !how.model_call && kind != Media::Json,
    }
}

/// The body stopped coming: nothing for the whole limit.
pub fn stalled(idle: Duration) -> TransportError {
    let detail = format!("the response body stalled for {} (timeouts.stream_idle)", humantime::format_duration(idle));
    TransportError { phase: Phase::Body, kind: Kind::Timeout, sent: true, detail }
}

/// RFC 9110 section 15.2.2: 101 is the answer to a request that asked for it.
fn unasked() -> TransportError {
    let detail = "the upstream switched protocols, which was not asked for".to_owned();
    TransportError { phase: Phase::Head, kind: Kind::Protocol, sent: true, detail }
}
