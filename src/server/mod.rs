//! The listener: connections in, requests to the proxy or the admin pages, and an orderly end.

mod cors;
mod gate;
pub mod reload;
pub mod run;
mod socket;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::admin;
use crate::drain::Drain;
use crate::instance::Instance;
use crate::metrics::NO_UPSTREAM;
use crate::proxy::proxy;
use crate::relay::OutBody;
use crate::reply::{Fault, LocalReply, Outcome};
use crate::wire::framing::Doubt;
use socket::{HEAD_TIMEOUT, Link, Socket};

/// Request header lines at most; beyond: 431. At every head hyper fills an array of so many. Of 256 it is as large (8 KiB) as
/// what a connection keeps; the allocator then lets the one have the other's place, and what is written once stays resident.
const MAX_HEADERS: usize = 320;
/// Bytes that hyper reads ahead at most; a longer request head is 431.
const READ_AHEAD: usize = 512 * 1024;
/// HTTP/2 pings to a silent client, so that one that vanished is let go.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The instance in force.
pub type Current = ArcSwap<Instance>;

/// Serve one client connection to its end. Public so that tests can serve memory.
pub async fn serve_connection<T>(io: T, current: Arc<Current>, local: Option<SocketAddr>)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let link = Arc::new(Link::default());
    let mut socket = Socket::new(io, link.clone());
    let drain = current.load().lasting.drain.clone();
    let version = tokio::select! {
        biased;
        version = socket.version() => version,
        _ = drain.begun() => return,
    };
    let service = service_fn(|request| {
        let (instance, link) = (current.load_full(), link.clone());
        // On the heap: hyper would keep the room for it as long as the connection lives, and it is large.
        Box::pin(async move { Ok::<_, Infallible>(answer(instance, request, &link, local).await) })
    });
    let ended = match version {
        Ok(Version::HTTP_2) => {
            let mut connection = Box::pin(http2().serve_connection(TokioIo::new(socket), service));
            to_its_end(connection.as_mut(), http2::Connection::graceful_shutdown, &drain).await
        }
        Ok(_) => {
            let connection = pin!(http1().serve_connection(TokioIo::new(socket), service).with_upgrades());
            to_its_end(connection, http1::UpgradeableConnection::graceful_shutdown, &drain).await
        }
        Err(error) => return tracing::debug!(%error, "a client connection ended before its first request"),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client connection ended early");
    }
}

/// Drive a connection; when draining begins, let it end with the request that it is at.
async fn to_its_end<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    stop: fn(Pin<&mut C>),
    drain: &Drain,
) -> hyper::Result<()> {
    tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        _ = drain.begun() => {
            stop(connection.as_mut());
            connection.await
        }
    }
}

fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .preserve_header_case(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(READ_AHEAD);
    builder
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_concurrent_streams(1000)
        .adaptive_window(true)
        .max_header_list_size(256 * 1024);
    builder
}

/// One request: may it come in, and who answers it.
async fn answer(
    instance: Arc<Instance>,
    request: Request<Incoming>,
    link: &Link,
    local: Option<SocketAddr>,
) -> Response<OutBody> {
    if let Some(doubt) = link.next_request() {
        return in_doubt(&instance, &request, doubt);
    }
    let server = &instance.config.server;
    if let Err(reply) = gate::host(&request, server, local) {
        return refuse(&instance, &request, &reply);
    }
    let origin = match gate::origin(request.headers(), server) {
        Ok(origin) => origin,
        Err(reply) => return refuse(&instance, &request, &reply),
    };
    if let Some(response) = origin.as_ref().and_then(|origin| cors::preflight(&request, origin)) {
        return response;
    }
    let mut response = inside(instance, request, link).await;
    if let Some(origin) = origin {
        cors::allow(response.headers_mut(), &origin);
    }
    response
}

/// A request that may come in.
async fn inside(instance: Arc<Instance>, request: Request<Incoming>, link: &Link) -> Response<OutBody> {
    let page = admin::page(request.uri().path());
    let keys = &instance.config.server.client_keys;
    if let Some(page) = page {
        if page.is_private()
            && let Err(reply) = gate::client_key(&request, keys, true)
        {
            return refuse(&instance, &request, &reply);
        }
        return page.render(&instance, request.method());
    }
    if let Err(reply) = gate::not_embedded(request.headers()) {
        return refuse(&instance, &request, &reply);
    }
    if request.method() == Method::CONNECT || request.uri().path_and_query().is_none() {
        let reply =
            LocalReply::new(Fault::UnknownRoute, "this is a proxy for model APIs, not a forward proxy: send it paths");
        return refuse(&instance, &request, &reply);
    }
    if !keys.is_empty()
        && let Err(reply) =
            gate::client_key(&request, keys, instance.routes.puts_credential(request.uri(), request.headers()))
    {
        return refuse(&instance, &request, &reply);
    }
    let response = proxy(instance, request, || link.ask_interim()).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        link.switched();
    }
    response
}

/// Turn a request away before it has an upstream.
fn refuse<B>(instance: &Instance, request: &Request<B>, reply: &LocalReply) -> Response<OutBody> {
    let dialect = instance.routes.dialect(request.uri(), request.headers());
    let status = reply.fault.status().as_u16();
    instance.lasting.metrics.request(NO_UPSTREAM, Outcome::Rejected.name(), status);
    tracing::info!(status, fault = reply.fault.name(), "turned away");
    let mut response = reply.render(dialect).map(|bytes| OutBody::held(vec![bytes], None));
    response.headers_mut().insert("x-backstop-outcome", HeaderValue::from_static(Outcome::Rejected.name()));
    response
}

/// A request that could be read in two ways is answered and its connection closed: what follows it is not to be trusted.
fn in_doubt(instance: &Instance, request: &Request<Incoming>, doubt: Doubt) -> Response<OutBody> {
    let mut response = refuse(instance, request, &LocalReply::new(Fault::BadRequest, doubt.describe()));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
