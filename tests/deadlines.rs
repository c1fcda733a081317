//! A call ends in time: by the config's deadline, the client's word, or before the client's own timer fires.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn an_upstream_that_never_answers_is_504_at_the_deadline() {
    let bed = Bed::new("[retry]\ndeadline = \"7s\"\n", Step::silence());
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.outcome()), (504, "deadline_exceeded", "deadline"));
    assert_eq!(answer.head_at, secs(7));
    assert!(answer.no_retry() && answer.message().contains("1 attempt"), "{}", answer.message());
    bed.settle().await;
    assert_eq!(bed.upstream.only().gone.map(|_| ()), Some(()), "the attempt is ended");
}

#[tokio::test(start_paused = true)]
async fn the_client_sets_a_deadline_of_its_own() {
    for (says, ends) in [("3", secs(3)), ("0.5", ms(500)), ("soon", secs(600)), ("0", secs(600))] {
        let bed = Bed::new("", Step::silence());
        let answer = bed.call(&post(CHAT).header("x-backstop-deadline", says)).await;
        assert!(answer.head_at >= ends && answer.head_at <= ends + ms(2), "{says}: {:?}", answer.head_at);
        assert_eq!(answer.status, 504);
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_there_before_the_clients_own_timer_fires() {
    for (name, says, at_latest) in [
        ("x-stainless-timeout", "60", 60),
        ("x-stainless-read-timeout", "30.0", 30),
        ("x-server-timeout", "600", 600),
        ("X-Stainless-Timeout", "5", 5),
    ] {
        let bed = Bed::new("", Step::silence());
        let answer = bed.call(&post(CHAT).header(name, says)).await;
        let limit = secs(at_latest);
        assert!(answer.head_at < limit && answer.head_at > limit * 8 / 10, "{name}: {:?}", answer.head_at);
        assert_eq!(answer.status, 504);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clients_patience_can_be_ignored_by_config_and_nonsense_is() {
    let ignored = Bed::new("[retry]\nrespect_client_timeout = false\ndeadline = \"50s\"\n", Step::silence());
    assert_eq!(ignored.call(&post(CHAT).header("x-stainless-timeout", "5")).await.head_at, secs(50));
    let nonsense = Bed::new("[retry]\ndeadline = \"50s\"\n", Step::silence());
    assert_eq!(nonsense.call(&post(CHAT).header("x-stainless-timeout", "NOT_GIVEN")).await.head_at, secs(50));
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_hand_is_passed_on_when_time_is_over() {
    let last = Step::json(503, r#"{"error":{"message":"in hand"}}"#);
    let bed = Bed::new("[retry]\ndeadline = \"10s\"\n", [last, Step::silence()]);
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text()), (503, r#"{"error":{"message":"in hand"}}"#));
    assert_eq!((answer.outcome(), answer.attempts(), answer.no_retry()), ("deadline", 2, true));
    assert_eq!(answer.head_at, secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_failure_inside_a_200_in_hand_takes_the_status_it_names() {
    let inside = r#"{"error":{"message":"Provider returned error","code":429}}"#;
    let bed = Bed::new("[retry]\ndeadline = \"10s\"\n", [Step::json(200, inside), Step::silence()]);
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text(), answer.outcome()), (429, inside, "deadline"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_being_delivered_is_never_cut() {
    let events = chat_stream(40);
    let bed = Bed::new("[retry]\ndeadline = \"5s\"\n", Step::sse(&events).pace(secs(1)));
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.whole, answer.text()), (200, true, events.concat().as_str()));
    assert!(answer.end_at >= secs(40));
}

#[tokio::test(start_paused = true)]
async fn a_good_plain_answer_that_is_still_coming_at_the_deadline_is_passed_on() {
    let long = Step::chunks(
        "application/json",
        ["{\"choices\":[", "{\"message\":{\"content\":\"hi\"},", "\"finish_reason\":\"stop\"}", "]}"],
    );
    let bed = Bed::new("[retry]\ndeadline = \"5s\"\n", long.pace(secs(3)));
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.whole), (200, true));
    assert!(answer.text().ends_with("]}"));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_deadline() {
    let bed = Bed::new("[retry]\ndeadline = \"6s\"\njitter = \"none\"\n", busy());
    let answer = bed.call(&post(CHAT)).await;
    // 0, 1, 3 s; the next would be at 7 s.
    assert_eq!((bed.upstream.count(), answer.outcome(), answer.status), (3, "deadline", 503));
    assert_eq!(answer.head_at, secs(3));
}

#[tokio::test(start_paused = true)]
async fn first_byte_limits_one_attempt() {
    let toml = "[timeouts]\nfirst_byte = \"4s\"\n[retry]\njitter = \"none\"\n";
    let bed = Bed::new(toml, [Step::silence(), chat().delay(secs(3))]);
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts(), answer.head_at), (200, 2, secs(4 + 1 + 3)));
}

#[tokio::test(start_paused = true)]
async fn connect_limits_a_dial() {
    let toml = "[timeouts]\nconnect = \"2s\"\n[retry]\njitter = \"none\"\nmax_attempts = 2\n";
    let bed = Bed::new(toml, Step::refuse().delay(secs(60)));
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.head_at, answer.attempts()), (secs(2 + 1 + 2), 2));
    assert!(answer.message().contains("took longer than 2s"), "{}", answer.message());
}
