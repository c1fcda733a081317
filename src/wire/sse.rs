//! A scanner for server-sent events (WHATWG HTML, "Interpreting an event stream"), on bytes as they come.
//!
//! It looks and copies as little as it can: an event that lies wholly in one piece of the stream is handed out as it
//! stands there. `id` and `retry` are passed over: nothing here reconnects. On top of the standard it collects JSON that
//! a server writes into the stream without `data:`, which no client of the standard ever sees.

use memchr::{memchr, memchr2};

use super::held::Held;

/// Bytes of one event's data that are looked at. An event with more is skipped unseen.
pub const MAX_EVENT: usize = 1024 * 1024;
/// Bytes of an event's name that are kept.
const MAX_NAME: usize = 64;
/// Bytes before the value in the longest form of a line of data.
const PREFIX: usize = b"data: ".len();
const BOM: &[u8; 3] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The name from its `event` field, empty if there is none; of an absurdly long one, the beginning.
    pub name: &'a [u8],
    /// What it holds.
    pub data: Data<'a>,
    /// Where it ends in the piece fed: just after its blank line.
    pub end: usize,
}

/// What an event holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// Its data, lines joined with LF.
    Whole(&'a [u8]),
    /// No event: an object or array of JSON that stands bare in the stream.
    Raw(&'a [u8]),
    /// More data than is looked at.
    TooLarge,
}

/// The state between two pieces of a stream.
#[derive(Debug)]
pub struct Scanner {
    max: usize,
    /// Bytes of a byte order mark that have come; all three: it is there, or it is none.
    bom: usize,
    /// The beginning of a line whose end has not come.
    line: Held,
    /// The last byte was a CR: an LF that comes next is part of the same line end.
    after_cr: bool,
    /// The last line ended in CR LF.
    crlf: bool,
    /// Some line of an event has come, and not its blank line.
    open: bool,
    /// The event has a line of data.
    has_data: bool,
    /// That data, unless it lies in the piece being fed.
    data: Held,
    name: Name,
    raw: Option<Box<Raw>>,
    /// Something other than comments and blanks has come.
    filled: bool,
    /// The stream is over, and this was needed to close it, and whether it was between two events.
    ended: Option<(&'static [u8], bool)>,
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner::with_limit(MAX_EVENT)
    }
}

impl Scanner {
    fn with_limit(max: usize) -> Self {
        Scanner {
            max,
            bom: 0,
            line: Held::default(),
            after_cr: false,
            crlf: false,
            open: false,
            has_data: false,
            data: Held::default(),
            name: Name::default(),
            raw: None,
            filled: false,
            ended: None,
        }
    }

    /// Reads the next piece of the stream and hands out each event that ends in it. Returns how many of the bytes stand
    /// before the last point between two events: what comes after belongs to one that has not ended.
    pub fn feed(&mut self, bytes: &[u8], mut on: impl FnMut(Event<'_>)) -> usize {
        let mut at = self.begin(bytes);
        let mut whole = if self.is_between() { at } else { 0 };
        let mut here = None;
        while let Some(length) = memchr2(b'\r', b'\n', &bytes[at..]) {
            let line = &bytes[at..at + length];
            at = self.line_end(bytes, at + length);
            if !self.line.is_empty() {
                self.held_line(line, &mut here, at, &mut on);
            } else {
                match field(line) {
                    Field::Data(value) if !self.has_data => {
                        self.first_data();
                        here = Some(value);
                    }
                    field => self.field(field, &mut here, at, &mut on),
                }
            }
            if self.is_between() {
                whole = at;
            }
        }
        self.line.push(&bytes[at..], self.max.saturating_add(PREFIX));
        self.settle(&mut here);
        whole
    }

    /// The stream has ended: hands out a last event that has no blank line. What the other methods say stays as it was.
    pub fn finish(&mut self, mut on: impl FnMut(Event<'_>)) {
        self.ended.get_or_insert((self.closing(), self.is_between()));
        let mut here = None;
        if !self.line.is_empty() {
            self.held_line(b"", &mut here, 0, &mut on);
        }
        self.field(Field::Blank, &mut here, 0, &mut on);
    }

    /// Between two events: not inside a line, and nothing of an event since the last blank line.
    pub fn is_between(&self) -> bool {
        let between = self.line.is_empty() && !self.open && self.raw.is_none() && !matches!(self.bom, 1 | 2);
        self.ended.map_or(between, |(_, between)| between)
    }

    /// Nothing but comments and blanks has come.
    pub fn is_blank(&self) -> bool {
        let line = self.line.bytes();
        !self.filled && (line.first() == Some(&b':') || line.trim_ascii().is_empty() && !self.line.over())
    }

    /// What ends an event that was cut off, in the stream's own line ends, so that the next stands by itself.
    pub fn closing(&self) -> &'static [u8] {
        if let Some((closing, _)) = self.ended {
            return closing;
        }
        let (open, line) = (self.open || self.raw.is_some(), !self.line.is_empty() || matches!(self.bom, 1 | 2));
        match (line, open, self.after_cr, self.crlf) {
            (true, _, _, true) => b"\r\n\r\n",
            (true, _, _, false) => b"\n\n",
            // The first LF is taken as the end of the CR's line.
            (_, true, true, true) => b"\n\r\n",
            (_, true, true, false) => b"\n\n",
            (_, true, false, true) => b"\r\n",
            (_, true, false, false) => b"\n",
            (_, false, true, _) => b"\n",
            (_, false, false, _) => b"",
        }
    }

    /// The line end that this stream uses.
    pub fn newline(&self) -> &'static str {
        if self.crlf { "\r\n" } else { "\n" }
    }

    /// Passes over what belongs before the first line: a byte order mark, or the LF of a CR that came before.
    fn begin(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        if let Some(first) = bytes.first().filter(|_| self.after_cr) {
            (self.after_cr, self.crlf) = (false, *first == b'\n');
            at = usize::from(self.crlf);
        }
        while self.bom < BOM.len() && at < bytes.len() {
            if bytes[at] == BOM[self.bom] {
                (self.bom, at) = (self.bom + 1, at + 1);
            } else {
                self.line.push(&BOM[..self.bom], self.max);
                self.bom = BOM.len();
            }
        }
        at
    }

    /// Where the next line begins, after the line end at `stop`.
    fn line_end(&mut self, bytes: &[u8], stop: usize) -> usize {
        let cr = bytes[stop] == b'\r';
        let next = bytes.get(stop + 1);
        let pair = cr && next == Some(&b'\n');
        self.after_cr = cr && next.is_none();
        // With the LF still to come, what the lines before ended in is the better guess.
        self.crlf = pair || self.after_cr && self.crlf;
        stop + 1 + usize::from(pair)
    }

    /// A line whose beginning came in an earlier piece.
    fn held_line(&mut self, rest: &[u8], here: &mut Option<&[u8]>, end: usize, on: &mut impl FnMut(Event<'_>)) {
        self.line.push(rest, self.max.saturating_add(PREFIX));
        let mut line = std::mem::take(&mut self.line);
        match field(line.bytes()) {
            Field::Data(_) if line.over() => {
                self.first_data();
                self.data.overflow();
            }
            Field::Data(value) if !self.has_data && value.len() <= self.max => {
                self.first_data();
                line.skip(line.bytes().len() - value.len());
                std::mem::swap(&mut self.data, &mut line);
            }
            Field::Other(_) if line.over() => (self.open, self.filled, self.raw) = (true, true, None),
            field => self.field(field, here, end, on),
        }
        line.clear();
        self.line = line;
    }

    fn first_data(&mut self) {
        (self.open, self.filled, self.has_data, self.raw) = (true, true, true, None);
    }

    fn field(&mut self, field: Field<'_>, here: &mut Option<&[u8]>, end: usize, on: &mut impl FnMut(Event<'_>)) {
        match field {
            Field::Blank => self.dispatch(here.take(), end, on),
            Field::Comment => self.raw = None,
            Field::Data(value) => {
                self.settle(here);
                if self.has_data {
                    self.data.push(b"\n", self.max);
                }
                self.first_data();
                self.data.push(value, self.max);
            }
            Field::Name(value) => {
                (self.open, self.filled, self.raw) = (true, true, None);
                self.name = Name::new(value);
            }
            Field::Other(line) => self.other(line, end, on),
        }
    }

    /// A line that says nothing to us, or is part of bare JSON.
    fn other(&mut self, line: &[u8], end: usize, on: &mut impl FnMut(Event<'_>)) {
        self.filled |= !line.trim_ascii().is_empty();
        if self.raw.is_none() && !self.has_data && matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) {
            self.raw = Some(Box::default());
        }
        let Some(raw) = &mut self.raw else {
            self.open = true;
            return;
        };
        raw.push(line, self.max);
        if raw.bytes.over() {
            (self.raw, self.open) = (None, true);
        } else if raw.depth == 0 {
            on(Event { name: b"", data: Data::Raw(raw.bytes.bytes()), end });
            self.raw = None;
        }
    }

    /// The end of an event. One without data is none, says the standard.
    fn dispatch(&mut self, here: Option<&[u8]>, end: usize, on: &mut impl FnMut(Event<'_>)) {
        if self.has_data {
            let data = match here {
                Some(value) if value.len() <= self.max => Data::Whole(value),
                None if !self.data.over() => Data::Whole(self.data.bytes()),
                _ => Data::TooLarge,
            };
            on(Event { name: self.name.bytes(), data, end });
            self.data.clear();
        }
        (self.open, self.has_data, self.name) = (false, false, Name::default());
    }

    /// Keeps data that lies in a piece which is about to go.
    fn settle(&mut self, here: &mut Option<&[u8]>) {
        if let Some(value) = here.take() {
            self.data.push(value, self.max);
        }
    }
}

/// What a line is.
enum Field<'a> {
    Blank,
    Comment,
    Data(&'a [u8]),
    Name(&'a [u8]),
    /// A field that means nothing to us, or no field.
    Other(&'a [u8]),
}

fn field(line: &[u8]) -> Field<'_> {
    let value = |rest: &'_ [u8]| -> usize { usize::from(rest.first() == Some(&b' ')) };
    if let Some(rest) = line.strip_prefix(b"data:") {
        return Field::Data(&rest[value(rest)..]);
    }
    match (line.first(), memchr(b':', &line[..line.len().min(b"event:".len())])) {
        (None, _) => Field::Blank,
        (Some(b':'), _) => Field::Comment,
        (_, Some(5)) if line.starts_with(b"event") => Field::Name(&line[6 + value(&line[6..])..]),
        _ if line == b"data" => Field::Data(b""),
        _ if line == b"event" => Field::Name(b""),
        _ => Field::Other(line),
    }
}

/// An event's name, without a place on the heap.
#[derive(Debug, Clone, Copy)]
struct Name {
    bytes: [u8; MAX_NAME],
    length: u8,
}

impl Default for Name {
    fn default() -> Self {
        Name { bytes: [0; MAX_NAME], length: 0 }
    }
}

impl Name {
    fn new(value: &[u8]) -> Name {
        let mut name = Name::default();
        let kept = &value[..value.len().min(MAX_NAME)];
        name.bytes[..kept.len()].copy_from_slice(kept);
        name.length = kept.len() as u8;
        name
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// JSON that stands bare in the stream: it ends where its brackets do.
#[derive(Debug, Default)]
struct Raw {
    bytes: Held,
    depth: u32,
    string: bool,
    escape: bool,
}

impl Raw {
    fn push(&mut self, line: &[u8], max: usize) {
        for byte in line {
            match byte {
                _ if self.escape => self.escape = false,
                b'\\' => self.escape = self.string,
                b'"' => self.string = !self.string,
                b'{' | b'[' if !self.string => self.depth = self.depth.saturating_add(1),
                b'}' | b']' if !self.string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.bytes.push(line, max);
        self.bytes.push(b"\n", max);
    }
}

#[cfg(test)]
mod tests;
