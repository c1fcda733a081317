//! CORS, for the origins that may call and for nobody else.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, VARY,
};
use http::{Method, Request, Response, StatusCode};

use crate::relay::OutBody;

/// The answer to a preflight; `None` if the request is none. It says yes to what is asked: who may ask was decided before.
pub fn preflight<B>(request: &Request<B>, origin: &HeaderValue) -> Option<Response<OutBody>> {
    let asked = request.headers();
    let method = asked.get(ACCESS_CONTROL_REQUEST_METHOD).filter(|_| request.method() == Method::OPTIONS)?;
    let mut response = Response::new(OutBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    allow(headers, origin);
    Some(response)
}

/// Let a page of this origin read the answer, whatever the upstream says of origins.
pub fn allow(headers: &mut HeaderMap, origin: &HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    headers.append(VARY, HeaderValue::from_static("origin"));
}
