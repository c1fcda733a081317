//! The task behind a gate: it lets through who may go, in the line's order, and passes on what was learned.
//!
//! A round asks the limits once for as many as may go, so that with Redis many calls cost one round trip and do not compete
//! with each other.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::gate::{Gate, Refused, State, Waiter};
use super::queue::Entry;
use crate::clock::after;
use crate::policy::lesson::Lesson;
use crate::policy::limits::{Limits, Settings};
use crate::policy::pace::Ticket;

/// Requests let through in one round at most.
pub(super) const BATCH: usize = 32;
/// Another Backstop may have given something back: shared limits are asked again after so long, whatever they said.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What a round begins with.
struct Batch {
    waiters: Vec<Entry<Waiter>>,
    settings: Settings,
    /// What is to be waited for if there is nobody to let through.
    pause: Pause,
}

/// Until when there is nothing to do.
enum Pause {
    Not,
    Until(Instant),
    Change,
}

/// What the limits said.
struct Grant {
    /// Of the first ones in line.
    tickets: Vec<Option<Ticket>>,
    /// When the next one may go, if it may not go now.
    next_at: Option<Duration>,
}

impl Gate {
    /// See to it that a task sees to those who wait.
    pub(super) fn rouse(self: &Arc<Self>, state: &mut State) {
        if state.driven {
            return self.changed();
        }
        // Without a runtime everything is coming down.
        if let Ok(runtime) = Handle::try_current() {
            state.driven = true;
            runtime.spawn(self.clone().drive());
        }
    }

    async fn drive(self: Arc<Self>) {
        while let Some(batch) = self.batch() {
            match self.round(batch).await {
                Pause::Not => {}
                Pause::Change => self.changed.notified().await,
                Pause::Until(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.changed.notified() => {}
                },
            }
        }
    }

    async fn round(self: &Arc<Self>, batch: Batch) -> Pause {
        if batch.waiters.is_empty() && !self.store.has_news() {
            return batch.pause;
        }
        let costs: Vec<f64> = batch.waiters.iter().map(|waiter| waiter.item.ask.tokens).collect();
        let granted = self.store.update(|limits, now| grant(limits, now, &costs, &batch.settings)).await;
        self.hand_out(batch, granted)
    }

    /// Take the next ones out of the line; `None`: there is nothing left to do, and the task ends.
    fn batch(&self) -> Option<Batch> {
        let mut state = self.lock();
        let circuit = state.circuit(self.age());
        if let Some(left) = circuit {
            let new = state.queue.take_if(|waiter| !waiter.ask.holds);
            new.into_iter().for_each(|waiter| drop(waiter.answer.send(Err(Refused::Open(left)))));
        }
        if state.queue.is_empty() && !self.store.has_news() {
            state.driven = false;
            return None;
        }
        let (room, pause) = match circuit {
            Some(left) => (0, Pause::Until(after(Instant::now(), left))),
            None => (state.room(), Pause::Change),
        };
        // While only probes go, one at a time, it is the call that can best afford to fail.
        let probing = state.breaker.is_open() || self.store.look(|limits, _| limits.is_probing());
        let queue = &mut state.queue;
        let waiters: Vec<_> = match probing {
            true => iter::from_fn(|| queue.pop_least(|waiter| waiter.ask.tried)).take(room.min(1)).collect(),
            false => iter::from_fn(|| queue.pop()).take(room).collect(),
        };
        let pause = if state.queue.is_empty() { Pause::Not } else { pause };
        Some(Batch { waiters, settings: state.rules.limits, pause })
    }

    /// Let those through who may go, and put the others back.
    fn hand_out(self: &Arc<Self>, batch: Batch, granted: Grant) -> Pause {
        let (mut through, mut back) = (Vec::new(), Vec::new());
        let mut tickets = granted.tickets.into_iter();
        let mut state = self.lock();
        for waiter in batch.waiters {
            let tokens = waiter.item.ask.tokens;
            match tickets.next() {
                Some(ticket) if state.circuit(self.age()).is_none() => {
                    through.push((waiter, self.permit(&mut state, ticket, tokens)));
                }
                Some(ticket) => {
                    // The circuit opened meanwhile.
                    self.give_back(ticket, tokens, batch.settings);
                    back.push(waiter);
                }
                None => back.push(waiter),
            }
        }
        back.into_iter().rev().for_each(|waiter| state.queue.put_back(waiter));
        drop(state);
        // One who left meanwhile drops the permit, which takes the lock.
        through.into_iter().for_each(|(waiter, permit)| drop(waiter.item.answer.send(Ok(permit))));
        match granted.next_at {
            Some(at) => Pause::Until(self.no_later(self.store.instant(at))),
            None => Pause::Not,
        }
    }

    fn give_back(&self, ticket: Option<Ticket>, tokens: f64, settings: Settings) {
        self.store.tell(move |limits, now| {
            limits.give_tokens(now, tokens, &settings);
            if let Some(ticket) = ticket {
                limits.learn(now, ticket, &Lesson::NONE);
            }
        });
    }

    fn no_later(&self, at: Instant) -> Instant {
        if self.store.must_ask() { at.min(after(Instant::now(), ASK_AGAIN)) } else { at }
    }
}

/// Ask for one after the other, as far as it goes.
fn grant(limits: &mut Limits, now: Duration, costs: &[f64], settings: &Settings) -> Grant {
    let mut tickets = Vec::with_capacity(costs.len());
    for tokens in costs {
        match limits.take(now, *tokens, settings) {
            Ok(ticket) => tickets.push(ticket),
            Err(at) => return Grant { tickets, next_at: Some(at) },
        }
    }
    Grant { tickets, next_at: None }
}
