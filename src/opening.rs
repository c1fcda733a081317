//! What a call comes to, before the first byte of it goes to the client: the point up to which everything can be retried.

use std::sync::Arc;

use crate::admission::Passage;
use crate::answer::Answer;
use crate::call::Call;
use crate::policy::verdict::Verdict;
use crate::reply::{LocalReply, Outcome};

/// What a call comes to: an answer before its first byte went to the client.
pub struct Opening {
    /// The call, as it was sent to the upstream that answers: a fallback, perhaps.
    pub call: Arc<Call>,
    /// The upstream's answer, or our own.
    pub reply: Reply,
    /// How it came to that.
    pub outcome: Outcome,
    /// Attempts that were made.
    pub attempts: u32,
    /// The verdict on the last of them.
    pub verdict: Option<Verdict>,
    /// A client's own retry cannot do better.
    pub no_retry: bool,
    /// Leave to be at the upstream, held until the answer is over.
    pub passage: Option<Passage>,
}

/// Who answers.
pub enum Reply {
    /// The upstream.
    Upstream(Box<Answer>),
    /// We do.
    Local(LocalReply),
}

impl Reply {
    /// The upstream's, and good by its status.
    pub fn is_good(&self) -> bool {
        matches!(self, Reply::Upstream(answer) if answer.status.is_success())
    }

    /// All of it is in hand.
    pub fn is_whole(&self) -> bool {
        matches!(self, Reply::Upstream(answer) if answer.rest.is_none())
    }
}
