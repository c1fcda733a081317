//! The integration tests: one binary, a module a promise.

/// Evidence → verdict, on error answers as providers send them (`tests/fixtures/provider_errors.jsonl`) and on odd ones.
mod classify;
/// The command line, as a person runs it.
mod cli;
/// How long a provider asks us to wait, from each place where it may say so.
mod hints;
/// Which requests may be repeated after their answer was lost.
mod safety;
/// Seeded runs of the retry policy against a model upstream in virtual time.
mod simulation;
/// Streams as providers send them, whole, cut and with errors in them, through the watch and the verdict.
mod streams;
