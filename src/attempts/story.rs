//! What happened to a call, in words: what, how often, how long, and what to do. No secret is in it: no query, no header.

use std::time::{Duration, SystemTime};

use crate::admission::gate::Refused;
use crate::call::Call;
use crate::policy::failure::{Kind, Phase, TransportError};

/// The message of an error for a call whose attempts all failed on the way.
pub fn failed(call: &Call, attempts: u32, error: &TransportError, unknown: Option<SystemTime>) -> String {
    let name = &call.route.upstream.config.name;
    let mut message = format!("upstream {name}: {error}; {}", tried(call, attempts));
    if let Some(sent_at) = unknown {
        return message + &unknown_outcome(call, sent_at);
    }
    message.push_str(match (error.phase, error.kind) {
        (_, Kind::Certificate) => ". Verification is never turned off",
        (Phase::Connect, _) => ". Nothing was sent. Check upstreams.*.base_url and the network",
        (_, Kind::Timeout) => ". The upstream took the request and gave no answer in time; see [timeouts]",
        _ => ". The connection was lost after the request was sent",
    });
    message
}

/// The message of an error for a call whose deadline passed.
pub fn deadline(call: &Call, attempts: u32, unknown: Option<SystemTime>) -> String {
    let name = &call.route.upstream.config.name;
    let message = format!(
        "no answer from upstream {name} by the deadline of {} (retry.deadline, or the client's own timeout if shorter); {}",
        round(call.deadline.saturating_duration_since(call.arrived)),
        tried(call, attempts)
    );
    message
        + &unknown
            .map_or(". Raise the deadline or the client's timeout".to_owned(), |sent_at| unknown_outcome(call, sent_at))
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
        Refused::Draining => "Backstop is shutting down, and this request's turn did not come before that".to_owned(),
        Refused::Open(_) => format!(
            "the circuit breaker of upstream {name} is open: it failed too often of late (breaker), and is left alone for a while"
        ),
    };
    format!("{why}; nothing was sent. Come back after the Retry-After")
}

/// Told of a request that may have created something: it is not repeated.
fn unknown_outcome(call: &Call, sent_at: SystemTime) -> String {
    let (method, path) = (&call.method, call.route.target.path());
    let when = jiff::Timestamp::try_from(sent_at).map(|at| format!("{at:.0}")).unwrap_or_default();
    format!(
        ". {method} {path} was sent at {when} and its outcome upstream is unknown: it may have been carried out, so it was not \
         repeated. Check what exists there before sending it again (GET {path} where that is a list; the files, batches or jobs)"
    )
}

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
