//! Many agents, one line in front of one `Pace`, one upstream, and a clock that is a number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use backstop::policy::backoff::{Backoff, Jitter};
use backstop::policy::pace::{Pace, Signal, Ticket};

use super::upstream::{Fate, MS, Micros, SECOND, Upstream};
use crate::simulation::Dice;

/// Tries of one call, as configured by default.
const MAX_ATTEMPTS: u32 = 5;
/// The delays between them, as configured by default.
const BACKOFF: Backoff =
    Backoff { base: Duration::from_secs(1), max: Duration::from_secs(30), multiplier: 2.0, jitter: Jitter::Full };
/// The global bucket for retries, as configured by default.
const RETRY_EVERY: Micros = SECOND / 10;
const RETRY_BURST: u64 = 50;

/// Who calls.
#[derive(Debug, Clone)]
pub struct Herd {
    pub agents: usize,
    pub calls: u32,
    /// Agents start within this time.
    pub spread: Micros,
    /// Between two calls of an agent there are up to this.
    pub think: Micros,
    /// From arrival to the head of a good answer.
    pub latency: (Micros, Micros),
    /// From arrival to a rejection or failure.
    pub refusal: (Micros, Micros),
    /// Probes are sent for the calls that have failed least.
    pub spares: bool,
    /// From when on the machine's clock is off by how many microseconds.
    pub clock: Vec<(Micros, i64)>,
}

impl Default for Herd {
    fn default() -> Self {
        Herd {
            agents: 200,
            calls: 5,
            spread: 400 * MS,
            think: 400 * MS,
            latency: (250 * MS, 250 * MS),
            refusal: (5 * MS, 30 * MS),
            spares: true,
            clock: Vec::new(),
        }
    }
}

/// What happens at some time. The number is a call's.
#[derive(Debug, Clone, Copy)]
enum Event {
    Ready(usize),
    Queue(usize),
    Arrive(usize, Ticket),
    Answer(usize, Ticket, Fate),
    Wake,
}

/// One call; an agent has one at a time, so that its number is the agent's.
#[derive(Debug, Clone, Default)]
struct Agent {
    /// The order in which its call first came.
    arrival: u64,
    attempts: u32,
    left: u32,
    ended: Option<Micros>,
    lost: bool,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    pub done: u64,
    pub lost: u64,
    pub limited: u64,
    pub failed: u64,
    /// When the first rejected request arrived.
    pub first_limited: Option<Micros>,
    pub last_done: Micros,
    /// When each agent that lost nothing was done.
    pub finishes: Vec<Micros>,
    /// Times of all arrivals at the upstream, in order.
    pub arrivals: Vec<Micros>,
    /// What must never be.
    pub faults: Vec<String>,
}

impl Outcome {
    /// Rejections and failures for each call done.
    pub fn waste(&self) -> f64 {
        (self.limited + self.failed) as f64 / self.done.max(1) as f64
    }

    /// Jain's index of the agents' finish times: 1 when all are the same.
    pub fn fairness(&self) -> f64 {
        let times: Vec<f64> = self.finishes.iter().map(|t| *t as f64).collect();
        let sum: f64 = times.iter().sum();
        sum * sum / (times.len() as f64 * times.iter().map(|t| t * t).sum::<f64>())
    }

    /// The most arrivals in any 100 ms from `from` on.
    pub fn burst(&self, from: Micros) -> usize {
        let (mut window, mut most) = (VecDeque::new(), 0);
        for at in self.arrivals.iter().filter(|at| **at >= from) {
            while window.front().is_some_and(|first| first + 100 * MS <= *at) {
                window.pop_front();
            }
            window.push_back(*at);
            most = most.max(window.len());
        }
        most
    }
}

pub struct World {
    herd: Herd,
    upstream: Upstream,
    pace: Pace,
    dice: Dice,
    now: Micros,
    order: u64,
    events: BinaryHeap<Reverse<(Micros, u64)>>,
    what: BTreeMap<u64, Event>,
    agents: Vec<Agent>,
    arrivals: u64,
    /// First arrival → agent.
    line: BTreeMap<u64, usize>,
    cooldown: Micros,
    /// The wake-up that is due.
    wake: Option<Micros>,
    /// When the bucket of retries would be full again.
    retries_full: Micros,
    outcome: Outcome,
}

impl World {
    pub fn new(herd: &Herd, upstream: &Upstream, seed: u64) -> Self {
        let mut world = World {
            herd: herd.clone(),
            upstream: upstream.clone(),
            pace: Pace::default(),
            dice: Dice(seed),
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            agents: vec![Agent { left: herd.calls, ..Agent::default() }; herd.agents],
            arrivals: 0,
            line: BTreeMap::new(),
            cooldown: 0,
            wake: None,
            retries_full: 0,
            outcome: Outcome::default(),
        };
        for agent in 0..herd.agents {
            let start = world.up_to(herd.spread);
            world.at(start, Event::Ready(agent));
        }
        world
    }

    /// Run it to the end, or for a day.
    pub fn run(mut self) -> Outcome {
        while let Some(Reverse((at, order))) = self.events.pop() {
            self.now = at;
            if at > 24 * 3600 * SECOND {
                self.outcome.faults.push("it went on for a day".into());
                break;
            }
            if let Some(event) = self.what.remove(&order) {
                self.step(event);
            }
        }
        if let Some(agent) = self.agents.iter().position(|agent| agent.ended.is_none()) {
            self.outcome.faults.push(format!("agent {agent} never ended"));
        }
        self.outcome.finishes = self.agents.iter().filter(|a| !a.lost).filter_map(|a| a.ended).collect();
        self.outcome
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Ready(agent) => {
                self.arrivals += 1;
                self.agents[agent].arrival = self.arrivals;
                self.agents[agent].attempts = 0;
                self.enter(agent);
            }
            Event::Queue(agent) => self.enter(agent),
            Event::Arrive(agent, ticket) => self.arrive(agent, ticket),
            Event::Answer(agent, ticket, fate) => self.answer(agent, ticket, fate),
            // Another one has taken its place.
            Event::Wake if self.wake != Some(self.now) => {}
            Event::Wake => {
                self.wake = None;
                self.dispatch();
            }
        }
    }

    fn arrive(&mut self, agent: usize, ticket: Ticket) {
        let fate = self.upstream.arrive(self.now, &mut self.dice);
        self.outcome.arrivals.push(self.now);
        if matches!(fate, Fate::Limited { .. }) {
            self.outcome.first_limited.get_or_insert(self.now);
        }
        let range = if fate == Fate::Good { self.herd.latency } else { self.herd.refusal };
        let after = range.0 + self.up_to(range.1 - range.0);
        self.at(self.now + after, Event::Answer(agent, ticket, fate));
    }

    fn enter(&mut self, agent: usize) {
        self.line.insert(self.agents[agent].arrival, agent);
        self.dispatch();
    }

    /// Send as many as may go, and set the alarm for the next.
    fn dispatch(&mut self) {
        while let Some(agent) = self.next() {
            if self.now < self.cooldown {
                return self.wake_at(self.cooldown);
            }
            match self.pace.take(Duration::from_micros(self.clock())) {
                Ok(ticket) => self.send(agent, ticket),
                Err(next) => return self.come_again(next.as_micros() as Micros),
            }
        }
    }

    fn come_again(&mut self, next: Micros) {
        let clock = self.clock();
        if next <= clock || next > clock + 61 * SECOND {
            self.outcome.faults.push(format!("at {clock}: come again at {next}"));
        }
        // Timers are a millisecond late, or two.
        let late = MS + self.up_to(MS);
        self.wake_at(self.now + next.saturating_sub(clock) + late);
    }

    fn send(&mut self, agent: usize, ticket: Ticket) {
        if self.now < self.cooldown {
            self.outcome.faults.push(format!("at {}: sent before {}", self.now, self.cooldown));
        }
        self.line.remove(&self.agents[agent].arrival);
        self.agents[agent].attempts += 1;
        let way = MS / 2 + self.up_to(MS);
        self.at(self.now + way, Event::Arrive(agent, ticket));
    }

    /// The call that came first; of probes, which are likely to fail, the one that has failed least.
    fn next(&self) -> Option<usize> {
        let mut calls = self.line.values().copied();
        if self.herd.spares && self.pace.is_probing() {
            return calls.min_by_key(|agent| self.agents[*agent].attempts);
        }
        calls.next()
    }

    fn answer(&mut self, agent: usize, ticket: Ticket, fate: Fate) {
        let now = Duration::from_micros(self.clock());
        let signal = match fate {
            Fate::Good => Signal::Accepted,
            Fate::Limited { .. } => Signal::Limited,
            Fate::Failed => Signal::Failed,
        };
        self.pace.learn(now, ticket, signal);
        if self.pace.rate().is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            self.outcome.faults.push(format!("at {now:?}: {:?}", self.pace));
        }
        match fate {
            Fate::Good => self.good(agent),
            Fate::Limited { hint } => {
                self.outcome.limited += 1;
                self.cooldown = self.cooldown.max(self.now + hint.unwrap_or(0));
                self.retry(agent, hint);
            }
            Fate::Failed => {
                self.outcome.failed += 1;
                self.retry(agent, None);
            }
        }
        self.dispatch();
    }

    fn good(&mut self, agent: usize) {
        self.outcome.done += 1;
        self.outcome.last_done = self.now;
        self.agents[agent].left -= 1;
        if self.agents[agent].left == 0 {
            self.agents[agent].ended = Some(self.now);
        } else {
            let think = self.up_to(self.herd.think);
            self.at(self.now + think, Event::Ready(agent));
        }
    }

    fn retry(&mut self, agent: usize, hint: Option<Micros>) {
        let attempts = self.agents[agent].attempts;
        if attempts >= MAX_ATTEMPTS {
            self.outcome.lost += 1;
            self.agents[agent].lost = true;
            self.agents[agent].ended = Some(self.now);
            return;
        }
        let unit = self.dice.unit();
        let delay = BACKOFF.with_hint(hint.map(Duration::from_micros), attempts - 1, unit).as_micros() as Micros;
        let ready = self.now + delay;
        let go = ready.max(self.retries_full.saturating_sub(RETRY_EVERY * (RETRY_BURST - 1)));
        self.retries_full = self.retries_full.max(go) + RETRY_EVERY;
        self.at(go, Event::Queue(agent));
    }

    fn wake_at(&mut self, at: Micros) {
        if self.wake.is_none_or(|due| at + 2 * MS < due) {
            self.wake = Some(at);
            self.at(at, Event::Wake);
        }
    }

    fn at(&mut self, at: Micros, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order)));
        self.what.insert(self.order, event);
    }

    fn up_to(&mut self, most: Micros) -> Micros {
        self.dice.below(most + 1)
    }

    /// The machine's clock, which need not be right. It starts at an hour.
    fn clock(&self) -> Micros {
        let off = self.herd.clock.iter().rfind(|(from, _)| *from <= self.now).map_or(0, |(_, off)| *off);
        (self.now + 3600 * SECOND).saturating_add_signed(off)
    }
}
