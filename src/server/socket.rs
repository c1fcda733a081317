//! A layer under hyper's server, at the socket, for what hyper does not do: a strict look at request framing, 102
//! Processing between request and response, a limit for connections that never say anything, and a close that lets the
//! client read its answer even while it is still sending.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::wire::framing::{Doubt, Framing};

/// A connection that has not sent a whole request head by then is closed. Later heads are timed by hyper.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a closed connection goes on reading what the client still sends: in all, and without a byte. A close with
/// unread bytes is a reset, which can take the answer with it.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_IDLE: Duration = Duration::from_secs(1);

/// What a connection over HTTP/2 begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PROCESSING: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// What a connection's layer and its requests tell each other.
#[derive(Default)]
pub struct Link {
    framing: Mutex<Framing>,
    requests: AtomicU64,
    interim: AtomicBool,
}

impl Link {
    /// The next request of this connection is here: why it is in doubt, if it is.
    pub fn next_request(&self) -> Option<Doubt> {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        self.framing().doubt(n)
    }

    /// Send 102 Processing with the next flush. Only between a request and its response.
    pub fn ask_interim(&self) {
        self.interim.store(true, Ordering::Relaxed);
    }

    /// The protocol is being switched.
    pub fn switched(&self) {
        self.framing().stop();
    }

    fn framing(&self) -> std::sync::MutexGuard<'_, Framing> {
        self.framing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer.
pub struct Socket<T> {
    inner: T,
    link: Arc<Link>,
    opening: Opening,
    /// Runs until the first head is whole.
    first_head: Option<Pin<Box<Sleep>>>,
    /// What is still to be written of a 102.
    interim: &'static [u8],
    closing: Option<Closing>,
}

/// The first bytes of a connection, read ahead to know the version by.
#[derive(Default)]
struct Opening {
    bytes: [u8; PREFACE.len()],
    /// So many of them are there, and so many were handed on.
    come: usize,
    gone: usize,
}

impl Opening {
    /// The version, once it shows.
    fn version(&self) -> Option<Version> {
        match &self.bytes[..self.come] {
            all if all == PREFACE => Some(Version::HTTP_2),
            some if PREFACE.starts_with(some) => None,
            _ => Some(Version::HTTP_11),
        }
    }

    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) -> usize {
        let here = &self.bytes[self.gone..self.come];
        let count = here.len().min(buf.remaining());
        buf.put_slice(&here[..count]);
        self.gone += count;
        count
    }
}

struct Closing {
    end: Instant,
    idle: Pin<Box<Sleep>>,
}

impl<T> Socket<T> {
    /// Over a connection.
    pub fn new(inner: T, link: Arc<Link>) -> Self {
        let first_head = Some(Box::pin(sleep(HEAD_TIMEOUT)));
        Socket { inner, link, opening: Opening::default(), first_head, interim: b"", closing: None }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Socket<T> {
    /// Which version of HTTP the client speaks. hyper-util can find that out as well; but it hands the bytes that it has seen
    /// on by themselves, so that hyper doubles its buffer for the rest of the head and keeps it while the connection lives.
    pub async fn version(&mut self) -> io::Result<Version> {
        loop {
            if let Some(version) = self.opening.version() {
                return Ok(version);
            }
            let come = self.opening.come;
            let mut bytes = self.opening.bytes;
            let mut buf = ReadBuf::new(&mut bytes[come..]);
            poll_fn(|cx| self.poll_inner(cx, &mut buf)).await?;
            let more = buf.filled().len();
            (self.opening.bytes, self.opening.come) = (bytes, come + more);
            if more == 0 {
                return Ok(Version::HTTP_11);
            }
        }
    }

    /// Read, with an eye on framing and on the time that the first head takes.
    fn poll_inner(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                let mut framing = self.link.framing();
                framing.feed(&buf.filled()[before..]);
                if framing.is_past_first_head() {
                    self.first_head = None;
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending => match &mut self.first_head {
                Some(timer) => timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
                None => Poll::Pending,
            },
            failed => failed,
        }
    }

    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interim.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, self.interim))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.interim = &self.interim[written..];
        }
        Poll::Ready(Ok(()))
    }

    /// Read and forget what still comes, until the client has closed or the time is over.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let closing = self
            .closing
            .get_or_insert_with(|| Closing { end: Instant::now() + LINGER, idle: Box::pin(sleep(LINGER_IDLE)) });
        let mut sink = [0; 16 * 1024];
        loop {
            let mut buf = ReadBuf::new(&mut sink);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() && Instant::now() < closing.end => {
                    let wake = Instant::now() + LINGER_IDLE;
                    closing.idle.as_mut().reset(wake);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return closing.idle.as_mut().poll(cx),
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Socket<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let handed = this.opening.hand_on(buf);
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match this.poll_inner(cx, buf) {
            Poll::Pending if handed > 0 => Poll::Ready(Ok(())),
            polled => polled,
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        self.link.interim.store(false, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        self.link.interim.store(false, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// hyper flushes whenever it has nothing left to write: the one place where a 102 can go in between.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.link.interim.swap(false, Ordering::Relaxed) && self.interim.is_empty() {
            self.interim = PROCESSING;
        }
        ready!(self.poll_interim(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
        if !self.link.framing().is_between() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// What the version is told to be of bytes that come in pieces of this size, and what is read after that in one go.
    async fn open(bytes: &[u8], piece: usize) -> (Version, Vec<u8>) {
        let (mut client, server) = duplex(4096);
        let mut socket = Socket::new(server, Arc::default());
        let (version, ()) = tokio::join!(socket.version(), async {
            for piece in bytes.chunks(piece) {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            client.shutdown().await.unwrap();
        });
        let mut read = vec![0; 4096];
        let count = socket.read(&mut read).await.unwrap();
        read.truncate(count);
        (version.unwrap(), read)
    }

    #[tokio::test]
    async fn the_version_is_read_and_nothing_is_lost() {
        let h1 = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nab";
        let h2 = [PREFACE, &b"\0\0\0\x04\0\0\0\0\0"[..]].concat();
        for piece in [1, 5, 4096] {
            assert_eq!(open(h1, piece).await, (Version::HTTP_11, h1.to_vec()), "{piece}");
            assert_eq!(open(&h2, piece).await, (Version::HTTP_2, h2.clone()), "{piece}");
            assert_eq!(open(b"PRI * HTTP/1.1\r\n", piece).await.0, Version::HTTP_11, "{piece}");
        }
        assert_eq!(open(b"PRI", 4096).await, (Version::HTTP_11, b"PRI".to_vec()));
        assert_eq!(open(b"", 4096).await, (Version::HTTP_11, Vec::new()));
    }
}
