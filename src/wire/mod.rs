//! Bytes in, facts out. Pure: no clock, no dice, no I/O.

pub mod client;
pub mod dialect;
pub mod framing;
pub mod headers;
pub mod hints;
