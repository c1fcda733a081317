//! Stopping: what is in flight ends, what waits longer than that settles at once, and nobody new is promised anything.

use tokio::time::{Instant, sleep};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_backoff_that_is_longer_than_the_drain_settles_at_once_with_the_answer_in_hand() {
    let bed = Bed::new("", limited("60"));
    let mut client = bed.client();
    client.ask(&post(CHAT)).await;
    sleep(secs(1)).await;
    bed.drain().begin(Instant::now() + secs(30));
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text(), answer.value("retry-after")), (429, LIMITED_BODY, Some("60")));
    assert_eq!(answer.outcome(), "exhausted");
    assert!(answer.head_at < ms(1500), "{:?}", answer.head_at);
    assert_eq!(bed.upstream.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_backoff_that_fits_into_the_drain_goes_on() {
    let bed = Bed::new("", [limited("10"), chat()]);
    let mut client = bed.client();
    client.ask(&post(CHAT)).await;
    sleep(secs(1)).await;
    bed.drain().begin(Instant::now() + secs(30));
    assert_eq!(client.answer().await.text(), CHAT_BODY);
}

#[tokio::test(start_paused = true)]
async fn a_stream_in_flight_ends_and_its_connection_with_it() {
    let events = chat_stream(20);
    let bed = Bed::new("", Step::sse(&events).pace(secs(1)));
    let mut client = bed.client();
    client.ask(&post(CHAT)).await.head().await;
    bed.drain().begin(Instant::now() + secs(30));
    while client.piece().await {}
    let rest = String::from_utf8_lossy(client.pending());
    assert!(rest.contains(&events[19]) && rest.ends_with(&format!("{DONE}\r\n0\r\n\r\n")), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_when_draining_begins() {
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    client.call(&post(CHAT)).await;
    sleep(secs(5)).await;
    bed.drain().begin(Instant::now() + secs(30));
    assert!(client.closed().await < secs(6));
}

#[tokio::test(start_paused = true)]
async fn readiness_says_so_and_health_does_not() {
    let bed = Bed::new("", chat());
    assert_eq!(bed.call(&get("/readyz")).await.status, 200);
    bed.drain().begin(Instant::now() + secs(30));
    let mut client = bed.client();
    client.ask(&get("/readyz")).await;
    if let Some(answer) = client.next().await {
        assert_eq!(answer.status, 503);
    }
    assert_eq!(bed.call(&get("/healthz")).await.status, 200);
}
