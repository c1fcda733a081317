//! `[breaker]` and `[admission]`, also for one upstream alone, `[redis]` and `[idempotency]`.

use crate::config::section::Section;
use crate::config::{Admission, Idempotency, Secret, url};
use crate::policy::breaker;

/// More than anyone sends; larger numbers are slips of the keyboard.
const MOST: u32 = 1_000_000_000;

/// `[breaker]`; `None` inside: it is off. Its other keys are checked all the same.
pub(super) fn breaker(mut s: Section<'_>) -> Option<Option<breaker::Settings>> {
    let enabled = s.bool("enabled");
    let window = s.period("window");
    let failure_ratio = s.number("failure_ratio", "a number above 0, up to 1", |n| n > 0.0 && n <= 1.0);
    let min_requests = s.int("min_requests", 1..=u32::MAX);
    let open_for = s.period("open_for");
    s.finish();
    let settings = breaker::Settings {
        window: window?,
        failure_ratio: failure_ratio?,
        min_requests: min_requests?,
        open_for: open_for?,
    };
    enabled.map(|enabled| enabled.then_some(settings))
}

/// `[admission]`.
pub(super) fn admission(mut s: Section<'_>) -> Option<Admission> {
    let requests_per_second = s.number("requests_per_second", "a number from 0 (0 = no fixed limit)", |n| n >= 0.0);
    let burst = s.int("burst", 0..=MOST);
    let tokens_per_minute = s.int("tokens_per_minute", 0..=u64::from(MOST));
    let max_concurrency = s.int("max_concurrency", 0..=MOST);
    let adaptive = s.bool("adaptive");
    let queue = s.int("queue", 1..=1_000_000);
    s.finish();
    Some(Admission {
        requests_per_second: requests_per_second?,
        burst: burst?,
        tokens_per_minute: tokens_per_minute?,
        max_concurrency: max_concurrency?,
        adaptive: adaptive?,
        queue: queue?,
    })
}

/// `[redis]`: the URL, hidden because a password may be in it; `None` inside: none is set.
pub(super) fn redis(mut s: Section<'_>) -> Option<Option<Secret>> {
    let url = url(&mut s);
    s.finish();
    url
}

/// `[idempotency]`.
pub(super) fn idempotency(mut s: Section<'_>) -> Option<Idempotency> {
    let coalesce = s.bool("coalesce");
    let replay_for = s.duration("replay_for");
    let linger = s.duration("linger");
    let auto = s.bool("auto");
    let durable = s.bool("durable");
    let max_bytes = s.size("max_bytes");
    s.finish();
    Some(Idempotency {
        coalesce: coalesce?,
        replay_for: replay_for?,
        linger: linger?,
        auto: auto?,
        durable: durable?,
        max_bytes: usize::try_from(max_bytes?).unwrap_or(usize::MAX),
    })
}

fn url(s: &mut Section<'_>) -> Option<Option<Secret>> {
    let Some(text) = s.set_string("url")? else {
        return Some(None);
    };
    let node = s.optional("url")?;
    url::check_redis(text).map_err(|expected| s.cx.expected(node, expected)).ok()?;
    Some(Some(Secret::new(text)))
}
