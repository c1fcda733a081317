//! Streams through [`Watch`] and the verdict: a table of streams as providers send them.

use std::time::{Duration, SystemTime};

use backstop::policy::classify::{Evidence, Rule, StreamEvidence, classify, empty_stream};
use backstop::policy::verdict::{Class, Reason, Verdict};
use backstop::wire::dialect::Dialect;
use backstop::wire::dialect::stream::{Ended, Watch};
use backstop::wire::headers::Media;
use http::HeaderMap;
use serde_json::Value;

fn form(api: &str) -> (Dialect, &'static str) {
    match api {
        "chat.completions" => (Dialect::OpenAi, "/v1/chat/completions"),
        "responses" => (Dialect::OpenAi, "/v1/responses"),
        "messages" => (Dialect::Anthropic, "/v1/messages"),
        "streamGenerateContent" => (Dialect::Gemini, "/v1beta/models/m:streamGenerateContent"),
        other => panic!("no form for {other}"),
    }
}

fn watched(api: &str, stream: &str) -> Watch {
    let (dialect, path) = form(api);
    let mut watch = Watch::new(dialect, path, Media::Stream);
    watch.feed(stream.as_bytes());
    watch.finish();
    watch
}

fn verdict_with(dialect: Dialect, data: &[u8], rules: &[Rule]) -> Verdict {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_061_600);
    classify(Evidence::Stream(StreamEvidence { dialect, headers: &HeaderMap::new(), data, now }), rules)
}

/// What a row's stream comes to. A stream that is cut has no verdict of its own: it says that it has not ended.
fn judged(api: &str, stream: &str) -> Option<Verdict> {
    let watch = watched(api, stream);
    match watch.error() {
        Some(error) => Some(verdict_with(form(api).0, &error.data, &[])),
        None if watch.is_empty_answer() => Some(empty_stream(watch.is_malformed())),
        None => {
            assert_eq!((watch.ended(), watch.is_complete()), (Ended::No, false));
            None
        }
    }
}

/// Reason, the status it names, ambiguous, whether content came before.
type Expected = (Reason, u16, bool, bool);

fn expected(id: &str) -> Option<Expected> {
    Some(match id {
        "openai-resp-failed-rate_limit" => (Reason::RateLimited, 429, false, false),
        "openai-resp-failed-insufficient_quota" => (Reason::QuotaExhausted, 429, false, false),
        "openai-resp-failed-overloaded" => (Reason::Overloaded, 503, false, false),
        "openai-resp-failed-invalid_prompt" => (Reason::BadRequest, 400, false, false),
        "anthropic-sse-overloaded-first" => (Reason::Overloaded, 529, false, false),
        "anthropic-sse-overloaded-mid" => (Reason::Overloaded, 529, false, true),
        "gemini-sse-error" => (Reason::Overloaded, 503, false, false),
        "gemini-stream-raw-json-error" => (Reason::Overloaded, 503, false, true),
        "groq-sse-tool_use_failed" => (Reason::Other, 400, false, false),
        "openrouter-midstream-error" => (Reason::StreamError, 500, true, true),
        "openrouter-comments-then-error" => (Reason::StreamError, 502, true, false),
        "gemini-empty-candidate" => return None,
        _ if id.starts_with("generic-stream-cut") => return None,
        _ => (Reason::StreamError, 500, true, false),
    })
}

#[test]
fn streams_as_providers_send_them() {
    let rows =
        include_str!("fixtures/provider_errors.jsonl").lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    // Bedrock's stream is framed in binary and is not looked into.
    let rows: Vec<Value> = rows.filter(|r| r["in_stream"] == true && r["id"] != "bedrock-stream-exception").collect();
    assert!(rows.len() >= 21, "only {} rows", rows.len());
    for row in &rows {
        let [id, api, stream, class] = ["id", "api", "body", "expected_class"].map(|k| row[k].as_str().unwrap());
        let verdict = judged(api, stream);
        if id.starts_with("generic-stream-cut") {
            assert!(verdict.is_none() && watched(api, stream).has_content(), "{id}: {verdict:?}");
            continue;
        }
        let v = verdict.unwrap_or_else(|| panic!("{id} is neither error nor empty"));
        assert_eq!((v.class.name(), v.unknown), (class, false), "{id}: {v:?}");
        assert_eq!(v.wait.map(|w| w.as_secs_f64()), row["wait_s"].as_f64(), "{id}: {v:?}");
        if let Some((reason, status, ambiguous, after)) = expected(id) {
            assert_eq!((v.reason, v.named_status, v.ambiguous), (reason, Some(status), ambiguous), "{id}: {v:?}");
            assert_eq!(watched(api, stream).error().unwrap().after_content, after, "{id}");
        } else {
            assert_eq!((v.reason, v.ambiguous), (Reason::Empty, false), "{id}: {v:?}");
        }
    }
}

#[test]
fn error_events() {
    for (data, class, reason, status, ambiguous) in [
        (r#"{"error":{"type":"authentication_error","message":"m"}}"#, Class::Terminal, Reason::Auth, 401, false),
        (
            r#"{"error":{"type":"invalid_request_error","message":"m"}}"#,
            Class::Terminal,
            Reason::BadRequest,
            400,
            false,
        ),
        (r#"{"error":{"type":"timeout_error","message":"m"}}"#, Class::Transient, Reason::Timeout, 504, true),
        (r#"{"error":{"message":"m","code":429}}"#, Class::Transient, Reason::RateLimited, 429, false),
        (r#"{"error":"oh"}"#, Class::Transient, Reason::StreamError, 502, true),
        ("oh", Class::Transient, Reason::StreamError, 502, true),
        ("", Class::Transient, Reason::StreamError, 502, true),
    ] {
        let v = verdict_with(Dialect::OpenAi, data.as_bytes(), &[]);
        assert_eq!(
            (v.class, v.reason, v.named_status, v.ambiguous),
            (class, reason, Some(status), ambiguous),
            "{data}"
        );
    }
}

#[test]
fn user_rules_hold_for_error_events_too() {
    let rule = Rule {
        status: vec![],
        error_type: vec!["api_error".into()],
        body_contains: String::new(),
        class: Class::Terminal,
    };
    let v =
        verdict_with(Dialect::Anthropic, br#"{"type":"error","error":{"type":"api_error","message":"m"}}"#, &[rule]);
    assert_eq!((v.class, v.reason, v.rule), (Class::Terminal, Reason::StreamError, "user rule"));
}

#[test]
fn a_whole_stream_of_each_form() {
    for (api, stream) in [
        (
            "chat.completions",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ),
        (
            "messages",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        (
            "responses",
            "data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[{\"text\":\"a\"}]}]}}\n\n",
        ),
        (
            "streamGenerateContent",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\r\n\r\ndata: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\r\n\r\n",
        ),
    ] {
        let watch = watched(api, stream);
        assert_eq!(
            (watch.ended(), watch.is_complete(), watch.is_empty_answer()),
            (Ended::Marker, true, false),
            "{api}"
        );
        assert!(watch.has_content() && watch.error().is_none() && watch.closing().is_empty(), "{api}");
    }
}
