//! An answer as it is stored for the next process, and what it is made of and becomes again: a [`Transcript`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::table::OVERHEAD;
use super::{Head, Transcript, on_wire};
use crate::admission::memory::Fingerprint;
use crate::reply::Outcome;

/// A finished answer, apart from any process. It has no key, no credential and nothing of the request but digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its place: key, credential, upstream, method and path, digested.
    pub name: Fingerprint,
    /// The request's body, digested.
    pub body: Fingerprint,
    /// It is given again until then.
    pub until: SystemTime,
    upstream: Arc<str>,
    /// How it came to it was known when its head was sent.
    told: bool,
    stream: bool,
    head: Vec<u8>,
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
}

type Pair<'a> = (&'a [u8], &'a [u8]);

/// A row of the store, borrowed: name, body, until (ms since 1970), upstream, told, stream, head, pieces, trailers.
pub(super) type Row<'a> =
    (&'a [u8; 16], &'a [u8; 16], u64, &'a str, bool, bool, &'a [u8], Vec<&'a [u8]>, Option<Vec<Pair<'a>>>);

impl Stored {
    /// What is stored of a record; `None`: it has come to no good end, or is too long to be kept.
    pub async fn of(name: Fingerprint, body: Fingerprint, until: SystemTime, record: &Transcript) -> Option<Stored> {
        let (head, pieces, trailers) = record.whole()?;
        Some(Stored {
            name,
            body,
            until,
            upstream: head.upstream,
            told: head.told.is_some(),
            stream: head.stream,
            head: on_wire::write(head.status, &head.headers, &head.extensions).await?,
            pieces,
            trailers,
        })
    }

    /// The record that it was; `None`: it can't be read.
    pub async fn record(self) -> Option<Arc<Transcript>> {
        let (status, headers, extensions) = on_wire::read(&self.head).await?;
        // A client that is given it again is told of no attempts.
        let told = self.told.then_some((Outcome::Success, 0));
        let head = Head { status, headers, extensions, told, upstream: self.upstream, stream: self.stream };
        Some(Transcript::of(head, self.pieces, self.trailers))
    }

    /// One of a size.
    #[cfg(test)]
    pub(super) fn sized(name: Fingerprint, size: usize, until: SystemTime) -> Stored {
        let (upstream, pieces) = ("u".into(), vec![vec![b'x'; size].into()]);
        Stored {
            name,
            body: name,
            until,
            upstream,
            told: true,
            stream: false,
            head: Vec::new(),
            pieces,
            trailers: None,
        }
    }

    /// Bytes that count as kept.
    pub fn size(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.head.len() + OVERHEAD
    }

    pub(super) fn with_row<R>(&self, put: impl FnOnce(Row<'_>) -> R) -> R {
        let (name, body) = (self.name.bytes(), self.body.bytes());
        let until = self.until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        let pieces = self.pieces.iter().map(|piece| &piece[..]).collect();
        let pair =
            |(name, value): (&'_ HeaderName, &'_ HeaderValue)| (name.as_str().as_bytes().to_vec(), value.clone());
        let trailers: Option<Vec<_>> = self.trailers.as_ref().map(|trailers| trailers.iter().map(pair).collect());
        let trailers = trailers
            .as_ref()
            .map(|trailers| trailers.iter().map(|(name, value)| (&name[..], value.as_bytes())).collect());
        put((name, body, until, &self.upstream, self.told, self.stream, &self.head, pieces, trailers))
    }

    /// `None`: what is in it can't be.
    pub(super) fn from_row(
        (name, body, until, upstream, told, stream, head, pieces, trailers): Row<'_>,
    ) -> Option<Self> {
        Some(Stored {
            name: Fingerprint::from_bytes(*name),
            body: Fingerprint::from_bytes(*body),
            until: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(until))?,
            upstream: upstream.into(),
            told,
            stream,
            head: head.to_vec(),
            pieces: pieces.into_iter().map(Bytes::copy_from_slice).collect(),
            trailers: trailers.map(header_map).transpose().ok()?,
        })
    }
}

fn header_map(pairs: Vec<Pair<'_>>) -> Result<HeaderMap, http::Error> {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(HeaderName::from_bytes(name)?, HeaderValue::from_bytes(value)?);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use hyper::ext::ReasonPhrase;

    use super::*;

    #[tokio::test]
    async fn a_head_is_read_as_it_was_written() {
        let wire =
            b"HTTP/1.1 203 Not My Own\r\nX-Odd-Case: 1\r\nset-cookie: a\r\nSet-Cookie: b\r\nContent-LENGTH: 7\r\n\
            empty:\r\nx-latin: \xe9\r\n\r\n";
        let (status, headers, extensions) = on_wire::read(wire).await.unwrap();
        assert_eq!((status.as_u16(), headers.len()), (203, 6));
        assert_eq!(extensions.get::<ReasonPhrase>().unwrap().as_bytes(), b"Not My Own");
        assert_eq!(on_wire::write(status, &headers, &extensions).await.unwrap(), wire);
    }

    #[tokio::test]
    async fn what_is_no_head_is_none() {
        for wire in
            [&b""[..], b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", &[0; 600_000]]
        {
            assert!(on_wire::read(wire).await.is_none(), "{} bytes", wire.len());
        }
    }
}
