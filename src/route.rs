//! Which upstream a request is for, in which dialect, and the target as that upstream sees it.
//!
//! One rule joins `base_url` and path: the base's path (without its last slash) comes before the request's, and a version
//! segment (`v1`, `v1beta` …) that ends the one and begins the other is written once.

use std::collections::HashMap;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, Uri};

use crate::config::Config;
use crate::upstream::Upstream;
use crate::wire::dialect::Dialect;
use crate::wire::dialect::form;

/// Every upstream by name, and the rules for paths that name none.
pub struct RouteTable {
    upstreams: HashMap<String, Arc<Upstream>>,
    default: Option<String>,
    sole: Option<String>,
}

/// Where a request goes.
#[derive(Clone)]
pub struct Route {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// The dialect that its client speaks.
    pub dialect: Dialect,
    /// The target as the upstream sees it.
    pub target: PathAndQuery,
    /// The target before the upstream's own path was put before it; kept where there are fallbacks.
    pub rest: Option<Box<str>>,
}

impl Route {
    /// The same request at another upstream.
    pub fn towards(&self, upstream: &Arc<Upstream>) -> Option<Route> {
        let rest = self.rest.as_deref()?;
        let target = join(upstream.config.base_url.path(), rest)?;
        Some(Route { upstream: upstream.clone(), dialect: self.dialect, target, rest: None })
    }
}

impl RouteTable {
    /// `upstreams` are those of `config`.
    pub fn new(config: &Config, upstreams: HashMap<String, Arc<Upstream>>) -> Self {
        RouteTable { upstreams, default: config.server.default_upstream.clone(), sole: config.sole_upstream.clone() }
    }

    /// The route of a request; `None`: no upstream is named and the path's form says nothing.
    pub fn resolve(&self, target: &PathAndQuery, headers: &HeaderMap) -> Option<Route> {
        let path = target.path();
        if let Some(sole) = &self.sole {
            let upstream = self.upstreams.get(sole)?;
            let dialect = form::by_form(path, headers).unwrap_or(Dialect::Generic);
            return route(upstream, dialect, target.as_str());
        }
        let (name, _) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
        if let Some(upstream) = self.upstreams.get(name) {
            let rest = &target.as_str()[1 + name.len()..];
            return route(upstream, form::of_path(path, upstream.config.dialect), rest);
        }
        let by_form = || form::by_form(path, headers).map(Dialect::name);
        let upstream = self.upstreams.get(self.default.as_deref().or_else(by_form)?)?;
        route(upstream, form::of_path(path, upstream.config.dialect), target.as_str())
    }

    /// The dialect to tell an error in, also where there is no route.
    pub fn dialect(&self, uri: &Uri, headers: &HeaderMap) -> Dialect {
        let route = uri.path_and_query().and_then(|target| self.resolve(target, headers));
        route.map(|route| route.dialect).or_else(|| form::by_form(uri.path(), headers)).unwrap_or_default()
    }

    /// Backstop puts the upstream's credential in, so that the client's own is for Backstop.
    pub fn puts_credential(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let route = uri.path_and_query().and_then(|target| self.resolve(target, headers));
        route.is_some_and(|route| route.upstream.config.api_key.is_some())
    }

    /// An upstream by its name.
    pub fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.upstreams.get(name)
    }

    /// The names of all upstreams, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.upstreams.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

fn route(upstream: &Arc<Upstream>, dialect: Dialect, rest: &str) -> Option<Route> {
    let target = join(upstream.config.base_url.path(), rest)?;
    let kept = (!upstream.config.fallbacks.is_empty()).then(|| rest.into());
    Some(Route { upstream: upstream.clone(), dialect, target, rest: kept })
}

/// `base` + `rest`, byte for byte but for the slash between them and a version segment that both have.
fn join(base: &str, rest: &str) -> Option<PathAndQuery> {
    let base = base.trim_end_matches('/');
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    if base.is_empty() {
        return PathAndQuery::try_from(rest).ok();
    }
    let last = base.rsplit('/').next().unwrap_or_default();
    let first = rest[1..].split(['/', '?']).next().unwrap_or_default();
    let base = if is_version(last) && last == first { &base[..base.len() - last.len() - 1] } else { base };
    PathAndQuery::try_from(format!("{base}{rest}")).ok()
}

/// `v1`, `v2`, `v1beta`, `v1alpha` …
fn is_version(segment: &str) -> bool {
    let mut chars = segment.chars();
    chars.next() == Some('v')
        && chars.next().is_some_and(|c| c.is_ascii_digit())
        && chars.all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_and_path_are_joined_by_one_rule() {
        for (base, rest, want) in [
            ("/", "/v1/messages", "/v1/messages"),
            ("", "/v1/messages?beta=true", "/v1/messages?beta=true"),
            ("/v1", "/v1/messages", "/v1/messages"),
            ("/v1/", "/v1/messages", "/v1/messages"),
            ("/v1", "/chat/completions", "/v1/chat/completions"),
            ("/api/openai", "/v1/x%2Fy//z?a=%20+", "/api/openai/v1/x%2Fy//z?a=%20+"),
            ("/v1", "?x=1", "/v1/?x=1"),
            ("", "", "/"),
            ("", "/v1/files?", "/v1/files?"),
        ] {
            assert_eq!(join(base, rest).unwrap().as_str(), want, "{base} + {rest}");
        }
    }
}
