//! Many agents behind one learned rate, in virtual time.

mod upstream;
mod world;

use upstream::{Hint, Limit, MS, Micros, SECOND, Upstream};
use world::{Herd, Outcome, World};

fn bucket(rate: f64, burst: f64, burns: bool, hint: Hint) -> Upstream {
    Upstream::new(Limit::Bucket { rates: vec![(0, rate)], burst, burns }, hint)
}

fn herd_upstream(burns: bool, hint: Hint) -> Upstream {
    let mut upstream = bucket(20.0, 20.0, burns, hint);
    upstream.outages = vec![(12 * SECOND, 17 * SECOND)];
    upstream
}

#[test]
fn tune() {
    let seeds: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(50);
    let only = std::env::var("ONLY").unwrap_or_default();
    let verbose = std::env::var("V").is_ok();
    for (name, herd, upstream) in scenarios() {
        if !name.contains(&only) { continue; }
        let best = upstream.optimum((herd.agents as u64) * u64::from(herd.calls)) + herd.latency.0;
        let runs: Vec<Outcome> = (0..seeds).map(|seed| World::new(&herd, &upstream, seed).run()).collect();
        let stat = |f: &dyn Fn(&Outcome) -> f64| {
            let mut v: Vec<f64> = runs.iter().map(f).collect();
            v.sort_by(f64::total_cmp);
            format!("{:>7.3} {:>7.3}", v[v.len() / 2], v[v.len() - 1])
        };
        println!("{name:<26} ratio {} waste {} 429 {} 5xx {} lost {} burst {} jain-min {:.3} best {:.1} {:?}",
            stat(&|o| o.last_done as f64 / best as f64), stat(&Outcome::waste), stat(&|o| o.limited as f64), stat(&|o| o.failed as f64),
            stat(&|o| o.lost as f64), stat(&|o| o.burst(o.first_limited.unwrap_or(Micros::MAX)) as f64),
            runs.iter().map(Outcome::fairness).fold(1.0, f64::min), best as f64 / 1e6, runs.iter().flat_map(|o| &o.faults).next());
        if verbose {
            let o = runs.iter().max_by_key(|o| (o.lost, o.last_done)).unwrap();
            println!("  429 {:?}", o.limited_at.iter().map(|t| (*t as f64 / 1e4).round() / 100.0).collect::<Vec<_>>());
            println!("  5xx {:?}", o.failed_at.iter().map(|t| (*t as f64 / 1e4).round() / 100.0).collect::<Vec<_>>());
            println!("  rates {:?}", o.rates.iter().map(|(t, r)| ((*t as f64 / 1e4).round() / 100.0, (r * 100.0).round() / 100.0)).collect::<Vec<_>>());
            let mut per = vec![0; (o.last_done / SECOND + 1) as usize];
            for t in &o.done_at { per[(*t / SECOND) as usize] += 1; }
            println!("  per s {per:?}");
        }
    }
}

fn scenarios() -> Vec<(&'static str, Herd, Upstream)> {
    let herd = Herd::default();
    let mut all = Vec::new();
    let hints = [("none", Hint::None), ("honest", Hint::Honest), ("1s", Hint::Always(SECOND))];
    for burns in [false, true] {
        for (word, hint) in hints {
            let name: &str = format!("{}-{word}", if burns { "b" } else { "a" }).leak();
            all.push((name, herd.clone(), herd_upstream(burns, hint)));
        }
    }
    let instant = Herd { spread: 0, ..herd.clone() };
    all.push(("a-instant", instant.clone(), herd_upstream(false, Hint::None)));
    all.push(("b-instant", instant.clone(), herd_upstream(true, Hint::None)));
    let b = |rate, burst, burns, hint| bucket(rate, burst, burns, hint);
    for burns in [false, true] {
        let w: &str = if burns { "b" } else { "a" };
        let n = |s: &str| -> &'static str { format!("x{w}-{s}").leak() };
        all.push((n("0.2/s"), Herd { agents: 20, calls: 5, ..herd.clone() }, b(0.2, 1.0, burns, Hint::None)));
        all.push((n("2/s"), Herd { agents: 50, calls: 10, ..herd.clone() }, b(2.0, 5.0, burns, Hint::None)));
        all.push((n("500/s"), Herd { agents: 1000, calls: 20, ..herd.clone() }, b(500.0, 100.0, burns, Hint::None)));
        all.push((n("20/s burst 1"), herd.clone(), b(20.0, 1.0, burns, Hint::None)));
        all.push((n("20/s burst 5"), herd.clone(), b(20.0, 5.0, burns, Hint::None)));
        all.push((n("20/s burst 400"), Herd { calls: 10, ..herd.clone() }, b(20.0, 400.0, burns, Hint::None)));
        let mut u = b(20.0, 20.0, burns, Hint::None);
        u.limit = Limit::Bucket { rates: vec![(0, 20.0), (20 * SECOND, 100.0)], burst: 20.0, burns };
        all.push((n("up x5"), Herd { calls: 20, ..herd.clone() }, u.clone()));
        u.limit = Limit::Bucket { rates: vec![(0, 20.0), (20 * SECOND, 4.0)], burst: 20.0, burns };
        all.push((n("down /5"), herd.clone(), u.clone()));
        u.limit = Limit::Bucket { rates: vec![(0, 100.0), (10 * SECOND, 20.0), (40 * SECOND, 100.0)], burst: 20.0, burns };
        all.push((n("100-20-100"), Herd { calls: 20, ..herd.clone() }, u.clone()));
        let mut u = b(20.0, 40.0, burns, Hint::None);
        u.cost = (0.2, 1.8);
        all.push((n("tokens"), herd.clone(), u));
        all.push((n("lies 1ms"), herd.clone(), b(20.0, 20.0, burns, Hint::Always(MS))));
        all.push((n("lies 30s"), herd.clone(), b(20.0, 20.0, burns, Hint::Always(30 * SECOND))));
        let mut slow = herd_upstream(burns, Hint::None);
        slow.outages.clear();
        all.push((n("slow 20s"), Herd { latency: (10 * SECOND, 30 * SECOND), agents: 800, ..herd.clone() }, slow));
        let mut u = herd_upstream(burns, Hint::None);
        u.failing = 0.02;
        all.push((n("2% failing"), herd.clone(), u.clone()));
        u.failing = 0.05;
        all.push((n("5% failing"), herd.clone(), u));
        let late = Herd { refusal: (300 * MS, 1000 * MS), ..herd.clone() };
        all.push((n("late 429"), late, b(20.0, 20.0, burns, Hint::None)));
        let steps = Herd { clock: vec![(5 * SECOND, -3600_000_000), (15 * SECOND, 7200_000_000), (30 * SECOND, -500_000), (40 * SECOND, 0)], ..herd.clone() };
        all.push((n("clock"), steps, b(20.0, 20.0, burns, Hint::None)));
    }
    let window = |hint| Upstream::new(Limit::Window { length: 60 * SECOND, requests: 15 }, hint);
    all.push(("window hint", Herd { agents: 30, calls: 5, ..herd.clone() }, window(Hint::Honest)));
    all.push(("window none", Herd { agents: 30, calls: 5, ..herd.clone() }, window(Hint::None)));
    let w1 = Upstream::new(Limit::Window { length: SECOND, requests: 20 }, Hint::None);
    all.push(("window 1s", herd.clone(), w1));
    let mut free = Upstream::new(Limit::None, Hint::None);
    free.outages = vec![(SECOND, 6 * SECOND)];
    all.push(("free, outage", herd.clone(), free.clone()));
    free.outages = vec![];
    free.failing = 0.05;
    all.push(("free, 5%", herd.clone(), free.clone()));
    all.push(("free, 5%, slow", Herd { latency: (10 * SECOND, 30 * SECOND), ..herd.clone() }, free));
    let mut long = herd_upstream(false, Hint::None);
    long.outages = vec![(12 * SECOND, 72 * SECOND)];
    all.push(("outage 60s", herd.clone(), long));
    all
}
