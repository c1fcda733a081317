//! Configuration: what a validated config holds. Reading and checking it is in the files beside this one.

mod fault;
#[cfg(test)]
mod limits_tests;
mod load;
mod mask;
mod read;
mod section;
mod suggest;
#[cfg(test)]
mod tests;
mod tree;
mod units;
mod url;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};

use crate::policy::backoff::Jitter;
use crate::policy::breaker;
use crate::policy::classify::Rule;
use crate::policy::safety::Ambiguous;
use crate::wire::dialect::Dialect;

pub use fault::{ConfigError, Fault, Kind, Place};
pub use load::{Env, Loaded, Sources, load, locate};

/// The commented default file: the one place where default values are written.
pub const DEFAULTS: &str = include_str!("../../config/backstop.toml");

/// The name of the upstream that `--upstream` makes.
pub const SOLE: &str = "upstream";

/// A validated config. Immutable: a reload makes another one.
#[derive(Debug, Clone)]
pub struct Config {
    /// The listener and its limits.
    pub server: Server,
    /// The global token bucket for retries.
    pub bucket: RetryBucket,
    /// Upstreams by name, each with its settings merged from the global sections and its own.
    pub upstreams: BTreeMap<String, Arc<Upstream>>,
    /// `redis.url`: where limits are shared. `None`: every Backstop has its own.
    pub redis: Option<Secret>,
    /// Calls with a key.
    pub idempotency: Idempotency,
    /// How logs are written.
    pub log: Log,
    /// Set by `--upstream URL`: one upstream for every path. Its name in `upstreams`.
    pub sole_upstream: Option<String>,
}

/// `[server]`.
#[derive(Debug, Clone)]
pub struct Server {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The upstream for paths that name none; empty: by the path's form.
    pub default_upstream: Option<String>,
    /// Bytes; a larger request body is refused.
    pub max_body: u64,
    /// Bytes; a larger request body is streamed once.
    pub replay_body: u64,
    /// Open client connections at most.
    pub max_connections: usize,
    /// How long answers in flight may take after SIGTERM.
    pub drain_timeout: Duration,
    /// Who is sent 102 Processing while a call is held.
    pub interim: Interim,
    /// The environment variable that holds the client keys.
    pub client_keys_env: Option<String>,
    /// The keys themselves, read when the config was; empty: none are asked for.
    pub client_keys: Vec<Secret>,
    /// Host header values that are served, lower case, without port.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, lower case (`https://app.example`).
    pub allowed_origins: Vec<String>,
    /// Where that lives which outlives a restart; `None`: nothing says where.
    pub state_dir: Option<PathBuf>,
}

/// `server.interim`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interim {
    /// Clients that were seen to take it.
    Known,
    /// Every HTTP/1.1 client.
    Always,
    /// Nobody.
    Never,
}

/// `[retry]`, for one upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub max_attempts: u32,
    /// The first backoff.
    pub base_delay: Duration,
    /// The largest backoff.
    pub max_delay: Duration,
    /// Growth from one backoff to the next.
    pub multiplier: f64,
    /// How a delay is spread.
    pub jitter: Jitter,
    /// All attempts and waits, up to the head of the final answer.
    pub deadline: Duration,
    /// Give up before the client does.
    pub respect_client_timeout: bool,
    /// A provider's wait beyond this is passed on.
    pub max_wait_hint: Duration,
    /// What to do when the upstream may have acted.
    pub ambiguous: Ambiguous,
    /// Tries in all of a call whose repeat may act twice.
    pub ambiguous_attempts: u32,
    /// Also repeat good answers that have no content.
    pub empty: bool,
}

/// `[retry.bucket]`: every retry of every client takes one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryBucket {
    /// Tokens a second.
    pub rate: f64,
    /// Tokens that can be saved up.
    pub burst: u32,
}

/// `[timeouts]`, for one upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Name, TCP and TLS together.
    pub connect: Duration,
    /// Request sent to response head.
    pub first_byte: Duration,
    /// Stream: head to first event.
    pub stream_first_event: Duration,
    /// Between bytes of a body.
    pub stream_idle: Duration,
}

/// `[stream]`, for one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Whether a stream is passed on as it comes.
    pub mode: StreamMode,
    /// Silence after which a client that asked for a stream gets an empty line; `None`: never in relay mode.
    pub heartbeat: Option<Duration>,
    /// Bytes of events without content that are held back at most; 0: none.
    pub hold: u64,
}

/// `stream.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    /// Every byte as it comes.
    Relay,
    /// The whole stream is read before any of it is passed on.
    Shield,
}

/// `[admission]`, for one upstream: limits on what is sent, for each credential.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Admission {
    /// Requests a second; 0: no fixed limit.
    pub requests_per_second: f64,
    /// Requests that may go out at once; 0 counts as 1. No effect without `requests_per_second`.
    pub burst: u32,
    /// Tokens a minute, estimated; 0: no fixed limit.
    pub tokens_per_minute: u64,
    /// Requests in flight at most; 0: no limit.
    pub max_concurrency: u32,
    /// Learn the rate from the provider's answers.
    pub adaptive: bool,
    /// Waiting requests at most.
    pub queue: usize,
}

/// `[idempotency]`: calls with the same key are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    /// A call joins the one in flight.
    pub coalesce: bool,
    /// How long a finished answer is given again; zero: not at all.
    pub replay_for: Duration,
    /// How long a call goes on after its last client left.
    pub linger: Duration,
    /// Calls of SDKs that count their retries have a key by themselves.
    pub auto: bool,
    /// Finished answers survive a restart. There is a `server.state_dir` then.
    pub durable: bool,
    /// Bytes of finished answers that are kept.
    pub max_bytes: usize,
}

/// `[log]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Plain text or one JSON object a line.
    pub json: bool,
    /// The least severe level written.
    pub level: tracing::Level,
}

/// `[upstreams.NAME]`.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Its name: the first path segment, the metric label.
    pub name: Arc<str>,
    /// Scheme, host, port and path prefix. No userinfo (it becomes an authorization header).
    pub base_url: Uri,
    /// The wire family it speaks.
    pub dialect: Dialect,
    /// The environment variable that holds the credential.
    pub api_key_env: Option<String>,
    /// The credential itself, read when the config was.
    pub api_key: Option<Secret>,
    /// Headers put on every request, in place of the client's own of that name.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Which HTTP version is spoken.
    pub http2: Http2,
    /// PEM file with roots on top of the platform's.
    pub ca_file: Option<PathBuf>,
    /// `[retry]`, merged.
    pub retry: Retry,
    /// `[timeouts]`, merged.
    pub timeouts: Timeouts,
    /// `[stream]`, merged.
    pub stream: Stream,
    /// `[breaker]`, merged. `None`: `enabled = false`.
    pub breaker: Option<breaker::Settings>,
    /// `[admission]`, merged.
    pub admission: Admission,
    /// Other upstreams of the same dialect, in the order in which they are tried.
    pub fallbacks: Vec<String>,
    /// Model asked for → model sent.
    pub model_map: BTreeMap<String, String>,
    /// The header in which it takes an idempotency key, and honours it.
    pub idempotency_header: Option<HeaderName>,
    /// The `[[classify]]` rules that apply to this upstream, in order.
    pub rules: Vec<Rule>,
}

impl Upstream {
    /// Its host and port; empty where the URL has none.
    pub fn authority(&self) -> &str {
        self.base_url.authority().map_or("", |authority| authority.as_str())
    }
}

/// `upstreams.NAME.http2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2 {
    /// By ALPN over TLS, HTTP/1.1 in the clear.
    Auto,
    /// HTTP/1.1 only.
    Never,
    /// HTTP/2 without asking, also in the clear.
    PriorKnowledge,
}

/// A value that must not be seen: its `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wrap a value.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The value, for the one place that must send or compare it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[hidden]")
    }
}
