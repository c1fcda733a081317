//! What an HTTP status says by itself, where nothing in the answer says more.

use super::verdict::{Class, Reason};

/// What a status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRule {
    /// Which bucket.
    pub class: Class,
    /// Why.
    pub reason: Reason,
    /// The rule for people.
    pub rule: &'static str,
    /// The status is one that we know; otherwise the default of its range.
    pub known: bool,
}

/// The rule for an error status, 400 and above.
pub fn of(status: u16) -> StatusRule {
    let row = TABLE.iter().find(|(s, ..)| *s == status);
    if let Some(&(_, class, reason, rule)) = row {
        return StatusRule { class, reason, rule, known: true };
    }
    let (class, reason, rule) = match status {
        ..500 => (Class::Terminal, Reason::Other, "another 4xx"),
        _ => (Class::Transient, Reason::ServerError, "another 5xx"),
    };
    StatusRule { class, reason, rule, known: false }
}

/// Whether the upstream may have carried the request out although it answered with this status. `shaped`: the body is the
/// provider's own error, and so the provider's word that it did nothing, where the status alone may be a gateway's.
pub fn ambiguous(status: u16, shaped: bool) -> bool {
    match status {
        ..500 => false,
        // The edge could not reach the origin at all: refused, unreachable, no TLS with it, no such name.
        521 | 523 | 525 | 526 | 530 => false,
        503 | 529 => !shaped,
        _ => true,
    }
}

use Class::{Terminal, Transient};

const TABLE: &[(u16, Class, Reason, &str)] = &[
    (400, Terminal, Reason::BadRequest, "status 400"),
    (401, Terminal, Reason::Auth, "status 401"),
    (402, Terminal, Reason::QuotaExhausted, "status 402"),
    (403, Terminal, Reason::Auth, "status 403"),
    (404, Terminal, Reason::NotFound, "status 404"),
    (405, Terminal, Reason::BadRequest, "status 405"),
    (406, Terminal, Reason::BadRequest, "status 406"),
    (407, Terminal, Reason::Auth, "status 407"),
    (408, Transient, Reason::Timeout, "status 408"),
    // A lock that another request holds; every SDK repeats it.
    (409, Transient, Reason::Other, "status 409"),
    (410, Terminal, Reason::NotFound, "status 410"),
    (411, Terminal, Reason::BadRequest, "status 411"),
    (412, Terminal, Reason::BadRequest, "status 412"),
    (413, Terminal, Reason::TooLarge, "status 413"),
    (414, Terminal, Reason::TooLarge, "status 414"),
    (415, Terminal, Reason::BadRequest, "status 415"),
    (416, Terminal, Reason::BadRequest, "status 416"),
    (417, Terminal, Reason::BadRequest, "status 417"),
    (421, Terminal, Reason::BadRequest, "status 421"),
    (422, Terminal, Reason::BadRequest, "status 422"),
    // "Too Early": made to be sent again.
    (425, Transient, Reason::Other, "status 425"),
    (428, Terminal, Reason::BadRequest, "status 428"),
    (429, Transient, Reason::RateLimited, "status 429"),
    (431, Terminal, Reason::TooLarge, "status 431"),
    (451, Terminal, Reason::Auth, "status 451"),
    // A queue for cheap capacity that is full at the moment.
    (498, Transient, Reason::Overloaded, "status 498"),
    (500, Transient, Reason::ServerError, "status 500"),
    (501, Terminal, Reason::ServerError, "status 501"),
    (502, Transient, Reason::ServerError, "status 502"),
    (503, Transient, Reason::Overloaded, "status 503"),
    (504, Transient, Reason::Timeout, "status 504"),
    (505, Terminal, Reason::ServerError, "status 505"),
    (506, Terminal, Reason::ServerError, "status 506"),
    (507, Terminal, Reason::ServerError, "status 507"),
    (508, Terminal, Reason::ServerError, "status 508"),
    (510, Terminal, Reason::ServerError, "status 510"),
    (511, Terminal, Reason::ServerError, "status 511"),
    (520, Transient, Reason::ServerError, "status 520"),
    (521, Transient, Reason::ServerError, "status 521"),
    (522, Transient, Reason::ServerError, "status 522"),
    (523, Transient, Reason::ServerError, "status 523"),
    (524, Transient, Reason::Timeout, "status 524"),
    (525, Transient, Reason::ServerError, "status 525"),
    (526, Transient, Reason::ServerError, "status 526"),
    (529, Transient, Reason::Overloaded, "status 529"),
    (530, Transient, Reason::ServerError, "status 530"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_4xx_are_tried_again() {
        let transient: Vec<u16> = (400..500).filter(|&s| of(s).class == Transient).collect();
        assert_eq!(transient, [408, 409, 425, 429, 498]);
    }

    #[test]
    fn only_these_5xx_are_not() {
        let terminal: Vec<u16> = (500..=999).filter(|&s| of(s).class == Terminal).collect();
        assert_eq!(terminal, [501, 505, 506, 507, 508, 510, 511]);
    }

    #[test]
    fn the_table_is_in_order_and_its_rules_name_their_status() {
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
        for (status, .., rule) in TABLE {
            assert_eq!(*rule, format!("status {status}"));
        }
    }

    #[test]
    fn who_may_have_acted() {
        let with = |shaped| {
            (400..600)
                .filter(|&s| ambiguous(s, shaped) && of(s).known && of(s).class == Transient)
                .collect::<Vec<u16>>()
        };
        assert_eq!(with(true), [500, 502, 504, 520, 522, 524]);
        assert_eq!(with(false), [500, 502, 503, 504, 520, 522, 524, 529]);
    }
}
