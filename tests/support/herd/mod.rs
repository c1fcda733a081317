//! A herd: two hundred agents behind one key, and a provider with a limit and an outage.
//!
//! The same agents and the same provider run over memory in virtual time (the test and the bench) and over sockets in real
//! time (the bench). What differs is the [`Door`] that the agents go through.

mod agent;
pub mod figures;
mod provider;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

pub use agent::Habit;
pub use figures::Figures;
pub use provider::{Provider, Record, World};

use super::{Bed, Client, Upstream, memory, ms, secs};

/// Who calls, and how.
#[derive(Debug, Clone, Copy)]
pub struct Herd {
    pub agents: usize,
    /// Calls of each.
    pub calls: usize,
    /// They start within this time.
    pub spread: Duration,
    /// Between two calls of an agent there are up to this.
    pub think: Duration,
    /// What they do with a failure.
    pub habit: Habit,
    /// One interactive agent calls as long as the others are at work, and they say that they are batch.
    pub companion: bool,
    pub seed: u64,
}

/// The one of the bench.
pub const HERD: Herd =
    Herd { agents: 200, calls: 5, spread: ms(400), think: ms(400), habit: Habit::Sdk, companion: false, seed: 1 };

/// For so long an interactive agent is watched alone: about the time that the herd takes.
const ALONE: Duration = secs(58);

/// Where agents connect to.
pub enum Door {
    /// A Backstop in memory.
    Bed(Bed),
    /// The provider itself, in memory.
    Upstream(Arc<Upstream>),
    /// Addresses, that the agents take in turn.
    Tcp(Vec<SocketAddr>),
}

impl Door {
    async fn connect(&self, agent: usize) -> Client {
        match self {
            Door::Bed(bed) => bed.client(),
            Door::Upstream(upstream) => {
                let (ours, theirs) = memory::pair();
                let number = upstream.dialed().expect("a provider that takes connections");
                tokio::spawn(upstream.clone().serve(theirs, number));
                Client::over(ours)
            }
            Door::Tcp(places) => {
                let stream = TcpStream::connect(places[agent % places.len()]).await.expect("a connection");
                stream.set_nodelay(true).expect("a socket option");
                Client::over(stream)
            }
        }
    }
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Run {
    /// What the provider saw.
    pub record: Record,
    /// When each agent was done with its task, since the start.
    pub finishes: Vec<Duration>,
    /// Agents that gave up.
    pub lost: usize,
    /// Calls that were answered well, each with the time that it took.
    pub calls: Vec<Duration>,
    /// When the last of them was.
    pub last: Duration,
    /// Calls of the interactive agent.
    pub companion: Vec<Duration>,
    /// Those of them that failed.
    pub refused: usize,
}

/// Let the herd loose. No agents: the interactive one is alone.
pub async fn run(herd: Herd, door: Arc<Door>, provider: &Provider) -> Run {
    let start = provider.begin();
    let over = Arc::<AtomicBool>::default();
    let companion = herd.companion.then(|| tokio::spawn(agent::companion(herd, door.clone(), over.clone())));
    let agents: Vec<_> = (0..herd.agents).map(|n| tokio::spawn(agent::work(n, herd, door.clone()))).collect();
    if agents.is_empty() {
        sleep(ALONE).await;
    }
    let mut run = Run::default();
    for agent in agents {
        run.add(&agent.await.expect("an agent that ends well"), start, &herd);
    }
    over.store(true, Ordering::Relaxed);
    if let Some(companion) = companion {
        (run.companion, run.refused) = companion.await.expect("an agent that ends well");
    }
    run.record = provider.record();
    run
}

impl Run {
    fn add(&mut self, done: &[(Instant, Duration)], start: Instant, herd: &Herd) {
        self.calls.extend(done.iter().map(|(_, took)| *took));
        let end = done.last().map_or(Duration::ZERO, |(end, _)| *end - start);
        self.last = self.last.max(end);
        if done.len() == herd.calls {
            self.finishes.push(end);
        } else {
            self.lost += 1;
        }
    }
}
