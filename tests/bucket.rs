//! The global token bucket: retries of all clients together never come faster than it allows.

use crate::support::*;

/// A body of its own for each client.
fn numbered(n: usize) -> Request {
    post(CHAT).body(format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{n}"}}]}}"#))
}

#[tokio::test(start_paused = true)]
async fn two_hundred_clients_of_a_dead_upstream_stay_within_the_bucket() {
    const RATE: f64 = 10.0;
    const BURST: f64 = 50.0;
    // Without the learned pace and the breaker, which would send even less.
    let alone = "[retry]\ndeadline = \"60s\"\n[admission]\nadaptive = false\n[breaker]\nenabled = false\n";
    let bed = Bed::new(alone, busy());
    let answers = bed.crowd((0..200).map(numbered)).await;
    assert!(answers.iter().all(|answer| answer.status == 503));
    let mut times = bed.upstream.times();
    times.sort();
    assert!(times[..200].iter().all(|at| at.is_zero()), "first tries are free");
    let retries = &times[200..];
    assert!(retries.len() > 300, "{}", retries.len());
    for (n, at) in retries.iter().enumerate() {
        let most = BURST + RATE * at.as_secs_f64() + 1.0;
        assert!((n + 1) as f64 <= most, "retry {n} at {at:?}");
    }
    assert!(bed.now() <= secs(61));
    assert!(bed.metric("backstop_retry_bucket_waits_total", &[]) > 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_have_a_token_in_time_gives_the_answer_it_has() {
    let toml = "[retry]\njitter = \"none\"\ndeadline = \"20s\"\n[retry.bucket]\nrate = 0.01\nburst = 1\n";
    let bed = Bed::new(toml, busy());
    let answers = bed.crowd((0..3).map(numbered)).await;
    assert!(answers.iter().all(|answer| (answer.status, answer.text()) == (503, BUSY_BODY)));
    assert!(answers.iter().all(|answer| answer.no_retry()));
    assert_eq!(bed.upstream.count(), 3 + 1);
    assert!(bed.now() <= secs(20));
}

#[tokio::test(start_paused = true)]
async fn good_answers_and_terminal_ones_take_no_token() {
    let bed = Bed::new("", [chat(), Step::json(400, "{}")]);
    for _ in 0..5 {
        bed.call(&post(CHAT)).await;
    }
    assert_eq!(bed.metric("backstop_retry_bucket_tokens", &[]), 50.0);
    let retried = Bed::new("", [busy(), chat()]);
    retried.call(&post(CHAT)).await;
    assert!((48.9..=49.1).contains(&retried.metric("backstop_retry_bucket_tokens", &[])));
}

#[tokio::test(start_paused = true)]
async fn a_reload_does_not_fill_the_bucket() {
    let toml = "[retry]\njitter = \"none\"\n[retry.bucket]\nrate = 0.001\nburst = 3\n";
    let bed = Bed::new(toml, busy());
    bed.call(&post(CHAT).header("x-backstop-max-attempts", "3")).await;
    bed.reload(&format!("{toml}\n[server]\ninterim = \"never\"\n"));
    assert!(bed.metric("backstop_retry_bucket_tokens", &[]) < 1.2);
}
