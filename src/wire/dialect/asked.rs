//! What a request to a model asks for: which model, and how much of an answer. Read only where a feature needs it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The model that a request asks for: in the path (`…/models/NAME:verb`), else the body's own field.
pub fn model<'a>(path: &'a str, body: impl FnOnce() -> Option<Cow<'a, [u8]>>) -> Option<String> {
    if let Some(name) = in_path(path) {
        return Some(path[name.0..name.1].to_owned());
    }
    let body = body()?;
    let fields = fields(&body)?;
    serde_json::from_str(fields.get("model")?.get()).ok()
}

/// The most tokens that the answer may have; `None` where that is not said.
pub fn output_limit(body: &[u8]) -> Option<u64> {
    const NAMES: [&str; 3] = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
    let fields = fields(body)?;
    let number = |fields: &Fields<'_>, name: &str| serde_json::from_str::<u64>(fields.get(name)?.get()).ok();
    NAMES.iter().find_map(|name| number(&fields, name)).or_else(|| {
        let nested = fields.get("generationConfig").or_else(|| fields.get("generation_config"))?;
        let nested: Fields<'_> = serde_json::from_str(nested.get()).ok()?;
        number(&nested, "maxOutputTokens").or_else(|| number(&nested, "max_output_tokens"))
    })
}

/// The path with its model renamed; `None`: it names none of the map.
pub fn path_with_model(path_and_query: &str, map: &BTreeMap<String, String>) -> Option<String> {
    let path = path_and_query.split('?').next()?;
    let (start, end) = in_path(path)?;
    let to = map.get(&path[start..end])?;
    Some(format!("{}{to}{}", &path[..start], &path_and_query[end..]))
}

/// The body with its model renamed, every other byte as it was; `None`: it names none of the map.
pub fn body_with_model(body: &[u8], map: &BTreeMap<String, String>) -> Option<Vec<u8>> {
    let fields = fields(body)?;
    let raw = fields.get("model")?.get();
    let to = map.get(&serde_json::from_str::<String>(raw).ok()?)?;
    // Borrowed from the body, so its address says where it stands.
    let start = (raw.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let end = start.checked_add(raw.len()).filter(|end| *end <= body.len())?;
    let name = serde_json::to_vec(to).ok()?;
    Some([&body[..start], &name, &body[end..]].concat())
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The fields of a body that is a JSON object. Of a name that stands there twice the last counts, as parsers have it.
fn fields(body: &[u8]) -> Option<Fields<'_>> {
    serde_json::from_slice(body).ok()
}

/// Where the model stands in `…/models/NAME:verb` (also `tunedModels`).
fn in_path(path: &str) -> Option<(usize, usize)> {
    let start = path.rfind("odels/")? + "odels/".len();
    let end = start + path[start..].rfind(':')?;
    let verb = &path[end + 1..];
    let legal = !verb.is_empty() && verb.bytes().all(|byte| byte.is_ascii_alphabetic());
    (legal && end > start && !path[start..end].contains('/')).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> BTreeMap<String, String> {
        BTreeMap::from([("big".into(), "little \"x\"".into()), ("g-1".into(), "g-2".into())])
    }

    fn asked(path: &str, body: &str) -> Option<String> {
        model(path, || Some(Cow::Owned(body.as_bytes().to_vec())))
    }

    #[test]
    fn the_model_is_in_the_body_or_in_the_path() {
        assert_eq!(asked("/v1/chat/completions", r#"{"messages":[{"model":"no"}],"model":"m\u0031"}"#).unwrap(), "m1");
        assert_eq!(asked("/v1beta/models/g-1:generateContent", "").unwrap(), "g-1");
        for (path, body) in
            [("/v1/x", "[]"), ("/v1/x", r#"{"model":7}"#), ("/v1/models/g-1", ""), ("/v1/models/:x", "")]
        {
            assert_eq!(asked(path, body), None, "{path} {body}");
        }
    }

    #[test]
    fn the_limit_of_an_answer_in_every_family() {
        for body in [
            r#"{"max_tokens":10}"#,
            r#"{"max_completion_tokens":10,"max_tokens":99}"#,
            r#"{"max_output_tokens":10}"#,
            r#"{"generationConfig":{"maxOutputTokens":10}}"#,
        ] {
            assert_eq!(output_limit(body.as_bytes()), Some(10), "{body}");
        }
        for body in ["", "{}", r#"{"max_tokens":null}"#, r#"{"max_tokens":-1}"#, r#"{"generationConfig":[]}"#] {
            assert_eq!(output_limit(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn only_the_name_changes() {
        let body = br#" { "a" : 1.0e5, "model" :  "big" , "z":{"model":"big"} } "#;
        let renamed = String::from_utf8(body_with_model(body, &map()).unwrap()).unwrap();
        assert_eq!(renamed, r#" { "a" : 1.0e5, "model" :  "little \"x\"" , "z":{"model":"big"} } "#);
        for other in [&br#"{"model":"other"}"#[..], b"{}", b"no json", br#"{"model":["big"]}"#] {
            assert_eq!(body_with_model(other, &map()), None);
        }
    }

    #[test]
    fn so_in_a_path() {
        let renamed = path_with_model("/v1beta/models/g-1:streamGenerateContent?alt=sse", &map()).unwrap();
        assert_eq!(renamed, "/v1beta/models/g-2:streamGenerateContent?alt=sse");
        assert_eq!(path_with_model("/v1beta/models/other:generateContent", &map()), None);
        assert_eq!(path_with_model("/v1/chat/completions?x=odels/g-1:y", &map()), None);
    }
}
