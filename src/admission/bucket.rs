//! The global token bucket: every retry of every client takes one token, so that a thousand agents cannot stampede.
//!
//! governor keeps the count (GCRA). Its own waiting ignores tokio's clock, so we ask, and sleep ourselves; waiters stand
//! in line, which is fair and wakes one at a time. With a Redis a token of the bucket in there is needed as well, so that all
//! Backstops together stay within it; without, this one still does. Bound of the line: `server.max_connections`.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::StateInformationMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::store::Store;
use crate::config;
use crate::policy::quota::{Quota as Shared, Used};

/// The bucket.
pub struct RetryBucket {
    settings: config::RetryBucket,
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, StateInformationMiddleware>,
    /// The bucket of all Backstops together.
    shared: Option<(Store<Used>, Shared)>,
    line: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
    /// Tokens that were left after the last one was taken, and when that was.
    last: std::sync::Mutex<(f64, Instant)>,
}

/// How a token was got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// There was one.
    AtOnce,
    /// It had to be waited for.
    Waited,
    /// None can be had by the deadline.
    NotInTime,
}

impl RetryBucket {
    /// A full bucket. `shared`: where its share of all Backstops' bucket is kept.
    pub fn new(settings: config::RetryBucket, shared: Option<Store<Used>>) -> Self {
        let burst = NonZeroU32::new(settings.burst).unwrap_or(NonZeroU32::MIN);
        let period = Duration::from_secs_f64(1.0 / settings.rate.max(1e-6)).max(Duration::from_nanos(1));
        let quota = Quota::with_period(period).unwrap_or(Quota::per_second(NonZeroU32::MIN)).allow_burst(burst);
        let limiter = RateLimiter::direct_with_clock(quota, TokioClock(Instant::now()))
            .with_middleware::<StateInformationMiddleware>();
        let all = Shared { rate: settings.rate.max(1e-6), burst: f64::from(settings.burst.max(1)) };
        RetryBucket {
            settings,
            limiter,
            shared: shared.map(|store| (store, all)),
            line: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::new(0),
            last: std::sync::Mutex::new((f64::from(settings.burst), Instant::now())),
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> config::RetryBucket {
        self.settings
    }

    /// Take one token, waiting for it until `deadline`. Being dropped while waiting gives the place up.
    pub async fn take(&self, deadline: Instant) -> Token {
        if self.shared.is_none() && self.waiting.load(Ordering::Relaxed) == 0 && self.check().is_ok() {
            return Token::AtOnce;
        }
        let place = Place::enter(&self.waiting);
        // Each one ahead needs a token of its own: what cannot be had in time is not waited for.
        let missing = (place.ahead as f64 - self.level()).max(0.0);
        let ahead = Duration::from_secs_f64((missing / self.settings.rate.max(1e-6)).min(1e9));
        if Instant::now() + ahead > deadline {
            return Token::NotInTime;
        }
        timeout_at(deadline, self.in_line()).await.unwrap_or(Token::NotInTime)
    }

    async fn in_line(&self) -> Token {
        let _turn = self.line.lock().await;
        let mut token = Token::AtOnce;
        while let Err(wait) = self.check() {
            token = Token::Waited;
            sleep(wait).await;
        }
        let Some((store, quota)) = &self.shared else { return token };
        while let Err(at) = store.update(|used, now| used.take_one(now, quota)).await {
            token = Token::Waited;
            sleep_until(store.instant(at)).await;
        }
        token
    }

    fn check(&self) -> Result<(), Duration> {
        match self.limiter.check() {
            Ok(snapshot) => {
                let left = f64::from(snapshot.remaining_burst_capacity());
                *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = (left, Instant::now());
                Ok(())
            }
            Err(not_yet) => Err(not_yet.wait_time_from(self.limiter.clock().now()).max(Duration::from_millis(1))),
        }
    }

    /// Tokens in the bucket now.
    pub fn level(&self) -> f64 {
        let (left, at) = *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = (left + at.elapsed().as_secs_f64() * self.settings.rate).min(f64::from(self.settings.burst));
        let all = self.shared.as_ref().map(|(store, quota)| store.look(|used, now| used.left(now, quota)).max(0.0));
        all.map_or(own, |all| all.min(own))
    }
}

/// A place in the line, left on drop.
struct Place<'a> {
    waiting: &'a AtomicUsize,
    ahead: usize,
}

impl<'a> Place<'a> {
    fn enter(waiting: &'a AtomicUsize) -> Self {
        Place { waiting, ahead: waiting.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// tokio's clock for governor, as time since the bucket was made.
#[derive(Debug, Clone)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_burst_is_free_and_then_the_rate_holds() {
        let bucket = RetryBucket::new(config::RetryBucket { rate: 10.0, burst: 5 }, None);
        let start = Instant::now();
        let far = start + Duration::from_secs(60);
        for _ in 0..5 {
            assert_eq!(bucket.take(far).await, Token::AtOnce);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            assert_eq!(bucket.take(far).await, Token::Waited);
        }
        let took = start.elapsed().as_secs_f64();
        assert!((1.99..2.1).contains(&took), "20 tokens at 10 a second took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_had_in_time_is_not_waited_for() {
        let bucket = std::sync::Arc::new(RetryBucket::new(config::RetryBucket { rate: 1.0, burst: 1 }, None));
        let deadline = Instant::now() + Duration::from_secs(3);
        assert_eq!(bucket.take(deadline).await, Token::AtOnce);
        let takes = (0..10).map(|_| {
            let bucket = bucket.clone();
            tokio::spawn(async move { bucket.take(deadline).await })
        });
        let mut got = Vec::new();
        for take in takes {
            got.push(take.await.unwrap());
        }
        let waited = got.iter().filter(|token| **token == Token::Waited).count();
        assert!((2..=3).contains(&waited), "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_waiter_gives_its_place_up() {
        let bucket = RetryBucket::new(config::RetryBucket { rate: 1.0, burst: 1 }, None);
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(bucket.take(far).await, Token::AtOnce);
        assert!(tokio::time::timeout(Duration::from_millis(10), bucket.take(far)).await.is_err());
        assert_eq!(bucket.waiting.load(Ordering::Relaxed), 0);
        assert!(bucket.level() < 0.1);
        sleep(Duration::from_secs(5)).await;
        assert!((bucket.level() - 1.0).abs() < 1e-9);
    }
}
