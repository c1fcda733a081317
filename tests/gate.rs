//! Who may call: Host, Origin, client keys; and what of a client's own never goes upstream.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_local_names_may_be_called_and_others_may_not() {
    for host in ["localhost", "LocalHost:4290", "127.0.0.1:4290", "[::1]:4290", "127.0.0.1"] {
        assert_eq!(Bed::new("", chat()).call(&post(CHAT).host(host)).await.status, 200, "{host}");
    }
    for host in
        ["evil.example", "evil.example:4290", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""]
    {
        let bed = Bed::new("", chat());
        let answer = bed.call(&post(CHAT).host(host)).await;
        assert_eq!((answer.status, answer.fault().as_str(), bed.upstream.attempts()), (421, "host_not_allowed", 0));
        assert_eq!(answer.outcome(), "rejected");
    }
    let page = Bed::new("", chat()).call(&get("/metrics").host("evil.example")).await;
    assert_eq!(page.status, 421);
}

#[tokio::test(start_paused = true)]
async fn more_names_can_be_listed_and_the_address_of_the_connection_is_one() {
    let toml = "[server]\nallowed_hosts = [\"gate.internal\"]\n";
    let bed = Bed::new(toml, chat());
    assert_eq!(bed.call(&post(CHAT).host("gate.internal:80")).await.status, 200);
    assert_eq!(bed.call(&post(CHAT).host("localhost")).await.status, 421);
    let mut client = bed.client_with(65536, Some("192.0.2.7:4290".parse().unwrap()));
    assert_eq!(client.call(&post(CHAT).host("192.0.2.7:4290")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_foreign_origin_is_refused_before_anything_is_sent() {
    for origin in ["https://evil.example", "null", "http://localhost.evil.example", "file://"] {
        let bed = Bed::new("", chat().header("access-control-allow-origin", "*"));
        for request in [
            post(MESSAGES).header("Origin", origin),
            post(MESSAGES).header("Origin", origin).header("Content-Type", "text/plain"),
            Request::new("OPTIONS", MESSAGES).header("Origin", origin).header("Access-Control-Request-Method", "POST"),
            get("/metrics").header("Origin", origin),
        ] {
            let answer = bed.call(&request).await;
            assert_eq!((answer.status, bed.upstream.attempts()), (403, 0), "{origin}");
            assert_eq!(answer.value("access-control-allow-origin"), None);
        }
        assert_eq!(bed.call(&post(MESSAGES).header("Origin", origin)).await.fault(), "origin_not_allowed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_an_allowed_origin_is_answered_with_its_own_name() {
    let toml = "[server]\nallowed_origins = [\"https://app.example\"]\n";
    for origin in ["https://app.example", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:8080"] {
        let bed = Bed::new(toml, chat().header("access-control-allow-origin", "*"));
        let answer = bed.call(&post(CHAT).header("Origin", origin)).await;
        assert_eq!((answer.status, answer.value("access-control-allow-origin")), (200, Some(origin)));
        assert!(values(&answer.lines, "vary").contains(&"origin"));
        let preflight = Request::new("OPTIONS", CHAT)
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "authorization, x-stainless-os");
        let answer = bed.call(&preflight).await;
        assert_eq!((answer.status, answer.value("access-control-allow-origin")), (204, Some(origin)));
        assert_eq!(answer.value("access-control-allow-headers"), Some("authorization, x-stainless-os"));
        assert_eq!(bed.upstream.count(), 1, "the preflight is answered here");
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_origin_no_cors_header_is_added() {
    let answer = Bed::new("", chat()).call(&post(CHAT)).await;
    assert!(answer.lines.iter().all(|(name, _)| !name.to_ascii_lowercase().starts_with("access-control")));
}

const KEYED: &str = "[server]\nclient_keys_env = \"KEYS\"\n";

#[tokio::test(start_paused = true)]
async fn with_client_keys_set_a_client_must_present_one() {
    let bed = Bed::with_env(KEYED, &[("KEYS", "alpha,beta")], chat());
    for key in ["alpha", "beta"] {
        assert_eq!(bed.call(&post(CHAT).header("x-backstop-key", key)).await.status, 200);
    }
    for request in [
        post(CHAT),
        post(CHAT).header("x-backstop-key", "gamma"),
        post(CHAT).header("x-backstop-key", ""),
        // The client's credential is the upstream's here: it is not looked at.
        post(CHAT).header("authorization", "Bearer alpha"),
        get("/_backstop/"),
        get("/_backstop/api/runs"),
    ] {
        let answer = bed.call(&request).await;
        assert_eq!((answer.status, answer.fault().as_str()), (401, "client_key_required"));
    }
    assert_eq!(bed.upstream.count(), 2);
    for open in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(bed.call(&get(open)).await.status, 200, "{open}");
    }
    assert_eq!(bed.call(&get("/_backstop/").header("x-backstop-key", "beta")).await.status, 200);
}

const INJECTED: &str = "[server]\nclient_keys_env = \"KEYS\"\n\
    [upstreams.openai]\napi_key_env = \"UP\"\n[upstreams.anthropic]\napi_key_env = \"UP\"\n[upstreams.gemini]\napi_key_env = \"UP\"\n";

#[tokio::test(start_paused = true)]
async fn where_a_credential_is_put_in_the_clients_own_stays_here() {
    for (request, name, value) in [
        (post(CHAT).header("Authorization", "Bearer alpha"), "authorization", "Bearer sk-up"),
        (post(MESSAGES).header("X-Api-Key", "alpha"), "x-api-key", "sk-up"),
        (post(MESSAGES).header("Authorization", "Bearer alpha"), "x-api-key", "sk-up"),
        (post(GEMINI).header("x-goog-api-key", "alpha"), "x-goog-api-key", "sk-up"),
        (post(&format!("{GEMINI}?alt=json&key=alpha")), "x-goog-api-key", "sk-up"),
        (post(CHAT).header("x-backstop-key", "alpha").header("api-key", "junk"), "authorization", "Bearer sk-up"),
    ] {
        let bed = Bed::with_env(INJECTED, &[("KEYS", "alpha"), ("UP", "sk-up")], chat());
        let answer = bed.call(&request).await;
        assert_eq!(answer.status, 200, "{request:?}");
        let seen = bed.upstream.only();
        assert_eq!(seen.value(name), Some(value));
        let all = format!(
            "{} {:?}",
            seen.target,
            seen.lines.iter().map(|(n, v)| (n, String::from_utf8_lossy(v))).collect::<Vec<_>>()
        );
        assert!(!all.contains("alpha") && !all.contains("junk"), "{all}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_credential_of_ours_the_clients_goes_through() {
    let bed = Bed::new("", chat());
    bed.call(&post(CHAT).header("Authorization", "Bearer sk-mine").header("api-key", "k2")).await;
    let seen = bed.upstream.only();
    assert_eq!((seen.value("authorization"), seen.value("api-key")), (Some("Bearer sk-mine"), Some("k2")));
}

#[tokio::test(start_paused = true)]
async fn headers_for_backstop_are_not_sent_upstream() {
    let bed = Bed::new("", chat());
    let names = ["run", "priority", "deadline", "max-attempts", "stream", "idempotency-key", "key", "unheard-of"];
    let request = names.iter().fold(post(CHAT), |request, name| request.header(&format!("X-Backstop-{name}"), "1"));
    bed.call(&request).await;
    assert_eq!(bed.upstream.only().names(), ["Host", "Content-Length"]);
}

#[tokio::test(start_paused = true)]
async fn headers_of_the_config_take_the_place_of_the_clients_own() {
    let toml = "[upstreams.openai]\nheaders = { \"x-team\" = \"blue\" }\n";
    let bed = Bed::new(toml, chat());
    bed.call(&post(CHAT).header("X-Team", "red").header("X-Team", "green")).await;
    assert_eq!(values(&bed.upstream.only().lines, "x-team"), ["blue"]);
}

#[tokio::test(start_paused = true)]
async fn a_forward_proxy_it_is_not() {
    let bed = Bed::new("", chat());
    for (place, status) in [("evil.example:443", 421), ("localhost:443", 404)] {
        let mut client = bed.client();
        client.asked("CONNECT").send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n")).await;
        assert_eq!(client.answer().await.status, status);
    }
    let absolute = bed.call(&get("http://evil.example/v1/models").host("evil.example")).await;
    assert_eq!((absolute.status, bed.upstream.attempts()), (421, 0));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_leads_nowhere_is_told_where_paths_lead() {
    let bed = Bed::new("", chat());
    let answer = bed.call(&post("/chat/completions")).await;
    assert_eq!((answer.status, answer.fault().as_str(), bed.upstream.attempts()), (404, "unknown_route", 0));
    assert!(answer.message().contains("anthropic, deepseek") && answer.message().contains("ends in /v1"));
    assert_eq!((answer.outcome(), answer.attempts()), ("rejected", 0));
}
