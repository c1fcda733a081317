//! Sends spaced in time: one each `1 / rate`, by virtual scheduling (GCRA, ITU-T I.371).

use serde::{Deserialize, Serialize};

use super::{Micros, SECOND};

/// The longest wait between two sends, whatever the rate: nothing stops for ever.
pub(super) const LONGEST: Micros = 30 * SECOND;
/// A waker may be this late and the pace is still kept: timers have 1 ms, and a busy machine more.
const LATE: Micros = 5_000;
/// At low rates half an interval may be lost and made up for, up to this.
const LATEST: Micros = 50_000;

/// When the next send may go, and how far apart sends are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spacing {
    /// The next send's time.
    #[serde(rename = "n")]
    pub next: Micros,
    /// Sends a second.
    #[serde(rename = "r")]
    pub rate: f64,
}

/// What a send found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// It came for its slot as soon as there was one: the rate is used up.
    Used,
    /// The slot had been free for so long: demand is lower than the rate, or something else held it back.
    Idle(Micros),
}

impl Spacing {
    /// Time between two sends.
    pub fn interval(&self) -> Micros {
        if self.rate.is_nan() || self.rate <= 0.0 {
            return LONGEST;
        }
        // A cast of a float saturates.
        ((SECOND as f64 / self.rate) as Micros).clamp(1, LONGEST)
    }

    /// Take a slot, or be told when the next one is.
    pub fn take(&mut self, now: Micros) -> Result<Slot, Micros> {
        if now < self.next {
            // A state that was written by another clock, or changed by hand, is not waited for longer than our own bound.
            self.next = self.next.min(now.saturating_add(2 * LONGEST));
            return Err(self.next);
        }
        let interval = self.interval();
        let allowed = LATE.max((interval / 2).min(LATEST));
        let late = now - self.next;
        self.next = now.saturating_sub(allowed).max(self.next).saturating_add(interval);
        Ok(if late <= allowed { Slot::Used } else { Slot::Idle(late) })
    }
}
