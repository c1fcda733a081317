//! A client request, read as far as it must be before it can be sent.

mod live;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, Method, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout};

use crate::admission::memory::Fingerprint;
use crate::answer::Holding;
use crate::clock::after;
use crate::config::{self, Config, StreamMode};
use crate::policy::safety::{self, Effect};
use crate::reply::{Fault, LocalReply};
use crate::route::Route;
use crate::upstream::body::{LiveBody, Progress, SendBody};
use crate::wire::dialect::stream::Watch;
use crate::wire::dialect::{credential, form};
use crate::wire::headers::Media;
use crate::wire::{client, encoding, hop};
use live::Capped;

/// A client that sends no byte of its request body for so long is let go: 408.
const CLIENT_IDLE: Duration = Duration::from_secs(60);
/// As much of a request body as is decoded to look for a field in it.
const LOOK_LIMIT: usize = 32 * 1024 * 1024;

/// The heartbeat in shield mode, where nothing else would come for long, unless the config gives one.
const SHIELD_BEAT: Duration = Duration::from_secs(15);

/// One client request on its way.
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
    /// The client speaks HTTP/1.1, which has room for 102 Processing.
    pub http11: bool,
    /// The client was seen to take it.
    pub takes_interim: bool,
    /// The client's credential, digested with the rest: calls of different credentials never meet.
    credential: Vec<u8>,
}

/// A request body.
pub enum CallBody {
    /// In memory: it can be sent again.
    Whole {
        /// The pieces, as they came.
        frames: Arc<[Bytes]>,
        /// The trailers, if there were any.
        trailers: Option<HeaderMap>,
    },
    /// Larger than `server.replay_body`: sent as it comes, once.
    Live {
        /// The body; `None` when an attempt has taken it.
        slot: Arc<Mutex<Option<LiveBody>>>,
        /// The reply for a client whose body failed on the way.
        fault: Arc<OnceLock<LocalReply>>,
    },
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
        let body = read_body(&parts.headers, body, &config.server).await.map_err(unsent)?;
        let upstream = &route.upstream.config;
        let target = target(upstream, route.target);
        let route = Route { target, ..route };
        let settings = &route.upstream.config;
        let (retry, stream) = (&settings.retry, settings.stream);
        let shield = client::shield(&parts.headers).unwrap_or(stream.mode == StreamMode::Shield);
        let credential =
            credential::presented(&parts.headers, parts.uri.query()).map(<[u8]>::to_vec).unwrap_or_default();
        let mut call = Call {
            id,
            arrived,
            deadline: after(arrived, allowance(retry, &parts.headers)),
            max_attempts: client::max_attempts(&parts.headers).unwrap_or(retry.max_attempts),
            upgrade: parts.version == Version::HTTP_11 && hop::upgrade(&parts.headers).is_some(),
            model_call: safety::is_model_call(route.dialect, &parts.method, route.target.path()),
            holding: holding(shield, settings),
            beat: None,
            repeats: client::repeats_itself(&parts.headers),
            http11: parts.version == Version::HTTP_11,
            takes_interim: parts.version == Version::HTTP_11 && client::takes_interim(&parts.headers),
            headers: outgoing(&parts, &route),
            method: parts.method,
            extensions: parts.extensions,
            route,
            body,
            credential,
        };
        if let CallBody::Whole { trailers: Some(trailers), .. } = &call.body {
            hop::announce_trailers(&mut call.headers, trailers);
        }
        let beat = stream.heartbeat.or(shield.then_some(SHIELD_BEAT));
        call.beat = beat.filter(|_| call.asks_stream());
        if call.beat.is_some() && call.headers.contains_key(ACCEPT_ENCODING) {
            // Lines of ours have no place in a compressed stream.
            call.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        Ok(call)
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
        matches!(&self.body, CallBody::Live { slot, .. } if lock(slot).is_none())
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
        safety::effect(self.route.dialect, &self.method, self.route.target.path(), || self.decoded())
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

/// The target; what a client presented to Backstop as `key` stays here where Backstop puts the credential in.
fn target(upstream: &config::Upstream, target: PathAndQuery) -> PathAndQuery {
    if upstream.api_key.is_none() {
        return target;
    }
    PathAndQuery::try_from(credential::without_key(target.as_str())).unwrap_or(target)
}

/// The request's headers as they go upstream: `host` first, the client's own, then those that the config puts in.
fn outgoing(parts: &Parts, route: &Route) -> HeaderMap {
    let upstream = &route.upstream.config;
    let chunked = parts.headers.contains_key(TRANSFER_ENCODING);
    let mut first = HeaderMap::with_capacity(parts.headers.len() + 8);
    first.insert(HOST, route.upstream.host.clone());
    let mut sent = hop::end_to_end(first, &parts.headers, |name| {
        name == HOST
            || name == EXPECT
            || name == CONTENT_LENGTH && chunked
            || name.as_str().starts_with(client::OWN_PREFIX)
            || upstream.api_key.is_some() && credential::is_credential(name)
            || upstream.headers.iter().any(|(own, _)| own == name)
    });
    // With a credential of its own from the environment, the upstream gets that one and no other.
    let from_env = upstream.api_key.is_some();
    for (name, value) in upstream.headers.iter().filter(|(name, _)| !(from_env && credential::is_credential(name))) {
        sent.append(name.clone(), value.clone());
    }
    if let Some(key) = &upstream.api_key {
        credential::put(route.dialect, &mut sent, key.expose());
    }
    if let Some(protocol) = hop::upgrade(&parts.headers).filter(|_| parts.version == Version::HTTP_11) {
        sent.insert(http::header::CONNECTION, HeaderValue::from_static("Upgrade"));
        sent.insert(http::header::UPGRADE, protocol.clone());
    }
    sent
}

/// Keep the body in memory up to `replay_body`; stream a larger one; refuse one over `max_body`.
async fn read_body(headers: &HeaderMap, mut body: Incoming, limits: &config::Server) -> Result<CallBody, LocalReply> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok()).unwrap_or(0);
    if declared > limits.max_body {
        return Err(too_large(limits.max_body));
    }
    let mut frames: Vec<Bytes> = Vec::new();
    let (mut size, mut trailers) = (0_u64, None);
    while declared <= limits.replay_body && size <= limits.replay_body {
        if body.is_end_stream() {
            return Ok(CallBody::Whole { frames: frames.into(), trailers });
        }
        let Some(frame) = timeout(CLIENT_IDLE, body.frame()).await.map_err(|_| stopped())? else {
            return Ok(CallBody::Whole { frames: frames.into(), trailers });
        };
        match frame.map_err(|error| broken(&error))?.into_data() {
            Ok(bytes) => {
                size += bytes.len() as u64;
                frames.push(bytes);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    if size > limits.max_body {
        return Err(too_large(limits.max_body));
    }
    let live = Capped::new(frames, body, limits.max_body, CLIENT_IDLE);
    let fault = live.fault();
    Ok(CallBody::Live { slot: Arc::new(Mutex::new(Some(Box::pin(live)))), fault })
}

/// The reply for a body that failed before any of it was passed on.
fn unsent(reply: LocalReply) -> LocalReply {
    LocalReply { message: reply.message + "; nothing was sent upstream", ..reply }
}

/// The reply to a body over the limit.
fn too_large(limit: u64) -> LocalReply {
    let message = format!("the request body is larger than {limit} bytes (server.max_body)");
    LocalReply::new(Fault::RequestTooLarge, message)
}

fn stopped() -> LocalReply {
    let message = format!("no byte of the request body came for {} s", CLIENT_IDLE.as_secs());
    LocalReply::new(Fault::RequestTimeout, message)
}

fn broken(error: &hyper::Error) -> LocalReply {
    let message = format!("the request body could not be read: {error}");
    LocalReply::new(Fault::BadRequest, message)
}

fn lock(slot: &Mutex<Option<LiveBody>>) -> std::sync::MutexGuard<'_, Option<LiveBody>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
