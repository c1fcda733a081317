//! A request that was sent and whose answer was lost may have been carried out: what creates something is not sent twice.

use crate::support::*;

const CREATING: [&str; 5] =
    ["/v1/files", "/v1/images/generations", "/v1/batches", "/openai/v1/threads/t1/runs", "/v1/unheard-of"];

#[tokio::test(start_paused = true)]
async fn what_creates_is_sent_once_and_the_client_is_told_to_check() {
    for path in CREATING {
        for step in [Step::close(), Step::reset(), Step::garbage()] {
            let bed = Bed::new("", step);
            let answer = bed.call(&post(path)).await;
            assert_eq!((bed.upstream.count(), answer.status), (1, 502), "{path}");
            assert_eq!(answer.fault(), "upstream_protocol_error");
            assert!(answer.message().contains("outcome upstream is unknown"), "{}", answer.message());
            assert!(answer.message().contains("before sending it again") && answer.no_retry());
            assert_eq!(bed.metric("backstop_possibly_billed_total", &["openai"]), 1.0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_what_creates_is_ambiguous_too() {
    let bed = Bed::new("[timeouts]\nfirst_byte = \"3s\"\n", Step::silence());
    let answer = bed.call(&post("/v1/files")).await;
    assert_eq!((bed.upstream.count(), answer.status, answer.fault().as_str()), (1, 504, "upstream_timeout"));
    assert!(answer.message().contains("outcome upstream is unknown"), "{}", answer.message());
    let late = Bed::new("[retry]\ndeadline = \"3s\"\n", Step::silence()).call(&post("/v1/files")).await;
    assert_eq!(late.fault(), "deadline_exceeded");
    assert!(late.message().contains("outcome upstream is unknown"), "{}", late.message());
}

#[tokio::test(start_paused = true)]
async fn what_creates_is_repeated_while_nothing_was_sent_or_done() {
    for step in [
        Step::refuse(),
        limited("1"),
        busy(),
        Step::json(529, r#"{"error":{"type":"overloaded_error","message":"x"}}"#),
    ] {
        let bed = Bed::new("", [step, Step::json(200, r#"{"id":"file-1"}"#)]);
        let answer = bed.call(&post("/v1/files")).await;
        assert_eq!((answer.status, answer.attempts()), (200, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_be_a_gateways_is_passed_on_for_what_creates() {
    for status in [500, 502, 504, 520, 524] {
        let bed = Bed::new("", Step::respond(status, &[("content-type", "text/html")], "<html>bad gateway</html>"));
        let answer = bed.call(&post("/v1/files")).await;
        assert_eq!((bed.upstream.count(), answer.status), (1, status));
        assert!(answer.no_retry(), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn always_repeats_what_creates_up_to_its_own_limit() {
    for (attempts, toml) in
        [(2, "[retry]\nambiguous = \"always\"\n"), (3, "[retry]\nambiguous = \"always\"\nambiguous_attempts = 3\n")]
    {
        let bed = Bed::new(toml, Step::close());
        let answer = bed.call(&post("/v1/files")).await;
        assert_eq!((bed.upstream.count(), answer.status), (attempts, 502));
        assert!(answer.message().contains("outcome upstream is unknown"));
    }
}

#[tokio::test(start_paused = true)]
async fn never_repeats_nothing_that_was_sent() {
    let toml = "[retry]\nambiguous = \"never\"\n";
    for request in [post(CHAT), get("/v1/models"), post("/v1/files")] {
        let bed = Bed::new(toml, Step::close());
        let answer = bed.call(&request).await;
        assert_eq!((bed.upstream.count(), answer.status), (1, 502));
    }
    let bed = Bed::new(toml, [Step::refuse(), busy(), chat()]);
    assert_eq!(bed.call(&post(CHAT)).await.attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn chat_calls_reads_and_deletes_are_repeated() {
    for request in [post(CHAT), post(MESSAGES), post(GEMINI), get("/v1/files/f1"), delete("/v1/files/f1")] {
        let bed = Bed::new("", [Step::close(), Step::json(200, CHAT_BODY)]);
        let answer = bed.call(&request).await;
        assert_eq!((answer.status, answer.attempts()), (200, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_chat_call_whose_tools_act_elsewhere_is_not_repeated() {
    let body = r#"{"model":"m","messages":[],"tools":[{"type":"mcp","server_url":"u"}]}"#;
    let bed = Bed::new("", Step::close());
    let answer = bed.call(&post("/v1/responses").body(body)).await;
    assert_eq!((bed.upstream.count(), answer.attempts()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_alone_makes_nothing_repeatable() {
    let bed = Bed::new("", Step::close());
    bed.call(&post("/v1/files").header("idempotency-key", "k")).await;
    assert_eq!(bed.upstream.count(), 1);
}
