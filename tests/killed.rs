//! A Backstop that is killed amid its work: the answers that it stored are there whole or not at all.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;

use crate::support::process::Process;
use crate::support::site::*;
use crate::support::*;

/// What the upstream says to a key: a chat or a stream of 20 to 800 events, after a while that differs.
fn said(key: &str) -> Step {
    let n: u64 = key[1..].parse().expect("k and a number");
    let delay = ms(n * 37 % 400);
    if n.is_multiple_of(2) {
        Step::json(200, &spoken(key)).delay(delay)
    } else {
        let body = spoken(key);
        Step::sse(body.split_inclusive("\n\n")).delay(delay)
    }
}

fn spoken(key: &str) -> String {
    let n: usize = key[1..].parse().expect("k and a number");
    let words = format!("{key} ").repeat(20 + n * 7 % 400);
    if n.is_multiple_of(2) {
        return CHAT_BODY.replace("Hello", &words);
    }
    let pieces = words.split_inclusive(' ').map(chat_piece);
    pieces.chain([CHAT_STOP, CHAT_USAGE, DONE].map(String::from)).collect()
}

fn asking(key: &str) -> Request {
    let n: usize = key[1..].parse().expect("k and a number");
    if n.is_multiple_of(2) { keyed(key) } else { keyed(key).body(ASK_STREAM) }
}

fn spawn_calls(backstop: &Process, keys: std::ops::Range<usize>) {
    let address = backstop.address;
    for n in keys {
        tokio::spawn(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            let mut client = Client::over(stream);
            client.ask(&asking(&format!("k{n}"))).await;
            // However it ends.
            while client.piece().await {}
            Ok::<_, std::io::Error>(())
        });
    }
}

#[tokio::test]
async fn whenever_it_is_killed_what_is_given_again_is_whole_and_the_rest_is_asked_for_again() {
    let site = Site::new(Script::by(|seen| said(seen.value("idempotency-key").unwrap()))).await;
    let mut replayed = 0;
    for (round, life) in [60, 180, 300, 450].into_iter().enumerate() {
        let keys = round * 1000..round * 1000 + 60;
        let mut backstop = site.start("");
        spawn_calls(&backstop, keys.clone());
        sleep(Duration::from_millis(life)).await;
        backstop.signal("KILL");
        backstop.wait();
        // What was sent before is read by now.
        sleep(ms(200)).await;
        let asked = |upstream: &Upstream| {
            let mut counts: HashMap<String, usize> = HashMap::new();
            for seen in upstream.seen() {
                *counts.entry(seen.value("idempotency-key").unwrap().to_owned()).or_default() += 1;
            }
            counts
        };
        let before = asked(&site.upstream);
        let backstop = site.start("");
        let mut calls = tokio::task::JoinSet::new();
        for key in keys.map(|n| format!("k{n}")) {
            let mut client = backstop.client().await;
            calls.spawn(async move { (client.call(&asking(&key)).await, key) });
        }
        for (answer, key) in calls.join_all().await {
            assert_eq!((answer.status, answer.whole, answer.text() == spoken(&key)), (200, true, true), "{key}");
            let again = asked(&site.upstream).get(&key).copied().unwrap_or(0) - before.get(&key).copied().unwrap_or(0);
            match answer.outcome() {
                "replayed" => assert_eq!(again, 0, "{key}"),
                outcome => assert_eq!((outcome, again), ("success", 1), "{key}"),
            }
            replayed += usize::from(again == 0);
        }
        // All of these were given long ago: nothing of them may be lost.
        sleep(ms(1500)).await;
        let mut backstop = backstop;
        backstop.signal("KILL");
        backstop.wait();
        let backstop = site.start("");
        for n in [0, 1, 58, 59] {
            let key = format!("k{}", round * 1000 + n);
            let answer = call(&backstop, &asking(&key)).await;
            assert_eq!((answer.outcome(), answer.text() == spoken(&key)), ("replayed", true), "{key}");
        }
    }
    assert!(replayed > 0, "some were in time");
}
