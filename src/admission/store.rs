//! Where the state of a limit is kept: here alone, or also in a Redis that several Backstops share.
//!
//! The state is plain data and whatever changes it is a closure, so the law is written once. Kept here, a change is made at
//! once. Shared, it is made on the copy that we have, which is then written if Redis still holds what that copy was (one
//! round trip); if another Backstop was faster, it is made again on what that one left. When Redis cannot be asked, our copy
//! is what counts. Bound: one state, and `MOST_TOLD` changes that Redis was not told of yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::redis::Redis;
use crate::clock::after;
use crate::policy::limits::Limits;
use crate::policy::quota::Used;

/// Time of a store's own: far enough from zero that everything may lie before it.
pub(super) const BEGINNING: Duration = Duration::from_secs(3600);
/// So often at most a change is made again because another Backstop was faster; then, or when the time for it is over, it is made
/// on our copy alone.
const TRIES: usize = 32;
/// Changes told and not written yet, beyond which new ones are forgotten: more than come in while Redis is waited for.
const MOST_TOLD: usize = 4096;

/// What can be kept in a store.
pub trait State: Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + 'static {
    /// This is what Redis holds; `ours` is what we had. What must not be lost of ours is taken over.
    fn join(&mut self, ours: &Self);
}

impl State for Limits {
    fn join(&mut self, ours: &Self) {
        self.keep_wait(ours);
    }
}

impl State for Used {
    fn join(&mut self, _ours: &Self) {}
}

/// The state of one limit, and its clock. Its times are lengths since a moment that does not matter.
pub struct Store<T> {
    copy: Mutex<Copy<T>>,
    shared: Option<Shared>,
    start: Instant,
}

struct Shared {
    redis: Arc<Redis>,
    key: String,
}

/// A change that can be made more than once.
type Change<T> = Box<dyn Fn(&mut T, Duration) + Send + Sync>;

struct Copy<T> {
    state: T,
    /// What Redis held when it was last asked; empty: nothing.
    text: Vec<u8>,
    /// `state` is not what `text` says: Redis must be told.
    ahead: bool,
    told: Vec<Change<T>>,
}

/// What a change would make of our copy.
struct Draft<T, R> {
    state: T,
    before: Vec<u8>,
    after: Vec<u8>,
    result: R,
}

impl<T: State> Store<T> {
    /// Kept here alone; nothing is known yet.
    pub fn local() -> Self {
        Self::new(None)
    }

    /// Kept under this key in Redis, for as long as that can be asked.
    pub fn shared(redis: Arc<Redis>, key: String) -> Self {
        Self::new(Some(Shared { redis, key }))
    }

    fn new(shared: Option<Shared>) -> Self {
        let copy = Copy { state: T::default(), text: Vec::new(), ahead: false, told: Vec::new() };
        Store { copy: Mutex::new(copy), shared, start: Instant::now() }
    }

    /// Redis has to be asked before anybody is let through.
    pub fn must_ask(&self) -> bool {
        self.redis().is_some()
    }

    fn redis(&self) -> Option<&Shared> {
        self.shared.as_ref().filter(|shared| shared.redis.is_prompt())
    }

    /// The store's time.
    pub fn time(&self) -> Duration {
        match &self.shared {
            None => BEGINNING.saturating_add(self.start.elapsed()),
            Some(shared) => shared.redis.time(),
        }
    }

    /// One of the store's times on the clock that everything waits by.
    pub fn instant(&self, at: Duration) -> Instant {
        after(Instant::now(), at.saturating_sub(self.time()))
    }

    /// Look at our copy.
    pub fn look<R>(&self, look: impl FnOnce(&T, Duration) -> R) -> R {
        let now = self.time();
        look(&self.lock().state, now)
    }

    /// Change our copy at once.
    pub fn now<R>(&self, change: impl FnOnce(&mut T, Duration) -> R) -> R {
        let now = self.time();
        let mut copy = self.lock();
        copy.ahead = true;
        let told = std::mem::take(&mut copy.told);
        told.iter().for_each(|earlier| earlier(&mut copy.state, now));
        change(&mut copy.state, now)
    }

    /// Change it where nothing depends on the outcome. `true`: that is done with the next [`Store::update`].
    pub fn tell(&self, change: impl Fn(&mut T, Duration) + Send + Sync + 'static) -> bool {
        if self.shared.is_none() {
            self.now(change);
            return false;
        }
        let now = self.time();
        let mut copy = self.lock();
        let mut trial = copy.state.clone();
        change(&mut trial, now);
        // Without congestion nearly nothing that is learned is news, and Redis is not asked for it.
        let is_news = !copy.told.is_empty() || trial != copy.state;
        if is_news && copy.told.len() < MOST_TOLD {
            copy.told.push(Box::new(change));
        }
        is_news
    }

    /// Something was told that is not done.
    pub fn has_news(&self) -> bool {
        self.shared.is_some() && !self.lock().told.is_empty()
    }

    /// Change it for all, and all that was told with it. It takes a round trip or a few; without Redis it is done at once.
    /// One caller at a time.
    pub async fn update<R>(&self, change: impl Fn(&mut T, Duration) -> R) -> R {
        let Some(shared) = self.redis() else { return self.now(change) };
        let told = std::mem::take(&mut self.lock().told);
        let all = |state: &mut T, now: Duration| {
            told.iter().for_each(|earlier| earlier(state, now));
            change(state, now)
        };
        let deadline = shared.redis.deadline();
        for _ in 0..TRIES {
            let draft = self.draft(&all);
            match shared.redis.swap(&shared.key, &draft.before, &draft.after, deadline).await {
                Ok(None) => return self.adopt(draft),
                Ok(Some(other)) => self.catch_up(other),
                Err(_) => break,
            }
        }
        self.now(all)
    }

    fn draft<R>(&self, change: &impl Fn(&mut T, Duration) -> R) -> Draft<T, R> {
        let now = self.time();
        let copy = self.lock();
        let (mut state, before) = (copy.state.clone(), copy.text.clone());
        let result = change(&mut state, now);
        let after = if !copy.ahead && state == copy.state {
            before.clone()
        } else {
            serde_json::to_vec(&state).unwrap_or_default()
        };
        Draft { state, before, after, result }
    }

    /// Redis holds the draft now.
    fn adopt<R>(&self, draft: Draft<T, R>) -> R {
        let mut copy = self.lock();
        (copy.state, copy.text, copy.ahead) = (draft.state, draft.after, false);
        draft.result
    }

    /// Redis holds something else. What it has lost, or what nobody can read, is what we know.
    fn catch_up(&self, text: Vec<u8>) {
        let mut copy = self.lock();
        if let Ok(theirs) = serde_json::from_slice::<T>(&text) {
            let mut state = theirs.clone();
            state.join(&copy.state);
            copy.ahead = state != theirs;
            copy.state = state;
        } else {
            copy.ahead = copy.state != T::default();
        }
        copy.text = text;
    }

    fn lock(&self) -> MutexGuard<'_, Copy<T>> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
