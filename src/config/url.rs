//! URLs: of an upstream, of a redis server.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

/// A base URL, its userinfo made into the header that it stands for.
#[derive(Debug)]
pub(super) struct BaseUrl {
    /// Scheme, host, port, path prefix without a slash at its end.
    pub uri: Uri,
    /// `Basic …`, from `user:password@`.
    pub authorization: Option<HeaderValue>,
}

/// Read a base URL; the error says what was expected.
pub(super) fn parse(text: &str) -> Result<BaseUrl, &'static str> {
    const URL: &str = "an absolute URL, like \"https://api.example.com\" or \"http://127.0.0.1:8080/prefix\"";
    // `Uri` drops fragments without a word.
    if text.contains(['?', '#']) {
        return Err("a URL without `?` and `#`");
    }
    let parts = text.parse::<Uri>().map_err(|_| URL)?.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(URL);
    };
    if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
        return Err("a URL that starts with http:// or https://");
    }
    let (userinfo, host) = split_userinfo(&authority)?;
    let path = parts.path_and_query.as_ref().map_or("/", PathAndQuery::path).trim_end_matches('/');
    let path = if path.is_empty() { "/" } else { path };
    let uri = Uri::builder().scheme(scheme).authority(host).path_and_query(path).build().map_err(|_| URL)?;
    let authorization = userinfo.map(basic).transpose()?;
    Ok(BaseUrl { uri, authorization })
}

/// Check the URL of a redis server; the error says what was expected. Its own client reads it.
pub(super) fn check_redis(text: &str) -> Result<(), &'static str> {
    const URL: &str = "a URL like \"redis://user:password@127.0.0.1:6379/0\", with %40 and the like in the password";
    // Behind `#` that client takes a word that turns the check of certificates off.
    if text.contains(['?', '#']) {
        return Err("a URL without `?` and `#` (in a password: %3F and %23)");
    }
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !matches!(scheme.as_deref(), Some("redis" | "rediss")) {
        return Err("a URL that starts with redis:// or rediss:// (TLS)");
    }
    let parts = text.parse::<Uri>().map_err(|_| URL)?.into_parts();
    let authority = parts.authority.ok_or(URL)?;
    let (userinfo, _) = split_userinfo(&authority)?;
    if userinfo.is_some_and(|userinfo| String::from_utf8(percent_decode(userinfo)).is_err()) {
        return Err(URL);
    }
    let database = parts.path_and_query.as_ref().map_or("", PathAndQuery::path).trim_start_matches('/');
    let whole = database.bytes().all(|b| b.is_ascii_digit()) && database.len() <= 9;
    if whole { Ok(()) } else { Err("a URL with nothing behind the host but the number of a database, like /0") }
}

/// What stands before the last `@`, and the host with its port.
fn split_userinfo(authority: &Authority) -> Result<(Option<&str>, Authority), &'static str> {
    const HOST: &str = "a URL with a host, and a port from 1 to 65535 if any";
    let (userinfo, host) = match authority.as_str().rsplit_once('@') {
        Some((userinfo, host)) => (Some(userinfo), host),
        None => (None, authority.as_str()),
    };
    let host: Authority = host.parse().map_err(|_| HOST)?;
    let port_is_bad = host.as_str().len() > host.host().len() && host.port_u16().is_none_or(|port| port == 0);
    if host.host().is_empty() || port_is_bad { Err(HOST) } else { Ok((userinfo, host)) }
}

fn basic(userinfo: &str) -> Result<HeaderValue, &'static str> {
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let mut bytes = percent_decode(user);
    bytes.push(b':');
    bytes.extend(percent_decode(password));
    let mut value = HeaderValue::from_str(&format!("Basic {}", base64(&bytes)))
        .map_err(|_| "a URL with another user or password")?;
    value.set_sensitive(true);
    Ok(value)
}

/// `%40` → `@`. A `%` that starts no code stands for itself.
fn percent_decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|code| *first == b'%' && code.iter().all(u8::is_ascii_hexdigit));
        let byte = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    bytes
}

/// Standard alphabet, padded.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let sextet = (bits >> (18 - 6 * i)) & 63;
            out.push(if i <= chunk.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_at_the_end_go_and_the_prefix_stays() {
        assert_eq!(parse("https://h/api/").unwrap().uri, "https://h/api");
        assert_eq!(parse("https://h").unwrap().uri, "https://h/");
        assert_eq!(parse("http://[::1]:80").unwrap().uri, "http://[::1]:80/");
    }

    #[test]
    fn userinfo_becomes_a_header() {
        let url = parse("http://user:p%40ss@h:1/x").unwrap();
        assert_eq!(url.uri, "http://h:1/x");
        assert_eq!(url.authorization.unwrap(), "Basic dXNlcjpwQHNz");
        assert_eq!(parse("http://token@h").unwrap().authorization.unwrap(), "Basic dG9rZW46");
    }

    #[test]
    fn what_is_no_base_url_is_refused() {
        for text in [
            "",
            "not a url",
            "127.0.0.1:9",
            "/v1",
            "ftp://h",
            "http://",
            "http://h?x=1",
            "http://h#x",
            "http://h:99999",
            "http://h:0",
            "http://h:",
            "http://u@",
            "localhost:80",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn redis_urls() {
        for text in [
            "redis://h",
            "rediss://h:6380",
            "REDIS://h/",
            "redis://:p%40ss@[::1]:6379/15",
            "redis://user:p@ss@10.0.0.7/0",
        ] {
            assert_eq!(check_redis(text), Ok(()), "{text}");
        }
        for (text, expected) in [
            ("h:6379", "starts with redis://"),
            ("http://h", "starts with redis://"),
            ("unix:///run/redis.sock", "starts with redis://"),
            ("redis+unix:///run/redis.sock", "starts with redis://"),
            ("redis://", "a URL like"),
            ("redis:///0", "a URL like"),
            ("redis://a b", "a URL like"),
            ("redis://:%ff@h", "a URL like"),
            ("redis://u:p@", "a URL like"),
            ("redis://:p/q@h", "a URL with a host"),
            ("redis://h:0", "a port from 1"),
            ("redis://h:99999", "a port from 1"),
            ("redis://h/zero", "number of a database"),
            ("redis://h/0/1", "number of a database"),
            ("rediss://h/#insecure", "without `?` and `#`"),
            ("redis://h/?db=1", "without `?` and `#`"),
        ] {
            let told = check_redis(text).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
        }
    }

    #[test]
    fn base64_of_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(percent_decode("a%2Fb%zz%4"), b"a/b%zz%4");
    }
}
