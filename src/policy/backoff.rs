//! Exponential backoff with jitter.

use std::time::Duration;

/// How a delay is spread. `d = min(base × multiplier^n, max)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// U(0, d)
    Full,
    /// d/2 + U(0, d/2)
    Equal,
    /// d + U(0, d/4)
    Additive,
    /// d
    None,
}

/// The schedule of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first delay.
    pub base: Duration,
    /// The largest delay before jitter.
    pub max: Duration,
    /// Growth a step.
    pub multiplier: f64,
    /// How a delay is spread.
    pub jitter: Jitter,
}
