//! What Backstop costs: one run that measures a stub API directly, through nginx and through Backstop.
//!
//! Both proxies get one worker and the same core; the load and the stub share the other one. Every round starts them
//! anew and measures each system in each test before the next test begins, in turned order every second round, so that
//! whatever else the machine does falls on all alike. What is printed are medians over the rounds.
//!
//! `cargo bench --bench overhead -- [--quick] [--json]`

mod load;
mod proc;
mod report;
mod stub;
mod systems;

use std::io;
use std::time::Duration;

use load::{Client, Kind};
use proc::Usage;
use report::{Report, percentile};
use systems::System;

/// How long and how often to measure.
struct Plan {
    rounds: usize,
    time: Duration,
    /// How many streams to hold open, each number on a process of its own; the last one's goes on to the tests.
    open_streams: [(&'static str, usize); 2],
}

const FULL: Plan = Plan {
    rounds: 5,
    time: Duration::from_secs(2),
    open_streams: [("5,000 open streams", 5000), ("1,000 open streams", 1000)],
};
const QUICK: Plan = Plan {
    rounds: 2,
    time: Duration::from_millis(500),
    open_streams: [("1,000 open streams", 1000), ("200 open streams", 200)],
};

/// A test: `connections` clients that each ask again as soon as they have their answer.
struct Test {
    name: &'static str,
    connections: usize,
    kind: Kind,
}

const TESTS: [Test; 6] = [
    Test { name: "1 KB, 1 connection", connections: 1, kind: Kind::Whole },
    Test { name: "1 KB, 32 connections", connections: 32, kind: Kind::Whole },
    Test { name: "1 KB, 256 connections", connections: 256, kind: Kind::Whole },
    Test { name: "stream, 1 connection", connections: 1, kind: Kind::Stream },
    Test { name: "stream, 10 connections", connections: 10, kind: Kind::Stream },
    Test { name: "paced stream, 50 connections", connections: 50, kind: Kind::Paced },
];

fn main() -> io::Result<()> {
    let mut plan = FULL;
    let mut json = false;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--quick" => plan = QUICK,
            "--json" => json = true,
            "--bench" => {} // cargo's own
            _ => return Err(io::Error::other(format!("unknown argument {arg}; known are --quick and --json"))),
        }
    }
    proc::prepare(systems::LOAD_CORE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(measure(&plan))?;
    if json {
        println!("{}", report.json());
    } else {
        println!("{}", report.table());
    }
    Ok(())
}

async fn measure(plan: &Plan) -> io::Result<Report> {
    let stub = stub::start().await?;
    let mut report = Report::new(systems::environment());
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        let [many, few] = plan.open_streams;
        open_streams(many, &in_turn(systems::start_all(stub)?, round), &mut report).await?;
        let systems = in_turn(systems::start_all(stub)?, round);
        for system in &systems {
            started(system, &mut report)?;
        }
        open_streams(few, &systems, &mut report).await?;
        for test in &TESTS {
            for system in &systems {
                run(test, system, plan.time, &mut report).await?;
            }
        }
        for system in &systems {
            if let Some(pid) = system.pid() {
                report.add(system.name, "process", "RSS after the load, MB", proc::rss(pid)? / 1e6);
            }
        }
    }
    Ok(report)
}

fn in_turn(mut systems: Vec<System>, round: usize) -> Vec<System> {
    if round % 2 == 1 {
        systems.reverse();
    }
    systems
}

fn started(system: &System, report: &mut Report) -> io::Result<()> {
    if let (Some(pid), Some(startup)) = (system.pid(), system.startup) {
        report.add(system.name, "process", "start-up, ms", startup.as_secs_f64() * 1e3);
        report.add(system.name, "process", "RSS idle, MB", proc::rss(pid)? / 1e6);
    }
    Ok(())
}

async fn run(test: &Test, system: &System, time: Duration, report: &mut Report) -> io::Result<()> {
    let request = load::request(system, test.kind);
    let mut clients = Client::connect_all(system, test.connections).await?;
    load::run(&mut clients, &request, test.kind, time / 10).await?; // warm up
    let before = system.pid().map(Usage::of).transpose()?;
    let run = load::run(&mut clients, &request, test.kind, time).await?;
    let after = system.pid().map(Usage::of).transpose()?;

    let mut add = |metric, value| report.add(system.name, test.name, metric, value);
    let cpu = before.zip(after).map(|(before, after)| after.since(&before).as_secs_f64() * 1e6);
    let seconds = run.elapsed.as_secs_f64();
    if test.kind == Kind::Whole {
        add("requests/s", run.calls as f64 / seconds);
        add("p50, µs", percentile(&run.whole, 0.50));
        add("p99, µs", percentile(&run.whole, 0.99));
        cpu.into_iter().for_each(|cpu| add("CPU a request, µs", cpu / run.calls as f64));
    } else {
        if test.kind == Kind::Stream {
            add("events/s", run.events as f64 / seconds);
        }
        if test.connections == 1 {
            add("first byte p50, µs", percentile(&run.first_byte, 0.50));
            add("first byte p99, µs", percentile(&run.first_byte, 0.99));
        }
        if test.kind == Kind::Paced {
            add("write to read p50, µs", percentile(&run.delay, 0.50));
            add("write to read p95, µs", percentile(&run.delay, 0.95));
            add("write to read p99, µs", percentile(&run.delay, 0.99));
        }
        cpu.into_iter().for_each(|cpu| add("CPU an event, µs", cpu / run.events as f64));
    }
    Ok(())
}

/// The memory of each system when it holds many streams open and has done nothing else yet.
async fn open_streams((name, count): (&'static str, usize), systems: &[System], report: &mut Report) -> io::Result<()> {
    if proc::open_files()? < 2 * count + 200 {
        eprintln!(
            "{name} are left out: each takes two open files, and the limit (ulimit -n) could not be raised so far"
        );
        return Ok(());
    }
    for system in systems {
        let Some(pid) = system.pid() else { continue };
        let before = proc::rss(pid)?;
        let mut clients = Client::connect_all(system, count).await?;
        for client in &mut clients {
            client.head(&load::request(system, Kind::Held)).await?;
        }
        let open = proc::rss(pid)?;
        report.add(system.name, name, "RSS, MB", open / 1e6);
        report.add(system.name, name, "KB a stream", (open - before) / 1e3 / count as f64);
    }
    Ok(())
}
