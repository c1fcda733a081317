//! Limits that several Backstops share through a real Redis, and what happens when it is slow, gone or empty.
//!
//! In real time, because a real Redis is. On a machine without redis-server these say so and pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop::admission::redis::Redis;
use backstop::admission::store::Store;
use backstop::policy::quota::{Quota, Used};
use tokio::time::{Instant, sleep, timeout};

use crate::support::logs::Logs;
use crate::support::process::Process;
use crate::support::redis::{RedisServer, free_port, toml_of};
use crate::support::tcp::{Certificate, listen};
use crate::support::*;

const GONE: &str = "Redis cannot be used";
const SHARED: &str = "limits are shared through Redis";
/// A call with a quick upstream takes no longer, whatever happens to Redis.
const MOST: Duration = ms(50);

fn up(bed: &Bed) -> Option<bool> {
    bed.instance().lasting.admission.redis_is_up()
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            sleep(ms(2)).await;
        }
    };
    timeout(secs(10), wait).await.unwrap_or_else(|_| panic!("{what}: not within 10 s"));
}

/// Backstops on one Redis that use it.
async fn joined<const N: usize>(toml: &str, scripts: [Script; N]) -> [Bed; N] {
    let beds = scripts.map(|script| Bed::new(toml, script));
    for bed in &beds {
        until("Redis is up", || up(bed) == Some(true)).await;
    }
    beds
}

/// So many calls at once, each with a connection of its own; they go on by themselves.
fn crowd(bed: &Bed, calls: usize, key: &str) {
    for _ in 0..calls {
        let (mut client, request) = (bed.client(), keyed(key));
        tokio::spawn(async move { client.call(&request).await });
    }
}

fn keyed(key: &str) -> Request {
    post(CHAT).header("Authorization", format!("Bearer {key}"))
}

/// Arrivals upstream since `start` and before `end`.
fn arrivals(bed: &Bed, start: Instant, end: Instant) -> usize {
    bed.upstream.seen().iter().filter(|seen| seen.at >= start && seen.at < end).count()
}

/// Limited for one second, then good.
fn limited_once() -> Script {
    Script::from([Step::json(429, "{}").header("retry-after", "1"), chat()])
}

const TWENTY: &str = "[admission]\nrequests_per_second = 20\nburst = 1\nadaptive = false\n";

#[tokio::test]
async fn a_fixed_rate_is_that_of_both_together() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, two] = joined(&format!("{TWENTY}{}", redis.toml()), [chat().into(), chat().into()]).await;
    let start = Instant::now();
    crowd(&one, 80, "k");
    crowd(&two, 80, "k");
    sleep(secs(3)).await;
    let (from, to) = (start + ms(500), start + ms(2500));
    let (first, second) = (arrivals(&one, from, to), arrivals(&two, from, to));
    assert!((32..=46).contains(&(first + second)), "20 a second for 2 s: {first} + {second}");
    assert!(first >= 4 && second >= 4, "both have a part in it: {first} and {second}");
}

#[tokio::test]
async fn credentials_do_not_share() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, two] = joined(&format!("{TWENTY}{}", redis.toml()), [chat().into(), chat().into()]).await;
    let start = Instant::now();
    crowd(&one, 60, "k1");
    crowd(&two, 60, "k2");
    sleep(secs(2)).await;
    for bed in [&one, &two] {
        let sent = arrivals(bed, start + ms(500), start + ms(1500));
        assert!((15..=23).contains(&sent), "20 each in a second: {sent}");
    }
    let keys = redis.ask("KEYS backstop:*");
    assert_eq!(keys.matches("backstop:limits:").count(), 2, "{keys}");
    assert!(!keys.contains("k1") && !keys.contains("Bearer"), "{keys}");
}

#[tokio::test]
async fn a_wait_that_one_was_told_holds_the_other() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, two] = joined(&redis.toml(), [limited_once(), chat().into()]).await;
    crowd(&one, 1, "k");
    until("the limit", || one.upstream.attempts() == 1).await;
    sleep(ms(50)).await;
    let limited = one.upstream.seen()[0].at;
    two.call(&keyed("other")).await;
    assert!(limited.elapsed() < ms(500), "another credential goes on");
    assert_eq!(two.call(&keyed("k")).await.status, 200);
    let waited = two.upstream.last().at - limited;
    assert!(waited >= ms(950) && waited < ms(2500), "{waited:?}");
}

#[tokio::test]
async fn a_learned_pace_is_that_of_all() {
    let Some(redis) = RedisServer::start() else { return };
    let taken = std::sync::Mutex::new((Instant::now(), 0_u32));
    let fifty_a_second = Script::by(move |seen| {
        let (since, count) = &mut *taken.lock().unwrap();
        let over = f64::from(*count) > 5.0 + 50.0 * since.elapsed().as_secs_f64();
        // A request is looked at twice: its head and its body.
        *count += u32::from(!over && seen.whole);
        if over { Step::json(429, "{}") } else { chat() }
    });
    let [one, two] = joined(
        &format!("[retry.bucket]\nrate = 1000\nburst = 1000\n{}", redis.toml()),
        [fifty_a_second, chat().into()],
    )
    .await;
    crowd(&one, 300, "k");
    let rate = async |bed: &Bed| {
        let page = bed.call(&get("/metrics")).await;
        let line = page.text().lines().find(|line| line.starts_with("backstop_admission_rate{upstream=\"openai\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap()
    };
    let learned = async {
        while rate(&one).await == 0.0 {
            sleep(ms(20)).await;
        }
    };
    timeout(secs(20), learned).await.expect("a pace is learned");
    assert_eq!(rate(&two).await, 0.0, "it has not asked yet");
    two.call(&keyed("k")).await;
    assert!(rate(&two).await > 0.0);
}

#[tokio::test]
async fn the_retry_bucket_is_that_of_both() {
    let Some(redis) = RedisServer::start() else { return };
    let toml = format!(
        "[retry]\nbase_delay = \"1ms\"\nmax_delay = \"2ms\"\ndeadline = \"1s\"\n[retry.bucket]\nrate = 0.001\nburst = 6\n\
         [admission]\nadaptive = false\n{}",
        redis.toml()
    );
    let [one, two] = joined(&toml, [busy().into(), busy().into()]).await;
    for bed in [&one, &two] {
        bed.call(&keyed("k")).await;
    }
    assert_eq!((one.upstream.count(), two.upstream.count()), (5, 3), "6 tokens for both");
}

#[tokio::test]
async fn no_change_is_lost_where_several_write_at_once() {
    const EACH: u32 = 300;
    let Some(server) = RedisServer::start() else { return };
    let quota = Quota { rate: 0.001, burst: 10_000.0 };
    let mut writers = Vec::new();
    for _ in 0..3 {
        let url = format!("redis://127.0.0.1:{}", server.port);
        let redis = Redis::open(&url, std::time::SystemTime::now()).unwrap();
        until("Redis is up", || redis.is_up()).await;
        let store = Store::<Used>::shared(redis, "backstop:test".into());
        writers.push(tokio::spawn(async move {
            for _ in 0..EACH {
                store.update(|used, now| used.take(now, 1.0, &quota)).await;
            }
            store
        }));
    }
    let mut left = f64::MAX;
    for writer in writers {
        let store = writer.await.unwrap();
        left = store.update(|used, now| used.left(now, &quota)).await.min(left);
    }
    let taken = quota.burst - left;
    // What was decided without Redis, on a busy machine, may be missing.
    assert!((0.95 * f64::from(3 * EACH)..=f64::from(3 * EACH) + 0.5).contains(&taken), "{taken}");
}

/// Do something that takes its time where it holds nobody up.
async fn aside(mut redis: RedisServer, what: fn(&mut RedisServer)) -> RedisServer {
    let done = tokio::task::spawn_blocking(move || {
        what(&mut redis);
        redis
    });
    done.await.expect("it is done")
}

/// Calls without a pause until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<tokio::task::JoinHandle<(Duration, usize)>>,
    /// The longest that a sleep of 1 ms took too long: what the machine and the test itself hold up.
    late: tokio::task::JoinHandle<Duration>,
}

impl Load {
    fn on(beds: &[Bed], clients: usize) -> Load {
        let stop = Arc::<AtomicBool>::default();
        let clients = beds.iter().flat_map(|bed| (0..clients).map(move |_| bed.client()));
        let clients = clients.map(|client| tokio::spawn(load(client, stop.clone()))).collect();
        let late = tokio::spawn(lateness(stop.clone()));
        Load { stop, clients, late }
    }

    /// Every call was answered well and none was held up.
    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (mut longest, mut calls) = (Duration::ZERO, 0);
        for client in self.clients {
            let (its_longest, its_calls) = client.await.expect("every call is answered");
            (longest, calls) = (longest.max(its_longest), calls + its_calls);
        }
        let late = self.late.await.expect("it is measured");
        println!("{calls} calls, the longest took {longest:?}; the machine was {late:?} late");
        assert!(calls > 100 && longest < MOST + 3 * late, "{calls} calls, {longest:?}; {late:?} late");
    }
}

async fn lateness(stop: Arc<AtomicBool>) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        sleep(ms(1)).await;
        longest = longest.max(start.elapsed().saturating_sub(ms(2)));
    }
    longest
}

async fn load(mut client: Client, stop: Arc<AtomicBool>) -> (Duration, usize) {
    let (mut longest, mut calls) = (Duration::ZERO, 0);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        assert_eq!(client.call(&keyed("k")).await.status, 200);
        (longest, calls) = (longest.max(start.elapsed()), calls + 1);
        sleep(ms(1)).await;
    }
    (longest, calls)
}

#[tokio::test]
async fn a_redis_that_is_killed_and_comes_back_during_load_costs_no_call() {
    let Some(redis) = RedisServer::start() else { return };
    let (logs, _guard) = Logs::catch();
    // A limit that is never met makes every call write.
    let toml = format!("[admission]\nrequests_per_second = 100000\nburst = 1000\n{}", redis.toml());
    let beds = joined(&toml, [chat().into(), chat().into()]).await;
    let load = Load::on(&beds, 4);
    sleep(ms(1500)).await;
    let redis = aside(redis, RedisServer::kill).await;
    until("it is missed", || beds.iter().all(|bed| up(bed) == Some(false))).await;
    let page = beds[0].call(&get("/metrics")).await;
    assert!(page.text().contains("\nbackstop_redis_up 0\n"), "{}", page.text());
    sleep(ms(500)).await;
    let _redis = aside(redis, RedisServer::restart).await;
    until("it is found again", || beds.iter().all(|bed| up(bed) == Some(true))).await;
    sleep(ms(1500)).await;
    load.end().await;
    // Each tells both in turn; a machine that is busy may hold Redis up at any other time.
    until("it is said", || logs.text().matches(SHARED).count() >= 2).await;
    let (gone, shared) = (logs.text().matches(GONE).count(), logs.text().matches(SHARED).count());
    assert!(gone >= 2 && gone <= shared + 2, "{}", logs.text());
}

#[tokio::test]
async fn a_redis_that_loses_everything_is_told_again() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, two] = joined(&redis.toml(), [limited_once(), chat().into()]).await;
    crowd(&one, 1, "k");
    until("the limit", || one.upstream.attempts() == 1).await;
    until("Redis is told", || redis.ask("KEYS backstop:limits:*").contains("backstop")).await;
    let limited = one.upstream.seen()[0].at;
    assert!(redis.ask("FLUSHALL").starts_with("+OK"));
    crowd(&one, 1, "k");
    until("Redis is told again", || redis.ask("KEYS backstop:limits:*").contains("backstop")).await;
    two.call(&keyed("k")).await;
    let waited = two.upstream.last().at - limited;
    assert!(waited >= ms(950), "{waited:?}");
}

#[tokio::test]
async fn a_redis_that_is_emptied_during_load_costs_no_call() {
    let Some(redis) = RedisServer::start() else { return };
    let toml = format!("[admission]\nrequests_per_second = 100000\nburst = 1000\n{}", redis.toml());
    let beds = joined(&toml, [chat().into(), chat().into()]).await;
    let load = Load::on(&beds, 4);
    for _ in 0..20 {
        sleep(ms(50)).await;
        assert!(redis.ask("FLUSHALL").starts_with("+OK"));
    }
    load.end().await;
}

#[tokio::test]
async fn a_redis_that_stops_answering_is_left_alone_until_it_does() {
    let Some(redis) = RedisServer::start() else { return };
    let beds = joined(&redis.toml(), [chat().into()]).await;
    let load = Load::on(&beds, 4);
    sleep(ms(300)).await;
    redis.signal("STOP");
    until("it is missed", || up(&beds[0]) == Some(false)).await;
    sleep(ms(1500)).await;
    redis.signal("CONT");
    until("it is found again", || up(&beds[0]) == Some(true)).await;
    load.end().await;
}

#[tokio::test]
async fn a_redis_that_takes_connections_and_never_answers_is_not_waited_for() {
    let (logs, _guard) = Logs::catch();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bed = Bed::new(&toml_of(&format!("redis://{}", silent.local_addr().unwrap())), chat());
    let beds = [bed];
    let load = Load::on(&beds, 2);
    until("it is told", || logs.text().contains(GONE)).await;
    sleep(ms(1500)).await;
    load.end().await;
    assert_eq!((up(&beds[0]), logs.text().matches(GONE).count()), (Some(false), 1));
}

#[tokio::test]
async fn a_wrong_password_is_told_once_and_never_shown() {
    let Some(redis) = RedisServer::with(&["--requirepass", "the-right-one"]) else { return };
    let (logs, _guard) = Logs::catch();
    let bed = Bed::new(&toml_of(&format!("redis://user:WRONG-secret@127.0.0.1:{}/0", redis.port)), chat());
    until("it is told", || logs.text().contains(GONE)).await;
    assert_eq!(bed.call(&post(CHAT)).await.status, 200);
    sleep(ms(1000)).await;
    let told = logs.text();
    assert!(told.contains("authentication failed") && told.contains(&format!("127.0.0.1:{}", redis.port)), "{told}");
    assert!(!told.contains("WRONG-secret") && told.matches(GONE).count() == 1, "{told}");
    let right = Bed::new(&toml_of(&format!("redis://:the-right-one@127.0.0.1:{}/3", redis.port)), chat());
    until("the right one is taken", || up(&right) == Some(true)).await;
}

#[tokio::test]
async fn without_redis_there_is_no_metric_of_it() {
    let bed = Bed::new("", chat());
    assert!(!bed.call(&get("/metrics")).await.text().contains("backstop_redis_up"));
}

#[tokio::test]
async fn a_program_starts_without_its_redis_and_speaks_tls_to_it() {
    let certificate = Certificate::new();
    let upstream = Upstream::new(chat());
    let address = listen(&upstream).await;
    let toml = |port: u16| {
        format!(
            "[upstreams.openai]\nbase_url = \"http://{address}\"\n{}",
            toml_of(&format!("rediss://localhost:{port}"))
        )
    };
    let (cert, key) = certificate.files();
    let port = free_port();
    let alone = Process::start(&toml(port), &[("SSL_CERT_FILE", &certificate.ca_file())]);
    assert_eq!(alone.client().await.call(&post(CHAT)).await.status, 200);
    let tls = ["--tls-port", &port.to_string(), "--tls-cert-file", &cert, "--tls-key-file", &key];
    let rest = ["--tls-auth-clients", "no", "--tls-ca-cert-file", &certificate.ca_file()];
    let Some(redis) = RedisServer::with(&[&tls[..], &rest[..]].concat()) else { return };
    until("it is used", || alone.logs().contains(SHARED)).await;
    assert!(alone.client().await.call(&get("/metrics")).await.text().contains("\nbackstop_redis_up 1\n"));
    assert_eq!(alone.client().await.call(&post(CHAT)).await.status, 200);
    drop(redis);
    until("it is missed", || alone.logs().contains(GONE)).await;
    assert_eq!(alone.client().await.call(&post(CHAT)).await.status, 200);
}
