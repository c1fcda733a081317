//! Herds of agents as people reported them (`tests/fixtures/cases.jsonl`), each under its id.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::support::case::case;
use crate::support::*;

fn numbered(n: usize, path: &str) -> Request {
    post(path).body(format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{n}"}}]}}"#))
}

/// The case's first step for the first request of each client, its second for all that follow.
fn once_per_client(first: Step, then: Step) -> Script {
    let met = Mutex::new(HashSet::new());
    Script::by(move |seen| if met.lock().unwrap().insert(seen.body.clone()) { first.clone() } else { then.clone() })
}

/// The largest share of these times within any one window.
fn thickest(times: &[Duration], window: Duration) -> f64 {
    let most =
        times.iter().map(|start| times.iter().filter(|at| **at >= *start && **at < *start + window).count()).max();
    most.unwrap_or(0) as f64 / times.len() as f64
}

#[tokio::test(start_paused = true)]
async fn herd_same_retry_after() {
    let case = case("herd-same-retry-after");
    for adaptive in [true, false] {
        let bed =
            Bed::new(&format!("[admission]\nadaptive = {adaptive}\n"), once_per_client(case.step(0), case.step(1)));
        let answers = bed.crowd((0..30).map(|n| numbered(n, MESSAGES))).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        let second = &bed.upstream.times()[30..];
        assert!(second.iter().all(|at| *at >= secs(2)), "{second:?}");
        let mean = second.iter().sum::<Duration>().as_secs_f64() / 30.0;
        let spread = (second.iter().map(|at| (at.as_secs_f64() - mean).powi(2)).sum::<f64>() / 30.0).sqrt();
        // Alone, each adds up to 400 ms of its own: 115 ms on average, but thirty throws of dice differ.
        assert!(spread >= if adaptive { 0.1 } else { 0.08 }, "{spread}");
        assert!(thickest(second, ms(50)) <= if adaptive { 1.0 / 3.0 } else { 0.5 }, "{second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn herd_no_hint_full_jitter() {
    let case = case("herd-no-hint-full-jitter");
    for config in ["", "[admission]\nadaptive = false\n[breaker]\nenabled = false\n"] {
        let bed = Bed::new(config, once_per_client(case.step(0), case.step(1)));
        let answers = bed.crowd((0..50).map(|n| numbered(n, CHAT))).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        assert!(thickest(&bed.upstream.times()[50..], ms(20)) <= 0.25);
    }
}

#[tokio::test(start_paused = true)]
async fn nested_retry_amplification() {
    let case = case("nested-retry-amplification");
    let bed = Bed::new("", case.step(0));
    for n in 0..100 {
        for count in 0..3 {
            let answer = bed.call(&numbered(n, CHAT).header("x-stainless-retry-count", count.to_string())).await;
            assert!(answer.status == 503 && answer.no_retry());
        }
    }
    let allowed = 300.0 + 50.0 + 10.0 * bed.now().as_secs_f64();
    assert!((bed.upstream.count() as f64) <= allowed.min(700.0), "{} in {:?}", bed.upstream.count(), bed.now());
}
