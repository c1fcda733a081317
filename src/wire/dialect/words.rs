//! What the words in error bodies mean.
//!
//! One table for all families: compatible servers borrow each other's words, and put them now into `type`, now into
//! `code`, now into `status`. Sources: the providers' error references, and bodies captured in public reports
//! (`tests/fixtures/provider_errors.jsonl`).

/// What an error says, the more telling first: an error says several words ("invalid_request_error" with the code
/// "conversation_locked"), and the first in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    /// Quota, credit or plan window is used up.
    SpentQuota,
    /// The request does not fit: it must be made smaller.
    TooLarge,
    /// What the model wrote was refused by the provider's own checks: another sample may do.
    BadOutput,
    /// Another request holds the conversation: it will let go.
    Locked,
    /// The credential.
    Auth,
    /// No such thing.
    NotFound,
    /// A policy on content.
    Policy,
    /// A rate limit.
    RateLimited,
    /// No capacity.
    Overloaded,
    /// The provider's own time limit.
    Timeout,
    /// A fault of the provider's.
    Server,
    /// The request is wrong.
    BadRequest,
}

impl Meaning {
    /// The status that an error of this meaning would have had if it had not come inside a 200.
    pub const fn status(self, overloaded: u16) -> u16 {
        match self {
            Meaning::SpentQuota | Meaning::RateLimited => 429,
            Meaning::TooLarge | Meaning::BadOutput | Meaning::Policy | Meaning::BadRequest => 400,
            Meaning::Locked => 409,
            Meaning::Auth => 401,
            Meaning::NotFound => 404,
            Meaning::Overloaded => overloaded,
            Meaning::Timeout => 504,
            Meaning::Server => 500,
        }
    }
}

/// A meaning, and what it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// What it says.
    pub meaning: Meaning,
    /// The rule for people. After a colon: the word itself.
    pub rule: &'static str,
}

/// The most telling of these words.
pub fn of_words<'a>(words: impl Iterator<Item = &'a str>) -> Option<Sense> {
    words.filter_map(word).min_by_key(|s| s.meaning)
}

fn word(text: &str) -> Option<Sense> {
    let found =
        WORDS.iter().find(|(_, rule)| rule.rsplit_once(": ").is_some_and(|(_, w)| w.eq_ignore_ascii_case(text)));
    found.map(|&(meaning, rule)| Sense { meaning, rule })
}

/// What the message says where no word does. Only phrases of errors that have nothing better, each only with the
/// statuses it was seen with: a message may quote the user's own text. "Quota" alone decides nothing: shared capacity
/// says it too.
pub fn of_message(status: u16, message: &str) -> Option<Sense> {
    let lower = message.to_ascii_lowercase();
    let found = PHRASES.iter().find(|p| (p.statuses)(status) && (p.says)(&lower));
    found.map(|p| Sense { meaning: p.meaning, rule: p.rule })
}

/// A `error` field that is a bare sentence in the place of a code.
pub fn of_bare_error(message: &str) -> Option<Sense> {
    let lower = message.to_ascii_lowercase();
    let spent = ["used all available credits", "monthly spending limit"].iter().any(|p| lower.contains(p));
    spent.then_some(Sense { meaning: Meaning::SpentQuota, rule: "spent quota: credits" })
}

struct Phrase {
    meaning: Meaning,
    rule: &'static str,
    statuses: fn(u16) -> bool,
    /// On the message in lower case.
    says: fn(&str) -> bool,
}

const PHRASES: &[Phrase] = &[
    Phrase {
        meaning: Meaning::SpentQuota,
        rule: "spent quota: credit balance",
        statuses: |s| matches!(s, 400 | 402 | 403 | 429),
        says: |m| m.contains("credit balance is too low") || m.contains("reached your specified api usage limits"),
    },
    Phrase {
        meaning: Meaning::SpentQuota,
        rule: "spent quota: limit 0",
        statuses: |s| s == 429,
        says: |m| {
            m.match_indices("limit: 0")
                .any(|(at, p)| !m[at + p.len()..].starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        },
    },
    Phrase {
        meaning: Meaning::SpentQuota,
        rule: "spent quota: tokens per day",
        statuses: |s| s == 429,
        says: |m| m.contains("too many tokens per day"),
    },
    Phrase {
        meaning: Meaning::TooLarge,
        rule: "too large: more than the limit allows at once",
        statuses: |s| s == 429,
        says: |m| m.starts_with("request too large"),
    },
    Phrase {
        meaning: Meaning::TooLarge,
        rule: "too large: context",
        statuses: |s| matches!(s, 400 | 413 | 422),
        says: |m| ["maximum context length", "prompt is too long", "input token count"].iter().any(|p| m.contains(p)),
    },
    Phrase {
        meaning: Meaning::TooLarge,
        rule: "too large: context",
        statuses: |s| s == 400 || s >= 500,
        says: |m| m.starts_with("context size has been exceeded"),
    },
];

use Meaning::{
    Auth, BadOutput, BadRequest, Locked, NotFound, Overloaded, Policy, RateLimited, Server, SpentQuota, Timeout,
    TooLarge,
};

const WORDS: &[(Meaning, &str)] = &[
    (SpentQuota, "spent quota: insufficient_quota"),
    (SpentQuota, "spent quota: billing_hard_limit_reached"),
    (SpentQuota, "spent quota: billing_not_active"),
    (SpentQuota, "spent quota: credit_balance_exhausted"),
    (SpentQuota, "spent quota: insufficient_balance"),
    (SpentQuota, "spent quota: insufficient_credits"),
    (SpentQuota, "spent quota: usage_limit_reached"),
    (SpentQuota, "spent quota: billing_error"),
    (SpentQuota, "spent quota: enforced_spend_limit_reached"),
    (TooLarge, "too large: context_length_exceeded"),
    (TooLarge, "too large: exceed_context_size_error"),
    (TooLarge, "too large: request_too_large"),
    (BadOutput, "bad output: tool_use_failed"),
    (BadOutput, "bad output: json_validate_failed"),
    (Locked, "locked: conversation_locked"),
    (Auth, "auth: invalid_api_key"),
    (Auth, "auth: authentication_error"),
    (Auth, "auth: permission_error"),
    (Auth, "auth: request_forbidden"),
    (Auth, "auth: API_KEY_INVALID"),
    (Auth, "auth: UNAUTHENTICATED"),
    (Auth, "auth: PERMISSION_DENIED"),
    (Auth, "auth: AccessDeniedException"),
    (NotFound, "not found: not_found_error"),
    (NotFound, "not found: model_not_found"),
    (NotFound, "not found: DeploymentNotFound"),
    (NotFound, "not found: NOT_FOUND"),
    (NotFound, "not found: ResourceNotFoundException"),
    (Policy, "policy: content_filter"),
    (Policy, "policy: content_policy_violation"),
    (Policy, "policy: image_content_policy_violation"),
    (Policy, "policy: ResponsibleAIPolicyViolation"),
    (Policy, "policy: invalid_prompt"),
    (Policy, "policy: bio_policy"),
    (Policy, "policy: misalignment_policy_violation"),
    (RateLimited, "rate limit: rate_limit_exceeded"),
    (RateLimited, "rate limit: rate_limit_error"),
    (RateLimited, "rate limit: rate_limited"),
    (RateLimited, "rate limit: rateLimitExceeded"),
    (RateLimited, "rate limit: too_many_requests"),
    (RateLimited, "rate limit: slow_down"),
    (RateLimited, "rate limit: RESOURCE_EXHAUSTED"),
    (RateLimited, "rate limit: ThrottlingException"),
    (RateLimited, "rate limit: TooManyRequestsException"),
    (Overloaded, "overloaded: overloaded_error"),
    (Overloaded, "overloaded: server_is_overloaded"),
    (Overloaded, "overloaded: engine_overloaded_error"),
    (Overloaded, "overloaded: service_unavailable_error"),
    (Overloaded, "overloaded: service_unavailable"),
    (Overloaded, "overloaded: unavailable_error"),
    (Overloaded, "overloaded: UNAVAILABLE"),
    (Overloaded, "overloaded: ServiceUnavailableException"),
    (Overloaded, "overloaded: ModelNotReadyException"),
    (Timeout, "timeout: timeout_error"),
    (Timeout, "timeout: DEADLINE_EXCEEDED"),
    (Timeout, "timeout: ModelTimeoutException"),
    (Server, "server error: server_error"),
    (Server, "server error: api_error"),
    (Server, "server error: internal_error"),
    (Server, "server error: internal_server_error"),
    (Server, "server error: InternalServerError"),
    (Server, "server error: InternalServerException"),
    (Server, "server error: modelStreamErrorException"),
    (Server, "server error: INTERNAL"),
    (BadRequest, "bad request: invalid_request_error"),
    (BadRequest, "bad request: BadRequestError"),
    (BadRequest, "bad request: INVALID_ARGUMENT"),
    (BadRequest, "bad request: FAILED_PRECONDITION"),
    (BadRequest, "bad request: OUT_OF_RANGE"),
    (BadRequest, "bad request: ValidationException"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_ends_in_its_word() {
        for (meaning, rule) in WORDS {
            let (_, w) = rule.rsplit_once(": ").expect(rule);
            assert_eq!(word(w).map(|s| s.meaning), Some(*meaning), "{rule}");
        }
    }

    #[test]
    fn the_more_telling_word_counts() {
        let of = |words: &[&str]| of_words(words.iter().copied()).map(|s| s.meaning);
        assert_eq!(of(&["invalid_request_error", "conversation_locked"]), Some(Locked));
        assert_eq!(of(&["rate_limit_error", "enforced_spend_limit_reached"]), Some(SpentQuota));
        assert_eq!(of(&["INVALID_ARGUMENT", "API_KEY_INVALID"]), Some(Auth));
        assert_eq!(of(&["429", "tokens"]), None);
    }

    #[test]
    fn phrases_count_with_their_statuses_only() {
        let of = |status, m| of_message(status, m).map(|s| s.meaning);
        assert_eq!(of(429, "Request too large for model on tokens per min"), Some(TooLarge));
        assert_eq!(of(500, "Request too large"), None);
        assert_eq!(of(429, "You exceeded your current quota"), None);
        assert_eq!(of(429, "Quota exceeded, limit: 0, model: x"), Some(SpentQuota));
        assert_eq!(of(429, "Quota exceeded, limit: 0.5"), None);
        assert_eq!(of(500, "prompt is too long"), None);
        assert_eq!(of(500, "Context size has been exceeded."), Some(TooLarge));
    }
}
