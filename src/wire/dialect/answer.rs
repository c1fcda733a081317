//! What a whole answer says about itself: whether it is one, how it ended, what it cost.

use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};

use super::usage::{Counts, Usage};
use crate::wire::loose::{Filled, Loose, Read, Text, key, skip, value};

/// The form of a body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// It was not looked at.
    #[default]
    Unread,
    /// No byte, or blanks only.
    Empty,
    /// It begins like a web page.
    Html,
    /// JSON.
    Json,
    /// JSON that breaks off.
    Truncated,
    /// Nothing of these.
    Other,
}

/// Whether an answer holds anything that the model said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Content {
    /// It does.
    Present,
    /// It has the place for it, ended as if all were well, and there is nothing in it.
    Absent,
    /// The answer is of a form that is not looked into, or ended in a way that explains why there is nothing.
    #[default]
    Unknown,
}

/// The facts of an answer, read in one pass over its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerFacts<'a> {
    /// The form of the body. The other facts are there for JSON only.
    pub shape: Shape,
    /// The body tells an error: an `error` that is not null, or an error envelope.
    pub error: bool,
    /// Whether it says anything.
    pub content: Content,
    /// The model wrote something that the provider could not use (a malformed tool call).
    pub malformed: bool,
    /// Why the first choice or candidate ended, or the message, as it stands there.
    pub finish: Option<Cow<'a, str>>,
    /// The model that answered.
    pub model: Option<Cow<'a, str>>,
    /// The tokens spent; `None` where the answer does not tell.
    pub usage: Option<Usage>,
}

/// Ends that mean that the model had its say: an answer without content that ended so is an empty one.
pub(super) const NATURAL_ENDS: [&str; 6] = ["stop", "STOP", "end_turn", "tool_calls", "tool_use", "completed"];
/// Ends that mean that what the model wrote could not be used.
pub(super) const MALFORMED_ENDS: [&str; 3] = ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"];

impl<'a> AnswerFacts<'a> {
    /// Reads a whole body, content encoding undone.
    pub fn read(body: &'a [u8]) -> AnswerFacts<'a> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        match body.first() {
            None => {
                return AnswerFacts { shape: Shape::Empty, ..AnswerFacts::default() };
            }
            Some(b'<') => {
                return AnswerFacts { shape: Shape::Html, ..AnswerFacts::default() };
            }
            Some(_) => {}
        }
        // Text is checked to be UTF-8 once and fast; from bytes, serde would check each string by itself.
        match std::str::from_utf8(body) {
            Ok(text) => first_document(body, serde_json::de::StrRead::new(text)),
            Err(_) => first_document(body, serde_json::de::SliceRead::new(body)),
        }
    }
}

/// Only the first document: some servers send objects one after another as plain JSON.
fn first_document<'a>(body: &[u8], read: impl serde_json::de::Read<'a>) -> AnswerFacts<'a> {
    let mut documents = serde_json::Deserializer::new(read).into_iter::<Read<Body<'a>>>();
    match documents.next() {
        Some(Ok(Read(read))) if rest_is_json(&body[documents.byte_offset()..]) => read.facts(),
        Some(Err(e)) if e.is_eof() => AnswerFacts { shape: Shape::Truncated, ..AnswerFacts::default() },
        _ => AnswerFacts { shape: Shape::Other, ..AnswerFacts::default() },
    }
}

fn rest_is_json(rest: &[u8]) -> bool {
    matches!(rest.trim_ascii_start().first(), None | Some(b'{' | b'['))
}

/// The fields of an answer that matter here, of every family.
#[derive(Default)]
struct Body<'a> {
    error: bool,
    kind: Text<'a>,
    object: Text<'a>,
    status: Text<'a>,
    stop_reason: Text<'a>,
    model: Text<'a>,
    counts: Counts,
    /// `choices`, `candidates`.
    turns: Option<Turns<'a>>,
    /// Anthropic's `content`, Responses' `output`.
    blocks: Option<Filled>,
}

impl<'a> Body<'a> {
    fn field<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "error" => self.error |= value::<Filled, _>(map)?.0,
            "type" => self.kind = value(map)?,
            "object" => self.object = value(map)?,
            "status" => self.status = value(map)?,
            "stop_reason" => self.stop_reason = value(map)?,
            "model" | "modelVersion" => self.model = value(map)?,
            "usage" | "usageMetadata" => self.counts.merge(value(map)?),
            "choices" | "candidates" => self.turns = Some(value(map)?),
            "content" | "output" => self.blocks = Some(value(map)?),
            other if self.counts.top_level(other, map)? => {}
            _ => skip(map)?,
        }
        Ok(())
    }

    fn facts(self) -> AnswerFacts<'a> {
        let content = self.content();
        let turns = self.turns.unwrap_or_default();
        AnswerFacts {
            shape: Shape::Json,
            error: self.error || self.kind.as_deref() == Some("error") || self.object.as_deref() == Some("error"),
            content,
            malformed: turns.malformed,
            finish: turns.finish.0.or(self.stop_reason.0),
            model: self.model.0,
            usage: self.counts.usage(),
        }
    }

    fn content(&self) -> Content {
        if let Some(turns) = &self.turns {
            return turns.content();
        }
        let end = match self.kind.as_deref().or(self.object.as_deref()) {
            Some("message") => &self.stop_reason,
            Some("response") => &self.status,
            _ => return Content::Unknown,
        };
        match self.blocks {
            Some(Filled(true)) => Content::Present,
            Some(Filled(false)) if end.as_deref().is_some_and(|e| NATURAL_ENDS.contains(&e)) => Content::Absent,
            _ => Content::Unknown,
        }
    }
}

impl<'a> Loose<'a> for Body<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut body = Body::default();
        while let Some(name) = key(&mut map)? {
            body.field(&name, &mut map)?;
        }
        Ok(body)
    }

    /// A stream that was asked for as one JSON array: the parts together are the answer.
    fn array<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut whole = Body::default();
        while let Some(Read(part)) = seq.next_element::<Read<Body<'a>>>()? {
            whole.error |= part.error;
            whole.counts.merge(part.counts);
            whole.model.0 = part.model.0.or(whole.model.0);
            whole.turns = match (whole.turns, part.turns) {
                (Some(mut before), Some(after)) => {
                    before.join(after);
                    Some(before)
                }
                (before, after) => before.or(after),
            };
        }
        Ok(whole)
    }
}

/// The choices or candidates of an answer, taken together.
#[derive(Default)]
struct Turns<'a> {
    filled: bool,
    malformed: bool,
    /// One ended in another way than naturally.
    explained: bool,
    finish: Text<'a>,
}

impl<'a> Turns<'a> {
    fn content(&self) -> Content {
        match (self.filled, self.explained) {
            (true, _) => Content::Present,
            (false, true) => Content::Unknown,
            (false, false) => Content::Absent,
        }
    }

    fn join(&mut self, later: Turns<'a>) {
        self.filled |= later.filled;
        self.malformed |= later.malformed;
        self.explained |= later.explained;
        if self.finish.0.is_none() {
            self.finish = later.finish;
        }
    }
}

impl<'a> Loose<'a> for Turns<'a> {
    fn array<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut turns = Turns::default();
        while let Some(Read(turn)) = seq.next_element::<Read<Turn<'a>>>()? {
            let end = turn.finish.as_deref();
            turns.join(Turns {
                filled: turn.filled,
                malformed: end.is_some_and(|e| MALFORMED_ENDS.contains(&e)),
                explained: end.is_some_and(|e| !NATURAL_ENDS.contains(&e)),
                finish: turn.finish,
            });
        }
        Ok(turns)
    }
}

/// One choice or candidate.
#[derive(Default)]
struct Turn<'a> {
    filled: bool,
    finish: Text<'a>,
}

impl<'a> Loose<'a> for Turn<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut turn = Turn::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "message" | "content" | "delta" => turn.filled |= value::<Said, _>(&mut map)?.0,
                "text" | "error" => turn.filled |= value::<Filled, _>(&mut map)?.0,
                "finish_reason" | "finishReason" => turn.finish = value(&mut map)?,
                _ => skip(&mut map)?,
            }
        }
        Ok(turn)
    }
}

/// Whether a message says anything apart from who says it.
#[derive(Default)]
struct Said(bool);

impl<'a> Loose<'a> for Said {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut said = Said::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "role" | "name" | "annotations" => skip(&mut map)?,
                _ => said.0 |= value::<Filled, _>(&mut map)?.0,
            }
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &str) -> AnswerFacts<'_> {
        AnswerFacts::read(body.as_bytes())
    }

    #[test]
    fn forms() {
        for (body, shape) in [
            ("", Shape::Empty),
            (" \r\n\n", Shape::Empty),
            ("\n<!DOCTYPE html>", Shape::Html),
            ("{}", Shape::Json),
            ("\n\n {\"a\":1} \n", Shape::Json),
            ("\u{feff}{}", Shape::Json),
            ("[1,2]", Shape::Json),
            ("{\"a\":1}\n{\"a\":2}", Shape::Json),
            ("{\"error\":1,\"error\":2}", Shape::Json),
            ("{\"id\": \"c\", \"object\": \"chat.com", Shape::Truncated),
            ("{\"usage\": {\"prompt_tokens\": 1", Shape::Truncated),
            ("[", Shape::Truncated),
            ("{]", Shape::Other),
            ("{} oops", Shape::Other),
            ("event: ping", Shape::Other),
        ] {
            assert_eq!(read(body).shape, shape, "{body:?}");
        }
    }

    #[test]
    fn errors() {
        for body in [
            r#"{"error":{"message":"m"}}"#,
            r#"{"error":"m"}"#,
            r#"{"type":"error","message":"m"}"#,
            r#"{"object":"error"}"#,
            r#"[{"error":{"code":503}}]"#,
        ] {
            assert!(read(body).error, "{body}");
        }
        for body in [
            "{}",
            r#"{"error":null}"#,
            r#"{"error":{}}"#,
            r#"{"error":""}"#,
            r#"{"choices":[{"message":{"content":"error"}}]}"#,
        ] {
            assert!(!read(body).error, "{body}");
        }
    }

    const CONTENTS: &[(&str, Content)] = &[
        (r#"{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#, Content::Present),
        (
            r#"{"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]},"finish_reason":"tool_calls"}]}"#,
            Content::Present,
        ),
        (r#"{"choices":[{"text":"hi","finish_reason":"length"}]}"#, Content::Present),
        (r#"{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}"#, Content::Absent),
        (
            r#"{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"content_filter"}]}"#,
            Content::Unknown,
        ),
        (r#"{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"length"}]}"#, Content::Unknown),
        (r#"{"choices":[]}"#, Content::Absent),
        (r#"{"choices":null}"#, Content::Absent),
        (r#"{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}]}"#, Content::Absent),
        (r#"{"candidates":[{"finishReason":"SAFETY"}]}"#, Content::Unknown),
        (
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]},"finishReason":"STOP"}]}"#,
            Content::Present,
        ),
        (r#"{"promptFeedback":{"blockReason":"OTHER"},"usageMetadata":{}}"#, Content::Unknown),
        (
            r#"[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},{"candidates":[{"finishReason":"STOP"}]}]"#,
            Content::Present,
        ),
        (r#"{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"}"#, Content::Present),
        (r#"{"type":"message","content":[],"stop_reason":"end_turn"}"#, Content::Absent),
        (r#"{"type":"message","content":[],"stop_reason":"refusal"}"#, Content::Unknown),
        (r#"{"object":"response","status":"completed","output":[]}"#, Content::Absent),
        (r#"{"object":"response","status":"queued","output":[]}"#, Content::Unknown),
        (r#"{"object":"list","data":[{"embedding":[0.1]}]}"#, Content::Unknown),
    ];

    #[test]
    fn content() {
        for &(body, content) in CONTENTS {
            assert_eq!(read(body).content, content, "{body}");
        }
    }

    #[test]
    fn ends_models_and_tokens() {
        let f = read(
            r#"{"candidates":[{"content":{},"finishReason":"MALFORMED_FUNCTION_CALL"}],"modelVersion":"m","usageMetadata":{"promptTokenCount":3}}"#,
        );
        assert!(f.malformed);
        assert_eq!(
            (f.finish.as_deref(), f.model.as_deref(), f.usage.map(|u| u.input)),
            (Some("MALFORMED_FUNCTION_CALL"), Some("m"), Some(3))
        );
        let f = read(
            r#"{"choices":[{"message":{"content":"x"},"finish_reason":"error"}],"usage":{"prompt_tokens":null,"completion_tokens":null}}"#,
        );
        assert_eq!((f.finish.as_deref(), f.usage, f.content), (Some("error"), None, Content::Present));
        let f = read(r#"{"model":"m","message":{"content":"hi"},"done":true,"prompt_eval_count":4,"eval_count":2}"#);
        assert_eq!(f.usage, Some(Usage { input: 4, output: 2, cached: 0 }));
        assert!(matches!(f.model, Some(Cow::Borrowed("m"))), "no copy is made");
    }

    proptest! {
        #[test]
        fn no_body_panics(bytes: Vec<u8>, text in r#"[\[\]{}":,a-z0-9null\\ .-]{0,60}"#) {
            let _ = AnswerFacts::read(&bytes);
            let _ = AnswerFacts::read(text.as_bytes());
        }

        #[test]
        fn every_cut_is_seen(cut in 1usize..250) {
            let whole = r#"{"id":"msg_1","type":"message","model":"m","content":[{"type":"text","text":"h\u00e9llo \ud83d\ude00"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1.5e1}}"#;
            let cut = cut % whole.len();
            if cut > 0 {
                prop_assert_eq!(AnswerFacts::read(&whole.as_bytes()[..cut]).shape, Shape::Truncated);
            }
        }
    }
}
