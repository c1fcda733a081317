//! The record of one answer: written once, read by any number of clients, each from its start and at its own speed.
//!
//! Bound: [`KEPT`] bytes of a body are kept. A longer one is passed on all the same, but nobody can join it any more, and its
//! writer waits for the slowest reader, `AHEAD` bytes ahead at most.

mod on_wire;
pub mod store;
pub mod stored;
pub mod table;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, StatusCode};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::metrics::StreamEnd;
use crate::policy::failure::{Kind, Phase, TransportError};
use crate::reply::Outcome;

/// Bytes of one body that are kept.
pub const KEPT: usize = 16 * 1024 * 1024;
/// How far a writer goes ahead of its slowest reader in a body that is too long to be kept.
const AHEAD: usize = 64 * 1024;

/// The head of an answer, as it was sent to the client that came first.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The headers, those of Backstop among them.
    pub headers: HeaderMap,
    /// What hyper keeps beside a head.
    pub extensions: Extensions,
    /// How it came to that, and how many attempts were made; `None`: the head was sent before that was known.
    pub told: Option<(Outcome, u32)>,
    /// The upstream that answered.
    pub upstream: Arc<str>,
    /// The body is a stream of events.
    pub stream: bool,
}

/// How a record ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With whole framing; how what is in it ended.
    Whole(StreamEnd),
    /// Without.
    Broken(TransportError),
}

/// The record.
#[derive(Default)]
pub struct Transcript {
    state: Mutex<State>,
    /// For the writer: a reader came, went, or went on.
    readers_changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    head: Option<Head>,
    pieces: VecDeque<Bytes>,
    /// The number of the first piece that is still there: 0, unless the body is too long to be kept.
    first: usize,
    size: usize,
    trailers: Option<HeaderMap>,
    end: Option<End>,
    good: bool,
    /// The next piece of each reader.
    readers: HashMap<u64, usize>,
    entered: u64,
    wakers: Vec<Waker>,
}

/// Writes a record. Dropped before the end, it leaves a broken one.
pub struct Writer(Arc<Transcript>);

/// Reads a record from its start.
pub struct Reader {
    of: Arc<Transcript>,
    id: u64,
    told_trailers: bool,
}

/// What a reader gets next.
pub enum Next {
    /// A piece of the body.
    Piece(Bytes),
    /// The trailers.
    Trailers(HeaderMap),
    /// The end.
    End(End),
}

impl Transcript {
    /// A record with its writer and its first reader.
    pub fn begin() -> (Arc<Transcript>, Writer, Reader) {
        let transcript = Arc::new(Transcript::default());
        let reader = transcript.read().expect("nothing of it is gone");
        (transcript.clone(), Writer(transcript), reader)
    }

    /// The record of an answer that came to a good end before, whole.
    fn of(head: Head, pieces: Vec<Bytes>, trailers: Option<HeaderMap>) -> Arc<Transcript> {
        let state = State {
            head: Some(head),
            size: pieces.iter().map(Bytes::len).sum(),
            pieces: pieces.into(),
            trailers,
            end: Some(End::Whole(StreamEnd::Complete)),
            good: true,
            ..State::default()
        };
        Arc::new(Transcript { state: Mutex::new(state), ..Transcript::default() })
    }

    /// All of it, where it can be given again.
    fn whole(&self) -> Option<(Head, Vec<Bytes>, Option<HeaderMap>)> {
        let state = self.lock();
        let head = state.head.clone().filter(|_| state.is_good())?;
        Some((head, state.pieces.iter().cloned().collect(), state.trailers.clone()))
    }

    /// Read it from its start; `None`: its start is gone.
    pub fn read(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.lock();
        if state.first > 0 {
            return None;
        }
        state.entered += 1;
        let id = state.entered;
        state.readers.insert(id, 0);
        drop(state);
        self.readers_changed.send_replace(());
        Some(Reader { of: self.clone(), id, told_trailers: false })
    }

    /// It is over and whole from its start to a good end: it can be given again.
    pub fn is_good(&self) -> bool {
        self.lock().is_good()
    }

    /// It has ended, well or badly.
    pub fn is_over(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Bytes of its body.
    pub fn size(&self) -> usize {
        self.lock().size
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// The head.
    pub fn head(&self, head: Head) {
        self.change(|state| state.head = Some(head));
    }

    /// One piece of the body. Waits for the slowest reader if the body is too long to be kept.
    pub async fn piece(&self, bytes: Bytes) {
        self.change(|state| {
            state.size += bytes.len();
            state.pieces.push_back(bytes);
        });
        let mut readers = self.0.readers_changed.subscribe();
        while self.is_ahead() {
            // The sender is in the record, which is here.
            let _ = readers.changed().await;
        }
    }

    /// The trailers.
    pub fn trailers(&self, trailers: HeaderMap) {
        self.change(|state| state.trailers = Some(trailers));
    }

    /// The end. `good`: the answer is of use to others, too.
    pub fn end(self, end: End, good: bool) {
        self.change(|state| (state.end, state.good) = (Some(end), good));
    }

    /// Ends when nobody has read for so long, and the answer is of no more use.
    pub async fn left_alone(&self, linger: Duration) {
        let mut readers = self.0.readers_changed.subscribe();
        loop {
            if !self.0.lock().readers.is_empty() {
                let _ = readers.changed().await;
                continue;
            }
            tokio::select! {
                () = sleep(linger) => return,
                _ = readers.changed() => {}
            }
        }
    }

    /// What all readers have read of a body that is not kept is let go. `true`: that leaves too much.
    fn is_ahead(&self) -> bool {
        let mut state = self.0.lock();
        if state.size <= KEPT {
            return false;
        }
        let slowest = state.readers.values().min().copied().unwrap_or(usize::MAX);
        while state.first < slowest && state.pieces.pop_front().is_some() {
            state.first += 1;
        }
        state.pieces.iter().map(Bytes::len).sum::<usize>() > AHEAD
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.change(|state| {
            state.end.get_or_insert_with(|| End::Broken(broken_off()));
        });
    }
}

impl Reader {
    /// Wait for the head. `Err`: there will be none.
    pub async fn head(&self) -> Result<Head, TransportError> {
        std::future::poll_fn(|cx| {
            let mut state = self.of.lock();
            match (&state.head, &state.end) {
                (Some(head), _) => Poll::Ready(Ok(head.clone())),
                (None, Some(End::Broken(error))) => Poll::Ready(Err(error.clone())),
                (None, Some(End::Whole(_))) => Poll::Ready(Err(broken_off())),
                (None, None) => {
                    state.wait(cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// What comes next.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.of.lock();
        let at = state.readers.get(&self.id).copied().unwrap_or(usize::MAX);
        let piece = at.checked_sub(state.first).and_then(|at| state.pieces.get(at)).cloned();
        if let Some(piece) = piece {
            state.readers.insert(self.id, at + 1);
            let long = state.size > KEPT;
            drop(state);
            if long {
                self.of.readers_changed.send_replace(());
            }
            return Poll::Ready(Next::Piece(piece));
        }
        match (&state.trailers, &state.end) {
            (Some(trailers), Some(End::Whole(_))) if !self.told_trailers => {
                self.told_trailers = true;
                Poll::Ready(Next::Trailers(trailers.clone()))
            }
            (_, Some(end)) => Poll::Ready(Next::End(end.clone())),
            _ => {
                state.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Bytes that are still to come, where the record has come to a good end.
    pub fn left(&self) -> Option<u64> {
        let state = self.of.lock();
        let at = state.readers.get(&self.id).copied()?.checked_sub(state.first)?;
        let whole = state.trailers.is_none() && state.end == Some(End::Whole(StreamEnd::Complete));
        whole.then(|| state.pieces.iter().skip(at).map(|piece| piece.len() as u64).sum())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.of.lock().readers.remove(&self.id);
        self.of.readers_changed.send_replace(());
    }
}

impl State {
    fn is_good(&self) -> bool {
        self.good && self.first == 0
    }

    fn wait(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }
}

fn broken_off() -> TransportError {
    let detail = "the call that was under way for this key was broken off".to_owned();
    TransportError { phase: Phase::Body, kind: Kind::Reset, sent: true, detail }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    fn head() -> Head {
        Head {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            extensions: Extensions::new(),
            told: Some((Outcome::Success, 1)),
            upstream: "u".into(),
            stream: false,
        }
    }

    async fn next(reader: &mut Reader) -> Next {
        std::future::poll_fn(|cx| reader.poll_next(cx)).await
    }

    /// The whole of what a reader gets, and how it ends.
    async fn all(mut reader: Reader) -> (Vec<u8>, End) {
        let mut body = Vec::new();
        loop {
            match next(&mut reader).await {
                Next::Piece(bytes) => body.extend_from_slice(&bytes),
                Next::Trailers(_) => {}
                Next::End(end) => return (body, end),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_reader_gets_all_of_it_whenever_it_comes() {
        let (record, writer, first) = Transcript::begin();
        let first = tokio::spawn(all(first));
        writer.head(head());
        writer.piece(Bytes::from_static(b"one ")).await;
        let second = tokio::spawn(all(record.read().unwrap()));
        tokio::task::yield_now().await;
        writer.piece(Bytes::from_static(b"two")).await;
        writer.end(End::Whole(StreamEnd::Complete), true);
        let third = record.read().unwrap();
        assert_eq!((third.left(), record.is_good(), record.is_over()), (Some(7), true, true));
        for body in [first.await.unwrap(), second.await.unwrap(), all(third).await] {
            assert_eq!(body, (b"one two".to_vec(), End::Whole(StreamEnd::Complete)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_panics_leaves_nobody_waiting() {
        let (record, writer, reader) = Transcript::begin();
        let late = record.read().unwrap();
        let task = tokio::spawn(async move {
            writer.head(head());
            writer.piece(Bytes::from_static(b"half")).await;
            panic!("as a fault of ours would");
        });
        assert!(task.await.is_err());
        assert!(!record.is_good() && late.head().await.is_ok());
        for reader in [reader, late] {
            let (body, end) = all(reader).await;
            assert!(body == b"half" && matches!(end, End::Broken(_)));
        }
        let (_, writer, reader) = Transcript::begin();
        drop(writer);
        assert!(reader.head().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_too_long_to_keep_waits_for_the_slowest_reader_and_holds_little() {
        const PIECE: usize = 1 << 20;
        let (record, writer, mut fast) = Transcript::begin();
        let mut slow = record.read().unwrap();
        writer.head(head());
        let pieces = KEPT / PIECE;
        for _ in 0..pieces {
            writer.piece(Bytes::from(vec![0; PIECE])).await;
        }
        assert!(
            timeout(Duration::from_secs(9), writer.piece(Bytes::from(vec![0; PIECE]))).await.is_err(),
            "nobody read"
        );
        for _ in 0..=pieces {
            assert!(matches!(next(&mut fast).await, Next::Piece(_)));
        }
        assert!(timeout(Duration::from_secs(9), writer.piece(Bytes::new())).await.is_err(), "one did not");
        let reads = tokio::spawn(async move { while let Next::Piece(_) = next(&mut slow).await {} });
        drop(fast);
        writer.piece(Bytes::from_static(b"!")).await;
        assert!(record.read().is_none() && record.lock().pieces.len() <= 2, "its start is gone");
        writer.end(End::Whole(StreamEnd::Complete), true);
        reads.await.unwrap();
        assert!(!record.is_good());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_left_alone_only_when_nobody_comes_back_in_time() {
        let (record, writer, reader) = Transcript::begin();
        let linger = Duration::from_secs(10);
        assert!(timeout(Duration::from_secs(60), writer.left_alone(linger)).await.is_err(), "somebody reads");
        drop(reader);
        let start = Instant::now();
        let back = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let reader = record.read();
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(reader);
        };
        tokio::join!(writer.left_alone(linger), back);
        assert_eq!(start.elapsed(), Duration::from_secs(75));
    }
}
