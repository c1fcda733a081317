//! What a run is judged by.

use std::time::Duration;

use super::{Run, World};
use crate::support::ms;

/// The figures of one run.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Time to the last good answer, over the optimum for as many.
    pub over_optimum: f64,
    pub limited: f64,
    pub failed: f64,
    /// Requests that the provider turned away, for each call done.
    pub wasted: f64,
    /// The most arrivals in any 100 ms from when the first 429 was told.
    pub burst: f64,
    /// Agents that gave up.
    pub lost: f64,
    /// Jain's index of the finish times.
    pub fairness: f64,
    /// Seconds of a call beyond the provider's own latency.
    pub wait_p50: f64,
    pub wait_p99: f64,
    /// Seconds a call of the interactive agent, on average and in the middle, and how many of its calls failed.
    pub companion: f64,
    pub companion_p50: f64,
    pub companion_lost: f64,
}

impl Figures {
    pub fn of(run: &Run, world: &World) -> Figures {
        let record = &run.record;
        let done = run.calls.len() + run.companion.len();
        let refused = record.limited.len() + record.failed.len();
        let waits: Vec<f64> = run.calls.iter().map(|took| took.saturating_sub(world.latency).as_secs_f64()).collect();
        let companion: Vec<f64> = run.companion.iter().map(Duration::as_secs_f64).collect();
        Figures {
            over_optimum: run.last.as_secs_f64() / world.optimum(done).as_secs_f64(),
            limited: record.limited.len() as f64,
            failed: record.failed.len() as f64,
            wasted: refused as f64 / done.max(1) as f64,
            burst: record.told.map_or(0, |told| thickest(&record.arrivals, told)) as f64,
            lost: run.lost as f64,
            fairness: jain(&run.finishes),
            wait_p50: percentile(&waits, 0.5),
            wait_p99: percentile(&waits, 0.99),
            companion: companion.iter().sum::<f64>() / companion.len() as f64,
            companion_p50: percentile(&companion, 0.5),
            companion_lost: run.refused as f64,
        }
    }
}

/// The most arrivals in any 100 ms from a time on.
fn thickest(arrivals: &[Duration], from: Duration) -> usize {
    let after: Vec<_> = arrivals.iter().filter(|at| **at >= from).collect();
    let from_each = after.iter().map(|first| after.iter().filter(|at| ***at >= **first && ***at < **first + ms(100)));
    from_each.map(Iterator::count).max().unwrap_or(0)
}

/// 1 when all are the same, 1/n when one has everything.
fn jain(times: &[Duration]) -> f64 {
    let (sum, squares) = times.iter().map(Duration::as_secs_f64).fold((0.0, 0.0), |(s, q), t| (s + t, q + t * t));
    sum * sum / (times.len() as f64 * squares)
}

/// The middle of some values.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which the share `p` lies.
fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * p).round() as usize).copied().unwrap_or(f64::NAN)
}
