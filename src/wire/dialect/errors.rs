//! What an error body says, in whichever of the known shapes it comes.

use std::time::Duration;

use http::HeaderMap;
use serde_json::{Map, Value};

use super::words::{self, Meaning, Sense};
use crate::wire::durations;
use crate::wire::headers::single;

/// Bytes of an error body that are read. A larger body is no error of an API: it says nothing.
pub const MAX_BODY: usize = 256 * 1024;
/// Bytes of a message that are kept.
const MAX_MESSAGE: usize = 4096;
/// Words that are kept.
const MAX_WORDS: usize = 32;

/// The facts of an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorFacts {
    /// Every type, code, status and reason found, as it stands there.
    pub words: Vec<String>,
    /// The text for people; empty if there is none.
    pub message: String,
    /// The HTTP status that the body names, 400 to 599.
    pub status: Option<u16>,
    /// The delay that the body asks for.
    pub retry_delay: Option<Duration>,
    /// The body has the shape of a model API's error, and is not a gateway's page or an empty one.
    pub shaped: bool,
    /// A quota that the body names as violated can't be waited for: one of a day, or one of zero.
    spent: Option<&'static str>,
    /// The error is a bare sentence.
    bare: bool,
}

impl ErrorFacts {
    /// Reads an error's headers and body.
    pub fn read(headers: &HeaderMap, body: &[u8]) -> ErrorFacts {
        let mut facts = ErrorFacts::default();
        if let Some(kind) = single(headers, "x-amzn-errortype") {
            facts.word(bare_exception(kind));
            facts.shaped = true;
        }
        if body.len() <= MAX_BODY
            && let Ok(root) = serde_json::from_slice(body)
        {
            facts.root(&root);
        }
        facts
    }

    /// What the error means, as an answer of this status.
    pub fn sense(&self, status: u16) -> Option<Sense> {
        if let Some(rule) = self.spent {
            return Some(Sense { meaning: Meaning::SpentQuota, rule });
        }
        let by_text = words::of_message(status, &self.message);
        let by_bare = self.bare.then(|| words::of_bare_error(&self.message)).flatten();
        let by_word = words::of_words(self.words.iter().map(String::as_str));
        [by_word, by_bare, by_text].into_iter().flatten().min_by_key(|s| s.meaning)
    }

    fn root(&mut self, root: &Value) {
        // A stream of JSON that failed before its first object is an array with the error in it.
        let root = match root {
            Value::Array(items) => items.iter().find(|i| i.get("error").is_some()),
            other => Some(other),
        };
        let Some(root) = root.and_then(Value::as_object) else {
            return;
        };
        // `response.failed` holds the response, and that the error.
        let inner =
            root.get("response").and_then(Value::as_object).filter(|r| r.get("error").is_some_and(|e| !e.is_null()));
        let root = inner.unwrap_or(root);
        match root.get("error") {
            Some(Value::Object(error)) => {
                self.shaped = true;
                self.object(error);
                self.numbers(root);
            }
            Some(Value::String(text)) if !text.is_empty() => {
                (self.shaped, self.bare) = (true, true);
                self.object(root);
                self.message = bounded(text);
                self.word(text);
            }
            _ => self.flat(root),
        }
    }

    /// An error without a wrapper.
    fn flat(&mut self, root: &Map<String, Value>) {
        self.object(root);
        self.shaped |= !self.message.is_empty() && !self.words.is_empty();
    }

    fn object(&mut self, error: &Map<String, Value>) {
        for name in ["type", "code", "status", "reason", "error_type", "error_code", "__type"] {
            match error.get(name) {
                Some(Value::String(text)) => self.word(bare_exception(text)),
                Some(Value::Number(number)) => self.word(&number.to_string()),
                _ => {}
            }
        }
        self.numbers(error);
        if let Some(text) = ["message", "detail"].iter().find_map(|n| error.get(*n)?.as_str()) {
            self.message = bounded(text);
        }
        for (outer, inner) in [("metadata", "error_type"), ("innererror", "code"), ("details", "error_code")] {
            if let Some(text) = error.get(outer).and_then(|o| o.get(inner)?.as_str()) {
                self.word(text);
            }
        }
        for list in ["details", "errors"] {
            error.get(list).and_then(Value::as_array).into_iter().flatten().for_each(|d| self.detail(d));
        }
    }

    /// The status, from the first field that is one. Fields that hold a code of another kind ("1300") are out of range.
    fn numbers(&mut self, object: &Map<String, Value>) {
        let named = |name: &&str| match object.get(*name)? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let statuses = ["status_code", "raw_status_code", "code", "status"].iter().filter_map(named);
        self.status =
            self.status.or_else(|| statuses.filter(|n| (400..600).contains(n)).find_map(|n| n.try_into().ok()));
    }

    /// One of Google's typed details, or one of its older `errors`.
    fn detail(&mut self, detail: &Value) {
        let text = |name: &str| detail.get(name).and_then(Value::as_str);
        ["reason", "error_code"].into_iter().filter_map(text).for_each(|w| self.word(w));
        if let Some(delay) = text("retryDelay").and_then(durations::span) {
            self.retry_delay = self.retry_delay.max(Some(delay));
        }
        for violation in detail.get("violations").and_then(Value::as_array).into_iter().flatten() {
            let field = |name: &str| violation.get(name).and_then(Value::as_str).unwrap_or_default();
            if field("quotaValue") == "0" {
                self.spent = Some("spent quota: limit 0");
            } else if field("quotaId").contains("PerDay") {
                self.spent = self.spent.or(Some("spent quota: PerDay"));
            }
        }
    }

    fn word(&mut self, word: &str) {
        // "error" is the envelope's own type and tells nothing.
        if !word.is_empty() && word != "error" && word.len() <= MAX_MESSAGE && self.words.len() < MAX_WORDS {
            self.words.push(word.to_owned());
        }
    }
}

/// AWS writes `com.amazon.coral#ThrottlingException:http://…` and means `ThrottlingException`.
fn bare_exception(kind: &str) -> &str {
    let is_exception = kind.contains("Exception");
    let kind = kind.split_once('#').filter(|_| is_exception).map_or(kind, |(_, k)| k);
    kind.split_once(':').filter(|_| is_exception).map_or(kind, |(k, _)| k).trim()
}

fn bounded(text: &str) -> String {
    let end = (0..=text.len().min(MAX_MESSAGE)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts(body: &str) -> ErrorFacts {
        ErrorFacts::read(&HeaderMap::new(), body.as_bytes())
    }

    /// Body, its words, the status it names.
    type Row = (&'static str, &'static [&'static str], Option<u16>);
    const ROWS: &[Row] = &[
        (r#"{"error":{"message":"m","type":"t","param":null,"code":"c"}}"#, &["t", "c"], None),
        (r#"{"error":{"message":"m","code":"429"}}"#, &["429"], Some(429)),
        (r#"{"error":{"message":"m","code":502,"metadata":{"error_type":"e"}}}"#, &["502", "e"], Some(502)),
        (
            r#"{"error":{"message":"m","code":"c","status":400,"innererror":{"code":"i"}}}"#,
            &["c", "400", "i"],
            Some(400),
        ),
        (r#"{"error":{"message":"m","type":"t","code":"c","status_code":400}}"#, &["t", "c"], Some(400)),
        (r#"{"type":"error","error":{"type":"t","message":"m","details":{"error_code":"d"}}}"#, &["t", "d"], None),
        (
            r#"{"error":{"code":429,"message":"m","status":"S","details":[{"reason":"R"}],"errors":[{"reason":"E"}]}}"#,
            &["429", "S", "R", "E"],
            Some(429),
        ),
        (r#"[{"error":{"code":503,"message":"m","status":"S"}}]"#, &["503", "S"], Some(503)),
        (r#"{"code":"c","error":"m"}"#, &["c", "m"], None),
        (r#"{"error":"m"}"#, &["m"], None),
        (
            r#"{"object":"error","message":"m","type":"t","code":"1300","raw_status_code":429}"#,
            &["t", "1300"],
            Some(429),
        ),
        (r#"{"type":"error","code":"c","message":"m"}"#, &["c"], None),
        (
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"c","message":"m"}}}"#,
            &["c"],
            None,
        ),
        (r#"{"__type":"com.amazon.coral#AnException","message":"m"}"#, &["AnException"], None),
    ];

    #[test]
    fn shapes() {
        for (body, words, status) in ROWS {
            let f = facts(body);
            assert_eq!(
                (&f.words[..], f.status, f.message.as_str(), f.shaped),
                (&words.iter().map(|w| w.to_string()).collect::<Vec<_>>()[..], *status, "m", true),
                "{body}"
            );
        }
    }

    #[test]
    fn what_is_no_error_of_an_api() {
        for body in [
            "",
            "<html></html>",
            "{}",
            "[]",
            "7",
            r#"{"message":"Service unavailable"}"#,
            r#"{"error":null}"#,
            r#"{"error":{"message":"cut"#,
        ] {
            assert!(!facts(body).shaped, "{body}");
        }
        assert!(!facts(&format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(MAX_BODY))).shaped);
    }

    #[test]
    fn the_type_in_a_header() {
        let mut h = HeaderMap::new();
        h.insert("x-amzn-errortype", "ThrottlingException:http://internal.example/".parse().unwrap());
        let f = ErrorFacts::read(&h, br#"{"message":"wait"}"#);
        assert_eq!((f.words, f.message.as_str(), f.shaped), (vec!["ThrottlingException".to_owned()], "wait", true));
    }

    #[test]
    fn delays_and_quotas() {
        let f = facts(
            r#"{"error":{"message":"","details":[{"retryDelay":"36.429760048s"},{"violations":[{"quotaId":"PerMinute","quotaValue":"5"}]}]}}"#,
        );
        assert_eq!(f.retry_delay, Some(Duration::from_secs_f64(36.429_760_048)));
        assert_eq!(f.sense(429), None);
        let f = facts(
            r#"{"error":{"message":"","details":[{"violations":[{"quotaId":"RequestsPerDayPerProject","quotaValue":"5"}]}]}}"#,
        );
        assert_eq!(f.sense(429).map(|s| s.rule), Some("spent quota: PerDay"));
        assert_eq!(facts(r#"{"error":{"retryDelay":"1s","details":[{"retryDelay":"soon"}]}}"#).retry_delay, None);
    }

    #[test]
    fn credits_in_a_bare_sentence_only() {
        let text = "The team has either used all available credits or reached its monthly spending limit.";
        assert_eq!(
            facts(&format!(r#"{{"code":"x","error":"{text}"}}"#)).sense(429).map(|s| s.meaning),
            Some(Meaning::SpentQuota)
        );
        assert_eq!(facts(&format!(r#"{{"error":{{"message":"{text}"}}}}"#)).sense(429), None);
    }

    proptest! {
        #[test]
        fn no_body_panics(body: Vec<u8>, text in ".*", status in 100u16..600) {
            let _ = ErrorFacts::read(&HeaderMap::new(), &body).sense(status);
            let json = serde_json::json!({"error": {"message": text.clone(), "type": text.clone(), "details": [text]}});
            let _ = ErrorFacts::read(&HeaderMap::new(), json.to_string().as_bytes()).sense(status);
        }
    }
}
