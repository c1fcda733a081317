//! The stub API: reads a request, answers from memory.

use std::io;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::load::{Kind, number};

const EVENTS: usize = 100;
const GAP: Duration = Duration::from_millis(20);

/// What stands before the time, `DIGITS` long and in nanoseconds, at which an event of a paced stream was written.
const STAMP: &[u8] = b"at ";
const DIGITS: usize = 15;
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Serve on a free port for as long as the runtime lives.
pub async fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let answers: &'static Answers = Box::leak(Box::new(Answers::new()));
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, answers));
        }
    });
    Ok(address)
}

/// The bytes of each answer.
struct Answers {
    whole: Vec<u8>,
    stream_head: &'static [u8],
    /// Each event in a chunk of its own, the last chunk at the end.
    events: Vec<Vec<u8>>,
}

impl Answers {
    fn new() -> Self {
        let answer = |content: &str| {
            json!({"id": "chatcmpl-bench", "object": "chat.completion", "created": 1_760_000_000, "model": "bench",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 256, "completion_tokens": 200, "total_tokens": 456}})
            .to_string()
        };
        let body = answer(&"y".repeat(1024 - answer("").len()));
        let whole = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes();
        let mut events: Vec<_> = (0..EVENTS - 2)
            .map(|n| chunk(&event(&json!({"content": format!("word {n} at {:0DIGITS$} ", 0)}), Value::Null)))
            .collect();
        events.insert(0, chunk(&event(&json!({"role": "assistant", "content": ""}), Value::Null)));
        events.push(
            [chunk(&event(&json!({}), json!("stop"))), chunk("data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat(),
        );
        Self {
            whole,
            stream_head: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            events,
        }
    }
}

fn event(delta: &Value, finish: Value) -> String {
    let event = json!({"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {event}\n\n")
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// The event, with the time in the place that it has for it; the first and the last one have none.
fn stamped(event: &[u8]) -> Vec<u8> {
    let mut event = event.to_vec();
    if let Some(at) = stamp(&event) {
        event[at..at + DIGITS].copy_from_slice(format!("{:0DIGITS$}", EPOCH.elapsed().as_nanos()).as_bytes());
    }
    event
}

/// How long ago an event was written, if it says when.
pub fn age(event: &[u8]) -> Option<Duration> {
    let at = stamp(event)?;
    let written = number(event.get(at..at + DIGITS)?).ok()?;
    Some(EPOCH.elapsed().saturating_sub(Duration::from_nanos(written as u64)))
}

fn stamp(event: &[u8]) -> Option<usize> {
    event.windows(STAMP.len()).position(|bytes| bytes == STAMP).map(|at| at + STAMP.len())
}

async fn serve(mut socket: TcpStream, answers: &'static Answers) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    while let Some(kind) = next_request(&mut socket, &mut buffer).await? {
        if kind == Kind::Whole {
            socket.write_all(&answers.whole).await?;
            continue;
        }
        socket.write_all(answers.stream_head).await?;
        // the streams that run at once are spread over the gap, as those of different models are
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let phase = GAP * (STREAMS.fetch_add(7, Relaxed) % 20) as u32 / 20;
        let mut clock = tokio::time::interval_at(tokio::time::Instant::now() + phase, GAP);
        for event in answers.events.iter().take(if kind == Kind::Held { 2 } else { EVENTS }) {
            if kind == Kind::Paced {
                clock.tick().await;
                socket.write_all(&stamped(event)).await?;
            } else {
                socket.write_all(event).await?;
            }
            tokio::task::yield_now().await; // the load, on this same thread, is to see each event when it comes
        }
        if kind == Kind::Held {
            socket.read_buf(&mut buffer).await?; // until the other side goes
            return Ok(());
        }
    }
    Ok(())
}

/// Read a request to its end and say what it asks for; none at the end of the connection.
async fn next_request(socket: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Kind>> {
    let mut needed = None;
    loop {
        if let Some((kind, length)) = needed.filter(|(_, length)| buffer.len() >= *length) {
            buffer.advance(length);
            return Ok(Some(kind));
        }
        if needed.is_none() {
            needed = parse(buffer)?;
        }
        if needed.is_none_or(|(_, length)| buffer.len() < length) {
            buffer.reserve(4 << 10);
            if socket.read_buf(buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// What a request asks for, and how long it is with its body; none while its head is not there yet.
fn parse(bytes: &[u8]) -> io::Result<Option<(Kind, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 48];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let value =
        |name: &str| request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map_or(&b""[..], |h| h.value);
    let kinds = [Kind::Whole, Kind::Stream, Kind::Paced, Kind::Held];
    let kind = kinds.into_iter().find(|kind| kind.word().as_bytes() == value("x-bench")).unwrap_or(Kind::Whole);
    Ok(Some((kind, head + number(value("content-length"))?)))
}
