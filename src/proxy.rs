//! The main path: a client's request in, an answer out.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Request, Response};
use hyper::body::Incoming;

use crate::account::Account;
use crate::attempts::Attempts;
use crate::call::Call;
use crate::instance::Instance;
use crate::join::{self, joined};
use crate::relay::{OutBody, Trying, held, reject, relay, relay_early, within};
use crate::reply::{Fault, LocalReply};
use crate::route::Route;
use crate::tunnel;

/// Serve one request. `interim` sends 102 Processing ahead of the answer. Dropping the future ends whatever is under way.
pub async fn proxy(instance: Arc<Instance>, mut request: Request<Incoming>, interim: impl Fn()) -> Response<OutBody> {
    let lasting = &instance.lasting;
    let id = lasting.clock.request_id();
    let target = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut account = Account::open(lasting.metrics.clone(), id.clone(), request.method().clone(), target.as_str());
    let Some(route) = instance.routes.resolve(&target, request.headers()) else {
        let dialect = instance.routes.dialect(request.uri(), request.headers());
        return reject(&unknown_route(&instance, target.path()), dialect, account);
    };
    account.routed(&route.upstream.config.name);
    let dialect = route.dialect;
    let switch = tunnel::asked(&mut request);
    let call = match read(id, request, route, &instance).await {
        Ok(call) => Arc::new(call),
        Err(reply) => return reject(&reply, dialect, account),
    };
    if let Some(place) = join::place(&instance, &call) {
        return joined(place, instance, call, account, interim).await;
    }
    // On the heap: every layer that hands a future on copies it, and this one is large.
    let attempts: Trying = Box::pin(Attempts::new(instance.clone(), call.clone()).run());
    let mut opening = match call.beat {
        None => held(attempts, &call, &instance, interim).await,
        Some(beat) => match within(beat, attempts).await {
            Ok(opening) => opening,
            Err(attempts) => return relay_early(attempts, beat, call, account),
        },
    };
    let switched = switch.and_then(|switch| switch.accepted(&mut opening));
    let mut response = relay(opening, account);
    if let Some(protocol) = switched {
        tunnel::announce(response.headers_mut(), protocol);
    }
    response
}

async fn read(id: String, request: Request<Incoming>, route: Route, instance: &Instance) -> Result<Call, LocalReply> {
    let (parts, body) = request.into_parts();
    Call::read(id, parts, body, route, &instance.config).await
}

/// A request without a route is told what routes there are.
fn unknown_route(instance: &Instance, path: &str) -> LocalReply {
    let names = instance.routes.names().join(", ");
    let mut message = "the path names no upstream, and its form says nothing: begin it with /NAME/ or /v1/".to_owned();
    if path.starts_with("/chat/") || path.starts_with("/responses") || path.starts_with("/embeddings") {
        message.push_str(" (with some SDKs the base URL ends in /v1)");
    }
    LocalReply::new(Fault::UnknownRoute, format!("{message}. Upstreams: {names}"))
}
