//! The scripted upstream: it plays one [`Step`] an attempt, over anything that carries bytes, and records what it saw.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep};

use super::step::{Act, End};
use super::wire::{Length, Wire};
use super::{Lines, Step};

/// A side of a connection that can be reset.
pub trait Side: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Drop it so that the other side sees a reset.
    fn reset(self);
}

/// Attempt number (from 0), and its request once that is there → what to do. Asked at the dial without a request, at the
/// request's head (whether to answer early), and when its body is whole.
pub type Play = dyn Fn(usize, Option<&Seen>) -> Step + Send + Sync;

/// Steps in order, the last one for ever; or a function.
pub struct Script(Box<Play>);

impl Script {
    /// Decide by the request. Dials go through.
    pub fn by(play: impl Fn(&Seen) -> Step + Send + Sync + 'static) -> Script {
        Script(Box::new(move |_, seen| seen.map_or_else(Step::silence, &play)))
    }
}

impl From<Step> for Script {
    fn from(step: Step) -> Script {
        Script(Box::new(move |_, _| step.clone()))
    }
}

impl<const N: usize> From<[Step; N]> for Script {
    fn from(steps: [Step; N]) -> Script {
        Script::from(steps.to_vec())
    }
}

impl From<Vec<Step>> for Script {
    fn from(steps: Vec<Step>) -> Script {
        Script(Box::new(move |n, _| steps[n.min(steps.len() - 1)].clone()))
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub target: String,
    pub version: String,
    pub lines: Lines,
    pub body: Vec<u8>,
    pub trailers: Lines,
    /// Its body came whole.
    pub whole: bool,
    /// When its head was there.
    pub at: Instant,
    /// The number of its connection, from 0.
    pub connection: usize,
    /// When the client went away before its answer was written.
    pub gone: Option<Instant>,
}

impl Seen {
    pub fn value(&self, name: &str) -> Option<&str> {
        super::value(&self.lines, name)
    }

    /// The names of its headers, with their case, in order.
    pub fn names(&self) -> Vec<&str> {
        self.lines.iter().map(|(name, _)| name.as_str()).collect()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }
}

/// The upstream.
pub struct Upstream {
    script: Script,
    start: Instant,
    attempts: AtomicUsize,
    connections: AtomicUsize,
    log: Mutex<Vec<Seen>>,
    dials: Mutex<Vec<Instant>>,
    closed: Mutex<Vec<(usize, Instant)>>,
}

impl Upstream {
    pub fn new(script: impl Into<Script>) -> Arc<Self> {
        Arc::new(Upstream {
            script: script.into(),
            start: Instant::now(),
            attempts: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            log: Mutex::default(),
            dials: Mutex::default(),
            closed: Mutex::default(),
        })
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.log().clone()
    }

    /// The one request that came.
    ///
    /// # Panics
    /// If it was none or several.
    pub fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "requests upstream");
        seen[0].clone()
    }

    pub fn last(&self) -> Seen {
        self.log().last().expect("a request came").clone()
    }

    /// Requests so far.
    pub fn count(&self) -> usize {
        self.log().len()
    }

    /// Attempts so far: requests, and dials that failed.
    pub fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// When each request came, since the start.
    pub fn times(&self) -> Vec<Duration> {
        self.log().iter().map(|seen| seen.at - self.start).collect()
    }

    /// When each dial began, since the start.
    pub fn dials(&self) -> Vec<Duration> {
        self.dials.lock().unwrap().iter().map(|at| *at - self.start).collect()
    }

    /// The waits between one request and the next.
    pub fn gaps(&self) -> Vec<Duration> {
        self.times().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// When connections ended by the other side's doing, since the start.
    pub fn closed(&self) -> Vec<(usize, Duration)> {
        self.closed.lock().unwrap().iter().map(|(n, at)| (*n, *at - self.start)).collect()
    }

    /// A dial: the step that refuses it, else the number of the new connection.
    pub fn dialed(&self) -> Result<usize, Box<Step>> {
        self.dials.lock().unwrap().push(Instant::now());
        let step = (self.script.0)(self.attempts(), None);
        if step.refused.is_some() {
            self.attempts.fetch_add(1, Ordering::SeqCst);
            return Err(Box::new(step));
        }
        Ok(self.connections.fetch_add(1, Ordering::SeqCst))
    }

    fn log(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.log.lock().unwrap()
    }

    /// Serve one connection to its end.
    pub async fn serve<S: Side>(self: Arc<Self>, side: S, connection: usize) {
        let (reader, mut writer) = split(side);
        let mut reader = Wire::new(reader);
        while let Some((index, step)) = self.request(&mut reader, connection).await {
            match self.play(&mut reader, &mut writer, index, &step).await {
                Some(End::Keep) if step.early => reader.drained().await,
                Some(End::Keep) => {}
                Some(End::Close) => {
                    let _ = writer.shutdown().await;
                    return drop(reader.into_inner().unsplit(writer));
                }
                Some(End::Reset) => return reader.into_inner().unsplit(writer).reset(),
                Some(End::Hang) | None => return self.gone(index, connection),
            }
        }
        self.closed.lock().unwrap().push((connection, Instant::now()));
    }

    /// Serve one HTTP/2 connection to its end: whole answers only.
    pub async fn serve_h2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        side: S,
        connection: usize,
    ) {
        let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
            let upstream = self.clone();
            async move { Ok::<_, hyper::Error>(upstream.answer_h2(request, connection).await) }
        });
        let builder = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
        let _ = builder.serve_connection(hyper_util::rt::TokioIo::new(side), service).await;
    }

    async fn answer_h2(
        &self,
        request: http::Request<hyper::body::Incoming>,
        connection: usize,
    ) -> http::Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let lines = head.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        let seen = Seen {
            method: head.method.to_string(),
            target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            version: "HTTP/2".into(),
            lines,
            body: body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default(),
            trailers: Vec::new(),
            whole: true,
            at: Instant::now(),
            connection,
            gone: None,
        };
        let step = (self.script.0)(self.attempts.fetch_add(1, Ordering::SeqCst), Some(&seen));
        self.log().push(seen);
        sleep(step.delay).await;
        step.response()
    }

    /// The next request, and what to do with it.
    async fn request<S: Side>(&self, reader: &mut Wire<ReadHalf<S>>, connection: usize) -> Option<(usize, Step)> {
        let head = reader.head().await?;
        let mut start = head.start.splitn(3, ' ').map(str::to_owned);
        let mut part = || start.next().expect("a request line of three parts");
        let (method, target, version) = (part(), part(), part());
        let length = head.length(Length::None);
        let seen = Seen {
            method,
            target,
            version,
            lines: head.lines,
            body: Vec::new(),
            trailers: Vec::new(),
            whole: false,
            at: Instant::now(),
            connection,
            gone: None,
        };
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        let step = (self.script.0)(attempt, Some(&seen));
        let index = {
            let mut log = self.log();
            log.push(seen);
            log.len() - 1
        };
        if step.early {
            return Some((index, step));
        }
        let body = reader.body(length).await;
        let mut log = self.log();
        (log[index].body, log[index].trailers, log[index].whole) = (body.bytes, body.trailers, body.whole);
        if !body.whole {
            log[index].gone = Some(Instant::now());
            return None;
        }
        let step = (self.script.0)(attempt, Some(&log[index]));
        Some((index, step))
    }

    /// Play a step; `None`: the other side left first.
    async fn play<S: Side>(
        &self,
        reader: &mut Wire<ReadHalf<S>>,
        writer: &mut WriteHalf<S>,
        index: usize,
        step: &Step,
    ) -> Option<End> {
        let bodiless = self.log()[index].method == "HEAD";
        if step.deaf {
            return write(writer, step, bodiless).await;
        }
        // What comes after an early answer is the rest of its request; after any other it is the next request.
        let left = async { if step.early { reader.drained().await } else { reader.closed().await } };
        tokio::select! {
            biased;
            () = left => None,
            end = write(writer, step, bodiless) => end,
        }
    }

    fn gone(&self, index: usize, connection: usize) {
        self.log()[index].gone = Some(Instant::now());
        self.closed.lock().unwrap().push((connection, Instant::now()));
    }
}

async fn write<S: Side>(writer: &mut WriteHalf<S>, step: &Step, bodiless: bool) -> Option<End> {
    sleep(step.delay).await;
    for act in step.acts(bodiless) {
        match act {
            Act::Sleep(pause) => sleep(pause).await,
            Act::Write(bytes) => {
                writer.write_all(&bytes).await.ok()?;
                writer.flush().await.ok()?;
                tokio::task::yield_now().await;
            }
        }
    }
    if step.end == End::Hang {
        std::future::pending::<()>().await;
    }
    Some(step.end)
}
