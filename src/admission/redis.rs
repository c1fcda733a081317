//! The Redis that several Backstops share: one question, one clock, and one task that keeps the connection.
//!
//! The question is a compare-and-set, so that several Backstops cannot overwrite each other. No call waits longer for it
//! than 5 ms: then its gate decides alone. A round trip that fails, or several that are late, end the use of the connection,
//! and everything is decided here until the task has another one on which Redis answers in time.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// One change at most, with all its round trips: 5 ms with what follows.
const PATIENCE: Duration = Duration::from_millis(4);
/// If it was our process that was held up so long, the answer is there and only has to be read.
const GRACE: Duration = Duration::from_millis(1);
/// Late answers in a row are put up with for so long: a Redis that forks to save is held up a moment. What was asked is
/// decided here meanwhile.
const LATE_FOR: Duration = Duration::from_millis(25);
/// To connect, to authenticate, and the first answer.
const CONNECT: Duration = Duration::from_secs(1);
/// How often Redis is asked whether it is still there while nobody else asks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A connection that held so long was a good one: the next is made without a pause.
const STEADY: Duration = Duration::from_secs(1);
/// Pause before another connection, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Redis forgets what nobody has changed for so long, in milliseconds: an hour.
const FORGET_AFTER: u64 = 3_600_000;
/// What the task asks for: that it can be written shows that Redis takes writes.
const PROBE: &str = "backstop:probe";

/// Set KEYS[1] to ARGV[2] if it is ARGV[1] (empty: it is not there), to be forgotten after ARGV[3] ms. Answers with Redis'
/// time in seconds and microseconds, and with what it holds instead if that is something else.
const SWAP: &str = "local now = redis.call('TIME')
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[1] then return {now[1], now[2], held} end
if ARGV[2] ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return {now[1], now[2], false}";

/// A Redis, there or not.
pub struct Redis {
    client: Client,
    /// Without user and password.
    address: String,
    connection: ArcSwapOption<MultiplexedConnection>,
    /// Redis' clock when ours began, in microseconds since 1970.
    began: AtomicU64,
    start: Instant,
    /// Since when answers are late, in microseconds since `start`; 0: they are not.
    late_since: AtomicU64,
    lost: Notify,
    fault: Mutex<String>,
}

/// Redis could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

impl Redis {
    /// Begin to use the Redis at this URL: returns at once, and connects by and by. Must be called on a runtime.
    ///
    /// # Errors
    /// If the URL cannot be read; the text does not hold it.
    pub fn open(url: &str, wall: SystemTime) -> Result<Arc<Self>, String> {
        let info = url.into_connection_info().map_err(|error| format!("redis.url: {}", error.category()))?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let since_1970 = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let redis = Arc::new(Redis {
            address: info.addr().to_string(),
            client: Client::open(info).map_err(|error| format!("redis.url: {}", error.category()))?,
            connection: ArcSwapOption::empty(),
            began: AtomicU64::new(micros(since_1970)),
            start: Instant::now(),
            late_since: AtomicU64::new(0),
            lost: Notify::new(),
            fault: Mutex::default(),
        });
        tokio::spawn(keep(Arc::downgrade(&redis)));
        Ok(redis)
    }

    /// It answers.
    pub fn is_up(&self) -> bool {
        self.connection.load().is_some()
    }

    /// Redis' time, as we count it on from its last answer: since 1970.
    pub fn time(&self) -> Duration {
        Duration::from_micros(self.began.load(Ordering::Relaxed)).saturating_add(self.start.elapsed())
    }

    /// When a change that begins now must have its answer.
    pub fn deadline(&self) -> Instant {
        Instant::now() + PATIENCE
    }

    /// Write `after` if Redis holds `before` under this key; otherwise, what it holds. Nothing is written if they are equal.
    ///
    /// # Errors
    /// If Redis does not answer in time; it is not asked again until it does.
    pub async fn swap(
        &self,
        key: &str,
        before: &[u8],
        after: &[u8],
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, Lost> {
        let connection = self.connection.load_full().ok_or(Lost)?;
        let asked = Self::in_time(self.ask(&connection, key, before, after, FORGET_AFTER), deadline).await;
        asked.map_err(|fault| {
            if fault.is_some() || self.is_late() {
                self.lose(&connection, told(fault));
            }
            Lost
        })
    }

    /// One more answer was late. `true`: that is enough.
    fn is_late(&self) -> bool {
        let now = micros(self.start.elapsed()).max(1);
        match self.late_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => false,
            Err(since) => now.saturating_sub(since) >= micros(LATE_FOR),
        }
    }

    /// `Err`: the fault; `None`: the answer is late.
    async fn in_time(
        ask: impl Future<Output = RedisResult<Option<Vec<u8>>>>,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, Option<String>> {
        let mut ask = pin!(ask);
        let mut answer = timeout_at(deadline, &mut ask).await;
        if answer.is_err() {
            answer = timeout(GRACE, &mut ask).await;
        }
        match answer {
            Ok(answer) => answer.map_err(|error| Some(error.to_string())),
            Err(_) => Err(None),
        }
    }

    async fn ask(
        &self,
        connection: &MultiplexedConnection,
        key: &str,
        before: &[u8],
        after: &[u8],
        forget_after: u64,
    ) -> RedisResult<Option<Vec<u8>>> {
        let mut command = redis::cmd("EVAL");
        command.arg(SWAP).arg(1).arg(key).arg(before).arg(after).arg(forget_after);
        let sent = self.start.elapsed();
        let answer = command.query_async(&mut connection.clone()).await?;
        let (seconds, part, held): (u64, u64, Option<Vec<u8>>) = answer;
        let theirs = seconds.saturating_mul(1_000_000).saturating_add(part);
        let middle = (sent + self.start.elapsed()) / 2;
        self.late_since.store(0, Ordering::Relaxed);
        self.began.store(theirs.saturating_sub(micros(middle)), Ordering::Relaxed);
        Ok(held)
    }

    fn lose(&self, connection: &Arc<MultiplexedConnection>, fault: String) {
        let current = self.connection.load();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            self.connection.store(None);
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
            self.lost.notify_one();
        }
    }

    /// Make a connection on which Redis answers in time.
    async fn connect(&self) -> Result<(), String> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let open = async {
            let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // The first answer takes longer: the script is compiled. The probe is gone when anybody else asks for it.
            self.ask(&connection, PROBE, b"", b"1", 1).await.map(|_| connection)
        };
        let connection = match timeout(CONNECT, open).await {
            Ok(open) => open.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("no answer within {} s", CONNECT.as_secs())),
        };
        Self::in_time(self.ask(&connection, PROBE, b"", b"", 1), self.deadline()).await.map_err(told)?;
        self.connection.store(Some(Arc::new(connection)));
        Ok(())
    }

    fn fault(&self) -> String {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Have a connection whenever there can be one, as long as somebody uses it.
async fn keep(redis: Weak<Redis>) {
    let mut keeper = Keeper::default();
    while let Some(redis) = redis.upgrade() {
        keeper.step(&redis).await;
    }
}

#[derive(Default)]
struct Keeper {
    /// Since when there is a connection.
    since: Option<Instant>,
    pause: Duration,
    /// What the log was last told: whether Redis is there.
    told: Option<bool>,
}

impl Keeper {
    async fn step(&mut self, redis: &Redis) {
        let Some(since) = self.since else {
            sleep(self.pause).await;
            return self.connected(redis, redis.connect().await);
        };
        tokio::select! {
            () = redis.lost.notified() => {}
            () = sleep(LOOK_EVERY) => {
                // One that was lost meanwhile has left its notice.
                if redis.swap(PROBE, b"", b"", redis.deadline()).await.is_ok() {
                    self.tell_back(redis);
                }
            }
        }
        if !redis.is_up() {
            self.since = None;
            if since.elapsed() >= STEADY {
                self.pause = Duration::ZERO;
            } else {
                self.tell_gone(redis, &redis.fault());
            }
        }
    }

    fn connected(&mut self, redis: &Redis, connected: Result<(), String>) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        match connected {
            Ok(()) => self.since = Some(Instant::now()),
            Err(fault) => self.tell_gone(redis, &fault),
        }
    }

    fn tell_gone(&mut self, redis: &Redis, fault: &str) {
        if self.told != Some(false) {
            self.told = Some(false);
            tracing::warn!(
                redis = redis.address,
                error = fault,
                "Redis cannot be used: limits are kept here alone until it can"
            );
        }
    }

    /// Told after a while, so that a Redis that comes and goes does not fill the log.
    fn tell_back(&mut self, redis: &Redis) {
        if self.told != Some(true) {
            self.told = Some(true);
            tracing::info!(redis = redis.address, "limits are shared through Redis");
        }
    }
}

/// A fault, or that an answer was late.
fn told(fault: Option<String>) -> String {
    fault.unwrap_or_else(|| format!("no answer within {} ms", (PATIENCE + GRACE).as_millis()))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
