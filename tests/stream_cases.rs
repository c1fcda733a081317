//! Failures of streams as people reported them (`tests/fixtures/cases.jsonl`), each under its id.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::case::{Case, case};
use crate::support::*;

/// A call of a stream with this script.
async fn call(toml: &str, script: Script, path: &str) -> (Bed, Answer) {
    let bed = Bed::new(toml, script);
    let answer = bed.call(&post(path).body(ASK_STREAM)).await;
    (bed, answer)
}

/// What came is what the upstream wrote, at the first attempt, and it was understood.
async fn unchanged(case: &Case, path: &str, tokens: Option<f64>) -> Answer {
    let (bed, answer) = call("", case.script(), path).await;
    assert_eq!((answer.status, answer.attempts(), answer.whole), (200, 1, true));
    assert_eq!(answer.text(), case.stream(0));
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
    assert_eq!(bed.metric("backstop_tokens_total", &[]), tokens.unwrap_or(0.0));
    assert_eq!(bed.metric("backstop_usage_unknown_total", &[]), if tokens.is_none() { 1.0 } else { 0.0 });
    answer
}

#[tokio::test(start_paused = true)]
async fn stream_error_as_first_event() {
    let case = case("stream-error-as-first-event");
    let (_, answer) = call("", case.script(), MESSAGES).await;
    assert_eq!((answer.status, answer.attempts(), answer.text()), (200, 2, case.stream(1).as_str()));
    let (_, answer) = call("", Step::sse([case.stream(0)]).into(), MESSAGES).await;
    assert_eq!((answer.status, answer.text(), answer.no_retry()), (529, case.stream(0).as_str(), true));
}

#[tokio::test(start_paused = true)]
async fn stream_error_after_message_start() {
    let case = case("stream-error-after-message-start");
    let (_, answer) = call("", case.script(), MESSAGES).await;
    assert_eq!((answer.status, answer.attempts(), answer.text()), (200, 2, case.stream(1).as_str()));
    let (_, answer) = call("[stream]\nhold = \"0B\"\n", case.script(), MESSAGES).await;
    assert_eq!((answer.status, answer.attempts(), answer.text()), (200, 1, case.stream(0).as_str()));
}

#[tokio::test(start_paused = true)]
async fn stream_error_after_content_no_replay() {
    let case = case("stream-error-after-content-no-replay");
    let (bed, answer) = call("", case.script(), MESSAGES).await;
    assert_eq!((answer.text(), answer.attempts(), answer.whole), (case.stream(0).as_str(), 1, true));
    assert_eq!(bed.upstream.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn anthropic_stream_clean_eof_no_message_stop() {
    let case = case("anthropic-stream-clean-eof-no-message-stop");
    let (bed, answer) = call("", case.script(), MESSAGES).await;
    let told = answer.text().strip_prefix(case.stream(0).as_str()).unwrap();
    assert!(told.starts_with("event: error\ndata: {") && told.contains("stream_interrupted"), "{told}");
    assert!(!answer.text().contains("message_stop") && !answer.text().contains("end_turn"));
    assert_eq!((answer.attempts(), answer.whole), (1, true));
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"interrupted\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn stream_ends_before_any_event() {
    let case = case("stream-ends-before-any-event");
    for (n, script) in case.variants().into_iter().enumerate() {
        let (_, answer) = call("", script, CHAT).await;
        assert_eq!((answer.status, answer.attempts()), (200, 2), "variant {n}");
        assert_eq!(answer.text(), case.variant_stream(n, 1), "variant {n}");
    }
    let (_, answer) = call("", Step::sse::<&str>([]).into(), CHAT).await;
    assert_eq!((answer.status, answer.no_retry()), (502, true));
}

#[tokio::test(start_paused = true)]
async fn terminal_event_then_socket_stays_open() {
    let case = case("terminal-event-then-socket-stays-open");
    let paths = [RESPONSES, CHAT, MESSAGES];
    for (n, script) in case.variants().into_iter().enumerate() {
        let bed = Bed::new("[retry]\nmax_attempts = 1\n", script);
        let answer = bed.call(&post(paths[n]).body(ASK_STREAM)).await;
        assert_eq!((answer.text(), answer.whole), (case.variant_stream(n, 0).as_str(), true), "variant {n}");
        assert_eq!((answer.head_at, answer.end_at), (ms(0), secs(2)), "variant {n}");
        assert!(bed.upstream.only().gone.is_some(), "variant {n}");
        // A failure before content is told by the status.
        assert_eq!(answer.status, if n == 0 { 500 } else { 200 }, "variant {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn pre_content_stall() {
    let case = case("pre-content-stall");
    let (bed, answer) =
        call("[timeouts]\nstream_first_event = \"2s\"\n[retry]\njitter = \"none\"\n", case.script(), MESSAGES).await;
    assert_eq!((answer.status, answer.attempts(), answer.text()), (200, 2, case.stream(1).as_str()));
    assert_eq!((bed.upstream.connections(), bed.upstream.gaps()), (2, vec![secs(3)]));
    assert!(bed.upstream.seen()[0].gone.is_some());
}

#[tokio::test(start_paused = true)]
async fn mid_content_stall() {
    let case = case("mid-content-stall");
    let (bed, answer) = call("[timeouts]\nstream_idle = \"2s\"\n", case.script(), MESSAGES).await;
    let told = answer.text().strip_prefix(case.stream(0).as_str()).unwrap();
    assert!(told.starts_with("event: error\ndata: {") && told.contains("stream_stalled"), "{told}");
    assert_eq!((answer.attempts(), answer.whole, answer.end_at), (1, true, secs(2)));
    assert!(bed.upstream.only().gone.is_some());
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"stalled\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn total_timeout_kills_healthy_stream() {
    let case = case("total-timeout-kills-healthy-stream");
    let toml = "[retry]\ndeadline = \"3s\"\n[timeouts]\nconnect = \"3s\"\nfirst_byte = \"3s\"\nstream_first_event = \"3s\"\nstream_idle = \"3s\"\n";
    let (_, answer) = call(toml, case.script(), MESSAGES).await;
    assert_eq!((answer.text(), answer.whole, answer.end_at), (case.stream(0).as_str(), true, secs(10)));
}

#[tokio::test(start_paused = true)]
async fn long_silence_needs_heartbeat() {
    let case = case("long-silence-needs-heartbeat");
    let on = "[stream]\nheartbeat = \"1s\"\n";
    let (_, answer) = call(on, case.script(), MESSAGES).await;
    assert_eq!((answer.status, answer.head_at), (200, secs(1)));
    // The sixth falls together with the answer.
    assert_eq!(answer.text().trim_start_matches('\n'), case.stream(0));
    assert!((5..=6).contains(&(answer.text().len() - case.stream(0).len())));
    let (_, answer) = call("", case.script(), MESSAGES).await;
    assert_eq!((answer.text(), answer.head_at), (case.stream(0).as_str(), secs(6)));
    let plain = Bed::new(on, message().delay(secs(6))).call(&post(MESSAGES)).await;
    assert_eq!((plain.text(), plain.head_at), (MESSAGE_BODY, secs(6)));
    let (_, answer) = call(on, Step::json(401, "{}").delay(secs(6)).into(), MESSAGES).await;
    assert!(answer.text().trim_start().starts_with("event: error\ndata: {\"error\":"), "{}", answer.text());
}

#[tokio::test(start_paused = true)]
async fn sse_comment_stays_comment() {
    let case = case("sse-comment-stays-comment");
    unchanged(&case, CHAT, None).await;
    // Comments are no content.
    let comments = Step::sse([": OPENROUTER PROCESSING\n\n"; 2]);
    let (_, answer) = call("", Script::from([comments, Step::sse(chat_stream(1))]), CHAT).await;
    assert_eq!((answer.text(), answer.attempts()), (chat_stream(1).concat().as_str(), 2));
}

#[tokio::test(start_paused = true)]
async fn data_colon_keepalive_passthrough() {
    unchanged(&case("data-colon-keepalive-passthrough"), CHAT, None).await;
}

#[tokio::test(start_paused = true)]
async fn proxy_adds_no_metadata_frames() {
    unchanged(&case("proxy-adds-no-metadata-frames"), CHAT, None).await;
}

#[tokio::test(start_paused = true)]
async fn sse_split_at_every_byte() {
    unchanged(&case("sse-split-at-every-byte"), MESSAGES, Some(17.0)).await;
}

#[tokio::test(start_paused = true)]
async fn utf8_split_across_writes() {
    let answer = unchanged(&case("utf8-split-across-writes"), MESSAGES, Some(17.0)).await;
    assert!(answer.text().contains("日本🎉") && !answer.text().contains('\u{fffd}'));
}

#[tokio::test(start_paused = true)]
async fn sse_crlf_and_cr() {
    let text = case("sse-crlf-and-cr").stream(1);
    let split = |text: &str| {
        let mut step = Step::sse::<&str>([]);
        for piece in text.split_inclusive('\r') {
            step = step.write(piece).pause(ms(20));
        }
        step
    };
    let (crlf, cr) = (text.replace('\n', "\r\n"), text.replace('\n', "\r"));
    for (step, text) in [(Step::sse([&crlf]), &crlf), (Step::sse([&cr]), &cr), (split(&crlf), &crlf)] {
        let (bed, answer) = call("", step.into(), MESSAGES).await;
        assert_eq!((answer.text(), answer.whole, answer.attempts()), (text.as_str(), true, 1));
        assert_eq!(bed.metric("backstop_tokens_total", &[]), 17.0);
        assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn u2028_inside_json() {
    unchanged(&case("u2028-inside-json"), MESSAGES, Some(17.0)).await;
}

#[tokio::test(start_paused = true)]
async fn sse_no_space_and_multiline_data() {
    unchanged(&case("sse-no-space-and-multiline-data"), MESSAGES, Some(17.0)).await;
}

#[tokio::test(start_paused = true)]
async fn stream_request_upstream_4xx_keeps_status() {
    let case = case("stream-request-upstream-4xx-keeps-status");
    for heartbeat in ["", "[stream]\nheartbeat = \"1s\"\n"] {
        let (_, answer) = call(heartbeat, case.script(), CHAT).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (401, case.body(0).as_str(), 1));
        assert_eq!(answer.value("content-type"), Some("application/json"));
    }
}

#[tokio::test(start_paused = true)]
async fn stream_true_answered_with_json() {
    let case = case("stream-true-answered-with-json");
    let (bed, answer) = call("", case.script(), CHAT).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, case.body(0).as_str(), 1));
    assert_eq!(answer.value("content-type"), Some("application/json"));
    assert_eq!(bed.metric("backstop_tokens_total", &[]), 12.0);
}

/// When each piece came.
async fn arrivals(toml: &str, case: &Case) -> (Duration, Vec<Duration>, String) {
    let bed = Bed::new(toml, case.script());
    let (start, mut client) = (Instant::now(), bed.client());
    let head =
        client.ask(&post(MESSAGES).body(ASK_STREAM).header("accept-encoding", "gzip")).await.head().await.unwrap();
    assert_eq!((head.value("content-length"), head.value("content-encoding")), (None, None));
    let mut times = Vec::new();
    let mut seen = client.pending().len();
    while !client.pending().ends_with(b"0\r\n\r\n") && client.piece().await {
        if String::from_utf8_lossy(&client.pending()[seen..]).contains("tick") {
            times.push(start.elapsed());
        }
        seen = client.pending().len();
    }
    (head.head_at, times, String::from_utf8(client.bytes()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn flush_each_event() {
    let case = case("flush-each-event");
    for (toml, head) in [("", ms(100)), ("[stream]\nhold = \"0B\"\n", ms(0))] {
        let (head_at, times, all) = arrivals(toml, &case).await;
        assert_eq!((head_at, all.matches("tick").count()), (head, 40));
        // With the first content, its head came.
        let ticks: Vec<Duration> = (1..=40).map(|n| ms(100 * n)).collect();
        assert!(times.ends_with(&ticks[1..]), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn x_accel_buffering_and_cache_control() {
    let case = case("x-accel-buffering-and-cache-control");
    let expected = [(Some("no"), Some("no-cache")), (None, None)];
    for (n, script) in case.variants().into_iter().enumerate() {
        let (_, answer) = call("", script, MESSAGES).await;
        assert_eq!((answer.value("x-accel-buffering"), answer.value("cache-control")), expected[n]);
        assert_eq!(answer.text(), case.variant_stream(n, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn usage_only_chunk_empty_choices() {
    unchanged(&case("usage-only-chunk-empty-choices"), CHAT, Some(12.0)).await;
}

#[tokio::test(start_paused = true)]
async fn ollama_ndjson_stream() {
    unchanged(&case("ollama-ndjson-stream"), "/ollama/api/chat", Some(12.0)).await;
}

/// The case asks for two attempts at most; the table of error answers calls such a page transient, so it gets them all.
#[tokio::test(start_paused = true)]
async fn html_200_on_api_path() {
    let case = case("html-200-on-api-path");
    let (bed, answer) = call("", case.script(), MESSAGES).await;
    assert_eq!((answer.text(), answer.value("content-type")), (case.body(0).as_str(), Some("text/html")));
    assert_eq!((answer.status, answer.outcome()), (502, "exhausted"));
    assert_eq!(bed.metric("backstop_attempts_total", &["class=\"success\""]), 0.0);
}
