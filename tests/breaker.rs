//! An upstream that fails all the time is left alone for a while, and asked once before it gets everything again.

use tokio::time::sleep;

use crate::support::*;

/// Opens after six failures, for two seconds; one attempt a call.
const CONFIG: &str = "[retry]\nmax_attempts = 1\n[admission]\nadaptive = false\n\
    [breaker]\nmin_requests = 6\nopen_for = \"2s\"\n";

fn down_then(good_from: usize) -> Script {
    (0..=good_from).map(|n| if n < good_from { busy() } else { chat() }).collect::<Vec<_>>().into()
}

async fn trip(bed: &Bed) {
    for _ in 0..6 {
        assert_eq!(bed.call(&post(CHAT)).await.status, 503);
    }
    assert_eq!(bed.metric("backstop_circuit_open", &["openai"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn open_it_answers_at_once_in_the_clients_dialect() {
    let bed = Bed::new(CONFIG, busy());
    trip(&bed).await;
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.outcome()), (503, "circuit_open", "rejected"));
    assert_eq!((answer.value("retry-after"), answer.attempts(), answer.no_retry()), (Some("2"), 0, true));
    assert_eq!((bed.upstream.count(), bed.now()), (6, ms(0)));
    assert_eq!(bed.call(&post(MESSAGES)).await.status, 503, "another upstream has a circuit of its own");
    assert_eq!(bed.upstream.count(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_good_probe_closes_it() {
    let bed = Bed::new(CONFIG, down_then(6));
    trip(&bed).await;
    sleep(secs(2)).await;
    let answers = bed.crowd((0..10).map(|_| post(CHAT))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "one probe at a time");
    assert_eq!(bed.metric("backstop_circuit_open", &["openai"]), 0.0);
    let answers = bed.crowd((0..10).map(|_| post(CHAT))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
}

#[tokio::test(start_paused = true)]
async fn a_bad_probe_opens_it_again() {
    let bed = Bed::new(CONFIG, busy().delay(ms(10)));
    trip(&bed).await;
    sleep(secs(2)).await;
    bed.crowd((0..10).map(|_| post(CHAT))).await;
    assert_eq!(bed.upstream.count(), 7);
    bed.call(&post(CHAT)).await;
    assert_eq!(bed.upstream.count(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_gets_a_4xx_closes_it() {
    let steps = [busy(), busy(), busy(), busy(), busy(), busy(), Step::json(404, "{}"), chat()];
    let bed = Bed::new(CONFIG, steps);
    trip(&bed).await;
    sleep(secs(2)).await;
    assert_eq!(bed.call(&post(CHAT)).await.status, 404);
    let answers = bed.crowd((0..10).map(|_| post(CHAT))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_client_leaves_frees_its_place() {
    let mut steps = vec![busy(); 6];
    steps.extend([Step::silence(), chat()]);
    let bed = Bed::new(CONFIG, steps);
    trip(&bed).await;
    sleep(secs(2)).await;
    bed.leave_after(&post(CHAT), ms(100)).await;
    bed.settle().await;
    assert_eq!(bed.call(&post(CHAT)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_4xx_and_429_never_open_it() {
    for step in [Step::json(400, "{}"), Step::json(429, LIMITED_BODY), Step::json(404, "{}"), Step::json(408, "{}")] {
        let bed = Bed::new(CONFIG, step);
        for _ in 0..12 {
            bed.call(&post(CHAT)).await;
        }
        assert_eq!(bed.upstream.count(), 12);
    }
    let bed = Bed::new(CONFIG, Step::silence());
    for _ in 0..12 {
        bed.leave_after(&post(CHAT), ms(10)).await;
    }
    bed.settle().await;
    assert_eq!((bed.upstream.count(), bed.metric("backstop_circuit_open", &["openai"])), (12, 0.0));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_nobody_listens_at_opens_it() {
    let bed = Bed::new(CONFIG, Step::refuse());
    for _ in 0..6 {
        assert_eq!(bed.call(&post(CHAT)).await.status, 502);
    }
    assert_eq!(bed.call(&post(CHAT)).await.fault(), "circuit_open");
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_sit_it_out_and_are_told_the_upstreams_last_word_if_they_cannot() {
    let config = "[retry]\nmax_attempts = 3\njitter = \"none\"\n[admission]\nadaptive = false\n\
        [breaker]\nmin_requests = 6\nopen_for = \"5s\"\n";
    let bed = Bed::new(config, down_then(6));
    let answers = bed.crowd((0..6).map(|n| post(CHAT).body(format!("{{\"n\":{n}}}")))).await;
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.attempts() == 2));
    assert_eq!(bed.now(), secs(5));

    let short = Bed::new(config, busy());
    let answers =
        short.crowd((0..6).map(|n| post(CHAT).body(format!("{{\"n\":{n}}}")).header("x-backstop-deadline", "3"))).await;
    assert!(answers.iter().all(|answer| (answer.status, answer.text()) == (503, BUSY_BODY) && answer.no_retry()));
    assert_eq!(short.upstream.count(), 6);
    assert_eq!(short.now(), secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_got_an_answer_is_told_what_it_met() {
    let config = "[retry]\nmax_attempts = 9\njitter = \"none\"\n[admission]\nadaptive = false\n\
        [breaker]\nmin_requests = 2\nopen_for = \"60s\"\n";
    let bed = Bed::new(config, Step::refuse());
    let answer = bed.call(&post(CHAT).header("x-backstop-deadline", "30")).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.outcome()), (502, "upstream_unreachable", "exhausted"));
    assert_eq!((answer.attempts(), bed.now()), (2, secs(3)));
}

#[tokio::test(start_paused = true)]
async fn off_it_never_opens() {
    let bed =
        Bed::new("[retry]\nmax_attempts = 1\n[admission]\nadaptive = false\n[breaker]\nenabled = false\n", busy());
    for _ in 0..50 {
        bed.call(&post(CHAT)).await;
    }
    assert_eq!(bed.upstream.count(), 50);
}
