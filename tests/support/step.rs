//! What a scripted upstream does with one attempt.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;

use backstop::policy::failure::{Kind, Phase, TransportError};

use super::Lines;

/// One attempt's script: an answer, or a way to fail.
#[derive(Debug, Clone)]
pub struct Step {
    /// The dial fails so.
    pub refused: Option<TransportError>,
    /// Answer before the request's body is read.
    pub early: bool,
    /// Stop reading after the head of the request.
    pub deaf: bool,
    /// Before the first byte.
    pub delay: Duration,
    /// The head; `None`: the body's bytes are all there is.
    head: Option<(u16, Lines)>,
    body: Vec<Act>,
    framing: Framing,
    trailers: Vec<(String, String)>,
    /// As much of the body is written.
    limit: Option<usize>,
    split: Option<usize>,
    pub end: End,
}

/// One thing to do on the wire.
#[derive(Debug, Clone)]
pub enum Act {
    Write(Vec<u8>),
    Sleep(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Sized,
    Chunked,
    ToEnd,
    /// The headers given say it.
    Given,
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The next request may come.
    Keep,
    /// A plain close (FIN).
    Close,
    /// A reset.
    Reset,
    /// Open and silent.
    Hang,
}

impl Step {
    /// An answer with a length.
    pub fn respond(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Step {
        let lines = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        let body = body.as_ref();
        let body = if body.is_empty() { vec![] } else { vec![Act::Write(body.to_vec())] };
        Step { head: Some((status, lines)), body, framing: Framing::Sized, ..Step::silence().ending(End::Keep) }
    }

    /// A JSON answer.
    pub fn json(status: u16, body: &str) -> Step {
        Step::respond(status, &[("content-type", "application/json")], body)
    }

    /// A stream of events, each a chunk.
    pub fn sse<E: AsRef<str>>(events: impl IntoIterator<Item = E>) -> Step {
        Step::chunks("text/event-stream", events)
    }

    /// A good answer in these chunks.
    pub fn chunks<E: AsRef<str>>(media: &str, chunks: impl IntoIterator<Item = E>) -> Step {
        let body = chunks.into_iter().map(|chunk| Act::Write(chunk.as_ref().as_bytes().to_vec())).collect();
        let step = Step::respond(200, &[("content-type", media)], "").chunked();
        Step { body, ..step }
    }

    /// These bytes, whatever they are.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Step {
        Step { body: vec![Act::Write(bytes.as_ref().to_vec())], ..Step::silence().ending(End::Close) }
    }

    /// What no HTTP parser takes.
    pub fn garbage() -> Step {
        Step::raw(b"\x16\x03\x01 this is not HTTP at all\r\n\r\n")
    }

    /// Nobody listens.
    pub fn refuse() -> Step {
        Step::fail(Kind::Refused, "connection refused by api.test:80")
    }

    /// The dial fails in another way.
    pub fn fail(kind: Kind, detail: &str) -> Step {
        let error = TransportError { phase: Phase::Connect, kind, sent: false, detail: detail.into() };
        Step { refused: Some(error), ..Step::silence() }
    }

    /// Take the request, then close without a byte.
    pub fn close() -> Step {
        Step::silence().ending(End::Close)
    }

    /// Take the request, then reset.
    pub fn reset() -> Step {
        Step::silence().ending(End::Reset)
    }

    /// Take the request and say nothing, for ever.
    pub fn silence() -> Step {
        Step {
            refused: None,
            early: false,
            deaf: false,
            delay: Duration::ZERO,
            head: None,
            body: Vec::new(),
            framing: Framing::Given,
            trailers: Vec::new(),
            limit: None,
            split: None,
            end: End::Hang,
        }
    }

    pub fn ending(self, end: End) -> Step {
        Step { end, ..self }
    }

    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Step {
        let (_, lines) = self.head.as_mut().expect("an answer with a head");
        lines.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// The given headers frame the body; nothing is added.
    pub fn bare(self) -> Step {
        Step { framing: Framing::Given, ..self }
    }

    pub fn chunked(self) -> Step {
        Step { framing: Framing::Chunked, ..self }
    }

    /// The end of the connection ends the body.
    pub fn until_close(self) -> Step {
        Step { framing: Framing::ToEnd, ..self }.ending(End::Close)
    }

    pub fn trailer(mut self, name: &str, value: &str) -> Step {
        self.trailers.push((name.into(), value.into()));
        self.chunked()
    }

    /// Before the first byte.
    pub fn delay(self, delay: Duration) -> Step {
        Step { delay, ..self }
    }

    /// Between two writes of the body.
    pub fn pace(mut self, pause: Duration) -> Step {
        self.body = self.body.into_iter().flat_map(|act| [Act::Sleep(pause), act]).collect();
        self
    }

    /// More of the body.
    pub fn write(mut self, bytes: impl AsRef<[u8]>) -> Step {
        self.body.push(Act::Write(bytes.as_ref().to_vec()));
        self
    }

    /// A pause before the next write.
    pub fn pause(mut self, pause: Duration) -> Step {
        self.body.push(Act::Sleep(pause));
        self
    }

    /// Close after so many bytes of the body.
    pub fn cut_after(self, bytes: usize) -> Step {
        Step { limit: Some(bytes), ..self }.ending(End::Close)
    }

    /// Stop after so many bytes of the body, and hang.
    pub fn stall_after(self, bytes: usize) -> Step {
        Step { limit: Some(bytes), ..self }.ending(End::Hang)
    }

    /// Write so many bytes at a time, head included.
    pub fn split_every(self, bytes: usize) -> Step {
        Step { split: Some(bytes), ..self }
    }

    /// Answer at the head of the request; its body is read and forgotten.
    pub fn early(self) -> Step {
        Step { early: true, ..self }
    }

    /// Answer at the head of the request and read nothing more.
    pub fn deaf(self) -> Step {
        Step { early: true, deaf: true, ..self }
    }

    pub fn then_close(self) -> Step {
        self.ending(End::Close)
    }

    /// All that goes on the wire. `bodiless`: the request was a HEAD.
    pub fn acts(&self, bodiless: bool) -> Vec<Act> {
        let mut acts = vec![Act::Write(self.head_bytes())];
        if !bodiless {
            acts.extend(self.body_acts());
        }
        let Some(split) = self.split else { return acts };
        acts.into_iter().flat_map(|act| in_pieces(act, split)).collect()
    }

    /// As a message of HTTP/2.
    pub fn response(&self) -> http::Response<Full<Bytes>> {
        let (status, lines) = self.head.as_ref().expect("an answer with a head");
        let mut response = http::Response::builder().status(*status);
        for (name, value) in lines {
            response = response.header(name, value.as_slice());
        }
        let writes =
            self.body.iter().filter_map(|act| if let Act::Write(bytes) = act { Some(&bytes[..]) } else { None });
        response.body(Full::from(writes.collect::<Vec<_>>().concat())).expect("a message")
    }

    fn head_bytes(&self) -> Vec<u8> {
        let Some((status, lines)) = &self.head else { return Vec::new() };
        let mut head = format!("HTTP/1.1 {status} Some Reason\r\n").into_bytes();
        for (name, value) in lines {
            head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        match self.framing {
            Framing::Sized => head.extend(format!("content-length: {}\r\n", self.size()).bytes()),
            Framing::Chunked => head.extend(b"transfer-encoding: chunked\r\n"),
            Framing::ToEnd | Framing::Given => {}
        }
        head.extend(b"\r\n");
        head
    }

    fn size(&self) -> usize {
        self.body.iter().map(|act| if let Act::Write(bytes) = act { bytes.len() } else { 0 }).sum()
    }

    fn body_acts(&self) -> Vec<Act> {
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut acts = Vec::new();
        for act in &self.body {
            match act {
                Act::Sleep(_) => acts.push(act.clone()),
                Act::Write(bytes) => {
                    let here = &bytes[..left.min(bytes.len())];
                    left -= here.len();
                    if !here.is_empty() {
                        acts.push(Act::Write(self.framed(here)));
                    }
                }
            }
            if left == 0 {
                return acts;
            }
        }
        if self.framing == Framing::Chunked && self.limit.is_none() {
            let trailers: String = self.trailers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            acts.push(Act::Write(format!("0\r\n{trailers}\r\n").into_bytes()));
        }
        acts
    }

    fn framed(&self, bytes: &[u8]) -> Vec<u8> {
        match self.framing {
            Framing::Chunked => [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
            _ => bytes.to_vec(),
        }
    }
}

fn in_pieces(act: Act, size: usize) -> Vec<Act> {
    match act {
        Act::Write(bytes) => bytes.chunks(size).map(|piece| Act::Write(piece.to_vec())).collect(),
        sleep => vec![sleep],
    }
}
