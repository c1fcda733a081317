//! A second look at the framing of HTTP/1.1 requests, stricter than a parser that must be kind to everyone.
//!
//! Two parsers that read one message in two ways are how requests are smuggled (RFC 9112 section 11.2). hyper follows the
//! RFC, which lets `Transfer-Encoding` win over `Content-Length`, takes a repeated length, and a bare LF as line end. We
//! turn such requests away: this scanner walks along the bytes as they are read and says which request is in doubt.
//! Bound: one line of at most `MAX_LINE` bytes, and `MAX_HEAD` bytes of head.

/// The longest header line, in bytes.
const MAX_LINE: usize = 64 * 1024;
/// The longest request head, in bytes.
pub const MAX_HEAD: usize = 256 * 1024;

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// A line end that is not CRLF, or a control character.
    LineEnd,
    /// A header line that continues the one before.
    Folded,
    /// No name, a space before the colon, or no colon.
    HeaderLine,
    /// More than one length, or one that is no number.
    Length,
    /// A transfer coding other than chunked alone, or one under HTTP/1.0.
    Coding,
    /// Both a length and a transfer coding.
    Both,
    /// More than one Host.
    Host,
    /// Head too long.
    TooLong,
    /// The chunks before it could not be followed.
    Chunks,
}

impl Doubt {
    /// For people.
    pub const fn describe(self) -> &'static str {
        match self {
            Doubt::LineEnd => "a line of the request head does not end in CRLF, or holds a control character",
            Doubt::Folded => "a header line is folded (begins with white space)",
            Doubt::HeaderLine => "a header line has no name, no colon, or a space before the colon",
            Doubt::Length => "Content-Length is repeated or is no number",
            Doubt::Coding => "Transfer-Encoding is anything but a single \"chunked\"",
            Doubt::Both => "the request has both Content-Length and Transfer-Encoding",
            Doubt::Host => "the request has more than one Host",
            Doubt::TooLong => "the request head is too long",
            Doubt::Chunks => "the chunks of the request before this one are not well formed",
        }
    }
}

/// Walks along one connection.
#[derive(Debug, Default)]
pub struct Framing {
    state: State,
    line: Vec<u8>,
    head: Head,
    /// Heads that are complete, or in doubt.
    heads: u64,
    doubt: Option<(u64, Doubt)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before and in the head of a request.
    #[default]
    Head,
    /// So many bytes of body are to come.
    Sized(u64),
    /// A chunk's size line is to come.
    ChunkSize,
    /// So many bytes of a chunk, its line end included, are to come.
    Chunk(u64),
    /// Trailers, up to an empty line.
    Trailers,
    /// HTTP/2, a switched protocol, or in doubt: nothing more is looked at.
    Off,
}

#[derive(Debug, Default)]
struct Head {
    size: usize,
    begun: bool,
    old: bool,
    length: Option<u64>,
    chunked: bool,
    host: bool,
}

impl Framing {
    /// The next bytes, in any split.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.state != State::Off {
            bytes = match self.state {
                State::Sized(left) => self.skip(bytes, left, State::Sized, State::Head),
                State::Chunk(left) => self.skip(bytes, left, State::Chunk, State::ChunkSize),
                _ => self.take_line(bytes),
            };
        }
    }

    /// Stop looking: the protocol was switched.
    pub fn stop(&mut self) {
        self.state = State::Off;
    }

    /// Why request number `n` (from 0) is in doubt, if it is.
    pub fn doubt(&self, n: u64) -> Option<Doubt> {
        self.doubt.filter(|(at, _)| *at <= n).map(|(_, doubt)| doubt)
    }

    /// No request is half read.
    pub fn is_between(&self) -> bool {
        self.state == State::Head && !self.head.begun && self.line.is_empty()
    }

    /// A whole head was seen, or something else than HTTP/1 was.
    pub fn is_past_first_head(&self) -> bool {
        self.heads > 0 || self.state == State::Off
    }

    fn skip<'a>(&mut self, bytes: &'a [u8], left: u64, more: impl Fn(u64) -> State, done: State) -> &'a [u8] {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - here as u64;
        self.state = if left == 0 { done } else { more(left) };
        &bytes[here..]
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.line.extend_from_slice(bytes);
            if self.line.len() > MAX_LINE {
                self.fail(Doubt::TooLong);
            }
            return &[];
        };
        let (line, rest) = bytes.split_at(end + 1);
        if self.line.is_empty() {
            self.whole_line(line);
        } else {
            self.line.extend_from_slice(line);
            let line = std::mem::take(&mut self.line);
            self.whole_line(&line);
        }
        rest
    }

    fn whole_line(&mut self, line: &[u8]) {
        let Some(line) = line.strip_suffix(b"\r\n") else { return self.fail(Doubt::LineEnd) };
        if line.iter().any(|byte| matches!(byte, 0 | b'\r')) {
            return self.fail(Doubt::LineEnd);
        }
        match self.state {
            State::ChunkSize => self.chunk_size(line),
            State::Trailers if line.is_empty() => self.state = State::Head,
            State::Trailers => {}
            _ => self.head_line(line),
        }
    }

    fn head_line(&mut self, line: &[u8]) {
        self.head.size += line.len() + 2;
        if self.head.size > MAX_HEAD {
            return self.fail(Doubt::TooLong);
        }
        if !self.head.begun {
            // Empty lines before a request are passed over (RFC 9112 section 2.2).
            if line == b"PRI * HTTP/2.0" && self.heads == 0 {
                self.stop();
            } else if !line.is_empty() {
                self.head = Head { size: line.len(), begun: true, old: line.ends_with(b"HTTP/1.0"), ..Head::default() };
            }
            return;
        }
        if line.is_empty() {
            return self.head_end();
        }
        if let Err(doubt) = self.head.header(line) {
            self.fail(doubt);
        }
    }

    fn head_end(&mut self) {
        let head = std::mem::take(&mut self.head);
        match (head.chunked, head.length) {
            (true, Some(_)) => return self.fail(Doubt::Both),
            (true, None) if head.old => return self.fail(Doubt::Coding),
            (true, None) => self.state = State::ChunkSize,
            (false, Some(length)) if length > 0 => self.state = State::Sized(length),
            (false, _) => self.state = State::Head,
        }
        self.heads += 1;
    }

    fn chunk_size(&mut self, line: &[u8]) {
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let text = std::str::from_utf8(digits).unwrap_or_default();
        match u64::from_str_radix(text, 16) {
            Ok(0) => self.state = State::Trailers,
            Ok(size) if !text.starts_with('+') => self.state = State::Chunk(size.saturating_add(2)),
            _ => self.fail(Doubt::Chunks),
        }
    }

    fn fail(&mut self, doubt: Doubt) {
        self.doubt = Some((self.heads, doubt));
        self.heads += 1;
        self.line = Vec::new();
        self.state = State::Off;
    }
}

impl Head {
    fn header(&mut self, line: &[u8]) -> Result<(), Doubt> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(Doubt::Folded);
        }
        let colon = memchr::memchr(b':', line).ok_or(Doubt::HeaderLine)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.ends_with(b" ") || name.ends_with(b"\t") {
            return Err(Doubt::HeaderLine);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let plain = !value.is_empty() && value.iter().all(u8::is_ascii_digit) && self.length.is_none();
            let length = std::str::from_utf8(value).ok().filter(|_| plain).and_then(|digits| digits.parse().ok());
            self.length = Some(length.ok_or(Doubt::Length)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Doubt::Coding);
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            if self.host {
                return Err(Doubt::Host);
            }
            self.host = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "POST /v1/x HTTP/1.1\r\nhost: h\r\n";

    fn scan(bytes: &[u8]) -> Framing {
        let mut framing = Framing::default();
        framing.feed(bytes);
        framing
    }

    #[test]
    fn doubtful_framing_is_seen() {
        for (extra, doubt) in [
            ("content-length: 2\r\ntransfer-encoding: chunked\r\n", Doubt::Both),
            ("transfer-encoding: chunked\r\ncontent-length: 2\r\n", Doubt::Both),
            ("content-length: 2\r\ncontent-length: 2\r\n", Doubt::Length),
            ("content-length: 2, 44\r\n", Doubt::Length),
            ("content-length: +2\r\n", Doubt::Length),
            ("content-length:\r\n", Doubt::Length),
            ("content-length: 18446744073709551618\r\n", Doubt::Length),
            ("transfer-encoding: chunked, identity\r\n", Doubt::Coding),
            ("transfer-encoding: xchunked\r\n", Doubt::Coding),
            ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", Doubt::Coding),
            ("x-a: 1\r\n folded\r\n", Doubt::Folded),
            ("content-length : 2\r\n", Doubt::HeaderLine),
            (": v\r\n", Doubt::HeaderLine),
            ("x-a: 1\ntransfer-encoding: chunked\r\n", Doubt::LineEnd),
            ("x-a: 1\rtransfer-encoding: chunked\r\n", Doubt::LineEnd),
            ("x-a: \0\r\n", Doubt::LineEnd),
            ("host: other\r\n", Doubt::Host),
        ] {
            assert_eq!(scan(format!("{HEAD}{extra}\r\n").as_bytes()).doubt(0), Some(doubt), "{extra:?}");
        }
        assert_eq!(scan(b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n").doubt(0), Some(Doubt::Coding));
    }

    #[test]
    fn bodies_are_walked_over_and_a_later_request_is_seen() {
        let good = format!(
            "\r\n{HEAD}content-length: 5\r\n\r\nab\r\nc{HEAD}transfer-encoding: Chunked\r\n\r\n4;x=y\r\na\r\nb\r\n0\r\nx-t: 1\r\n\r\nGET / HTTP/1.1\r\nhost: h\r\n\r\n"
        );
        let framing = scan(good.as_bytes());
        assert_eq!((framing.heads, framing.doubt, framing.is_between()), (3, None, true));
        let bad = scan(format!("{good}{HEAD}content-length: 1\r\ncontent-length: 2\r\n\r\n").as_bytes());
        assert_eq!((bad.doubt(2), bad.doubt(3), bad.doubt(4)), (None, Some(Doubt::Length), Some(Doubt::Length)));
    }

    #[test]
    fn http2_is_left_alone() {
        let framing = scan(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\n");
        assert!(framing.doubt.is_none() && framing.is_past_first_head());
    }

    #[test]
    fn an_endless_head_is_bounded() {
        let mut framing = scan(HEAD.as_bytes());
        for _ in 0..10_000 {
            framing.feed(b"x-a: 1234567890123456789012345678901234567890\r\n");
        }
        assert_eq!(framing.doubt(0), Some(Doubt::TooLong));
        let mut framing = Framing::default();
        for _ in 0..100 {
            framing.feed(&[b'a'; 1000]);
        }
        assert_eq!(framing.doubt(0), Some(Doubt::TooLong));
    }

    proptest! {
        #[test]
        fn any_split_sees_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200), cuts in proptest::collection::vec(0usize..400, 0..8)) {
            let text = [format!("{HEAD}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n{HEAD}").as_bytes(), &bytes, b"\r\n\r\n"].concat();
            let whole = scan(&text);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut pieces = Framing::default();
            for pair in cuts.windows(2) {
                pieces.feed(&text[pair[0]..pair[1]]);
            }
            prop_assert_eq!((whole.heads, whole.doubt), (pieces.heads, pieces.doubt));
        }
    }
}
