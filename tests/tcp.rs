//! What only a kernel gives, over loopback: the real program, real sockets, real TLS. No test depends on how long anything takes.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::process::Process;
use crate::support::tcp::{Certificate, Forward, listen, listen_tls};
use crate::support::*;

/// Backstop in front of one upstream at this address, quick to retry.
fn config(scheme: &str, address: &str, more: &str) -> String {
    format!(
        "[retry]\nbase_delay = \"5ms\"\nmax_delay = \"10ms\"\n[upstreams.openai]\nbase_url = \"{scheme}://{address}\"\n{more}\n"
    )
}

/// A port where nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_refused_connection_is_told_with_its_address() {
    let address = nobody().await;
    let backstop = Process::start(&config("http", &address, ""), &[]);
    let answer = backstop.client().await.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.attempts()), (502, "upstream_unreachable", 5));
    assert!(answer.message().contains(&format!("connection refused by {address}")), "{}", answer.message());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_told_as_such() {
    let backstop =
        Process::start(&config("http", "no-such-host.invalid", "[upstreams.openai.retry]\nmax_attempts = 2"), &[]);
    let answer = backstop.client().await.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts()), (502, 2));
    assert!(answer.message().contains("name resolution failed for no-such-host.invalid:80"), "{}", answer.message());
}

#[tokio::test]
async fn a_reset_after_the_request_is_got_past_for_chat_and_told_for_what_creates() {
    let upstream = Upstream::new([Step::reset(), chat(), Step::reset()]);
    let address = listen(&upstream).await.to_string();
    let backstop = Process::start(&config("http", &address, ""), &[]);
    let answer = backstop.client().await.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.attempts()), (200, 2));
    let answer = backstop.client().await.call(&post("/v1/files")).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.attempts()), (502, "upstream_protocol_error", 1));
    assert!(answer.message().contains("outcome upstream is unknown"));
}

#[tokio::test]
async fn a_pooled_connection_that_was_reset_meanwhile_costs_nothing() {
    let upstream = Upstream::new([chat(), Step::reset(), chat()]);
    let address = listen(&upstream).await.to_string();
    let backstop = Process::start(&config("http", &address, "[upstreams.openai.retry]\nmax_attempts = 1"), &[]);
    for _ in 0..2 {
        assert_eq!(backstop.client().await.call(&post(CHAT)).await.status, 200);
    }
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn a_certificate_of_an_authority_in_ca_file_is_trusted_and_h2_agreed_on() {
    for (protocols, http2, version) in [
        (&["h2", "http/1.1"][..], "auto", "HTTP/2"),
        (&["http/1.1"][..], "auto", "HTTP/1.1"),
        (&["h2", "http/1.1"][..], "never", "HTTP/1.1"),
    ] {
        let certificate = Certificate::new();
        let upstream = Upstream::new(chat());
        let address = listen_tls(&upstream, &certificate, protocols).await;
        let more = format!("ca_file = \"{}\"\nhttp2 = \"{http2}\"", certificate.ca_file());
        let backstop = Process::start(&config("https", &format!("localhost:{}", address.port()), &more), &[]);
        for _ in 0..3 {
            let answer = backstop.client().await.call(&post(CHAT).header("X-Case", "kept")).await;
            assert_eq!((answer.status, answer.text()), (200, CHAT_BODY), "{protocols:?} {http2}");
        }
        let seen = upstream.last();
        assert_eq!((seen.version.as_str(), seen.target.as_str(), seen.text()), (version, CHAT, ASK));
        assert_eq!(seen.value("x-case"), Some("kept"));
        assert_eq!(upstream.connections(), 1);
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_at_once() {
    let certificate = Certificate::new();
    let other = Certificate::new();
    let upstream = Upstream::new(chat());
    let address = listen_tls(&upstream, &certificate, &["http/1.1"]).await;
    let more = format!("ca_file = \"{}\"", other.ca_file());
    let backstop = Process::start(&config("https", &format!("localhost:{}", address.port()), &more), &[]);
    let answer = backstop.client().await.call(&post(CHAT)).await;
    assert_eq!((answer.status, answer.fault().as_str(), answer.attempts()), (502, "upstream_unreachable", 1));
    for part in ["certificate verification failed", "localhost:", "ca_file"] {
        assert!(answer.message().contains(part), "{part}: {}", answer.message());
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn https_goes_through_the_proxy_of_the_environment_and_loopback_never_does() {
    let certificate = Certificate::new();
    let upstream = Upstream::new(chat());
    let address = listen_tls(&upstream, &certificate, &["http/1.1"]).await;
    let forward = Forward::to(address).await;
    let url = format!("http://user:SECRET-proxy@{}", forward.address);
    let toml = format!(
        "[upstreams.openai]\nbase_url = \"https://api.test\"\nca_file = \"{0}\"\n[upstreams.local]\nbase_url = \"https://localhost:{1}\"\ndialect = \"openai\"\nca_file = \"{0}\"\n",
        certificate.ca_file(),
        address.port()
    );
    for name in ["HTTPS_PROXY", "https_proxy"] {
        let backstop = Process::start(&toml, &[(name, &url)]);
        let through = backstop.client().await.call(&post(CHAT)).await;
        assert_eq!(through.status, 200, "{}", through.text());
        let heads = forward.take_heads();
        assert_eq!(heads.len(), 1, "{name}");
        assert!(heads[0].starts_with("CONNECT api.test:443 HTTP/1.1"), "{}", heads[0]);
        assert!(heads[0].to_ascii_lowercase().contains("proxy-authorization: basic "), "{}", heads[0]);
        let direct = backstop.client().await.call(&post("/local/v1/chat/completions")).await;
        assert_eq!((direct.status, forward.take_heads().len()), (200, 0));
        assert!(!backstop.logs().contains("SECRET-proxy"));
    }
    let backstop = Process::start(&toml, &[("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "")]);
    let answer = backstop.client().await.call(&post(CHAT).header("x-backstop-max-attempts", "1")).await;
    assert!(answer.message().contains("proxy from the environment"), "{}", answer.message());
}

#[tokio::test]
async fn clients_may_speak_http_2_in_the_clear() {
    let upstream = Upstream::new([busy(), chat()]);
    let address = listen(&upstream).await.to_string();
    let backstop = Process::start(&config("http", &address, ""), &[]);
    let stream = tokio::net::TcpStream::connect(backstop.address).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let uri = format!("http://localhost:{}{CHAT}", backstop.address.port());
    let request = http::Request::post(uri).header("x-own", "1").body(()).unwrap();
    let (response, mut body) = sender.send_request(request, false).unwrap();
    body.send_data(ASK.into(), true).unwrap();
    let response = response.await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["x-backstop-attempts"]), (200, &"2".parse().unwrap()));
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        bytes.extend(piece.unwrap());
    }
    assert_eq!(bytes, CHAT_BODY.as_bytes());
    let seen = upstream.last();
    assert_eq!((seen.version.as_str(), seen.text(), seen.value("x-own")), ("HTTP/1.1", ASK, Some("1")));
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello";
        socket.write_all(answer.as_bytes()).await.unwrap();
        let mut five = [0; 5];
        socket.read_exact(&mut five).await.unwrap();
        socket.write_all(&five).await.unwrap();
        // The client closes: that is seen here.
        assert_eq!(socket.read(&mut five).await.unwrap(), 0);
        String::from_utf8(head).unwrap()
    });
    let backstop = Process::start(&config("http", &address, ""), &[]);
    let mut client = backstop.client().await;
    let request = get("/v1/responses")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let answer = client.ask(&request).await.head().await.unwrap();
    assert_eq!((answer.status, answer.value("upgrade")), (101, Some("websocket")));
    assert!(answer.value("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")));
    assert_eq!(answer.value("sec-websocket-accept"), Some("x"));
    client.send("again").await;
    while client.pending() != b"helloagain" {
        assert!(client.piece().await);
    }
    drop(client);
    let head = timeout(Duration::from_secs(20), server).await.expect("the close goes through").unwrap();
    assert!(head.to_ascii_lowercase().contains("upgrade: websocket") && head.contains("Sec-WebSocket-Key: dGhl"));
}

#[tokio::test]
async fn thirty_megabytes_arrive_whole_and_again_on_the_retry() {
    let body: Vec<u8> = (0..30 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let overloaded = Step::json(529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#);
    let upstream = Upstream::new([overloaded, chat()]);
    let address = listen(&upstream).await.to_string();
    let backstop = Process::start(&config("http", &address, ""), &[]);
    let answer = backstop.client().await.call(&post(CHAT).body(&body)).await;
    assert_eq!((answer.status, answer.attempts()), (200, 2));
    for seen in upstream.seen() {
        assert!(seen.body == body && seen.value("content-length") == Some("31457280"));
    }
}

async fn early_413(step: Step) {
    let step = step.header("connection", "close");
    let upstream = Upstream::new(step);
    let address = listen(&upstream).await.to_string();
    let toml = format!("[server]\nreplay_body = \"1MiB\"\n{}", config("http", &address, ""));
    let backstop = Process::start(&toml, &[]);
    let answer = backstop.client().await.call(&post("/openai/v1/messages").body(vec![b'x'; 40 << 20])).await;
    assert_eq!((answer.status, answer.attempts(), upstream.count()), (413, 1, 1), "{}", answer.text());
    assert!(answer.text().contains("request_too_large"));
}

fn too_large() -> Step {
    Step::json(413, r#"{"type":"error","error":{"type":"request_too_large","message":"x"}}"#)
}

#[tokio::test]
async fn a_413_in_the_middle_of_an_upload_is_read_by_the_client() {
    early_413(too_large().early()).await;
}

#[tokio::test]
async fn so_is_one_of_an_upstream_that_closes_without_reading_on() {
    // Whether its reset overtakes its answer is for the kernel to say: often enough both happen.
    for _ in 0..5 {
        early_413(too_large().deaf().then_close()).await;
    }
}

#[tokio::test]
async fn our_own_413_is_read_by_a_client_that_is_still_sending() {
    let upstream = Upstream::new(chat());
    let address = listen(&upstream).await.to_string();
    let toml = format!("[server]\nmax_body = \"1MiB\"\n{}", config("http", &address, ""));
    let backstop = Process::start(&toml, &[]);
    let body = vec![b'x'; 8 << 20];
    for request in [post(CHAT).body(&body), post(CHAT).body(&body).chunked(64 * 1024)] {
        let answer = backstop.client().await.call(&request).await;
        assert_eq!((answer.status, answer.fault().as_str()), (413, "request_too_large"));
        assert!(answer.no_retry());
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn beyond_max_connections_a_client_waits_for_its_turn() {
    let upstream = Upstream::new(chat());
    let address = listen(&upstream).await.to_string();
    let toml = format!("[server]\nmax_connections = 2\n{}", config("http", &address, ""));
    let backstop = Process::start(&toml, &[]);
    let (mut one, mut other) = (backstop.client().await, backstop.client().await);
    assert_eq!((one.call(&post(CHAT)).await.status, other.call(&post(CHAT)).await.status), (200, 200));
    let mut third = backstop.client().await;
    third.ask(&post(CHAT)).await;
    assert!(timeout(Duration::from_millis(300), third.head()).await.is_err(), "served though two are open");
    drop(one);
    assert_eq!(third.answer().await.status, 200);
    assert_eq!(other.call(&post(CHAT)).await.status, 200);
}

#[tokio::test]
async fn sigterm_lets_a_stream_end_and_settles_a_backoff() {
    let stream = Step::sse(chat_stream(10)).pace(ms(50));
    let script = Script::by(move |seen| if seen.target == CHAT { stream.clone() } else { limited("60") });
    let upstream = Upstream::new(script);
    let address = listen(&upstream).await.to_string();
    let mut backstop = Process::start(&config("http", &address, ""), &[]);
    let (mut streaming, mut waiting) = (backstop.client().await, backstop.client().await);
    streaming.ask(&post(CHAT)).await.head().await.unwrap();
    waiting.ask(&get("/v1/models")).await;
    while upstream.count() < 2 {
        tokio::task::yield_now().await;
    }
    backstop.signal("TERM");
    assert_eq!(waiting.answer().await.status, 429);
    while streaming.piece().await {}
    assert!(streaming.pending().ends_with(format!("{DONE}\r\n0\r\n\r\n").as_bytes()));
    assert!(tokio::net::TcpStream::connect(backstop.address).await.is_err(), "the listener is closed");
    assert_eq!(backstop.wait(), Some(0));
}
