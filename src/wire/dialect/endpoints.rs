//! Which endpoint a path is, and what repeating a call to it does.
//!
//! An allow-list: a `POST` that no table knows creates something. The classes are our own judgement from what each call
//! makes; no provider documents an idempotency key for any of these paths.

use serde::de::{MapAccess, SeqAccess};

use super::{Dialect, anthropic, gemini, openai};
use crate::wire::loose::{Filled, Loose, Read, Text, key, skip, value};

/// What repeating a `POST` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing lasting: it costs tokens at most, or is the same state again.
    Safe,
    /// Nothing lasting, unless a field of the body says otherwise: see `Triggers`.
    Conditional,
    /// It makes, changes or pays for something a second time.
    Creates,
}

/// An endpoint that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The path behind version and prefix; `*` stands for one segment.
    pub path: &'static str,
    /// What repeating it does.
    pub repeat: Repeat,
    /// It asks a model for an answer.
    pub model_call: bool,
}

/// A row for a call that asks a model.
pub(super) const fn model(path: &'static str, repeat: Repeat) -> Endpoint {
    Endpoint { path, repeat, model_call: true }
}

/// A row for another call.
pub(super) const fn plain(path: &'static str, repeat: Repeat) -> Endpoint {
    Endpoint { path, repeat, model_call: false }
}

impl Dialect {
    /// The endpoint that a `POST` to this path means, if it is one we know. `path` may have any prefix before its version
    /// (`/openai/v1/…`, `/api/v1/…`, `/openai/deployments/NAME/…`); without query.
    pub fn endpoint(self, path: &str) -> Option<Endpoint> {
        let (family, rest) = resource(path);
        match self {
            Dialect::Generic => None,
            // The compatible endpoints of another family, below a segment that says so.
            Dialect::Gemini if family => find(openai::ENDPOINTS, &rest),
            Dialect::Gemini => gemini::endpoint(&rest),
            Dialect::Anthropic => find(anthropic::ENDPOINTS, &rest),
            Dialect::OpenAi => find(openai::ENDPOINTS, &rest),
        }
    }

    /// The types of tools that act outside the answer, as parts of their names.
    const fn acting_tools(self) -> &'static [&'static str] {
        match self {
            Dialect::Anthropic => anthropic::ACTING_TOOLS,
            _ => openai::ACTING_TOOLS,
        }
    }

    /// Whether a body of a [`Repeat::Conditional`] call makes a repeat of it act twice. A body that is no JSON object may.
    pub fn acts_twice(self, body: &[u8]) -> bool {
        match serde_json::from_slice::<Read<Triggers>>(body) {
            Ok(Read(t)) => !t.object || t.field || t.tools.acting(self.acting_tools()),
            Err(_) => true,
        }
    }
}

/// The path behind its last version segment, and whether that or the segment behind it names the compatible family.
fn resource(path: &str) -> (bool, Vec<&str>) {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let is_family = |s: &&str| matches!(*s, "openai" | "openapi");
    let start = segments.iter().rposition(|s| is_family(s) || is_version(s)).map_or(0, |at| at + 1);
    let family = start > 0 && is_family(&segments[start - 1]);
    let rest = match &segments[start..] {
        ["deployments", _, rest @ ..] => rest,
        rest => rest,
    };
    (family, rest.to_vec())
}

/// `v1`, `v1beta`, `v1alpha`, `v2beta3`.
fn is_version(segment: &str) -> bool {
    let Some(number) = segment.strip_prefix('v') else {
        return false;
    };
    let tail = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let stage = tail.trim_end_matches(|c: char| c.is_ascii_digit());
    tail.len() < number.len() && matches!(stage, "" | "alpha" | "beta")
}

/// The first row of a table that matches. A cancel by id is idempotent wherever it is.
fn find(table: &[Endpoint], segments: &[&str]) -> Option<Endpoint> {
    if let [_, .., _, "cancel"] = segments {
        return Some(plain("*/cancel", Repeat::Safe));
    }
    table.iter().find(|e| matches(e.path, segments)).copied()
}

fn matches(pattern: &str, segments: &[&str]) -> bool {
    let mut parts = pattern.split('/');
    segments.iter().all(|s| parts.next().is_some_and(|p| p == "*" || p == *s)) && parts.next().is_none()
}

/// The fields of a request that make a repeat of it act twice.
#[derive(Default)]
struct Triggers {
    object: bool,
    /// One of the fields that name a job, a conversation or a place to act in is set.
    field: bool,
    tools: Tools,
}

impl<'a> Loose<'a> for Triggers {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut triggers = Triggers { object: true, ..Triggers::default() };
        while let Some(name) = key(&mut map)? {
            match &*name {
                "background" | "conversation" | "deferred" | "mcp_servers" | "container" | "agent" => {
                    triggers.field |= value::<Filled, _>(&mut map)?.0;
                }
                "tools" => triggers.tools.0.extend(value::<Tools, _>(&mut map)?.0),
                _ => skip(&mut map)?,
            }
        }
        Ok(triggers)
    }
}

/// The types of the tools of a request.
#[derive(Default)]
struct Tools(Vec<String>);

impl Tools {
    fn acting(&self, types: &[&str]) -> bool {
        self.0.iter().any(|tool| types.iter().any(|t| tool.contains(t)))
    }
}

impl<'a> Loose<'a> for Tools {
    fn array<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut types = Vec::new();
        while let Some(Read(Tool(kind))) = seq.next_element::<Read<Tool>>()? {
            types.extend(kind.filter(|k| k != "function"));
        }
        Ok(Tools(types))
    }
}

#[derive(Default)]
struct Tool(Option<String>);

impl<'a> Loose<'a> for Tool {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut tool = Tool::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "type" => tool.0 = value::<Text<'a>, _>(&mut map)?.0.map(String::from),
                _ => skip(&mut map)?,
            }
        }
        Ok(tool)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions() {
        for v in ["v1", "v1beta", "v1alpha", "v2beta3", "v10"] {
            assert!(is_version(v), "{v}");
        }
        for v in ["", "v", "1", "video", "v1x", "vbeta", "V1"] {
            assert!(!is_version(v), "{v}");
        }
    }

    #[test]
    fn prefixes_do_not_matter() {
        for path in [
            "/v1/chat/completions",
            "/openai/v1/chat/completions",
            "/api/v1/chat/completions",
            "/inference/v1/chat/completions/",
            "/chat/completions",
            "/api/paas/v4/chat/completions",
            "/openai/deployments/my-gpt/chat/completions",
            "/openai/deployments/v1/chat/completions",
        ] {
            assert_eq!(Dialect::OpenAi.endpoint(path).map(|e| e.path), Some("chat/completions"), "{path}");
        }
        assert_eq!(
            Dialect::Gemini.endpoint("/v1beta/openai/chat/completions").map(|e| e.path),
            Some("chat/completions")
        );
        for path in ["", "/", "/v1", "/v1/", "/v1/chat", "/v1/x/chat/completions", "/v1/chat/completions/x/y"] {
            assert_eq!(Dialect::OpenAi.endpoint(path), None, "{path}");
        }
    }

    #[test]
    fn fields_that_act_twice() {
        for body in [
            r#"{"background":true}"#,
            r#"{"conversation":"conv_1"}"#,
            r#"{"conversation":{"id":"conv_1"}}"#,
            r#"{"deferred":true}"#,
            r#"{"mcp_servers":[{"url":"u"}]}"#,
            r#"{"container":"c"}"#,
            r#"{"tools":[{"type":"function"},{"type":"mcp"}]}"#,
            "",
            "[]",
            "{\"a\":",
        ] {
            assert!(Dialect::OpenAi.acts_twice(body.as_bytes()), "{body}");
            assert!(Dialect::Anthropic.acts_twice(body.as_bytes()), "{body}");
        }
        for body in [
            "{}",
            r#"{"background":false,"conversation":null,"mcp_servers":[],"container":null}"#,
            r#"{"tools":[{"type":"function","function":{"name":"mcp_shell"}},{"name":"computer"}],"messages":[{"background":true}]}"#,
            r#"{"store":true,"previous_response_id":"r"}"#,
        ] {
            assert!(!Dialect::OpenAi.acts_twice(body.as_bytes()), "{body}");
        }
        // A family's own name for a tool that the client runs is no tool that acts upstream.
        let computer = br#"{"tools":[{"type":"computer_20250124"}]}"#;
        assert!(Dialect::OpenAi.acts_twice(computer) && !Dialect::Anthropic.acts_twice(computer));
    }

    proptest! {
        #[test]
        fn no_path_or_body_panics(path in ".*", segments in "(/[a-z*:%.0-9]{0,9}){0,6}", body: Vec<u8>) {
            for d in Dialect::ALL {
                let _ = (d.endpoint(&path), d.endpoint(&segments), d.acts_twice(&body));
            }
        }
    }
}
