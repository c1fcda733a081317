//! Which headers end at a proxy, and which go on.

use http::header::{self, HeaderMap, HeaderName};

/// Headers that speak to the next hop only (RFC 9110 section 7.6.1), and their old kin. `trailer` is not among them:
/// trailers are passed on, and this names them. `te` is handled by [`end_to_end`].
static HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// `kept` and behind it the headers that go on to the other side: hop-by-hop ones, those that `Connection` names and those
/// that `drop` names left out, the rest in their order (`HeaderMap::remove` would not keep it).
pub fn end_to_end(mut kept: HeaderMap, headers: &HeaderMap, drop: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    kept.reserve(headers.len() + 8);
    let named = connection_names(headers);
    for (name, value) in headers {
        let hop = HOP_BY_HOP.contains(name)
            || named.contains(name)
            || (name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers"));
        if !hop && !drop(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// The header names that `Connection` lists, `close`, `keep-alive` and `te` aside.
fn connection_names(headers: &HeaderMap) -> Vec<HeaderName> {
    tokens(headers, &header::CONNECTION)
        .filter(|token| !["close", "keep-alive", "te", "upgrade"].iter().any(|plain| token.eq_ignore_ascii_case(plain)))
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .collect()
}

/// The comma-separated tokens of a header, over all its lines.
pub fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

/// Name the trailers that a message has, if it does not do so itself: without that, hyper would not send them on.
pub fn announce_trailers(headers: &mut HeaderMap, trailers: &HeaderMap) {
    if headers.contains_key(header::TRAILER) {
        return;
    }
    let names: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
    if let Ok(names) = http::HeaderValue::from_str(&names.join(", ")) {
        headers.insert(header::TRAILER, names);
    }
}

/// The protocol that a message asks to switch to (`Connection: upgrade` and `Upgrade: websocket`).
pub fn upgrade(headers: &HeaderMap) -> Option<&http::HeaderValue> {
    let asked = tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).fold(
            HeaderMap::new(),
            |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            },
        )
    }

    #[test]
    fn hop_by_hop_and_named_headers_end_here_and_order_is_kept() {
        let sent = map(&[
            ("x-a", "1"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("x-m", "b"),
            ("x-m", "a"),
            ("te", "gzip"),
            ("x-last", "z"),
        ]);
        let kept = end_to_end(HeaderMap::new(), &sent, |name| name == "x-a");
        let lines: Vec<_> = kept.iter().map(|(k, v)| (k.as_str(), v.to_str().unwrap())).collect();
        assert_eq!(lines, [("x-m", "b"), ("x-m", "a"), ("x-last", "z")]);
    }

    #[test]
    fn te_trailers_goes_on() {
        assert!(
            end_to_end(HeaderMap::new(), &map(&[("te", "trailers"), ("connection", "te")]), |_| false)
                .contains_key("te")
        );
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        assert!(upgrade(&map(&[("connection", "Upgrade"), ("upgrade", "websocket")])).is_some());
        assert!(upgrade(&map(&[("upgrade", "websocket")])).is_none());
    }
}
