//! Tree → validated config. One function a section; each asks for all its keys, then builds.

mod fallback;
mod global;
mod limits;
mod rules;
mod unbuilt;
mod upstream;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::Config;
use super::section::{Context, Section};
use super::tree::{Node, Value};

/// Read the whole config. `None` after a fault was noted. `dir` is where relative file names start.
pub(super) fn config(cx: &Context<'_>, root: &Node, dir: &Path, sole: bool) -> Option<Config> {
    let mut s = Section::open(cx, root);
    let names = names(root.get("upstreams"));
    let server = s.section("server").and_then(|s| global::server(s, &names, dir));
    let bucket = s.required("retry").and_then(|node| global::retry(cx, node));
    s.required("timeouts").and_then(|node| global::timeouts(cx, node));
    s.required("stream").and_then(|node| global::stream(cx, node));
    s.section("breaker").and_then(limits::breaker);
    s.section("admission").and_then(limits::admission);
    let redis = s.section("redis").and_then(limits::redis);
    let idempotency = s.section("idempotency").and_then(limits::idempotency);
    let log = s.section("log").and_then(global::log);
    let unbuilt = unbuilt::sections(&mut s);
    let rules = s.optional("classify").map_or(Some(Vec::new()), |node| rules::rules(cx, node, &names));
    let upstreams = s.required("upstreams").and_then(|node| upstreams(cx, root, node, &names, dir));
    s.finish();

    let server = server?;
    global::check_exposure(cx, root, &server);
    global::check_state_dir(cx, root, &server, idempotency?);
    let (rules, bucket, redis, idempotency, log) = (rules?, bucket?, redis?, idempotency?, log?);
    unbuilt?;
    let upstreams = upstreams?.into_iter().map(|(name, mut upstream)| {
        upstream.rules = rules::of_upstream(&rules, &name);
        (name, Arc::new(upstream))
    });
    let sole_upstream = sole.then(|| super::SOLE.to_owned());
    Some(Config { server, bucket, upstreams: upstreams.collect(), redis, idempotency, log, sole_upstream })
}

fn names(upstreams: Option<&Node>) -> Vec<&str> {
    upstreams.and_then(Node::table).into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

fn upstreams(
    cx: &Context<'_>,
    root: &Node,
    node: &Node,
    names: &[&str],
    dir: &Path,
) -> Option<BTreeMap<String, super::Upstream>> {
    let Some(table) = node.table() else {
        cx.expected(node, "a table of upstreams");
        return None;
    };
    let read =
        |(name, node): (&String, &Node)| Some((name.clone(), upstream::upstream(cx, root, name, node, names, dir)?));
    // All are read before the first bad one counts.
    table.iter().map(read).collect::<Vec<_>>().into_iter().collect()
}

/// The global section `key` with an upstream's own keys on top; `None` if there is nothing sound to lay them on.
fn merged(root: &Node, own: Option<&Node>, key: &str, leave_out: &[&str]) -> Option<Node> {
    let mut node = root.get(key)?.clone();
    match &mut node.value {
        Value::Table(table) => leave_out.iter().for_each(|key| drop(table.remove(*key))),
        _ => return None,
    }
    if let Some(own) = own {
        node.overlay(own.clone());
    }
    Some(node)
}
