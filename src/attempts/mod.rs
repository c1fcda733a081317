//! The retry loop: send, judge, count, decide; until there is an answer to pass on.

mod story;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::admission::bucket::Token;
use crate::admission::memory::Remembered;
use crate::answer::{Answer, Cost, Reading};
use crate::call::Call;
use crate::clock::after;
use crate::instance::Instance;
use crate::opening::{Opening, Reply};
use crate::policy::backoff::Backoff;
use crate::policy::classify::{Evidence, classify};
use crate::policy::failure::{Kind, Phase, TransportError};
use crate::policy::retry::{Decision, Policy, Progress, Settle, decide};
use crate::policy::safety::Effect;
use crate::policy::verdict::{Reason, Verdict};
use crate::reply::{Fault, LocalReply, Outcome};
use crate::upstream::body::Progress as Sending;
use crate::upstream::pool::Want;
use crate::upstream::{Outgoing, Unsent};
use crate::wire::dialect::form;

/// A call on its way through its attempts.
pub struct Attempts {
    instance: Arc<Instance>,
    call: Arc<Call>,
    policy: Policy,
    /// Looked up at the first failure that asks for it.
    effect: Option<Effect>,
    made: u32,
    /// Of these, such as a stale connection cost: they count for nobody.
    free: u32,
    /// Of these, such as the upstream may have acted on.
    ambiguous: u32,
    want: Want,
    /// Whether and why the attempt that follows is a retry.
    because: Option<(Reason, Duration)>,
    /// The last answer that an upstream gave, for when the time is over.
    in_hand: Option<(Box<Answer>, Verdict)>,
    /// Unknown statuses met on the way.
    unknown: Vec<u16>,
    /// What the last answer cost.
    cost: Option<Cost>,
}

/// What an attempt left.
enum Left {
    Answer(Box<Answer>),
    /// With what it had cost, if that was told.
    Failure(Unsent, Option<Cost>),
    /// The deadline passed before there was a head. Whether something was sent.
    Late(bool),
}

impl Attempts {
    /// None made yet.
    pub fn new(instance: Arc<Instance>, call: Arc<Call>) -> Self {
        let retry = &call.route.upstream.config.retry;
        let policy = Policy {
            max_attempts: if gave_up_before(&instance, &call) { 1 } else { call.max_attempts },
            max_wait_hint: retry.max_wait_hint,
            backoff: Backoff {
                base: retry.base_delay,
                max: retry.max_delay,
                multiplier: retry.multiplier,
                jitter: retry.jitter,
            },
            ambiguous: retry.ambiguous,
            ambiguous_attempts: retry.ambiguous_attempts,
            retry_empty: retry.empty,
        };
        let want = if call.upgrade { Want::Upgrade } else { Want::Any };
        Attempts {
            instance,
            call,
            policy,
            effect: None,
            made: 0,
            free: 0,
            ambiguous: 0,
            want,
            because: None,
            in_hand: None,
            unknown: Vec::new(),
            cost: None,
        }
    }

    /// Try until there is something to tell the client. Dropping this ends whatever is under way.
    pub async fn run(mut self) -> Opening {
        loop {
            let (left, verdict) = self.attempt().await;
            if let Left::Failure(failure, _) = &left
                && self.is_stale(failure)
            {
                self.again_at_once(&verdict);
                continue;
            }
            if let Some(reply) = self.call.body_fault() {
                return self.opening(Reply::Local(reply), Outcome::Rejected, Some(verdict), true);
            }
            if matches!(left, Left::Late(_)) {
                return self.out_of_time(&verdict);
            }
            match self.decide(&verdict) {
                Decision::Settle(why) => return self.settle(left, verdict, why),
                Decision::Retry { delay } => {
                    if self.call.is_spent() {
                        return self.settle_spent(left, verdict);
                    }
                    if let Err(why) = self.pause(&verdict, delay).await {
                        return self.settle(left, verdict, why);
                    }
                    self.waste();
                    // One that is still coming would keep its connection, and there is never a second one.
                    if let Left::Answer(answer) = left
                        && answer.rest.is_none()
                    {
                        self.in_hand = Some((answer, verdict));
                    }
                }
            }
        }
    }

    /// One attempt, judged and counted.
    async fn attempt(&mut self) -> (Left, Verdict) {
        self.made += 1;
        let upstream = &self.call.route.upstream;
        let metrics = &self.instance.lasting.metrics;
        if let Some((reason, waited)) = self.because.take() {
            metrics.retry(&upstream.config.name, reason, waited);
        }
        let left = self.send().await;
        let verdict = match &left {
            Left::Answer(answer) => {
                let (verdict, cost) =
                    answer.judge(self.call.route.dialect, self.call.model_call, &upstream.config.rules);
                self.cost = cost;
                verdict
            }
            Left::Failure(failure, cost) => {
                self.cost.clone_from(cost);
                classify(Evidence::Failure(&failure.error), &[])
            }
            Left::Late(sent) => classify(Evidence::Failure(&late(*sent)), &[]),
        };
        self.ambiguous += u32::from(verdict.ambiguous);
        metrics.attempt(&upstream.config.name, &verdict);
        if verdict.unknown
            && let Left::Answer(answer) = &left
        {
            metrics.unclassified(&upstream.config.name, answer.status.as_u16(), false);
            self.unknown.push(answer.status.as_u16());
        }
        tracing::debug!(
            request = self.call.id, upstream = &*upstream.config.name, attempt = self.made, class = verdict.class.name(),
            reason = verdict.reason.name(), rule = verdict.rule, detail = %story::detail(&left.failure(), &left.status()),
            "attempt"
        );
        (left, verdict)
    }

    async fn send(&self) -> Left {
        let (call, lasting) = (&self.call, &self.instance.lasting);
        let progress = Sending::new();
        let Some(body) = call.send_body(progress.clone()) else {
            return Left::Failure(Unsent { error: late(true), reused: false }, None);
        };
        let outgoing = Outgoing {
            method: call.method.clone(),
            target: call.route.target.clone(),
            headers: call.headers.clone(),
            extensions: call.extensions.clone(),
            body,
            progress: progress.clone(),
            want: self.want,
        };
        let response = match timeout_at(call.deadline, call.route.upstream.send(outgoing)).await {
            Err(_) => return Left::Late(progress.started() || progress.finished()),
            Ok(Err(failure)) => return Left::Failure(failure, None),
            Ok(Ok(response)) => response,
        };
        let reading = Reading {
            method: &call.method,
            dialect: call.route.dialect,
            path: call.route.target.as_str(),
            holding: call.holding,
            streaming: form::streams(call.route.target.path()),
            upgrade: call.upgrade,
            model_call: call.model_call,
            idle: call.route.upstream.config.timeouts.stream_idle,
            deadline: call.deadline,
        };
        match Answer::read(response, reading, lasting.clock.wall()).await {
            Ok(answer) => Left::Answer(Box::new(answer)),
            Err((error, cost)) => Left::Failure(Unsent { error, reused: false }, cost),
        }
    }

    /// A connection that was closed just as it was used again, or a stream that HTTP/2 says was not processed: the same
    /// again on a fresh connection, once, at once. It is no sign of trouble, so it takes no token and no backoff.
    fn is_stale(&mut self, failure: &Unsent) -> bool {
        let error = &failure.error;
        let closed = failure.reused && error.phase == Phase::Head && error.kind == Kind::Reset;
        if self.free > 0 || self.call.is_spent() || !(closed || error.kind == Kind::Unprocessed) {
            return false;
        }
        !error.sent || self.effect() == Effect::Repeatable
    }

    fn again_at_once(&mut self, verdict: &Verdict) {
        self.free += 1;
        self.want = if self.call.upgrade { Want::Upgrade } else { Want::Fresh };
        self.because = Some((verdict.reason, Duration::ZERO));
    }

    fn effect(&mut self) -> Effect {
        *self.effect.get_or_insert_with(|| self.call.effect())
    }

    fn decide(&mut self, verdict: &Verdict) -> Decision {
        let effect = if verdict.ambiguous { self.effect() } else { Effect::Repeatable };
        let progress = Progress {
            attempts: self.made - self.free,
            ambiguous: self.ambiguous,
            remaining: self.call.deadline.saturating_duration_since(Instant::now()),
            effect,
            unit: self.instance.lasting.clock.dice(),
        };
        decide(verdict, &progress, &self.policy)
    }

    /// The answer is thrown away, and what it cost with it.
    fn waste(&mut self) {
        if let Some(Cost { usage, .. }) = self.cost.take() {
            let name = &self.call.route.upstream.config.name;
            self.instance.lasting.metrics.retry_tokens(name, usage.input.saturating_add(usage.output));
        }
    }

    /// Wait out the delay and take a token. `Err`: that cannot be done in time.
    async fn pause(&mut self, verdict: &Verdict, delay: Duration) -> Result<(), Settle> {
        let start = Instant::now();
        let lasting = &self.instance.lasting;
        if !lasting.drain.sleep_until(after(start, delay)).await {
            return Err(Settle::Exhausted);
        }
        match self.instance.bucket.take(self.call.deadline).await {
            Token::AtOnce => {}
            Token::Waited => lasting.metrics.bucket_wait(),
            Token::NotInTime => return Err(Settle::Exhausted),
        }
        self.want = if self.call.upgrade { Want::Upgrade } else { Want::Any };
        self.because = Some((verdict.reason, start.elapsed()));
        Ok(())
    }

    fn settle(self, left: Left, verdict: Verdict, why: Settle) -> Opening {
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
    fn settle_spent(self, left: Left, verdict: Verdict) -> Opening {
        let opening = self.settle(left, verdict, Settle::Exhausted);
        Opening { no_retry: matches!(opening.reply, Reply::Local(_)) && opening.no_retry, ..opening }
    }

    /// The deadline passed: the answer in hand, or word of it.
    fn out_of_time(mut self, verdict: &Verdict) -> Opening {
        let (reply, verdict) = match self.in_hand.take() {
            Some((answer, verdict)) => (Reply::Upstream(answer), verdict),
            None => {
                let unknown_outcome = verdict.ambiguous && self.effect() == Effect::Creates;
                let message = story::deadline(&self.call, self.made, unknown_outcome);
                (Reply::Local(LocalReply::new(Fault::DeadlineExceeded, message)), verdict.clone())
            }
        };
        self.opening(reply, Outcome::Deadline, Some(verdict), true)
    }

    fn failed(&self, error: &TransportError, verdict: &Verdict, why: Settle) -> LocalReply {
        let fault = match (error.phase, error.kind) {
            (_, Kind::Timeout) => Fault::UpstreamTimeout,
            (Phase::Connect, _) => Fault::UpstreamUnreachable,
            _ => Fault::UpstreamProtocolError,
        };
        LocalReply::new(
            fault,
            story::failed(&self.call, self.made, error, verdict.ambiguous && why == Settle::Ambiguous),
        )
    }

    fn opening(self, reply: Reply, outcome: Outcome, verdict: Option<Verdict>, no_retry: bool) -> Opening {
        self.remember(&reply, outcome, no_retry);
        self.count(&reply);
        Opening { reply, outcome, attempts: self.made, verdict, no_retry }
    }

    /// Count the tokens of the answer that the client gets.
    fn count(&self, reply: &Reply) {
        let metrics = &self.instance.lasting.metrics;
        let name = &self.call.route.upstream.config.name;
        match &self.cost {
            Some(Cost { usage, model }) => metrics.tokens(name, model, usage.input, usage.output, usage.cached),
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

impl Left {
    fn failure(&self) -> Option<&TransportError> {
        match self {
            Left::Failure(failure, _) => Some(&failure.error),
            _ => None,
        }
    }

    fn status(&self) -> Option<u16> {
        match self {
            Left::Answer(answer) => Some(answer.status.as_u16()),
            _ => None,
        }
    }
}

/// The client repeats a call that it was told not to repeat: it gets one attempt, not all of them again.
fn gave_up_before(instance: &Instance, call: &Call) -> bool {
    let memory = &instance.lasting.memory;
    call.repeats || !memory.is_empty() && memory.gave_up(call.fingerprint())
}

/// Statuses that the SDKs would repeat on their own.
fn repeated_by_sdks(status: u16) -> bool {
    matches!(status, 408 | 409 | 429) || status >= 500
}

fn late(sent: bool) -> TransportError {
    let phase = if sent { Phase::Head } else { Phase::Connect };
    TransportError { phase, kind: Kind::Timeout, sent, detail: "the request's deadline passed".into() }
}
