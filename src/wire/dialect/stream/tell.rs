//! Errors told in a stream: in its own form, so that each SDK raises.

use serde_json::{Map, Value, json};

use super::form::Form;
use crate::wire::dialect::{Dialect, render_error};

/// Bytes of an upstream's error answer that are read; a larger one is told by its status alone.
const MAX_BODY: usize = 64 * 1024;
/// Characters of an error answer that is plain text, and of any message.
const MAX_MESSAGE: usize = 4096;

/// How to tell an error in one stream.
#[derive(Debug, Clone, Copy)]
pub struct Teller {
    /// The stream's form.
    pub form: Form,
    /// The stream's line end.
    pub newline: &'static str,
    /// The number of the event, in forms that count.
    pub sequence: u64,
}

impl Teller {
    /// An error of our own.
    pub fn own(self, kind: &str, message: &str) -> Vec<u8> {
        let render = |dialect| render_error(dialect, status(kind), kind, message);
        let json = match self.form {
            Form::Chat | Form::Events => render(Dialect::OpenAi),
            Form::Messages => render(Dialect::Anthropic),
            Form::Generate => render(Dialect::Gemini),
            Form::Responses => bytes(&self.numbered(&json!({
                "message": message, "type": kind, "param": null, "code": kind,
            }))),
            Form::Objects => bytes(&json!({"error": message})),
            Form::Opaque => return Vec::new(),
        };
        self.frame(&json)
    }

    /// An upstream's error answer, with its own words.
    pub fn upstreams(self, status: u16, body: &[u8]) -> Vec<u8> {
        let mut error = error_object(body).unwrap_or_default();
        if error.get("message").and_then(Value::as_str).is_none_or(str::is_empty) {
            error.insert("message".into(), fallback(status, body).into());
        }
        let mut or_insert = |name: &str, value: Value| {
            if error.get(name).is_none_or(Value::is_null) {
                error.insert(name.into(), value);
            }
        };
        let json = match self.form {
            Form::Chat | Form::Events | Form::Responses => {
                or_insert("type", word(status).into());
                or_insert("param", Value::Null);
                or_insert("code", Value::Null);
                if self.form == Form::Responses { self.numbered(&error.into()) } else { json!({ "error": error }) }
            }
            Form::Messages => {
                or_insert("type", word(status).into());
                json!({"type": "error", "error": error})
            }
            Form::Generate => {
                or_insert("status", word(status).into());
                if !error.get("code").is_some_and(Value::is_number) {
                    error.insert("code".into(), status.into());
                }
                json!({ "error": error })
            }
            Form::Objects => json!({"error": error.get("message")}),
            Form::Opaque => return Vec::new(),
        };
        self.frame(&bytes(&json))
    }

    /// The nested form: on the flat one that is documented, no SDK raises.
    fn numbered(self, error: &Value) -> Value {
        json!({"type": "error", "sequence_number": self.sequence, "error": error})
    }

    fn frame(self, json: &[u8]) -> Vec<u8> {
        let nl = self.newline.as_bytes();
        match self.form {
            Form::Opaque => Vec::new(),
            Form::Objects => [json, b"\n"].concat(),
            Form::Messages | Form::Responses => [b"event: error", nl, b"data: ", json, nl, nl].concat(),
            Form::Chat | Form::Generate | Form::Events => [b"data: ", json, nl, nl].concat(),
        }
    }
}

fn bytes(json: &Value) -> Vec<u8> {
    json.to_string().into_bytes()
}

/// The status of one of our own errors, for the family whose errors hold it.
fn status(kind: &str) -> u16 {
    match kind {
        "stream_stalled" | "upstream_timeout" | "deadline_exceeded" => 504,
        "queue_full" | "circuit_open" => 503,
        "run_stopped" => 403,
        _ => 502,
    }
}

/// What an error is called whose body does not say.
fn word(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    }
}

/// The object with message, type and code, wherever in an error answer it is.
fn error_object(body: &[u8]) -> Option<Map<String, Value>> {
    let root: Value = serde_json::from_slice(body.get(..MAX_BODY + 1).map_or(body, |_| b"")).ok()?;
    let root = match root {
        Value::Array(items) => items.into_iter().find(|item| item.get("error").is_some())?,
        other => other,
    };
    let Value::Object(mut root) = root else {
        return None;
    };
    // The envelope's own type tells nothing.
    if root.get("type").is_some_and(|t| t == "error") {
        root.remove("type");
    }
    match root.remove("error") {
        Some(Value::Object(error)) => Some(error),
        Some(Value::String(text)) => {
            root.insert("message".into(), text.into());
            Some(root)
        }
        _ => {
            root.remove("object");
            let detail = root.remove("detail").filter(Value::is_string);
            if let Some(detail) = detail.filter(|_| !root.contains_key("message")) {
                root.insert("message".into(), detail);
            }
            Some(root)
        }
    }
}

/// A message where the answer has none: its status, and its text if it is short and no page.
fn fallback(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_MESSAGE)]);
    let text = text.trim();
    if text.is_empty() || text.starts_with(['<', '{', '[']) || body.len() > MAX_MESSAGE {
        return format!("the upstream answered with status {status}");
    }
    format!("the upstream answered with status {status}: {text}")
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::wire::dialect::errors::ErrorFacts;
    use crate::wire::dialect::stream::Watch;
    use crate::wire::sse::{Data, Scanner};

    const FORMS: [Form; 6] = [Form::Chat, Form::Responses, Form::Messages, Form::Generate, Form::Objects, Form::Events];

    fn teller(form: Form) -> Teller {
        Teller { form, newline: "\n", sequence: 7 }
    }

    fn json_of(event: &[u8]) -> Value {
        let mut json = None;
        let mut keep = |data: &[u8]| json = serde_json::from_slice(data).ok();
        if event.starts_with(b"{") {
            keep(event);
        } else {
            Scanner::default().feed(event, |e| {
                if let Data::Whole(data) = e.data {
                    keep(data)
                }
            });
        }
        json.unwrap()
    }

    fn text(form: Form, event: Vec<u8>) -> String {
        assert!(form == Form::Objects || event.ends_with(b"\n\n"));
        String::from_utf8(event).unwrap()
    }

    #[test]
    fn our_own_errors() {
        for form in FORMS {
            let event = text(form, teller(form).own("stream_stalled", "no \"byte\"\nfor 2m"));
            let json = json_of(event.as_bytes());
            let error = &json["error"];
            match form {
                Form::Objects => assert_eq!(error, "no \"byte\"\nfor 2m"),
                Form::Generate => {
                    assert_eq!((&error["code"], &error["status"]), (&504.into(), &"stream_stalled".into()))
                }
                _ => assert_eq!(error["type"], "stream_stalled"),
            }
            assert_eq!(event.starts_with("event: error\n"), matches!(form, Form::Messages | Form::Responses));
            assert!(!event.contains("[DONE]"));
        }
        assert_eq!(json_of(&teller(Form::Responses).own("k", "m"))["sequence_number"], 7);
        assert_eq!(teller(Form::Opaque).own("k", "m"), b"");
        let crlf = Teller { newline: "\r\n", ..teller(Form::Generate) };
        assert!(crlf.own("stream_interrupted", "m").ends_with(b"}\r\n\r\n"));
    }

    #[test]
    fn an_upstreams_words_are_kept() {
        for (status, body, words) in [
            (429, r#"{"error":{"message":"m","type":"t","param":null,"code":"c"}}"#, &["t", "c"][..]),
            (529, r#"{"type":"error","error":{"type":"t","message":"m"},"request_id":"r"}"#, &["t"]),
            (503, "{\n  \"error\": {\n \"code\": 503, \"message\": \"m\", \"status\": \"S\"}}", &["503", "S"]),
            (503, r#"[{"error":{"code":503,"message":"m","status":"S"}}]"#, &["503", "S"]),
            (429, r#"{"code":"c","error":"m"}"#, &["c"]),
            (429, r#"{"object":"error","message":"m","type":"t","code":"1300"}"#, &["t"]),
            (422, r#"{"detail":"m"}"#, &[]),
        ] {
            for form in FORMS {
                let event = text(form, teller(form).upstreams(status, body.as_bytes()));
                let json = json_of(event.as_bytes()).to_string();
                let facts = ErrorFacts::read(&HeaderMap::new(), json.as_bytes());
                assert_eq!(facts.message, "m", "{form:?} {json}");
                // A family whose code is a number keeps no word there; the bare form has none at all.
                for word in words.iter().filter(|w| form != Form::Objects && !(form == Form::Generate && **w == "c")) {
                    assert!(facts.words.iter().any(|w| w == word), "{form:?} {json}");
                }
            }
        }
    }

    #[test]
    fn an_answer_that_says_nothing() {
        for (body, message) in [
            (&b""[..], "the upstream answered with status 502"),
            (b"<html>Bad Gateway</html>", "the upstream answered with status 502"),
            (b"{}", "the upstream answered with status 502"),
            (b"{\"error\":", "the upstream answered with status 502"),
            (b"upstream\nreset", "the upstream answered with status 502: upstream\nreset"),
            (&[b' '; MAX_BODY + 9], "the upstream answered with status 502"),
        ] {
            let json = json_of(&teller(Form::Messages).upstreams(502, body));
            assert_eq!((&json["error"]["message"], &json["error"]["type"]), (&message.into(), &"api_error".into()));
        }
    }

    #[test]
    fn each_is_read_back_as_an_error() {
        for (path, dialect) in [
            ("/v1/chat/completions", Dialect::OpenAi),
            ("/v1/responses", Dialect::OpenAi),
            ("/v1/messages", Dialect::Anthropic),
            ("/v1beta/models/m:streamGenerateContent", Dialect::Gemini),
            ("/api/chat", Dialect::OpenAi),
            ("/v1/other", Dialect::Generic),
        ] {
            for event in [0, 1] {
                let mut watch = Watch::new(dialect, path, crate::wire::headers::Media::Stream);
                let told = match event {
                    0 => watch.error_event("stream_interrupted", "m"),
                    _ => watch.from_error_body(503, b"<html>"),
                };
                watch.feed(&told);
                assert!(watch.error().is_some_and(|e| !e.after_content) && watch.is_between(), "{path}");
            }
        }
    }
}
