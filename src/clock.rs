//! The only reader of clock and dice. Everything that waits reads tokio's clock, so that tests run in virtual time.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Wall clock and dice of one process.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// A wall clock that moves with tokio's time from a fixed point, for tests.
    fixed: Option<(Instant, SystemTime)>,
}

impl Clock {
    /// The machine's clock.
    pub fn real() -> Self {
        Clock::default()
    }

    /// A wall clock that shows `wall` now and moves with tokio's (paused) time.
    pub fn starting_at(wall: SystemTime) -> Self {
        Clock { fixed: Some((Instant::now(), wall)) }
    }

    /// Monotonic time.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Time of day, to read the dates of headers against.
    pub fn wall(&self) -> SystemTime {
        match self.fixed {
            Some((start, wall)) => wall + start.elapsed(),
            None => SystemTime::now(),
        }
    }

    /// One throw of the dice: uniform in [0, 1).
    pub fn dice(&self) -> f64 {
        fastrand::f64()
    }

    /// A request id: 16 hexadecimal digits, unique for all purposes of a log.
    pub fn request_id(&self) -> String {
        format!("{:016x}", fastrand::u64(..))
    }
}

/// 32 hexadecimal digits that come up once.
pub fn unique() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// `instant + duration`, or a year on where that does not fit.
pub fn after(instant: Instant, duration: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    instant.checked_add(duration).unwrap_or(instant + YEAR)
}
