use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

const CHAT: (Dialect, &str) = (Dialect::OpenAi, "/v1/chat/completions");
const RESPONSES: (Dialect, &str) = (Dialect::OpenAi, "/v1/responses");
const MESSAGES: (Dialect, &str) = (Dialect::Anthropic, "/v1/messages");
const GENERATE: (Dialect, &str) = (Dialect::Gemini, "/v1beta/models/m:streamGenerateContent");
const OBJECTS: (Dialect, &str) = (Dialect::OpenAi, "/api/chat");
const EVENTS: (Dialect, &str) = (Dialect::Generic, "/v1/stream");
const ALL: [(Dialect, &str); 6] = [CHAT, RESPONSES, MESSAGES, GENERATE, OBJECTS, EVENTS];

fn watch((dialect, path): (Dialect, &str), stream: &str) -> Watch {
    let mut watch = Watch::new(dialect, path, Media::Stream);
    watch.feed(stream.as_bytes());
    watch
}

/// Events from their JSON, as the form frames them.
fn framed(form: (Dialect, &str), events: &[&str]) -> String {
    let line = |e: &&str| if form == OBJECTS { format!("{e}\n") } else { format!("data: {e}\n\n") };
    events.iter().map(line).collect()
}

fn after(form: (Dialect, &str), events: &[&str]) -> Watch {
    watch(form, &framed(form, events))
}

const NO_CONTENT: &[((Dialect, &str), &str)] = &[
    (CHAT, r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#),
    (CHAT, r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"refusal":null,"tool_calls":[]}}]}"#),
    (CHAT, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#),
    (CHAT, r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#),
    (CHAT, r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#),
    (CHAT, r#"{"choices":[{"text":"","index":0}]}"#),
    (CHAT, ": keepalive"),
    (CHAT, "[DONE]"),
    (
        RESPONSES,
        r#"{"type":"response.created","response":{"status":"in_progress","model":"m","output":[],"instructions":"be"}}"#,
    ),
    (RESPONSES, r#"{"type":"response.in_progress","response":{"output":[]}}"#),
    (RESPONSES, r#"{"type":"response.queued","response":{"output":[]}}"#),
    (
        RESPONSES,
        r#"{"type":"response.output_item.added","item":{"type":"message","id":"msg","status":"in_progress","role":"assistant","content":[]}}"#,
    ),
    (
        RESPONSES,
        r#"{"type":"response.output_item.added","item":{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x"}}"#,
    ),
    (
        RESPONSES,
        r#"{"type":"response.content_part.added","part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}"#,
    ),
    (
        RESPONSES,
        r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":""}]}]}}"#,
    ),
    (
        MESSAGES,
        r#"{"type":"message_start","message":{"id":"msg","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1}}}"#,
    ),
    (MESSAGES, r#"{"type":"ping"}"#),
    (MESSAGES, r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#),
    (
        MESSAGES,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    ),
    (
        MESSAGES,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":"x"},"usage":{"output_tokens":1}}"#,
    ),
    (
        GENERATE,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"finishReason":"STOP","index":0}]}"#,
    ),
    (GENERATE, r#"{"usageMetadata":{"promptTokenCount":1},"modelVersion":"m"}"#),
    (OBJECTS, r#"{"model":"m","message":{"role":"assistant","content":""},"done":false}"#),
    (OBJECTS, r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#),
    (EVENTS, r#"{"error":{"message":"m"}}"#),
    (EVENTS, "[DONE]"),
];

const CONTENT: &[((Dialect, &str), &str)] = &[
    (CHAT, r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#),
    (CHAT, r#"{"choices":[{"index":1,"delta":{"reasoning_content":"a"}}]}"#),
    (CHAT, r#"{"choices":[{"delta":{"refusal":"a"}}]}"#),
    (CHAT, r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}"#),
    (CHAT, r#"{"choices":[{"delta":{"audio":{"data":"aGk="}}}]}"#),
    (CHAT, r#"{"choices":[{"delta":{"images":[{"type":"image_url","image_url":{"url":"data:"}}]}}]}"#),
    (CHAT, r#"{"choices":[{"text":"a","index":0}]}"#),
    (RESPONSES, r#"{"type":"response.output_text.delta","delta":"a"}"#),
    (RESPONSES, r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"f","arguments":""}}"#),
    (RESPONSES, r#"{"type":"response.reasoning_summary_text.delta","delta":"a"}"#),
    (RESPONSES, r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#),
    (RESPONSES, r#"{"type":"response.image_generation_call.partial_image","partial_image_b64":"aGk="}"#),
    (RESPONSES, r#"{"type":"response.completed","response":{"output":[{"content":[{"text":"a"}]}]}}"#),
    (MESSAGES, r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#),
    (MESSAGES, r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"a"}}"#),
    (MESSAGES, r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#),
    (MESSAGES, r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#),
    (MESSAGES, r#"{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"x"}}"#),
    (GENERATE, r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#),
    (GENERATE, r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]}}]}"#),
    (GENERATE, r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"m","data":"a"}}]}}]}"#),
    (OBJECTS, r#"{"message":{"content":"a"},"done":false}"#),
    (OBJECTS, r#"{"message":{"content":"","thinking":"a"},"done":false}"#),
    (OBJECTS, r#"{"response":"a","done":false}"#),
    (EVENTS, "anything"),
    (EVENTS, r#"{"error":null}"#),
];

#[test]
fn what_is_content() {
    for (form, event) in NO_CONTENT {
        assert!(!after(*form, &[event]).has_content(), "{form:?} {event}");
    }
    for (form, event) in CONTENT {
        let watch = after(*form, &[event]);
        assert!(watch.has_content() && watch.error().is_none(), "{form:?} {event}");
    }
}

#[test]
fn the_event_field_stands_in_for_a_type() {
    assert_eq!(watch(MESSAGES, "event: message_stop\ndata: {}\n\n").ended(), Ended::Marker);
    assert_eq!(watch(RESPONSES, "event: response.completed\ndata: {}\n\n").ended(), Ended::Marker);
    assert!(watch(CHAT, "event: error\ndata: {\"message\":\"m\"}\n\n").error().is_some());
    assert_eq!(watch(CHAT, "event: error\ndata: oh\n\n").error().unwrap().data, b"oh");
}

#[test]
fn how_far_it_came() {
    let stop = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    let second = r#"{"choices":[{"index":1,"delta":{"content":"a"},"finish_reason":null}]}"#;
    let second_stop = r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}"#;
    for (form, events, ended) in [
        (CHAT, &[r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":""}]}"#][..], Ended::No),
        (CHAT, &[stop], Ended::Stopped),
        (CHAT, &[second, stop], Ended::No),
        (CHAT, &[second, stop, second_stop], Ended::Stopped),
        (CHAT, &[stop, "[DONE]"], Ended::Marker),
        (RESPONSES, &[r#"{"type":"response.output_text.done","text":"a"}"#], Ended::No),
        (RESPONSES, &[r#"{"type":"response.completed","response":{}}"#], Ended::Marker),
        (RESPONSES, &[r#"{"type":"response.incomplete","response":{}}"#], Ended::Marker),
        (RESPONSES, &[r#"{"type":"response.failed","response":{}}"#], Ended::Marker),
        (MESSAGES, &[r#"{"type":"message_delta","delta":{"stop_reason":null}}"#], Ended::No),
        (MESSAGES, &[r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#], Ended::Stopped),
        (MESSAGES, &[r#"{"type":"message_stop"}"#], Ended::Marker),
        (GENERATE, &[r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#], Ended::No),
        (GENERATE, &[r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#], Ended::Marker),
        (GENERATE, &[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#], Ended::Marker),
        (OBJECTS, &[r#"{"message":{"content":"a"},"done":false}"#], Ended::No),
        (OBJECTS, &[r#"{"done":true}"#], Ended::Marker),
        (EVENTS, &["x"], Ended::No),
        (EVENTS, &["x", "[DONE]"], Ended::Marker),
    ] {
        assert_eq!(after(form, events).ended(), ended, "{form:?} {events:?}");
    }
    assert!(after(EVENTS, &["x"]).is_complete(), "no end is known");
    assert!(!after(CHAT, &[]).is_complete() && !after(CHAT, &[second]).is_complete());
}

#[test]
fn errors_of_every_form() {
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    for (form, event) in [
        (CHAT, r#"{"error":{"message":"m","type":"server_error"}}"#),
        (CHAT, r#"{"error":"m","choices":[]}"#),
        (CHAT, r#"{"object":"error","message":"m","code":400}"#),
        (CHAT, r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502}}"#),
        (CHAT, r#"{"choices":[{"index":0,"delta":{"content":"x"},"error":{"code":502}}]}"#),
        (CHAT, r#"{"choices":[],"x_groq":{"error":"over capacity"}}"#),
        (RESPONSES, r#"{"type":"error","code":"server_error","message":"m"}"#),
        (RESPONSES, r#"{"type":"error","error":{"code":"server_error"}}"#),
        (RESPONSES, r#"{"type":"response.failed","response":{"error":{"code":"c"},"output":[{"text":"a"}]}}"#),
        (MESSAGES, r#"{"type":"error","error":{"type":"overloaded_error"}}"#),
        (GENERATE, r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#),
        (OBJECTS, r#"{"error":"m"}"#),
        (EVENTS, r#"{"error":{"message":"m"}}"#),
    ] {
        let one = after(form, &[event]);
        assert_eq!(one.error(), Some(&StreamError { data: event.into(), after_content: false }), "{event}");
        assert!(!one.has_content() && !one.is_complete() && !one.is_empty_answer(), "{event}");
        let done = after(form, &[event, "[DONE]"]);
        assert!(!done.is_complete(), "a marker after an error is no success: {event}");
    }
    assert!(after(CHAT, &[chunk, r#"{"error":{"message":"m"}}"#]).error().unwrap().after_content);
    let first = after(CHAT, &[r#"{"error":"one"}"#, r#"{"error":"two"}"#]);
    assert_eq!(first.error().unwrap().data, br#"{"error":"one"}"#, "the first counts");
    let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(MAX_ERROR));
    assert_eq!(after(CHAT, &[&long]).error().unwrap().data, b"");
}

#[test]
fn bare_json_in_a_stream() {
    let chunk = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\r\n\r\n";
    for error in ["{\n  \"error\": {\n    \"code\": 503\n  }\n}", "[{\n \"error\": {\"code\": 503}\n}]\r\n"] {
        let mut watch = watch(GENERATE, &format!("{chunk}{error}"));
        watch.finish();
        assert!(watch.error().is_some_and(|e| e.after_content && e.data.len() >= error.trim().len()), "{error}");
    }
    // Objects without events: the server has a form of its own, whose end nobody knows.
    let innocent = watch(CHAT, "{\"choices\":[]}\n");
    assert!(innocent.error().is_none() && innocent.has_content() && !innocent.is_known() && innocent.is_complete());
    let beside = watch(CHAT, "data: {\"choices\":[]}\n\n{}\n");
    assert!(beside.is_known() && !beside.is_complete());
}

#[test]
fn a_common_path_with_events_of_its_own() {
    let mut own = watch(OBJECTS, "\n ");
    assert!(own.is_known() && !own.takes_beat());
    own.feed(b"data: x\n\n");
    assert!(!own.is_known() && own.has_content() && own.takes_beat() && own.is_complete());
    assert!(own.error_event("stream_interrupted", "m").starts_with(b"data: {"));
}

#[test]
fn a_last_event_without_its_blank_line() {
    let mut chat = watch(CHAT, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]");
    assert!(!chat.is_complete());
    chat.finish();
    assert!(chat.is_complete());
    let mut objects = watch(OBJECTS, "{\"done\":true,\"eval_count\":3}");
    objects.finish();
    assert_eq!((objects.ended(), objects.usage().map(|u| u.output)), (Ended::Marker, Some(3)));
    let mut half = watch(CHAT, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"mes");
    half.finish();
    assert!(half.error().is_none() && !half.is_complete());
    assert_eq!((half.closing(), half.is_between()), (&b"\n\n"[..], false));
}

#[test]
fn empty_answers() {
    for (form, events, empty) in [
        (CHAT, &[r#"{"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}"#, "[DONE]"][..], true),
        (CHAT, &[r#"{"choices":[{"delta":{"content":""},"finish_reason":"content_filter"}]}"#], false),
        (CHAT, &[r#"{"choices":[{"delta":{"content":""},"finish_reason":"length"}]}"#], false),
        (CHAT, &["[DONE]"], true),
        (CHAT, &[], false),
        (CHAT, &[r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#], false),
        (RESPONSES, &[r#"{"type":"response.completed","response":{"output":[]}}"#], true),
        (RESPONSES, &[r#"{"type":"response.incomplete","response":{"output":[]}}"#], false),
        (
            MESSAGES,
            &[r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, r#"{"type":"message_stop"}"#],
            true,
        ),
        (MESSAGES, &[r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#], false),
        (GENERATE, &[r#"{"candidates":[{"finishReason":"STOP","index":0}]}"#], true),
        (GENERATE, &[r#"{"candidates":[{"finishReason":"SAFETY","index":0}]}"#], false),
        (GENERATE, &[r#"{"promptFeedback":{"blockReason":"OTHER"}}"#], false),
        (OBJECTS, &[r#"{"message":{"content":""},"done":true}"#], true),
        (OBJECTS, &[r#"{"message":{"content":""},"done":true,"done_reason":"load"}"#], false),
        (EVENTS, &["[DONE]"], false),
    ] {
        assert_eq!(after(form, events).is_empty_answer(), empty, "{form:?} {events:?}");
    }
    let malformed = after(GENERATE, &[r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#]);
    assert!(malformed.is_malformed());
}

#[test]
fn tokens_and_models() {
    for (form, events, tokens) in [
        (
            CHAT,
            &[r#"{"model":"m","usage":null}"#, r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#][..],
            (3, 4),
        ),
        (CHAT, &[r#"{"model":"m","x_groq":{"usage":{"prompt_tokens":3,"completion_tokens":4}}}"#], (3, 4)),
        (RESPONSES, &[r#"{"response":{"model":"m","usage":{"input_tokens":3,"output_tokens":4}}}"#], (3, 4)),
        (
            MESSAGES,
            &[
                r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":3,"output_tokens":1}}}"#,
                r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":4}}"#,
            ],
            (3, 4),
        ),
        (
            GENERATE,
            &[
                r#"{"modelVersion":"m","usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1}}"#,
                r#"{"modelVersion":"m","usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}"#,
            ],
            (3, 4),
        ),
        (OBJECTS, &[r#"{"model":"m"}"#, r#"{"done":true,"prompt_eval_count":3,"eval_count":4}"#], (3, 4)),
        (EVENTS, &[r#"{"model":"m","usage":{"input_tokens":3,"output_tokens":4}}"#], (3, 4)),
    ] {
        let watch = after(form, events);
        assert_eq!(
            (watch.usage().map(|u| (u.input, u.output)), watch.model()),
            (Some(tokens), Some("m")),
            "{events:?}"
        );
    }
    assert_eq!(after(CHAT, &[r#"{"choices":[]}"#]).usage(), None);
}

#[test]
fn events_too_large_to_look_at() {
    let big = "x".repeat(sse::MAX_EVENT);
    let done = watch(RESPONSES, &format!("event: response.completed\ndata: {{\"output\":\"{big}\"}}\n\n"));
    assert_eq!((done.ended(), done.has_content(), done.is_complete()), (Ended::Marker, true, true));
    let failed = watch(RESPONSES, &format!("event: response.failed\ndata: {{\"output\":\"{big}\"}}\n\n"));
    assert_eq!(failed.error(), Some(&StreamError { data: Vec::new(), after_content: false }));
    let picture = format!("data: {{\"candidates\":[\"{big}\"]}}\n\n");
    assert_eq!(watch(GENERATE, &picture).ended(), Ended::Stopped, "the end may stand in it");
    assert_eq!(watch(GENERATE, &format!("{picture}data: {{\"candidates\":[]}}\n\n")).ended(), Ended::No);
    assert_eq!(watch(CHAT, &picture).ended(), Ended::No);
}

#[test]
fn what_is_not_looked_into() {
    let mut array = Watch::new(Dialect::Gemini, GENERATE.1, Media::Json);
    assert!(array.is_empty() && !array.has_content());
    assert_eq!(array.feed(b"[{\"error\":{}}"), 13);
    assert!(array.has_content() && array.is_complete() && !array.is_between() && array.error().is_none());
    assert!(array.error_event("stream_interrupted", "m").is_empty() && array.from_error_body(500, b"").is_empty());
}

#[test]
fn our_error_is_numbered_and_framed_as_the_stream_is() {
    let numbered = after(RESPONSES, &[r#"{"type":"response.created","sequence_number":4,"response":{}}"#]);
    let event = String::from_utf8(numbered.error_event("stream_stalled", "m")).unwrap();
    assert!(event.starts_with("event: error\ndata: {") && event.contains("\"sequence_number\":5"), "{event}");
    let crlf = watch(GENERATE, "data: {}\r\n\r\n");
    assert!(crlf.error_event("stream_interrupted", "m").ends_with(b"}\r\n\r\n"));
}

/// Found by a long run of `any_pieces_give_the_same_facts`.
#[test]
fn blanks_before_events_where_objects_were_expected_are_nothing_in_any_pieces() {
    let whole = |pieces: &[&[u8]]| {
        let mut watch = Watch::new(Dialect::OpenAi, "/api/chat", Media::Stream);
        pieces.iter().for_each(|piece| {
            watch.feed(piece);
        });
        summary(&watch)
    };
    assert_eq!(whole(&[b" :"]), whole(&[b" ", b":"]));
    assert_eq!(whole(&[b"\r\n data: x\n"]), whole(&[b"\r\n", b" ", b"data: x\n"]));
}

#[test]
fn a_watch_is_small() {
    // Beside these, a scanner holds at most 1 KiB between events.
    let size = size_of::<Watch>() + size_of::<sse::Scanner>();
    assert!(size < 800, "{size}");
}

/// `BACKSTOP_FUZZ_CASES` makes it a long run.
fn cases() -> Config {
    let cases = std::env::var("BACKSTOP_FUZZ_CASES").ok().and_then(|v| v.parse().ok());
    Config::with_cases(cases.unwrap_or(64))
}

/// All that a watch says.
fn summary(watch: &Watch) -> String {
    format!(
        "{:?}",
        (
            (watch.has_content(), watch.error(), watch.ended(), watch.is_complete(), watch.is_empty_answer()),
            (
                watch.is_empty(),
                watch.is_malformed(),
                watch.usage(),
                watch.model(),
                watch.is_between(),
                watch.is_known()
            ),
            (watch.closing(), watch.error_event("stream_stalled", "m")),
        )
    )
}

/// An event of any form, or nonsense.
fn event() -> impl Strategy<Value = (String, u8)> {
    let known: Vec<String> = NO_CONTENT.iter().chain(CONTENT).map(|(_, e)| (*e).to_owned()).collect();
    let json = prop_oneof![
        8 => prop::sample::select(known),
        1 => r#"[\[\]{}":,a-z0-9null\\ .-]{0,40}"#,
        1 => Just("{\n\"error\":{\"code\":503}\n}\n".to_owned()),
        1 => any::<String>(),
    ];
    (json, 0u8..6)
}

fn written((json, how): (String, u8)) -> String {
    match how {
        0 | 1 => format!("data: {json}\n\n"),
        2 => format!("data:{json}\r\n\r\n"),
        3 => format!("event: error\ndata: {json}\n\n"),
        4 => format!("{json}\n"),
        _ => format!(": c\r\rid: 1\rdata: {json}\r\r"),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_pieces_give_the_same_facts(
        events in prop::collection::vec(event(), 0..8),
        sizes in prop::collection::vec(1usize..200, 1..8),
        keep in 0usize..2000,
    ) {
        let mut stream: Vec<u8> = events.into_iter().map(written).collect::<String>().into_bytes();
        stream.truncate(stream.len().min(keep.max(1)));
        for (dialect, path) in ALL {
            let new = || Watch::new(dialect, path, Media::Stream);
            let (mut one, mut many, mut bytewise) = (new(), new(), new());
            one.feed(&stream);
            let (mut rest, mut size) = (&stream[..], sizes.iter().cycle());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at((*size.next().unwrap()).min(rest.len()));
                many.feed(piece);
                rest = more;
            }
            stream.iter().for_each(|byte| { bytewise.feed(&[*byte]); });
            prop_assert_eq!(summary(&one), summary(&many));
            prop_assert_eq!(summary(&one), summary(&bytewise));
            one.finish();
            bytewise.finish();
            prop_assert_eq!(summary(&one), summary(&bytewise));
        }
    }

    #[test]
    fn whatever_was_cut_our_error_is_read(events in prop::collection::vec(event(), 0..6), keep in 0usize..900) {
        let mut stream: Vec<u8> = events.into_iter().map(written).collect::<String>().into_bytes();
        stream.truncate(keep);
        for (dialect, path) in ALL {
            let mut watch = Watch::new(dialect, path, Media::Stream);
            watch.feed(&stream);
            let told = [watch.closing(), &watch.error_event("stream_interrupted", "m")].concat();
            watch.feed(&told);
            prop_assert!(watch.error().is_some() && watch.is_between());
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, body: Vec<u8>, status in 100u16..600, path in "(/[a-z:_0-9]{0,9}){0,4}") {
        for dialect in Dialect::ALL {
            for media in [Media::Stream, Media::Unstated, Media::Json] {
                let mut watch = Watch::new(dialect, &path, media);
                watch.feed(&bytes);
                watch.finish();
                let _ = (summary(&watch), watch.from_error_body(status, &body));
            }
        }
    }
}
