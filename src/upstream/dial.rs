//! The seam between HTTP and the network: sockets in production, memory in tests.

use std::future::Future;
use std::pin::Pin;

use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::policy::failure::TransportError;

/// A connection to an upstream, TLS included.
pub struct Dialed {
    /// The bytes.
    pub io: Box<dyn Io>,
    /// HTTP/2 was agreed on by ALPN.
    pub h2: bool,
}

/// What a connection must be able to do.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A dial in progress. Dropping it ends it.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Dialed, TransportError>> + Send + 'a>>;

/// Opens connections.
pub trait Dial: Send + Sync + 'static {
    /// Connect to the scheme, host and port of `target`; offer HTTP/2 if `h2`. Bounded in time by the caller.
    fn dial<'a>(&'a self, target: &'a Uri, h2: bool) -> Dialing<'a>;
}
