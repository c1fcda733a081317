//! What calls share: the gates before the upstreams, the global retry bucket, and the memory of calls that just failed for
//! good.
//!
//! There is one gate for each upstream and credential. Where a provider's limit is told to be one of a single model, that
//! model gets a gate of its own before it, so that the others go on. Bound: `MOST` credentials, `MOST_MODELS` models
//! each; what is forgotten first is what stands open anyway. With Redis, limits and retry bucket are those of all Backstops
//! on it; lines, circuits and places at the upstream are each one's own.

pub mod bucket;
mod drive;
pub mod gate;
pub mod memory;
pub mod permit;
pub mod queue;
pub mod redis;
pub mod store;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;

use bucket::RetryBucket;
use gate::{Ask, Gate, Look, Refused, Rules};
use memory::Fingerprint;
use permit::Permit;
use redis::Redis;
use store::Store;

use crate::config;
use crate::policy::lesson::Lesson;
use crate::policy::limits::Limits;
use crate::policy::pace::Signal;

/// Credentials that have gates.
const MOST: usize = 4096;
/// Models of one credential that have gates.
const MOST_MODELS: usize = 64;

/// Every gate.
#[derive(Default)]
pub struct Admission {
    gates: DashMap<Key, Arc<Gates>>,
    hasher: RandomState,
    redis: Option<Arc<Redis>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    upstream: Arc<str>,
    /// A keyed hash: the credential itself is kept nowhere.
    credential: u64,
}

/// The gates before one upstream for one credential.
pub struct Gates {
    home: Home,
    all: Arc<Gate>,
    models: Mutex<HashMap<String, Arc<Gate>>>,
    /// There are gates for models: only then is a request's model looked for.
    split: AtomicBool,
}

/// Where the limits of an upstream and credential are kept.
struct Home {
    redis: Option<Arc<Redis>>,
    /// The same in every Backstop; the credential cannot be told from it.
    name: Fingerprint,
}

/// Leave to send one request.
pub struct Passage {
    gates: Arc<Gates>,
    all: Permit,
    model: Option<Permit>,
}

impl Admission {
    /// Limits that are shared by all Backstops on this Redis.
    pub fn on(redis: Option<Arc<Redis>>) -> Self {
        Admission { redis, ..Admission::default() }
    }

    /// Whether Redis can be used; `None`: none is configured.
    pub fn redis_is_up(&self) -> Option<bool> {
        self.redis.as_ref().map(|redis| redis.is_up())
    }

    /// The config has changed: what it says of this upstream holds for those who wait already, too.
    pub fn apply(&self, upstream: &config::Upstream) {
        let rules = Rules::of(upstream);
        let of = self.gates.iter().filter(|entry| entry.key().upstream == upstream.name);
        of.for_each(|entry| entry.value().apply(rules));
    }

    /// A retry bucket, full unless others share it.
    pub fn retry_bucket(&self, settings: config::RetryBucket) -> RetryBucket {
        let key = format!("backstop:retry_bucket:{}:{}", settings.rate, settings.burst);
        RetryBucket::new(settings, self.redis.as_ref().map(|redis| Store::shared(redis.clone(), key)))
    }

    /// The gates before an upstream for a client's credential; empty, if it is Backstop that puts one in.
    pub fn gates(&self, upstream: &config::Upstream, credential: &[u8]) -> Arc<Gates> {
        let host = upstream.authority();
        let own = upstream.api_key.as_ref().map_or("", |key| key.expose());
        let key = Key { upstream: upstream.name.clone(), credential: self.hasher.hash_one((host, own, credential)) };
        if let Some(gates) = self.gates.get(&key) {
            return gates.clone();
        }
        if self.gates.len() >= MOST {
            self.gates.retain(|_, gates| !gates.idle());
        }
        let name = Fingerprint::of([upstream.name.as_bytes(), host.as_bytes(), own.as_bytes(), credential]);
        let made = Arc::new(Gates::new(Home { redis: self.redis.clone(), name }, Rules::of(upstream)));
        // With more credentials at work than that, the newest are on their own.
        if self.gates.len() >= MOST { made } else { self.gates.entry(key).or_insert(made).clone() }
    }

    /// A hash of a secret or a name that means nothing outside this process.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash_one(bytes)
    }

    /// How the gates before an upstream look together: the sum of those who wait, the lowest learned rate, the longest wait,
    /// any open circuit.
    pub fn look(&self, upstream: &str) -> Look {
        let of = self.gates.iter().filter(|entry| &*entry.key().upstream == upstream);
        of.flat_map(|entry| entry.value().looks()).fold(Look::default(), |sum, one| Look {
            waiting: sum.waiting + one.waiting,
            rate: sum.rate.into_iter().chain(one.rate).reduce(f64::min),
            cooldown: sum.cooldown.max(one.cooldown),
            open: sum.open || one.open,
            ..sum
        })
    }
}

impl Gates {
    fn new(home: Home, rules: Rules) -> Self {
        let all = Arc::new(Gate::new(home.store(""), rules));
        Gates { home, all, models: Mutex::default(), split: AtomicBool::new(false) }
    }

    /// Be let through. `model` is asked only where models have gates of their own.
    ///
    /// # Errors
    /// If the request is sent away.
    pub async fn admit(self: &Arc<Self>, ask: Ask, model: impl FnOnce() -> Option<String>) -> Result<Passage, Refused> {
        let own = if self.split.load(Ordering::Relaxed) { model().and_then(|name| self.of_model(&name)) } else { None };
        let model = match own {
            Some(gate) => Some(gate.admit(ask).await?),
            None => None,
        };
        let all = self.all.admit(ask).await?;
        Ok(Passage { gates: self.clone(), all, model })
    }

    fn of_model(&self, name: &str) -> Option<Arc<Gate>> {
        let mut models = self.models();
        let gate = models.get(name)?.clone();
        if gate.look().idle {
            models.remove(name);
            self.split.store(!models.is_empty(), Ordering::Relaxed);
            return None;
        }
        Some(gate)
    }

    /// A gate for one model, from now on; `None`: there are too many already.
    fn split(&self, name: &str) -> Option<Arc<Gate>> {
        let mut models = self.models();
        if models.len() >= MOST_MODELS && !models.contains_key(name) {
            models.retain(|_, gate| !gate.look().idle);
            if models.len() >= MOST_MODELS {
                return None;
            }
        }
        self.split.store(true, Ordering::Relaxed);
        let made = || Arc::new(Gate::new(self.home.store(name), self.all.rules().of_model()));
        Some(models.entry(name.to_owned()).or_insert_with(made).clone())
    }

    fn apply(&self, rules: Rules) {
        self.all.apply(rules);
        self.models().values().for_each(|gate| gate.apply(rules.of_model()));
    }

    fn looks(&self) -> Vec<Look> {
        std::iter::once(self.all.look()).chain(self.models().values().map(|gate| gate.look())).collect()
    }

    fn idle(&self) -> bool {
        self.looks().iter().all(|look| look.idle)
    }

    fn models(&self) -> MutexGuard<'_, HashMap<String, Arc<Gate>>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Home {
    /// A store for the limits of one model, or (empty) of all together.
    fn store(&self, model: &str) -> Store<Limits> {
        let Some(redis) = &self.redis else { return Store::local() };
        let digest = Fingerprint::of([self.name.bytes(), model.as_bytes()]).hex();
        Store::shared(redis.clone(), format!("backstop:limits:{digest}"))
    }
}

impl Passage {
    /// Take in what came of the request. `model`: the one that a limit was told to be of. `true`: the circuit opened.
    pub fn learn(&mut self, lesson: &Lesson, model: Option<&str>) -> bool {
        let Some(name) = model.filter(|_| lesson.signal == Signal::Limited) else {
            let opened = self.all.learn(lesson);
            if let Some(model) = &mut self.model {
                model.learn(lesson);
            }
            return opened;
        };
        match &mut self.model {
            Some(model) => drop(model.learn(lesson)),
            None => {
                if let Some(gate) = self.gates.split(name) {
                    gate.limited(*lesson);
                }
            }
        }
        self.all.learn(&Lesson { signal: Signal::Nothing, close_for: None, ..*lesson })
    }

    /// The request really used so many tokens.
    pub fn settle(&mut self, tokens: u64) {
        self.all.settle(tokens);
    }
}

/// How long a client that is sent away should stay away, where nothing is known: a second.
pub fn retry_after(refused: Refused) -> Duration {
    let wait = match refused {
        Refused::Full(wait) | Refused::TooLate(wait) | Refused::Open(wait) => wait,
        Refused::Draining => Duration::ZERO,
    };
    wait.max(Duration::from_secs(1))
}
