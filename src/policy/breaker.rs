//! The circuit breaker: an upstream that fails all the time is left alone for a while, then asked once.
//!
//! Closed, it counts what comes back within a sliding window (ten slots, so that it forgets a tenth at a time). Open, it
//! lets nothing through. After `open_for` it is half open: one attempt goes as a probe. Whatever comes back that is no
//! failure (a 404 is alive as well) closes it with an empty window; a failure opens it again. A probe that is never heard
//! of again holds its place for `open_for` at most.

use std::time::Duration;

/// `[breaker]`: when a circuit opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The time that is looked back on.
    pub window: Duration,
    /// Failures among the attempts in the window that open it, above 0, up to 1.
    pub failure_ratio: f64,
    /// Attempts in the window below which it stays closed.
    pub min_requests: u32,
    /// How long nothing is sent.
    pub open_for: Duration,
}

/// Parts of the window.
const SLOTS: usize = 10;

/// The circuit of one upstream and credential. Times are lengths since any one beginning.
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    circuit: Circuit,
    slots: [Slot; SLOTS],
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Circuit {
    #[default]
    Closed,
    /// Until then nothing goes; after it one probe.
    Open { until: Duration },
    /// A probe is under way. If nothing is heard of it until then, another may go.
    Probing { until: Duration },
}

/// What came back within one part of the window.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Which part of all time.
    number: u64,
    good: u32,
    failed: u32,
}

/// How an attempt was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// As one of many.
    Free,
    /// As the one that shows whether the upstream is back.
    Probe,
}

/// What an attempt showed of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It answers, whatever it says.
    Alive,
    /// A failure on the way, or a 5xx.
    Failure,
    /// Nothing: the client left.
    None,
}

impl Breaker {
    /// Nothing may go before then.
    pub fn closed_until(&self, now: Duration) -> Option<Duration> {
        match self.circuit {
            Circuit::Open { until } | Circuit::Probing { until } if now < until => Some(until),
            _ => None,
        }
    }

    /// The circuit is not closed.
    pub fn is_open(&self) -> bool {
        self.circuit != Circuit::Closed
    }

    /// Let an attempt through that [`Breaker::closed_until`] has nothing against.
    pub fn enter(&mut self, now: Duration, settings: &Settings) -> Pass {
        if self.circuit == Circuit::Closed {
            return Pass::Free;
        }
        self.circuit = Circuit::Probing { until: now.saturating_add(settings.open_for) };
        Pass::Probe
    }

    /// Take in what an attempt showed. `true`: that opened the circuit.
    pub fn learn(&mut self, now: Duration, pass: Pass, sign: Sign, settings: &Settings) -> bool {
        match (pass, sign) {
            (Pass::Probe, Sign::Alive) => *self = Breaker::default(),
            (Pass::Probe, Sign::Failure) => return self.open(now, settings),
            // The next one is the probe.
            (Pass::Probe, Sign::None) => self.circuit = Circuit::Open { until: now },
            (Pass::Free, Sign::None) => {}
            // What was sent before it opened tells nothing of now.
            (Pass::Free, _) if self.is_open() => {}
            (Pass::Free, sign) => {
                self.count(now, sign, settings);
                if sign == Sign::Failure && self.too_many(now, settings) {
                    return self.open(now, settings);
                }
            }
        }
        false
    }

    fn open(&mut self, now: Duration, settings: &Settings) -> bool {
        *self = Breaker {
            circuit: Circuit::Open { until: now.saturating_add(settings.open_for) },
            slots: [Slot::default(); SLOTS],
        };
        true
    }

    fn count(&mut self, now: Duration, sign: Sign, settings: &Settings) {
        let number = number(now, settings);
        let slot = &mut self.slots[(number % SLOTS as u64) as usize];
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        let count = if sign == Sign::Failure { &mut slot.failed } else { &mut slot.good };
        *count = count.saturating_add(1);
    }

    fn too_many(&self, now: Duration, settings: &Settings) -> bool {
        let number = number(now, settings);
        let recent = self.slots.iter().filter(|slot| number.abs_diff(slot.number) < SLOTS as u64);
        let (good, failed) = recent.fold((0_u64, 0_u64), |(good, failed), slot| {
            (good + u64::from(slot.good), failed + u64::from(slot.failed))
        });
        let all = good + failed;
        all >= u64::from(settings.min_requests) && failed as f64 >= settings.failure_ratio * all as f64
    }
}

/// Which part of all time a moment is in; counted from 1, so that an unused slot is none of them for long.
fn number(now: Duration, settings: &Settings) -> u64 {
    let part = (settings.window / SLOTS as u32).max(Duration::from_millis(1));
    u64::try_from(now.as_micros() / part.as_micros().max(1)).unwrap_or(u64::MAX - 1).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        window: Duration::from_secs(30),
        failure_ratio: 0.5,
        min_requests: 20,
        open_for: Duration::from_secs(15),
    };

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn tell(breaker: &mut Breaker, now: Duration, sign: Sign, times: u32) {
        for _ in 0..times {
            breaker.learn(now, Pass::Free, sign, &SETTINGS);
        }
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        tell(&mut breaker, secs(100), Sign::Failure, 20);
        breaker
    }

    #[test]
    fn opens_at_the_ratio_but_not_below_the_minimum() {
        let mut breaker = Breaker::default();
        tell(&mut breaker, secs(1), Sign::Failure, 19);
        assert!(!breaker.is_open());
        tell(&mut breaker, secs(1), Sign::Failure, 1);
        assert_eq!(breaker.closed_until(secs(1)), Some(secs(16)));

        let mut mostly_good = Breaker::default();
        tell(&mut mostly_good, secs(1), Sign::Alive, 100);
        tell(&mut mostly_good, secs(2), Sign::Failure, 99);
        assert!(!mostly_good.is_open());
        tell(&mut mostly_good, secs(2), Sign::Failure, 1);
        assert!(mostly_good.is_open());
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut breaker = Breaker::default();
        tell(&mut breaker, secs(1), Sign::Failure, 19);
        tell(&mut breaker, secs(40), Sign::Failure, 19);
        assert!(!breaker.is_open());
        let mut later = Breaker::default();
        tell(&mut later, secs(1), Sign::Alive, 1000);
        tell(&mut later, secs(40), Sign::Failure, 20);
        assert!(later.is_open());
    }

    #[test]
    fn one_probe_at_a_time_and_any_answer_closes() {
        let mut breaker = opened();
        assert!(breaker.closed_until(secs(114)).is_some() && breaker.closed_until(secs(115)).is_none());
        assert_eq!(breaker.enter(secs(115), &SETTINGS), Pass::Probe);
        assert_eq!(breaker.closed_until(secs(116)), Some(secs(130)));
        breaker.learn(secs(117), Pass::Probe, Sign::Alive, &SETTINGS);
        assert!(!breaker.is_open());
        assert_eq!(breaker.enter(secs(117), &SETTINGS), Pass::Free);
    }

    #[test]
    fn a_failed_probe_opens_it_again_and_a_lost_one_frees_the_place() {
        let mut breaker = opened();
        breaker.enter(secs(115), &SETTINGS);
        assert!(breaker.learn(secs(116), Pass::Probe, Sign::Failure, &SETTINGS));
        assert_eq!(breaker.closed_until(secs(116)), Some(secs(131)));
        breaker.enter(secs(131), &SETTINGS);
        breaker.learn(secs(132), Pass::Probe, Sign::None, &SETTINGS);
        assert_eq!(breaker.closed_until(secs(132)), None);
        breaker.enter(secs(132), &SETTINGS);
        assert_eq!(breaker.closed_until(secs(147)), None, "nothing was heard of the probe");
    }

    #[test]
    fn late_news_from_before_it_opened_changes_nothing() {
        let mut breaker = opened();
        tell(&mut breaker, secs(101), Sign::Alive, 50);
        tell(&mut breaker, secs(101), Sign::Failure, 50);
        assert_eq!(breaker.closed_until(secs(101)), Some(secs(115)));
    }
}
