//! The load: HTTP/1.1 clients on raw sockets that do no more than they must, so that the proxies are what is measured.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::stub;
use crate::systems::System;

/// What is asked of the stub; it reads it from the header `x-bench`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole JSON answer of 1 KB.
    Whole,
    /// A stream of 100 events, as fast as it goes.
    Stream,
    /// A stream of 100 events, one every 20 ms.
    Paced,
    /// A stream that stays open after its first events.
    Held,
}

impl Kind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Stream => "stream",
            Self::Paced => "paced",
            Self::Held => "held",
        }
    }
}

/// A request as OpenAI's SDK would send it, its body 1 KB long.
pub fn request(system: &System, kind: Kind) -> Arc<[u8]> {
    let stream = kind != Kind::Whole;
    let (open, close) =
        (format!(r#"{{"model":"bench","stream":{stream},"messages":[{{"role":"user","content":""#), r#""}]}"#);
    let body = format!("{open}{}{close}", "x".repeat(1024 - open.len() - close.len()));
    let head = [
        &format!("POST {} HTTP/1.1", system.path),
        &format!("host: {}", system.address),
        "accept: application/json",
        "accept-encoding: gzip, deflate",
        "authorization: Bearer sk-bench",
        "content-type: application/json",
        &format!("content-length: {}", body.len()),
        "user-agent: OpenAI/Python 3.57.0",
        "x-stainless-lang: python",
        "x-stainless-retry-count: 0",
        "x-stainless-read-timeout: 600",
        &format!("x-bench: {}", kind.word()),
    ];
    format!("{}\r\n\r\n{body}", head.join("\r\n")).into_bytes().into()
}

/// What a run of load saw. Times are in microseconds, one for each call.
#[derive(Default)]
pub struct Run {
    pub calls: usize,
    pub events: usize,
    pub elapsed: Duration,
    pub first_byte: Vec<f64>,
    pub whole: Vec<f64>,
    /// Of the events of paced streams: from the stub's write to the client's read.
    pub delay: Vec<f64>,
}

/// Let every client ask, and ask again, until `time` is over; a call that has begun is finished.
pub async fn run(clients: &mut Vec<Client>, request: &Arc<[u8]>, kind: Kind, time: Duration) -> io::Result<Run> {
    let start = Instant::now();
    let mut tasks: JoinSet<_> =
        clients.drain(..).map(|client| client.repeat(request.clone(), kind, start + time)).collect();
    let mut sum = Run::default();
    while let Some(done) = tasks.join_next().await {
        let (client, run) = done.map_err(io::Error::other)??;
        clients.push(client);
        sum.calls += run.calls;
        sum.events += run.events;
        sum.first_byte.extend(run.first_byte);
        sum.whole.extend(run.whole);
        sum.delay.extend(run.delay);
    }
    sum.elapsed = start.elapsed();
    Ok(sum)
}

/// How the end of a body is known.
pub enum Framing {
    Length(usize),
    Chunked,
}

/// One keep-alive connection to one system.
pub struct Client {
    socket: TcpStream,
    buffer: BytesMut,
}

impl Client {
    pub async fn connect_all(system: &System, count: usize) -> io::Result<Vec<Self>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            let socket = TcpStream::connect(system.address).await?;
            socket.set_nodelay(true)?;
            clients.push(Self { socket, buffer: BytesMut::new() });
        }
        Ok(clients)
    }

    async fn repeat(mut self, request: Arc<[u8]>, kind: Kind, until: Instant) -> io::Result<(Self, Run)> {
        let mut run = Run::default();
        loop {
            let start = Instant::now();
            if start >= until {
                return Ok((self, run));
            }
            let framing = self.head(&request).await?;
            let mut first = None;
            let mut last = 0;
            let mut event = Vec::new();
            self.body(framing, |bytes| {
                first.get_or_insert_with(|| start.elapsed());
                for &byte in bytes {
                    let ends = byte == b'\n' && last == b'\n';
                    run.events += usize::from(ends);
                    last = byte;
                    if kind == Kind::Paced {
                        event.push(byte);
                        if ends {
                            run.delay.extend(stub::age(&event).map(|age| age.as_secs_f64() * 1e6));
                            event.clear();
                        }
                    }
                }
            })
            .await?;
            run.calls += 1;
            run.first_byte.push(first.unwrap_or_default().as_secs_f64() * 1e6);
            run.whole.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }

    /// Send a request and read the head of its answer, which must be a 200.
    pub async fn head(&mut self, request: &[u8]) -> io::Result<Framing> {
        self.socket.write_all(request).await?;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 32];
            let mut answer = httparse::Response::new(&mut headers);
            if let httparse::Status::Complete(length) = answer.parse(&self.buffer).map_err(io::Error::other)? {
                if answer.code != Some(200) {
                    return Err(io::Error::other(String::from_utf8_lossy(&self.buffer).into_owned()));
                }
                let value =
                    |name: &str| answer.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value);
                let framing = match value("content-length") {
                    Some(digits) => Framing::Length(number(digits)?),
                    None => Framing::Chunked,
                };
                self.buffer.advance(length);
                return Ok(framing);
            }
            self.fill().await?;
        }
    }

    /// Read a body to its end.
    async fn body(&mut self, framing: Framing, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        if let Framing::Length(length) = framing {
            return self.take(length, &mut each).await;
        }
        loop {
            match httparse::parse_chunk_size(&self.buffer).map_err(|_| io::Error::other("a bad chunk"))? {
                httparse::Status::Partial => self.fill().await?,
                httparse::Status::Complete((used, size)) => {
                    self.buffer.advance(used);
                    self.take(size as usize, &mut each).await?;
                    self.take(2, &mut |_| ()).await?; // the line end after the chunk, or after the trailers there are none of
                    if size == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Hand over the next `left` bytes as they come.
    async fn take(&mut self, mut left: usize, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        while left > 0 {
            if self.buffer.is_empty() {
                self.fill().await?;
            }
            let now = left.min(self.buffer.len());
            each(&self.buffer[..now]);
            self.buffer.advance(now);
            left -= now;
        }
        Ok(())
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.buffer.reserve(4 << 10);
        match self.socket.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

pub fn number(digits: &[u8]) -> io::Result<usize> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| io::Error::other("not a number"))
}
