//! Where each dialect carries its credential.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::Dialect;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Every header that is known to carry a credential.
const HEADERS: [HeaderName; 4] = [AUTHORIZATION, X_API_KEY, API_KEY, GOOG_API_KEY];

/// The credential that a client presents, as its SDK sends it: any of the known headers, else Gemini's `key` in the query.
pub fn presented<'a>(headers: &'a HeaderMap, query: Option<&'a str>) -> Option<&'a [u8]> {
    let in_header = HEADERS.iter().find_map(|name| headers.get(name)).map(|value| {
        let bytes = value.as_bytes();
        bytes.strip_prefix(b"Bearer ").or_else(|| bytes.strip_prefix(b"bearer ")).unwrap_or(bytes)
    });
    in_header.or_else(|| key_in(query?).map(str::as_bytes))
}

/// Put the upstream's credential in the place of whatever the client sent. `false`: the key is no legal header value.
pub fn put(dialect: Dialect, headers: &mut HeaderMap, key: &str) -> bool {
    let (name, text) = match dialect {
        Dialect::Anthropic => (X_API_KEY, key.to_owned()),
        Dialect::Gemini => (GOOG_API_KEY, key.to_owned()),
        Dialect::OpenAi | Dialect::Generic => (AUTHORIZATION, format!("Bearer {key}")),
    };
    let Ok(mut value) = HeaderValue::try_from(text) else { return false };
    value.set_sensitive(true);
    headers.append(name, value);
    true
}

/// The header carries a credential.
pub fn is_credential(name: &HeaderName) -> bool {
    HEADERS.contains(name)
}

/// The target without a `key` parameter: what a client presents to Backstop is not for the upstream.
pub fn without_key(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_key(pair)).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

fn key_in(query: &str) -> Option<&str> {
    query.split('&').find(|pair| is_key(pair)).and_then(|pair| pair.split_once('=')).map(|(_, key)| key)
}

fn is_key(pair: &str) -> bool {
    pair.split_once('=').is_some_and(|(name, _)| name.eq_ignore_ascii_case("key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presented_credential_is_found() {
        let header = |name: HeaderName, value: &str| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        assert_eq!(presented(&header(AUTHORIZATION, "Bearer sk-1"), None), Some(&b"sk-1"[..]));
        assert_eq!(presented(&header(X_API_KEY, "k"), Some("key=other")), Some(&b"k"[..]));
        assert_eq!(presented(&HeaderMap::new(), Some("alt=sse&key=AIza")), Some(&b"AIza"[..]));
        assert_eq!(presented(&HeaderMap::new(), Some("alt=sse")), None);
    }

    #[test]
    fn the_clients_key_leaves_the_query() {
        assert_eq!(without_key("/v1beta/m:g?alt=sse&key=K&x=1"), "/v1beta/m:g?alt=sse&x=1");
        assert_eq!(without_key("/v1beta/m:g?key=K"), "/v1beta/m:g");
        assert_eq!(without_key("/v1beta/m:g?"), "/v1beta/m:g?");
    }
}
