//! The global token bucket: every retry of every client takes one token, so that a thousand agents cannot stampede.
//!
//! Waiters stand in line, which is fair, wakes one at a time, and asks Redis (where there is one) for one token at a time.
//! Bound of the line: `server.max_connections`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::store::Store;
use crate::config;
use crate::policy::quota::{Quota, Used};

/// The bucket.
pub struct RetryBucket {
    settings: config::RetryBucket,
    quota: Quota,
    store: Store<Used>,
    line: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
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
    /// A bucket, as full as the store says.
    pub fn new(settings: config::RetryBucket, store: Store<Used>) -> Self {
        let quota = Quota { rate: settings.rate.max(1e-6), burst: f64::from(settings.burst.max(1)) };
        RetryBucket { settings, quota, store, line: tokio::sync::Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> config::RetryBucket {
        self.settings
    }

    /// Take one token, waiting for it until `deadline`. Being dropped while waiting gives the place up.
    pub async fn take(&self, deadline: Instant) -> Token {
        let is_alone = self.waiting.load(Ordering::Relaxed) == 0;
        if is_alone && !self.store.must_ask() && self.store.now(|used, now| used.take_one(now, &self.quota)).is_ok() {
            return Token::AtOnce;
        }
        let place = Place::enter(&self.waiting);
        // Each one ahead needs a token of its own: what cannot be had in time is not waited for.
        let missing = (place.ahead as f64 - self.level()).max(0.0);
        let ahead = Duration::from_secs_f64((missing / self.quota.rate).min(1e9));
        if Instant::now() + ahead > deadline {
            return Token::NotInTime;
        }
        timeout_at(deadline, self.in_line()).await.unwrap_or(Token::NotInTime)
    }

    async fn in_line(&self) -> Token {
        let _turn = self.line.lock().await;
        let mut token = Token::AtOnce;
        while let Err(at) = self.store.update(|used, now| used.take_one(now, &self.quota)).await {
            token = Token::Waited;
            sleep_until(self.store.instant(at)).await;
        }
        token
    }

    /// Tokens in the bucket now.
    pub fn level(&self) -> f64 {
        self.store.look(|used, now| used.left(now, &self.quota)).max(0.0)
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

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn bucket(rate: f64, burst: u32) -> RetryBucket {
        RetryBucket::new(config::RetryBucket { rate, burst }, Store::local())
    }

    #[tokio::test(start_paused = true)]
    async fn the_burst_is_free_and_then_the_rate_holds() {
        let bucket = bucket(10.0, 5);
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
        let bucket = std::sync::Arc::new(bucket(1.0, 1));
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
        let bucket = bucket(1.0, 1);
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(bucket.take(far).await, Token::AtOnce);
        assert!(tokio::time::timeout(Duration::from_millis(10), bucket.take(far)).await.is_err());
        assert_eq!(bucket.waiting.load(Ordering::Relaxed), 0);
        assert!(bucket.level() < 0.1);
        sleep(Duration::from_secs(5)).await;
        assert!((bucket.level() - 1.0).abs() < 1e-9);
    }
}
