//! Bytes in, facts out. Pure: no clock, no dice, no I/O.

pub mod client;
pub mod dialect;
pub mod durations;
pub mod encoding;
pub mod framing;
pub mod headers;
pub mod hints;
pub mod hop;
pub mod loose;
pub mod ndjson;
pub mod sse;

mod held;
