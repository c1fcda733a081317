//! Requests that two parsers could read in two ways are turned away, with all that follows them.

use crate::support::*;

const SMUGGLED: &str = "GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Head lines behind `POST … Host …`, and a body.
const DOUBTFUL: &[(&str, &str, &str)] = &[
    ("length, then coding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("coding, then length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
    ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
    ("one length twice", "Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
    ("a list of lengths", "Content-Length: 5, 5\r\n", "hello"),
    ("a signed length", "Content-Length: +5\r\n", "hello"),
    ("a length in hex", "Content-Length: 0x5\r\n", "hello"),
    ("no length", "Content-Length: \r\n", "hello"),
    ("a coding that is not chunked", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    ("chunked is not last", "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
    ("gzip before it", "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    ("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("a space before the colon", "Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
    ("a folded line", "X-A: b\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("a bare line feed", "X-A: b\nContent-Length: 5\r\n", "hello"),
    ("a bare carriage return", "X-A: b\rContent-Length: 5\r\n", "hello"),
    ("a second host", "Host: other\r\nContent-Length: 5\r\n", "hello"),
    ("no name", ": x\r\nContent-Length: 5\r\n", "hello"),
    ("a vertical tab", "Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
];

fn doubtful(lines: &str, body: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n{body}{SMUGGLED}")
}

#[tokio::test(start_paused = true)]
async fn a_request_in_doubt_is_400_and_nothing_behind_it_is_served() {
    for (what, lines, body) in DOUBTFUL {
        let bed = Bed::new("", chat());
        let mut client = bed.client();
        let answer = client.asked("POST").send(doubtful(lines, body)).await.answer().await;
        assert_eq!(answer.status, 400, "{what}");
        client.closed().await;
        assert_eq!(client.pending(), b"", "{what}: one answer");
        assert_eq!(bed.upstream.attempts(), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn so_is_one_behind_a_good_request() {
    for (what, lines, body) in DOUBTFUL {
        let bed = Bed::new("", chat());
        let mut client = bed.client();
        client.asked("POST").send([post(CHAT).bytes(), doubtful(lines, body).into_bytes()].concat()).await;
        assert_eq!(client.answer().await.text(), CHAT_BODY, "{what}");
        assert_eq!(client.answer().await.status, 400, "{what}");
        client.closed().await;
        assert_eq!((client.pending(), bed.upstream.count()), (&b""[..], 1), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn so_is_one_whose_bytes_come_one_at_a_time() {
    let (_, lines, body) = DOUBTFUL[1];
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    for byte in doubtful(lines, body).bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.answer().await.status, 400);
    client.closed().await;
    assert_eq!((client.pending(), bed.upstream.attempts()), (&b""[..], 0));
}

#[tokio::test(start_paused = true)]
async fn http_1_0_has_no_chunks() {
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    client.send(format!("POST {CHAT} HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}")).await;
    assert_eq!(client.answer().await.status, 400);
    client.closed().await;
    assert_eq!(bed.upstream.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn chunks_that_are_none_end_the_connection() {
    for chunks in [
        "5\nhello\r\n0\r\n\r\n",
        "-1\r\nx\r\n0\r\n\r\n",
        "zz\r\nx\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nx",
    ] {
        let bed = Bed::new("", chat());
        let mut client = bed.client();
        let head = format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("{head}{chunks}{SMUGGLED}")).await;
        assert_eq!(client.answer().await.status, 400, "{chunks:?}");
        client.closed().await;
        assert_eq!((client.pending(), bed.upstream.count()), (&b""[..], 0), "{chunks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_not_taken_for_a_request() {
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    client.ask(&post(CHAT).body(SMUGGLED)).await.ask(&post(CHAT).body(SMUGGLED).chunked(3)).await;
    for _ in 0..2 {
        assert_eq!(client.answer().await.status, 200);
    }
    assert!(bed.upstream.seen().iter().all(|seen| seen.target == CHAT && seen.text() == SMUGGLED));
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_answer_in_doubt_is_no_answer() {
    let both = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\n{CHAT_BODY}"
    );
    let answer = Bed::new("", [Step::raw(both), chat()]).call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts(), answer.text()), (200, 2, CHAT_BODY));
}
