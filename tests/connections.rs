//! Upstream connections: kept, given up in time, and never a reason for a client's error when one has gone stale.

use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_connection_is_used_again() {
    let bed = Bed::new("", chat());
    for _ in 0..3 {
        bed.call(&post(CHAT)).await;
    }
    assert_eq!((bed.upstream.count(), bed.upstream.connections()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stale_connection_costs_a_fresh_one_at_once_and_no_attempt() {
    for stale in [Step::close(), Step::reset()] {
        let bed = Bed::new("[retry]\nmax_attempts = 1\n", [chat(), stale, chat()]);
        bed.call(&post(CHAT)).await;
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!((answer.status, bed.upstream.connections()), (200, 2));
        assert_eq!(bed.now(), ms(0), "no backoff");
        assert_eq!(bed.upstream.seen().iter().map(|seen| seen.connection).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(bed.metric("backstop_retry_bucket_tokens", &[]), 50.0, "no token");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_connection_does_not_lead_to_sending_a_create_twice() {
    let bed = Bed::new("", [Step::json(200, "{}"), Step::close(), Step::json(200, "{}")]);
    bed.call(&get("/v1/files")).await;
    let answer = bed.call(&post("/v1/files")).await;
    assert_eq!((bed.upstream.count(), answer.status), (2, 502));
    assert!(answer.message().contains("outcome upstream is unknown"));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_connection_that_fails_too_counts_as_an_attempt() {
    let bed = Bed::new("[retry]\nmax_attempts = 2\n", [chat(), Step::close(), Step::close(), chat()]);
    bed.call(&post(CHAT)).await;
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, bed.upstream.count()), (200, 4));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_not_used_after_fifty_seconds() {
    for (idle, connections) in [(49, 1), (50, 2), (300, 2)] {
        let bed = Bed::new("", chat());
        bed.call(&post(CHAT)).await;
        sleep(secs(idle)).await;
        bed.call(&post(CHAT)).await;
        assert_eq!(bed.upstream.connections(), connections, "{idle} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_upstream_closed_is_not_used() {
    let bed = Bed::new("", [chat().then_close(), chat()]);
    for _ in 0..2 {
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.attempts()), (200, 1));
        bed.settle().await;
    }
    assert_eq!(bed.upstream.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn connection_close_is_obeyed_and_not_passed_on() {
    let bed = Bed::new("", chat().header("Connection", "close"));
    let mut client = bed.client();
    for _ in 0..2 {
        let answer = client.call(&post(CHAT)).await;
        assert_eq!((answer.status, answer.value("connection")), (200, None));
    }
    assert_eq!(bed.upstream.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_not_used_again() {
    for broken in [chat().cut_after(10), chat().stall_after(10), Step::garbage()] {
        let bed = Bed::new("[timeouts]\nstream_idle = \"5s\"\n", [broken, chat()]);
        let answer = bed.call(&post(CHAT)).await;
        assert_eq!((answer.status, bed.upstream.connections()), (200, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_connection_is_closed_before_the_next_try() {
    let bed = Bed::new("[timeouts]\nfirst_byte = \"5s\"\n", [Step::silence(), chat()]);
    bed.call(&post(CHAT)).await;
    let seen = bed.upstream.seen();
    let gone = seen[0].gone.expect("the first attempt was ended");
    assert!(gone < seen[1].at, "{gone:?} {:?}", seen[1].at);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_before_its_request_was_whole_leaves_no_connection_behind() {
    let early = Step::json(401, r#"{"error":{"message":"no"}}"#).early();
    let bed = Bed::new("[server]\nreplay_body = \"64KiB\"\n", [early, chat()]);
    let mut client = bed.client();
    client.asked("POST").send(post(CHAT).body(vec![b'x'; 400_000]).bytes()).await;
    assert_eq!(client.answer().await.status, 401);
    assert_eq!(bed.call(&post(CHAT)).await.status, 200);
    assert_eq!(bed.upstream.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_calls_at_once_have_a_hundred_connections_and_keep_them() {
    let bed = Bed::new("", chat().delay(secs(1)));
    for _ in 0..2 {
        let mut tasks = Vec::new();
        for _ in 0..100 {
            let mut client = bed.client();
            tasks.push(tokio::spawn(async move { client.call(&post(CHAT)).await.status }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), 200);
        }
    }
    assert_eq!(bed.upstream.connections(), 100);
}

/// Its writes fail from then on, which must not hide the answer that was there before.
#[tokio::test(start_paused = true)]
async fn an_answer_of_an_upstream_that_closes_in_the_middle_of_the_request_is_passed_on() {
    let early = Step::json(413, r#"{"error":{"message":"too large"}}"#).deaf().then_close();
    let bed = Bed::new("[server]\nreplay_body = \"64KiB\"\n", early);
    let answer = bed.call(&post(CHAT).body(vec![b'x'; 1_000_000])).await;
    assert_eq!((answer.status, answer.attempts()), (413, 1), "{}", answer.text());
}

/// Each open connection is one such future: all that is rare or large in it belongs on the heap, as long as it is needed.
#[tokio::test]
async fn a_connection_keeps_little() {
    let bed = Bed::new("", chat());
    let (_ours, theirs) = tokio::io::duplex(1);
    let connection = backstop::server::serve_connection(theirs, bed.current.clone(), None);
    let size = size_of_val(&connection);
    assert!(size <= 1536, "{size}");
}
