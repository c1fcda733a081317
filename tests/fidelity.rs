//! What goes through goes through unchanged, both ways: heads, targets, bodies, trailers.

use std::io::Write;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_request_head_keeps_case_order_repeats_and_odd_bytes_and_gets_nothing_added() {
    let bed = Bed::new("", chat());
    let request = post(CHAT)
        .header("X-Zeta", "1")
        .header("x-aLPHA", "two  words")
        .header("X-Multi", "b")
        .header("x-MULTI", "a")
        .header("X-Empty", "")
        .header("User-Agent", "agent/1.0")
        .header("X-Latin", b"caf\xe9");
    bed.call(&request).await;
    let seen = bed.upstream.only();
    assert_eq!(
        seen.names(),
        ["Host", "X-Zeta", "x-aLPHA", "X-Multi", "x-MULTI", "X-Empty", "User-Agent", "X-Latin", "Content-Length"]
    );
    assert_eq!(values(&seen.lines, "x-multi"), ["b", "a"]);
    assert_eq!(seen.value("x-alpha"), Some("two  words"));
    assert_eq!(seen.lines[7].1, b"caf\xe9");
    assert_eq!((seen.value("host"), seen.version.as_str()), (Some("api.openai.com"), "HTTP/1.1"));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_user_agent_or_accept_gets_none() {
    let bed = Bed::new("", chat());
    bed.call(&get("/v1/models")).await;
    assert_eq!(bed.upstream.only().names(), ["Host"]);
}

#[tokio::test(start_paused = true)]
async fn an_answers_head_keeps_case_order_repeats_and_odd_bytes() {
    let step = chat()
        .header("X-ReQuest-ID", "r1")
        .header("Set-Cookie", "b=1")
        .header("Set-Cookie", "a=2")
        .header("X-Latin", b"caf\xe9")
        .header("Date", "Thu, 15 Jan 2026 12:00:00 GMT")
        .header("Server", "someone");
    let answer = Bed::new("", step).call(&post(CHAT)).await;
    let own = |name: &str| name.starts_with("x-backstop-");
    let names: Vec<&str> = answer.lines.iter().map(|(name, _)| name.as_str()).filter(|name| !own(name)).collect();
    assert_eq!(
        names,
        ["content-type", "X-ReQuest-ID", "Set-Cookie", "Set-Cookie", "X-Latin", "Date", "Server", "content-length"]
    );
    assert_eq!(values(&answer.lines, "set-cookie"), ["b=1", "a=2"]);
    assert_eq!(answer.lines[4].1, b"caf\xe9");
    assert_eq!(answer.start, "HTTP/1.1 200 Some Reason");
}

#[tokio::test(start_paused = true)]
async fn targets_are_passed_on_as_they_came() {
    for target in [
        "/v1/messages?beta=true",
        "/v1beta/models/gemini-x:streamGenerateContent?alt=sse&key=K",
        "/v1/files/a%2Fb%3Ac//d/?x=a%20b+c&&y=&z",
        "/v1/x?",
        "/v1/~user/!$'()*,;=@",
        "/v1/models?q=%C3%A9",
    ] {
        let bed = Bed::new("", Step::json(200, GEMINI_BODY));
        bed.call(&get(target)).await;
        assert_eq!(bed.upstream.only().target, target);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_name_and_its_base_path_are_joined_to_the_target() {
    let toml = "[upstreams.mine]\nbase_url = \"http://h.test:8080/api/openai/\"\ndialect = \"openai\"\n";
    for (target, host, sent) in [
        ("/openai/v1/models?x=%2F", "api.openai.com", "/v1/models?x=%2F"),
        ("/groq/v1/models", "api.groq.com", "/openai/v1/models"),
        ("/mine/v1/models", "h.test:8080", "/api/openai/v1/models"),
        ("/anthropic/v1/messages", "api.anthropic.com", "/v1/messages"),
    ] {
        let bed = Bed::new(toml, Step::json(200, "{}"));
        bed.call(&get(target)).await;
        let seen = bed.upstream.only();
        assert_eq!((seen.target.as_str(), seen.value("host")), (sent, Some(host)));
    }
}

#[tokio::test(start_paused = true)]
async fn hop_by_hop_headers_end_here() {
    let bed = Bed::new("", chat().header("Keep-Alive", "timeout=5").header("Connection", "X-Hop").header("X-Hop", "1"));
    let request = post(CHAT)
        .header("Connection", "keep-alive, X-Private")
        .header("X-Private", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Authorization", "Basic x")
        .header("TE", "gzip")
        .header("X-Kept", "1");
    let answer = bed.call(&request).await;
    assert_eq!(bed.upstream.only().names(), ["Host", "X-Kept", "Content-Length"]);
    for name in ["keep-alive", "connection", "x-hop"] {
        assert_eq!(answer.value(name), None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_go_both_ways() {
    let bed = Bed::new("", Step::sse(chat_stream(1)).header("Trailer", "X-Sum").trailer("X-Sum", "abc"));
    let request =
        post(CHAT).chunked(7).header("Trailer", "X-Check").header("TE", "trailers").trailer("X-Check", "of the client");
    let answer = bed.call(&request).await;
    let seen = bed.upstream.only();
    assert_eq!((seen.text(), super::support::value(&seen.trailers, "x-check")), (ASK, Some("of the client")));
    let sum = super::support::value(&answer.trailers, "x-sum");
    assert_eq!((answer.text(), sum), (chat_stream(1).concat().as_str(), Some("abc")));
}

#[tokio::test(start_paused = true)]
async fn trailers_are_sent_again_with_the_body() {
    let bed = Bed::new("", [busy(), chat()]);
    bed.call(&post(CHAT).chunked(7).header("Trailer", "X-Check").trailer("X-Check", "of the client")).await;
    for seen in bed.upstream.seen() {
        assert_eq!((seen.text(), seen.trailers.len()), (ASK, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_head_has_its_length_and_no_body() {
    let bed = Bed::new("", Step::json(200, "0123456789"));
    let mut client = bed.client();
    for _ in 0..2 {
        let answer = client.call(&head("/v1/files/f1")).await;
        assert_eq!((answer.status, answer.value("content-length"), answer.text()), (200, Some("10"), ""));
        assert_eq!(answer.value("transfer-encoding"), None);
    }
    assert_eq!(bed.upstream.seen()[0].method, "HEAD");
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_body_have_none_and_the_connection_lives_on() {
    for step in [
        Step::respond(204, &[], "").bare(),
        Step::respond(304, &[("etag", "\"x\"")], "").bare(),
        Step::respond(304, &[("content-length", "10")], "").bare(),
    ] {
        let bed = Bed::new("", [step, chat()]);
        let mut client = bed.client();
        let answer = client.call(&get("/v1/files")).await;
        assert!(matches!(answer.status, 204 | 304) && answer.body.is_empty());
        assert_eq!(answer.value("transfer-encoding"), None);
        assert_eq!(client.call(&post(CHAT)).await.text(), CHAT_BODY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_passed_on_and_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let bed =
            Bed::new("", Step::respond(status, &[("location", "http://other-host.test/v1/chat/completions")], ""));
        let answer = bed.call(&post(CHAT).header("authorization", "Bearer k")).await;
        assert_eq!((answer.status, bed.upstream.count(), bed.upstream.connections()), (status, 1, 1));
        assert_eq!(answer.value("location"), Some("http://other-host.test/v1/chat/completions"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_http_1_0_is_served_without_chunks_and_its_connection_closed() {
    let bed = Bed::new("", Step::sse(chat_stream(2)));
    let mut client = bed.client();
    let answer = client.call(&post(CHAT).http10()).await;
    assert_eq!((answer.status, answer.text()), (200, chat_stream(2).concat().as_str()));
    assert_eq!(answer.value("transfer-encoding"), None);
    assert_eq!(bed.upstream.only().version, "HTTP/1.1");
    client.closed().await;
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let script = Script::by(|seen| Step::json(200, &format!("{{\"you asked\":\"{}\"}}", seen.target)));
    let bed = Bed::new("", script);
    let mut client = bed.client();
    let all: Vec<u8> = (0..3).flat_map(|n| get(&format!("/v1/files/{n}")).bytes()).collect();
    client.send(all).await;
    for n in 0..3 {
        assert_eq!(client.answer().await.text(), format!("{{\"you asked\":\"/v1/files/{n}\"}}"));
    }
}

#[tokio::test(start_paused = true)]
async fn expect_100_continue_is_answered_here() {
    let bed = Bed::new("", chat());
    let request = post(CHAT).header("Expect", "100-continue");
    let mut client = bed.client();
    client.send(request.head_bytes()).await;
    assert!(client.piece().await);
    assert!(client.pending().starts_with(b"HTTP/1.1 100 "));
    client.send(request.body_bytes()).await;
    assert_eq!(client.answer().await.text(), CHAT_BODY);
    assert_eq!((bed.upstream.only().value("expect"), bed.upstream.only().text()), (None, ASK));
}

#[tokio::test(start_paused = true)]
async fn a_sized_upload_keeps_its_length_and_a_chunked_one_arrives_whole_on_every_attempt() {
    let body = vec![b'a'; 48 * 1024];
    for (request, sized) in [(post(CHAT).body(&body), true), (post(CHAT).body(&body).chunked(1000), false)] {
        let bed = Bed::new("", [busy(), chat()]);
        assert_eq!(bed.call(&request).await.attempts(), 2);
        for seen in bed.upstream.seen() {
            assert!(seen.whole && seen.body == body);
            assert!(!sized || seen.value("content-length") == Some("49152"));
            assert!(!(seen.value("content-length").is_some() && seen.value("transfer-encoding").is_some()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn compressed_bodies_are_passed_on_as_they_are() {
    let zip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let busy = Step::respond(503, &headers, zip(BUSY_BODY));
    let bed = Bed::new("", [busy, Step::respond(200, &headers, zip(CHAT_BODY))]);
    let request = post(CHAT).header("Content-Encoding", "gzip").header("Accept-Encoding", "gzip").body(zip(ASK));
    let answer = bed.call(&request).await;
    assert_eq!((answer.attempts(), answer.value("content-encoding")), (2, Some("gzip")));
    assert_eq!(answer.body, zip(CHAT_BODY));
    for seen in bed.upstream.seen() {
        assert_eq!((seen.value("accept-encoding"), &seen.body), (Some("gzip"), &zip(ASK)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_keeps_its_length() {
    let answer = Bed::new("", chat()).call(&post(CHAT)).await;
    assert_eq!(answer.value("content-length"), Some(CHAT_BODY.len().to_string().as_str()));
    assert_eq!(answer.value("transfer-encoding"), None);
}

#[tokio::test(start_paused = true)]
async fn any_split_of_an_answer_gives_the_same_bytes() {
    let events: Vec<String> = chat_stream(5).iter().map(|event| event.replace('\n', "\r\n")).collect();
    for size in [1, 2, 3, 7] {
        let answer = Bed::new("", Step::sse(&events).split_every(size)).call(&post(CHAT)).await;
        assert_eq!((answer.text(), answer.whole), (events.concat().as_str(), true), "{size}");
        let plain = Bed::new("", chat().split_every(size)).call(&post(CHAT)).await;
        assert_eq!(plain.text(), CHAT_BODY);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_ends_with_its_connection_is_whole() {
    let answer = Bed::new("", chat().until_close()).call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, CHAT_BODY, 1));
}

#[tokio::test(start_paused = true)]
async fn large_binary_answers_come_byte_for_byte() {
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let headers = [("content-type", "application/octet-stream")];
    for step in [Step::respond(200, &headers, &bytes), Step::respond(200, &headers, &bytes).chunked()] {
        let answer = Bed::new("", step).call(&get("/v1/files/f1/content")).await;
        assert!(answer.body == bytes && answer.whole);
    }
}

/// What was lost is told inside the stream; where that cannot be, the framing is broken off.
#[tokio::test(start_paused = true)]
async fn a_cut_stream_never_looks_like_a_whole_one() {
    let events = chat_stream(4);
    let at = events[0].len() + 10;
    for (step, kind) in
        [(Step::sse(&events).cut_after(at), "interrupted"), (Step::sse(&events).stall_after(at), "stalled")]
    {
        let bed = Bed::new("", step.clone());
        let answer = bed.call(&post(CHAT)).await;
        let (came, told) = answer.text().split_at(at);
        assert_eq!((answer.status, came, bed.upstream.count()), (200, &events.concat()[..at], 1));
        assert!(told.starts_with("\n\n") && told.contains(&format!("stream_{kind}")), "{told}");
        assert!(!told.contains("[DONE]") && answer.whole);
        let unseen = Bed::new("", step.header("content-encoding", "br")).call(&post(CHAT)).await;
        assert_eq!((unseen.status, unseen.text(), unseen.whole), (200, came, false));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_interim_answers_are_not_taken_for_its_answer() {
    let body = CHAT_BODY.len();
    let answer = format!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {body}\r\n\r\n{CHAT_BODY}"
    );
    let answer = Bed::new("", Step::raw(answer)).call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.text(), answer.attempts()), (200, CHAT_BODY, 1));
}

#[tokio::test(start_paused = true)]
async fn trailers_that_were_not_announced_go_both_ways_too() {
    let bed = Bed::new("", chat().chunked().trailer("x-sum", "abc"));
    let request = post(CHAT).chunked(7).header("TE", "trailers").trailer("x-check", "of the client");
    let answer = bed.call(&request).await;
    let seen = bed.upstream.only();
    assert_eq!((seen.text(), super::support::value(&seen.trailers, "x-check")), (ASK, Some("of the client")));
    assert_eq!((answer.text(), super::support::value(&answer.trailers, "x-sum")), (CHAT_BODY, Some("abc")));
}
