//! The learned rate of one upstream and credential (and model).

mod limit;
mod spacing;
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
            Some(limit) => limit.reject(ticket, self.sent),
            None => self.limit = Some(Limit::first(now, ticket, self.sent)),
        }
    }

    fn lose(&mut self, ticket: Ticket) {
        if let Some(limit) = &mut self.limit {
            limit.lose(ticket);
        }
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
