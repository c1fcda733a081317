//! `[server]`, `[retry]`, `[timeouts]`, `[log]`, and what must hold between them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::mask;
use crate::config::section::{Context, Section, as_str};
use crate::config::tree::Node;
use crate::config::{Idempotency, Interim, Log, Retry, RetryBucket, Secret, Server, Stream, StreamMode, Timeouts};
use crate::policy::backoff::Jitter;
use crate::policy::safety::Ambiguous;

/// `[server]`.
pub(super) fn server(mut s: Section<'_>, names: &[&str], dir: &Path) -> Option<Server> {
    let listen = listen(&mut s);
    let default_upstream = default_upstream(&mut s, names);
    let limits = body_limits(&mut s);
    let max_connections = s.int("max_connections", 1..=1_000_000_i64);
    let drain_timeout = s.duration("drain_timeout");
    let interim =
        s.one_of("interim", &[("known", Interim::Known), ("always", Interim::Always), ("never", Interim::Never)]);
    let client_keys = client_keys(&mut s);
    let allowed_hosts = allowed_hosts(&mut s, listen);
    let allowed_origins = allowed_origins(&mut s);
    let state_dir = state_dir(&mut s, dir);
    s.finish();
    let (max_body, replay_body) = limits?;
    let (client_keys_env, client_keys) = client_keys?;
    Some(Server {
        listen: listen?,
        default_upstream: default_upstream?,
        max_body,
        replay_body,
        max_connections: usize::try_from(max_connections?).ok()?,
        drain_timeout: drain_timeout?,
        interim: interim?,
        client_keys_env,
        client_keys,
        allowed_hosts: allowed_hosts?,
        allowed_origins: allowed_origins?,
        state_dir: state_dir?,
    })
}

/// The one that is named, else that of the user by the XDG rules, which pass over a path that is not absolute.
fn state_dir(s: &mut Section<'_>, dir: &Path) -> Option<Option<PathBuf>> {
    if let Some(named) = s.set_string("state_dir")? {
        return Some(Some(dir.join(named)));
    }
    let variable = |name| s.cx.env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(variable("HOME")?.join(".local/state"));
    Some(variable("XDG_STATE_HOME").or_else(home).map(|state| state.join("backstop")))
}

/// An address, or `localhost:PORT`. Other names are refused: which address they mean is for their owner to say.
fn listen(s: &mut Section<'_>) -> Option<SocketAddr> {
    let text = s.string("listen")?;
    let local = || {
        let port = text.strip_prefix("localhost:")?.parse().ok()?;
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    };
    let address = text.parse().ok().or_else(local);
    if let (None, Some(node)) = (address, s.optional("listen")) {
        s.cx.expected(node, "an address with a port, like \"127.0.0.1:4290\", \"[::1]:4290\" or \"localhost:4290\"");
    }
    address
}

fn default_upstream(s: &mut Section<'_>, names: &[&str]) -> Option<Option<String>> {
    let name = s.set_string("default_upstream")?;
    let node = s.optional("default_upstream")?;
    if let Some(name) = name.filter(|name| !names.contains(name)) {
        s.cx.expected(node, &super::upstream::expected_name(name, names.iter().copied()));
        return None;
    }
    Some(name.map(str::to_owned))
}

/// `max_body` and `replay_body`. A default `replay_body` follows a smaller `max_body`; one that somebody wrote must fit.
fn body_limits(s: &mut Section<'_>) -> Option<(u64, u64)> {
    let (max, replay) = (s.size("max_body"), s.size("replay_body"));
    let (max, replay) = (max?, replay?);
    let (max_node, replay_node) = (s.optional("max_body")?, s.optional("replay_body")?);
    if max == 0 {
        s.cx.expected(max_node, "a size above zero");
        return None;
    }
    if replay > max && !replay_node.at.is_default() {
        s.cx.fault(replay_node, "is larger than server.max_body: expected at most that");
        return None;
    }
    Some((max, replay.min(max)))
}

/// The variable's name and the keys in it. A variable without keys would lock everybody out, so it is a fault.
fn client_keys(s: &mut Section<'_>) -> Option<(Option<String>, Vec<Secret>)> {
    let Some(name) = s.set_string("client_keys_env")? else {
        return Some((None, Vec::new()));
    };
    let node = s.optional("client_keys_env")?;
    let value = variable(s.cx, node, name)?;
    let keys: Vec<Secret> = value.split(',').map(str::trim).filter(|key| !key.is_empty()).map(Secret::new).collect();
    if keys.is_empty() {
        s.cx.fault(node, "the variable that it names holds no key, expected keys with commas between them");
        return None;
    }
    Some((Some(name.to_owned()), keys))
}

/// The value of the variable that `name` names. A key pasted in place of a name must not be printed,
/// so only what looks like a usual name is.
pub(super) fn variable(cx: &Context<'_>, node: &Node, name: &str) -> Option<String> {
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        cx.expected(node, "the name of an environment variable, like \"MY_API_KEY\" (letters, digits, `_`)");
        return None;
    }
    let value = cx.env(name);
    if value.is_none() {
        let usual = name.len() <= 64 && name.bytes().all(|b| !b.is_ascii_lowercase());
        let shown = if usual { name } else { "that it names" };
        cx.fault(node, format!("the environment variable {shown} is not set or empty"));
    }
    value
}

/// Lower case, brackets around IPv6, and the listen address itself unless it is "all addresses", which is no host.
fn allowed_hosts(s: &mut Section<'_>, listen: Option<SocketAddr>) -> Option<Vec<String>> {
    let items = s.strings("allowed_hosts")?;
    let read = |(node, text): (&Node, &str)| {
        let host = host(text);
        if host.is_none() {
            s.cx.expected(node, "a host without port, like \"proxy.example\", \"10.0.0.7\" or \"[::1]\"");
        }
        host
    };
    let mut hosts = items.into_iter().map(read).collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>()?;
    let own = listen.map(|address| address.ip()).filter(|ip| !ip.is_unspecified()).and_then(|ip| host(&ip.to_string()));
    hosts.extend(own.filter(|own| !hosts.contains(own)));
    Some(hosts)
}

fn host(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    if let Ok(IpAddr::V6(ip)) = inner.parse() {
        return Some(format!("[{ip}]"));
    }
    let legal = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    (legal && !text.is_empty()).then(|| text.to_ascii_lowercase())
}

/// `scheme://host[:port]`, lower case, as browsers write it.
fn allowed_origins(s: &mut Section<'_>) -> Option<Vec<String>> {
    let items = s.strings("allowed_origins")?;
    let read = |(node, text): (&Node, &str)| {
        let legal = is_origin(text);
        if !legal {
            s.cx.expected(node, "an origin: scheme://host or scheme://host:port, nothing after it");
        }
        legal.then(|| text.to_ascii_lowercase())
    };
    items.into_iter().map(read).collect::<Vec<_>>().into_iter().collect()
}

/// Schemes of browser extensions are origins too (`chrome-extension://…`).
fn is_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let scheme_ok = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (rest, None),
    };
    let port_ok = port.is_none_or(|port| port.parse::<u16>().is_ok() && !port.starts_with('+'));
    scheme_ok && port_ok && host(name).is_some()
}

/// `[retry]` itself: checks the global keys, and gives the bucket, which is global alone.
pub(super) fn retry(cx: &Context<'_>, node: &Node) -> Option<RetryBucket> {
    let mut s = Section::open(cx, node);
    let bucket = s.section("bucket").and_then(bucket);
    retry_keys(s)?;
    bucket
}

fn bucket(mut s: Section<'_>) -> Option<RetryBucket> {
    let rate = s.number("rate", "a number above 0 (tokens a second)", |n| n > 0.0);
    let burst = s.int("burst", 1..=u32::MAX);
    s.finish();
    Some(RetryBucket { rate: rate?, burst: burst? })
}

/// The keys of `[retry]` that an upstream may override.
pub(super) fn retry_keys(mut s: Section<'_>) -> Option<Retry> {
    let max_attempts = s.int("max_attempts", 1..=100);
    let base_delay = s.period("base_delay");
    let max_delay = s.period("max_delay");
    let multiplier = s.number("multiplier", "a number from 1 to 100", |n| (1.0..=100.0).contains(&n));
    let jitter = s.one_of("jitter", &JITTER);
    let deadline = s.period("deadline");
    let respect_client_timeout = s.bool("respect_client_timeout");
    let max_wait_hint = s.duration("max_wait_hint");
    let ambiguous = s.one_of("ambiguous", &AMBIGUOUS);
    let ambiguous_attempts = s.int("ambiguous_attempts", 1..=100);
    let empty = s.bool("empty");
    check_delays(&mut s, base_delay, max_delay);
    s.finish();
    Some(Retry {
        max_attempts: max_attempts?,
        base_delay: base_delay?,
        max_delay: max_delay?,
        multiplier: multiplier?,
        jitter: jitter?,
        deadline: deadline?,
        respect_client_timeout: respect_client_timeout?,
        max_wait_hint: max_wait_hint?,
        ambiguous: ambiguous?,
        ambiguous_attempts: ambiguous_attempts?,
        empty: empty?,
    })
}

const JITTER: [(&str, Jitter); 4] =
    [("full", Jitter::Full), ("equal", Jitter::Equal), ("additive", Jitter::Additive), ("none", Jitter::None)];
const AMBIGUOUS: [(&str, Ambiguous); 3] =
    [("safe", Ambiguous::Safe), ("always", Ambiguous::Always), ("never", Ambiguous::Never)];

/// The fault is told at the key that was written last, which need not be the one that was written wrong: it names both.
fn check_delays(s: &mut Section<'_>, base: Option<Duration>, max: Option<Duration>) {
    let (Some(base), Some(max)) = (base, max) else {
        return;
    };
    let (Some(a), Some(b)) = (s.optional("base_delay"), s.optional("max_delay")) else {
        return;
    };
    if max < base {
        let (base, max) = (humantime::format_duration(base), humantime::format_duration(max));
        let node = if a.at > b.at { a } else { b };
        s.cx.fault(node, format!("max_delay ({max}) is below base_delay ({base}), expected at least that"));
    }
}

/// `[timeouts]`: checks the global keys.
pub(super) fn timeouts(cx: &Context<'_>, node: &Node) -> Option<Timeouts> {
    let mut s = Section::open(cx, node);
    let connect = s.period("connect");
    let first_byte = s.period("first_byte");
    let stream_first_event = s.period("stream_first_event");
    let stream_idle = s.period("stream_idle");
    s.finish();
    Some(Timeouts {
        connect: connect?,
        first_byte: first_byte?,
        stream_first_event: stream_first_event?,
        stream_idle: stream_idle?,
    })
}

/// `[log]`.
pub(super) fn log(mut s: Section<'_>) -> Option<Log> {
    use tracing::Level;
    let json = s.one_of("format", &[("text", false), ("json", true)]);
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    let level = s.one_of("level", &levels);
    s.finish();
    Some(Log { json: json?, level: level? })
}

/// `[stream]`, also for one upstream alone.
pub(super) fn stream(cx: &Context<'_>, node: &Node) -> Option<Stream> {
    let mut s = Section::open(cx, node);
    let mode = s.one_of("mode", &[("relay", StreamMode::Relay), ("shield", StreamMode::Shield)]);
    let heartbeat = s.duration("heartbeat");
    let hold = s.size("hold");
    s.finish();
    Some(Stream {
        mode: mode?,
        heartbeat: heartbeat.map(|beat| Some(beat).filter(|beat| !beat.is_zero()))?,
        hold: hold?,
    })
}

/// What is to survive a restart needs a place.
pub(super) fn check_state_dir(cx: &Context<'_>, root: &Node, server: &Server, idempotency: Idempotency) {
    let node = root.get("idempotency").and_then(|s| s.get("durable"));
    if let (true, None, Some(node)) = (idempotency.durable, &server.state_dir, node) {
        cx.fault(node, "has no place: set server.state_dir, as neither XDG_STATE_HOME nor HOME says where");
    }
}

/// Whoever reaches the listener uses the credentials behind it: from other machines only with a key.
pub(super) fn check_exposure(cx: &Context<'_>, root: &Node, server: &Server) {
    if server.listen.ip().to_canonical().is_loopback() || server.client_keys_env.is_some() {
        return;
    }
    let keyed = root
        .get("upstreams")
        .and_then(Node::table)
        .and_then(|table| table.iter().find(|(_, upstream)| holds_credential(upstream)));
    let node = root.get("server").and_then(|s| s.get("listen"));
    if let (Some((name, _)), Some(node)) = (keyed, node) {
        let message = "other machines can reach this address and would use the credential of upstream";
        cx.fault(node, format!("{message} `{name}`: set server.client_keys_env, or listen on 127.0.0.1"));
    }
}

/// Backstop puts a credential in for this upstream: by `api_key_env`, as a header, or in front of the URL's host.
fn holds_credential(upstream: &Node) -> bool {
    let text = |key| upstream.get(key).and_then(|node| as_str(&node.value)).unwrap_or_default();
    let headers = upstream.get("headers").and_then(Node::table);
    let in_headers = headers.is_some_and(|table| table.iter().any(|(name, _)| mask::is_secret_name(name)));
    let authority = text("base_url").split("://").last().unwrap_or_default().split('/').next().unwrap_or_default();
    !text("api_key_env").is_empty() || in_headers || authority.contains('@')
}
