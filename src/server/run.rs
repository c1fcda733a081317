//! From a config to a listening process, and to its end.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout, timeout_at};

use super::{Current, reload, serve_connection};
use crate::admission::Admission;
use crate::admission::redis::Redis;
use crate::clock::{Clock, after};
use crate::config::{Config, Sources, Upstream};
use crate::drain::Drain;
use crate::instance::{DialFor, Instance, Lasting};
use crate::join::restore;
use crate::metrics::Metrics;
use crate::transcript::store::{Limits, Store};
use crate::transcript::stored::Stored;
use crate::upstream::sockets::{Sockets, proxies_from_env};

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: u32 = 4096;
/// After an accept that failed (no file descriptors left), how long to leave it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the last answers may take to be stored, at the end.
const CLOSING: Duration = Duration::from_secs(5);

/// Serve until a signal ends it. The exit code is that of the process.
///
/// # Errors
/// If the address cannot be listened on, there is no place for answers that are to be stored, or the process cannot be told
/// of signals.
pub async fn run(config: Config, sources: Sources) -> io::Result<ExitCode> {
    let config = Arc::new(config);
    let (store, answers) = stored(&config)?.unzip();
    let lasting = Arc::new(lasting(&config, store)?);
    restore(lasting.clone(), answers.unwrap_or_default(), config.idempotency.max_bytes).await;
    let current = Arc::new(ArcSwap::from_pointee(Instance::new(config.clone(), lasting.clone(), None)));
    let listener = listen(config.server.listen)?;
    let mut signals = Signals::new()?;
    // One line, whatever the log format: scripts wait for it.
    eprintln!("backstop {} listening on http://{}", env!("CARGO_PKG_VERSION"), listener.local_addr()?);
    let reloads = tokio::spawn(reload::watch(current.clone(), sources, signal(SignalKind::hangup())?));
    let open = Arc::new(Semaphore::new(config.server.max_connections));
    tokio::select! {
        () = accept(listener, current.clone(), open.clone()) => {}
        () = signals.next() => {}
    }
    reloads.abort();
    let code = finish(&current, &lasting.drain, &open, config.server.max_connections, signals).await;
    let closing = tokio::task::spawn_blocking(move || lasting.store.as_ref().map(Store::close));
    if timeout(CLOSING, closing).await.is_err() {
        tracing::warn!("the last answers could not be stored in time (server.state_dir)");
    }
    Ok(code)
}

/// The store of answers and what is in it, where they are to survive a restart. Nothing else runs yet, so it may block.
fn stored(config: &Config) -> io::Result<Option<(Store, Vec<Stored>)>> {
    let Some(dir) = config.server.state_dir.as_deref().filter(|_| config.idempotency.durable) else { return Ok(None) };
    let limits = Limits { max_bytes: config.idempotency.max_bytes, replay_for: config.idempotency.replay_for };
    Store::open(dir, limits, Clock::real())
}

fn lasting(config: &Config, store: Option<Store>) -> io::Result<Lasting> {
    let clock = Clock::real();
    let redis = config.redis.as_ref().map(|url| Redis::open(url.expose(), clock.wall())).transpose();
    let proxies = proxies_from_env();
    let dial: Box<DialFor> =
        Box::new(move |upstream: &Upstream| Arc::new(Sockets::new(upstream.ca_file.as_deref(), Some(proxies.clone()))));
    Ok(Lasting {
        metrics: Arc::new(Metrics::new().map_err(io::Error::other)?),
        admission: Admission::on(redis.map_err(io::Error::other)?),
        keyed: Default::default(),
        store,
        memory: Default::default(),
        clock,
        drain: Drain::default(),
        dial,
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address} (server.listen): {error}")))
}

/// Take connections for ever. At `max_connections` new ones wait in the kernel's queue.
async fn accept(listener: TcpListener, current: Arc<Current>, open: Arc<Semaphore>) {
    loop {
        let Ok(permit) = open.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, current.clone(), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, current: Arc<Current>, permit: OwnedSemaphorePermit) {
    let local = stream.local_addr().ok();
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    serve_connection(stream, current, local).await;
    drop(permit);
}

/// The listener is closed. Let what is in flight end, up to the drain timeout or a second signal.
async fn finish(
    current: &Current,
    drain: &Drain,
    open: &Semaphore,
    connections: usize,
    mut signals: Signals,
) -> ExitCode {
    let timeout = current.load().config.server.drain_timeout;
    let end = after(tokio::time::Instant::now(), timeout);
    drain.begin(end);
    tracing::info!(timeout = %humantime::format_duration(timeout), "draining");
    let all = u32::try_from(connections).unwrap_or(u32::MAX);
    tokio::select! {
        idle = timeout_at(end, open.acquire_many(all)) => {
            if idle.is_err() {
                tracing::warn!(connections = connections - open.available_permits(), "the drain timeout cut what was left");
            }
            ExitCode::SUCCESS
        }
        () = signals.next() => {
            tracing::warn!("a second signal: stopping at once");
            ExitCode::FAILURE
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
