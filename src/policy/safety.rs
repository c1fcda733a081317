//! Which requests may be repeated after an ambiguous failure.

use http::Method;

use crate::wire::dialect::Dialect;

/// `retry.ambiguous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguous {
    /// Repeat only what is safe to repeat.
    Safe,
    /// Repeat everything.
    Always,
    /// Repeat nothing.
    Never,
}

/// What a repeat of a request can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A repeat costs tokens at most, or is idempotent by nature.
    Repeatable,
    /// A repeat may create, change or pay for something twice.
    Creates,
}

/// The effect of a request. `path` is the upstream's path without query; `body` is read only where a field of it decides.
pub fn effect(
    _dialect: Dialect,
    _method: &Method,
    _path: &str,
    _body: impl FnOnce() -> Option<Vec<u8>>,
) -> Effect {
    unimplemented!()
}

/// The request asks a model for an answer, so that a good answer must hold one.
pub fn is_model_call(_dialect: Dialect, _method: &Method, _path: &str) -> bool {
    unimplemented!()
}
