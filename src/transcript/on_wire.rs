//! The head of an answer as bytes, and back: as it stands on the wire.
//!
//! The bytes are written and read by hyper itself, over memory: how names of headers were written (`X-Odd-Case`) is in a type
//! of its own that nobody else can look into or make. It writes heads of requests and reads those of answers, so that its
//! lines are put below a status line of ours.

use bytes::Bytes;
use http::{Extensions, HeaderMap, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// A head, apart from what is known of it beside.
pub(super) type Parts = (StatusCode, HeaderMap, Extensions);

/// Bytes under way at once.
const PIPE: usize = 16 * 1024;
/// More lines than any upstream may send.
const MAX_HEADERS: usize = 1024;
/// Bytes of a head at most: as many as hyper reads of an upstream's, and what Backstop puts in.
const LARGEST: usize = 512 * 1024;
const END: &[u8] = b"\r\n\r\n";

/// Write a head; `None`: it is none that could be read again.
pub(super) async fn write(status: StatusCode, headers: &HeaderMap, extensions: &Extensions) -> Option<Vec<u8>> {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.headers_mut() = headers.clone();
    *request.extensions_mut() = extensions.clone();
    let (lines, _) = exchange(request, None).await?;
    let lines = &lines[memchr::memchr(b'\n', &lines)? + 1..];
    let reason = match extensions.get::<ReasonPhrase>() {
        Some(reason) => reason.as_bytes(),
        // What hyper writes where there is none.
        None => status.canonical_reason().unwrap_or("<none>").as_bytes(),
    };
    Some([b"HTTP/1.1 ", status.as_str().as_bytes(), b" ", reason, b"\r\n", lines].concat())
}

/// Read one back.
pub(super) async fn read(head: &[u8]) -> Option<Parts> {
    exchange(Request::new(Empty::new()), Some(head)).await?.1
}

/// Send a request and get this answer to it: the request's head as it was sent, and the answer's as it was read.
async fn exchange(request: Request<Empty<Bytes>>, answer: Option<&[u8]>) -> Option<(Vec<u8>, Option<Parts>)> {
    let (ours, mut theirs) = duplex(PIPE);
    let mut builder = http1::Builder::new();
    builder.preserve_header_case(true).max_headers(MAX_HEADERS).max_buf_size(LARGEST);
    let (mut sender, connection) = builder.handshake(TokioIo::new(ours)).await.ok()?;
    let asked = async {
        let response = sender.send_request(request).await.ok()?;
        let (head, _) = response.into_parts();
        Some((head.status, head.headers, head.extensions))
    };
    let upstream = async {
        let sent = head_of(&mut theirs).await?;
        if let Some(answer) = answer {
            theirs.write_all(answer).await.ok()?;
            // A head that is not whole ends here, too.
            theirs.shutdown().await.ok()?;
        }
        Some(sent)
    };
    let both = async {
        match answer {
            None => tokio::select! {
                sent = upstream => Some((sent?, None)),
                // Nobody answers it.
                _ = asked => None,
            },
            Some(_) => {
                let (sent, read) = tokio::join!(upstream, asked);
                Some((sent?, Some(read?)))
            }
        }
    };
    // Its end, a fault perhaps, is told to both sides: what they had by then counts.
    let driven = async {
        drop(connection.await);
        std::future::pending().await
    };
    tokio::select! {
        biased;
        both = both => both,
        () = driven => None,
    }
}

async fn head_of(stream: &mut DuplexStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(END) {
        if head.len() > LARGEST || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}
