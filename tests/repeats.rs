//! A client that repeats a call which was just given up on gets one attempt, not all of them again.

use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn an_sdk_that_says_it_repeats_gets_one_attempt() {
    for (count, attempts) in [("0", 5), ("1", 1), ("2", 1), ("many", 5)] {
        let bed = Bed::new("", busy());
        let answer = bed.call(&post(CHAT).header("x-stainless-retry-count", count)).await;
        assert_eq!((bed.upstream.count(), answer.outcome(), answer.status), (attempts, "exhausted", 503), "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_body_with_the_same_credential_soon_after_gets_one() {
    let ask = |key: &str| post(CHAT).header("authorization", format!("Bearer {key}"));
    // All of them together take far less than the half minute that is remembered, whatever the dice say.
    let bed = Bed::new("[retry]\nbase_delay = \"10ms\"\n", busy());
    for (what, request, attempts) in [
        ("the first", ask("k1"), 5),
        ("the same", ask("k1"), 1),
        ("another credential", ask("k2"), 5),
        ("another body", ask("k1").body("{\"another\":1}"), 5),
        ("another path", Request::new("POST", "/v1/completions").header("authorization", "Bearer k1").body(ASK), 5),
        ("the same again", ask("k1"), 1),
    ] {
        let before = bed.upstream.count();
        bed.call(&request.header("x-backstop-deadline", "3000")).await;
        assert_eq!(bed.upstream.count() - before, attempts, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_half_a_minute_it_is_a_new_call() {
    let bed = Bed::new("", busy());
    for (pause, attempts) in [(0, 5), (29, 1), (31, 5)] {
        sleep(secs(pause)).await;
        let before = bed.upstream.count();
        bed.call(&post(CHAT)).await;
        assert_eq!(bed.upstream.count() - before, attempts, "after {pause} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_went_well_or_ended_terminally_is_not_held_against_its_repeat() {
    for first in [chat(), Step::json(400, "{}"), limited("3600")] {
        let bed = Bed::new("", [first, busy()]);
        bed.call(&post(CHAT)).await;
        bed.call(&post(CHAT)).await;
        assert_eq!(bed.upstream.count(), 1 + 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_at_its_deadline_is_remembered_too() {
    let bed = Bed::new("[retry]\ndeadline = \"5s\"\njitter = \"none\"\n", [busy(), busy(), busy(), busy()]);
    bed.call(&post(CHAT)).await;
    let before = bed.upstream.count();
    bed.call(&post(CHAT)).await;
    assert_eq!((before, bed.upstream.count()), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_goes_well_clears_it() {
    let bed = Bed::new("[retry]\nmax_attempts = 2\n", [busy(), busy(), chat(), busy()]);
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.call(&post(CHAT)).await.status, 200);
    let before = bed.upstream.count();
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.upstream.count() - before, 2);
}
