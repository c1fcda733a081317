//! Streams after their first content: nothing is tried again, every end is told as what it was, and costs are counted.

use tokio::time::sleep;

use crate::support::step::End;
use crate::support::*;

fn result(bed: &Bed) -> String {
    let page = bed.metrics();
    let line = page.lines().find(|line| line.starts_with("backstop_streams_total{") && line.ends_with(" 1"));
    let line = line.unwrap_or_else(|| panic!("no stream was counted"));
    assert_eq!(bed.metric("backstop_streams_total", &[]), 1.0);
    line.split("result=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

/// The JSON of the last event, and the name before it.
fn last_event(told: &str) -> (Option<&str>, serde_json::Value) {
    let event = told.trim_end().rsplit("\n\n").next().unwrap().rsplit("\r\n\r\n").next().unwrap().trim_start();
    let name = event.strip_prefix("event: ").and_then(|event| event.lines().next());
    let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_else(|| panic!("{told:?}"));
    (name, serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {told:?}")))
}

/// What came is passed on byte for byte, then the loss is told once, in the family's own form, with whole framing.
fn assert_told(family: &Family, answer: &Answer, came: &str, kind: &str) {
    let what = format!("{} {kind}: {:?}", family.path, answer.text());
    assert_eq!((answer.status, answer.attempts(), answer.whole), (200, 1, true), "{what}");
    let told = answer.text().strip_prefix(came).unwrap_or_else(|| panic!("{what}"));
    assert!(told.ends_with("\n\n") || told.ends_with("\r\n\r\n"), "{what}");
    assert!(!answer.text().contains(family.end), "{what}");
    assert_eq!(told.matches("data: ").count(), 1, "{what}");
    let (name, json) = last_event(told);
    match family.path {
        MESSAGES => assert_eq!(
            (name, json["type"].as_str(), json["error"]["type"].as_str()),
            (Some("error"), Some("error"), Some(kind))
        ),
        RESPONSES => assert_eq!((name, json["error"]["code"].as_str()), (Some("error"), Some(kind)), "{what}"),
        GEMINI_STREAM => {
            assert!(json["error"]["code"].is_number() && json["error"].to_string().contains(kind), "{what}")
        }
        _ => assert_eq!((name, json["error"]["code"].as_str()), (None, Some(kind)), "{what}"),
    }
    assert!(json["error"]["message"].as_str().unwrap().contains("not the whole answer"), "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_lost_after_content_says_so_and_is_not_tried_again() {
    for family in families() {
        let text = family.whole.concat();
        let amid = family.amid();
        for (at, inside) in [(family.before().len(), false), (amid, true), (amid + 1, true)] {
            let step = Step::sse(&family.whole);
            for (step, kind, took) in [
                (step.clone().cut_after(at), "interrupted", 0),
                (step.clone().cut_after(at).ending(End::Reset), "interrupted", 0),
                (step.clone().stall_after(at), "stalled", 120),
            ] {
                let bed = Bed::new("", [step, Step::sse(&family.whole)]);
                let mut client = bed.client();
                let answer = client.call(&post(family.path)).await;
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                let told = &body[body.char_indices().map(|(i, _)| i).find(|i| *i >= at).unwrap()..];
                assert_eq!(&answer.body[..at], &text.as_bytes()[..at]);
                assert_eq!(
                    told.starts_with('\n') || told.starts_with("\r\n") || told.starts_with('\u{fffd}'),
                    inside,
                    "{told:?}"
                );
                if text.is_char_boundary(at) {
                    assert_told(&family, &answer, &text[..at], &format!("stream_{kind}"));
                }
                assert_eq!((result(&bed).as_str(), bed.upstream.count(), answer.end_at), (kind, 1, secs(took)));
                assert_eq!(bed.metric("backstop_retries_total", &[]), 0.0);
                assert!(bed.upstream.only().gone.is_some() || kind != "stalled", "a stalled upstream is left");
                // The client's connection is good for its next call.
                assert_eq!(client.call(&post(family.path)).await.text(), text);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_inside_a_chunk_is_a_cut_too() {
    let start = chat_piece("Hel");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let bed = Bed::new("", Step::raw(format!("{head}{:x}\r\n{start}\r\nff\r\ndata: {{\"half", start.len())));
    let answer = bed.call(&post(CHAT)).await;
    assert_told(&families()[0], &answer, &(start + "data: {\"half"), "stream_interrupted");
    assert_eq!(result(&bed), "interrupted");
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_without_the_end_marker_is_a_loss() {
    for family in families() {
        let came = &family.endless();
        for step in [Step::sse([came]), Step::sse([came]).until_close()] {
            let bed = Bed::new("", [step, chat()]);
            let answer = bed.call(&post(family.path)).await;
            assert_told(&family, &answer, came, "stream_interrupted");
            assert_eq!(result(&bed), "interrupted");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tail_that_is_lost_after_the_stop_reason_is_no_loss() {
    for (path, whole, tail) in [
        (CHAT, chat_stream(3), 1),
        (CHAT, chat_stream(3), 2),
        (MESSAGES, message_stream(3), 1),
        (GEMINI_STREAM, gemini_stream(3), 0),
    ] {
        let text = whole[..whole.len() - tail].concat();
        let step = Step::sse([&text]);
        for step in [
            step.clone(),
            step.clone().cut_after(text.len()),
            step.clone().cut_after(text.len()).ending(End::Reset),
            step.clone().stall_after(text.len()),
        ] {
            let bed = Bed::new("", step);
            let answer = bed.call(&post(path)).await;
            assert_eq!((answer.text(), answer.whole, answer.attempts()), (text.as_str(), true, 1), "{path} {tail}");
            assert_eq!(result(&bed), "complete", "{path} {tail}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_end_marker_a_stream_is_closed_in_two_seconds() {
    for family in families().iter().filter(|family| family.path != GEMINI_STREAM) {
        let text = family.whole.concat();
        let bed = Bed::new("", Step::sse(&family.whole).stall_after(text.len()));
        let answer = bed.call(&post(family.path)).await;
        assert_eq!((answer.text(), answer.whole, answer.end_at), (text.as_str(), true, secs(2)), "{}", family.path);
        assert_eq!(result(&bed), "complete");
        assert!(bed.upstream.only().gone.is_some());
        // What comes in that time is passed on: it may be the tokens.
        let late = ": one more thing\n\n";
        let bed = Bed::new("", Step::sse(&family.whole).pause(secs(1)).write(late));
        assert_eq!(bed.call(&post(family.path)).await.text(), format!("{text}{late}"));
    }
    let error = families()[1].busy.0.clone();
    let came = message_start().concat() + &message_piece("Hel") + &error;
    let bed = Bed::new("", Step::sse([&came]).stall_after(came.len()));
    let answer = bed.call(&post(MESSAGES)).await;
    assert_eq!((answer.text(), answer.whole, answer.end_at), (came.as_str(), true, secs(2)));
    assert_eq!(result(&bed), "error_event");
}

#[tokio::test(start_paused = true)]
async fn an_error_event_after_content_is_passed_on_once() {
    for family in families() {
        let came = family.before() + &family.busy.0;
        let step = Step::sse([family.before()]).pause(secs(1)).write(&family.busy.0);
        for step in [step.clone(), step.clone().until_close(), step.cut_after(came.len())] {
            let bed = Bed::new("", [step, Step::sse(&family.whole)]);
            let answer = bed.call(&post(family.path)).await;
            assert_eq!((answer.status, answer.text(), answer.attempts()), (200, came.as_str(), 1));
            assert_eq!((result(&bed).as_str(), answer.whole, bed.upstream.count()), ("error_event", true, 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_reason_on_every_chunk_ends_nothing() {
    let events: Vec<String> = (1..20).map(|n| gemini_piece("a", Some("STOP"), n)).collect();
    let bed = Bed::new("", Step::sse(&events).pace(secs(100)));
    let answer = bed.call(&post(GEMINI_STREAM)).await;
    assert_eq!((answer.text(), answer.whole), (events.concat().as_str(), true));
    assert_eq!(result(&bed), "complete");
    assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"output\""]), 19.0, "the last count is the count");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_goes_on_is_never_cut() {
    let events = chat_stream(60);
    let bed = Bed::new("[retry]\ndeadline = \"2m\"\n", Step::sse(&events).pace(secs(60)));
    let request = post(CHAT).header("x-stainless-timeout", "120").header("x-backstop-deadline", "90");
    let answer = bed.call(&request).await;
    assert_eq!((answer.text(), answer.whole, answer.attempts()), (events.concat().as_str(), true, 1));
    assert!(answer.end_at >= secs(3600));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_ends_well_at_any_end_and_a_cut_is_told() {
    let toml = "[upstreams.mine]\nbase_url = \"http://mine.test\"\ndialect = \"generic\"\n";
    let events = ["event: tick\ndata: 1\n\n", "event: tick\ndata: 2\n\n"];
    let bed = Bed::new(toml, Step::sse(events));
    let answer = bed.call(&post("/mine/events")).await;
    assert_eq!((answer.text(), answer.whole, result(&bed).as_str()), (events.concat().as_str(), true, "complete"));
    let bed = Bed::new(toml, Step::sse(events).cut_after(30));
    let answer = bed.call(&post("/mine/events")).await;
    assert!(answer.text().starts_with(&events.concat()[..30]) && answer.text().contains("stream_interrupted"));
    assert_eq!((answer.whole, result(&bed).as_str()), (true, "interrupted"));
}

#[tokio::test(start_paused = true)]
async fn the_tokens_of_a_stream_are_counted() {
    let none = [vec![chat_piece("a")], vec![CHAT_STOP.to_owned(), DONE.to_owned()]].concat();
    for (path, events, tokens) in [
        (CHAT, chat_stream(3), Some((10.0, 2.0))),
        (MESSAGES, message_stream(3), Some((10.0, 7.0))),
        (GEMINI_STREAM, gemini_stream(3), Some((10.0, 3.0))),
        (RESPONSES, responses_stream(3), Some((10.0, 5.0))),
        (CHAT, none, None),
    ] {
        let bed = Bed::new("", Step::sse(&events));
        assert_eq!(bed.call(&post(path)).await.text(), events.concat());
        let (input, output) = tokens.unwrap_or_default();
        assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"input\""]), input, "{path}");
        assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"output\""]), output, "{path}");
        assert!(tokens.is_none() || bed.metric("backstop_tokens_total", &["model=\"m\""]) > 0.0);
        let unknown = if tokens.is_none() { 1.0 } else { 0.0 };
        assert_eq!(bed.metric("backstop_usage_unknown_total", &[]), unknown, "{path}");
        assert_eq!(bed.metric("backstop_retry_tokens_total", &[]), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_tokens_of_attempts_that_were_thrown_away_are_counted_apart() {
    let error = families()[1].busy.0.clone();
    let thrown = Step::sse(message_start().into_iter().chain([error]));
    let bed = Bed::new("", [thrown.clone(), thrown, Step::sse(message_stream(3))]);
    assert_eq!(bed.call(&post(MESSAGES)).await.attempts(), 3);
    assert_eq!(bed.metric("backstop_retry_tokens_total", &["anthropic"]), 22.0);
    assert_eq!(bed.metric("backstop_tokens_total", &[]), 17.0);
    let bed = Bed::new("", [Step::sse(message_start()), Step::sse(message_stream(3))]);
    bed.call(&post(MESSAGES)).await;
    assert_eq!(bed.metric("backstop_retry_tokens_total", &["anthropic"]), 11.0, "of one that was cut, too");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_ends_the_upstream_and_is_no_failure() {
    for (family, tokens) in families().iter().zip([0.0, 11.0, 12.0, 0.0]) {
        let amid = family.amid();
        let bed = Bed::new("", Step::sse([&family.whole.concat()[..amid]]).stall_after(amid));
        let mut client = bed.client();
        client.ask(&post(family.path)).await.head().await;
        sleep(secs(5)).await;
        drop(client);
        bed.settle().await;
        assert!(bed.upstream.only().gone.expect("left at once").elapsed() <= ms(2), "{}", family.path);
        assert_eq!((result(&bed).as_str(), bed.metric("backstop_in_flight", &[])), ("client_gone", 0.0));
        assert_eq!(bed.metric("backstop_tokens_total", &[]), tokens, "{}", family.path);
        let unknown = if tokens == 0.0 { 1.0 } else { 0.0 };
        assert_eq!(bed.metric("backstop_usage_unknown_total", &[]), unknown, "{}", family.path);
        assert_eq!(bed.metric("backstop_attempts_total", &["class=\"transient\""]), 0.0);
        sleep(secs(600)).await;
        assert_eq!(bed.upstream.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_content_ends_the_upstream_too() {
    let size = message_start().concat().len();
    let bed = Bed::new("", Step::sse(message_start()).stall_after(size));
    bed.leave_after(&post(MESSAGES), secs(5)).await;
    bed.settle().await;
    assert!(bed.upstream.only().gone.expect("left at once").elapsed() <= ms(2));
    assert_eq!(bed.metric("backstop_requests_total", &["outcome=\"client_gone\""]), 1.0);
    sleep(secs(600)).await;
    assert_eq!((bed.upstream.count(), bed.metric("backstop_retries_total", &[])), (1, 0.0));
}
