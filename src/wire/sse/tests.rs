use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

/// An event as a test likes it: its name and data; `None` for one that is too large.
type Seen = (String, Option<String>);

struct Scanned {
    events: Vec<Seen>,
    raw: Vec<String>,
    scanner: Scanner,
    /// Bytes before the last point between two events.
    whole: usize,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scan_with(mut scanner: Scanner, pieces: &[&[u8]]) -> Scanned {
    let (mut events, mut raw, mut whole, mut fed) = (Vec::new(), Vec::new(), 0, 0);
    for piece in pieces {
        let mut last = 0;
        let boundary = scanner.feed(piece, |event| {
            assert!(event.end > last && event.end <= piece.len());
            // Bare JSON may stand within an event that goes on.
            last = if let Data::Raw(_) = event.data { last } else { event.end };
            match event.data {
                Data::Whole(data) => events.push((text(event.name), Some(text(data)))),
                Data::TooLarge => events.push((text(event.name), None)),
                Data::Raw(json) => raw.push(text(json)),
            }
        });
        assert!(boundary >= last && boundary <= piece.len());
        whole = if boundary > 0 { fed + boundary } else { whole };
        fed += piece.len();
    }
    Scanned { events, raw, scanner, whole }
}

fn scan(stream: &str) -> Scanned {
    scan_with(Scanner::default(), &[stream.as_bytes()])
}

fn seen(name: &str, data: &str) -> Seen {
    (name.to_owned(), Some(data.to_owned()))
}

#[test]
fn by_the_standard() {
    for (stream, want) in [
        ("data: a\n\n", vec![seen("", "a")]),
        ("data:a\n\n", vec![seen("", "a")]),
        ("data:  a \n\n", vec![seen("", " a ")]),
        ("data: a\r\n\r\n", vec![seen("", "a")]),
        ("data: a\r\r", vec![seen("", "a")]),
        ("data: a\r\n\ndata: b\r\r\n", vec![seen("", "a"), seen("", "b")]),
        ("\u{feff}data: a\n\n", vec![seen("", "a")]),
        ("data: a\ndata:b\n\n", vec![seen("", "a\nb")]),
        ("data\ndata\n\n", vec![seen("", "\n")]),
        ("data:\n\n", vec![seen("", "")]),
        ("data: a\nevent: n\n\ndata: b\n\n", vec![seen("n", "a"), seen("", "b")]),
        ("event:n\nid: 1\nretry: 9\n: c\nother\ndata: a\n\n", vec![seen("n", "a")]),
        ("event: n\nevent\ndata: a\n\n", vec![seen("", "a")]),
        ("event: n\n\ndata: a\n\n", vec![seen("", "a")]),
        (": a\n\n:\n\n\n\n", vec![]),
        ("data: a\u{2028}b\u{85}c\u{0b}\n\n", vec![seen("", "a\u{2028}b\u{85}c\u{0b}")]),
        (" data: a\n\ndatax: a\n\nDATA: a\n\n", vec![]),
        ("data: a\n", vec![]),
        ("\n\u{feff}data: a\n\n", vec![]),
    ] {
        assert_eq!(scan(stream).events, want, "{stream:?}");
    }
}

#[test]
fn a_long_name_is_cut() {
    let name = "n".repeat(99);
    assert_eq!(scan(&format!("event: {name}\ndata: a\n\n")).events, [seen(&name[..MAX_NAME], "a")]);
}

#[test]
fn bare_json() {
    let error = "{\n  \"error\": {\n    \"a\": \"}\\\"}\"\n  }\n}\n";
    for stream in
        [format!("data: x\r\n\r\n{error}"), format!("{error}data: x\n\n"), format!("{error}\n: c\n\ndata: x\n\n")]
    {
        let scanned = scan(&stream);
        assert_eq!((scanned.raw, scanned.events), (vec![error.to_owned()], vec![seen("", "x")]), "{stream:?}");
        assert!(scanned.scanner.is_between());
    }
    assert_eq!(scan("[{\n\n}]\n{}\n").raw, ["[{\n}]\n", "{}\n"]);
    // One that never ends gives way to what comes after.
    let scanned = scan("{ oh\n\ndata: x\n\n");
    assert_eq!((scanned.raw.len(), scanned.events), (0, vec![seen("", "x")]));
    // Inside an event it is a field that means nothing.
    let scanned = scan("data: x\n{}\n\n");
    assert_eq!((scanned.raw.len(), scanned.events), (0, vec![seen("", "x")]));
}

#[test]
fn at_the_end_of_the_stream() {
    for (stream, events, raw, closing) in [
        ("data: a", vec![seen("", "a")], 0, "\n\n"),
        ("data: a\n", vec![seen("", "a")], 0, "\n"),
        ("data: a\n\n", vec![], 0, ""),
        ("event: n\ndata: a", vec![seen("n", "a")], 0, "\n\n"),
        ("{\"error\":1}", vec![], 1, "\n\n"),
        ("{\"error\":1", vec![], 0, "\n\n"),
        (": c", vec![], 0, "\n\n"),
    ] {
        let mut scanner = scan(stream).scanner;
        let (mut last, mut bare) = (Vec::new(), 0);
        scanner.finish(|event| match event.data {
            Data::Whole(data) => last.push((text(event.name), Some(text(data)))),
            _ => bare += 1,
        });
        assert_eq!((last, bare, text(scanner.closing()).as_str()), (events, raw, closing), "{stream:?}");
        assert_eq!(scanner.is_between(), closing.is_empty(), "{stream:?}");
    }
}

#[test]
fn what_closes_half_an_event() {
    for (pieces, closing) in [
        (vec![""], ""),
        (vec!["data: a\n\n"], ""),
        (vec!["data: a\n\n: comment\n"], ""),
        (vec!["data: a\r\n\r\n"], ""),
        (vec!["data: a\n\nda"], "\n\n"),
        (vec!["data: a\n\ndata: b\n"], "\n"),
        (vec!["event: n\n"], "\n"),
        (vec!["data: a\r\n\r\ndata: b"], "\r\n\r\n"),
        (vec!["data: a\r\n\r\ndata: b\r\n"], "\r\n"),
        (vec!["data: a\r\n\r\ndata: b\r"], "\n\r\n"),
        (vec!["data: a\r\rdata: b\r"], "\n\n"),
        (vec!["data: a\r\n\r"], "\n"),
        (vec!["data: a\r\n\r", "\n"], ""),
        (vec!["{\n"], "\n"),
        (vec!["{}\n"], ""),
        (vec![": comment"], "\n\n"),
    ] {
        let bytes: Vec<&[u8]> = pieces.iter().map(|p| p.as_bytes()).collect();
        let scanned = scan_with(Scanner::default(), &bytes);
        assert_eq!(text(scanned.scanner.closing()), closing, "{pieces:?}");
    }
}

#[test]
fn what_is_appended_stands_by_itself() {
    let stream =
        "event: a\r\ndata: one\r\n\r\n: c\r\n\r\ndata: two\ndata: more\n\nevent: b\rdata: three\r\rdata: {\"é\":1}\n\n";
    for cut in 0..=stream.len() {
        let mut scanner = Scanner::default();
        scanner.feed(&stream.as_bytes()[..cut], |_| {});
        let own = [&stream.as_bytes()[..cut], scanner.closing(), b"event: error\ndata: own\n\n"].concat();
        let events = scan_with(Scanner::default(), &[&own]).events;
        assert_eq!(events.last(), Some(&seen("error", "own")), "cut at {cut}");
    }
}

#[test]
fn the_boundary() {
    for (stream, whole) in [
        ("", 0),
        ("data: a\n\n", 9),
        ("data: a\n\ndata", 9),
        ("data: a\n\n: c\n", 13),
        ("data: a\n\n: c\n\n\nevent: x\n", 15),
        ("data: a\r\n\r\nda", 11),
        ("data: a", 0),
    ] {
        assert_eq!(scan(stream).whole, whole, "{stream:?}");
    }
}

#[test]
fn blanks() {
    for stream in ["", "\n", "\r\n \n", ": c\n\n", ": c", "\u{feff}\n", "\u{feff}"] {
        assert!(scan(stream).scanner.is_blank(), "{stream:?}");
    }
    for stream in ["d", "data: a\n\n", "event: x\n", "{", "x\n", ": c\n\nx"] {
        assert!(!scan(stream).scanner.is_blank(), "{stream:?}");
    }
}

#[test]
fn ten_megabytes() {
    let stream = format!("event: big\ndata: {}\n\ndata: x\n\n", "é".repeat(5_000_000));
    let want = vec![("big".to_owned(), None), seen("", "x")];
    assert_eq!(scan(&stream).events, want);
    let mut scanner = Scanner::default();
    let mut events = Vec::new();
    for piece in stream.as_bytes().chunks(65_521) {
        scanner.feed(piece, |event| {
            let data = if let Data::Whole(data) = event.data { Some(text(data)) } else { None };
            events.push((text(event.name), data));
        });
        assert!(scanner.heap() <= 2 * MAX_EVENT + 65_536, "{} bytes are held", scanner.heap());
    }
    assert_eq!(events, want);
    assert!(scanner.heap() <= 2048, "{} bytes are held between events", scanner.heap());
}

impl Scanner {
    fn heap(&self) -> usize {
        self.line.capacity() + self.data.capacity() + self.raw.as_ref().map_or(0, |raw| raw.bytes.capacity())
    }
}

/// `BACKSTOP_FUZZ_CASES` makes it a long run.
fn cases() -> Config {
    let cases = std::env::var("BACKSTOP_FUZZ_CASES").ok().and_then(|v| v.parse().ok());
    Config::with_cases(cases.unwrap_or(256))
}

fn cut<'a>(mut rest: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() || sizes.iter().all(|s| *s == 0) {
            break;
        }
        let (piece, more) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
}

/// A piece of a stream that a scanner may stumble over.
fn token() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop::sample::select(vec![
        "data: ",
        "data:",
        "data",
        "event: ",
        "event",
        "id: 1",
        "retry: 2",
        ": ",
        ":",
        "\n",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        "\r\n\r\n",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        " ",
        "é",
        "😀",
        "\u{feff}",
        "\u{2028}",
        "x",
        "{\"error\":\n1}",
    ]);
    prop_oneof![
        8 => fixed.prop_map(|s| s.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
        1 => (0usize..40).prop_map(|n| vec![b'y'; n]),
    ]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_pieces_give_the_same_events(
        tokens in prop::collection::vec(token(), 0..40),
        sizes in prop::collection::vec(0usize..9, 1..12),
        max in 8usize..64,
    ) {
        let stream = tokens.concat();
        let mut one = scan_with(Scanner::with_limit(max), &[&stream]);
        let mut many = scan_with(Scanner::with_limit(max), &cut(&stream, &sizes));
        prop_assert_eq!((&one.events, &one.raw, one.whole), (&many.events, &many.raw, many.whole));
        let state = |s: &Scanner| (s.is_between(), s.is_blank(), s.closing(), s.newline());
        prop_assert_eq!(state(&one.scanner), state(&many.scanner));
        let (mut a, mut b) = (Vec::new(), Vec::new());
        one.scanner.finish(|e| a.push(format!("{e:?}")));
        many.scanner.finish(|e| b.push(format!("{e:?}")));
        prop_assert_eq!(a, b);
        prop_assert_eq!(state(&one.scanner), state(&many.scanner));
    }

    #[test]
    fn whatever_was_cut_an_event_of_ours_is_read(tokens in prop::collection::vec(token(), 0..40)) {
        let stream = tokens.concat();
        let scanned = scan_with(Scanner::default(), &[&stream]);
        let own = [&stream[..], scanned.scanner.closing(), b"event: error\ndata: own\n\n"].concat();
        let after = scan_with(Scanner::default(), &[&own]);
        prop_assert_eq!(after.events.last(), Some(&seen("error", "own")));
        prop_assert!(after.scanner.is_between());
        if scanned.scanner.is_between() {
            prop_assert_eq!(after.events.len(), scanned.events.len() + 1);
        }
    }
}
