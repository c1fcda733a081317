//! `[upstreams.NAME]`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{fallback, global, limits, merged};
use crate::config::section::{Context, Section, as_str};
use crate::config::tree::Node;
use crate::config::url::{self, BaseUrl};
use crate::config::{Admission, Http2, Retry, Secret, Stream, Timeouts, Upstream, mask};
use crate::policy::breaker;
use crate::wire::dialect::{Dialect, credential};

/// First path segments that mean something else.
const RESERVED: [&str; 7] = ["metrics", "healthz", "readyz", "_backstop", "v1", "v1beta", "v1alpha"];

/// Headers that belong to the connection or that Backstop writes itself.
const FORBIDDEN: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
];

const HTTP2: [(&str, Http2); 3] =
    [("auto", Http2::Auto), ("never", Http2::Never), ("prior-knowledge", Http2::PriorKnowledge)];

/// Read one. `names` are all upstreams' names; `dir` is where relative file names start. Its rules come later.
pub(super) fn upstream(
    cx: &Context<'_>,
    root: &Node,
    name: &str,
    node: &Node,
    names: &[&str],
    dir: &Path,
) -> Option<Upstream> {
    let named = check_name(cx, name, node);
    let mut s = Section::open(cx, node);
    let base_url = base_url(&mut s);
    let dialect = s.one_of("dialect", &Dialect::ALL.map(|dialect| (dialect.name(), dialect)));
    let key = api_key(&mut s);
    let headers = s.required("headers").and_then(|node| headers(cx, node));
    let http2 = s.one_of("http2", &HTTP2);
    let ca_file = ca_file(&mut s, dir);
    let fallbacks = fallback::fallbacks(&mut s, root, name, names);
    let model_map = s.required("model_map").and_then(|node| fallback::model_map(cx, node));
    let idempotency_header = idempotency_header(&mut s);
    let merged = overrides(&mut s, root);
    s.finish();

    let BaseUrl { uri, authorization } = base_url?;
    let (api_key_env, api_key) = key?;
    named?;
    Some(Upstream {
        name: Arc::from(name),
        base_url: uri,
        dialect: dialect?,
        api_key_env,
        api_key,
        headers: with_authorization(headers?, authorization),
        http2: http2?,
        ca_file: ca_file?,
        retry: merged.retry?,
        timeouts: merged.timeouts?,
        stream: merged.stream?,
        breaker: merged.breaker?,
        admission: merged.admission?,
        fallbacks: fallbacks?,
        model_map: model_map?,
        idempotency_header: idempotency_header?,
        rules: Vec::new(),
    })
}

/// The name is a path segment and a metric label, and must not hide an endpoint.
fn check_name(cx: &Context<'_>, name: &str, node: &Node) -> Option<()> {
    let legal = !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if !legal {
        cx.fault(node, "not a name for an upstream, expected a-z, 0-9, `_` and `-`, 64 at most");
    } else if RESERVED.contains(&name) {
        cx.fault(node, format!("the path /{name} has another meaning, expected another name for this upstream"));
    } else {
        return Some(());
    }
    None
}

/// What to say of a name that no upstream has.
pub(super) fn expected_name<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    match crate::config::suggest::nearest(name, names.clone()) {
        Some(near) => format!("the name of an upstream; did you mean \"{near}\"?"),
        None => format!("the name of an upstream: {}", mask::short_list(names)),
    }
}

fn base_url(s: &mut Section<'_>) -> Option<BaseUrl> {
    let text = s.string("base_url")?;
    let node = s.optional("base_url")?;
    url::parse(text).map_err(|expected| s.cx.expected(node, expected)).ok()
}

/// The name of the variable and the credential in it.
fn api_key(s: &mut Section<'_>) -> Option<(Option<String>, Option<Secret>)> {
    let Some(name) = s.set_string("api_key_env")? else {
        return Some((None, None));
    };
    let node = s.optional("api_key_env")?;
    let value = global::variable(s.cx, node, name)?;
    let value = value.trim();
    if HeaderValue::from_str(value).is_err() {
        s.cx.fault(node, "the variable that it names holds characters that no header can carry");
        return None;
    }
    Some((Some(name.to_owned()), Some(Secret::new(value))))
}

/// The header that carries a key of each call; `None` inside: the upstream is not known to honour one.
fn idempotency_header(s: &mut Section<'_>) -> Option<Option<HeaderName>> {
    let Some(name) = s.set_string("idempotency_header")? else {
        return Some(None);
    };
    let node = s.optional("idempotency_header")?;
    let header = HeaderName::from_bytes(name.as_bytes()).ok();
    let legal = header.filter(|header| !FORBIDDEN.contains(&header.as_str()) && !credential::is_credential(header));
    if legal.is_none() {
        s.cx.expected(node, "the name of a header of its own, like \"idempotency-key\"");
    }
    legal.map(Some)
}

fn headers(cx: &Context<'_>, node: &Node) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let Some(table) = node.table() else {
        cx.expected(node, "a table of headers, like { \"x-team\" = \"blue\" }");
        return None;
    };
    let mut seen = Vec::new();
    let mut read = |(name, node): (&String, &Node)| {
        let pair = header(cx, name, node)?;
        if seen.contains(&pair.0) {
            cx.fault(node, "this header is given twice");
            return None;
        }
        seen.push(pair.0.clone());
        Some(pair)
    };
    table.iter().map(&mut read).collect::<Vec<_>>().into_iter().collect()
}

fn header(cx: &Context<'_>, name: &str, node: &Node) -> Option<(HeaderName, HeaderValue)> {
    let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
        cx.fault(node, "this is no name for a header");
        return None;
    };
    if FORBIDDEN.contains(&header.as_str()) {
        cx.fault(node, "this header belongs to the connection and can't be set");
        return None;
    }
    let Some(mut value) = as_str(&node.value).and_then(|text| HeaderValue::from_str(text).ok()) else {
        cx.expected(node, "a text that a header can carry: no line breaks, no control characters");
        return None;
    };
    value.set_sensitive(mask::is_secret_name(name));
    Some((header, value))
}

/// A header that is spelt out wins over the URL's userinfo.
fn with_authorization(
    mut headers: Vec<(HeaderName, HeaderValue)>,
    basic: Option<HeaderValue>,
) -> Vec<(HeaderName, HeaderValue)> {
    let given = headers.iter().any(|(name, _)| name == header::AUTHORIZATION);
    headers.extend(basic.filter(|_| !given).map(|value| (header::AUTHORIZATION, value)));
    headers
}

/// The file is read here so that a bad one is told at the start, not by the first call.
fn ca_file(s: &mut Section<'_>, dir: &Path) -> Option<Option<PathBuf>> {
    let Some(name) = s.set_string("ca_file")? else {
        return Some(None);
    };
    let node = s.optional("ca_file")?;
    let path = dir.join(name);
    match certificates(&path) {
        Ok(()) => Some(Some(path)),
        Err(why) => {
            s.cx.expected(node, &format!("a PEM file with at least one certificate: {}: {why}", path.display()));
            None
        }
    }
}

fn certificates(path: &Path) -> Result<(), String> {
    /// All roots of the world are a quarter of this.
    const LARGEST: u64 = 4 << 20;
    // A pipe or a device would hang or never end.
    if !std::fs::metadata(path).map_err(|e| e.to_string())?.is_file() {
        return Err("not a file".into());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err("larger than 4 MiB".into());
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(()),
        Ok(_) => Err("no certificate in it".into()),
        Err(_) => Err("not valid PEM".into()),
    }
}

/// The global sections with the upstream's own keys on top.
struct Overrides {
    retry: Option<Retry>,
    timeouts: Option<Timeouts>,
    stream: Option<Stream>,
    breaker: Option<Option<breaker::Settings>>,
    admission: Option<Admission>,
}

fn overrides(s: &mut Section<'_>, root: &Node) -> Overrides {
    let cx = s.cx;
    let mut own = |key, leave_out: &[&str]| merged(root, s.optional(key), key, leave_out);
    Overrides {
        retry: own("retry", &["bucket"]).and_then(|node| global::retry_keys(Section::open(cx, &node))),
        timeouts: own("timeouts", &[]).and_then(|node| global::timeouts(cx, &node)),
        stream: own("stream", &[]).and_then(|node| global::stream(cx, &node)),
        breaker: own("breaker", &[]).and_then(|node| limits::breaker(Section::open(cx, &node))),
        admission: own("admission", &[]).and_then(|node| limits::admission(Section::open(cx, &node))),
    }
}
