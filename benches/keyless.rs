//! What a call without a key pays for calls with one: the looks into its headers, and that it has no place.
//!
//! `cargo bench --bench keyless` prints nanoseconds. A number behind it (`-- 1000000`) says how often each is done and prints
//! nothing, for a tool that counts instructions: two runs, their difference divided by that of the numbers.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use backstop::call::Call;
use backstop::clock::Clock;
use backstop::config::{Sources, load};
use backstop::instance::{Instance, Lasting};
use backstop::join::place;
use backstop::metrics::Metrics;
use backstop::upstream::sockets::Sockets;
use backstop::wire::client;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, duplex};

/// What OpenAI's Python SDK sends.
const REQUEST: &str = "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:4290\r\nAccept-Encoding: gzip, deflate\r\n\
    Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.0\r\n\
    X-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.8.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\n\
    X-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.13.1\r\nAuthorization: Bearer sk-1234\r\n\
    X-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nContent-Length: 2\r\n\r\n{}";

fn main() {
    let times: Option<u32> = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let instance = Arc::new(instance());
    let (headers, call) = runtime.block_on(call(instance.clone()));
    let look = || {
        black_box(client::idempotency_key(black_box(&headers)).cloned());
        black_box(client::counts_repeats(black_box(&headers)));
        black_box(client::key(black_box(&headers)).map(<[u8]>::to_vec));
    };
    let place = || drop(black_box(place(black_box(&instance), black_box(&call))));
    match times {
        Some(times) => (0..times).for_each(|_| {
            look();
            place();
        }),
        None => println!("looks into the headers: {:.1} ns, no place: {:.1} ns", nanos(look), nanos(place)),
    }
}

/// Of one, the best of ten rounds.
fn nanos(work: impl Fn()) -> f64 {
    const TIMES: u32 = 1_000_000;
    let round = || {
        let start = Instant::now();
        (0..TIMES).for_each(|_| work());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
    };
    (0..10).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn instance() -> Instance {
    let config = load(&Sources::default()).expect("sound defaults").config;
    let lasting = Lasting {
        metrics: Arc::new(Metrics::new().expect("metrics")),
        admission: Default::default(),
        keyed: Default::default(),
        store: None,
        memory: Default::default(),
        clock: Clock::real(),
        drain: Default::default(),
        dial: Box::new(|upstream| Arc::new(Sockets::new(upstream.ca_file.as_deref(), None))),
    };
    Instance::new(Arc::new(config), Arc::new(lasting), None)
}

/// A call as it is read, and its headers as they came.
async fn call(instance: Arc<Instance>) -> (http::HeaderMap, Call) {
    let (ours, mut theirs) = duplex(64 * 1024);
    theirs.write_all(REQUEST.as_bytes()).await.expect("room for it");
    let (read, mut calls) = tokio::sync::mpsc::channel(1);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (instance, read) = (instance.clone(), read.clone());
        async move {
            let (parts, body) = request.into_parts();
            let headers = parts.headers.clone();
            let target = parts.uri.path_and_query().expect("a path");
            let route = instance.routes.resolve(target, &headers).expect("a route");
            let call = Call::read(String::new(), parts, body, route, &instance.config).await.ok();
            drop(read.send((headers, call.expect("a call"))).await);
            Ok::<_, std::convert::Infallible>(http::Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(ours), service);
    tokio::select! {
        call = calls.recv() => call.expect("it is read"),
        _ = connection => unreachable!("its client waits"),
    }
}
