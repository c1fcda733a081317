//! The config as users meet it: what is taken, and what is said of what is not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::load::load_text;
use super::*;

pub(super) fn sources(vars: &'static [(&str, &str)]) -> Sources {
    let env: Env = Arc::new(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()));
    Sources { env, path: None, sets: Vec::new(), listen: None, upstream: None }
}

pub(super) fn read(text: &str) -> Result<Loaded, ConfigError> {
    load_text(&sources(&[]), Some((Path::new("backstop.toml"), text)))
}

pub(super) fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|e| panic!("{e}")).config
}

/// The faults of a text, one a line.
pub(super) fn faults(text: &str) -> String {
    read(text).err().unwrap_or_else(|| panic!("no fault in {text:?}")).to_string()
}

fn set(args: &[&str]) -> Result<Loaded, ConfigError> {
    let sets = args.iter().map(ToString::to_string).collect();
    load(&Sources { sets, ..sources(&[]) })
}

#[test]
fn the_defaults_are_sound_and_complete() {
    let config = load(&sources(&[])).unwrap_or_else(|e| panic!("{e}")).config;
    let names: Vec<_> = config.upstreams.keys().map(String::as_str).collect();
    let expected = [
        "anthropic",
        "deepseek",
        "fireworks",
        "gemini",
        "groq",
        "mistral",
        "ollama",
        "openai",
        "openrouter",
        "together",
        "xai",
    ];
    assert_eq!(names, expected);
    let openai = &config.upstreams["openai"];
    assert_eq!(openai.retry.max_attempts, 5);
    assert_eq!(openai.timeouts.first_byte, Duration::from_secs(600));
    assert_eq!(config.server.max_body, 100 << 20);
    assert_eq!(config.server.allowed_hosts, ["localhost", "127.0.0.1", "[::1]"]);
    assert_eq!(config.upstreams["groq"].base_url, "https://api.groq.com/openai");
    assert_eq!(config.sole_upstream, None);
    assert_eq!(config.redis, None);
}

#[test]
fn the_default_file_is_a_config_itself() {
    good(DEFAULTS);
}

/// A text, the line of its one fault, and the key.
const FAULTY: &[(&str, usize, &str)] = &[
    ("[server]\nlisten = \"127.0.0.1:0\"\n\n[retry]\nmax_atempts = 3\n", 5, "retry.max_atempts"),
    ("[server]\nlisten = \"127.0.0.1:0\"\n[retries]\nmax_attempts = 3\n", 3, "retries"),
    ("[retry]\nmax_attempts = \"three\"\n", 2, "retry.max_attempts"),
    ("[retry]\n\nbase_delay = \"1 parsec\"\n", 3, "retry.base_delay"),
    ("[retry]\nbase_delay = \"0s\"\n", 2, "retry.base_delay"),
    ("[timeouts]\nconnect = 10\n", 2, "timeouts.connect"),
    ("[timeouts]\nstream_idle = \"0s\"\n", 2, "timeouts.stream_idle"),
    ("[server]\nmax_body = \"lots\"\n", 2, "server.max_body"),
    ("[server]\nmax_body = \"0B\"\n", 2, "server.max_body"),
    ("[server]\nmax_body = \"1MiB\"\nreplay_body = \"2MiB\"\n", 3, "server.replay_body"),
    ("[retry]\nbase_delay = \"1s\"\njitter = \"some\"\n", 3, "retry.jitter"),
    ("[retry]\nmax_attempts = 0\n", 2, "retry.max_attempts"),
    ("[retry]\nmax_attempts = 101\n", 2, "retry.max_attempts"),
    ("[retry]\nmax_attempts = 99999999999999999999\n", 2, "retry.max_attempts"),
    ("[retry]\nmultiplier = 0.5\n", 2, "retry.multiplier"),
    ("[retry]\nmultiplier = inf\n", 2, "retry.multiplier"),
    ("[retry]\nmultiplier = nan\n", 2, "retry.multiplier"),
    ("[breaker]\nfailure_ratio = 1.5\n", 2, "breaker.failure_ratio"),
    ("[breaker]\nfailure_ratio = 0\n", 2, "breaker.failure_ratio"),
    ("[breaker]\nmin_requests = 0\n", 2, "breaker.min_requests"),
    ("[breaker]\nwindow = \"0s\"\n", 2, "breaker.window"),
    ("[breaker]\nenabled = false\nopen_for = \"0s\"\n", 3, "breaker.open_for"),
    ("[breaker]\nenabled = \"yes\"\n", 2, "breaker.enabled"),
    ("[breaker]\nratio = 0.5\n", 2, "breaker.ratio"),
    ("breaker = 3\n", 1, "breaker"),
    ("[admission]\nrequests_per_second = -1\n", 2, "admission.requests_per_second"),
    ("[admission]\nrequests_per_second = inf\n", 2, "admission.requests_per_second"),
    ("[admission]\nburst = -1\n", 2, "admission.burst"),
    ("[admission]\ntokens_per_minute = 0.5\n", 2, "admission.tokens_per_minute"),
    ("[admission]\nmax_concurrency = 1000000001\n", 2, "admission.max_concurrency"),
    ("[admission]\nadaptive = 1\n", 2, "admission.adaptive"),
    ("[admission]\nqueue = 0\n", 2, "admission.queue"),
    ("[redis]\nurl = \"127.0.0.1:6379\"\n", 2, "redis.url"),
    ("[redis]\nurl = 6379\n", 2, "redis.url"),
    ("[retry.bucket]\nrate = -1.0\n", 2, "retry.bucket.rate"),
    ("[retry.bucket]\nrate = inf\n", 2, "retry.bucket.rate"),
    ("[retry.bucket]\nburst = 0\n", 2, "retry.bucket.burst"),
    ("[server]\nlisten = \"nowhere\"\n", 2, "server.listen"),
    ("[server]\ndefault_upstream = \"nobody\"\n", 2, "server.default_upstream"),
    ("[server]\nallowed_origins = [\n \"https://a\",\n \"b.example\"]\n", 4, "server.allowed_origins"),
    ("[server]\nallowed_hosts = [\"a:80\"]\n", 2, "server.allowed_hosts"),
    ("[server]\ndrain_timeout = \"400 days\"\n", 2, "server.drain_timeout"),
    ("[server]\nmax_connections = 0\n", 2, "server.max_connections"),
    ("[server]\nclient_keys_env = \"UNSET\"\n", 2, "server.client_keys_env"),
    ("server = 3\n", 1, "server"),
    ("[upstreams.mine]\ndialect = \"openai\"\nbase_url = \"not a url\"\n", 3, "upstreams.mine.base_url"),
    ("[upstreams.mine]\nbase_url = \"http://127.0.0.1:9\"\ndialect = \"klingon\"\n", 3, "upstreams.mine.dialect"),
    ("\n[upstreams.mine]\nbase_url = \"http://127.0.0.1:9\"\n", 2, "upstreams.mine"),
    ("\n[upstreams.mine]\ndialect = \"openai\"\n", 2, "upstreams.mine"),
    ("[upstreams.metrics]\nbase_url = \"http://127.0.0.1:9\"\ndialect = \"openai\"\n", 1, "upstreams.metrics"),
    ("[upstreams.Mine]\nbase_url = \"http://127.0.0.1:9\"\ndialect = \"openai\"\n", 1, "upstreams.Mine"),
    ("[upstreams.openai]\nfallbacks = [\"nobody\"]\n", 2, "upstreams.openai.fallbacks"),
    ("[upstreams.openai]\nca_file = \"no/such/file.pem\"\n", 2, "upstreams.openai.ca_file"),
    ("[upstreams.openai]\napi_key_env = \"UNSET\"\n", 2, "upstreams.openai.api_key_env"),
    ("[upstreams.openai]\nheaders = { host = \"x\" }\n", 2, "upstreams.openai.headers.host"),
    ("[upstreams.openai]\nheaders = { \"a b\" = \"x\" }\n", 2, "upstreams.openai.headers.\"a b\""),
    ("[upstreams.openai]\nheaders = { x = \"a\\nb\" }\n", 2, "upstreams.openai.headers.x"),
    ("[upstreams.openai.retry]\nmax_attempts = 0\n", 2, "upstreams.openai.retry.max_attempts"),
    ("[upstreams.openai.retry]\nbucket = {}\n", 2, "upstreams.openai.retry.bucket"),
    ("[upstreams.openai.breaker]\nfailure_ratio = 2\n", 2, "upstreams.openai.breaker.failure_ratio"),
    ("[upstreams.openai.admission]\nqueue = -1\n", 2, "upstreams.openai.admission.queue"),
    ("[upstreams.openai]\nbreaker = false\n", 2, "upstreams.openai.breaker"),
    ("[[classify]]\nstatus = [404]\nclass = \"sometimes\"\n", 3, "classify.class"),
    ("[[classify]]\nstatus = [99]\nclass = \"terminal\"\n", 2, "classify.status"),
    ("\n[[classify]]\nclass = \"terminal\"\n", 2, "classify"),
    ("[[classify]]\nstatus = [404]\nclass = \"terminal\"\nupstream = \"nobody\"\n", 4, "classify.upstream"),
];

#[test]
fn every_fault_has_file_line_and_key() {
    for (text, line, key) in FAULTY {
        let told = faults(text);
        assert!(told.starts_with(&format!("backstop.toml:{line}: {key}: ")), "{text}\n{told}");
        assert_eq!(told.lines().count(), 1, "{text}\n{told}");
    }
}

#[test]
fn faults_of_syntax_name_the_line() {
    for (text, line) in [
        ("[server]\nlisten = \"127.0.0.1:0\n", 2),
        ("[server]\nlisten = \"127.0.0.1:0", 2),
        ("[server]\nlisten = \"127.0.0.1:0\r\n[retry]\n", 2),
        ("a = 1\n\na = 2\n", 3),
        ("[server\n", 1),
        ("= 1\n", 1),
    ] {
        let told = faults(text);
        assert!(told.starts_with(&format!("backstop.toml:{line}: not valid TOML: ")), "{text:?}: {told}");
    }
}

#[test]
fn all_faults_are_told_at_once_and_each_once() {
    let told =
        faults("[retry]\nmax_attempts = 0\njitter = \"some\"\n[timeouts]\nconect = \"1s\"\n[runs]\nenabled = true\n");
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    assert_eq!(lines[0], "backstop.toml:2: retry.max_attempts: found 0, expected a whole number from 1 to 100");
    assert_eq!(
        lines[1],
        "backstop.toml:3: retry.jitter: found \"some\", expected one of \"full\", \"equal\", \"additive\", \"none\""
    );
    assert_eq!(lines[2], "backstop.toml:5: timeouts.conect: unknown key; did you mean `connect`?");
    assert_eq!(lines[3], "backstop.toml:7: runs.enabled: not available yet; the one value that works now is false");
}

#[test]
fn what_was_meant_is_suggested() {
    for (text, hint) in [
        ("[retries]\n", "unknown section; did you mean `retry`?"),
        ("[retry]\nburst = 3\n", "it belongs in [retry.bucket] or [admission]"),
        ("[server]\nfirst_byte = \"1s\"\n", "it belongs in [timeouts]"),
        ("[upstreams.openai]\nmax_attempts = 2\n", "it belongs in [upstreams.openai.retry]"),
        ("[server]\ndialect = \"openai\"\n", "it belongs in [upstreams.NAME]"),
        ("[server]\ndefault_upstream = \"opneai\"\n", "did you mean \"openai\"?"),
        ("[retry]\njitter = \"ful\"\n", "did you mean \"full\"?"),
        ("[timeouts]\nconnect = 10\n", "write \"10s\""),
    ] {
        assert!(faults(text).contains(hint), "{}", faults(text));
    }
}

#[test]
fn features_to_come_are_checked_and_refused() {
    for text in [
        "[runs]\nenabled = true\n",
        "[repair]\nenabled = true\n",
        "[[repair.completion]]\nmin_chars = 3\n",
        "[telemetry]\notlp_endpoint = \"http://h\"\n",
    ] {
        let error = read(text).unwrap_err();
        assert!(error.faults().iter().all(|fault| fault.kind == Kind::Unavailable), "{error}");
        assert!(error.document().is_some() && error.to_string().contains("not available yet"), "{error}");
    }
    for text in [
        "[stream]\nmode = \"sheild\"\n",
        "[idempotency]\nlinger = 30\n",
        "[idempotency]\ndurable = \"yes\"\n",
        "[runs.loops]\nwindwo = 3\n",
        "[[repair.completion]]\ncontain = \"x\"\n",
        "[runs.prices.m]\ninput = -1.0\n",
        "[upstreams.openai]\nidempotency_header = 1\n",
        "[upstreams.openai]\nidempotency_header = \"two words\"\n",
        "[upstreams.openai]\nidempotency_header = \"authorization\"\n",
        "[upstreams.openai]\nidempotency_header = \"content-length\"\n",
    ] {
        let error = read(text).unwrap_err();
        assert!(error.faults().iter().any(|fault| fault.kind == Kind::Wrong) && error.document().is_none(), "{error}");
    }
    good("[runs]\nmax_steps = 5\n[runs.prices.\"gpt-5.1\"]\ninput = 1\n[stream]\nhold = \"0\"\n");
}

#[test]
fn an_upstream_overrides_the_global_keys_and_inherits_the_rest() {
    let config = good(
        "[retry]\nmax_attempts = 7\nbase_delay = \"2s\"\n[upstreams.groq.retry]\nbase_delay = \"10ms\"\n[upstreams.groq.timeouts]\nconnect = \"1s\"\n\
         [upstreams.mine]\nbase_url = \"http://127.0.0.1:9/\"\ndialect = \"generic\"\n",
    );
    let (groq, mine) = (&config.upstreams["groq"], &config.upstreams["mine"]);
    assert_eq!((groq.retry.max_attempts, groq.retry.base_delay), (7, Duration::from_millis(10)));
    assert_eq!((mine.retry.max_attempts, mine.retry.base_delay), (7, Duration::from_secs(2)));
    assert_eq!((groq.timeouts.connect, mine.timeouts.connect), (Duration::from_secs(1), Duration::from_secs(10)));
    assert_eq!((mine.http2, mine.api_key_env.as_deref(), mine.dialect), (Http2::Auto, None, Dialect::Generic));
}

#[test]
fn max_delay_below_base_delay_is_told_where_it_was_caused() {
    assert!(
        faults("[retry]\nbase_delay = \"1m\"\n")
            .starts_with("backstop.toml:2: retry.base_delay: max_delay (30s) is below base_delay (1m)")
    );
    assert!(
        faults("[retry]\nbase_delay = \"5s\"\nmax_delay = \"1s\"\n").starts_with("backstop.toml:3: retry.max_delay: ")
    );
    let told = faults("[upstreams.groq.retry]\nmax_delay = \"1ms\"\n");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("backstop.toml:2: upstreams.groq.retry.max_delay"), "{told}");
}

#[test]
fn a_default_replay_body_follows_a_smaller_max_body() {
    assert_eq!(good("[server]\nmax_body = \"1MiB\"\n").server.replay_body, 1 << 20);
}

#[test]
fn rules_go_to_the_upstreams_they_are_for() {
    let config = good(
        "[[classify]]\nstatus = [404]\nerror_type = [\"model_not_ready\"]\nclass = \"transient\"\n\
         [[classify]]\nupstream = \"openai\"\nstatus = [500]\nbody_contains = \"poison\"\nclass = \"terminal\"\n",
    );
    assert_eq!(config.upstreams["openai"].rules.len(), 2);
    assert_eq!(config.upstreams["groq"].rules.len(), 1);
    assert_eq!(config.upstreams["openai"].rules[1].body_contains, "poison");
}

#[test]
fn sets_win_over_the_file_and_later_ones_over_earlier() {
    let sets = [
        "retry.max_attempts=8",
        "retry.max_attempts=9",
        "server.listen=127.0.0.1:0",
        "upstreams.\"openai\".base_url=http://h/x",
        "retry.jitter = \"none\"",
    ];
    let sources = Sources { sets: sets.map(String::from).to_vec(), ..sources(&[]) };
    let config = load_text(&sources, Some((Path::new("f"), "[retry]\nmax_attempts = 7\n"))).unwrap().config;
    assert_eq!(config.upstreams["openai"].retry.max_attempts, 9);
    assert_eq!(config.upstreams["openai"].base_url, "http://h/x");
    assert_eq!(config.upstreams["openai"].retry.jitter, Jitter::None);
    assert_eq!(config.server.listen.port(), 0);
}

#[test]
fn faulty_sets_name_the_argument() {
    for (arg, told) in [
        (
            "retry.max_attempts=three",
            "--set retry.max_attempts=three: retry.max_attempts: found \"three\", expected a whole number from 1 to 100",
        ),
        (
            "retry.max_atempts=3",
            "--set retry.max_atempts=3: retry.max_atempts: unknown key; did you mean `max_attempts`?",
        ),
        ("retry", "--set retry: expected KEY=VALUE, like `retry.max_attempts=3`"),
        ("=3", "--set : found no key before the `=`, expected one like `retry.max_attempts`"),
        ("retry=3", "--set retry=3: retry: found 3, expected a table of keys"),
        (
            "upstreams.openai.headers.host=s3cret",
            "--set upstreams.openai.headers.host=***: upstreams.openai.headers.host: this header belongs to the connection and can't be set",
        ),
    ] {
        assert_eq!(set(&[arg]).unwrap_err().to_string(), told, "{arg}");
    }
}

#[test]
fn listen_and_upstream_arguments() {
    let all =
        Sources { listen: Some("[::1]:0".into()), upstream: Some("http://127.0.0.1:9/v1/".into()), ..sources(&[]) };
    let config = load(&all).unwrap().config;
    assert_eq!(config.sole_upstream.as_deref(), Some("upstream"));
    assert_eq!(
        (config.upstreams["upstream"].base_url.to_string().as_str(), config.upstreams["upstream"].dialect),
        ("http://127.0.0.1:9/v1", Dialect::Generic)
    );
    assert!(config.server.listen.is_ipv6());
    let bad = Sources { listen: Some("x".into()), upstream: Some("y".into()), ..sources(&[]) };
    let told = load(&bad).unwrap_err().to_string();
    assert!(
        told.contains("--listen: server.listen: found \"x\"")
            && told.contains("--upstream: upstreams.upstream.base_url: "),
        "{told}"
    );
}

#[test]
fn addresses_to_listen_on() {
    for (text, address) in [("localhost:4290", "127.0.0.1:4290"), ("[::1]:0", "[::1]:0"), ("0.0.0.0:80", "0.0.0.0:80")]
    {
        assert_eq!(good(&format!("[server]\nlisten = {text:?}\n")).server.listen, address.parse().unwrap());
    }
    let hosts = |listen: &str| {
        good(&format!("[server]\nlisten = {listen:?}\nallowed_hosts = [\"Proxy.Example\", \"::1\"]\n"))
            .server
            .allowed_hosts
    };
    assert_eq!(hosts("10.0.0.7:80"), ["proxy.example", "[::1]", "10.0.0.7"]);
    assert_eq!(hosts("0.0.0.0:80"), ["proxy.example", "[::1]"]);
}

#[test]
fn credentials_are_read_from_the_environment_and_guarded() {
    const VARS: &[(&str, &str)] =
        &[("CK", " alpha, beta,,"), ("COMMAS", ", ,"), ("UK", "sk-real\n"), ("EMPTY", ""), ("ODD", "a\nb")];
    let read = |text: &str| load_text(&sources(VARS), Some((Path::new("f"), text)));
    let told = |text: &str| read(text).unwrap_err().to_string();
    let config =
        read("[server]\nlisten = \"0.0.0.0:1\"\nclient_keys_env = \"CK\"\n[upstreams.openai]\napi_key_env = \"UK\"\n")
            .unwrap()
            .config;
    assert_eq!(config.server.client_keys, [Secret::new("alpha"), Secret::new("beta")]);
    assert_eq!(config.upstreams["openai"].api_key, Some(Secret::new("sk-real")));
    let open = "[server]\nlisten = \"0.0.0.0:1\"\n[upstreams.openai]\napi_key_env = \"UK\"\n";
    assert!(told(open).starts_with("f:2: server.listen: other machines"), "{}", told(open));
    for keyed in ["headers = { authorization = \"Bearer x\" }", "base_url = \"http://u:p@127.0.0.1:1\""] {
        let open = format!("[server]\nlisten = \"0.0.0.0:1\"\n[upstreams.openai]\n{keyed}\n");
        assert!(told(&open).starts_with("f:2: server.listen: other machines"), "{keyed}: {}", told(&open));
    }
    read("[upstreams.openai]\napi_key_env = \"UK\"\n[server]\nlisten = \"[::ffff:127.0.0.1]:1\"\n").unwrap();
    assert!(told("[server]\nclient_keys_env = \"EMPTY\"\n").contains("variable EMPTY is not set or empty"));
    assert!(told("[server]\nclient_keys_env = \"COMMAS\"\n").contains("holds no key"));
    assert!(told("[upstreams.openai]\napi_key_env = \"NONE\"\n").contains("variable NONE is not set or empty"));
    assert!(told("[upstreams.openai]\napi_key_env = \"ODD\"\n").contains("no header can carry"));
    for pasted in ["sk-secret-1", "abcdef0123456789abcdef0123456789"] {
        let told = told(&format!("[upstreams.openai]\napi_key_env = {pasted:?}\n"));
        assert!(told.contains("f:2") && !told.contains(pasted), "{told}");
    }
}

#[test]
fn secrets_are_in_no_fault_and_no_document() {
    const VARS: &[(&str, &str)] = &[("RIG_K", "sk-env-secret")];
    let text = "[upstreams.openai]\nbase_url = \"http://user:url-secret@127.0.0.1:1\"\napi_key_env = \"RIG_K\"\n\
                headers = { authorization = \"Bearer header-secret\", \"x-team\" = \"blue\" }\n";
    let loaded = load_text(&sources(VARS), Some((Path::new("f"), text))).unwrap();
    let shown = format!("{}{:?}", loaded.document, loaded.config);
    for secret in ["url-secret", "header-secret", "sk-env-secret"] {
        assert!(!shown.contains(secret), "{secret}");
    }
    assert!(shown.contains("blue") && shown.contains("RIG_K"));
    assert_eq!(loaded.config.upstreams["openai"].headers.len(), 2);
    for text in [
        "[redis]\nurl = \"rdis://:s3cret@h\"\n",
        "[redis]\nurl = \"redis://:s3cret@h/?x\"\n",
        "[upstreams.openai]\nbase_url = \"htp://u:s3cret@h\"\n",
        "[upstreams.openai]\nheaders = { authorization = \"s3cret\\n\" }\n",
        "[upstreams.openai]\nheaders = \"s3cret\"\n",
        "[upstreams.openai]\nheader = { authorization = \"s3cret\" }\n",
        "[upstreams.openai]\napi_key = \"s3cret\"\n",
        "[upstreams.openai]\nheaders = { authorization = \"s3cret\n",
    ] {
        let error = read(text).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    let error = set(&[
        "upstreams.openai.header.authorization=s3cret",
        "redis.url=redis://:s3cret@h:0",
        "upstreams.openai.api_key_env=s3cret",
    ])
    .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
}

#[test]
fn the_document_is_a_config_again() {
    let first =
        read("[retry]\nmax_attempts = 7\n[upstreams.mine]\nbase_url = \"http://127.0.0.1:9\"\ndialect = \"openai\"\n")
            .unwrap();
    let again = read(&first.document.to_string()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(first.document, again.document);
    assert_eq!(first.document["upstreams"]["mine"]["http2"].as_str(), Some("auto"));
}

#[test]
fn texts_that_are_no_urls_are_shown_as_they_are() {
    let rule = "[[classify]]\nbody_contains = \"see https://u@h/?x=1\"\nclass = \"terminal\"\n";
    assert!(read(rule).unwrap().document.to_string().contains("see https://u@h/?x=1"));
    let rule = "classify=[{ status = [409], class = \"transient\" }]";
    assert_eq!(set(&[rule]).unwrap().config.upstreams["groq"].rules[0].status, [409]);
}

#[test]
fn a_ca_file_must_hold_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let cert = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap().cert.pem();
    std::fs::write(dir.path().join("good.pem"), cert).unwrap();
    std::fs::write(dir.path().join("empty.pem"), "nothing").unwrap();
    let path = dir.path().join("backstop.toml");
    let read = |name: &str| {
        std::fs::write(&path, format!("[upstreams.openai]\nca_file = {name:?}\n")).unwrap();
        load(&Sources { path: Some(path.clone()), ..sources(&[]) })
    };
    assert_eq!(read("good.pem").unwrap().config.upstreams["openai"].ca_file, Some(dir.path().join("good.pem")));
    assert!(read("empty.pem").unwrap_err().to_string().contains("no certificate in it"));
    assert!(read(".").unwrap_err().to_string().contains("not a file"));
}

#[test]
fn files_that_are_no_config() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backstop.toml");
    let read = || load(&Sources { path: Some(path.clone()), ..sources(&[]) }).unwrap_err().to_string();
    assert!(read().ends_with("backstop.toml: no such file"));
    std::fs::write(&path, b"[server]\nlisten = \"\xff\"\n").unwrap();
    assert!(read().ends_with("backstop.toml:2: not valid UTF-8"));
    std::fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
    assert!(read().contains("larger than 1 MiB"));
    std::fs::write(&path, format!("{}a = 1\n{}", "a.".repeat(200_000), "[".repeat(200_000))).unwrap();
    assert!(read().contains("not valid TOML"));
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    for text in [
        format!("[{}a]\n", "a.".repeat(100_000)),
        format!("[[{}a]]\n", "a.".repeat(100_000)),
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        "[a.b.c.d.e.f.g.h]\na.b.c.d.e.f.g.h = {a.b.c.d.e.f={}}\n".into(),
    ] {
        read(&text).unwrap_err();
    }
    set(&[&format!("{}a=1", "a.".repeat(50_000))]).unwrap_err();
}

#[test]
fn the_file_is_looked_for_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let touch = |name: &str| std::fs::write(at(name), "").unwrap();
    let (mut xdg, mut variable) = (true, String::new());
    let find = |explicit: Option<&str>, xdg: bool, variable: &str| {
        let env = |name: &str| match name {
            "XDG_CONFIG_HOME" if xdg => Some(at("xdg").display().to_string()),
            "HOME" => Some(at("home").display().to_string()),
            "BACKSTOP_CONFIG" => Some(variable.to_owned()),
            _ => None,
        };
        load::locate_in(dir.path(), explicit.map(Path::new), &env)
    };
    assert_eq!(find(None, xdg, &variable).unwrap(), None);
    std::fs::create_dir_all(at("home/.config/backstop")).unwrap();
    std::fs::create_dir_all(at("xdg/backstop")).unwrap();
    touch("home/.config/backstop/backstop.toml");
    assert_eq!(find(None, xdg, &variable).unwrap(), None);
    xdg = false;
    assert_eq!(find(None, xdg, &variable).unwrap(), Some(at("home/.config/backstop/backstop.toml")));
    xdg = true;
    touch("xdg/backstop/backstop.toml");
    assert_eq!(find(None, xdg, &variable).unwrap(), Some(at("xdg/backstop/backstop.toml")));
    touch("backstop.toml");
    assert_eq!(find(None, xdg, &variable).unwrap(), Some(at("backstop.toml")));
    variable = "env.toml".into();
    assert!(find(None, xdg, &variable).unwrap_err().to_string().starts_with("env.toml: no such file"));
    touch("env.toml");
    assert_eq!(find(None, xdg, &variable).unwrap(), Some(at("env.toml")));
    assert!(find(Some("arg.toml"), xdg, &variable).unwrap_err().to_string().starts_with("arg.toml: no such file"));
    touch("arg.toml");
    assert_eq!(find(Some("arg.toml"), xdg, &variable).unwrap(), Some(at("arg.toml")));
}

/// Whatever is done to one line of the default file, it is read, or a fault names a line of it.
#[test]
fn any_change_of_one_line_is_taken_or_told() {
    let lines: Vec<&str> = DEFAULTS.lines().collect();
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let key = line.split(" = ").next().unwrap_or(line);
        let mut changes = vec![String::new(), format!("x{line}"), "[".into()];
        if line.contains(" = ") {
            let values = [
                "-1",
                "0",
                "1e400",
                "nan",
                "\"\"",
                "\"x\"",
                "[]",
                "[1]",
                "{}",
                "{ x = 1 }",
                "true",
                "1979-05-27",
                "[[\"\"]]",
                "99999999999999999999",
            ];
            changes.extend(values.map(|value| format!("{key} = {value}")));
        }
        for change in changes {
            let mut text = lines.clone();
            text[i] = &change;
            if let Err(error) = read(&text.join("\n")) {
                assert!(error.faults().iter().any(|fault| fault.place.line().is_some()), "{change}: {error}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_toml_like_text_panics(text in "([a-z_.\"']{1,9}( = |=|\\.)|[\\[\\]{}0-9\".,#\n-]{1,4}|server|upstreams|classify|retry|\n){0,30}") {
        let _ = read(&text);
    }

    #[test]
    fn no_set_panics(arg in "\\PC{0,40}", key in "[a-z.\"]{0,12}", value in "\\PC{0,12}") {
        let _ = set(&[&arg]);
        let _ = set(&[&format!("{key}={value}")]);
    }

    #[test]
    fn a_cut_default_file_never_panics(at in 0..DEFAULTS.len(), junk in "\\PC{0,5}") {
        let start = (0..=at).rev().find(|i| DEFAULTS.is_char_boundary(*i)).unwrap_or(0);
        let _ = read(&format!("{}{junk}", &DEFAULTS[..start]));
        let _ = read(&format!("{}{junk}{}", &DEFAULTS[..start], &DEFAULTS[start..]));
    }
}
