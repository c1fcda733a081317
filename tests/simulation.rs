//! Many calls against an upstream that fails at random, on a clock that is a number. One seed is one run: the policy under
//! test, the upstream's moods and the dice all come from it. `BACKSTOP_SEED=n` runs that seed alone and tells its story.

use std::collections::BinaryHeap;
use std::time::{Duration, SystemTime};

use backstop::policy::backoff::{Backoff, Jitter};
use backstop::policy::classify::{Answer, Evidence, classify};
use backstop::policy::failure::{Kind, Phase, TransportError};
use backstop::policy::retry::{Decision, Policy, Progress, Settle, decide};
use backstop::policy::safety::{Ambiguous, Effect};
use backstop::policy::verdict::{Class, Verdict};
use backstop::wire::dialect::Dialect;
use http::{HeaderMap, HeaderValue, StatusCode};

const SEEDS: u64 = 10_000;
const CALLS: usize = 4;

/// SplitMix64 (Steele, Lea, Flood 2014): a seed is a run, on every machine.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn ms(&mut self, up_to: u64) -> Duration {
        Duration::from_millis(self.below(up_to + 1))
    }
}

/// What the upstream does to one attempt.
#[derive(Debug, Clone, Copy)]
enum Mood {
    Good,
    Empty,
    Limited { retry_after_ms: u64 },
    Overloaded,
    Broken,
    Refused,
    Lost,
    BadRequest,
}

impl Mood {
    fn next(dice: &mut Dice) -> Mood {
        match dice.below(12) {
            0..=2 => Mood::Good,
            3 => Mood::Empty,
            4 | 5 => Mood::Limited { retry_after_ms: dice.pick(&[0, 1, 250, 3000, 60_000, 119_999, 3_700_000]) },
            6 | 7 => Mood::Overloaded,
            8 => Mood::Broken,
            9 => Mood::Refused,
            10 => Mood::Lost,
            _ => Mood::BadRequest,
        }
    }

    fn verdict(self) -> Verdict {
        let failure = |phase, kind, sent| {
            classify(Evidence::Failure(&TransportError { phase, kind, sent, detail: String::new() }), &[])
        };
        match self {
            Mood::Good => answer(200, r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#, None),
            Mood::Empty => answer(200, r#"{"choices":[]}"#, None),
            Mood::Limited { retry_after_ms } => answer(429, "", Some(retry_after_ms)),
            Mood::Overloaded => answer(503, r#"{"error":{"message":"busy"}}"#, None),
            Mood::Broken => answer(500, r#"{"error":{"message":"oops"}}"#, None),
            Mood::BadRequest => answer(400, r#"{"error":{"message":"no"}}"#, None),
            Mood::Refused => failure(Phase::Connect, Kind::Refused, false),
            Mood::Lost => failure(Phase::Head, Kind::Reset, true),
        }
    }
}

fn answer(status: u16, body: &str, retry_after_ms: Option<u64>) -> Verdict {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    if let Some(ms) = retry_after_ms {
        headers.insert("retry-after-ms", HeaderValue::from(ms));
    }
    let status = StatusCode::from_u16(status).unwrap();
    let now = SystemTime::UNIX_EPOCH;
    let answer = Answer {
        dialect: Dialect::OpenAi,
        model_call: true,
        status,
        headers: &headers,
        body: body.as_bytes(),
        whole: true,
        now,
    };
    classify(Evidence::Answer(answer), &[])
}

fn policy(dice: &mut Dice) -> Policy {
    let jitter = dice.pick(&[Jitter::Full, Jitter::Equal, Jitter::Additive, Jitter::None]);
    let backoff = Backoff { base: dice.ms(2000), max: dice.ms(30_000), multiplier: 1.0 + 2.0 * dice.unit(), jitter };
    Policy {
        max_attempts: 1 + dice.below(8) as u32,
        max_wait_hint: dice.ms(120_000),
        backoff,
        ambiguous: dice.pick(&[Ambiguous::Safe, Ambiguous::Always, Ambiguous::Never]),
        ambiguous_attempts: dice.below(4) as u32,
        retry_empty: dice.below(2) == 0,
    }
}

/// The global bucket for retries, as a model: a retry that finds it empty waits for its token.
struct Bucket {
    every: Duration,
    burst: u32,
    /// When the bucket would be full again (the virtual scheduling form of a leaky bucket).
    full_at: Duration,
}

impl Bucket {
    /// When a retry that is ready at `now` may go.
    fn take(&mut self, now: Duration) -> Duration {
        let go = now.max(self.full_at.saturating_sub(self.every * (self.burst - 1)));
        self.full_at = self.full_at.max(go) + self.every;
        go
    }
}

/// One call on its way.
#[derive(Debug)]
struct Call {
    effect: Effect,
    deadline: Duration,
    attempts: u32,
    ambiguous: u32,
    /// No attempt before this: the end of the provider's wait.
    not_before: Duration,
    end: Option<(Duration, Settle)>,
}

/// One line of a run's story.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    at: Duration,
    call: usize,
    rule: &'static str,
    decision: Decision,
}

struct Run {
    policy: Policy,
    dice: Dice,
    bucket: Bucket,
    calls: Vec<Call>,
    /// Attempts that are due, earliest first.
    due: BinaryHeap<std::cmp::Reverse<(Duration, usize)>>,
    story: Vec<Event>,
    retries: Vec<Duration>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut dice = Dice(seed);
        let policy = policy(&mut dice);
        let bucket = Bucket {
            every: Duration::from_millis(1 + dice.below(1000)),
            burst: 1 + dice.below(5) as u32,
            full_at: Duration::ZERO,
        };
        let mut run = Run {
            policy,
            dice,
            bucket,
            calls: Vec::new(),
            due: BinaryHeap::new(),
            story: Vec::new(),
            retries: Vec::new(),
        };
        for call in 0..CALLS {
            let start = run.dice.ms(1000);
            let deadline = start + Duration::from_millis(1) + run.dice.ms(300_000);
            let effect = run.dice.pick(&[Effect::Repeatable, Effect::Creates]);
            run.calls.push(Call { effect, deadline, attempts: 0, ambiguous: 0, not_before: start, end: None });
            run.due.push(std::cmp::Reverse((start, call)));
        }
        run
    }

    fn finish(mut self) -> Result<Run, String> {
        while let Some(std::cmp::Reverse((at, call))) = self.due.pop() {
            self.attempt(at, call)?;
        }
        match self.calls.iter().position(|c| c.end.is_none()) {
            Some(call) => Err(format!("call {call} never ended")),
            None => self.check_bucket(),
        }
    }

    fn attempt(&mut self, at: Duration, index: usize) -> Result<(), String> {
        let mood = Mood::next(&mut self.dice);
        let took = self.dice.ms(2000);
        let unit = self.dice.unit();
        let verdict = mood.verdict();
        let call = &mut self.calls[index];
        let told = |what: &str| Err(format!("call {index} at {at:?}: {what}"));
        if at < call.not_before {
            return told("an attempt inside the provider's wait");
        }
        if at >= call.deadline {
            return told("an attempt after the deadline");
        }
        call.attempts += 1;
        call.ambiguous += u32::from(verdict.ambiguous);
        if call.attempts > self.policy.max_attempts {
            return told("more attempts than allowed");
        }
        // What runs into the deadline is cut there.
        let now = (at + took).min(call.deadline);
        let progress = Progress {
            attempts: call.attempts,
            ambiguous: call.ambiguous,
            remaining: call.deadline - now,
            effect: call.effect,
            unit,
        };
        let decision = decide(&verdict, &progress, &self.policy);
        self.story.push(Event { at: now, call: index, rule: verdict.rule, decision });
        self.settle_or_wait(index, now, &verdict, &progress, decision)
    }

    fn settle_or_wait(
        &mut self,
        index: usize,
        now: Duration,
        verdict: &Verdict,
        progress: &Progress,
        decision: Decision,
    ) -> Result<(), String> {
        let call = &mut self.calls[index];
        let delay = match decision {
            Decision::Settle(settle) => {
                call.end = Some((now, settle));
                return check_settled(settle, verdict, progress, &self.policy)
                    .map_err(|e| format!("call {index} at {now:?}: {e}"));
            }
            Decision::Retry { delay } => delay,
        };
        check_retry(delay, verdict, progress, &self.policy).map_err(|e| format!("call {index} at {now:?}: {e}"))?;
        call.not_before = now + verdict.wait.unwrap_or_default();
        let go = self.bucket.take(now + delay);
        if go >= call.deadline {
            // The token would come too late: as the caller does, the answer in hand is given.
            call.end = Some((now, Settle::Deadline));
            return Ok(());
        }
        self.retries.push(go);
        self.due.push(std::cmp::Reverse((go, index)));
        Ok(())
    }

    /// In no stretch of time more retries than the bucket lets through.
    fn check_bucket(mut self) -> Result<Run, String> {
        self.retries.sort();
        for (i, from) in self.retries.iter().enumerate() {
            for (count, to) in self.retries[i..].iter().enumerate() {
                let refilled = (*to - *from).as_nanos() / self.bucket.every.as_nanos();
                if (count + 1) as u128 > refilled + u128::from(self.bucket.burst) {
                    return Err(format!("{} retries from {from:?} to {to:?}", count + 1));
                }
            }
        }
        for (i, call) in self.calls.iter().enumerate() {
            if call.end.is_some_and(|(at, _)| at > call.deadline) {
                return Err(format!("call {i} ended after its deadline"));
            }
        }
        Ok(self)
    }
}

fn check_settled(settle: Settle, verdict: &Verdict, progress: &Progress, policy: &Policy) -> Result<(), String> {
    let fits = match settle {
        Settle::Success => verdict.class == Class::Success,
        Settle::Terminal => verdict.class == Class::Terminal,
        Settle::Recoverable => verdict.class == Class::Recoverable,
        Settle::Exhausted => verdict.class == Class::Transient && progress.attempts == policy.max_attempts,
        Settle::TooLong => verdict.wait.is_some_and(|w| w > policy.max_wait_hint),
        Settle::Ambiguous => {
            verdict.ambiguous && (progress.effect == Effect::Creates || policy.ambiguous == Ambiguous::Never)
        }
        Settle::Deadline => verdict.class != Class::Success,
    };
    if fits { Ok(()) } else { Err(format!("{settle:?} after {verdict:?}")) }
}

fn check_retry(delay: Duration, verdict: &Verdict, progress: &Progress, policy: &Policy) -> Result<(), String> {
    let creates_again = progress.effect == Effect::Creates && verdict.ambiguous;
    if creates_again && (policy.ambiguous != Ambiguous::Always || progress.ambiguous >= policy.ambiguous_attempts) {
        return Err("a creating call is repeated though it may have been carried out".into());
    }
    if verdict.ambiguous && policy.ambiguous == Ambiguous::Never {
        return Err("an ambiguous failure is repeated though nothing ambiguous may be".into());
    }
    if verdict.wait.is_some_and(|w| delay < w || w > policy.max_wait_hint) {
        return Err(format!("a delay of {delay:?} for a wait of {:?}", verdict.wait));
    }
    if delay >= progress.remaining {
        return Err(format!("a delay of {delay:?} with {:?} left", progress.remaining));
    }
    if matches!(verdict.class, Class::Success | Class::Terminal) {
        return Err(format!("a retry after {verdict:?}"));
    }
    Ok(())
}

#[test]
fn ten_thousand_seeds() {
    if let Some(seed) = std::env::var("BACKSTOP_SEED").ok().and_then(|s| s.parse().ok()) {
        let run = Run::new(seed);
        println!("{:?}", run.policy);
        let run = run.finish().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        run.story.iter().for_each(|e| println!("{:>12?} call {} {}: {:?}", e.at, e.call, e.rule, e.decision));
        return;
    }
    let (mut retries, mut settled) = (0, std::collections::HashMap::new());
    for seed in 0..SEEDS {
        let run = Run::new(seed).finish().unwrap_or_else(|e| panic!("{e}\nreplay with BACKSTOP_SEED={seed}"));
        retries += run.retries.len();
        for call in &run.calls {
            *settled.entry(format!("{:?}", call.end.map(|(_, s)| s))).or_insert(0u32) += 1;
        }
    }
    // A simulation in which something never happens has not tested it.
    assert!(retries > 10_000, "{retries} retries");
    assert!(settled.len() == 7 && settled.values().all(|&n| n > 100), "{settled:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..100 {
        let story = || Run::new(seed).finish().map(|r| r.story).unwrap();
        assert_eq!(story(), story(), "seed {seed}");
    }
}
