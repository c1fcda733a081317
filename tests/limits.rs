//! Sizes and times beyond which a client is told so and let go.

use tokio::time::sleep;

use crate::support::*;

const SMALL: &str = "[server]\nmax_body = \"256KiB\"\nreplay_body = \"64KiB\"\n";

#[tokio::test(start_paused = true)]
async fn a_sized_body_over_the_limit_is_413_and_nothing_is_sent() {
    let bed = Bed::new(SMALL, chat());
    let mut client = bed.client();
    let request = post(MESSAGES).header("Content-Length", "262145").body("");
    client.asked("POST").send(String::from_utf8(request.bytes()).unwrap().replace("Content-Length: 0\r\n", "")).await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.fault().as_str(), answer.json()["type"].as_str()),
        (413, "request_too_large", Some("error"))
    );
    assert!(answer.message().contains("262144 bytes (server.max_body)"), "{}", answer.message());
    assert!(answer.no_retry());
    assert_eq!((answer.outcome(), answer.attempts(), bed.upstream.attempts()), ("rejected", 0, 0));
    client.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_at_the_limit_goes_through() {
    for request in [post(CHAT).body(vec![b'x'; 262_144]), post(CHAT).body(vec![b'x'; 262_144]).chunked(5000)] {
        let bed = Bed::new(SMALL, chat());
        assert_eq!(bed.call(&request).await.status, 200);
        assert_eq!(bed.upstream.only().body.len(), 262_144);
    }
}

#[tokio::test(start_paused = true)]
async fn a_chunked_body_that_grows_over_the_limit_is_413() {
    let toml = "[server]\nmax_body = \"32KiB\"\nreplay_body = \"32KiB\"\n";
    let bed = Bed::new(toml, chat());
    let answer = bed.call(&post(CHAT).body(vec![b'x'; 33_000]).chunked(1000)).await;
    assert_eq!((answer.status, answer.fault().as_str(), bed.upstream.attempts()), (413, "request_too_large", 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_grows_over_the_limit_while_it_is_streamed_is_413_and_the_upstream_is_left() {
    let bed = Bed::new(SMALL, chat());
    let answer = bed.call(&post(CHAT).body(vec![b'x'; 2_000_000]).chunked(5000)).await;
    assert_eq!((answer.status, answer.fault().as_str()), (413, "request_too_large"));
    bed.settle().await;
    let seen = bed.upstream.only();
    assert!(!seen.whole && seen.gone.is_some());
    assert!(!answer.message().contains("nothing was sent"), "part of it was sent: {}", answer.message());
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_replay_limit_is_sent_once() {
    let bed = Bed::new(SMALL, busy());
    let answer = bed.call(&post(CHAT).body(vec![b'x'; 100_000])).await;
    assert_eq!((answer.status, answer.text(), bed.upstream.count()), (503, BUSY_BODY, 1));
    assert_eq!(answer.value("x-should-retry"), None, "the client has the body, and may");
    let seen = bed.upstream.only();
    assert_eq!((seen.body.len(), seen.value("content-length")), (100_000, Some("100000")));
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_replay_limit_is_tried_again_while_nothing_of_it_was_sent() {
    let bed = Bed::new(SMALL, [Step::refuse(), Step::refuse(), chat()]);
    let answer = bed.call(&post(CHAT).body(vec![b'x'; 100_000]).chunked(999)).await;
    assert_eq!((answer.status, answer.attempts(), bed.upstream.only().body.len()), (200, 3, 100_000));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_408_after_a_minute() {
    for (toml, sent) in [("", "abc".to_owned()), (SMALL, "x".repeat(70_000))] {
        let bed = Bed::new(toml, chat());
        let mut client = bed.client();
        let request = post(CHAT).body(vec![b'x'; 100_000]);
        client.asked("POST").send(request.head_bytes()).await.send(sent).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.fault().as_str()), (408, "request_timeout"));
        assert!(answer.head_at >= secs(60) && answer.head_at < secs(61), "{:?}", answer.head_at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_that_keeps_coming_is_waited_for() {
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    client.asked("POST").send(post(CHAT).body("0123456789").head_bytes()).await;
    for digit in 0..10 {
        sleep(secs(59)).await;
        client.send(digit.to_string()).await;
    }
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(bed.upstream.only().text(), "0123456789");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_says_anything_is_closed_after_a_minute() {
    for said in ["", "P", "POST /v1/chat/completions HTTP/1.1\r\nHost: localh"] {
        let bed = Bed::new("", chat());
        let mut client = bed.client();
        client.send(said).await;
        let closed = client.closed().await;
        assert!(closed >= secs(60) && closed <= secs(62), "{said:?}: {closed:?}");
        assert_eq!(bed.upstream.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_closed_after_a_minute_too() {
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    for _ in 0..13 {
        client.send("X").await;
        sleep(secs(5)).await;
    }
    assert!(client.closed().await <= secs(66));
}

#[tokio::test(start_paused = true)]
async fn a_second_head_that_never_ends_is_closed_too() {
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    client.call(&post(CHAT)).await;
    client.send("POST /v1/chat/co").await;
    let closed = client.closed().await;
    assert!(closed >= secs(30) && closed <= secs(122), "{closed:?}");
}

#[tokio::test(start_paused = true)]
async fn heads_beyond_all_measure_are_431() {
    let bed = Bed::new("", chat());
    let many = (0..321).fold(get("/v1/models"), |request, n| request.header(&format!("x-{n}"), "1"));
    let huge = get("/v1/models").header("x-huge", "h".repeat(600 * 1024));
    for request in [many, huge] {
        let mut client = bed.client();
        assert_eq!(client.call(&request).await.status, 431);
        client.closed().await;
    }
    assert_eq!(bed.upstream.count(), 0);
    let fine = (0..200).fold(get("/v1/models"), |request, n| request.header(&format!("x-{n}"), "v".repeat(200)));
    assert_eq!(bed.call(&fine).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_does_not_make_us_hold_its_answer() {
    let events = vec!["data: 0123456789012345678901234567890123456789\n\n"; 100_000];
    let bed = Bed::new("", Step::sse(&events));
    let mut client = bed.client_with(4096, None);
    client.ask(&post(CHAT)).await;
    assert!(client.head().await.is_some());
    sleep(secs(60)).await;
    assert!(bed.upstream.only().gone.is_none());
    assert!(bed.metric("backstop_in_flight", &["openai"]) == 1.0);
}
