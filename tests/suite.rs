//! The integration tests: one binary, a module a promise.

mod cli;
