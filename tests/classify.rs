//! Evidence → verdict: a table of error answers as providers send them, and the odd ones that reports tell of.

use std::time::{Duration, SystemTime};

use backstop::policy::classify::{Answer, Evidence, Rule, classify};
use backstop::policy::failure::{Kind, Phase, TransportError};
use backstop::policy::verdict::{Class, Reason, Verdict};
use backstop::wire::dialect::Dialect;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use serde_json::Value;

/// An answer to classify, with everything that a test may want to change.
struct Case {
    dialect: Dialect,
    model_call: bool,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    whole: bool,
}

impl Case {
    fn new(status: u16, body: impl AsRef<[u8]>) -> Case {
        let case = Case {
            dialect: Dialect::OpenAi,
            model_call: true,
            status,
            headers: HeaderMap::new(),
            body: body.as_ref().to_vec(),
            whole: true,
        };
        case.header("content-type", "application/json")
    }

    fn header(mut self, name: &str, value: &str) -> Case {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers.insert(name, HeaderValue::from_str(value).unwrap());
        self
    }

    fn verdict_with(&self, rules: &[Rule]) -> Verdict {
        let answer = Answer {
            dialect: self.dialect,
            model_call: self.model_call,
            status: StatusCode::from_u16(self.status).unwrap(),
            headers: &self.headers,
            body: &self.body,
            whole: self.whole,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_061_600),
        };
        classify(Evidence::Answer(answer), rules)
    }

    fn verdict(&self) -> Verdict {
        self.verdict_with(&[])
    }
}

fn row_case(row: &Value) -> Case {
    let api = row["api"].as_str().unwrap();
    let body = match &row["body"] {
        Value::String(text) => text.clone().into_bytes(),
        json => json.to_string().into_bytes(),
    };
    let dialect = if api == "messages" {
        Dialect::Anthropic
    } else if api.contains("enerateContent") {
        Dialect::Gemini
    } else {
        Dialect::OpenAi
    };
    let status = row["status"].as_u64().unwrap().try_into().unwrap();
    let mut case = Case { dialect, headers: HeaderMap::new(), ..Case::new(status, body) };
    for (name, value) in row["headers"].as_object().unwrap() {
        case = case.header(name, value.as_str().unwrap());
    }
    case
}

/// The class that we give a row, where the collection has another opinion for another audience.
fn expected(row: &Value) -> &str {
    let (class, why) = (row["expected_class"].as_str().unwrap(), row["why"].as_str().unwrap());
    match row["id"].as_str().unwrap() {
        // A refusal is an answer.
        "gemini-blocked-prompt" => "success",
        // Only the client can make its request smaller: for us there is nothing to wait for.
        _ if why.starts_with("[shrink]") => "terminal",
        _ => class,
    }
}

/// The reason, by what the row's name says.
fn fits(id: &str, reason: Reason) -> bool {
    const BY_NAME: &[(&str, &[Reason])] = &[
        ("insufficient_quota", &[Reason::QuotaExhausted]),
        ("credit", &[Reason::QuotaExhausted]),
        ("402-in-flight", &[Reason::RateLimited]),
        ("402", &[Reason::QuotaExhausted]),
        ("spend-cap", &[Reason::QuotaExhausted]),
        ("unified-5h", &[Reason::QuotaExhausted]),
        ("per-day", &[Reason::QuotaExhausted]),
        ("limit-zero", &[Reason::QuotaExhausted]),
        ("86400", &[Reason::QuotaExhausted]),
        ("too-large", &[Reason::TooLarge]),
        ("too-long", &[Reason::TooLarge]),
        ("context", &[Reason::TooLarge]),
        ("413", &[Reason::TooLarge]),
        ("api-key", &[Reason::Auth]),
        ("401", &[Reason::Auth]),
        ("403", &[Reason::Auth]),
        ("404", &[Reason::NotFound]),
        ("conversation_locked", &[Reason::Other]),
        ("409", &[Reason::Other]),
        ("tool_use_failed", &[Reason::Other]),
        ("malformed", &[Reason::Empty]),
        ("400", &[Reason::BadRequest]),
        ("422", &[Reason::BadRequest]),
        ("blocked-prompt", &[Reason::Ok]),
        ("engine_overloaded", &[Reason::Overloaded]),
        ("model-not-ready", &[Reason::Overloaded]),
        ("429", &[Reason::RateLimited]),
        ("503", &[Reason::Overloaded]),
        ("529", &[Reason::Overloaded]),
        ("array-wrapped", &[Reason::Overloaded]),
        ("504", &[Reason::Timeout]),
        ("524", &[Reason::Timeout]),
        ("408", &[Reason::Timeout]),
        ("500", &[Reason::ServerError]),
        ("502", &[Reason::ServerError]),
        ("52", &[Reason::ServerError]),
        ("200-error-body", &[Reason::ServerError]),
        ("blank-lines", &[Reason::Empty]),
        ("200-empty", &[Reason::Empty]),
        ("truncated", &[Reason::Protocol]),
        ("html", &[Reason::Protocol]),
    ];
    let row = BY_NAME.iter().find(|(part, _)| id.contains(part));
    row.unwrap_or_else(|| panic!("no reason is expected of {id}")).1.contains(&reason)
}

#[test]
fn answers_as_providers_send_them() {
    let rows =
        include_str!("fixtures/provider_errors.jsonl").lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let rows: Vec<Value> = rows.filter(|r| r["in_stream"] == false).collect();
    assert!(rows.len() > 60, "only {} rows", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let id = row["id"].as_str().unwrap();
        let v = row_case(row).verdict();
        let wait = v.wait.map(|w| w.as_secs_f64());
        let wait_fits = wait == row["wait_s"].as_f64() || expected(row) == "success";
        if v.class.name() != expected(row) || !wait_fits || !fits(id, v.reason) || v.unknown {
            wrong.push(format!("{id}: {v:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn every_status_by_itself() {
    for status in 100..1000 {
        let v = Case::new(status, "").verdict();
        let want = match status {
            200 | 201 | 202 | 203 | 206..300 => Class::Transient,
            408 | 409 | 425 | 429 | 498 => Class::Transient,
            501 | 505..=508 | 510 | 511 => Class::Terminal,
            400..500 => Class::Terminal,
            500.. => Class::Transient,
            _ => Class::Success,
        };
        assert_eq!(v.class, want, "{status}");
        let other = Case { model_call: false, ..Case::new(status, "") }.verdict();
        assert_eq!(other.class, if status < 400 { Class::Success } else { want }, "{status}, no model call");
    }
    assert!(Case::new(418, "").verdict().unknown && Case::new(599, "").verdict().unknown);
}

#[test]
fn spent_quota_is_read_from_fields_not_from_prose() {
    for (body, class) in [
        (r#"{"error":{"type":"insufficient_quota","message":"x","code":null}}"#, Class::Terminal),
        (r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, Class::Terminal),
        (r#"{"type":"error","error":{"type":"billing_error","message":"x"}}"#, Class::Terminal),
        (r#"{"error":{"message":"You have run out of quota","code":429}}"#, Class::Transient),
        (
            r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}"#,
            Class::Transient,
        ),
        ("quota quota insufficient_quota", Class::Transient),
    ] {
        assert_eq!(Case::new(429, body).verdict().class, class, "{body}");
    }
    assert_eq!(Case::new(503, r#"{"error":{"code":"insufficient_quota"}}"#).verdict().reason, Reason::QuotaExhausted);
}

#[test]
fn a_subscription_window() {
    let case = |retry_after: &str| {
        Case::new(429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#)
            .header("anthropic-ratelimit-unified-status", "rejected")
            .header("anthropic-ratelimit-unified-reset", "4102444800")
            .header("retry-after", retry_after)
            .verdict()
    };
    let long = case("2892");
    assert_eq!(
        (long.class, long.reason, long.wait),
        (Class::Terminal, Reason::QuotaExhausted, Some(Duration::from_secs(2892)))
    );
    assert_eq!(case("20").class, Class::Transient, "nearly over");
}

#[test]
fn the_servers_word_on_itself() {
    let plain = Case::new(400, r#"{"error":{"message":"m"}}"#).header("x-should-retry", "true").verdict();
    assert_eq!((plain.class, plain.reason), (Class::Transient, Reason::BadRequest));
    let no = Case::new(429, "").header("x-should-retry", "false").header("retry-after", "3").verdict();
    assert_eq!((no.class, no.reason, no.wait), (Class::Terminal, Reason::RateLimited, Some(Duration::from_secs(3))));
    let quota = Case::new(429, r#"{"error":{"code":"insufficient_quota"}}"#).header("x-should-retry", "true").verdict();
    assert_eq!((quota.class, quota.reason), (Class::Transient, Reason::QuotaExhausted));
    assert_eq!(Case::new(429, "").header("x-should-retry", "maybe").verdict().rule, "status 429");
    let good =
        Case::new(200, r#"{"choices":[{"message":{"content":"x"}}]}"#).header("x-should-retry", "true").verdict();
    assert_eq!(good.class, Class::Success);
}

#[test]
fn user_rules_go_first() {
    let rule = |status: &[u16], types: &[&str], text: &str, class| Rule {
        status: status.to_vec(),
        error_type: types.iter().map(|t| t.to_string()).collect(),
        body_contains: text.to_owned(),
        class,
    };
    let not_ready = [rule(&[404], &["model_not_ready"], "", Class::Transient)];
    let v = Case::new(404, r#"{"error":{"type":"model_not_ready"}}"#).verdict_with(&not_ready);
    assert_eq!((v.class, v.reason, v.rule, v.ambiguous), (Class::Transient, Reason::NotFound, "user rule", false));
    assert_eq!(Case::new(404, r#"{"error":{"type":"other"}}"#).verdict_with(&not_ready).class, Class::Terminal);
    let poison = [rule(&[500], &[], "poison", Class::Terminal), rule(&[], &[], "", Class::Transient)];
    let case = Case::new(500, "this is poison").header("x-should-retry", "true");
    assert_eq!(
        case.verdict_with(&poison).class,
        Class::Terminal,
        "before the server's word, the first rule that holds"
    );
    assert_eq!(Case::new(400, "").verdict_with(&poison).class, Class::Transient);
    let v = Case::new(200, r#"{"choices":[{"message":{"content":"sorry"}}]}"#).verdict_with(&[rule(
        &[200],
        &[],
        "sorry",
        Class::Transient,
    )]);
    assert_eq!((v.class, v.reason, v.ambiguous), (Class::Transient, Reason::Other, true));
}

/// Body, class, reason, the status it names, ambiguous.
type ErrorRow = (&'static str, Class, Reason, u16, bool);
const ERROR_ROWS: &[ErrorRow] = &[
    (
        r#"{"error":{"code":502,"message":"Provider returned error"},"user_id":"u"}"#,
        Class::Transient,
        Reason::ServerError,
        502,
        true,
    ),
    (
        r#"{"error":{"code":429,"message":"m","metadata":{"raw":"r"}}}"#,
        Class::Transient,
        Reason::RateLimited,
        429,
        false,
    ),
    (
        r#"{"error":{"type":"server_error","code":"server_error","message":"m"}}"#,
        Class::Transient,
        Reason::ServerError,
        500,
        true,
    ),
    (
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
        Class::Transient,
        Reason::Overloaded,
        529,
        false,
    ),
    (r#"{"error":{"type":"invalid_request_error","message":"m"}}"#, Class::Terminal, Reason::BadRequest, 0, false),
    (r#"{"error":{"code":"insufficient_quota","message":"m"}}"#, Class::Terminal, Reason::QuotaExhausted, 0, false),
    (r#"{"error":{"code":401,"message":"m"}}"#, Class::Terminal, Reason::Auth, 401, false),
    (
        r#"{"error":{"code":"tool_use_failed","message":"m","status_code":400}}"#,
        Class::Recoverable,
        Reason::Other,
        400,
        false,
    ),
    (r#"{"error":"no idea"}"#, Class::Transient, Reason::ServerError, 502, true),
    (
        r#"[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}]"#,
        Class::Transient,
        Reason::Overloaded,
        503,
        false,
    ),
];

#[test]
fn errors_inside_a_200() {
    for (body, class, reason, named, ambiguous) in ERROR_ROWS {
        let v = Case { dialect: Dialect::Anthropic, ..Case::new(200, body) }.verdict();
        assert_eq!(
            (v.class, v.reason, v.named_status, v.ambiguous),
            // 0: a terminal one that names no status by number is passed on with its 200.
            (*class, *reason, Some(*named).filter(|named| *named != 0), *ambiguous),
            "{body}"
        );
    }
    assert!(Case::new(200, r#"{"error":"no idea"}"#).verdict().unknown);
    let other = Case { model_call: false, ..Case::new(200, r#"{"error":{"code":502}}"#) }.verdict();
    assert_eq!(other.class, Class::Success, "no model was asked");
}

/// Content type, body, and the verdict.
const ODD_BODIES: &[(&str, &str, Class, Reason)] = &[
    ("application/json", "", Class::Transient, Reason::Empty),
    ("application/json", "\n\n\n", Class::Transient, Reason::Empty),
    ("application/json", "{\"id\": \"chat", Class::Transient, Reason::Protocol),
    ("application/json", "oops", Class::Transient, Reason::Protocol),
    ("application/json", "<html>", Class::Transient, Reason::Protocol),
    // Whole, if not to the letter of the standard: the SDKs read it, and it was paid for.
    ("application/json", r#"{"choices":[{"message":{"content":"hi \ud83d"}}]}"#, Class::Success, Reason::Ok),
    ("application/json", r#"{"data":[{"embedding":[NaN,-Infinity,1e400]}]}"#, Class::Success, Reason::Ok),
    ("application/json", "{\"choices\":[]} trailing", Class::Success, Reason::Ok),
    ("text/html; charset=utf-8", "<html>", Class::Transient, Reason::Protocol),
    ("text/plain", "<!DOCTYPE html><p>", Class::Transient, Reason::Protocol),
    ("text/plain", "<3 and other words", Class::Success, Reason::Ok),
    ("text/plain", "{ a transcript", Class::Success, Reason::Ok),
    ("text/plain", "\n", Class::Success, Reason::Ok),
    ("audio/mpeg", "<\u{0}", Class::Success, Reason::Ok),
    ("audio/mpeg", "", Class::Transient, Reason::Empty),
    ("text/event-stream", "data: {\"error\"", Class::Success, Reason::Ok),
];

#[test]
fn answers_that_are_none() {
    for &(content_type, body, class, reason) in ODD_BODIES {
        let v = Case::new(200, body).header("content-type", content_type).verdict();
        assert_eq!((v.class, v.reason), (class, reason), "{content_type} {body:?}");
        assert_eq!(v.ambiguous, class == Class::Transient, "it was carried out: {content_type} {body:?}");
        let part = Case { whole: false, ..Case::new(200, body) }.header("content-type", content_type).verdict();
        assert_eq!(part.class, Class::Success, "a part is not judged: {body:?}");
    }
}

#[test]
fn refusals_are_answers_and_empty_answers_are_the_models_to_better() {
    for (body, class) in [
        (r#"{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}]}"#, Class::Success),
        (r#"{"candidates":[{"finishReason":"SAFETY"}]}"#, Class::Success),
        (r#"{"type":"message","content":[],"stop_reason":"refusal"}"#, Class::Success),
        (r#"{"promptFeedback":{"blockReason":"OTHER"}}"#, Class::Success),
        (
            r#"{"choices":[{"message":{"content":"half"},"finish_reason":"error"}],"usage":{"prompt_tokens":null}}"#,
            Class::Success,
        ),
        (r#"{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}]}"#, Class::Recoverable),
        (r#"{"candidates":[{"content":{},"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#, Class::Recoverable),
        (r#"{"candidates":[]}"#, Class::Recoverable),
        (r#"{"choices":[]}"#, Class::Recoverable),
        (r#"{"object":"list","data":[]}"#, Class::Success),
    ] {
        let v = Case::new(200, body).verdict();
        assert_eq!((v.class, v.ambiguous), (class, false), "{body}");
    }
}

#[test]
fn who_may_have_acted() {
    let error = r#"{"error":{"message":"busy"}}"#;
    for (status, body, ambiguous) in [
        (429, "", false),
        (408, "", false),
        (409, error, false),
        (500, error, true),
        (502, "<html>", true),
        (503, error, false),
        (503, "<html>", true),
        (503, r#"{"message":"Service Unavailable"}"#, true),
        (504, error, true),
        (520, "", true),
        (521, "", false),
        (522, "", true),
        (523, "", false),
        (524, "", true),
        (529, error, false),
        (529, "", true),
        (599, "", true),
    ] {
        assert_eq!(Case::new(status, body).verdict().ambiguous, ambiguous, "{status} {body}");
    }
}

#[test]
fn transport_failures() {
    let of = |phase, kind, sent| {
        let v = classify(Evidence::Failure(&TransportError { phase, kind, sent, detail: String::new() }), &[]);
        (v.class, v.reason, v.ambiguous)
    };
    use Class::{Terminal, Transient};
    assert_eq!(of(Phase::Connect, Kind::Dns, false), (Transient, Reason::Connect, false));
    assert_eq!(of(Phase::Connect, Kind::Refused, false), (Transient, Reason::Connect, false));
    assert_eq!(of(Phase::Connect, Kind::Tls, false), (Transient, Reason::Connect, false));
    assert_eq!(of(Phase::Connect, Kind::Reset, false), (Transient, Reason::Connect, false));
    assert_eq!(of(Phase::Connect, Kind::Timeout, false), (Transient, Reason::Timeout, false));
    assert_eq!(of(Phase::Connect, Kind::Certificate, false), (Terminal, Reason::Connect, false));
    assert_eq!(of(Phase::Head, Kind::Timeout, true), (Transient, Reason::Timeout, true));
    assert_eq!(of(Phase::Head, Kind::Reset, true), (Transient, Reason::Reset, true));
    assert_eq!(of(Phase::Head, Kind::Reset, false), (Transient, Reason::Reset, false));
    assert_eq!(of(Phase::Head, Kind::Unprocessed, true), (Transient, Reason::Reset, false));
    assert_eq!(of(Phase::Body, Kind::Protocol, true), (Transient, Reason::Protocol, true));
}

#[test]
fn long_waits() {
    let after = |status, wait: &str| Case::new(status, "").header("retry-after", wait).verdict();
    assert_eq!(after(429, "3600").class, Class::Transient);
    assert_eq!((after(429, "3601").class, after(429, "3601").reason), (Class::Terminal, Reason::QuotaExhausted));
    assert_eq!((after(503, "7200").class, after(503, "7200").reason), (Class::Terminal, Reason::Overloaded));
    assert_eq!(after(429, "99999999999999999999").wait, Some(Duration::MAX));
    assert_eq!((after(402, "4").class, after(402, "4").reason), (Class::Transient, Reason::RateLimited));
    assert_eq!(after(400, "4").wait, Some(Duration::from_secs(4)), "told of terminal answers too");
}

proptest! {
    #[test]
    fn no_answer_panics(status in 100u16..1000, body: Vec<u8>, header in "[ -~]{0,30}", model_call: bool, whole: bool, json: bool) {
        let body = if json { serde_json::json!({"error": {"message": header, "code": status}}).to_string().into_bytes() } else { body };
        let case = Case { model_call, whole, ..Case::new(status, body) };
        for name in ["retry-after", "content-type", "x-should-retry", "date"] {
            let v = Case { headers: case.headers.clone(), body: case.body.clone(), ..case }.header(name, &header).verdict();
            prop_assert!(!v.rule.is_empty());
            prop_assert!(v.class == Class::Success || v.reason != Reason::Ok);
        }
    }
}
