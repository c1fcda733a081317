//! Bytes in, facts out. Pure: no clock, no dice, no I/O.

pub mod dialect;
pub mod hints;
