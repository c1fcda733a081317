//! What the events of all families have in common.

use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};

use crate::wire::dialect::usage::Counts;
use crate::wire::loose::{Filled, Loose, Read, Text, key, skip, value};

/// Reads an event's JSON; `None` if it is none.
pub fn parse<'a, T: Loose<'a>>(data: &'a [u8]) -> Option<T> {
    serde_json::from_slice::<Read<T>>(data).ok().map(|read| read.0)
}

/// The fields of an event, or of an answer told within one, that go by the same names everywhere.
#[derive(Default)]
pub struct Root<'a> {
    /// An `error` that says something.
    pub error: bool,
    /// `type`.
    pub kind: Text<'a>,
    /// `object`.
    pub object: Text<'a>,
    /// The model that answers.
    pub model: Text<'a>,
    /// Tokens.
    pub counts: Option<Counts>,
}

impl<'a> Root<'a> {
    /// Reads a field's value, or passes over it.
    pub fn field<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "error" => self.error |= value::<Filled, _>(map)?.0,
            "type" => self.kind = value(map)?,
            "object" => self.object = value(map)?,
            "model" | "modelVersion" => self.model = value(map)?,
            "usage" | "usageMetadata" => self.counts.get_or_insert_default().merge(value(map)?),
            _ => skip(map)?,
        }
        Ok(())
    }

    /// It tells an error.
    pub fn is_error(&self) -> bool {
        self.error || self.kind.as_deref() == Some("error") || self.object.as_deref() == Some("error")
    }

    /// Takes over what an answer told within the event says.
    pub fn adopt(&mut self, inner: Root<'a>) {
        self.error |= inner.error;
        self.model.0 = inner.model.0.or(self.model.0.take());
        self.counts = inner.counts.or(self.counts);
    }
}

impl<'a> Loose<'a> for Root<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut root = Root::default();
        while let Some(name) = key(&mut map)? {
            root.field(&name, &mut map)?;
        }
        Ok(root)
    }

    /// An error wrapped in an array.
    fn array<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut whole = Root::default();
        while let Some(Read(item)) = seq.next_element::<Read<Root<'a>>>()? {
            whole.error |= item.is_error();
        }
        Ok(whole)
    }
}

/// Whether a value holds anything that the model said: text that is not empty, whatever names, numbers and marks stand
/// around it.
#[derive(Default)]
pub struct Told(pub bool);

impl<'a> Loose<'a> for Told {
    fn text(text: Cow<'a, str>) -> Self {
        Told(!text.is_empty())
    }

    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut told = Told::default();
        while let Some(name) = key(&mut map)? {
            told.field(&name, &mut map)?;
        }
        Ok(told)
    }

    fn array<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut told = Told::default();
        while let Some(Read(item)) = seq.next_element::<Read<Told>>()? {
            told.0 |= item.0;
        }
        Ok(told)
    }
}

/// Fields that say what stands beside them and nothing else. A tool's `name` is none: it is half of a call.
const LABELS: [&str; 15] = [
    "type",
    "id",
    "index",
    "role",
    "status",
    "object",
    "call_id",
    "item_id",
    "format",
    "channel",
    "phase",
    "signature",
    "thoughtSignature",
    "encrypted_content",
    "caller",
];

impl Told {
    /// Reads a field of an object.
    pub fn field<'a, A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if self.0 || LABELS.contains(&name) {
            return skip(map);
        }
        self.0 = value::<Told, _>(map)?.0;
        Ok(())
    }
}

/// `true`.
#[derive(Default)]
pub struct Truth(pub bool);

impl<'a> Loose<'a> for Truth {
    fn truth(truth: bool) -> Self {
        Truth(truth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_said() {
        for json in [
            "null",
            "\"\"",
            "[]",
            "{}",
            r#"{"role":"assistant","content":"","refusal":null,"tool_calls":[]}"#,
            r#"{"type":"text","text":""}"#,
            r#"[{"index":0,"function":{"arguments":""}}]"#,
            r#"{"role":"model","parts":[{"text":"","thought":true,"thoughtSignature":"x"}]}"#,
            r#"{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x"}"#,
        ] {
            assert!(!parse::<Told>(json.as_bytes()).unwrap().0, "{json}");
        }
        for json in [
            "\"a\"",
            r#"{"reasoning_content":"a"}"#,
            r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}"#,
            r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#,
            r#"{"parts":[{"text":""},{"inlineData":{"data":"aGk="}}]}"#,
            r#"{"content":"","audio":{"id":"a","data":"x"}}"#,
        ] {
            assert!(parse::<Told>(json.as_bytes()).unwrap().0, "{json}");
        }
    }

    #[test]
    fn errors_in_any_wrapping() {
        for (json, error) in [
            (r#"{"error":{"message":"m"}}"#, true),
            (r#"[{"error":{"message":"m"}}]"#, true),
            (r#"{"error":"m"}"#, true),
            (r#"{"object":"error"}"#, true),
            (r#"{"error":null}"#, false),
            (r#"{"error":{}}"#, false),
        ] {
            assert_eq!(parse::<Root<'_>>(json.as_bytes()).unwrap().is_error(), error, "{json}");
        }
    }
}
