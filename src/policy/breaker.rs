//! When an upstream that fails all the time is left alone.

use std::time::Duration;

/// `[breaker]`: when a circuit opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The time that is looked back on.
    pub window: Duration,
    /// Share of failures in the window that opens it, above 0, up to 1.
    pub failure_ratio: f64,
    /// Calls in the window below which it stays closed.
    pub min_requests: u32,
    /// How long nothing is sent before it is tried again.
    pub open_for: Duration,
}
