//! A call that is still being tried, behind a `200` that was sent already: heartbeats until there is a stream, or an error
//! event. Sending the head early gives up the status; it is done only where `stream.heartbeat` asks for it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Instant, Sleep, sleep};

use super::body::OutBody;
use super::from_upstream;
use crate::account::Account;
use crate::answer::Answer;
use crate::call::Call;
use crate::clock::after;
use crate::config::Interim;
use crate::instance::Instance;
use crate::metrics::StreamEnd;
use crate::opening::{Opening, Reply};
use crate::reply::Outcome;
use crate::wire::dialect::stream::Watch;
use crate::wire::encoding;
use crate::wire::headers::Media;

/// A call's attempts under way.
pub type Trying = Pin<Box<dyn Future<Output = Opening> + Send>>;

/// 102 Processing is sent this often while a call is held: Node's header timer gives up after 300 s of silence.
const INTERIM_EVERY: Duration = Duration::from_secs(15);

/// What the attempts come to, or the attempts themselves if that takes longer than `beat`.
pub async fn within(beat: Duration, mut attempts: Trying) -> Result<Opening, Trying> {
    let opening = tokio::select! {
        biased;
        opening = &mut attempts => Some(opening),
        () = sleep(beat) => None,
    };
    opening.ok_or(attempts)
}

/// Wait for something; tell the client's timers meanwhile that somebody is there. `interim` sends 102 Processing.
pub async fn held<T>(
    mut work: impl Future<Output = T> + Unpin,
    call: &Call,
    instance: &Instance,
    interim: impl Fn(),
) -> T {
    let told = match instance.config.server.interim {
        Interim::Known => call.takes_interim,
        Interim::Always => call.http11,
        Interim::Never => false,
    };
    if !told {
        return work.await;
    }
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(INTERIM_EVERY) => interim(),
        }
    }
}

/// The wait.
pub(super) struct Waiting {
    attempts: Trying,
    beat: Duration,
    timer: Pin<Box<Sleep>>,
    /// Tells an error as the client's dialect does.
    teller: Watch,
}

impl Waiting {
    pub(super) fn new(attempts: Trying, beat: Duration, call: &Call) -> Self {
        let teller = Watch::new(call.route.dialect, call.route.target.as_str(), Media::Stream);
        // The first beat goes out with the head: it is what the silence was too long for.
        Waiting { attempts, beat, timer: Box::pin(sleep(Duration::ZERO)), teller }
    }

    /// `Ok`: a heartbeat. `Err`: the attempts are over, and this is the body from now on.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, account: Option<&mut Account>) -> Poll<Result<Bytes, OutBody>> {
        if let Poll::Ready(mut opening) = self.attempts.as_mut().poll(cx) {
            if let Some(account) = account {
                account.served_by(&opening.call.route.upstream.config.name, opening.passage.take());
                account.answered(StatusCode::OK.as_u16(), opening.outcome, opening.attempts);
                account.streams();
                if !matches!(&opening.reply, Reply::Upstream(answer) if goes_on_as_stream(answer)) {
                    account.ended(StreamEnd::ErrorEvent);
                }
            }
            return Poll::Ready(Err(self.body(opening)));
        }
        ready!(self.timer.as_mut().poll(cx));
        self.timer.as_mut().reset(after(Instant::now(), self.beat));
        // The waker of the new timer has to be set.
        let _ = self.timer.as_mut().poll(cx);
        Poll::Ready(Ok(Bytes::from_static(b"\n")))
    }

    /// A stream goes on as one; anything else can only be told as an error event now.
    fn body(&self, opening: Opening) -> OutBody {
        let teller = &self.teller;
        let event = match opening.reply {
            Reply::Upstream(answer) if goes_on_as_stream(&answer) => {
                return from_upstream(*answer, opening.outcome, opening.verdict.as_ref(), &opening.call).into_body();
            }
            Reply::Upstream(answer) if opening.outcome == Outcome::Success => {
                tracing::warn!(
                    status = answer.status.as_u16(),
                    "a stream was asked for and none that can follow heartbeats came"
                );
                teller.error_event(
                    "stream_interrupted",
                    "a stream was asked for, and the upstream answered with a plain or an encoded body, which cannot follow heartbeats",
                )
            }
            Reply::Upstream(answer) => {
                let raw = answer.bytes();
                let (plain, _) = answer.plain(&raw);
                teller.from_error_body(answer.status.as_u16(), plain.as_deref().unwrap_or_default())
            }
            Reply::Local(local) => teller.error_event(local.fault.name(), &local.message),
        };
        OutBody::held(vec![event.into()], None)
    }
}

/// It can follow a head that says `text/event-stream` and nothing of an encoding.
fn goes_on_as_stream(answer: &Answer) -> bool {
    answer.is_stream() && !encoding::encoded(&answer.headers)
}
