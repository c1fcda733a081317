//! The memory of calls that just ended badly, for two questions: is this client repeating a call that was already given
//! up on, and did a call that ended on an unknown status later go through?
//!
//! Bound: `CAPACITY` entries of 40 bytes or so, each for `UNCLASSIFIED_FOR` at most, the oldest out first.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// A repeat within this time of the same body with the same credential is a client that did not take no for an answer.
pub const GAVE_UP_FOR: Duration = Duration::from_secs(30);
/// A success within this time is evidence about the unknown status before it.
pub const UNCLASSIFIED_FOR: Duration = Duration::from_secs(600);
const CAPACITY: usize = 2048;

/// A request's fingerprint: credential, target and body, digested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Digest the parts; lengths go in too, so that parts cannot run into each other.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self::short(digest)
    }

    /// Digest one text that comes in pieces, whatever the pieces.
    pub fn of_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        pieces.into_iter().for_each(|piece| digest.update(piece));
        Self::short(digest)
    }

    /// One that was digested before.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Fingerprint(bytes)
    }

    fn short(digest: Sha256) -> Self {
        let full = digest.finalize();
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Fingerprint(short)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// As 32 hexadecimal digits.
    pub fn hex(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The memory.
#[derive(Default)]
pub struct Memory {
    entries: Mutex<VecDeque<Entry>>,
    /// Anything is remembered: a call need not be digested otherwise.
    used: AtomicBool,
}

struct Entry {
    fingerprint: Fingerprint,
    at: Instant,
    what: Remembered,
}

/// What is remembered of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// It was answered with `x-should-retry: false`.
    GaveUp,
    /// It ended on this status, which no rule knew.
    Unclassified(u16),
}

impl Memory {
    /// Nothing is remembered at all.
    pub fn is_empty(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }

    /// Remember one thing of a call.
    pub fn remember(&self, fingerprint: Fingerprint, what: Remembered) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CAPACITY {
            entries.pop_front();
        }
        entries.push_back(Entry { fingerprint, at: Instant::now(), what });
        self.used.store(true, Ordering::Relaxed);
    }

    /// The call was given up on a short while ago.
    pub fn gave_up(&self, fingerprint: Fingerprint) -> bool {
        self.with(|entries| {
            let recent = |entry: &&Entry| entry.what == Remembered::GaveUp && entry.at.elapsed() < GAVE_UP_FOR;
            entries.iter().filter(recent).any(|entry| entry.fingerprint == fingerprint)
        })
    }

    /// The call went through: which unknown statuses had it met before? They are forgotten.
    pub fn got_past(&self, fingerprint: Fingerprint) -> Vec<u16> {
        self.with(|entries| {
            let mut statuses = Vec::new();
            entries.retain(|entry| match entry.what {
                _ if entry.fingerprint != fingerprint => true,
                Remembered::Unclassified(status) => {
                    statuses.push(status);
                    false
                }
                Remembered::GaveUp => false,
            });
            statuses
        })
    }

    fn with<R>(&self, look: impl FnOnce(&mut VecDeque<Entry>) -> R) -> R {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        while entries.front().is_some_and(|oldest| oldest.at.elapsed() >= UNCLASSIFIED_FOR) {
            entries.pop_front();
        }
        let result = look(&mut entries);
        self.used.store(!entries.is_empty(), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(text: &str) -> Fingerprint {
        Fingerprint::of([text.as_bytes()])
    }

    #[tokio::test(start_paused = true)]
    async fn a_given_up_call_is_remembered_for_half_a_minute() {
        let memory = Memory::default();
        assert!(memory.is_empty());
        memory.remember(print("a"), Remembered::GaveUp);
        assert!(memory.gave_up(print("a")) && !memory.gave_up(print("b")));
        tokio::time::advance(GAVE_UP_FOR).await;
        assert!(!memory.gave_up(print("a")));
        tokio::time::advance(UNCLASSIFIED_FOR).await;
        assert!(!memory.gave_up(print("a")) && memory.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_tells_of_the_unknown_statuses_before_it_once() {
        let memory = Memory::default();
        memory.remember(print("a"), Remembered::Unclassified(418));
        assert_eq!(memory.got_past(print("a")), [418]);
        assert_eq!(memory.got_past(print("a")), Vec::<u16>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_bounded() {
        let memory = Memory::default();
        for n in 0..3 * CAPACITY {
            memory.remember(print(&n.to_string()), Remembered::GaveUp);
        }
        assert!(memory.gave_up(print(&(3 * CAPACITY - 1).to_string())) && !memory.gave_up(print("0")));
        assert_eq!(memory.entries.lock().unwrap().len(), CAPACITY);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(Fingerprint::of([&b"ab"[..], b"c"]), Fingerprint::of([&b"a"[..], b"bc"]));
    }
}
