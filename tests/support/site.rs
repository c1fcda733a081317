//! A place that outlives the Backstops in it: their upstream, and their `server.state_dir` with the answers of calls with a key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backstop::clock::Clock;
use backstop::transcript::store::{FILE, Limits, Store};
use backstop::transcript::stored::Stored;

use super::process::Process;
use super::tcp::listen;
use super::*;

pub const LIMITS: Limits = Limits { max_bytes: 256 << 20, replay_for: secs(600) };

/// An upstream on a port, and what outlives the Backstops before it.
pub struct Site {
    pub upstream: Arc<Upstream>,
    pub address: String,
    pub dir: tempfile::TempDir,
}

impl Site {
    pub async fn new(script: impl Into<Script>) -> Site {
        let upstream = Upstream::new(script);
        let address = listen(&upstream).await.to_string();
        Site { upstream, address, dir: tempfile::tempdir().expect("a directory") }
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state/backstop")
    }

    pub fn file(&self) -> PathBuf {
        self.state().join(FILE)
    }

    /// A Backstop with these settings of `[idempotency]`.
    pub fn start(&self, settings: &str) -> Process {
        let (state, address) = (self.state().display().to_string(), &self.address);
        let toml = format!(
            "[server]\nstate_dir = \"{state}\"\n[idempotency]\ndurable = true\n{settings}\n[upstreams.openai]\nbase_url = \"http://{address}\"\n"
        );
        Process::start(&toml, &[])
    }

    /// What the store holds, read by this process.
    pub fn stored(&self, clock: Clock) -> Vec<Stored> {
        open(&self.state(), LIMITS, clock)
    }

    /// The file of a Backstop that answered these, and has ended well.
    pub async fn answered(&self, keys: &[&str]) {
        let backstop = self.start("");
        for key in keys {
            assert_eq!(call(&backstop, &keyed(key)).await.outcome(), "success");
        }
        stop(backstop);
    }
}

pub fn open(dir: &Path, limits: Limits, clock: Clock) -> Vec<Stored> {
    let (store, answers) = Store::open(dir, limits, clock).expect("a usable place").expect("nobody else there");
    store.close();
    answers
}

pub fn stop(mut backstop: Process) {
    backstop.signal("TERM");
    assert_eq!(backstop.wait(), Some(0));
}

pub async fn call(backstop: &Process, request: &Request) -> Answer {
    backstop.client().await.call(request).await
}

pub async fn outcome(backstop: &Process, request: &Request) -> String {
    call(backstop, request).await.outcome().to_owned()
}

pub fn keyed(key: &str) -> Request {
    post(CHAT).header("idempotency-key", key).header("authorization", "Bearer alice")
}
