//! A connection whose writes may fail while its answer is still to be read.
//!
//! An upstream that turns an upload away (413, 401) often answers and closes without reading on. The reset then meets our
//! write before hyper has read the answer, and hyper gives the whole exchange up. The answer is in the kernel all the same:
//! so a write that is refused is swallowed, and reading goes on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether a connection's writes are being swallowed: then it is good for one answer more, and for no request.
#[derive(Debug, Clone, Default)]
pub(super) struct Refused(Arc<AtomicBool>);

impl Refused {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The layer.
pub(super) struct Tolerant<T> {
    inner: T,
    refused: Refused,
}

impl<T> Tolerant<T> {
    pub(super) fn new(inner: T) -> (Self, Refused) {
        let refused = Refused::default();
        (Tolerant { inner, refused: refused.clone() }, refused)
    }

    /// `length` bytes count as written if the other side takes no more.
    fn swallow(&self, written: io::Result<usize>, length: usize) -> io::Result<usize> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match written {
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted) => {
                self.refused.0.store(true, Ordering::Relaxed);
                Ok(length)
            }
            other => other,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Tolerant<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Tolerant<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.refused.is_set() {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        Poll::Ready(self.swallow(written, buf.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        if self.refused.is_set() {
            return Poll::Ready(Ok(length));
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs));
        Poll::Ready(self.swallow(written, length))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refused.is_set() {
            return Poll::Ready(Ok(()));
        }
        let flushed = ready!(Pin::new(&mut self.inner).poll_flush(cx)).map(|()| 0);
        Poll::Ready(self.swallow(flushed, 0).map(drop))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
