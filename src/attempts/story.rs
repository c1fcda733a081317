//! What happened to a call, in words: what, how often, how long, and what to do. No secret is in it: no query, no header.

use std::time::Duration;

use crate::admission::gate::Refused;
use crate::call::Call;
use crate::policy::failure::{Kind, Phase, TransportError};

/// The message of an error for a call whose attempts all failed on the way.
pub fn failed(call: &Call, attempts: u32, error: &TransportError, unknown_outcome: bool) -> String {
    let name = &call.route.upstream.config.name;
    let mut message = format!("upstream {name}: {error}; {}", tried(call, attempts));
    message.push_str(match (unknown_outcome, error.phase, error.kind) {
        (true, ..) => UNKNOWN,
        (_, _, Kind::Certificate) => ". Verification is never turned off",
        (_, Phase::Connect, _) => ". Nothing was sent. Check upstreams.*.base_url and the network",
        (_, _, Kind::Timeout) => ". The upstream took the request and gave no answer in time; see [timeouts]",
        _ => ". The connection was lost after the request was sent",
    });
    message
}

/// The message of an error for a call whose deadline passed.
pub fn deadline(call: &Call, attempts: u32, unknown_outcome: bool) -> String {
    let name = &call.route.upstream.config.name;
    let mut message = format!(
        "no answer from upstream {name} by the deadline of {} (retry.deadline, or the client's own timeout if shorter); {}",
        round(call.deadline.saturating_duration_since(call.arrived)),
        tried(call, attempts)
    );
    message.push_str(if unknown_outcome { UNKNOWN } else { ". Raise the deadline or the client's timeout" });
    message
}

/// The message of an error for a call that was not let through.
pub fn sent_away(call: &Call, refused: Refused) -> String {
    let name = &call.route.upstream.config.name;
    let why = match refused {
        Refused::Full(_) => format!("too many requests wait for upstream {name} (admission.queue)"),
        Refused::TooLate(_) => {
            format!(
                "upstream {name} takes no request in time: its limits (admission, or the wait it asked for) end after this request's deadline"
            )
        }
        Refused::Open(_) => format!(
            "the circuit breaker of upstream {name} is open: it failed too often of late (breaker), and is left alone for a while"
        ),
    };
    format!("{why}; nothing was sent. Come back after the Retry-After")
}

/// Told of a request that may have created something: it is not repeated.
const UNKNOWN: &str = ". The request was sent and its outcome upstream is unknown: it may have been carried out, so it was not repeated. \
     Check what exists there (list the files, batches or jobs) before sending it again";

/// One attempt, for the log.
pub fn detail(failure: &Option<&TransportError>, status: &Option<u16>) -> String {
    match (failure, status) {
        (Some(error), _) => error.to_string(),
        (None, Some(status)) => format!("status {status}"),
        (None, None) => "the deadline passed".into(),
    }
}

fn tried(call: &Call, attempts: u32) -> String {
    let times = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    format!("{times} in {}", round(call.arrived.elapsed()))
}

/// A duration without false precision.
fn round(duration: Duration) -> String {
    let millis = Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    let rounded = if millis < Duration::from_secs(10) { millis } else { Duration::from_secs(millis.as_secs()) };
    humantime::format_duration(rounded).to_string()
}
