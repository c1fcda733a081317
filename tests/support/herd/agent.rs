//! Agents as SDKs make them: a connection that is kept, calls one after another, and retries of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Door, Herd};
use crate::support::{Answer, CHAT, Client, Request, post, secs};

/// What an agent does with a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// As the OpenAI SDK: 2 retries, Retry-After to the letter, otherwise 0.5 s doubled up to 8 s less up to a quarter, and
    /// `x-should-retry` has the last word.
    Sdk,
    /// As a loop written by hand: 10 retries, 1 s doubled up to 30 s, no jitter, no hint read.
    Fixed,
}

/// An agent's connection; opened anew when it was closed.
struct Line {
    door: Arc<Door>,
    agent: usize,
    client: Option<Client>,
}

/// Who is calling, as the headers tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    Untold,
    Batch,
    Interactive,
}

impl Habit {
    fn retries(self) -> u32 {
        if self == Habit::Sdk { 2 } else { 10 }
    }

    /// The wait before retry `n`, from 0.
    fn pause(self, n: u32, told: Option<Duration>, dice: &mut fastrand::Rng) -> Duration {
        match (self, told) {
            (Habit::Fixed, _) => secs(1 << n).min(secs(30)),
            (Habit::Sdk, Some(told)) if told <= secs(60) => told,
            (Habit::Sdk, _) => secs(1).mul_f64(0.5 * f64::from(1 << n)).min(secs(8)).mul_f64(1.0 - 0.25 * dice.f64()),
        }
    }
}

impl Line {
    fn new(door: Arc<Door>, agent: usize) -> Self {
        Line { door, agent, client: None }
    }

    /// The answer; `None`: the connection ended without one, and so did a new one.
    async fn ask(&mut self, request: &Request) -> Option<Answer> {
        for _ in 0..2 {
            let mut client = match self.client.take() {
                Some(client) => client,
                None => self.door.connect(self.agent).await,
            };
            client.ask(request).await;
            if let Some(answer) = client.next().await {
                self.client = Some(client);
                return Some(answer);
            }
        }
        None
    }

    /// One call with its retries: the time it took; `None`: it failed for good.
    async fn call(&mut self, what: (usize, Rank), habit: Habit, dice: &mut fastrand::Rng) -> Option<Duration> {
        let start = Instant::now();
        for n in 0..=habit.retries() {
            let answer = self.ask(&request(self.agent, what, n)).await;
            if answer.as_ref().is_some_and(|answer| answer.status == 200) {
                return Some(start.elapsed());
            }
            if n == habit.retries() || !answer.as_ref().is_none_or(would_retry) {
                break;
            }
            let told = answer.and_then(|answer| answer.value("retry-after")?.parse().ok()).map(secs);
            sleep(habit.pause(n, told, dice)).await;
        }
        None
    }
}

/// The SDKs' rule.
fn would_retry(answer: &Answer) -> bool {
    match answer.value("x-should-retry") {
        Some("true") => true,
        Some("false") => false,
        _ => matches!(answer.status, 408 | 409 | 429) || answer.status >= 500,
    }
}

/// As OpenAI's Python SDK sends it; each call has words of its own.
fn request(agent: usize, (call, rank): (usize, Rank), retry: u32) -> Request {
    let words = format!("agent {agent} call {call}");
    let request = post(CHAT)
        .header("Authorization", "Bearer sk-herd")
        .header("Content-Type", "application/json")
        .header("User-Agent", "OpenAI/Python 3.57.0")
        .header("x-stainless-lang", "python")
        .header("x-stainless-retry-count", retry.to_string())
        .header("x-stainless-read-timeout", "600")
        .body(format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{words}"}}]}}"#));
    match rank {
        Rank::Untold => request,
        Rank::Batch => request.header("x-backstop-priority", "batch"),
        Rank::Interactive => {
            request.header("x-backstop-priority", "interactive").header("x-backstop-run", "somebody waits")
        }
    }
}

/// One agent's task: when each of its calls was answered and how long that took. Fewer than asked for: it gave up.
pub async fn work(agent: usize, herd: Herd, door: Arc<Door>) -> Vec<(Instant, Duration)> {
    let mut dice = fastrand::Rng::with_seed(herd.seed.wrapping_mul(1_000_003) ^ agent as u64);
    let mut line = Line::new(door, agent);
    let rank = if herd.companion { Rank::Batch } else { Rank::Untold };
    let mut done = Vec::new();
    sleep(herd.spread.mul_f64(dice.f64())).await;
    for call in 0..herd.calls {
        let Some(took) = line.call((call, rank), herd.habit, &mut dice).await else { break };
        done.push((Instant::now(), took));
        sleep(herd.think.mul_f64(dice.f64())).await;
    }
    done
}

/// The interactive agent, until the others are done: the time of each call, and how many failed.
pub async fn companion(herd: Herd, door: Arc<Door>, over: Arc<AtomicBool>) -> (Vec<Duration>, usize) {
    let mut dice = fastrand::Rng::with_seed(!herd.seed);
    let mut line = Line::new(door, herd.agents);
    let (mut took, mut failed) = (Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        sleep(herd.think.mul_f64(dice.f64())).await;
        match line.call((took.len() + failed, Rank::Interactive), herd.habit, &mut dice).await {
            Some(time) => took.push(time),
            None => failed += 1,
        }
    }
    (took, failed)
}
