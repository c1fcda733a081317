//! Backstop: a resilient client proxy for model APIs.
//!
//! # The life of a call
//!
//! A **call** is one client request; an **attempt** is one try of it at an **upstream**. Read [`proxy::proxy`] beside this
//! page: it is the same, as code.
//!
//! 1. **In.** [`server`] accepts a connection. Under hyper lies a thin layer at the socket that refuses framing which two
//!    parsers could read in two ways, and that can send `102 Processing`. The gate checks Host, Origin and client key; our
//!    own pages ([`admin`]) are answered there.
//! 2. **Where.** [`route`] finds the upstream, the dialect that the client speaks, and the target as the upstream sees it.
//! 3. **What.** [`call`] reads the request as far as it must be read: headers that go on, a body kept for repeating (or,
//!    if it is too large, passed on once as it comes), the deadline (the client's own patience counts), the tries allowed.
//!    Calls of one idempotency key are one call, made by a task of its own whose [`transcript`] they all read ([`join`]).
//! 4. **Tries.** [`attempts`] is the loop: be let through the gate ([`admission`]: one for each upstream and credential, which
//!    knows the provider's waits, the learned pace, the fixed limits and the circuit, and lets callers through in a fair
//!    line), send ([`upstream`]), read the [`answer`] as far as it must be seen, judge it
//!    ([`policy::classify`], pure: evidence in, [`policy::verdict::Verdict`] out), count it, tell the gate
//!    ([`policy::lesson`]), decide ([`policy::retry`], pure as well): settle, or wait and try again. A wait is the provider's
//!    own word or a jittered backoff, and then a token of the global bucket ([`admission::bucket`]). What one upstream cannot
//!    answer goes over to its fallbacks.
//! 5. **The commit point** is where the loop ends: an [`opening::Opening`]. Before it everything can be retried and the
//!    client has seen nothing; after it nothing is. A plain answer is whole by then; a stream is held back until its first
//!    content (in shield mode to its end), watched by [`wire::dialect::stream::Watch`].
//! 6. **Out.** [`relay`] passes the upstream's own bytes on as they come, ends a lost stream in its dialect's own error
//!    event, or sends one [`reply::LocalReply`] in the client's dialect. There is
//!    no third kind of answer: we recognise formats, we never convert them. A switched protocol becomes a [`tunnel`].
//! 7. **The books.** The [`account`] of the request is closed when it is dropped, wherever that is: one line of log, and
//!    the [`metrics`]. A client that leaves drops the whole future, and with it attempt, backoff and place in line.
//!
//! # Layers
//!
//! A file imports only files of lower rank, or of its own folder. `tests/layering.rs` holds this table.
//!
//! | rank | modules | hold |
//! | --- | --- | --- |
//! | 10 | `main`, [`cli`] | arguments, exit codes, one small file a subcommand |
//! | 9 | [`server`] | listener, gate, drain, reload |
//! | 8 | [`proxy`], [`join`], [`admin`] | the main path and nothing else; calls of one key; our own pages |
//! | 7 | [`attempts`], [`relay`], [`tunnel`] | the retry loop; the answer to the client; switched protocols |
//! | 6 | [`call`], [`instance`], [`opening`] | a request ready to be sent; what calls share under one config; what a call comes to |
//! | 5 | [`route`], [`answer`], [`account`], [`transcript`] | which upstream; an upstream's answer; what is told of a request; the record of an answer that several read, and its store |
//! | 4 | [`upstream`], [`admission`], [`metrics`], [`reply`] | hyper and rustls behind one `Dial` seam; shared limits; the registry; our own answers |
//! | 3 | [`config`] | private reader → validated `Config`; every fault names file, line and key |
//! | 2 | [`policy`], [`clock`], [`drain`] | decisions, pure: clock and dice are arguments; the only reader of clock and dice |
//! | 1 | [`wire`] | bytes in, facts out, pure; `wire::dialect` is the only place with a provider's name |
//!
//! # Rules that hold
//!
//! - Classify once, in one pure function; retry, metrics, logs and headers read its result.
//! - No wait without a limit, no buffer without a bound, no map without a size. The owner's doc names the bound.
//! - Learning happens at the gate, from the one verdict on an attempt, nowhere else. Logs and metrics read; they never act.
//! - Being dropped is normal. Tasks are spawned in six places only: a connection accepted ([`server`]), a connection
//!   opened (`upstream::pool`), a tunnel ([`tunnel`]), a gate before which somebody waits (`admission::drive`), the
//!   connection to Redis ([`admission::redis`]), a call with a key, which outlives its client, and the ends of answers that
//!   an earlier process stored (both [`join`]). One thread is ours: it writes that store ([`transcript::store`]).
//! - Never two live attempts of one call: the old connection is closed before the next try.
//! - Secrets are a type whose `Debug` hides them; query strings are logged with their values masked; bodies never are.
//! - The one silent retry is ours, and it is counted: a connection that was closed just as it was used again.

pub mod account;
pub mod admin;
pub mod admission;
pub mod answer;
pub mod attempts;
pub mod call;
pub mod cli;
pub mod clock;
pub mod config;
pub mod drain;
pub mod instance;
pub mod join;
pub mod metrics;
pub mod opening;
pub mod policy;
pub mod proxy;
pub mod relay;
pub mod reply;
pub mod route;
pub mod server;
pub mod transcript;
pub mod tunnel;
pub mod upstream;
pub mod wire;
