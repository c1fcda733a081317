//! What is wrong with a config: every fault at once, each with its place, its key and what was expected.

use std::fmt;
use std::sync::Arc;

/// Where a value was written. Later sources win, so the order of places is the order of precedence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    rank: usize,
    source: Arc<str>,
    line: usize,
}

impl Place {
    /// A place in source number `rank` (the defaults are 0). Line 0: the source has no lines, as an argument.
    pub(super) fn new(rank: usize, source: &Arc<str>, line: usize) -> Self {
        Place { rank, source: Arc::clone(source), line }
    }

    /// The value is a default: nobody wrote it.
    pub(super) fn is_default(&self) -> bool {
        self.rank == 0
    }

    /// The line, where the source is a file.
    pub fn line(&self) -> Option<usize> {
        (self.line > 0).then_some(self.line)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.source),
            line => write!(f, "{}:{line}", self.source),
        }
    }
}

/// Whether a fault is the writer's or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The value or the key is wrong.
    Wrong,
    /// The value is right, but this version does not do that yet.
    Unavailable,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// The full key, `retry.max_attempts`; empty for a fault of the whole file.
    pub key: String,
    /// What was found and what was expected. Never a secret.
    pub message: String,
    /// Whose fault it is.
    pub kind: Kind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// All faults of a config, in the order of the text. Displayed one a line.
#[derive(Debug, Clone)]
pub struct ConfigError {
    faults: Vec<Fault>,
    document: Option<toml::Table>,
}

impl ConfigError {
    /// The same fault found on two ways (a global key, read for each upstream) is told once.
    pub(super) fn new(mut faults: Vec<Fault>) -> Self {
        faults.sort();
        faults.dedup();
        ConfigError { faults, document: None }
    }

    /// A fault of a source as a whole.
    pub(super) fn of_source(source: &str, message: impl Into<String>) -> Self {
        let place = Place::new(1, &Arc::from(source), 0);
        ConfigError::new(vec![Fault { place, key: String::new(), message: message.into(), kind: Kind::Wrong }])
    }

    /// Keep the document, which can be shown although it cannot be served.
    pub(super) fn with_document(mut self, document: toml::Table) -> Self {
        self.document = Some(document);
        self
    }

    /// The faults.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The merged config with secrets masked, if nothing is wrong with it but that it asks for what is not built yet.
    pub fn document(&self) -> Option<&toml::Table> {
        self.document.as_ref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
