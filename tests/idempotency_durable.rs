//! Answers to keys survive a restart (`idempotency.durable`): whole or not at all, for the same caller, for as long as they had left.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use backstop::clock::Clock;
use backstop::join::restore;
use backstop::transcript::store::{ASIDE, Limits};
use tokio::time::sleep;

use crate::support::process::Process;
use crate::support::site::*;
use crate::support::*;

/// All bytes of an answer to the end of its connection, but for what is each request's own.
async fn raw(backstop: &Process, request: Request) -> String {
    let mut client = backstop.client().await;
    client.ask(&request.header("connection", "close, te").header("te", "trailers")).await;
    while client.piece().await {}
    let text = String::from_utf8_lossy(client.pending()).into_owned();
    let own = |line: &&str| !line.starts_with("x-backstop-request-id") && !line.to_lowercase().starts_with("date:");
    text.split_inclusive("\r\n").filter(own).collect()
}

#[tokio::test]
async fn a_restart_gives_answers_again_byte_for_byte() {
    let script = Script::by(|seen| match seen.value("idempotency-key").unwrap() {
        "plain" => chat().header("X-Odd-Case", "1").header("Set-Cookie", "a").header("set-COOKIE", "b"),
        "trailers" => chat().header("X-Latin", b"\xe9".as_slice()).trailer("x-sum", "7").trailer("x-sum", "8"),
        _ => Step::sse(chat_stream(5)).pace(ms(20)),
    });
    let site = Site::new(script).await;
    let requests = || [keyed("plain"), keyed("trailers"), keyed("stream").body(ASK_STREAM)];
    let backstop = site.start("");
    let mut before = Vec::new();
    for request in requests() {
        assert_eq!(outcome(&backstop, &request).await, "success");
        before.push(raw(&backstop, request).await);
    }
    assert!(before[0].contains("200 Some Reason\r\n") && before[0].contains("X-Odd-Case: 1"), "{}", before[0]);
    assert!(before[1].contains("x-sum: 8") && before[2].ends_with(&chat_stream(5).concat()), "{before:?}");
    stop(backstop);
    // The second time what is read was also read back before.
    for _ in 0..2 {
        let backstop = site.start("");
        for (request, before) in requests().into_iter().zip(&before) {
            assert_eq!(&raw(&backstop, request).await, before);
        }
        assert_eq!(site.upstream.count(), 3);
        stop(backstop);
    }
}

#[tokio::test]
async fn nobody_else_is_given_it_and_the_key_stays_that_of_its_body() {
    let site = Site::new(chat()).await;
    site.answered(&["k"]).await;
    let backstop = site.start("");
    let others = [
        post(CHAT).header("idempotency-key", "k").header("authorization", "Bearer bob"),
        post(CHAT).header("idempotency-key", "k"),
        keyed("k").header("x-backstop-key", "carol"),
        keyed("k2"),
        post("/v1/chat/completions?x=1").header("idempotency-key", "k").header("authorization", "Bearer alice"),
    ];
    for (n, other) in others.iter().enumerate() {
        assert_eq!(outcome(&backstop, other).await, "success");
        assert_eq!(site.upstream.count(), n + 2);
    }
    let reused = call(&backstop, &keyed("k").body(r#"{"other":1}"#)).await;
    assert_eq!((reused.status, reused.fault().as_str()), (422, "idempotency_key_reused"));
    assert_eq!(outcome(&backstop, &keyed("k")).await, "replayed");
}

#[tokio::test]
async fn failures_and_answers_to_no_key_of_a_clients_own_are_not_stored() {
    let site = Site::new(Script::by(|seen| match seen.value("idempotency-key") {
        Some(_) => Step::json(400, "{}"),
        None => chat(),
    }))
    .await;
    let backstop = site.start("auto = true");
    call(&backstop, &keyed("k")).await;
    call(&backstop, &post(CHAT)).await;
    call(&backstop, &post(CHAT).header("x-stainless-retry-count", "0")).await;
    stop(backstop);
    assert_eq!(site.stored(Clock::real()), []);
}

#[tokio::test]
async fn what_has_expired_is_gone_from_the_file_and_the_rest_is_given_for_as_long_as_it_had_left() {
    let site = Site::new(chat()).await;
    site.answered(&["k"]).await;
    let mut answers = site.stored(Clock::real());
    assert_eq!(answers.len(), 1);
    let left = answers[0].until.duration_since(SystemTime::now()).expect("some time is left");
    assert!(left <= secs(600) && left > secs(300), "{left:?}");
    let back = Clock::starting_at(SystemTime::now() - secs(9000));
    let capped = site.stored(back.clone());
    assert!(capped[0].until <= back.wall() + secs(600), "a clock that is set back makes nothing last longer");
    let later = Clock::starting_at(SystemTime::now() + secs(601));
    assert_eq!(site.stored(later), []);
    assert_eq!(site.stored(Clock::real()), [], "it is not in the file any more");

    tokio::time::pause();
    // The same upstream at the same host.
    let bed = Bed::new(&format!("[upstreams.openai]\nbase_url = \"http://{}\"\n", site.address), chat());
    let lasting = bed.instance().lasting.clone();
    answers[0].until = lasting.clock.wall() + secs(30);
    restore(lasting, answers, LIMITS.max_bytes).await;
    sleep(secs(29)).await;
    assert_eq!(bed.call(&keyed("k")).await.outcome(), "replayed");
    sleep(secs(2)).await;
    assert_eq!(bed.call(&keyed("k")).await.outcome(), "success");
}

#[tokio::test]
async fn what_is_stored_has_the_bound_of_what_is_kept_and_the_oldest_goes_first() {
    let big = Step::json(200, &format!("{CHAT_BODY}{}", " ".repeat(40_000)));
    let site = Site::new(big).await;
    let bounded = "max_bytes = \"100KiB\"";
    let backstop = site.start(bounded);
    for key in ["a", "b", "c"] {
        call(&backstop, &keyed(key)).await;
    }
    stop(backstop);
    assert_eq!(site.stored(Clock::real()).len(), 2);
    let backstop = site.start(bounded);
    for (key, expected) in [("c", "replayed"), ("b", "replayed"), ("a", "success")] {
        assert_eq!(outcome(&backstop, &keyed(key)).await, expected, "{key}");
    }
    stop(backstop);
    let less = Limits { max_bytes: 50 << 10, ..LIMITS };
    assert_eq!(open(&site.state(), less, Clock::real()).len(), 1, "also where the bound is lower than it was");
    assert_eq!(site.stored(Clock::real()).len(), 1);
}

#[tokio::test]
async fn a_file_that_is_none_of_ours_is_moved_aside_and_a_new_one_begun() {
    let site = Site::new(chat()).await;
    site.answered(&["k"]).await;
    let good = std::fs::read(site.file()).unwrap();
    let noise: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut wrong_version = good.clone();
    wrong_version[..16].fill(7);
    for bad in [&noise[..], b"a text", &good[..good.len() / 2], &good[..100], &wrong_version] {
        std::fs::write(site.file(), bad).unwrap();
        let backstop = site.start("");
        let before = site.upstream.count();
        assert_eq!(outcome(&backstop, &keyed("k")).await, "success");
        assert_eq!(site.upstream.count(), before + 1);
        assert!(backstop.logs().contains(ASIDE), "{}", backstop.logs());
        stop(backstop);
        assert!(std::fs::metadata(site.state().join(ASIDE)).is_ok_and(|data| data.len() > 0));
        let backstop = site.start("");
        assert_eq!(outcome(&backstop, &keyed("k")).await, "replayed");
        stop(backstop);
    }
    std::fs::write(site.file(), b"").unwrap();
    assert_eq!(outcome(&site.start(""), &keyed("k")).await, "success", "an empty file is a new one");
}

#[tokio::test]
async fn of_a_file_with_wrong_bytes_in_it_nothing_wrong_is_read() {
    let site = Site::new(chat()).await;
    site.answered(&["a", "b"]).await;
    let good = std::fs::read(site.file()).unwrap();
    let answers = site.stored(Clock::real());
    assert_eq!(answers.len(), 2);
    for step in 0..60 {
        // Denser at the start, where its own books are.
        let at = if step < 30 { step * 11 } else { (step - 30) * good.len() / 30 };
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        std::fs::write(site.file(), &bad).unwrap();
        let read = site.stored(Clock::real());
        assert!(read.is_empty() || read == answers, "byte {at}");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let state = format!("server.state_dir={}", dir.path().join("file/state").display());
    let args = ["--listen", "127.0.0.1:0", "--set", "idempotency.durable=true", "--set", &state];
    let output = Command::new(env!("CARGO_BIN_EXE_backstop")).args(args).current_dir(&dir).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for part in ["file/state", "server.state_dir", "can't be used", "idempotency.durable = false"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[tokio::test]
async fn a_second_backstop_of_the_same_place_serves_without_it_and_says_so() {
    let site = Site::new(chat()).await;
    let first = site.start("");
    assert_eq!(outcome(&first, &keyed("k")).await, "success");
    let second = site.start("");
    for (key, expected) in [("k", "success"), ("k", "replayed"), ("second", "success")] {
        assert_eq!(outcome(&second, &keyed(key)).await, expected);
    }
    assert_eq!(second.logs().matches("another Backstop keeps its answers here").count(), 1);
    stop(second);
    stop(first);
    let third = site.start("");
    assert_eq!(outcome(&third, &keyed("k")).await, "replayed");
    assert_eq!(outcome(&third, &keyed("second")).await, "success");
}

#[tokio::test]
async fn the_file_holds_no_key_credential_or_prompt_and_is_nobody_elses() {
    let secrets = ["SECRET-key", "SECRET-credential", "SECRET-prompt", "SECRET-own", "SECRET-query"];
    let site = Site::new(chat()).await;
    let request = post("/v1/chat/completions?key=SECRET-query")
        .header("idempotency-key", "SECRET-key")
        .header("authorization", "Bearer SECRET-credential")
        .header("x-backstop-key", "SECRET-own")
        .body(r#"{"model":"m","messages":[{"role":"user","content":"SECRET-prompt"}]}"#);
    let backstop = site.start("");
    assert_eq!(outcome(&backstop, &request).await, "success");
    stop(backstop);
    let bytes = std::fs::read(site.file()).unwrap();
    let holds = |text: &str| memchr::memmem::find(&bytes, text.as_bytes()).is_some();
    assert!(holds("Hello"), "the answer is there");
    for secret in secrets {
        assert!(!holds(secret), "{secret}");
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&site.state()), mode(&site.file())), (0o700, 0o600));
    assert_eq!(outcome(&site.start(""), &request).await, "replayed");
}

#[tokio::test]
async fn off_there_is_no_file() {
    let site = Site::new(chat()).await;
    stop(site.start("replay_for = \"1m\"\n[log]"));
    assert!(site.file().exists());
    let state = site.dir.path().join("other");
    let toml = format!(
        "[server]\nstate_dir = \"{}\"\n[upstreams.openai]\nbase_url = \"http://{}\"\n",
        state.display(),
        site.address
    );
    let backstop = Process::start(&toml, &[]);
    call(&backstop, &keyed("k")).await;
    stop(backstop);
    assert!(!state.exists());
}
