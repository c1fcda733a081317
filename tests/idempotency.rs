//! Calls of one key are one call: it is made once, everybody gets its answer, and nobody meets another's.

use std::time::Duration;

use tokio::time::sleep;

use crate::support::case::case;
use crate::support::*;

fn keyed(key: &str) -> Request {
    post(CHAT).header("idempotency-key", key).header("authorization", "Bearer alice")
}

fn streamed(key: &str) -> Request {
    keyed(key).body(ASK_STREAM)
}

/// Calls upstream, and how the clients' calls are named.
fn counted(bed: &Bed, answers: &[Answer]) -> (usize, usize, usize, usize) {
    let of = |outcome: &str| answers.iter().filter(|answer| answer.outcome() == outcome).count();
    (bed.upstream.count(), of("success"), of("coalesced"), of("replayed"))
}

#[tokio::test(start_paused = true)]
async fn two_hundred_calls_at_once_are_one() {
    let bed = Bed::new("", chat().delay(secs(2)));
    let answers = bed.crowd((0..200).map(|_| keyed("k"))).await;
    assert!(answers.iter().all(|answer| (answer.status, answer.text()) == (200, CHAT_BODY)));
    assert_eq!(counted(&bed, &answers), (1, 1, 199, 0));
    assert_eq!(bed.metric("backstop_coalesced_total", &["openai"]), 199.0);
    assert_eq!(bed.metric("backstop_requests_total", &["openai"]), 200.0);
    assert_eq!(bed.metric("backstop_tokens_total", &["kind=\"output\""]), 2.0, "paid for once, counted once");
    let mut ids: Vec<_> = answers.iter().map(|answer| answer.value("x-backstop-request-id").unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200, "each request has an id of its own");
}

#[tokio::test(start_paused = true)]
async fn a_finished_answer_is_given_again_for_a_while_head_and_all() {
    let step = chat().header("x-request-id", "req_1").header("X-Odd-Case", "1").trailer("x-sum", "7");
    let bed = Bed::new("[idempotency]\nreplay_for = \"1m\"\n", step.chunked());
    let first = bed.call(&keyed("k")).await;
    sleep(secs(59)).await;
    let again = bed.call(&keyed("k")).await;
    assert_eq!((again.status, &again.body, &again.trailers), (200, &first.body, &first.trailers));
    assert_eq!((again.outcome(), again.attempts(), again.value("x-request-id")), ("replayed", 0, Some("req_1")));
    assert!(again.lines.iter().any(|(name, _)| name == "X-Odd-Case"), "{:?}", again.lines);
    assert_eq!(bed.metric("backstop_replayed_total", &["openai"]), 1.0);
    sleep(secs(2)).await;
    assert_eq!(bed.call(&keyed("k")).await.outcome(), "success");
    assert_eq!(bed.upstream.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_followed_from_its_start_and_given_again_event_by_event() {
    let events = chat_stream(5);
    let bed = Bed::new("", Step::sse(&events).pace(ms(100)));
    let mut first = bed.client();
    first.ask(&streamed("k")).await;
    sleep(ms(350)).await;
    let joined = bed.call(&streamed("k")).await;
    assert_eq!((joined.text(), joined.outcome(), joined.whole), (events.concat().as_str(), "coalesced", true));
    assert_eq!(first.answer().await.text(), events.concat());
    let again = bed.call(&streamed("k")).await;
    assert_eq!((again.text(), again.outcome(), bed.upstream.count()), (events.concat().as_str(), "replayed", 1));
    assert_eq!(bed.metric("backstop_streams_total", &["complete"]), 3.0);
}

#[tokio::test(start_paused = true)]
async fn the_key_of_another_body_is_refused_in_flight_and_after() {
    let bed = Bed::new("", chat().delay(secs(1)));
    let mut first = bed.client();
    first.ask(&keyed("k")).await;
    bed.settle().await;
    for wait in [ms(0), secs(5)] {
        sleep(wait).await;
        let other = bed.call(&keyed("k").body(r#"{"other":1}"#)).await;
        assert_eq!(
            (other.status, other.fault().as_str(), other.outcome()),
            (422, "idempotency_key_reused", "rejected")
        );
    }
    assert_eq!((first.answer().await.status, bed.upstream.count()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn the_same_bytes_of_another_type_are_another_body() {
    let bed = Bed::new("", chat());
    bed.call(&keyed("k").header("content-type", "application/json")).await;
    assert_eq!(bed.call(&keyed("k").header("content-type", "text/plain")).await.status, 422);
}

#[tokio::test(start_paused = true)]
async fn the_same_body_in_other_pieces_is_the_same_body() {
    let bed = Bed::new("", chat());
    bed.call(&keyed("k")).await;
    assert_eq!(bed.call(&keyed("k").chunked(7)).await.outcome(), "replayed");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shared_across_credentials_places_or_keys() {
    let bed = Bed::new("", chat().delay(ms(10)));
    let key = |request: Request| request.header("idempotency-key", "k");
    let alice = |path: &str| key(post(path)).header("authorization", "Bearer alice");
    let others = [
        alice(CHAT),
        key(post(CHAT)).header("authorization", "Bearer bob"),
        key(post(CHAT)),
        alice(CHAT).header("x-backstop-key", "carol"),
        alice(CHAT).header("cookie", "session=1"),
        alice(CHAT).header("cookie", "session=2"),
        alice(CHAT).header("x-auth-token", "t"),
        alice(CHAT).header("openai-organization", "o"),
        alice(CHAT).header("authorization", "Bearer second"),
        alice("/v1/chat/completions?x=1"),
        alice("/groq/openai/v1/chat/completions"),
        keyed("k2"),
    ];
    let count = others.len();
    let answers = bed.crowd(others).await;
    assert_eq!(counted(&bed, &answers), (count, count, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_by_those_who_wait_and_not_given_again() {
    let config = "[retry]\nmax_attempts = 1\n[admission]\nadaptive = false\n";
    let bed = Bed::new(config, [busy().delay(secs(1)), Step::json(400, "{}"), chat()]);
    let answers = bed.crowd((0..10).map(|_| keyed("k"))).await;
    assert!(answers.iter().all(|answer| (answer.status, answer.outcome()) == (503, "exhausted") && answer.no_retry()));
    assert_eq!(bed.upstream.count(), 1);
    assert_eq!(bed.call(&keyed("k")).await.status, 400);
    assert_eq!(bed.call(&keyed("k")).await.status, 200);
    assert_eq!(bed.call(&keyed("k")).await.outcome(), "replayed");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_cut_is_told_so_to_all_and_not_given_again() {
    let events = chat_stream(3);
    let cut = Step::sse(&events[..3]).pace(ms(100)).then_close();
    let bed = Bed::new("", [cut, Step::sse(&events)]);
    let answers = bed.crowd((0..3).map(|_| streamed("k"))).await;
    assert!(answers.iter().all(|answer| answer.text().contains("stream_interrupted") && answer.whole));
    assert_eq!(bed.metric("backstop_streams_total", &["interrupted"]), 3.0);
    assert_eq!(bed.call(&streamed("k")).await.text(), events.concat());
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_the_others_get_their_answer() {
    for leavers in [0..1, 0..5, 1..6, 5..6] {
        let bed = Bed::new("", chat().delay(secs(1)));
        let mut clients: Vec<_> = (0..6).map(|_| bed.client()).collect();
        for client in &mut clients {
            client.ask(&keyed("k")).await;
            bed.settle().await;
        }
        clients.drain(leavers.clone());
        for client in &mut clients {
            assert_eq!(client.answer().await.status, 200, "{leavers:?}");
        }
        assert_eq!(bed.upstream.count(), 1);
        assert_eq!(bed.metric("backstop_requests_total", &["client_gone"]), leavers.len() as f64);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_after_its_client_left_and_its_retry_finds_the_answer() {
    let bed = Bed::new("", chat().delay(secs(20)));
    bed.leave_after(&keyed("k"), secs(5)).await;
    sleep(secs(10)).await;
    let joined = bed.call(&keyed("k")).await;
    assert_eq!((joined.status, joined.outcome(), bed.upstream.count()), (200, "coalesced", 1));
    bed.leave_after(&keyed("k2"), secs(5)).await;
    sleep(secs(25)).await;
    assert_eq!(bed.call(&keyed("k2")).await.outcome(), "replayed");
}

#[tokio::test(start_paused = true)]
async fn but_not_for_ever_and_not_without_a_key() {
    let bed = Bed::new("[idempotency]\nlinger = \"3s\"\n", Step::silence());
    bed.leave_after(&keyed("k"), secs(1)).await;
    sleep(secs(10)).await;
    let closed = bed.upstream.closed();
    assert!(closed.len() == 1 && closed[0].1 >= secs(4) && closed[0].1 <= ms(4100), "{closed:?}");
    bed.leave_after(&post(CHAT), secs(1)).await;
    sleep(ms(100)).await;
    assert_eq!(bed.upstream.closed().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_followers_own_deadline_counts() {
    let bed = Bed::new("", chat().delay(secs(60)));
    let mut first = bed.client();
    first.ask(&keyed("k")).await;
    bed.settle().await;
    let hurried = bed.call(&keyed("k").header("x-backstop-deadline", "5")).await;
    assert_eq!((hurried.status, hurried.fault().as_str()), (504, "deadline_exceeded"));
    assert_eq!((first.answer().await.status, bed.upstream.count()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_says_how_long_it_waits_goes_on_for_its_retry_too() {
    let bed = Bed::new("", chat().delay(secs(20)));
    let impatient = || keyed("k").header("x-stainless-timeout", "10");
    let first = bed.call(&impatient()).await;
    assert_eq!((first.status, first.fault().as_str(), bed.now()), (504, "deadline_exceeded", secs(9)));
    let retry = bed.call(&impatient()).await;
    assert_eq!((retry.status, retry.outcome(), bed.now()), (504, "deadline", secs(18)));
    let last = bed.call(&impatient()).await;
    assert_eq!((last.status, last.outcome(), bed.upstream.count()), (200, "coalesced", 1));
}

#[tokio::test(start_paused = true)]
async fn own_key_header_wins_and_stays_here() {
    let bed = Bed::new("", chat());
    let own = |own: &str, standard: &str| keyed(standard).header("x-backstop-idempotency-key", own);
    bed.call(&own("a", "1")).await;
    assert_eq!(bed.call(&own("a", "2")).await.outcome(), "replayed");
    assert_eq!(bed.call(&own("b", "1")).await.outcome(), "success");
    assert!(bed.upstream.seen().iter().all(|seen| seen.value("x-backstop-idempotency-key").is_none()));
}

#[tokio::test(start_paused = true)]
async fn off_keys_are_passed_on_and_nothing_else() {
    let bed = Bed::new("[idempotency]\ncoalesce = false\nreplay_for = \"0s\"\n", chat().delay(secs(1)));
    bed.crowd([keyed("k"), keyed("k")]).await;
    bed.call(&keyed("k")).await;
    assert_eq!(bed.upstream.count(), 3);
    assert!(bed.upstream.seen().iter().all(|seen| seen.value("idempotency-key") == Some("k")));
    let replay_only = Bed::new("[idempotency]\ncoalesce = false\n", chat().delay(secs(1)));
    replay_only.crowd([keyed("k"), keyed("k")]).await;
    assert_eq!((replay_only.upstream.count(), replay_only.call(&keyed("k")).await.outcome()), (2, "replayed"));
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_kept_have_a_bound_and_the_oldest_goes_first() {
    let big = Step::json(200, &format!("{CHAT_BODY}{}", " ".repeat(40_000)));
    let bed = Bed::new("[idempotency]\nmax_bytes = \"100KiB\"\n", big);
    for key in ["a", "b", "c"] {
        bed.call(&keyed(key)).await;
    }
    assert_eq!(bed.call(&keyed("c")).await.outcome(), "replayed");
    assert_eq!(bed.call(&keyed("b")).await.outcome(), "replayed");
    assert_eq!(bed.call(&keyed("a")).await.outcome(), "success");
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_long_to_be_kept_is_passed_on_and_a_slow_reader_slows_its_upstream() {
    const LONG: usize = 20 << 20;
    let step = || Step::respond(200, &[("content-type", "audio/mpeg")], vec![b'x'; LONG]);
    let bed = Bed::new("", step());
    let answer = bed.call(&keyed("k")).await;
    assert!(answer.whole && answer.body.len() == LONG);
    assert_eq!(bed.call(&keyed("k")).await.outcome(), "success", "it is not given again");
    let mut slow = bed.client();
    slow.ask(&keyed("k3")).await;
    sleep(secs(1)).await;
    let late = bed.call(&keyed("k3")).await;
    assert!(late.whole && late.body.len() == LONG, "one that comes too late to follow makes a call of its own");
}

#[tokio::test(start_paused = true)]
async fn repeats_of_stock_sdks_join_their_first_try_where_that_is_asked_for() {
    let auto = "[idempotency]\nauto = true\n[retry]\nrespect_client_timeout = false\n";
    let count =
        |n: u32| post(CHAT).header("authorization", "Bearer alice").header("x-stainless-retry-count", n.to_string());
    let bed = Bed::new(auto, chat().delay(secs(4)));
    bed.leave_after(&count(0), secs(2)).await;
    bed.leave_after(&count(1), secs(1)).await;
    let third = bed.call(&count(2)).await;
    assert_eq!((third.status, third.outcome(), bed.upstream.count()), (200, "coalesced", 1));
    sleep(secs(50)).await;
    assert_eq!(bed.call(&count(1)).await.outcome(), "replayed");
    assert_eq!(bed.call(&count(0)).await.outcome(), "success", "a first try is a call of its own");
    sleep(secs(61)).await;
    assert_eq!(bed.call(&count(1)).await.outcome(), "success");
    assert_eq!(bed.upstream.count(), 3);

    let off = Bed::new("", chat().delay(secs(4)));
    off.leave_after(&count(0), secs(2)).await;
    off.call(&count(1)).await;
    assert_eq!(off.upstream.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn where_an_upstream_honours_a_key_each_call_has_one() {
    let config = "[upstreams.openai]\nidempotency_header = \"idempotency-key\"\n";
    let bed = Bed::new(config, [Step::close(), chat(), chat(), chat()]);
    let batch = bed.call(&post("/v1/batches")).await;
    assert_eq!((batch.status, batch.attempts()), (200, 2), "what creates something may be repeated now");
    bed.call(&post(CHAT)).await;
    bed.call(&keyed("mine")).await;
    let keys: Vec<_> =
        bed.upstream.seen().iter().map(|seen| seen.value("idempotency-key").unwrap().to_owned()).collect();
    assert_eq!((&keys[0], keys[0].len(), keys[3].as_str()), (&keys[1], 32, "mine"));
    assert_ne!(keys[1], keys[2]);
}

#[tokio::test(start_paused = true)]
async fn rst_after_full_request_fresh_conn() {
    let _ = case("rst-after-full-request-fresh-conn");
    let bed = Bed::new("", Step::reset());
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.fault().as_str()), (502, "upstream_protocol_error"));
    assert!(answer.message().contains("5 attempts"), "{}", answer.message());
    assert_eq!(bed.metric("backstop_possibly_billed_total", &["openai"]), 5.0);
    let creates = Bed::new("", Step::reset());
    assert_eq!((creates.call(&post("/v1/batches")).await.status, creates.upstream.count()), (502, 1));
}

#[tokio::test(start_paused = true)]
async fn client_timeout_then_sdk_retry_bills_twice() {
    let case = case("client-timeout-then-sdk-retry-bills-twice");
    let bed = Bed::new("", case.script());
    for n in 0..3 {
        bed.leave_after(&post(CHAT).header("x-stainless-retry-count", n.to_string()), secs(2)).await;
        sleep(ms(500)).await;
    }
    let closed: Vec<Duration> = bed.upstream.closed().iter().map(|(_, at)| *at).collect();
    assert_eq!((closed.len(), bed.upstream.count()), (3, 3));
    assert_eq!(bed.metric("backstop_possibly_billed_total", &["openai"]), 3.0);
}

#[tokio::test(start_paused = true)]
async fn no_retry_on_own_response_timeout() {
    let _ = case("no-retry-on-own-response-timeout");
    let bed = Bed::new("[timeouts]\nfirst_byte = \"2s\"\n", [Step::silence(), chat()]);
    let answer = bed.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts()), (200, 2));
    assert!(bed.upstream.closed()[0].1 <= bed.upstream.times()[1], "never two at once");
    assert_eq!(bed.metric("backstop_possibly_billed_total", &["openai"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn idempotency_key_stable() {
    let case = case("idempotency-key-stable");
    let bed = Bed::new("", case.script());
    bed.call(&keyed("k1").header("x-request-id", "r1").header("x-stainless-retry-count", "0")).await;
    let seen = bed.upstream.seen();
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.value("idempotency-key") == Some("k1")));
    assert!(seen.iter().all(|seen| seen.value("x-request-id") == Some("r1")));
    assert!(seen.iter().all(|seen| seen.value("x-stainless-retry-count") == Some("0")));
    let bare = Bed::new("", case.script());
    bare.call(&post(CHAT)).await;
    assert!(bare.upstream.seen().iter().all(|seen| seen.value("idempotency-key").is_none()));
}

/// SplitMix64: a seed is a run.
fn dice(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Clients of one key come when they like, and some leave; the upstream fails now and then. Whatever happens, it never has
/// two of them at once, it is not asked again once it has answered, and whoever stays is answered.
#[tokio::test(start_paused = true)]
async fn in_every_order_of_coming_failing_and_leaving_there_is_one_call_at_a_time() {
    const CONFIG: &str = "[retry]\nmax_attempts = 1\n[admission]\nadaptive = false\n[breaker]\nenabled = false\n";
    for seed in 0..40 {
        let mut state = seed;
        let steps: Vec<Step> = (0..4)
            .map(|_| match dice(&mut state) % 4 {
                0 => busy().delay(ms(dice(&mut state) % 300)),
                1 => Step::reset(),
                _ => chat().delay(ms(50 + dice(&mut state) % 500)),
            })
            .chain([chat().delay(ms(200))])
            .collect();
        let bed = Bed::new(CONFIG, steps);
        let clients: Vec<_> = (0..50)
            .map(|_| {
                let (comes, leaves) = (ms(dice(&mut state) % 1500), ms(dice(&mut state) % 800));
                let stays = !dice(&mut state).is_multiple_of(3);
                let mut client = bed.client();
                tokio::spawn(async move {
                    sleep(comes).await;
                    client.ask(&keyed("k")).await;
                    if stays {
                        Some(client.answer().await)
                    } else {
                        sleep(leaves).await;
                        None
                    }
                })
            })
            .collect();
        let mut good = 0;
        for client in clients {
            if let Some(answer) = client.await.expect("a client that ends well") {
                assert!(matches!(answer.status, 200 | 502 | 503), "seed {seed}: {}", answer.start);
                good += usize::from(answer.status == 200);
            }
        }
        let seen = bed.upstream.seen();
        let answered = bed.metric("backstop_attempts_total", &["success"]);
        assert!(answered <= 1.0 && seen.len() <= 5, "seed {seed}: {answered} answers, {} calls", seen.len());
        assert!(good > 0 || answered == 0.0, "seed {seed}");
        assert_eq!(bed.metric("backstop_in_flight", &[]), 0.0, "seed {seed}");
    }
}
