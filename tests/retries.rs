//! What is tried again, how often, and what the client gets in the end.

use backstop::policy::failure::Kind;

use crate::support::bed::EXACT;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_good_answer_comes_through_at_once_and_says_so() {
    let bed = Bed::new("", chat());
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text()), (200, CHAT_BODY));
    assert_eq!(
        (answer.outcome(), answer.attempts(), answer.value("x-backstop-upstream")),
        ("success", 1, Some("openai"))
    );
    assert!(answer.value("x-backstop-request-id").is_some_and(|id| id.len() == 16));
    assert_eq!(answer.value("x-should-retry"), None);
    assert_eq!(bed.upstream.only().target, CHAT);
    assert_eq!(bed.now(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn each_status_is_tried_again_or_passed_on_by_its_class() {
    let transient = [408, 409, 425, 429, 498, 500, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 529, 530, 599];
    let terminal = [400, 401, 402, 403, 404, 405, 413, 415, 418, 422, 451, 501, 505, 506, 507, 508, 510, 511];
    let tried = transient.map(|status| (status, 2)).into_iter().chain(terminal.map(|status| (status, 1)));
    for (status, attempts) in tried {
        let bed = Bed::new("", [Step::json(status, r#"{"error":{"message":"no"}}"#), chat()]);
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!(bed.upstream.count(), attempts, "{status}");
        assert_eq!(answer.status, if attempts == 2 { 200 } else { status });
        assert_eq!(
            (answer.attempts(), answer.outcome()),
            (attempts, if attempts == 2 { "success" } else { "terminal" })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_schedule_doubles_from_a_second() {
    let bed = Bed::new(EXACT, busy());
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.upstream.gaps(), [1000, 2000, 4000, 8000].map(ms));
}

#[tokio::test(start_paused = true)]
async fn when_attempts_run_out_the_last_answer_is_passed_on_byte_for_byte() {
    let odd = "{ \"error\" : {\"message\":\"caf\u{e9} \\u0041\" }}\n\n";
    let last =
        Step::respond(503, &[("Content-Type", "application/json"), ("Request-Id", "req_last"), ("X-A", "")], odd);
    let bed = Bed::new("", [busy(), busy(), busy(), busy(), last]);
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (503, odd, 5));
    assert_eq!(answer.start, "HTTP/1.1 503 Some Reason");
    assert_eq!(answer.value("request-id"), Some("req_last"));
    assert_eq!(answer.value("content-length"), Some(odd.len().to_string().as_str()));
    assert_eq!(answer.outcome(), "exhausted");
    assert!(answer.no_retry());
    assert_eq!(bed.upstream.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_carries_the_same_head_and_body() {
    let bed = Bed::new("", [busy(), busy(), chat()]);
    bed.call(&post(CHAT).header("X-Odd", "a").header("x-odd", "b").body("{\"n\": 1.0e3 }")).await;
    let seen = bed.upstream.seen();
    for again in &seen[1..] {
        assert_eq!((&again.lines, &again.body), (&seen[0].lines, &seen[0].body));
    }
    assert_eq!(seen[2].text(), "{\"n\": 1.0e3 }");
}

#[tokio::test(start_paused = true)]
async fn a_client_may_ask_for_fewer_attempts_and_nonsense_is_passed_over() {
    for (asked, attempts) in [("1", 1), ("2", 2), ("0", 5), ("many", 5), ("-1", 5)] {
        let bed = Bed::new("", busy());
        bed.call(&post(CHAT).header("x-backstop-max-attempts", asked)).await;
        assert_eq!(bed.upstream.count(), attempts, "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_not_reached_is_502_unreachable_in_the_clients_dialect() {
    for (path, kind) in [(CHAT, "code"), (MESSAGES, "type"), (GEMINI, "status")] {
        let bed = Bed::new("", Step::refuse());
        let answer = bed.call(&post(path)).await;
        assert_eq!((answer.status, answer.outcome(), answer.attempts()), (502, "exhausted", 5));
        assert_eq!(answer.json()["error"][kind], "upstream_unreachable");
        assert!(answer.message().contains("connection refused by api.test:80"), "{}", answer.message());
        assert!(answer.message().contains("5 attempts") && answer.message().contains("Nothing was sent"));
        assert!(answer.no_retry());
        assert_eq!(answer.value("content-type"), Some("application/json"));
        assert_eq!(bed.metric("backstop_possibly_billed_total", &[]), 0.0);
    }
    let anthropic = Bed::new("", Step::refuse()).call(&post(MESSAGES)).await;
    assert_eq!(anthropic.json()["type"], "error");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_refused_at_first_is_got_past() {
    let bed = Bed::new("", [Step::refuse(), Step::fail(Kind::Dns, "name resolution failed"), chat()]);
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts(), bed.upstream.count()), (200, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_does_not_verify_is_not_tried_again() {
    let bed = Bed::new("", Step::fail(Kind::Certificate, "certificate verification failed for api.test:443"));
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.attempts()), (502, "upstream_unreachable", 1));
    assert!(answer.message().contains("certificate verification failed"));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_are_tried_again_and_then_told_as_what_they_were() {
    for (name, step, status, fault) in [
        ("close", Step::close(), 502, "upstream_protocol_error"),
        ("reset", Step::reset(), 502, "upstream_protocol_error"),
        ("garbage", Step::garbage(), 502, "upstream_protocol_error"),
        ("half a head", Step::raw("HTTP/1.1 200 OK\r\ncontent-le"), 502, "upstream_protocol_error"),
        ("half a body", chat().cut_after(40), 502, "upstream_protocol_error"),
        ("half a chunked body", chat().chunked().cut_after(40), 502, "upstream_protocol_error"),
        ("silence", Step::silence(), 504, "upstream_timeout"),
        ("a stalled body", chat().stall_after(40), 504, "upstream_timeout"),
    ] {
        let toml = "[timeouts]\nfirst_byte = \"5s\"\nstream_idle = \"5s\"\n";
        let past = Bed::new(toml, [step.clone(), chat()]).call(&post(CHAT)).await;
        assert_eq!((past.status, past.attempts(), past.text()), (200, 2, CHAT_BODY), "{name}");
        let bed = Bed::new(toml, step);
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.fault().as_str(), answer.attempts()), (status, fault, 5), "{name}");
        assert_eq!((answer.outcome(), answer.no_retry()), ("exhausted", true), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_own_word_on_retries_is_obeyed() {
    let yes = Bed::new("", [Step::json(400, "{}").header("x-should-retry", "true"), chat()]);
    assert_eq!(yes.call(&post(CHAT)).await.attempts(), 2);
    let no = Bed::new("", busy().header("x-should-retry", "false"));
    let answer = no.call(&post(CHAT)).await;
    assert_eq!((answer.attempts(), answer.outcome(), answer.status), (1, "terminal", 503));
    assert!(answer.no_retry());
}

#[tokio::test(start_paused = true)]
async fn a_terminal_answer_says_no_retry_only_where_sdks_would_repeat_it() {
    for (status, says) in [(400, false), (401, false), (404, false), (501, true)] {
        let answer = Bed::new("", Step::json(status, "{}")).call(&post(CHAT)).await;
        assert_eq!(answer.no_retry(), says, "{status}");
    }
    let quota = r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    let answer = Bed::new("", Step::json(429, quota)).call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts(), answer.no_retry(), answer.text()), (429, 1, true, quota));
}

#[tokio::test(start_paused = true)]
async fn a_failure_told_inside_a_200_is_tried_again_and_then_takes_the_status_it_names() {
    for (body, status) in [
        (r#"{"error":{"message":"Provider returned error","code":429}}"#, 429),
        (r#"{"error":{"message":"boom","code":503}}"#, 503),
        (r#"{"error":{"message":"something odd"}}"#, 502),
    ] {
        let bed = Bed::new("", [Step::json(200, body), chat()]);
        assert_eq!(bed.call(&post(CHAT)).await.text(), CHAT_BODY, "{body}");
        let answer = Bed::new("", Step::json(200, body)).call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.text()), (status, body));
        assert_eq!((answer.outcome(), answer.attempts()), ("exhausted", 5));
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_inside_a_200_takes_the_status_that_it_names_by_number() {
    let wait = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3600s"}]}}"#;
    for (path, body, status, no_retry) in [
        (CHAT, r#"{"error":{"message":"m","type":"authentication_error","code":401}}"#, 401, false),
        (CHAT, r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#, 200, false),
        (GEMINI, wait, 429, true),
    ] {
        let answer = Bed::new("", Step::json(200, body)).call(&post(path)).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (status, body, 1));
        assert_eq!((answer.outcome(), answer.no_retry()), ("terminal", no_retry), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_passed_on_unless_the_config_says_to_repeat_it() {
    let empty = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}"#;
    let passed = Bed::new("", [Step::json(200, empty), chat()]).call(&post(CHAT)).await;
    assert_eq!((passed.text(), passed.attempts()), (empty, 1));
    let repeated = Bed::new("[retry]\nempty = true\n", [Step::json(200, empty), chat()]).call(&post(CHAT)).await;
    assert_eq!((repeated.text(), repeated.attempts()), (CHAT_BODY, 2));
}

#[tokio::test(start_paused = true)]
async fn the_users_own_rules_come_first() {
    let toml = "[[classify]]\nstatus = [404]\nbody_contains = \"warming up\"\nclass = \"transient\"\n";
    let warming = Step::json(404, r#"{"error":{"message":"model is warming up"}}"#);
    assert_eq!(Bed::new(toml, [warming, chat()]).call(&post(CHAT)).await.attempts(), 2);
    let other = Step::json(404, r#"{"error":{"message":"no model"}}"#);
    assert_eq!(Bed::new(toml, other).call(&post(CHAT)).await.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_gemini_stream_in_one_array_fails_like_any_answer_while_nothing_of_it_was_shown() {
    const ARRAY: &str = "/v1beta/models/m:streamGenerateContent";
    let good = format!("[{GEMINI_BODY},\n{GEMINI_BODY}]");
    for bad in [
        Step::json(200, r#"[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}]"#),
        Step::json(200, r#"{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#),
        Step::json(200, ""),
        Step::json(200, &good).cut_after(0),
        Step::respond(200, &[("content-type", "text/html")], "<html></html>"),
    ] {
        let bed = Bed::new("", [bad, Step::json(200, &good)]);
        let answer = bed.call(&post(ARRAY)).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (200, good.as_str(), 2));
    }
    // One that begins well is passed on piece by piece, and broken off where it is cut.
    let answer = Bed::new("", Step::json(200, &good).split_every(1)).call(&post(ARRAY)).await;
    assert_eq!((answer.text(), answer.attempts(), answer.whole), (good.as_str(), 1, true));
    let answer = Bed::new("", Step::json(200, &good).cut_after(40)).call(&post(ARRAY)).await;
    assert_eq!((answer.attempts(), answer.whole), (1, false));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_committed_before_its_first_byte_whatever_its_kind() {
    let sound = || Step::chunks("audio/mpeg", ["\u{1}\u{2}", "\u{3}"]);
    let bed = Bed::new("", [sound().cut_after(0), sound()]);
    let answer = bed.call(&post("/v1/audio/speech")).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, "\u{1}\u{2}\u{3}", 2));
    let bed = Bed::new("", [sound().cut_after(0), sound()]);
    let answer = bed.call(&post("/v1/files")).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.attempts()), (502, "upstream_protocol_error", 1));
    assert!(answer.no_retry());
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_nobody_asked_for_is_no_answer() {
    let switch = || Step::respond(101, &[("upgrade", "x"), ("connection", "upgrade")], "").bare();
    let answer = Bed::new("", [switch(), chat()]).call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, CHAT_BODY, 2));
    let answer = Bed::new("", switch()).call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.fault().as_str()), (502, "upstream_protocol_error"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_whole_but_not_quite_json_is_the_clients_to_judge() {
    for odd in [
        r#"{"choices":[{"index":0,"message":{"content":"hi \ud83d"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"logprob":NaN,"other":[-Infinity,1e400]}"#,
    ] {
        let answer = Bed::new("", Step::json(200, odd)).call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.text(), answer.attempts(), answer.outcome()), (200, odd, 1, "success"));
    }
}
