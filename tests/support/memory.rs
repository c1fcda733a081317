//! Connections in memory, and the [`Dial`] that opens them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use backstop::upstream::dial::{Dial, Dialed, Dialing};
use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

use super::Upstream;
use super::upstream::Side;

/// What a kernel would hold of a connection, each way.
pub const BUFFER: usize = 64 * 1024;

/// One side of a connection in memory. A reset of the other side is told as an error, as a kernel does.
pub struct Memory {
    io: DuplexStream,
    reset: Arc<AtomicBool>,
}

/// Both sides of a new connection.
pub fn pair() -> (Memory, Memory) {
    let ((one, other), reset) = (duplex(BUFFER), Arc::<AtomicBool>::default());
    (Memory { io: one, reset: reset.clone() }, Memory { io: other, reset })
}

impl Side for Memory {
    fn reset(self) {
        self.reset.store(true, Ordering::SeqCst);
    }
}

impl Memory {
    fn is_reset(&self) -> bool {
        self.reset.load(Ordering::SeqCst)
    }
}

impl AsyncRead for Memory {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() == before && self.is_reset() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Dials a scripted upstream, whatever the target.
pub struct MemoryDial(pub Arc<Upstream>);

impl Dial for MemoryDial {
    fn dial<'a>(&'a self, _: &'a Uri, _: bool) -> Dialing<'a> {
        Box::pin(async move {
            let number = match self.0.dialed() {
                Ok(number) => number,
                Err(step) => {
                    tokio::time::sleep(step.delay).await;
                    return Err(step.refused.expect("a step that refuses"));
                }
            };
            let (ours, theirs) = pair();
            tokio::spawn(self.0.clone().serve(theirs, number));
            Ok(Dialed { io: Box::new(ours), h2: false })
        })
    }
}
