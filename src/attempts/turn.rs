//! Waiting for leave to send, telling what came of it, and going over to a fallback.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Attempts, Left, policy};
use crate::admission::gate::{Ask, Refused};
use crate::admission::queue::Place;
use crate::drain::Drain;
use crate::policy::lesson::Lesson;
use crate::policy::verdict::{Class, Reason, Verdict};
use crate::wire::hints;

impl Attempts {
    /// Be let through the gate before the upstream. At once, if nothing is known that speaks against it.
    pub(super) async fn wait_for_turn(&mut self) -> Result<(), Refused> {
        if self.passage.is_some() {
            return Ok(());
        }
        let (call, lasting) = (&self.call, &self.instance.lasting);
        let upstream = &call.route.upstream.config;
        let gates = lasting.admission.gates(upstream, call.credential());
        let ask = Ask {
            place: Place { priority: call.priority, flow: lasting.admission.hash(call.flow()), since: call.arrived },
            deadline: call.deadline,
            tokens: if upstream.admission.tokens_per_minute > 0 { call.tokens() } else { 0.0 },
            tried: self.made,
            holds: self.made > 0 && !self.has_fallback(),
        };
        let start = Instant::now();
        let admitted = gates.admit(ask, || call.model().map(str::to_owned));
        let passage = tokio::select! {
            biased;
            passage = admitted => passage,
            () = nearly_drained(&lasting.drain) => Err(Refused::Draining),
        };
        let waited = start.elapsed();
        if !waited.is_zero() {
            lasting.metrics.queue_wait(&upstream.name, waited);
        }
        self.passage = Some(passage?);
        Ok(())
    }

    /// Tell those who come after what this attempt showed.
    pub(super) fn learn(&mut self, left: &Left, verdict: &Verdict) {
        let Some(passage) = &mut self.passage else { return };
        let upstream = &self.call.route.upstream.config;
        let lesson = match left {
            Left::Late(_) => Lesson::NONE,
            Left::Answer(answer) => {
                let good = verdict.class == Class::Success && upstream.admission.adaptive;
                let spent = good.then(|| hints::exhausted(&answer.headers, answer.at)).flatten();
                Lesson::of(verdict, Some(answer.status.as_u16()), spent, upstream.retry.max_wait_hint)
            }
            Left::Failure(..) => Lesson::of(verdict, None, None, upstream.retry.max_wait_hint),
        };
        let model = match left {
            Left::Answer(answer) if verdict.reason == Reason::RateLimited => {
                self.call.model().filter(|model| answer.names(model))
            }
            _ => None,
        };
        if matches!(verdict.class, Class::Transient | Class::Terminal) && !verdict.ambiguous {
            // It was not carried out, so no tokens were used.
            passage.settle(0);
        }
        if passage.learn(&lesson, model) {
            tracing::warn!(upstream = &*upstream.name, reason = verdict.reason.name(), "the circuit breaker opened");
        }
    }

    fn has_fallback(&self) -> bool {
        self.passed_over < self.first.route.upstream.config.fallbacks.len()
    }

    /// Go over to the next fallback. `false`: there is none, or no time for it. The deadline and the count of attempts stay
    /// what they were, but each fallback is tried once at least.
    pub(super) fn fall_back(&mut self) -> bool {
        while self.has_fallback() && Instant::now() < self.call.deadline {
            let name = &self.first.route.upstream.config.fallbacks[self.passed_over];
            self.passed_over += 1;
            let Some(upstream) = self.instance.routes.upstream(name) else { continue };
            let Some(call) = self.first.towards(upstream) else { return false };
            let tried = self.made - self.free;
            let from = &self.call.route.upstream.config.name;
            tracing::warn!(
                request = self.call.id,
                from = &**from,
                to = &*upstream.config.name,
                "going over to a fallback"
            );
            self.policy = policy(&upstream.config.retry, self.policy.max_attempts.max(tried + 1));
            self.call = Arc::new(call);
            (self.passage, self.effect, self.because) = (None, None, None);
            return true;
        }
        false
    }
}

/// So long before draining ends a call that still waits is told so.
const LAST_WORD: Duration = Duration::from_millis(200);

async fn nearly_drained(drain: &Drain) {
    let end = drain.begun().await;
    sleep_until(end.checked_sub(LAST_WORD).unwrap_or(end)).await;
}
