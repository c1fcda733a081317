//! Other upstreams of the same dialect take over what one cannot answer: in order, in the same time, with their own
//! credential.

use tokio::time::sleep;

use crate::support::*;

/// One that answers, and two that may take over.
const UPSTREAMS: &str = r#"
[upstreams.openai]
fallbacks = ["spare", "last"]
[upstreams.spare]
base_url = "http://spare.test/base/v1"
dialect = "openai"
api_key_env = "SPARE_KEY"
model_map = { "m" = "spare-m" }
[upstreams.last]
base_url = "http://last.test"
dialect = "openai"
"#;

/// What each host does.
fn hosts(main: Step, spare: Step, last: Step) -> Script {
    Script::by(move |seen| match seen.value("host") {
        Some("spare.test") => spare.clone(),
        Some("last.test") => last.clone(),
        _ => main.clone(),
    })
}

fn bed(settings: &str, script: Script) -> Bed {
    Bed::with_env(&format!("{settings}\n{UPSTREAMS}"), &[("SPARE_KEY", "sk-spare")], script)
}

fn visited(bed: &Bed) -> Vec<String> {
    bed.upstream.seen().iter().map(|seen| seen.value("host").unwrap().to_owned()).collect()
}

const TWO: &str = "[retry]\nmax_attempts = 2\njitter = \"none\"\n";

fn ask() -> Request {
    post("/v1/chat/completions?key=sk-client&a=1")
        .header("authorization", "Bearer sk-client")
        .header("cookie", "session=1")
        .header("x-other", "kept")
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_upstream_is_taken_over_with_another_credential_and_model() {
    let bed = bed(TWO, hosts(busy(), chat(), chat()));
    let answer = bed.call(&ask()).await;
    assert_eq!((answer.status, answer.outcome(), answer.attempts()), (200, "success", 3));
    assert_eq!(answer.value("x-backstop-upstream"), Some("spare"));
    assert_eq!(visited(&bed), ["api.openai.com", "api.openai.com", "spare.test"]);
    let (main, spare) = (&bed.upstream.seen()[0], bed.upstream.last());
    assert_eq!(
        (main.value("authorization"), main.target.as_str()),
        (Some("Bearer sk-client"), "/v1/chat/completions?key=sk-client&a=1")
    );
    assert_eq!(
        (spare.value("authorization"), spare.target.as_str()),
        (Some("Bearer sk-spare"), "/base/v1/chat/completions?a=1")
    );
    assert_eq!((spare.value("cookie"), spare.value("x-other")), (None, Some("kept")));
    assert_eq!(spare.text(), ASK.replace("\"m\"", "\"spare-m\""));
    assert_eq!(spare.value("content-length").unwrap(), spare.body.len().to_string());
    assert_eq!(main.text(), ASK);
    assert_eq!(bed.metric("backstop_requests_total", &["spare", "success"]), 1.0);
    assert_eq!(bed.metric("backstop_attempts_total", &["spare"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn the_next_one_takes_over_from_that_and_the_clients_key_goes_to_no_other_host() {
    let bed = bed(TWO, hosts(busy(), busy(), chat()));
    let answer = bed.call(&ask()).await;
    assert_eq!((answer.status, answer.value("x-backstop-upstream")), (200, Some("last")));
    assert_eq!(visited(&bed), ["api.openai.com", "api.openai.com", "spare.test", "last.test"]);
    let last = bed.upstream.last();
    assert_eq!(
        (last.value("authorization"), last.target.as_str(), last.text()),
        (None, "/v1/chat/completions?a=1", ASK)
    );
    assert!(!last.lines.iter().any(|(_, value)| String::from_utf8_lossy(value).contains("sk-")));
}

#[tokio::test(start_paused = true)]
async fn when_all_are_down_the_last_word_is_passed_on() {
    let last = Step::json(503, r#"{"error":{"message":"the last one says no"}}"#);
    let bed = bed(TWO, hosts(busy(), busy(), last));
    let answer = bed.call(&ask()).await;
    assert_eq!((answer.status, answer.outcome(), answer.attempts()), (503, "exhausted", 4));
    assert!(answer.text().contains("the last one says no") && answer.no_retry());
}

#[tokio::test(start_paused = true)]
async fn what_waiting_does_not_better_is_no_reason_to_go_elsewhere() {
    for step in [Step::json(400, "{}"), Step::json(401, "{}"), Step::json(404, "{}"), chat()] {
        let bed = bed(TWO, hosts(step, chat(), chat()));
        bed.call(&ask()).await;
        assert_eq!(visited(&bed), ["api.openai.com"]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_reached_is_taken_over_and_so_is_one_that_asks_for_a_long_wait() {
    for (main, attempts) in [(Step::reset(), 3), (limited("3600"), 2)] {
        let bed = bed(TWO, hosts(main, chat(), chat()));
        let answer = bed.call(&ask()).await;
        assert_eq!(
            (answer.status, answer.attempts(), answer.value("x-backstop-upstream")),
            (200, attempts, Some("spare"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_one_for_all() {
    let slow = Step::silence();
    let settings =
        "[retry]\nmax_attempts = 2\njitter = \"none\"\ndeadline = \"10s\"\n[timeouts]\nfirst_byte = \"4s\"\n";
    let bed = bed(settings, hosts(slow.clone(), slow.clone(), slow));
    let answer = bed.call(&ask()).await;
    assert_eq!((answer.status, answer.fault().as_str()), (504, "deadline_exceeded"));
    assert_eq!(bed.now(), secs(10));
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_carried_out_is_not_carried_out_elsewhere() {
    let bed = bed(TWO, hosts(Step::close(), chat(), chat()));
    let answer = bed.call(&post("/v1/batches")).await;
    assert_eq!((answer.status, visited(&bed).len()), (502, 1));
}

#[tokio::test(start_paused = true)]
async fn after_content_nothing_takes_over() {
    let cut = Step::sse(&chat_stream(3)[..3]).then_close();
    let bed = bed(TWO, hosts(cut.cut_after(400), Step::sse(chat_stream(1)), chat()));
    let answer = bed.call(&ask().body(ASK_STREAM)).await;
    assert_eq!((answer.status, visited(&bed)), (200, vec!["api.openai.com".to_owned()]));
    assert!(answer.text().contains("stream_interrupted"), "{}", answer.text());
}

#[tokio::test(start_paused = true)]
async fn before_content_a_stream_is_taken_over_unseen() {
    let bed = bed(TWO, hosts(Step::sse([CHAT_START]).then_close(), Step::sse(chat_stream(1)), chat()));
    let answer = bed.call(&ask().body(ASK_STREAM)).await;
    assert_eq!((answer.status, answer.text(), visited(&bed).len()), (200, chat_stream(1).concat().as_str(), 3));
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_is_gone_round_at_once() {
    let settings =
        "[retry]\nmax_attempts = 1\n[breaker]\nmin_requests = 6\nopen_for = \"60s\"\n[admission]\nadaptive = false\n";
    let bed = bed(settings, hosts(busy(), chat(), chat()));
    for _ in 0..6 {
        assert_eq!(bed.call(&ask()).await.status, 200);
    }
    assert_eq!(bed.upstream.count(), 12);
    let answer = bed.call(&ask()).await;
    assert_eq!((answer.status, answer.attempts(), bed.upstream.count(), bed.now()), (200, 1, 13, ms(0)));
    sleep(secs(60)).await;
    bed.call(&ask()).await;
    assert_eq!(bed.upstream.count(), 15, "after a while its own upstream is asked again");
}

#[tokio::test(start_paused = true)]
async fn a_model_is_renamed_wherever_it_stands() {
    let config = r#"
[upstreams.gemini]
model_map = { "m" = "other-m" }
"#;
    let bed = Bed::new(config, Step::json(200, GEMINI_BODY));
    bed.call(&post(GEMINI)).await;
    assert_eq!(bed.upstream.only().target, "/v1beta/models/other-m:generateContent");
}
