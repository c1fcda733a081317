//! A request aimed at one upstream: target, headers and body as that upstream gets them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use http::uri::PathAndQuery;
use http::{Uri, Version};

use super::LOOK_LIMIT;
use super::body::CallBody;
use crate::clock;
use crate::route::Route;
use crate::upstream::Upstream;
use crate::wire::dialect::{asked, credential};
use crate::wire::{client, encoding, hop};

/// A request as its client sent it.
#[derive(Clone)]
pub(super) struct Original {
    pub(super) headers: HeaderMap,
    pub(super) version: Version,
    pub(super) body: CallBody,
}

/// A request as an upstream gets it.
pub(super) struct Aimed {
    pub(super) route: Route,
    pub(super) headers: HeaderMap,
    pub(super) body: CallBody,
}

/// Whether the client's own credential may go to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The client meant it for this one.
    Meant,
    /// It is another host, which the client knows nothing of.
    Stranger,
}

impl Trust {
    /// Of an upstream that takes over from another one.
    pub(super) fn between(meant: &Uri, other: &Uri) -> Trust {
        let same = meant.scheme() == other.scheme() && meant.authority() == other.authority();
        if same { Trust::Meant } else { Trust::Stranger }
    }
}

/// Aim a request at the upstream of a route.
pub(super) fn aim(headers: &HeaderMap, version: Version, body: CallBody, route: Route, trust: Trust) -> Aimed {
    let mut aimed = Aimed {
        headers: outgoing(headers, version, &route, trust),
        route: Route { target: target(&route, trust), ..route },
        body,
    };
    if !aimed.route.upstream.config.model_map.is_empty() {
        aimed.rename_model();
    }
    aimed
}

impl Aimed {
    /// Put the upstream's name of the model in the place of the client's. A body that is not kept goes as it is.
    fn rename_model(&mut self) {
        let upstream: Arc<Upstream> = self.route.upstream.clone();
        let map = &upstream.config.model_map;
        if let Some(target) = asked::path_with_model(self.route.target.as_str(), map) {
            self.route.target = PathAndQuery::try_from(target).unwrap_or_else(|_| self.route.target.clone());
            return;
        }
        let CallBody::Whole { frames, trailers } = &self.body else { return };
        let raw = frames.concat();
        let plain = encoding::decode(&self.headers, &raw, LOOK_LIMIT).filter(|decoded| !decoded.cut);
        let Some(renamed) = plain.and_then(|plain| asked::body_with_model(&plain.body, map)) else { return };
        self.headers.remove(CONTENT_ENCODING);
        if self.headers.contains_key(CONTENT_LENGTH) {
            self.headers.insert(CONTENT_LENGTH, HeaderValue::from(renamed.len()));
        }
        self.body = CallBody::Whole { frames: Arc::from([Bytes::from(renamed)]), trailers: trailers.clone() };
    }
}

/// The target; what a client presented as `key` stays here where it is not meant for this upstream.
fn target(route: &Route, trust: Trust) -> PathAndQuery {
    let own = route.upstream.config.api_key.is_some();
    let target = match trust {
        Trust::Stranger => credential::without_secrets(route.target.as_str()),
        Trust::Meant if own => credential::without_key(route.target.as_str()),
        Trust::Meant => return route.target.clone(),
    };
    PathAndQuery::try_from(target).unwrap_or_else(|_| route.target.clone())
}

/// The request's headers as they go upstream: `host` first, the client's own, then those that the config puts in.
fn outgoing(headers: &HeaderMap, version: Version, route: &Route, trust: Trust) -> HeaderMap {
    let upstream = &route.upstream.config;
    let chunked = headers.contains_key(TRANSFER_ENCODING);
    // With a credential of its own from the environment, the upstream gets that one and no other.
    let from_env = upstream.api_key.is_some();
    let mut first = HeaderMap::with_capacity(headers.len() + 8);
    first.insert(HOST, route.upstream.host.clone());
    let mut sent = hop::end_to_end(first, headers, |name: &HeaderName| {
        name == HOST
            || name == EXPECT
            || name == CONTENT_LENGTH && chunked
            || name.as_str().starts_with(client::OWN_PREFIX)
            || from_env && credential::is_credential(name)
            || trust == Trust::Stranger && credential::may_be_secret(name.as_str())
            || upstream.headers.iter().any(|(own, _)| own == name)
    });
    for (name, value) in upstream.headers.iter().filter(|(name, _)| !(from_env && credential::is_credential(name))) {
        sent.append(name.clone(), value.clone());
    }
    if let Some(key) = &upstream.api_key {
        credential::put(route.dialect, &mut sent, key.expose());
    }
    if let Some(name) = &upstream.idempotency_header
        && !sent.contains_key(name)
    {
        sent.insert(name.clone(), client::idempotency_key(headers).cloned().unwrap_or_else(generated));
    }
    if let Some(protocol) = hop::upgrade(headers).filter(|_| version == Version::HTTP_11) {
        sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        sent.insert(UPGRADE, protocol.clone());
    }
    sent
}

/// A key that no other call has.
fn generated() -> HeaderValue {
    HeaderValue::try_from(clock::unique()).unwrap_or_else(|_| HeaderValue::from_static("-"))
}
