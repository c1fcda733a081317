//! What calls share: the global retry bucket, and the memory of calls that just failed for good.

pub mod bucket;
pub mod memory;
