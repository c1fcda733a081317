//! The end of the loop: what the client is told.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Attempts, Left, late, story};
use crate::admission::gate::Refused;
use crate::admission::memory::Remembered;
use crate::admission::retry_after;
use crate::answer::{Answer, Cost};
use crate::opening::{Opening, Reply};
use crate::policy::classify::{Evidence, classify};
use crate::policy::failure::{Kind, Phase, TransportError};
use crate::policy::retry::Settle;
use crate::policy::safety::Effect;
use crate::policy::verdict::Verdict;
use crate::reply::{Fault, LocalReply, Outcome};

impl Attempts {
    pub(super) fn settle(self, left: Left, verdict: Verdict, why: Settle) -> Opening {
        let reply = match left {
            Left::Answer(answer) => Reply::Upstream(answer),
            Left::Failure(failure, _) => Reply::Local(self.failed(&failure.error, &verdict, why)),
            Left::Late(_) => return self.out_of_time(&verdict),
        };
        let outcome = match why {
            Settle::Success => Outcome::Success,
            Settle::Recoverable if reply.is_good() => Outcome::Success,
            Settle::Recoverable => Outcome::Terminal,
            Settle::Terminal | Settle::TooLong | Settle::Ambiguous => Outcome::Terminal,
            Settle::Exhausted => Outcome::Exhausted,
            Settle::Deadline => Outcome::Deadline,
        };
        let no_retry = match (&reply, outcome) {
            (_, Outcome::Success) => false,
            // A failure told inside a 2xx is passed on with the status that it names.
            (Reply::Upstream(answer), Outcome::Terminal) if answer.status.is_success() => {
                verdict.named_status.is_some_and(repeated_by_sdks)
            }
            (Reply::Upstream(answer), Outcome::Terminal) => repeated_by_sdks(answer.status.as_u16()),
            _ => true,
        };
        self.opening(reply, outcome, Some(verdict), no_retry)
    }

    /// The failure would pass, but the body was too large to keep: the client, who has it, may try again.
    pub(super) fn settle_spent(self, left: Left, verdict: Verdict) -> Opening {
        let opening = self.settle(left, verdict, Settle::Exhausted);
        Opening { no_retry: matches!(opening.reply, Reply::Local(_)) && opening.no_retry, ..opening }
    }

    /// The gate does not let it through, and there is nowhere else to go: the last answer that an upstream gave, the last
    /// failure, or word of the gate.
    pub(super) fn sent_away(mut self, refused: Refused) -> Opening {
        if Instant::now() >= self.call.deadline {
            return self.out_of_time(&classify(Evidence::Failure(&late(false)), &[]));
        }
        if let Some((answer, verdict)) = self.take_in_hand() {
            return self.opening(Reply::Upstream(answer), Outcome::Exhausted, Some(verdict), true);
        }
        if let Some((error, verdict)) = self.lost.take() {
            let reply = self.failed(&error, &verdict, Settle::Exhausted);
            return self.opening(Reply::Local(reply), Outcome::Exhausted, Some(verdict), true);
        }
        let fault = match refused {
            Refused::Full(_) | Refused::TooLate(_) | Refused::Draining => Fault::QueueFull,
            Refused::Open(_) => Fault::CircuitOpen,
        };
        let reply = LocalReply::new(fault, story::sent_away(&self.call, refused)).after(retry_after(refused));
        self.opening(Reply::Local(reply), Outcome::Rejected, None, true)
    }

    /// The deadline passed: the answer in hand, or word of it.
    pub(super) fn out_of_time(mut self, verdict: &Verdict) -> Opening {
        let (reply, verdict) = match self.take_in_hand() {
            Some((answer, verdict)) => (Reply::Upstream(answer), verdict),
            None => {
                let unknown_outcome = verdict.ambiguous && self.effect() == Effect::Creates;
                let unknown = self.sent_at.filter(|_| unknown_outcome);
                let message = story::deadline(&self.call, self.made, unknown);
                (Reply::Local(LocalReply::new(Fault::DeadlineExceeded, message)), verdict.clone())
            }
        };
        self.opening(reply, Outcome::Deadline, Some(verdict), true)
    }

    /// The last answer that an upstream gave; the call is that which it answers.
    fn take_in_hand(&mut self) -> Option<(Box<Answer>, Verdict)> {
        let (call, answer, verdict) = self.in_hand.take()?;
        self.call = call;
        Some((answer, verdict))
    }

    fn failed(&self, error: &TransportError, verdict: &Verdict, why: Settle) -> LocalReply {
        let fault = match (error.phase, error.kind) {
            (_, Kind::Timeout) => Fault::UpstreamTimeout,
            (Phase::Connect, _) => Fault::UpstreamUnreachable,
            _ => Fault::UpstreamProtocolError,
        };
        let unknown = self.sent_at.filter(|_| verdict.ambiguous && why == Settle::Ambiguous);
        LocalReply::new(fault, story::failed(&self.call, self.made, error, unknown))
    }

    pub(super) fn opening(
        mut self,
        reply: Reply,
        outcome: Outcome,
        verdict: Option<Verdict>,
        no_retry: bool,
    ) -> Opening {
        self.remember(&reply, outcome, no_retry);
        self.count(&reply);
        let passage = self.passage.take().filter(|_| !reply.is_whole());
        Opening { call: self.call, reply, outcome, attempts: self.made, verdict, no_retry, passage }
    }

    /// Count the tokens of the answer that the client gets.
    fn count(&mut self, reply: &Reply) {
        let metrics = &self.instance.lasting.metrics;
        let name = &self.call.route.upstream.config.name;
        match &self.cost {
            Some(Cost { usage, model }) => {
                metrics.tokens(name, model, usage.input, usage.output, usage.cached);
                if let Some(passage) = &mut self.passage {
                    passage.settle(usage.total());
                }
            }
            None if self.call.model_call && reply.is_whole() && reply.is_good() => metrics.usage_unknown(name),
            None => {}
        }
    }

    /// Keep what later calls must know of this one.
    fn remember(&self, reply: &Reply, outcome: Outcome, no_retry: bool) {
        let lasting: &Arc<_> = &self.instance.lasting;
        let name = &self.call.route.upstream.config.name;
        if outcome == Outcome::Success {
            let past = (!lasting.memory.is_empty()).then(|| lasting.memory.got_past(self.call.fingerprint()));
            for status in self.unknown.iter().copied().chain(past.into_iter().flatten()) {
                lasting.metrics.unclassified(name, status, true);
            }
            return;
        }
        if no_retry && matches!(outcome, Outcome::Exhausted | Outcome::Deadline) {
            lasting.memory.remember(self.call.fingerprint(), Remembered::GaveUp);
        }
        if let Reply::Upstream(answer) = reply
            && self.unknown.contains(&answer.status.as_u16())
        {
            lasting.memory.remember(self.call.fingerprint(), Remembered::Unclassified(answer.status.as_u16()));
        }
    }
}

/// Statuses that the SDKs would repeat on their own.
fn repeated_by_sdks(status: u16) -> bool {
    matches!(status, 408 | 409 | 429) || status >= 500
}
