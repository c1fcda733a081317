//! What a request's headers say about its client: how long it waits, whether it repeats itself, what it can take.

use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue};

// What every call is looked through for. A name that is one already costs a fraction of a text that has to become one.
static OWN_IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("x-backstop-idempotency-key");
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
static OWN_KEY: HeaderName = HeaderName::from_static("x-backstop-key");

/// Headers that clients address to Backstop; none of them goes upstream.
pub const OWN_PREFIX: &str = "x-backstop-";

/// How long the client will wait, from the headers that SDKs send (seconds): the shortest of them. What is no number
/// (one SDK does send `NOT_GIVEN`), not above zero or beyond a year is passed over.
pub fn patience(headers: &HeaderMap) -> Option<Duration> {
    ["x-stainless-read-timeout", "x-stainless-timeout", "x-server-timeout"]
        .iter()
        .filter_map(|name| seconds(headers, name))
        .min()
}

/// When to answer a client that waits for so long: a tenth earlier, at least 100 ms and at most 10 s, so that the answer
/// is there before its timer fires.
pub fn answer_within(patience: Duration) -> Duration {
    let margin = (patience / 10).clamp(Duration::from_millis(100), Duration::from_secs(10));
    patience.saturating_sub(margin).max(patience / 2)
}

/// `x-backstop-deadline`, seconds.
pub fn deadline(headers: &HeaderMap) -> Option<Duration> {
    seconds(headers, "x-backstop-deadline")
}

/// `x-backstop-max-attempts`, 1 to 100.
pub fn max_attempts(headers: &HeaderMap) -> Option<u32> {
    let value = headers.get("x-backstop-max-attempts")?.to_str().ok()?;
    value.trim().parse().ok().filter(|attempts| (1..=100).contains(attempts))
}

/// `x-backstop-priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// A person waits.
    Interactive,
    /// Nothing was said.
    #[default]
    Normal,
    /// Nobody waits.
    Batch,
}

/// `x-backstop-priority`: `interactive` or `batch`; anything else says nothing.
pub fn priority(headers: &HeaderMap) -> Priority {
    match headers.get("x-backstop-priority").map(|value| value.as_bytes()) {
        Some(b"interactive") => Priority::Interactive,
        Some(b"batch") => Priority::Batch,
        _ => Priority::Normal,
    }
}

/// `x-backstop-run`: which run the request belongs to.
pub fn run(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get("x-backstop-run").map(|value| value.as_bytes()).filter(|run| !run.is_empty())
}

/// The key that makes a call one with others: Backstop's own header, else the standard one.
pub fn idempotency_key(headers: &HeaderMap) -> Option<&HeaderValue> {
    let own = headers.get(&OWN_IDEMPOTENCY_KEY).or_else(|| headers.get(&IDEMPOTENCY_KEY));
    own.filter(|key| !key.is_empty())
}

/// The SDK counts its retries, so that a repeat says that it is one.
pub fn counts_repeats(headers: &HeaderMap) -> bool {
    headers.contains_key(&RETRY_COUNT)
}

/// `x-backstop-key`: the client's own key for Backstop.
pub fn key(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(&OWN_KEY).map(|value| value.as_bytes()).filter(|key| !key.is_empty())
}

/// `x-backstop-stream`: `shield` (true) or `relay` (false).
pub fn shield(headers: &HeaderMap) -> Option<bool> {
    match headers.get("x-backstop-stream")?.as_bytes() {
        b"shield" => Some(true),
        b"relay" => Some(false),
        _ => None,
    }
}

/// The SDK says that it is repeating a logical call.
pub fn repeats_itself(headers: &HeaderMap) -> bool {
    let count = headers.get(&RETRY_COUNT).and_then(|value| value.to_str().ok());
    count.and_then(|text| text.trim().parse::<u32>().ok()).is_some_and(|count| count > 0)
}

/// Clients that were seen to take 102 Processing (the SDKs and HTTP libraries that `server.interim = "known"` names).
pub fn takes_interim(headers: &HeaderMap) -> bool {
    const AGENTS: [&str; 5] = ["undici", "google-genai", "ai-sdk", "ai/", "httpx"];
    if headers.contains_key("x-stainless-lang") || headers.contains_key("x-stainless-package-version") {
        return true;
    }
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    // Node's own fetch says just "node"; the others are one word of several ("python-httpx/0.28.1").
    agent == "node" || agent.starts_with("node/") || AGENTS.iter().any(|known| agent.contains(known))
}

fn seconds(headers: &HeaderMap, name: &str) -> Option<Duration> {
    const YEAR: f64 = 365.0 * 24.0 * 3600.0;
    let seconds: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    (seconds > 0.0 && seconds <= YEAR).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn priority_is_one_of_two_words() {
        assert_eq!(priority(&one("x-backstop-priority", "interactive")), Priority::Interactive);
        assert_eq!(priority(&one("x-backstop-priority", "batch")), Priority::Batch);
        assert_eq!(priority(&one("x-backstop-priority", "urgent!")), Priority::Normal);
        assert_eq!(run(&one("x-backstop-run", "")), None);
    }

    #[test]
    fn patience_is_read_and_nonsense_passed_over() {
        assert_eq!(patience(&one("x-stainless-read-timeout", "1.5")), Some(Duration::from_millis(1500)));
        for nonsense in ["NOT_GIVEN", "", "inf", "nan", "-1", "1e400", "soon", "0"] {
            assert_eq!(patience(&one("x-stainless-timeout", nonsense)), None, "{nonsense:?}");
        }
    }

    #[test]
    fn the_answer_comes_before_the_client_gives_up() {
        for (waits, answered) in [(600.0, 590.0), (2.0, 1.8), (0.15, 0.075)] {
            let got = answer_within(Duration::from_secs_f64(waits)).as_secs_f64();
            assert!((got - answered).abs() < 1e-9, "{waits} s: {got} s");
        }
    }

    #[test]
    fn known_clients_take_interim_answers() {
        for agent in
            ["node", "undici", "google-genai-sdk/1.2 gl-node/v20", "python-x ai-sdk/openai", "python-httpx/0.28.1"]
        {
            assert!(takes_interim(&one("user-agent", agent)), "{agent}");
        }
        assert!(!takes_interim(&one("user-agent", "curl/8.0")));
    }
}
