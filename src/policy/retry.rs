//! Verdict and progress → decision.

use std::time::Duration;

use super::backoff::Backoff;
use super::safety::{Ambiguous, Effect};
use super::verdict::{Class, Reason, Verdict};

/// How far a call has come. The attempt that the verdict is on is counted in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Attempts made.
    pub attempts: u32,
    /// Attempts made that ended ambiguously.
    pub ambiguous: u32,
    /// Time left until the call's deadline.
    pub remaining: Duration,
    /// What repeating the call can do.
    pub effect: Effect,
    /// The dice, in [0, 1).
    pub unit: f64,
}

/// The limits of a call's retries: `[retry]`, with what the client asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// The longest wait of a provider's that is sat through.
    pub max_wait_hint: Duration,
    /// The delays.
    pub backoff: Backoff,
    /// What may be repeated when the upstream may have acted.
    pub ambiguous: Ambiguous,
    /// Attempts in all that may end ambiguously, for a call whose repeat may act twice.
    pub ambiguous_attempts: u32,
    /// A good answer without content is repeated too.
    pub retry_empty: bool,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Give the client what there is.
    Settle(Settle),
    /// Send it again, no sooner than after the delay.
    Retry {
        /// How long to wait first.
        delay: Duration,
    },
}

/// Why a call is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// A good answer.
    Success,
    /// An answer that no waiting betters.
    Terminal,
    /// A good answer with output that only the model can better; also the last one when empty answers are repeated.
    Recoverable,
    /// The attempts are used up.
    Exhausted,
    /// The next attempt would begin at the deadline or later.
    Deadline,
    /// The provider asks for a longer wait than is sat through. For the caller that is terminal.
    TooLong,
    /// The upstream may have acted, and a repeat is not allowed. The client must be told that the outcome is unknown.
    Ambiguous,
}

/// Settle the call, or try again.
pub fn decide(verdict: &Verdict, progress: &Progress, policy: &Policy) -> Decision {
    if let Some(settle) = settled(verdict, progress, policy) {
        return Decision::Settle(settle);
    }
    let delay = delay(verdict, progress, policy);
    if delay >= progress.remaining {
        return Decision::Settle(Settle::Deadline);
    }
    Decision::Retry { delay }
}

/// Why the call is over, if it is. What the client most needs to know goes first: of an ambiguous last attempt, that the
/// outcome is unknown; of a long wait, how long.
fn settled(verdict: &Verdict, progress: &Progress, policy: &Policy) -> Option<Settle> {
    let spent = progress.attempts >= policy.max_attempts;
    match verdict.class {
        Class::Success => Some(Settle::Success),
        Class::Terminal => Some(Settle::Terminal),
        Class::Recoverable => {
            let again = policy.retry_empty && verdict.reason == Reason::Empty && may_act_again(progress, policy);
            (spent || !again).then_some(Settle::Recoverable)
        }
        Class::Transient if verdict.ambiguous && !may_repeat(progress, policy) => Some(Settle::Ambiguous),
        Class::Transient if verdict.wait.is_some_and(|w| w > policy.max_wait_hint) => Some(Settle::TooLong),
        Class::Transient => spent.then_some(Settle::Exhausted),
    }
}

/// Whether a call may be sent again that the upstream may have carried out.
fn may_repeat(progress: &Progress, policy: &Policy) -> bool {
    policy.ambiguous != Ambiguous::Never && may_act_again(progress, policy)
}

/// Whether the call's effect allows to have it carried out again.
fn may_act_again(progress: &Progress, policy: &Policy) -> bool {
    match progress.effect {
        Effect::Repeatable => true,
        Effect::Creates => policy.ambiguous == Ambiguous::Always && progress.ambiguous < policy.ambiguous_attempts,
    }
}

fn delay(verdict: &Verdict, progress: &Progress, policy: &Policy) -> Duration {
    let retries = progress.attempts.saturating_sub(1);
    policy.backoff.with_hint(verdict.wait, retries, progress.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::backoff::Jitter;

    const POLICY: Policy = Policy {
        max_attempts: 3,
        max_wait_hint: Duration::from_secs(120),
        backoff: Backoff {
            base: Duration::from_secs(1),
            max: Duration::from_secs(30),
            multiplier: 2.0,
            jitter: Jitter::None,
        },
        ambiguous: Ambiguous::Safe,
        ambiguous_attempts: 2,
        retry_empty: false,
    };
    const PROGRESS: Progress = Progress {
        attempts: 1,
        ambiguous: 0,
        remaining: Duration::from_secs(600),
        effect: Effect::Repeatable,
        unit: 0.5,
    };
    const TRANSIENT: Verdict = Verdict {
        class: Class::Transient,
        reason: Reason::Overloaded,
        rule: "status 503",
        wait: None,
        ambiguous: false,
        unknown: false,
        named_status: None,
    };
    const LOST: Verdict = Verdict { reason: Reason::Reset, ambiguous: true, ..TRANSIENT };

    fn retry(ms: u64) -> Decision {
        Decision::Retry { delay: Duration::from_millis(ms) }
    }

    fn settle(s: Settle) -> Decision {
        Decision::Settle(s)
    }

    #[test]
    fn the_schedule_and_its_end() {
        let at = |attempts| decide(&TRANSIENT, &Progress { attempts, ..PROGRESS }, &POLICY);
        assert_eq!(
            [at(1), at(2), at(3), at(9)],
            [retry(1000), retry(2000), settle(Settle::Exhausted), settle(Settle::Exhausted)]
        );
    }

    #[test]
    fn classes() {
        let of = |class| decide(&Verdict { class, ..TRANSIENT }, &PROGRESS, &POLICY);
        assert_eq!(of(Class::Success), settle(Settle::Success));
        assert_eq!(of(Class::Terminal), settle(Settle::Terminal));
        assert_eq!(of(Class::Recoverable), settle(Settle::Recoverable));
    }

    #[test]
    fn hints() {
        let with = |secs| Verdict { wait: Some(Duration::from_secs(secs)), ..TRANSIENT };
        assert_eq!(decide(&with(120), &PROGRESS, &POLICY), retry(120_000));
        assert_eq!(decide(&with(121), &PROGRESS, &POLICY), settle(Settle::TooLong));
        let forever = Verdict { wait: Some(Duration::MAX), ..TRANSIENT };
        assert_eq!(
            decide(&forever, &PROGRESS, &Policy { max_wait_hint: Duration::MAX, ..POLICY }),
            settle(Settle::Deadline)
        );
    }

    #[test]
    fn no_attempt_begins_at_the_deadline() {
        let left = |ms| decide(&TRANSIENT, &Progress { remaining: Duration::from_millis(ms), ..PROGRESS }, &POLICY);
        assert_eq!(
            [left(1001), left(1000), left(0)],
            [retry(1000), settle(Settle::Deadline), settle(Settle::Deadline)]
        );
    }

    #[test]
    fn what_the_upstream_may_have_done() {
        let of = |ambiguous, effect, tries| {
            let progress = Progress { attempts: tries, ambiguous: tries, effect, ..PROGRESS };
            decide(&LOST, &progress, &Policy { ambiguous, max_attempts: 9, ..POLICY })
        };
        let unknown = settle(Settle::Ambiguous);
        assert_eq!(of(Ambiguous::Safe, Effect::Repeatable, 1), retry(1000));
        assert_eq!(of(Ambiguous::Safe, Effect::Repeatable, 3), retry(4000), "tries that are safe are not counted");
        assert_eq!(of(Ambiguous::Safe, Effect::Creates, 1), unknown);
        assert_eq!(of(Ambiguous::Always, Effect::Creates, 1), retry(1000));
        assert_eq!(of(Ambiguous::Always, Effect::Creates, 2), unknown);
        assert_eq!(of(Ambiguous::Always, Effect::Repeatable, 3), retry(4000));
        assert_eq!(of(Ambiguous::Never, Effect::Repeatable, 1), unknown);
        let plain = decide(&TRANSIENT, &Progress { effect: Effect::Creates, ..PROGRESS }, &POLICY);
        assert_eq!(plain, retry(1000), "a failure that did nothing is repeated for everything");
        let last = decide(&LOST, &Progress { attempts: 3, effect: Effect::Creates, ..PROGRESS }, &POLICY);
        assert_eq!(last, unknown, "that the outcome is unknown matters more than the count");
    }

    #[test]
    fn empty_answers_only_where_asked_for() {
        let empty = Verdict { class: Class::Recoverable, reason: Reason::Empty, ..TRANSIENT };
        let on = Policy { retry_empty: true, ..POLICY };
        assert_eq!(decide(&empty, &PROGRESS, &POLICY), settle(Settle::Recoverable));
        assert_eq!(decide(&empty, &PROGRESS, &on), retry(1000));
        assert_eq!(decide(&empty, &Progress { attempts: 3, ..PROGRESS }, &on), settle(Settle::Recoverable));
        assert_eq!(decide(&empty, &Progress { effect: Effect::Creates, ..PROGRESS }, &on), settle(Settle::Recoverable));
        let bad = Verdict { reason: Reason::Other, ..empty };
        assert_eq!(decide(&bad, &PROGRESS, &on), settle(Settle::Recoverable));
    }
}
