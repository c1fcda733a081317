//! Decisions as pure functions: clock and dice are arguments.

pub mod backoff;
pub mod breaker;
pub mod classify;
pub mod failure;
pub mod lesson;
pub mod limits;
pub mod pace;
pub mod quota;
pub mod retry;
pub mod safety;
pub mod status;
pub mod verdict;
