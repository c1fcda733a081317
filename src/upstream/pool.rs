//! Connections to one upstream, and how they are shared.
//!
//! hyper-util's pooled client hides what retries depend on: whether a connection had been used before, whether a byte of
//! the request went out, and a way to ask for a fresh one. So the pool is ours, over hyper's own connections: an upstream
//! has one origin, so it is a stack of idle HTTP/1.1 connections, or one shared HTTP/2 connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http::Uri;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking::Lock;
use tokio::time::{Instant, timeout};

use super::body::SendBody;
use super::dial::{Dial, Dialed};
use super::sockets::{chain, place};
use super::tolerant::{Refused, Tolerant};
use crate::config::Http2;
use crate::policy::failure::{Kind, Phase, TransportError};

/// Edges and load balancers commonly close idle connections after 60 s; we stop using ours before that.
pub const IDLE_LIMIT: Duration = Duration::from_secs(50);
/// Idle connections kept at most; more are closed on return.
const MAX_IDLE: usize = 1024;
/// HTTP/2 pings while a request runs, and how long an answer to one may take, so that a dead path is noticed.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of one upstream.
pub struct Pool {
    target: Uri,
    dial: Arc<dyn Dial>,
    http2: Http2,
    connect: Duration,
    idle: Lock<VecDeque<Idle>>,
    shared: Lock<Option<http2::SendRequest<SendBody>>>,
    /// Held while a connection is opened that may turn out to be HTTP/2, so that a hundred callers open one and not a hundred.
    opening: tokio::sync::Mutex<()>,
    seen: AtomicU8,
}

/// What ALPN led to last time.
const UNKNOWN: u8 = 0;
const SEEN_H1: u8 = 1;
const SEEN_H2: u8 = 2;

struct Idle {
    connection: H1,
    since: Instant,
}

/// An HTTP/1.1 connection.
pub struct H1 {
    /// Takes one request at a time.
    pub sender: http1::SendRequest<SendBody>,
    refused: Refused,
}

/// The right to send one request on a connection.
pub struct Lease {
    /// The connection.
    pub sender: Sender,
    /// It had carried a request before, so the upstream may just be closing it.
    pub reused: bool,
}

/// A connection of either version.
pub enum Sender {
    /// HTTP/1.1: ours alone until it is given back.
    H1(H1),
    /// HTTP/2: shared.
    H2(http2::SendRequest<SendBody>),
}

/// Which connection a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Any.
    Any,
    /// One that nobody has used: the pooled one just failed.
    Fresh,
    /// A fresh HTTP/1.1 one, for an upgrade.
    Upgrade,
}

impl Pool {
    /// `target`: scheme, host and port. `connect`: the limit for name, TCP and TLS together.
    pub fn new(target: Uri, dial: Arc<dyn Dial>, http2: Http2, connect: Duration) -> Arc<Self> {
        Arc::new(Pool {
            target,
            dial,
            http2,
            connect,
            idle: Lock::default(),
            shared: Lock::default(),
            opening: tokio::sync::Mutex::default(),
            seen: AtomicU8::new(UNKNOWN),
        })
    }

    /// A connection to send one request on, within the connect limit.
    pub async fn lease(&self, want: Want) -> Result<Lease, TransportError> {
        if want == Want::Any
            && let Some(lease) = self.idle_h1().await
        {
            return Ok(lease);
        }
        match timeout(self.connect, self.other(want)).await {
            Ok(lease) => lease,
            Err(_) => Err(self.too_slow()),
        }
    }

    /// The shared HTTP/2 connection, or a new one.
    async fn other(&self, want: Want) -> Result<Lease, TransportError> {
        if want == Want::Upgrade || !self.may_be_h2() {
            return self.open(false).await;
        }
        if want == Want::Fresh || self.seen.load(Ordering::Relaxed) == SEEN_H1 {
            return self.open(true).await;
        }
        if let Some(lease) = self.shared_h2() {
            return Ok(lease);
        }
        if let Ok(_first) = self.opening.try_lock() {
            return self.open(true).await;
        }
        // Somebody is opening one: if it turns out to be HTTP/2 it serves us too.
        drop(self.opening.lock().await);
        match self.shared_h2() {
            Some(lease) => Ok(lease),
            None => self.open(true).await,
        }
    }

    /// Take a connection back after its answer ended well.
    pub fn give_back(&self, connection: H1) {
        if connection.sender.is_closed() || connection.refused.is_set() {
            return;
        }
        self.idle.with(|idle| {
            if idle.len() < MAX_IDLE {
                idle.push_back(Idle { connection, since: Instant::now() });
            }
        });
    }

    fn may_be_h2(&self) -> bool {
        match self.http2 {
            Http2::Never => false,
            Http2::PriorKnowledge => true,
            Http2::Auto => self.target.scheme_str() == Some("https"),
        }
    }

    /// The connection that was used last: it is the one least likely to be closed. Stale ones are dropped on the way.
    async fn idle_h1(&self) -> Option<Lease> {
        loop {
            let Idle { mut connection, .. } = self.idle.with(|idle| {
                while idle.front().is_some_and(|oldest| oldest.since.elapsed() >= IDLE_LIMIT) {
                    idle.pop_front();
                }
                idle.pop_back()
            })?;
            // It was given back with its answer complete: at most its task has yet to notice.
            if connection.sender.ready().await.is_ok() {
                return Some(Lease { sender: Sender::H1(connection), reused: true });
            }
        }
    }

    fn shared_h2(&self) -> Option<Lease> {
        self.shared.with(|shared| {
            let sender = shared.as_ref().filter(|sender| !sender.is_closed() && sender.is_ready())?;
            Some(Lease { sender: Sender::H2(sender.clone()), reused: true })
        })
    }

    async fn open(&self, h2: bool) -> Result<Lease, TransportError> {
        let dialed = self.dial.dial(&self.target, h2).await?;
        self.handshake(dialed, h2).await
    }

    fn too_slow(&self) -> TransportError {
        let (place, limit) = (place(&self.target), humantime::format_duration(self.connect));
        let detail = format!("connecting to {place} took longer than {limit} (timeouts.connect)");
        TransportError { phase: Phase::Connect, kind: Kind::Timeout, sent: false, detail }
    }

    /// Begin to speak HTTP. The driver task lives as long as the connection; dropping the sender ends it.
    async fn handshake(&self, dialed: Dialed, h2: bool) -> Result<Lease, TransportError> {
        if !(dialed.h2 || h2 && self.http2 == Http2::PriorKnowledge) {
            self.seen.store(SEEN_H1, Ordering::Relaxed);
            let (io, refused) = Tolerant::new(dialed.io);
            let (sender, connection) = http1::Builder::new()
                .preserve_header_case(true)
                .max_headers(512)
                .handshake(TokioIo::new(io))
                .await
                .map_err(|error| self.no_handshake(&error))?;
            // As it is: an `async` block around it would hold it twice.
            tokio::spawn(connection.with_upgrades());
            return Ok(Lease { sender: Sender::H1(H1 { sender, refused }), reused: false });
        }
        self.seen.store(SEEN_H2, Ordering::Relaxed);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .adaptive_window(true)
            .max_header_list_size(256 * 1024)
            .handshake(TokioIo::new(dialed.io))
            .await
            .map_err(|error| self.no_handshake(&error))?;
        tokio::spawn(async move { drop(connection.await) });
        self.shared.with(|shared| *shared = Some(sender.clone()));
        Ok(Lease { sender: Sender::H2(sender), reused: false })
    }

    fn no_handshake(&self, error: &hyper::Error) -> TransportError {
        let detail = format!("{} does not speak HTTP: {}", place(&self.target), chain(error));
        TransportError { phase: Phase::Connect, kind: Kind::Protocol, sent: false, detail }
    }
}

/// A mutex that is never held over an await and never poisoned.
mod parking {
    use std::sync::{Mutex, PoisonError};

    #[derive(Default)]
    pub struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
            act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}
