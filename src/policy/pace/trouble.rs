//! An upstream in trouble: failures in a row, single probes, and a way back that is no stampede.

use serde::{Deserialize, Serialize};

use super::spacing::Spacing;
use super::{Micros, SECOND, Ticket};

/// So many failures with no good head between are trouble. At 5 % of random failures five in a row are one in three
/// million.
const ROW: u64 = 5;
/// The gap between the first probes, and the least there is.
const FIRST_GAP: Micros = SECOND / 4;
/// The longest gap: recovery is noticed that late at worst, and a dead upstream gets one request in two seconds.
const LAST_GAP: Micros = 2 * SECOND;
/// Sends a second just after trouble where no limit is known; doubles in `RAMP_DOUBLING`.
const RAMP_START: f64 = 20.0;
/// 10 ms·2ⁿ: 200 waiting calls are on their way after three quarters of a second.
const RAMP_DOUBLING: f64 = 0.1;
/// A ramp that has come so far is over.
const RAMP_END: f64 = 10_000.0;

/// The upstream's trouble.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Trouble {
    /// Failures with no good head between.
    #[serde(rename = "f", skip_serializing_if = "is_zero")]
    failed: u64,
    /// Sends since the first of them was learned.
    #[serde(rename = "s", skip_serializing_if = "is_zero")]
    sent: u64,
    /// When the first of them was sent: a good head of a send before it says nothing about now.
    #[serde(rename = "t", skip_serializing_if = "is_zero")]
    start: Micros,
    /// Only probes go.
    #[serde(rename = "h", skip_serializing_if = "Option::is_none")]
    hold: Option<Hold>,
    /// The way back where no limit is known.
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    ramp: Option<Spacing>,
}

/// Only probes go, one at a time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Hold {
    /// The next probe may go.
    #[serde(rename = "n")]
    next: Micros,
    /// The gap after it.
    #[serde(rename = "g")]
    gap: Micros,
    /// The number of the probe that is out.
    #[serde(rename = "p")]
    probe: u64,
}

impl Trouble {
    /// No failure is known that a good head has not followed.
    pub fn is_none(&self) -> bool {
        self.failed == 0 && self.hold.is_none() && self.ramp.is_none()
    }

    /// Only probes go.
    pub fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// While only probes go: a send with this number wants to go as one.
    pub fn probe(&mut self, now: Micros, number: u64) -> Option<Result<(), Micros>> {
        self.hold.as_mut().map(|hold| hold.take(now, number))
    }

    /// A send wants to go that is no probe, and that no limit holds back.
    pub fn take(&mut self, now: Micros) -> Result<(), Micros> {
        if let Some(ramp) = &mut self.ramp {
            ramp.take(now)?;
            ramp.rate *= (ramp.interval() as f64 / SECOND as f64 / RAMP_DOUBLING).exp2().min(2.0);
            self.ramp = self.ramp.take().filter(|ramp| ramp.rate < RAMP_END);
        }
        self.sent += u64::from(self.failed > 0);
        Ok(())
    }

    /// A send failed.
    pub fn failed(&mut self, now: Micros, ticket: Ticket) {
        if self.failed == 0 {
            self.start = ticket.at;
        }
        self.failed += 1;
        // Where good heads take long and failures do not, a few failures among many sends are no row.
        if self.hold.is_none() && self.failed >= ROW && self.failed.saturating_mul(2) >= self.sent {
            self.ramp = None;
            self.hold = Some(Hold { next: now.saturating_add(FIRST_GAP), gap: FIRST_GAP, probe: 0 });
        }
    }

    /// A head came: the upstream works, if the send was not one from before the trouble. True if that ended a hold.
    pub fn answered(&mut self, ticket: Ticket) -> bool {
        if self.failed == 0 || ticket.at < self.start {
            return false;
        }
        let held = self.hold.is_some();
        *self = Trouble { ramp: self.ramp.take(), ..Trouble::default() };
        held
    }

    /// Let sends go again bit by bit.
    pub fn ramp_up(&mut self, now: Micros) {
        self.ramp = Some(Spacing { next: now, rate: RAMP_START });
    }

    /// A limit is known: its pace is enough.
    pub fn end_ramp(&mut self) {
        self.ramp = None;
    }

    /// A send came to nothing. If it was the probe, another may go.
    pub fn nothing(&mut self, now: Micros, ticket: Ticket) {
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.probe == ticket.number) {
            (hold.next, hold.probe) = (now, 0);
        }
    }

    /// The clock was set back by this much.
    pub fn shift(&mut self, by: Micros) {
        self.start = self.start.saturating_sub(by);
        let hold = self.hold.iter_mut().map(|hold| &mut hold.next);
        let ramp = self.ramp.iter_mut().map(|ramp| &mut ramp.next);
        hold.chain(ramp).for_each(|next| *next = next.saturating_sub(by));
    }
}

impl Hold {
    fn take(&mut self, now: Micros, number: u64) -> Result<(), Micros> {
        if now < self.next {
            self.next = self.next.min(now.saturating_add(LAST_GAP));
            return Err(self.next);
        }
        let gap = self.gap.clamp(FIRST_GAP, LAST_GAP);
        self.next = now.saturating_add(gap);
        self.gap = (gap + gap / 4).min(LAST_GAP);
        self.probe = number;
        Ok(())
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
