//! Failures as people reported them (`tests/fixtures/cases.jsonl`), each under its id. Cases that need more than a script of
//! answers are tested where their promise is: [`ELSEWHERE`] says where; [`NOT_COVERED`] says what is not tested here, and why.

use std::time::{Duration, UNIX_EPOCH};

use crate::support::bed::WALL;
use crate::support::case::{case, ids};
use crate::support::*;

/// Cases tested by their promise: id, and where.
const ELSEWHERE: &[(&str, &str)] = &[
    ("stale-keepalive-reset", "connections, tcp"),
    ("pool-idle-below-edge-limit", "connections::an_idle_connection_is_not_used_after_fifty_seconds"),
    ("dns-temporary-failure", "retries::a_connection_that_is_refused_at_first_is_got_past, tcp"),
    ("tls-custom-ca-additive", "tcp::a_certificate_of_an_authority_in_ca_file_is_trusted_and_h2_agreed_on"),
    ("tls-verify-failure-not-transient", "tcp::a_certificate_that_nobody_vouches_for_is_refused_at_once"),
    ("egress-proxy-and-no-proxy", "tcp::https_goes_through_the_proxy_of_the_environment_and_loopback_never_does"),
    ("compressed-request-body", "fidelity::compressed_bodies_are_passed_on_as_they_are"),
    ("request-length-not-chunked", "fidelity::a_sized_upload_keeps_its_length_…"),
    ("early-error-during-upload", "tcp::a_413_in_the_middle_of_an_upload_is_read_by_the_client"),
    ("host-header-rewritten", "fidelity::an_upstreams_name_and_its_base_path_are_joined_to_the_target"),
    ("path-join-matrix", "route (unit tests), fidelity"),
    ("query-string-verbatim", "fidelity::targets_are_passed_on_as_they_came"),
    ("websocket-upgrade-answer", "tcp::a_websocket_is_a_tunnel_both_ways"),
    ("non-post-and-other-endpoints", "ambiguous, fidelity::large_binary_answers_come_byte_for_byte"),
    ("over-limit-is-413-json-not-reset", "limits, tcp::our_own_413_is_read_by_a_client_that_is_still_sending"),
    ("large-body-replayed-exactly", "tcp::thirty_megabytes_arrive_whole_and_again_on_the_retry"),
    ("disconnect-mid-stream-cancels-upstream", "cancel::in_a_stream_…"),
    ("disconnect-before-first-token", "cancel::in_an_attempt_the_upstream_connection_is_closed"),
    ("client-abort-is-not-upstream-failure", "cancel::clients_that_leave_are_no_failures_of_the_upstream"),
    ("shutdown-during-backoff-and-stream", "drain, tcp::sigterm_lets_a_stream_end_and_settles_a_backoff"),
    ("key-in-query-redacted", "secrets"),
    ("huge-single-sse-event", "stream_calls::an_event_of_ten_megabytes_goes_through"),
    ("key-not-in-error-text", "secrets"),
    ("4xx-must-not-drain-or-trip", "admission::bad_requests_slow_nobody_down"),
    ("half-open-probe-gets-4xx", "breaker::a_probe_that_gets_a_4xx_closes_it, breaker::a_probe_whose_client_leaves_…"),
];

/// Cases not covered: id, and why.
const NOT_COVERED: &[(&str, &str)] = &[
    ("ipv6-broken-fallback", "needs a resolver of its own; happy eyeballs are the connector library's"),
    ("listen-on-both-loopbacks", "the ready line says the exact URL; nothing listens on ::1 by default"),
    ("h2-goaway-refused-stream", "needs a scripted HTTP/2 upstream at frame level"),
    ("length-after-rewrite", "answers are not rewritten yet: repair is not built"),
];

#[test]
fn every_case_is_tested_here_or_named_above() {
    let source = [
        include_str!("cases.rs"),
        include_str!("stream_cases.rs"),
        include_str!("herd_cases.rs"),
        include_str!("idempotency.rs"),
    ]
    .concat();
    for id in ids() {
        let here = source.contains(&format!("case(\"{id}\")"));
        let named = ELSEWHERE.iter().chain(NOT_COVERED).any(|(other, _)| *other == id);
        assert!(here || named, "{id}");
    }
}

/// Passed on at once, as it came.
async fn passed_on(path: &str, script: Script, status: u16, body: &str) {
    let bed = Bed::new("", script);
    let answer = bed.call(&post(path)).await;
    assert_eq!((answer.status, answer.text(), bed.upstream.attempts(), bed.now()), (status, body, 1, ms(0)));
    assert_eq!(bed.metric("backstop_retry_bucket_tokens", &[]), 50.0);
}

/// Got past at this attempt.
async fn got_past(path: &str, script: Script, attempts: usize) -> Bed {
    let bed = Bed::new("", script);
    let answer = bed.call(&post(path)).await;
    assert_eq!((answer.status, answer.attempts(), bed.upstream.attempts()), (200, attempts, attempts));
    bed
}

#[tokio::test(start_paused = true)]
async fn openai_429_insufficient_quota() {
    let case = case("openai-429-insufficient-quota");
    passed_on(CHAT, case.script(), 429, &case.body(0)).await;
    let streamed = Bed::new("", case.script()).call(&post(CHAT).body(r#"{"model":"m","stream":true}"#)).await;
    assert_eq!((streamed.status, streamed.text(), streamed.attempts()), (429, case.body(0).as_str(), 1));
}

#[tokio::test(start_paused = true)]
async fn quota_code_only_in_type_or_message() {
    let case = case("429-quota-code-only-in-type-or-message");
    for (n, script) in case.variants().into_iter().enumerate() {
        let bed = Bed::new("", script);
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.text()), (429, case.variant_body(n).as_str()));
        assert!(bed.upstream.count() == 1 || n == 2, "variant {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn gemini_429_retryinfo_in_body() {
    let bed = got_past(GEMINI, case("gemini-429-retryinfo-in-body").script(), 2).await;
    let wait = bed.upstream.gaps()[0];
    assert!(wait >= ms(2000) && wait <= ms(2402), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn gemini_429_bare_resource_exhausted() {
    got_past(GEMINI, case("gemini-429-bare-resource-exhausted").script(), 3).await;
}

#[tokio::test(start_paused = true)]
async fn claude_subscription_window_429() {
    let case = case("claude-subscription-window-429");
    let bed = Bed::new("", case.script());
    for n in 0..17 * 3 {
        let answer = bed.call(&post(MESSAGES).body(format!("{{\"client\":{}}}", n % 17))).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (429, case.body(0).as_str(), 1));
        assert_eq!(answer.value("retry-after"), Some("2892"));
        assert_eq!(answer.value("anthropic-ratelimit-unified-reset"), Some("4102444800"));
    }
    assert_eq!((bed.now(), bed.upstream.count()), (ms(0), 51));
    assert_eq!(bed.metric("backstop_retry_bucket_tokens", &[]), 50.0);
}

#[tokio::test(start_paused = true)]
async fn anthropic_529_then_ok() {
    got_past(MESSAGES, case("anthropic-529-then-ok").script(), 3).await;
}

#[tokio::test(start_paused = true)]
async fn anthropic_529_storm_exhausted() {
    let case = case("anthropic-529-storm-exhausted");
    let bed = Bed::new("[retry]\njitter = \"equal\"\n", case.script());
    let answer = bed.call(&post(MESSAGES)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (529, case.body(0).as_str(), 5));
    assert_eq!((answer.value("request-id"), answer.no_retry()), (Some("req_last"), true));
    assert!(bed.upstream.gaps().is_sorted(), "{:?}", bed.upstream.gaps());
}

#[tokio::test(start_paused = true)]
async fn waf_403_html_page() {
    let case = case("waf-403-html-page");
    let bed = Bed::new("", case.script());
    let answer = bed.call(&post(CHAT).header("user-agent", "agent/1.0")).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (403, case.body(0).as_str(), 1));
    assert_eq!(answer.value("content-type"), Some("text/html; charset=UTF-8"));
    assert_eq!(bed.upstream.only().value("user-agent"), Some("agent/1.0"));
}

#[tokio::test(start_paused = true)]
async fn cloudflare_520_html_transient() {
    got_past(MESSAGES, case("cloudflare-520-html-transient").script(), 3).await;
}

#[tokio::test(start_paused = true)]
async fn openrouter_200_with_error_429() {
    got_past(CHAT, case("openrouter-200-with-error-429").script(), 2).await;
}

#[tokio::test(start_paused = true)]
async fn openrouter_402_with_and_without_retry_after() {
    let case = case("openrouter-402-with-and-without-retry-after");
    for (n, script) in case.variants().into_iter().enumerate() {
        let bed = Bed::new("", script);
        let answer = bed.call(&post(CHAT)).await;
        let passed = (answer.status, answer.text(), bed.upstream.count()) == (402, case.variant_body(n).as_str(), 1);
        let waited = n == 1 && answer.status == 200 && bed.upstream.gaps()[0] >= secs(1);
        assert!(passed || waited, "variant {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn nonstream_finish_reason_error() {
    let bed = Bed::new("", case("nonstream-finish-reason-error").script());
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains(r#""finish_reason":"error""#) || answer.attempts() == 2);
}

#[tokio::test(start_paused = true)]
async fn content_filter_not_retried() {
    let case = case("content-filter-not-retried");
    passed_on(CHAT, case.script(), 200, &case.body(0)).await;
    let safety = r#"{"candidates":[{"finishReason":"SAFETY"}],"usageMetadata":{"promptTokenCount":5}}"#;
    passed_on(GEMINI, Step::json(200, safety).into(), 200, safety).await;
    let refusal = r#"{"type":"message","role":"assistant","content":[],"stop_reason":"refusal"}"#;
    passed_on(MESSAGES, Step::json(200, refusal).into(), 200, refusal).await;
}

#[tokio::test(start_paused = true)]
async fn gemini_malformed_function_call_200() {
    let case = case("gemini-malformed-function-call-200");
    passed_on(GEMINI, case.script(), 200, &case.body(0)).await;
}

#[tokio::test(start_paused = true)]
async fn empty_stop_completion() {
    let case = case("empty-stop-completion");
    passed_on(GEMINI, case.script(), 200, &case.body(0)).await;
    let again = Bed::new("[retry]\nempty = true\n", case.script()).call(&post(GEMINI)).await;
    assert_eq!((again.attempts(), again.text()), (2, case.body(1).as_str()));
}

#[tokio::test(start_paused = true)]
async fn deterministic_500_bounded() {
    let case = case("deterministic-500-bounded");
    let answer = Bed::new("", case.script()).call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text()), (500, case.body(0).as_str()));
    assert!(answer.attempts() <= 5);
}

#[tokio::test(start_paused = true)]
async fn llamacpp_503_loading_model() {
    got_past(CHAT, case("llamacpp-503-loading-model").script(), 4).await;
}

/// `<now>` and `<now+3s …>`.
fn dated(text: &str) -> String {
    let at = |secs| UNIX_EPOCH + WALL + Duration::from_secs(secs);
    match text {
        "<now>" => httpdate::fmt_http_date(at(0)),
        "<now+3s as IMF-fixdate, GMT>" => httpdate::fmt_http_date(at(3)),
        "<now+2s RFC3339>" => jiff::Timestamp::try_from(at(2)).unwrap().to_string(),
        plain => plain.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_http_date() {
    let bed = got_past(CHAT, case("retry-after-http-date").script_with(dated), 2).await;
    let wait = bed.upstream.gaps()[0];
    assert!(wait >= secs(2) && wait <= secs(4), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_ms_wins() {
    let bed = got_past(CHAT, case("retry-after-ms-wins").script(), 2).await;
    assert!(bed.upstream.gaps()[0] >= ms(250) && bed.upstream.gaps()[0] < secs(1));
}

#[tokio::test(start_paused = true)]
async fn retry_after_too_long_to_hold() {
    let case = case("retry-after-too-long-to-hold");
    let bed = Bed::new("", case.script());
    for _ in 0..2 {
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.value("retry-after"), answer.attempts()), (429, Some("1800"), 1));
    }
    assert_eq!(bed.now(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn retry_after_garbage() {
    let case = case("retry-after-garbage");
    for value in ["0", "-5", "NaN", "inf", "soon", "", "1e400", "99999999999999999999", " 1 ", "1, 2"] {
        let fill = |text: &str| if text == "<variant>" { value.to_owned() } else { text.to_owned() };
        let bed = Bed::new("", case.script_with(fill));
        let answer = bed.call(&post(CHAT)).await;
        if answer.status == 429 {
            assert!(value.len() > 4 && answer.attempts() == 1, "{value:?} is too long to wait for");
        } else {
            assert!(bed.upstream.gaps()[0] <= ms(1202), "{value:?}: {:?}", bed.upstream.gaps());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn anthropic_reset_headers_without_retry_after() {
    let bed = got_past(MESSAGES, case("anthropic-reset-headers-without-retry-after").script_with(dated), 2).await;
    assert!(bed.upstream.gaps()[0] >= secs(1) && bed.upstream.gaps()[0] <= secs(3));
}

#[tokio::test(start_paused = true)]
async fn connect_refused_then_up() {
    let bed = got_past(CHAT, case("connect-refused-then-up").script(), 3).await;
    assert_eq!(bed.metric("backstop_possibly_billed_total", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn connect_refused_for_good() {
    let bed = Bed::new("", case("connect-refused-for-good").script());
    let answer = bed.call(&post(MESSAGES).header("x-api-key", "sk-secret")).await;
    assert_eq!((answer.status, answer.json()["type"].as_str(), answer.attempts()), (502, Some("error"), 5));
    assert!(answer.message().contains("connection refused") && !answer.text().contains("sk-secret"));
}

#[tokio::test(start_paused = true)]
async fn redirect_not_followed_with_credentials() {
    let bed = Bed::new("", case("redirect-not-followed-with-credentials").script());
    let answer = bed.call(&post(CHAT).header("authorization", "Bearer k")).await;
    assert_eq!((answer.status, bed.upstream.attempts()), (307, 1));
    assert_eq!(answer.value("location"), Some("http://other-host.test/v1/chat/completions"));
}

#[tokio::test(start_paused = true)]
async fn upstream_413_html() {
    let case = case("upstream-413-html");
    let bed = Bed::new("", case.script());
    let answer = bed.call(&post(CHAT).body(vec![b'x'; 12 << 20])).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (413, case.body(0).as_str(), 1));
    assert_eq!((answer.value("content-type"), answer.outcome()), (Some("text/html"), "terminal"));
}

#[tokio::test(start_paused = true)]
async fn disconnect_during_backoff() {
    let bed = Bed::new("", case("disconnect-during-backoff").script());
    bed.leave_after(&post(CHAT), ms(500)).await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!((bed.upstream.count(), bed.metric("backstop_in_flight", &[])), (1, 0.0));
}

#[tokio::test(start_paused = true)]
async fn cors_no_wildcard() {
    let bed = Bed::new("", case("cors-no-wildcard").script());
    for method in ["OPTIONS", "POST"] {
        let answer = bed.call(&Request::new(method, MESSAGES).header("Origin", "https://evil.example")).await;
        assert_eq!((answer.status, answer.value("access-control-allow-origin")), (403, None));
    }
    assert_eq!(bed.upstream.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn dns_rebinding_host_check() {
    let case = case("dns-rebinding-host-check");
    let bed = Bed::new("", case.script());
    assert_eq!(bed.call(&post(MESSAGES).host("evil.example:4290")).await.status, 421);
    assert_eq!(bed.upstream.attempts(), 0);
    for host in ["localhost:4290", "127.0.0.1:4290", "[::1]:4290"] {
        assert_eq!(bed.call(&post(MESSAGES).host(host)).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_bounded_labels() {
    let bed = Bed::new("", case("metrics-bounded-labels").script());
    bed.call(&post(CHAT)).await;
    let before = bed.metrics().lines().count();
    for n in 0..1000 {
        let body = format!(r#"{{"model":"m\"{n}\n","messages":[]}}"#);
        bed.call(&post(&format!("/v1/x{n}")).header("authorization", format!("Bearer sk-{n}")).body(body)).await;
    }
    let page = bed.metrics();
    assert!(page.lines().count() - before < 50 && !page.contains("/v1/x") && !page.contains("sk-"));
}
