//! What an attempt teaches about its upstream, read from the one verdict on it.

use std::time::Duration;

use super::breaker::Sign;
use super::pace::Signal;
use super::verdict::{Class, Reason, Verdict};

/// What calls to come must know of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lesson {
    /// For the learned pace.
    pub signal: Signal,
    /// For the circuit breaker.
    pub sign: Sign,
    /// Nobody is to send for so long.
    pub close_for: Option<Duration>,
}

impl Lesson {
    /// The client left, or its own patience was too short: nothing is learned.
    pub const NONE: Lesson = Lesson { signal: Signal::Nothing, sign: Sign::None, close_for: None };

    /// `status`: the answer's, if there was one. `spent`: a good answer says that it was the last for so long.
    pub fn of(verdict: &Verdict, status: Option<u16>, spent: Option<Duration>, longest: Duration) -> Lesson {
        let limited = verdict.reason == Reason::RateLimited;
        let failed = verdict.class == Class::Transient && is_trouble(verdict.reason);
        // A longer wait is passed on to the caller; others may ask for themselves, and be told the same.
        let wait = verdict.wait.filter(|_| limited || failed).or(spent);
        let too_long = wait.is_some_and(|wait| wait > longest);
        let signal = match (limited || spent.is_some(), failed) {
            (true, _) if too_long => Signal::Nothing,
            (true, _) => Signal::Limited,
            (_, true) => Signal::Failed,
            _ if verdict.reason == Reason::QuotaExhausted => Signal::Nothing,
            _ => Signal::Accepted,
        };
        // 4xx are never a sign of a dead upstream, not even 408.
        let answered = status.is_some_and(|status| (400..500).contains(&status));
        let sign = if failed && !answered { Sign::Failure } else { Sign::Alive };
        Lesson { signal, sign, close_for: wait.filter(|wait| *wait <= longest) }
    }
}

fn is_trouble(reason: Reason) -> bool {
    use Reason::{Connect, Overloaded, Protocol, Reset, ServerError, StreamError, Timeout};
    matches!(reason, Connect | Overloaded | Protocol | Reset | ServerError | StreamError | Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(120);
    const SECOND: Duration = Duration::from_secs(1);

    fn verdict(class: Class, reason: Reason, wait: Option<Duration>) -> Verdict {
        Verdict { class, reason, rule: "", wait, ambiguous: false, unknown: false, named_status: None }
    }

    fn lesson(reason: Reason, status: Option<u16>, wait: Option<Duration>) -> Lesson {
        Lesson::of(&verdict(Class::Transient, reason, wait), status, None, LONGEST)
    }

    #[test]
    fn limits_close_the_gate_and_are_no_failure() {
        let limited = lesson(Reason::RateLimited, Some(429), Some(SECOND));
        assert_eq!(limited, Lesson { signal: Signal::Limited, sign: Sign::Alive, close_for: Some(SECOND) });
        let too_long = lesson(Reason::RateLimited, Some(429), Some(2 * LONGEST));
        assert_eq!((too_long.signal, too_long.close_for), (Signal::Nothing, None), "that is the caller's");
        assert_eq!(lesson(Reason::RateLimited, None, None).sign, Sign::Alive, "told in a stream");
    }

    #[test]
    fn trouble_is_a_failure_but_for_a_4xx() {
        for (reason, status) in [
            (Reason::Overloaded, Some(529)),
            (Reason::Connect, None),
            (Reason::Reset, None),
            (Reason::Timeout, Some(504)),
        ] {
            let lesson = lesson(reason, status, None);
            assert_eq!((lesson.signal, lesson.sign), (Signal::Failed, Sign::Failure), "{reason:?}");
        }
        assert_eq!(lesson(Reason::Timeout, Some(408), None).sign, Sign::Alive);
        assert_eq!(lesson(Reason::Overloaded, Some(503), Some(SECOND)).close_for, Some(SECOND));
    }

    #[test]
    fn bad_requests_show_that_somebody_is_there() {
        let bad = verdict(Class::Terminal, Reason::BadRequest, Some(SECOND));
        let alive = Lesson { signal: Signal::Accepted, sign: Sign::Alive, close_for: None };
        assert_eq!(Lesson::of(&bad, Some(400), None, LONGEST), alive);
        let quota = verdict(Class::Terminal, Reason::QuotaExhausted, None);
        assert_eq!(Lesson::of(&quota, Some(429), None, LONGEST).signal, Signal::Nothing);
    }

    #[test]
    fn a_good_answer_that_was_the_last_for_now_closes_the_gate() {
        let good = verdict(Class::Success, Reason::Ok, None);
        let last = Lesson::of(&good, Some(200), Some(SECOND), LONGEST);
        assert_eq!(last, Lesson { signal: Signal::Limited, sign: Sign::Alive, close_for: Some(SECOND) });
    }
}
