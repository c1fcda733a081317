//! Where the limits of a gate are kept.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::after;
use crate::policy::limits::Limits;

/// The limits of one gate, in memory. Times count from when they were made.
pub struct Store {
    limits: Mutex<Limits>,
    start: Instant,
}

/// Time of a store's own: far enough from zero that everything may lie before it.
const BEGINNING: Duration = Duration::from_secs(3600);

impl Store {
    /// Nothing is known yet.
    pub fn local() -> Self {
        Store { limits: Mutex::default(), start: Instant::now() }
    }

    /// Look at the limits and change them, at once.
    pub fn now<R>(&self, change: impl FnOnce(&mut Limits, Duration) -> R) -> R {
        let now = BEGINNING.saturating_add(self.start.elapsed());
        change(&mut self.limits.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// One of the store's times on the clock that everything waits by.
    pub fn instant(&self, at: Duration) -> Instant {
        after(self.start, at.saturating_sub(BEGINNING))
    }
}
