//! Heartbeats, and streams that are read whole before the client gets any of them.

use tokio::time::sleep;

use crate::support::step::End;
use crate::support::*;

const BEATS: &str = "[stream]\nheartbeat = \"5s\"\n[retry]\njitter = \"none\"\n";
const SHIELD: &str = "[stream]\nmode = \"shield\"\n[retry]\njitter = \"none\"\n";

/// A request of a stream, in this family.
fn ask(family: &Family) -> Request {
    post(family.path).body(ASK_STREAM)
}

/// So many beats, and what follows them.
fn beats(answer: &Answer) -> (usize, &str) {
    let rest = answer.text().trim_start_matches('\n');
    (answer.text().len() - rest.len(), rest)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_is_told_and_then_gets_its_stream() {
    for family in families() {
        let bed = Bed::new(BEATS, [limited("22"), Step::sse(&family.whole)]);
        let answer = bed.call(&ask(&family)).await;
        assert_eq!(beats(&answer), (4, family.whole.concat().as_str()), "{}", family.path);
        assert_eq!((answer.status, answer.whole, answer.head_at), (200, true, secs(5)));
        assert_eq!(answer.value("content-type"), Some("text/event-stream"));
        assert_eq!((answer.value("content-length"), answer.value("cache-control")), (None, Some("no-cache")));
        assert!(answer.value("x-backstop-request-id").is_some() && answer.value("x-backstop-upstream").is_some());
        assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
        assert_eq!(bed.metric("backstop_requests_total", &["outcome=\"success\"", "status=\"200\""]), 1.0);
        assert!(bed.metric("backstop_tokens_total", &[]) > 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_after_a_beat_is_told_inside_the_stream() {
    for family in families() {
        let words = r#"{"error":{"message":"slow down please","type":"rate_limit_error","code":"rate_limited"}}"#;
        let told = "slow down please";
        let inside = "data: {\"error\":{\"message\":\"slow down please\",\"type\":\"server_error\",\"code\":503}}\n\n";
        for (name, step, told) in [
            ("429", Step::json(429, words).header("retry-after", "10"), told),
            ("401", Step::json(401, words).delay(secs(7)), told),
            ("unreachable", Step::refuse(), "upstream_unreachable"),
            ("silence", Step::silence(), "deadline_exceeded"),
            ("cut", Step::sse(&family.start).then_close(), "upstream_protocol_error"),
            ("error events", Step::sse([inside]), told),
        ] {
            let bed = Bed::new(&format!("{BEATS}deadline = \"40s\"\n"), step);
            let answer = bed.call(&ask(&family)).await;
            let (count, rest) = beats(&answer);
            assert_eq!((answer.status, answer.whole, count > 0), (200, true, true), "{} {name}", family.path);
            assert!(rest.contains(told) && rest.matches("data: ").count() == 1, "{} {name}: {rest}", family.path);
            assert!(rest.ends_with("\n\n") && !rest.contains(family.end), "{} {name}: {rest}", family.path);
            let named = name != "error events" && matches!(family.path, MESSAGES | RESPONSES);
            assert!(!named || rest.starts_with("event: error\ndata: {"), "{} {name}: {rest}", family.path);
            let outcome = match name {
                "401" => "terminal",
                "silence" => "deadline",
                _ => "exhausted",
            };
            let outcome = format!("outcome=\"{outcome}\"");
            let deadline = "outcome=\"deadline\"";
            let counted = bed.metric("backstop_requests_total", &[&outcome, "status=\"200\""]);
            assert!(counted + bed.metric("backstop_requests_total", &[deadline]) >= 1.0, "{} {name}", family.path);
            assert_eq!(
                bed.metric("backstop_streams_total", &["result=\"error_event\""]),
                1.0,
                "{} {name}",
                family.path
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_first_beat_keeps_its_status() {
    let bed = Bed::new(BEATS, Step::json(401, "{}").delay(secs(4)));
    let answer = bed.call(&post(CHAT).body(ASK_STREAM)).await;
    assert_eq!((answer.status, answer.text(), answer.outcome()), (401, "{}", "terminal"));
}

#[tokio::test(start_paused = true)]
async fn only_clients_that_asked_for_a_stream_are_told() {
    let gemini_plain = post(GEMINI);
    for request in [post(CHAT), post(MESSAGES).body(ASK), gemini_plain, get("/v1/models")] {
        let bed = Bed::new(BEATS, Step::json(200, CHAT_BODY).delay(secs(60)));
        let answer = bed.call(&request).await;
        assert_eq!((answer.text(), answer.head_at), (CHAT_BODY, secs(60)));
        assert_eq!(answer.value("content-type"), Some("application/json"));
    }
    let bed = Bed::new("", Step::sse(chat_stream(2)).delay(secs(60)));
    let answer = bed.call(&post(CHAT).body(ASK_STREAM)).await;
    assert_eq!((answer.text(), answer.head_at), (chat_stream(2).concat().as_str(), secs(60)), "off by default");
}

#[tokio::test(start_paused = true)]
async fn a_silence_in_a_stream_is_filled_between_events_only() {
    for family in families() {
        let (before, text) = (family.before(), family.whole.concat());
        let step = Step::sse([&before]).pause(secs(12)).write(&text[before.len()..]);
        let answer = Bed::new(BEATS, step).call(&ask(&family)).await;
        let expected = [&before, "\n\n", &text[before.len()..]].concat();
        assert_eq!((answer.text(), answer.whole), (expected.as_str(), true), "{}", family.path);
        // Inside an event nothing is put in, however long it takes.
        let amid = family.amid();
        let step = Step::sse([&text[..amid]]).pause(secs(60)).write(&text[amid..]);
        let answer = Bed::new(BEATS, step).call(&ask(&family)).await;
        assert_eq!((answer.text(), answer.whole), (text.as_str(), true), "{}", family.path);
        // A stream that is not silent gets none. (What is held of it is silence.)
        let answer = Bed::new(BEATS, Step::sse(&family.whole).pace(secs(1))).call(&ask(&family)).await;
        assert_eq!((answer.text(), answer.whole), (text.as_str(), true), "{}", family.path);
    }
}

#[tokio::test(start_paused = true)]
async fn a_beat_is_no_sign_of_life_of_the_upstream() {
    for family in families() {
        let before = family.before();
        let bed = Bed::new(BEATS, Step::sse([&before]).stall_after(before.len()));
        let answer = bed.call(&ask(&family)).await;
        let rest = answer.text().strip_prefix(&before).unwrap();
        let told = rest.trim_start_matches('\n');
        assert!((23..=24).contains(&(rest.len() - told.len())), "every 5 s for 120 s: {}", rest.len() - told.len());
        assert!(told.contains("stream_stalled"), "{told}");
        assert_eq!((answer.end_at, answer.whole), (secs(120), true), "{}", family.path);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_put_into_what_takes_no_beats() {
    let sse = [("content-type", "text/event-stream"), ("content-encoding", "br")];
    let bed = Bed::new(
        BEATS,
        Step::respond(200, &sse, "not text, as far as we know").chunked().split_every(9).pause(secs(20)).write("x"),
    );
    let answer = bed.call(&post(CHAT).body(ASK_STREAM)).await;
    assert_eq!((answer.text(), answer.value("content-encoding")), ("not text, as far as we knowx", Some("br")));
    let lines =
        ["{\"message\":{\"content\":\"a\"},\"done\":false}\n", "{\"message\":{\"content\":\"\"},\"done\":true}\n"];
    let step = Step::chunks("application/x-ndjson", &lines[..1]).pause(secs(20)).write(lines[1]);
    let answer = Bed::new(BEATS, step).call(&post("/ollama/api/chat").body(ASK_STREAM)).await;
    assert_eq!(answer.text(), lines.concat());
}

/// A head of ours would say that events come.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_ahead_of_what_is_no_stream_of_events() {
    let line = "{\"message\":{\"content\":\"a\"},\"done\":true}\n";
    let array = "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"STOP\"}]}]";
    for (path, media, text) in [
        ("/ollama/api/chat", "application/x-ndjson", line),
        ("/v1beta/models/m:streamGenerateContent", "application/json", array),
    ] {
        for toml in [BEATS, SHIELD] {
            let bed = Bed::new(toml, Step::chunks(media, [text]).delay(secs(60)));
            let answer = bed.call(&post(path).body(ASK_STREAM)).await;
            assert_eq!((answer.text(), answer.head_at), (text, secs(60)), "{path}");
            assert_eq!(answer.value("content-type"), Some(media));
        }
    }
}

/// Its head says nothing of an encoding: it cannot follow one that was sent already.
#[tokio::test(start_paused = true)]
async fn a_compressed_stream_after_a_beat_is_told_as_lost_and_not_passed_on_as_text() {
    let sse = [("content-type", "text/event-stream"), ("content-encoding", "br")];
    let bed = Bed::new(BEATS, Step::respond(200, &sse, "\u{1}\u{2}\u{3}").delay(secs(20)));
    let answer = bed.call(&post(CHAT).body(ASK_STREAM)).await;
    assert!(!answer.text().contains('\u{1}') && answer.text().contains("stream_interrupted"), "{:?}", answer.text());
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_after_a_beat_is_told_as_lost() {
    let bed = Bed::new(BEATS, chat().delay(secs(20)));
    let answer = bed.call(&post(CHAT).body(ASK_STREAM)).await;
    let (_, rest) = beats(&answer);
    assert!(rest.starts_with("data: {\"error\":") && rest.contains("stream_interrupted"), "{rest}");
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"error_event\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_after_a_beat_ends_the_attempt() {
    for step in [Step::silence(), busy().header("retry-after", "60")] {
        let bed = Bed::new(BEATS, step);
        bed.leave_after(&post(CHAT).body(ASK_STREAM), secs(12)).await;
        bed.settle().await;
        assert_eq!(bed.metric("backstop_in_flight", &[]), 0.0);
        sleep(secs(600)).await;
        assert_eq!(bed.upstream.count(), 1);
        assert_eq!(bed.metric("backstop_requests_total", &[]), 1.0);
        assert_eq!(bed.metric("backstop_requests_total", &["outcome=\"client_gone\""]), 1.0);
    }
}

/// Ways to be lost after content.
fn lost(family: &Family) -> Vec<(&'static str, Step)> {
    let (at, step) = (family.amid(), Step::sse(&family.whole));
    vec![
        ("cut", step.clone().cut_after(at)),
        ("reset", step.clone().cut_after(at).ending(End::Reset)),
        ("stall", step.clone().stall_after(at)),
        ("clean end", Step::sse([family.endless()])),
        ("error event", Step::sse([family.before(), family.busy.0.clone()])),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_shielded_stream_that_is_lost_anywhere_is_tried_again() {
    for family in families() {
        for (name, step) in lost(&family) {
            for by_header in [false, true] {
                let (toml, request) = if by_header {
                    ("[retry]\njitter = \"none\"\n", ask(&family).header("x-backstop-stream", "shield"))
                } else {
                    (SHIELD, ask(&family))
                };
                let bed = Bed::new(toml, [step.clone(), Step::sse(&family.whole)]);
                let answer = bed.call(&request).await;
                let (count, rest) = beats(&answer);
                assert_eq!((rest, answer.whole), (family.whole.concat().as_str(), true), "{} {name}", family.path);
                // Every 15 s of the 120 s that a stall takes.
                assert_eq!(count, if name == "stall" { 8 } else { 0 }, "{} {name}", family.path);
                assert_eq!(bed.upstream.count(), 2);
                assert!(bed.upstream.seen().iter().all(|seen| seen.value("x-backstop-stream").is_none()));
                assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
                assert_eq!(bed.metric("backstop_streams_total", &[]), 1.0);
                assert_eq!(bed.metric("backstop_attempts_total", &["class=\"success\""]), 1.0);
                let thrown = bed.metric("backstop_retry_tokens_total", &[]);
                assert!(thrown > 0.0 || matches!(family.path, CHAT | RESPONSES), "{} {name}", family.path);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shielded_stream_comes_in_one_piece_when_it_is_whole() {
    for family in families() {
        let request = ask(&family);
        let answer = Bed::new(SHIELD, Step::sse(&family.whole).pace(secs(1))).call(&request).await;
        let whole = secs(family.whole.len() as u64);
        assert_eq!((answer.text(), answer.whole), (family.whole.concat().as_str(), true));
        assert_eq!((answer.head_at, answer.end_at), (whole, whole), "{}", family.path);
        let bed = Bed::new(SHIELD, Step::sse(&family.whole).pace(secs(10)));
        let answer = bed.call(&request).await;
        assert_eq!(beats(&answer).1, family.whole.concat());
        assert_eq!((answer.head_at, answer.end_at), (secs(15), whole * 10), "{}", family.path);
        assert!(bed.metric("backstop_tokens_total", &[]) > 0.0);
        // A header turns it off for one call.
        let relayed = Bed::new(SHIELD, Step::sse(&family.whole).pace(secs(1)));
        let answer = relayed.call(&request.header("x-backstop-stream", "relay")).await;
        assert!(answer.head_at < whole, "{}", family.path);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shielded_stream_of_a_client_that_asked_for_none_gets_no_beats() {
    let answer = Bed::new(SHIELD, Step::sse(chat_stream(9)).pace(secs(10))).call(&post(CHAT)).await;
    assert_eq!((answer.text(), answer.head_at), (chat_stream(9).concat().as_str(), secs(120)));
}

#[tokio::test(start_paused = true)]
async fn a_shielded_stream_that_is_lost_every_time_says_so() {
    for family in families() {
        for (name, step) in lost(&family) {
            let quick = format!("{SHIELD}[timeouts]\nstream_idle = \"1s\"\n");
            let bed = Bed::new(&quick, step.clone());
            let answer = bed.call(&ask(&family).header("x-backstop-max-attempts", "2")).await;
            let status = match name {
                "stall" => 504,
                "error event" => family.busy.1,
                _ => 502,
            };
            assert_eq!(
                (answer.status, answer.attempts(), answer.outcome()),
                (status, 2, "exhausted"),
                "{} {name}",
                family.path
            );
            assert!(answer.no_retry() && !answer.text().contains(family.end), "{} {name}", family.path);
            // After a beat the status is gone: the same is told inside the stream.
            let bed = Bed::new(SHIELD, step.delay(secs(20)));
            let answer = bed.call(&ask(&family).header("x-backstop-max-attempts", "2")).await;
            let (count, rest) = beats(&answer);
            assert_eq!((answer.status, answer.whole, count >= 2), (200, true, true), "{} {name}", family.path);
            let word = match name {
                "stall" => "upstream_timeout",
                "error event" => "error",
                _ => "upstream_protocol_error",
            };
            assert!(rest.contains(word) && !rest.contains(family.end), "{} {name}: {rest}", family.path);
            assert_eq!(
                bed.metric("backstop_streams_total", &["result=\"error_event\""]),
                1.0,
                "{} {name}",
                family.path
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shielded_stream_that_is_too_long_goes_on_as_relay() {
    let piece = message_piece(&"x".repeat(1 << 20));
    let events = [message_start(), vec![piece; 18], message_stream(1)[4..].to_vec()].concat();
    let bed = Bed::new(SHIELD, Step::sse(&events));
    let answer = bed.call(&post(MESSAGES).body(ASK_STREAM)).await;
    assert!(answer.body == events.concat().as_bytes() && answer.whole);
    let cut = Step::sse(&events).cut_after(17 << 20);
    let bed = Bed::new(SHIELD, [cut, Step::sse(&events)]);
    let answer = bed.call(&post(MESSAGES).body(ASK_STREAM)).await;
    assert_eq!(answer.body[..17 << 20], events.concat().as_bytes()[..17 << 20]);
    assert!(answer.text().ends_with("\n\n") && answer.text().contains("stream_interrupted"));
    assert_eq!((bed.upstream.count(), answer.whole), (1, true));
}
