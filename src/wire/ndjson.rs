//! A scanner for JSON documents that come one a line.

use memchr::memchr;

use super::held::Held;
use super::sse::{Data, Event, MAX_EVENT};

/// The state between two pieces of a stream. Lines of more than [`MAX_EVENT`] are skipped unseen.
#[derive(Debug, Default)]
pub struct Scanner {
    /// The beginning of a line whose end has not come.
    line: Held,
    /// Something other than blanks has come.
    filled: bool,
}

impl Scanner {
    /// Reads the next piece of the stream and hands out each line that ends in it, blank ones aside. Returns how many of
    /// the bytes stand before the last line's end.
    pub fn feed(&mut self, bytes: &[u8], mut on: impl FnMut(Event<'_>)) -> usize {
        let mut at = 0;
        while let Some(length) = memchr(b'\n', &bytes[at..]) {
            let (line, end) = (&bytes[at..at + length], at + length + 1);
            if self.line.is_empty() {
                self.filled |= hand_out(line, line.len() > MAX_EVENT, end, &mut on);
            } else {
                self.line.push(line, MAX_EVENT);
                self.filled |= hand_out(self.line.bytes(), self.line.over(), end, &mut on);
                self.line.clear();
            }
            at = end;
        }
        self.line.push(&bytes[at..], MAX_EVENT);
        at
    }

    /// The stream has ended: hands out a last line that has no end. [`Self::closing`] stays as it was.
    pub fn finish(&mut self, mut on: impl FnMut(Event<'_>)) {
        hand_out(self.line.bytes(), self.line.over(), 0, &mut on);
    }

    /// Not inside a line.
    pub fn is_between(&self) -> bool {
        self.line.is_empty()
    }

    /// Nothing but blanks has come.
    pub fn is_blank(&self) -> bool {
        !self.filled && self.line.bytes().trim_ascii().is_empty() && !self.line.over()
    }

    /// What ends a line that was cut off, so that the next stands by itself.
    pub fn closing(&self) -> &'static [u8] {
        if self.is_between() { b"" } else { b"\n" }
    }
}

/// Whether there is something in the line.
fn hand_out(line: &[u8], over: bool, end: usize, on: &mut impl FnMut(Event<'_>)) -> bool {
    let line = line.trim_ascii();
    if over {
        on(Event { name: b"", data: Data::TooLarge, end });
    } else if !line.is_empty() {
        on(Event { name: b"", data: Data::Whole(line), end });
    }
    over || !line.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Scanner) {
        let (mut seen, mut scanner) = (Vec::new(), Scanner::default());
        let mut keep = |e: Event<'_>| match e.data {
            Data::Whole(d) => seen.push(d.to_vec()),
            _ => seen.push(b"too large".to_vec()),
        };
        for piece in pieces {
            scanner.feed(piece, &mut keep);
        }
        scanner.finish(&mut keep);
        (seen, scanner)
    }

    #[test]
    fn lines() {
        let (seen, scanner) = scan(&[b"{\"a\"", b":1}\r\n\n \n{}\n", b"{\"b\":2}"]);
        assert_eq!(seen, [&b"{\"a\":1}"[..], b"{}", b"{\"b\":2}"]);
        assert_eq!((scanner.is_between(), scanner.closing()), (false, &b"\n"[..]));
        assert!(scan(&[b"\n \r\n", b"  "]).1.is_blank());
        assert_eq!(Scanner::default().feed(b"{}\n{}\n{", |_| {}), 6);
    }

    #[test]
    fn a_line_without_bounds_is_skipped() {
        let big = vec![b'x'; MAX_EVENT + 1];
        assert_eq!(scan(&[&big, b"\n{}\n"]).0, [&b"too large"[..], b"{}"]);
        assert_eq!(scan(&[&[&big[..], b"\n{}\n"].concat()]).0, [&b"too large"[..], b"{}"]);
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_same_lines(text in "[ab{}\n\r ]{0,60}", cuts in proptest::collection::vec(1usize..8, 1..20)) {
            let (mut rest, mut pieces) = (text.as_bytes(), Vec::new());
            for cut in cuts.iter().cycle().take(80) {
                let (piece, more) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            let (whole, cut) = (scan(&[text.as_bytes()]), scan(&pieces));
            prop_assert_eq!(whole.0, cut.0);
            prop_assert_eq!((whole.1.is_between(), whole.1.is_blank()), (cut.1.is_between(), cut.1.is_blank()));
        }
    }
}
