//! The gate before one upstream, for one credential (or one model of it): who may send now, who waits, who is sent away.
//!
//! Without congestion a call passes with two short locks and no wait. Otherwise, and wherever the limits are shared through
//! Redis, it stands in a fair line ([`Queue`]), which one task drives as long as somebody waits (`drive`): it asks the limits
//! for the next ones in line, and sleeps until they allow it. Leaving the line is dropping the future. Bound of the line:
//! `admission.queue`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::drive::BATCH;
use super::permit::Permit;
use super::queue::{Place, Queue};
use super::store::{BEGINNING, Store};
use crate::config;
use crate::policy::breaker::{self, Breaker, Pass, Sign};
use crate::policy::lesson::Lesson;
use crate::policy::limits::{self, Limits};
use crate::policy::pace::Ticket;
use crate::policy::quota::Quota;

/// A gate.
pub struct Gate {
    pub(super) store: Store<Limits>,
    state: Mutex<State>,
    /// Something changed that the driver waits for: a place at the upstream, the circuit, the limits.
    pub(super) changed: Notify,
    born: Instant,
}

pub(super) struct State {
    pub(super) queue: Queue<Waiter>,
    pub(super) breaker: Breaker,
    in_flight: u32,
    /// There is a task that sees to those who wait, and to what the store was told.
    pub(super) driven: bool,
    pub(super) rules: Rules,
}

/// The config's part.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The fixed limits, and whether to learn others.
    pub limits: limits::Settings,
    /// Requests at the upstream at most.
    pub max_concurrency: u32,
    /// Waiting requests at most.
    pub queue: usize,
    /// When the circuit opens; `None`: never.
    pub breaker: Option<breaker::Settings>,
}

/// A request to be let through.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// Its place in the line.
    pub place: Place,
    /// It is of no use after this.
    pub deadline: Instant,
    /// Tokens of the model that it will cost, as an estimate.
    pub tokens: f64,
    /// Attempts that were made already.
    pub tried: u32,
    /// It was tried before and has nowhere else to go: it waits while the circuit is open, where a new call is sent away.
    pub holds: bool,
}

/// Why a request is sent away, and how long its client should stay away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The line is full.
    Full(Duration),
    /// It cannot be let through before its deadline.
    TooLate(Duration),
    /// The circuit is open.
    Open(Duration),
    /// Backstop stops before its turn comes.
    Draining,
}

pub(super) struct Waiter {
    pub(super) ask: Ask,
    pub(super) answer: oneshot::Sender<Result<Permit, Refused>>,
}

/// How a gate looks from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Look {
    /// Requests that wait.
    pub waiting: usize,
    /// The learned rate, requests a second.
    pub rate: Option<f64>,
    /// What is left of the provider's wait.
    pub cooldown: Duration,
    /// The circuit is not closed.
    pub open: bool,
    /// Forgetting it would change nothing.
    pub idle: bool,
}

impl Rules {
    /// As the config has them.
    pub fn of(upstream: &config::Upstream) -> Self {
        let admission = &upstream.admission;
        let quota = |rate: f64, burst: f64| (rate > 0.0).then_some(Quota { rate, burst });
        let per_minute = admission.tokens_per_minute as f64;
        Rules {
            limits: limits::Settings {
                adaptive: admission.adaptive,
                requests: quota(admission.requests_per_second, f64::from(admission.burst.max(1))),
                tokens: quota(per_minute / 60.0, per_minute),
            },
            max_concurrency: admission.max_concurrency,
            queue: admission.queue,
            breaker: upstream.breaker,
        }
    }

    /// Those of a gate for one model: what is fixed holds for all models together, before the gate of the credential.
    pub fn of_model(self) -> Self {
        let limits = limits::Settings { requests: None, tokens: None, ..self.limits };
        Rules { limits, max_concurrency: 0, breaker: None, ..self }
    }
}

impl Gate {
    /// Open, as nothing is known yet.
    pub fn new(store: Store<Limits>, rules: Rules) -> Self {
        let (queue, breaker) = (Queue::default(), Breaker::default());
        let state = Mutex::new(State { queue, breaker, in_flight: 0, driven: false, rules });
        Gate { store, state, changed: Notify::new(), born: Instant::now() }
    }

    /// The circuit's time. It is not that of the limits, which may be another machine's.
    pub(super) fn age(&self) -> Duration {
        BEGINNING.saturating_add(self.born.elapsed())
    }

    /// Be let through, at once or in turn. Dropping the future leaves the line.
    ///
    /// # Errors
    /// If the line is full, the deadline too near, or the circuit open.
    pub async fn admit(self: &Arc<Self>, ask: Ask) -> Result<Permit, Refused> {
        let (answer, id) = match self.enter(ask)? {
            Entered::Through(permit) => return Ok(permit),
            Entered::Waiting(answer, id) => (answer, id),
        };
        let _leave = Leave { gate: self, place: ask.place, id };
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or(Err(Refused::TooLate(Duration::ZERO))),
            () = sleep_until(ask.deadline) => Err(Refused::TooLate(Duration::ZERO)),
        }
    }

    /// Other rules hold from now on, for those who wait already, too.
    pub(super) fn apply(&self, rules: Rules) {
        self.lock().rules = rules;
        self.changed();
    }

    fn enter(self: &Arc<Self>, ask: Ask) -> Result<Entered, Refused> {
        let mut state = self.lock();
        let rules = state.rules;
        let circuit = state.circuit(self.age());
        if let Some(left) = circuit.filter(|_| !ask.holds) {
            return Err(Refused::Open(left));
        }
        let must_ask = self.store.must_ask();
        let is_alone = state.queue.is_empty() && !state.driven && state.free_places() > 0 && circuit.is_none();
        if is_alone && !must_ask {
            let taken = self.store.now(|limits, now| limits.take(now, ask.tokens, &rules.limits));
            if let Ok(ticket) = taken {
                return Ok(Entered::Through(self.permit(&mut state, ticket, ask.tokens)));
            }
        }
        let ahead = state.queue.len();
        let earliest =
            self.store.look(|limits, now| limits.earliest(now, ahead, ask.tokens, &rules.limits).saturating_sub(now));
        let wait = earliest.max(circuit.unwrap_or_default());
        // Those who only wait for Redis' answer are no line.
        if ahead >= rules.queue.saturating_add(if must_ask { BATCH } else { 0 }) {
            return Err(Refused::Full(wait));
        }
        if wait > ask.deadline.saturating_duration_since(Instant::now()) {
            return Err(Refused::TooLate(wait));
        }
        let (tell, answer) = oneshot::channel();
        let id = state.queue.push(ask.place, Waiter { ask, answer: tell });
        self.rouse(&mut state);
        Ok(Entered::Waiting(answer, id))
    }

    pub(super) fn permit(self: &Arc<Self>, state: &mut State, ticket: Option<Ticket>, tokens: f64) -> Permit {
        state.in_flight += 1;
        let pass = state.rules.breaker.map(|settings| state.breaker.enter(self.age(), &settings));
        Permit::new(self.clone(), ticket, pass, tokens)
    }

    /// Tell the circuit what an attempt showed. `true`: that opened it.
    pub(super) fn tell_circuit(&self, pass: Pass, sign: Sign) -> bool {
        let mut state = self.lock();
        let Some(settings) = state.rules.breaker else { return false };
        state.breaker.learn(self.age(), pass, sign, &settings)
    }

    /// A limit was told of by a request that had passed before this gate was there.
    pub(super) fn limited(self: &Arc<Self>, lesson: Lesson) {
        self.tell(move |limits, now| limits.limited(now, &lesson));
    }

    /// The limits have changed, here or by and by for all who share them.
    pub(super) fn tell(self: &Arc<Self>, change: impl Fn(&mut Limits, Duration) + Send + Sync + 'static) {
        if self.store.tell(change) {
            self.rouse(&mut self.lock());
        }
    }

    /// What the limits, the circuit or the places allow has changed.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }

    /// A request is no longer at the upstream.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let awaited = state.driven;
        drop(state);
        if awaited {
            self.changed();
        }
    }

    /// The rules in force.
    pub(super) fn rules(&self) -> Rules {
        self.lock().rules
    }

    /// How it looks from outside.
    pub fn look(&self) -> Look {
        let state = self.lock();
        let (rate, cooldown, free) =
            self.store.look(|limits, now| (limits.rate(), limits.cooldown(now), limits.is_free(now)));
        let open = state.breaker.is_open();
        let idle = free && !open && !state.driven && state.queue.is_empty() && state.in_flight == 0;
        Look { waiting: state.queue.len(), rate, cooldown, open, idle }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How long the circuit is still open.
    pub(super) fn circuit(&self, now: Duration) -> Option<Duration> {
        self.rules.breaker.and(self.breaker.closed_until(now)).map(|until| until.saturating_sub(now))
    }

    pub(super) fn free_places(&self) -> u32 {
        match self.rules.max_concurrency {
            0 => u32::MAX,
            most => most.saturating_sub(self.in_flight),
        }
    }

    /// Requests that may go at once: while it is not known whether the upstream is back, one goes to find out.
    pub(super) fn room(&self) -> usize {
        let most = if self.breaker.is_open() { 1 } else { BATCH };
        most.min(usize::try_from(self.free_places()).unwrap_or(usize::MAX))
    }
}

enum Entered {
    Through(Permit),
    Waiting(oneshot::Receiver<Result<Permit, Refused>>, u64),
}

/// Leaves the line on drop.
struct Leave<'a> {
    gate: &'a Gate,
    place: Place,
    id: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.gate.lock().queue.take(self.place, self.id);
    }
}
