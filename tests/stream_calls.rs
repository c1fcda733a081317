//! Whole calls with streams: what fails before its first content is tried again, and what comes goes through as it came.

use std::io::Write;

use crate::support::bed::EXACT;
use crate::support::step::End;
use crate::support::*;

/// The head, and nothing after it.
fn nothing() -> Step {
    Step::sse(["x"]).cut_after(0)
}

/// Ways to be lost before content, with no time of their own.
fn lost(start: &[String]) -> Vec<(&'static str, Step)> {
    let (step, size) = (Step::sse(start), start.concat().len());
    vec![
        ("empty", Step::sse::<&str>([])),
        ("cut at the head", nothing()),
        ("reset at the head", nothing().ending(End::Reset)),
        ("clean end", step.clone()),
        ("cut", step.clone().cut_after(size)),
        ("reset", step.clone().cut_after(size).ending(End::Reset)),
        ("cut inside an event", step.clone().cut_after(size - 7)),
        ("comments and a cut", Step::sse([": keep-alive\n\n"; 3]).cut_after(42)),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_error_before_content_is_tried_again() {
    for family in families() {
        let error = family.busy.0.clone();
        let after = |start: &[&str]| Step::sse(start.iter().copied().chain([error.as_str()]));
        let start = family.start.concat();
        for (name, failing) in [
            ("first event", after(&[])),
            ("after a start", after(&[&start])),
            ("after comments", after(&[": PROCESSING\n\n", ": PROCESSING\n\n"])),
            ("much later", Step::sse(&family.start).pause(secs(20)).write(&error)),
            ("and then nothing", after(&[&start]).ending(End::Hang)),
            ("and a socket that stays open", after(&[&start]).stall_after(start.len() + error.len())),
        ] {
            let bed = Bed::new(EXACT, [failing, Step::sse(&family.whole)]);
            let answer = bed.call(&post(family.path)).await;
            let at = (answer.status, answer.attempts(), answer.outcome(), bed.upstream.gaps().len());
            assert_eq!(at, (200, 2, "success", 1), "{} {name}", family.path);
            assert_eq!((answer.text(), answer.whole), (family.whole.concat().as_str(), true), "{} {name}", family.path);
            let gap = bed.upstream.gaps()[0];
            assert!(gap == secs(1) || name == "much later" && gap == secs(21), "{} {name}: {gap:?}", family.path);
            assert_eq!(bed.metric("backstop_attempts_total", &["reason=\"overloaded\""]), 1.0);
            assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_before_content_is_tried_again_on_a_new_connection() {
    for family in families() {
        for (name, failing) in lost(&family.start) {
            let bed = Bed::new(EXACT, [failing, Step::sse(&family.whole)]);
            let answer = bed.call(&post(family.path)).await;
            assert_eq!((answer.status, answer.attempts()), (200, 2), "{} {name}", family.path);
            assert_eq!((answer.text(), answer.whole), (family.whole.concat().as_str(), true), "{} {name}", family.path);
            // A stream that ended cleanly leaves a connection that is good for the next.
            let clean = matches!(name, "empty" | "clean end");
            assert!(clean || bed.upstream.connections() == 2, "{} {name}", family.path);
            assert_eq!(bed.metric("backstop_possibly_billed_total", &[]), 1.0, "{} {name}", family.path);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_before_content_is_tried_again() {
    for family in families() {
        // Nothing at all: stream_first_event.
        let bed = Bed::new(EXACT, [nothing().ending(End::Hang), Step::sse(&family.whole)]);
        let answer = bed.call(&post(family.path)).await;
        assert_eq!((answer.text(), answer.attempts()), (family.whole.concat().as_str(), 2), "{}", family.path);
        assert_eq!((answer.head_at, bed.upstream.connections()), (secs(121), 2));
        // An event without content, then nothing: stream_idle.
        let toml = format!("{EXACT}[timeouts]\nstream_idle = \"20s\"\n");
        let size = family.start.concat().len();
        let bed = Bed::new(&toml, [Step::sse(&family.start).stall_after(size), Step::sse(&family.whole)]);
        let answer = bed.call(&post(family.path)).await;
        assert_eq!((answer.text(), answer.attempts()), (family.whole.concat().as_str(), 2), "{}", family.path);
        assert_eq!((answer.head_at, bed.upstream.connections()), (secs(21), 2));
        assert!(bed.upstream.seen()[0].gone.is_some(), "never two live attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn losses_without_end_are_told_as_what_they_were() {
    for (step, status, fault) in [
        (Step::sse::<&str>([]), 502, "upstream_protocol_error"),
        (nothing(), 502, "upstream_protocol_error"),
        (nothing().ending(End::Reset), 502, "upstream_protocol_error"),
        (nothing().ending(End::Hang), 504, "upstream_timeout"),
    ] {
        let bed = Bed::new("[timeouts]\nstream_first_event = \"10s\"\n", step);
        let answer = bed.call(&post(MESSAGES)).await;
        assert_eq!((answer.status, answer.fault().as_str(), answer.attempts()), (status, fault, 5));
        assert_eq!((answer.outcome(), answer.no_retry()), ("exhausted", true));
        assert_eq!(answer.value("content-type"), Some("application/json"));
        assert_eq!(bed.metric("backstop_streams_total", &[]), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn events_without_content_are_held_for_half_of_the_first_events_limit() {
    for family in families() {
        let held = family.start.len();
        let error = &family.busy.0;
        let quiet = Step::sse(&family.whole[..held]).pause(secs(90));
        let bed = Bed::new("", [quiet.clone().write(family.whole[held..].concat()), chat()]);
        let answer = bed.call(&post(family.path)).await;
        // Gemini's first chunk has its text already.
        let released = if family.path == GEMINI_STREAM { ms(0) } else { secs(60) };
        assert_eq!((answer.text(), answer.head_at), (family.whole.concat().as_str(), released), "{}", family.path);
        let bed = Bed::new("", [Step::sse(&family.start).pause(secs(90)).write(error), chat()]);
        let answer = bed.call(&post(family.path)).await;
        let came = [family.start.concat().as_str(), error].concat();
        assert_eq!((answer.status, answer.attempts(), answer.head_at), (200, 1, secs(60)), "{}", family.path);
        assert_eq!((answer.text(), answer.whole), (came.as_str(), true), "{}", family.path);
        assert_eq!(bed.metric("backstop_streams_total", &["result=\"error_event\""]), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn with_hold_off_or_full_what_comes_is_passed_on_and_cannot_be_tried_again() {
    let (start, error) = (message_start().concat(), families()[1].busy.0.clone());
    let small = "[stream]\nhold = \"1KiB\"\n";
    let upstreams_own = "[upstreams.anthropic.stream]\nhold = \"0B\"\n";
    let pings = message_event("ping", "").repeat(40);
    let comments = ": keep-alive\n\n".repeat(100);
    for (toml, held, at_once) in [
        ("[stream]\nhold = \"0B\"\n", start.clone(), true),
        (upstreams_own, start.clone(), true),
        (small, pings, true),
        (small, comments, true),
        (small, start, false),
    ] {
        let step = Step::sse([&held]).pause(secs(30)).write(&error);
        let bed = Bed::new(toml, [step, Step::sse(message_stream(3))]);
        let answer = bed.call(&post(MESSAGES)).await;
        if at_once {
            assert_eq!((answer.text(), answer.head_at), ([held, error.clone()].concat().as_str(), ms(0)), "{toml}");
            assert_eq!((answer.status, answer.attempts()), (200, 1));
            assert_eq!(bed.metric("backstop_streams_total", &["result=\"error_event\""]), 1.0);
        } else {
            assert_eq!(answer.text(), message_stream(3).concat());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_is_one_attempt_with_its_status() {
    let chat_quota = "data: {\"error\":{\"message\":\"m\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}\n\ndata: [DONE]\n\n";
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":\"failed\",\"error\":{\"code\":\"insufficient_quota\",\"message\":\"m\"}}}\n\n";
    for (path, body) in [(CHAT, chat_quota), (RESPONSES, failed)] {
        let bed = Bed::new("", [Step::sse([body]), chat()]);
        let answer = bed.call(&post(path)).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (429, body, 1));
        assert_eq!((answer.outcome(), answer.no_retry(), answer.whole), ("terminal", true, true));
        assert_eq!(bed.metric("backstop_attempts_total", &["reason=\"quota_exhausted\""]), 1.0);
        assert_eq!(bed.metric("backstop_requests_total", &["status=\"429\"", "outcome=\"terminal\""]), 1.0);
    }
    let bad =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"m\"}}\n\n";
    let answer = Bed::new("", Step::sse([bad])).call(&post(MESSAGES)).await;
    assert_eq!((answer.status, answer.text(), answer.no_retry()), (400, bad, false));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stays_takes_the_status_that_it_names() {
    for family in families() {
        let body = family.start.concat() + &family.busy.0;
        let bed = Bed::new("", Step::sse([&body]));
        let answer = bed.call(&post(family.path)).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (family.busy.1, body.as_str(), 5), "{body}");
        assert_eq!((answer.outcome(), answer.no_retry(), answer.whole), ("exhausted", true, true), "{body}");
        assert_eq!(answer.value("content-type"), Some("text/event-stream"));
        // The words of the upstream's 200 are not told of another status.
        assert!(!answer.start.contains("Some Reason"), "{}", answer.start);
    }
    let unnamed = "data: {\"error\":\"oh\"}\n\n";
    let vllm = "data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n";
    for (body, status) in [
        (unnamed, 502),
        (vllm, 500),
        (": PROCESSING\n\ndata: {\"id\":\"g\",\"choices\":[],\"error\":{\"code\":429,\"message\":\"m\"}}\n\n", 429),
    ] {
        let answer = Bed::new("", Step::sse([body])).call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (status, body, 5));
        let answer = Bed::new("", [Step::sse([body]), Step::sse(chat_stream(2))]).call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.text(), answer.attempts()), (200, chat_stream(2).concat().as_str(), 2));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stands_bare_in_a_stream_is_one() {
    let bare = "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"The model is overloaded.\",\n    \"status\": \"UNAVAILABLE\"\n  }\n}\n";
    let bed = Bed::new("", [Step::sse([bare]), Step::sse(gemini_stream(2))]);
    let answer = bed.call(&post(GEMINI_STREAM)).await;
    assert_eq!((answer.text(), answer.attempts()), (gemini_stream(2).concat().as_str(), 2));
    let answer = Bed::new("", Step::sse([bare])).call(&post(GEMINI_STREAM)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (503, bare, 5));
    // After content it is passed on, and counted.
    let after = gemini_piece("Hel", None, 1) + bare;
    let bed = Bed::new("", Step::sse([&after]));
    let answer = bed.call(&post(GEMINI_STREAM)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, after.as_str(), 1));
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"error_event\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_passed_on_and_repeated_only_where_the_config_says_so() {
    let empty = [CHAT_START, CHAT_STOP, DONE].concat();
    for (toml, attempts, text) in [("", 1, empty.clone()), ("[retry]\nempty = true\n", 2, chat_stream(2).concat())] {
        let bed = Bed::new(toml, [Step::sse([&empty]), Step::sse(chat_stream(2))]);
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.attempts(), answer.text()), (200, attempts, text.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_answer_to_a_stream_request_keeps_its_status() {
    for status in [400, 401, 404, 429, 500, 529] {
        let body = r#"{"error":{"message":"bad key"}}"#;
        let answer = Bed::new("", Step::json(status, body)).call(&post(CHAT).body(ASK_STREAM)).await;
        assert_eq!((answer.status, answer.text()), (status, body));
        assert_eq!(answer.value("content-type"), Some("application/json"));
    }
}

#[tokio::test(start_paused = true)]
async fn json_for_a_stream_and_a_stream_for_json_pass() {
    let bed = Bed::new("", chat());
    let answer = bed.call(&post(CHAT).body(ASK_STREAM)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, CHAT_BODY, 1));
    assert_eq!(answer.value("content-type"), Some("application/json"));
    assert_eq!(bed.metric("backstop_tokens_total", &[]), 12.0);
    assert_eq!(bed.metric("backstop_streams_total", &[]), 0.0);
    let bed = Bed::new("", Step::sse(chat_stream(2)));
    let answer = bed.call(&post(CHAT).body(ASK)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, chat_stream(2).concat().as_str(), 1));
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn objects_that_come_one_a_line_are_a_stream_too() {
    let path = "/ollama/api/chat";
    let media = "application/x-ndjson";
    let lines = [
        "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"Hel\"},\"done\":false}\n",
        "{\"model\":\"m\",\"message\":{\"content",
        "\":\"lo\"},\"done\":false}\n",
        "{\"model\":\"m\",\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":10,\"eval_count\":2}\n",
    ];
    let bed = Bed::new("", Step::chunks(media, lines).pace(secs(1)));
    let answer = bed.call(&post(path)).await;
    assert_eq!((answer.text(), answer.whole, answer.head_at), (lines.concat().as_str(), true, secs(1)));
    assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"input\""]), 10.0);
    assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"output\""]), 2.0);
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
    let at = lines[0].len() + 10;
    let bed = Bed::new("", Step::chunks(media, lines).cut_after(at));
    let answer = bed.call(&post(path)).await;
    let (came, told) = answer.text().split_at(at);
    assert_eq!((came, answer.whole, answer.attempts()), (&lines.concat()[..at], true, 1));
    let last = told.trim_start_matches('\n');
    let last: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    assert!(told.starts_with('\n') && last["error"].as_str().unwrap().contains("interrupted"), "{told}");
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"interrupted\""]), 1.0);
    let bed = Bed::new("", [Step::chunks(media, ["{\"error\":\"model is loading\"}\n"]), Step::chunks(media, lines)]);
    let answer = bed.call(&post(path)).await;
    assert_eq!((answer.text(), answer.attempts()), (lines.concat().as_str(), 2));
}

#[tokio::test(start_paused = true)]
async fn only_a_stream_that_may_get_a_last_word_loses_its_length() {
    let body = chat_stream(2).concat();
    let sse = [("content-type", "text/event-stream")];
    let answer = Bed::new("", Step::respond(200, &sse, &body)).call(&post(CHAT)).await;
    assert_eq!((answer.value("content-length"), answer.text(), answer.whole), (None, body.as_str(), true));
    let size = body.len().to_string();
    for (step, path) in [
        (Step::respond(200, &sse, &body).header("content-encoding", "br"), CHAT),
        (Step::respond(200, &[("content-type", "application/json")], &body), "/v1/files/f/content"),
    ] {
        let answer = Bed::new("", step).call(&post(path)).await;
        assert_eq!((answer.value("content-length"), answer.text()), (Some(size.as_str()), body.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_stream_passes_unseen() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(families()[0].busy.0.as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    let sse = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
    let bed = Bed::new(
        "[stream]\nheartbeat = \"5s\"\n",
        Step::respond(200, &sse, &bytes).chunked().split_every(3).pace(secs(2)),
    );
    let answer = bed.call(&post(CHAT).body(ASK_STREAM)).await;
    assert_eq!((answer.status, &answer.body, answer.attempts(), answer.whole), (200, &bytes, 1, true));
    assert_eq!(answer.value("content-encoding"), Some("gzip"));
}

#[tokio::test(start_paused = true)]
async fn any_split_and_any_line_end_gives_the_same_bytes_and_facts() {
    for family in families() {
        for end in ["\n", "\r\n", "\r"] {
            let text = family.whole.concat().replace("\r\n", "\n").replace('\n', end);
            let text = format!("\u{feff}{text}");
            for size in [1, 2, 5, 64] {
                let bed = Bed::new("", Step::sse([&text]).split_every(size));
                let answer = bed.call(&post(family.path)).await;
                assert_eq!((answer.text(), answer.whole, answer.attempts()), (text.as_str(), true, 1));
                assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
                assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"input\""]), 10.0, "{} {size}", family.path);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_of_ten_megabytes_goes_through() {
    let events = [message_start().concat(), message_piece(&"x".repeat(10 << 20)), message_stream(1)[4..].concat()];
    let bed = Bed::new("", Step::sse(&events).split_every(30_000));
    let answer = bed.call(&post(MESSAGES)).await;
    assert!(answer.body == events.concat().as_bytes() && answer.whole);
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
    assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"output\""]), 7.0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_say_what_it_is_is_known_by_its_target() {
    let family = &families()[2];
    let (lost, whole) = (family.start.concat(), family.whole.concat());
    let bed = Bed::new("", [Step::respond(200, &[], lost).chunked(), Step::respond(200, &[], &whole).chunked()]);
    let answer = bed.call(&post(family.path)).await;
    assert_eq!((answer.text(), answer.attempts(), answer.whole), (whole.as_str(), 2, true));
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_a_content_type_is_known_by_its_first_bytes() {
    for family in families() {
        let (lost, whole) = (family.start.concat(), family.whole.concat());
        for headers in [&[][..], &[("content-type", "text/plain; charset=utf-8")]] {
            let steps =
                [Step::respond(200, headers, lost.clone()).chunked(), Step::respond(200, headers, &whole).chunked()];
            let bed = Bed::new("", steps.map(|step| step.split_every(3)));
            let answer = bed.call(&post(family.path)).await;
            assert_eq!((answer.text(), answer.attempts(), answer.whole), (whole.as_str(), 2, true), "{}", family.path);
            assert_eq!(bed.metric("backstop_streams_total", &["result=\"complete\""]), 1.0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn such_a_stream_comes_live() {
    let events = chat_stream(3);
    let bed = Bed::new(
        "",
        Step::respond(200, &[], "").chunked().write(events[..2].concat()).pause(secs(5)).write(events[2..].concat()),
    );
    let mut client = bed.client();
    client.ask(&post(CHAT).body(ASK_STREAM)).await;
    let head = client.head().await.expect("a head");
    assert!(head.head_at < secs(1), "{:?}", head.head_at);
}
