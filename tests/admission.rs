//! What calls share: a provider's wait holds for all, limits of the config are kept, and whoever waits does so in a fair line.

use std::time::Duration;

use tokio::time::sleep;

use crate::support::upstream::Seen;
use crate::support::*;

/// A chat request that says who it is from.
fn from(name: &str) -> Request {
    post(CHAT).body(format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{name}"}}]}}"#))
}

fn many(count: usize) -> impl Iterator<Item = Request> {
    (0..count).map(|n| from(&format!("call {n}")))
}

/// The first request gets this, all others a good answer.
fn first_gets(step: Step) -> Script {
    vec![step, chat()].into()
}

/// Who came, in order.
fn order(bed: &Bed) -> Vec<String> {
    let name = |seen: &Seen| {
        let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        body["messages"][0]["content"].as_str().unwrap().to_owned()
    };
    bed.upstream.seen().iter().map(name).collect()
}

/// The most of these times within any one window.
fn busiest(times: &[Duration], window: Duration) -> usize {
    times
        .iter()
        .map(|start| times.iter().filter(|at| **at >= *start && **at < *start + window).count())
        .max()
        .unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn before_the_first_sign_of_a_limit_nobody_waits() {
    let bed = Bed::new("", chat());
    let answers = bed.crowd(many(300)).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!(bed.upstream.times().iter().all(|at| at.is_zero()));
    assert_eq!(bed.metric("backstop_queue_wait_seconds_count", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_providers_wait_holds_for_those_who_come_later_too_and_they_do_not_come_all_at_once() {
    let bed = Bed::new("", first_gets(limited("2")));
    let mut client = bed.client();
    let first = tokio::spawn(async move { client.call(&from("first")).await });
    sleep(ms(100)).await;
    assert_eq!(bed.metric("backstop_cooldown_seconds", &["openai"]), 1.9);
    let late = bed.crowd(many(20)).await;
    assert!(late.iter().all(|answer| answer.status == 200) && first.await.unwrap().status == 200);
    let times = bed.upstream.times();
    assert!(times[1..].iter().all(|at| *at >= secs(2)), "{times:?}");
    assert!(busiest(&times[1..], ms(100)) <= 10, "{times:?}");
    assert!(bed.metric("backstop_queue_wait_seconds_count", &["openai"]) >= 20.0);
    assert_eq!(bed.metric("backstop_queue_depth", &["openai"]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn another_credential_and_another_upstream_are_not_held() {
    let script =
        Script::by(|seen| if seen.value("authorization") == Some("Bearer alice") { limited("5") } else { chat() });
    let bed = Bed::new("[retry]\nmax_attempts = 1\n", script);
    let with = |key: &str| from("x").header("authorization", format!("Bearer {key}"));
    assert_eq!(bed.call(&with("alice")).await.status, 429);
    assert_eq!(bed.call(&with("bob")).await.status, 200);
    assert_eq!(
        bed.call(&post("/groq/openai/v1/chat/completions").header("authorization", "Bearer carol")).await.status,
        200
    );
    assert_eq!(bed.now(), ms(0));
    assert_eq!(bed.call(&with("alice")).await.status, 429);
    assert_eq!(bed.now(), secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_limit_told_of_one_model_holds_that_model_alone() {
    let named =
        r#"{"error":{"message":"Rate limit reached for big-1 on requests per min","code":"rate_limit_exceeded"}}"#;
    let script = Script::by(move |seen| {
        if seen.value("x-limited").is_some() { Step::json(429, named).header("retry-after", "3") } else { chat() }
    });
    let bed = Bed::new("[retry]\nmax_attempts = 1\n", script);
    let of = |model: &str| post(CHAT).body(format!(r#"{{"messages":[],"model":"{model}"}}"#));
    assert_eq!(bed.call(&of("big-1").header("x-limited", "1")).await.status, 429);
    assert_eq!((bed.call(&of("little-1")).await.status, bed.now()), (200, ms(0)));
    assert_eq!((bed.call(&of("big-1")).await.status, bed.now()), (200, secs(3)));
}

#[tokio::test(start_paused = true)]
async fn a_good_answer_that_was_the_last_for_now_closes_the_gate_before_there_is_a_429() {
    let last = chat().header("x-ratelimit-remaining-requests", "0").header("x-ratelimit-reset-requests", "2s");
    let bed = Bed::new("", first_gets(last));
    assert_eq!(bed.call(&from("last")).await.status, 200);
    assert_eq!(bed.call(&from("next")).await.status, 200);
    assert_eq!((bed.upstream.gaps()[0], bed.upstream.count()), (secs(2), 2));
}

#[tokio::test(start_paused = true)]
async fn a_wait_too_long_to_sit_through_holds_nobody() {
    let bed = Bed::new("", limited("1800"));
    for _ in 0..20 {
        assert_eq!(bed.call(&from("x")).await.status, 429);
    }
    assert_eq!(bed.now(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn without_adaptive_each_call_waits_for_itself_alone() {
    let bed = Bed::new("[admission]\nadaptive = false\n", first_gets(limited("2")));
    let mut first = bed.client();
    first.ask(&from("first")).await;
    bed.settle().await;
    assert_eq!(bed.call(&from("second")).await.status, 200);
    assert!(bed.now() < secs(1));
}

#[tokio::test(start_paused = true)]
async fn bad_requests_slow_nobody_down() {
    let script = Script::by(|seen| if seen.value("x-bad").is_some() { Step::json(400, "{}") } else { chat() });
    let bed = Bed::new("", script);
    let answers = bed.crowd(many(50).map(|request| request.header("x-bad", "1"))).await;
    assert!(answers.iter().all(|answer| answer.status == 400));
    let answers = bed.crowd(many(10)).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!((bed.now(), bed.metric("backstop_retry_bucket_tokens", &[])), (ms(0), 50.0));
    assert_eq!(bed.metric("backstop_circuit_open", &["openai"]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn the_configured_rate_is_kept() {
    let bed = Bed::new("[admission]\nrequests_per_second = 20\nburst = 5\n", chat());
    let answers = bed.crowd(many(25)).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let times = bed.upstream.times();
    assert_eq!(times.iter().filter(|at| at.is_zero()).count(), 5);
    assert!(busiest(&times, secs(1)) <= 25 && bed.now() >= ms(1000) && bed.now() <= ms(1050), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_estimated_and_settled_by_what_was_really_used() {
    // 100 bytes are 25 tokens, and 975 may be answered: 1000. Really used are 12 (the answer says so).
    let body = format!("{:<100}", r#"{"model":"m","max_tokens":975,"messages":[]}"#);
    let bed = Bed::new("[admission]\ntokens_per_minute = 1500\n", chat().delay(ms(10)));
    let ask = || post(CHAT).body(&body);
    let answers = bed.crowd([ask(), ask()]).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    // The second has to wait until the first has shown that it was cheap.
    assert_eq!(bed.upstream.times(), [ms(0), ms(10)]);
    let streamed = Bed::new("[admission]\ntokens_per_minute = 1500\n", Step::sse(chat_stream(2)).delay(ms(10)));
    let ask = || post(CHAT).body(body.replace("\"model\"", "\"stream\":true,\"model\""));
    streamed.crowd([ask(), ask()]).await;
    assert_eq!(streamed.upstream.times(), [ms(0), ms(10)]);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_so_many_are_at_the_upstream_and_a_stream_counts_to_its_end() {
    let config = "[admission]\nmax_concurrency = 2\n";
    let bed = Bed::new(config, chat().delay(ms(100)));
    bed.crowd(many(6)).await;
    assert_eq!(bed.upstream.times(), [0, 0, 100, 100, 200, 200].map(ms));
    let pieces = chat_stream(3).len() as u64;
    let streams = Bed::new(config, Step::sse(chat_stream(3)).pace(ms(100)));
    streams.crowd(many(3).map(|request| request.body(ASK_STREAM))).await;
    let third = streams.upstream.times()[2];
    assert!(third >= ms(100) * (pieces as u32 - 1), "{third:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_backs_off_holds_no_place() {
    let config = "[admission]\nmax_concurrency = 1\n[retry]\nbase_delay = \"5s\"\njitter = \"none\"\n";
    let bed = Bed::new(config, first_gets(busy()));
    let mut failing = bed.client();
    failing.ask(&from("failing")).await;
    bed.settle().await;
    assert_eq!(bed.call(&from("quick")).await.status, 200);
    assert!(bed.now() < secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_person_goes_before_a_batch_and_flows_take_turns() {
    let config = "[admission]\nmax_concurrency = 1\n";
    let bed = Bed::new(config, chat().delay(ms(100)));
    let swarm = (0..4).map(|n| from(&format!("swarm {n}")).header("x-backstop-run", "swarm"));
    let one = (0..2).map(|n| from(&format!("one {n}")).header("x-backstop-run", "one"));
    let batch = [from("batch").header("x-backstop-priority", "batch")];
    let person = [from("person").header("x-backstop-priority", "interactive")];
    bed.crowd(batch.into_iter().chain(swarm).chain(one).chain(person)).await;
    assert_eq!(order(&bed), ["batch", "person", "swarm 0", "one 0", "swarm 1", "one 1", "swarm 2", "swarm 3"]);
    assert!(bed.upstream.seen().iter().all(|seen| seen.value("x-backstop-priority").is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_full_line_turns_away_at_once_and_serves_those_in_it() {
    let bed = Bed::new("[admission]\nmax_concurrency = 1\nqueue = 2\n", chat().delay(secs(2)));
    let answers = bed.crowd(many(4)).await;
    let full = answers.iter().filter(|answer| answer.status == 503).collect::<Vec<_>>();
    assert_eq!((full.len(), full[0].fault().as_str(), full[0].outcome()), (1, "queue_full", "rejected"));
    assert_eq!((full[0].value("retry-after"), full[0].attempts(), full[0].head_at), (Some("1"), 0, ms(0)));
    assert!(full[0].message().contains("admission.queue"), "{}", full[0].message());
    assert_eq!((bed.upstream.count(), bed.now()), (3, secs(6)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_in_time_is_told_so_at_once() {
    let bed = Bed::new("[retry]\nmax_attempts = 1\n", limited("30"));
    assert_eq!(bed.call(&from("first")).await.status, 429);
    let hurried = bed.call(&from("hurried").header("x-backstop-deadline", "10")).await;
    assert_eq!(
        (hurried.status, hurried.fault().as_str(), hurried.value("retry-after")),
        (503, "queue_full", Some("30"))
    );
    assert!(hurried.no_retry() && hurried.message().contains("nothing was sent"), "{}", hurried.message());
    assert_eq!((bed.now(), bed.upstream.count()), (ms(0), 1));

    let fixed = Bed::new("[admission]\nrequests_per_second = 1\n", chat());
    let answers = fixed.crowd(many(5).map(|request| request.header("x-backstop-deadline", "2.5"))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 503 && answer.head_at.is_zero()).count(), 2);
    assert_eq!(fixed.upstream.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_tokens_that_ends_too_late_is_told_at_once_too() {
    let body = r#"{"model":"m","max_tokens":9000,"messages":[]}"#;
    let silent = Step::json(200, &CHAT_BODY.replace("\"usage\"", "\"none\""));
    let bed = Bed::new("[admission]\ntokens_per_minute = 10000\n", silent);
    assert_eq!(bed.call(&post(CHAT).body(body)).await.status, 200);
    let hurried = bed.call(&post(CHAT).body(body).header("x-backstop-deadline", "5")).await;
    assert_eq!((hurried.status, hurried.fault().as_str(), bed.now()), (503, "queue_full", ms(0)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_costs_no_tokens_and_an_absurd_count_locks_nobody_out() {
    let body = r#"{"model":"m","max_tokens":9000,"messages":[]}"#;
    for status in [400, 401, 404, 413, 422] {
        let bed = Bed::new("[admission]\ntokens_per_minute = 10000\n", [Step::json(status, "{}"), chat()]);
        bed.call(&post(CHAT).body(body)).await;
        assert_eq!((bed.call(&post(CHAT).body(body)).await.status, bed.now()), (200, ms(0)), "{status}");
    }
    let absurd = Step::json(200, &CHAT_BODY.replace("\"prompt_tokens\":10", "\"prompt_tokens\":1000000000000"));
    let bed = Bed::new("[admission]\ntokens_per_minute = 10000\n", [absurd, chat()]);
    bed.call(&post(CHAT).body(body)).await;
    assert_eq!(bed.call(&post(CHAT).body(body)).await.status, 200);
    assert!(bed.now() <= secs(121), "{:?}", bed.now());
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_limits_of_those_who_wait_already() {
    for (before, after) in [
        ("max_concurrency = 1", "max_concurrency = 100"),
        ("requests_per_second = 0.01", "requests_per_second = 1000\nburst = 9"),
        ("tokens_per_minute = 10", "tokens_per_minute = 10000000"),
    ] {
        let bed = Bed::new(&format!("[admission]\n{before}\n"), chat().delay(secs(4)));
        let calls: Vec<_> = many(4)
            .map(|request| {
                let mut client = bed.client();
                tokio::spawn(async move { client.call(&request).await })
            })
            .collect();
        sleep(secs(1)).await;
        assert_eq!(bed.upstream.count(), 1, "{before}");
        bed.reload(&format!("[admission]\n{after}\n"));
        for call in calls {
            assert_eq!(call.await.unwrap().status, 200, "{before}");
        }
        assert!(bed.now() <= secs(6), "{before}: {:?}", bed.now());
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_line_is_never_sent_and_delays_nobody() {
    let bed = Bed::new("[admission]\nmax_concurrency = 1\n", chat().delay(secs(1)));
    let mut first = bed.client();
    first.ask(&from("first")).await;
    bed.settle().await;
    bed.leave_after(&from("leaves"), ms(100)).await;
    bed.settle().await;
    assert_eq!(bed.metric("backstop_queue_depth", &["openai"]), 0.0);
    assert_eq!(bed.call(&from("last")).await.status, 200);
    assert_eq!(order(&bed), ["first", "last"]);
    assert_eq!(bed.metric("backstop_requests_total", &["client_gone"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_is_probed_and_not_trampled() {
    let bed = Bed::new("[retry]\ndeadline = \"30s\"\n[breaker]\nenabled = false\n", busy());
    let answers = bed.crowd(many(50)).await;
    assert!(answers.iter().all(|answer| answer.status == 503 && answer.text() == BUSY_BODY));
    let retries = bed.upstream.count() - 50;
    assert!(retries <= 30, "{retries} retries in 30 s");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_and_ends_quickly() {
    let down = Script::by({
        let start = tokio::time::Instant::now();
        move |_| if start.elapsed() < secs(5) { busy() } else { chat() }
    });
    let bed = Bed::new("[breaker]\nenabled = false\n", down);
    let answers = bed.crowd(many(100)).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!(bed.upstream.count() <= 230, "{} requests", bed.upstream.count());
    assert!(bed.now() <= secs(40), "{:?}", bed.now());
}
