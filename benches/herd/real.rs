//! The program itself, over sockets and in real time: a provider, Backstops and agents on one machine.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::report::{Report, Row};
use crate::support::herd::{Door, Figures, HERD, Herd, Provider, World, run};
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use crate::support::{Upstream, ms, tcp};
use crate::{System, worlds};

/// Each system in each world; the worlds of one system at the same time, since 20 requests a second are little work.
pub fn alone(systems: &[System]) -> Report {
    let mut report = Report::new("real time, over sockets, one run each; at once: the worlds of one system".into());
    for &system in systems {
        let herd = Herd { habit: system.habit(), ..HERD };
        let mut herds = vec![herd];
        if system == System::Backstop {
            herds.extend([Herd { spread: ms(0), ..herd }, Herd { companion: true, ..herd }]);
        }
        for herd in herds {
            measure(&mut report, system, herd, |world| async move { once(system, herd, &world, None).await });
        }
    }
    report
}

/// Two Backstops that share a redis-server, each with half of the agents.
pub fn two_on_redis() -> Report {
    let mut report = Report::new("real time, two Backstops on one Redis, one run each".into());
    for herd in [HERD, Herd { companion: true, ..HERD }] {
        let Some(servers) = worlds().iter().map(|_| RedisServer::start()).collect::<Option<Vec<_>>>() else {
            eprintln!("(Debian: redis-server)");
            return report;
        };
        let mut configs = servers.iter().map(RedisServer::toml);
        measure(&mut report, System::Backstop, herd, |world| {
            let shared = configs.next();
            async move { once(System::Backstop, herd, &world, shared.as_deref()).await }
        });
    }
    report
}

/// One row for each world, all of them at the same time.
fn measure<F, W>(report: &mut Report, system: System, herd: Herd, mut one: F)
where
    F: FnMut(World) -> W,
    W: Future<Output = (Figures, Option<Figures>)> + Send + 'static,
{
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let runs: Vec<_> = worlds().map(|world| runtime.spawn(one(world))).into_iter().collect();
    for (run, world) in runs.into_iter().zip(worlds()) {
        let (figures, alone) = runtime.block_on(run).expect("a run that ends well");
        report.add(Row { system: system.name(), world, herd, runs: vec![figures], alone });
    }
}

/// The herd, and if it has an interactive agent, that one alone before it, in front of fresh Backstops.
async fn once(system: System, herd: Herd, world: &World, redis: Option<&str>) -> (Figures, Option<Figures>) {
    let alone = match herd.companion {
        true => Some(fresh(system, Herd { agents: 0, ..herd }, world, None).await),
        false => None,
    };
    (fresh(system, herd, world, redis).await, alone)
}

async fn fresh(system: System, herd: Herd, world: &World, redis: Option<&str>) -> Figures {
    let provider = Provider::new(world, herd.seed);
    let upstream = Upstream::new(provider.script());
    let address = tcp::listen(&upstream).await;
    let count = if redis.is_some() { 2 } else { usize::from(system == System::Backstop) };
    let started: Vec<_> = (0..count).map(|_| Process::logging("info", &config(address, redis), &[])).collect();
    let places = if count == 0 { vec![address] } else { started.iter().map(|process| process.address).collect() };
    Figures::of(&run(herd, Arc::new(Door::Tcp(places)), &provider).await, world)
}

fn config(upstream: SocketAddr, redis: Option<&str>) -> String {
    format!("{}[upstreams.openai]\nbase_url = \"http://{upstream}\"\n", redis.unwrap_or_default())
}
