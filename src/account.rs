//! The account of one request: what metrics and the log say of it, told once, when it is over, however it ends.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::admission::Passage;
use crate::metrics::{InFlight, Metrics, NO_UPSTREAM, StreamEnd};
use crate::reply::Outcome;
use crate::wire::dialect::usage::Usage;

/// An open account. Closed when it is dropped: a request whose client leaves is dropped wherever it is.
pub struct Account {
    metrics: Arc<Metrics>,
    id: String,
    method: Method,
    /// Path, and the query with its values masked.
    path: String,
    upstream: Arc<str>,
    arrived: Instant,
    in_flight: Option<InFlight>,
    answered: Option<Answered>,
    stream: bool,
    end: Option<StreamEnd>,
    /// What a stream had told of its cost when it ended.
    spent: Option<(Option<Usage>, String)>,
    /// Leave to be at the upstream, given back when the answer is over.
    passage: Option<Passage>,
    /// It stands behind the accounts of those who read its answer: requests and log lines are theirs.
    behind: bool,
    closing: Option<Arc<OnceLock<Closing>>>,
}

/// How an account was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// How the request came to its answer.
    pub outcome: Outcome,
    /// How the answer ended.
    pub end: StreamEnd,
}

#[derive(Clone, Copy)]
struct Answered {
    status: u16,
    outcome: Outcome,
    attempts: u32,
    head_after: Duration,
}

impl Account {
    /// Open one for a request that has no upstream yet.
    pub fn open(metrics: Arc<Metrics>, id: String, method: Method, target: &str) -> Self {
        let path = masked(target);
        let upstream = NO_UPSTREAM.into();
        Account {
            metrics,
            id,
            method,
            path,
            upstream,
            arrived: Instant::now(),
            in_flight: None,
            answered: None,
            stream: false,
            end: None,
            spent: None,
            passage: None,
            behind: false,
            closing: None,
        }
    }

    /// It goes to this upstream.
    pub fn routed(&mut self, upstream: &Arc<str>) {
        self.upstream = upstream.clone();
        self.in_flight = Some(self.metrics.in_flight(upstream));
    }

    /// Another one for the call itself, whose answer this one's client reads, perhaps among others.
    pub fn behind(&self) -> Account {
        let mut behind = Account::open(self.metrics.clone(), self.id.clone(), self.method.clone(), "");
        (behind.upstream, behind.behind) = (self.upstream.clone(), true);
        behind
    }

    /// Where to read how it was closed, once it is.
    pub fn closing(&mut self) -> Arc<OnceLock<Closing>> {
        self.closing.get_or_insert_default().clone()
    }

    /// This upstream answers it: its own, or a fallback.
    pub fn served_by(&mut self, upstream: &Arc<str>, passage: Option<Passage>) {
        self.upstream = upstream.clone();
        self.passage = passage;
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The upstream's name, `none` if there is none.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// The head of its answer is on its way.
    pub fn answered(&mut self, status: u16, outcome: Outcome, attempts: u32) {
        // A head that was sent early learns its outcome later.
        let early = self.answered.map(|answered| answered.head_after);
        let head_after = early.unwrap_or_else(|| self.arrived.elapsed());
        self.answered = Some(Answered { status, outcome, attempts, head_after });
        if self.in_flight.is_some() && early.is_none() {
            self.metrics.first_byte(&self.upstream, head_after);
        }
    }

    /// The answer is a stream: how it ends is counted.
    pub fn streams(&mut self) {
        self.stream = true;
    }

    /// A stream told this of its cost.
    pub fn spent(&mut self, usage: Option<Usage>, model: Option<&str>) {
        self.spent = Some((usage, model.unwrap_or_default().to_owned()));
    }

    /// The answer ended so. The first word counts.
    pub fn ended(&mut self, end: StreamEnd) {
        self.end.get_or_insert(end);
    }
}

impl Account {
    fn count_tokens(&mut self) {
        match &self.spent {
            Some((Some(usage), model)) => {
                self.metrics.tokens(&self.upstream, model, usage.input, usage.output, usage.cached);
                if let Some(passage) = &mut self.passage {
                    passage.settle(usage.total());
                }
            }
            Some((None, _)) => self.metrics.usage_unknown(&self.upstream),
            None => {}
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let gone = Answered { status: 499, outcome: Outcome::ClientGone, attempts: 0, head_after: Duration::ZERO };
        let answered = self.answered.unwrap_or(gone);
        let end = self.end.unwrap_or(StreamEnd::ClientGone);
        if let Some(closing) = &self.closing {
            let _ = closing.set(Closing { outcome: answered.outcome, end });
        }
        self.count_tokens();
        if self.behind {
            return;
        }
        let took = self.arrived.elapsed();
        self.metrics.request(&self.upstream, answered.outcome.name(), answered.status);
        if self.in_flight.is_some() {
            self.metrics.duration(&self.upstream, took);
        }
        if self.stream {
            self.metrics.stream(&self.upstream, end);
        }
        tracing::info!(
            request = self.id,
            method = self.method.as_str(),
            path = self.path,
            upstream = &*self.upstream,
            status = answered.status,
            outcome = answered.outcome.name(),
            attempts = answered.attempts,
            head_ms = millis(answered.head_after),
            total_ms = millis(took),
            end = end.name(),
            "call"
        );
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The target with the values of its query hidden: keys travel there. A name that is no plain word is hidden too.
pub fn masked(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_word(name) => format!("{name}=***"),
        None if pair.is_empty() => String::new(),
        _ => "***".to_owned(),
    });
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

fn is_word(name: &str) -> bool {
    name.len() <= 32 && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'$'))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn values_of_a_query_are_hidden() {
        assert_eq!(masked("/v1/x?key=SECRET&alt=sse"), "/v1/x?key=***&alt=***");
        assert_eq!(masked("/v1/x?SECRET"), "/v1/x?***");
        assert_eq!(masked("/v1/x?%6bey=SECRET&"), "/v1/x?***&");
        assert_eq!(masked("/v1/x"), "/v1/x");
    }
}
