//! The integration tests: one binary, a module a promise.

/// What calls share: a provider's wait, learned and fixed limits, a fair line.
mod admission;
/// A request that was sent and whose answer was lost: what creates something is not sent twice.
mod ambiguous;
/// An upstream that fails all the time is left alone for a while.
mod breaker;
/// The global token bucket: retries of all clients together never come faster than it allows.
mod bucket;
/// A client that leaves ends whatever is under way for it, at once.
mod cancel;
/// Failures as people reported them (`tests/fixtures/cases.jsonl`), each under its id.
mod cases;
/// Evidence → verdict, on error answers as providers send them (`tests/fixtures/provider_errors.jsonl`) and on odd ones.
mod classify;
/// The command line, as a person runs it.
mod cli;
/// Upstream connections: kept, given up in time, and never a client's error when one has gone stale.
mod connections;
/// A call ends in time: by the config's deadline, the client's word, or before the client's own timer fires.
mod deadlines;
/// Stopping: what is in flight ends, what waits longer than that settles at once.
mod drain;
/// Other upstreams take over what one cannot answer.
mod fallbacks;
/// What goes through goes through unchanged, both ways.
mod fidelity;
/// Requests that two parsers could read in two ways are turned away, with all that follows them.
mod framing;
/// Who may call, and what of a client's own never goes upstream.
mod gate;
/// Two hundred agents behind one limit, with an outage in the middle: the aims of the bench `herd`.
mod herd;
/// Herds of agents as people reported them (`tests/fixtures/cases.jsonl`), each under its id.
mod herd_cases;
/// Many agents behind one learned rate in virtual time: what is lost, wasted and waited for, by seeds.
mod herd_simulation;
/// How long a provider asks us to wait, from each place where it may say so.
mod hints;
/// Calls of one key are one call.
mod idempotency;
/// Their answers survive a restart, whole or not at all.
mod idempotency_durable;
/// 102 Processing while a call is held, for clients that take it.
mod interim;
/// What is stored survives a kill at any moment, whole or not at all.
mod killed;
/// Which file may use which, and what the pure layers may not touch.
mod layering;
/// Sizes and times beyond which a client is told so and let go.
mod limits;
/// What is counted, under which names and labels.
mod metrics;
/// Limits that several Backstops share through a real Redis, and what happens when it is slow, gone or empty.
mod redis;
/// A new config without a restart: all of it or nothing.
mod reload;
/// A client that repeats a call which was just given up on gets one attempt.
mod repeats;
/// What is tried again, how often, and what the client gets in the end.
mod retries;
/// Which requests may be repeated after their answer was lost.
mod safety;
/// Keys and prompts are in no log line, no metric, and no error of ours.
mod secrets;
/// Seeded runs of the retry policy against a model upstream in virtual time.
mod simulation;
/// Heartbeats, and streams that are read whole before the client gets any of them.
mod stream_beats;
/// Whole calls with streams: what fails before its first content is tried again, and what comes goes through as it came.
mod stream_calls;
/// Failures of streams as people reported them (`tests/fixtures/cases.jsonl`), each under its id.
mod stream_cases;
/// Streams after their first content: every end is told as what it was, and costs are counted.
mod stream_ends;
/// Streams as providers send them, whole, cut and with errors in them, through the watch and the verdict.
mod streams;
/// The upstream, the client and the Backstop between them that the tests of whole calls share.
mod support;
/// What only a kernel gives: refused and reset connections, TLS, proxies, real sizes.
mod tcp;
/// Waits in exact virtual time: never earlier than the provider said, never spread further than they should be.
mod waits;
