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
    without(target, |name| name.eq_ignore_ascii_case("key"))
}

/// The target without any parameter that may be a secret: the host that it goes to now was not meant by the client.
pub fn without_secrets(target: &str) -> String {
    without(target, may_be_secret)
}

/// A header or parameter of this name may hold a credential, or name the account that one is of.
pub fn may_be_secret(name: &str) -> bool {
    const TELLING: [&str; 6] = ["credential", "signature", "referer", "organization", "project", "session"];
    let lower = name.to_ascii_lowercase();
    // An idempotency key names a call, and opens nothing.
    !lower.ends_with("idempotency-key") && (is_secret_name(name) || TELLING.iter().any(|word| lower.contains(word)))
}

/// A header, parameter or setting of this name holds a credential.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "auth", "password", "cookie"].iter().any(|word| name.contains(word))
}

fn without(target: &str, unwanted: impl Fn(&str) -> bool) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let name = |pair: &str| decoded(pair.split_once('=').map_or(pair, |(name, _)| name));
    // Some servers take a semicolon for a separator too.
    let wanted = |pair: &&str| !pair.split(';').any(|part| unwanted(&name(part)));
    let kept: Vec<&str> = query.split('&').filter(wanted).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

/// A parameter's name as servers read it: `k%65y` is `key`.
fn decoded(name: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        let hex = more.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
    fn no_spelling_of_a_secret_goes_to_another_host() {
        for query in ["key=S", "KEY=S", "k%65y=S", "%6Bey=S", "access_token=S", "api-key=S", "x;key=S"] {
            assert_eq!(without_secrets(&format!("/v1/x?alt=sse&{query}&b=%zz")), "/v1/x?alt=sse&b=%zz", "{query}");
        }
        assert_eq!(without_key("/v1/x?k%65y=S"), "/v1/x");
        assert_eq!(without_key("/v1/x?pageToken=1&key=S"), "/v1/x?pageToken=1");
        for name in
            ["ocp-apim-subscription-key", "x-portkey-api-key", "helicone-auth", "x-amz-security-token", "Referer"]
        {
            assert!(may_be_secret(name), "{name}");
        }
        for name in ["idempotency-key", "content-type", "anthropic-beta", "x-stainless-lang", "alt"] {
            assert!(!may_be_secret(name), "{name}");
        }
    }

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
