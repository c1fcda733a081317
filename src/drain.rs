//! Stopping: told once, seen by every call that waits.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Whether and until when Backstop is draining. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Drain(Arc<watch::Sender<Option<Instant>>>);

impl Default for Drain {
    fn default() -> Self {
        Drain(Arc::new(watch::Sender::new(None)))
    }
}

impl Drain {
    /// Begin: answers in flight have until `end`.
    pub fn begin(&self, end: Instant) {
        self.0.send_if_modified(|state| {
            let first = state.is_none();
            *state = state.or(Some(end));
            first
        });
    }

    /// The end, once begun.
    pub fn end(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Wait until draining has begun; its end.
    pub async fn begun(&self) -> Instant {
        let mut state = self.0.subscribe();
        let end = state.wait_for(Option::is_some).await.map(|end| *end);
        match end {
            Ok(Some(end)) => end,
            // The sender is in `self`: neither can happen.
            _ => std::future::pending().await,
        }
    }

    /// Sleep until `wake`; `false`, at once, if draining will end before that.
    pub async fn sleep_until(&self, wake: Instant) -> bool {
        tokio::select! {
            () = sleep_until(wake) => true,
            () = async { while self.begun().await >= wake { std::future::pending::<()>().await } } => false,
        }
    }
}
