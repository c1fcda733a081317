//! Everything that limits what is sent to one upstream with one credential: a provider's wait, the learned pace, and the
//! fixed limits of the config. Plain data: it can be kept here or be shared between machines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lesson::Lesson;
use super::pace::{Pace, Ticket};
use super::quota::{Quota, SKEW, Used};

/// What the config allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Learn from what comes back, and honour for all what one was told to wait.
    pub adaptive: bool,
    /// Requests.
    pub requests: Option<Quota>,
    /// Tokens of models.
    pub tokens: Option<Quota>,
}

/// How things stand. Times are lengths since any one beginning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    cooldown: Cooldown,
    pace: Pace,
    requests: Used,
    tokens: Used,
}

/// A wait that the provider asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Cooldown {
    from: Duration,
    until: Duration,
}

impl Limits {
    /// Let one request through that costs so many tokens. `Err`: not before then (later than `now`).
    pub fn take(&mut self, now: Duration, tokens: f64, settings: &Settings) -> Result<Option<Ticket>, Duration> {
        let until = self.earliest(now, 0, tokens, settings);
        if until > now {
            return Err(until);
        }
        let ticket = settings.adaptive.then(|| self.pace.take(now)).transpose()?;
        if let Some(quota) = &settings.requests {
            self.requests.take(now, 1.0, quota);
        }
        if let Some(quota) = &settings.tokens {
            self.tokens.take(now, tokens, quota);
        }
        Ok(ticket)
    }

    /// The earliest that a request could go which costs so many tokens and has so many requests before it, as far as that is
    /// known: a learned pace may yet rise, so it is no reason to send anybody away.
    pub fn earliest(&self, now: Duration, ahead: usize, tokens: f64, settings: &Settings) -> Duration {
        let requests = settings.requests.map(|quota| self.requests.one_by_one(now, ahead as f64 + 1.0, &quota));
        let tokens = settings.tokens.map(|quota| self.tokens.ready_at(now, tokens, &quota));
        let cooldown = settings.adaptive.then(|| self.cooldown.end(now));
        requests.max(tokens).max(cooldown).unwrap_or_default().max(now)
    }

    /// Take in what came of one that was let through.
    pub fn learn(&mut self, now: Duration, ticket: Ticket, lesson: &Lesson) {
        self.pace.learn(now, ticket, lesson.signal);
        if let Some(wait) = lesson.close_for {
            self.close(now, wait);
        }
    }

    /// Take in a limit that was met by a request which was not let through here.
    pub fn limited(&mut self, now: Duration, lesson: &Lesson) {
        match self.pace.take(now) {
            Ok(ticket) => self.learn(now, ticket, lesson),
            Err(_) => lesson.close_for.into_iter().for_each(|wait| self.close(now, wait)),
        }
    }

    /// Nobody sends for so long.
    pub fn close(&mut self, now: Duration, wait: Duration) {
        let until = now.saturating_add(wait);
        if until > self.cooldown.end(now) {
            self.cooldown = Cooldown { from: now, until };
        }
    }

    /// So many tokens fewer were used than had been taken; below zero: more.
    pub fn give_tokens(&mut self, now: Duration, tokens: f64, settings: &Settings) {
        if let Some(quota) = &settings.tokens {
            self.tokens.give(now, tokens, quota);
        }
    }

    /// Keep to a wait that others know of, too. The longest counts.
    pub fn keep_wait(&mut self, other: &Limits) {
        if other.cooldown.until > self.cooldown.until {
            self.cooldown = other.cooldown;
        }
    }

    /// What is left of a provider's wait.
    pub fn cooldown(&self, now: Duration) -> Duration {
        self.cooldown.end(now).saturating_sub(now)
    }

    /// The upstream is in trouble, and only single probes go: an attempt that may well fail is best made by the call that has
    /// the most of them left.
    pub fn is_probing(&self) -> bool {
        self.pace.is_probing()
    }

    /// The learned rate, requests a second.
    pub fn rate(&self) -> Option<f64> {
        self.pace.rate()
    }

    /// Nothing is known that would hold anybody back, and nothing is remembered that would be missed.
    pub fn is_free(&self, now: Duration) -> bool {
        self.pace.is_free() && self.cooldown.end(now) <= now
    }
}

impl Cooldown {
    /// A wait that was noted in what is now the future was noted by a clock that has been set back since: it is void.
    fn end(&self, now: Duration) -> Duration {
        if self.from > now.saturating_add(SKEW) { Duration::ZERO } else { self.until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const ADAPTIVE: Settings = Settings { adaptive: true, requests: None, tokens: None };
    const FIXED: Settings = Settings {
        adaptive: false,
        requests: Some(Quota { rate: 10.0, burst: 1.0 }),
        tokens: Some(Quota { rate: 1.0, burst: 60.0 }),
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn nothing_is_held_back_before_a_sign() {
        let mut limits = Limits::default();
        assert!((0..1000).all(|_| limits.take(NOW, 1e6, &ADAPTIVE).is_ok()) && limits.is_free(NOW));
    }

    #[test]
    fn a_wait_holds_for_all_and_the_longest_counts() {
        let mut limits = Limits::default();
        limits.close(NOW, ms(500));
        limits.close(NOW, ms(100));
        assert_eq!(limits.take(NOW, 0.0, &ADAPTIVE).unwrap_err(), NOW + ms(500));
        assert_eq!((limits.cooldown(NOW), limits.cooldown(NOW + ms(501))), (ms(500), ms(0)));
        assert!(limits.take(NOW, 0.0, &Settings { adaptive: false, ..ADAPTIVE }).is_ok());
        assert!(limits.take(NOW + ms(500), 0.0, &ADAPTIVE).is_ok());
    }

    #[test]
    fn the_longest_of_two_waits_is_kept() {
        let (mut ours, mut theirs) = (Limits::default(), Limits::default());
        ours.close(NOW, ms(500));
        theirs.close(NOW, ms(100));
        theirs.keep_wait(&ours);
        assert_eq!(theirs.cooldown(NOW), ms(500));
        theirs.keep_wait(&Limits::default());
        assert_eq!(theirs.cooldown(NOW), ms(500));
    }

    #[test]
    fn a_clock_set_back_voids_a_wait() {
        let mut limits = Limits::default();
        limits.close(NOW, ms(60_000));
        assert!(limits.take(NOW - ms(5000), 0.0, &ADAPTIVE).is_ok());
    }

    #[test]
    fn the_scarcer_of_two_fixed_limits_counts_and_both_are_charged() {
        let mut limits = Limits::default();
        assert!(limits.take(NOW, 60.0, &FIXED).is_ok());
        assert_eq!(limits.take(NOW, 1.0, &FIXED).unwrap_err(), NOW + ms(1000));
        limits.give_tokens(NOW, 50.0, &FIXED);
        assert_eq!(limits.take(NOW, 1.0, &FIXED).unwrap_err(), NOW + ms(100));
        assert_eq!(limits.earliest(NOW, 9, 1.0, &FIXED), NOW + ms(1000));
    }
}
