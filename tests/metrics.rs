//! What is counted, under which names and labels; and that no label is anybody's free text.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn every_metric_of_what_there_is_is_on_the_page_from_the_start() {
    let bed = Bed::new("", chat());
    let answer = bed.call(&get("/metrics")).await;
    assert_eq!(answer.value("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for name in [
        "backstop_retry_delay_seconds_count{upstream=\"openai\"} 0",
        "backstop_request_duration_seconds_count{upstream=\"openai\"} 0",
        "backstop_first_byte_seconds_count{upstream=\"openai\"} 0",
        "backstop_retry_bucket_tokens 50",
        "backstop_retry_bucket_waits_total 0",
        "backstop_in_flight{upstream=\"openai\"} 0",
        "backstop_possibly_billed_total{upstream=\"openai\"} 0",
        "backstop_usage_unknown_total{upstream=\"openai\"} 0",
        "backstop_retry_tokens_total{upstream=\"openai\"} 0",
        "backstop_config_reloads_total{result=\"success\"} 0",
        "backstop_build_info{version=",
        "process_resident_memory_bytes",
    ] {
        assert!(answer.text().contains(name), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_counted_once_and_each_of_its_attempts() {
    let bed = Bed::new("[retry]\njitter = \"none\"\n", [Step::refuse(), limited("2"), Step::json(529, "{}"), chat()]);
    bed.call(&post(CHAT)).await;
    for (name, labels, value) in [
        ("backstop_requests_total", vec![], 1.0),
        ("backstop_requests_total", vec!["upstream=\"openai\"", "outcome=\"success\"", "status=\"200\""], 1.0),
        ("backstop_attempts_total", vec![], 4.0),
        ("backstop_attempts_total", vec!["class=\"transient\"", "reason=\"connect\""], 1.0),
        ("backstop_attempts_total", vec!["class=\"transient\"", "reason=\"rate_limited\""], 1.0),
        ("backstop_attempts_total", vec!["class=\"transient\"", "reason=\"overloaded\""], 1.0),
        ("backstop_attempts_total", vec!["class=\"success\"", "reason=\"ok\""], 1.0),
        ("backstop_retries_total", vec![], 3.0),
        ("backstop_retries_total", vec!["reason=\"rate_limited\""], 1.0),
        ("backstop_retry_delay_seconds_count", vec!["openai"], 3.0),
        ("backstop_request_duration_seconds_count", vec!["openai"], 1.0),
        ("backstop_first_byte_seconds_count", vec!["openai"], 1.0),
        ("backstop_tokens_total", vec!["model=\"m\"", "kind=\"input\""], 10.0),
        ("backstop_tokens_total", vec!["model=\"m\"", "kind=\"output\""], 2.0),
        ("backstop_in_flight", vec![], 0.0),
    ] {
        assert_eq!(bed.metric(name, &labels), value, "{name} {labels:?}");
    }
    let waited = bed.metric("backstop_retry_delay_seconds_sum", &["openai"]);
    assert!((7.0..7.1).contains(&waited), "1 + 2 + 4: {waited}");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_is_seen_as_such() {
    let bed = Bed::new("", chat().delay(secs(10)));
    let mut client = bed.client();
    client.ask(&post(CHAT)).await;
    bed.settle().await;
    assert_eq!(bed.metric("backstop_in_flight", &["openai"]), 1.0);
    client.answer().await;
    assert_eq!(bed.metric("backstop_in_flight", &["openai"]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn reasons_and_outcomes_are_those_of_the_contract() {
    for (step, reason, outcome) in [
        (Step::json(401, "{}"), "auth", "terminal"),
        (Step::json(404, "{}"), "not_found", "terminal"),
        (Step::json(413, "{}"), "too_large", "terminal"),
        (Step::json(400, "{}"), "bad_request", "terminal"),
        (Step::json(402, "{}"), "quota_exhausted", "terminal"),
        (Step::json(500, "{}"), "server_error", "exhausted"),
        (Step::json(504, "{}"), "timeout", "exhausted"),
        (Step::close(), "reset", "exhausted"),
        (Step::garbage(), "protocol", "exhausted"),
        (Step::json(200, ""), "empty", "exhausted"),
    ] {
        let bed = Bed::new("", step);
        bed.call(&post(CHAT)).await;
        assert!(bed.metric("backstop_attempts_total", &[&format!("reason=\"{reason}\"")]) >= 1.0, "{reason}");
        assert_eq!(bed.metric("backstop_requests_total", &[&format!("outcome=\"{outcome}\"")]), 1.0, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_counted_by_how_they_ended() {
    let events = chat_stream(3);
    let at = events[0].len() + 5;
    for (step, result) in [
        (Step::sse(&events), "complete"),
        (Step::sse(&events).cut_after(at), "interrupted"),
        (Step::sse(&events).stall_after(at), "stalled"),
    ] {
        let bed = Bed::new("", step);
        bed.call(&post(CHAT)).await;
        assert_eq!(bed.metric("backstop_streams_total", &[&format!("result=\"{result}\"")]), 1.0, "{result}");
        assert_eq!(bed.metric("backstop_streams_total", &[]), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_attempt_is_possibly_billed_and_no_other() {
    for (step, billed) in [
        (Step::close(), 1.0),
        (Step::silence(), 1.0),
        (Step::json(500, "{}"), 1.0),
        (Step::refuse(), 0.0),
        (limited("1"), 0.0),
        (busy(), 0.0),
    ] {
        let bed = Bed::new("[timeouts]\nfirst_byte = \"2s\"\n", [step, chat()]);
        bed.call(&post(CHAT)).await;
        assert_eq!(bed.metric("backstop_possibly_billed_total", &["openai"]), billed);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_of_an_answer_that_was_thrown_away_are_counted_apart() {
    let toml = "[[classify]]\nstatus = [200]\nbody_contains = \"again\"\nclass = \"transient\"\n";
    let bed = Bed::new(toml, [Step::json(200, &CHAT_BODY.replace("Hello", "again")), chat()]);
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.metric("backstop_retry_tokens_total", &["openai"]), 12.0);
    assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"input\""]), 10.0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_usage_is_counted_as_such() {
    let bed = Bed::new(
        "",
        Step::json(200, r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":null}"#),
    );
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.metric("backstop_usage_unknown_total", &["openai"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_status_is_evidence_no_and_then_yes_once_the_same_request_gets_through() {
    let bed = Bed::new("", [Step::json(418, "{}"), chat()]);
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.metric("backstop_unclassified_total", &["status=\"418\"", "recovered=\"no\""]), 1.0);
    bed.call(&post(CHAT).body("{\"another\":1}")).await;
    assert_eq!(bed.metric("backstop_unclassified_total", &["recovered=\"yes\""]), 0.0);
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.metric("backstop_unclassified_total", &["status=\"418\"", "recovered=\"yes\""]), 1.0);
    let within = Bed::new("", [Step::json(599, "{}"), chat()]);
    within.call(&post(CHAT)).await;
    assert_eq!(within.metric("backstop_unclassified_total", &["status=\"599\"", "recovered=\"yes\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn no_label_holds_what_a_client_made_up() {
    let script = Script::by(|seen| {
        let asked: serde_json::Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        Step::json(200, &CHAT_BODY.replace("\"model\":\"m\"", &format!("\"model\":{}", asked["model"])))
    });
    let bed = Bed::new("", script);
    bed.call(&post(CHAT)).await;
    let before = bed.metrics().lines().count();
    for n in 0..300 {
        let odd = format!("made\\\"up\\n{n}");
        let body = format!(r#"{{"model":"{odd}","messages":[]}}"#);
        bed.call(&post(&format!("/v1/x{n}?key=SECRET{n}")).header("x-backstop-run", &odd).body(&body)).await;
        bed.call(&post(CHAT).body(&body)).await;
    }
    let page = bed.metrics();
    assert!(page.lines().count() - before < 650, "at most 200 models of 3 kinds: {}", page.lines().count() - before);
    assert!(page.contains("model=\"other\"") && !page.contains("SECRET") && !page.contains("/v1/x"));
    assert!(page.lines().all(|line| !line.starts_with("up")), "line feeds are escaped");
}

#[tokio::test(start_paused = true)]
async fn what_is_turned_away_is_counted_without_an_upstream() {
    let bed = Bed::new("", chat());
    bed.call(&post(CHAT).host("evil.example")).await;
    bed.call(&post("/nowhere")).await;
    for status in ["421", "404"] {
        let labels = ["upstream=\"none\"", "outcome=\"rejected\"", &format!("status=\"{status}\"")];
        assert_eq!(bed.metric("backstop_requests_total", &labels), 1.0, "{status}");
    }
}
