//! The wire families, and the only files where a provider's name appears.

pub mod credential;
pub mod form;

/// A family of model APIs that share paths, error shapes and streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI and everything compatible with it.
    OpenAi,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini.
    Gemini,
    /// Anything else over HTTP.
    Generic,
}
