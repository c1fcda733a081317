//! Bytes in, facts out. Pure: no clock, no dice, no I/O.

pub mod dialect;
pub mod durations;
pub mod encoding;
pub mod headers;
pub mod hints;
pub mod loose;
