//! The rate that is learned: slow start, the measure between two rejections, the plateau and the probe after it.

use serde::{Deserialize, Serialize};

use super::spacing::{LONGEST, Slot, Spacing};
use super::{Micros, SECOND, Ticket};

/// Sends a second just after the first rejection: too fast for the slowest keys (a few rejections more), and doubled often
/// enough for the fastest (500/s after 3.5 s).
const START: f64 = 5.0;
/// Slow start doubles in this time.
const DOUBLING: f64 = 0.5;
/// No growth beyond this from one send to the next: its answer has not been seen.
const STEP: f64 = 1.5;
/// A learned rate above this is none.
const MOST: f64 = 10_000.0;
/// How far under the measured rate the plateau is. What is left unused stays in the provider's bucket, and the probe that
/// follows takes it.
const MARGIN: f64 = 0.02;
/// How steep the probe is: one plateau's length after the plateau the rate is this much above the measure.
const STEEP: f64 = 0.1;
/// A window with fewer accepted sends is no measure by itself: it goes on.
const ENOUGH: f64 = 10.0;
/// Without a measure before it, a window with fewer is none at all: slow start goes on, from half the rate.
const FEW: f64 = 3.0;
/// A measure that moves by more than this says that what was known is old.
const MOVED: f64 = 0.15;
/// A measure that rises by more than this was taken while the bucket ran over: the truth lies above it.
const RISEN: f64 = 0.05;
/// And so is one whose probe could climb to this much of the measure before it was rejected.
const CLIMBED: f64 = 1.5;
/// In both cases the measure is raised by this much at most.
const NEAR: f64 = 1.2;
/// After a gap in the sends the bucket holds what came in meanwhile: taken this much faster than the measured rate.
const BOOST: f64 = 0.5;
/// A limit that was not met while slots stood empty for so long is forgotten.
const FORGET: Micros = 300 * SECOND;

/// What is known of a limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Limit {
    /// Sends under the rate of the moment.
    #[serde(rename = "p")]
    spacing: Spacing,
    /// The measured rate, sends a second; 0 while none is (slow start).
    #[serde(rename = "f")]
    found: f64,
    /// Time that the rate has been used up since the last cut: the clock of growth.
    #[serde(rename = "b")]
    busy: Micros,
    /// Length of the plateau.
    #[serde(rename = "k")]
    plateau: Micros,
    /// The last send before the last cut was learned: what is rejected of those up to it is no news.
    #[serde(rename = "c")]
    cut: u64,
    /// Rejections in a row, with nothing accepted between.
    #[serde(rename = "a")]
    again: u32,
    /// For how long slots have stood empty since.
    #[serde(rename = "q")]
    quiet: Micros,
    /// What the bucket is believed to hold, in sends: it filled while none went.
    #[serde(rename = "s")]
    saved: f64,
    /// The most that it is believed to hold.
    #[serde(rename = "m")]
    room: f64,
    /// Since the rejection from which we count.
    #[serde(rename = "w")]
    window: Window,
}

/// Accepted sends between two rejections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Window {
    /// When the rejected send that opens it went.
    #[serde(rename = "t")]
    at: Micros,
    /// Its number.
    #[serde(rename = "n")]
    number: u64,
    /// Sends after it that were not accepted.
    #[serde(rename = "l")]
    lost: u64,
    /// Time in it in which slots stood empty.
    #[serde(rename = "i")]
    idle: Micros,
}

/// What a closed window says of the limit, in sends a second.
struct Measure {
    accepted: f64,
    /// At least this: the bucket gave so many.
    low: f64,
    /// At most this: had it given more, it would not have been empty.
    high: f64,
    /// The likeliest, taken alone.
    middle: f64,
    /// Seconds in which slots were used.
    used: f64,
    /// Hardly a slot stood empty.
    is_filled: bool,
}

impl Window {
    fn opened_by(ticket: Ticket) -> Self {
        Window { at: ticket.at, number: ticket.number, lost: 0, idle: 0 }
    }

    /// The window from its opening to this rejected send; of so many of the sends before it the fate is `unknown`. Both found the bucket empty, so what was accepted between them
    /// is rate × time, give or take one; another one for sends that overtook each other. While slots stood empty the bucket
    /// filled by an unknown part of its size, hence the two times.
    fn closed_by(&self, ticket: Ticket, unknown: f64) -> Measure {
        let sent = ticket.number.saturating_sub(self.number).saturating_sub(1);
        let accepted = sent.saturating_sub(self.lost) as f64;
        let all = ticket.at.saturating_sub(self.at).max(1);
        let used = all.saturating_sub(self.idle).max(1);
        let is_filled = used > all - all / 10 && unknown <= 0.0;
        let (all, used) = (all as f64 / SECOND as f64, used as f64 / SECOND as f64);
        let middle = (accepted + 0.5) / (all * used).sqrt();
        Measure {
            accepted,
            low: (accepted - 1.0 - unknown).max(0.0) / all,
            high: (accepted + 2.0) / used,
            middle,
            used,
            is_filled,
        }
    }

    fn lose(&mut self, ticket: Ticket) {
        self.lost += u64::from(ticket.number > self.number);
    }
}

impl Limit {
    /// The limit at its first rejection.
    pub fn first(now: Micros, ticket: Ticket, sent: u64) -> Self {
        let mut limit = Limit { cut: sent, window: Window::opened_by(ticket), ..Limit::default() };
        limit.spacing = Spacing { next: now.saturating_add((SECOND as f64 / START) as Micros), rate: START };
        limit
    }

    /// A send wants to go. `Ok(true)`: it goes, and the limit is no longer worth knowing: outgrown, or not met for long by a
    /// demand that does not use it up.
    pub fn take(&mut self, now: Micros) -> Result<bool, Micros> {
        match self.spacing.take(now)? {
            Slot::Used => {
                self.grow();
                Ok(self.spacing.rate > MOST)
            }
            Slot::Idle(idle) => {
                self.window.idle = self.window.idle.saturating_add(idle);
                self.quiet = self.quiet.saturating_add(idle.min(LONGEST));
                self.saved = (self.saved + seconds(idle) * self.found).min(self.room);
                Ok(self.quiet >= FORGET)
            }
        }
    }

    /// The rate after one more interval that was used.
    fn grow(&mut self) {
        let interval = self.spacing.interval();
        let rate = self.spacing.rate;
        let wanted = if self.saved > 0.0 {
            self.spend();
            self.found * (1.0 + BOOST)
        } else if self.found > 0.0 {
            self.busy = self.busy.saturating_add(interval);
            let beyond = (self.busy as f64 / self.plateau.max(1) as f64 - 1.0).clamp(0.0, 1e3);
            self.found * (1.0 - MARGIN + STEEP * beyond.powi(3))
        } else {
            rate * (seconds(interval) / DOUBLING).exp2()
        };
        self.spacing.rate = wanted.min(rate * STEP).max(slowest());
    }

    /// One send faster than the measured rate takes a part of what was saved. If all was there, there may be room for more.
    fn spend(&mut self) {
        self.saved -= BOOST / (1.0 + BOOST);
        if self.saved <= 0.0 {
            self.saved = 0.0;
            self.room = (self.room * STEP).min(self.found * seconds(LONGEST));
        }
    }

    /// A send was rejected.
    pub fn reject(&mut self, now: Micros, ticket: Ticket, sent: u64) {
        if ticket.number <= self.cut {
            return self.window.lose(ticket);
        }
        // After so long the clock has jumped, or the upstream had it lying about: it tells of now, not of then.
        let is_old = now.saturating_sub(ticket.at) > LONGEST;
        let ticket = if is_old { Ticket { at: now, number: sent } } else { ticket };
        let unknown = (seconds(now.saturating_sub(ticket.at)) * self.spacing.rate - 1.0).max(0.0);
        let measure = self.window.closed_by(ticket, unknown);
        if measure.accepted >= ENOUGH {
            self.window = Window::opened_by(ticket);
        } else {
            self.window.lose(ticket);
        }
        self.cut(ticket, sent);
        if self.found > 0.0 {
            self.correct(&measure);
        } else {
            self.measure_first(&measure);
        }
        self.slow_down(ticket);
    }

    /// The clocks and counts that a new rejection sets back.
    fn cut(&mut self, ticket: Ticket, sent: u64) {
        let since = ticket.number.saturating_sub(self.cut).saturating_sub(1) as f64;
        // With anything accepted between, the limit is a slow one and not a closed one: ever longer pauses would starve it.
        self.again = if since < 1.0 { self.again.saturating_add(1).min(20) } else { 0 };
        (self.cut, self.quiet, self.busy) = (sent, 0, 0);
        if self.saved > 0.0 {
            (self.room, self.saved) = ((self.room - self.saved).max(1.0), 0.0);
        }
    }

    /// The end of slow start, if anything was accepted in it.
    fn measure_first(&mut self, measure: &Measure) {
        let rate = self.spacing.rate;
        if measure.accepted < FEW {
            self.spacing.rate = (rate / 2.0).min(measure.high);
            return;
        }
        let middle = measure.middle.min(rate);
        self.found = if measure.accepted < ENOUGH { (middle * rate).sqrt() } else { middle }.max(slowest());
        self.room = self.found;
        self.plateau = self.believed(0);
    }

    /// The measured rate after one more window, and how long it is believed.
    fn correct(&mut self, measure: &Measure) {
        let before = self.found;
        // A few rejections in a row may be a window of the provider's that is not over yet: that is waited out.
        let sure = measure.accepted >= FEW || before * measure.used >= ENOUGH;
        let high = if sure { measure.high } else { f64::MAX };
        let found = before.min(high).max(measure.low);
        let risen = found > before * (1.0 + RISEN) || self.spacing.rate > before * CLIMBED;
        let run_over = measure.is_filled && risen;
        let found = if run_over { (found * self.spacing.rate).sqrt().min(found * NEAR).max(found) } else { found };
        self.found = found.clamp(slowest(), MOST);
        let same = (self.found / before - 1.0).abs() <= MOVED;
        self.plateau = self.believed(if same { self.plateau.saturating_mul(2) } else { 0 });
    }

    /// A plateau's length, wanted so long: enough sends for a measure, few enough to notice soon that there is more.
    fn believed(&self, wanted: Micros) -> Micros {
        let time = |sends: f64, least: f64, most: f64| (sends / self.found).clamp(least, most) * SECOND as f64;
        wanted.clamp(time(10.0, 0.5, 30.0) as Micros, time(60.0, 3.0, 60.0) as Micros)
    }

    /// Down to the plateau, with one interval left out: where a rejection burns what the bucket had, a send that comes just
    /// one interval later finds it short again, and so for ever.
    fn slow_down(&mut self, ticket: Ticket) {
        let last = self.spacing.next.saturating_sub(self.spacing.interval()).max(ticket.at);
        if self.found > 0.0 {
            self.spacing.rate = self.found * (1.0 - MARGIN);
        }
        self.spacing.rate = self.spacing.rate.max(slowest());
        let pause = self.spacing.interval().saturating_mul(2 << self.again.min(20)).min(LONGEST);
        self.spacing.next = last.saturating_add(pause);
    }

    /// A send came to nothing that a bucket would count.
    pub fn lose(&mut self, ticket: Ticket) {
        self.window.lose(ticket);
    }

    /// The learned rate.
    pub fn rate(&self) -> Option<f64> {
        (self.found > 0.0).then_some(self.spacing.rate)
    }

    /// The clock was set back by this much.
    pub fn shift(&mut self, by: Micros) {
        for at in [&mut self.spacing.next, &mut self.window.at] {
            *at = at.saturating_sub(by);
        }
    }
}

fn slowest() -> f64 {
    1.0 / seconds(LONGEST)
}

fn seconds(time: Micros) -> f64 {
    time as f64 / SECOND as f64
}
