//! A new config without a restart: all of it or nothing, and calls in flight keep theirs.

use tokio::time::sleep;

use crate::support::*;

const BEFORE: &str = "[retry]\njitter = \"none\"\nmax_attempts = 4\n";

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_keeps_its_config_and_the_next_has_the_new_one() {
    let bed = Bed::new(BEFORE, busy());
    let mut client = bed.client();
    client.ask(&post(CHAT)).await;
    sleep(ms(500)).await;
    bed.reload("[retry]\nmax_attempts = 1\n[upstreams.openai]\nheaders = { \"x-team\" = \"blue\" }\n");
    assert_eq!(client.answer().await.attempts(), 4);
    // The same connection, the new config.
    let answer = client.call(&post(CHAT).body("{\"another\":1}")).await;
    assert_eq!(answer.attempts(), 1);
    let seen = bed.upstream.seen();
    assert_eq!((seen[3].value("x-team"), seen[4].value("x-team")), (None, Some("blue")));
    assert_eq!(bed.metric("backstop_config_reloads_total", &["result=\"success\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_faulty_config_changes_nothing_and_is_counted() {
    let bed = Bed::new(BEFORE, busy());
    for faulty in
        ["[retry]\nmax_attempts = 0\n", "[retry\n", "[retri]\n", "[retry]\nmax_attempts = 1\njitter = \"some\"\n"]
    {
        bed.reload(faulty);
    }
    assert_eq!(bed.call(&post(CHAT)).await.attempts(), 4);
    assert_eq!(bed.metric("backstop_config_reloads_total", &["result=\"failure\""]), 4.0);
    assert_eq!(bed.metric("backstop_config_reloads_total", &["result=\"success\""]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn counts_outlive_it_and_a_new_upstream_is_there() {
    let bed = Bed::new("", chat());
    bed.call(&post(CHAT)).await;
    bed.reload("[upstreams.mine]\nbase_url = \"http://mine.test\"\ndialect = \"openai\"\n");
    bed.call(&post("/mine/v1/chat/completions")).await;
    assert_eq!(bed.metric("backstop_requests_total", &["upstream=\"openai\""]), 1.0);
    assert_eq!(bed.metric("backstop_requests_total", &["upstream=\"mine\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_in_flight_is_not_touched() {
    let events = chat_stream(10);
    let bed = Bed::new("", Step::sse(&events).pace(secs(1)));
    let mut client = bed.client();
    client.ask(&post(CHAT)).await;
    sleep(secs(3)).await;
    bed.reload("[timeouts]\nstream_idle = \"500ms\"\n");
    let answer = client.answer().await;
    assert_eq!((answer.text(), answer.whole), (events.concat().as_str(), true));
}
