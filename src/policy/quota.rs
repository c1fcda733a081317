//! A fixed limit: so much a second, so much at once (GCRA, the virtual scheduling form of the leaky bucket of ITU-T I.371).
//!
//! The whole state is one moment, which makes it easy to share between machines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    /// Units a second, above 0.
    pub rate: f64,
    /// Units that can be had at once, 1 or more.
    pub burst: f64,
}

/// How far a limit is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// When all of the burst is there again.
    full_at: Duration,
}

/// Clocks of several machines differ by less.
pub(super) const SKEW: Duration = Duration::from_secs(1);
/// Longer than any wait that anybody sits through, and short enough that no clock overflows.
const FOREVER: f64 = 365.0 * 24.0 * 3600.0;

impl Used {
    /// When `units` can be had; not after `now`: at once. More than the burst is had when all of the burst is there.
    pub fn ready_at(&self, now: Duration, units: f64, quota: &Quota) -> Duration {
        self.one_by_one(now, units.min(quota.burst), quota)
    }

    /// When the last of `units` can be had that are taken as they come.
    pub fn one_by_one(&self, now: Duration, units: f64, quota: &Quota) -> Duration {
        let full = self.full_at(now, quota).max(now);
        let early = full.saturating_sub(seconds((quota.burst - units) / quota.rate));
        early.saturating_add(seconds((units - quota.burst) / quota.rate))
    }

    /// Units that can be had now.
    pub fn left(&self, now: Duration, quota: &Quota) -> f64 {
        quota.burst - self.full_at(now, quota).saturating_sub(now).as_secs_f64() * quota.rate
    }

    /// Take one unit. `Err`: not before then (later than `now`).
    pub fn take_one(&mut self, now: Duration, quota: &Quota) -> Result<(), Duration> {
        let ready = self.ready_at(now, 1.0, quota);
        if ready > now {
            return Err(ready);
        }
        self.take(now, 1.0, quota);
        Ok(())
    }

    /// Take `units`, there or not; of more than the burst no more than that: nobody is locked out by one absurd figure.
    pub fn take(&mut self, now: Duration, units: f64, quota: &Quota) {
        let units = units.min(quota.burst);
        let full = self.full_at(now, quota).max(now).saturating_add(seconds(units / quota.rate));
        self.full_at = full.min(Self::furthest(now, quota));
    }

    /// Give back what was not used, or take (below zero) what was used beyond what had been taken.
    pub fn give(&mut self, now: Duration, units: f64, quota: &Quota) {
        if units >= 0.0 {
            let units = units.min(quota.burst);
            self.full_at = self.full_at.saturating_sub(seconds(units / quota.rate));
        } else {
            self.take(now, -units, quota);
        }
    }

    /// Further off than anything taken here can bring it, it was noted under another limit, or by a clock that has been set
    /// back since: it is void, and locks nobody out.
    fn full_at(&self, now: Duration, quota: &Quota) -> Duration {
        if self.full_at > Self::furthest(now, quota).saturating_add(SKEW) { now } else { self.full_at }
    }

    /// An empty bucket, and as much again: what was used beyond what had been taken.
    fn furthest(now: Duration, quota: &Quota) -> Duration {
        now.saturating_add(seconds(2.0 * quota.burst / quota.rate))
    }
}

fn seconds(n: f64) -> Duration {
    Duration::from_secs_f64(if n.is_finite() { n.clamp(0.0, FOREVER) } else { FOREVER })
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota { rate: 10.0, burst: 5.0 };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_burst_then_the_rate() {
        let mut used = Used::default();
        let now = ms(60_000);
        for _ in 0..5 {
            assert!(used.ready_at(now, 1.0, &QUOTA) <= now);
            used.take(now, 1.0, &QUOTA);
        }
        assert_eq!(used.ready_at(now, 1.0, &QUOTA), ms(60_100));
        assert_eq!(used.ready_at(now, 3.0, &QUOTA), ms(60_300));
        assert_eq!(used.ready_at(now, 99.0, &QUOTA), ms(60_500), "more than the burst: when it is full");
        assert!(used.ready_at(ms(60_500), 5.0, &QUOTA) <= ms(60_500));
    }

    #[test]
    fn one_by_one_until_nothing_is_left() {
        let (mut used, now) = (Used::default(), ms(60_000));
        let taken = (0..9).filter(|_| used.take_one(now, &QUOTA).is_ok()).count();
        assert_eq!((taken, used.left(now, &QUOTA), used.left(ms(60_200), &QUOTA)), (5, 0.0, 2.0));
        assert_eq!(used.take_one(now, &QUOTA), Err(ms(60_100)));
    }

    #[test]
    fn what_was_not_used_is_given_back() {
        let (mut used, now) = (Used::default(), ms(60_000));
        used.take(now, 5.0, &QUOTA);
        used.give(now, 2.0, &QUOTA);
        assert!(used.ready_at(now, 2.0, &QUOTA) <= now && used.ready_at(now, 3.0, &QUOTA) > now);
        used.give(now, -4.0, &QUOTA);
        assert_eq!(used.ready_at(now, 1.0, &QUOTA), ms(60_300));
    }

    #[test]
    fn a_clock_that_steps_back_locks_nobody_out() {
        let mut used = Used::default();
        used.take(ms(10_000_000), 5.0, &QUOTA);
        assert!(used.ready_at(ms(1000), 1.0, &QUOTA) <= ms(121_000));
    }
}
