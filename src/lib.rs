//! Backstop.
pub mod config;
pub mod policy;
pub mod wire;
