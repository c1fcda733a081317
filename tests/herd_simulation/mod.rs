//! Many agents behind one learned rate, in virtual time. One seed is one run.
//! `cargo test --test suite herd_simulation::figures -- --ignored --nocapture` prints what each world comes to.

mod upstream;
mod world;

use upstream::{Hint, Limit, MS, Micros, SECOND, Upstream};
use world::{Herd, Outcome, World};

const HINTS: [Hint; 3] = [Hint::None, Hint::Honest, Hint::Always(SECOND)];

/// One herd and its upstream, and what a run may come to at worst.
struct Case {
    name: String,
    herd: Herd,
    upstream: Upstream,
    /// Time over the physical optimum.
    ratio: f64,
    /// Rejections and failures for each call done.
    waste: f64,
    /// Calls that ran out of tries.
    lost: u64,
}

impl Case {
    fn new(name: &str, upstream: Upstream, ratio: f64, waste: f64) -> Self {
        Case { name: name.into(), herd: Herd::default(), upstream, ratio, waste, lost: 0 }
    }

    fn herd(mut self, change: impl FnOnce(&mut Herd)) -> Self {
        change(&mut self.herd);
        self
    }

    fn upstream(mut self, change: impl FnOnce(&mut Upstream)) -> Self {
        change(&mut self.upstream);
        self
    }

    fn run(&self, seed: u64) -> Outcome {
        World::new(&self.herd, &self.upstream, seed).run()
    }

    /// When the last good head can come at the earliest.
    fn optimum(&self) -> f64 {
        let calls = self.herd.agents as u64 * u64::from(self.herd.calls);
        (self.upstream.optimum(calls) + self.herd.latency.0) as f64
    }

    fn check(&self, seeds: u64) {
        self.check_also(seeds, |_| true);
    }

    fn check_also(&self, seeds: u64, also: impl Fn(&Outcome) -> bool) {
        let optimum = self.optimum();
        for seed in 0..seeds {
            let run = self.run(seed);
            let ratio = run.last_done as f64 / optimum;
            let told = format!("{}, seed {seed}: {ratio:.3} × optimum, {:.3} wasted", self.name, run.waste());
            assert_eq!(run.faults, Vec::<String>::new(), "{told}");
            assert!(run.lost <= self.lost, "{told}, {} lost", run.lost);
            assert!(ratio <= self.ratio && run.waste() <= self.waste, "{told}");
            let burst = run.burst(run.first_limited.unwrap_or(Micros::MAX));
            assert!(also(&run), "{told}, {burst} arrivals in 100 ms, fairness {:.3}", run.fairness());
        }
    }
}

fn bucket(rate: f64, burst: f64, burns: bool) -> Upstream {
    Upstream::new(Limit::Bucket { rates: vec![(0, rate)], burst, burns }, Hint::None)
}

/// The benchmark's upstream: 20/s, burst 20, out from 12 s to 17 s.
fn benchmark(burns: bool, hint: Hint) -> Upstream {
    Upstream { hint, outages: vec![(12 * SECOND, 17 * SECOND)], ..bucket(20.0, 20.0, burns) }
}

fn aims() -> Vec<Case> {
    let mut cases = Vec::new();
    for burns in [false, true] {
        for hint in HINTS {
            let name = format!("benchmark, burns {burns}, hint {hint:?}");
            cases.push(Case::new(&name, benchmark(burns, hint), 1.05, 0.05));
        }
    }
    cases
}

/// All start in one instant: the first wave is on its way before there is any sign.
fn instants() -> Vec<Case> {
    let case = |burns| {
        let name = format!("one instant, burns {burns}");
        Case::new(&name, benchmark(burns, Hint::None), 1.05, 0.22).herd(|h| h.spread = 0)
    };
    vec![case(false), case(true)]
}

/// Other limits. The bounds are what 200 seeds came to, and a little.
fn others(burns: bool) -> Vec<Case> {
    let case = |name: &str, rate, burst, ratio, waste| {
        Case::new(&format!("{name}, burns {burns}"), bucket(rate, burst, burns), ratio, waste)
    };
    vec![
        case("0.2/s, burst 1", 0.2, 1.0, 1.4, 0.18).herd(|h| h.agents = 20),
        case("one agent at 1/s, burst 1", 1.0, 1.0, 2.4, 0.5).herd(|h| (h.agents, h.calls) = (1, 15)),
        case("three agents at 1/s, burst 1", 1.0, 1.0, 1.8, 0.25).herd(|h| (h.agents, h.calls) = (3, 10)),
        case("three agents at 0.25/s, burst 3", 0.25, 3.0, 1.7, 0.55).herd(|h| (h.agents, h.calls) = (3, 5)),
        case("2/s, burst 5", 2.0, 5.0, 1.05, 0.05).herd(|h| (h.agents, h.calls) = (50, 10)),
        case("500/s, burst 100", 500.0, 100.0, 1.15, 0.01).herd(|h| (h.agents, h.calls) = (1000, 20)),
        case("20/s, burst 1", 20.0, 1.0, 1.4, 0.04),
        case("20/s, burst 5", 20.0, 5.0, 1.05, 0.04),
        case("20/s, burst 400", 20.0, 400.0, 1.03, 0.03).herd(|h| h.calls = 10),
        case("2 % failures", 20.0, 20.0, 1.1, 0.07).upstream(|u| u.failing = 0.02),
        case("tokens", 20.0, 40.0, 1.1, 0.07).upstream(|u| u.cost = (0.2, 1.8)),
        case("hints of 1 ms", 20.0, 20.0, 1.03, 0.04).upstream(|u| u.hint = Hint::Always(MS)),
        // Each rejection stops everything for 30 s, as the provider asks.
        case("hints of 30 s", 20.0, 20.0, 5.3, 0.03).upstream(|u| u.hint = Hint::Always(30 * SECOND)),
        // The last answers alone take 20 s longer than the first.
        case("slow answers", 20.0, 20.0, 1.2, 0.03).herd(|h| (h.agents, h.latency) = (800, (10 * SECOND, 30 * SECOND))),
        // Half a second of the first wave is on its way before the first rejection is known.
        case("late rejections", 20.0, 20.0, 1.2, 0.4).herd(|h| h.refusal = (300 * MS, SECOND)),
        case("clock steps", 20.0, 20.0, 1.05, 0.05).herd(|h| h.clock = clock_steps()),
    ]
}

/// An hour back, three on, two back, and half a second here and there.
fn clock_steps() -> Vec<(Micros, i64)> {
    vec![(5 * SECOND, -3_600_000_000), (15 * SECOND, 7_200_000_000), (30 * SECOND, -500_000), (40 * SECOND, 0)]
}

/// Limits that change while they are used, and limits that are no buckets.
fn changes() -> Vec<Case> {
    let changing = |name: &str, rates: &[(Micros, f64)], burns, ratio| {
        let limit = Limit::Bucket { rates: rates.to_vec(), burst: 20.0, burns };
        Case::new(&format!("{name}, burns {burns}"), Upstream::new(limit, Hint::None), ratio, 0.05)
    };
    let mut cases = Vec::new();
    for burns in [false, true] {
        cases.push(changing("up × 5", &[(0, 20.0), (20 * SECOND, 100.0)], burns, 1.2).herd(|h| h.calls = 20));
        cases.push(changing("down ÷ 5", &[(0, 20.0), (20 * SECOND, 4.0)], burns, 1.05));
        let there_and_back = [(0, 100.0), (10 * SECOND, 20.0), (40 * SECOND, 100.0)];
        cases.push(changing("there and back", &there_and_back, burns, 1.25).herd(|h| h.calls = 20));
    }
    let window = |length, requests, hint| Upstream::new(Limit::Window { length, requests }, hint);
    let minute = |hint, ratio| {
        let name = format!("15 a minute, hint {hint:?}");
        Case::new(&name, window(60 * SECOND, 15, hint), ratio, 0.15).herd(|h| h.agents = 30)
    };
    cases.push(minute(Hint::Honest, 1.05));
    // Without a hint, the end of a minute is waited for with single tries, and a call has five.
    cases.push(Case { lost: 1, ..minute(Hint::None, 1.35) });
    cases.push(Case::new("20 in each second", window(SECOND, 20, Hint::None), 1.3, 0.07));
    let long = Upstream { outages: vec![(12 * SECOND, 72 * SECOND)], ..benchmark(false, Hint::None) };
    cases.push(Case::new("an outage of a minute", long, 1.05, 0.08));
    // The optimum of no limit is one answer's time; five calls with their pauses take 3 s, an outage of 5 s not counted.
    let free = Case::new("no limit, an outage", Upstream::new(Limit::None, Hint::None), 40.0, 0.04);
    cases.push(free.upstream(|u| u.outages = vec![(SECOND, 6 * SECOND)]));
    cases
}

#[test]
fn the_aims_hold_in_both_worlds_whatever_the_hints() {
    for case in aims() {
        case.check_also(35, |run| run.burst(run.first_limited.unwrap()) <= 22 && run.fairness() >= 0.97);
    }
}

#[test]
fn a_first_wave_of_one_instant_is_the_only_one() {
    for case in instants() {
        // From 100 ms on all that was sent before the first sign has arrived.
        case.check_also(10, |run| run.burst(100 * MS) <= 22);
    }
}

#[test]
fn other_limits_are_found_too() {
    for case in others(false).into_iter().chain(others(true)) {
        case.check(3);
    }
}

#[test]
fn limits_that_change_or_are_no_buckets_are_found_too() {
    changes().iter().for_each(|case| case.check(3));
}

#[test]
fn without_a_limit_nothing_is_held_back() {
    let case = Case::new("no limit", Upstream::new(Limit::None, Hint::None), 20.0, 0.0);
    let run = case.run(1);
    // Five answers of 250 ms, four pauses of 0.4 s and the start: nobody waits for anything else.
    assert!(run.last_done < (5 * 252 + 4 * 400 + 400) * MS, "{} µs", run.last_done);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for case in aims().into_iter().chain(changes()) {
        assert_eq!(case.run(7), case.run(7), "{}", case.name);
    }
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    let plain = aims().into_iter().map(|case| {
        let name = format!("{}, probes by age", case.name);
        Case { name, ..case }.herd(|h| h.spares = false)
    });
    let cases = aims().into_iter().chain(plain).chain(instants()).chain(others(false)).chain(others(true));
    println!("median and worst of 200 seeds: time over optimum, wasted a call, lost, arrivals in 100 ms, 1 - fairness");
    let only = std::env::var("BACKSTOP_CASE").unwrap_or_default();
    for case in cases.chain(changes()).filter(|case| case.name.contains(&only)) {
        let optimum = case.optimum();
        let runs: Vec<Outcome> = (0..200).map(|seed| case.run(seed)).collect();
        let told = |value: &dyn Fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            format!("{:7.3} {:7.3}", values[100], values[199])
        };
        let from = |run: &Outcome| run.burst(run.first_limited.unwrap_or(Micros::MAX)) as f64;
        println!(
            "{:<45} {} |{} |{} |{} |{}",
            case.name,
            told(&|run| run.last_done as f64 / optimum),
            told(&Outcome::waste),
            told(&|run| run.lost as f64),
            told(&from),
            told(&|run| 1.0 - run.fairness()),
        );
    }
}
