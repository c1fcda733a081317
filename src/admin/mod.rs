//! Backstop's own pages: metrics, health, and the index of what there is.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};

use crate::instance::Instance;
use crate::relay::OutBody;

/// A page of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// `/metrics`
    Metrics,
    /// `/healthz`
    Health,
    /// `/readyz`
    Ready,
    /// `/_backstop/`
    Index,
    /// `/_backstop/…` that is nothing.
    Unknown,
}

/// The page at a path; `None`: the path is not ours.
pub fn page(path: &str) -> Option<Page> {
    match path {
        "/metrics" => Some(Page::Metrics),
        "/healthz" => Some(Page::Health),
        "/readyz" => Some(Page::Ready),
        "/_backstop" | "/_backstop/" => Some(Page::Index),
        _ if path.starts_with("/_backstop/") => Some(Page::Unknown),
        _ => None,
    }
}

impl Page {
    /// Client keys are asked for here. Metrics and health stay open: scrapers and probes hold none.
    pub fn is_private(self) -> bool {
        matches!(self, Page::Index | Page::Unknown)
    }

    /// Answer for it.
    pub fn render(self, instance: &Instance, method: &Method) -> Response<OutBody> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n");
        }
        match self {
            Page::Metrics => respond(StatusCode::OK, PROMETHEUS, metrics(instance)),
            Page::Health => text(StatusCode::OK, PLAIN, "ok\n"),
            Page::Ready if instance.lasting.drain.end().is_some() => {
                text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "draining\n")
            }
            Page::Ready => text(StatusCode::OK, PLAIN, "ready\n"),
            Page::Index => html(index(instance)),
            Page::Unknown => {
                text(StatusCode::NOT_FOUND, JSON, "{\"error\":{\"type\":\"not_found\",\"message\":\"no such page\"}}\n")
            }
        }
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics, with gauges of how things stand now.
pub fn metrics(instance: &Instance) -> Vec<u8> {
    let lasting = &instance.lasting;
    for name in instance.routes.names() {
        lasting.metrics.gates(name, &lasting.admission.look(name));
    }
    if let Some(up) = lasting.admission.redis_is_up() {
        lasting.metrics.redis(up);
    }
    lasting.metrics.render(instance.bucket.level())
}

/// What there is to see, for a person: no script, no style from elsewhere, no secret.
fn index(instance: &Instance) -> String {
    let upstreams: String = instance
        .routes
        .names()
        .iter()
        .map(|name| format!("<tr><th scope=\"row\">{name}</th><td><code>/{name}/…</code></td></tr>"))
        .collect();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Backstop</title><h1>Backstop {version}</h1>\
         <p>Running. What happens is counted at <a href=\"/metrics\">/metrics</a>; health is at <a href=\"/healthz\">/healthz</a> \
         and <a href=\"/readyz\">/readyz</a>.</p><table><caption>Upstreams, and the path that leads to each</caption>{upstreams}</table></html>",
        version = env!("CARGO_PKG_VERSION"),
    )
}

fn html(page: String) -> Response<OutBody> {
    let mut response = respond(StatusCode::OK, "text/html; charset=utf-8", page.into_bytes());
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'");
    headers.insert(HeaderName::from_static("content-security-policy"), policy);
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
    response
}

fn text(status: StatusCode, kind: &'static str, text: &'static str) -> Response<OutBody> {
    respond(status, kind, text.as_bytes().to_vec())
}

fn respond(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<OutBody> {
    let mut response = Response::new(OutBody::held(vec![body.into()], None));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}
