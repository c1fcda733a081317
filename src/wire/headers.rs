//! Header fields, read with care: a field that is there twice says two things, and so says nothing.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The value of a field that is there exactly once, without surrounding blanks. Not ASCII, or there twice: `None`.
pub fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok().map(str::trim)
}

/// What kind of body the content type promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// `application/json` and every `+json`.
    Json,
    /// A web page.
    Html,
    /// Events or objects one after another: judged as they come, not here.
    Stream,
    /// Other text.
    Text,
    /// Anything else: audio, images, archives.
    Binary,
    /// No content type, or one that cannot be read.
    Unstated,
}

/// The kind of body that the headers promise.
pub fn media(headers: &HeaderMap) -> Media {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()) else {
        return Media::Unstated;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    // Compared without making a lower-case copy: every answer comes by here.
    let is = |kinds: &[&str]| kinds.iter().any(|kind| essence.eq_ignore_ascii_case(kind));
    let ends = |tail: &str| tail_of(essence, tail.len()).is_some_and(|end| end.eq_ignore_ascii_case(tail));
    if essence.is_empty() {
        Media::Unstated
    } else if is(&["application/json", "text/json"]) || ends("+json") {
        Media::Json
    } else if is(&["text/html", "application/xhtml+xml"]) {
        Media::Html
    } else if is(&["text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq"])
        || ends("eventstream")
    {
        Media::Stream
    } else if essence.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/")) {
        Media::Text
    } else {
        Media::Binary
    }
}

fn tail_of(text: &str, length: usize) -> Option<&str> {
    text.get(text.len().checked_sub(length)?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubled_field_says_nothing() {
        let mut h = HeaderMap::new();
        h.append("retry-after", " 1 ".parse().unwrap());
        assert_eq!(single(&h, "retry-after"), Some("1"));
        h.append("retry-after", "2".parse().unwrap());
        assert_eq!(single(&h, "retry-after"), None);
    }

    #[test]
    fn media_by_content_type() {
        let of = |v: &str| {
            let mut h = HeaderMap::new();
            h.insert(CONTENT_TYPE, v.parse().unwrap());
            media(&h)
        };
        assert_eq!(of("application/json; charset=utf-8"), Media::Json);
        assert_eq!(of("application/problem+json"), Media::Json);
        assert_eq!(of("Text/HTML"), Media::Html);
        assert_eq!(of("text/event-stream"), Media::Stream);
        assert_eq!(of("application/vnd.example.eventstream"), Media::Stream);
        assert_eq!(of("text/plain"), Media::Text);
        assert_eq!(of("audio/mpeg"), Media::Binary);
        assert_eq!(media(&HeaderMap::new()), Media::Unstated);
    }
}
