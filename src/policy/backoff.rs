//! Exponential backoff with jitter.
//!
//! Calls that failed together must not come back together, so each delay is spread. The four ways are those of
//! "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015) and of the SDKs. All arithmetic is on whole durations
//! and saturates: no step count, however large, overflows.

use std::time::Duration;

/// How a delay is spread. `d = min(base × multiplier^n, max)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// U(0, d)
    Full,
    /// d/2 + U(0, d/2)
    Equal,
    /// d + U(0, d/4)
    Additive,
    /// d
    None,
}

/// The schedule of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first delay.
    pub base: Duration,
    /// The largest delay before jitter.
    pub max: Duration,
    /// Growth a step.
    pub multiplier: f64,
    /// How a delay is spread.
    pub jitter: Jitter,
}

/// The least spread on top of a provider's wait: as far as a herd of calls with one hint must be pulled apart.
const MIN_SPREAD: Duration = Duration::from_millis(100);
/// The largest spread on top of a provider's wait: it said when to come, so much later would be waste.
const MAX_SPREAD: Duration = Duration::from_secs(1);

impl Backoff {
    /// The delay before retry `n` (0 is the first). `unit` is the dice, in [0, 1).
    pub fn delay(&self, n: u32, unit: f64) -> Duration {
        let d = self.step(n);
        match self.jitter {
            Jitter::Full => scale(d, unit),
            Jitter::Equal => (d / 2).saturating_add(scale(d / 2, unit)),
            Jitter::Additive => d.saturating_add(scale(d / 4, unit)),
            Jitter::None => d,
        }
    }

    /// The delay before retry `n` when the provider may have said how long to wait. Its word is a floor and replaces the
    /// schedule; up to a fifth of it (at least 100 ms, at most 1 s) comes on top.
    pub fn with_hint(&self, hint: Option<Duration>, n: u32, unit: f64) -> Duration {
        let Some(hint) = hint else {
            return self.delay(n, unit);
        };
        let spread = match self.jitter {
            Jitter::None => Duration::ZERO,
            _ => (hint / 5).clamp(MIN_SPREAD, MAX_SPREAD),
        };
        hint.saturating_add(scale(spread, unit))
    }

    /// `min(base × multiplier^n, max)`
    fn step(&self, n: u32) -> Duration {
        let growth = self.multiplier.powi(i32::try_from(n).unwrap_or(i32::MAX));
        scale(self.base, growth).min(self.max)
    }
}

/// `d × factor`, the maximum where it does not fit, zero where the factor is none.
fn scale(d: Duration, factor: f64) -> Duration {
    let seconds = d.as_secs_f64() * factor;
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JITTERS: [Jitter; 4] = [Jitter::Full, Jitter::Equal, Jitter::Additive, Jitter::None];

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn backoff(jitter: Jitter) -> Backoff {
        Backoff { base: ms(1000), max: ms(30_000), multiplier: 2.0, jitter }
    }

    #[test]
    fn doubles_up_to_the_maximum() {
        let b = backoff(Jitter::None);
        let delays: Vec<_> = (0..7).map(|n| b.delay(n, 0.5)).collect();
        assert_eq!(delays, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].map(ms));
        assert_eq!(b.delay(u32::MAX, 0.5), ms(30_000));
    }

    /// A base of exactly 1 s is where jitter on the fraction of a second gives none.
    #[test]
    fn jitter_spreads_whole_durations() {
        for (jitter, low, middle, high) in [
            (Jitter::Full, 0, 500, 999),
            (Jitter::Equal, 500, 750, 999),
            (Jitter::Additive, 1000, 1125, 1249),
            (Jitter::None, 1000, 1000, 1000),
        ] {
            let at = |unit| backoff(jitter).delay(0, unit).as_millis();
            assert_eq!((at(0.0), at(0.5), at(0.9999)), (low, middle, high), "{jitter:?}");
        }
    }

    #[test]
    fn a_hint_is_a_floor_with_a_little_on_top() {
        let b = backoff(Jitter::Full);
        assert_eq!(b.with_hint(Some(ms(2000)), 5, 0.0), ms(2000));
        assert_eq!(b.with_hint(Some(ms(2000)), 5, 0.5), ms(2200));
        assert_eq!(b.with_hint(Some(ms(50)), 5, 0.5), ms(100));
        assert_eq!(b.with_hint(Some(ms(60_000)), 0, 0.5), ms(60_500));
        assert_eq!(b.with_hint(Some(Duration::MAX), 0, 0.9), Duration::MAX);
        assert_eq!(b.with_hint(None, 1, 0.5), b.delay(1, 0.5));
        assert_eq!(backoff(Jitter::None).with_hint(Some(ms(2000)), 0, 0.9), ms(2000));
    }

    proptest! {
        #[test]
        fn bounds_hold_for_every_schedule(
            base: u64, max: u64, multiplier in prop::num::f64::ANY, n: u32, unit in 0.0f64..1.0, hint: Option<u64>, j in 0usize..4,
        ) {
            let b = Backoff { base: ms(base), max: ms(max), multiplier, jitter: JITTERS[j] };
            let d = b.delay(n, unit);
            let bound = if b.jitter == Jitter::Additive { b.max.saturating_add(b.max / 4) } else { b.max };
            // f64 holds 53 bits of a number of seconds: the sum of two halves of a huge one may be off by that.
            prop_assert!(d <= bound.saturating_add(scale(bound, 1e-9)), "{d:?} > {bound:?}");
            if let Some(hint) = hint.map(ms) {
                let waited = b.with_hint(Some(hint), n, unit);
                prop_assert!(hint <= waited && waited <= hint.saturating_add(MAX_SPREAD));
            }
        }

        #[test]
        fn delays_grow(base in 1u64..10_000, n in 0u32..40, unit in 0.0f64..1.0, j in 0usize..4) {
            let b = Backoff { base: ms(base), max: ms(60_000), multiplier: 2.0, jitter: JITTERS[j] };
            prop_assert!(b.delay(n, unit) <= b.delay(n + 1, unit));
        }
    }
}
