//! Leave to send one request, held as long as it is at the upstream.

use std::sync::Arc;

use super::gate::Gate;
use crate::policy::breaker::{Pass, Sign};
use crate::policy::lesson::Lesson;
use crate::policy::pace::Ticket;

/// Leave to send one request. Told what came of it once; dropped when the request is no longer at the upstream.
pub struct Permit {
    gate: Arc<Gate>,
    ticket: Option<Ticket>,
    pass: Option<Pass>,
    /// Tokens that were taken for it, and that a count of those really used is set against.
    tokens: Option<f64>,
}

impl Permit {
    pub(super) fn new(gate: Arc<Gate>, ticket: Option<Ticket>, pass: Option<Pass>, tokens: f64) -> Self {
        Permit { gate, ticket, pass, tokens: Some(tokens).filter(|tokens| *tokens > 0.0) }
    }

    /// What came of the request. `true`: the circuit opened.
    pub fn learn(&mut self, lesson: &Lesson) -> bool {
        let ticket = self.ticket.take();
        if let Some(ticket) = ticket {
            let lesson = *lesson;
            self.gate.tell(move |limits, now| limits.learn(now, ticket, &lesson));
        }
        let opened = self.pass.take().is_some_and(|pass| self.gate.tell_circuit(pass, lesson.sign));
        if ticket.is_some() || lesson.sign == Sign::Failure {
            self.gate.changed();
        }
        opened
    }

    /// The request really used so many tokens.
    pub fn settle(&mut self, used: u64) {
        if let Some(taken) = self.tokens.take() {
            let settings = self.gate.rules().limits;
            self.gate.tell(move |limits, now| limits.give_tokens(now, taken - used as f64, &settings));
            self.gate.changed();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.learn(&Lesson::NONE);
        self.gate.leave();
    }
}
