//! A switched protocol (WebSocket): after the 101, bytes go both ways untouched until either side ends.

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use crate::opening::{Opening, Reply};
use crate::wire::hop;

/// A client's wish to switch.
pub struct Switch {
    protocol: HeaderValue,
    client: OnUpgrade,
}

/// The switch that a request asks for, if it does.
pub fn asked(request: &mut Request<Incoming>) -> Option<Switch> {
    let protocol = hop::upgrade(request.headers()).filter(|_| request.version() == Version::HTTP_11)?.clone();
    Some(Switch { protocol, client: hyper::upgrade::on(request) })
}

impl Switch {
    /// If the upstream switched, connect the two sides as soon as both have; `None` if it did not.
    pub fn accepted(self, opening: &mut Opening) -> Option<HeaderValue> {
        let Reply::Upstream(answer) = &mut opening.reply else { return None };
        if answer.status != StatusCode::SWITCHING_PROTOCOLS {
            return None;
        }
        let upstream = answer.extensions.remove::<OnUpgrade>()?;
        let client = self.client;
        tokio::spawn(async move {
            match tokio::try_join!(client, upstream) {
                Ok((client, upstream)) => carry(client, upstream).await,
                Err(error) => tracing::debug!(%error, "a protocol switch came to nothing"),
            }
        });
        Some(self.protocol)
    }
}

/// `Connection` and `Upgrade` end at a proxy, but a 101 is told with them.
pub fn announce(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

async fn carry(client: Upgraded, upstream: Upgraded) {
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut upstream).await {
        tracing::debug!(%error, "a tunnel ended");
    }
}
