//! Calls with a key: those of the same key are one call, made once, and everybody reads its answer.
//!
//! The call is made by a task of its own that writes a [`Transcript`]; the client that came first is a reader like all
//! others. So nobody's leaving ends it for the others, and when all have left it goes on for `idempotency.linger`: the
//! client's own retry then finds the answer that was paid for. A good answer is given again for `idempotency.replay_for`,
//! where `idempotency.durable` is on also by the next process.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::account::Account;
use crate::admission::memory::Fingerprint;
use crate::attempts::Attempts;
use crate::call::Call;
use crate::clock::after;
use crate::instance::{Instance, Lasting};
use crate::metrics::StreamEnd;
use crate::opening::Opening;
use crate::policy::failure::TransportError;
use crate::relay::{OutBody, Trying, held, reject, relay, relay_early, relay_shared, within};
use crate::reply::{Fault, LocalReply, Outcome};
use crate::transcript::stored::Stored;
use crate::transcript::table::{Rules, Seat, Table};
use crate::transcript::{End, Head, Reader, Transcript, Writer};

/// An answer to a key that an SDK's retries have by themselves is given again for so long: no SDK waits longer between two.
const AUTO_REPLAY: Duration = Duration::from_secs(60);

/// A call's place among calls of the same key.
pub struct Place {
    seat: Seat,
    name: Fingerprint,
    /// The request's body, where the answer may outlive this process.
    lasts: Option<Fingerprint>,
    replay_for: Duration,
}

/// The place of a call; `None`: it is on its own.
pub fn place(instance: &Instance, call: &Call) -> Option<Place> {
    let settings = &instance.config.idempotency;
    if call.key.is_none() && !(settings.auto && call.counts_repeats && call.model_call) || call.upgrade {
        return None;
    }
    let body = call.body_print()?;
    let rules = Rules { join: settings.coalesce, replay: !settings.replay_for.is_zero(), lead: false };
    let (name, rules, replay_for) = match &call.key {
        Some(_) if !rules.join && !rules.replay => return None,
        Some(key) => (call.name(key.as_bytes()), rules, settings.replay_for),
        // Only a repeat joins. A first try is a call of its own, however much it is like another.
        None => (call.name_of(body), Rules { lead: !call.repeats, join: true, replay: true }, AUTO_REPLAY),
    };
    match instance.lasting.keyed.enter(name, body, rules) {
        Seat::Alone => None,
        // What is kept for a minute is not worth a disk.
        seat => Some(Place { seat, name, lasts: call.key.is_some().then_some(body), replay_for }),
    }
}

/// Answer a call that has a place.
pub async fn joined(
    place: Place,
    instance: Arc<Instance>,
    call: Arc<Call>,
    account: Account,
    interim: impl Fn(),
) -> Response<OutBody> {
    let Place { seat, name, lasts, replay_for } = place;
    let metrics = instance.lasting.metrics.clone();
    let upstream = &call.route.upstream.config.name;
    let (reader, as_what) = match seat {
        Seat::First(record, writer, reader) => {
            let kept = Kept { instance: instance.clone(), name, lasts, record: Arc::downgrade(&record) };
            let made = Arc::new(call.lingering(instance.config.idempotency.linger));
            tokio::spawn(make(kept, made, account.behind(), writer, replay_for));
            (reader, None)
        }
        Seat::Joins(reader) => {
            metrics.coalesced(upstream);
            (reader, Some(Outcome::Coalesced))
        }
        Seat::Again(reader) => {
            metrics.replayed(upstream);
            (reader, Some(Outcome::Replayed))
        }
        Seat::Taken | Seat::Alone => return reject(&reused(), call.route.dialect, account),
    };
    let head = Box::pin(head(&reader, &call));
    match held(head, &call, &instance, interim).await {
        Ok(head) => relay_shared(head, as_what, reader, account),
        Err(reply) => reject(&reply, call.route.dialect, account),
    }
}

/// The head of the answer. Each client's own deadline counts; the call goes on without it.
async fn head(reader: &Reader, call: &Call) -> Result<Head, LocalReply> {
    match timeout_at(call.deadline, reader.head()).await {
        Ok(Ok(head)) => Ok(head),
        Ok(Err(error)) => Err(LocalReply::new(
            Fault::UpstreamProtocolError,
            format!("{error}; its outcome upstream is unknown: check what exists there before sending it again"),
        )),
        Err(_) => Err(LocalReply::new(
            Fault::DeadlineExceeded,
            "the call with this idempotency key had no answer by the deadline of this request. It goes on for a while: a repeat with the same key joins it",
        )),
    }
}

/// The name in the table, given up on drop, however the call ends.
struct Kept {
    instance: Arc<Instance>,
    name: Fingerprint,
    lasts: Option<Fingerprint>,
    /// The table has it, within its bound; who waits for its end does not keep it longer.
    record: Weak<Transcript>,
}

impl Kept {
    fn table(&self) -> &Table {
        &self.instance.lasting.keyed
    }

    /// The answer is over. `true`: it is given again from now on.
    async fn finish(&self, replay_for: Duration) -> bool {
        let (lasting, max_bytes) = (&self.instance.lasting, self.instance.config.idempotency.max_bytes);
        let Some(record) = self.record.upgrade().filter(|record| self.table().finish(self.name, record, max_bytes))
        else {
            return false;
        };
        if let (Some(store), Some(body)) = (&lasting.store, self.lasts) {
            let now = lasting.clock.wall();
            if let Some(answer) = Stored::of(self.name, body, now + replay_for, &record).await {
                store.put(answer, now, max_bytes);
            }
        }
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.table().forget(self.name, &self.record);
    }
}

/// Make the call and write down its answer; keep it as long as it can be given again.
async fn make(kept: Kept, call: Arc<Call>, account: Account, writer: Writer, replay_for: Duration) {
    let settings = kept.instance.config.idempotency;
    tokio::select! {
        biased;
        (end, good) = write(&kept.instance, call, account, &writer) => writer.end(end, good),
        () = writer.left_alone(settings.linger) => {
            tracing::info!("a call with a key was ended: no client came back for it (idempotency.linger)");
            return;
        }
    }
    let given_again = kept.finish(replay_for).await;
    if given_again {
        sleep(replay_for).await;
    }
}

/// Take up the answers of an earlier process, each for as long as it had left.
pub async fn restore(lasting: Arc<Lasting>, answers: Vec<Stored>, max_bytes: usize) {
    let (now, wall) = (Instant::now(), lasting.clock.wall());
    let mut ends = Vec::new();
    for answer in answers {
        let (name, body) = (answer.name, answer.body);
        let end = after(now, answer.until.duration_since(wall).unwrap_or_default());
        if let Some(record) = answer.record().await {
            ends.push((end, name, Arc::downgrade(&record)));
            lasting.keyed.restore(name, body, record, max_bytes);
        }
    }
    ends.sort_unstable_by_key(|(end, ..)| *end);
    tokio::spawn(async move {
        for (end, name, record) in ends {
            sleep_until(end).await;
            lasting.keyed.forget(name, &record);
        }
    });
}

async fn write(instance: &Arc<Instance>, call: Arc<Call>, mut account: Account, writer: &Writer) -> (End, bool) {
    let closing = account.closing();
    let attempts: Trying = Box::pin(Attempts::new(instance.clone(), call.clone()).run());
    let (response, told) = match call.beat {
        None => known(attempts.await, account),
        Some(beat) => match within(beat, attempts).await {
            Ok(opening) => known(opening, account),
            Err(attempts) => (relay_early(attempts, beat, call.clone(), account), None),
        },
    };
    let (head, mut body) = response.into_parts();
    let stream = call.beat.is_some() || body.is_stream();
    let upstream = told.as_ref().map_or(&call.route.upstream.config.name, |(_, upstream)| upstream).clone();
    writer.head(Head {
        status: head.status,
        headers: head.headers,
        extensions: head.extensions,
        told: told.map(|(told, _)| told),
        upstream,
        stream,
    });
    let broken = copy(&mut body, writer).await.err();
    // Closes the account.
    drop(body);
    let closed = closing.get().copied();
    let end = closed.map_or(StreamEnd::Interrupted, |closed| closed.end);
    let success = closed.is_some_and(|closed| closed.outcome == Outcome::Success) && head.status.is_success();
    match broken {
        Some(error) => (End::Broken(error), false),
        None => (End::Whole(end), success && end == StreamEnd::Complete),
    }
}

async fn copy(body: &mut OutBody, writer: &Writer) -> Result<(), TransportError> {
    while let Some(frame) = body.frame().await.transpose()? {
        match frame.into_data() {
            Ok(bytes) => writer.piece(bytes).await,
            Err(frame) => frame.into_trailers().into_iter().for_each(|trailers| writer.trailers(trailers)),
        }
    }
    Ok(())
}

type Told = ((Outcome, u32), Arc<str>);

fn known(opening: Opening, account: Account) -> (Response<OutBody>, Option<Told>) {
    let told = ((opening.outcome, opening.attempts), opening.call.route.upstream.config.name.clone());
    (relay(opening, account), Some(told))
}

fn reused() -> LocalReply {
    let message = "this idempotency key was used for a request with another body. Use a new key for a new request";
    LocalReply::new(Fault::IdempotencyKeyReused, message)
}
