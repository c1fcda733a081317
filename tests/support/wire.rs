//! HTTP/1.1 read from raw bytes, by rules so plain that they can be checked by eye. Both sides of the tests use it.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::Lines;

/// Bytes as they came, and a cursor in them.
pub struct Wire<R> {
    io: R,
    buf: Vec<u8>,
    /// Every piece that was read, with its time.
    pub log: Vec<(Instant, Vec<u8>)>,
    /// No more will come.
    pub ended: bool,
}

/// The start line and the header lines of a message.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The start line.
    pub start: String,
    /// The header lines.
    pub lines: Lines,
}

/// How a body's end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    None,
    Sized(usize),
    Chunked,
    ToEnd,
}

/// A body as far as it came.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pub bytes: Vec<u8>,
    pub trailers: Lines,
    /// Its framing was complete.
    pub whole: bool,
}

impl Head {
    pub fn value(&self, name: &str) -> Option<&str> {
        super::value(&self.lines, name)
    }

    /// Of a request; of an answer it says what `none` and the status leave open.
    pub fn length(&self, otherwise: Length) -> Length {
        if self.value("transfer-encoding").is_some() {
            return Length::Chunked;
        }
        self.value("content-length").map_or(otherwise, |n| Length::Sized(n.parse().expect("a length")))
    }
}

impl<R: AsyncRead + Unpin> Wire<R> {
    pub fn new(io: R) -> Self {
        Wire { io, buf: Vec::new(), log: Vec::new(), ended: false }
    }

    pub fn into_inner(self) -> R {
        self.io
    }

    /// Bytes that were read and not yet taken.
    pub fn pending(&self) -> &[u8] {
        &self.buf
    }

    /// Read a piece; `false` at the end, or after an error. Safe to drop.
    pub async fn fill(&mut self) -> bool {
        let mut piece = vec![0; 64 * 1024];
        let read = self.io.read(&mut piece).await.unwrap_or(0);
        piece.truncate(read);
        self.buf.extend_from_slice(&piece);
        self.log.push((Instant::now(), piece));
        self.ended = read == 0;
        read > 0
    }

    /// Wait until the other side is gone.
    pub async fn closed(&mut self) {
        while !self.ended && self.fill().await {}
    }

    /// The same, without keeping what still comes.
    pub async fn drained(&mut self) {
        let mut piece = vec![0; 64 * 1024];
        while !self.ended {
            self.ended = self.io.read(&mut piece).await.unwrap_or(0) == 0;
        }
    }

    /// A line without its end; `None` if the other side went first.
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buf.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.buf[..end].to_vec();
                self.buf.drain(..end + 2);
                return Some(line);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// A head; `None` if the other side went first.
    pub async fn head(&mut self) -> Option<Head> {
        let start = String::from_utf8(self.line().await?).expect("a start line of text");
        Some(Head { start, lines: self.lines().await? })
    }

    async fn lines(&mut self) -> Option<Lines> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some(lines);
            }
            let colon = line.iter().position(|b| *b == b':').expect("a header line with a colon");
            let name = String::from_utf8(line[..colon].to_vec()).expect("a name of text");
            lines.push((name, line[colon + 1..].trim_ascii().to_vec()));
        }
    }

    /// So many bytes, or those that came.
    async fn take(&mut self, count: usize, into: &mut Vec<u8>) -> bool {
        let mut left = count;
        loop {
            let here = left.min(self.buf.len());
            into.extend(self.buf.drain(..here));
            left -= here;
            if left == 0 || !self.fill().await {
                return left == 0;
            }
        }
    }

    /// A body.
    pub async fn body(&mut self, length: Length) -> Body {
        let mut body = Body::default();
        body.whole = match length {
            Length::None => true,
            Length::Sized(count) => self.take(count, &mut body.bytes).await,
            Length::ToEnd => {
                self.take(usize::MAX, &mut body.bytes).await;
                true
            }
            Length::Chunked => self.chunks(&mut body).await.is_some(),
        };
        body
    }

    async fn chunks(&mut self, body: &mut Body) -> Option<()> {
        loop {
            let line = String::from_utf8(self.line().await?).expect("a chunk size");
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16).expect("a chunk size");
            if size == 0 {
                body.trailers = self.lines().await?;
                return Some(());
            }
            if !self.take(size, &mut body.bytes).await {
                return None;
            }
            self.line().await?;
        }
    }
}
