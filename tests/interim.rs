//! 102 Processing while a call is held, for clients that were seen to take it; never where it could do harm.

use crate::support::*;

/// When 102s came, in seconds.
fn beats(answer: &Answer) -> Vec<u64> {
    assert!(answer.interims.iter().all(|(status, _)| *status == 102));
    answer.interims.iter().map(|(_, at)| at.as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn known_clients_are_told_every_fifteen_seconds() {
    for (name, says) in [
        ("User-Agent", "node"),
        ("User-Agent", "undici"),
        ("User-Agent", "python-httpx/0.28 httpx"),
        ("User-Agent", "google-genai-sdk/1.2.0 gl-node/v22"),
        ("X-Stainless-Lang", "js"),
    ] {
        let bed = Bed::new("", chat().delay(secs(50)));
        let answer = bed.call(&post(CHAT).header(name, says)).await;
        assert_eq!((beats(&answer), answer.status, answer.text()), (vec![15, 30, 45], 200, CHAT_BODY), "{says}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_clients_and_short_calls_are_told_nothing() {
    for agent in ["curl/8.0", "Go-http-client/1.1", ""] {
        let bed = Bed::new("", chat().delay(secs(100)));
        assert_eq!(beats(&bed.call(&post(CHAT).header("User-Agent", agent)).await), Vec::<u64>::new());
    }
    let short = Bed::new("", chat().delay(secs(14)));
    assert_eq!(beats(&short.call(&post(CHAT).header("User-Agent", "node")).await), Vec::<u64>::new());
}

#[tokio::test(start_paused = true)]
async fn the_config_decides_and_http_1_0_is_told_nothing_ever() {
    for (mode, agent, count) in [("always", "curl/8.0", 3), ("never", "node", 0), ("known", "node", 3)] {
        let bed = Bed::new(&format!("[server]\ninterim = \"{mode}\"\n"), chat().delay(secs(50)));
        let request = post(CHAT).header("User-Agent", agent);
        assert_eq!(beats(&bed.call(&request).await).len(), count, "{mode}");
        assert_eq!(beats(&bed.call(&request.http10()).await).len(), 0, "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_between_attempts_are_told_of_too() {
    let bed = Bed::new("[retry]\njitter = \"none\"\n", [limited("40"), chat()]);
    let answer = bed.call(&post(CHAT).header("User-Agent", "node")).await;
    assert_eq!((beats(&answer), answer.attempts()), (vec![15, 30], 2));
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_between_a_head_and_its_body() {
    let events = chat_stream(3);
    let at_once = Step::sse(&events[..1]).pause(secs(100)).write(events[1..].concat());
    // The head is held until there is content: until then, and only until then, the client is told.
    for (step, told) in [(at_once, vec![]), (Step::sse(&events).pace(secs(40)), vec![15, 30])] {
        let bed = Bed::new("", step);
        let mut client = bed.client();
        let answer = client.call(&post(CHAT).header("User-Agent", "node")).await;
        assert_eq!((beats(&answer), answer.text()), (told.clone(), events.concat().as_str()));
        let sent = String::from_utf8_lossy(&client.bytes()).matches(" 102 ").count();
        assert_eq!((sent, answer.head_at.as_secs()), (told.len(), told.len() as u64 * 20));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_between_two_requests_of_a_connection() {
    let bed = Bed::new("", chat().delay(secs(14)));
    let mut client = bed.client();
    for _ in 0..3 {
        let answer = client.call(&post(CHAT).header("User-Agent", "node")).await;
        assert_eq!(answer.interims.len(), 0);
        tokio::time::sleep(secs(20)).await;
    }
    assert!(client.pending().is_empty());
}
