//! A Backstop between a client and a scripted upstream, all in memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use backstop::admin;
use backstop::admission::Admission;
use backstop::admission::redis::Redis;
use backstop::clock::Clock;
use backstop::config::{self, Sources, load};
use backstop::drain::Drain;
use backstop::instance::{Instance, Lasting};
use backstop::metrics::Metrics;
use backstop::server::{Current, reload, serve_connection};
use tokio::io::duplex;
use tokio::time::{Instant, sleep};

use super::memory::{BUFFER, MemoryDial};
use super::{Answer, Client, Request, Script, Upstream};

/// The day on which every test begins: 2026-01-15 12:00:00 UTC.
pub const WALL: Duration = Duration::from_secs(1_768_478_400);

/// Waits that are exact.
pub const EXACT: &str = "[retry]\njitter = \"none\"\n";

pub struct Bed {
    pub current: Arc<Current>,
    pub upstream: Arc<Upstream>,
    sources: Sources,
    dir: tempfile::TempDir,
    start: Instant,
}

impl Bed {
    /// Backstop with this config (TOML) in front of an upstream that plays this script.
    pub fn new(toml: &str, script: impl Into<Script>) -> Bed {
        Bed::with_env(toml, &[], script)
    }

    pub fn with_env(toml: &str, env: &[(&str, &str)], script: impl Into<Script>) -> Bed {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("backstop.toml");
        std::fs::write(&path, toml).expect("a config file");
        let env: Vec<(String, String)> = env.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let lookup: config::Env =
            Arc::new(move |name| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()));
        let sources = Sources { path: Some(path), env: lookup, ..Sources::default() };
        let config = load(&sources).unwrap_or_else(|error| panic!("{error}")).config;
        let upstream = Upstream::new(script);
        let lasting = lasting(&upstream, config.redis.as_ref());
        let instance = Instance::new(Arc::new(config), lasting, None);
        let current = Arc::new(ArcSwap::from_pointee(instance));
        Bed { current, upstream, sources, dir, start: Instant::now() }
    }

    /// A client of its own connection.
    pub fn client(&self) -> Client {
        self.client_with(BUFFER, None)
    }

    /// A client over a connection that holds so many bytes each way, to this address.
    pub fn client_with(&self, buffer: usize, local: Option<SocketAddr>) -> Client {
        let (ours, theirs) = duplex(buffer);
        tokio::spawn(serve_connection(theirs, self.current.clone(), local));
        Client::over(ours)
    }

    /// One request on a connection of its own.
    pub async fn call(&self, request: &Request) -> Answer {
        self.client().call(request).await
    }

    /// Requests at once, each on a connection of its own; their answers in the same order.
    pub async fn crowd(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Answer> {
        let calls = requests.into_iter().map(|request| {
            let mut client = self.client();
            tokio::spawn(async move { client.call(&request).await })
        });
        let calls: Vec<_> = calls.collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.expect("a client that ends well"));
        }
        answers
    }

    /// Send a request on a connection of its own and leave after a while.
    pub async fn leave_after(&self, request: &Request, after: Duration) {
        let mut client = self.client();
        client.ask(request).await;
        sleep(after).await;
    }

    pub fn instance(&self) -> Arc<Instance> {
        self.current.load_full()
    }

    pub fn drain(&self) -> Drain {
        self.instance().lasting.drain.clone()
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Write another config and reload it.
    pub fn reload(&self, toml: &str) {
        std::fs::write(self.dir.path().join("backstop.toml"), toml).expect("a config file");
        reload::reload(&self.current, &self.sources);
    }

    /// The metrics page.
    pub fn metrics(&self) -> String {
        String::from_utf8(admin::metrics(&self.instance())).expect("a page of text")
    }

    /// The sum of the series of a metric whose labels hold these texts (`class="transient"`).
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.metrics();
        let of_name = page.lines().filter(|line| line.strip_prefix(name).is_some_and(|l| l.starts_with(['{', ' '])));
        of_name
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a value"))
            .sum()
    }

    /// Let everything that can go on now go on.
    pub async fn settle(&self) {
        sleep(Duration::from_millis(1)).await;
    }
}

fn lasting(upstream: &Arc<Upstream>, redis: Option<&config::Secret>) -> Arc<Lasting> {
    let redis = redis.map(|url| Redis::open(url.expose(), SystemTime::now()).expect("a URL"));
    let upstream = upstream.clone();
    Arc::new(Lasting {
        metrics: Arc::new(Metrics::new().expect("metrics")),
        admission: Admission::on(redis),
        keyed: Default::default(),
        store: None,
        memory: Default::default(),
        clock: Clock::starting_at(SystemTime::UNIX_EPOCH + WALL),
        drain: Drain::default(),
        dial: Box::new(move |_| Arc::new(MemoryDial(upstream.clone()))),
    })
}
