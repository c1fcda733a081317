//! The provider of a herd: a token bucket, and a full outage in the middle.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::support::{BUSY_BODY, LIMITED_BODY, Script, Step, chat, ms, secs};

/// How the provider behaves.
#[derive(Debug, Clone)]
pub struct World {
    /// Requests a second, and how many at once after a pause.
    pub rate: f64,
    pub burst: f64,
    /// Until the answer of a request that is accepted.
    pub latency: Duration,
    /// Until a 429 or 503: those are told at once, give or take the way there and back.
    pub refusal: Range<Duration>,
    /// 503 without a hint.
    pub outage: Range<Duration>,
    /// A 429 takes a token too, as far as there is one.
    pub burns: bool,
    /// A 429 tells the time until there is a token, in whole seconds, rounded up.
    pub hints: bool,
}

/// The one of the bench, with a 429 that costs nothing and tells nothing.
pub const WORLD: World = World {
    rate: 20.0,
    burst: 20.0,
    latency: ms(250),
    refusal: ms(5)..ms(30),
    outage: secs(20)..secs(25),
    burns: false,
    hints: false,
};

/// What the provider saw, in times since the start.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub arrivals: Vec<Duration>,
    pub limited: Vec<Duration>,
    pub failed: Vec<Duration>,
    /// When the first 429 was told.
    pub told: Option<Duration>,
}

/// A running provider.
pub struct Provider {
    world: World,
    start: OnceLock<Instant>,
    state: Mutex<State>,
}

struct State {
    bucket: Bucket,
    dice: fastrand::Rng,
    record: Record,
}

/// A token bucket, as of a time since the start.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    level: f64,
    at: Duration,
}

impl World {
    pub fn new(burns: bool, hints: bool) -> World {
        World { burns, hints, ..WORLD }
    }

    /// The physical optimum: when the last of so many calls can be answered if enough are always waiting, none is ever sent
    /// in vain and the outage is slept through.
    pub fn optimum(&self, calls: usize) -> Duration {
        let mut bucket = Bucket { level: self.burst, at: Duration::ZERO };
        let mut now = Duration::ZERO;
        for _ in 0..calls {
            if self.outage.contains(&now) {
                now = self.outage.end;
            }
            bucket.fill(now, self);
            if !bucket.take(self) {
                now += bucket.missing(self);
                now = if self.outage.contains(&now) { self.outage.end } else { now };
                bucket.fill(now, self);
                bucket.level = (bucket.level - 1.0).max(0.0);
            }
        }
        now + self.latency
    }
}

impl Bucket {
    fn fill(&mut self, now: Duration, world: &World) {
        let came = now.saturating_sub(self.at).as_secs_f64() * world.rate;
        (self.level, self.at) = ((self.level + came).min(world.burst), now);
    }

    fn take(&mut self, world: &World) -> bool {
        // Decimal rounding must not cost a caller that comes exactly in time.
        let fits = self.level >= 1.0 - 1e-9;
        if fits {
            self.level = (self.level - 1.0).max(0.0);
        } else if world.burns {
            self.level = 0.0; // less than one was there, and it never goes below zero
        }
        fits
    }

    /// Until there is a token.
    fn missing(&self, world: &World) -> Duration {
        Duration::from_secs_f64((1.0 - self.level).max(0.0) / world.rate)
    }
}

impl Provider {
    pub fn new(world: &World, seed: u64) -> Arc<Self> {
        let bucket = Bucket { level: world.burst, at: Duration::ZERO };
        let dice = fastrand::Rng::with_seed(seed ^ 0x0070_726f_7669_6465);
        let state = Mutex::new(State { bucket, dice, record: Record::default() });
        Arc::new(Provider { world: world.clone(), start: OnceLock::new(), state })
    }

    /// The start of the run: the outage counts from here.
    pub fn begin(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }

    pub fn record(&self) -> Record {
        self.state.lock().unwrap().record.clone()
    }

    /// As the script of an upstream. It is asked at the head of a request too, but what counts is a whole one.
    pub fn script(self: &Arc<Self>) -> Script {
        let provider = self.clone();
        Script::by(move |seen| if seen.whole { provider.answer() } else { Step::silence() })
    }

    fn answer(&self) -> Step {
        let now = self.begin().elapsed();
        let world = &self.world;
        let State { bucket, dice, record } = &mut *self.state.lock().unwrap();
        record.arrivals.push(now);
        let refusal = world.refusal.start + (world.refusal.end - world.refusal.start).mul_f64(dice.f64());
        if world.outage.contains(&now) {
            record.failed.push(now);
            return Step::json(503, BUSY_BODY).delay(refusal);
        }
        bucket.fill(now, world);
        if bucket.take(world) {
            return chat().delay(world.latency);
        }
        record.limited.push(now);
        record.told = record.told.into_iter().chain([now + refusal]).min();
        let step = Step::json(429, LIMITED_BODY).delay(refusal);
        let wait = bucket.missing(world).as_secs_f64().ceil().max(1.0);
        if world.hints { step.header("retry-after", wait.to_string()) } else { step }
    }
}
