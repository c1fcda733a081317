//! Evidence → verdict.

use std::time::SystemTime;

use http::{HeaderMap, StatusCode};

use super::failure::TransportError;
use super::verdict::{Class, Verdict};
use crate::wire::dialect::Dialect;

/// One `[[classify]]` rule of the user: every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Any of these statuses; empty: any.
    pub status: Vec<u16>,
    /// Any of these in the body's error type, code or status field; empty: any.
    pub error_type: Vec<String>,
    /// This text in the decoded body; empty: any.
    pub body_contains: String,
    /// The verdict's class.
    pub class: Class,
}

/// What an attempt left behind.
#[derive(Debug, Clone, Copy)]
pub enum Evidence<'a> {
    /// A whole answer, or as much of it as is looked at.
    Answer(Answer<'a>),
    /// No whole answer.
    Failure(&'a TransportError),
}

/// An answer to look at.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The dialect of the route.
    pub dialect: Dialect,
    /// The request asks a model for an answer (chat, messages, responses, generateContent, embeddings …), so that a 2xx must hold one.
    pub model_call: bool,
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body, content encoding undone; cut at a bound, see `whole`.
    pub body: &'a [u8],
    /// `body` is all of it.
    pub whole: bool,
    /// When the answer arrived, by our clock.
    pub now: SystemTime,
}

/// Evidence → verdict. Pure; the same evidence gives the same verdict.
pub fn classify(_evidence: Evidence<'_>, _rules: &[Rule]) -> Verdict {
    unimplemented!()
}
