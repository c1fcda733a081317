//! Which dialect a request speaks, from its path and headers alone.

use http::HeaderMap;

use super::Dialect;

/// The dialect that a request without an upstream's name is meant for; `None` where its form says nothing.
pub fn by_form(path: &str, headers: &HeaderMap) -> Option<Dialect> {
    let mut segments = path.trim_start_matches('/').split('/');
    let (first, second) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    if first == "v1" && second.starts_with("messages") || headers.contains_key("anthropic-version") {
        return Some(Dialect::Anthropic);
    }
    if matches!(first, "v1beta" | "v1alpha") || is_model_verb(path) || headers.contains_key("x-goog-api-key") {
        return Some(Dialect::Gemini);
    }
    (first == "v1").then_some(Dialect::OpenAi)
}

/// The dialect that an upstream answers a path in: upstreams of one dialect often serve a path of another as well.
pub fn of_path(path: &str, upstream: Dialect) -> Dialect {
    let ends_with = |tail: &str| path.trim_end_matches('/').ends_with(tail);
    if upstream == Dialect::Generic {
        Dialect::Generic
    } else if ends_with("/messages") || ends_with("/messages/count_tokens") {
        // Threads of the assistants API have messages too.
        if path.contains("/threads/") { upstream } else { Dialect::Anthropic }
    } else if ends_with("/chat/completions") || ends_with("/responses") || ends_with("/embeddings") {
        Dialect::OpenAi
    } else if is_model_verb(path) {
        Dialect::Gemini
    } else {
        upstream
    }
}

/// The path asks for a stream: some families stream as plain JSON, so that the answer's content type does not tell.
pub fn streams(path: &str) -> bool {
    path.ends_with(":streamGenerateContent")
}

/// What the beginning of a stream in one JSON array shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// Nothing yet.
    Open,
    /// An element that is no error: it goes on.
    Element,
    /// An error, or something that is no array: it is read whole and judged.
    Other,
}

/// Look at the beginning of a stream that is one JSON array.
pub fn beginning(body: &[u8]) -> Beginning {
    let mut rest = body.trim_ascii_start();
    for expected in [b'[', b'{', b'"'] {
        match rest.split_first() {
            None => return Beginning::Open,
            Some((first, more)) if *first == expected => rest = more.trim_ascii_start(),
            Some(_) => return Beginning::Other,
        }
    }
    const ERROR: &[u8] = b"error\"";
    match rest.len() < ERROR.len() && ERROR.starts_with(rest) {
        true => Beginning::Open,
        false if rest.starts_with(ERROR) => Beginning::Other,
        false => Beginning::Element,
    }
}

/// What the beginning of a body shows: that it is a stream of events, that it is none, or (`None`) nothing yet.
pub fn begins_as_events(body: &[u8]) -> Option<bool> {
    const FIRST: [&[u8]; 4] = [b"data:", b"event:", b"id:", b"retry:"];
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    // A comment goes first in some streams.
    if body.first() == Some(&b':') || FIRST.iter().any(|field| body.starts_with(field)) {
        return Some(true);
    }
    let open = body.is_empty() || FIRST.iter().any(|field| field.starts_with(body));
    (!open).then_some(false)
}

/// The request's body (JSON, content encoding undone) asks for a stream.
pub fn asks_stream(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Asked {
        #[serde(default)]
        stream: serde_json::Value,
    }
    serde_json::from_slice::<Asked>(body).is_ok_and(|asked| asked.stream == true)
}

/// `…/models/NAME:verb`, the way Gemini calls a model.
fn is_model_verb(path: &str) -> bool {
    let (rest, last) = path.rsplit_once('/').unwrap_or(("", path));
    let verb = last.split_once(':').map(|(_, verb)| verb).unwrap_or_default();
    let on_model = rest.ends_with("odels") || rest.ends_with("/endpoints");
    // A fine-tuned model's id holds colons too (`ft:gpt-4:org`): a verb is one, of letters.
    on_model && !verb.is_empty() && verb.chars().all(|c| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_their_dialect() {
        let none = HeaderMap::new();
        for (path, dialect) in [
            ("/v1/messages", Some(Dialect::Anthropic)),
            ("/v1/messages/batches", Some(Dialect::Anthropic)),
            ("/v1/chat/completions", Some(Dialect::OpenAi)),
            ("/v1/models", Some(Dialect::OpenAi)),
            ("/v1beta/models", Some(Dialect::Gemini)),
            ("/v1alpha/models", Some(Dialect::Gemini)),
            ("/v1/models/gemini-x:generateContent", Some(Dialect::Gemini)),
            ("/v1/models/ft:gpt-4o:org::id", Some(Dialect::OpenAi)),
            ("/favicon.ico", None),
            ("/", None),
        ] {
            assert_eq!(by_form(path, &none), dialect, "{path}");
        }
    }

    #[test]
    fn the_beginning_of_an_array_shows_what_it_is() {
        for (body, shown) in [
            ("", Beginning::Open),
            (" [\n", Beginning::Open),
            ("[{\"err", Beginning::Open),
            ("[{\"error\": {", Beginning::Other),
            ("{\"error\"", Beginning::Other),
            ("[]", Beginning::Other),
            ("<html>", Beginning::Other),
            ("[{\"candidates\"", Beginning::Element),
            ("[{ \"e", Beginning::Open),
            ("[{\"extra\"", Beginning::Element),
        ] {
            assert_eq!(beginning(body.as_bytes()), shown, "{body}");
        }
    }

    #[test]
    fn the_beginning_of_events_shows_too() {
        for (body, shown) in [
            ("", None),
            ("\r\n", None),
            ("da", None),
            ("data: {}", Some(true)),
            ("\u{feff}event:x", Some(true)),
            (": comment", Some(true)),
            ("{\"data\":1}", Some(false)),
            ("date", Some(false)),
            ("<html>", Some(false)),
        ] {
            assert_eq!(begins_as_events(body.as_bytes()), shown, "{body:?}");
        }
    }

    #[test]
    fn headers_say_it_too() {
        let headers =
            |name: &'static str| HeaderMap::from_iter([(http::HeaderName::from_static(name), "x".parse().unwrap())]);
        assert_eq!(by_form("/v1/models", &headers("anthropic-version")), Some(Dialect::Anthropic));
        assert_eq!(by_form("/v1/models", &headers("x-goog-api-key")), Some(Dialect::Gemini));
    }

    #[test]
    fn a_path_of_another_dialect_is_answered_in_that_one() {
        assert_eq!(of_path("/v1/messages", Dialect::OpenAi), Dialect::Anthropic);
        assert_eq!(of_path("/v1/threads/t/messages", Dialect::OpenAi), Dialect::OpenAi);
        assert_eq!(of_path("/v1/chat/completions", Dialect::Anthropic), Dialect::OpenAi);
        assert_eq!(of_path("/v1/chat/completions", Dialect::Generic), Dialect::Generic);
        assert_eq!(of_path("/v1/models", Dialect::Anthropic), Dialect::Anthropic);
    }
}
