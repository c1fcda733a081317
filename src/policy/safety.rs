//! Which requests may be repeated after an ambiguous failure.
//!
//! After one, the upstream may have acted: repeating a chat call costs tokens, repeating an upload leaves two files.
//! Everything that is not known to be harmless counts as the latter.

use http::Method;

use crate::wire::dialect::Dialect;
use crate::wire::dialect::endpoints::Repeat;

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

/// The effect of a request. `path` is the upstream's path without query; `body` (content encoding undone, `None` if it
/// cannot be had whole) is asked for only where a field of it decides.
pub fn effect(dialect: Dialect, method: &Method, path: &str, body: impl FnOnce() -> Option<Vec<u8>>) -> Effect {
    // RFC 9110 section 9.2.2
    if method.is_idempotent() {
        return Effect::Repeatable;
    }
    let repeat = post(method).and_then(|()| dialect.endpoint(path)).map_or(Repeat::Creates, |e| e.repeat);
    let repeatable = match repeat {
        Repeat::Safe => true,
        Repeat::Conditional => body().is_some_and(|b| !dialect.acts_twice(&b)),
        Repeat::Creates => false,
    };
    if repeatable { Effect::Repeatable } else { Effect::Creates }
}

/// The request asks a model for an answer, so that a good answer must hold one.
pub fn is_model_call(dialect: Dialect, method: &Method, path: &str) -> bool {
    post(method).and_then(|()| dialect.endpoint(path)).is_some_and(|e| e.model_call)
}

/// The tables are of `POST`s.
fn post(method: &Method) -> Option<()> {
    (method == Method::POST).then_some(())
}
