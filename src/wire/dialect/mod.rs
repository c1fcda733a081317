//! The wire families, and the only files where a provider's name appears.

pub mod answer;
pub mod asked;
pub mod credential;
pub mod endpoints;
pub mod errors;
pub mod form;
pub mod limits;
pub mod stream;
pub mod usage;
pub mod words;

mod anthropic;
mod gemini;
mod openai;
mod render;

pub use render::render_error;

/// A family of model APIs that share paths, error shapes and streams.
///
/// The default is the one that most clients read, where nothing says which: an error in it is understood by most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI and everything compatible with it.
    #[default]
    OpenAi,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini.
    Gemini,
    /// Anything else over HTTP.
    Generic,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 4] = [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Generic];

    /// The dialect as config, logs and the command line write it.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::OpenAi => "openai",
            Dialect::Anthropic => "anthropic",
            Dialect::Gemini => "gemini",
            Dialect::Generic => "generic",
        }
    }

    /// The dialect of that name.
    pub fn from_name(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|d| d.name() == name)
    }

    /// The status with which this family says that it has no capacity.
    pub const fn overloaded_status(self) -> u16 {
        match self {
            Dialect::Anthropic => 529,
            _ => 503,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for d in Dialect::ALL {
            assert_eq!(Dialect::from_name(d.name()), Some(d));
        }
        assert_eq!(Dialect::from_name("OpenAI"), None);
    }
}
