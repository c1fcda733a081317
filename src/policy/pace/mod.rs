//! The learned rate of one upstream and credential (and model).
//!
//! # The law
//!
//! **Free.** Nothing is held back and nothing counted until the first rejection (429), or a row of failures.
//!
//! **The measure.** A provider's limit is a bucket: `rate` tokens a second, up to `burst`. A rejection tells that the bucket
//! is empty at that moment. So between two rejections, sent at t₀ and t₁, exactly `rate × (t₁ − t₀) ± 1` sends were accepted,
//! whatever the burst, and
//!
//! ```text
//! (A − 1) / (t₁ − t₀)  ≤  rate  ≤  (A + 2) / (t₁ − t₀ − idle)        A = sends between − those not accepted
//! ```
//!
//! (one more on the right for sends that overtake each other; `idle`: slots stood empty, and the bucket filled by an unknown
//! part of its burst; left, those whose fate is not yet known are not counted). The measure `r` stays what it was if it lies
//! between, and else goes to the nearer end. A = 100 makes that 1 to 3 %. A window with A < 10 is not closed: it goes on to the
//! next rejection. Good heads may come minutes late, and rejections come at once: hence sends minus rejections. Rejections of
//! sends that were under way when a rejection was learned are no news: 180 of one instant are one sign.
//!
//! **Slow start** after the first rejection: 5/s, doubled each 0.5 s (by ×1.5 a send at most), until the second rejection
//! gives the first measure, `A / √((t₁ − t₀) × (t₁ − t₀ − idle))`. With A < 3 it is none: half the rate, and on.
//!
//! **Plateau and probe.** With `b` the time for which the rate was used up since the last rejection, and `K` the plateau,
//!
//! ```text
//! rate(b) = r × (0.98 + 0.1 × max(0, b/K − 1)³)
//! ```
//!
//! The 2 % that are left unused gather in the provider's bucket, and the probe takes them: no throughput is lost, and each
//! probe ends with about one rejection. K begins at 10 sends (0.5 to 30 s) and doubles with each measure within 15 % of the
//! one before, up to 60 sends (3 to 60 s): at 20/s a rejection in seven seconds. A limit five times as high is found in about
//! 4 K. Time in which slots stand empty is not growth; five minutes of it without a rejection, and the limit is forgotten
//! (one gap counts 30 s at most, so that a clock that jumps does not free a herd).
//!
//! **After a rejection** the next send comes two intervals after the last one, and twice as long with each rejection in a row
//! (fewer than three sends between): where a rejection burns what the bucket held, sends at one interval find it short each
//! time, for ever; where the limit is a fixed window, that waits it out.
//!
//! **After a gap** in the sends (a provider's wait, an outage) the bucket holds `gap × r`, up to its burst. That is taken at
//! 1.5 r, evenly spaced; a rejection on the way tells the burst.
//!
//! **A bucket that runs over** (a burst of one or two sends; a limit that was raised) makes the measure too low. It shows: the
//! measure rises by over 5 %, or the probe climbs past 1.5 r. Then r becomes √(r × rate), at most 1.2 r.
//!
//! **Trouble.** Five failures, at least half of what was sent since the first, with no good head of a later send: only single
//! probes go, 0.25 s apart, each gap 1.25 × the one before, 2 s at most: the end of an outage is noticed after a fifth of its
//! length or two seconds. A probe that got no answer does not hold up the next. The first good head ends it, and sends go on
//! at the rate known before; where none was known, from 20/s, doubled each 0.1 s.
//!
//! **Bounds.** Whatever comes, a send waits for at most 30 s after the one before it (a minute, if the clock is wrong). A rate
//! over 10,000/s is none.
//!
//! # Others
//!
//! AWS's adaptive retry mode and TCP CUBIC (RFC 9438) have the same shape: cut to 0.7, a plateau, a cubic probe. Both go by
//! what is *sent*, and cut from there. What is sent above a bucket's rate says little of the limit: until the burst is gone
//! it is too high, and after a cut by a third it is too low, for seconds, each time. Here what is *accepted* between two
//! rejections is measured, so the cut goes to the limit itself and costs nothing; and there is no wait before the first sign.
//!
//! The constants were tuned in `tests/herd_simulation` (20/s with a burst of 20, 200 agents, an outage), and held against other
//! limits there.

mod limit;
mod spacing;
#[cfg(test)]
mod tests;
mod trouble;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use limit::Limit;
use trouble::Trouble;

/// Microseconds, of a clock whose zero does not matter: whole numbers do not drift and are short as JSON.
type Micros = u64;
const SECOND: Micros = 1_000_000;
/// A clock that steps back by less is the same clock, read by two threads or two machines.
const SAME_CLOCK: Micros = SECOND;

/// What is learned of one upstream's limit and trouble.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// The latest time that was told.
    #[serde(rename = "t")]
    seen: Micros,
    /// Sends counted: all of those while anything was known.
    #[serde(rename = "n")]
    sent: u64,
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    limit: Option<Limit>,
    #[serde(rename = "x", skip_serializing_if = "Trouble::is_none")]
    trouble: Trouble,
}

/// What a send remembers until it is told what came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ticket {
    /// When it went.
    at: Micros,
    /// Its place in the order of sends.
    number: u64,
}

/// What came of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// A head that tells of no limit and no failure: 2xx, 4xx other than 429.
    Accepted,
    /// 429, or a limit told otherwise.
    Limited,
    /// The upstream is in trouble: overload, 5xx, connect failure, reset, timeout.
    Failed,
    /// Nothing was learned: the client left, or nothing was sent.
    Nothing,
}

impl Pace {
    /// Nothing is known of a limit or of trouble: `take` is `Ok` and changes nothing.
    pub fn is_free(&self) -> bool {
        self.limit.is_none() && self.trouble.is_none()
    }

    /// Send now, or ask again at the time told, which is later than `now` and at most a minute away. `now` is the time since
    /// any fixed instant.
    pub fn take(&mut self, now: Duration) -> Result<Ticket, Duration> {
        if self.is_free() {
            return Ok(Ticket { at: micros(now), number: self.sent });
        }
        let at = self.clock(now);
        self.take_at(at).map_err(|next| Duration::from_micros(next.max(micros(now).saturating_add(1))))
    }

    fn take_at(&mut self, now: Micros) -> Result<Ticket, Micros> {
        let number = self.sent.saturating_add(1);
        match self.trouble.probe(now, number) {
            // Probes are slower than any pace.
            Some(probe) => probe?,
            None => self.take_slot(now)?,
        }
        self.sent = number;
        Ok(Ticket { at: now, number })
    }

    fn take_slot(&mut self, now: Micros) -> Result<(), Micros> {
        if let Some(limit) = &mut self.limit {
            let over = limit.take(now)?;
            self.limit = self.limit.take().filter(|_| !over);
        }
        self.trouble.take(now)
    }

    /// A send came to this.
    pub fn learn(&mut self, now: Duration, ticket: Ticket, signal: Signal) {
        if self.is_free() && matches!(signal, Signal::Accepted | Signal::Nothing) {
            return;
        }
        let now = self.clock(now);
        // Sent before the clock was set back, or before the state was lost.
        let ticket = Ticket { at: ticket.at.min(now), number: ticket.number.min(self.sent) };
        match signal {
            Signal::Accepted => self.answered(now, ticket),
            Signal::Limited => self.limited(now, ticket),
            Signal::Failed => {
                self.lose(ticket);
                self.trouble.failed(now, ticket);
            }
            Signal::Nothing => {
                self.lose(ticket);
                self.trouble.nothing(now, ticket);
            }
        }
    }

    fn answered(&mut self, now: Micros, ticket: Ticket) {
        if self.trouble.answered(ticket) && self.limit.is_none() {
            self.trouble.ramp_up(now);
        }
    }

    fn limited(&mut self, now: Micros, ticket: Ticket) {
        self.trouble.answered(ticket);
        self.trouble.end_ramp();
        match &mut self.limit {
            Some(limit) => limit.reject(now, ticket, self.sent),
            None => self.limit = Some(Limit::first(now, ticket, self.sent)),
        }
    }

    fn lose(&mut self, ticket: Ticket) {
        if let Some(limit) = &mut self.limit {
            limit.lose(ticket);
        }
    }

    /// The upstream is in trouble, and sends go as single probes: the call that can best afford to fail should be next.
    pub fn is_probing(&self) -> bool {
        self.trouble.is_holding()
    }

    /// The learned rate, sends a second. None before a limit was measured.
    pub fn rate(&self) -> Option<f64> {
        self.limit.as_ref().and_then(Limit::rate)
    }

    /// Time as we count it. A clock that was set back takes all that is remembered with it: a time that lies ahead only
    /// because of that is not waited for.
    fn clock(&mut self, now: Duration) -> Micros {
        let now = micros(now);
        if now.saturating_add(SAME_CLOCK) < self.seen {
            let by = self.seen - now;
            self.limit.iter_mut().for_each(|limit| limit.shift(by));
            self.trouble.shift(by);
            self.seen = now;
        }
        self.seen = self.seen.max(now);
        self.seen
    }
}

/// The whole microseconds of a time.
fn micros(time: Duration) -> Micros {
    // A time beyond 584,000 years is the last one.
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}
