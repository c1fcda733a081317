//! Content encodings undone, for looking at a body only: what the client gets are the upstream's own bytes.

use std::io::{BufRead, Read};

use brotli_decompressor::Decompressor;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use ruzstd::decoding::StreamingDecoder;

/// More encodings than this on one body are an attack, not a habit.
const MAX_STACKED: usize = 4;
/// Bytes of brotli's input buffer.
const BROTLI_BUFFER: usize = 4096;

/// A body that was encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The plain bytes, at most as many as asked for. Of a stream that breaks off or goes bad: what came before.
    pub body: Vec<u8>,
    /// There would have been more than the bound.
    pub cut: bool,
}

/// Whether the headers name an encoding that [`decode`] would have to undo.
pub fn encoded(headers: &HeaderMap) -> bool {
    names(headers).is_none_or(|names| !names.is_empty())
}

/// Undoes what `Content-Encoding` names, the last one first, giving at most `limit` bytes (each stage is held to it, so
/// that a bomb costs no more than that). `None`: an encoding that we do not know, or bytes that are none of it.
pub fn decode(headers: &HeaderMap, body: &[u8], limit: usize) -> Option<Decoded> {
    let mut names = names(headers)?;
    let Some(last) = names.pop() else {
        let cut = body.len() > limit;
        return Some(Decoded { body: body[..body.len().min(limit)].to_vec(), cut });
    };
    let mut decoded = undo(&last, body, limit)?;
    while let Some(name) = names.pop() {
        let outer_cut = decoded.cut;
        decoded = undo(&name, &decoded.body, limit)?;
        decoded.cut |= outer_cut;
    }
    Some(decoded)
}

/// The encodings in the order in which they were applied, without `identity`. `None` where they cannot be read.
fn names(headers: &HeaderMap) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        for name in value.to_str().ok()?.split(',').map(|n| n.trim().to_ascii_lowercase()) {
            if !name.is_empty() && name != "identity" {
                names.push(name);
            }
        }
    }
    (names.len() <= MAX_STACKED).then_some(names)
}

fn undo(name: &str, body: &[u8], limit: usize) -> Option<Decoded> {
    match name {
        "gzip" | "x-gzip" => read(MultiGzDecoder::new(body), limit),
        // RFC 9110 means zlib by "deflate"; some servers send the bare stream.
        "deflate" => read(ZlibDecoder::new(body), limit).or_else(|| read(DeflateDecoder::new(body), limit)),
        "br" => read(Decompressor::new(body, BROTLI_BUFFER), limit),
        "zstd" => read(Frames { input: body, frame: None }, limit),
        _ => None,
    }
}

/// Reads up to `limit` bytes. An error after some output ends it there; an error before any is garbage.
fn read(mut reader: impl Read, limit: usize) -> Option<Decoded> {
    let mut body = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Some(Decoded { body, cut: false }),
            Ok(n) => {
                let room = limit - body.len();
                body.extend_from_slice(&chunk[..n.min(room)]);
                if n > room {
                    return Some(Decoded { body, cut: true });
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) if body.is_empty() => return None,
            Err(_) => return Some(Decoded { body, cut: false }),
        }
    }
}

/// Zstandard frames one after another: a stream that was flushed now and then may hold several.
struct Frames<'a> {
    input: &'a [u8],
    frame: Option<StreamingDecoder<&'a [u8], ruzstd::decoding::FrameDecoder>>,
}

impl Read for Frames<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.frame.is_none() {
                if self.input.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                let frame = StreamingDecoder::new(self.input).map_err(std::io::Error::other)?;
                self.frame = Some(frame);
            }
            let Some(frame) = self.frame.as_mut() else {
                return Ok(0);
            };
            let n = frame.read(out)?;
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            self.input = frame.get_ref();
            self.frame = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const LIMIT: usize = 1 << 16;
    /// "hello" as brotli: one stored block, then the empty last one.
    const BROTLI_HELLO: &[u8] = &[0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];

    fn headers(values: &[&str]) -> HeaderMap {
        let mut h = HeaderMap::new();
        for v in values {
            h.append(CONTENT_ENCODING, v.parse().unwrap());
        }
        h
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut e = GzEncoder::new(Vec::new(), Compression::default());
        e.write_all(body).unwrap();
        e.finish().unwrap()
    }

    fn zlib(body: &[u8]) -> Vec<u8> {
        let mut e = ZlibEncoder::new(Vec::new(), Compression::default());
        e.write_all(body).unwrap();
        e.finish().unwrap()
    }

    fn raw(body: &[u8]) -> Vec<u8> {
        let mut e = DeflateEncoder::new(Vec::new(), Compression::default());
        e.write_all(body).unwrap();
        e.finish().unwrap()
    }

    fn zstd(body: &[u8]) -> Vec<u8> {
        compress_to_vec(body, CompressionLevel::Fastest)
    }

    fn plain(encoding: &str, body: &[u8]) -> Option<Vec<u8>> {
        decode(&headers(&[encoding]), body, LIMIT).map(|d| d.body)
    }

    #[test]
    fn every_encoding_alone() {
        let hello = Some(b"hello".to_vec());
        assert_eq!(plain("identity", b"hello"), hello);
        assert_eq!(plain("gzip", &gzip(b"hello")), hello);
        assert_eq!(plain("X-GZIP", &gzip(b"hello")), hello);
        assert_eq!(plain("deflate", &zlib(b"hello")), hello);
        assert_eq!(plain("deflate", &raw(b"hello")), hello);
        assert_eq!(plain("br", BROTLI_HELLO), hello);
        assert_eq!(plain("zstd", &zstd(b"hello")), hello);
        assert_eq!(plain("zstd", &[zstd(b"hel"), zstd(b"lo")].concat()), hello);
        assert_eq!(plain("gzip", &[gzip(b"hel"), gzip(b"lo")].concat()), hello);
    }

    #[test]
    fn stacked_encodings_come_off_in_reverse() {
        let body = gzip(&zstd(b"hello"));
        for h in [headers(&["zstd, gzip"]), headers(&["zstd", "gzip"]), headers(&["identity,zstd,,gzip"])] {
            assert_eq!(decode(&h, &body, LIMIT).unwrap().body, b"hello");
        }
        assert_eq!(decode(&headers(&["gzip, zstd"]), &body, LIMIT), None);
        assert_eq!(decode(&headers(&["gzip,gzip,gzip,gzip,gzip"]), b"", LIMIT), None);
    }

    #[test]
    fn the_bound_holds() {
        for (name, body) in
            [("gzip", gzip(&[b'a'; 1 << 20])), ("zstd", zstd(&[b'a'; 1 << 20])), ("deflate", raw(&[b'a'; 1 << 20]))]
        {
            let got = decode(&headers(&[name]), &body, 1000).unwrap();
            assert_eq!((got.body.len(), got.cut), (1000, true), "{name}");
        }
        let exact = decode(&headers(&["gzip"]), &gzip(b"hello"), 5).unwrap();
        assert_eq!((exact.body.as_slice(), exact.cut), (&b"hello"[..], false));
        let bare = decode(&HeaderMap::new(), b"hello", 4).unwrap();
        assert_eq!((bare.body.as_slice(), bare.cut), (&b"hell"[..], true));
    }

    #[test]
    fn a_cut_stream_gives_what_came() {
        let text: Vec<u8> = (0..40_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        let whole = gzip(&text);
        let got = decode(&headers(&["gzip"]), &whole[..whole.len() / 2], 1 << 20).unwrap();
        assert!(!got.cut && !got.body.is_empty() && text.starts_with(&got.body));
    }

    #[test]
    fn unknown_or_garbage_is_nothing() {
        assert_eq!(plain("snappy", b"hello"), None);
        for name in ["gzip", "br", "zstd", "deflate"] {
            assert_eq!(plain(name, b"\xff\xfehello"), None, "{name}");
        }
        assert!(encoded(&headers(&["gzip"])) && !encoded(&headers(&["identity"])) && !encoded(&HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(name in prop::sample::select(vec!["gzip", "deflate", "br", "zstd", "gzip, zstd"]), body: Vec<u8>, cut in 0usize..64, flip: u8) {
            let _ = decode(&headers(&[name]), &body, 1000);
            let mut good = if name == "zstd" { zstd(&body) } else { gzip(&body) };
            good.truncate(good.len().saturating_sub(cut));
            if let Some(b) = good.get_mut(flip as usize) {
                *b ^= 0x55;
            }
            let _ = decode(&headers(&[name]), &good, 1000);
        }
    }
}
