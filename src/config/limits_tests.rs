//! `[breaker]`, `[admission]`, `[redis]`, `[idempotency]`, fallbacks and model maps: what is taken, and what is said of what is not.

use std::path::Path;
use std::time::Duration;

use super::load::load_text;
use super::tests::{faults, good, read, sources};
use super::*;

#[test]
fn the_defaults_stop_failing_upstreams_learn_and_limit_nothing() {
    for upstream in good("").upstreams.values() {
        let settings = breaker::Settings {
            window: Duration::from_secs(30),
            failure_ratio: 0.5,
            min_requests: 20,
            open_for: Duration::from_secs(15),
        };
        assert_eq!(upstream.breaker, Some(settings));
        let unlimited = Admission {
            requests_per_second: 0.0,
            burst: 0,
            tokens_per_minute: 0,
            max_concurrency: 0,
            adaptive: true,
            queue: 10_000,
        };
        assert_eq!(upstream.admission, unlimited);
        assert!(upstream.fallbacks.is_empty() && upstream.model_map.is_empty());
    }
}

#[test]
fn an_upstream_has_limits_of_its_own_and_the_rest_of_the_global_ones() {
    let config = good(
        "[breaker]\nmin_requests = 3\nopen_for = \"1s\"\n[admission]\nqueue = 5\nburst = 9\nrequests_per_second = 1\n\
         [upstreams.groq.breaker]\nopen_for = \"2m\"\n[upstreams.xai.breaker]\nenabled = false\n\
         [upstreams.groq.admission]\nrequests_per_second = 0.5\ntokens_per_minute = 1000\nmax_concurrency = 2\nadaptive = false\n",
    );
    let (groq, openai) = (&config.upstreams["groq"], &config.upstreams["openai"]);
    let breaker = |upstream: &Upstream| upstream.breaker.map(|b| (b.min_requests, b.open_for.as_secs()));
    assert_eq!((breaker(groq), breaker(openai)), (Some((3, 120)), Some((3, 1))));
    assert_eq!(config.upstreams["xai"].breaker, None);
    let own = Admission {
        requests_per_second: 0.5,
        burst: 9,
        tokens_per_minute: 1000,
        max_concurrency: 2,
        adaptive: false,
        queue: 5,
    };
    assert_eq!(groq.admission, own);
    let global =
        Admission { requests_per_second: 1.0, tokens_per_minute: 0, max_concurrency: 0, adaptive: true, ..own };
    assert_eq!(openai.admission, global);
}

#[test]
fn a_breaker_that_is_off_for_all_can_be_on_for_one() {
    let config = good("[breaker]\nenabled = false\n[upstreams.groq.breaker]\nenabled = true\n");
    assert!(config.upstreams["groq"].breaker.is_some() && config.upstreams["openai"].breaker.is_none());
}

#[test]
fn a_burst_without_a_rate_is_no_fault() {
    assert_eq!(good("[admission]\nburst = 4\n").upstreams["openai"].admission.burst, 4);
}

#[test]
fn a_fault_of_a_global_limit_is_told_once_for_all_upstreams() {
    let told = faults("[breaker]\nfailure_ratio = 2\n[admission]\nqueue = 0\nqueu = 1\n");
    let expected = "backstop.toml:2: breaker.failure_ratio: found 2, expected a number above 0, up to 1\n\
        backstop.toml:4: admission.queue: found 0, expected a whole number from 1 to 1000000\n\
        backstop.toml:5: admission.queu: unknown key; did you mean `queue`?";
    assert_eq!(told, expected);
}

#[test]
fn fallbacks_and_model_maps_are_kept_as_written() {
    let config = good(
        "[upstreams.openai]\nfallbacks = [\"groq\", \"ollama\"]\n[upstreams.groq]\nfallbacks = [\"openai\"]\n\
         model_map = { \"gpt-x\" = \"llama-x\", \"b\" = \"b\" }\n",
    );
    assert_eq!(config.upstreams["openai"].fallbacks, ["groq", "ollama"]);
    assert_eq!(config.upstreams["groq"].fallbacks, ["openai"]);
    let pairs: Vec<_> = config.upstreams["groq"].model_map.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(pairs, [("b", "b"), ("gpt-x", "llama-x")]);
    assert!(config.upstreams["ollama"].fallbacks.is_empty() && config.upstreams["openai"].model_map.is_empty());
}

#[test]
fn a_fallback_can_be_an_upstream_of_ones_own_without_credential() {
    let config = good(
        "[upstreams.mine]\nbase_url = \"http://127.0.0.1:9\"\ndialect = \"anthropic\"\n\
         [upstreams.anthropic]\nfallbacks = [\"mine\"]\n",
    );
    assert_eq!(config.upstreams["anthropic"].fallbacks, ["mine"]);
}

#[test]
fn what_can_be_no_fallback_is_told_where_it_stands() {
    for (list, told) in [
        ("[\n\"groq\",\n\"openai\"]", "4: upstreams.openai.fallbacks: an upstream can't be its own fallback"),
        (
            "[\"gorq\"]",
            "2: upstreams.openai.fallbacks: found \"gorq\", expected the name of an upstream; did you mean \"groq\"?",
        ),
        ("[\"groq\",\n\"xai\",\n\"groq\"]", "4: upstreams.openai.fallbacks: \"groq\" is given twice"),
        (
            "[\"groq\",\n\"gemini\"]",
            "3: upstreams.openai.fallbacks: `gemini` speaks gemini and `openai` speaks openai, expected the same dialect",
        ),
        ("[\"\"]", "2: upstreams.openai.fallbacks: found \"\", expected a text in quotes that is not empty"),
        ("\"groq\"", "2: upstreams.openai.fallbacks: found \"groq\", expected a list of texts, like [\"a\", \"b\"]"),
    ] {
        let text = format!("[upstreams.openai]\nfallbacks = {list}\n");
        assert_eq!(faults(&text), format!("backstop.toml:{told}"), "{text}");
    }
}

#[test]
fn every_bad_fallback_is_told_and_a_bad_dialect_only_once() {
    let told = faults("[upstreams.openai]\nfallbacks = [\"openai\", \"nobody\", \"gemini\", \"groq\"]\n");
    assert_eq!(told.lines().count(), 3, "{told}");
    let told = faults("[upstreams.openai]\nfallbacks = [\"groq\"]\n[upstreams.groq]\ndialect = \"klingon\"\n");
    assert!(told.starts_with("backstop.toml:4: upstreams.groq.dialect: ") && told.lines().count() == 1, "{told}");
}

#[test]
fn a_model_map_holds_names_of_models() {
    for (map, told) in [
        ("{ a = \"\" }", "model_map.a: found \"\", expected the name of a model in quotes, not empty"),
        ("{ a = 3 }", "model_map.a: found 3, expected the name of a model in quotes, not empty"),
        ("{ a.b = \"c\" }", "model_map.a: found a table, expected the name of a model in quotes, not empty"),
        ("{ \"\" = \"a\" }", "model_map.\"\": the model asked for is empty, expected its name"),
        ("[\"a\"]", "model_map: found a list, expected a table of models, like { \"asked-for\" = \"sent\" }"),
    ] {
        let text = format!("[upstreams.openai]\nmodel_map = {map}\n");
        assert_eq!(faults(&text), format!("backstop.toml:2: upstreams.openai.{told}"), "{text}");
    }
    assert_eq!(faults("[upstreams.openai]\nmodel_map = { a = 1, b = \"\", c = \"d\" }\n").lines().count(), 2);
}

#[test]
fn the_url_of_redis_is_kept_and_never_shown() {
    const URL: &str = "redis://user-x:s3cret@h:6379/1";
    let loaded = read(&format!("[redis]\nurl = \"{URL}\"\n")).unwrap();
    assert_eq!(loaded.config.redis, Some(Secret::new(URL)));
    let shown = format!("{:?}{}", loaded.config, loaded.document);
    assert!(!shown.contains("s3cret") && !shown.contains("user-x"), "{shown}");
    assert_eq!(loaded.document["redis"]["url"].as_str(), Some("redis://***@h:6379/1"));
    assert_eq!(
        faults("[redis]\nurl = \"http://:s3cret@h\"\n"),
        "backstop.toml:2: redis.url: found a value that is not shown, expected a URL that starts with redis:// or rediss:// (TLS)"
    );
    assert_eq!(good("[redis]\nurl = \"\"\n").redis, None);
}

#[test]
fn the_document_shows_limits_as_they_were_set() {
    let sets = [
        "breaker.open_for=1m",
        "upstreams.groq.admission.max_concurrency=4",
        "upstreams.openai.fallbacks=[\"groq\"]",
        "upstreams.groq.model_map.\"a.b\"=c",
    ];
    let sources = Sources { sets: sets.map(String::from).to_vec(), ..sources(&[]) };
    let shown = load_text(&sources, Some((Path::new("f"), "[admission]\nqueue = 7\n"))).unwrap().document;
    assert_eq!(shown["breaker"]["open_for"].as_str(), Some("1m"));
    assert_eq!(shown["breaker"]["enabled"].as_bool(), Some(true));
    assert_eq!(shown["admission"]["queue"].as_integer(), Some(7));
    assert_eq!(shown["upstreams"]["groq"]["admission"]["max_concurrency"].as_integer(), Some(4));
    assert_eq!(shown["upstreams"]["openai"]["fallbacks"][0].as_str(), Some("groq"));
    assert_eq!(shown["upstreams"]["groq"]["model_map"]["a.b"].as_str(), Some("c"));
}

#[test]
fn durable_answers_have_a_place() {
    const XDG: (&str, &str) = ("XDG_STATE_HOME", "/xdg");
    const HOME: (&str, &str) = ("HOME", "/home/me");
    let place = |vars: &'static [(&str, &str)], text: &str| {
        let file = format!("{text}[idempotency]\ndurable = true\n");
        let path = Path::new("/etc/b/backstop.toml");
        let sources = Sources { path: Some(path.into()), ..sources(vars) };
        let config = load_text(&sources, Some((path, &file)))?.config;
        Ok::<_, ConfigError>((config.idempotency.durable, config.server.state_dir.unwrap().display().to_string()))
    };
    for (vars, text, dir) in [
        (&[XDG, HOME][..], "[server]\nstate_dir = \"/s\"\n", "/s"),
        (&[], "[server]\nstate_dir = \"s\"\n", "/etc/b/s"),
        (&[XDG, HOME], "", "/xdg/backstop"),
        (&[HOME], "", "/home/me/.local/state/backstop"),
        (&[("XDG_STATE_HOME", "not/absolute"), HOME], "", "/home/me/.local/state/backstop"),
    ] {
        assert_eq!(place(vars, text).unwrap(), (true, dir.to_owned()));
    }
    let told = place(&[], "").unwrap_err().to_string();
    assert!(
        told.starts_with("/etc/b/backstop.toml:2: idempotency.durable: has no place: set server.state_dir"),
        "{told}"
    );
    assert!(!good("").idempotency.durable && good("").server.state_dir.is_none());
}
