//! A herd: 200 agents × 5 calls through a limit of 20 requests a second (burst 20) and an outage of 5 s, for Backstop with
//! its default config, for plain SDKs and for a loop with exponential backoff.
//!
//! `cargo bench --bench herd -- [--real | --redis] [--seeds N] [--backstop]`
//!
//! Without a flag it runs in virtual time, through the whole proxy, over memory: some seeds a row, medians. `--real` runs
//! the program against a provider on a socket, in real time; `--redis` two of them that share a redis-server. `--backstop`
//! leaves the others out.

mod real;
mod report;
/// The provider, the agents and the Backstop in memory are those of the tests.
#[path = "../../tests/support/mod.rs"]
mod support;

use std::io;
use std::sync::Arc;

use report::{Report, Row};
use support::herd::{Door, Figures, HERD, Habit, Herd, Provider, World, run};
use support::{Bed, Upstream, ms};

/// What stands between the agents and the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Backstop,
    Sdk,
    Fixed,
}

impl System {
    const ALL: [System; 3] = [System::Backstop, System::Sdk, System::Fixed];

    fn name(self) -> &'static str {
        match self {
            System::Backstop => "Backstop, SDKs",
            System::Sdk => "SDKs alone",
            System::Fixed => "10 fixed retries",
        }
    }

    fn habit(self) -> Habit {
        if self == System::Fixed { Habit::Fixed } else { Habit::Sdk }
    }
}

/// Both costs of a 429, without and with a Retry-After.
fn worlds() -> [World; 4] {
    [(false, false), (false, true), (true, false), (true, true)].map(|(burns, hints)| World::new(burns, hints))
}

fn main() -> io::Result<()> {
    let mut seeds = 9;
    let mut mode = "";
    let mut systems = &System::ALL[..];
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect(); // cargo's own
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "--real" | "--redis" => mode = if arg == "--real" { "real" } else { "redis" },
            "--backstop" => systems = &[System::Backstop],
            "--seeds" => seeds = args.next().and_then(|n| n.parse().ok()).unwrap_or(seeds),
            _ => {
                return Err(io::Error::other(format!(
                    "unknown argument {arg}; known: --real, --redis, --seeds N, --backstop"
                )));
            }
        }
    }
    let report = match mode {
        "real" => real::alone(systems),
        "redis" => real::two_on_redis(),
        _ => in_virtual_time(seeds, systems),
    };
    print!("{report}");
    Ok(())
}

fn in_virtual_time(seeds: u64, systems: &[System]) -> Report {
    let mut report = Report::new(format!("virtual time, medians of {seeds} seeds, the worst in brackets"));
    for spread in [HERD.spread, ms(0)] {
        for world in worlds() {
            for &system in systems {
                let herd = Herd { spread, habit: system.habit(), ..HERD };
                let runs = (1..=seeds).map(|seed| once(Herd { seed, ..herd }, system, &world)).collect();
                report.add(Row { system: system.name(), world: world.clone(), herd, runs, alone: None });
            }
        }
    }
    for world in worlds() {
        let herd = Herd { companion: true, ..HERD };
        let runs = (1..=seeds).map(|seed| once(Herd { seed, ..herd }, System::Backstop, &world)).collect();
        let alone = once(Herd { agents: 0, ..herd }, System::Backstop, &world);
        report.add(Row { system: System::Backstop.name(), world, herd, runs, alone: Some(alone) });
    }
    report
}

/// One run: a runtime of its own, whose clock stands still while anything can be done.
fn once(herd: Herd, system: System, world: &World) -> Figures {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        fastrand::seed(herd.seed); // the proxy's dice
        let provider = Provider::new(world, herd.seed);
        let door = match system {
            System::Backstop => Door::Bed(Bed::new("", provider.script())),
            System::Sdk | System::Fixed => Door::Upstream(Upstream::new(provider.script())),
        };
        Figures::of(&run(herd, Arc::new(door), &provider).await, world)
    })
}
