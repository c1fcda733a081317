//! Keys and prompts are in no log line at any level, no metric, and no error of ours.

use crate::support::logs::Logs;
use crate::support::*;

const SECRETS: [&str; 6] = ["SECRET-query", "SECRET-header", "SECRET-own", "SECRET-prompt", "SECRET-up", "SECRET-user"];

fn request(path: &str) -> Request {
    post(&format!("{path}?alt=json&key=SECRET-query&api%5Fkey=SECRET-query&SECRET-query"))
        .header("Authorization", "Bearer SECRET-header")
        .header("x-api-key", "SECRET-header")
        .header("x-backstop-key", "SECRET-own")
        .header("cookie", "s=SECRET-header")
        .body(r#"{"model":"m","messages":[{"role":"user","content":"SECRET-prompt"}]}"#)
}

fn clean(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {what}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_to_a_call() {
    let (logs, _guard) = Logs::catch();
    for step in [
        chat(),
        Step::refuse(),
        Step::close(),
        Step::garbage(),
        Step::json(401, "{}"),
        Step::sse(["data: SECRET-prompt\n\n"]).cut_after(10),
        Step::silence(),
        Step::respond(302, &[("location", "http://x.test/?key=SECRET-query")], ""),
    ] {
        for path in [CHAT, MESSAGES, GEMINI, "/v1/files"] {
            let bed = Bed::new("[timeouts]\nfirst_byte = \"2s\"\n", step.clone());
            let answer = bed.call(&request(path)).await;
            if answer.status >= 500 {
                clean("an error", answer.text());
            }
            clean("a metric", &bed.metrics());
        }
    }
    assert!(logs.text().contains("POST") && logs.text().contains("key=***"), "something is logged: {}", logs.text());
    clean("the log", &logs.text());
}

#[tokio::test(start_paused = true)]
async fn whoever_is_turned_away() {
    let (logs, _guard) = Logs::catch();
    let toml = "[server]\nclient_keys_env = \"KEYS\"\nmax_body = \"32KiB\"\n";
    let bed = Bed::with_env(toml, &[("KEYS", "SECRET-of-ours")], chat());
    for request in [
        request(CHAT),
        request(CHAT).host("evil.example"),
        request(CHAT).header("origin", "https://evil.example"),
        request("/nowhere"),
        request(CHAT).header("x-backstop-key", "SECRET-of-ours").body("SECRET-prompt".repeat(5000)),
    ] {
        let answer = bed.call(&request).await;
        assert!(answer.status >= 400);
        clean("an answer", answer.text());
        assert!(!answer.text().contains("SECRET-of-ours"));
    }
    clean("the log", &logs.text());
    assert!(!logs.text().contains("SECRET-of-ours"));
}

#[tokio::test(start_paused = true)]
async fn of_the_config() {
    let (logs, _guard) = Logs::catch();
    let toml = "[server]\nclient_keys_env = \"KEYS\"\n[upstreams.openai]\napi_key_env = \"UP\"\nbase_url = \"http://h.test\"\n\
                [upstreams.mine]\nbase_url = \"http://user:SECRET-user@h.test\"\ndialect = \"openai\"\n";
    let bed = Bed::with_env(toml, &[("KEYS", "SECRET-own"), ("UP", "SECRET-up")], Step::refuse());
    for path in [CHAT, "/mine/v1/chat/completions"] {
        let answer = bed.call(&request(path)).await;
        assert_eq!(answer.status, 502);
        clean("an error", answer.text());
    }
    bed.reload(&toml.replace("dialect", "dialekt"));
    bed.reload(&format!("{toml}\n[retry]\nmax_attempts = 2\n"));
    clean("the log", &logs.text());
    clean("a page", bed.call(&get("/_backstop/").header("x-backstop-key", "SECRET-own")).await.text());
    clean("the config", &format!("{:?}", bed.instance().config));
}

#[tokio::test(start_paused = true)]
async fn the_upstream_sees_the_key_as_the_client_sent_it() {
    let bed = Bed::new("", chat());
    bed.call(&post(&format!("{GEMINI}?alt=sse&key=SECRET-query&x=1"))).await;
    assert_eq!(bed.upstream.only().target, format!("{GEMINI}?alt=sse&key=SECRET-query&x=1"));
}
