//! The retry loop: send, judge, count, decide; until there is an answer to pass on.

mod settle;
mod story;
mod turn;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use crate::admission::Passage;
use crate::admission::bucket::Token;
use crate::answer::{Answer, Cost, Reading};
use crate::call::Call;
use crate::clock::after;
use crate::config;
use crate::instance::Instance;
use crate::opening::{Opening, Reply};
use crate::policy::backoff::Backoff;
use crate::policy::classify::{Evidence, classify};
use crate::policy::failure::{Kind, Phase, TransportError};
use crate::policy::retry::{Decision, Policy, Progress, Settle, decide};
use crate::policy::safety::Effect;
use crate::policy::verdict::{Reason, Verdict};
use crate::reply::Outcome;
use crate::upstream::body::Progress as Sending;
use crate::upstream::pool::Want;
use crate::upstream::{Outgoing, Unsent};
use crate::wire::dialect::form;

/// A call on its way through its attempts.
pub struct Attempts {
    instance: Arc<Instance>,
    /// The call as it is sent now: to its own upstream, or to a fallback.
    call: Arc<Call>,
    /// The call to its own upstream.
    first: Arc<Call>,
    /// Fallbacks that were gone over to, or passed over.
    passed_over: usize,
    policy: Policy,
    /// Leave to send, from the gate until the answer is over.
    passage: Option<Passage>,
    /// Looked up at the first failure that asks for it.
    effect: Option<Effect>,
    made: u32,
    /// Of these, such as a stale connection cost: they count for nobody.
    free: u32,
    /// Of these, such as the upstream may have acted on.
    ambiguous: u32,
    want: Want,
    /// Whether and why the attempt that follows is a retry, and since when it waits.
    because: Option<(Reason, Instant)>,
    /// The last answer that an upstream gave, for when the time is over.
    in_hand: Option<(Arc<Call>, Box<Answer>, Verdict)>,
    /// The last attempt that failed on the way, for when no other is let through.
    lost: Option<(TransportError, Verdict)>,
    /// Unknown statuses met on the way.
    unknown: Vec<u16>,
    /// What the last answer cost.
    cost: Option<Cost>,
    /// When the last attempt began, for people.
    sent_at: Option<SystemTime>,
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
        let max_attempts = if gave_up_before(&instance, &call) { 1 } else { call.max_attempts };
        let policy = policy(&call.route.upstream.config.retry, max_attempts);
        let want = if call.upgrade { Want::Upgrade } else { Want::Any };
        Attempts {
            instance,
            first: call.clone(),
            call,
            passed_over: 0,
            policy,
            passage: None,
            effect: None,
            made: 0,
            free: 0,
            ambiguous: 0,
            want,
            because: None,
            in_hand: None,
            lost: None,
            unknown: Vec::new(),
            cost: None,
            sent_at: None,
        }
    }

    /// Try until there is something to tell the client. Dropping this ends whatever is under way.
    pub async fn run(mut self) -> Opening {
        loop {
            if let Err(refused) = self.wait_for_turn().await {
                if self.fall_back() {
                    continue;
                }
                return self.sent_away(refused);
            }
            let (left, verdict) = self.attempt().await;
            if let Left::Failure(failure, _) = &left
                && self.is_stale(failure)
            {
                self.again_at_once(&verdict);
                continue;
            }
            self.learn(&left, &verdict);
            if let Some(reply) = self.call.body_fault() {
                return self.opening(Reply::Local(reply), Outcome::Rejected, Some(verdict), true);
            }
            if matches!(left, Left::Late(_)) {
                return self.out_of_time(&verdict);
            }
            let over = match self.decide(&verdict) {
                Decision::Settle(why) => Some(why),
                Decision::Retry { .. } if self.call.is_spent() => return self.settle_spent(left, verdict),
                Decision::Retry { delay } => self.pause(&verdict, delay).await.err(),
            };
            match over {
                Some(why) if !(may_go_elsewhere(why) && self.fall_back()) => return self.settle(left, verdict, why),
                _ => self.put_aside(left, verdict),
            }
        }
    }

    /// One attempt, judged and counted.
    async fn attempt(&mut self) -> (Left, Verdict) {
        self.made += 1;
        let upstream = &self.call.route.upstream;
        let metrics = &self.instance.lasting.metrics;
        if let Some((reason, since)) = self.because.take() {
            metrics.retry(&upstream.config.name, reason, since.elapsed());
        }
        self.sent_at = Some(self.instance.lasting.clock.wall());
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
        let given_up = GivenUp { attempts: self, progress: &progress, over: false };
        let sent = timeout_at(after(call.deadline, call.linger), call.route.upstream.send(outgoing)).await;
        given_up.over();
        let response = match sent {
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
        self.because = Some((verdict.reason, Instant::now()));
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

    /// The answer is thrown away, and what it cost with it; but it is what the client gets should the time be over.
    fn put_aside(&mut self, left: Left, verdict: Verdict) {
        self.waste();
        match left {
            // One that is still coming would keep its connection, and there is never a second one.
            Left::Answer(answer) if answer.rest.is_none() => self.in_hand = Some((self.call.clone(), answer, verdict)),
            Left::Failure(failure, _) => self.lost = Some((failure.error, verdict)),
            Left::Answer(_) | Left::Late(_) => {}
        }
    }

    fn waste(&mut self) {
        if let Some(Cost { usage, .. }) = self.cost.take() {
            let name = &self.call.route.upstream.config.name;
            self.instance.lasting.metrics.retry_tokens(name, usage.total());
        }
    }

    /// Wait out the delay and take a token. `Err`: that cannot be done in time.
    async fn pause(&mut self, verdict: &Verdict, delay: Duration) -> Result<(), Settle> {
        let start = Instant::now();
        self.passage = None;
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
        self.because = Some((verdict.reason, start));
        Ok(())
    }
}

/// Dropped before it is over, an attempt was given up by its client, who may have to pay for it all the same.
struct GivenUp<'a> {
    attempts: &'a Attempts,
    progress: &'a Sending,
    over: bool,
}

impl GivenUp<'_> {
    fn over(mut self) {
        self.over = true;
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if !self.over && self.progress.finished() {
            let name = &self.attempts.call.route.upstream.config.name;
            self.attempts.instance.lasting.metrics.possibly_billed(name);
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

fn policy(retry: &config::Retry, max_attempts: u32) -> Policy {
    Policy {
        max_attempts,
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
    }
}

/// The call is not over as long as another upstream may answer it.
fn may_go_elsewhere(why: Settle) -> bool {
    matches!(why, Settle::Exhausted | Settle::TooLong | Settle::Deadline)
}

/// The client repeats a call that it was told not to repeat: it gets one attempt, not all of them again.
fn gave_up_before(instance: &Instance, call: &Call) -> bool {
    let memory = &instance.lasting.memory;
    call.repeats || !memory.is_empty() && memory.gave_up(call.fingerprint())
}

fn late(sent: bool) -> TransportError {
    let phase = if sent { Phase::Head } else { Phase::Connect };
    TransportError { phase, kind: Kind::Timeout, sent, detail: "the request's deadline passed".into() }
}
