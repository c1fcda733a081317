//! What one event says, and how the choices of an answer end.

use std::borrow::Cow;

use super::root::Root;
use crate::wire::dialect::answer::{MALFORMED_ENDS, NATURAL_ENDS};
use crate::wire::dialect::usage::Counts;

/// The facts of one event.
#[derive(Default)]
pub struct Said<'a> {
    /// It carries something for the client.
    pub content: bool,
    /// It tells an error.
    pub error: bool,
    /// Nothing comes after it.
    pub marker: bool,
    /// It is no event, but JSON that stands bare in the stream.
    pub bare: bool,
    /// What ended in it.
    pub turns: Turns,
    /// The model that answers.
    pub model: Option<Cow<'a, str>>,
    /// Tokens.
    pub counts: Option<Counts>,
    /// Its number, in families that count their events.
    pub sequence: Option<u64>,
}

impl<'a> Said<'a> {
    /// From the fields that all families have.
    pub fn new(root: Root<'a>) -> Said<'a> {
        Said { error: root.is_error(), model: root.model.0, counts: root.counts, ..Said::default() }
    }
}

/// The choices of an answer by their index, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turns {
    seen: u64,
    done: u64,
    /// One ended in another way than by itself, which explains why there may be nothing in it.
    pub explained: bool,
    /// One ended because what the model wrote could not be used.
    pub malformed: bool,
    /// One ended in an error.
    pub error: bool,
}

impl Turns {
    /// Notes a choice, and its end if it has one.
    pub fn note(&mut self, index: Option<u64>, finish: Option<&str>) {
        // Indexes beyond the last bit share it.
        let bit = 1 << index.unwrap_or(0).min(63);
        self.seen |= bit;
        // Some servers write "" while there is no end.
        if let Some(end) = finish.filter(|end| !end.is_empty() && *end != "FINISH_REASON_UNSPECIFIED") {
            self.done |= bit;
            self.malformed |= MALFORMED_ENDS.contains(&end);
            self.error |= end == "error";
            self.explained |= !NATURAL_ENDS.contains(&end);
        }
    }

    /// Takes over what a later event says.
    pub fn join(&mut self, later: Turns) {
        self.seen |= later.seen;
        self.done |= later.done;
        self.explained |= later.explained;
        self.malformed |= later.malformed;
        self.error |= later.error;
    }

    /// Every choice that was seen has ended.
    pub fn all_done(&self) -> bool {
        self.seen != 0 && self.seen & !self.done == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_choices_must_end() {
        let mut turns = Turns::default();
        assert!(!turns.all_done());
        turns.note(Some(0), Some("stop"));
        turns.note(Some(1), None);
        turns.note(Some(u64::MAX), Some(""));
        assert!(!turns.all_done());
        turns.note(Some(1), Some("stop"));
        turns.note(Some(70), Some("stop"));
        assert!(turns.all_done() && !turns.explained);
        turns.note(None, Some("length"));
        assert!(turns.explained);
    }
}
