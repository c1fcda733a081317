//! Who may call: the checks before a request is looked at.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use http::{Request, Uri, Version};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{Secret, Server};
use crate::reply::{Fault, LocalReply};
use crate::wire::dialect::credential;

/// The `Host` (HTTP/2: `:authority`) must be a name that we go by: a web page that had its own name resolved to this
/// machine (DNS rebinding) sends that name. `local`: the address that the connection came in on, which is always fine.
///
/// # Errors
/// 400 without one, 421 for a foreign one.
pub fn host<B>(request: &Request<B>, server: &Server, local: Option<SocketAddr>) -> Result<(), LocalReply> {
    let header = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let Some(host) = authority.or(header) else {
        // HTTP/1.0 may come without: no browser speaks it.
        let excused = request.version() == Version::HTTP_10;
        return if excused {
            Ok(())
        } else {
            Err(LocalReply::new(Fault::BadRequest, "the request has no Host header"))
        };
    };
    let name = std::str::from_utf8(host).map(|host| host_name(host).to_ascii_lowercase()).unwrap_or_default();
    let ip = name.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let ours = server.allowed_hosts.contains(&name)
        || ip.is_some() && (ip == local.map(|local| local.ip()) || ip == Some(server.listen.ip()));
    if ours {
        return Ok(());
    }
    let message = "the Host header is none of this proxy's names; call it by its address, or add the name to server.allowed_hosts";
    Err(LocalReply::new(Fault::HostNotAllowed, message))
}

/// A host without its port; brackets stay.
fn host_name(host: &str) -> &str {
    match host.rfind(']') {
        Some(end) => &host[..=end],
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// The origin of the web page that calls, if it is a page and may; CORS is answered for it.
///
/// # Errors
/// 403 for a page of an origin that is neither loopback nor listed.
pub fn origin(headers: &HeaderMap, server: &Server) -> Result<Option<HeaderValue>, LocalReply> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(None) };
    let one = headers.get_all(ORIGIN).iter().count() == 1;
    let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
    if one && (server.allowed_origins.contains(&text) || is_loopback(&text)) {
        return Ok(Some(origin.clone()));
    }
    let message = "web pages of this origin may not call; if it is yours, add it to server.allowed_origins";
    Err(LocalReply::new(Fault::OriginNotAllowed, message))
}

/// A foreign page's picture or script tag sends no `Origin`, but browsers say where it comes from. It could read nothing of
/// the answer, and must not be able to make the call at all.
///
/// # Errors
/// 403 for a request that a browser makes for a page of another site.
pub fn not_embedded(headers: &HeaderMap) -> Result<(), LocalReply> {
    let cross = headers.get("sec-fetch-site").is_some_and(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"));
    if headers.contains_key(ORIGIN) || !cross {
        return Ok(());
    }
    Err(LocalReply::new(Fault::OriginNotAllowed, "web pages of other sites may not call (sec-fetch-site: cross-site)"))
}

fn is_loopback(origin: &str) -> bool {
    let Ok(uri) = origin.parse::<Uri>() else { return false };
    // An origin is scheme, host and port, and nothing else.
    let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |a| a.as_str()));
    if authority.contains('@') || format!("{scheme}://{authority}") != origin {
        return false;
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let web = matches!(uri.scheme_str(), Some("http" | "https"));
    web && (host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

/// With client keys set, a client must present one: as `x-backstop-key`, or (`as_credential`, where Backstop puts the
/// upstream's credential in) as the SDK's own API key.
///
/// # Errors
/// 401 without a good one.
pub fn client_key<B>(request: &Request<B>, keys: &[Secret], as_credential: bool) -> Result<(), LocalReply> {
    if keys.is_empty() {
        return Ok(());
    }
    let own = request.headers().get("x-backstop-key").map(HeaderValue::as_bytes);
    let sdk = credential::presented(request.headers(), request.uri().query()).filter(|_| as_credential);
    if [own, sdk].into_iter().flatten().any(|presented| is_one_of(presented, keys)) {
        return Ok(());
    }
    let how = if as_credential {
        "as the SDK's API key, or in the header x-backstop-key"
    } else {
        "in the header x-backstop-key"
    };
    let message = format!("this proxy asks its clients for a key (server.client_keys_env): present one {how}");
    Err(LocalReply::new(Fault::ClientKeyRequired, message))
}

/// In a time that depends on neither the keys nor where they differ: digests of one length are compared, all of them.
fn is_one_of(presented: &[u8], keys: &[Secret]) -> bool {
    let presented = Sha256::digest(presented);
    let matches = keys.iter().map(|key| Sha256::digest(key.expose().as_bytes()).ct_eq(&presented));
    bool::from(matches.fold(subtle::Choice::from(0), |any, one| any | one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_brackets() {
        for (host, name) in [("localhost:4290", "localhost"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a", "a")] {
            assert_eq!(host_name(host), name);
        }
    }

    #[test]
    fn pages_on_this_machine_may_call() {
        for (origin, fine) in [
            ("http://localhost:3000", true),
            ("https://127.0.0.1", true),
            ("http://[::1]:8080", true),
            ("http://localhost.evil.example", false),
            ("http://evil.example@localhost", false),
            ("http://localhost/", false),
            ("http://localhost#", false),
            ("https://evil.example", false),
            ("null", false),
            ("file://", false),
        ] {
            assert_eq!(is_loopback(origin), fine, "{origin}");
        }
    }

    #[test]
    fn what_a_foreign_page_embeds_is_refused() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (http::HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            pairs.iter().map(pair).collect::<HeaderMap>()
        };
        assert!(not_embedded(&headers(&[("sec-fetch-site", "cross-site")])).is_err());
        assert!(not_embedded(&headers(&[("sec-fetch-site", "same-origin")])).is_ok());
        assert!(not_embedded(&headers(&[])).is_ok());
        // With an Origin, that one decides.
        assert!(
            not_embedded(&headers(&[("sec-fetch-site", "cross-site"), ("origin", "https://listed.example")])).is_ok()
        );
    }

    #[test]
    fn keys_are_compared_whole() {
        let keys = [Secret::new("alpha"), Secret::new("beta")];
        assert!(is_one_of(b"beta", &keys));
        assert!(!is_one_of(b"bet", &keys) && !is_one_of(b"", &keys) && !is_one_of(b"beta ", &keys));
    }
}
