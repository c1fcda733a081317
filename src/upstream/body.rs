//! The request body as it goes out, with a mark of how far it has come: what was sent decides what may be repeated.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// How far a request body has come on its way out.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    started: AtomicBool,
    finished: AtomicBool,
    /// Milliseconds from `start` to the last frame that was taken.
    last: AtomicU64,
}

impl Progress {
    /// Nothing has been sent.
    pub fn new() -> Arc<Self> {
        Arc::new(Progress {
            start: Instant::now(),
            started: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            last: AtomicU64::new(0),
        })
    }

    /// The connection has begun to take the request.
    pub fn started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// The connection has taken all of the body.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// When the connection last took a piece.
    pub fn last(&self) -> Instant {
        self.start + std::time::Duration::from_millis(self.last.load(Ordering::Acquire))
    }

    /// Count the time from now on: the connection is there.
    pub fn touch(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Release);
    }

    fn took(&self, end: bool) {
        self.started.store(true, Ordering::Release);
        if end {
            self.finished.store(true, Ordering::Release);
        }
        self.touch();
    }
}

/// A body that is being read from the client while it is sent.
pub type LiveBody = Pin<Box<dyn Body<Data = Bytes, Error = BodyError> + Send>>;

/// Why a live request body stopped: the client left, or sent more than it may.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// One attempt's request body.
///
/// On the heap, because small counts: hyper has room for 32 requests in the queue of each connection, of which it uses one.
pub struct SendBody(Box<Sending>);

struct Sending {
    source: Source,
    progress: Arc<Progress>,
}

enum Source {
    Whole {
        frames: Arc<[Bytes]>,
        next: usize,
        trailers: Option<HeaderMap>,
    },
    /// Not asked for yet: it stays where another attempt can find it.
    Slot(Arc<Mutex<Option<LiveBody>>>),
    Live(LiveBody),
    Gone,
}

impl SendBody {
    /// A body held in memory; each attempt gets its own view of the same bytes.
    pub fn whole(frames: Arc<[Bytes]>, trailers: Option<HeaderMap>, progress: Arc<Progress>) -> Self {
        let body = SendBody::new(Source::Whole { frames, next: 0, trailers }, progress);
        if body.is_end_stream() {
            body.0.progress.finished.store(true, Ordering::Release);
        }
        body
    }

    /// A body that can be sent once. It is taken from its slot when the connection asks for its first piece.
    pub fn slot(slot: Arc<Mutex<Option<LiveBody>>>, progress: Arc<Progress>) -> Self {
        SendBody::new(Source::Slot(slot), progress)
    }

    fn new(source: Source, progress: Arc<Progress>) -> Self {
        SendBody(Box::new(Sending { source, progress }))
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self.0;
        if let Source::Slot(slot) = &this.source {
            let body = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            this.source = body.map_or(Source::Gone, Source::Live);
        }
        let frame = match &mut this.source {
            Source::Whole { frames, next, trailers } => match frames.get(*next) {
                Some(bytes) => {
                    *next += 1;
                    Some(Ok(Frame::data(bytes.clone())))
                }
                None => trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            },
            Source::Live(body) => ready!(body.as_mut().poll_frame(cx)),
            Source::Slot(_) | Source::Gone => Some(Err("the request body was sent already".into())),
        };
        self.0.progress.took(frame.is_none() || self.is_end_stream());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0.source {
            Source::Whole { frames, next, trailers } => *next >= frames.len() && trailers.is_none(),
            Source::Live(body) => body.is_end_stream(),
            Source::Slot(_) | Source::Gone => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0.source {
            // With trailers the size must stay open: a sized body has no place for them.
            Source::Whole { trailers: Some(_), .. } => SizeHint::default(),
            Source::Whole { frames, next, .. } => {
                SizeHint::with_exact(frames[*next..].iter().map(|frame| frame.len() as u64).sum())
            }
            Source::Live(body) => body.size_hint(),
            Source::Slot(slot) => {
                let body = slot.lock().unwrap_or_else(PoisonError::into_inner);
                body.as_ref().map_or_else(SizeHint::default, |body| body.size_hint())
            }
            Source::Gone => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// hyper's queue of each connection has room for 32: what this grows by, every connection grows by 32 times.
    #[test]
    fn a_body_is_one_word() {
        assert_eq!(size_of::<SendBody>(), size_of::<usize>());
    }
}
