//! The response body, and the way back of its connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::body::Progress;
use super::failure;
use super::pool::{H1, Pool};
use crate::policy::failure::TransportError;

/// An upstream's response body. Read to its end, it gives its connection back; dropped before, it closes it.
pub struct ResponseBody {
    body: Incoming,
    lease: Option<Returnable>,
}

struct Returnable {
    connection: H1,
    /// `None`: the connection is not to be used again.
    pool: Option<Arc<Pool>>,
    progress: Arc<Progress>,
}

impl ResponseBody {
    pub(super) fn h1(body: Incoming, connection: H1, pool: Option<Arc<Pool>>, progress: Arc<Progress>) -> Self {
        let mut body = ResponseBody { body, lease: Some(Returnable { connection, pool, progress }) };
        if body.body.is_end_stream() {
            body.finish();
        }
        body
    }

    pub(super) fn h2(body: Incoming) -> Self {
        ResponseBody { body, lease: None }
    }

    /// An answer that came before its request was whole leaves the connection in the middle of that request.
    fn finish(&mut self) {
        if let Some(Returnable { connection, pool: Some(pool), progress }) = self.lease.take()
            && progress.finished()
        {
            pool.give_back(connection);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            None => self.finish(),
            Some(Ok(_)) if self.body.is_end_stream() => self.finish(),
            _ => {}
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| failure::body(&error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
