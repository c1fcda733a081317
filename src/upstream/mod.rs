//! The client side: one request out, one response head back, and what went wrong in words that retries understand.

pub mod body;
pub mod dial;
mod failure;
pub mod pool;
mod response;
pub mod sockets;
mod tls;
mod tolerant;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until};

use crate::clock::after;
use crate::config;
use crate::policy::failure::{Kind, Phase, TransportError};
use body::{Progress, SendBody};
use dial::Dial;
use pool::{Lease, Pool, Sender, Want};
pub use response::ResponseBody;

/// A configured upstream with its connections.
pub struct Upstream {
    /// Its settings.
    pub config: Arc<config::Upstream>,
    /// The `Host` that it is addressed with: its own authority, a default port left out.
    pub host: HeaderValue,
    scheme: Scheme,
    authority: Authority,
    pool: Arc<Pool>,
}

/// A request for one attempt.
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// The target as the upstream sees it.
    pub target: PathAndQuery,
    /// The headers, `host` among them.
    pub headers: HeaderMap,
    /// What hyper keeps beside a head: the case of header names.
    pub extensions: http::Extensions,
    /// The body.
    pub body: SendBody,
    /// Its progress.
    pub progress: Arc<Progress>,
    /// Which connection it wants.
    pub want: Want,
}

/// A failed send.
#[derive(Debug)]
pub struct Unsent {
    /// What went wrong.
    pub error: TransportError,
    /// The connection had been used before: it may just have been stale.
    pub reused: bool,
}

impl Upstream {
    /// Nothing is connected yet.
    pub fn new(config: Arc<config::Upstream>, dial: Arc<dyn Dial>) -> Self {
        let parts = config.base_url.clone().into_parts();
        let scheme = parts.scheme.unwrap_or(Scheme::HTTP);
        let authority = parts.authority.unwrap_or_else(|| Authority::from_static("localhost"));
        let origin = origin(&scheme, &authority, PathAndQuery::from_static("/"));
        let pool = Pool::new(origin, dial, config.http2, config.timeouts.connect);
        Upstream { host: host(&scheme, &authority), config, scheme, authority, pool }
    }

    /// Send one request and wait for the response head. Dropping the future ends the request and its connection.
    pub async fn send(&self, outgoing: Outgoing) -> Result<Response<ResponseBody>, Unsent> {
        let want = outgoing.want;
        let lease = self.pool.lease(want).await.map_err(|error| Unsent { error, reused: false })?;
        let reused = lease.reused;
        self.exchange(lease, outgoing).await.map_err(|error| Unsent { error, reused })
    }

    async fn exchange(&self, lease: Lease, outgoing: Outgoing) -> Result<Response<ResponseBody>, TransportError> {
        let progress = outgoing.progress.clone();
        let upgrade = outgoing.want == Want::Upgrade;
        progress.touch();
        match lease.sender {
            Sender::H1(mut connection) => {
                let answer = connection.sender.try_send_request(self.request(outgoing, false));
                let response = self.bounded(&progress, answer).await?;
                let pool = (!upgrade).then(|| self.pool.clone());
                Ok(response.map(|body| ResponseBody::h1(body, connection, pool, progress)))
            }
            Sender::H2(mut sender) => {
                let answer = sender.try_send_request(self.request(outgoing, true));
                let response = self.bounded(&progress, answer).await?;
                Ok(response.map(ResponseBody::h2))
            }
        }
    }

    /// Wait for the head: `first_byte` from the moment that the connection last took a piece of the request.
    async fn bounded<E: failure::Sent>(
        &self,
        progress: &Progress,
        answer: impl Future<Output = Result<Response<Incoming>, E>>,
    ) -> Result<Response<Incoming>, TransportError> {
        let first_byte = self.config.timeouts.first_byte;
        let mut answer = pin!(answer);
        loop {
            let limit = after(progress.last(), first_byte);
            tokio::select! {
                biased;
                answer = &mut answer => return answer.map_err(|error| failure::head(error, progress)),
                () = sleep_until(limit) => {
                    if after(progress.last(), first_byte) <= Instant::now() {
                        return Err(no_head(first_byte));
                    }
                }
            }
        }
    }

    fn request(&self, outgoing: Outgoing, h2: bool) -> Request<SendBody> {
        let mut request = Request::new(outgoing.body);
        *request.method_mut() = outgoing.method;
        *request.headers_mut() = outgoing.headers;
        *request.extensions_mut() = outgoing.extensions;
        if h2 {
            request.headers_mut().remove(header::HOST);
            *request.uri_mut() = origin(&self.scheme, &self.authority, outgoing.target);
        } else {
            *request.uri_mut() = Uri::from(outgoing.target);
        }
        request
    }
}

fn no_head(first_byte: Duration) -> TransportError {
    TransportError {
        phase: Phase::Head,
        kind: Kind::Timeout,
        sent: true,
        detail: format!("no response head within {} (timeouts.first_byte)", humantime::format_duration(first_byte)),
    }
}

fn origin(scheme: &Scheme, authority: &Authority, target: PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme.clone());
    parts.authority = Some(authority.clone());
    parts.path_and_query = Some(target);
    Uri::from_parts(parts).unwrap_or_default()
}

fn host(scheme: &Scheme, authority: &Authority) -> HeaderValue {
    let default = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    let text = match authority.port_u16() {
        Some(port) if port != default => format!("{}:{port}", authority.host()),
        _ => authority.host().to_owned(),
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("localhost"))
}
