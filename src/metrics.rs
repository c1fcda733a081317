//! One registry, and typed methods over it. Names and labels are the contract's; no label holds free text from a client.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::admission::gate::Look;
use crate::policy::verdict::{Reason, Verdict};

/// The `upstream` label of a request that was turned away before it had one.
pub const NO_UPSTREAM: &str = "none";
/// Values of the `model` label at most; further models are counted as `other`.
const MAX_MODELS: usize = 199;
/// No one answer costs more: a larger count is a fault, and would carry a counter over its end.
const MOST_TOKENS: u64 = 1 << 27;
/// The `model` label of what has no place of its own.
const OTHER: &str = "other";

/// Seconds, from what a proxy adds to what a model thinks.
const SECONDS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Every metric of the process.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    attempts: IntCounterVec,
    retries: IntCounterVec,
    retry_delay: HistogramVec,
    bucket_tokens: Gauge,
    bucket_waits: IntCounter,
    duration: HistogramVec,
    first_byte: HistogramVec,
    queue_depth: IntGaugeVec,
    queue_wait: HistogramVec,
    admission_rate: GaugeVec,
    cooldown: GaugeVec,
    circuit_open: IntGaugeVec,
    in_flight: IntGaugeVec,
    streams: IntCounterVec,
    tokens: IntCounterVec,
    usage_unknown: IntCounterVec,
    retry_tokens: IntCounterVec,
    coalesced: IntCounterVec,
    replayed: IntCounterVec,
    possibly_billed: IntCounterVec,
    unclassified: IntCounterVec,
    reloads: IntCounterVec,
    redis_up: IntGaugeVec,
    models: Mutex<HashSet<String>>,
}

/// How a streamed answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// With whole framing.
    Complete,
    /// Cut by the upstream.
    Interrupted,
    /// No byte for `timeouts.stream_idle`.
    Stalled,
    /// In an error event of the upstream's.
    ErrorEvent,
    /// The client left.
    ClientGone,
}

impl StreamEnd {
    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            StreamEnd::Complete => "complete",
            StreamEnd::Interrupted => "interrupted",
            StreamEnd::Stalled => "stalled",
            StreamEnd::ErrorEvent => "error_event",
            StreamEnd::ClientGone => "client_gone",
        }
    }
}

/// Makes metrics and registers them.
struct Maker(Registry);

impl Maker {
    fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> prometheus::Result<C> {
        let metric = made?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str) -> prometheus::Result<GaugeVec> {
        self.add(GaugeVec::new(Opts::new(name, help), &["upstream"]))
    }

    fn levels(&self, name: &str, help: &str) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), &["upstream"]))
    }

    fn seconds(&self, name: &str, help: &str) -> prometheus::Result<HistogramVec> {
        let opts = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        self.add(HistogramVec::new(opts, &["upstream"]))
    }
}

impl Metrics {
    /// A registry of its own: several instances can live in one process.
    ///
    /// # Errors
    /// If two metrics had one name, which a test would have shown.
    pub fn new() -> prometheus::Result<Self> {
        let make = Maker(Registry::new());
        let per = &["upstream"];
        let metrics = Metrics {
            requests: make.counters("backstop_requests_total", "Client requests by outcome and the status that the client got (499: it left before an answer).", &["upstream", "outcome", "status"])?,
            attempts: make.counters("backstop_attempts_total", "Tries at an upstream by verdict.", &["upstream", "class", "reason"])?,
            retries: make.counters("backstop_retries_total", "Tries after the first, by the reason for them.", &["upstream", "reason"])?,
            retry_delay: make.seconds("backstop_retry_delay_seconds", "Wait before a retry, the token bucket's included.")?,
            bucket_tokens: make.add(Gauge::new("backstop_retry_bucket_tokens", "Tokens in the global retry bucket."))?,
            bucket_waits: make.add(IntCounter::new("backstop_retry_bucket_waits_total", "Retries that had to wait for a token."))?,
            duration: make.seconds("backstop_request_duration_seconds", "From the request's arrival to the end of its answer.")?,
            first_byte: make.seconds("backstop_first_byte_seconds", "From the request's arrival to the head of its answer.")?,
            queue_depth: make.levels("backstop_queue_depth", "Requests that wait for admission.")?,
            queue_wait: make.seconds("backstop_queue_wait_seconds", "Wait for admission.")?,
            admission_rate: make.gauges("backstop_admission_rate", "Learned rate, requests a second; 0: none learned.")?,
            cooldown: make.gauges("backstop_cooldown_seconds", "Seconds left of the upstream's cooldown.")?,
            circuit_open: make.levels("backstop_circuit_open", "1 while the circuit breaker is open.")?,
            in_flight: make.levels("backstop_in_flight", "Requests being served.")?,
            streams: make.counters("backstop_streams_total", "Streamed answers by how they ended.", &["upstream", "result"])?,
            tokens: make.counters("backstop_tokens_total", "Tokens of answers that reached the client, as the provider counts them.", &["upstream", "model", "kind"])?,
            usage_unknown: make.counters("backstop_usage_unknown_total", "Good model answers without a usage that could be read.", per)?,
            retry_tokens: make.counters("backstop_retry_tokens_total", "Tokens spent on attempts that were thrown away.", per)?,
            coalesced: make.counters("backstop_coalesced_total", "Requests that joined a call in flight.", per)?,
            replayed: make.counters("backstop_replayed_total", "Requests answered from a finished call.", per)?,
            possibly_billed: make.counters("backstop_possibly_billed_total", "Attempts whose answer was lost, or whose client left, after the request was sent.", per)?,
            unclassified: make.counters("backstop_unclassified_total", "Answers with a status that no rule knows (recovered=no), and how often the same request later went through (recovered=yes).", &["upstream", "status", "recovered"])?,
            reloads: make.counters("backstop_config_reloads_total", "Config reloads by result.", &["result"])?,
            redis_up: make.add(IntGaugeVec::new(Opts::new("backstop_redis_up", "1 while limits are shared through Redis, 0 while each Backstop has its own."), &[]))?,
            models: Mutex::default(),
            registry: make.0.clone(),
        };
        let build = make.levels_with("backstop_build_info", "1, with the version.", "version")?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        make.0.register(Box::new(ProcessCollector::for_self()))?;
        Ok(metrics)
    }

    /// Show an upstream's metrics from the start, at zero: a rate over a counter that appears with its first event misses it.
    pub fn declare(&self, upstream: &str) {
        let per = &[upstream];
        for counter in [&self.usage_unknown, &self.retry_tokens, &self.coalesced, &self.replayed, &self.possibly_billed]
        {
            counter.with_label_values(per);
        }
        for gauge in [&self.queue_depth, &self.circuit_open, &self.in_flight] {
            gauge.with_label_values(per);
        }
        for gauge in [&self.admission_rate, &self.cooldown] {
            gauge.with_label_values(per);
        }
        for histogram in [&self.retry_delay, &self.duration, &self.first_byte, &self.queue_wait] {
            histogram.with_label_values(per);
        }
        for result in ["success", "failure"] {
            self.reloads.with_label_values(&[result]);
        }
    }

    /// A request was answered.
    pub fn request(&self, upstream: &str, outcome: &str, status: u16) {
        let mut digits = [0; 3];
        self.requests.with_label_values(&[upstream, outcome, three_digits(status, &mut digits)]).inc();
    }

    /// An attempt was judged.
    pub fn attempt(&self, upstream: &str, verdict: &Verdict) {
        self.attempts.with_label_values(&[upstream, verdict.class.name(), verdict.reason.name()]).inc();
        if verdict.ambiguous {
            self.possibly_billed(upstream);
        }
    }

    /// An attempt may have been carried out, and nobody has its answer.
    pub fn possibly_billed(&self, upstream: &str) {
        self.possibly_billed.with_label_values(&[upstream]).inc();
    }

    /// A retry is sent, after `waited`.
    pub fn retry(&self, upstream: &str, reason: Reason, waited: Duration) {
        self.retries.with_label_values(&[upstream, reason.name()]).inc();
        self.retry_delay.with_label_values(&[upstream]).observe(waited.as_secs_f64());
    }

    /// A retry had to wait for a token.
    pub fn bucket_wait(&self) {
        self.bucket_waits.inc();
    }

    /// A request joined a call in flight.
    pub fn coalesced(&self, upstream: &str) {
        self.coalesced.with_label_values(&[upstream]).inc();
    }

    /// A request was given an answer again.
    pub fn replayed(&self, upstream: &str) {
        self.replayed.with_label_values(&[upstream]).inc();
    }

    /// A request had to wait for its turn.
    pub fn queue_wait(&self, upstream: &str, waited: Duration) {
        self.queue_wait.with_label_values(&[upstream]).observe(waited.as_secs_f64());
    }

    /// How the gates before an upstream look now.
    pub fn gates(&self, upstream: &str, look: &Look) {
        let per = &[upstream];
        self.queue_depth.with_label_values(per).set(i64::try_from(look.waiting).unwrap_or(i64::MAX));
        self.admission_rate.with_label_values(per).set(look.rate.unwrap_or(0.0));
        self.cooldown.with_label_values(per).set(look.cooldown.as_secs_f64());
        self.circuit_open.with_label_values(per).set(i64::from(look.open));
    }

    /// The head of the answer is on its way, so long after the request came.
    pub fn first_byte(&self, upstream: &str, after: Duration) {
        self.first_byte.with_label_values(&[upstream]).observe(after.as_secs_f64());
    }

    /// The answer ended, so long after the request came.
    pub fn duration(&self, upstream: &str, after: Duration) {
        self.duration.with_label_values(&[upstream]).observe(after.as_secs_f64());
    }

    /// A request is being served from now on, until the guard is dropped.
    pub fn in_flight(&self, upstream: &str) -> InFlight {
        let gauge = self.in_flight.with_label_values(&[upstream]);
        gauge.inc();
        InFlight(gauge)
    }

    /// A stream ended.
    pub fn stream(&self, upstream: &str, end: StreamEnd) {
        self.streams.with_label_values(&[upstream, end.name()]).inc();
    }

    /// Tokens of an answer.
    pub fn tokens(&self, upstream: &str, model: &str, input: u64, output: u64, cached: u64) {
        let model = self.bounded(model);
        for (kind, count) in [("input", input), ("output", output), ("cached", cached)] {
            self.tokens.with_label_values(&[upstream, &model, kind]).inc_by(count.min(MOST_TOKENS));
        }
    }

    /// A good model answer whose usage could not be read.
    pub fn usage_unknown(&self, upstream: &str) {
        self.usage_unknown.with_label_values(&[upstream]).inc();
    }

    /// Tokens of an attempt that was thrown away.
    pub fn retry_tokens(&self, upstream: &str, count: u64) {
        self.retry_tokens.with_label_values(&[upstream]).inc_by(count.min(MOST_TOKENS));
    }

    /// An answer with a status that no rule knows; or one such status that the same request later got past.
    pub fn unclassified(&self, upstream: &str, status: u16, recovered: bool) {
        let recovered = if recovered { "yes" } else { "no" };
        self.unclassified.with_label_values(&[upstream, &status.to_string(), recovered]).inc();
    }

    /// A reload was tried.
    pub fn reload(&self, well: bool) {
        self.reloads.with_label_values(&[if well { "success" } else { "failure" }]).inc();
    }

    /// Whether Redis can be used. Never told where none is configured: then there is no such metric.
    pub fn redis(&self, up: bool) {
        self.redis_up.with_label_values::<&str>(&[]).set(i64::from(up));
    }

    /// The page. `bucket_level`: tokens in the retry bucket now.
    pub fn render(&self, bucket_level: f64) -> Vec<u8> {
        self.bucket_tokens.set(bucket_level);
        let mut page = Vec::with_capacity(16 * 1024);
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut page) {
            tracing::error!(%error, "metrics could not be written");
        }
        page
    }

    /// The model's name as a label: itself while there is room, then `other`.
    fn bounded(&self, model: &str) -> String {
        const LONGEST: usize = 128;
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if models.contains(model) {
            return model.to_owned();
        }
        // What an upstream sends is no more to be trusted than a client: a label goes to people's terminals.
        let plain = model.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        if model.is_empty() || model.len() > LONGEST || !plain || models.len() >= MAX_MODELS {
            return OTHER.to_owned();
        }
        models.insert(model.to_owned());
        model.to_owned()
    }
}

impl Maker {
    fn levels_with(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), &[label]))
    }
}

/// Counts a request as in flight until it is dropped.
pub struct InFlight(prometheus::IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A status as label text, without allocating.
fn three_digits(status: u16, digits: &mut [u8; 3]) -> &str {
    let status = status.min(999);
    *digits = [100, 10, 1].map(|unit| b'0' + (status / unit % 10) as u8);
    std::str::from_utf8(digits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_label_is_bounded() {
        let metrics = Metrics::new().unwrap();
        for n in 0..1000 {
            metrics.tokens("u", &format!("model-{n}"), 1, 1, 0);
        }
        let page = String::from_utf8(metrics.render(0.0)).unwrap();
        let models =
            page.lines().filter(|line| line.starts_with("backstop_tokens_total") && line.contains("\"input\""));
        assert_eq!(models.count(), MAX_MODELS + 1);
        assert!(page.contains("model=\"other\""));
    }

    #[test]
    fn what_an_upstream_says_of_itself_is_not_trusted() {
        let metrics = Metrics::new().unwrap();
        metrics.tokens("u", "\u{1b}[31m\0", 7, u64::MAX, 0);
        metrics.tokens("u", "m", u64::MAX, 1, 0);
        metrics.tokens("u", "m", u64::MAX, 1, 0);
        let page = String::from_utf8(metrics.render(0.0)).unwrap();
        assert!(!page.contains('\u{1b}') && !page.contains('\0'), "{page}");
        let most = format!("backstop_tokens_total{{kind=\"input\",model=\"m\",upstream=\"u\"}} {}", 2 * MOST_TOKENS);
        assert!(page.contains(&most), "{page}");
    }

    #[test]
    fn statuses_are_three_digits() {
        let mut digits = [0; 3];
        assert_eq!(three_digits(204, &mut digits), "204");
        assert_eq!(three_digits(65535, &mut digits), "999");
    }
}
