//! A client that sends raw bytes and keeps every byte that it gets, with its time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, timeout};

use super::wire::{Head, Length, Wire};
use super::{Lines, Request};

/// No test waits longer, in its own time.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Interim answers before it, with their times since the client connected.
    pub interims: Vec<(u16, Duration)>,
    pub start: String,
    pub status: u16,
    pub lines: Lines,
    pub body: Vec<u8>,
    pub trailers: Lines,
    /// Its framing was complete.
    pub whole: bool,
    /// When its head was there, since the client connected.
    pub head_at: Duration,
    /// When its end was there, since the client connected.
    pub end_at: Duration,
}

impl Answer {
    pub fn value(&self, name: &str) -> Option<&str> {
        super::value(&self.lines, name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    pub fn outcome(&self) -> &str {
        self.value("x-backstop-outcome").expect("an outcome")
    }

    pub fn attempts(&self) -> usize {
        self.value("x-backstop-attempts").expect("a count of attempts").parse().unwrap()
    }

    pub fn no_retry(&self) -> bool {
        self.value("x-should-retry") == Some("false")
    }

    /// `type`, `code` or `status` of an error of Backstop's own, in any dialect.
    pub fn fault(&self) -> String {
        let error = self.json()["error"].clone();
        let kind = ["type", "status"].iter().find_map(|key| error[key].as_str());
        kind.unwrap_or_else(|| panic!("no fault in {}", self.text())).to_owned()
    }

    /// The message of an error.
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().expect("a message").to_owned()
    }
}

/// A connected client.
pub struct Client {
    wire: Wire<ReadHalf<Box<dyn Io>>>,
    writer: Option<WriteHalf<Box<dyn Io>>>,
    start: Instant,
    methods: VecDeque<String>,
}

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Client {
    pub fn over(io: impl Io + 'static) -> Client {
        let (reader, writer) = split(Box::new(io) as Box<dyn Io>);
        Client { wire: Wire::new(reader), writer: Some(writer), start: Instant::now(), methods: VecDeque::new() }
    }

    /// Send bytes. Nobody there to read them is no fault of the test.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let writer = self.writer.as_mut().expect("not finished");
        let _ = timeout(PATIENCE, writer.write_all(bytes.as_ref())).await.expect("somebody reads what is sent");
        self
    }

    /// Say that nothing more will be sent.
    pub async fn finish(&mut self) -> &mut Self {
        if let Some(mut writer) = self.writer.take() {
            let _ = writer.shutdown().await;
        }
        self
    }

    /// The method of a request that was sent as bytes: its answer may have no body.
    pub fn asked(&mut self, method: &str) -> &mut Self {
        self.methods.push_back(method.into());
        self
    }

    /// Send a request.
    pub async fn ask(&mut self, request: &Request) -> &mut Self {
        self.asked(&request.method);
        self.send(request.bytes()).await
    }

    /// Send a request while its answer is awaited.
    pub async fn call(&mut self, request: &Request) -> Answer {
        self.asked(&request.method);
        let mut writer = self.writer.take().expect("not finished");
        let bytes = request.bytes();
        let (_, answer) = tokio::join!(writer.write_all(&bytes), self.answer());
        self.writer = Some(writer);
        answer
    }

    /// The next answer.
    ///
    /// # Panics
    /// If the connection ends without one.
    pub async fn answer(&mut self) -> Answer {
        self.next().await.expect("an answer before the connection ended")
    }

    /// The next answer; `None`: the connection ended without one.
    pub async fn next(&mut self) -> Option<Answer> {
        let mut answer = self.head().await?;
        let method = self.methods.pop_front().unwrap_or_default();
        let bodiless = method == "HEAD" || matches!(answer.status, 204 | 304) || answer.status < 200;
        let head = Head { start: String::new(), lines: answer.lines.clone() };
        let length = if bodiless { Length::None } else { head.length(Length::ToEnd) };
        let body = timeout(PATIENCE, self.wire.body(length)).await.expect("an end of the answer");
        (answer.body, answer.trailers, answer.whole) = (body.bytes, body.trailers, body.whole);
        answer.end_at = self.start.elapsed();
        Some(answer)
    }

    /// The next head, interim ones before it; its body is left where it is.
    pub async fn head(&mut self) -> Option<Answer> {
        let mut interims = Vec::new();
        loop {
            let head = timeout(PATIENCE, self.wire.head()).await.expect("an answer or an end")?;
            let status = head.start.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
            let at = self.start.elapsed();
            if matches!(status, 100 | 102 | 103) {
                interims.push((status, at));
                continue;
            }
            let (lines, start) = (head.lines, head.start);
            return Some(Answer {
                interims,
                start,
                status,
                lines,
                body: Vec::new(),
                trailers: Vec::new(),
                whole: false,
                head_at: at,
                end_at: at,
            });
        }
    }

    /// Read one more piece; `false` at the end of the connection.
    pub async fn piece(&mut self) -> bool {
        timeout(PATIENCE, self.wire.fill()).await.expect("a piece or an end")
    }

    /// Bytes that are here and were not read as part of an answer.
    pub fn pending(&self) -> &[u8] {
        self.wire.pending()
    }

    /// Wait for the end of the connection; when that was, since the client connected.
    pub async fn closed(&mut self) -> Duration {
        timeout(PATIENCE, self.wire.closed()).await.expect("an end of the connection");
        self.start.elapsed()
    }

    /// All bytes that ever came.
    pub fn bytes(&self) -> Vec<u8> {
        self.wire.log.iter().flat_map(|(_, piece)| piece.clone()).collect()
    }
}
