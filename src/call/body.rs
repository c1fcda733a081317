//! A request's body: kept, so that it can be sent again, or passed on once as it comes.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::live::Capped;
use crate::config;
use crate::reply::{Fault, LocalReply};
use crate::upstream::body::LiveBody;

/// A client that sends no byte of its request body for so long is let go: 408.
const CLIENT_IDLE: Duration = Duration::from_secs(60);

/// A request body.
#[derive(Clone)]
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

impl CallBody {
    /// The body is gone: no further attempt can be made.
    pub fn is_spent(&self) -> bool {
        matches!(self, CallBody::Live { slot, .. } if lock(slot).is_none())
    }

    /// Its pieces, if it is kept.
    pub fn whole(&self) -> Option<&[Bytes]> {
        match self {
            CallBody::Whole { frames, .. } => Some(frames),
            CallBody::Live { .. } => None,
        }
    }
}

/// Keep the body in memory up to `replay_body`; stream a larger one; refuse one over `max_body`.
pub(super) async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    limits: &config::Server,
) -> Result<CallBody, LocalReply> {
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
pub(super) fn unsent(reply: LocalReply) -> LocalReply {
    LocalReply { message: reply.message + "; nothing was sent upstream", ..reply }
}

/// The reply to a body over the limit.
pub(super) fn too_large(limit: u64) -> LocalReply {
    let message = format!("the request body is larger than {limit} bytes (server.max_body)");
    LocalReply::new(Fault::RequestTooLarge, message)
}

pub(super) fn stopped() -> LocalReply {
    let message = format!("no byte of the request body came for {} s", CLIENT_IDLE.as_secs());
    LocalReply::new(Fault::RequestTimeout, message)
}

pub(super) fn broken(error: &hyper::Error) -> LocalReply {
    let message = format!("the request body could not be read: {error}");
    LocalReply::new(Fault::BadRequest, message)
}

pub(super) fn lock(slot: &Mutex<Option<LiveBody>>) -> std::sync::MutexGuard<'_, Option<LiveBody>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
