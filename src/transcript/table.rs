//! Which calls are one: the table of keyed calls in flight, and of their answers for a while after.
//!
//! A place in it is named by a digest of key, credential, upstream, method and path, so that callers with different
//! credentials never meet. Bound: the bodies of finished answers together are `idempotency.max_bytes` at most, the oldest
//! out first; one in flight holds [`super::KEPT`] at most.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::{Reader, Transcript, Writer};
use crate::admission::memory::Fingerprint;

/// The table.
#[derive(Default)]
pub struct Table {
    calls: DashMap<Fingerprint, Call>,
    /// Finished answers in the order of their end, with their sizes.
    finished: Mutex<Finished>,
}

struct Call {
    body: Fingerprint,
    answer: Arc<Transcript>,
}

#[derive(Default)]
struct Finished {
    order: VecDeque<(Fingerprint, Arc<Transcript>, usize)>,
    size: usize,
}

/// What stands beside an answer's body.
pub(super) const OVERHEAD: usize = 1024;

/// A call's place.
pub enum Seat {
    /// It is the first: it makes the call, and reads its answer as all others do.
    First(Arc<Transcript>, Writer, Reader),
    /// It reads the answer of one in flight.
    Joins(Reader),
    /// It reads an answer that was given before.
    Again(Reader),
    /// It is on its own.
    Alone,
    /// The key is that of another request.
    Taken,
}

/// Who may have which seat.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// A call in flight can be joined.
    pub join: bool,
    /// A finished answer is given again.
    pub replay: bool,
    /// Another call of the name makes way.
    pub lead: bool,
}

impl Table {
    /// Take the place of this name with a request of this body.
    pub fn enter(&self, name: Fingerprint, body: Fingerprint, rules: Rules) -> Seat {
        let mut entry = match self.calls.entry(name) {
            Entry::Vacant(vacant) => {
                let (answer, writer, reader) = Transcript::begin();
                vacant.insert(Call { body, answer: answer.clone() });
                return Seat::First(answer, writer, reader);
            }
            Entry::Occupied(occupied) => occupied,
        };
        let call = entry.get();
        let (over, good) = (call.answer.is_over(), call.answer.is_good());
        if rules.lead || over && !(good && rules.replay) {
            let (answer, writer, reader) = Transcript::begin();
            entry.insert(Call { body, answer: answer.clone() });
            return Seat::First(answer, writer, reader);
        }
        if call.body != body {
            return Seat::Taken;
        }
        match call.answer.read() {
            Some(reader) if over => Seat::Again(reader),
            Some(reader) if rules.join => Seat::Joins(reader),
            _ => Seat::Alone,
        }
    }

    /// An answer is over. `true`: it is kept, to be given again, until it is forgotten.
    pub fn finish(&self, name: Fingerprint, answer: &Arc<Transcript>, max_bytes: usize) -> bool {
        if !answer.is_good() {
            return false;
        }
        let size = answer.size() + OVERHEAD;
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        finished.order.push_back((name, answer.clone(), size));
        finished.size += size;
        let mut out = Vec::new();
        while finished.size > max_bytes
            && let Some((name, answer, size)) = finished.order.pop_front()
        {
            finished.size -= size;
            out.push((name, answer));
        }
        drop(finished);
        out.iter().for_each(|(name, answer)| self.remove(*name, Arc::as_ptr(answer)));
        true
    }

    /// Put in an answer of an earlier process. One of the same name that is there makes way.
    pub fn restore(&self, name: Fingerprint, body: Fingerprint, answer: Arc<Transcript>, max_bytes: usize) {
        self.calls.insert(name, Call { body, answer: answer.clone() });
        self.finish(name, &answer, max_bytes);
    }

    /// This answer is not given again from now on. Whoever waits to say so does not keep it.
    pub fn forget(&self, name: Fingerprint, answer: &Weak<Transcript>) {
        self.remove(name, answer.as_ptr());
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = finished.order.iter().position(|(_, other, _)| Arc::as_ptr(other) == answer.as_ptr())
            && let Some((_, _, size)) = finished.order.remove(at)
        {
            finished.size -= size;
        }
    }

    fn remove(&self, name: Fingerprint, answer: *const Transcript) {
        self.calls.remove_if(&name, |_, call| Arc::as_ptr(&call.answer) == answer);
    }
}
