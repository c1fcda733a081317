//! A client that leaves ends whatever is under way for it, at once, and nothing is sent for it afterwards.

use tokio::time::sleep;

use crate::support::*;

/// Nothing is sent from now on, and nothing counts as being served.
async fn nothing_more(bed: &Bed) {
    bed.settle().await;
    let before = bed.upstream.attempts();
    assert_eq!(bed.metric("backstop_in_flight", &[]), 0.0);
    sleep(secs(3600)).await;
    assert_eq!(bed.upstream.attempts(), before);
}

#[tokio::test(start_paused = true)]
async fn in_an_attempt_the_upstream_connection_is_closed() {
    let bed = Bed::new("", chat().delay(secs(10)));
    bed.leave_after(&post(CHAT), secs(1)).await;
    bed.settle().await;
    let gone = bed.upstream.only().gone.expect("the attempt is ended");
    assert!(gone.elapsed() < ms(500));
    nothing_more(&bed).await;
    assert_eq!(bed.metric("backstop_requests_total", &["outcome=\"client_gone\"", "status=\"499\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn in_a_dial_the_dial_is_given_up() {
    let bed = Bed::new("", Step::refuse().delay(secs(5)));
    bed.leave_after(&post(CHAT), secs(1)).await;
    nothing_more(&bed).await;
    assert_eq!(bed.upstream.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn in_a_backoff_no_retry_follows() {
    let bed = Bed::new("", busy().header("retry-after", "2"));
    bed.leave_after(&post(CHAT), ms(500)).await;
    nothing_more(&bed).await;
    assert_eq!(bed.upstream.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn in_the_wait_for_a_token_its_place_in_the_line_is_given_up() {
    let toml = "[retry]\njitter = \"none\"\nmax_attempts = 2\n[retry.bucket]\nrate = 0.1\nburst = 1\n";
    let bed = Bed::new(toml, busy());
    bed.call(&post(CHAT).body("{\"n\":1}")).await;
    // The bucket is empty now: each of these waits in line.
    let mut leaving = Vec::new();
    for n in 0..5 {
        let mut client = bed.client();
        client.ask(&post(CHAT).body(format!("{{\"leaving\":{n}}}"))).await;
        leaving.push(client);
    }
    sleep(secs(3)).await;
    drop(leaving);
    let answer = bed.call(&post(CHAT).body("{\"n\":2}")).await;
    assert_eq!(answer.attempts(), 2);
    assert!(answer.head_at < secs(11), "the next token is for the next client: {:?}", answer.head_at);
    nothing_more(&bed).await;
    assert_eq!(bed.upstream.count(), 2 + 5 + 2);
}

#[tokio::test(start_paused = true)]
async fn in_a_stream_the_upstream_is_left_and_its_connection_not_used_again() {
    let bed = Bed::new("", Step::sse(chat_stream(100)).pace(ms(100)));
    let mut client = bed.client();
    client.ask(&post(CHAT)).await.head().await;
    sleep(ms(550)).await;
    drop(client);
    sleep(ms(200)).await;
    let gone = bed.upstream.only().gone.expect("the stream is ended");
    assert!(gone.elapsed() < ms(500));
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"client_gone\""]), 1.0);
    assert_eq!(bed.metric("backstop_requests_total", &["outcome=\"success\""]), 1.0);
    nothing_more(&bed).await;
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.upstream.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn in_an_upload_the_upstream_is_left() {
    let bed = Bed::new("[server]\nreplay_body = \"64KiB\"\n", chat());
    let mut client = bed.client();
    let request = post(CHAT).body(vec![b'x'; 500_000]);
    client.send(request.head_bytes()).await.send(&request.body_bytes()[..200_000]).await;
    sleep(secs(1)).await;
    drop(client);
    bed.settle().await;
    let seen = bed.upstream.only();
    assert!(!seen.whole && seen.gone.is_some());
    nothing_more(&bed).await;
}

#[tokio::test(start_paused = true)]
async fn before_its_own_request_is_whole_nothing_is_sent() {
    let bed = Bed::new("", chat());
    let mut client = bed.client();
    let request = post(CHAT);
    client.send(request.head_bytes()).await.send("{").await;
    drop(client);
    nothing_more(&bed).await;
    assert_eq!(bed.upstream.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_are_no_failures_of_the_upstream() {
    let bed = Bed::new("", Step::sse(chat_stream(50)).pace(ms(100)));
    for n in 0..50 {
        bed.leave_after(&post(CHAT).body(format!("{{\"n\":{n}}}")), ms(300)).await;
    }
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.whole, bed.upstream.count()), (200, true, 51));
    assert_eq!(bed.metric("backstop_retries_total", &[]), 0.0);
    assert_eq!(bed.metric("backstop_retry_bucket_tokens", &[]), 50.0);
    assert_eq!(bed.metric("backstop_attempts_total", &["class=\"transient\""]), 0.0);
    assert_eq!(bed.metric("backstop_streams_total", &["result=\"client_gone\""]), 50.0);
}

/// A close and a half-close look alike until something is written. As nginx does, it is taken for a close: the client that
/// left is by far the more common one.
#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_own_half_has_left() {
    let bed = Bed::new("", chat().delay(secs(5)));
    let mut client = bed.client();
    client.ask(&post(CHAT)).await;
    sleep(secs(1)).await;
    client.finish().await;
    assert!(client.next().await.is_none());
    assert!(bed.upstream.only().gone.is_some());
    nothing_more(&bed).await;
}
