//! What sharing limits through a Redis on loopback adds to a call: the wait at the gate, with Redis and without.
//!
//! `cargo bench --bench redis`. It starts a redis-server of its own on a free port. Workers ask for leave, tell what came of
//! it, and pause for a millisecond; with and without Redis by turns.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backstop::admission::Admission;
use backstop::admission::gate::Ask;
use backstop::admission::queue::Place;
use backstop::admission::redis::Redis;
use backstop::config::{self, Sources, load};
use backstop::policy::lesson::Lesson;
use backstop::policy::pace::Signal;
use backstop::wire::client::Priority;
use tokio::time::{Instant, sleep};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(2);

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` asks for nothing to be measured.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let _server = start(port);
    let redis = Redis::open(&format!("redis://127.0.0.1:{port}"), SystemTime::now()).expect("a URL");
    while !redis.is_up() {
        sleep(Duration::from_millis(5)).await;
    }
    println!("| calls at once | limits | without: p50, p99 µs | with Redis: p50, p99 µs | added at p99, ms |");
    println!("|--:|---|--:|--:|--:|");
    for workers in [1, 8, 32] {
        for (name, upstream) in
            [("none met", upstream("")), ("a fixed one", upstream("requests_per_second = 100000\nburst = 1000"))]
        {
            let (mut alone, mut shared) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                alone.push(measure(None, &upstream, workers).await);
                shared.push(measure(Some(redis.clone()), &upstream, workers).await);
            }
            let (alone, shared) = (median(&alone), median(&shared));
            let added = (shared.1 - alone.1) / 1000.0;
            println!(
                "| {workers} | {name} | {:.1}, {:.1} | {:.0}, {:.0} | {added:.3} |",
                alone.0, alone.1, shared.0, shared.1
            );
        }
    }
    assert!(redis.is_up(), "Redis was lost on the way: the figures are not those of Redis");
}

fn start(port: u16) -> Server {
    let child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
        .expect("a redis-server on the PATH");
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Server(child)
}

/// An upstream under this `[admission]`.
fn upstream(toml: &str) -> Arc<config::Upstream> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("backstop.toml");
    std::fs::write(&path, format!("[admission]\n{toml}\n")).expect("a config file");
    let config =
        load(&Sources { path: Some(path), ..Sources::default() }).unwrap_or_else(|error| panic!("{error}")).config;
    config.upstreams["openai"].clone()
}

/// Median and 99th percentile of the wait, in microseconds.
async fn measure(redis: Option<Arc<Redis>>, upstream: &config::Upstream, workers: usize) -> (f64, f64) {
    let gates = Admission::on(redis).gates(upstream, b"key");
    let end = Instant::now() + ROUND;
    let tasks: Vec<_> = (0..workers)
        .map(|worker| {
            let gates = gates.clone();
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while Instant::now() < end {
                    let start = Instant::now();
                    let place = Place { priority: Priority::Normal, flow: worker as u64, since: start };
                    let ask = Ask { place, deadline: start + ROUND, tokens: 0.0, tried: 0, holds: false };
                    let Ok(mut passage) = gates.admit(ask, || None).await else { panic!("sent away") };
                    waits.push(start.elapsed());
                    passage.learn(&Lesson { signal: Signal::Accepted, ..Lesson::NONE }, None);
                    drop(passage);
                    sleep(Duration::from_millis(1)).await;
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.expect("a worker"));
    }
    waits.sort();
    let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1000.0;
    (at(0.5), at(0.99))
}

fn median(rounds: &[(f64, f64)]) -> (f64, f64) {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (middle(rounds.iter().map(|round| round.0).collect()), middle(rounds.iter().map(|round| round.1).collect()))
}
