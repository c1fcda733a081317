//! A client request, read as far as it must be before it can be sent.

mod aim;
mod body;
mod live;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Extensions, Method, Version};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::admission::memory::Fingerprint;
use crate::answer::Holding;
use crate::clock::after;
use crate::config::{self, Config, StreamMode};
use crate::policy::safety::{self, Effect};
use crate::reply::LocalReply;
use crate::route::Route;
use crate::upstream::Upstream;
use crate::upstream::body::{Progress, SendBody};
use crate::wire::client::Priority;
use crate::wire::dialect::stream::Watch;
use crate::wire::dialect::{asked, credential, form};
use crate::wire::headers::Media;
use crate::wire::{client, encoding, hop};
use aim::{Aimed, Original, Trust, aim};
pub use body::CallBody;
use body::lock;

/// As much of a request body as is decoded to look for a field in it.
const LOOK_LIMIT: usize = 32 * 1024 * 1024;

/// The heartbeat in shield mode, where nothing else would come for long, unless the config gives one.
const SHIELD_BEAT: Duration = Duration::from_secs(15);

/// One client request on its way.
#[derive(Clone)]
pub struct Call {
    /// For logs and the client.
    pub id: String,
    /// Where it goes.
    pub route: Route,
    /// The method.
    pub method: Method,
    /// The headers as they go upstream.
    pub headers: HeaderMap,
    /// What hyper keeps beside a head (the case of header names).
    pub extensions: Extensions,
    /// The body.
    pub body: CallBody,
    /// When it arrived.
    pub arrived: Instant,
    /// When its answer's head must be on its way.
    pub deadline: Instant,
    /// An attempt under way by then goes on for so long: somebody may come back for its answer.
    pub linger: Duration,
    /// Tries in all.
    pub max_attempts: u32,
    /// It asks to switch protocols.
    pub upgrade: bool,
    /// It asks a model for an answer, so a good answer must hold one.
    pub model_call: bool,
    /// How far a streamed answer is held back.
    pub holding: Holding,
    /// The client asked for a stream, and gets a heartbeat after so long a silence.
    pub beat: Option<Duration>,
    /// The client says that it repeats itself.
    pub repeats: bool,
    /// Its client counts repeats, so that it can be told which are one call.
    pub counts_repeats: bool,
    /// The key that makes it one with other calls.
    pub key: Option<HeaderValue>,
    /// Everything that its client showed to say who it is, digested, where calls may be one.
    showed: Option<Fingerprint>,
    /// The client speaks HTTP/1.1, which has room for 102 Processing.
    pub http11: bool,
    /// The client was seen to take it.
    pub takes_interim: bool,
    /// What goes before what, where there is a line.
    pub priority: Priority,
    /// The run that it belongs to, or its client's own key, where that was said.
    run: Option<Vec<u8>>,
    /// The client's credential, digested with the rest: calls of different credentials never meet.
    credential: Vec<u8>,
    /// The request as it came, kept where there are fallbacks.
    original: Option<Arc<Original>>,
    model: OnceLock<Option<String>>,
}

impl Call {
    /// Read a request. Its head gives the limits; its body is read here unless it is too large to be kept.
    ///
    /// # Errors
    /// The reply for a client whose body is too large, stops coming, or is no valid HTTP.
    pub async fn read(
        id: String,
        parts: Parts,
        body: Incoming,
        route: Route,
        config: &Config,
    ) -> Result<Call, LocalReply> {
        let arrived = Instant::now();
        let body = body::read(&parts.headers, body, &config.server).await.map_err(body::unsent)?;
        let credential = presented(&parts);
        let run = client::run(&parts.headers).or(client::key(&parts.headers)).map(<[u8]>::to_vec);
        let original = (route.rest.is_some())
            .then(|| Arc::new(Original { headers: parts.headers.clone(), version: parts.version, body: body.clone() }));
        let Aimed { route, headers, body } = aim(&parts.headers, parts.version, body, route, Trust::Meant);
        let settings = &route.upstream.config;
        let (retry, stream) = (&settings.retry, settings.stream);
        let shield = client::shield(&parts.headers).unwrap_or(stream.mode == StreamMode::Shield);
        let mut call = Call {
            id,
            arrived,
            deadline: after(arrived, allowance(retry, &parts.headers)),
            linger: Duration::ZERO,
            max_attempts: client::max_attempts(&parts.headers).unwrap_or(retry.max_attempts),
            upgrade: parts.version == Version::HTTP_11 && hop::upgrade(&parts.headers).is_some(),
            model_call: safety::is_model_call(route.dialect, &parts.method, route.target.path()),
            holding: holding(shield, settings),
            beat: None,
            repeats: client::repeats_itself(&parts.headers),
            counts_repeats: client::counts_repeats(&parts.headers),
            key: client::idempotency_key(&parts.headers).cloned(),
            showed: showed(&parts.headers),
            http11: parts.version == Version::HTTP_11,
            takes_interim: parts.version == Version::HTTP_11 && client::takes_interim(&parts.headers),
            priority: client::priority(&parts.headers),
            run,
            headers,
            method: parts.method,
            extensions: parts.extensions,
            route,
            body,
            credential,
            original,
            model: OnceLock::new(),
        };
        call.finish_headers();
        call.beat = stream.heartbeat.or(shield.then_some(SHIELD_BEAT)).filter(|_| call.asks_stream());
        call.unencoded();
        Ok(call)
    }

    /// The same call, whose attempt under way at the deadline goes on for so long.
    pub fn lingering(&self, linger: Duration) -> Call {
        Call { linger, ..self.clone() }
    }

    /// The same call at another upstream; `None`: its body is gone.
    pub fn towards(&self, upstream: &Arc<Upstream>) -> Option<Call> {
        let original = self.original.as_ref().filter(|original| !original.body.is_spent())?;
        let trust = Trust::between(&self.route.upstream.config.base_url, &upstream.config.base_url);
        let route = self.route.towards(upstream)?;
        let Aimed { route, headers, body } =
            aim(&original.headers, original.version, original.body.clone(), route, trust);
        let mut call = Call { route, headers, body, model: OnceLock::new(), original: None, ..self.clone() };
        call.finish_headers();
        call.unencoded();
        Some(call)
    }

    fn finish_headers(&mut self) {
        if let CallBody::Whole { trailers: Some(trailers), .. } = &self.body {
            hop::announce_trailers(&mut self.headers, trailers);
        }
    }

    /// Lines of ours have no place in a compressed stream.
    fn unencoded(&mut self) {
        if self.beat.is_some() && self.headers.contains_key(ACCEPT_ENCODING) {
            self.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
    }

    /// The model that it asks for, as far as that can be told.
    pub fn model(&self) -> Option<&str> {
        let read = || asked::model(self.route.target.path(), || self.decoded().map(Cow::Owned));
        self.model.get_or_init(read).as_deref()
    }

    /// The tokens that it will cost, as an estimate: a quarter of the body's bytes, and the whole answer that it allows.
    pub fn tokens(&self) -> f64 {
        let declared = || self.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let body = self.decoded();
        let size = body.as_ref().map_or_else(|| declared().unwrap_or(0), |body| body.len() as u64);
        let answer = body.and_then(|body| asked::output_limit(&body)).unwrap_or(0);
        size as f64 / 4.0 + answer as f64
    }

    /// Calls that take turns with others as one: those of a run, else of a client's key, else of a credential.
    pub fn flow(&self) -> &[u8] {
        self.run.as_deref().unwrap_or(&self.credential)
    }

    /// The credential that the upstream sees: limits are its own. Empty where Backstop puts its one in.
    pub fn credential(&self) -> &[u8] {
        let own = self.route.upstream.config.api_key.is_some();
        if own { &[] } else { &self.credential }
    }

    /// The client asked for a stream of events. Its body is looked into for that: not on the way of calls that have no use
    /// for it.
    fn asks_stream(&self) -> bool {
        let target = &self.route.target;
        let asks = || self.model_call && self.decoded().is_some_and(|body| form::asks_stream(&body));
        // Not one of objects, and not an array in pieces.
        Watch::new(self.route.dialect, target.as_str(), Media::Unstated).takes_beat()
            && (form::streams(target.path()) || asks())
    }

    /// The body for one more attempt; `None`: it was sent, and there is no copy.
    pub fn send_body(&self, progress: Arc<Progress>) -> Option<SendBody> {
        match &self.body {
            CallBody::Whole { frames, trailers } => Some(SendBody::whole(frames.clone(), trailers.clone(), progress)),
            CallBody::Live { slot, .. } => lock(slot).is_some().then(|| SendBody::slot(slot.clone(), progress)),
        }
    }

    /// The body is gone: no further attempt can be made.
    pub fn is_spent(&self) -> bool {
        self.body.is_spent()
    }

    /// The reply for a client whose body failed while it was passed on.
    pub fn body_fault(&self) -> Option<LocalReply> {
        match &self.body {
            CallBody::Live { fault, .. } => fault.get().cloned(),
            CallBody::Whole { .. } => None,
        }
    }

    /// Whether a repeat may act twice upstream. The body is looked into only where a field of it decides.
    pub fn effect(&self) -> Effect {
        // The upstream itself sees to it that nothing is carried out twice.
        if self.route.upstream.config.idempotency_header.is_some() {
            return Effect::Repeatable;
        }
        safety::effect(self.route.dialect, &self.method, self.route.target.path(), || self.decoded())
    }

    /// The digest under which it is one with calls of the same key, from the same client, to the same place.
    pub fn name(&self, key: &[u8]) -> Fingerprint {
        let upstream = &self.route.upstream.config;
        let place =
            [self.method.as_str(), &upstream.name, upstream.authority(), self.route.target.as_str()].map(str::as_bytes);
        let who = self.showed.as_ref().map_or(&[][..], |showed| showed.bytes());
        Fingerprint::of([&self.credential[..], who, key].into_iter().chain(place))
    }

    /// The digest under which it is one with its own repeats, by its body.
    pub fn name_of(&self, body: Fingerprint) -> Fingerprint {
        self.name(&[&b"auto:"[..], body.bytes()].concat())
    }

    /// The digest of its body; `None`: it is not kept.
    pub fn body_print(&self) -> Option<Fingerprint> {
        // In one piece, however it came.
        let frames = self.body.whole()?;
        let body = Fingerprint::of_pieces(frames.iter().map(|frame| &frame[..]));
        // The same bytes mean something else under another name.
        let said =
            [CONTENT_TYPE, CONTENT_ENCODING].map(|name| self.headers.get(name).map_or(&b""[..], |v| v.as_bytes()));
        Some(Fingerprint::of([body.bytes(), said[0], said[1]]))
    }

    /// Credential, target and body in one digest.
    pub fn fingerprint(&self) -> Fingerprint {
        let head = [self.credential.as_slice(), self.route.target.as_str().as_bytes()];
        match &self.body {
            CallBody::Whole { frames, .. } => {
                Fingerprint::of(head.into_iter().chain(frames.iter().map(|frame| &frame[..])))
            }
            CallBody::Live { .. } => Fingerprint::of(head.into_iter().chain([self.id.as_bytes()])),
        }
    }

    fn decoded(&self) -> Option<Vec<u8>> {
        let CallBody::Whole { frames, .. } = &self.body else { return None };
        let raw = frames.concat();
        let decoded = encoding::decode(&self.headers, &raw, LOOK_LIMIT)?;
        (!decoded.cut).then_some(decoded.body)
    }
}

fn holding(shield: bool, upstream: &config::Upstream) -> Holding {
    let first_event = upstream.timeouts.stream_first_event;
    if shield { Holding::to_end(first_event) } else { Holding::to_content(upstream.stream.hold, first_event) }
}

/// How long a call may take up to the head of its answer: the client's word, the config's, and never past the client's patience.
fn allowance(retry: &config::Retry, headers: &HeaderMap) -> Duration {
    let allowed = client::deadline(headers).unwrap_or(retry.deadline);
    let patience = client::patience(headers).filter(|_| retry.respect_client_timeout);
    patience.map_or(allowed, |patience| allowed.min(client::answer_within(patience)))
}

fn presented(parts: &Parts) -> Vec<u8> {
    credential::presented(&parts.headers, parts.uri.query()).map(<[u8]>::to_vec).unwrap_or_default()
}

/// A client may say who it is in more headers than one, and in some that no table knows.
fn showed(headers: &HeaderMap) -> Option<Fingerprint> {
    if client::idempotency_key(headers).is_none() && !client::counts_repeats(headers) {
        return None;
    }
    let secrets = headers.iter().filter(|(name, _)| credential::may_be_secret(name.as_str()));
    Some(Fingerprint::of(secrets.flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()])))
}
